//! The tables whose rows are moved, with the columns that both databases have. An owner is moved as a
//! [`Head`](super::Head).
//!
//! Vectors are moved because computing them is expensive, but only those of entries and of the model in use. A service
//! that runs on the target embeds the artifacts again.

/// The type of a column's values in a [`Row`](super::Row).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Int,
    /// An integer or NULL.
    OptionalInt,
    /// A boolean, as 1 or 0.
    Flag,
    /// A text.
    Text,
    /// A text or NULL.
    OptionalText,
    /// JSON, byte for byte as it was stored.
    Json,
    /// JSON or NULL.
    OptionalJson,
    /// A list of texts.
    List,
    /// Bytes.
    Bytes,
    /// Bytes or NULL.
    OptionalBytes,
    /// The number of a row among otherwise equal rows, from 1. It is not stored.
    Copy,
}

/// The field of [`Slots`](super::Slots) that holds a value between the database driver and a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// One of the integers.
    Int,
    /// One of the texts.
    Text,
    /// One of the byte strings.
    Bytes,
}

/// The column names of the slots in a query.
const SLOT_NAMES: [(Slot, usize, &str); 13] = [
    (Slot::Int, 0, "i0"),
    (Slot::Int, 1, "i1"),
    (Slot::Int, 2, "i2"),
    (Slot::Int, 3, "i3"),
    (Slot::Int, 4, "i4"),
    (Slot::Text, 0, "t0"),
    (Slot::Text, 1, "t1"),
    (Slot::Text, 2, "t2"),
    (Slot::Text, 3, "t3"),
    (Slot::Text, 4, "t4"),
    (Slot::Text, 5, "t5"),
    (Slot::Bytes, 0, "b0"),
    (Slot::Bytes, 1, "b1"),
];

fn slot_name(slot: Slot, index: usize) -> &'static str {
    SLOT_NAMES
        .iter()
        .find(|(of, at, _)| *of == slot && *at == index)
        .map_or("none", |(_, _, name)| name)
}

impl Kind {
    /// The slot that holds its values.
    #[must_use]
    pub const fn slot(self) -> Slot {
        match self {
            Self::Int | Self::OptionalInt | Self::Flag | Self::Copy => Slot::Int,
            Self::Text | Self::OptionalText | Self::Json | Self::OptionalJson | Self::List => {
                Slot::Text
            }
            Self::Bytes | Self::OptionalBytes => Slot::Bytes,
        }
    }
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The name. A database may store the value under another one: SQLite has `row_id` for an entry's `id`.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
}

/// A table, as it is moved.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The name.
    pub name: &'static str,
    /// Number of leading columns that form the key. The key identifies and orders the rows of an owner.
    pub key: usize,
    /// The columns, without the owner and without derived columns.
    pub columns: &'static [Column],
}

/// All tables, in the order in which they are written. Derived data of a table may need the tables before it.
pub static TABLES: &[Table] = &[
    Table {
        name: "entries",
        key: 1,
        columns: &[
            column("id", Kind::Int),
            column("thread_id", Kind::Text),
            column("source", Kind::Text),
            column("image_count", Kind::Int),
            column("version", Kind::Int),
            column("created_at", Kind::Int),
            column("updated_at", Kind::Int),
            column("tags", Kind::List),
            column("summary", Kind::Text),
            column("metadata", Kind::Json),
            column("text", Kind::Text),
            column("seal", Kind::OptionalBytes),
        ],
    },
    Table {
        name: "images",
        key: 2,
        columns: &[
            column("id", Kind::Int),
            column("position", Kind::Int),
            column("mime_type", Kind::Text),
            column("metadata", Kind::OptionalJson),
            column("data", Kind::Bytes),
            column("seal", Kind::OptionalBytes),
        ],
    },
    // Vectors of entries: 32-bit floats, little-endian.
    Table {
        name: "chunks",
        key: 2,
        columns: &[
            column("id", Kind::Int),
            column("position", Kind::Int),
            column("start_char", Kind::Int),
            column("end_char", Kind::Int),
            column("vector", Kind::Bytes),
        ],
    },
    // Token vectors of entries, byte for byte as stored.
    Table {
        name: "chunk_tokens",
        key: 2,
        columns: &[
            column("id", Kind::Int),
            column("position", Kind::Int),
            column("tokens", Kind::Bytes),
        ],
    },
    Table {
        name: "artifacts",
        key: 1,
        columns: &[
            column("artifact_id", Kind::Text),
            column("created_at", Kind::Int),
            column("version", Kind::Int),
            column("path", Kind::OptionalText),
        ],
    },
    Table {
        name: "artifact_versions",
        key: 2,
        columns: &[
            column("artifact_id", Kind::Text),
            column("version", Kind::Int),
            column("at", Kind::Int),
            column("title_given", Kind::Flag),
            column("changes", Kind::List),
            column("title", Kind::Text),
            column("metadata", Kind::Json),
            column("content", Kind::Text),
            column("seal", Kind::OptionalBytes),
        ],
    },
    Table {
        name: "api_keys",
        key: 1,
        columns: &[
            column("key_id", Kind::Text),
            column("name", Kind::Text),
            column("lookup", Kind::Bytes),
            column("hash", Kind::Text),
            column("scopes", Kind::List),
            column("narrowing", Kind::Text),
            column("created_at", Kind::Int),
            column("expires_at", Kind::OptionalInt),
            column("last_used_at", Kind::OptionalInt),
            column("deactivated_at", Kind::OptionalInt),
            column("digest", Kind::OptionalText),
        ],
    },
    Table {
        name: "key_events",
        key: 1,
        columns: &[
            column("event_id", Kind::Text),
            column("at", Kind::Int),
            column("actor", Kind::OptionalText),
            column("operation", Kind::Text),
            column("key_id", Kind::Text),
        ],
    },
    Table {
        name: "changes",
        key: 1,
        columns: &[
            column("revision", Kind::Int),
            column("at", Kind::Int),
            column("operation", Kind::Text),
            column("entity", Kind::Text),
            column("entity_id", Kind::Text),
            column("thread_id", Kind::OptionalText),
            column("version", Kind::OptionalInt),
            column("key_id", Kind::OptionalText),
            column("source", Kind::OptionalText),
            column("commit_end", Kind::Flag),
        ],
    },
    Table {
        name: "audited_changes",
        key: 1,
        columns: &[
            column("revision", Kind::Int),
            column("at", Kind::Int),
            column("operation", Kind::Text),
            column("entity", Kind::Text),
            column("entity_id", Kind::Text),
            column("thread_id", Kind::OptionalText),
            column("version", Kind::OptionalInt),
            column("key_id", Kind::OptionalText),
        ],
    },
    Table {
        name: "denials",
        key: 6,
        columns: &[
            column("at", Kind::Int),
            column("key_id", Kind::Text),
            column("operation", Kind::Text),
            column("reason", Kind::Text),
            column("attempts", Kind::Int),
            column("copy", Kind::Copy),
        ],
    },
    Table {
        name: "idempotency",
        key: 1,
        columns: &[
            column("key", Kind::Text),
            column("request_hash", Kind::Bytes),
            column("outcome", Kind::Text),
            column("revision", Kind::Int),
            column("at", Kind::Int),
        ],
    },
];

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

impl Table {
    /// The table of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// The columns of the key.
    #[must_use]
    pub fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// Whether checksums cover this text column.
    #[must_use]
    pub fn is_sealed(&self, column: &Column) -> bool {
        matches!(
            (self.name, column.name),
            ("entries", "metadata" | "text")
                | ("images", "mime_type" | "metadata")
                | ("artifact_versions", "title" | "metadata" | "content")
        )
    }

    /// The columns that are stored.
    pub fn stored(&self) -> impl Iterator<Item = &'static Column> {
        self.columns
            .iter()
            .filter(|column| column.kind != Kind::Copy)
    }

    /// The select list of the table: each column under the name of its slot, then the unused slots. `expression`
    /// returns the SQL of a column, `nothing` a NULL for a slot.
    #[must_use]
    pub fn select_list(
        &self,
        expression: impl Fn(&Column) -> String,
        nothing: impl Fn(Slot) -> &'static str,
    ) -> String {
        Self::list(self.columns, expression, nothing)
    }

    /// The select list of the key alone.
    #[must_use]
    pub fn key_list(
        &self,
        expression: impl Fn(&Column) -> String,
        nothing: impl Fn(Slot) -> &'static str,
    ) -> String {
        Self::list(self.key_columns(), expression, nothing)
    }

    fn list(
        columns: &[Column],
        expression: impl Fn(&Column) -> String,
        nothing: impl Fn(Slot) -> &'static str,
    ) -> String {
        let mut parts = Vec::with_capacity(SLOT_NAMES.len());
        let mut used = [0_usize; 3];
        for column in columns {
            let slot = column.kind.slot();
            let index = &mut used[slot as usize];
            parts.push(format!(
                "{} AS {}",
                expression(column),
                slot_name(slot, *index)
            ));
            *index += 1;
        }
        for (slot, index, name) in SLOT_NAMES {
            if index >= used[slot as usize] {
                parts.push(format!("{} AS {name}", nothing(slot)));
            }
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_fits_the_slots() {
        for table in TABLES {
            let count = |slot: Slot| {
                table
                    .columns
                    .iter()
                    .filter(|column| column.kind.slot() == slot)
                    .count()
            };
            for slot in [Slot::Int, Slot::Text, Slot::Bytes] {
                let slots = SLOT_NAMES.iter().filter(|(of, _, _)| *of == slot).count();
                assert!(count(slot) <= slots, "{}: {slot:?}", table.name);
            }
            let list = table.select_list(|column| column.name.to_owned(), |_| "NULL");
            assert_eq!(list.matches(" AS ").count(), SLOT_NAMES.len(), "{list}");
        }
    }
}
