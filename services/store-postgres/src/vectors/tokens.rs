//! Token vectors of chunks, for reranking. `write` stores them. They are deleted with their chunk.

use std::time::Duration;

use context_store::{ChunkKey, ChunkTokens, EmbeddingModel, OwnerId};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::{Reading, begin_if_needed, commit};

/// Reads the stored token vectors of these chunks for a model.
pub(super) struct ReadTokens {
    pub model: EmbeddingModel,
    pub chunks: Vec<ChunkKey>,
    pub statement_timeout: Duration,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = Binary)]
    tokens: Vec<u8>,
}

impl Reading for ReadTokens {
    type Outcome = Vec<ChunkTokens>;

    fn empty(&self) -> Self::Outcome {
        Vec::new()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        let select = "SELECT t.id, t.position, t.tokens FROM unnest(?, ?) AS w(id, position) JOIN context.chunk_tokens AS t \
                      ON t.owner_id = ? AND t.id = w.id AND t.position = w.position \
                      WHERE t.owner_id = ? AND t.set_id = (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ?)";
        let binds = vec![
            Bind::ints(self.chunks.iter().map(|key| key.id)),
            Bind::ints(self.chunks.iter().map(|key| i64::from(key.position))),
            Bind::text(owner.as_str()),
            Bind::text(owner.as_str()),
            Bind::text(&self.model.identity),
            Bind::Int(i64::from(self.model.dimensions)),
        ];
        let begun = begin_if_needed(conn, false, self.statement_timeout).await?;
        let rows: Vec<Row> = sql::query(conn, Fragment::prepared(select, binds)).await?;
        if begun {
            commit(conn).await?;
        }
        // The revision is 0, because no call of this read requires one.
        Ok(Some((0, rows.into_iter().map(ChunkTokens::from).collect())))
    }
}

impl From<Row> for ChunkTokens {
    fn from(row: Row) -> Self {
        let Row {
            id,
            position,
            tokens,
        } = row;
        Self {
            key: ChunkKey {
                id,
                position: u32::try_from(position).unwrap_or(u32::MAX),
            },
            tokens,
        }
    }
}
