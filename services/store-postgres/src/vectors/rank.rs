//! Ranks the results of a search with the full-text retriever, the semantic retriever or both, on one state of the
//! database.

use std::sync::Arc;

use context_model::{Filter, MetadataPath};
use context_store::{
    DocumentKind, EmbeddingModel, FtsHit, FtsSearch, OwnerId, Page, RankSearch, Ranking,
    SemanticSearch,
};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Nullable};

use super::index;
use super::search::{Search, VectorSet};
use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::{Reading, begin, commit, revision};
use crate::read_entries::{Rows, ranked};
use crate::store::Inner;

/// Ranks entries, or the documents of artifacts.
pub(super) struct Rank {
    pub search: RankSearch,
    pub filter: Filter,
    pub inner: Arc<Inner>,
}

/// The result of [`Rank`].
pub(super) enum Ranked {
    Ranking(Ranking),
    /// The database has no set of the semantic search's model, or that set is still being filled. Nothing was ranked.
    NoSuchSet,
}

impl Reading for Rank {
    type Outcome = Ranked;

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.inner.indexed))
    }

    fn empty(&self) -> Ranked {
        Ranked::Ranking(Ranking::default())
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Ranked)>, Failure> {
        if self.search.kind == DocumentKind::Artifact && !self.filter.admits_artifacts() {
            return self.nothing(conn, owner).await;
        }
        begin(conn, self.inner.statement_timeout).await?;
        let mut ranking = Ranking::default();
        let mut semantic_search = None;
        match &self.search.semantic {
            None => ranking.revision = revision(conn, owner).await?.unwrap_or(0),
            Some(semantic) => {
                let (state, expected) = self.state(conn, owner, &semantic.model).await?;
                ranking.revision = state.revision;
                semantic_search = self.semantic_search(owner, semantic, &state, expected);
                if semantic_search.is_none() {
                    commit(conn).await?;
                    return Ok(Some((ranking.revision, Ranked::NoSuchSet)));
                }
            }
        }
        // Full-text search runs first, because semantic search changes settings of the transaction.
        if let Some(fts) = &self.search.fts {
            self.full_text(conn, owner, fts, &mut ranking).await?;
        }
        if let Some(search) = semantic_search {
            let found = search.run(conn).await?;
            ranking.semantic = found.hits;
            ranking.plan.splice(0..0, found.notes);
        }
        commit(conn).await?;
        Ok(Some((ranking.revision, Ranked::Ranking(ranking))))
    }
}

/// The state that a semantic search needs before it begins.
#[derive(QueryableByName)]
struct State {
    #[diesel(sql_type = Nullable<BigInt>)]
    set_id: Option<i64>,
    /// Rows of `chunks`: all sets and all owners, by the server's estimate.
    #[diesel(sql_type = BigInt)]
    chunks: i64,
    /// Whether the set has a usable HNSW index.
    #[diesel(sql_type = Bool)]
    indexed: bool,
    #[diesel(sql_type = BigInt)]
    revision: i64,
    /// The number of the owner's entries.
    #[diesel(sql_type = BigInt)]
    entries: i64,
}

impl Rank {
    /// The metadata fields with an index. Only entries have such indexes.
    fn indexed(&self) -> &[MetadataPath] {
        match self.search.kind {
            DocumentKind::Context => &self.inner.indexed,
            DocumentKind::Artifact => &[],
        }
    }

    /// The semantic search in the set of its model. `None` when there is no such set.
    fn semantic_search<'s>(
        &'s self,
        owner: &'s OwnerId,
        semantic: &'s SemanticSearch,
        state: &State,
        expected: Option<f64>,
    ) -> Option<Search<'s>> {
        let owner_entries = match self.search.kind {
            DocumentKind::Context => state.entries,
            DocumentKind::Artifact => expected.unwrap_or(0.0) as i64,
        };
        Some(Search {
            owner,
            owner_entries,
            set: VectorSet {
                id: state.set_id?,
                dimensions: semantic.model.dimensions,
                has_index: state.indexed,
            },
            chunks: state.chunks,
            vector: &semantic.vector,
            kind: self.search.kind,
            filter: &self.filter,
            indexed_paths: self.indexed(),
            expected,
            depth: self.search.depth,
            ef_search: self.inner.vectors.ef_search,
            explain: self.search.explain,
        })
    }

    /// An empty ranking.
    async fn nothing(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Ranked)>, Failure> {
        begin(conn, self.inner.statement_timeout).await?;
        let revision = revision(conn, owner).await?.unwrap_or(0);
        commit(conn).await?;
        let ranking = Ranking {
            revision,
            ..Ranking::default()
        };
        Ok(Some((revision, Ranked::Ranking(ranking))))
    }

    /// Reads the state of the owner and of the model's set, and the planner's estimate of how many entries satisfy the
    /// filter. For entries without a filter the estimate is `None`.
    async fn state(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        model: &EmbeddingModel,
    ) -> Result<(State, Option<f64>), Failure> {
        let select = state_query(owner, model);
        let estimates = &self.inner.vectors.estimates;
        let kind = self.search.kind;
        let is_filtered = self.filter.count() > 0 || kind == DocumentKind::Artifact;
        let key = is_filtered.then(|| estimates.key(owner, kind, &self.filter));
        let cached = key.and_then(|key| estimates.get(key));
        let (rows, expected): (Vec<State>, _) = match (key, cached) {
            (None, _) => (sql::query(conn, select).await?, None),
            (Some(_), Some(expected)) => (sql::query(conn, select).await?, Some(expected)),
            // The estimate is read in the same round trip as the state.
            (Some(key), None) => {
                let matching = self.matching_entries(owner);
                let (rows, expected) = sql::query_and_expected_rows(conn, select, matching).await?;
                estimates.put(key, expected);
                (rows, Some(expected))
            }
        };
        let state = rows
            .into_iter()
            .next()
            .ok_or(diesel::result::Error::NotFound)?;
        Ok((state, expected))
    }

    /// Selects the owner's entries that satisfy the filter.
    fn matching_entries<'s>(&'s self, owner: &'s OwnerId) -> Fragment<'s> {
        let mut matching = Fragment::new(match self.search.kind {
            DocumentKind::Context => "SELECT entries.id FROM context.entries AS entries WHERE ",
            DocumentKind::Artifact => {
                "SELECT entries.id FROM context.artifact_documents AS entries WHERE "
            }
        });
        matching.append(filter::compile(
            self.search.kind,
            &self.filter,
            owner.as_str(),
            self.indexed(),
        ));
        matching
    }

    /// Adds the full-text ranking.
    async fn full_text(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        search: &FtsSearch,
        ranking: &mut Ranking,
    ) -> Result<(), Failure> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            matches: i64,
            #[diesel(sql_type = BigInt)]
            id: i64,
            #[diesel(sql_type = Double)]
            score: f64,
        }
        let page = Page {
            limit: self.search.depth,
            offset: 0,
        };
        let statement = |query| {
            let rows = Rows {
                kind: self.search.kind,
                filter: &self.filter,
                owner: owner.as_str(),
                indexed: self.indexed(),
            };
            let mut statement = ranked(rows, search, query, page, &self.inner.language);
            statement
                .push(" SELECT (SELECT count(*) FROM matched) AS matches, p.id, p.score FROM page AS p ORDER BY p.score DESC, p.id DESC");
            statement
        };
        let mut query = &search.query.query;
        let mut rows: Vec<Row> = sql::query(conn, statement(query)).await?;
        if let (true, Some(fallback)) = (rows.is_empty(), &search.query.fallback) {
            query = fallback;
            ranking.used_fallback = true;
            rows = sql::query(conn, statement(query)).await?;
        }
        if self.search.explain {
            ranking
                .plan
                .extend(sql::explain(conn, &statement(query)).await?);
        }
        let cap = search.ranking_cap;
        ranking.capped_at = rows
            .first()
            .filter(|row| row.matches > i64::from(cap))
            .map(|_| cap);
        ranking.fts = rows
            .into_iter()
            .map(|row| FtsHit {
                id: row.id,
                score: row.score,
            })
            .collect();
        Ok(())
    }
}

/// Selects the [`State`] of an owner and a model, in one round trip. Finds a current or a retired set: services that
/// still embed with a retired set's model search in it. The condition on the state excludes the building set. A
/// discarded set is not found, because its name is no longer that of the model.
fn state_query<'s>(owner: &'s OwnerId, model: &'s EmbeddingModel) -> Fragment<'s> {
    let select = "SELECT s.set_id, coalesce((SELECT c.reltuples FROM pg_catalog.pg_class AS c WHERE c.oid = \
                  to_regclass('context.chunks')), 0)::bigint AS chunks, coalesce((SELECT i.indisvalid FROM pg_catalog.pg_index AS i \
                  WHERE i.indexrelid = to_regclass(? || s.set_id)), false) AS indexed, \
                  coalesce((SELECT o.revision FROM context.owners AS o WHERE o.owner_id = ?), 0) AS revision, \
                  coalesce((SELECT o.entry_count FROM context.owners AS o WHERE o.owner_id = ?), 0) AS entries \
                  FROM (SELECT (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ? AND state <> 'building') \
                  AS set_id) AS s";
    let binds = vec![
        Bind::text(index::PREFIX),
        Bind::text(owner.as_str()),
        Bind::text(owner.as_str()),
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    Fragment::prepared(select, binds)
}
