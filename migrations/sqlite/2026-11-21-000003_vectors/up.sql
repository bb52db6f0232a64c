-- Vectors of entries' texts, cut into chunks. A set holds the vectors of one model; searches use the current one.
-- chunk_id grows and is never used twice while the service runs.

PRAGMA user_version = 3;

CREATE TABLE embedding_sets (
    set_id     INTEGER NOT NULL PRIMARY KEY,
    model      TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    -- 0: it is being filled. 1: searches use it. 2: it is being deleted.
    current    INTEGER NOT NULL
) STRICT;

-- Small rows: a start can fill the index with one bit per dimension from them, without the vectors.
CREATE TABLE chunks (
    chunk_id   INTEGER NOT NULL PRIMARY KEY,
    owner      INTEGER NOT NULL,
    row_id     INTEGER NOT NULL,
    set_id     INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    -- Characters of the text.
    start_char INTEGER NOT NULL,
    end_char   INTEGER NOT NULL,
    -- The vector's sign bits.
    code       BLOB    NOT NULL
) STRICT;

CREATE INDEX chunks_by_entry ON chunks (row_id, set_id, position);

CREATE TABLE vectors (
    chunk_id INTEGER NOT NULL PRIMARY KEY,
    -- 32-bit floats, little-endian, of length 1.
    vector   BLOB    NOT NULL
) STRICT;
