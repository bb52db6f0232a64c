//! The floor of the PostgreSQL store: the transaction of each operation on a plain tokio-postgres connection, with
//! prepared statements, each of which is awaited. Reads use the store's statements, but without the row beyond
//! the page by which the store knows whether others follow. Columns are decoded and dropped, and metadata is not parsed.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use context_store::bm25::{B, K1, PADDING};
use serde_json::Value;
use tokio_postgres::{Client, NoTls, Statement};

use crate::Result;
use crate::corpus::Entry;

/// Number of rows on a page.
pub const PAGE: i64 = 30;
/// Maximum number of ranked matches.
pub const RANKING_CAP: i64 = 10_100;
/// Number of characters of a text that a search reads.
const SHOWN_CHARS: i32 = 301;
const OWNER: &str = "default";

const COLUMNS: &str = "e.id, e.thread_id, e.source, e.image_count, e.version, e.created_at, e.updated_at, e.tags, e.summary, e.metadata::text, o.revision, e.seal";

/// A connection with its prepared statements.
pub struct RawClient {
    client: Client,
    lock: Statement,
    new_thread: Statement,
    entry: Statement,
    thread: Statement,
    bump: Statement,
    get: Statement,
    search: Statement,
    full_text: Statement,
}

/// An entry with its columns ready to bind. Preparing them is not measured.
#[derive(Debug, Clone)]
pub struct Row {
    pub entry: Entry,
    metadata: String,
    folded: String,
    words: String,
}

impl Row {
    /// Prepares the columns. No word of the corpus changes by stemming or has a capital letter.
    pub fn new(entry: Entry) -> Self {
        let mut positions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (at, word) in entry
            .text
            .split([' ', '.'])
            .filter(|word| !word.is_empty())
            .enumerate()
        {
            positions
                .entry(word)
                .or_default()
                .push((at + 1).to_string());
        }
        let words: Vec<String> = positions
            .iter()
            .map(|(word, at)| format!("'{word}':{}", at.join(",")))
            .collect();
        let metadata = Value::Object(entry.metadata.clone()).to_string();
        Self {
            folded: metadata.to_lowercase(),
            metadata,
            words: words.join(" "),
            entry,
        }
    }
}

/// The condition that a metadata field equals a string, ignoring case. Its two values have the numbers `first` and the
/// next.
fn equal(field: &str, first: u32) -> String {
    let second = first + 1;
    format!(
        "(left((entries.metadata_folded ->> '{field}'::text), 200) COLLATE \"C\") = ${first} \
         AND coalesce((entries.metadata_folded -> '{field}'::text) = ${second}::text::jsonb, false)"
    )
}

/// Opens a connection, driven by the current runtime.
///
/// # Errors
/// The server cannot be reached.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl RawClient {
    /// Connects and prepares the statements.
    ///
    /// # Errors
    /// The database does not belong to the service.
    pub async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let prepare = async |sql: &str| client.prepare(sql).await;
        Ok(Self {
            lock: prepare(
                "SELECT entry_count, last_entry, last_id, last_source, last_hash FROM context.threads \
                 WHERE owner_id = 'default' AND thread_id = $1 FOR UPDATE",
            )
            .await?,
            new_thread: prepare("INSERT INTO context.threads VALUES ('default', $1, 0, 0, 0, 0, 0, 0, 0, '', 0)").await?,
            entry: prepare(
                "WITH tagged AS (INSERT INTO context.entry_tags (owner_id, tag, id) SELECT 'default', t.tag, $1 FROM unnest($2::text[]) AS t(tag)) \
                 INSERT INTO context.entries (owner_id, id, thread_id, source, image_count, version, created_at, updated_at, tags, summary, \
                 metadata, metadata_folded, words_cut, text, words) \
                 VALUES ('default', $1, $3, $4, 0, 1, $5, $5, $2, '', $6::text::json, $7::text::jsonb, false, $8, $9::text::tsvector)",
            )
            .await?,
            thread: prepare(
                "UPDATE context.threads SET entry_count = entry_count + 1, user_count = user_count + $2, agent_count = agent_count + 1 - $2, \
                 first_entry = CASE WHEN entry_count = 0 THEN $3 ELSE first_entry END, last_entry = $3, last_id = $4, last_source = $5, \
                 last_hash = $4 WHERE owner_id = 'default' AND thread_id = $1",
            )
            .await?,
            bump: prepare(
                "WITH bumped AS (UPDATE context.owners SET revision = revision + 1, entry_count = entry_count + 1, \
                 user_count = user_count + $4, agent_count = agent_count + 1 - $4 WHERE owner_id = 'default' RETURNING revision) \
                 INSERT INTO context.changes (owner_id, revision, at, operation, entity, entity_id, thread_id, version) \
                 SELECT 'default', revision, $1, 'create', 'context', $2, $3, 1 FROM bumped RETURNING revision",
            )
            .await?,
            get: prepare(&format!(
                "SELECT {COLUMNS}, e.text FROM context.owners AS o LEFT JOIN context.entries AS e ON e.owner_id = o.owner_id AND e.id = $1 \
                 WHERE o.owner_id = $2 ORDER BY e.created_at DESC, e.id DESC"
            ))
            .await?,
            search: prepare(&format!(
                "SELECT {COLUMNS}, left(e.text, $6::int) FROM context.owners AS o LEFT JOIN (SELECT entries.* FROM context.entries AS entries \
                 WHERE entries.owner_id = $1 AND ({}) AND ({}) ORDER BY entries.created_at DESC, entries.id DESC LIMIT {PAGE}) AS e \
                 ON e.owner_id = o.owner_id WHERE o.owner_id = $1 ORDER BY e.created_at DESC, e.id DESC",
                equal("agent_name", 2),
                equal("status", 4)
            ))
            .await?,
            full_text: prepare(&format!(
                "WITH matched AS MATERIALIZED (SELECT entries.owner_id, entries.id, entries.created_at, entries.words, entries.context \
                 FROM context.entries AS entries WHERE entries.owner_id = $1 AND ARRAY[entries.owner_id] @> ARRAY[$1] \
                 AND entries.words @@ $2::text::tsquery ORDER BY entries.created_at DESC, entries.id DESC LIMIT {}), \
                 newest AS (SELECT * FROM matched ORDER BY created_at DESC, id DESC LIMIT {RANKING_CAP}), \
                 shape AS (SELECT avg(length(words))::float8 AS length, greatest(count(*), (SELECT o.entry_count FROM context.owners AS o \
                 WHERE o.owner_id = $1))::float8 AS entries FROM newest), \
                 hits AS MATERIALIZED (SELECT m.owner_id, m.id, length(m.words) AS length, t.place, \
                 1.645 * ts_rank('{{1, 1, 1, 1}}', m.words, t.term) AS frequency \
                 FROM newest AS m CROSS JOIN unnest($4::text[]::tsquery[]) WITH ORDINALITY AS t(term, place) WHERE m.words @@ t.term), \
                 rarity AS (SELECT h.owner_id, h.place, ln(1 + (s.entries - count(*) + 0.5) / (count(*) + 0.5)) AS idf \
                 FROM hits AS h CROSS JOIN shape AS s GROUP BY h.owner_id, h.place, s.entries), \
                 ranked AS (SELECT h.owner_id, h.id, sum(r.idf * {} * h.frequency \
                 / (h.frequency + {K1} * ({} + {B} * (h.length + {PADDING}) / (s.length + {PADDING}))))::float8 AS score \
                 FROM hits AS h JOIN rarity AS r ON r.owner_id = h.owner_id AND r.place = h.place CROSS JOIN shape AS s \
                 GROUP BY h.owner_id, h.id), \
                 page AS (SELECT owner_id, id, score FROM ranked ORDER BY score DESC, id DESC LIMIT {PAGE}) \
                 SELECT {COLUMNS}, left(e.text, $3::int), (SELECT count(*) FROM matched), p.score FROM context.owners AS o \
                 LEFT JOIN page AS p ON p.owner_id = o.owner_id LEFT JOIN context.entries AS e ON e.owner_id = p.owner_id AND e.id = p.id \
                 WHERE o.owner_id = $1 ORDER BY p.score DESC, e.id DESC",
                RANKING_CAP + 1,
                K1 + 1.0,
                1.0 - B
            ))
            .await?,
            client,
        })
    }

    /// Stores an entry in one transaction. It writes the service's rows without checksums, context keywords, weights of
    /// words, the change's source and the owner's number of threads. The id takes the place of the text's hash.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn store(&self, id: i64, row: &Row) -> Result<()> {
        let Row {
            entry,
            metadata,
            folded,
            words,
        } = row;
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
        let is_user = i64::from(entry.source == "user");
        self.client.batch_execute("BEGIN").await?;
        if self
            .client
            .query_opt(&self.lock, &[&entry.thread_id])
            .await?
            .is_none()
        {
            self.client
                .execute(&self.new_thread, &[&entry.thread_id])
                .await?;
        }
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] = [
            &id,
            &entry.tags,
            &entry.thread_id,
            &entry.source,
            &now,
            metadata,
            folded,
            &entry.text,
            words,
        ];
        self.client.execute(&self.entry, &values).await?;
        self.client
            .execute(
                &self.thread,
                &[&entry.thread_id, &is_user, &now, &id, &entry.source],
            )
            .await?;
        self.client
            .query_one(
                &self.bump,
                &[&now, &id.to_string(), &entry.thread_id, &is_user],
            )
            .await?;
        Ok(self.client.batch_execute("COMMIT").await?)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// An error of the server. For an id without an entry the list is empty.
    pub async fn get(&self, id: i64) -> Result<Vec<i64>> {
        Self::read(&[self.client.query_one(&self.get, &[&id, &OWNER]).await?])
    }

    /// The newest entries of an agent with a status.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn search(&self, agent: &str, status: &str) -> Result<Vec<i64>> {
        let (agent_json, status_json) = (format!("\"{agent}\""), format!("\"{status}\""));
        Self::read(
            &self
                .client
                .query(
                    &self.search,
                    &[
                        &OWNER,
                        &agent,
                        &agent_json,
                        &status,
                        &status_json,
                        &SHOWN_CHARS,
                    ],
                )
                .await?,
        )
    }

    /// The best-ranked entries that contain all these words.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn full_text(&self, words: &str) -> Result<Vec<i64>> {
        let terms: Vec<String> = words.split(' ').map(|word| format!("'{word}'")).collect();
        Self::read(
            &self
                .client
                .query(
                    &self.full_text,
                    &[&OWNER, &terms.join(" & "), &SHOWN_CHARS, &terms],
                )
                .await?,
        )
    }

    /// Reads the columns of the entries and returns their ids. The number of matches and the scores of a full-text
    /// search are not read.
    fn read(rows: &[tokio_postgres::Row]) -> Result<Vec<i64>> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            // A row with the owner but without an entry: nothing was found.
            let Some(id) = row.try_get(0)? else { continue };
            let texts = [1, 2, 8, 9, 12].map(|column| row.try_get::<_, String>(column));
            let numbers = [3, 4, 5, 6, 10].map(|column| row.try_get::<_, i64>(column));
            for text in texts {
                std::hint::black_box(text?);
            }
            for number in numbers {
                std::hint::black_box(number?);
            }
            std::hint::black_box(row.try_get::<_, Vec<String>>(7)?);
            std::hint::black_box(row.try_get::<_, Option<Vec<u8>>>(11)?);
            ids.push(id);
        }
        Ok(ids)
    }
}
