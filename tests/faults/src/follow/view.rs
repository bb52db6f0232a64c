//! The entries and artifacts that a follower has, computed from the frames that it received.

use std::collections::BTreeMap;

use super::{Body, Change, Event, Log, Session, Start, Stored};

/// Whether a session that began with the oldest change missed changes that had already left the feed.
fn begins_late(session: &Session) -> bool {
    let first = session.events.iter().find_map(|event| match event {
        Event::Opened(revision) => Some(revision + 1),
        Event::Page { oldest, .. } => Some(*oldest),
        _ => None,
    });
    first.is_some_and(|first| first > 1)
}

/// What a follower has: each entry and artifact, with its content if it asked for bodies.
#[derive(Debug, Clone, Default)]
pub struct View {
    held: BTreeMap<(String, String), Option<Body>>,
    /// The entries of a snapshot that is not complete.
    snapshot: BTreeMap<(String, String), Option<Body>>,
    is_whole: bool,
}

impl View {
    /// The view at the end of a log. `None` if the follower did not read everything.
    #[must_use]
    pub fn of(log: &Log) -> Option<Self> {
        let mut view = Self::default();
        for session in &log.sessions {
            match session.start {
                Start::Oldest => {
                    view = Self {
                        is_whole: !begins_late(session),
                        ..Self::default()
                    }
                }
                Start::Now => view = Self::default(),
                Start::Snapshot => view.snapshot.clear(),
                Start::Cursor => {}
            }
            for event in &session.events {
                view.apply(event, log.bodies);
            }
        }
        view.is_whole.then_some(view)
    }

    fn apply(&mut self, event: &Event, bodies: bool) {
        match event {
            // A follower that asked for bodies receives one with each entry. Without it, the view lacks the entry.
            Event::Entry { body: None, .. } if bodies => {}
            Event::Entry { entity, id, body } => {
                self.snapshot
                    .insert((entity.clone(), id.clone()), body.clone());
            }
            Event::SnapshotEnd(_) => {
                self.held = std::mem::take(&mut self.snapshot);
                self.is_whole = true;
            }
            Event::Change(change) => self.change(change, bodies),
            Event::Opened(_)
            | Event::Bookmark(_)
            | Event::Page { .. }
            | Event::Resync(_)
            | Event::End(_) => {}
        }
    }

    fn change(&mut self, change: &Change, bodies: bool) {
        let Change {
            operation,
            entity,
            id,
            body,
            ..
        } = change;
        let is_gone = matches!(&**operation, "deleted" | "left") || (bodies && body.is_none());
        let key = (entity.clone(), id.clone());
        if is_gone {
            self.held.remove(&key);
        } else {
            self.held.insert(key, body.clone());
        }
    }

    /// The differences between this view and what the lists of the API return.
    #[must_use]
    pub fn differences(&self, stored: &Stored) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, body) in stored {
            match self.held.get(key) {
                None => wrong.push(format!("{key:?} is missing in the view")),
                Some(Some(held)) if held != body => {
                    wrong.push(format!(
                        "{key:?} is {held:?} in the view, and {body:?} in the database"
                    ));
                }
                Some(_) => {}
            }
        }
        let unexpected = self.held.keys().filter(|key| !stored.contains_key(*key));
        wrong.extend(
            unexpected.map(|key| format!("{key:?} is in the view and not in the database")),
        );
        wrong
    }
}
