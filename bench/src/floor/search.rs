//! The floor of reading: the same query in SQL, on a plain connection in this process.

use std::path::Path;
use std::time::Instant;

use context_text::{Analyzer, Language};

use crate::Result;
use crate::measure::Round;
use crate::sqlite::{Bind, Connection, Row, Statement};
use crate::transport::{FULL_TEXT_LIMIT, Operation, Query, SEARCH_LIMIT, THREAD_LIMIT};
use crate::usage::CpuTimes;

/// Maximum number of ranked matches, as in the service.
const RANKING_CAP: i64 = 10_100;
/// The columns of a result.
const COLUMNS: &str = "row_id, thread_id, source, image_count, version, created_at, updated_at, tags, summary, metadata";

/// The statements on a database that a service has open.
pub struct ReadFloor {
    begin: Statement,
    commit: Statement,
    owner: Statement,
    get: Statement,
    hit: Statement,
    search: Statement,
    full_text: Statement,
    threads: Statement,
    page_count: Statement,
    analyzer: Analyzer,
}

/// The result of a query.
#[derive(Debug, Default)]
pub struct Found {
    /// Ids, in order.
    pub ids: Vec<i64>,
    /// Number of rows.
    pub rows: usize,
    /// Number of text bytes that were read.
    pub bytes: usize,
}

impl Found {
    fn add(&mut self, row: &Row<'_>) {
        self.ids.push(row.int(0) & ((1 << 40) - 1));
        self.rows += 1;
        self.bytes += [1, 2, 7, 8, 9, 10]
            .map(|column| row.text(column).len())
            .iter()
            .sum::<usize>();
    }
}

impl ReadFloor {
    /// Opens the database of a service for reading.
    ///
    /// # Errors
    /// The database does not belong to the service.
    pub fn open(path: &Path) -> Result<Self> {
        let db = Connection::reader(path)?;
        let field = |name: &str| format!("json_extract(metadata, '$.\"{name}\"')");
        let folded = "json_extract(metadata_folded, '$.\"agent_name\"')";
        Ok(Self {
            begin: db.prepare("BEGIN")?,
            commit: db.prepare("COMMIT")?,
            owner: db.prepare("SELECT * FROM owners WHERE owner_id = 'default'")?,
            get: db.prepare(&format!("SELECT {COLUMNS}, text FROM entries WHERE row_id = ?1"))?,
            hit: db.prepare(&format!("SELECT {COLUMNS}, substr(text, 1, 301) FROM entries WHERE row_id = ?1"))?,
            // Newest first, using the index of the rarer value.
            search: db.prepare(&format!(
                "SELECT {COLUMNS}, substr(text, 1, 301) FROM entries WHERE owner = 1 AND {folded} = ?1 AND {} = ?1 AND {} = ?2 AND {} >= ?3 \
                 ORDER BY created_at DESC, row_id DESC LIMIT {SEARCH_LIMIT}",
                field("agent_name"),
                field("status"),
                field("priority"),
            ))?,
            full_text: db.prepare(&format!(
                "SELECT rowid, match_score(fts_1, ?2, 0.0) FROM fts_1 WHERE fts_1 MATCH ?1 ORDER BY rowid DESC LIMIT {RANKING_CAP}"
            ))?,
            threads: db.prepare(&format!(
                "SELECT * FROM threads WHERE owner = 1 ORDER BY last_entry DESC, last_id DESC LIMIT {THREAD_LIMIT}"
            ))?,
            page_count: db.prepare("SELECT page_count FROM pragma_page_count")?,
            analyzer: Analyzer::new(Language::English),
        })
    }

    /// Runs one query in a transaction of its own.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn run(&mut self, operation: &Operation) -> Result<Found> {
        self.begin.execute(&[])?;
        let mut found = Found::default();
        self.owner
            .query(&[], |row| found.bytes += row.text(1).len())?;
        match operation {
            Operation::Store(_) | Operation::Semantic(_) | Operation::Hybrid(_) => {
                return Err("this floor does not run the operation".into());
            }
            Operation::Get(id) => self
                .get
                .query(&[Bind::Int(1 << 40 | id)], |row| found.add(row))?,
            Operation::Search(Query {
                status,
                agent_name,
                priority,
            }) => {
                let binds = [
                    Bind::Text(agent_name),
                    Bind::Text(status),
                    Bind::Int(*priority),
                ];
                self.search.query(&binds, |row| found.add(row))?;
            }
            Operation::FullText(query) => self.full_text(query, &mut found)?,
            Operation::Threads => self.threads.query(&[], |row| {
                found.rows += 1;
                found.bytes += row.text(1).len();
            })?,
            Operation::Statistics => self
                .page_count
                .query(&[], |row| found.rows += usize::from(row.int(0) > 0))?,
        }
        self.commit.execute(&[])?;
        Ok(found)
    }

    fn full_text(&mut self, query: &str, found: &mut Found) -> Result<()> {
        let stems: Vec<String> = query
            .split(' ')
            .map(|word| format!("\"{}\"", self.analyzer.stem(word)))
            .collect();
        let mut matches: Vec<(i64, f64)> = Vec::new();
        for operator in [" AND ", " OR "] {
            let expression = format!("text : ({})", stems.join(operator));
            let words = Bind::Int(i64::try_from(stems.len())?);
            self.full_text
                .query(&[Bind::Text(&expression), words], |row| {
                    matches.push((row.int(0), row.real(1)))
                })?;
            if !matches.is_empty() {
                break;
            }
        }
        matches.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        for (row_id, _) in matches.iter().take(usize::try_from(FULL_TEXT_LIMIT)?) {
            self.hit
                .query(&[Bind::Int(*row_id)], |row| found.add(row))?;
        }
        Ok(())
    }

    /// Runs these queries one after the other.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn round(&mut self, operations: &[Operation]) -> Result<Round> {
        let pid = std::process::id();
        let before = CpuTimes::of(pid);
        let started = Instant::now();
        let mut latencies = Vec::with_capacity(operations.len());
        for operation in operations {
            let started = Instant::now();
            std::hint::black_box(self.run(operation)?);
            latencies.push(started.elapsed());
        }
        Ok(Round {
            elapsed: started.elapsed(),
            latencies,
            service: CpuTimes::of(pid).since(&before),
            ..Round::default()
        })
    }
}
