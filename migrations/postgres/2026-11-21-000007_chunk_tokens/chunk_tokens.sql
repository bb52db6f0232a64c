-- Run at a start that finds chunks and no such table.

CREATE TABLE context.chunk_tokens (
    owner_id text COLLATE "C" NOT NULL,
    id       bigint NOT NULL,
    set_id   bigint NOT NULL,
    position bigint NOT NULL,
    -- In the engine's form: services/providers/src/token_codes.rs. Compressing it would gain nothing.
    tokens   bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (owner_id, id, set_id, position),
    -- Chunks take them along, also when a service of the version before deletes them, which knows nothing of this table.
    FOREIGN KEY (owner_id, id, set_id, position) REFERENCES context.chunks (owner_id, id, set_id, position) ON DELETE CASCADE
);
