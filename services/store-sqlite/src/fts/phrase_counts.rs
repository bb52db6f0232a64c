//! Finds the best matches among a few candidate rows, without computing the score of each.
//!
//! The score of a row depends on how often it has each phrase of the query, and on the length of its text. One pass
//! over all rows of a phrase counts how often each candidate has it. FTS5 stores the lengths in a table of their own,
//! and looking one up takes as long as 20 rows of such a pass. So as few lengths as possible are looked up:
//!
//! 1. Each row gets an upper bound of its score: the score that it would have if the length of its text were 0.
//! 2. The rows with the highest bounds are scored, as many as are wanted.
//! 3. Another row can only be among the best if its bound is at least the lowest of these scores. Such rows are scored
//!    too.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};
use diesel::sqlite::SqliteConnection;

use crate::bm25::{Count, Counted, Length, Size, idf, packed, phrase_score};
use crate::collection::Collection;
use crate::filter::json_list;
use crate::sql::{Bind, Fragment, query};

/// Factor by which a bound is raised before it is compared with a score, because both are rounded.
const ROUNDING: f64 = 1.0 + 1e-9;

/// How often each phrase of a query occurs in each of the candidate rows.
pub(super) struct PhraseCounts {
    /// The name of the full-text table.
    fts: String,
    /// The candidates, in ascending order. A place is an index into this list.
    row_ids: Vec<i64>,
    /// The phrases that occur in any row of the table.
    phrases: Vec<Phrase>,
    size: Size,
}

struct Phrase {
    idf: f64,
    /// The place of each candidate in which it occurs, and how often it occurs there.
    found: Vec<(usize, Count)>,
}

impl PhraseCounts {
    /// Counts the phrases in these rows. Each phrase is an FTS5 expression. Also returns the statement that counts the
    /// last phrase, for `explain_query`.
    pub fn read(
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
        let mut row_ids = rows.to_vec();
        row_ids.sort_unstable();
        row_ids.dedup();
        let mut counts = Self {
            fts,
            row_ids,
            phrases: Vec::new(),
            size: Size::default(),
        };
        let fts = &counts.fts;
        let wanted = packed(&counts.row_ids);
        let mut statement = Fragment::default();
        for expression in expressions {
            statement = Fragment::new(format!("SELECT match_counts({fts}, "));
            statement
                .bind(Bind::Blob(wanted.clone()))
                .push(&format!(") AS counts FROM {fts} WHERE {fts} MATCH "))
                .bind(Bind::Text(expression))
                .push(" LIMIT 1");
            if counts.row_ids.is_empty() {
                continue;
            }
            // The statement returns no row if no text of the table has the phrase.
            for row in query::<Row>(conn, &statement)? {
                let Counted {
                    size,
                    matching,
                    found,
                } = Counted::read(&row.counts);
                counts.size = size;
                counts.phrases.push(Phrase {
                    idf: idf(size, matching),
                    found,
                });
            }
        }
        Ok((counts, statement))
    }

    /// The row id at this place.
    pub fn row_id(&self, place: usize) -> i64 {
        self.row_ids[place]
    }

    /// The places of the rows with any of the phrases, newest first.
    pub fn matching(&self) -> Vec<usize> {
        let mut matches = vec![false; self.row_ids.len()];
        for (place, _) in self.phrases.iter().flat_map(|phrase| &phrase.found) {
            matches[*place] = true;
        }
        (0..self.row_ids.len())
            .rev()
            .filter(|place| matches[*place])
            .collect()
    }

    /// The row ids and scores of at least the best `wanted` of the rows at these places, or of all if there are fewer.
    /// They are in any order. `weight` is that of the context keywords.
    pub fn best(
        &self,
        conn: &mut SqliteConnection,
        mut places: Vec<usize>,
        wanted: usize,
        weight: f64,
    ) -> QueryResult<Vec<(i64, f64)>> {
        let mut lengths = vec![None; self.row_ids.len()];
        if wanted < places.len() {
            let zero = Length::new(0.0, self.size, weight);
            let bounds = self.scores(|_| Some(zero));
            places.select_nth_unstable_by(wanted, |a, b| bounds[*b].total_cmp(&bounds[*a]));
            let others = places.split_off(wanted);
            self.look_up(conn, &places, &mut lengths, weight)?;
            let scores = self.scores(|place| lengths[place]);
            let lowest_score = places
                .iter()
                .map(|place| scores[*place])
                .fold(f64::INFINITY, f64::min);
            let others: Vec<usize> = others
                .into_iter()
                .filter(|place| bounds[*place] * ROUNDING >= lowest_score)
                .collect();
            self.look_up(conn, &others, &mut lengths, weight)?;
            places.extend(others);
        } else {
            self.look_up(conn, &places, &mut lengths, weight)?;
        }
        let scores = self.scores(|place| lengths[place]);
        Ok(places
            .into_iter()
            .map(|place| (self.row_ids[place], scores[place]))
            .collect())
    }

    /// The score at each place, or 0 where `length` returns `None`. Adds the same numbers in the same order as
    /// `match_score`, so that both return exactly the same score.
    fn scores(&self, length: impl Fn(usize) -> Option<Length>) -> Vec<f64> {
        let mut scores = vec![0.0; self.row_ids.len()];
        for Phrase { idf, found } in &self.phrases {
            for (place, count) in found {
                if let Some(length) = length(*place) {
                    scores[*place] += phrase_score(*idf, count.frequency(length), length.norm);
                }
            }
        }
        scores
    }

    /// Sets the `lengths` of the texts at these places.
    fn look_up(
        &self,
        conn: &mut SqliteConnection,
        places: &[usize],
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
        let row_ids: Vec<i64> = places.iter().map(|place| self.row_ids[*place]).collect();
        let mut statement = Fragment::new(format!(
            "SELECT id, sz FROM {}_docsize WHERE id IN (SELECT value FROM json_each(",
            self.fts
        ));
        statement.bind(Bind::Text(json_list(&row_ids))).push("))");
        for Sizes { id, sz } in query::<Sizes>(conn, &statement)? {
            if let Ok(place) = self.row_ids.binary_search(&id) {
                lengths[place] = Some(Length::new(varint(&sz), self.size, weight));
            }
        }
        Ok(())
    }
}

/// Reads the first of several variable-length integers (<https://sqlite.org/fileformat2.html#varint>). Each byte holds
/// seven bits of the value, and all bytes but the last have their highest bit set. A ninth byte would hold eight bits,
/// but no text has so many words.
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
