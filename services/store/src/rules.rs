//! What both databases decide alike, once. A store loads rows, calls these functions, and writes what they give: nothing
//! here reads or writes.

pub mod artifact;
pub mod counts;
pub mod entry;
pub mod ids;
pub mod key;
pub mod retransmit;
pub mod thread;
