//! Attacks on the real binaries: without a key, with a key that may only read, and as another owner.
//!
//! Each test starts and attacks processes of its own. Tests of load check that another owner is still served, or that
//! memory stays within its limit. [`Target`] is the attacked service of most of them.

mod client;
pub mod http2;
pub mod keys;
pub mod target;
mod watch;

pub use client::client;
pub use target::{BOUND_KIB, Target};
pub use watch::{highest, passed};
