//! The context service: every operation of the engine over gRPC and REST, on a TCP port and a Unix socket.
//! `CONTEXT_GRPC_LISTEN` adds a port. A service that a gateway started has only the socket, and a port of 127.0.0.1
//! while its page is open.
//!
//! This crate contains the transports, the settings, and the start and stop of the process. The rules about
//! entries are in `context-model` and `context-engine`.
//!
//! ```no_run
//! use context_service::{Started, cli::Cli, config, start};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let arguments = ["context-service", "--listen=127.0.0.1:0", "--db-path=/tmp/example.db"].map(Into::into);
//! let cli: Cli = config::read(arguments, &|_| None).map_err(|error| error.text)?;
//! if let Started::Running(service) = start(&cli.config).await? {
//!     println!("{}", service.start_report().banner());
//!     service.run().await;
//! }
//! # Ok(())
//! # }
//! ```

mod admin;
mod admission;
mod app;
mod authenticate;
mod banner;
mod body;
mod changes;
mod check_settings;
pub mod cli;
mod compare_settings;
pub mod config;
mod connection;
mod connections;
mod cross_site;
mod doctor;
mod edge;
mod error_codes;
mod fetch_model;
pub mod follow;
mod grpc;
mod json_body;
mod json_values;
mod languages;
pub mod logging;
mod memory;
mod metrics;
mod migrate_data;
mod models;
mod open;
mod open_files;
mod origin;
mod page_port;
mod page_session;
mod problem;
mod program;
mod reembed;
mod request_context;
mod request_log;
mod rerankers;
mod rest;
mod rights;
mod route;
mod serve;
mod socket;
mod start_error;
mod stderr;
mod summaries;
mod transport;
mod verify;
mod watch;
mod write_context;
mod write_timeout;

pub use banner::{Database, StartReport};
pub use doctor::examine;
pub use error_codes::{codes, errors_page};
pub use program::main;
pub use reembed::command as reembed;
pub use rest::document;
pub use serve::{Running, Started, start};
pub use start_error::StartError;
