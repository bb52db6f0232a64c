//! The commands for people and scripts: `context-gateway add`, `search`, `show` and so on.
//!
//! Their requests are made by the same [`Call`](crate::call::Call) that serves the MCP tools. The reply is printed as a
//! table or as text, or with `--json` as it is.

pub mod artifacts;
pub mod changes;
pub mod common;
pub mod entries;
pub mod failure;
pub mod find;
pub mod inert;
pub mod input;
pub mod open;
pub mod screen;
pub mod status;

use std::process::ExitCode;

use clap::Subcommand;

use artifacts::ArtifactCommand;
use changes::ChangesArgs;
use common::Common;
use entries::{AddArgs, DeleteArgs, EditArgs, ShowArgs};
use failure::Failure;
use find::{ListArgs, SearchArgs, ThreadsArgs};
use open::OpenArgs;
use status::StatusArgs;

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum CommandLine {
    /// Store an entry: the text of the argument, or of stdin
    Add(AddArgs),
    /// Find entries by what they say, best first
    Search(SearchArgs),
    /// Print whole entries
    Show(ShowArgs),
    /// List entries, newest first
    List(ListArgs),
    /// List threads, latest activity first
    Threads(ThreadsArgs),
    /// Change an entry's text, tags or metadata
    Edit(EditArgs),
    /// Delete entries; asks first
    Delete(DeleteArgs),
    /// List what was created, changed and deleted, or follow it with --follow
    Changes(ChangesArgs),
    /// List, show, save and delete artifacts: documents that keep every version
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Open the page that shows what is stored, in the browser
    Open(OpenArgs),
    /// Show how many entries there are, and which kinds of search work
    Status(StatusArgs),
}

impl CommandLine {
    /// The options that all commands have.
    pub fn common(&mut self) -> &mut Common {
        match self {
            Self::Add(args) => &mut args.common,
            Self::Search(args) => &mut args.common,
            Self::Show(args) => &mut args.common,
            Self::List(args) => &mut args.common,
            Self::Threads(args) => &mut args.common,
            Self::Edit(args) => &mut args.common,
            Self::Delete(args) => &mut args.common,
            Self::Changes(args) => &mut args.common,
            Self::Artifact(command) => command.common(),
            Self::Open(args) => &mut args.common,
            Self::Status(args) => &mut args.common,
        }
    }
}

/// Runs a command and returns the exit code of the process. A failure is reported as one sentence on stderr.
#[must_use]
pub fn run(line: CommandLine) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(execute(line));
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Failure::Incomplete(format!(
            "the command cannot be run: {error}"
        ))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

async fn execute(line: CommandLine) -> Result<(), Failure> {
    match line {
        CommandLine::Add(args) => entries::add(args).await,
        CommandLine::Search(args) => find::search(args).await,
        CommandLine::Show(args) => entries::show(args).await,
        CommandLine::List(args) => find::list(args).await,
        CommandLine::Threads(args) => find::threads(args).await,
        CommandLine::Edit(args) => entries::edit(args).await,
        CommandLine::Delete(args) => entries::delete(args).await,
        CommandLine::Changes(args) => changes::changes(args).await,
        CommandLine::Artifact(command) => artifacts::run(command).await,
        CommandLine::Open(args) => open::open(args).await,
        CommandLine::Status(args) => status::status(args).await,
    }
}
