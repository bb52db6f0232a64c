-- Vectors of the tokens of entries' chunks, for reranking.

PRAGMA user_version = 6;

-- A row for each chunk with token vectors. They take kilobytes, so they have a table that only reranking reads. The
-- table has row ids: without row ids the vectors would be stored inside the tree of the key and make it deep.
CREATE TABLE chunk_tokens (
    owner    INTEGER NOT NULL,
    row_id   INTEGER NOT NULL,
    set_id   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    -- In the engine's form: services/providers/src/token_codes.rs.
    tokens   BLOB    NOT NULL,
    PRIMARY KEY (owner, row_id, set_id, position)
) STRICT;
