//! The result of a round, and the violations in it.

use std::collections::BTreeMap;

use super::check::check;
use super::endpoint::Target;
use super::fault::Fault;
use super::history::History;
use super::{Event, Filter, Log, Session, Start, Stored, View};

/// The result of a round: what followers received, and what they should have received.
#[derive(Debug, Clone)]
pub struct Round {
    /// What each follower received.
    pub logs: Vec<Log>,
    /// What was committed.
    pub history: History,
    /// The faults.
    pub faults: Vec<Fault>,
    pub(super) stored: Vec<(Filter, Stored)>,
    pub(super) target: Target,
}

impl Round {
    /// Every violation.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.logs
            .iter()
            .flat_map(|log| self.violations_of(log))
            .collect()
    }

    /// The violations in a log, which may have been changed.
    #[must_use]
    pub fn violations_of(&self, log: &Log) -> Vec<String> {
        let mut wrong = check(log, &self.history, self.target.of(log.filter).revision);
        let stored = self.stored.iter().find(|(filter, _)| *filter == log.filter);
        if let (Some(view), Some((_, stored))) = (View::of(log), stored) {
            let Log { name, filter, .. } = log;
            let differences = view.differences(stored).into_iter();
            wrong.extend(differences.map(|what| format!("{name}, {filter:?}, at the end: {what}")));
        }
        wrong
    }

    /// Whether the follower of a log read everything, so that its view is compared with the database.
    #[must_use]
    pub fn has_view(&self, log: &Log) -> bool {
        View::of(log).is_some()
    }

    /// How often each fault happened, including those of followers.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let sessions = || self.logs.iter().flat_map(|log| &log.sessions);
        let is_cut_snapshot = |session: &&Session| {
            let has = |is: fn(&Event) -> bool| session.events.iter().any(is);
            session.start == Start::Snapshot
                && has(|event| matches!(event, Event::Entry { .. }))
                && !has(|event| matches!(event, Event::SnapshotEnd(_)))
        };
        let is_refused = |session: &&Session| {
            let is_it = |event: &Event| matches!(event, Event::Resync(reason) if reason == "RESYNC_REQUIRED");
            session.events.iter().any(is_it)
        };
        let epochs = self.history.0.windows(2);
        let lossy = epochs.filter(|epochs| epochs[0].last() > epochs[1].common);
        let mut counts = BTreeMap::from(
            [
                (
                    "changes",
                    self.history.0.iter().map(|epoch| epoch.rows.len()).sum(),
                ),
                (
                    "slow followers",
                    self.logs.iter().filter(|log| log.is_slow).count(),
                ),
                ("connections", sessions().count()),
                ("snapshots cut", sessions().filter(is_cut_snapshot).count()),
                (
                    "sessions across a promotion",
                    sessions()
                        .filter(|session| session.until > session.epoch)
                        .count(),
                ),
                ("states lost", lossy.count()),
                ("RESYNC_REQUIRED", sessions().filter(is_refused).count()),
            ]
            .map(|(what, count)| (what.to_owned(), count)),
        );
        for fault in &self.faults {
            *counts.entry(fault.to_string()).or_default() += 1;
        }
        counts
    }
}
