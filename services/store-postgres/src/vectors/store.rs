//! The vectors of [`PostgresStore`].

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{Error, Filter, Reason, ThreadSet, Timestamp};
use context_store::{
    ChunkPlace, ChunkTokens, EmbeddingModel, LateEmbedding, ModelUse, MoveState, Moved, Once,
    OwnerId, Place, RankSearch, Ranking, Read, Result, StoreError, UnembeddedPage, VectorStore,
    WriteOptions,
};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;

use super::index::{self, Kept};
use super::moving::{Begin, Finish, Sweep};
use super::pending::{Add, Claim, of_place};
use super::rank::Rank;
use super::search::SetState;
use super::tokens::Tokens;
use super::use_model::UseModel;
use super::{sight, use_model};
use crate::filter::within;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::Reading;
use crate::store::{Inner, PostgresStore};
use crate::transaction::Writing;

impl PostgresStore {
    /// Makes the index of the set in this state, where it is due, and finds how far searches must look.
    async fn look_after(&self, state: &'static str) -> Result<()> {
        let mut lease = self.inner.pool.get(None).await?;
        let conn = lease.conn();
        let kept = async {
            let Some((set_id, model)) = use_model::of_state(conn, state).await? else {
                return Ok(Kept::None);
            };
            let kept = index::keep(conn, set_id, model.dimensions).await?;
            if let Kept::There(Some(vectors)) | Kept::Made(Some(vectors)) = kept {
                sight::keep(
                    conn,
                    set_id,
                    model.dimensions,
                    vectors,
                    &self.inner.vectors.asked,
                )
                .await?;
            }
            Ok::<Kept, Failure>(kept)
        };
        match kept.await {
            Ok(Kept::None | Kept::There(_)) => lease.give_back(),
            // Making an index changed settings of the session.
            Ok(Kept::Made(_)) => lease.discard(),
            Err(failure) => {
                lease.discard();
                return Err(failure.into());
            }
        }
        Ok(())
    }

    /// Work that changes neither entries nor revisions.
    async fn aside<W: Writing>(&self, owner: &OwnerId, work: W) -> Result<W::Outcome> {
        let options = WriteOptions {
            now: Timestamp(0),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        Ok(self.write(owner, options, work).await?.outcome)
    }
}

impl Inner {
    /// Finds in the background how far searches of a set must look, by what was asked last.
    pub(super) fn learn(self: Arc<Self>, set: SetState) {
        let learning = async move {
            let mut lease = self.pool.get(None).await?;
            match sight::learn(lease.conn(), set.id, set.dimensions, &self.vectors.asked).await {
                Ok(()) => lease.give_back(),
                Err(error) => {
                    lease.discard();
                    return Err(Failure::from(error));
                }
            }
            Ok(())
        };
        tokio::spawn(async move {
            if let Err(failure) = learning.await {
                let error = StoreError::from(failure);
                tracing::warn!(error = %error, "It was not found how far the index of the vectors must look for what is asked");
            }
        });
    }
}

#[async_trait]
impl VectorStore for PostgresStore {
    async fn use_model(&self, model: &EmbeddingModel) -> Result<ModelUse> {
        let Once(outcome) = self
            .aside(&OwnerId::default(), UseModel(model.clone()))
            .await?;
        if !matches!(outcome, ModelUse::Impossible(_)) {
            self.inner.vectors.found();
        }
        Ok(outcome)
    }

    async fn embedded_entries(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        threads: Option<ThreadSet>,
    ) -> Result<i64> {
        match threads {
            Some(threads) => {
                let within = CountWithin(model.clone(), threads);
                self.read(owner, Read::default(), within).await
            }
            None => {
                self.read(owner, Read::default(), Count(model.clone()))
                    .await
            }
        }
    }

    async fn unembedded(
        &self,
        model: &EmbeddingModel,
        after: Option<&Place>,
        limit: u32,
    ) -> Result<UnembeddedPage> {
        let claim = Claim {
            model: model.clone(),
            after: of_place(after),
            limit,
            holder: self.inner.vectors.holder.clone(),
        };
        let Once(page) = self.aside(&OwnerId::default(), claim).await?;
        Ok(page)
    }

    async fn add_embeddings(&self, owner: &OwnerId, embeddings: Vec<LateEmbedding>) -> Result<u64> {
        self.aside(owner, Add(embeddings)).await
    }

    async fn tokens(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        chunks: Vec<ChunkPlace>,
    ) -> Result<Vec<ChunkTokens>> {
        if !self.inner.vectors.are_there() {
            return Ok(Vec::new());
        }
        self.read(
            owner,
            Read::default(),
            Tokens {
                model: model.clone(),
                chunks,
            },
        )
        .await
    }

    async fn begin_move(&self, model: &EmbeddingModel) -> Result<MoveState> {
        let Once(state) = self
            .aside(&OwnerId::default(), Begin(model.clone()))
            .await?;
        if !matches!(state, MoveState::Impossible(_)) {
            self.inner.vectors.found();
        }
        Ok(state)
    }

    async fn finish_move(&self, model: &EmbeddingModel, waiting: u64) -> Result<Moved> {
        // The index first, so that no search has to do without.
        self.look_after("building").await?;
        let Once(moved) = self
            .aside(
                &OwnerId::default(),
                Finish {
                    model: model.clone(),
                    at_most: waiting,
                },
            )
            .await?;
        Ok(moved)
    }

    async fn rank(
        &self,
        owner: &OwnerId,
        search: RankSearch,
        filter: Filter,
        read: Read,
    ) -> Result<Ranking> {
        if search.semantic.is_some() && !self.inner.vectors.are_there() {
            return Err(no_such_vectors());
        }
        let rank = Rank {
            search,
            filter,
            inner: Arc::clone(&self.inner),
        };
        self.read(owner, read, rank)
            .await?
            .ok_or_else(no_such_vectors)
    }

    async fn maintain(&self) -> Result<()> {
        self.look_after("current").await?;
        while self.aside(&OwnerId::default(), Sweep).await?.0 {}
        Ok(())
    }
}

fn no_such_vectors() -> StoreError {
    Error::new(
        Reason::FeatureUnavailable,
        "the database holds no vectors of this embedding model",
    )
    .into()
}

#[derive(QueryableByName)]
struct Counted {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Counts the owner's entries in some threads that have vectors.
struct CountWithin(EmbeddingModel, ThreadSet);

impl Reading for CountWithin {
    type Outcome = i64;

    fn empty(&self) -> i64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> std::result::Result<Option<(i64, i64)>, Failure> {
        let Self(model, threads) = self;
        let mut count =
            Fragment::new("SELECT count(*) AS count FROM context.entries AS e WHERE e.owner_id = ");
        count
            .bind(Bind::text(owner.as_str()))
            .push(" AND ")
            .append(within("e.thread_id", threads));
        count.push(
            " AND EXISTS (SELECT 1 FROM context.chunks AS c WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.position = 0 \
             AND c.set_id = (SELECT set_id FROM context.embedding_sets WHERE model = ",
        );
        count
            .bind(Bind::text(&model.identity))
            .push(" AND dimensions = ")
            .bind(Bind::Int(i64::from(model.dimensions)))
            .push("))");
        let rows: Vec<Counted> = sql::query(conn, count).await?;
        Ok(Some((0, rows.first().map_or(0, |row| row.count))))
    }
}

/// Counts the owner's entries that have vectors.
struct Count(EmbeddingModel);

impl Reading for Count {
    type Outcome = i64;

    fn empty(&self) -> i64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> std::result::Result<Option<(i64, i64)>, Failure> {
        let Self(model) = self;
        let count = "SELECT count(*) AS count FROM context.chunks WHERE owner_id = ? AND position = 0 AND set_id = \
                     (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ?)";
        let binds = vec![
            Bind::text(owner.as_str()),
            Bind::text(&model.identity),
            Bind::Int(i64::from(model.dimensions)),
        ];
        let rows: Vec<Counted> = sql::query(conn, Fragment::prepared(count, binds)).await?;
        Ok(Some((0, rows.first().map_or(0, |row| row.count))))
    }
}
