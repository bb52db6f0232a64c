//! The command `changes`.

use std::time::Duration;

use clap::Args;
use context_model::Operation;
use serde_json::{Value, json};

use super::common::{Common, Session};
use super::failure::{Failure, note};
use super::inert::one_line;
use super::screen::{moment, text};

/// How long one request waits for a change, in milliseconds: the service's maximum.
const WAIT_MS: i64 = 25_000;
/// Pause before a retry while the service does not respond or is busy.
const PAUSE: Duration = Duration::from_secs(2);

/// The arguments of `changes`.
#[derive(Debug, Clone, Args)]
pub struct ChangesArgs {
    /// Print each change as it is made, until Ctrl-C. With --json each is one line
    #[arg(short, long)]
    pub follow: bool,
    /// Only changes after this cursor, from `next_cursor` of --json. Without it: the oldest stored changes, and
    /// with --follow only new ones
    #[arg(long)]
    pub cursor: Option<String>,
    /// Only changes of entries of this thread
    #[arg(short, long)]
    pub thread: Option<String>,
    /// Only changes of these: context (entries) or artifact
    #[arg(long)]
    pub entity: Option<String>,
    /// Maximum number of changes that one request reads, before --thread and --entity select. The last commit is
    /// read to its end
    #[arg(short = 'n', long, default_value_t = 100)]
    pub limit: i64,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

impl ChangesArgs {
    fn request(&self, cursor: Option<&str>, wait_ms: i64) -> Value {
        json!({
            "cursor": cursor,
            "wait_ms": wait_ms,
            "thread_id": self.thread,
            "entity": self.entity,
            "limit": self.limit,
        })
    }
}

/// Lists or follows changes.
///
/// # Errors
/// The service's error, or why there was no response. With `--follow`, a service that stops responding or is busy after
/// the first reply is not an error: the request is repeated.
pub async fn changes(args: ChangesArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    if args.follow {
        return follow(&args, &session).await;
    }
    let request = args.request(args.cursor.as_deref(), 0);
    let reply = session.call(Operation::ListChanges, request).await?;
    let changes = reply["changes"].as_array().map_or(&[][..], Vec::as_slice);
    session.print(&reply, |_| {
        changes.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    if !session.screen.json {
        if reply["has_more"] == true {
            let cursor = text(&reply, "next_cursor");
            note(&format!("there are more changes; see --cursor {cursor}"));
        } else if changes.is_empty() {
            note("no change");
        }
    }
    Ok(())
}

async fn follow(args: &ChangesArgs, session: &Session) -> Result<(), Failure> {
    let first = args.cursor.as_deref().unwrap_or("now");
    let mut reply = session
        .call(Operation::ListChanges, args.request(Some(first), 0))
        .await?;
    let mut is_away = false;
    loop {
        print_followed(session, &mut reply)?;
        let cursor = text(&reply, "next_cursor").to_owned();
        let request = args.request(Some(&cursor), WAIT_MS);
        reply = loop {
            match session.call(Operation::ListChanges, request.clone()).await {
                Ok(reply) => {
                    is_away = false;
                    break reply;
                }
                Err(failure) if failure.is_temporary() => {
                    if !is_away {
                        failure.report();
                        note("waiting for the service; no change will be missed");
                    }
                    is_away = true;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        };
    }
}

/// Prints the changes of a reply, one line each. With `--json`, the last change also has the field `next_cursor`, from
/// which a program can continue later.
fn print_followed(session: &Session, reply: &mut Value) -> Result<(), Failure> {
    let cursor = reply["next_cursor"].clone();
    let Some(changes) = reply["changes"].as_array_mut() else {
        return Ok(());
    };
    if let Some(last) = changes.last_mut() {
        last["next_cursor"] = cursor;
    }
    for change in changes {
        if session.screen.json {
            session.screen.print_json_line(change)?;
        } else {
            session.screen.print(&line(change))?;
        }
    }
    Ok(())
}

/// A change on one line.
fn line(change: &Value) -> String {
    let entity = match text(change, "entity") {
        "context" => "entry",
        other => other,
    };
    let line = format!(
        "{}  {:8}  {entity} {}  {}  {}",
        moment(&change["time"]),
        text(change, "operation"),
        text(change, "id"),
        one_line(text(change, "thread_id")),
        one_line(text(change, "preview")),
    );
    line.trim_end().to_owned()
}
