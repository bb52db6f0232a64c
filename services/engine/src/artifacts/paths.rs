//! Moving and deleting artifacts by their path.

use context_model::{
    ArtifactPath, DeleteArtifactsReply, DeleteArtifactsRequest, Error, MoveArtifactsReply,
    MoveArtifactsRequest, Operation, Result,
};
use context_store::{ArtifactSelection, Page, PageStart, Read, Usage};

use super::{Artifacts, failed};
use crate::access::{Caller, WriteContext};

impl Artifacts {
    /// Moves the artifact at `path`, and every artifact below it, to the path `to`. Either all are moved or none. A
    /// move creates no new version.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND` when no artifact has the path or lies below it; `PATH_TAKEN` when
    /// another artifact is at `to`, below it or above it; `QUOTA_EXCEEDED`; `SCOPE_MISSING` without `write`; the store's
    /// errors.
    pub async fn move_artifacts(
        &self,
        caller: &Caller,
        request: MoveArtifactsRequest,
        write: WriteContext,
    ) -> Result<MoveArtifactsReply> {
        caller.require(Operation::MoveArtifacts)?;
        let options = self
            .writes
            .options(caller, "move_artifacts", &request, &write)?;
        let (from, to) = from_and_to(request)?;
        let usage = Usage {
            bytes: self.added_bytes(caller, &from, &to).await,
            ..Usage::default()
        };
        self.writes.admit(caller, &options, 1, usage).await?;
        let written = self
            .store
            .artifacts()
            .move_artifacts(&caller.owner, from, to, options)
            .await;
        let written = written.map_err(|error| failed(error, "move artifacts"))?;
        let moved_count = i64::try_from(written.outcome).unwrap_or(i64::MAX);
        Ok(MoveArtifactsReply {
            moved_count,
            message: format!("Moved {}", count(moved_count)),
            revision: written.revision,
        })
    }

    /// Maximum number of bytes by which a move makes paths longer. 0 if no quota is set, or if counting the artifacts
    /// fails. The write then reports the failure.
    async fn added_bytes(&self, caller: &Caller, from: &ArtifactPath, to: &ArtifactPath) -> u64 {
        let (from, to) = (from.directory(), to.directory());
        let longer = to.len().saturating_sub(from.len()) as u64;
        if longer == 0 || !self.writes.has_quotas() {
            return 0;
        }
        let below = ArtifactSelection {
            path_prefix: Some(from),
            ..ArtifactSelection::default()
        };
        let page = Page {
            limit: 1,
            offset: 0,
        };
        let page = self.artifact_page(page, PageStart::Offset(0));
        let listed = self
            .store
            .artifacts()
            .list_artifacts(&caller.owner, below, page, Read::default())
            .await;
        // One more: the artifact at the path itself.
        listed.map_or(0, |page| {
            let count = u64::try_from(page.total).unwrap_or(0).saturating_add(1);
            longer.saturating_mul(count)
        })
    }

    /// Deletes the artifact at `path`, and every artifact below it, with all versions. Either all are deleted or none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `QUOTA_EXCEEDED` with an idempotency key; `SCOPE_MISSING` without `delete`; the store's
    /// errors.
    pub async fn delete_artifacts(
        &self,
        caller: &Caller,
        request: DeleteArtifactsRequest,
        write: WriteContext,
    ) -> Result<DeleteArtifactsReply> {
        caller.require(Operation::DeleteArtifacts)?;
        let options = self
            .writes
            .options(caller, "delete_artifacts", &request, &write)?;
        let DeleteArtifactsRequest { path } = request;
        let path = ArtifactPath::new(path, "path")?;
        self.writes
            .admit(caller, &options, 1, Usage::default())
            .await?;
        let written = self
            .store
            .artifacts()
            .delete_artifacts(&caller.owner, path, options)
            .await;
        let written = written.map_err(|error| failed(error, "delete artifacts"))?;
        self.writes.freed(caller, written.outcome).await;
        let deleted_count = i64::try_from(written.outcome).unwrap_or(i64::MAX);
        Ok(DeleteArtifactsReply {
            deleted_count,
            message: format!("Deleted {}", count(deleted_count)),
            revision: written.revision,
        })
    }
}

/// The validated paths of a move: from and to.
fn from_and_to(request: MoveArtifactsRequest) -> Result<(ArtifactPath, ArtifactPath)> {
    let MoveArtifactsRequest { path, to } = request;
    let (from, to) = (
        ArtifactPath::new(path, "path")?,
        ArtifactPath::new(to, "to")?,
    );
    if to.directory().starts_with(&from.directory()) {
        return Err(Error::invalid("to", "`to` is `path`, or lies below it"));
    }
    Ok((from, to))
}

fn count(artifacts: i64) -> String {
    match artifacts {
        1 => "1 artifact".to_owned(),
        other => format!("{other} artifacts"),
    }
}
