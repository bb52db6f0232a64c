//! What an attacker can send to the real binaries: with no key, with a key that may only read, or as another owner.
//!
//! Each test starts a process of its own, attacks it, and shows that another owner is still served and that memory stays
//! within its bound. [`Target`] is the attacked service.

pub mod gateway;
pub mod http2;
pub mod keys;
pub mod target;

pub use target::Target;
