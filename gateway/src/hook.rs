//! `context-gateway hook`: gives an agent memory without a tool call.
//!
//! The agent runs this command at the events of a session. The command captures what the person and the agent say, and
//! prints stored entries that may help.
//!
//! A failure never stops the agent. The exit code is 0 even then: at exit code 2, Claude Code would block the prompt.
//! Stderr has one line then, and stdout has the whole output or none. The process ends within CONTEXT_HOOK_TIMEOUT_MS.

#![expect(
    clippy::disallowed_methods,
    reason = "measures what is left of the hook's time"
)]

pub mod brief;
pub mod capture;
pub mod digest;
pub mod event;
pub mod frame;
pub mod ignore;
pub mod place;
pub mod project;
pub mod recall;
pub mod secrets;
pub mod service;
pub mod state;
mod status;
pub mod transcript;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

pub use status::status;

use crate::backend::{Backend, Target};
use crate::cli::{Cli, Command, HOOK_TIMEOUT_MS, HookAgent, HookArgs, HookEvent};
use capture::{Capture, Given};
use digest::digest;
use event::Input;
use place::{Place, captures};
use service::Service;
use state::State;

/// The process ends after this time: CONTEXT_HOOK_TIMEOUT_MS, or the default until the settings are read.
static LIMIT_MS: AtomicU64 = AtomicU64::new(HOOK_TIMEOUT_MS);
/// How long the thread that ends the process sleeps at a time.
const STEP: Duration = Duration::from_millis(20);
/// Time before the deadline that is reserved for writing the output. Requests to the service end before it.
const RESERVE: Duration = Duration::from_millis(150);
/// Largest input that is read, in bytes.
const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

/// Whether an agent made this call. A person calls `hook status`.
#[must_use]
pub fn is_called_by_agent(arguments: &[OsString]) -> bool {
    let by_person = |argument: &OsString| {
        ["status", "--help", "-h"]
            .iter()
            .any(|word| argument == word)
    };
    arguments.get(1).is_some_and(|first| first == "hook") && !arguments.iter().any(by_person)
}

/// Handles an event. Returns success also after a failure, which is reported on stderr.
#[must_use]
pub fn answer(arguments: Vec<OsString>) -> ExitCode {
    let began = Instant::now();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        complain(&format!("a defect at {place}; this hook ended early"));
        std::process::exit(0);
    }));
    // A thread, because a timer of the runtime cannot fire while stdin or a file lock blocks. It sleeps in short steps,
    // because the settings, which are read meanwhile, may change the limit.
    std::thread::spawn(move || {
        loop {
            let limit = Duration::from_millis(LIMIT_MS.load(Ordering::Relaxed));
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(STEP));
        }
        complain(
            "the time is over; the next hook of this service sends the messages that this one had written to files",
        );
        std::process::exit(0);
    });
    if let Err(sentence) = handle(arguments, began) {
        complain(&sentence);
    }
    ExitCode::SUCCESS
}

/// Prints one line on stderr, unless this process has printed one already. A failed write is ignored, because there is
/// no other place to report it.
fn complain(sentence: &str) {
    /// At the deadline, `handle` may have printed its error already.
    static HAS_COMPLAINED: AtomicBool = AtomicBool::new(false);
    if HAS_COMPLAINED.swap(true, Ordering::Relaxed) {
        return;
    }
    let line: String = sentence
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(500)
        .collect();
    let _ = writeln!(io::stderr(), "context-gateway hook: {line}");
}

fn handle(arguments: Vec<OsString>, began: Instant) -> Result<(), String> {
    let cli = Cli::try_read(arguments).map_err(|error| {
        // Its first paragraph, whose further lines name the arguments or the allowed values.
        let text = error.to_string();
        let lines = text.lines().map(str::trim);
        lines
            .take_while(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    })?;
    let Command::Hook(args) = cli.command else {
        return Err("it was called with another command".to_owned());
    };
    let Some((agent, event)) = args.command.event() else {
        return Err("it was called with another command".to_owned());
    };
    // If the plugin and the user's settings both have the hook, the agent calls both at the same time. Only the one in
    // the user's settings runs, because it has the options that `install` was given.
    if args.plugin && crate::install::has_hook(agent, event) {
        return Ok(());
    }
    let limit_ms = args.settings.timeout_ms;
    LIMIT_MS.store(limit_ms, Ordering::Relaxed);
    let until = began + Duration::from_millis(limit_ms).saturating_sub(RESERVE);
    let mut bytes = Vec::new();
    io::stdin()
        .take(MAX_INPUT_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the input cannot be read: {error}"))?;
    let input: Input = serde_json::from_slice(&bytes)
        .map_err(|error| format!("the input is not the JSON of a hook: {error}"))?;
    if input.session_id.is_empty() {
        return Err("the input names no session".to_owned());
    }
    // Messages to and from a subagent are not part of the conversation with the person.
    if !input.agent_id.is_empty() {
        return Ok(());
    }
    let place = Place::of(Path::new(&input.cwd), &args.settings);
    if let Some(flaw) = place.ignored.flaw() {
        return Err(format!("nothing is captured or recalled here: {flaw}"));
    }
    if place.ignored.excludes_directory() {
        return Ok(());
    }
    let target = args.service.backend.target_as_it_runs()?;
    let state = State::open(&args.settings.state, &target)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(
        Hook {
            agent,
            event,
            input: &input,
            args: &args,
            place: &place,
            state: &state,
        }
        .run(target, until),
    );
    runtime.shutdown_background();
    outcome
}

/// One event.
struct Hook<'h> {
    agent: HookAgent,
    event: HookEvent,
    input: &'h Input,
    args: &'h HookArgs,
    place: &'h Place,
    state: &'h State,
}

impl Hook<'_> {
    async fn run(&self, target: Target, until: Instant) -> Result<(), String> {
        let may_capture = captures(self.args.settings.capture, &target).is_ok();
        // Messages are written to files first, because the requests below may use up the time.
        let captured = if may_capture { self.capture() } else { Ok(()) };
        if self.event == HookEvent::SessionStart {
            self.state.clean_up();
        }
        let service = service(self.args, target, until)?;
        let recalled = async {
            match self.event {
                _ if !self.args.settings.recall => Ok(()),
                HookEvent::SessionStart => self.brief(&service).await,
                HookEvent::UserPromptSubmit => self.recall(&service).await,
                HookEvent::SessionEnd => self.end(&service).await,
                HookEvent::Stop | HookEvent::PreCompact => Ok(()),
            }
        };
        let sent = async {
            if may_capture {
                capture::send(self.state, &service).await?;
            }
            Ok(())
        };
        let (recalled, sent) = tokio::join!(recalled, sent);
        captured.and(recalled).and(sent)
    }

    fn thread_id(&self) -> String {
        capture::thread_id(&self.place.key, &self.input.session_id)
    }

    /// The stored facts about the session, locked until the value is dropped.
    fn session(&self) -> Result<state::Held<state::Session>, String> {
        let held = self
            .state
            .session(self.agent.name(), &self.input.session_id);
        held.map_err(|error| format!("the session cannot be remembered: {error}"))
    }

    /// Writes the messages of this event to files, from which they are sent.
    fn capture(&self) -> Result<(), String> {
        let input = self.input;
        let capture = Capture {
            state: self.state,
            agent: self.agent.name(),
            session_id: &input.session_id,
            project: &self.place.project,
            key: &self.place.key,
            ignored: &self.place.ignored,
        };
        let given = |is_user, text, model| Given {
            prompt_id: input.turn(self.agent),
            is_user,
            text,
            model,
        };
        let mut session = self.session()?;
        match self.event {
            HookEvent::SessionStart => {
                let model = input.model().map(str::to_owned);
                remember(&mut session, Vec::new(), model)
            }
            HookEvent::UserPromptSubmit => {
                capture.keep(&mut session, given(true, input.prompt(self.agent), None))
            }
            HookEvent::Stop => {
                let mut scheduled: Vec<String> = Vec::new();
                for prompt in input.scheduled_prompts() {
                    let prompt = digest(&[&prompt]);
                    if !session.value.scheduled.contains(&prompt) && !scheduled.contains(&prompt) {
                        scheduled.push(prompt);
                    }
                }
                let model = self.transcript().and_then(transcript::last_model);
                let model = input
                    .model()
                    .map(str::to_owned)
                    .or(model)
                    .or_else(|| session.value.model.clone());
                remember(&mut session, scheduled, model.clone())?;
                capture.keep(
                    &mut session,
                    given(false, input.answer(self.agent), model.as_deref()),
                )
            }
            HookEvent::PreCompact | HookEvent::SessionEnd => match self.transcript() {
                Some(transcript) => capture.fill_gaps(&mut session, transcript),
                None => Ok(()),
            },
        }
    }

    /// The file with the conversation, if its format is known.
    fn transcript(&self) -> Option<&Path> {
        let path = self.input.transcript_path.as_deref()?;
        (self.agent == HookAgent::Claude).then(|| Path::new(path))
    }

    /// Prints the brief of the project, and stores the cursor from which the next session lists changes.
    async fn brief(&self, service: &Service) -> Result<(), String> {
        let last = self
            .state
            .project(self.agent.name(), &self.place.key)
            .map_err(|error| error.to_string())?
            .value;
        let shown = self.session()?.value.shown.clone();
        let (frame, cursor) =
            brief::brief(service, &self.place.key, &self.thread_id(), &last, &shown).await?;
        self.remember_cursor(cursor)?;
        self.show(frame)
    }

    /// Prints stored entries about the prompt, if the person typed it and it names no excluded path.
    async fn recall(&self, service: &Service) -> Result<(), String> {
        let prompt = self.input.prompt(self.agent);
        if self.place.ignored.path_in(prompt).is_some() {
            return Ok(());
        }
        let is_typed = !event::is_machine_made(prompt)
            && !self.session()?.value.scheduled.contains(&digest(&[prompt]));
        // Secrets are removed before the prompt is cut, because a cut secret, or one without its name, is not
        // recognised.
        let without_secrets = secrets::redact(prompt).text;
        let Some(query) = recall::query(&without_secrets).filter(|_| is_typed) else {
            return Ok(());
        };
        let hits = recall::find(
            service,
            &query,
            &self.place.key,
            &self.thread_id(),
            &self.input.session_id,
        )
        .await?;
        let shown = self.session()?.value.shown.clone();
        self.show(recall::frame(&hits, &shown))
    }

    /// Stores the cursor from which the next session lists changes.
    async fn end(&self, service: &Service) -> Result<(), String> {
        let cursor = brief::cursor(service).await?;
        self.remember_cursor(Some(cursor))
    }

    /// Stores this session as the last one of the project. Without a cursor, the stored one stays.
    fn remember_cursor(&self, cursor: Option<String>) -> Result<(), String> {
        let failure = |error: io::Error| format!("the project cannot be remembered: {error}");
        let mut last = self
            .state
            .project(self.agent.name(), &self.place.key)
            .map_err(failure)?;
        last.value.cursor = cursor.or(last.value.cursor.take());
        last.value.thread_id = Some(self.thread_id());
        last.save().map_err(failure)
    }

    /// Prints the frame for the agent. First it records the entries in it, so that none is shown twice.
    fn show(&self, frame: frame::Frame) -> Result<(), String> {
        let ids = frame.ids.clone();
        let Some(text) = frame.finish() else {
            return Ok(());
        };
        let mut session = self.session()?;
        let facts = state::Session {
            shown: ids,
            ..state::Session::default()
        };
        session.add(facts).map_err(|error| error.to_string())?;
        let answer = json!({
            "hookSpecificOutput": {"hookEventName": self.event.name(self.agent), "additionalContext": text}
        });
        let mut line = answer.to_string();
        line.push('\n');
        io::stdout()
            .write_all(line.as_bytes())
            .map_err(|error| format!("the answer cannot be written: {error}"))
    }
}

/// Adds scheduled prompts and the model to the session, if they are new.
fn remember(
    session: &mut state::Held<state::Session>,
    scheduled: Vec<String>,
    model: Option<String>,
) -> Result<(), String> {
    let model = model.filter(|model| session.value.model.as_ref() != Some(model));
    if scheduled.is_empty() && model.is_none() {
        return Ok(());
    }
    let facts = state::Session {
        scheduled,
        model,
        ..state::Session::default()
    };
    session.add(facts).map_err(|error| error.to_string())
}

/// The service with the credentials of the settings.
fn service(args: &HookArgs, target: Target, until: Instant) -> Result<Service, String> {
    let backend = Backend::new(target, args.service.backend.max_message_bytes())?;
    let metadata = args.service.credentials()?.metadata();
    Ok(Service::new(backend, metadata, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_one_line_that_names_the_argument() {
        let failed = |arguments: &[&str]| {
            let arguments = arguments.iter().map(OsString::from).collect();
            handle(arguments, Instant::now()).unwrap_err()
        };
        assert_eq!(
            failed(&["context-gateway", "hook", "claude"]),
            "error: the following required arguments were not provided: <EVENT>"
        );
        let wrong = failed(&["context-gateway", "hook", "claude", "Start"]);
        assert!(
            wrong.contains("'Start'") && wrong.contains("SessionStart"),
            "{wrong}"
        );
    }
}
