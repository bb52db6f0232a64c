//! The floor of storing: one thread, prepared statements, and the rows of a group in one durable transaction.
//!
//! It writes the same rows as the service, but without checksums, into a copy of the service's own database. So tables,
//! indexes, full-text table and tokenizer are the same. It reads nothing, checks nothing and sends no replies.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use context_store::ContextWindow;
use context_text::{Analyzer, Language, context_keywords};
use serde_json::{Map, Value};

use crate::Result;
use crate::corpus::Entry;
use crate::measure::Round;
use crate::sqlite::{Bind, Connection, Statement};
use crate::usage::CpuTimes;

/// A copy of a service's database, and the prepared statements.
pub struct StoreFloor {
    begin: Statement,
    commit: Statement,
    thread: Statement,
    entry: Statement,
    tag: Statement,
    tag_count: Statement,
    image: Statement,
    full_text: Statement,
    change: Statement,
    owner: Statement,
    owner_number: i64,
    next_id: i64,
    revision: i64,
}

/// An entry with its columns ready to bind. Preparing them is not measured.
pub struct Prepared {
    entry: Entry,
    tags: String,
    metadata: String,
    folded: String,
    scope: String,
    /// The context keywords of the preceding entries, as stored in the full-text table.
    context: String,
}

/// Computes the context keywords of entries.
pub struct ContextKeywords {
    analyzer: Analyzer,
    threads: HashMap<String, VecDeque<String>>,
}

impl Default for ContextKeywords {
    fn default() -> Self {
        Self {
            analyzer: Analyzer::new(Language::English),
            threads: HashMap::new(),
        }
    }
}

impl ContextKeywords {
    /// The context keywords for the next entry of its thread. All entries are stored within minutes, so the time gap
    /// does not matter.
    fn of_next(&mut self, entry: &Entry) -> String {
        let before = self.threads.entry(entry.thread_id.clone()).or_default();
        let words: BTreeSet<&str> = before
            .iter()
            .flat_map(|context_keywords| context_keywords.split(' '))
            .filter(|word| !word.is_empty())
            .collect();
        let context = words
            .into_iter()
            .fold("\u{1}-".to_owned(), |context, word| context + " " + word);
        before.push_back(context_keywords(
            &entry.text,
            &self.analyzer,
            ContextWindow::WORDS,
        ));
        if before.len() > ContextWindow::default().entries as usize {
            before.pop_front();
        }
        context
    }
}

impl Prepared {
    /// Prepares the columns.
    pub fn new(entry: Entry, keywords: &mut ContextKeywords) -> Self {
        let context = keywords.of_next(&entry);
        // The same number of tokens as in the service, with the same lengths. The hash function does not matter here.
        let mut scope = format!(
            "\u{1}{} ct t{:016x}",
            if entry.source == "user" { "su" } else { "sa" },
            hash(&entry.thread_id)
        );
        for tag in &entry.tags {
            scope.push_str(&format!(" g{:016x}", hash(tag)));
        }
        let tags = Value::from(entry.tags.clone()).to_string();
        Self {
            tags,
            metadata: to_json(&entry.metadata),
            folded: to_json(&entry.metadata).to_lowercase(),
            scope,
            context,
            entry,
        }
    }
}

impl StoreFloor {
    /// Opens the copy.
    ///
    /// # Errors
    /// The database does not belong to the service.
    pub fn open(path: &Path) -> Result<Self> {
        let db = Connection::writer(path)?;
        let owner =
            db.rows("SELECT owner, next_id, revision FROM owners WHERE owner_id = 'default'")?;
        let [owner_number, next_id, revision] =
            owner.first().ok_or("the database has no owner")?.as_slice()
        else {
            return Err("an owner has three numbers".into());
        };
        let owner_number: i64 = owner_number.parse()?;
        Ok(Self {
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            thread: db.prepare(
                "INSERT INTO threads VALUES (?1, ?2, 1, ?3, 1 - ?3, 0, ?4, ?4, ?5, ?6, ?7) ON CONFLICT (owner, thread_id) DO UPDATE SET \
                 entry_count = entry_count + 1, user_count = user_count + ?3, agent_count = agent_count + 1 - ?3, \
                 last_entry = ?4, last_id = ?5, last_source = ?6, last_hash = ?7",
            )?,
            entry: db.prepare(
                "INSERT INTO entries (row_id, owner, id, thread_id, source, image_count, version, created_at, updated_at, tags, summary, \
                 metadata, metadata_folded, text) VALUES (?1, ?2, ?3, ?4, ?5, ?11, 1, ?6, ?6, ?7, '', ?8, ?9, ?10)",
            )?,
            tag: db.prepare("INSERT INTO entry_tags (owner, tag, row_id) VALUES (?1, ?2, ?3)")?,
            tag_count: db.prepare(
                "INSERT INTO tag_counts (owner, tag, entries) VALUES (?1, ?2, 1) ON CONFLICT (owner, tag) DO UPDATE SET entries = entries + 1",
            )?,
            image: db.prepare(
                "INSERT INTO images (owner, row_id, position, mime_type, data) VALUES (?1, ?2, 0, 'image/png', ?3)",
            )?,
            full_text: db.prepare(&format!("INSERT INTO fts_{owner_number}(rowid, text, ctx, scope) VALUES (?1, ?2, ?3, ?4)"))?,
            change: db.prepare(
                "INSERT INTO changes (owner, revision, at, operation, entity, entity_id, thread_id, version) \
                 VALUES (?1, ?2, ?3, 'create', 'context', ?4, ?5, 1)",
            )?,
            owner: db.prepare("UPDATE owners SET revision = ?2, next_id = ?3, entry_count = entry_count + ?4 WHERE owner = ?1")?,
            owner_number,
            next_id: next_id.parse()?,
            revision: revision.parse()?,
        })
    }

    /// Stores the entries in groups of this size.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn round(&mut self, entries: &[Prepared], group: usize) -> Result<Round> {
        let pid = std::process::id();
        let before = CpuTimes::of(pid);
        let started = Instant::now();
        let mut latencies: Vec<Duration> = Vec::with_capacity(entries.len());
        for group in entries.chunks(group) {
            let started = Instant::now();
            self.store(group)?;
            latencies.extend(std::iter::repeat_n(started.elapsed(), group.len()));
        }
        Ok(Round {
            elapsed: started.elapsed(),
            latencies,
            service: CpuTimes::of(pid).since(&before),
            ..Round::default()
        })
    }

    fn store(&mut self, group: &[Prepared]) -> Result<()> {
        use Bind::{Blob, Int, Text};
        let owner = Int(self.owner_number);
        let now = Int(i64::try_from(
            SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
        )?);
        self.begin.execute(&[])?;
        for prepared in group {
            let Prepared {
                entry,
                tags,
                metadata,
                folded,
                ..
            } = prepared;
            let (id, row_id) = (self.next_id, self.owner_number << 40 | self.next_id);
            self.next_id += 1;
            self.revision += 1;
            let (thread, source) = (Text(&entry.thread_id), Text(entry.source));
            let is_user = Int(i64::from(entry.source == "user"));
            self.thread
                .execute(&[owner, thread, is_user, now, Int(id), source, Int(id)])?;
            let text = Text(&entry.text);
            let images = Int(i64::from(entry.image.is_some()));
            let json = [Text(tags), Text(metadata), Text(folded)];
            self.entry.execute(&[
                Int(row_id),
                owner,
                Int(id),
                thread,
                source,
                now,
                json[0],
                json[1],
                json[2],
                text,
                images,
            ])?;
            if let Some(image) = &entry.image {
                self.image.execute(&[owner, Int(row_id), Blob(image)])?;
            }
            for tag in &entry.tags {
                self.tag.execute(&[owner, Text(tag), Int(row_id)])?;
                self.tag_count.execute(&[owner, Text(tag)])?;
            }
            self.change.execute(&[
                owner,
                Int(self.revision),
                now,
                Text(&id.to_string()),
                thread,
            ])?;
        }
        let first = self.next_id - i64::try_from(group.len())?;
        for (id, prepared) in (first..).zip(group) {
            let Prepared {
                entry,
                context,
                scope,
                ..
            } = prepared;
            self.full_text.execute(&[
                Int(self.owner_number << 40 | id),
                Text(&entry.text),
                Text(context),
                Text(scope),
            ])?;
        }
        self.owner.execute(&[
            owner,
            Int(self.revision),
            Int(self.next_id),
            Int(i64::try_from(group.len())?),
        ])?;
        self.commit.execute(&[])
    }
}

fn to_json(map: &Map<String, Value>) -> String {
    Value::Object(map.clone()).to_string()
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
