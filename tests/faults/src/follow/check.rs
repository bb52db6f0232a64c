//! Compares the logs of followers with the history of the database.
//!
//! | property | what is reported |
//! |---|---|
//! | ordered, unique | a change whose revision is not higher than the follower's position |
//! | true | a change that differs from the committed one, or that the filter excludes |
//! | reliable | a committed change that was passed without being received |
//! | atomic | a page that ends inside a commit, a `commit_end` in the wrong place |
//! | resumable | a stream that does not start at its cursor, or a lost state's cursor that is accepted |
//! | bookmarkable | a bookmark that is behind the changes before it, or ahead of changes that come or are missing |

use super::history::{Epoch, History, Row};
use super::{Change, Event, Filter, Log, Session, Start};

/// Commits with more changes come in pieces.
const LONG_COMMIT: usize = 1000;

/// Every violation in a log. `target` is the revision up to which the follower must have come.
#[must_use]
pub fn check(log: &Log, history: &History, target: i64) -> Vec<String> {
    let mut readers = vec![Reader {
        log,
        history,
        place: "before the first session".to_owned(),
        position: None,
        epoch: 0,
        wrong: Vec::new(),
    }];
    for (number, session) in log.sessions.iter().enumerate() {
        // At which event of the session another database took over is not known. It matters only for events beyond the
        // changes that both have, so two cases are tried: before the first such event, and after the last event.
        let mut cases = vec![None];
        if session.until > session.epoch {
            let common = history.common(session.epoch, session.until);
            let is_beyond = |event: &Event| reached(event).is_some_and(|reached| reached > common);
            cases.extend(session.events.iter().position(is_beyond).map(Some));
        }
        let mut after: Vec<Reader<'_>> = Vec::new();
        for reader in readers {
            for replaced in &cases {
                let mut reader = reader.clone();
                reader.session(number, session, *replaced);
                after.push(reader);
            }
        }
        let least = after.iter().map(|reader| reader.wrong.len()).min();
        after.retain(|reader| Some(reader.wrong.len()) == least);
        readers = after;
    }
    let ends = readers.into_iter().map(|reader| reader.end(target));
    ends.min_by_key(Vec::len).unwrap_or_default()
}

/// The revision up to which a follower has come with an event.
const fn reached(event: &Event) -> Option<i64> {
    match event {
        Event::Opened(revision) | Event::SnapshotEnd(revision) | Event::Bookmark(revision) => {
            Some(*revision)
        }
        Event::Change(change) => Some(change.revision),
        Event::Page {
            revision,
            has_more: false,
            ..
        } => Some(*revision),
        Event::Page { .. } | Event::Entry { .. } | Event::Resync(_) | Event::End(_) => None,
    }
}

/// Reads the log of a follower, and reports what contradicts the history.
#[derive(Clone)]
struct Reader<'a> {
    log: &'a Log,
    history: &'a History,
    /// The session and event that are read, for messages.
    place: String,
    /// Everything up to this revision was received or excluded by the filter. `None` until the start is known.
    position: Option<i64>,
    epoch: usize,
    wrong: Vec<String>,
}

impl Reader<'_> {
    fn report(&mut self, what: &str) {
        let Log { name, filter, .. } = self.log;
        self.wrong
            .push(format!("{name}, {filter:?}, {}: {what}", self.place));
    }

    fn epoch(&self) -> &Epoch {
        &self.history.0[self.epoch]
    }

    /// Reads a session, in which another database took over before the event `replaced`.
    fn session(&mut self, number: usize, session: &Session, replaced: Option<usize>) {
        let Session {
            epoch,
            until,
            start,
            events,
        } = session;
        self.place = format!("session {number} ({start:?}, state {epoch})");
        if *start == Start::Cursor {
            self.resume(*epoch, events);
        } else {
            self.epoch = *epoch;
            let is_from_first =
                self.log.lists && *start == Start::Oldest && !self.epoch().is_compacted;
            self.position = is_from_first.then_some(0);
        }
        let mut snapshot_of = None;
        let mut last: Option<&Change> = None;
        for (index, event) in events.iter().enumerate() {
            self.place = format!("session {number} ({start:?}, state {epoch}), event {index}");
            if replaced == Some(index) {
                self.continue_on(*until);
            }
            match event {
                Event::Opened(revision) => {
                    snapshot_of = Some(*revision);
                    self.opened(*start, *revision);
                }
                Event::Entry { .. } => {
                    if *start != Start::Snapshot || self.position.is_some() {
                        self.report("an entry outside of a snapshot");
                    }
                }
                Event::SnapshotEnd(revision) => {
                    if *start != Start::Snapshot {
                        self.report("a snapshot that was not requested");
                    }
                    if snapshot_of != Some(*revision) {
                        self.report(&format!(
                            "the snapshot of {snapshot_of:?} ends as of {revision}"
                        ));
                    }
                    self.position = Some(*revision);
                }
                Event::Change(change) => {
                    self.commit_end(last, change);
                    self.change(change);
                    last = Some(change);
                }
                Event::Bookmark(revision) => self.bookmark(*revision),
                Event::Page {
                    revision, has_more, ..
                } => {
                    self.page(last.take(), *revision, *has_more);
                }
                Event::Resync(reason) => self.refused(*until, reason),
                Event::End(_) => {}
            }
        }
    }

    /// Checks that a cursor of a replaced state is accepted only if both states have its change.
    fn resume(&mut self, epoch: usize, events: &[Event]) {
        let common = self.history.common(self.epoch, epoch);
        let is_accepted = events
            .iter()
            .any(|event| !matches!(event, Event::Resync(_) | Event::End(_)));
        if let Some(position) = self.position
            && position > common
            && is_accepted
        {
            self.report(&format!("a cursor at {position} was accepted, but only {common} changes of its state are left"));
        }
        if is_accepted {
            self.epoch = epoch;
        }
    }

    /// Another database takes over while the session continues.
    fn continue_on(&mut self, epoch: usize) {
        let common = self.history.common(self.epoch, epoch);
        if let Some(position) = self.position.filter(|position| *position > common) {
            self.report(&format!(
                "it went on at {position}, but only {common} changes of its state are left"
            ));
        }
        self.epoch = epoch;
    }

    /// All violations, with those at the end of the log.
    fn end(mut self, target: i64) -> Vec<String> {
        let (position, epoch) = (self.position, self.epoch);
        if position.is_none_or(|position| position < target) {
            self.report(&format!(
                "it ends at {position:?}, before revision {target}"
            ));
        }
        if epoch + 1 < self.history.0.len() {
            self.report(&format!("it ends with state {epoch}, which was replaced"));
        }
        self.wrong
    }

    fn refused(&mut self, epoch: usize, reason: &str) {
        let is_right = match reason {
            "RESYNC_REQUIRED" => epoch != self.epoch,
            "SLOW_CONSUMER" => true,
            "CURSOR_COMPACTED" => self.history.0[epoch].is_compacted,
            _ => false,
        };
        if !is_right {
            self.report(&format!(
                "refused with {reason}, though nothing happened that justifies it"
            ));
        }
    }

    fn opened(&mut self, start: Start, revision: i64) {
        match (start, self.position) {
            (Start::Cursor, Some(position)) if position != revision => {
                self.report(&format!("a cursor at {position} opens at {revision}"));
            }
            (Start::Oldest, _) if revision != 0 && !self.epoch().is_compacted => {
                self.report(&format!(
                    "the oldest change is after {revision}, though none was removed"
                ));
            }
            _ => {}
        }
        if start != Start::Snapshot {
            self.position = Some(revision);
        }
    }

    fn change(&mut self, change: &Change) {
        let revision = change.revision;
        // A list does not say where it starts. The revision of `now` is not known, and the oldest change may have been
        // removed.
        if self.position.is_none() && self.log.lists {
            self.position = Some(revision - 1);
        }
        match self.position {
            None => self.report(&format!("change {revision} before the start")),
            Some(position) if revision <= position => {
                self.report(&format!(
                    "change {revision} after everything up to {position}"
                ));
            }
            Some(position) => self.skips(position, revision - 1),
        }
        self.position = self.position.max(Some(revision));
        self.compare(change);
    }

    /// Checks that the follower could skip everything after `from` up to `to`, because the filter excludes it.
    fn skips(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        let skipped = self.epoch().rows.range(from + 1..=to);
        let missing: Vec<i64> = skipped
            .filter(|(_, row)| must_be_sent(self.log.filter, row))
            .map(|(revision, _)| *revision)
            .collect();
        if !missing.is_empty() {
            self.report(&format!("missing: {missing:?}"));
        }
    }

    fn compare(&mut self, change: &Change) {
        let Some(row) = self.epoch().rows.get(&change.revision).cloned() else {
            return self.report(&format!("{change:?} was never committed"));
        };
        let filter = self.log.filter;
        if filter.excludes(&row) == Some(true) {
            self.report(&format!("{change:?}, which the filter excludes"));
        }
        let is_same = (&change.entity, &change.id) == (&row.entity, &row.entity_id);
        let is_right_operation = if change.operation == "left" {
            // An entry that no longer matches when its body is loaded is sent as `left`, even if it was just created.
            filter.can_leave() && (row.operation != "create" || self.log.bodies)
        } else {
            let is_possible = change.operation != "deleted" || !filter.can_leave();
            is_possible
                && change.operation == past(&row.operation)
                && (&change.thread_id, change.version) == (&row.thread_id, row.version)
        };
        if !is_same || !is_right_operation {
            self.report(&format!("{change:?} instead of {row:?}"));
        }
        let Some(body) = &change.body else { return };
        if change.version.is_some_and(|version| body.version < version) {
            self.report(&format!("a body that is older than its change: {change:?}"));
        }
        if filter == Filter::Tagged && !body.tags.iter().any(|tag| tag == "keep") {
            self.report(&format!("a body without the tag of the filter: {change:?}"));
        }
    }

    fn bookmark(&mut self, revision: i64) {
        let last = self.epoch().last();
        match self.position {
            Some(position) if revision < position || revision > last => {
                self.report(&format!(
                    "a bookmark at {revision} after everything up to {position}, of {last}"
                ));
            }
            Some(position) => self.skips(position, revision),
            None => self.report("a bookmark before the start"),
        }
        self.position = self.position.max(Some(revision));
    }

    fn page(&mut self, last: Option<&Change>, revision: i64, has_more: bool) {
        if let Some(last) = last {
            let row = self.epoch().rows.get(&last.revision);
            let is_split =
                self.log.filter == Filter::None && row.is_some_and(|row| row.commit_end == Some(0));
            let is_long = self.is_in_long_commit(last.revision);
            if (is_split || !last.commit_end) && !is_long {
                self.report(&format!(
                    "a page ends inside a commit, at {}",
                    last.revision
                ));
            }
        }
        if has_more {
            return;
        }
        if let Some(position) = self.position {
            self.skips(position, revision);
        }
        self.position = self.position.max(Some(revision));
    }

    /// Whether the commit of a change is too long for one page.
    fn is_in_long_commit(&self, revision: i64) -> bool {
        let is_inside = |row: &&Row| row.commit_end == Some(0);
        let rows = &self.epoch().rows;
        let before = rows
            .range(..revision)
            .rev()
            .map(|(_, row)| row)
            .take_while(is_inside)
            .count();
        let after = rows
            .range(revision..)
            .map(|(_, row)| row)
            .take_while(is_inside)
            .count();
        before + after >= LONG_COMMIT
    }

    /// Checks that the last received change of each commit has `commit_end`, and no other change.
    fn commit_end(&mut self, last: Option<&Change>, next: &Change) {
        let Some(last) = last else { return };
        let between = self
            .epoch()
            .rows
            .range(last.revision..next.revision.max(last.revision));
        let ends: Option<Vec<i64>> = between.map(|(_, row)| row.commit_end).collect();
        let Some(ends) = ends else { return };
        let is_end = ends.contains(&1);
        if is_end != last.commit_end && next.revision > last.revision {
            let Change {
                revision,
                commit_end,
                ..
            } = last;
            self.report(&format!(
                "a commit is split: commit_end of {revision} is {commit_end}"
            ));
        }
    }
}

fn past(operation: &str) -> &'static str {
    match operation {
        "create" => "created",
        "update" => "updated",
        "delete" => "deleted",
        "restore" => "restored",
        _ => "unknown",
    }
}

/// Whether a follower with this filter receives the change in any case.
fn must_be_sent(filter: Filter, row: &Row) -> bool {
    let may_not_match = filter.can_leave() && row.operation == "create";
    filter.excludes(row) == Some(false) && !may_not_match
}
