-- Artifacts: one small row each for lists, one row for every version, and the current texts folded for search.

CREATE TABLE context.artifacts (
    owner_id    text COLLATE "C" NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    created_at  bigint NOT NULL,
    -- The current version, whose row holds the rest.
    version     bigint NOT NULL,
    PRIMARY KEY (owner_id, artifact_id)
);

CREATE INDEX artifacts_by_time ON context.artifacts (owner_id, created_at, artifact_id);

CREATE TABLE context.artifact_versions (
    owner_id    text COLLATE "C" NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    at          bigint NOT NULL,
    -- Whether a caller gave the title. Otherwise it is generated from the content.
    title_given boolean NOT NULL,
    -- The fields that differ from the previous version.
    changes     text[] NOT NULL,
    title       text NOT NULL,
    metadata    json NOT NULL,
    content     text NOT NULL,
    PRIMARY KEY (owner_id, artifact_id, version)
);

-- Title and content of the current version, lower-cased by the service so that search ignores case alike everywhere.
CREATE TABLE context.artifact_texts (
    owner_id    text COLLATE "C" NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    title       text NOT NULL,
    content     text NOT NULL,
    PRIMARY KEY (owner_id, artifact_id)
);
