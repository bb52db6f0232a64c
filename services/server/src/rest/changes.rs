//! REST handlers for the list of changes and the stream of changes (Server-Sent Events).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use context_model::{
    ChangedEntity, ContentType, Error, FilterInput, ListChangesReply, ListChangesRequest, Source,
    WatchEvent, WatchRequest,
};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body::json;
use super::query::Query;
use crate::app::App;
use crate::authenticate::Credentials;
use crate::changes::LongPoll;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::watch;

/// List changes
///
/// Lists the changes after a cursor, in the order of their commits. With `wait_ms` an empty list waits for the next
/// change. Reasons when a cursor cannot be used: `CURSOR_INVALID` (400), `CURSOR_COMPACTED` (410, with `oldest_cursor`)
/// and `RESYNC_REQUIRED` (410).
#[utoipa::path(
    get,
    path = "/v1/changes",
    operation_id = "changes_since",
    tag = "changes",
    params(
        ("cursor" = Option<String>, Query, description = "`next_cursor` of an earlier reply. `now`: no changes, only the cursor of this moment. Default: from the oldest retained change.", example = "now"),
        ("limit" = Option<i64>, Query, description = "Maximum number of changes that are read, 1 to 1000; default 100. Without bodies and previews, a commit of up to 1000 changes is never split, so a page can have more.", minimum = 1, maximum = 1000),
        ("wait_ms" = Option<i64>, Query, description = "How long to wait for a change, 0 to 25 000 milliseconds; default 0.", minimum = 0, maximum = 25000),
        ("thread_id" = Option<String>, Query, description = "Only changes of entries of this thread.", min_length = 1),
        ("source" = Option<Source>, Query, description = "Only changes of entries of this source."),
        ("tag" = Option<Vec<String>>, Query, description = "Only changes of entries with at least one of these tags; the parameter is repeated."),
        ("content_type" = Option<ContentType>, Query, description = "Only changes of entries of this type."),
        ("metadata" = Option<String>, Query, description = "A JSON object: values that metadata fields must equal."),
        ("metadata_filters" = Option<String>, Query, description = "A JSON array of conditions on metadata, as in search."),
        ("start_date" = Option<String>, Query, description = "Only changes of what was created at or after this ISO 8601 date or date-time."),
        ("end_date" = Option<String>, Query, description = "Only changes of what was created at or before this date or date-time."),
        ("entity" = Option<ChangedEntity>, Query, description = "Only changes of entries, or only changes of artifacts."),
        ("include_body" = Option<bool>, Query, description = "Whether each change carries the current state of its entry or artifact, without images; default: false. A page with bodies ends at 4 MiB."),
        ("preview_chars" = Option<i64>, Query, description = "Number of characters of the current text that each change carries as `preview`, 0 to 1000; default 0.", minimum = 0, maximum = 1000),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The changes", body = ListChangesReply))
)]
pub async fn changes_since(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListChangesRequest {
        cursor: query.one("cursor"),
        limit: query.integer("limit"),
        wait_ms: query.integer("wait_ms"),
        filters: filters(&mut query),
        entity: query.one("entity"),
        include_body: query.boolean("include_body"),
        preview_chars: query.integer("preview_chars"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let poll = LongPoll {
        app: &app,
        ctx: &ctx,
        credentials: Credentials::of(&headers),
        transport: Transport::Rest,
        deadline: None,
    };
    let reply = poll.list_changes(request).await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// The filters in a query string.
fn filters(query: &mut Query) -> FilterInput {
    let tags = query.all("tag");
    FilterInput {
        thread_id: query.one("thread_id"),
        source: query.one("source"),
        tags: (!tags.is_empty()).then_some(tags),
        content_type: query.one("content_type"),
        metadata: query.json("metadata"),
        metadata_filters: query.json("metadata_filters"),
        start_date: query.one("start_date"),
        end_date: query.one("end_date"),
    }
}

/// The header with which a client of Server-Sent Events continues.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Follow changes
///
/// Sends changes as they are committed, as Server-Sent Events. The event name is the kind of frame (`opened`, `entry`,
/// `snapshot_end`, `change`, `left`, `bookmark`, `resync`, `end`); the event id is the cursor. A frame is sent at least
/// every 15 seconds. Browsers read the stream with fetch, because EventSource cannot send an Authorization header.
#[utoipa::path(
    get,
    path = "/v1/watch",
    operation_id = "watch",
    tag = "changes",
    params(
        ("cursor" = Option<String>, Query, description = "The id of an earlier event, or `next_cursor` of a list. `now`: only changes from this moment on. Default: from the oldest retained change."),
        ("snapshot" = Option<bool>, Query, description = "Whether the stream begins with the present entries and artifacts; default: false. Not together with a cursor."),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that arrived. It is used instead of `cursor` and `snapshot`, unless it is empty."),
        ("thread_id" = Option<String>, Query, description = "Only changes of entries of this thread.", min_length = 1),
        ("source" = Option<Source>, Query, description = "Only changes of entries of this source."),
        ("tag" = Option<Vec<String>>, Query, description = "Only changes of entries with at least one of these tags; the parameter is repeated."),
        ("content_type" = Option<ContentType>, Query, description = "Only changes of entries of this type."),
        ("metadata" = Option<String>, Query, description = "A JSON object: values that metadata fields must equal."),
        ("metadata_filters" = Option<String>, Query, description = "A JSON array of conditions on metadata, as in search."),
        ("start_date" = Option<String>, Query, description = "Only changes of what was created at or after this ISO 8601 date or date-time."),
        ("end_date" = Option<String>, Query, description = "Only changes of what was created at or before this date or date-time."),
        ("entity" = Option<ChangedEntity>, Query, description = "Only changes of entries, or only changes of artifacts."),
        ("include_body" = Option<bool>, Query, description = "Whether frames carry the current state of their entry or artifact, without images; default: false."),
        ("preview_chars" = Option<i64>, Query, description = "Number of characters of the current text that frames carry as `preview`, 0 to 1000; default 0.", minimum = 0, maximum = 1000),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The stream starts at that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The frames", content_type = "text/event-stream", body = serde_json::Value))
)]
pub async fn watch(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    // An empty id means that no event with an id has arrived
    // (https://html.spec.whatwg.org/multipage/server-sent-events.html#concept-event-stream-last-event-id).
    let last_event = match headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        Some(id) => Some(
            id.to_str()
                .map_err(|_| Error::invalid("Last-Event-ID", "`Last-Event-ID` is not text"))?
                .to_owned(),
        ),
        None => None,
    };
    let (cursor, snapshot) = (query.one("cursor"), query.boolean("snapshot"));
    let continues = last_event.is_some();
    let request = WatchRequest {
        cursor: last_event.or(cursor),
        snapshot: snapshot.filter(|_| !continues),
        filters: filters(&mut query),
        entity: query.one("entity"),
        include_body: query.boolean("include_body"),
        preview_chars: query.integer("preview_chars"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let credentials = Credentials::of(&headers);
    let frames = watch::open(&app, ctx, credentials, Transport::Rest, request).await?;
    let retry = futures::stream::iter([Ok(Bytes::from_static(b"retry: 1000\n\n"))]);
    let events =
        frames.map(|event| event.and_then(|event| event_text(&event).map_err(Error::internal)));
    let mut response = Body::from_stream(retry.chain(events)).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    // Proxies must not delay frames.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

/// One frame as a Server-Sent Event. JSON has no line breaks.
fn event_text(event: &WatchEvent) -> serde_json::Result<Bytes> {
    let id = event
        .cursor
        .iter()
        .map(|cursor| format!("id: {cursor}\n"))
        .collect::<String>();
    let data = serde_json::to_string(&event.frame)?;
    let name = event.frame.name();
    Ok(format!("event: {name}\n{id}data: {data}\n\n").into())
}
