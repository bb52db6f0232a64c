//! The tools as clients see them: one hand-written JSON file each under `tools/`, parsed once.
//!
//! The files are written by hand because they are the contract with the model, and every byte of a
//! description or schema takes space in each agent's context. Tests compare them with the
//! documented parameters, with the subset of JSON Schema that all known clients accept, and with a
//! size budget.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use context_model::nearest;
use rmcp::model::Tool;

/// The files, in listing order.
const FILES: [&str; 24] = [
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
    include_str!("../tools/changes_since.json"),
    include_str!("../tools/diff_artifact_versions.json"),
];

/// How many of [`FILES`], from the front, are listed by default. The rest is listed only in the full set.
const DEFAULT: usize = 23;

/// What agents are told at the start of a session: one sentence a line, in paragraphs.
const INSTRUCTIONS: &str = include_str!("instructions.md");

/// Which tools are listed. Each listed tool takes space in every agent's context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolSet {
    /// All but diff_artifact_versions
    #[default]
    Default,
    /// Every tool
    Full,
}

/// Which tools a gateway lists, and which can be called.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    set: ToolSet,
    disabled: BTreeSet<String>,
}

impl Selection {
    /// The tools of a set, without those with these names. White space around a name, and its case, do not matter.
    #[must_use]
    pub fn new(set: ToolSet, disabled: &[String]) -> Self {
        let names = disabled.iter().map(|name| name.trim().to_ascii_lowercase());
        Self {
            set,
            disabled: names.filter(|name| !name.is_empty()).collect(),
        }
    }

    /// A warning for each disabled name that is no tool.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let names = || Catalogue::get().tools().iter().map(|tool| &*tool.name);
        let unknown = self
            .disabled
            .iter()
            .filter(|name| Catalogue::get().find(name).is_none());
        unknown
            .map(|name| {
                let shown: String = name.chars().take(64).collect();
                let hint = nearest(&shown, names())
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                format!("DISABLED_TOOLS names `{shown}`, which is no tool{hint}")
            })
            .collect()
    }

    /// The listed tools, in listing order.
    pub fn listed(&self) -> impl Iterator<Item = &'static Tool> {
        self.enabled(Catalogue::get().listed(self.set))
    }

    /// The tools that can be called, listed or not.
    pub fn callable(&self) -> impl Iterator<Item = &'static Tool> {
        self.enabled(Catalogue::get().tools())
    }

    /// The tool with this name, if it can be called.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&'static Tool> {
        Catalogue::get()
            .find(name)
            .filter(|_| !self.disabled.contains(name))
    }

    /// The instructions for agents, without the sentences that name a disabled tool.
    #[must_use]
    pub fn instructions(&self) -> String {
        let paragraphs = INSTRUCTIONS.split("\n\n").map(|paragraph| {
            let enabled = paragraph
                .lines()
                .filter(|sentence| !words(sentence).any(|word| self.disabled.contains(word)));
            enabled.collect::<Vec<_>>().join(" ")
        });
        let kept: Vec<String> = paragraphs.filter(|kept| !kept.is_empty()).collect();
        kept.join("\n\n")
    }

    fn enabled(&self, tools: &'static [Tool]) -> impl Iterator<Item = &'static Tool> {
        tools
            .iter()
            .filter(|tool| !self.disabled.contains(&*tool.name))
    }
}

/// Every tool of the gateway, in the order it lists them.
#[derive(Debug)]
pub struct Catalogue {
    tools: Vec<Tool>,
}

impl Catalogue {
    /// The one catalogue of this binary.
    ///
    /// # Panics
    /// If an embedded file is not a valid tool. Tests rule this out.
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
            ToolSet::Default => &self.tools[..DEFAULT],
            ToolSet::Full => &self.tools,
        }
    }

    /// The tool with this name. A linear scan: with so few short names a map would not be faster.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// The words of a text. The name of a tool is one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_name_no_disabled_tool() {
        let all = Selection::default().instructions();
        assert!(all.split_whitespace().eq(INSTRUCTIONS.split_whitespace()));
        for tool in Catalogue::get().tools() {
            let name = tool.name.to_string();
            let rest = Selection::new(ToolSet::Default, std::slice::from_ref(&name)).instructions();
            assert!(!words(&rest).any(|word| word == name), "{name}");
            for sentence in INSTRUCTIONS.lines().filter(|line| !line.contains(&name)) {
                assert!(rest.contains(sentence), "{name}: {sentence}");
            }
        }
    }

    #[test]
    fn a_disabled_name_that_is_no_tool_is_a_warning_with_the_nearest_one() {
        let names = ["delete_contexts", "LIST_THREADS", "", "unheard_of"].map(String::from);
        let warnings = Selection::new(ToolSet::Default, &names).warnings();
        assert_eq!(
            warnings,
            [
                "DISABLED_TOOLS names `delete_contexts`, which is no tool; did you mean `delete_context`?",
                "DISABLED_TOOLS names `unheard_of`, which is no tool",
            ]
        );
    }
}
