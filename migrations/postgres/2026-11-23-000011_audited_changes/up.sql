-- Changes that are no longer in the feed. The audit log keeps them.
CREATE TABLE context.audited_changes (
    owner_id  text   NOT NULL,
    revision  bigint NOT NULL,
    at        bigint NOT NULL,
    operation text   NOT NULL,
    entity    text   NOT NULL,
    entity_id text   NOT NULL,
    thread_id text,
    version   bigint,
    key_id    text,
    PRIMARY KEY (owner_id, revision)
);
