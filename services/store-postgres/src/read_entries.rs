//! Reading entries by id, by filter and by full-text search.

use std::sync::Arc;
use std::time::Duration;

use context_model::{Filter, MetadataPath};
use context_store::bm25::{B, CONTEXT_WORDS, K1, PADDING};
use context_store::{
    DocumentKind, FtsPage, FtsSearch, OwnerId, Page, RowSelection, ScoredEntry, SearchPage,
};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;

use crate::entries::{self, Loaded};
use crate::filter;
use crate::fts::{self, Language};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::{Reading, begin, begin_if_needed, commit, revision};

/// Entries by id, newest first.
pub(crate) struct Get {
    pub ids: Vec<i64>,
    pub selection: RowSelection,
    /// Leaves out entries that changed after this revision.
    pub as_of: Option<i64>,
    pub statement_timeout: Duration,
}

/// Entries that satisfy the filter, newest first.
pub(crate) struct Search {
    pub filter: Filter,
    pub page: Page,
    pub selection: RowSelection,
    pub indexed: Arc<[MetadataPath]>,
    pub statement_timeout: Duration,
}

/// Entries that match the search and satisfy the filter, best first.
pub(crate) struct Ranked {
    pub search: FtsSearch,
    pub filter: Filter,
    pub page: Page,
    pub selection: RowSelection,
    pub indexed: Arc<[MetadataPath]>,
    pub language: Arc<Language>,
    pub statement_timeout: Duration,
}

/// How many texts match each query, counted up to a maximum.
pub(crate) struct Frequencies {
    pub kind: DocumentKind,
    pub queries: Vec<context_text::Query>,
    pub max: u32,
    pub language: Arc<Language>,
    pub statement_timeout: Duration,
}

impl Reading for Get {
    type Outcome = SearchPage;

    fn empty(&self) -> SearchPage {
        SearchPage {
            entries: Vec::new(),
            has_more: false,
            revision: 0,
            plan: Vec::new(),
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, SearchPage)>, Failure> {
        // One statement sees one state. Only reading images takes a second statement.
        let images = self.selection.images;
        let begun = begin_if_needed(conn, images, self.statement_timeout).await?;
        let mut loaded =
            entries::load(conn, self.statement(owner), &self.selection, usize::MAX).await?;
        if images {
            entries::load_images(conn, owner, &mut loaded, &self.selection).await?;
        }
        if begun {
            commit(conn).await?;
        }
        Ok(page_of(loaded, Vec::new()))
    }
}

impl Get {
    fn statement<'v>(&self, owner: &'v OwnerId) -> Fragment<'v> {
        // Raw SQL: the ids are in the ON clause of the join, so that an owner without these entries still has a row
        // with its revision.
        macro_rules! get {
            ($text:literal, $ids:literal, $condition:literal) => {
                concat!(
                    "SELECT NULL::bigint AS matches, NULL::float8 AS score, o.revision, e.id, e.thread_id, e.source, e.image_count, \
                     e.version, e.created_at, e.updated_at, e.tags, e.summary, e.seal, e.metadata::text AS metadata, ",
                    $text,
                    " FROM context.owners AS o LEFT JOIN context.entries AS e ON e.owner_id = o.owner_id AND e.id = ",
                    $ids,
                    $condition,
                    " WHERE o.owner_id = ? ORDER BY e.created_at DESC, e.id DESC"
                )
            };
        }
        let owner = Bind::text(owner.as_str());
        let chars = self
            .selection
            .text_chars
            .map(|chars| Bind::Int(i64::from(chars)));
        let ids = || Bind::ints(self.ids.iter().copied());
        if let Some(revision) = self.as_of {
            let get = get!(
                "left(e.text, ?::int) AS text",
                "ANY(?)",
                " AND NOT EXISTS (SELECT 1 FROM context.changes AS c WHERE c.owner_id = e.owner_id AND c.revision > ? \
                 AND c.entity = 'context' AND c.entity_id = e.id::text)"
            );
            return Fragment::prepared(
                get,
                vec![
                    chars.unwrap_or(Bind::Int(i32::MAX.into())),
                    ids(),
                    Bind::Int(revision),
                    owner,
                ],
            );
        }
        // The server reuses a plan for one id. For a short list it plans each time, because a plan for all lists would
        // expect 10 ids.
        match (chars, self.ids.as_slice()) {
            (None, [id]) => {
                Fragment::prepared(get!("e.text", "?", ""), vec![Bind::Int(*id), owner])
            }
            (Some(chars), [id]) => Fragment::prepared(
                get!("left(e.text, ?::int) AS text", "?", ""),
                vec![chars, Bind::Int(*id), owner],
            ),
            (None, _) => Fragment::prepared(get!("e.text", "ANY(?)", ""), vec![ids(), owner]),
            (Some(chars), _) => Fragment::prepared(
                get!("left(e.text, ?::int) AS text", "ANY(?)", ""),
                vec![chars, ids(), owner],
            ),
        }
    }
}

impl Reading for Search {
    type Outcome = SearchPage;

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.indexed))
    }

    fn empty(&self) -> SearchPage {
        SearchPage {
            entries: Vec::new(),
            has_more: false,
            revision: 0,
            plan: Vec::new(),
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, SearchPage)>, Failure> {
        let begun = begin_if_needed(
            conn,
            self.selection.explain || self.selection.images,
            self.statement_timeout,
        )
        .await?;
        let statement = self.statement(owner);
        let plan = if self.selection.explain {
            sql::explain(conn, &statement).await?
        } else {
            Vec::new()
        };
        let mut loaded =
            entries::load(conn, statement, &self.selection, self.page.limit as usize).await?;
        if self.selection.images {
            entries::load_images(conn, owner, &mut loaded, &self.selection).await?;
        }
        if begun {
            commit(conn).await?;
        }
        Ok(page_of(loaded, plan))
    }
}

impl Search {
    pub(crate) fn statement<'v>(&'v self, owner: &'v OwnerId) -> Fragment<'v> {
        // Raw SQL for the compiled filter and the LIMIT as text.
        fragment!(
            "SELECT NULL::bigint AS matches, NULL::float8 AS score, {columns} FROM context.owners AS o LEFT JOIN \
             (SELECT entries.* FROM context.entries AS entries WHERE {filter} \
             ORDER BY entries.created_at DESC, entries.id DESC {limits}) AS e \
             ON e.owner_id = o.owner_id WHERE o.owner_id = ? ORDER BY e.created_at DESC, e.id DESC",
            entries::page_columns(&self.selection),
            filter::compile(DocumentKind::Context, &self.filter, owner.as_str(), &self.indexed),
            limits(self.page.and_one()),
            Bind::text(owner.as_str()),
        )
        .cached()
    }
}

/// The LIMIT and OFFSET of a page. The limit is part of the text because the plan depends on it; few page sizes are in
/// use, so there are few different statements. The offset is bound.
fn limits(page: Page) -> Fragment<'static> {
    let limit = Fragment::new(page.limit.to_string());
    if page.offset == 0 {
        return fragment!("LIMIT {limit}", limit);
    }
    let offset = Bind::Int(i64::try_from(page.offset).unwrap_or(i64::MAX));
    fragment!("LIMIT {limit} OFFSET ?", limit, offset)
}

fn page_of(loaded: Loaded, plan: Vec<String>) -> Option<(i64, SearchPage)> {
    let (revision, has_more) = (loaded.revision?, loaded.has_more);
    loaded.taken.keep();
    let entries = loaded.entries.into_iter().map(|(entry, _)| entry).collect();
    Some((
        revision,
        SearchPage {
            entries,
            has_more,
            revision,
            plan,
        },
    ))
}

impl Reading for Ranked {
    type Outcome = FtsPage;

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.indexed))
    }

    fn empty(&self) -> FtsPage {
        FtsPage {
            entries: Vec::new(),
            has_more: false,
            used_fallback: false,
            capped_at: None,
            revision: 0,
            plan: Vec::new(),
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, FtsPage)>, Failure> {
        // The fallback needs no transaction: it runs only when nothing matches the query, so one statement gives the
        // whole page.
        let begun = begin_if_needed(
            conn,
            self.selection.explain || self.selection.images,
            self.statement_timeout,
        )
        .await?;
        let limit = self.page.limit as usize;
        let mut query = &self.search.query.query;
        let mut loaded =
            entries::load(conn, self.statement(owner, query), &self.selection, limit).await?;
        let mut used_fallback = false;
        if let (0, Some(fallback)) = (loaded.matches, &self.search.query.fallback) {
            query = fallback;
            used_fallback = true;
            loaded =
                entries::load(conn, self.statement(owner, query), &self.selection, limit).await?;
        }
        let plan = if self.selection.explain {
            sql::explain(conn, &self.statement(owner, query)).await?
        } else {
            Vec::new()
        };
        if self.selection.images {
            entries::load_images(conn, owner, &mut loaded, &self.selection).await?;
        }
        if begun {
            commit(conn).await?;
        }
        let Some(revision) = loaded.revision else {
            return Ok(None);
        };
        let capped_at = (loaded.matches > i64::from(self.search.ranking_cap))
            .then_some(self.search.ranking_cap);
        loaded.taken.keep();
        let entries = loaded
            .entries
            .into_iter()
            .map(|(entry, score)| ScoredEntry { entry, score })
            .collect();
        Ok(Some((
            revision,
            FtsPage {
                entries,
                has_more: loaded.has_more,
                used_fallback,
                capped_at,
                revision,
                plan,
            },
        )))
    }
}

impl Ranked {
    fn statement<'v>(&'v self, owner: &'v OwnerId, query: &context_text::Query) -> Fragment<'v> {
        let rows = Rows {
            kind: DocumentKind::Context,
            filter: &self.filter,
            owner: owner.as_str(),
            indexed: &self.indexed,
        };
        let page = self.page.and_one();
        let ranked = ranked(rows, &self.search, query, page, &self.language);
        // Raw SQL for the ranking.
        fragment!(
            "{ranked} SELECT (SELECT count(*) FROM matched) AS matches, p.score, {columns} \
             FROM context.owners AS o LEFT JOIN page AS p ON p.owner_id = o.owner_id \
             LEFT JOIN context.entries AS e ON e.owner_id = p.owner_id AND e.id = p.id \
             WHERE o.owner_id = ? ORDER BY p.score DESC, e.id DESC",
            ranked,
            entries::page_columns(&self.selection),
            Bind::text(owner.as_str()),
        )
        .cached()
    }
}

impl Reading for Frequencies {
    type Outcome = Vec<u64>;

    fn empty(&self) -> Vec<u64> {
        vec![0; self.queries.len()]
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Vec<u64>)>, Failure> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            entries: i64,
        }
        begin(conn, self.statement_timeout).await?;
        let Some(revision) = revision(conn, owner).await? else {
            commit(conn).await?;
            return Ok(None);
        };
        let all = context_text::Query::Or(self.queries.clone());
        let table = match self.kind {
            DocumentKind::Context => "entries",
            DocumentKind::Artifact => "artifact_documents",
        };
        // Raw SQL for a limited count of each query.
        let count = fragment!(
            "SELECT m.entries FROM unnest({terms}) WITH ORDINALITY AS t(term, place) \
             CROSS JOIN LATERAL (SELECT count(*) AS entries FROM (SELECT 1 FROM context.{table} AS entries \
             WHERE entries.owner_id = ? AND {of_owner} AND entries.words @@ t.term LIMIT ?) AS e) AS m ORDER BY t.place",
            fts::terms(&all, &self.language),
            Fragment::new(table),
            Bind::text(owner.as_str()),
            filter::of_owner(owner.as_str()),
            Bind::Int(i64::from(self.max)),
        );
        let rows: Vec<Row> = sql::query(conn, count.cached()).await?;
        commit(conn).await?;
        let counts = rows.into_iter().map(|row| row.entries.unsigned_abs());
        Ok(Some((revision, counts.collect())))
    }
}

/// What a full-text search ranks: the rows of one kind and one owner that satisfy a filter.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'v> {
    pub kind: DocumentKind,
    pub filter: &'v Filter,
    pub owner: &'v str,
    /// The metadata fields with an index.
    pub indexed: &'v [MetadataPath],
}

/// The common table expressions `matched` and `page` of a full-text search.
///
/// Ranks only the newest matches up to the cap: reading and ranking all matches of a common word would take seconds.
/// One match beyond the cap shows that there are more.
pub(crate) fn ranked<'v>(
    rows: Rows<'v>,
    search: &FtsSearch,
    query: &context_text::Query,
    page: Page,
    language: &Language,
) -> Fragment<'v> {
    let Rows {
        kind,
        filter,
        owner,
        indexed,
    } = rows;
    let words = fts::query(query, language);
    // Artifacts have no context window.
    let (table, context, context_weight) = match kind {
        DocumentKind::Context => ("entries", "entries.context", search.context_weight),
        DocumentKind::Artifact => ("artifact_documents", "''::tsvector AS context", 0.0),
    };
    let matches = if context_weight > 0.0 {
        let (of_entry, of_context) = (words.clone(), words);
        fragment!(
            "(entries.words @@ {words} OR entries.context @@ {words})",
            of_entry,
            of_context
        )
    } else {
        fragment!("entries.words @@ {words}", words)
    };
    let cap = i64::from(search.ranking_cap);
    fragment!(
        "WITH matched AS MATERIALIZED (SELECT entries.owner_id, entries.id, entries.created_at, entries.words, {context} \
         FROM context.{table} AS entries WHERE {filter} AND {of_owner} AND {matches} \
         ORDER BY entries.created_at DESC, entries.id DESC LIMIT {cap_and_one}), \
         newest AS (SELECT * FROM matched ORDER BY created_at DESC, id DESC LIMIT {cap}), {bm25}, \
         page AS (SELECT owner_id, id, score FROM ranked ORDER BY score DESC, id DESC {limits})",
        Fragment::new(context),
        Fragment::new(table),
        filter::compile(kind, filter, owner, indexed),
        filter::of_owner(owner),
        matches,
        Fragment::new((cap + 1).to_string()),
        Fragment::new(cap.to_string()),
        bm25(kind, context_weight, fts::terms(query, language), owner),
        limits(page),
    )
    .cached()
}

/// The common table expressions of a full-text search that end with `ranked`: BM25 of the matches, as in the embedded
/// store. It covers the entries' own words and, optionally, their context windows.
///
/// The server's own ranking functions do not know how rare a word is, so common words of a query would outweigh the
/// rare one that matters. Here the word frequencies and the average length are computed from the matches. `ts_rank` of
/// one word, times 1.645, is 1 for one occurrence, and the n-th occurrence adds 1/n² (`calc_rank_or`).
fn bm25<'v>(
    kind: DocumentKind,
    context_weight: f64,
    terms: Fragment<'static>,
    owner: &'v str,
) -> Fragment<'v> {
    let (entries, weighted, or_of_context) = if context_weight > 0.0 {
        // The number of entries is that of the ranked matches: through context windows, most of a thread matches. The
        // defaults of hybrid search were tuned with this. The weight is that of `context_store::bm25::context_weight`.
        let weighted = format!(
            "+ {context_weight:.6} * (m.context @@ t.term)::int \
             * power(least(1, {CONTEXT_WORDS:.1} / greatest(1, length(m.words))), 2)"
        );
        (
            Fragment::new("count(*)"),
            Fragment::new(weighted),
            Fragment::new("OR m.context @@ t.term"),
        )
    } else {
        let owner = Bind::text(owner);
        let entries = match kind {
            DocumentKind::Context => fragment!(
                "greatest(count(*), (SELECT o.entry_count FROM context.owners AS o WHERE o.owner_id = ?))",
                owner,
            ),
            DocumentKind::Artifact => fragment!(
                "(SELECT count(*) FROM context.artifact_documents AS d WHERE d.owner_id = ?)",
                owner,
            ),
        };
        (entries, Fragment::new(""), Fragment::new(""))
    };
    let score = format!(
        "sum(r.idf * {} * h.frequency / (h.frequency + {K1} * ({} + {B} * (h.length + {PADDING}) / (s.length + {PADDING}))))",
        K1 + 1.0,
        1.0 - B
    );
    fragment!(
        "shape AS (SELECT avg(length(words))::float8 AS length, {entries}::float8 AS entries FROM newest), \
         hits AS MATERIALIZED (SELECT m.owner_id, m.id, length(m.words) AS length, t.place, \
         1.645 * ts_rank('{1, 1, 1, 1}', m.words, t.term) {weighted} AS frequency \
         FROM newest AS m CROSS JOIN unnest({terms}) WITH ORDINALITY AS t(term, place) \
         WHERE m.words @@ t.term {or_of_context}), \
         rarity AS (SELECT h.owner_id, h.place, ln(1 + (s.entries - count(*) + 0.5) / (count(*) + 0.5)) AS idf \
         FROM hits AS h CROSS JOIN shape AS s GROUP BY h.owner_id, h.place, s.entries), \
         ranked AS (SELECT h.owner_id, h.id, {score}::float8 AS score FROM hits AS h \
         JOIN rarity AS r ON r.owner_id = h.owner_id AND r.place = h.place CROSS JOIN shape AS s GROUP BY h.owner_id, h.id)",
        entries,
        weighted,
        terms,
        or_of_context,
        Fragment::new(score),
    )
}
