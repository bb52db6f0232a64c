-- API keys are verified by a digest. The audit log records what happens to them.

-- SHA-256 of the whole key in hexadecimal. A key has 192 random bits, so a fast hash is as safe as bcrypt. NULL: an
-- older version of the service created the key, and it has not been used since.
ALTER TABLE context.api_keys ADD COLUMN digest text;

-- Actions on keys. These rows stay when their key is deleted.
CREATE TABLE context.key_events (
    owner_id  text COLLATE "C" NOT NULL,
    event_id  text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    -- The id of the key, or the name of the token's holder. NULL: the operator, or a caller without authentication.
    actor     text,
    operation text NOT NULL,
    key_id    text NOT NULL,
    PRIMARY KEY (owner_id, event_id)
);

CREATE INDEX key_events_by_time ON context.key_events (owner_id, at);
