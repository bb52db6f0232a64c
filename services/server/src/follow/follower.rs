//! Maintains a copy by following changes. This is the reference for such clients; docs/sync.md explains each step.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use context_engine::{Clock as _, SystemClock};
use context_model::{Artifact, ArtifactId, Change, ContentType, Entry, Error, Reason, Result};
use context_proto::v1 as pb;
use context_proto::v1::watch_response::Frame;
use context_store::{
    ArtifactStore as _, Change as Row, ChangeKind, Changed, Copied, CopiedArtifact, CopiedVersion,
    CopyPosition, OwnerId, Read, StoreError, VersionLookup,
};
use context_store_sqlite::{Snapshot, SqliteStore};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use tokio::sync::watch;
use tonic::Streaming;

use super::batch::Batch;
use super::source::{Source, current_version, source_error};
use crate::metrics::CopyMetrics;

/// The source sends a frame at least every 15 seconds. After this long without one, the connection counts as lost.
const SILENCE: Duration = Duration::from_secs(45);
/// Interval at which the source's revision is fetched, which shows how far behind the copy is.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// How many versions of an artifact are fetched at once.
const VERSIONS_AT_ONCE: usize = 16;

/// A copy, and the service that it follows.
pub struct Follower {
    /// The copy.
    pub store: Arc<SqliteStore>,
    /// The file of the copy.
    pub database: std::path::PathBuf,
    /// The owner in the copy.
    pub owner: OwnerId,
    /// The service that it follows.
    pub source: Source,
    /// Metrics that show how far behind the copy is.
    pub metrics: CopyMetrics,
    /// The position up to which the copy is complete. `None` before the first snapshot.
    pub position: watch::Sender<Option<CopyPosition>>,
}

/// How a stream ended.
enum Ended {
    /// The next stream continues from the last cursor.
    Cut(String),
    /// The cursor is no longer usable. The next stream begins with a snapshot.
    Resync(String),
    /// No further stream can succeed before an operator acts.
    Stopped(String),
}

impl Follower {
    /// Follows the source until that is no longer possible. Returns the reason as a sentence.
    pub async fn run(self) -> String {
        tokio::select! {
            why = self.follow() => why,
            () = self.compare() => "the comparison with the source ended".to_owned(),
        }
    }

    /// Opens one stream after another. Returns why no further one can succeed.
    async fn follow(&self) -> String {
        let mut pauses = pauses();
        // Whether the next stream begins with a snapshot. The stored cursor stays until the snapshot is complete.
        let mut is_new = self.position.borrow().is_none();
        loop {
            let before = self.position.borrow().clone();
            let ended = match self.stream(is_new).await {
                Ok(ended) => ended,
                Err(error) => ended_by(error),
            };
            let has_advanced = *self.position.borrow() != before;
            is_new = self.position.borrow().is_none() || (is_new && !has_advanced);
            if has_advanced {
                pauses = self::pauses();
            }
            let source = self.source.shown();
            match ended {
                Ended::Stopped(why) => return why,
                Ended::Resync(why) => {
                    tracing::warn!(source, %why, "The copy reads everything again");
                    is_new = true;
                }
                // LOG_LEVEL hides warnings by default, and the operator waits for the copy.
                Ended::Cut(why) if self.position.borrow().is_none() => {
                    tracing::error!(source, %why, "There is no copy yet, because the source could not be read; will retry")
                }
                Ended::Cut(why) => {
                    tracing::warn!(source, %why, "The stream ended; opening another")
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or(SILENCE)).await;
        }
    }

    /// Applies one stream to the copy.
    async fn stream(&self, is_new: bool) -> Result<Ended> {
        let cursor = match &*self.position.borrow() {
            Some(position) if !is_new => Some(position.cursor.clone()),
            _ => None,
        };
        let mut frames = self.source.watch(cursor.as_deref()).await?;
        let mut snapshot = match cursor {
            Some(_) => None,
            None => Some(Snapshot::beside(&self.database).map_err(file_error)?),
        };
        let mut batch = Batch::default();
        loop {
            // Changes that have arrived are written together, at the latest when the stream pauses.
            let frame = match frames.message().now_or_never() {
                Some(frame) => frame.map_err(|status| source_error(&status))?,
                None => {
                    if batch.is_due(true) {
                        self.write(&mut batch).await?;
                    }
                    next(&mut frames).await?
                }
            };
            let Some(pb::WatchResponse { cursor, frame }) = frame else {
                return Ok(Ended::Cut("the source closed it".to_owned()));
            };
            self.metrics.set_last_contact(SystemClock.now());
            let Some(frame) = frame else { continue };
            match (frame, &mut snapshot) {
                (Frame::Opened(opened), _) => {
                    tracing::info!(
                        source = self.source.shown(),
                        revision = opened.revision,
                        is_new,
                        "Opened the stream of the source's changes"
                    );
                }
                (Frame::Entry(entry), Some(snapshot)) => {
                    // Written to a file first, so that no reader sees half of a snapshot.
                    let context = entry.context.map(Entry::try_from).transpose()?;
                    let artifact = entry.artifact.map(Artifact::try_from).transpose()?;
                    if let Some(copied) = self.complete(context, artifact, 0).await? {
                        snapshot.push(&copied).map_err(file_error)?;
                    }
                }
                (Frame::SnapshotEnd(pb::SnapshotEnd { revision }), _) => {
                    if let Some(snapshot) = snapshot.take() {
                        let position = CopyPosition { cursor, revision };
                        self.store
                            .copy_snapshot(
                                &self.owner,
                                snapshot,
                                position.clone(),
                                SystemClock.now(),
                            )
                            .await
                            .map_err(copy_error)?;
                        self.reached(position);
                    }
                }
                (Frame::Change(change) | Frame::Left(change), _) => {
                    let (revision, is_whole) = (change.revision, change.commit_end);
                    self.metrics.set_source_revision(revision);
                    self.add(&mut batch, change.try_into()?).await?;
                    batch.reached(CopyPosition { cursor, revision }, is_whole);
                }
                (Frame::Bookmark(pb::Bookmark { revision }), _) => {
                    self.metrics.set_source_revision(revision);
                    batch.reached(CopyPosition { cursor, revision }, true);
                }
                (Frame::Resync(pb::Resync { reason, .. }), _) => {
                    return Ok(match reason.as_str() {
                        "SLOW_CONSUMER" => Ended::Cut(reason),
                        _ => Ended::Resync(reason),
                    });
                }
                (Frame::End(pb::End { reason }), _) => {
                    return Ok(match reason.as_str() {
                        "OWNER_ERASED" => Ended::Stopped(
                            "the owner was erased at the source; the copy keeps what it has"
                                .to_owned(),
                        ),
                        // The next stream is refused with a sentence if the key is not valid any more.
                        _ => Ended::Cut(reason),
                    });
                }
                (Frame::Entry(_), None) => {}
            }
            if batch.is_due(false) {
                self.write(&mut batch).await?;
            }
        }
    }

    /// Adds a change to a batch. A change without a body means that the entry or artifact is gone.
    async fn add(&self, batch: &mut Batch, change: Change) -> Result<()> {
        if let Some(row) = row(&change) {
            batch.record(row);
        }
        let Change {
            entity,
            id,
            context,
            artifact,
            ..
        } = change;
        let copied = if entity == "artifact" {
            let pending = batch.take_artifact(&id);
            let have = match (&artifact, &pending) {
                (None, _) => 0,
                (Some(_), Some(pending)) => pending.artifact.version,
                (Some(_), None) => self.copied_version(&id).await?,
            };
            match (self.complete(None, artifact, have).await?, pending) {
                (Some(Copied::Artifact(mut copied)), Some(pending)) => {
                    if copied
                        .versions
                        .first()
                        .is_none_or(|first| first.version > have)
                    {
                        copied.versions.splice(0..0, pending.versions);
                    }
                    Some(Copied::Artifact(copied))
                }
                (copied, _) => copied,
            }
            .unwrap_or(Copied::ArtifactGone(id))
        } else {
            let number = id
                .parse()
                .map_err(|_| Error::internal(StoreError::Corrupt("an id of the source".into())))?;
            let copied = self.complete(context, None, 0).await?;
            copied.unwrap_or(Copied::EntryGone(number))
        };
        batch.add(copied);
        Ok(())
    }

    /// An entry with its images, or an artifact with its versions after version `have`. `None` if it is gone, or if the
    /// entry is damaged.
    async fn complete(
        &self,
        entry: Option<Entry>,
        artifact: Option<Artifact>,
        have: i64,
    ) -> Result<Option<Copied>> {
        if let Some(entry) = entry {
            // Frames have no images. The entry is fetched as a whole, because it may have changed meanwhile.
            let entry = match entry.content_type {
                ContentType::Text => Some(entry),
                ContentType::Multimodal => self.source.entry(entry.id).await?,
            };
            return Ok(entry.map(|entry| Copied::Entry(Box::new(entry))));
        }
        let Some(artifact) = artifact else {
            return Ok(None);
        };
        // A version below `have` means that the source's database was replaced by an older backup.
        let have = if artifact.version < have { 0 } else { have };
        let earlier =
            (have + 1..artifact.version).map(|number| self.source.version(&artifact.id, number));
        // Fetched several at once, because the source disconnects a reader that takes no frame for 30 seconds.
        let earlier: Vec<Option<CopiedVersion>> = futures::stream::iter(earlier)
            .buffered(VERSIONS_AT_ONCE)
            .try_collect()
            .await?;
        let mut versions: Vec<CopiedVersion> = earlier.into_iter().flatten().collect();
        if artifact.version > have {
            versions.push(current_version(&artifact));
        }
        let copied = CopiedArtifact { artifact, versions };
        Ok(Some(Copied::Artifact(Box::new(copied))))
    }

    /// The version of an artifact in the copy; 0 if the copy lacks it.
    async fn copied_version(&self, id: &str) -> Result<i64> {
        let id = ArtifactId::parse(id)?;
        let found = self
            .store
            .artifact_versions(&self.owner, id, Vec::new(), Read::default())
            .await
            .map_err(copy_error)?;
        Ok(match found.value {
            VersionLookup::NoArtifact => 0,
            VersionLookup::Artifact {
                current_version, ..
            } => current_version,
        })
    }

    /// Writes a batch and the cursor after it in one transaction.
    async fn write(&self, batch: &mut Batch) -> Result<()> {
        let Some((latest, changes, position)) = batch.take() else {
            return Ok(());
        };
        if self.position.borrow().as_ref() == Some(&position) {
            // The batch has only a bookmark at the position of the copy.
            return Ok(());
        }
        self.store
            .copy_changes(
                &self.owner,
                latest,
                changes,
                position.clone(),
                SystemClock.now(),
            )
            .await
            .map_err(copy_error)?;
        self.reached(position);
        Ok(())
    }

    fn reached(&self, position: CopyPosition) {
        self.metrics.set_copy_revision(position.revision);
        self.position.send_replace(Some(position));
    }

    /// Compares the revisions of source and copy at intervals of [`COMPARE_EVERY`]. Never ends.
    async fn compare(&self) {
        let mut was_in_step = false;
        loop {
            if let Ok(revision) = self.source.revision().await {
                self.metrics.set_source_revision(revision);
                let behind = self.metrics.behind();
                let reached = self
                    .position
                    .borrow()
                    .as_ref()
                    .map(|position| position.revision);
                if (behind == 0) != was_in_step || behind > 0 {
                    tracing::info!(behind, ?reached, "Compared the copy with the source");
                }
                was_in_step = behind == 0;
            }
            tokio::time::sleep(COMPARE_EVERY).await;
        }
    }
}

/// A change as a row of the database. Searches of the copy use these rows to leave out entries that changed while they
/// ran. `None` for `left`, which does not say what was changed.
fn row(change: &Change) -> Option<Row> {
    let kind = match change.operation.as_str() {
        "created" => ChangeKind::Create,
        "updated" => ChangeKind::Update,
        "restored" => ChangeKind::Restore,
        "deleted" => ChangeKind::Delete,
        _ => return None,
    };
    let changed = match &change.thread_id {
        Some(thread_id) => Changed::Context {
            id: change.id.parse().ok()?,
            thread_id: thread_id.clone(),
            source: change.context.as_ref().map(|entry| entry.source),
        },
        None => Changed::Artifact {
            id: change.id.clone(),
        },
    };
    Some(Row {
        revision: change.revision,
        at: change.time,
        kind,
        changed,
        version: change.version,
        key_id: change.key_id.clone(),
        commit_end: change.commit_end,
    })
}

/// The next frame, which must come soon.
async fn next(frames: &mut Streaming<pb::WatchResponse>) -> Result<Option<pb::WatchResponse>> {
    match tokio::time::timeout(SILENCE, frames.message()).await {
        Ok(frame) => frame.map_err(|status| source_error(&status)),
        Err(_) => Err(Error::new(
            Reason::StoreUnavailable,
            "the source sent nothing for 45 seconds",
        )),
    }
}

/// The pauses before the next streams: short at first, so that a restart of the source is hardly noticed.
fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(30))
        .with_jitter()
        .without_max_times()
        .build()
}

/// How a stream ends after an error of the source or of the copy.
fn ended_by(error: Error) -> Ended {
    match error.reason {
        Reason::ResyncRequired | Reason::CursorCompacted => Ended::Resync(error.message),
        Reason::CursorInvalid => Ended::Stopped(format!(
            "the source does not know this copy's cursor: the copy is of another owner or service ({})",
            error.message
        )),
        Reason::Unauthenticated
        | Reason::ScopeMissing
        | Reason::InvalidArgument
        | Reason::FeatureUnavailable => {
            Ended::Stopped(format!("the source refuses: {}", error.message))
        }
        _ => Ended::Cut(error.message),
    }
}

/// Logs and converts an error of the copy's database. Its work is retried: the disk may have space later.
fn copy_error(error: StoreError) -> Error {
    let error = error.into_error("changes");
    tracing::error!(error = %error, "The copy could not be read or written; will retry");
    Error::new(Reason::Internal, format!("the copy: {}", error.message))
}

fn file_error(error: std::io::Error) -> Error {
    copy_error(StoreError::Internal(error.into()))
}

#[cfg(test)]
mod tests {
    use context_proto::status_from_error;
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_refusal_ends_a_copy_only_if_the_service_itself_sent_it() {
        for (code, reason) in [
            (Code::Unauthenticated, Reason::Unauthenticated),
            (Code::PermissionDenied, Reason::ScopeMissing),
            (Code::InvalidArgument, Reason::InvalidArgument),
            (Code::FailedPrecondition, Reason::FeatureUnavailable),
        ] {
            let refused = status_from_error(&Error::new(reason, "refused"), code);
            let ended = ended_by(source_error(&refused));
            assert!(matches!(ended, Ended::Stopped(_)), "{code}");
        }
        // The codes that tonic gives the HTTP statuses 400, 401, 403 and 404 of a proxy.
        for code in [
            Code::Internal,
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::Unimplemented,
        ] {
            let ended = ended_by(source_error(&Status::new(code, "no route")));
            assert!(
                matches!(ended, Ended::Cut(why) if why == "no route"),
                "{code}"
            );
        }
    }
}
