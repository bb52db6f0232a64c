-- Run when the service starts, selects a model or changes the model, and finds pgvector but not this table.

CREATE TABLE context.chunks (
    owner_id   text COLLATE "C" NOT NULL,
    id         bigint NOT NULL,
    set_id     bigint NOT NULL,
    position   bigint NOT NULL,
    -- Characters of the text.
    start_char bigint NOT NULL,
    end_char   bigint NOT NULL,
    -- Of length 1, in the dimensions of its set. The index of a set is over halfvec: half the size, the same quality.
    embedding  vector NOT NULL,
    PRIMARY KEY (owner_id, id, set_id, position)
);

-- Serves the count of entries with vectors.
CREATE INDEX chunks_by_set ON context.chunks (owner_id, set_id) WHERE position = 0;
