-- Counts summaries; written when one is.

PRAGMA user_version = 5;

CREATE INDEX entries_with_summary ON entries (owner) WHERE summary <> '';
