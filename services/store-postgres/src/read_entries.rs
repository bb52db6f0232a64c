//! Reading entries by id and by filter.

use std::sync::Arc;
use std::time::Duration;

use context_model::{Filter, MetadataPath};
use context_store::bm25::{B, K1, PADDING};
use context_store::{FtsPage, FtsSearch, OwnerId, Page, RowSelection, ScoredEntry, SearchPage};

use crate::entries::{self, Loaded};
use crate::filter;
use crate::fts::{self, Language};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::{Reading, begin, begin_for, commit};

/// Entries by id, newest first.
pub(crate) struct Get {
    pub ids: Vec<i64>,
    pub selection: RowSelection,
    /// Without those that changed after this revision.
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

impl Reading for Get {
    type Outcome = SearchPage;

    fn empty(&self) -> SearchPage {
        SearchPage {
            entries: Vec::new(),
            revision: 0,
            plan: Vec::new(),
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, SearchPage)>, Failure> {
        // One statement sees one state of the database. Only images need another one.
        let mut loaded = entries::load(conn, self.statement(owner), &self.selection).await?;
        if self.selection.images {
            if !loaded.with_images.is_empty() {
                begin(conn, self.statement_timeout).await?;
                loaded = entries::load(conn, self.statement(owner), &self.selection).await?;
                entries::load_images(conn, owner, &mut loaded, &self.selection).await?;
                commit(conn).await?;
            } else {
                entries::load_images(conn, owner, &mut loaded, &self.selection).await?;
            }
        }
        Ok(page_of(loaded, Vec::new()))
    }
}

impl Get {
    fn statement<'v>(&self, owner: &'v OwnerId) -> Fragment<'v> {
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
        // For one id the server keeps a plan; for a list whose length it does not know it makes one each time.
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
            revision: 0,
            plan: Vec::new(),
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, SearchPage)>, Failure> {
        let begun = begin_for(
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
        let mut loaded = entries::load(conn, statement, &self.selection).await?;
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
        let mut statement =
            Fragment::search("SELECT NULL::bigint AS matches, NULL::float8 AS score, ");
        statement.append(entries::page_columns(&self.selection));
        statement.push(" FROM context.owners AS o LEFT JOIN (SELECT entries.* FROM context.entries AS entries WHERE ");
        statement.append(filter::compile(&self.filter, owner.as_str(), &self.indexed));
        statement
            .push(" ORDER BY entries.created_at DESC, entries.id DESC")
            .append(limits(self.page));
        statement
            .push(") AS e ON e.owner_id = o.owner_id WHERE o.owner_id = ")
            .bind(Bind::text(owner.as_str()));
        statement.push(" ORDER BY e.created_at DESC, e.id DESC");
        statement
    }
}

/// The limits of a page. The plan depends on how many rows are wanted, so that stands in the text: there are few sizes of
/// pages, and first pages are most.
fn limits(page: Page) -> Fragment<'static> {
    let mut limits = Fragment::new(format!(" LIMIT {}", page.limit));
    if page.offset > 0 {
        limits
            .push(" OFFSET ")
            .bind(Bind::Int(i64::try_from(page.offset).unwrap_or(i64::MAX)));
    }
    limits
}

fn page_of(loaded: Loaded, plan: Vec<String>) -> Option<(i64, SearchPage)> {
    let revision = loaded.revision?;
    let entries = loaded.entries.into_iter().map(|(entry, _)| entry).collect();
    Some((
        revision,
        SearchPage {
            entries,
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
        // What is asked instead, where nothing matched, is a page of its own.
        let begun = begin_for(
            conn,
            self.selection.explain || self.selection.images,
            self.statement_timeout,
        )
        .await?;
        let mut query = &self.search.query.query;
        let mut loaded = entries::load(conn, self.statement(owner, query), &self.selection).await?;
        let mut used_fallback = false;
        if let (0, Some(fallback)) = (loaded.matches, &self.search.query.fallback) {
            query = fallback;
            used_fallback = true;
            loaded = entries::load(conn, self.statement(owner, query), &self.selection).await?;
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
        let entries = loaded
            .entries
            .into_iter()
            .map(|(entry, score)| ScoredEntry { entry, score })
            .collect();
        Ok(Some((
            revision,
            FtsPage {
                entries,
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
        let mut statement = ranked(
            &self.search,
            query,
            &self.filter,
            owner.as_str(),
            self.page,
            &self.indexed,
            &self.language,
        );
        statement.push(" SELECT (SELECT count(*) FROM matched) AS matches, p.score, ");
        statement.append(entries::page_columns(&self.selection));
        statement.push(
            " FROM context.owners AS o LEFT JOIN page AS p ON p.owner_id = o.owner_id \
             LEFT JOIN context.entries AS e ON e.owner_id = p.owner_id AND e.id = p.id WHERE o.owner_id = ",
        );
        statement
            .bind(Bind::text(owner.as_str()))
            .push(" ORDER BY p.score DESC, e.id DESC");
        statement
    }
}

/// The common table expressions `matched` and `page` of a search by words.
///
/// Ranks the newest matches up to the cap: of a common word reading and ranking them all would take seconds. One
/// match beyond the cap shows that there are more.
pub(crate) fn ranked<'v>(
    search: &FtsSearch,
    query: &context_text::Query,
    filter: &'v Filter,
    owner: &'v str,
    page: Page,
    indexed: &[MetadataPath],
    language: &Language,
) -> Fragment<'v> {
    let words = fts::query(query, language);
    let cap = i64::from(search.ranking_cap);
    let mut statement = Fragment::search(
        "WITH matched AS MATERIALIZED (SELECT entries.owner_id, entries.id, entries.created_at, entries.words, entries.context \
         FROM context.entries AS entries WHERE ",
    );
    statement.append(filter::compile(filter, owner, indexed));
    statement.push(" AND ").append(filter::of_owner(owner));
    let with_context = search.context_weight > 0.0;
    statement
        .push(if with_context {
            " AND (entries.words @@ "
        } else {
            " AND entries.words @@ "
        })
        .append(words.clone());
    if with_context {
        statement
            .push(" OR entries.context @@ ")
            .append(words.clone())
            .push(")");
    }
    statement
        .push(" ORDER BY entries.created_at DESC, entries.id DESC")
        .push(&format!(" LIMIT {}", cap + 1));
    statement.push(&format!(
        "), newest AS (SELECT * FROM matched ORDER BY created_at DESC, id DESC LIMIT {cap}), "
    ));
    statement.append(bm25(
        search.context_weight,
        fts::terms(query, language),
        owner,
    ));
    statement
        .push("page AS (SELECT owner_id, id, score FROM ranked ORDER BY score DESC, id DESC")
        .append(limits(page))
        .push(")");
    statement
}

/// The common table expression `ranked` of a search by words, or by words and neighbours' words: BM25, as the embedded store has
/// it, of what was matched.
///
/// The server's own functions know nothing of how rare a word is, so that of a question's words the common ones would
/// bury the one that matters. Here that is learnt from the matches themselves, and so is the average length. `ts_rank` of
/// one word is 1/1.645 for one occurrence and rises as slowly as BM25 with each further one (`calc_rank_or`).
fn bm25<'v>(context_weight: f64, terms: Fragment<'static>, owner: &'v str) -> Fragment<'v> {
    let with_context = context_weight > 0.0;
    let mut ranked = Fragment::new("shape AS (SELECT avg(length(words))::float8 AS length, ");
    if with_context {
        // Neighbours' words make most of a thread match, and the defaults of hybrid search were found with this.
        ranked.push("count(*)::float8 AS entries");
    } else {
        ranked.push(
            "greatest(count(*), (SELECT o.entry_count FROM context.owners AS o WHERE o.owner_id = ",
        );
        ranked.bind(Bind::text(owner)).push("))::float8 AS entries");
    }
    ranked.push(
        " FROM newest), hits AS MATERIALIZED (SELECT m.owner_id, m.id, length(m.words) AS length, t.place, \
         1.645 * ts_rank('{1, 1, 1, 1}', m.words, t.term)",
    );
    if with_context {
        ranked.push(&format!(
            " + {context_weight:.6} * (m.context @@ t.term)::int"
        ));
    }
    ranked
        .push(" AS frequency FROM newest AS m CROSS JOIN unnest(")
        .append(terms);
    ranked.push(") WITH ORDINALITY AS t(term, place) WHERE m.words @@ t.term");
    if with_context {
        ranked.push(" OR m.context @@ t.term");
    }
    ranked.push(&format!(
        "), rarity AS (SELECT h.owner_id, h.place, ln(1 + (s.entries - count(*) + 0.5) / (count(*) + 0.5)) AS idf FROM hits AS h CROSS JOIN shape AS s \
         GROUP BY h.owner_id, h.place, s.entries), \
         ranked AS (SELECT h.owner_id, h.id, sum(r.idf * {} * h.frequency \
         / (h.frequency + {K1} * ({} + {B} * (h.length + {PADDING}) / (s.length + {PADDING}))))::float8 AS score \
         FROM hits AS h JOIN rarity AS r ON r.owner_id = h.owner_id AND r.place = h.place CROSS JOIN shape AS s GROUP BY h.owner_id, h.id), ",
        K1 + 1.0,
        1.0 - B
    ));
    ranked
}
