//! The MCP gateway of the context service.
//!
//! It turns each MCP tool call into one gRPC request. Everything it can do, gRPC can do too. It serves stdio and
//! streamable HTTP with every protocol revision from 2024-11-05 to 2026-07-28. It lists its tools without the service
//! and keeps running when the service restarts.
//!
//! The same program has three other uses: its [`command`]s are for people and scripts, [`hook`] gives
//! an agent memory without tool calls, and [`install`] registers the gateway in a client.
//!
//! The main types are [`Gateway`](handler::Gateway), the MCP server; [`Backend`](backend::Backend), its connections to
//! the service; and [`Catalogue`](catalogue::Catalogue), the tools as clients see them.
//!
//! ```
//! use context_gateway::catalogue::Catalogue;
//!
//! assert_eq!(Catalogue::get().tools()[0].name, "store_context");
//! ```

pub mod backend;
pub mod batch;
pub mod brief;
pub mod call;
pub mod catalogue;
pub mod channel;
mod characters;
pub mod cli;
pub mod clock;
pub mod command;
pub mod connection;
mod credentials;
pub mod envelope;
pub mod features;
pub mod handler;
pub mod hook;
pub mod http;
pub mod install;
pub mod key_file;
pub mod lenient;
pub mod limits;
pub mod local;
pub mod memory;
mod predecessor;
mod program;
pub mod prompts;
pub mod reply;
pub mod resources;
pub mod scan;
pub mod service_program;
mod start_failure;
mod stderr;
pub mod stdio;
pub mod subscriptions;

pub use program::main;
