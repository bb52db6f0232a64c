-- Words of the entries before an entry in its thread, for hybrid search alone. A lexeme of `words` with the weight C is
-- what an entry contributes to those after it; no search tells weights apart.

ALTER TABLE context.entries ADD COLUMN context tsvector NOT NULL DEFAULT '';

CREATE INDEX entries_by_context ON context.entries USING gin ((ARRAY[owner_id]), context);
