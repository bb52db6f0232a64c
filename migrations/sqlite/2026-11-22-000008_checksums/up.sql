-- Checksums of content: services/store/src/seal.rs. NULL until a service seals the row in the background.

PRAGMA user_version = 8;

-- Checksums of text and metadata, with the version that they cover.
ALTER TABLE entries ADD COLUMN seal BLOB;
-- The content of rows of these two tables never changes.
ALTER TABLE images ADD COLUMN seal BLOB;
ALTER TABLE artifact_versions ADD COLUMN seal BLOB;

-- A database without content has nothing to seal.
INSERT INTO meta (key, value)
SELECT 'sealed', 'all' WHERE NOT EXISTS (SELECT 1 FROM entries) AND NOT EXISTS (SELECT 1 FROM artifact_versions);
