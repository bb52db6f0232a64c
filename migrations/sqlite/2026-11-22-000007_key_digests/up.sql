-- API keys are verified by a digest. The audit log records what happens to them.

PRAGMA user_version = 7;

-- SHA-256 of the whole key in hexadecimal. A key has 192 random bits, so a fast hash is as safe as bcrypt. NULL: an
-- older version of the service created the key, and it has not been used since.
ALTER TABLE api_keys ADD COLUMN digest TEXT;

-- Actions on keys.
CREATE TABLE key_events (
    owner     INTEGER NOT NULL,
    event_id  TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    -- The key that was used, or the name of the token's holder. NULL: the operator, or a caller without authentication.
    actor     TEXT,
    operation TEXT    NOT NULL,
    key_id    TEXT    NOT NULL,
    PRIMARY KEY (owner, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_events_by_time ON key_events (owner, at);
