//! What an agent passes to a hook on stdin.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::cli::HookAgent;

/// The input of a hook of Claude Code 2.1, Codex 0.169 or Gemini CLI 0.61. Fields that are not used are ignored, so
/// that a newer version works. A text that is null counts as absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Input {
    /// The id of the session. It stays the same when the session is resumed.
    #[serde(deserialize_with = "null_as_empty")]
    pub session_id: String,
    /// The file with the conversation so far. At `Stop` the last answer may be missing in it.
    pub transcript_path: Option<String>,
    /// The directory in which the agent works.
    #[serde(deserialize_with = "null_as_empty")]
    pub cwd: String,
    /// Of Claude Code: the id of the prompt that this turn answers. Older versions may not send it.
    #[serde(deserialize_with = "null_as_empty")]
    pub prompt_id: String,
    /// Of Codex: the id of the turn.
    #[serde(deserialize_with = "null_as_empty")]
    pub turn_id: String,
    /// Of Gemini CLI: when the event happened, the same for all hooks of the event.
    #[serde(deserialize_with = "null_as_empty")]
    pub timestamp: String,
    /// Set when a subagent caused the event.
    #[serde(deserialize_with = "null_as_empty")]
    pub agent_id: String,
    /// Of `UserPromptSubmit`: the text of the prompt.
    #[serde(deserialize_with = "null_as_empty")]
    pub prompt: String,
    /// Of `Stop`: the text of the answer.
    #[serde(deserialize_with = "null_as_empty")]
    pub last_assistant_message: String,
    /// Of `AfterAgent` of Gemini CLI: the text of the answer.
    #[serde(deserialize_with = "null_as_empty")]
    pub prompt_response: String,
    /// The model, in the events that have it.
    pub model: Value,
    /// Of `Stop`: the scheduled tasks of the session.
    pub session_crons: Value,
}

/// Agents send null for what they do not have: Codex does so at `Stop` without an answer.
fn null_as_empty<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Input {
    /// A string that identifies the turn within the session, or for Gemini CLI the event. It is empty if the agent sends
    /// none.
    #[must_use]
    pub fn turn(&self, agent: HookAgent) -> &str {
        match agent {
            HookAgent::Claude => &self.prompt_id,
            HookAgent::Codex => &self.turn_id,
            HookAgent::Gemini => &self.timestamp,
        }
    }

    /// The text of the prompt as the person wrote it.
    #[must_use]
    pub fn prompt(&self, agent: HookAgent) -> &str {
        match agent {
            HookAgent::Claude | HookAgent::Codex => &self.prompt,
            HookAgent::Gemini => without_added_context(&self.prompt),
        }
    }

    /// The text of the answer.
    #[must_use]
    pub fn answer(&self, agent: HookAgent) -> &str {
        match agent {
            HookAgent::Claude | HookAgent::Codex => &self.last_assistant_message,
            // What Gemini CLI writes for an answer without text.
            HookAgent::Gemini if self.prompt_response == "[no response text]" => "",
            HookAgent::Gemini => &self.prompt_response,
        }
    }

    /// The model's name, if there is one.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model
            .as_str()
            .or_else(|| self.model.get("id")?.as_str())
    }

    /// The prompts of the session's scheduled tasks.
    #[must_use]
    pub fn scheduled_prompts(&self) -> Vec<String> {
        let tasks = self.session_crons.as_array().into_iter().flatten();
        tasks
            .filter_map(|task| Some(task.get("prompt")?.as_str()?.to_owned()))
            .collect()
    }
}

/// The prompt without the element that Gemini CLI puts before it with `-p`: the text that hooks added at
/// `SessionStart`. That text is escaped, so it cannot end the element.
fn without_added_context(prompt: &str) -> &str {
    let added = prompt
        .strip_prefix("<hook_context>")
        .and_then(|rest| rest.split_once("</hook_context>"));
    added.map_or(prompt, |(_, prompt)| prompt.trim_start())
}

/// Beginnings of prompts that the agent submits itself: notices of tasks, output of commands, reminders.
const NOT_TYPED: [&str; 8] = [
    "<task-notification>",
    "<system-reminder>",
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-",
    "<teammate-message",
    "<<autonomous-loop",
];

/// What Claude Code writes into the transcript when the person stops it.
const INTERRUPTIONS: [&str; 2] = [
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
];

/// Whether the agent wrote the prompt itself: judged by its beginning, or all of it for an interruption.
#[must_use]
pub fn is_machine_made(text: &str) -> bool {
    let text = text.trim();
    NOT_TYPED.iter().any(|start| text.starts_with(start)) || INTERRUPTIONS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_of_another_version_is_read_as_far_as_it_is_known() {
        let input: Input = serde_json::from_str(
            r#"{"session_id":"s","cwd":"/p","new":{"x":1},"model":{"id":"m"},"session_crons":[{"prompt":"check"},7],"last_assistant_message":null}"#,
        )
        .unwrap();
        assert_eq!(
            (
                input.session_id.as_str(),
                input.model(),
                input.prompt.as_str()
            ),
            ("s", Some("m"), "")
        );
        assert_eq!(input.scheduled_prompts(), ["check"]);
        let input: Input = serde_json::from_str(
            r#"{"session_id":"s","transcript_path":null,"cwd":null,"prompt_id":null,"turn_id":null,"timestamp":null,"agent_id":null,"prompt":"p","prompt_response":null,"model":null,"session_crons":null}"#,
        )
        .unwrap();
        assert_eq!((input.prompt.as_str(), input.agent_id.as_str()), ("p", ""));
    }

    #[test]
    fn what_gemini_adds_is_neither_prompt_nor_answer() {
        let input = |prompt: &str, answer: &str| Input {
            prompt: prompt.to_owned(),
            prompt_response: answer.to_owned(),
            ..Input::default()
        };
        let agent = HookAgent::Gemini;
        for (given, prompt) in [
            (
                "<hook_context>&lt;remembered&gt;\nx</hook_context>\n\nWhy?",
                "Why?",
            ),
            (
                "What is <hook_context>x</hook_context>?",
                "What is <hook_context>x</hook_context>?",
            ),
            ("<hook_context>x", "<hook_context>x"),
        ] {
            assert_eq!(input(given, "").prompt(agent), prompt);
        }
        assert_eq!(input("", "[no response text]").answer(agent), "");
        assert_eq!(input("", "Because.").answer(agent), "Because.");
    }

    #[test]
    fn a_notice_of_a_task_is_not_typed_and_a_question_about_one_is() {
        assert!(is_machine_made(
            "\n<task-notification>done</task-notification>"
        ));
        assert!(!is_machine_made("what does <task-notification> mean?"));
        assert!(!is_machine_made(
            "[Request interrupted by user] is shown. Why?"
        ));
    }
}
