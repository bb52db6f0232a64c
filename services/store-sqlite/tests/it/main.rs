//! The embedded database through its public interface.

mod conformance;
mod opening;
