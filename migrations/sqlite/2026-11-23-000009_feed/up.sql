-- The feed of changes.

PRAGMA user_version = 9;

-- The entry's source. It is known here after the entry was deleted. NULL for artifacts and for older changes.
ALTER TABLE changes ADD COLUMN source TEXT;
-- Whether it is the last change of its commit. Older changes do not know.
ALTER TABLE changes ADD COLUMN commit_end INTEGER NOT NULL DEFAULT 1;

-- Names an owner's feed: another one when the owner is erased and created again.
ALTER TABLE owners ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
UPDATE owners SET incarnation = lower(hex(randomblob(16)));
