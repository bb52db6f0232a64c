//! The brief at the start of a session: what is open, what was decided, and what changed.

use std::collections::HashSet;

use context_model::Reason;
use context_proto::v1 as pb;
use serde_json::json;

use super::frame::{Frame, line, quoted};
use super::service::{Hit, Service};
use super::state::LastSession;

/// Maximum number of lines of a section.
const MAX_LINES: usize = 3;
/// Maximum number of characters of a text.
const MAX_CHARS: usize = 110;
/// Number of the project's newest entries that are read to find its threads.
const NEWEST: i64 = 100;
/// Values of the metadata field `status` that close a thread.
const CLOSED: [&str; 6] = [
    "done",
    "closed",
    "resolved",
    "completed",
    "cancelled",
    "canceled",
];

/// The brief, and the cursor from which the next session's changes begin. `key` is the project's key, `thread_id` the
/// thread of this session, and `shown` has the ids of the entries that this session was shown already.
///
/// # Errors
/// The message of the service's error, or why there was no response.
pub async fn brief(
    service: &Service,
    key: &str,
    thread_id: &str,
    last: &LastSession,
    shown: &[i64],
) -> Result<(Frame, Option<String>), String> {
    let project = || json!({"project": key});
    let newest = service.search(json!({"metadata": project(), "limit": NEWEST}));
    let tagged = service.search(
        json!({"metadata": project(), "tags": ["decision", "decisions"], "limit": MAX_LINES}),
    );
    let typed = service
        .search(json!({"metadata": {"project": key, "type": "decision"}, "limit": MAX_LINES}));
    let changed = changes(service, key, last.cursor.as_deref());
    let (newest, tagged, typed, changed) = tokio::join!(newest, tagged, typed, changed);
    let message = |error: context_model::Error| error.message;
    let newest = newest.map_err(message)?;
    let mut decisions = tagged.map_err(message)?;
    decisions.extend(typed.map_err(message)?);
    decisions.sort_by_key(|hit| std::cmp::Reverse(hit.id));
    let changed = changed.map_err(message)?;

    let mut frame = Frame::new("What is known about this project from earlier sessions.");
    let is_new = |id: i64| !shown.contains(&id);
    frame.section("Open threads:");
    let mut lines = 0;
    for hit in open_threads(&newest, thread_id)
        .into_iter()
        .filter(|hit| is_new(hit.id))
    {
        if lines == MAX_LINES {
            break;
        }
        lines += usize::from(frame.add(hit.id, line(hit, MAX_CHARS)));
    }
    frame.section("Decisions:");
    lines = 0;
    for hit in decisions.iter().filter(|hit| is_new(hit.id)) {
        if lines == MAX_LINES {
            break;
        }
        lines += usize::from(frame.add(hit.id, line(hit, MAX_CHARS)));
    }
    frame.section("Changed since the last session here:");
    lines = 0;
    let mut seen = HashSet::new();
    for change in changed.changes.iter().rev() {
        let id = change.id.parse().unwrap_or_default();
        let is_own =
            [Some(thread_id), last.thread_id.as_deref()].contains(&change.thread_id.as_deref());
        let text = quoted(change.preview.as_deref().unwrap_or_default(), MAX_CHARS);
        if is_own || text.is_empty() || !is_new(id) || !seen.insert(id) {
            continue;
        }
        if lines == MAX_LINES {
            break;
        }
        let text = format!("- [id {id}, {}] \"{text}\"", quoted(&change.operation, 20));
        lines += usize::from(frame.add(id, text));
    }
    Ok((
        frame,
        Some(changed.next_cursor).filter(|cursor| !cursor.is_empty()),
    ))
}

/// The cursor of this moment: later changes come after it.
///
/// # Errors
/// The message of the service's error, or why there was no response.
pub async fn cursor(service: &Service) -> Result<String, String> {
    let reply = service.changes(json!({"cursor": "now"})).await;
    Ok(reply.map_err(|error| error.message)?.next_cursor)
}

async fn changes(
    service: &Service,
    key: &str,
    cursor: Option<&str>,
) -> context_model::Result<pb::ListChangesResponse> {
    let list = |cursor: &str| {
        service.changes(json!({
            "cursor": cursor,
            "metadata": {"project": key},
            "entity": "context",
            "limit": 1000,
            "preview_chars": 200,
        }))
    };
    match list(cursor.unwrap_or("now")).await {
        // The database was restored, or the changes have left the feed. The other sections still have the newest
        // entries.
        Err(error)
            if matches!(
                error.reason,
                Reason::CursorInvalid | Reason::CursorCompacted | Reason::ResyncRequired
            ) =>
        {
            list("now").await
        }
        // A brief shows only a few lines, so changes after the first thousand are skipped, also in the next session.
        Ok(mut reply) if reply.has_more => {
            reply.next_cursor = list("now").await?.next_cursor;
            Ok(reply)
        }
        outcome => outcome,
    }
}

/// One entry for each thread that is not closed and is not `own`, newest thread first. It is the thread's newest entry
/// with a status, else its newest prompt, else its newest entry.
fn open_threads<'h>(newest: &'h [Hit], own: &str) -> Vec<&'h Hit> {
    let mut threads: Vec<&str> = Vec::new();
    for hit in newest {
        if hit.thread_id != own && !threads.contains(&hit.thread_id.as_str()) {
            threads.push(&hit.thread_id);
        }
    }
    let of = |thread: &str| {
        let entries: Vec<_> = newest
            .iter()
            .filter(|hit| hit.thread_id == thread)
            .collect();
        let with_status = entries.iter().find(|hit| hit.field("status").is_some());
        if let Some(hit) = with_status {
            let status = hit.field("status").unwrap_or_default().to_lowercase();
            return (!CLOSED.contains(&status.as_str())).then_some(*hit);
        }
        let prompt = entries.iter().find(|hit| hit.is_user);
        prompt.or(entries.first()).copied()
    };
    threads.into_iter().filter_map(of).collect()
}
