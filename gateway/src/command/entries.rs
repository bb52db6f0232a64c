//! The commands `add`, `show`, `edit` and `delete`.

use std::collections::BTreeSet;

use clap::Args;
use context_model::Operation;
use serde_json::{Value, json};

use super::common::{Common, Session};
use super::failure::Failure;
use super::inert::{inert, one_line};
use super::input::{self, Field};
use super::screen::{Screen, listed, moment, text};

/// The arguments of `add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// The text. `-`, or no text at all, reads stdin
    pub text: Option<String>,
    /// The conversation or task that the entry belongs to
    #[arg(short, long, env = "CONTEXT_THREAD", value_parser = thread)]
    pub thread: String,
    /// Who wrote it: user or agent
    #[arg(short, long, default_value = "user")]
    pub source: String,
    /// A tag; repeat it for several
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Metadata: key=text, or key:=JSON; repeat it for several. A dot is a part of the key
    #[arg(short, long = "metadata", value_name = "KEY=TEXT", value_parser = input::field)]
    pub metadata: Vec<Field>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// A variable that is set but empty counts as not set, so that the error is the command line's and not the service's.
fn thread(value: &str) -> Result<String, String> {
    if value.trim().is_empty() {
        return Err("an entry needs a thread; give --thread, or set CONTEXT_THREAD".to_owned());
    }
    Ok(value.to_owned())
}

/// Stores an entry.
///
/// # Errors
/// There is no text, the service's error, or why there was no response.
pub async fn add(args: AddArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let max_bytes = args.common.service.backend.max_message_bytes();
    let request = json!({
        "thread_id": args.thread,
        "source": args.source,
        "text": input::text(args.text, max_bytes)?,
        "tags": input::list(args.tags),
        "metadata": input::object(args.metadata)?,
    });
    let reply = session.call(Operation::StoreContext, request).await?;
    session.print(&reply, |_| {
        let (id, thread) = (&reply["context_id"], one_line(text(&reply, "thread_id")));
        if reply["duplicate"] == true {
            format!("entry {id} is the newest of thread {thread} and has this text already")
        } else {
            format!("stored entry {id} in thread {thread}")
        }
    })
}

/// The arguments of `show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// The ids of the entries
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<i64>,
    /// Print the texts alone, exactly as they are stored
    #[arg(long, conflicts_with = "json")]
    pub text: bool,
    /// With --json, the images too
    #[arg(long, requires = "json")]
    pub images: bool,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Prints entries in the order of their ids on the command line; with `--json`, newest first, as the service returns
/// them.
///
/// # Errors
/// An id that does not exist, the service's error, or why there was no response.
pub async fn show(args: ShowArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let request = json!({"context_ids": args.ids, "include_images": args.images});
    let reply = session.call(Operation::GetContextByIds, request).await?;
    let entries = reply["result"].as_array().map_or(&[][..], Vec::as_slice);
    let found = |id: &i64| entries.iter().find(|entry| entry["id"] == *id);
    if args.text {
        for entry in args.ids.iter().filter_map(found) {
            session.screen.print_exactly(text(entry, "text_content"))?;
        }
    } else {
        session.print(&reply, |screen| {
            let shown = args.ids.iter().filter_map(found);
            shown
                .map(|entry| whole(screen, entry))
                .collect::<Vec<_>>()
                .join("\n\n")
        })?;
    }
    let missing: Vec<String> = args
        .ids
        .iter()
        .filter(|id| found(id).is_none())
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::Incomplete(format!(
            "not found: {}",
            missing.join(", ")
        )))
    }
}

/// An entry in full, as lines for people.
fn whole(screen: &Screen, entry: &Value) -> String {
    let mut lines = vec![format!(
        "{}  thread {}  {}  {}  version {}",
        screen.bold(&format!("entry {}", entry["id"])),
        one_line(text(entry, "thread_id")),
        one_line(text(entry, "source")),
        moment(&entry["created_at"]),
        entry["version"]
    )];
    let tags = listed(&entry["tags"]);
    if !tags.is_empty() {
        lines.push(format!("tags: {}", one_line(&tags)));
    }
    if entry["metadata"]
        .as_object()
        .is_some_and(|map| !map.is_empty())
    {
        lines.push(format!(
            "metadata: {}",
            one_line(&entry["metadata"].to_string())
        ));
    }
    if entry["content_type"] == "multimodal" {
        lines.push("has images: --json --images prints them".to_owned());
    }
    lines.push(String::new());
    lines.push(inert(text(entry, "text_content")));
    lines.join("\n")
}

/// The arguments of `edit`.
#[derive(Debug, Clone, Args)]
pub struct EditArgs {
    /// The id of the entry
    pub id: i64,
    /// A new text; `-` reads stdin
    #[arg(long)]
    pub text: Option<String>,
    /// A tag; repeat it for several. They replace the stored ones
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Remove all tags
    #[arg(long, conflicts_with = "tags")]
    pub no_tags: bool,
    /// Metadata to set: key=text, or key:=JSON; repeat it for several. Other keys stay
    #[arg(short, long = "metadata", value_name = "KEY=TEXT", value_parser = input::field)]
    pub metadata: Vec<Field>,
    /// A metadata key to remove, which the entry must have; repeat it for several. A dot is a part of the key
    #[arg(long = "unset", value_name = "KEY")]
    pub unset: Vec<String>,
    /// The version that you read (`show` prints it): if the entry has changed since, nothing is changed
    #[arg(long, value_name = "VERSION")]
    pub expected_version: Option<i64>,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Changes an entry.
///
/// # Errors
/// There is nothing to change, arguments that contradict each other, a key to remove that does not exist, the service's
/// error, or why there was no response.
pub async fn edit(args: EditArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let unset = args.unset.clone();
    let patch = input::patch(args.metadata, args.unset)?;
    let max_bytes = args.common.service.backend.max_message_bytes();
    let new_text = match args.text {
        Some(given) => Some(input::text(Some(given), max_bytes)?),
        None => None,
    };
    let tags = if args.no_tags {
        json!([])
    } else {
        input::list(args.tags)
    };
    if !unset.is_empty() {
        check_unset(&session, args.id, &unset).await?;
    }
    let request = json!({
        "context_id": args.id,
        "text": new_text,
        "tags": tags,
        "metadata_patch": patch,
        "expected_version": args.expected_version,
    });
    let reply = session.call(Operation::UpdateContext, request).await?;
    session.print(&reply, |_| {
        format!(
            "entry {} is now at version {}",
            reply["context_id"], reply["version"]
        )
    })
}

/// Refuses keys that the entry's metadata does not have. The merge patch of the service ignores them.
async fn check_unset(session: &Session, id: i64, unset: &[String]) -> Result<(), Failure> {
    let request = json!({"context_ids": [id], "include_images": false});
    let reply = session.call(Operation::GetContextByIds, request).await?;
    // The update reports an entry that does not exist.
    let Some(metadata) = reply["result"][0]["metadata"].as_object() else {
        return Ok(());
    };
    let missing: Vec<String> = unset
        .iter()
        .filter(|key| !metadata.contains_key(key.as_str()))
        .map(|key| format!("`{key}`"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Incomplete(format!(
        "the metadata of entry {id} does not have the key {}; nothing was changed",
        missing.join(", ")
    )))
}

/// The arguments of `delete`.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    /// The ids of the entries
    #[arg(value_name = "ID", required_unless_present = "thread")]
    pub ids: Vec<i64>,
    /// Delete all entries of this thread
    #[arg(short, long, conflicts_with = "ids")]
    pub thread: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// The options that all commands have.
    #[command(flatten)]
    pub common: Common,
}

/// Deletes entries.
///
/// # Errors
/// The person declined, an id does not exist, the service's error, or why there was no response.
pub async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let session = Session::open(&args.common)?;
    let ids: BTreeSet<i64> = args.ids.into_iter().collect();
    let what = match (&args.thread, ids.len()) {
        (Some(thread), _) => format!("all entries of the thread {thread}"),
        (None, 1) => format!("entry {}", ids.first().copied().unwrap_or_default()),
        (None, count) => format!("{count} entries"),
    };
    if !args.yes {
        input::confirm(&format!("Delete {what}?"))?;
    }
    let request = match &args.thread {
        Some(thread) => json!({"thread_id": thread}),
        None => json!({"context_ids": ids}),
    };
    let reply = session.call(Operation::DeleteContext, request).await?;
    let deleted = reply["deleted_count"].as_u64().unwrap_or_default();
    session.print(&reply, |_| match deleted {
        1 => "deleted 1 entry".to_owned(),
        count => format!("deleted {count} entries"),
    })?;
    match (ids.len() as u64).checked_sub(deleted) {
        Some(missing @ 1..) => Err(Failure::Incomplete(format!(
            "not found: {missing} of {} ids",
            ids.len()
        ))),
        Some(0) | None => Ok(()),
    }
}
