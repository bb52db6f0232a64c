//! The known state of the service's features. It decides which tools the gateway lists.
//!
//! Before the first contact all tools are listed. From then on the service's last statistics decide,
//! and a change is announced to the client on stdio and to the clients that subscribed. A tool that is
//! not listed can still be called: the service then says why it is off.
//!
//! The tools whose feature is off are saved in a file next to the local service's socket. So the next
//! session starts with the right list of tools: a list that changes during a session invalidates an
//! agent's cached prompt.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long ago the statistics were read"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use context_model::{Operation, Reason, Result};
use rmcp::model::Tool;
use serde_json::Value;
use tokio::sync::watch;

use crate::call::tool_operation;
use crate::reply::Reply;

/// How long after a read the statistics are read again. A service that restarts between two calls may come back with
/// other features, and no call fails then.
const READ_AGAIN: Duration = Duration::from_secs(600);

/// The tools whose features are off, according to the service's last responses.
#[derive(Debug)]
pub struct Features {
    off: watch::Sender<BTreeSet<Operation>>,
    /// When the statistics were last read, or began to be read. `None` if the next call should have them read.
    requested: Mutex<Option<Instant>>,
    /// Where `off` is saved for the next session.
    file: Option<PathBuf>,
}

impl Default for Features {
    fn default() -> Self {
        Self::load(None)
    }
}

impl Features {
    /// Loads what an earlier session saved in `file`. Without a file, all features count as on.
    #[must_use]
    pub fn load(file: Option<PathBuf>) -> Self {
        let off = file.as_deref().map(read).unwrap_or_default();
        Self {
            off: watch::Sender::new(off),
            requested: Mutex::default(),
            file,
        }
    }

    /// Whether the caller should read the statistics now. True once at first, after a call that did not reach the
    /// service or whose feature was not available, after a failed read that may succeed later, and ten minutes after
    /// the last read.
    pub fn should_read_statistics(&self) -> bool {
        self.is_due(Instant::now())
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut requested = self.requested();
        let is_due = requested.is_none_or(|at| now.saturating_duration_since(at) >= READ_AGAIN);
        if is_due {
            *requested = Some(now);
        }
        is_due
    }

    fn requested(&self) -> MutexGuard<'_, Option<Instant>> {
        self.requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of `tools` whose feature is not known to be off.
    #[must_use]
    pub fn listed<'t>(&self, tools: impl IntoIterator<Item = &'t Tool>) -> Vec<Tool> {
        let off = self.off.borrow();
        tools
            .into_iter()
            .filter(|tool| !off.iter().any(|operation| operation.as_str() == tool.name))
            .cloned()
            .collect()
    }

    /// A receiver that is notified when the list of tools changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<BTreeSet<Operation>> {
        self.off.subscribe()
    }

    /// Updates the features from the outcome of a call. Statistics report all features. Any other call that succeeds
    /// shows that its own tool works; one that fails may only be a query that a provider refused.
    pub fn observe(&self, operation: Operation, outcome: &Result<Reply>) {
        match outcome {
            Ok(reply) if operation == Operation::GetStatistics => {
                *self.requested() = Some(Instant::now());
                let reported = disabled_tools(&reply.structured);
                self.change(|off| {
                    let changed = *off != reported;
                    *off = reported;
                    changed
                });
            }
            Ok(_) => self.change(|off| off.remove(&operation)),
            Err(error)
                if error.reason == Reason::FeatureUnavailable
                    && !self.off.borrow().contains(&operation) =>
            {
                *self.requested() = None;
            }
            // The service was down. It may come back with other settings.
            Err(error) if error.reason == Reason::StoreUnavailable => {
                *self.requested() = None;
            }
            // The statistics could not be read this time.
            Err(error)
                if operation == Operation::GetStatistics
                    && matches!(
                        error.reason,
                        Reason::Overloaded
                            | Reason::RateLimited
                            | Reason::ShuttingDown
                            | Reason::DeadlineExceeded
                    ) =>
            {
                *self.requested() = None;
            }
            Err(_) => {}
        }
    }

    /// Applies `change`, which returns whether it changed the set, and saves the set if it did.
    fn change(&self, change: impl FnOnce(&mut BTreeSet<Operation>) -> bool) {
        if self.off.send_if_modified(change)
            && let Some(file) = &self.file
            && let Err(error) = write(file, &self.off.borrow())
        {
            tracing::debug!(%error, "Could not save the service's features");
        }
    }
}

/// The operations that the file names. An unreadable file names none.
fn read(file: &Path) -> BTreeSet<Operation> {
    let names: Vec<String> = std::fs::read(file)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    names
        .iter()
        .filter_map(|name| tool_operation(name))
        .collect()
}

fn write(file: &Path, off: &BTreeSet<Operation>) -> std::io::Result<()> {
    let names: Vec<&str> = off.iter().map(|operation| operation.as_str()).collect();
    // Each process writes its own draft, because several gateways may write at the same time.
    let draft = file.with_extension(format!("features.{}", std::process::id()));
    std::fs::write(&draft, serde_json::to_vec(&names)?)?;
    std::fs::rename(&draft, file)
}

/// The tools whose feature is disabled according to the statistics.
fn disabled_tools(statistics: &Value) -> BTreeSet<Operation> {
    [
        ("fts", Operation::FtsSearchContext),
        ("semantic_search", Operation::SemanticSearchContext),
        ("hybrid_search", Operation::HybridSearchContext),
    ]
    .into_iter()
    .filter(|(feature, _)| statistics[feature]["enabled"] == false)
    .map(|(_, operation)| operation)
    .collect()
}

#[cfg(test)]
mod tests {
    use context_model::Error;
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;

    fn names(features: &Features) -> Vec<String> {
        features
            .listed(Catalogue::get().tools())
            .iter()
            .map(|tool| tool.name.to_string())
            .collect()
    }

    fn statistics(fts: bool, semantic: bool) -> Result<Reply> {
        Ok(Reply {
            structured: json!({"fts": {"enabled": fts}, "semantic_search": {"enabled": semantic},
                "hybrid_search": {"enabled": fts || semantic}}),
            text_field: None,
        })
    }

    #[test]
    fn everything_is_listed_before_the_first_contact() {
        assert_eq!(
            names(&Features::default()).len(),
            Catalogue::get().tools().len()
        );
    }

    #[test]
    fn statistics_hide_and_show_tools_and_only_changes_are_announced() {
        let features = Features::default();
        let mut changes = features.changes();
        features.observe(Operation::GetStatistics, &statistics(true, false));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(!names(&features).contains(&"semantic_search_context".to_owned()));
        assert!(names(&features).contains(&"hybrid_search_context".to_owned()));
        features.observe(Operation::GetStatistics, &statistics(true, false));
        assert!(!changes.has_changed().unwrap());
        features.observe(Operation::GetStatistics, &statistics(true, true));
        assert!(changes.has_changed().unwrap());
        assert_eq!(names(&features).len(), Catalogue::get().tools().len());
    }

    #[test]
    fn hybrid_search_is_hidden_by_its_own_switch() {
        let features = Features::default();
        let Ok(mut reply) = statistics(true, true) else {
            unreachable!("statistics");
        };
        reply.structured["hybrid_search"]["enabled"] = json!(false);
        features.observe(Operation::GetStatistics, &Ok(reply));
        let listed = names(&features);
        assert_eq!(listed.len(), Catalogue::get().tools().len() - 1);
        assert!(!listed.contains(&"hybrid_search_context".to_owned()));
    }

    #[test]
    fn what_was_learnt_is_known_to_the_next_session() {
        let dir = tempfile::tempdir().unwrap();
        let file = Some(dir.path().join("service.features"));
        Features::load(file.clone()).observe(Operation::GetStatistics, &statistics(true, false));
        assert!(
            !names(&Features::load(file.clone())).contains(&"semantic_search_context".to_owned())
        );
        std::fs::write(file.as_ref().unwrap(), "damaged").unwrap();
        assert_eq!(
            names(&Features::load(file)).len(),
            Catalogue::get().tools().len()
        );
    }

    #[test]
    fn statistics_are_requested_once_until_the_service_was_unreachable() {
        let features = Features::default();
        assert!(features.should_read_statistics());
        assert!(!features.should_read_statistics());
        features.observe(
            Operation::ListThreads,
            &Err(Error::new(Reason::StoreUnavailable, "away")),
        );
        assert!(features.should_read_statistics());
    }

    #[test]
    fn statistics_are_requested_again_ten_minutes_after_the_last_read() {
        let features = Features::default();
        features.observe(Operation::GetStatistics, &statistics(true, false));
        assert!(!features.should_read_statistics());
        let later = Instant::now() + READ_AGAIN;
        assert!(features.is_due(later));
        assert!(!features.is_due(later + READ_AGAIN / 2));
        assert!(features.is_due(later + READ_AGAIN));
    }

    #[test]
    fn statistics_are_requested_again_after_a_failure_that_passes() {
        let features = Features::default();
        for (operation, reason, expected) in [
            (Operation::GetStatistics, Reason::Overloaded, true),
            (Operation::GetStatistics, Reason::DeadlineExceeded, true),
            (Operation::GetStatistics, Reason::ScopeMissing, false),
            (Operation::ListThreads, Reason::Overloaded, false),
        ] {
            features.should_read_statistics();
            features.observe(operation, &Err(Error::new(reason, "not now")));
            assert_eq!(features.should_read_statistics(), expected, "{reason:?}");
        }
    }

    #[test]
    fn only_the_statistics_hide_a_tool_and_a_call_that_works_shows_it() {
        let features = Features::default();
        assert!(features.should_read_statistics());
        let refused = Err(Error::new(Reason::FeatureUnavailable, "off"));
        features.observe(Operation::SemanticSearchContext, &refused);
        assert!(names(&features).contains(&"semantic_search_context".to_owned()));
        assert!(features.should_read_statistics());
        features.observe(Operation::GetStatistics, &statistics(true, false));
        assert!(!names(&features).contains(&"semantic_search_context".to_owned()));
        // Nothing more can be learnt from another refusal.
        features.observe(Operation::SemanticSearchContext, &refused);
        assert!(!features.should_read_statistics());
        features.observe(
            Operation::SemanticSearchContext,
            &Ok(Reply {
                structured: json!({}),
                text_field: None,
            }),
        );
        assert!(names(&features).contains(&"semantic_search_context".to_owned()));
    }
}
