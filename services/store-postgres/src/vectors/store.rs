//! The [`VectorStore`] methods of [`PostgresStore`]. They run the reads and writes of this directory.

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{Error, Filter, Reason, ThreadSet, Timestamp};
use context_store::{
    ChunkKey, ChunkTokens, EmbeddingModel, LateEmbedding, ModelUse, MoveState, Moved, Once,
    OwnerId, RankSearch, Ranking, Read, Result, ScanCursor, StoreError, UnembeddedPage,
    VectorStore, WriteOptions,
};

use super::count::CountEmbedded;
use super::index::{self, Session};
use super::moving::{Begin, Finish};
use super::pending::{Add, Claim, CountWaiting, from_cursor};
use super::rank::{Rank, Ranked};
use super::sets::{self, SetState};
use super::sweep::Sweep;
use super::tokens::ReadTokens;
use super::use_model::UseModel;
use crate::pg::failure::Failure;
use crate::store::PostgresStore;
use crate::transaction::Writing;

#[async_trait]
impl VectorStore for PostgresStore {
    async fn use_model(&self, model: &EmbeddingModel) -> Result<ModelUse> {
        let Once(outcome) = self
            .write_unlogged(&OwnerId::default(), UseModel(model.clone()))
            .await?;
        if !matches!(outcome, ModelUse::Impossible(_)) {
            self.inner.vectors.set_has_tables();
        }
        Ok(outcome)
    }

    async fn embedded_entries(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        threads: Option<ThreadSet>,
    ) -> Result<i64> {
        if !self.inner.vectors.has_tables() {
            return Ok(0);
        }
        let count = CountEmbedded {
            model: model.clone(),
            threads,
            statement_timeout: self.inner.statement_timeout,
        };
        self.read(owner, Read::default(), count).await
    }

    async fn unembedded_entries(&self, model: &EmbeddingModel) -> Result<i64> {
        if !self.inner.vectors.has_tables() {
            return Ok(0);
        }
        let count = CountWaiting {
            model: model.clone(),
            statement_timeout: self.inner.statement_timeout,
        };
        self.read(&OwnerId::default(), Read::default(), count).await
    }

    async fn unembedded(
        &self,
        model: &EmbeddingModel,
        after: Option<&ScanCursor>,
        limit: u32,
    ) -> Result<UnembeddedPage> {
        let claim = Claim {
            model: model.clone(),
            after: from_cursor(after),
            limit,
            holder: self.inner.vectors.holder.clone(),
        };
        let Once(page) = self.write_unlogged(&OwnerId::default(), claim).await?;
        Ok(page)
    }

    async fn add_embeddings(&self, owner: &OwnerId, embeddings: Vec<LateEmbedding>) -> Result<u64> {
        let Once(added) = self.write_unlogged(owner, Add(embeddings)).await?;
        Ok(added)
    }

    async fn tokens(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        chunks: Vec<ChunkKey>,
    ) -> Result<Vec<ChunkTokens>> {
        if !self.inner.vectors.has_tables() {
            return Ok(Vec::new());
        }
        let read = ReadTokens {
            model: model.clone(),
            chunks,
            statement_timeout: self.inner.statement_timeout,
        };
        self.read(owner, Read::default(), read).await
    }

    async fn begin_move(&self, model: &EmbeddingModel) -> Result<MoveState> {
        let Once(state) = self
            .write_unlogged(&OwnerId::default(), Begin(model.clone()))
            .await?;
        if !matches!(state, MoveState::Impossible(_)) {
            self.inner.vectors.set_has_tables();
        }
        Ok(state)
    }

    async fn finish_move(&self, model: &EmbeddingModel, may_be_missing: u64) -> Result<Moved> {
        // Searches compare all vectors of a current set without an index, so the index is usually built before the set
        // becomes current. If another index is being built, `maintain` builds this one later.
        self.build_index(SetState::Building).await?;
        let Once(moved) = self
            .write_unlogged(
                &OwnerId::default(),
                Finish {
                    model: model.clone(),
                    may_be_missing,
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
        if search.semantic.is_some() && !self.inner.vectors.has_tables() {
            return Err(no_such_vectors());
        }
        let rank = Rank {
            search,
            filter,
            inner: Arc::clone(&self.inner),
        };
        match self.read(owner, read, rank).await? {
            Ranked::Ranking(ranking) => Ok(ranking),
            Ranked::NoSuchSet => Err(no_such_vectors()),
        }
    }

    async fn maintain(&self) -> Result<()> {
        // Old sets are deleted even if the build fails: it may need the disk space that they take.
        let built = self.build_index(SetState::Current).await;
        while self.write_unlogged(&OwnerId::default(), Sweep).await?.0 {}
        built
    }
}

impl PostgresStore {
    /// Builds the HNSW index of the set in this state, if it is large enough and has none.
    async fn build_index(&self, state: SetState) -> Result<()> {
        let mut lease = self.inner.pool.get(None).await?;
        let conn = lease.conn();
        let built = async {
            match sets::find(conn, state).await? {
                Some((set_id, model)) => {
                    Ok(index::build_if_due(conn, set_id, model.dimensions).await?)
                }
                None => Ok::<Session, Failure>(Session::Unchanged),
            }
        };
        let built = built.await;
        self.inner.pool.observe(&built);
        match built {
            Ok(Session::Unchanged) => {
                lease.give_back();
                Ok(())
            }
            Ok(Session::Changed) => {
                lease.discard();
                Ok(())
            }
            Err(failure) => {
                failure.note_damage(&self.inner.soundness);
                lease.discard();
                Err(failure.into())
            }
        }
    }

    /// Runs a write that adds nothing to the change feed. It uses the database's time, so `now` is not set. A write
    /// that belongs to no owner is run for the default owner.
    async fn write_unlogged<W: Writing>(&self, owner: &OwnerId, work: W) -> Result<W::Outcome> {
        let options = WriteOptions {
            now: Timestamp(0),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        Ok(self.write(owner, options, work).await?.outcome)
    }
}

fn no_such_vectors() -> StoreError {
    Error::new(
        Reason::FeatureUnavailable,
        "the database has no vectors of this embedding model",
    )
    .into()
}
