-- Artifacts in ranked searches.

-- The part of an artifact's current version that searches read. Its vectors are found by id, like those of an entry.
-- When the service opens the database, it adds the rows of artifacts that are older than this table.
CREATE TABLE context.artifact_documents (
    owner_id        text COLLATE "C" NOT NULL,
    -- Negative, so that it differs from the id of every entry: ArtifactId::document.
    id              bigint NOT NULL,
    artifact_id     text COLLATE "C" NOT NULL,
    -- The version that is indexed.
    version         bigint NOT NULL,
    created_at      bigint NOT NULL,
    metadata_folded jsonb NOT NULL,
    -- The words of the title and the content.
    words           tsvector NOT NULL,
    PRIMARY KEY (owner_id, id)
);

CREATE UNIQUE INDEX artifact_documents_by_artifact ON context.artifact_documents (owner_id, artifact_id);
CREATE INDEX artifact_documents_by_content ON context.artifact_documents
    USING gin ((ARRAY[owner_id]), words, metadata_folded jsonb_path_ops);
