//! The commands `artifact list`, `artifact show`, `artifact save` and `artifact delete`.

use clap::{Args, Subcommand};
use context_model::Operation;
use serde_json::{Value, json};

use super::common::{Common, Session};
use super::failure::Failure;
use super::find::{PAGING, note_rest};
use super::inert::{inert, one_line};
use super::input::{self, Field};
use super::screen::{Side, moment, text};

/// The commands of `artifact`.
#[derive(Debug, Clone, Subcommand)]
pub enum ArtifactCommand {
    /// List artifacts, newest first, or those that contain a text
    List(ArtifactListArgs),
    /// Print an artifact
    Show(ArtifactShowArgs),
    /// Create an artifact from a file, or make a new version of one
    Save(ArtifactSaveArgs),
    /// Delete an artifact with all its versions; asks first
    Delete(ArtifactDeleteArgs),
}

impl ArtifactCommand {
    /// The options that all commands have.
    pub fn common(&mut self) -> &mut Common {
        match self {
            Self::List(args) => &mut args.common,
            Self::Show(args) => &mut args.common,
            Self::Save(args) => &mut args.common,
            Self::Delete(args) => &mut args.common,
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The service's error, or why there was no response.
pub async fn run(command: ArtifactCommand) -> Result<(), Failure> {
    match command {
        ArtifactCommand::List(args) => list(args).await,
        ArtifactCommand::Show(args) => show(args).await,
        ArtifactCommand::Save(args) => save(args).await,
        ArtifactCommand::Delete(args) => delete(args).await,
    }
}

/// The arguments of `artifact list`.
#[derive(Debug, Clone, Args)]
pub struct ArtifactListArgs {
    /// Only artifacts whose title or content contains this
    pub contains: Option<String>,
    /// Maximum number of artifacts
    #[arg(short = 'n', long, default_value_t = 10)]
    pub limit: i64,
    /// Number of artifacts to skip
    #[arg(long, conflicts_with = "contains")]
    pub offset: Option<i64>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

async fn list(args: ArtifactListArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let (operation, request, options) = match args.contains {
        Some(query) => (
            Operation::SearchArtifacts,
            json!({"query": query, "limit": args.limit}),
            "--limit",
        ),
        None => (
            Operation::ListArtifacts,
            json!({"limit": args.limit, "offset": args.offset}),
            PAGING,
        ),
    };
    let reply = session.call(operation, request).await?;
    let artifacts = reply["result"].as_array().map_or(&[][..], Vec::as_slice);
    session.print(&reply, |screen| {
        if artifacts.is_empty() {
            return String::new();
        }
        let columns = [
            ("ID", Side::Left),
            ("AGE", Side::Right),
            ("TITLE", Side::Left),
        ];
        let row = |artifact: &Value| {
            vec![
                text(artifact, "id").to_owned(),
                screen.age(&artifact["created_at"]),
                text(artifact, "title").to_owned(),
            ]
        };
        screen.table(&columns, artifacts.iter().map(row).collect())
    })?;
    if !session.screen.json {
        note_rest(&reply, artifacts.len(), "artifact", "artifacts", options);
    }
    Ok(())
}

/// The arguments of `artifact show`.
#[derive(Debug, Clone, Args)]
pub struct ArtifactShowArgs {
    /// The id of the artifact
    pub id: String,
    /// An earlier version instead of the newest
    #[arg(long)]
    pub version: Option<i64>,
    /// Print the content alone, exactly as it is stored
    #[arg(long, conflicts_with = "json")]
    pub content: bool,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

async fn show(args: ArtifactShowArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let (operation, request) = match args.version {
        Some(version) => (
            Operation::GetArtifactVersion,
            json!({"artifact_id": args.id, "version_number": version}),
        ),
        None => (Operation::GetArtifact, json!({"artifact_id": args.id})),
    };
    let reply = session.call(operation, request).await?;
    if args.content {
        return session.screen.print_exactly(text(&reply, "content"));
    }
    session.print(&reply, |screen| {
        let mut lines = vec![format!(
            "{}  version {}  {}",
            screen.bold(&one_line(text(&reply, "title"))),
            reply["version"],
            moment(&reply["updated_at"])
        )];
        if reply["metadata"]
            .as_object()
            .is_some_and(|map| !map.is_empty())
        {
            lines.push(format!(
                "metadata: {}",
                one_line(&reply["metadata"].to_string())
            ));
        }
        lines.push(String::new());
        lines.push(inert(text(&reply, "content")));
        lines.join("\n")
    })
}

/// The arguments of `artifact save`.
#[derive(Debug, Clone, Args)]
pub struct ArtifactSaveArgs {
    /// The file with the content; `-` reads stdin
    pub file: String,
    /// Make a new version of this artifact instead of a new artifact
    #[arg(long)]
    pub id: Option<String>,
    /// The title. Without it, the title is made from the content, unless the artifact has one that was given
    #[arg(long)]
    pub title: Option<String>,
    /// Metadata: key=text, or key:=JSON; repeat it for several. It replaces all the stored metadata
    #[arg(short, long = "metadata", value_name = "KEY=TEXT", value_parser = input::field)]
    pub metadata: Vec<Field>,
    /// The version that you read: if the artifact has changed since, nothing is saved
    #[arg(long, value_name = "VERSION", requires = "id")]
    pub expected_version: Option<i64>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

async fn save(args: ArtifactSaveArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let max_bytes = args.common.service.backend.max_message_bytes();
    let mut request = json!({
        "content": input::file(&args.file, max_bytes)?,
        "title": args.title,
        "metadata": input::object(args.metadata)?,
    });
    let operation = match args.id {
        Some(id) => {
            request["artifact_id"] = id.into();
            request["expected_version"] = args.expected_version.into();
            request["return_content"] = false.into();
            Operation::UpdateArtifact
        }
        None => Operation::CreateArtifact,
    };
    let reply = session.call(operation, request).await?;
    session.print(&reply, |_| {
        format!(
            "saved artifact {}, version {}: {}",
            text(&reply, "id"),
            reply["version"],
            one_line(text(&reply, "title"))
        )
    })
}

/// The arguments of `artifact delete`.
#[derive(Debug, Clone, Args)]
pub struct ArtifactDeleteArgs {
    /// The id of the artifact
    pub id: String,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

async fn delete(args: ArtifactDeleteArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    if !args.yes {
        input::confirm(&format!(
            "Delete the artifact {} with all its versions?",
            args.id
        ))?;
    }
    let request = json!({"artifact_id": args.id});
    let reply = session.call(Operation::DeleteArtifact, request).await?;
    session.print(&reply, |_| {
        format!("deleted artifact {}", one_line(&args.id))
    })
}
