-- Artifacts may have a path, as files have.
ALTER TABLE context.artifacts ADD COLUMN path text COLLATE "C";

-- The index is on hashes, because a path of 1 024 characters can be too long for an index. 128 bits of hash do not
-- collide by chance.
CREATE UNIQUE INDEX artifacts_by_path ON context.artifacts
    (owner_id, hashtextextended(path, 0), hashtextextended(path, 1)) WHERE path IS NOT NULL;
