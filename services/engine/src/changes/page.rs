//! Reads one page of the feed for one caller.

use context_model::{Change, ChangeOperation, Reason, Result};
use context_store::{Change as Row, Changed, Feed, OwnerId, Read};

use super::cursor::{Cursor, Shown, resync};
use super::feed::Changes;
use super::selection::{Current, Selection, operation};
use super::shared::Part;
use super::states::States;
use crate::access::Caller;
use crate::error::store_error;
use crate::retrieval::truncate;
use crate::{artifacts, contexts, read};

/// The `cursor` that stands for the position after the newest change.
const NOW: &str = "now";
/// Commits of up to this many changes are split only if their bodies are too large for a page.
const WHOLE_COMMIT: usize = 1000;
/// Maximum number of bodies that are loaded together.
const BODIES_AT_ONCE: usize = 50;
/// Maximum number of changes whose states are loaded together for the filters. Their metadata, up to 1 MiB each, is
/// loaded too.
const STATES_AT_ONCE: usize = 100;

/// Where a page begins.
#[derive(Debug, Clone)]
pub(super) enum Position {
    /// At the oldest change that is kept.
    Oldest,
    /// After the newest change. The page is empty.
    Now,
    /// After this cursor.
    After(Cursor),
}

impl Position {
    /// Reads the `cursor` of a request.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub fn read(cursor: Option<&str>, owner: &OwnerId) -> Result<Self> {
        match cursor {
            None => Ok(Self::Oldest),
            Some(NOW) => Ok(Self::Now),
            Some(text) => Cursor::read(text, owner).map(Self::After),
        }
    }
}

/// Consecutive changes, as one caller sees them.
pub(super) struct Page {
    pub changes: Vec<Change>,
    /// The position after each of the changes.
    pub cursors: Vec<Cursor>,
    /// The position after the last change that was read.
    pub next: Cursor,
    pub has_more: bool,
    pub revision: i64,
    /// The revision of the oldest change in the feed.
    pub oldest: i64,
}

/// Maximum number of reads of a page if compaction removes a part of it in the meantime.
const ATTEMPTS: u32 = 3;

/// The selected changes in the form of replies.
pub(super) struct Loaded {
    pub changes: Vec<Change>,
    /// Whether the last of the selected changes are left out, because all bodies together are too large.
    pub is_cut: bool,
    /// The revision of the newest state that was loaded, or 0.
    pub revision: i64,
}

/// A selected row of the feed.
pub(super) struct Selected<'r> {
    /// Its index among the rows that were read.
    index: usize,
    row: &'r Row,
    operation: ChangeOperation,
}

impl<'r> Selected<'r> {
    /// A row that is reported as it is.
    pub const fn whole(row: &'r Row) -> Self {
        Self {
            index: 0,
            row,
            operation: operation(row.kind),
        }
    }
}

impl Changes {
    /// Reads the page that begins at `position`. It has the selected ones among the next `limit` changes and the rest
    /// of the last commit, and fewer if their bodies are too large. It is empty if the database is a standby that has
    /// not reached the cursor.
    ///
    /// # Errors
    /// `CURSOR_COMPACTED`; `RESYNC_REQUIRED`; the store's errors.
    pub(super) async fn page(
        &self,
        caller: &Caller,
        selection: &Selection,
        position: Position,
        limit: u32,
        read: Read,
    ) -> Result<Page> {
        let owner = &caller.owner;
        let (from, cursor_rows) = match &position {
            Position::Oldest => (1, 0),
            Position::Now => return self.end(owner, read).await,
            // The row of the cursor itself is read too, to check the cursor.
            Position::After(cursor) => (cursor.revision.max(1), u32::from(cursor.revision > 0)),
        };
        let count = limit.saturating_add(cursor_rows);
        let mut attempts = 0;
        let mut feed = loop {
            let mut feed = self.feed(owner, from, count, read).await?;
            if let Position::After(cursor) = &position {
                if self.is_behind(owner, cursor, &feed, read).await? {
                    return Ok(Page {
                        changes: Vec::new(),
                        cursors: Vec::new(),
                        next: cursor.clone(),
                        has_more: false,
                        revision: feed.revision,
                        oldest: feed.oldest,
                    });
                }
                feed.changes.retain(|row| row.revision > cursor.revision);
                feed.changes.truncate(limit as usize);
            }
            attempts += 1;
            // Compaction may have removed the rest of the commit in the meantime. The feed then begins after the
            // commit, and the page is read again.
            if self.extend_to_commit_end(owner, &mut feed).await? || attempts == ATTEMPTS {
                break feed;
            }
        };
        let rows = std::mem::take(&mut feed.changes);
        let (selected, filtered_at) = self.select(caller, selection, &rows).await?;
        let Loaded {
            mut changes,
            is_cut,
            revision: loaded_at,
        } = self.with_bodies(caller, selection, &selected).await?;
        let before = match &position {
            Position::After(cursor) => cursor.shown(),
            Position::Oldest | Position::Now => None,
        };
        let shown = self
            .shown_at(owner, filtered_at.max(loaded_at), before, rows.last())
            .await?;
        // If the bodies are too large, the page ends before the first change that is left out.
        let read_rows = match selected.get(changes.len()).filter(|_| is_cut) {
            Some(next) => next.index,
            None => rows.len(),
        };
        let indexes = selected.iter().map(|selected| selected.index);
        mark_commit_ends(&rows[..read_rows], indexes.zip(&mut changes));
        let cursors = selected[..changes.len()]
            .iter()
            .map(|selected| Cursor::after(owner, &feed, selected.row).with_shown(shown))
            .collect();
        let next = match (rows[..read_rows].last(), position) {
            (Some(last), _) => Cursor::after(owner, &feed, last).with_shown(shown),
            (None, Position::After(cursor)) => cursor,
            (None, Position::Oldest | Position::Now) => {
                Cursor::before_row(owner, &feed, feed.oldest)
            }
        };
        Ok(Page {
            changes,
            cursors,
            has_more: next.revision < feed.revision,
            next,
            revision: feed.revision,
            oldest: feed.oldest,
        })
    }

    /// Converts a position to a cursor. A given cursor is checked, unless the database is a standby that has not
    /// reached it.
    pub(super) async fn locate(
        &self,
        owner: &OwnerId,
        position: Position,
        read: Read,
    ) -> Result<Cursor> {
        match position {
            Position::Now => Ok(self.end(owner, read).await?.next),
            Position::Oldest => {
                let feed = self.feed(owner, 1, 0, read).await?;
                Ok(Cursor::before_row(owner, &feed, feed.oldest))
            }
            Position::After(cursor) => {
                let feed = self.feed(owner, cursor.revision.max(1), 1, read).await?;
                self.is_behind(owner, &cursor, &feed, read).await?;
                Ok(cursor)
            }
        }
    }

    /// Checks a cursor by a feed that was read from its own row on. Returns whether the database is a standby that has
    /// not reached what the cursor's reader has seen, so that the check must wait.
    async fn is_behind(
        &self,
        owner: &OwnerId,
        cursor: &Cursor,
        feed: &Feed,
        read: Read,
    ) -> Result<bool> {
        if feed.is_behind {
            return Ok(true);
        }
        cursor.check(owner, feed)?;
        let reaches = |shown: Shown| {
            let last = feed.changes.last();
            last.is_some_and(|last| last.revision >= shown.revision)
        };
        match cursor.shown().filter(|shown| !reaches(*shown)) {
            None => cursor.check_shown(&feed.changes)?,
            Some(shown) => {
                let feed = self.feed(owner, shown.revision, 1, read).await?;
                if feed.is_behind {
                    return Ok(true);
                }
                // The row is also missing if it was compacted in the meantime, which is another error.
                cursor.check(owner, &feed)?;
                cursor.check_shown(&feed.changes)?;
            }
        }
        Ok(false)
    }

    /// The newest state that was shown to a reader: `before`, or the state of this revision if it is newer. The
    /// revision is 0 if no state was shown. `last` is the last row that was read.
    pub(super) async fn shown_at(
        &self,
        owner: &OwnerId,
        revision: i64,
        before: Option<Shown>,
        last: Option<&Row>,
    ) -> Result<Option<Shown>> {
        if before.is_some_and(|before| before.revision >= revision) || revision == 0 {
            return Ok(before);
        }
        // No read is needed for a reader that is up to date.
        if let Some(last) = last.filter(|last| last.revision >= revision) {
            return Ok(Some(Shown::after(last)));
        }
        // If the row was compacted in the meantime, this is a later row.
        let feed = self.feed_from_seen(owner, revision, 1).await?;
        let row = feed.changes.first();
        row.map(|row| Some(Shown::after(row)))
            .ok_or_else(|| resync("a state that was just read is lost"))
    }

    /// The empty page after the newest change.
    async fn end(&self, owner: &OwnerId, read: Read) -> Result<Page> {
        // The first read is for the newest revision. Its row is read with the second.
        let first = self.feed(owner, 1, 1, read).await?;
        let newest = match first.revision {
            0 => first,
            revision => self.feed_from_seen(owner, revision, 1).await?,
        };
        let next = match newest.changes.first() {
            Some(row) => Cursor::after(owner, &newest, row),
            None => Cursor::before_row(owner, &newest, newest.revision + 1),
        };
        Ok(Page {
            changes: Vec::new(),
            cursors: Vec::new(),
            has_more: next.revision < newest.revision,
            next,
            revision: newest.revision,
            oldest: newest.oldest,
        })
    }

    /// Reads at most `count` rows from the revision `from` on. Simultaneous reads of the same rows are shared, except
    /// reads that require a revision.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn feed(
        &self,
        owner: &OwnerId,
        from: i64,
        count: u32,
        read: Read,
    ) -> Result<Feed> {
        let feed = async {
            let feed = self.store.changes().feed(owner, from, count, read).await;
            feed.map_err(store_error)
        };
        if read.min_revision.is_some() {
            return feed.await;
        }
        let part = Part {
            owner: owner.clone(),
            from,
            limit: count,
        };
        self.reads.read(part, feed).await
    }

    /// Reads at most `count` rows from the revision `from` on, which an earlier read has seen. Connections can lead to
    /// several standbys, so this read may reach one that is behind the earlier read. It then waits for the revision.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn feed_from_seen(
        &self,
        owner: &OwnerId,
        from: i64,
        count: u32,
    ) -> Result<Feed> {
        let feed = self.feed(owner, from, count, Read::default()).await?;
        if feed.is_behind {
            return self.feed(owner, from, count, read::at(Some(from))).await;
        }
        Ok(feed)
    }

    /// Adds the rest of the last commit, unless the commit is too long. Returns whether the rest is still in the feed.
    async fn extend_to_commit_end(&self, owner: &OwnerId, feed: &mut Feed) -> Result<bool> {
        let Some(last) = feed.changes.last().filter(|row| !row.commit_end) else {
            return Ok(true);
        };
        let last = last.revision;
        let open = feed
            .changes
            .iter()
            .rev()
            .take_while(|row| !row.commit_end)
            .count();
        let Some(missing) = WHOLE_COMMIT
            .checked_sub(open)
            .filter(|missing| *missing > 0)
        else {
            return Ok(true);
        };
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        let mut rest = self.feed_from_seen(owner, last + 1, count).await?;
        let follows = rest.incarnation == feed.incarnation
            && rest
                .changes
                .first()
                .is_some_and(|row| row.revision == last + 1);
        if let Some(end) = rest.changes.iter().position(|row| row.commit_end)
            && follows
        {
            rest.changes.truncate(end + 1);
            feed.changes.append(&mut rest.changes);
        }
        Ok(follows)
    }

    /// Returns the rows that the caller selects and may see, each with the operation to report, and the revision of the
    /// newest state to which the filters were applied. It is 0 if no filter needs the state.
    async fn select<'r>(
        &self,
        caller: &Caller,
        selection: &Selection,
        rows: &'r [Row],
    ) -> Result<(Vec<Selected<'r>>, i64)> {
        let candidates: Vec<(usize, &Row)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| !selection.excludes(row))
            .collect();
        let (mut selected, mut filtered_at) = (Vec::new(), 0_i64);
        for part in candidates.chunks(STATES_AT_ONCE) {
            let needing_state = || {
                part.iter()
                    .map(|(_, row)| *row)
                    .filter(move |row| selection.needs_state(row))
            };
            let states = if needing_state().next().is_some() {
                States::load(
                    &*self.store,
                    caller,
                    needing_state(),
                    // No filter needs the text.
                    Some(1),
                    u64::MAX,
                    state_at(rows),
                )
                .await?
            } else {
                States::default()
            };
            selected.extend(part.iter().filter_map(|&(index, row)| {
                let operation = if selection.needs_state(row) {
                    selection.filter_by_state(row, &states.of(row))?
                } else {
                    operation(row.kind)
                };
                Some(Selected {
                    index,
                    row,
                    operation,
                })
            }));
            filtered_at = filtered_at.max(states.revision);
            // A list that waits reads many pages, and the states of those without a match must not add up.
            caller.memory.give_back(states.taken_bytes());
        }
        Ok((selected, filtered_at))
    }

    /// The changes with their bodies or previews, as far as the selection includes them.
    pub(super) async fn with_bodies(
        &self,
        caller: &Caller,
        selection: &Selection,
        selected: &[Selected<'_>],
    ) -> Result<Loaded> {
        let mut loaded = Loaded {
            changes: Vec::with_capacity(selected.len()),
            is_cut: false,
            revision: 0,
        };
        let text_chars = match (selection.include_body, selection.preview_chars) {
            (true, _) => None,
            // One character more, to detect whether the text is cut.
            (false, chars @ 1..) => Some(u32::try_from(chars + 1).unwrap_or(u32::MAX)),
            (false, 0) => {
                let changes = selected
                    .iter()
                    .map(|selected| change_for_caller(selection, selected, &Current::Gone));
                loaded.changes.extend(changes);
                return Ok(loaded);
            }
        };
        let mut bytes = 0;
        let mut rest = selected;
        while !rest.is_empty() {
            let mut count = rest.len().min(BODIES_AT_ONCE);
            let states = loop {
                let states = States::load(
                    &*self.store,
                    caller,
                    rest[..count].iter().map(|selected| selected.row),
                    text_chars,
                    selection.page_bytes as u64,
                    state_at(rest.iter().map(|selected| selected.row)),
                )
                .await;
                match states {
                    Err(error) if error.reason == Reason::ResultTooLarge && count > 1 => count /= 2,
                    states => break states?,
                }
            };
            let (now, later) = rest.split_at(count);
            for selected in now {
                let current = states.of(selected.row);
                // Several changes of one artifact each have its body.
                bytes += current.bytes();
                if bytes > selection.page_bytes && !loaded.changes.is_empty() {
                    loaded.is_cut = true;
                    return Ok(loaded);
                }
                if let Current::Artifact(artifact) = &current
                    && selection.include_body
                {
                    caller.memory.take(artifact.parsed_bytes)?;
                }
                loaded.revision = loaded.revision.max(states.revision);
                let selected = filter_again(selection, selected, &current);
                let change = change_for_caller(selection, &selected, &current);
                loaded.changes.push(change);
            }
            rest = later;
        }
        Ok(loaded)
    }
}

/// A read of a state that includes all of these changes, even on a standby.
fn state_at<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Read {
    read::at(rows.into_iter().map(|row| row.revision).max())
}

/// Applies the filters again, to the state that is shown. It can be newer than the state by which the change was
/// selected.
fn filter_again<'r>(
    selection: &Selection,
    selected: &Selected<'r>,
    current: &Current<'_>,
) -> Selected<'r> {
    let Selected {
        index,
        row,
        operation,
    } = *selected;
    let matches =
        !selection.needs_state(row) || selection.filter_by_state(row, current) == Some(operation);
    Selected {
        index,
        row,
        // A reader must expect `left` for an entry that it has never seen, so `left` is correct for a created one too.
        operation: if matches {
            operation
        } else {
            ChangeOperation::Left
        },
    }
}

/// A change as the caller sees it. If the entry or artifact no longer satisfies the filters, only its id is shown.
fn change_for_caller(
    selection: &Selection,
    selected: &Selected<'_>,
    current: &Current<'_>,
) -> Change {
    let left = selected.operation == ChangeOperation::Left;
    let current = if left { &Current::Gone } else { current };
    let Row {
        revision,
        at,
        kind: _,
        changed,
        version,
        key_id,
        commit_end,
    } = selected.row;
    let (id, thread_id) = match changed {
        Changed::Context {
            id,
            thread_id,
            source: _,
        } => (id.to_string(), (!left).then(|| thread_id.clone())),
        Changed::Artifact { id } => (id.clone(), None),
    };
    let text = match current {
        Current::Gone | Current::Damaged => None,
        Current::Entry(entry) => Some(&entry.text),
        Current::Artifact(artifact) => Some(artifact.content()),
    };
    let preview = text
        .filter(|_| selection.preview_chars > 0)
        .map(|text| truncate(text.clone(), selection.preview_chars).0);
    let (mut context, mut artifact) = (None, None);
    if selection.include_body {
        match current {
            Current::Gone | Current::Damaged => {}
            Current::Entry(entry) => context = Some(contexts::full_entry((*entry).clone())),
            Current::Artifact(stored) => artifact = Some(artifacts::full(stored.whole())),
        }
    }
    Change {
        revision: *revision,
        time: *at,
        operation: selected.operation.as_str().to_owned(),
        entity: changed.entity().to_owned(),
        id,
        thread_id,
        version: version.filter(|_| !left),
        commit_end: *commit_end,
        key_id: key_id.clone().filter(|_| selection.shows_keys),
        preview,
        context,
        artifact,
    }
}

/// Moves the end of each commit to its last change that is shown. `shown` has each change with its index among the
/// rows.
fn mark_commit_ends<'c>(rows: &[Row], shown: impl Iterator<Item = (usize, &'c mut Change)>) {
    let mut previous: Option<(usize, &mut Change)> = None;
    let ends_between = |from: usize, to: usize| {
        rows.get(from..to)
            .is_some_and(|rows| rows.iter().any(|row| row.commit_end))
    };
    for (index, change) in shown {
        if let Some((before, previous)) = previous.replace((index, change)) {
            previous.commit_end = ends_between(before, index);
        }
    }
    if let Some((last, change)) = previous {
        change.commit_end = ends_between(last, rows.len());
    }
}
