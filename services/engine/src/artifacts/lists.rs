//! Listing and searching artifacts.

use context_model::{
    ArtifactHit, ArtifactId, ArtifactPath, ArtifactSearchMode, ArtifactSummary, Condition, Error,
    Filter, FilterInput, HybridHit, HybridSearchContextRequest, Include, JsonObject,
    ListArtifactsReply, ListArtifactsRequest, MetadataFilter, ObjectText, Operation, Result,
    SearchArtifactsReply, SearchArtifactsRequest, Timestamp, Violations, invalid_input,
};
use context_store::{ArtifactPage, ArtifactSelection, ListedArtifact, Page, PageStart, seal};

use super::{Artifacts, failed};
use crate::access::Caller;
use crate::{read, validate};

const DEFAULT_LIMIT: i64 = 10;
const MAX_LIMIT: i64 = 50;
/// Longest search query in characters. Percent-encoded it fits in the request line of an HTTP
/// request.
const MAX_QUERY_CHARS: usize = 1000;
/// Characters of content that a list shows.
const PREVIEW_CHARS: usize = 200;

impl Artifacts {
    /// Lists artifacts, newest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `RESULT_TOO_LARGE`; `OVERLOADED`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_artifacts(
        &self,
        caller: &Caller,
        request: ListArtifactsRequest,
    ) -> Result<ListArtifactsReply> {
        caller.require(Operation::ListArtifacts)?;
        let ListArtifactsRequest {
            limit,
            offset,
            cursor,
            path_prefix,
            metadata_filters,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let path_prefix = path_prefix
            .and_then(|prefix| ArtifactPath::parse(prefix, "path_prefix", &mut violations));
        let conditions = conditions(metadata_filters, &mut violations);
        let page = validate::page(
            limit,
            offset,
            DEFAULT_LIMIT,
            MAX_LIMIT,
            i64::from(u32::MAX),
            &mut violations,
        );
        let min_revision = validate::min_revision(min_revision, &mut violations);
        let start = match cursor {
            None => PageStart::Offset(page.offset),
            Some(_) if page.offset > 0 => {
                violations.push(
                    "cursor",
                    "`cursor` and `offset` exclude each other; give one of them",
                );
                PageStart::Offset(0)
            }
            Some(cursor) => read_cursor(&cursor).unwrap_or_else(|| {
                violations.push(
                    "cursor",
                    "`cursor` must be the `next_cursor` of an earlier reply",
                );
                PageStart::Offset(0)
            }),
        };
        violations.finish(()).map_err(invalid_input)?;
        let wanted = self.artifact_page(page.and_one(), start);
        let selection = ArtifactSelection {
            path_prefix: path_prefix.map(ArtifactPath::into_string),
            substring: None,
            conditions,
        };
        let found = self
            .store
            .artifacts()
            .list_artifacts(&caller.owner, selection, wanted, read::at(min_revision))
            .await
            .map_err(|error| failed(error, "list artifacts"))?;
        let mut artifacts = found.artifacts;
        let has_more = page.cut(&mut artifacts);
        let next_cursor = artifacts.last().filter(|_| has_more).map(cursor_after);
        let result = artifacts.into_iter().filter(is_sound).map(|artifact| {
            let ListedArtifact {
                id,
                title,
                preview,
                metadata,
                path,
                created_at,
                updated_at,
                damaged_version: _,
            } = artifact;
            Ok(ArtifactSummary {
                id: id.to_string(),
                title,
                content_preview: cut(preview),
                metadata: parsed(caller, &metadata)?,
                path,
                created_at,
                updated_at,
            })
        });
        Ok(ListArtifactsReply {
            result: result.collect::<Result<_>>()?,
            total: found.total,
            has_more,
            next_cursor,
            revision: found.revision,
        })
    }

    /// Artifacts whose title or content contains the query, ignoring case; newest first. With `mode: ranked`, the best
    /// results of a hybrid search, best first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `RESULT_TOO_LARGE`; `OVERLOADED`; `SCOPE_MISSING` without `read`; the store's errors; with
    /// `mode: ranked` those of a hybrid search.
    pub async fn search_artifacts(
        &self,
        caller: &Caller,
        request: SearchArtifactsRequest,
    ) -> Result<SearchArtifactsReply> {
        caller.require(Operation::SearchArtifacts)?;
        let SearchArtifactsRequest {
            query,
            mode,
            metadata_filters,
            limit,
            min_revision,
        } = request;
        if query.trim().is_empty() {
            return Err(Error::invalid("query", "Search query cannot be empty"));
        }
        let mut violations = Violations::default();
        if query.contains('\0') {
            violations.push(
                "query",
                "`query` contains the character U+0000, which no stored text has",
            );
        } else if query.chars().nth(MAX_QUERY_CHARS).is_some() {
            violations.push(
                "query",
                format!("`query` has more than {MAX_QUERY_CHARS} characters"),
            );
        }
        let mode = parse_mode(mode.as_deref(), &mut violations);
        let page = validate::page(limit, None, DEFAULT_LIMIT, MAX_LIMIT, 0, &mut violations);
        let conditions = conditions(metadata_filters.clone(), &mut violations);
        let min = validate::min_revision(min_revision, &mut violations);
        violations.finish(()).map_err(invalid_input)?;
        if mode == ArtifactSearchMode::Ranked {
            let filters = FilterInput {
                metadata_filters,
                ..FilterInput::default()
            };
            return self
                .ranked(caller, query, page.limit, filters, min_revision)
                .await;
        }
        let wanted = self.artifact_page(page.and_one(), PageStart::Offset(0));
        let relevance_context = relevance_context(&query);
        let selection = ArtifactSelection {
            path_prefix: None,
            substring: Some(query),
            conditions,
        };
        let found = self
            .store
            .artifacts()
            .list_artifacts(&caller.owner, selection, wanted, read::at(min))
            .await;
        let mut found = found.map_err(|error| failed(error, "search artifacts"))?;
        let has_more = page.cut(&mut found.artifacts);
        let result = found
            .artifacts
            .into_iter()
            .filter(is_sound)
            .map(|artifact| {
                let ListedArtifact {
                    id,
                    title,
                    preview,
                    metadata,
                    path,
                    created_at,
                    updated_at: _,
                    damaged_version: _,
                } = artifact;
                let (content_preview, relevance_context) =
                    (cut(preview), relevance_context.clone());
                Ok(ArtifactHit {
                    id: id.to_string(),
                    title,
                    content_preview,
                    metadata: parsed(caller, &metadata)?,
                    path,
                    relevance_context,
                    created_at,
                    relevance: None,
                    snippet: None,
                })
            });
        Ok(SearchArtifactsReply {
            result: result.collect::<Result<_>>()?,
            has_more,
            revision: found.revision,
        })
    }

    /// Artifacts by hybrid search.
    async fn ranked(
        &self,
        caller: &Caller,
        query: String,
        limit: u32,
        filters: FilterInput,
        min_revision: Option<i64>,
    ) -> Result<SearchArtifactsReply> {
        let relevance_context = relevance_context(&query);
        let request = HybridSearchContextRequest {
            query,
            include: Some(vec![Include::Artifacts.as_str().to_owned()]),
            limit: Some(limit.into()),
            filters,
            min_revision,
            ..HybridSearchContextRequest::default()
        };
        let found = self.retrieval.hybrid_search(caller, request).await?;
        let hit = |hit: HybridHit| match hit {
            HybridHit::Context(_) => None,
            HybridHit::Artifact(hit) => {
                Some(parsed(caller, &hit.metadata).map(|metadata| ArtifactHit {
                    id: hit.artifact_id,
                    title: hit.title,
                    content_preview: cut_again(hit.text_content, hit.is_text_content_truncated),
                    metadata,
                    path: hit.path,
                    relevance_context: relevance_context.clone(),
                    created_at: hit.created_at,
                    relevance: hit.relevance,
                    snippet: hit.snippet,
                }))
            }
        };
        Ok(SearchArtifactsReply {
            result: found
                .results
                .into_iter()
                .filter_map(hit)
                .collect::<Result<_>>()?,
            has_more: found.has_more,
            revision: found.revision,
        })
    }

    pub(super) fn artifact_page(&self, page: Page, start: PageStart) -> ArtifactPage {
        // Reads one character more than is shown, to detect whether the preview is cut.
        ArtifactPage {
            limit: page.limit,
            start,
            preview_chars: PREVIEW_CHARS as u32 + 1,
            max_bytes: self.max_reply_bytes,
        }
    }
}

/// The documented text of `relevance_context`.
fn relevance_context(query: &str) -> String {
    format!("Matched query: '{query}'")
}

fn conditions(given: Option<Vec<MetadataFilter>>, violations: &mut Violations) -> Vec<Condition> {
    let filters = FilterInput {
        metadata_filters: given,
        ..FilterInput::default()
    };
    Filter::parse(filters, violations).conditions
}

fn parse_mode(given: Option<&str>, violations: &mut Violations) -> ArtifactSearchMode {
    let mode = given.map_or(
        Some(ArtifactSearchMode::Substring),
        ArtifactSearchMode::parse,
    );
    mode.unwrap_or_else(|| {
        let shown: String = given.unwrap_or_default().chars().take(40).collect();
        violations.push(
            "mode",
            format!("`mode` is `{shown}`; it must be `substring` or `ranked`"),
        );
        ArtifactSearchMode::Substring
    })
}

/// Whether an artifact passes its checksum. A damaged one is logged and left out of the reply, but `total` includes it.
fn is_sound(artifact: &ListedArtifact) -> bool {
    let Some(version) = artifact.damaged_version else {
        return true;
    };
    tracing::error!(
        "Left an artifact out of a list: {}",
        seal::refuse_artifact(&artifact.id, version).message
    );
    false
}

/// The metadata of an artifact in a list. Its memory is taken from the caller's budget.
///
/// # Errors
/// `OVERLOADED` if there is no memory for it.
fn parsed(caller: &Caller, metadata: &ObjectText) -> Result<JsonObject> {
    let object = metadata.to_object().unwrap_or_default();
    caller
        .memory
        .take(context_model::held_bytes(&object) as u64)?;
    Ok(object)
}

/// The documented preview: 200 characters, followed by `...` if there are more.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(PREVIEW_CHARS) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The preview from the text of a search result, which ends in `...` if the search truncated it. A text that the search
/// truncated to less than 200 characters stays as it is.
fn cut_again(text: String, is_truncated: bool) -> String {
    match text.strip_suffix("...").filter(|_| is_truncated) {
        Some(start) => start
            .chars()
            .take(PREVIEW_CHARS)
            .chain("...".chars())
            .collect(),
        None => cut(text),
    }
}

/// The cursor of the page after `last`. It is opaque to clients.
fn cursor_after(last: &ListedArtifact) -> String {
    format!("{:x}.{}", last.created_at.micros(), last.id)
}

fn read_cursor(cursor: &str) -> Option<PageStart> {
    let (micros, id) = cursor.split_once('.').filter(|_| cursor.len() <= 64)?;
    let created_at = Timestamp(i64::from_str_radix(micros, 16).ok()?);
    Some(PageStart::After {
        created_at,
        id: ArtifactId::parse(id).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_ends_after_two_hundred_characters() {
        assert_eq!(cut("ä".repeat(200)), "ä".repeat(200));
        assert_eq!(cut("ä".repeat(201)), format!("{}...", "ä".repeat(200)));
    }

    #[test]
    fn a_truncated_text_ends_in_three_dots_after_it_is_cut_again() {
        for (chars, shown) in [(300, 200), (200, 200), (199, 199), (10, 10)] {
            assert_eq!(
                cut_again(format!("{}...", "ä".repeat(chars)), true),
                format!("{}...", "ä".repeat(shown))
            );
        }
        assert_eq!(cut_again("and so on...".to_owned(), false), "and so on...");
    }

    #[test]
    fn a_cursor_reads_back_and_a_foreign_one_does_not() {
        let id = ArtifactId::parse("123e4567-e89b-12d3-a456-426614174000").unwrap();
        let (preview, metadata) = (String::new(), ObjectText::default());
        let at = Timestamp(1_764_410_400_000_001);
        let last = ListedArtifact {
            id,
            title: String::new(),
            preview,
            metadata,
            path: None,
            created_at: at,
            updated_at: at,
            damaged_version: None,
        };
        assert_eq!(
            read_cursor(&cursor_after(&last)),
            Some(PageStart::After { created_at: at, id })
        );
        for foreign in ["", ".", "x.y", "1", &format!("zz.{id}"), &"1".repeat(500)] {
            assert_eq!(read_cursor(foreign), None, "{foreign}");
        }
    }
}
