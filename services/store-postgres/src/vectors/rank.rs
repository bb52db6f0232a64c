//! Ranking by words, by meaning, or both, on one state of the database.

use std::sync::Arc;

use context_model::{Filter, MetadataPath};
use context_store::{FtsSearch, OwnerId, Page, RankSearch, RankedByWords, Ranking, SemanticSearch};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Nullable};

use super::search::{Search, SetState};
use super::{index, sight};
use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::{Reading, begin, commit, revision};
use crate::read_entries::ranked;
use crate::store::Inner;

/// A ranking to make. It gives nothing when the database does not keep vectors of the search's model.
pub(super) struct Rank {
    pub search: RankSearch,
    pub filter: Filter,
    pub inner: Arc<Inner>,
}

#[derive(QueryableByName)]
struct State {
    #[diesel(sql_type = Nullable<BigInt>)]
    set_id: Option<i64>,
    #[diesel(sql_type = BigInt)]
    chunks: i64,
    #[diesel(sql_type = Bool)]
    indexed: bool,
    #[diesel(sql_type = BigInt)]
    sight: i64,
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = BigInt)]
    entries: i64,
}

impl Reading for Rank {
    type Outcome = Option<Ranking>;

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.inner.indexed))
    }

    fn empty(&self) -> Self::Outcome {
        Some(Ranking::default())
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        begin(conn, self.inner.statement_timeout).await?;
        let mut ranking = Ranking::default();
        let by_meaning = match &self.search.semantic {
            None => {
                ranking.revision = revision(conn, owner).await?.unwrap_or(0);
                None
            }
            Some(semantic) => {
                let (state, expected) = self.state(conn, owner, semantic).await?;
                ranking.revision = state.revision;
                let State {
                    set_id: Some(id),
                    chunks,
                    indexed,
                    sight,
                    revision: _,
                    entries,
                } = state
                else {
                    commit(conn).await?;
                    return Ok(Some((state.revision, None)));
                };
                let dimensions = semantic.model.dimensions;
                Some((
                    semantic,
                    expected,
                    SetState {
                        id,
                        dimensions,
                        chunks,
                        entries,
                        indexed,
                        sight: u32::try_from(sight).unwrap_or(0),
                    },
                ))
            }
        };
        // By words first: the other search changes settings of the transaction.
        if let Some(words) = &self.search.fts {
            self.by_words(conn, owner, words, &mut ranking).await?;
        }
        if let Some((semantic, expected, set)) = by_meaning {
            let search = Search {
                owner,
                set,
                vector: &semantic.vector,
                filter: &self.filter,
                indexed: &self.inner.indexed,
                expected,
                depth: self.search.depth,
                explain: self.search.explain,
            };
            let found = search.run(conn).await?;
            ranking.semantic = found.hits;
            ranking.plan.splice(0..0, found.notes);
            if found.by_sight && self.inner.vectors.asked.note(set.id, &semantic.vector) {
                Arc::clone(&self.inner).learn(set);
            }
        }
        commit(conn).await?;
        Ok(Some((ranking.revision, Some(ranking))))
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    matches: i64,
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Double)]
    score: f64,
}

impl Rank {
    /// What a search must know of the owner and of the vectors, and how many entries the planner expects to satisfy the
    /// filter.
    async fn state(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        semantic: &SemanticSearch,
    ) -> Result<(State, Option<f64>), Failure> {
        let select = "SELECT s.set_id, coalesce((SELECT c.reltuples FROM pg_catalog.pg_class AS c WHERE c.oid = \
                      to_regclass('context.chunks')), 0)::bigint AS chunks, coalesce((SELECT i.indisvalid FROM pg_catalog.pg_index AS i \
                      WHERE i.indexrelid = to_regclass(? || s.set_id)), false) AS indexed, \
                      coalesce((SELECT split_part(t.value, ' ', 1)::bigint FROM context.settings AS t WHERE t.key = ? || s.set_id), ?) AS sight, \
                      coalesce((SELECT o.revision FROM context.owners AS o WHERE o.owner_id = ?), 0) AS revision, \
                      coalesce((SELECT o.entry_count FROM context.owners AS o WHERE o.owner_id = ?), 0) AS entries \
                      FROM (SELECT (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ? AND state <> 'building') \
                      AS set_id) AS s";
        let name = || Bind::text(owner.as_str());
        let model = &semantic.model;
        let binds = vec![
            Bind::text(index::PREFIX),
            Bind::text(sight::KEY),
            Bind::Int(sight::FIRST),
            name(),
            name(),
            Bind::text(&model.identity),
            Bind::Int(i64::from(model.dimensions)),
        ];
        let state = Fragment::prepared(select, binds);
        let estimates = &self.inner.vectors.estimates;
        let key = (self.filter.count() > 0).then(|| estimates.key(owner, &self.filter));
        let known = key.and_then(|key| estimates.of(key));
        let (rows, expected): (Vec<State>, _) = if key.is_none() || known.is_some() {
            (sql::query(conn, state).await?, known)
        } else {
            let mut matching =
                Fragment::new("SELECT entries.id FROM context.entries AS entries WHERE ");
            matching.append(filter::compile(
                &self.filter,
                owner.as_str(),
                &self.inner.indexed,
            ));
            let (rows, expected) = sql::query_and_expected_rows(conn, state, matching).await?;
            if let Some(key) = key {
                estimates.keep(key, expected);
            }
            (rows, Some(expected))
        };
        Ok((
            rows.into_iter()
                .next()
                .ok_or(diesel::result::Error::NotFound)?,
            expected,
        ))
    }

    async fn by_words(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        words: &FtsSearch,
        ranking: &mut Ranking,
    ) -> Result<(), Failure> {
        let page = Page {
            limit: self.search.depth,
            offset: 0,
        };
        let statement = |query| {
            let mut statement = ranked(
                words,
                query,
                &self.filter,
                owner.as_str(),
                page,
                &self.inner.indexed,
                &self.inner.language,
            );
            statement
                .push(" SELECT (SELECT count(*) FROM matched) AS matches, p.id, p.score FROM page AS p ORDER BY p.score DESC, p.id DESC");
            statement
        };
        let mut query = &words.query.query;
        let mut rows: Vec<Row> = sql::query(conn, statement(query)).await?;
        if let (true, Some(fallback)) = (rows.is_empty(), &words.query.fallback) {
            query = fallback;
            rows = sql::query(conn, statement(query)).await?;
        }
        if self.search.explain {
            ranking
                .plan
                .extend(sql::explain(conn, &statement(query)).await?);
        }
        let cap = words.ranking_cap;
        ranking.capped_at = rows
            .first()
            .filter(|row| row.matches > i64::from(cap))
            .map(|_| cap);
        ranking.fts = rows
            .into_iter()
            .map(|row| RankedByWords {
                id: row.id,
                score: row.score,
            })
            .collect();
        Ok(())
    }
}
