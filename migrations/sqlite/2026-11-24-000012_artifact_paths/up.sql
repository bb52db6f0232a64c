-- Artifacts may have a path, as files have.

PRAGMA user_version = 12;

ALTER TABLE artifacts ADD COLUMN path TEXT;

CREATE UNIQUE INDEX artifacts_by_path ON artifacts (owner, path) WHERE path IS NOT NULL;
