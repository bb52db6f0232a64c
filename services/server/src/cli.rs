//! The command line of `context-service`.

use clap::{Parser, Subcommand};

use crate::config::Config;

/// The context service: the shared memory of agents, over gRPC and REST.
///
/// Without a command it serves. It needs no configuration: entries are kept in ~/.mcp/context_storage.db.
#[derive(Debug, Clone, Parser)]
#[command(name = "context-service", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings.
    #[command(flatten)]
    pub config: Config,
}

const AFTER_HELP: &str = "Start here:\n  context-service            serve, and print how to register the gateway\n  \
context-service doctor     check this installation";

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Check settings, database, disk, socket and ports, and whether a service answers
    Doctor,
    /// Succeed when the service of this database runs and is ready; for health checks
    Ready,
    /// Print the OpenAPI document
    Openapi,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the page that lists every setting
    #[command(hide = true)]
    ConfigDocs,
    /// Print the page that lists every error reason
    #[command(hide = true)]
    ErrorDocs,
}
