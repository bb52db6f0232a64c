//! REST handlers for changes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    ChangedEntity, ContentType, FilterInput, ListChangesReply, ListChangesRequest, Source,
};
use http::{HeaderMap, StatusCode};

use super::body::json;
use super::query::Query;
use crate::app::App;
use crate::authenticate::Credentials;
use crate::changes::Waiting;
use crate::problem::Problem;
use crate::transport::Transport;
use crate::who::Who;

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
        ("cursor" = Option<String>, Query, description = "`next_cursor` of an earlier reply. `now`: no changes, only the cursor of this moment. Default: from the oldest change that is kept.", example = "now"),
        ("limit" = Option<i64>, Query, description = "Maximum number of changes that are read, 1 to 1000; default 100. A commit of up to 1000 changes is never split, so a page can have more.", minimum = 1, maximum = 1000),
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
    who: Who,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    let tags = query.all("tag");
    let request = ListChangesRequest {
        cursor: query.one("cursor"),
        limit: query.integer("limit"),
        wait_ms: query.integer("wait_ms"),
        filters: FilterInput {
            thread_id: query.one("thread_id"),
            source: query.one("source"),
            tags: (!tags.is_empty()).then_some(tags),
            content_type: query.one("content_type"),
            metadata: query.json("metadata"),
            metadata_filters: query.json("metadata_filters"),
            start_date: query.one("start_date"),
            end_date: query.one("end_date"),
        },
        entity: query.one("entity"),
        include_body: query.boolean("include_body"),
        preview_chars: query.integer("preview_chars"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let waiting = Waiting {
        app: &app,
        who: &who,
        credentials: Credentials::of(&headers),
        transport: Transport::Rest,
        deadline: None,
    };
    let reply = waiting.list_changes(request).await?;
    json(&who, StatusCode::OK, reply)
}
