//! An mcp-context-server's database as the source of a migration. All its entries become entries of one owner.
//!
//! Versions 0.1 to 2.x number entries with integers, which are kept. Version 3 uses UUIDs. Those entries are numbered
//! from 1 in the order of their creation. The UUID is stored in the metadata under [`ID_KEY`], and UUIDs in
//! `references.context_ids` of the metadata are replaced by the new numbers. Each entry gets the one change that its
//! creation would have written. Vectors are not copied, because that server does not record precisely enough which
//! model created them. Values that break a rule of this service are changed and added to the [`Losses`].

mod convert;
mod old;

use std::collections::HashMap;

use async_trait::async_trait;
use context_model::Limits;

use super::endpoint::{Head, Source, TransferError};
use super::losses::Losses;
use super::row::{Cell, Row};
use super::table::Table;
use super::{BATCH_BYTES, BATCH_ROWS};
use crate::{EmbeddingModel, OwnerId};

pub use convert::{ID_KEY, METADATA_KEY, SOURCE_KEY, TAGS_KEY, THREAD_KEY};
pub use old::{Listed, OldDatabase, OldEntry, OldId, OldImage, OldTime};

/// An old database as a source. Holds the ids of all entries in memory, about a hundred bytes per entry.
#[derive(Debug)]
pub struct Predecessor<D> {
    database: D,
    owner: OwnerId,
    listed: Vec<Listed>,
    /// The new number of each UUID.
    numbers: HashMap<u128, i64>,
    /// The changed values of the entries read so far. Reading the first entry clears them.
    entry_losses: Losses,
    /// The changed values of the images read so far. Reading the first image clears them.
    image_losses: Losses,
}

impl<D: OldDatabase> Predecessor<D> {
    /// Lists the entries, which become entries of `owner`.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn open(mut database: D, owner: OwnerId) -> Result<Self, TransferError> {
        let listed = database.list().await?;
        let mut numbers = HashMap::new();
        for (entry, number) in listed.iter().zip(1..) {
            match entry.id {
                OldId::Uuid(bits) => _ = numbers.insert(bits, number),
                OldId::Number(id) if (1..=Limits::MAX_ID).contains(&id) => {}
                OldId::Number(id) => {
                    return Err(TransferError::Refused(format!(
                        "the entry {id} of {} cannot be migrated: ids are from 1 to {}",
                        database.shown(),
                        Limits::MAX_ID
                    )));
                }
            }
        }
        Ok(Self {
            database,
            owner,
            listed,
            numbers,
            entry_losses: Losses::default(),
            image_losses: Losses::default(),
        })
    }

    /// The id that the entry at this index of `listed` gets.
    fn number(&self, at: usize) -> i64 {
        match self.listed[at].id {
            OldId::Number(number) => number,
            OldId::Uuid(_) => i64::try_from(at + 1).unwrap_or(i64::MAX),
        }
    }

    /// The index in `listed` of the first entry whose number is greater than this one.
    fn index_after(&self, number: i64) -> usize {
        let (mut low, mut high) = (0, self.listed.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.number(middle) > number {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Entries from an index on, limited to one batch.
    async fn read_batch(&mut self, from: usize) -> Result<Vec<OldEntry>, TransferError> {
        let mut bytes = 0;
        let mut ids = Vec::new();
        for entry in self.listed[from..].iter().take(BATCH_ROWS) {
            if bytes >= BATCH_BYTES {
                break;
            }
            bytes += usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            ids.push(entry.id);
        }
        if ids.is_empty() {
            Ok(Vec::new())
        } else {
            self.database.entries(&ids).await
        }
    }

    async fn entries(&mut self, from: usize) -> Result<Vec<Row>, TransferError> {
        let found = self.read_batch(from).await?;
        // The entries are read twice, to copy and to compare them, but must be counted once.
        let mut losses = match from {
            0 => Losses::default(),
            _ => std::mem::take(&mut self.entry_losses),
        };
        let row = |(entry, at): (OldEntry, usize)| {
            let Listed { id, images, .. } = self.listed[at];
            let number = self.number(at);
            convert::entry(number, id, images, entry, &self.numbers, &mut losses)
        };
        let rows = found.into_iter().zip(from..).map(row).collect();
        self.entry_losses = losses;
        Ok(rows)
    }

    /// The changes that the creation of the entries would have written. They get consecutive revisions.
    async fn changes(&mut self, from: usize) -> Result<Vec<Row>, TransferError> {
        let found = self.read_batch(from).await?;
        let row = |(entry, at): (OldEntry, usize)| {
            let revision = i64::try_from(at + 1).unwrap_or(i64::MAX);
            convert::change(revision, self.number(at), &entry)
        };
        Ok(found.into_iter().zip(from..).map(row).collect())
    }

    /// The images of the next entry that has any.
    async fn images(&mut self, after: &[Cell]) -> Result<Vec<Row>, TransferError> {
        let (number, position) = (int(after.first()), int(after.get(1)));
        // The next batch begins with the next entry, or with the same one if its last image was not in the previous
        // batch.
        let mut at = self.index_after(if after.is_empty() { 0 } else { number });
        if !after.is_empty()
            && at > 0
            && self.number(at - 1) == number
            && i64::from(self.listed[at - 1].images) > position + 1
        {
            at -= 1;
        }
        while self.listed.get(at).is_some_and(|entry| entry.images == 0) {
            at += 1;
        }
        let Some(entry) = self.listed.get(at).copied() else {
            return Ok(Vec::new());
        };
        let id = self.number(at);
        let images = self.database.images(entry.id).await?;
        if after.is_empty() {
            self.image_losses = Losses::default();
        }
        let losses = &mut self.image_losses;
        Ok(images
            .into_iter()
            .zip(0..)
            .filter(|(_, next)| after.is_empty() || (id, *next) > (number, position))
            .map(|(image, position)| convert::image(id, position, image, losses))
            .collect())
    }
}

fn int(cell: Option<&Cell>) -> i64 {
    if let Some(Cell::Int(value)) = cell {
        *value
    } else {
        0
    }
}

#[async_trait]
impl<D: OldDatabase> Source for Predecessor<D> {
    fn shown(&self) -> &str {
        self.database.shown()
    }

    fn holds(&self, table: &Table) -> bool {
        matches!(table.name, "entries" | "images" | "changes")
    }

    async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError> {
        Ok(None)
    }

    async fn owners(&mut self, after: Option<&OwnerId>) -> Result<Vec<Head>, TransferError> {
        if after.is_some_and(|after| after.as_str() >= self.owner.as_str()) {
            return Ok(Vec::new());
        }
        let revision = i64::try_from(self.listed.len()).unwrap_or(i64::MAX);
        let next_id = self
            .listed
            .len()
            .checked_sub(1)
            .map_or(1, |last| self.number(last) + 1);
        Ok(vec![Head {
            owner: self.owner.clone(),
            revision,
            next_id,
        }])
    }

    async fn count(&mut self, table: &'static Table) -> Result<u64, TransferError> {
        Ok(match table.name {
            "entries" | "changes" => self.listed.len() as u64,
            "images" => self
                .listed
                .iter()
                .map(|entry| u64::from(entry.images))
                .sum(),
            _ => 0,
        })
    }

    fn losses(&self) -> Losses {
        self.entry_losses.clone().with(self.image_losses.clone())
    }

    async fn read(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Row>, TransferError> {
        if *owner != self.owner {
            return Ok(Vec::new());
        }
        match table.name {
            "entries" => self.entries(self.index_after(int(after.first()))).await,
            "changes" => {
                self.changes(
                    usize::try_from(int(after.first()))
                        .unwrap_or(usize::MAX)
                        .min(self.listed.len()),
                )
                .await
            }
            "images" => self.images(after).await,
            _ => Ok(Vec::new()),
        }
    }
}
