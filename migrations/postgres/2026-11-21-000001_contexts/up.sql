-- In the tables with owner_id, it is the first column of every key and index except api_keys_by_lookup, so that the
-- tables can be sharded by owner. For the same reason there are no triggers, no sequences and no generated columns, and
-- every statement that joins repeats owner_id.
-- Times are microseconds since 1970-01-01T00:00:00Z. Text is compared byte by byte (C), whatever the database's own
-- collation is.

CREATE TABLE context.settings (
    key   text COLLATE "C" NOT NULL PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE context.owner_ids (
    owner_id text COLLATE "C" NOT NULL PRIMARY KEY,
    -- The first id that no service has leased.
    next_id  bigint NOT NULL
) WITH (fillfactor = 50);

-- A write updates this table in one of its last statements, and holds the lock of the owner's row until the commit. So
-- the revisions of an owner are in the order of commits.
CREATE TABLE context.owners (
    owner_id         text COLLATE "C" NOT NULL PRIMARY KEY,
    revision         bigint NOT NULL,
    entry_count      bigint NOT NULL,
    user_count       bigint NOT NULL,
    agent_count      bigint NOT NULL,
    multimodal_count bigint NOT NULL,
    image_count      bigint NOT NULL,
    thread_count     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE context.threads (
    owner_id         text COLLATE "C" NOT NULL,
    thread_id        text COLLATE "C" NOT NULL,
    entry_count      bigint NOT NULL,
    user_count       bigint NOT NULL,
    agent_count      bigint NOT NULL,
    multimodal_count bigint NOT NULL,
    first_entry      bigint NOT NULL,
    last_entry       bigint NOT NULL,
    last_id          bigint NOT NULL,
    -- The newest entry's source and the start of its text's SHA-256: a retransmit is recognised without reading it.
    last_source      text COLLATE "C" NOT NULL,
    last_hash        bigint NOT NULL,
    PRIMARY KEY (owner_id, thread_id)
) WITH (fillfactor = 70);

CREATE INDEX threads_by_activity ON context.threads (owner_id, last_entry DESC, last_id DESC);

CREATE TABLE context.entries (
    owner_id        text COLLATE "C" NOT NULL,
    id              bigint NOT NULL,
    thread_id       text COLLATE "C" NOT NULL,
    source          text COLLATE "C" NOT NULL,
    image_count     bigint NOT NULL,
    version         bigint NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    tags            text[] COLLATE "C" NOT NULL,
    summary         text NOT NULL,
    -- As it was given: jsonb would lose the order of keys and turn 1e16 into an integer.
    metadata        json NOT NULL,
    -- The same object with its strings lower-cased and its large floats written out: conditions and their indexes use
    -- it.
    metadata_folded jsonb NOT NULL,
    words           tsvector NOT NULL,
    -- Whether the text has more words than a tsvector holds.
    words_cut       boolean NOT NULL,
    text            text NOT NULL,
    PRIMARY KEY (owner_id, id)
);

CREATE INDEX entries_by_time ON context.entries (owner_id, created_at, id);
CREATE INDEX entries_by_thread ON context.entries (owner_id, thread_id, created_at, id);
-- Few entries have images: a search for them must not read the others.
CREATE INDEX entries_with_images ON context.entries (owner_id, created_at, id) WHERE image_count > 0;
-- Its first key is the owner, so that a word of one owner is found without reading another owner's entries.
CREATE INDEX entries_by_content ON context.entries
    USING gin ((ARRAY[owner_id]), tags, words, metadata_folded jsonb_path_ops);

CREATE TABLE context.entry_tags (
    owner_id text COLLATE "C" NOT NULL,
    tag      text COLLATE "C" NOT NULL,
    id       bigint NOT NULL,
    PRIMARY KEY (owner_id, tag, id)
);

CREATE TABLE context.images (
    owner_id  text COLLATE "C" NOT NULL,
    id        bigint NOT NULL,
    position  bigint NOT NULL,
    mime_type text NOT NULL,
    metadata  json,
    data      bytea NOT NULL,
    PRIMARY KEY (owner_id, id, position)
);

-- Images are compressed already.
ALTER TABLE context.images ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE context.changes (
    owner_id  text COLLATE "C" NOT NULL,
    revision  bigint NOT NULL,
    at        bigint NOT NULL,
    operation text NOT NULL,
    entity    text NOT NULL,
    entity_id text NOT NULL,
    thread_id text,
    version   bigint,
    key_id    text,
    PRIMARY KEY (owner_id, revision)
);

CREATE TABLE context.idempotency (
    owner_id     text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    request_hash bytea NOT NULL,
    -- Empty until the write with this key commits.
    outcome      text NOT NULL,
    revision     bigint NOT NULL,
    at           bigint NOT NULL,
    PRIMARY KEY (owner_id, key)
);

CREATE INDEX idempotency_by_age ON context.idempotency (owner_id, at);
