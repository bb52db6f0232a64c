//! Runs a migration: copies all rows in batches, then compares the two databases.

use sha2::{Digest as _, Sha256};

use super::endpoint::{Head, Source, Target, TransferError, place};
use super::losses::Losses;
use super::mark::{Mark, Position};
use super::observer::{Observer, Phase};
use super::row::{Cell, Row};
use super::table::{Column, TABLES, Table};
use super::verify::{Verified, verify};
use crate::OwnerId;

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Number of rows copied by this run. Earlier, interrupted runs copied the others.
    pub copied: u64,
    /// The verified rows of each owner and table.
    pub verified: Vec<Verified>,
    /// Tables whose rows the target cannot store, with the number of rows.
    pub left_behind: Vec<(&'static str, u64)>,
    /// The values that the source had to change, because a rule of this service is stricter.
    pub losses: Losses,
}

/// Copies everything from `source` into `target` and compares the two. `target` must be empty, or hold an interrupted
/// migration from the same source.
///
/// # Errors
/// [`TransferError`]. What was copied stays, and the next call continues from there.
pub async fn migrate(
    source: &mut dyn Source,
    target: &mut dyn Target,
    observer: &mut dyn Observer,
) -> Result<Report, TransferError> {
    let receiver = target.source();
    let (tables, unsupported): (Vec<&'static Table>, Vec<_>) = TABLES
        .iter()
        .filter(|table| source.holds(table))
        .partition(|table| receiver.holds(table));
    let mut left_behind = Vec::new();
    for table in unsupported {
        let rows = source.count(table).await?;
        if rows > 0 {
            left_behind.push((table.name, rows));
        }
    }
    let mut mark = Mark {
        from: source.shown().to_owned(),
        state: state(source).await?,
        at: None,
    };
    let (mut total, mut done) = (0, 0);
    for table in &tables {
        total += source.count(table).await?;
    }
    match target.mark().await? {
        Some(text) => {
            mark.at = resumed(&mark, &text, target.source().shown())?;
            for table in &tables {
                done += target.source().count(table).await?;
            }
            observer.note(&format!(
                "continues after {done} of {total} rows, where it was interrupted"
            ));
        }
        None if target.is_empty().await? => {
            let (model, erased) = (source.model().await?, source.erased_owners().await?);
            target
                .begin(model.as_ref(), &erased, &mark.to_text())
                .await?;
        }
        None => {
            return Err(TransferError::Refused(format!(
                "the target {} is not empty; a migration fills an empty database only: name another one",
                target.source().shown()
            )));
        }
    }
    let mut copying = Copying {
        source,
        target,
        observer,
        mark,
        done,
        total,
        copied: 0,
    };
    copying.owners(&tables).await?;
    let Copying {
        source,
        target,
        observer,
        copied,
        ..
    } = copying;
    let verified = verify(source, target.source(), &tables, total, observer).await?;
    target.finish().await?;
    Ok(Report {
        copied,
        verified,
        left_behind,
        losses: source.losses(),
    })
}

/// A checksum of the owners, their revisions and their next ids. Every change of an entry or artifact changes it.
/// Changes without a revision, such as those of keys and summaries and updates in a predecessor's database, do not. If
/// they concern rows that were already copied, the comparison at the end finds the difference.
async fn state(source: &mut dyn Source) -> Result<String, TransferError> {
    let mut sum = Sha256::new();
    let mut after: Option<OwnerId> = None;
    loop {
        let heads = source.owners(after.as_ref()).await?;
        let Some(last) = heads.last() else { break };
        after = Some(last.owner.clone());
        for Head {
            owner,
            revision,
            next_id,
        } in &heads
        {
            sum.update(format!("{}\0{revision}\0{next_id}\0", owner.as_str()));
        }
    }
    Ok(sum
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The position to continue from, if the stored mark belongs to the same migration.
fn resumed(now: &Mark, before: &str, target: &str) -> Result<Option<Position>, TransferError> {
    let refused = |what: String| Err(TransferError::Refused(what));
    let Some(before) = Mark::parse(before) else {
        return Err(another_version(target));
    };
    if before.from != now.from {
        return refused(format!(
            "the target {target} holds an incomplete migration from {}; continue with that source, or name another target",
            before.from
        ));
    }
    if before.state != now.state {
        return refused(format!(
            "the source {} has changed since the migration into {target} began; empty the target and start again while nothing \
             writes to the source",
            now.from
        ));
    }
    Ok(before.at)
}

/// The error for a mark that this version cannot continue from.
fn another_version(target: &str) -> TransferError {
    TransferError::Refused(format!(
        "the target {target} is being filled by another version of this program; continue with that version"
    ))
}

struct Copying<'m> {
    source: &'m mut dyn Source,
    target: &'m mut dyn Target,
    observer: &'m mut dyn Observer,
    mark: Mark,
    done: u64,
    total: u64,
    copied: u64,
}

impl Copying<'_> {
    async fn owners(&mut self, tables: &[&'static Table]) -> Result<(), TransferError> {
        // Everything up to this position was already copied.
        let resume = self.mark.at.take();
        let mut after = resume.as_ref().map(|at| OwnerId::new(at.owner.clone()));
        if let Some(Position {
            owner,
            table: Some(table),
            after: key,
        }) = resume
        {
            let owner = OwnerId::new(owner);
            let head = self.head(&owner).await?;
            let Some(from) = tables.iter().position(|known| known.name == table) else {
                return Err(another_version(self.target.source().shown()));
            };
            self.owner(&head, tables.get(from..).unwrap_or_default(), key)
                .await?;
        }
        loop {
            let heads = self.source.owners(after.as_ref()).await?;
            let Some(last) = heads.last() else {
                return Ok(());
            };
            after = Some(last.owner.clone());
            for head in &heads {
                self.owner(head, tables, Vec::new()).await?;
            }
        }
    }

    /// Finds the source's current counters of an owner.
    async fn head(&mut self, owner: &OwnerId) -> Result<Head, TransferError> {
        let mut after: Option<OwnerId> = None;
        loop {
            let heads = self.source.owners(after.as_ref()).await?;
            if let Some(head) = heads.iter().find(|head| head.owner == *owner) {
                return Ok(head.clone());
            }
            let Some(last) = heads.last() else {
                return Err(TransferError::Refused(format!(
                    "the source no longer has an owner `{}`",
                    owner.as_str().escape_debug()
                )));
            };
            after = Some(last.owner.clone());
        }
    }

    async fn owner(
        &mut self,
        head: &Head,
        tables: &[&'static Table],
        mut after: Vec<Cell>,
    ) -> Result<(), TransferError> {
        for &table in tables {
            self.table(&head.owner, table, std::mem::take(&mut after))
                .await?;
        }
        self.mark.at = Some(Position {
            owner: head.owner.as_str().to_owned(),
            table: None,
            after: Vec::new(),
        });
        self.target.close_owner(head, &self.mark.to_text()).await
    }

    async fn table(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: Vec<Cell>,
    ) -> Result<(), TransferError> {
        let mut batch = self
            .source
            .read(owner, table, &after)
            .await
            .map_err(|error| error.at(rows_after(owner, table, &after)))?;
        while let Some(last) = batch.last() {
            let after = last.key(table);
            let mark = self.mark_at(owner, table, &after);
            // The source reads the next batch while the target writes this one.
            let (written, next) = futures::join!(
                self.target.write(owner, table, &batch, &mark),
                self.source.read(owner, table, &after)
            );
            if let Err(error) = written {
                self.write_singly(owner, table, &batch, error).await?;
            }
            self.done += batch.len() as u64;
            self.copied += batch.len() as u64;
            self.observer
                .progress(Phase::Copy, table.name, self.done, self.total);
            batch = next.map_err(|error| error.at(rows_after(owner, table, &after)))?;
        }
        Ok(())
    }

    /// Writes the rows of a batch one by one after the batch failed, so that the error names the first row that fails.
    async fn write_singly(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        batch: &[Row],
        error: TransferError,
    ) -> Result<(), TransferError> {
        if !matches!(error, TransferError::Database { .. }) {
            return Err(error);
        }
        for row in batch {
            let key = row.key(table);
            let mark = self.mark_at(owner, table, &key);
            let written = self
                .target
                .write(owner, table, std::slice::from_ref(row), &mark);
            let at = |error: TransferError| {
                let key = key_text(table, &key);
                error.at(format!("{}, the row with {key}", place(owner, table)))
            };
            written.await.map_err(at)?;
        }
        Ok(())
    }

    /// The mark for a batch that ends with this key.
    fn mark_at(&mut self, owner: &OwnerId, table: &Table, after: &[Cell]) -> String {
        self.mark.at = Some(Position {
            owner: owner.as_str().to_owned(),
            table: Some(table.name.to_owned()),
            after: after.to_vec(),
        });
        self.mark.to_text()
    }
}

/// The rows after this key, for a message.
fn rows_after(owner: &OwnerId, table: &Table, key: &[Cell]) -> String {
    let place = place(owner, table);
    if key.is_empty() {
        format!("{place}, the first rows")
    } else {
        format!("{place}, the rows after {}", key_text(table, key))
    }
}

/// A key for a message, such as `id 5, position 0`.
fn key_text(table: &Table, key: &[Cell]) -> String {
    let part = |(column, cell): (&Column, &Cell)| match cell {
        Cell::Int(number) => format!("{} {number}", column.name),
        Cell::Text(text) => format!("{} `{}`", column.name, text.escape_debug()),
        Cell::Null | Cell::List(_) | Cell::Bytes(_) => column.name.to_owned(),
    };
    let parts: Vec<String> = table.key_columns().iter().zip(key).map(part).collect();
    parts.join(", ")
}
