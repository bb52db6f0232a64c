-- What sharding by owner needs. The tables of an owner must have the same collation. Only the index is built again.
ALTER TABLE context.audited_changes ALTER COLUMN owner_id TYPE text COLLATE "C";

-- A shard is moved to another server by logical replication, which identifies a row by its key. This table has none.
ALTER TABLE context.denials REPLICA IDENTITY FULL;
