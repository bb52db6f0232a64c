-- API keys. The key itself is stored nowhere: `hash` is bcrypt, `lookup` finds the few candidates to verify.

PRAGMA user_version = 4;

CREATE TABLE api_keys (
    owner          INTEGER NOT NULL,
    key_id         TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    -- SHA-256 of the key's first 16 characters.
    lookup         BLOB    NOT NULL,
    hash           TEXT    NOT NULL,
    -- A JSON list.
    scopes         TEXT    NOT NULL,
    -- The restrictions of the key, as JSON. {} for none.
    narrowing      TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    last_used_at   INTEGER,
    deactivated_at INTEGER,
    PRIMARY KEY (owner, key_id)
) STRICT, WITHOUT ROWID;

-- Without the owner, which is not known until the key is verified.
CREATE INDEX api_keys_by_lookup ON api_keys (lookup);

-- Rejected requests of valid keys and tokens. Successful writes are in `changes`.
CREATE TABLE denials (
    owner     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    -- The key, or the name of the token's holder.
    key_id    TEXT    NOT NULL,
    operation TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    -- Number of rejections of the same kind since the previous row.
    attempts  INTEGER NOT NULL
) STRICT;

CREATE INDEX denials_by_time ON denials (owner, at);
