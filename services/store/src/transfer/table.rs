//! What is moved: every table that is not derived from others, with the columns that both databases know.

/// How a column's values are kept in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Int,
    /// An integer or nothing.
    OptionalInt,
    /// Yes or no, as 1 or 0.
    Flag,
    /// A text.
    Text,
    /// A text or nothing.
    OptionalText,
    /// JSON, byte for byte as it was stored.
    Json,
    /// JSON or nothing.
    OptionalJson,
    /// A list of texts.
    List,
    /// Bytes.
    Bytes,
    /// Bytes or nothing.
    OptionalBytes,
    /// The number of a row among rows that are equal otherwise, from 1. It is stored nowhere.
    Copy,
}

/// Where a value travels from the database to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// One of the integers.
    Int,
    /// One of the texts.
    Text,
    /// The bytes.
    Bytes,
}

/// The names the slots have in a query.
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

fn slot_name(slot: Slot, place: usize) -> &'static str {
    SLOT_NAMES
        .iter()
        .find(|(of, at, _)| *of == slot && *at == place)
        .map_or("none", |(_, _, name)| name)
}

impl Kind {
    /// Where its values travel.
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
    /// Its name, in both databases.
    pub name: &'static str,
    /// Its values.
    pub kind: Kind,
}

/// A table, as it is moved.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// So many of its first columns tell an owner's rows apart, and order them.
    pub key: usize,
    /// Its columns without the owner and without those that a database derives.
    pub columns: &'static [Column],
}

/// Every table, in the order it is written: what a database derives may need the tables before.
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
    // Vectors of the model in use: 32-bit floats, little-endian.
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
    // Vectors of their tokens, of the model in use, as they were given.
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

    /// The columns that order its rows.
    #[must_use]
    pub fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// The columns that are stored.
    pub fn stored(&self) -> impl Iterator<Item = &'static Column> {
        self.columns
            .iter()
            .filter(|column| column.kind != Kind::Copy)
    }

    /// What is selected of it: each column as the slot its value travels in, and the slots that are left over.
    /// `expression` gives a column in SQL, `nothing` a NULL for a slot.
    #[must_use]
    pub fn select_list(
        &self,
        expression: impl Fn(&Column) -> String,
        nothing: impl Fn(Slot) -> &'static str,
    ) -> String {
        Self::list(self.columns, expression, nothing)
    }

    /// The same of its key alone.
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
            let place = &mut used[slot as usize];
            parts.push(format!(
                "{} AS {}",
                expression(column),
                slot_name(slot, *place)
            ));
            *place += 1;
        }
        for (slot, place, name) in SLOT_NAMES {
            if place >= used[slot as usize] {
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
                let places = SLOT_NAMES.iter().filter(|(of, _, _)| *of == slot).count();
                assert!(count(slot) <= places, "{}: {slot:?}", table.name);
            }
            let list = table.select_list(|column| column.name.to_owned(), |_| "NULL");
            assert_eq!(list.matches(" AS ").count(), SLOT_NAMES.len(), "{list}");
        }
    }
}
