-- Checksums of content: services/store/src/seal.rs. NULL until a service seals the row in the background.

-- Of text and metadata, with the version they cover: a service from before checksums leaves them as they are.
ALTER TABLE context.entries ADD COLUMN seal bytea;
-- Rows of these two never change.
ALTER TABLE context.images ADD COLUMN seal bytea;
ALTER TABLE context.artifact_versions ADD COLUMN seal bytea;
