//! The embedded database through its public interface.

mod opening;
