use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// An entry to be stored.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What questions call it.
    pub key: String,
    /// Its thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: String,
    /// Its text.
    pub text: String,
    /// Minutes that passed since the entry before it in the file.
    #[serde(default)]
    pub pause_minutes: u32,
}

/// A question and what answers it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question.
    pub text: String,
    /// The thread that is searched; all without one.
    #[serde(default)]
    pub thread_id: Option<String>,
    /// The keys of the entries that answer it.
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
    /// In the order in which they are stored.
    pub entries: Vec<Entry>,
    /// The questions.
    pub questions: Vec<Question>,
}

impl Set {
    /// Reads JSON lines.
    ///
    /// # Errors
    /// A sentence with the line's number.
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
                    "the question `{}` has no relevant entry, or one that is not there",
                    question.text
                )
                .into());
            }
        }
        Ok(set)
    }
}
