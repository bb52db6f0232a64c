-- Serves the count of summaries. Only entries with a summary are in it.

CREATE INDEX entries_with_summary ON context.entries (owner_id) WHERE summary <> '';
