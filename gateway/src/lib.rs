//! The MCP gateway of the context service.
//!
//! It turns every MCP tool call into exactly one gRPC request and has no behaviour of its own: what it can do, gRPC
//! can do. It speaks stdio and streamable HTTP, every protocol revision from 2024-11-05 to 2026-07-28, lists its tools
//! without the service, and goes on when the service restarts.
//!
//! The main types are [`Gateway`](handler::Gateway), the MCP server; [`Backend`](backend::Backend), its channel to the
//! service; and [`Catalogue`](catalogue::Catalogue), the tools as clients see them.
//!
//! ```
//! use context_gateway::catalogue::Catalogue;
//!
//! assert_eq!(Catalogue::get().tools()[0].name, "store_context");
//! ```

pub mod backend;
pub mod call;
pub mod catalogue;
pub mod cli;
pub mod envelope;
pub mod features;
pub mod handler;
pub mod http;
pub mod install;
pub mod key_file;
pub mod lenient;
pub mod limits;
pub mod local;
pub mod memory;
pub mod prompts;
pub mod reply;
pub mod resources;
pub mod scan;
pub mod stdio;
