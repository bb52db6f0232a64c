-- Artifacts: one small row each for lists, one row for every version, and the current texts folded for search.

PRAGMA user_version = 2;

CREATE TABLE artifacts (
    owner       INTEGER NOT NULL,
    artifact_id TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- The current version, whose row holds the rest.
    version     INTEGER NOT NULL,
    PRIMARY KEY (owner, artifact_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX artifacts_by_time ON artifacts (owner, created_at, artifact_id);

-- With row ids: these rows are large, and a table without row ids would be slow to scan.
CREATE TABLE artifact_versions (
    owner       INTEGER NOT NULL,
    artifact_id TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    -- Whether a caller gave the title. Otherwise it is generated from the content.
    title_given INTEGER NOT NULL,
    -- The fields that differ from the previous version, as a JSON list.
    changes     TEXT    NOT NULL,
    title       TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    content     TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX artifact_versions_by_number ON artifact_versions (owner, artifact_id, version);

-- Title and content of the current version, lower-cased by the service so that search ignores case alike everywhere.
CREATE TABLE artifact_texts (
    owner       INTEGER NOT NULL,
    artifact_id TEXT    NOT NULL,
    title       TEXT    NOT NULL,
    content     TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX artifact_texts_by_artifact ON artifact_texts (owner, artifact_id);
