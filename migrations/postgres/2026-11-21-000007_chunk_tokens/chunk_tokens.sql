-- Run with chunks.sql, or later if only this table is missing.

CREATE TABLE context.chunk_tokens (
    owner_id text COLLATE "C" NOT NULL,
    id       bigint NOT NULL,
    set_id   bigint NOT NULL,
    position bigint NOT NULL,
    -- In the engine's form: services/providers/src/token_codes.rs. Compressing it would gain nothing.
    tokens   bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (owner_id, id, set_id, position),
    -- Deletes the vectors with their chunk, also when a service of the previous version deletes the chunk. That service
    -- does not know this table.
    FOREIGN KEY (owner_id, id, set_id, position) REFERENCES context.chunks (owner_id, id, set_id, position) ON DELETE CASCADE
);
