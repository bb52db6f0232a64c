-- Artifacts in ranked searches.

PRAGMA user_version = 11;

-- The part of an artifact's current version that searches read. Its words and vectors are found by row_id, like those
-- of an entry. When the service opens the database, it adds the rows of artifacts that are older than this table.
CREATE TABLE artifact_documents (
    -- -(owner << 40 | number): negative, so that it differs from the row_id of every entry.
    row_id          INTEGER NOT NULL PRIMARY KEY,
    owner           INTEGER NOT NULL,
    artifact_id     TEXT    NOT NULL,
    -- The version that is indexed.
    version         INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    metadata        TEXT    NOT NULL,
    -- The same object with its strings lower-cased.
    metadata_folded TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX artifact_documents_by_artifact ON artifact_documents (owner, artifact_id);
