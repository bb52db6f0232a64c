-- Vectors of the tokens of entries' chunks, for reranking.

PRAGMA user_version = 6;

-- A row for each chunk that has them. They are kilobytes, so they have a table that only reranking reads, and it has row
-- ids: without them they would lie inside the key's tree and make it deep.
CREATE TABLE chunk_tokens (
    owner    INTEGER NOT NULL,
    row_id   INTEGER NOT NULL,
    set_id   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    -- In the engine's form: services/providers/src/token_codes.rs.
    tokens   BLOB    NOT NULL,
    PRIMARY KEY (owner, row_id, set_id, position)
) STRICT;
