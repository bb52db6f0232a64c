//! Converts filters, frames and JSON between the transports and the types of this module.

use context_proto::v1 as pb;
use context_proto::v1::watch_response::Frame;
use serde_json::Value;

use super::{Body, Change, Event, Filter};

/// The filter of a gRPC request.
pub(super) fn filter_of_grpc(filter: Filter) -> pb::Filter {
    let mut message = pb::Filter::default();
    match filter {
        Filter::Thread(thread) => message.thread_id = Some(thread.to_owned()),
        Filter::OfUser => message.source = Some("user".to_owned()),
        Filter::Tagged => {
            let values = vec!["keep".to_owned()];
            message.tags = Some(pb::StringList { values });
        }
        Filter::None | Filter::OfKey | Filter::Artifacts => {}
        Filter::Numbered => unreachable!("a follower with this filter uses REST"),
    }
    message
}

/// The event of a frame over gRPC.
pub(super) fn event_of_grpc(frame: Frame) -> Event {
    match frame {
        Frame::Opened(opened) => Event::Opened(opened.revision),
        Frame::Entry(entry) => Event::Entry {
            body: body_of_grpc(entry.context, entry.artifact),
            entity: entry.entity,
            id: entry.id,
        },
        Frame::SnapshotEnd(end) => Event::SnapshotEnd(end.revision),
        Frame::Change(change) | Frame::Left(change) => Event::Change(Change {
            revision: change.revision,
            operation: change.operation,
            entity: change.entity,
            id: change.id,
            thread_id: change.thread_id,
            version: change.version,
            commit_end: change.commit_end,
            body: body_of_grpc(change.context, change.artifact),
        }),
        Frame::Bookmark(bookmark) => Event::Bookmark(bookmark.revision),
        Frame::Resync(resync) => Event::Resync(resync.reason),
        Frame::End(end) => Event::End(end.reason),
    }
}

fn body_of_grpc(context: Option<pb::Context>, artifact: Option<pb::Artifact>) -> Option<Body> {
    let of_entry = context.map(|context| Body {
        version: context.version,
        text: context.text_content,
        tags: context.tags,
    });
    of_entry.or_else(|| {
        artifact.map(|artifact| Body {
            version: artifact.version,
            text: artifact_text(artifact.path.as_deref(), &artifact.content),
            tags: Vec::new(),
        })
    })
}

fn artifact_text(path: Option<&str>, content: &str) -> String {
    format!("{}: {content}", path.unwrap_or_default())
}

/// The event of a Server-Sent Event.
pub(super) fn event_of_sse(name: &str, data: &Value) -> Event {
    let revision = || data["revision"].as_i64().expect("a revision");
    let reason = || text(&data["reason"]);
    match name {
        "opened" => Event::Opened(revision()),
        "entry" => Event::Entry {
            entity: text(&data["entity"]),
            id: text(&data["id"]),
            body: body_of_json(data),
        },
        "snapshot_end" => Event::SnapshotEnd(revision()),
        "change" | "left" => Event::Change(change_of_json(data)),
        "bookmark" => Event::Bookmark(revision()),
        "resync" => Event::Resync(reason()),
        "end" => Event::End(reason()),
        other => panic!("a frame {other}"),
    }
}

/// A change in JSON, of a list or an event.
pub(super) fn change_of_json(change: &Value) -> Change {
    Change {
        revision: change["revision"].as_i64().expect("a revision"),
        operation: text(&change["operation"]),
        entity: text(&change["entity"]),
        id: text(&change["id"]),
        thread_id: change["thread_id"].as_str().map(str::to_owned),
        version: change["version"].as_i64(),
        commit_end: change["commit_end"] == true,
        body: body_of_json(change),
    }
}

fn body_of_json(data: &Value) -> Option<Body> {
    if data["context"].is_object() {
        Some(entry_of_json(&data["context"]))
    } else {
        data["artifact"]
            .is_object()
            .then(|| artifact_of_json(&data["artifact"]))
    }
}

/// The content of an entry in JSON.
pub(super) fn entry_of_json(entry: &Value) -> Body {
    let tags = entry["tags"].as_array().into_iter().flatten();
    Body {
        version: entry["version"].as_i64().expect("a version"),
        text: text(&entry["text_content"]),
        tags: tags.map(text).collect(),
    }
}

/// The content of an artifact in JSON.
pub(super) fn artifact_of_json(artifact: &Value) -> Body {
    Body {
        version: artifact["version"].as_i64().expect("a version"),
        text: artifact_text(artifact["path"].as_str(), &text(&artifact["content"])),
        tags: Vec::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
