-- Words of the entries before an entry in its thread, for hybrid search alone. The lexemes of `words` that an entry
-- contributes to the entries after it have the weight C. No search distinguishes weights.

ALTER TABLE context.entries ADD COLUMN context tsvector NOT NULL DEFAULT '';

CREATE INDEX entries_by_context ON context.entries USING gin ((ARRAY[owner_id]), context);
