//! The command line of `context-service`.

use clap::{Args, Parser, Subcommand};
use context_engine::Admin;
use context_model::CreateApiKeyRequest;

use crate::config::{Config, Secret, Url};

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
    /// Make, list, switch off and replace API keys
    #[command(subcommand)]
    Keys(Keys),
    /// Make, list and erase owners, whose entries and artifacts nobody else sees
    #[command(subcommand)]
    Owners(Owners),
    /// Print an owner's audit log as JSON lines: who changed what, and what was refused
    Audit {
        /// Whose
        #[arg(long, default_value = "default")]
        owner: String,
        /// From when on: a date or a date-time
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
    },
    /// Fetch the default embedding model (all-MiniLM-L6-v2, 91 MB), which turns search by meaning on
    FetchModel {
        /// The model hub
        #[arg(
            long,
            env = "HF_ENDPOINT",
            value_name = "URL",
            default_value = "https://huggingface.co"
        )]
        hub: Url,
    },
    /// Embed every entry with the configured model, which then takes the place of the one whose vectors the database holds;
    /// everything goes on meanwhile, and an interrupted run goes on where it was
    Reembed,
    /// Move everything from one database into another one, which is empty; also what an mcp-context-server stored
    MigrateData(MigrateData),
    /// Read everything that is stored and name what is damaged; a service may run meanwhile. Exit code 0: all is sound, 1:
    /// something is damaged, 2: it could not be checked
    Verify,
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

/// A migration.
#[derive(Debug, Clone, Args)]
pub struct MigrateData {
    /// The database to read: sqlite://PATH, postgresql://USER:PASSWORD@HOST/DATABASE, or `sqlite` or `postgresql` for that
    /// of the settings
    #[arg(long, value_name = "DATABASE")]
    pub from: Secret,
    /// The empty database to fill, written likewise
    #[arg(long, value_name = "DATABASE")]
    pub to: Secret,
    /// Whose the entries of an mcp-context-server become
    #[arg(long, default_value = "default")]
    pub owner: String,
}

/// What is done to keys.
#[derive(Debug, Clone, Subcommand)]
pub enum Keys {
    /// Make a key and print it, this once
    Create(CreateKey),
    /// Print what is known about an owner's keys, as JSON lines
    List {
        /// Whose
        #[arg(long, default_value = "default")]
        owner: String,
    },
    /// Switch a key off, for good
    Revoke {
        /// The key's id
        key_id: String,
        /// Whose
        #[arg(long, default_value = "default")]
        owner: String,
    },
    /// Make a key that replaces another one, which is switched off
    Rotate {
        /// The key's id
        key_id: String,
        /// Whose
        #[arg(long, default_value = "default")]
        owner: String,
    },
}

/// A key to make.
#[derive(Debug, Clone, Args)]
pub struct CreateKey {
    /// What to call it
    name: String,
    /// Whose
    #[arg(long, default_value = "default")]
    owner: String,
    /// What it allows, between commas: read, write, delete, manage
    #[arg(long, value_delimiter = ',', default_value = "read,write,delete")]
    scopes: Vec<String>,
    /// When it stops working: a date or a date-time
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Let it reach contexts or artifacts alone
    #[arg(long, value_name = "WHAT")]
    only: Option<String>,
    /// Let it reach these threads alone, between commas: names, and beginnings of names with a * at their end
    #[arg(long, value_delimiter = ',', value_name = "THREADS")]
    threads: Option<Vec<String>>,
}

/// What is done to owners.
#[derive(Debug, Clone, Subcommand)]
pub enum Owners {
    /// Make an owner
    Create {
        /// Its name
        owner: String,
    },
    /// Print the owners and what belongs to them, as JSON lines
    List,
    /// Remove an owner with everything that belongs to it, for good
    Erase {
        /// Its name
        owner: String,
        /// Say that this is meant
        #[arg(long, required = true)]
        yes: bool,
    },
}

impl Command {
    /// The command of the operator, when it is one.
    #[must_use]
    pub fn admin(&self) -> Option<Admin> {
        Some(match self.clone() {
            Self::Keys(Keys::Create(CreateKey {
                name,
                owner,
                scopes,
                expires,
                only,
                threads,
            })) => Admin::CreateKey {
                owner,
                key: CreateApiKeyRequest {
                    name,
                    scopes: Some(scopes),
                    expires_at: expires,
                    only,
                    threads,
                },
            },
            Self::Keys(Keys::List { owner }) => Admin::ListKeys { owner },
            Self::Keys(Keys::Revoke { key_id, owner }) => Admin::RevokeKey { owner, key_id },
            Self::Keys(Keys::Rotate { key_id, owner }) => Admin::RotateKey { owner, key_id },
            Self::Owners(Owners::Create { owner }) => Admin::CreateOwner { owner },
            Self::Owners(Owners::List) => Admin::ListOwners,
            Self::Owners(Owners::Erase { owner, yes: _ }) => Admin::EraseOwner { owner },
            Self::Audit { owner, from } => Admin::Audit { owner, from },
            Self::Doctor
            | Self::Ready
            | Self::FetchModel { .. }
            | Self::Reembed
            | Self::MigrateData(_)
            | Self::Openapi
            | Self::Completions { .. }
            | Self::ConfigDocs
            | Self::ErrorDocs
            | Self::Verify => return None,
        })
    }
}
