-- Changes that are no longer in the feed. The audit log keeps them.

PRAGMA user_version = 10;

CREATE TABLE audited_changes (
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
