-- Serves the count of summaries. Only entries with a summary are in it.

PRAGMA user_version = 5;

CREATE INDEX entries_with_summary ON entries (owner) WHERE summary <> '';
