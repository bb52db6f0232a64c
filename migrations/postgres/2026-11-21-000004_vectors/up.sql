-- Vectors of entries' texts. The vectors themselves need pgvector, so chunks.sql makes their table, now or when the
-- service later finds the extension.

-- A set holds the vectors of one model. The table chunks says which of them belong to an owner.
CREATE TABLE context.embedding_sets (
    set_id     bigint NOT NULL PRIMARY KEY,
    model      text COLLATE "C" NOT NULL,
    dimensions bigint NOT NULL,
    -- current: services embed with this model and search this set. building: it will replace the current one. retired:
    -- it was replaced, and services may still embed with its model. discarded: it will be deleted.
    state      text COLLATE "C" NOT NULL,
    -- When the set entered this state, by the server's clock.
    since      bigint NOT NULL,
    UNIQUE (model, dimensions)
);

-- Which service embeds an entry that waits for its vectors, so that two do not do the same work.
CREATE TABLE context.embedding_claims (
    owner_id text COLLATE "C" NOT NULL,
    id       bigint NOT NULL,
    set_id   bigint NOT NULL,
    version  bigint NOT NULL,
    -- The unique name that each service chooses at its start.
    holder   text COLLATE "C" NOT NULL,
    -- By the server's clock. Afterwards any service may claim the entry.
    until    bigint NOT NULL,
    PRIMARY KEY (owner_id, id, set_id)
);
