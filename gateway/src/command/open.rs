//! The command `open`.

use std::io;
use std::process::Stdio;

use clap::Args;
use context_model::{Error, Reason};
use serde_json::json;
use tokio::process::Command;

use super::common::Common;
use super::failure::Failure;
use super::screen::Screen;
use crate::backend::Target;

/// The arguments of `open`.
#[derive(Debug, Clone, Args)]
pub struct OpenArgs {
    /// Only print the URL
    #[arg(long)]
    print: bool,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Opens the page of the service in the browser and prints its URL. Starts the local service if it does not run. If
/// CONTEXT_BACKEND is a TCP address, it only prints the URL.
///
/// # Errors
/// Why the page cannot be opened.
pub async fn open(args: OpenArgs) -> Result<(), Failure> {
    let backend = &args.common.service.backend;
    let mut service = match backend.target_as_it_runs().map_err(Failure::Usage)? {
        // The service has the page on its own port. The URL is only printed, because a browser may not reach the
        // address.
        Target::Tcp(url) => return print(&args, &format!("{url}/")),
        Target::Unix(socket) => backend
            .program()
            .with([("CONTEXT_SOCKET", socket)])
            .command(),
        Target::Local(service) => {
            // Connecting starts the service. It waits for a client long enough for the page to be opened.
            drop(
                service
                    .connect()
                    .await
                    .map_err(|error| Error::new(Reason::StoreUnavailable, error.to_string()))?,
            );
            service.program().command()
        }
    };
    service.arg("open");
    if args.print || args.common.json {
        service.arg("--print");
    }
    let url = url(service).await?;
    print(&args, &url)
}

/// Runs the service's program and returns the URL that it prints. What it writes to stderr is shown to the person.
async fn url(mut service: Command) -> Result<String, Failure> {
    let run = async {
        let process = service.stdout(Stdio::piped()).spawn()?;
        process.wait_with_output().await
    };
    let output = run.await.map_err(|error: io::Error| {
        Failure::Incomplete(format!("the service's program cannot be run: {error}"))
    })?;
    let url = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !url.is_empty() {
        Ok(url)
    } else {
        Err(Failure::Incomplete("the page was not opened".to_owned()))
    }
}

fn print(args: &OpenArgs, url: &str) -> Result<(), Failure> {
    let screen = Screen::new(args.common.json);
    if screen.json {
        screen.print_json(&json!({ "url": url }))
    } else {
        screen.print(url)
    }
}
