//! The embedded database through its public interface.

mod arrange;
mod cancelling;
mod changes;
mod conformance;
mod full_disk;
mod groups;
mod opening;
mod predecessor;
mod transfer;
mod vectors;
