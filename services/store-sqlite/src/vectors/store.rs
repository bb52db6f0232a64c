//! The [`VectorStore`] methods of [`SqliteStore`].

use async_trait::async_trait;
use context_model::{Error, Filter, Reason, ThreadSet};
use context_store::{
    ChunkKey, ChunkRange, ChunkTokens, DocumentKind, EmbeddingModel, FtsHit, LateEmbedding,
    ModelUse, MoveState, Moved, OwnerId, Page, RankSearch, Ranking, Read, Result, ScanCursor,
    SemanticHit, SemanticSearch, UnembeddedPage, VectorStore, WriteOptions,
};
use diesel::sqlite::SqliteConnection;

use super::search::{Hit, Search};
use super::set::Set;
use super::{moving, pending, tokens, use_model};
use crate::artifacts::documents;
use crate::collection::Collection;
use crate::failure::store_error;
use crate::owners::{Owner, id_of_row};
use crate::store::SqliteStore;
use crate::{fts, weigh};

#[async_trait]
impl VectorStore for SqliteStore {
    async fn use_model(&self, model: &EmbeddingModel) -> Result<ModelUse> {
        let model = model.clone();
        self.write_without_owner(move |conn, open| use_model::use_model(conn, open, &model))
            .await
    }

    async fn embedded_entries(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        threads: Option<ThreadSet>,
    ) -> Result<i64> {
        let Some(set) = self.vectors.of(model) else {
            return Ok(0);
        };
        let Some(threads) = threads else {
            let of_owner = move |_: &mut SqliteConnection, owner: Option<&Owner>| {
                Ok(owner.map_or(0, |owner| set.entries(owner.owner)))
            };
            return self
                .read(&self.points, owner, Read::default(), of_owner)
                .await;
        };
        self.read(
            &self.searches,
            owner,
            Read::default(),
            move |conn, owner| match owner {
                Some(owner) => pending::embedded_within(conn, set.id, owner.owner, &threads),
                None => Ok(0),
            },
        )
        .await
    }

    async fn unembedded_entries(&self, model: &EmbeddingModel) -> Result<i64> {
        let Some(set) = self.vectors.of(model) else {
            return Ok(0);
        };
        let entries = self.points.read(None, pending::count_all).await?;
        Ok((entries - set.all_entries()).max(0))
    }

    async fn unembedded(
        &self,
        model: &EmbeddingModel,
        after: Option<&ScanCursor>,
        limit: u32,
    ) -> Result<UnembeddedPage> {
        let Some(set_id) = self.vectors.id_of(model) else {
            return Ok(UnembeddedPage {
                entries: Vec::new(),
                next: None,
            });
        };
        let after = after
            .and_then(|cursor| cursor.as_str().parse().ok())
            .unwrap_or(i64::MIN);
        self.searches
            .read(None, move |conn| pending::page(conn, set_id, after, limit))
            .await
    }

    async fn add_embeddings(&self, owner: &OwnerId, embeddings: Vec<LateEmbedding>) -> Result<u64> {
        let bytes = embeddings
            .iter()
            .map(|late| weigh::embedded(&late.embedded))
            .sum();
        let options = WriteOptions {
            now: context_model::Timestamp(0),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        let written = self
            .write_existing(owner, options, bytes, move |transaction| {
                pending::add(transaction, &embeddings)
            })
            .await?;
        Ok(written.outcome)
    }

    async fn tokens(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        chunks: Vec<ChunkKey>,
    ) -> Result<Vec<ChunkTokens>> {
        let Some(set) = self.vectors.of(model) else {
            return Ok(Vec::new());
        };
        self.read(
            &self.searches,
            owner,
            Read::default(),
            move |conn, owner| match owner {
                Some(owner) => tokens::read(conn, owner, set.id, &chunks).map_err(store_error),
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    async fn exact_distances(
        &self,
        owner: &OwnerId,
        search: SemanticSearch,
        entries: Vec<i64>,
        read: Read,
    ) -> Result<Vec<SemanticHit>> {
        let Some(set) = self.vectors.of(&search.model) else {
            return Ok(Vec::new());
        };
        let distances = move |conn: &mut SqliteConnection, owner: Option<&Owner>| {
            let Some(owner) = owner else {
                return Ok(Vec::new());
            };
            let rows = entries.iter().filter_map(|id| owner.row_id(*id));
            let (documents, entries): (Vec<i64>, Vec<i64>) = rows.partition(|row| *row < 0);
            let mut hits = Vec::with_capacity(documents.len() + entries.len());
            for (collection, rows) in [
                (Collection::entries(owner.owner), entries),
                (Collection::artifacts(owner.owner), documents),
            ] {
                let found = Search {
                    set: &set,
                    vector: &search.vector,
                    filter: &Filter::default(),
                    collection,
                    indexed: &[],
                    depth: rows.len(),
                    exact: rows.len(),
                    boundaries: &[],
                }
                .exact_distances(conn, rows)
                .map_err(store_error)?;
                hits.extend(found.hits.iter().map(semantic_hit));
            }
            hits.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(b.id.cmp(&a.id)));
            Ok(hits)
        };
        self.read(&self.searches, owner, read, distances).await
    }

    async fn begin_move(&self, model: &EmbeddingModel) -> Result<MoveState> {
        let model = model.clone();
        self.write_without_owner(move |conn, open| moving::begin(conn, open, &model))
            .await
    }

    async fn finish_move(&self, model: &EmbeddingModel, may_be_missing: u64) -> Result<Moved> {
        let model = model.clone();
        self.write_without_owner(move |conn, open| {
            moving::finish(conn, open, &model, may_be_missing)
        })
        .await
    }

    async fn maintain(&self) -> Result<()> {
        if !self.vectors.release_previous() {
            return Ok(());
        }
        let mut after = Some(0);
        while let Some(start) = after {
            after = self
                .write_without_owner(move |conn, _| moving::sweep(conn, start))
                .await?;
        }
        Ok(())
    }

    async fn rank(
        &self,
        owner: &OwnerId,
        search: RankSearch,
        filter: Filter,
        read: Read,
    ) -> Result<Ranking> {
        let set = match &search.semantic {
            None => None,
            Some(semantic) => match self.vectors.of(&semantic.model) {
                Some(set) => Some(set),
                None => {
                    return Err(Error::new(
                        Reason::FeatureUnavailable,
                        "the database has no vectors of this embedding model",
                    )
                    .into());
                }
            },
        };
        self.filtered(
            &self.searches,
            owner,
            read,
            filter,
            move |conn, owner, filter, indexed| match owner {
                Some(owner) => rank(conn, owner, &search, set.as_deref(), filter, indexed),
                None => Ok(Ranking::default()),
            },
        )
        .await
    }
}

fn semantic_hit(hit: &Hit) -> SemanticHit {
    let unsigned = |number: i64| u32::try_from(number).unwrap_or(0);
    SemanticHit {
        id: id_of_row(hit.row_id),
        distance: hit.distance,
        chunk: hit.chunk.map(|chunk| ChunkRange {
            position: unsigned(chunk.position),
            start: unsigned(chunk.start),
            end: unsigned(chunk.end),
        }),
    }
}

/// Ranks a collection with the full-text retriever, the semantic retriever or both.
fn rank(
    conn: &mut SqliteConnection,
    owner: &Owner,
    search: &RankSearch,
    set: Option<&Set>,
    filter: &Filter,
    indexed: &[context_model::MetadataPath],
) -> Result<Ranking> {
    let mut ranking = Ranking {
        revision: owner.revision,
        ..Ranking::default()
    };
    let collection = Collection {
        owner: owner.owner,
        kind: search.kind,
    };
    if search.kind == DocumentKind::Artifact
        && (!filter.admits_artifacts()
            || !documents::has_any(conn, owner.owner).map_err(store_error)?)
    {
        return Ok(ranking);
    }
    if let (Some(semantic), Some(set)) = (&search.semantic, set) {
        let depth = search.depth as usize;
        let semantic = Search {
            set,
            vector: &semantic.vector,
            filter,
            collection,
            indexed,
            depth,
            exact: search.exact as usize,
            boundaries: search.boundaries,
        };
        let found = semantic.run(conn).map_err(store_error)?;
        ranking.semantic = found.hits.iter().map(semantic_hit).collect();
        if search.explain {
            ranking.plan.extend(found.notes);
        }
    }
    if let Some(words) = &search.fts {
        let page = Page {
            limit: search.depth,
            offset: 0,
        };
        let found =
            fts::search(conn, words, filter, collection, page, indexed).map_err(store_error)?;
        ranking.fts = found
            .rows
            .iter()
            .map(|(row_id, score)| FtsHit {
                id: id_of_row(*row_id),
                score: *score,
            })
            .collect();
        ranking.used_fallback = found.used_fallback;
        ranking.capped_at = found.capped_at;
        if search.explain {
            ranking
                .plan
                .extend(found.statement.explain(conn).map_err(store_error)?);
        }
    }
    Ok(ranking)
}
