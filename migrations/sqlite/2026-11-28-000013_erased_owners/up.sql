-- The next ids of erased owners. An owner that is created again continues with it, so that no id is used twice.

PRAGMA user_version = 13;

CREATE TABLE erased_owners (
    owner_id TEXT    NOT NULL PRIMARY KEY,
    next_id  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
