//! Rows in transit from one database to another.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::table::{Column, Kind, Table};

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cell {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A text, or JSON.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A row of a table: a value for each of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(pub Vec<Cell>);

/// The values of a row as returned by a database driver, for any table.
#[derive(Debug, Default)]
pub struct Slots {
    /// Integers, in the order of their columns.
    pub ints: [Option<i64>; 5],
    /// Texts, in the order of their columns.
    pub texts: [Option<String>; 6],
    /// Bytes, in the order of their columns.
    pub bytes: [Option<Vec<u8>>; 2],
}

impl Slots {
    /// The row. `None` when a required value is missing or a list cannot be parsed.
    #[must_use]
    pub fn into_row(self, table: &Table) -> Option<Row> {
        self.into_cells(table.columns).map(Row)
    }

    /// The key of the row. `None` when a required value is missing.
    #[must_use]
    pub fn into_key(self, table: &Table) -> Option<Vec<Cell>> {
        self.into_cells(table.key_columns())
    }

    fn into_cells(self, columns: &[Column]) -> Option<Vec<Cell>> {
        let (mut ints, mut texts, mut bytes) = (
            self.ints.into_iter(),
            self.texts.into_iter(),
            self.bytes.into_iter(),
        );
        let mut cell = |column: &Column| match column.kind {
            Kind::Int | Kind::Flag | Kind::Copy => ints.next()?.map(Cell::Int),
            Kind::OptionalInt => Some(ints.next()?.map_or(Cell::Null, Cell::Int)),
            Kind::Text | Kind::Json => texts.next()?.map(Cell::Text),
            Kind::OptionalText | Kind::OptionalJson => {
                Some(texts.next()?.map_or(Cell::Null, Cell::Text))
            }
            Kind::List => serde_json::from_str(&texts.next()??).ok().map(Cell::List),
            Kind::Bytes => bytes.next()?.map(Cell::Bytes),
            Kind::OptionalBytes => Some(bytes.next()?.map_or(Cell::Null, Cell::Bytes)),
        };
        columns.iter().map(&mut cell).collect()
    }
}

impl Row {
    /// The key, which orders the rows of an owner.
    #[must_use]
    pub fn key(&self, table: &Table) -> Vec<Cell> {
        self.0.iter().take(table.key).cloned().collect()
    }

    /// The integer in this column, or 0.
    #[must_use]
    pub fn int(&self, table: &Table, column: &str) -> i64 {
        match self.cell(table, column) {
            Some(Cell::Int(value)) => *value,
            _ => 0,
        }
    }

    /// The text in this column, or "".
    #[must_use]
    pub fn text(&self, table: &Table, column: &str) -> &str {
        match self.cell(table, column) {
            Some(Cell::Text(value)) => value,
            _ => "",
        }
    }

    /// The list in this column, or an empty one.
    #[must_use]
    pub fn list(&self, table: &Table, column: &str) -> &[String] {
        match self.cell(table, column) {
            Some(Cell::List(value)) => value,
            _ => &[],
        }
    }

    /// The bytes in this column, or an empty slice.
    #[must_use]
    pub fn bytes(&self, table: &Table, column: &str) -> &[u8] {
        match self.cell(table, column) {
            Some(Cell::Bytes(value)) => value,
            _ => &[],
        }
    }

    /// The value in this column.
    #[must_use]
    pub fn cell(&self, table: &Table, column: &str) -> Option<&Cell> {
        table
            .columns
            .iter()
            .position(|found| found.name == column)
            .and_then(|at| self.0.get(at))
    }

    /// Approximate memory size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |cell: &Cell| match cell {
            Cell::Null | Cell::Int(_) => 8,
            Cell::Text(text) => text.len() + 8,
            Cell::List(items) => items.iter().map(|item| item.len() + 24).sum::<usize>() + 8,
            Cell::Bytes(bytes) => bytes.len() + 8,
        };
        self.0.iter().map(size).sum()
    }

    /// Adds the row to a checksum. Different rows add different bytes.
    pub(super) fn digest(&self, into: &mut Sha256) {
        let mut part = |kind: u8, bytes: &[u8]| {
            into.update([kind]);
            into.update((bytes.len() as u64).to_le_bytes());
            into.update(bytes);
        };
        for cell in &self.0 {
            match cell {
                Cell::Null => part(0, &[]),
                Cell::Int(value) => part(1, &value.to_le_bytes()),
                Cell::Text(text) => part(2, text.as_bytes()),
                Cell::List(items) => {
                    part(3, &(items.len() as u64).to_le_bytes());
                    items.iter().for_each(|item| part(2, item.as_bytes()));
                }
                Cell::Bytes(bytes) => part(4, bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_in_where_a_text_ends_have_different_checksums() {
        let sum = |cells: Vec<Cell>| {
            let mut sum = Sha256::new();
            Row(cells).digest(&mut sum);
            sum.finalize()
        };
        let text = |text: &str| Cell::Text(text.to_owned());
        assert_ne!(
            sum(vec![text("ab"), text("c")]),
            sum(vec![text("a"), text("bc")])
        );
        assert_ne!(sum(vec![Cell::Null]), sum(vec![text("")]));
        assert_ne!(
            sum(vec![Cell::List(vec![]), text("a")]),
            sum(vec![Cell::List(vec!["a".to_owned()])])
        );
    }
}
