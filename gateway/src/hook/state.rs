//! The files of the hooks: what was captured and shown in each session, messages that wait for their service, and a log
//! of what was sent. Only this user can read them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use context_model::JsonObject;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::digest::{digest, is_digest};
use super::place::is_on_this_machine;
use crate::backend::Target;
use crate::clock::now_micros;

/// Most messages that wait, for all services together.
pub const MAX_WAITING: usize = 5_000;
/// Most bytes of waiting messages.
pub const MAX_WAITING_BYTES: u64 = 32 * 1024 * 1024;
/// Messages of one service that may wait although those of others have reached these bounds. Otherwise a service that
/// never comes back would end the capture for all.
const RESERVED: usize = 100;
/// Most bytes of these.
const RESERVED_BYTES: u64 = 2 * 1024 * 1024;
/// When the log of what was sent is longer, its older half is deleted.
const MAX_LOG_BYTES: u64 = 256 * 1024;
/// The files of a session are deleted when it has not continued for this long.
const SESSION_AGE: Duration = Duration::from_secs(180 * 24 * 3600);

/// No process is still writing a draft of this age, so it can be deleted.
const DRAFT_AGE: Duration = Duration::from_secs(60);

/// The directory with the files of the hooks.
#[derive(Debug, Clone)]
pub struct State {
    directory: PathBuf,
    /// The service of this hook, as a hash.
    service: String,
    is_on_this_machine: bool,
}

/// The messages that wait.
#[derive(Debug, Default)]
pub struct Queue {
    /// The files of those that wait for the service of this hook, oldest first.
    pub files: Vec<PathBuf>,
    /// The size of these in bytes.
    own_bytes: u64,
    /// How many messages wait, for all services together.
    pub count: usize,
    /// The size of all of them in bytes.
    pub bytes: u64,
}

/// The stored facts about a session. Each line of its file has some of them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The ids of its captured messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub captured: Vec<String>,
    /// The ids of the entries that the agent was shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<i64>,
    /// The prompts of its scheduled tasks, as hashes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scheduled: Vec<String>,
    /// The model of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Session {
    /// The facts of all lines of the file together. A line that is incomplete, because its process was killed, is
    /// skipped.
    fn read(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(facts) = serde_json::from_slice(line) {
                all.extend(facts);
            }
        }
        all
    }

    fn extend(&mut self, facts: Self) {
        let Self {
            captured,
            shown,
            scheduled,
            model,
        } = facts;
        self.captured.extend(captured);
        self.shown.extend(shown);
        self.scheduled.extend(scheduled);
        self.model = model.or(self.model.take());
    }
}

/// The stored facts about the last session in a project.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastSession {
    /// The cursor from which the changes after the last session begin.
    pub cursor: Option<String>,
    /// The thread of the last session.
    pub thread_id: Option<String>,
}

/// A message that waits for its service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its id: the same whenever the same message is captured.
    pub id: String,
    /// The thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: String,
    /// The text, without secrets.
    pub text: String,
    /// The metadata of the entry.
    pub metadata: JsonObject,
    /// How many secrets were removed.
    pub removed: usize,
}

/// A line of the log of what was sent. It has no text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sent {
    /// When it was sent, in microseconds since 1970.
    pub at: i64,
    /// The thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: String,
    /// The id of the new entry; absent when the service refused the message or had it already.
    pub context_id: Option<i64>,
    /// The size of the text.
    pub bytes: usize,
    /// How many secrets were removed.
    pub removed: usize,
    /// Why the service refused it.
    pub refused: Option<String>,
}

/// A value in a file that this process has locked.
#[derive(Debug)]
pub struct Held<T> {
    path: PathBuf,
    /// The lock ends with the process or this value.
    _lock: File,
    /// The value.
    pub value: T,
}

impl Held<LastSession> {
    /// Writes the value.
    ///
    /// # Errors
    /// The system's error.
    pub fn save(&self) -> io::Result<()> {
        write_private(&self.path, &serde_json::to_vec(&self.value)?)
    }
}

impl Held<Session> {
    /// Adds facts about the session. They are appended to the file, because the agent waits: when a file is replaced,
    /// ext4 writes the new one to the disk first, which takes tens of milliseconds while the disk is busy.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&mut self, facts: Session) -> io::Result<()> {
        // The line break comes first, because the last line of the file may be incomplete.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, &facts)?;
        append_private(&self.path, &line)?;
        self.value.extend(facts);
        Ok(())
    }
}

impl State {
    /// Opens the state in `directory` for hooks of the service at `target`, and creates the directory. An empty name
    /// means `$XDG_STATE_HOME/context-service/hooks`, else `~/.local/state/context-service/hooks`.
    ///
    /// # Errors
    /// The system's error, with the directory.
    pub fn open(directory: &str, target: &Target) -> Result<Self, String> {
        let directory = if directory.is_empty() {
            usual_directory()
        } else {
            context_model::local::expand_home(directory)
        };
        let attempt = || -> io::Result<()> {
            for part in ["sessions", "projects", "waiting"] {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory.join(part))?;
            }
            Ok(())
        };
        attempt().map_err(|error| format!("{} cannot be created: {error}", directory.display()))?;
        Ok(Self {
            directory,
            // What is shown of an address has no password.
            service: digest(&[&target.to_string()]),
            is_on_this_machine: is_on_this_machine(target),
        })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The stored facts about a session, locked: other hooks of the session wait until the value is dropped.
    ///
    /// # Errors
    /// The system's error.
    pub fn session(&self, agent: &str, session: &str) -> io::Result<Held<Session>> {
        self.held("sessions", &[agent, session], Session::read)
    }

    /// The stored facts about the last session in a project, locked like those of [`session`](Self::session).
    ///
    /// # Errors
    /// The system's error.
    pub fn project(&self, agent: &str, project: &str) -> io::Result<Held<LastSession>> {
        self.held("projects", &[agent, project], |bytes| {
            serde_json::from_slice(bytes).unwrap_or_default()
        })
    }

    fn held<T>(
        &self,
        part: &str,
        name: &[&str],
        parse: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<Held<T>> {
        let path = self
            .directory
            .join(part)
            .join(format!("{}.json", digest(name)));
        let lock = lock_file(&path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        // A file that cannot be read or parsed counts as empty. The ids of messages still prevent duplicates.
        let value = parse(&fs::read(&path).unwrap_or_default());
        Ok(Held {
            path,
            _lock: lock,
            value,
        })
    }

    /// Deletes the files of old sessions, and drafts of processes that ended while they wrote. Files of others stay: the
    /// user may have named a directory that had files in `projects` before.
    pub fn clean_up(&self) {
        let is_old = |path: &Path, least: Duration| {
            let changed = fs::metadata(path).and_then(|data| data.modified());
            let age = changed.ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > least)
        };
        for part in ["sessions", "projects", "waiting"] {
            let Ok(files) = fs::read_dir(self.directory.join(part)) else {
                continue;
            };
            for path in files.flatten().map(|file| file.path()) {
                let name = path.file_name().and_then(|name| name.to_str());
                let Some((hashes, kind)) = name.and_then(|name| name.split_once('.')) else {
                    continue;
                };
                let is_ours = hashes.rsplit('-').next().is_some_and(is_digest);
                let is_old = match kind {
                    "json" | "lock" => part == "sessions" && is_old(&path, SESSION_AGE),
                    draft => draft.starts_with("json.") && is_old(&path, DRAFT_AGE),
                };
                if is_ours && is_old {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }

    fn waiting_directory(&self) -> PathBuf {
        self.directory.join("waiting")
    }

    /// The messages that wait.
    ///
    /// # Errors
    /// The system's error.
    pub fn waiting(&self) -> io::Result<Queue> {
        let mut queue = Queue::default();
        for file in fs::read_dir(self.waiting_directory())? {
            let file = file?;
            let name = file.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let time = name.split('-').next().unwrap_or_default();
            if time.len() != 20 || !time.bytes().all(|b| b.is_ascii_digit()) {
                // It is not a file of hooks. A message that cannot be read would be deleted.
                continue;
            }
            // Another process may have sent the message and deleted the file meanwhile.
            let size = file.metadata().map_or(0, |data| data.len());
            queue.bytes += size;
            queue.count += 1;
            let is_for_this_service = match name.split('-').nth(2) {
                Some(service) => service == self.service,
                // An earlier version did not note the service. The message may be for one on this machine only.
                None => self.is_on_this_machine,
            };
            if is_for_this_service {
                queue.own_bytes += size;
                queue.files.push(file.path());
            }
        }
        queue.files.sort();
        Ok(queue)
    }

    /// Writes a message to a file, where it waits for the service of this hook. Its name has the time, the id and the
    /// service.
    ///
    /// # Errors
    /// A sentence when too many messages or bytes wait already, or the file cannot be written.
    pub fn keep(&self, message: &Message) -> Result<(), String> {
        let failure = |error: io::Error| format!("a message cannot be kept: {error}");
        let Queue {
            files,
            own_bytes,
            count,
            bytes,
        } = self.waiting().map_err(failure)?;
        let text = serde_json::to_vec(message).map_err(|error| failure(error.into()))?;
        let size = text.len() as u64;
        let fits = count < MAX_WAITING && bytes + size <= MAX_WAITING_BYTES;
        let fits_reserve = files.len() < RESERVED && own_bytes + size <= RESERVED_BYTES;
        if !fits && !fits_reserve {
            return Err(format!(
                "{count} messages of {bytes} bytes wait for their services; at most {MAX_WAITING} and \
                 {MAX_WAITING_BYTES} bytes may, so this one is not kept"
            ));
        }
        let name = format!("{:020}-{}-{}.json", now_micros(), message.id, self.service);
        write_private(&self.waiting_directory().join(name), &text).map_err(failure)
    }

    /// Takes the lock for sending messages to the service of this hook; `None` while another process has it.
    ///
    /// # Errors
    /// The system's error.
    pub fn sender(&self) -> io::Result<Option<File>> {
        let lock = lock_file(&self.directory.join(format!("sender-{}.lock", self.service)))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("sent.jsonl")
    }

    /// Adds a line to the log.
    ///
    /// # Errors
    /// The system's error.
    pub fn log(&self, sent: &Sent) -> io::Result<()> {
        let path = self.log_path();
        // Hooks of other services may send at the same time.
        let lock = lock_file(&path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        if fs::metadata(&path).is_ok_and(|data| data.len() > MAX_LOG_BYTES) {
            let text = fs::read(&path)?;
            let half = text.len() / 2;
            let cut = text[half..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(text.len(), |at| half + at + 1);
            write_private(&path, &text[cut..])?;
        }
        // As in a session, the last line of the file may be incomplete.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, sent)?;
        append_private(&path, &line)
    }

    /// What was sent, oldest first, as far as the log reaches back.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        let text = fs::read(self.log_path()).unwrap_or_default();
        text.split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}

/// Reads a waiting message. `None` when another process has sent it, or the file is damaged.
///
/// # Errors
/// The system's error when the file cannot be opened or read now.
pub fn read_message(path: &Path) -> io::Result<Option<Message>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_WAITING_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).ok())
}

fn usual_directory() -> PathBuf {
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    base.filter(|base| base.is_absolute())
        .unwrap_or_else(|| context_model::local::expand_home("~/.local/state"))
        .join("context-service")
        .join("hooks")
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

fn append_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?
        .write_all(bytes)
}

/// Replaces the file in one step, so that a process that is killed leaves the old content or the new one.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(bytes)?;
    fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_the_facts_of_all_lines_but_an_incomplete_one() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::parse("unix:/a.sock").unwrap();
        let state = State::open(dir.path().to_str().unwrap(), &target).unwrap();
        let held = || state.session("claude", "s").unwrap();
        assert_eq!(held().value.captured, Vec::<String>::new());
        // What an earlier version wrote, and a line of a process that was killed.
        let old = r#"{"captured":["a"],"shown":[1],"scheduled":[],"model":"m1"}"#;
        fs::write(held().path, format!("{old}\n{{\"captured\":[\"b")).unwrap();
        let add = |facts| held().add(facts).unwrap();
        add(Session {
            captured: vec!["c".to_owned()],
            ..Session::default()
        });
        add(Session {
            shown: vec![2, 3],
            model: Some("m2".to_owned()),
            ..Session::default()
        });
        let Session {
            captured,
            shown,
            scheduled,
            model,
        } = held().value;
        assert_eq!(captured, ["a", "c"]);
        assert_eq!(shown, [1, 2, 3]);
        assert!(scheduled.is_empty());
        assert_eq!(model.as_deref(), Some("m2"));
    }

    #[test]
    fn only_old_files_of_hooks_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::parse("unix:/a.sock").unwrap();
        let state = State::open(dir.path().to_str().unwrap(), &target).unwrap();
        let ours = digest(&["x"]);
        let file = |name: &str, is_old: bool| {
            let path = dir.path().join(name);
            let file = File::create(&path).unwrap();
            if is_old {
                file.set_modified(std::time::UNIX_EPOCH).unwrap();
            }
            path
        };
        let deleted = [
            file(&format!("sessions/{ours}.json"), true),
            file(&format!("sessions/{ours}.lock"), true),
            file(&format!("projects/{ours}.json.7"), true),
            file(&format!("waiting/{:020}-{ours}-{ours}.json.7", 1), true),
        ];
        let kept = [
            file(&format!("sessions/{}.json", digest(&["y"])), false),
            file(&format!("projects/{ours}.json"), true),
            file(&format!("projects/{ours}.json.8"), false),
            file(&format!("waiting/{:020}-{ours}-{ours}.json", 1), true),
            file("projects/notes.txt", true),
            file("projects/Makefile", true),
            file("sessions/6f1c2d3e-0000-4000-8000-1234567890ab.json", true),
        ];
        state.clean_up();
        for path in deleted {
            assert!(!path.exists(), "{}", path.display());
        }
        for path in kept {
            assert!(path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn an_incomplete_line_of_the_log_hides_no_other_line() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::parse("unix:/a.sock").unwrap();
        let state = State::open(dir.path().to_str().unwrap(), &target).unwrap();
        let log = |at| {
            let sent = Sent {
                at,
                thread_id: "ü".to_owned(),
                source: "user".to_owned(),
                context_id: Some(1),
                bytes: 1,
                removed: 0,
                refused: None,
            };
            state.log(&sent).unwrap();
        };
        let times = || -> Vec<i64> { state.sent().iter().map(|sent| sent.at).collect() };
        log(1);
        // On a full disk a line can end inside a character.
        let cut = &"\n{\"thread_id\":\"ü".as_bytes()[..16];
        append_private(&state.log_path(), cut).unwrap();
        log(2);
        assert_eq!(times(), [1, 2]);
        let long = vec![b'\xff'; usize::try_from(MAX_LOG_BYTES).unwrap()];
        append_private(&state.log_path(), &long).unwrap();
        log(3);
        assert_eq!(times(), [3]);
    }

    #[test]
    fn a_message_waits_for_one_service_and_counts_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let open = |target: &str| {
            let target = Target::parse(target).unwrap();
            State::open(dir.path().to_str().unwrap(), &target).unwrap()
        };
        let message = |id: &str| Message {
            id: id.to_owned(),
            thread_id: "t".to_owned(),
            source: "user".to_owned(),
            text: "text".to_owned(),
            metadata: JsonObject::new(),
            removed: 0,
        };
        let here = open("unix:/a.sock");
        let away = open("https://me:pa55word@context.example");
        // A file of an earlier version, which did not note the service.
        let old = serde_json::to_vec(&message("old")).unwrap();
        let old_file = here
            .waiting_directory()
            .join("00000000000000000001-old.json");
        write_private(&old_file, &old).unwrap();
        fs::write(here.waiting_directory().join("other.json"), &old).unwrap();
        here.keep(&message("here")).unwrap();
        away.keep(&message("away")).unwrap();
        let ids = |state: &State| -> Vec<String> {
            let files = state.waiting().unwrap().files;
            let read = |path: &PathBuf| read_message(path).unwrap().unwrap().id;
            files.iter().map(read).collect()
        };
        assert_eq!(ids(&here), ["old", "here"]);
        assert_eq!(ids(&away), ["away"]);
        assert_eq!(ids(&open("https://context.example")), Vec::<String>::new());
        assert_eq!(away.waiting().unwrap().count, 3);
        // The lock of one service does not keep back messages of another.
        let _lock = here.sender().unwrap().unwrap();
        assert!(here.sender().unwrap().is_none() && away.sender().unwrap().is_some());
        let enlarge = |file: &Path, bytes| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_len(bytes).unwrap();
        };
        let refusal = |state: &State| state.keep(&message("more")).unwrap_err();
        // The service that fills the queue has no more room. Another one has what is reserved for it.
        enlarge(&old_file, MAX_WAITING_BYTES);
        assert!(refusal(&here).contains("3 messages"));
        away.keep(&message("more")).unwrap();
        enlarge(&away.waiting().unwrap().files[0], RESERVED_BYTES);
        assert!(refusal(&away).contains("4 messages"));
    }

    #[test]
    fn a_message_is_gone_only_when_its_file_is_missing_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("message.json");
        assert_eq!(read_message(&path).unwrap(), None);
        fs::write(&path, "{\"id\":").unwrap();
        assert_eq!(read_message(&path).unwrap(), None);
        // A directory can be opened but not read.
        assert!(read_message(dir.path()).is_err());
    }
}
