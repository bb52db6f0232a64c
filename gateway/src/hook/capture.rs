//! Captures what the person and the agent said, each message once, verbatim except for secrets.
//!
//! A message is written to a file first and sent from there. If the process ends or the service is unreachable, the
//! next hook of the same service sends it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use context_model::{JsonObject, Reason, Timestamp};
use serde_json::json;

use super::digest::digest;
use super::ignore::Ignored;
use super::project::Project;
use super::secrets::redact;
use super::service::Service;
use super::state::{Held, Message, Sent, Session, State, read_message};
use super::transcript;
use crate::clock::now_micros;

/// A message as the agent gave it.
#[derive(Debug, Clone, Copy)]
pub struct Given<'g> {
    /// What [`Input::turn`](super::event::Input::turn) returns, or in a transcript the id of the turn's prompt. It is
    /// empty if the agent sends none.
    pub prompt_id: &'g str,
    /// Whether the person said it.
    pub is_user: bool,
    /// The text.
    pub text: &'g str,
    /// The model that wrote the answer; `None` for a prompt.
    pub model: Option<&'g str>,
}

/// What the messages of one session have in common.
#[derive(Debug)]
pub struct Capture<'c> {
    /// The state with the waiting messages.
    pub state: &'c State,
    /// The agent's name.
    pub agent: &'c str,
    /// The session.
    pub session_id: &'c str,
    /// The project.
    pub project: &'c Project,
    /// The project's name in entries.
    pub key: &'c str,
    /// The rules about what is not captured.
    pub ignored: &'c Ignored,
}

impl Capture<'_> {
    /// The thread of the session.
    #[must_use]
    pub fn thread_id(&self) -> String {
        thread_id(self.key, self.session_id)
    }

    /// Writes a message to a file, from which it is sent to the service. Does nothing if the message is empty, was
    /// captured before, names an excluded path, or is a prompt that the person did not type.
    ///
    /// # Errors
    /// A sentence when too many messages wait already, or a file cannot be written.
    pub fn keep(&self, session: &mut Held<Session>, given: Given<'_>) -> Result<(), String> {
        let is_scheduled =
            given.is_user && session.value.scheduled.contains(&digest(&[given.text]));
        if given.text.trim().is_empty()
            || is_scheduled
            || given.is_user && super::event::is_machine_made(given.text)
            || self.ignored.path_in(given.text).is_some()
        {
            return Ok(());
        }
        let redacted = redact(given.text);
        let source = if given.is_user { "user" } else { "agent" };
        // The text is part of the id when there is no prompt id, and for answers, because a turn may have several.
        let id = if given.is_user && !given.prompt_id.is_empty() {
            digest(&[self.agent, self.session_id, given.prompt_id, source])
        } else {
            let words: Vec<&str> = redacted.text.split_whitespace().collect();
            digest(&[
                self.agent,
                self.session_id,
                given.prompt_id,
                source,
                &words.join(" "),
            ])
        };
        if session.value.captured.contains(&id) {
            return Ok(());
        }
        let mut metadata = JsonObject::new();
        let mut set = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), json!(value));
            }
        };
        set("project", Some(self.key));
        set("branch", self.project.branch.as_deref());
        set("session", Some(self.session_id));
        set("agent", Some(self.agent));
        set("model", given.model.filter(|_| !given.is_user));
        set("message_id", Some(&id));
        set("said_at", Some(&Timestamp(now_micros()).to_string()));
        self.state.keep(&Message {
            id: id.clone(),
            thread_id: self.thread_id(),
            source: source.to_owned(),
            text: redacted.text,
            metadata,
            removed: redacted.removed,
        })?;
        let facts = Session {
            captured: vec![id],
            ..Session::default()
        };
        session
            .add(facts)
            .map_err(|error| format!("the session cannot be remembered: {error}"))
    }

    /// Keeps the messages of the transcript that no hook captured.
    ///
    /// # Errors
    /// As for [`keep`](Self::keep). A transcript that cannot be read counts as empty.
    pub fn fill_gaps(&self, session: &mut Held<Session>, path: &Path) -> Result<(), String> {
        for said in transcript::read(path).unwrap_or_default() {
            let given = Given {
                prompt_id: &said.prompt_id,
                is_user: said.is_user,
                text: &said.text,
                model: said.model.as_deref(),
            };
            self.keep(session, given)?;
        }
        Ok(())
    }
}

/// The thread of a session, at most 256 characters.
#[must_use]
pub fn thread_id(key: &str, session_id: &str) -> String {
    let id = format!("{key}/{session_id}");
    if id.chars().count() <= 256 {
        return id;
    }
    format!("{key}/{}", digest(&[session_id]))
}

/// Sends the messages that wait for this service until the time is over. Returns how many no longer wait: they were
/// stored now or before, or the service refused them. While another hook of the service sends, it sends nothing.
///
/// # Errors
/// A sentence with the reason why messages still wait.
pub async fn send(state: &State, service: &Service) -> Result<usize, String> {
    let failure = |error: std::io::Error| format!("the waiting messages cannot be read: {error}");
    let mut sent = 0;
    loop {
        // A message that another hook wrote after the list was read is found in the next round: that hook could not get
        // the lock, and left the message to this one.
        let files = state.waiting().map_err(failure)?.files;
        if files.is_empty() || service.left().is_zero() {
            return Ok(sent);
        }
        let Some(_lock) = state.sender().map_err(failure)? else {
            return Ok(sent);
        };
        let files = state.waiting().map_err(failure)?.files;
        let mut skipped = None;
        for files in files.chunks(CHUNK) {
            sent += send_some(state, service, files, &mut skipped).await?;
        }
        // The skipped files wait for the next hook. Another round now would likely fail at them again.
        if let Some(reason) = skipped {
            return Err(reason);
        }
    }
}

/// Most messages that are read, and looked up in the service, at once.
const CHUNK: usize = 50;

/// Returns the number of messages as [`send`] does. When it skips a message, or cannot delete its file, it notes the
/// reason in `skipped` and goes on.
async fn send_some(
    state: &State,
    service: &Service,
    files: &[PathBuf],
    skipped: &mut Option<String>,
) -> Result<usize, String> {
    let mut messages: Vec<Waiting<'_>> = Vec::new();
    for file in files {
        match read_message(file) {
            Ok(Some(message)) => messages.push((file, message)),
            // Another process has sent it, or the file is damaged and would stay forever.
            Ok(None) => delete(file, skipped),
            Err(error) => {
                *skipped = Some(format!(
                    "the waiting message {} cannot be read: {error}",
                    file.display()
                ));
            }
        }
    }
    let mut sent = 0;
    // One thread after the other, so that some messages are sent even when the time is too short for all.
    while let Some((_, first)) = messages.first() {
        let thread_id = first.thread_id.clone();
        let (of_thread, others) = messages
            .into_iter()
            .partition(|(_, message)| message.thread_id == thread_id);
        messages = others;
        sent += send_thread(state, service, &thread_id, of_thread, skipped).await?;
    }
    Ok(sent)
}

/// Deletes the file of a message, which another process may have done already.
fn delete(file: &Path, skipped: &mut Option<String>) {
    if let Err(error) = std::fs::remove_file(file)
        && error.kind() != ErrorKind::NotFound
    {
        *skipped = Some(format!(
            "the file {} of a message cannot be deleted: {error}",
            file.display()
        ));
    }
}

/// Whether other messages may be accepted although one of them, or a search in its thread, failed for this reason.
const fn may_concern_one(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Internal | Reason::StorageCorrupt | Reason::InvalidArgument
    )
}

/// A message with its file.
type Waiting<'f> = (&'f PathBuf, Message);

async fn send_thread(
    state: &State,
    service: &Service,
    thread_id: &str,
    messages: Vec<Waiting<'_>>,
    skipped: &mut Option<String>,
) -> Result<usize, String> {
    // An idempotency key holds only for a day, so messages that wait longer are recognised by the id in their metadata.
    let ids: Vec<&str> = messages
        .iter()
        .map(|(_, message)| message.id.as_str())
        .collect();
    let search = service.search(json!({
        "thread_id": thread_id,
        "metadata_filters": [{"key": "message_id", "operator": "in", "value": ids, "case_sensitive": true}],
        "limit": 100,
    }));
    let hits = match search.await {
        Ok(hits) => hits,
        Err(error) if may_concern_one(error.reason) => {
            *skipped = Some(error.message);
            return Ok(0);
        }
        Err(error) => return Err(error.message),
    };
    let known: Vec<&str> = hits
        .iter()
        .filter_map(|hit| hit.field("message_id"))
        .collect();
    let mut sent = 0;
    for (file, message) in messages {
        let mut line = Sent {
            at: now_micros(),
            thread_id: message.thread_id.clone(),
            source: message.source.clone(),
            context_id: None,
            bytes: message.text.len(),
            removed: message.removed,
            refused: None,
        };
        if !known.contains(&message.id.as_str()) {
            match service.store(&message).await {
                Ok(id) => line.context_id = Some(id),
                // It was stored before, perhaps with other metadata.
                Err(error) if error.reason == Reason::IdempotencyKeyReused => {}
                // It will never be accepted.
                Err(error)
                    if matches!(
                        error.reason,
                        Reason::InvalidArgument | Reason::RequestTooLarge
                    ) =>
                {
                    line.refused = Some(error.message);
                }
                Err(error) if may_concern_one(error.reason) => {
                    *skipped = Some(error.message);
                    continue;
                }
                Err(error) => return Err(error.message),
            }
            let _ = state.log(&line);
        }
        delete(file, skipped);
        sent += 1;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::delete;

    #[test]
    fn a_file_that_cannot_be_deleted_ends_the_sending_and_a_missing_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut skipped = None;
        delete(&dir.path().join("missing.json"), &mut skipped);
        assert_eq!(skipped, None);
        // A directory is not a file that can be deleted, not even by root.
        delete(dir.path(), &mut skipped);
        assert!(skipped.is_some_and(|reason| reason.contains("cannot be deleted")));
    }
}
