//! Reads both databases again and compares them.

use sha2::{Digest as _, Sha256};

use super::endpoint::{Head, Source, TransferError};
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
        let (heads, found) = (
            source.owners(after.as_ref()).await?,
            target.owners(after.as_ref()).await?,
        );
        if let Some((head, other)) = differing(&heads, &found) {
            return Err(TransferError::Differs(format!(
                "owner {head:?} of the source is {other:?} in the target"
            )));
        }
        let Some(last) = heads.last() else {
            return Ok(verified);
        };
        after = Some(last.owner.clone());
        for head in &heads {
            for &table in tables {
                let (here, there) = futures::join!(
                    sum(source, &head.owner, table),
                    sum(target, &head.owner, table)
                );
                let ((rows, checksum), (rows_there, checksum_there)) = (here?, there?);
                if (rows, &checksum) != (rows_there, &checksum_there) {
                    return Err(TransferError::Differs(format!(
                        "table {} of owner `{}` has {rows} rows with checksum {checksum} in the source, and {rows_there} rows with checksum {checksum_there} in the target",
                        table.name,
                        head.owner.as_str()
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

fn differing<'h>(
    here: &'h [Head],
    there: &'h [Head],
) -> Option<(Option<&'h Head>, Option<&'h Head>)> {
    (0..here.len().max(there.len()))
        .map(|at| (here.get(at), there.get(at)))
        .find(|(here, there)| here != there)
}

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
