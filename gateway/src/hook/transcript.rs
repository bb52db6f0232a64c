//! The file in which Claude Code writes a conversation: one JSON object a line.
//!
//! It is read to fill gaps, which are prompts and answers whose hook did not run, and at `Stop` to find the model. At
//! `Stop` the last answer may be missing in the file (anthropics/claude-code#74340).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// Most bytes of a file that are read, from its end.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The id of the turn's prompt.
    pub prompt_id: String,
    /// Whether the person said it.
    pub is_user: bool,
    /// The text.
    pub text: String,
    /// The model that wrote the answer; `None` for a prompt.
    pub model: Option<String>,
}

/// The person's prompts, and the last answer of each turn. Messages of subagents, scheduled tasks, tools and commands
/// are left out.
///
/// # Errors
/// The system's error.
pub fn read(path: &Path) -> io::Result<Vec<Said>> {
    read_last(path, MAX_BYTES)
}

/// As [`read`], from the last `most` bytes of the file.
fn read_last(path: &Path, most: u64) -> io::Result<Vec<Said>> {
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(most);
    file.seek(SeekFrom::Start(skipped))?;
    let mut said: Vec<Said> = Vec::new();
    let mut turn = Turn::default();
    let mut has_prompt = skipped == 0;
    for line in BufReader::new(file.take(most)).split(b'\n') {
        // An incomplete line is skipped: the agent is still writing it, or reading began in the middle of it.
        let Ok(record) = serde_json::from_slice::<Value>(&line?) else {
            continue;
        };
        if record["isSidechain"] == true
            || record["isMeta"] == true
            || record["isCompactSummary"] == true
        {
            continue;
        }
        match record["type"].as_str() {
            Some("user") => {
                let Some(text) = text_of(&record["message"]["content"]) else {
                    continue;
                };
                let prompt_id = record["promptId"].as_str().unwrap_or_default().to_owned();
                // A subagent's prompt may carry the turn's id too, but the first one is the person's.
                let is_new = prompt_id.is_empty() || turn.prompts.insert(prompt_id.clone());
                said.extend(turn.end());
                turn.prompt_id.clone_from(&prompt_id);
                has_prompt = true;
                if is_new && is_typed(&record) && !super::event::is_machine_made(&text) {
                    said.push(Said {
                        prompt_id,
                        is_user: true,
                        text,
                        model: None,
                    });
                }
            }
            // Without the id of its prompt, which was skipped, an answer that a hook captured would be captured again.
            Some("assistant") if has_prompt => {
                let Some(text) = text_of(&record["message"]["content"]) else {
                    continue;
                };
                let message = record["message"]["id"].as_str().unwrap_or_default();
                turn.add(message, text, record["message"]["model"].as_str());
            }
            _ => {}
        }
    }
    said.extend(turn.end());
    Ok(said)
}

/// Most bytes at the end of a file that are searched for the model.
const TAIL_BYTES: u64 = 256 * 1024;

/// The model of the last answer, if the end of the file names it.
#[must_use]
pub fn last_model(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let lines = tail.split(|byte| *byte == b'\n').rev();
    lines
        .filter(|line| line.windows(8).any(|part| part == b"\"model\":"))
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|record| record["type"] == "assistant" && record["isSidechain"] != true)
        .find_map(|record| {
            let model = record["message"]["model"].as_str()?;
            (!model.starts_with('<')).then(|| model.to_owned())
        })
}

/// The turn that is being read.
#[derive(Debug, Default)]
struct Turn {
    prompt_id: String,
    /// The ids of all prompts so far, also of earlier turns.
    prompts: HashSet<String>,
    /// The id of the agent's last message.
    message: String,
    /// The text of the agent's last message.
    text: String,
    /// The model of the agent's last message; `None` for a notice of Claude Code, whose model is `<synthetic>`.
    model: Option<String>,
}

impl Turn {
    /// Adds a text of the agent. The blocks of one message come as several records, and are joined.
    fn add(&mut self, message: &str, text: String, model: Option<&str>) {
        if message.is_empty() || message != self.message || self.text.is_empty() {
            self.text = text;
        } else {
            self.text.push_str("\n\n");
            self.text.push_str(&text);
        }
        message.clone_into(&mut self.message);
        self.model = model
            .filter(|model| !model.starts_with('<'))
            .map(str::to_owned);
    }

    /// Ends the turn, and returns its last answer. `None` without an answer, or if it is a notice.
    fn end(&mut self) -> Option<Said> {
        let text = std::mem::take(&mut self.text);
        let is_notice = self.model.is_none();
        (!text.is_empty() && !is_notice).then(|| Said {
            prompt_id: self.prompt_id.clone(),
            is_user: false,
            text,
            model: self.model.take(),
        })
    }
}

/// Whether a person gave the prompt. A record of an older version does not say so, and counts as typed.
fn is_typed(record: &Value) -> bool {
    let origin = record["origin"]["kind"].as_str();
    let source = record["promptSource"].as_str().unwrap_or_default();
    let turn = record["turnOrigin"].as_str().unwrap_or_default();
    let is_scheduled = |text: &str| {
        [
            "cron", "loop", "schedule", "wakeup", "task", "agent", "teammate",
        ]
        .iter()
        .any(|word| text.to_ascii_lowercase().contains(word))
    };
    origin.is_none_or(|origin| origin == "human") && !is_scheduled(source) && !is_scheduled(turn)
}

/// The text blocks of a message. `None` without text, as in results of tools.
fn text_of(content: &Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter(|block| block["type"] == "text");
            let texts: Vec<&str> = texts.filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n\n")
        }
        _ => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_whose_prompt_was_skipped_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let lines = [
            r#"{"type":"user","promptId":"p1","message":{"content":"First?"}}"#,
            r#"{"type":"assistant","message":{"id":"m1","model":"opus","content":[{"type":"text","text":"Let me look."}]}}"#,
            r#"{"type":"assistant","message":{"id":"m2","model":"opus","content":[{"type":"text","text":"It is 7."}]}}"#,
            r#"{"type":"user","promptId":"p2","message":{"content":"Second?"}}"#,
            r#"{"type":"assistant","message":{"id":"m3","model":"opus","content":[{"type":"text","text":"It is 8."}]}}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let texts = |most: usize| -> Vec<String> {
            let said = read_last(&path, most as u64).unwrap();
            said.into_iter().map(|said| said.text).collect()
        };
        // Reading begins in the second line.
        assert_eq!(
            texts(lines[2..].join("\n").len() + 5),
            ["Second?", "It is 8."]
        );
        assert_eq!(
            texts(lines.join("\n").len()),
            ["First?", "It is 7.", "Second?", "It is 8."]
        );
    }

    #[test]
    fn prompts_and_last_answers_are_read_and_everything_else_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let lines = [
            r#"{"type":"queue-operation","content":"First?"}"#,
            r#"{"type":"user","promptId":"p1","promptSource":"sdk","message":{"content":"First?"}}"#,
            r#"{"type":"assistant","message":{"id":"m1","model":"opus","content":[{"type":"text","text":"Let me look."}]}}"#,
            r#"{"type":"user","promptId":"p1","message":{"content":[{"type":"tool_result","content":"x"}]}}"#,
            r#"{"type":"user","isSidechain":true,"promptId":"p1","message":{"content":"Subagent, search."}}"#,
            r#"{"type":"assistant","isSidechain":true,"message":{"id":"m9","model":"opus","content":[{"type":"text","text":"Found."}]}}"#,
            r#"{"type":"assistant","message":{"id":"m2","model":"opus","content":[{"type":"text","text":"It is 7."}]}}"#,
            r#"{"type":"assistant","message":{"id":"m2","model":"opus","content":[{"type":"tool_use"}]}}"#,
            r#"{"type":"assistant","message":{"id":"m2","model":"opus","content":[{"type":"text","text":"Really."}]}}"#,
            r#"{"type":"user","isMeta":true,"promptId":"p2","message":{"content":"Caveat"}}"#,
            r#"{"type":"user","promptId":"p3","turnOrigin":"cron","message":{"content":"Check the deploy."}}"#,
            r#"{"type":"user","promptId":"p4","origin":{"kind":"task-notification"},"message":{"content":"done"}}"#,
            r#"{"type":"user","promptId":"p5","message":{"content":"<task-notification>x"}}"#,
            r#"{"type":"user","promptId":"p6","origin":{"kind":"human"},"message":{"content":[{"type":"text","text":"Second?"},{"type":"image"}]}}"#,
            r#"{"type":"assistant","message":{"id":"m3","model":"<synthetic>","content":[{"type":"text","text":"API Error"}]}}"#,
            r#"{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#,
            r#"{"type":"user","promptId":"p7","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}"#,
            r#"{"type":"user","promptId":"p8","mess"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let said: Vec<_> = read(&path)
            .unwrap()
            .into_iter()
            .map(|said| (said.prompt_id, said.is_user, said.text))
            .collect();
        let expected = [
            ("p1", true, "First?"),
            ("p1", false, "It is 7.\n\nReally."),
            ("p6", true, "Second?"),
        ];
        assert_eq!(
            said,
            expected.map(|(id, is_user, text)| (id.to_owned(), is_user, text.to_owned()))
        );
    }
}
