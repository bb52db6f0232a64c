-- Checksums of content: services/store/src/seal.rs. NULL until a service seals the row in the background.

-- Checksums of text and metadata, with the version that they cover: a service from before checksums does not update
-- them.
ALTER TABLE context.entries ADD COLUMN seal bytea;
-- Rows of these two tables never change.
ALTER TABLE context.images ADD COLUMN seal bytea;
ALTER TABLE context.artifact_versions ADD COLUMN seal bytea;
