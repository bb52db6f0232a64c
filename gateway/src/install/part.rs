//! The parts that `install` adds to a configuration file and removes from it.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use super::clients::Syntax;
use super::{hooks, jsonc, tomlc};
use crate::cli::HookAgent;

/// A part of a configuration file that belongs to this program.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// The server.
    Server {
        /// The syntax of the file.
        syntax: Syntax,
        /// The key of the servers, and the name.
        path: [String; 2],
        /// The server as the client writes it.
        entry: Value,
    },
    /// The hooks.
    Hooks {
        /// The agent that calls them.
        agent: HookAgent,
        /// The events and their groups of hooks.
        groups: Vec<(&'static str, Value)>,
    },
    /// The records that Codex writes into its own file when a person trusts the hooks. This program only removes them.
    Trust {
        /// The keys of the records, as `hooks::trust_keys` returns them.
        keys: Vec<String>,
    },
}

impl Part {
    /// The text with this part.
    ///
    /// # Errors
    /// A sentence if the text cannot be parsed, or if what should contain the part is not an object, a table or (for
    /// hooks) an array.
    pub fn add(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Server {
                syntax,
                path,
                entry,
            } => syntax.set(text, &strs(path), entry),
            Self::Hooks { agent, groups } => {
                let mut text = text.to_owned();
                for (event, group) in groups {
                    let is_ours = |group: &Value| hooks::is_ours(*agent, group);
                    text = jsonc::set_element(&text, &["hooks", event], is_ours, group)?;
                }
                Ok(text)
            }
            Self::Trust { .. } => Ok(text.to_owned()),
        }
    }

    /// This part with the values that the text has for it. `None` if the text has none.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn found(&self, text: &str) -> Result<Option<Self>, String> {
        match self {
            Self::Server { syntax, path, .. } => {
                let entry = syntax.get(text, &strs(path))?;
                Ok(entry.map(|entry| Self::Server {
                    syntax: *syntax,
                    path: path.clone(),
                    entry,
                }))
            }
            Self::Hooks { agent, .. } => {
                let mut groups = Vec::new();
                for event in agent.events() {
                    let event = event.name(*agent);
                    let is_ours = |group: &Value| hooks::is_ours(*agent, group);
                    let found = jsonc::get_elements(text, &["hooks", event], is_ours)?;
                    groups.extend(found.into_iter().map(|group| (event, group)));
                }
                let agent = *agent;
                Ok((!groups.is_empty()).then_some(Self::Hooks { agent, groups }))
            }
            Self::Trust { keys } => {
                let without = tomlc::remove_keys(text, &TRUST, |key| is_one_of(keys, key))?;
                Ok(without.map(|_| self.clone()))
            }
        }
    }

    /// Whether the text has something else where this part goes: a server of the same name that this program did not
    /// write. Unknown content counts as something else.
    pub fn replaces_another(&self, text: &str) -> bool {
        match self.found(text) {
            Ok(Some(Self::Server { entry, .. })) => !is_own_server(&entry),
            Ok(Some(Self::Hooks { .. } | Self::Trust { .. }) | None) => false,
            Err(_) => true,
        }
    }

    /// The text without this part.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn remove(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        match self {
            Self::Server { syntax, path, .. } => {
                if let Some(without) = syntax.remove(&text, &strs(path))? {
                    text = without;
                }
            }
            Self::Hooks { agent, .. } => {
                for event in agent.events() {
                    let path = ["hooks", event.name(*agent)];
                    let is_ours = |group: &Value| hooks::is_ours(*agent, group);
                    if let Some(without) = jsonc::remove_elements(&text, &path, is_ours)? {
                        text = without;
                    }
                }
            }
            Self::Trust { keys } => {
                let is_ours = |key: &str| is_one_of(keys, key);
                if let Some(without) = tomlc::remove_keys(&text, &TRUST, is_ours)? {
                    text = without;
                }
            }
        }
        Ok(text)
    }

    /// The sentence that reports that the part was added, or (`is_changed` is false) was in the file already.
    pub fn report_added(&self, file: &Path, is_changed: bool) -> String {
        let file = file.display();
        match (self, is_changed) {
            (
                Self::Server {
                    path: [_, name], ..
                },
                true,
            ) => {
                format!("`{name}` was registered in {file}; restart the client to use it")
            }
            (
                Self::Server {
                    path: [_, name], ..
                },
                false,
            ) => {
                format!("{file} already contains this entry for `{name}`")
            }
            (Self::Hooks { .. } | Self::Trust { .. }, true) => format!(
                "the hooks were added to {file}; `context-gateway hook status` shows what they do"
            ),
            (Self::Hooks { .. } | Self::Trust { .. }, false) => {
                format!("{file} already has these hooks")
            }
        }
    }

    /// The sentence that reports that the part was removed, or (`was_there` is false) was not in the file.
    pub fn report_removed(&self, file: &Path, was_there: bool) -> String {
        let file = file.display();
        match (self, was_there) {
            (
                Self::Server {
                    path: [_, name], ..
                },
                true,
            ) => {
                format!("`{name}` was removed from {file}; restart the client")
            }
            (
                Self::Server {
                    path: [_, name], ..
                },
                false,
            ) => {
                format!("`{name}` is not in {file}; nothing to remove")
            }
            (Self::Hooks { .. }, true) => format!("the hooks were removed from {file}"),
            (Self::Hooks { .. }, false) => format!("{file} has no hooks of this program"),
            (Self::Trust { .. }, true) => format!("{file} no longer lists the hooks as trusted"),
            (Self::Trust { .. }, false) => format!("{file} does not list the hooks as trusted"),
        }
    }
}

/// Whether this program wrote the entry. One with a URL may be the user's own.
fn is_own_server(entry: &Value) -> bool {
    let command = entry["command"].as_str().map(Path::new);
    command.and_then(Path::file_name) == Some(OsStr::new("context-gateway"))
        && entry["args"] == serde_json::json!(["stdio"])
}

/// Where Codex notes which hooks are trusted.
const TRUST: [&str; 2] = ["hooks", "state"];

fn is_one_of(keys: &[String], key: &str) -> bool {
    keys.iter().any(|own| own == key)
}

fn strs(path: &[String; 2]) -> [&str; 2] {
    [&path[0], &path[1]]
}
