-- Artifacts in ranked searches.

-- What a search reads of an artifact's current version. Its vectors are found by id, as those of an entry. The service
-- writes the rows of artifacts that are older than this table when it opens the database.
CREATE TABLE context.artifact_documents (
    owner_id        text COLLATE "C" NOT NULL,
    -- Negative, so that it is no entry's: ArtifactId::document.
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
