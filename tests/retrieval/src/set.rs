use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// An entry to store.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name that questions use for it.
    pub key: String,
    /// The thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: String,
    /// The text.
    pub text: String,
    /// Minutes between the previous entry of the file and this one.
    #[serde(default)]
    pub pause_minutes: u32,
}

/// A question and its relevant entries.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question.
    pub text: String,
    /// The thread to search. All threads if absent.
    #[serde(default)]
    pub thread_id: Option<String>,
    /// The keys of the relevant entries.
    pub relevant: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Entry(Entry),
    Question(Question),
}

/// Entries and questions.
#[derive(Debug, Default)]
pub struct Set {
    /// The entries, in the order in which they are stored.
    pub entries: Vec<Entry>,
    /// The questions.
    pub questions: Vec<Question>,
}

impl Set {
    /// Reads JSON lines.
    ///
    /// # Errors
    /// A sentence with the line number.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let mut set = Self::default();
        for (number, line) in (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim().is_empty())
        {
            match serde_json::from_str(line)
                .map_err(|error| format!("{}, line {number}: {error}", path.display()))?
            {
                Line::Entry(entry) => set.entries.push(entry),
                Line::Question(question) => set.questions.push(question),
            }
        }
        let keys: HashSet<&str> = set.entries.iter().map(|entry| entry.key.as_str()).collect();
        if keys.len() != set.entries.len() {
            return Err("two entries have the same key".into());
        }
        for question in &set.questions {
            if question.relevant.is_empty()
                || question
                    .relevant
                    .iter()
                    .any(|key| !keys.contains(key.as_str()))
            {
                return Err(format!(
                    "the question `{}` names no relevant entry, or one that the file does not contain",
                    question.text
                )
                .into());
            }
        }
        Ok(set)
    }
}
