//! The end of a migration: reads both databases again and compares their rows.

use sha2::{Digest as _, Sha256};

use super::endpoint::{Head, Source, TransferError, place};
use super::observer::{Observer, Phase};
use super::table::Table;
use crate::OwnerId;

/// The rows of one owner in one table, equal in both databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The owner.
    pub owner: OwnerId,
    /// The table.
    pub table: &'static str,
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 over the rows in the order of their keys, in hexadecimal.
    pub checksum: String,
}

/// Compares the rows of all owners in these tables.
pub(super) async fn verify(
    source: &mut dyn Source,
    target: &mut dyn Source,
    tables: &[&'static Table],
    total: u64,
    observer: &mut dyn Observer,
) -> Result<Vec<Verified>, TransferError> {
    let (mut verified, mut done) = (Vec::new(), 0);
    let mut after: Option<OwnerId> = None;
    loop {
        let (heads, target_heads) = (
            source.owners(after.as_ref()).await?,
            target.owners(after.as_ref()).await?,
        );
        if let Some((head, other)) = differing(&heads, &target_heads) {
            return Err(TransferError::Differs(format!(
                "the source has {} where the target has {}",
                shown(head),
                shown(other)
            )));
        }
        let Some(last) = heads.last() else {
            return Ok(verified);
        };
        after = Some(last.owner.clone());
        for head in &heads {
            for &table in tables {
                let (in_source, in_target) = futures::join!(
                    sum(source, &head.owner, table),
                    sum(target, &head.owner, table)
                );
                let ((rows, checksum), (target_rows, target_checksum)) = (in_source?, in_target?);
                if (rows, &checksum) != (target_rows, &target_checksum) {
                    return Err(TransferError::Differs(format!(
                        "{} has {rows} rows with checksum {checksum} in the source, and {target_rows} rows with checksum {target_checksum} in the target",
                        place(&head.owner, table)
                    )));
                }
                done += rows;
                observer.progress(Phase::Verify, table.name, done, total);
                if rows > 0 {
                    verified.push(Verified {
                        owner: head.owner.clone(),
                        table: table.name,
                        rows,
                        checksum,
                    });
                }
            }
        }
    }
}

/// The first owner that the source and the target do not have equally.
fn differing<'h>(
    source: &'h [Head],
    target: &'h [Head],
) -> Option<(Option<&'h Head>, Option<&'h Head>)> {
    (0..source.len().max(target.len()))
        .map(|at| (source.get(at), target.get(at)))
        .find(|(in_source, in_target)| in_source != in_target)
}

fn shown(head: Option<&Head>) -> String {
    let owner = |head: &Head| {
        let name = head.owner.as_str().escape_debug();
        let (revision, next) = (head.revision, head.next_id);
        format!("owner `{name}` with revision {revision} and next id {next}")
    };
    head.map_or_else(|| "no further owner".to_owned(), owner)
}

/// The number of an owner's rows of a table, and the SHA-256 over them.
async fn sum(
    source: &mut dyn Source,
    owner: &OwnerId,
    table: &'static Table,
) -> Result<(u64, String), TransferError> {
    let (mut sum, mut rows, mut after) = (Sha256::new(), 0, Vec::new());
    loop {
        let batch = source.read(owner, table, &after).await?;
        let Some(last) = batch.last() else { break };
        after = last.key(table);
        rows += batch.len() as u64;
        batch.iter().for_each(|row| row.digest(&mut sum));
    }
    let checksum = sum
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((rows, checksum))
}
