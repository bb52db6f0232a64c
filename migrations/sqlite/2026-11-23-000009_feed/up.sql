-- The feed of changes.

PRAGMA user_version = 9;

-- The entry's source, which stays here when the entry is deleted. NULL for artifacts and for older changes.
ALTER TABLE changes ADD COLUMN source TEXT;
-- Whether it is the last change of its commit. Unknown for older changes.
ALTER TABLE changes ADD COLUMN commit_end INTEGER NOT NULL DEFAULT 1;

-- Names an owner's feed. An owner that is erased and created again gets another name.
ALTER TABLE owners ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
UPDATE owners SET incarnation = lower(hex(randomblob(16)));
