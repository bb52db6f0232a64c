//! Streams of changes, in steps that do not wait.

use context_model::{
    ArtifactId, Change, Operation, Reason, Result, SnapshotEntry, Timestamp, Violations,
    WatchEvent, WatchFrame, WatchRequest,
};
use context_store::{
    ArtifactPage, ArtifactSelection, Change as Row, ChangeKind, Changed, Page as StorePage,
    PageStart, Read, RowSelection,
};

use super::cursor::Cursor;
use super::feed::Changes;
use super::page::{Loaded, Position, Selected};
use super::selection::{MAX_PREVIEW_CHARS, Selection};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// How many changes, or entries of a snapshot, one step reads.
const STEP: u32 = 100;
/// Maximum bytes of the bodies of a step with several changes.
const STEP_BYTES: usize = 1024 * 1024;
/// A bookmark follows after this many changes that were left out.
const BOOKMARK_AFTER: usize = 1000;

/// A stream of changes.
pub struct Watch {
    selection: Selection,
    /// Everything up to this position was sent, or is in the snapshot.
    cursor: Cursor,
    snapshot: Option<Snapshot>,
    /// Changes that were left out since the last bookmark.
    left_out: usize,
}

/// The rest of a snapshot: first entries, then artifacts, each newest first.
enum Snapshot {
    /// The entries created at this time or before, except those with these ids, which were sent.
    Entries {
        until: Option<Timestamp>,
        sent: Vec<i64>,
    },
    /// The artifacts from here on.
    Artifacts(PageStart),
}

/// The result of one step.
pub struct Step {
    /// The frames, in order.
    pub events: Vec<WatchEvent>,
    /// Whether the next step should follow at once. If not, the stream waits for the next change first.
    pub has_more: bool,
}

impl Watch {
    /// A frame that says up to where everything was sent. `None` during a snapshot.
    #[must_use]
    pub fn bookmark(&mut self) -> Option<WatchEvent> {
        self.left_out = 0;
        let frame = WatchFrame::Bookmark {
            revision: self.cursor.revision,
        };
        self.snapshot.is_none().then(|| self.at_cursor(frame))
    }

    /// A read for the snapshot, of a state that includes the revision at which the snapshot began.
    fn snapshot_read(&self) -> Read {
        read::at(Some(self.cursor.revision))
    }

    fn at_cursor(&self, frame: WatchFrame) -> WatchEvent {
        WatchEvent {
            frame,
            cursor: Some(self.cursor.text()),
        }
    }
}

impl Changes {
    /// Opens a stream of changes and returns it with its first frame.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `CURSOR_INVALID`; `CURSOR_COMPACTED`; `RESYNC_REQUIRED`; `SCOPE_MISSING` without `read`; the
    /// store's errors.
    pub async fn watch(
        &self,
        caller: &Caller,
        request: WatchRequest,
    ) -> Result<(Watch, WatchEvent)> {
        caller.require(Operation::Watch)?;
        let WatchRequest {
            cursor,
            snapshot,
            filters,
            entity,
            include_body,
            preview_chars,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let snapshot = snapshot.unwrap_or(false);
        if snapshot && cursor.is_some() {
            violations.push(
                "snapshot",
                "`snapshot` and `cursor` exclude each other; give one of them",
            );
        }
        let preview_chars = validate::in_range(
            preview_chars.unwrap_or(0),
            &(0..=MAX_PREVIEW_CHARS),
            "preview_chars",
            &mut violations,
        );
        let min_revision = validate::min_revision(min_revision, &mut violations);
        let mut selection = Selection::new(
            caller,
            filters,
            entity,
            include_body.unwrap_or(false),
            preview_chars,
            &mut violations,
        );
        selection.page_bytes = STEP_BYTES;
        violations.finish(())?;
        let position = if snapshot {
            Position::Now
        } else {
            Position::read(cursor.as_deref(), &caller.owner)?
        };
        let cursor = self
            .locate(&caller.owner, position, read::at(min_revision))
            .await?;
        let opened = WatchFrame::Opened {
            revision: cursor.revision,
        };
        let watch = Watch {
            selection,
            cursor,
            snapshot: snapshot.then_some(Snapshot::Entries {
                until: None,
                sent: Vec::new(),
            }),
            left_out: 0,
        };
        let opened = WatchEvent {
            frame: opened,
            cursor: (!snapshot).then(|| watch.cursor.text()),
        };
        Ok((watch, opened))
    }

    /// The next frames of a stream for a caller with its present rights. It does not wait.
    ///
    /// # Errors
    /// `CURSOR_COMPACTED`; `RESYNC_REQUIRED`; `SCOPE_MISSING`; `OVERLOADED` if the caller's memory budget is too small;
    /// the store's errors. After the last two the step can be repeated.
    pub async fn next_step(&self, caller: &Caller, watch: &mut Watch) -> Result<Step> {
        caller.require(Operation::Watch)?;
        watch.selection.narrow_to(caller);
        if watch.snapshot.is_some() {
            return self.next_of_snapshot(caller, watch).await;
        }
        let position = Position::After(watch.cursor.clone());
        let page = self
            .page(caller, &watch.selection, position, STEP, Read::default())
            .await?;
        let scanned = usize::try_from(page.next.revision - watch.cursor.revision).unwrap_or(0);
        let mut events: Vec<WatchEvent> = page
            .changes
            .into_iter()
            .zip(page.cursors)
            .map(|(change, cursor)| WatchEvent {
                frame: WatchFrame::Change(Box::new(change)),
                cursor: Some(cursor.text()),
            })
            .collect();
        watch.cursor = page.next;
        watch.left_out += scanned - events.len().min(scanned);
        if watch.left_out >= BOOKMARK_AFTER {
            events.extend(watch.bookmark());
        }
        Ok(Step {
            events,
            has_more: page.has_more,
        })
    }

    /// Whether the owner has no feed any more, because it was erased.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn is_erased(&self, caller: &Caller, watch: &Watch) -> Result<bool> {
        let feed = self.feed(&caller.owner, 1, 1, Read::default()).await?;
        Ok(watch.cursor.revision > 0 && feed.revision == 0)
    }

    /// The next frames of a snapshot.
    async fn next_of_snapshot(&self, caller: &Caller, watch: &mut Watch) -> Result<Step> {
        match self.read_snapshot(caller, watch).await {
            // A failover or a restored database may have lost the revision at which the snapshot began.
            Err(error) if error.reason == Reason::InvalidArgument => {
                let position = Position::After(watch.cursor.clone());
                self.locate(&caller.owner, position, Read::default())
                    .await?;
                Err(error)
            }
            step => step,
        }
    }

    /// Reads the next part of a snapshot, from states that include the revision at which the snapshot began. A part of
    /// an earlier state, such as that of a standby, could lack entries whose creation is not among the changes after
    /// the snapshot.
    async fn read_snapshot(&self, caller: &Caller, watch: &mut Watch) -> Result<Step> {
        let Listed {
            rows,
            next,
            revision: listed_at,
        } = match &watch.snapshot {
            Some(Snapshot::Entries { until, sent }) => {
                self.entries(caller, watch, *until, sent).await?
            }
            Some(Snapshot::Artifacts(start)) => self.artifacts(caller, watch, *start).await?,
            None => Listed::nothing(None),
        };
        let selected: Vec<Selected<'_>> = rows.iter().map(Selected::whole).collect();
        let Loaded {
            changes,
            is_cut,
            revision: loaded_at,
        } = self
            .with_bodies(caller, &watch.selection, &selected)
            .await?;
        self.note_shown(caller, watch, listed_at.max(loaded_at))
            .await?;
        watch.snapshot = match &watch.snapshot {
            Some(snapshot) if is_cut => Some(snapshot.after(&rows[..changes.len()])),
            _ => next,
        };
        let shows_text = watch.selection.include_body || watch.selection.preview_chars > 0;
        let mut events: Vec<WatchEvent> = changes
            .into_iter()
            .map(entry_of)
            // What was deleted meanwhile is among the changes after the snapshot. What is damaged was logged.
            .filter(|entry| !shows_text || entry.has_text())
            .map(|entry| WatchEvent {
                frame: WatchFrame::Entry(Box::new(entry)),
                cursor: None,
            })
            .collect();
        if watch.snapshot.is_none() {
            let frame = WatchFrame::SnapshotEnd {
                revision: watch.cursor.revision,
            };
            events.push(watch.at_cursor(frame));
        }
        Ok(Step {
            events,
            has_more: true,
        })
    }

    /// Records in the cursor that a part of a snapshot shows the state of this revision.
    async fn note_shown(&self, caller: &Caller, watch: &mut Watch, revision: i64) -> Result<()> {
        let before = watch.cursor.shown();
        if revision <= watch.cursor.revision {
            return Ok(());
        }
        let owner = &caller.owner;
        let shown = self.shown_at(owner, revision, before, None).await?;
        // The cursor stores one state. The earlier one is checked before it is replaced, because a failover may have
        // happened during a long snapshot.
        if let Some(before) = before.filter(|_| shown != before) {
            let feed = self.feed_from_seen(owner, before.revision, 1).await?;
            watch.cursor.check(owner, &feed)?;
            watch.cursor.check_shown(&feed.changes)?;
        }
        watch.cursor = watch.cursor.clone().with_shown(shown);
        Ok(())
    }

    /// The next entries of a snapshot, as rows of the feed.
    async fn entries(
        &self,
        caller: &Caller,
        watch: &Watch,
        until: Option<Timestamp>,
        sent: &[i64],
    ) -> Result<Listed> {
        let first_artifacts = Some(Snapshot::Artifacts(PageStart::Offset(0)));
        if !watch.selection.has_entries() {
            return Ok(Listed::nothing(first_artifacts));
        }
        let mut filter = watch.selection.filter.clone();
        filter.created_to = [filter.created_to, until].into_iter().flatten().min();
        let limit = STEP.saturating_add(u32::try_from(sent.len()).unwrap_or(u32::MAX));
        let page = StorePage { limit, offset: 0 };
        let selection = RowSelection {
            images: false,
            text_chars: Some(1),
            explain: false,
            max_bytes: u64::MAX,
            memory: caller.memory.clone(),
        };
        let found = self
            .store
            .search_contexts(
                &caller.owner,
                filter,
                page,
                selection,
                watch.snapshot_read(),
            )
            .await
            .map_err(store_error)?;
        let is_full = found.entries.len() >= limit as usize;
        let rows: Vec<Row> = found
            .entries
            .into_iter()
            .filter(|entry| !sent.contains(&entry.id))
            .map(|entry| Row {
                revision: watch.cursor.revision,
                at: entry.created_at,
                kind: ChangeKind::Create,
                changed: Changed::Context {
                    id: entry.id,
                    thread_id: entry.thread_id,
                    source: Some(entry.source),
                },
                version: Some(entry.version),
                key_id: None,
                commit_end: true,
            })
            .collect();
        let next = match &watch.snapshot {
            Some(snapshot) if is_full => Some(snapshot.after(&rows)),
            _ => first_artifacts,
        };
        Ok(Listed {
            rows,
            next,
            revision: found.revision,
        })
    }

    /// The next artifacts of a snapshot, as rows of the feed.
    async fn artifacts(&self, caller: &Caller, watch: &Watch, start: PageStart) -> Result<Listed> {
        if !watch.selection.has_artifacts() {
            return Ok(Listed::nothing(None));
        }
        let mut limit = STEP;
        let found = loop {
            let page = ArtifactPage {
                limit,
                start,
                preview_chars: 1,
                max_bytes: STEP_BYTES as u64,
            };
            let found = self
                .store
                .artifacts()
                .list_artifacts(
                    &caller.owner,
                    ArtifactSelection::default(),
                    page,
                    watch.snapshot_read(),
                )
                .await
                .map_err(store_error);
            match found {
                Err(error) if error.reason == Reason::ResultTooLarge && limit > 1 => limit /= 2,
                found => break found?,
            }
        };
        let (revision, found) = (found.revision, found.artifacts);
        let next = found
            .last()
            .filter(|_| found.len() >= limit as usize)
            .map(|last| {
                Snapshot::Artifacts(PageStart::After {
                    created_at: last.created_at,
                    id: last.id,
                })
            });
        let rows = found
            .into_iter()
            .filter(|artifact| {
                let metadata = artifact.metadata.to_object().unwrap_or_default();
                watch
                    .selection
                    .matches_artifact(artifact.created_at, &metadata)
            })
            .map(|artifact| Row {
                revision: watch.cursor.revision,
                at: artifact.created_at,
                kind: ChangeKind::Create,
                changed: Changed::Artifact {
                    id: artifact.id.to_string(),
                },
                version: None,
                key_id: None,
                commit_end: true,
            });
        Ok(Listed {
            rows: rows.collect(),
            next,
            revision,
        })
    }
}

/// A part of a snapshot, and what follows it.
struct Listed {
    rows: Vec<Row>,
    next: Option<Snapshot>,
    /// The revision of the listed state, or 0.
    revision: i64,
}

impl Listed {
    const fn nothing(next: Option<Snapshot>) -> Self {
        Self {
            rows: Vec::new(),
            next,
            revision: 0,
        }
    }
}

impl Snapshot {
    /// The rest of the snapshot after these rows.
    fn after(&self, done: &[Row]) -> Self {
        match (self, done.last()) {
            (Self::Entries { until, sent }, Some(last)) => {
                let earlier = sent.iter().copied().filter(|_| *until == Some(last.at));
                let at_the_end = done.iter().filter(|row| row.at == last.at);
                Self::Entries {
                    until: Some(last.at),
                    sent: earlier
                        .chain(at_the_end.filter_map(|row| match row.changed {
                            Changed::Context { id, .. } => Some(id),
                            Changed::Artifact { .. } => None,
                        }))
                        .collect(),
                }
            }
            (Self::Artifacts(start), Some(last)) => {
                let id = match &last.changed {
                    Changed::Artifact { id } => ArtifactId::parse(id).ok(),
                    Changed::Context { .. } => None,
                };
                Self::Artifacts(id.map_or(*start, |id| PageStart::After {
                    created_at: last.at,
                    id,
                }))
            }
            (Self::Entries { until, sent }, None) => Self::Entries {
                until: *until,
                sent: sent.clone(),
            },
            (Self::Artifacts(start), None) => Self::Artifacts(*start),
        }
    }
}

fn entry_of(change: Change) -> SnapshotEntry {
    let Change {
        revision: _,
        time: _,
        operation: _,
        entity,
        id,
        thread_id,
        version,
        commit_end: _,
        key_id: _,
        preview,
        context,
        artifact,
    } = change;
    SnapshotEntry {
        entity,
        id,
        thread_id,
        version: artifact
            .as_ref()
            .map(|artifact| artifact.version)
            .or(version),
        preview,
        context,
        artifact,
    }
}

#[cfg(test)]
mod tests {
    use super::super::standbys::served_by;
    use super::*;

    #[tokio::test]
    async fn a_snapshot_continues_although_a_standby_is_behind_what_was_shown() {
        let caller = Caller::local();
        // Two reads open the stream. One is for the first state that is shown, two are for the second.
        let changes = served_by([4, 4, 4, 6, 4]);
        let request = WatchRequest {
            snapshot: Some(true),
            ..WatchRequest::default()
        };
        let (mut watch, _) = changes.watch(&caller, request).await.expect("a stream");
        for revision in [6, 8] {
            changes
                .note_shown(&caller, &mut watch, revision)
                .await
                .expect("the state is not lost");
            let shown = watch.cursor.shown().map(|shown| shown.revision);
            assert_eq!(shown, Some(revision));
        }
    }
}
