-- Every key and index of an owner's rows begins with the owner, as an integer instead of the owner's name
-- (owners.owner_id), or with row_id, which contains it.
-- row_id = owner << 40 | id. It also addresses the row in the owner's full-text table and never leaves the store.
-- Times are microseconds since 1970-01-01T00:00:00Z.

PRAGMA user_version = 1;

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    owner            INTEGER NOT NULL PRIMARY KEY,
    owner_id         TEXT    NOT NULL UNIQUE,
    revision         INTEGER NOT NULL,
    next_id          INTEGER NOT NULL,
    entry_count      INTEGER NOT NULL,
    user_count       INTEGER NOT NULL,
    agent_count      INTEGER NOT NULL,
    multimodal_count INTEGER NOT NULL,
    image_count      INTEGER NOT NULL,
    thread_count     INTEGER NOT NULL,
    tag_count        INTEGER NOT NULL
) STRICT;

CREATE TABLE threads (
    owner            INTEGER NOT NULL,
    thread_id        TEXT    NOT NULL,
    entry_count      INTEGER NOT NULL,
    user_count       INTEGER NOT NULL,
    agent_count      INTEGER NOT NULL,
    multimodal_count INTEGER NOT NULL,
    first_entry      INTEGER NOT NULL,
    last_entry       INTEGER NOT NULL,
    last_id          INTEGER NOT NULL,
    -- The newest entry's source and the start of its text's SHA-256. Only if a new entry has the same ones, the newest
    -- entry is read, because the new one may be a retransmit.
    last_source      TEXT    NOT NULL,
    last_hash        INTEGER NOT NULL,
    PRIMARY KEY (owner, thread_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX threads_by_activity ON threads (owner, last_entry DESC, last_id DESC);

CREATE TABLE entries (
    row_id          INTEGER NOT NULL PRIMARY KEY,
    owner           INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    thread_id       TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    image_count     INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    tags            TEXT    NOT NULL,
    summary         TEXT    NOT NULL,
    metadata        TEXT    NOT NULL,
    -- The same object with its strings lower-cased, for comparisons that ignore case and for the indexes on fields.
    metadata_folded TEXT    NOT NULL,
    text            TEXT    NOT NULL
) STRICT;

CREATE INDEX entries_by_time ON entries (owner, created_at, row_id);
CREATE INDEX entries_by_thread ON entries (owner, thread_id, created_at, row_id);
-- Few entries have images: a search for them must not read the others.
CREATE INDEX entries_with_images ON entries (owner, created_at, row_id) WHERE image_count > 0;

CREATE TABLE entry_tags (
    owner  INTEGER NOT NULL,
    tag    TEXT    NOT NULL,
    row_id INTEGER NOT NULL,
    PRIMARY KEY (owner, tag, row_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE tag_counts (
    owner   INTEGER NOT NULL,
    tag     TEXT    NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (owner, tag)
) STRICT, WITHOUT ROWID;

CREATE TABLE images (
    owner     INTEGER NOT NULL,
    row_id    INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    mime_type TEXT    NOT NULL,
    metadata  TEXT,
    data      BLOB    NOT NULL,
    PRIMARY KEY (owner, row_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE changes (
    owner     INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    operation TEXT    NOT NULL,
    entity    TEXT    NOT NULL,
    entity_id TEXT    NOT NULL,
    thread_id TEXT,
    version   INTEGER,
    key_id    TEXT,
    PRIMARY KEY (owner, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    owner        INTEGER NOT NULL,
    key          TEXT    NOT NULL,
    request_hash BLOB    NOT NULL,
    outcome      TEXT    NOT NULL,
    revision     INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_age ON idempotency (owner, at);
