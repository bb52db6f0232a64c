//! Reads every row that has checksums and compares it with them, for `context-service verify`.

use std::collections::HashMap;

use async_trait::async_trait;

use super::endpoint::{Source, TransferError};
use super::observer::{Observer, Phase};
use super::row::{Cell, Row};
use super::table::Table;
use crate::OwnerId;
use crate::seal::{self, Checked, StoredContent, StoredVersionContent};

/// The tables whose rows have checksums.
const CHECKED: [&str; 3] = ["entries", "images", "artifact_versions"];

/// A source whose rows can be read individually when reading a batch fails.
#[async_trait]
pub trait Examined: Source {
    /// Structural damage that the database itself reports, one line per finding.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn structure(&mut self) -> Result<Vec<String>, TransferError>;

    /// The keys of at most [`BATCH_ROWS`](super::BATCH_ROWS) rows after this one, read from an index if possible.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn keys(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Vec<Cell>>, TransferError>;

    /// The row with this key. `None` when it does not exist.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn row(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        key: &[Cell],
    ) -> Result<Option<Row>, TransferError>;
}

/// A piece of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The owner of the row. `None` for damage to the structure of the database.
    pub owner: Option<OwnerId>,
    /// The row, or the damaged part of the structure.
    pub what: String,
    /// The damaged part of the row, such as `text`. Empty when the row cannot be read at all, and for damage to the
    /// structure.
    pub field: &'static str,
}

/// Totals of an examination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examination {
    /// Rows that were compared with their checksums.
    pub checked: u64,
    /// Rows without checksums, and entries whose checksums are of an earlier version.
    pub unsealed: u64,
    /// Pieces of damage.
    pub findings: u64,
}

/// Receives the findings of an examination.
pub trait Examiner: Observer {
    /// Called for each finding.
    fn found(&mut self, finding: &Finding);
}

/// Reads every row that has checksums, and the structural damage that the database reports. Changes nothing, and may
/// run while the service writes, because a row and its checksums are read together.
///
/// # Errors
/// [`TransferError`] when the owners cannot be read, so also when the connection breaks. Anything else that cannot be
/// read is a finding.
pub async fn examine(
    source: &mut dyn Examined,
    examiner: &mut dyn Examiner,
) -> Result<Examination, TransferError> {
    let mut examining = Examining {
        source,
        examiner,
        done: 0,
        total: 0,
        result: Examination::default(),
    };
    match examining.source.structure().await {
        Ok(lines) => lines
            .into_iter()
            .for_each(|what| examining.finding(None, what, "")),
        Err(error) => examining.finding(None, cause(&error), ""),
    }
    for name in CHECKED {
        if let Some(table) = Table::named(name) {
            examining.total += examining.source.count(table).await.unwrap_or(0);
        }
    }
    let mut after: Option<OwnerId> = None;
    loop {
        let heads = examining.source.owners(after.as_ref()).await?;
        let Some(last) = heads.last() else {
            return Ok(examining.result);
        };
        after = Some(last.owner.clone());
        for head in &heads {
            examining.owner(&head.owner).await?;
        }
    }
}

struct Examining<'e> {
    source: &'e mut dyn Examined,
    examiner: &'e mut dyn Examiner,
    done: u64,
    total: u64,
    result: Examination,
}

impl Examining<'_> {
    fn finding(&mut self, owner: Option<&OwnerId>, what: String, field: &'static str) {
        self.result.findings += 1;
        self.examiner.found(&Finding {
            owner: owner.cloned(),
            what,
            field,
        });
    }

    async fn owner(&mut self, owner: &OwnerId) -> Result<(), TransferError> {
        // For each entry with images, the number of images not seen yet. Negative if there are more than expected.
        let mut images = HashMap::new();
        for name in CHECKED {
            let Some(table) = Table::named(name) else {
                continue;
            };
            self.table(owner, table, &mut images).await?;
            if name == "images" {
                self.count_images(owner, table, &images).await;
            }
        }
        Ok(())
    }

    async fn table(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        images: &mut HashMap<i64, i64>,
    ) -> Result<(), TransferError> {
        let mut after = Vec::new();
        loop {
            match self.source.read(owner, table, &after).await {
                Ok(rows) => {
                    let Some(last) = rows.last() else {
                        return Ok(());
                    };
                    after = last.key(table);
                    rows.iter()
                        .for_each(|row| self.row(owner, table, row, images));
                }
                // One of the rows cannot be read. The others are read individually.
                Err(error) => match self.one_by_one(owner, table, &after, images).await {
                    Ok(Some(last)) => after = last,
                    Ok(None) => return Ok(()),
                    Err(_) => {
                        self.check_connection().await?;
                        let from = if after.is_empty() {
                            String::new()
                        } else {
                            format!(" after {}", named(table, &after))
                        };
                        let (name, why) = (table.name, cause(&error));
                        let what = format!("{name}{from} cannot be read: {why}");
                        self.finding(Some(owner), what, "");
                        return Ok(());
                    }
                },
            }
            self.examiner
                .progress(Phase::Examine, table.name, self.done, self.total);
        }
    }

    /// Fails if the database does not respond any more, which is no damage. The owners were readable before.
    async fn check_connection(&mut self) -> Result<(), TransferError> {
        self.source.owners(None).await.map(drop)
    }

    /// Reads the rows of a batch individually. Returns the last key when there may be more rows.
    async fn one_by_one(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
        images: &mut HashMap<i64, i64>,
    ) -> Result<Option<Vec<Cell>>, TransferError> {
        let keys = self.source.keys(owner, table, after).await?;
        for key in &keys {
            match self.source.row(owner, table, key).await {
                Ok(Some(row)) => self.row(owner, table, &row, images),
                // The row was deleted in the meantime, or an index refers to a missing row, which is structural damage.
                Ok(None) => {}
                Err(error) => {
                    self.check_connection().await?;
                    self.done += 1;
                    self.finding(
                        Some(owner),
                        format!("{} cannot be read ({})", named(table, key), cause(&error)),
                        "",
                    );
                }
            }
        }
        Ok(keys.last().cloned())
    }

    fn row(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        row: &Row,
        images: &mut HashMap<i64, i64>,
    ) {
        self.done += 1;
        let seal = row.cell(table, "seal").and_then(|cell| {
            if let Cell::Bytes(seal) = cell {
                Some(&seal[..])
            } else {
                None
            }
        });
        if seal.is_none() {
            self.result.unsealed += 1;
        }
        self.result.checked += u64::from(seal.is_some());
        let (id, metadata) = (row.int(table, "id"), row.text(table, "metadata"));
        let damaged = match table.name {
            "entries" => {
                if row.int(table, "image_count") > 0 {
                    images.insert(id, row.int(table, "image_count"));
                }
                let stored = StoredContent {
                    id,
                    version: row.int(table, "version"),
                    seal,
                    text: row.text(table, "text"),
                    metadata,
                };
                match seal::check_entry(&stored, true) {
                    Checked::Damaged(part) => Some(part.as_str()),
                    Checked::Sound => None,
                    Checked::Unsealed => {
                        // Checksums of an earlier version are ignored.
                        self.result.checked -= u64::from(seal.is_some());
                        self.result.unsealed += u64::from(seal.is_some());
                        None
                    }
                }
            }
            "images" => {
                // Also of an entry that has no images according to its row.
                *images.entry(id).or_default() -= 1;
                let metadata = row.cell(table, "metadata").and_then(|cell| {
                    if let Cell::Text(json) = cell {
                        Some(json.as_str())
                    } else {
                        None
                    }
                });
                let (position, mime_type, data) = (
                    row.int(table, "position"),
                    row.text(table, "mime_type"),
                    row.bytes(table, "data"),
                );
                (!seal::agrees(seal, || {
                    seal::image(id, position, mime_type, metadata, data)
                }))
                .then_some("image")
            }
            _ => {
                let (id, version, title) = (
                    row.text(table, "artifact_id"),
                    row.int(table, "version"),
                    row.text(table, "title"),
                );
                let whole = StoredVersionContent {
                    id,
                    version,
                    title,
                    metadata: Some(metadata),
                    content: Some(row.text(table, "content")),
                };
                // Without a part, only the others are compared.
                let is_sound = |content, metadata| {
                    let read = StoredVersionContent {
                        content,
                        metadata,
                        ..whole
                    };
                    seal::artifact_is_sound(&read, seal)
                };
                if is_sound(whole.content, whole.metadata) {
                    None
                } else if is_sound(None, whole.metadata) {
                    Some("content")
                } else if is_sound(whole.content, None) {
                    Some("metadata")
                } else if is_sound(None, None) {
                    Some("content and metadata")
                } else {
                    Some("title or checksum")
                }
            }
        };
        if let Some(field) = damaged {
            self.finding(Some(owner), named(table, &row.key(table)), field);
        }
    }

    /// Reports entries whose number of images differs from their `image_count`. Those that seem to differ are read
    /// again, because they may have been written in the meantime.
    async fn count_images(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        left: &HashMap<i64, i64>,
    ) {
        let Some(entries) = Table::named("entries") else {
            return;
        };
        let mut ids: Vec<i64> = left
            .iter()
            .filter(|(_, left)| **left != 0)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            let Ok(Some(entry)) = self.source.row(owner, entries, &[Cell::Int(id)]).await else {
                continue;
            };
            let Ok(keys) = self
                .source
                .keys(owner, table, &[Cell::Int(id), Cell::Int(-1)])
                .await
            else {
                continue;
            };
            let found = keys
                .iter()
                .filter(|key| key.first() == Some(&Cell::Int(id)))
                .count();
            if i64::try_from(found) != Ok(entry.int(entries, "image_count")) {
                self.finding(Some(owner), format!("context {id}"), "images");
            }
        }
    }
}

/// The cause of an error, without the advice to run a migration again.
fn cause(error: &TransferError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Names a row in the terms that an operator knows.
fn named(table: &Table, key: &[Cell]) -> String {
    let part = |at: usize| match key.get(at) {
        Some(Cell::Int(number)) => number.to_string(),
        Some(Cell::Text(text)) => text.clone(),
        Some(Cell::Null | Cell::List(_) | Cell::Bytes(_)) | None => String::new(),
    };
    match table.name {
        "entries" => format!("context {}", part(0)),
        "images" => format!("context {}, image {}", part(0), part(1)),
        _ => format!("artifact {}, version {}", part(0), part(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::Head;
    use super::*;
    use crate::EmbeddingModel;

    /// A database whose connection breaks after its owners were read once.
    struct Broken {
        has_responded: bool,
    }

    fn broken<T>() -> Result<T, TransferError> {
        Err(TransferError::database("db", "connection closed"))
    }

    #[async_trait]
    impl Source for Broken {
        fn shown(&self) -> &str {
            "db"
        }

        fn holds(&self, _: &Table) -> bool {
            true
        }

        async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError> {
            broken()
        }

        async fn owners(&mut self, _: Option<&OwnerId>) -> Result<Vec<Head>, TransferError> {
            if std::mem::replace(&mut self.has_responded, true) {
                return broken();
            }
            Ok(vec![Head {
                owner: OwnerId::default(),
                revision: 1,
                next_id: 2,
            }])
        }

        async fn count(&mut self, _: &'static Table) -> Result<u64, TransferError> {
            broken()
        }

        async fn read(
            &mut self,
            _: &OwnerId,
            _: &'static Table,
            _: &[Cell],
        ) -> Result<Vec<Row>, TransferError> {
            broken()
        }
    }

    #[async_trait]
    impl Examined for Broken {
        async fn structure(&mut self) -> Result<Vec<String>, TransferError> {
            Ok(Vec::new())
        }

        async fn keys(
            &mut self,
            _: &OwnerId,
            _: &'static Table,
            _: &[Cell],
        ) -> Result<Vec<Vec<Cell>>, TransferError> {
            broken()
        }

        async fn row(
            &mut self,
            _: &OwnerId,
            _: &'static Table,
            _: &[Cell],
        ) -> Result<Option<Row>, TransferError> {
            broken()
        }
    }

    #[derive(Default)]
    struct Findings(Vec<Finding>);

    impl Observer for Findings {
        fn progress(&mut self, _: Phase, _: &'static str, _: u64, _: u64) {}

        fn note(&mut self, _: &str) {}
    }

    impl Examiner for Findings {
        fn found(&mut self, finding: &Finding) {
            self.0.push(finding.clone());
        }
    }

    #[tokio::test]
    async fn a_broken_connection_is_an_error_and_no_damage() {
        let mut source = Broken {
            has_responded: false,
        };
        let mut findings = Findings::default();
        let examined = examine(&mut source, &mut findings).await;
        assert!(examined.is_err());
        assert!(findings.0.is_empty(), "{:?}", findings.0);
    }
}
