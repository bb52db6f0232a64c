//! What the gateway knows about the service's features, and therefore which tools it lists.
//!
//! Before the first contact everything is listed. What the service last said decides after that; a change is announced
//! to the clients that can hear it. A tool that is not listed can still be called: the service answers why it is off.

use std::collections::BTreeSet;

use context_model::{Reason, Result};
use rmcp::model::Tool;
use serde_json::Value;
use tokio::sync::watch;

use crate::call::Operation;
use crate::reply::Reply;

/// The tools that the service's last answers rule out.
#[derive(Debug)]
pub struct Features {
    off: watch::Sender<BTreeSet<Operation>>,
}

impl Default for Features {
    fn default() -> Self {
        Self { off: watch::Sender::new(BTreeSet::new()) }
    }
}

impl Features {
    /// Those of `tools` whose feature is not known to be off.
    #[must_use]
    pub fn listed(&self, tools: &[Tool]) -> Vec<Tool> {
        let off = self.off.borrow();
        tools.iter().filter(|tool| !off.iter().any(|operation| operation.name() == tool.name)).cloned().collect()
    }

    /// Wakes when the list changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<BTreeSet<Operation>> {
        self.off.subscribe()
    }

    /// Learns from the outcome of a call: statistics tell everything, a success or a refusal something about one tool.
    pub fn observe(&self, operation: Operation, outcome: &Result<Reply>) {
        match outcome {
            Ok(reply) if operation == Operation::GetStatistics => {
                let off = switched_off(&reply.structured);
                self.off.send_if_modified(|known| {
                    let changed = *known != off;
                    *known = off;
                    changed
                });
            }
            Ok(_) => {
                self.off.send_if_modified(|known| known.remove(&operation));
            }
            Err(error) if error.reason == Reason::FeatureUnavailable => {
                self.off.send_if_modified(|known| known.insert(operation));
            }
            Err(_) => {}
        }
    }
}

/// The tools whose feature the statistics report as switched off.
fn switched_off(statistics: &Value) -> BTreeSet<Operation> {
    let is_off = |feature: &str| statistics[feature]["enabled"] == false;
    let (fts, semantic) = (is_off("fts"), is_off("semantic_search"));
    [(fts, Operation::FtsSearchContext), (semantic, Operation::SemanticSearchContext), (fts && semantic, Operation::HybridSearchContext)]
        .into_iter()
        .filter_map(|(off, operation)| off.then_some(operation))
        .collect()
}

#[cfg(test)]
mod tests {
    use context_model::Error;
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;

    fn names(features: &Features) -> Vec<String> {
        features.listed(Catalogue::get().tools()).iter().map(|tool| tool.name.to_string()).collect()
    }

    fn statistics(fts: bool, semantic: bool) -> Result<Reply> {
        Ok(Reply { structured: json!({"fts": {"enabled": fts}, "semantic_search": {"enabled": semantic}}), text_key: None })
    }

    #[test]
    fn everything_is_listed_before_the_first_contact() {
        assert_eq!(names(&Features::default()).len(), Catalogue::get().tools().len());
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
    fn a_refusal_because_of_the_feature_hides_the_tool_until_it_works() {
        let features = Features::default();
        let refused = Err(Error::new(Reason::FeatureUnavailable, "off"));
        features.observe(Operation::SemanticSearchContext, &refused);
        assert!(!names(&features).contains(&"semantic_search_context".to_owned()));
        features.observe(Operation::SemanticSearchContext, &Ok(Reply { structured: json!({}), text_key: None }));
        assert!(names(&features).contains(&"semantic_search_context".to_owned()));
    }
}
