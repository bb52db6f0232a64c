use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
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
    /// Words of the relevant entry that answer the question.
    #[serde(default)]
    pub answer: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Entry(Entry),
    Question(Question),
}

/// A part of a set's questions. All questions with the same first relevant entry are in the same half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Half {
    /// All questions
    All,
    /// The half to tune defaults on
    Tune,
    /// The half to check them on
    HoldOut,
}

impl Half {
    /// Whether a question is in this half.
    fn has(self, question: &Question) -> bool {
        // FNV-1a, so that the halves stay the same forever.
        let hash = question.relevant.first().map_or(0, |key| {
            key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            })
        });
        // The last bits of similar keys differ little, so all bits are mixed into the first one.
        let first = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0;
        match self {
            Self::All => true,
            Self::Tune => first,
            Self::HoldOut => !first,
        }
    }
}

/// The files of sets. A directory stands for its files that end in `.jsonl`, in the order of their names.
///
/// # Errors
/// The directory cannot be read or has no sets.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let file = entry?.path();
            if file
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(format!("{}: no file ends in .jsonl", path.display()).into());
        }
        found.sort_unstable();
        files.append(&mut found);
    }
    Ok(files)
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
    /// The set with one half of its questions.
    #[must_use]
    pub fn of(mut self, half: Half) -> Self {
        self.questions.retain(|question| half.has(question));
        self
    }

    /// Reads JSON lines.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, a line is malformed (with its number), two entries have the same key, or a
    /// question's relevant entries are missing.
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

/// The name of a set's file without its extension.
pub fn name(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_stay_the_same_and_have_each_question_once() {
        for (key, is_for_tuning) in [("a1", true), ("a3", false), ("b1", true), ("日本", true)] {
            let question = Question {
                text: "any".to_owned(),
                thread_id: None,
                relevant: vec![key.to_owned(), "another".to_owned()],
                answer: None,
            };
            assert!(Half::All.has(&question), "{key}");
            assert_eq!(Half::Tune.has(&question), is_for_tuning, "{key}");
            assert_eq!(Half::HoldOut.has(&question), !is_for_tuning, "{key}");
        }
    }

    #[test]
    fn a_set_names_the_line_or_the_question_that_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("set.jsonl");
        let entry = r#"{"entry": {"key": "a", "thread_id": "t", "source": "user", "text": "x"}}"#;
        for (second, words) in [
            (r#"{"entry": {"key": "b"}}"#, "line 2"),
            (entry, "the same key"),
            (
                r#"{"question": {"text": "Why?", "relevant": ["b"]}}"#,
                "Why?",
            ),
            (r#"{"question": {"text": "Why?", "relevant": []}}"#, "Why?"),
        ] {
            std::fs::write(&file, format!("{entry}\n{second}\n")).unwrap();
            let error = Set::read(&file).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(words), "{second}: {error}");
        }
        let question = r#"{"question": {"text": "Why?", "relevant": ["a"]}}"#;
        std::fs::write(&file, format!("{entry}\n\n{question}\n")).unwrap();
        let set = Set::read(&file).unwrap();
        assert_eq!((set.entries.len(), set.questions.len()), (1, 1));
    }
}
