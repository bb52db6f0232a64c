//! The command line of `context-service`.

use clap::{Args, Parser, Subcommand};
use context_engine::Admin;
use context_model::{CreateApiKeyRequest, Secret};
use context_providers::fetch::{Fetchable, MODELS};

use crate::config::{Config, Url};
use crate::models::DEFAULT_MODEL;

/// The context service: the shared memory of agents, over gRPC and REST.
///
/// Without a command, it serves. It needs no configuration: entries are stored in
/// ~/.mcp/context_storage.db.
#[derive(Debug, Clone, Parser)]
#[command(name = "context-service", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// The command. Without one, the service runs.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The settings.
    #[command(flatten)]
    pub config: Config,
}

/// Parses the name of a model that `fetch-model` can download.
fn fetchable(name: &str) -> Result<Fetchable, String> {
    let names = MODELS.map(|model| model.name);
    Fetchable::named(name).ok_or_else(|| format!("it must be one of {}", names.join(", ")))
}

const AFTER_HELP: &str = "Start here:\n  context-service            serve, and print how to register the gateway\n  \
context-service doctor     check this installation";

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Check settings, models, database, disk and ports, and whether a service responds
    Doctor,
    /// Print every setting, its value and where the value came from. Keys and passwords are not shown
    Config(PrintConfig),
    /// Succeed if the service of this database is running and ready; for health checks
    Ready,
    /// Open the page of the running service in the browser, and print its URL. A service without a port opens one on
    /// 127.0.0.1 until no page has been visible for 30 minutes
    Open {
        /// Only print the URL
        #[arg(long)]
        print: bool,
    },
    /// Create, list, revoke and rotate API keys
    #[command(subcommand)]
    Keys(Keys),
    /// Create, list and erase owners. Entries and artifacts of one owner are invisible to all
    /// others
    #[command(subcommand)]
    Owners(Owners),
    /// Print an owner's audit log as JSON lines: changes, and refused requests
    Audit {
        /// Owner
        #[arg(long, default_value = "default")]
        owner: String,
        /// Start of the time range: a date or a date-time
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Number of lines to skip
        #[arg(long, value_name = "LINES", default_value_t = 0)]
        skip: u32,
    },
    /// Download an embedding model, which enables semantic search
    FetchModel {
        /// all-MiniLM-L6-v2 (English, 91 MB), multilingual-e5-small (a hundred languages, 488 MB) or bge-small-en-v1.5
        /// (English, better and slower, 134 MB)
        #[arg(
            value_name = "NAME",
            default_value = DEFAULT_MODEL,
            value_parser = fetchable
        )]
        model: Fetchable,
        /// Base URL of the model hub
        #[arg(
            long,
            env = "HF_ENDPOINT",
            value_name = "URL",
            default_value = "https://huggingface.co"
        )]
        hub: Url,
    },
    /// Embed every entry with the configured model and then switch to it. The service keeps running
    /// meanwhile, and an interrupted run continues where it stopped
    Reembed,
    /// Copy all data from one database into an empty one. The source may also be a database of
    /// mcp-context-server
    MigrateData(MigrateData),
    /// Maintain a copy of the data of one owner of another service, and serve it for reading. The key for that
    /// service comes from the environment: CONTEXT_API_KEY, or CONTEXT_API_KEY_FILE, a file with the key
    Follow(Follow),
    /// Check entries, images and artifact versions against their checksums, and name what is damaged. A service may be
    /// running meanwhile. Exit code 0: no damage, 1: damage found, 2: the check failed
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

/// Arguments of `config`.
#[derive(Debug, Clone, Args)]
pub struct PrintConfig {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Compare the settings with those of the running service instead, and print the outcome as JSON. For the gateway
    #[arg(long, hide = true)]
    pub compare: bool,
    /// With --compare: ask a service that a gateway started and no client uses to stop if settings differ
    #[arg(long, hide = true, requires = "compare")]
    pub stop_unused: bool,
    /// With --compare: compare only what is set for this process
    #[arg(long, hide = true, requires = "compare")]
    pub explicit: bool,
}

/// Arguments of `migrate-data`.
#[derive(Debug, Clone, Args)]
pub struct MigrateData {
    /// Database to read: sqlite://PATH, postgresql://USER:PASSWORD@HOST/DATABASE, or `sqlite` or
    /// `postgresql` for the configured one
    #[arg(long, value_name = "DATABASE")]
    pub from: Secret,
    /// Empty database to fill, in the same form
    #[arg(long, value_name = "DATABASE")]
    pub to: Secret,
    /// Owner of the entries from an mcp-context-server database
    #[arg(long, default_value = "default")]
    pub owner: String,
}

/// Arguments of `follow`.
#[derive(Debug, Clone, Args)]
pub struct Follow {
    /// The service to follow: http://HOST:PORT or unix:/PATH
    #[arg(value_name = "URL")]
    pub source: String,
    /// The copy: sqlite:///PATH. The file is created if it is missing
    #[arg(long, value_name = "DATABASE")]
    pub to: String,
    /// Owner of the entries in the copy. At the source, the key decides whose entries are copied
    #[arg(long, default_value = "default")]
    pub owner: String,
}

/// The key commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Keys {
    /// Create a key and print its secret, which is shown only once
    Create(CreateKey),
    /// Print an owner's keys without their secrets, as JSON lines
    List {
        /// Owner
        #[arg(long, default_value = "default")]
        owner: String,
    },
    /// Deactivate a key permanently
    Revoke {
        /// Id of the key
        key_id: String,
        /// Owner
        #[arg(long, default_value = "default")]
        owner: String,
    },
    /// Create a replacement for a key and deactivate the old key
    Rotate {
        /// Id of the key
        key_id: String,
        /// Owner
        #[arg(long, default_value = "default")]
        owner: String,
    },
}

/// Arguments of `keys create`.
#[derive(Debug, Clone, Args)]
pub struct CreateKey {
    /// Name of the key
    name: String,
    /// Owner
    #[arg(long, default_value = "default")]
    owner: String,
    /// Scopes, comma-separated: read, write, delete, manage
    #[arg(long, value_delimiter = ',', default_value = "read,write,delete")]
    scopes: Vec<String>,
    /// Expiry: a date or a date-time. If omitted, the key does not expire
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Restrict the key to `contexts` or `artifacts`
    #[arg(long, value_name = "WHAT")]
    only: Option<String>,
    /// Restrict the key to these threads, comma-separated: names, or prefixes that end with *
    #[arg(long, value_delimiter = ',', value_name = "THREADS")]
    threads: Option<Vec<String>>,
}

/// The owner commands.
#[derive(Debug, Clone, Subcommand)]
pub enum Owners {
    /// Create an owner
    Create {
        /// Name of the owner
        owner: String,
    },
    /// Print the owners and their usage, as JSON lines
    List,
    /// Permanently remove an owner and all of its data
    Erase {
        /// Name of the owner
        owner: String,
        /// Confirm the removal
        #[arg(long, required = true)]
        yes: bool,
    },
}

impl Command {
    /// The corresponding operator command, if it is one.
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
            Self::Audit { owner, from, skip } => Admin::Audit { owner, from, skip },
            Self::Config(_)
            | Self::Doctor
            | Self::Open { .. }
            | Self::Ready
            | Self::FetchModel { .. }
            | Self::Follow(_)
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
