//! The best matches among a few rows.
//!
//! FTS5 has the length of each text in a table of its own, and looking one up takes as long as passing 20 rows of a
//! word. So the rows get an upper bound of their score first: the score that they would have with the shortest text.
//! Only the lengths of rows whose bound is high enough are looked up.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};
use diesel::sqlite::SqliteConnection;

use crate::bm25::{Count, Counted, Length, Size, idf, packed, share};
use crate::collection::Collection;
use crate::filter::json_list;
use crate::sql::{Bind, Fragment, query};

/// A bound is this much higher than the score with the shortest text, because both are rounded.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Some rows, and how often each phrase of a query occurs in them.
pub(super) struct Among {
    fts: String,
    /// In ascending order. Each row is named by its place here.
    rows: Vec<i64>,
    phrases: Vec<Phrase>,
    size: Size,
}

struct Phrase {
    idf: f64,
    /// The places of the rows in which it occurs.
    found: Vec<(usize, Count)>,
}

impl Among {
    /// Counts phrases, each of which is an FTS5 expression. Also returns a statement that does so, for `explain_query`.
    pub fn count(
        conn: &mut SqliteConnection,
        collection: Collection,
        rows: &[i64],
        expressions: impl Iterator<Item = String>,
    ) -> QueryResult<(Self, Fragment)> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Binary)]
            counts: Vec<u8>,
        }
        let fts = collection.fts_table();
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows.dedup();
        let mut among = Self {
            fts,
            rows,
            phrases: Vec::new(),
            size: Size::default(),
        };
        let fts = &among.fts;
        let wanted = packed(&among.rows);
        let mut statement = Fragment::default();
        for expression in expressions {
            statement = Fragment::new(format!("SELECT match_counts({fts}, "));
            statement
                .bind(Bind::Blob(wanted.clone()))
                .push(&format!(") AS counts FROM {fts} WHERE {fts} MATCH "))
                .bind(Bind::Text(expression))
                .push(" LIMIT 1");
            if among.rows.is_empty() {
                continue;
            }
            // Without a row, the phrase does not occur.
            for row in query::<Row>(conn, &statement)? {
                let Counted {
                    size,
                    matching,
                    found,
                } = Counted::read(&row.counts);
                among.size = size;
                among.phrases.push(Phrase {
                    idf: idf(size, matching),
                    found,
                });
            }
        }
        Ok((among, statement))
    }

    pub fn row_id(&self, place: usize) -> i64 {
        self.rows[place]
    }

    /// The rows with any of the phrases, newest first.
    pub fn matching(&self) -> Vec<usize> {
        let mut matches = vec![false; self.rows.len()];
        for (place, _) in self.phrases.iter().flat_map(|phrase| &phrase.found) {
            matches[*place] = true;
        }
        (0..self.rows.len())
            .rev()
            .filter(|place| matches[*place])
            .collect()
    }

    /// The row ids and scores of these rows, in any order. Of more than `count` rows, at least the best `count`.
    pub fn best(
        &self,
        conn: &mut SqliteConnection,
        mut rows: Vec<usize>,
        count: usize,
        weight: f64,
    ) -> QueryResult<Vec<(i64, f64)>> {
        let mut lengths = vec![None; self.rows.len()];
        if count < rows.len() {
            let shortest = Length::new(0.0, self.size, weight);
            let bounds = self.scores(|_| Some(shortest));
            rows.select_nth_unstable_by(count, |a, b| bounds[*b].total_cmp(&bounds[*a]));
            let others = rows.split_off(count);
            self.look_up(conn, &rows, &mut lengths, weight)?;
            let scores = self.scores(|place| lengths[place]);
            let least = rows.iter().map(|place| scores[*place]);
            let least = least.fold(f64::INFINITY, f64::min);
            let others: Vec<usize> = others
                .into_iter()
                .filter(|place| bounds[*place] * ROUNDING >= least)
                .collect();
            self.look_up(conn, &others, &mut lengths, weight)?;
            rows.extend(others);
        } else {
            self.look_up(conn, &rows, &mut lengths, weight)?;
        }
        let scores = self.scores(|place| lengths[place]);
        let best = rows.into_iter();
        Ok(best
            .map(|place| (self.rows[place], scores[place]))
            .collect())
    }

    /// The score of each row with a length. Adds up the same numbers in the same order as `match_score`.
    fn scores(&self, length: impl Fn(usize) -> Option<Length>) -> Vec<f64> {
        let mut scores = vec![0.0; self.rows.len()];
        for Phrase { idf, found } in &self.phrases {
            for (place, count) in found {
                if let Some(length) = length(*place) {
                    scores[*place] += share(*idf, count.frequency(length), length.norm);
                }
            }
        }
        scores
    }

    /// Looks up the lengths of the texts of these rows.
    fn look_up(
        &self,
        conn: &mut SqliteConnection,
        rows: &[usize],
        lengths: &mut [Option<Length>],
        weight: f64,
    ) -> QueryResult<()> {
        /// <https://sqlite.org/fts5.html#the_docsize_table>
        #[derive(QueryableByName)]
        struct Sizes {
            #[diesel(sql_type = BigInt)]
            id: i64,
            /// The length of each column, the text first.
            #[diesel(sql_type = Binary)]
            sz: Vec<u8>,
        }
        let row_ids: Vec<i64> = rows.iter().map(|place| self.rows[*place]).collect();
        let mut statement = Fragment::new(format!(
            "SELECT id, sz FROM {}_docsize WHERE id IN (SELECT value FROM json_each(",
            self.fts
        ));
        statement.bind(Bind::Text(json_list(&row_ids))).push("))");
        for Sizes { id, sz } in query::<Sizes>(conn, &statement)? {
            if let Ok(place) = self.rows.binary_search(&id) {
                lengths[place] = Some(Length::new(varint(&sz), self.size, weight));
            }
        }
        Ok(())
    }
}

/// The first of some variable-length integers (<https://sqlite.org/fileformat2.html#varint>): seven bits of each byte,
/// of which all but the last have the eighth bit. No text has so many words that the ninth byte matters.
fn varint(bytes: &[u8]) -> f64 {
    let mut value = 0_u64;
    for byte in bytes {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value as f64
}
