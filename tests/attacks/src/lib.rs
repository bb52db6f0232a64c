//! Attacks on the real binaries: without a key, with a key that may only read, and as another owner.
//!
//! Each test starts its own process, attacks it, and checks that another owner is still served and that memory stays
//! within its limit. [`Target`] is the attacked service.

mod client;
pub mod http2;
pub mod keys;
pub mod target;
mod watch;

pub use client::client;
pub use target::Target;
pub use watch::{highest, passed};
