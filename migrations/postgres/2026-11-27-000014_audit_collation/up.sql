-- The same collation as in all other tables. Tables that are sharded by owner need it, and joins find rows by the key.
-- Only the index is built again.
ALTER TABLE context.audited_changes ALTER COLUMN owner_id TYPE text COLLATE "C";
