-- The feed of changes.

-- The entry's source, which stays here when the entry is deleted. NULL for artifacts, and for changes by services from
-- before the feed.
ALTER TABLE context.changes ADD COLUMN source text;
-- Whether it is the last change of its commit. Unknown for changes by services from before the feed.
ALTER TABLE context.changes ADD COLUMN commit_end boolean NOT NULL DEFAULT true;

-- Names an owner's feed. An owner that is erased and created again gets another name. Existing owners get theirs from an
-- immutable expression, because Citus allows no volatile function in an UPDATE.
ALTER TABLE context.owners ADD COLUMN incarnation text NOT NULL DEFAULT '';
UPDATE context.owners SET incarnation = md5(owner_id || ' ' || revision);
ALTER TABLE context.owners ALTER COLUMN incarnation SET DEFAULT replace(gen_random_uuid()::text, '-', '');
