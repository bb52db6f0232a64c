-- Run at a start that finds pgvector and no such table.

CREATE TABLE context.chunks (
    owner_id   text COLLATE "C" NOT NULL,
    id         bigint NOT NULL,
    set_id     bigint NOT NULL,
    position   bigint NOT NULL,
    -- Characters of the text.
    start_char bigint NOT NULL,
    end_char   bigint NOT NULL,
    -- Of length 1, in the dimensions of its set. The index of a set is over halfvec, which is half as large and as good.
    embedding  vector NOT NULL,
    PRIMARY KEY (owner_id, id, set_id, position)
);

-- Entries with vectors are counted in it.
CREATE INDEX chunks_by_set ON context.chunks (owner_id, set_id) WHERE position = 0;
