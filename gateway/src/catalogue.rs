//! The tools as clients see them: one hand-written JSON file each under `tools/`, read once.
//!
//! The files are written by hand because they are the contract with the model: every byte of a description and a
//! schema is paid for in each agent's context. Tests hold them to the documented parameters, to the subset of JSON
//! Schema that all known clients accept, and to a size budget.

use std::sync::LazyLock;

use rmcp::model::Tool;

/// The files, in the order in which tools are listed.
const FILES: [&str; 23] = [
    include_str!("../tools/store_context.json"),
    include_str!("../tools/search_context.json"),
    include_str!("../tools/get_context_by_ids.json"),
    include_str!("../tools/update_context.json"),
    include_str!("../tools/delete_context.json"),
    include_str!("../tools/hybrid_search_context.json"),
    include_str!("../tools/fts_search_context.json"),
    include_str!("../tools/semantic_search_context.json"),
    include_str!("../tools/list_threads.json"),
    include_str!("../tools/get_statistics.json"),
    include_str!("../tools/store_context_batch.json"),
    include_str!("../tools/update_context_batch.json"),
    include_str!("../tools/delete_context_batch.json"),
    include_str!("../tools/create_artifact.json"),
    include_str!("../tools/search_artifacts.json"),
    include_str!("../tools/get_artifact.json"),
    include_str!("../tools/update_artifact.json"),
    include_str!("../tools/list_artifacts.json"),
    include_str!("../tools/delete_artifact.json"),
    include_str!("../tools/list_artifact_versions.json"),
    include_str!("../tools/get_artifact_version.json"),
    include_str!("../tools/restore_artifact_version.json"),
    include_str!("../tools/diff_artifact_versions.json"),
];

/// How many of them stand at the front of [`FILES`]: the documented tools. The others belong to the full set alone.
const DOCUMENTED: usize = 22;

/// Which tools are listed: each costs every agent a part of its context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ToolSet {
    /// The documented tools
    #[default]
    Default,
    /// Every tool
    Full,
}

/// Every tool the gateway knows, in the order it lists them.
#[derive(Debug)]
pub struct Catalogue {
    tools: Vec<Tool>,
}

impl Catalogue {
    /// The one catalogue of this binary.
    ///
    /// # Panics
    /// When an embedded file is not a tool, which the tests rule out.
    #[must_use]
    pub fn get() -> &'static Self {
        static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue {
            tools: FILES
                .iter()
                .map(|file| serde_json::from_str(file).expect("an embedded tool file is valid"))
                .collect(),
        });
        &CATALOGUE
    }

    /// Every tool, in listing order.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tools of a set, in listing order.
    #[must_use]
    pub fn listed(&self, set: ToolSet) -> &[Tool] {
        match set {
            ToolSet::Default => &self.tools[..DOCUMENTED],
            ToolSet::Full => &self.tools,
        }
    }

    /// The tool with this name. (A handful of short comparisons; a map would not be faster.)
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}
