-- Counts summaries; written when one is.

CREATE INDEX entries_with_summary ON context.entries (owner_id) WHERE summary <> '';
