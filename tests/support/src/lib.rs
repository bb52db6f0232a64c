//! What tests share: the real binaries as processes ([`Home`], [`Process`]), clients of each transport ([`http`],
//! [`grpc`], [`Mcp`]), one random source ([`Random`]), and one way to wait for a condition ([`wait_for`], [`until`]).
//!
//! Everything panics on failure: it only runs in tests.
//!
//! ```no_run
//! # async fn example() {
//! use context_test_support::{Home, http::Request};
//!
//! let home = Home::new().with("LOG_LEVEL", "INFO");
//! let service = home.start().await;
//! let reply = Request::get(service.address(), "/healthz").send().await;
//! assert_eq!(reply.status, 200);
//! assert!(service.terminate().await.success());
//! # }
//! ```

pub mod grpc;
pub mod http;

mod binary;
mod clock;
mod home;
mod mcp;
mod process;
mod random;
mod reserved;
mod wait;

pub use binary::binary;
pub use clock::{from_now, now};
pub use home::Home;
pub use mcp::Mcp;
pub use process::{Process, Sweep, anonymous_kib, end_with_test, services_of};
pub use random::{Random, rounds, seed};
pub use reserved::Reserved;
pub use wait::{Deadline, until, wait_for};
