-- Vectors of entries' texts. The vectors themselves need pgvector, so their table is made by chunks.sql, now or when a
-- later start finds the extension.

-- A set holds the vectors of one model. Which of them belong to an owner stands in chunks.
CREATE TABLE context.embedding_sets (
    set_id     bigint NOT NULL PRIMARY KEY,
    model      text COLLATE "C" NOT NULL,
    dimensions bigint NOT NULL,
    -- current: what services embed with and search; building: gathered to take its place; retired: what it took the place
    -- of, for services that still embed with that model; discarded: to be deleted.
    state      text COLLATE "C" NOT NULL,
    -- When it came to that, by the server's clock.
    since      bigint NOT NULL,
    UNIQUE (model, dimensions)
);

-- Which service embeds an entry that waits for its vectors, so that two do not do the same work.
CREATE TABLE context.embedding_claims (
    owner_id text COLLATE "C" NOT NULL,
    id       bigint NOT NULL,
    set_id   bigint NOT NULL,
    version  bigint NOT NULL,
    -- A number that each service draws at its start.
    holder   text COLLATE "C" NOT NULL,
    -- By the server's clock; then anybody may take it.
    until    bigint NOT NULL,
    PRIMARY KEY (owner_id, id, set_id)
);
