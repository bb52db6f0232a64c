-- API keys. The key itself is stored nowhere: `hash` is bcrypt, `lookup` finds the few candidates to verify.

CREATE TABLE context.api_keys (
    owner_id       text COLLATE "C" NOT NULL,
    key_id         text COLLATE "C" NOT NULL,
    name           text NOT NULL,
    -- SHA-256 of the key's first 16 characters.
    lookup         bytea NOT NULL,
    hash           text NOT NULL,
    scopes         text[] NOT NULL,
    -- The restrictions of the key, as JSON. {} for none.
    narrowing      text NOT NULL,
    created_at     bigint NOT NULL,
    expires_at     bigint,
    last_used_at   bigint,
    deactivated_at bigint,
    PRIMARY KEY (owner_id, key_id)
);

-- The only index of an owner's rows without the owner, because the owner is not known until the key is verified.
CREATE INDEX api_keys_by_lookup ON context.api_keys (lookup);

-- Rejected requests of valid keys. Successful writes are in `changes`.
CREATE TABLE context.denials (
    owner_id  text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    key_id    text NOT NULL,
    operation text NOT NULL,
    reason    text NOT NULL,
    -- Number of rejections of the same kind since the previous row.
    attempts  bigint NOT NULL
);

CREATE INDEX denials_by_time ON context.denials (owner_id, at);
CREATE INDEX changes_by_time ON context.changes (owner_id, at);
