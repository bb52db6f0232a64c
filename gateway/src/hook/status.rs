//! `context-gateway hook status`: what is captured here, what waits, and what was sent.

use std::fmt::Write as _;

use context_model::Timestamp;

use super::place::{Place, captures};
use super::state::State;
use crate::cli::{HookArgs, ProjectNames};
use crate::command::inert::inert;

/// How many of the messages that were sent last are listed.
const SHOWN: usize = 10;

/// The status as text.
///
/// # Errors
/// A sentence when a setting or the state cannot be read.
pub fn status(args: &HookArgs) -> Result<String, String> {
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let place = Place::of(&directory, &args.settings);
    let target = args.service.backend.target_as_it_runs()?;
    let state = State::open(&args.settings.state, &target)?;
    let waiting = state
        .waiting()
        .map_err(|error| format!("{}: {error}", state.directory().display()))?;
    let sent = state.sent();
    let capture = match (
        captures(args.settings.capture, &target),
        place.ignored.excludes_directory(),
    ) {
        (_, true) => {
            let reason = place.ignored.flaw().unwrap_or("this directory is excluded");
            format!("off: {reason}")
        }
        (Ok(()), false) => "on".to_owned(),
        (Err(reason), false) => format!("off: {reason}"),
    };
    let recall = if args.settings.recall && !place.ignored.excludes_directory() {
        "on"
    } else {
        "off"
    };
    let name = match args.settings.project_names {
        ProjectNames::Plain => place.key,
        ProjectNames::Hashed => format!("{} ({})", place.key, place.project.name),
    };
    let mut text = String::new();
    let rows = [
        ("project", name),
        ("service", target.to_string()),
        ("capture", capture),
        ("recall", recall.to_owned()),
        ("state", state.directory().display().to_string()),
        (
            "waiting",
            format!(
                "{} messages for this service; for all services {} messages, {} bytes",
                waiting.files.len(),
                waiting.count,
                waiting.bytes
            ),
        ),
        (
            "sent",
            format!(
                "{} messages for all services, as far as the log goes back",
                sent.len()
            ),
        ),
    ];
    for (label, value) in rows {
        let _ = writeln!(text, "{}", one_line(&format!("{label:8} {value}")));
    }
    if !sent.is_empty() {
        let _ = writeln!(text, "\nsent last:");
    }
    for line in sent.iter().rev().take(SHOWN) {
        let result = match (&line.refused, line.context_id) {
            (Some(refused), _) => format!("refused: {refused}"),
            (None, Some(id)) => format!("entry {id}"),
            (None, None) => "was stored before".to_owned(),
        };
        let at = Timestamp(line.at).to_string();
        let shown = format!(
            "{}Z  {:5}  {:>7} bytes  {} secrets removed  {result}  {}",
            at.get(..19).unwrap_or(&at),
            line.source,
            line.bytes,
            line.removed,
            line.thread_id
        );
        let _ = writeln!(text, "{}", one_line(&shown));
    }
    Ok(text)
}

/// The text without control characters. The names of directories and repositories, and the service's refusals, may hold
/// some. A line break in a name would look like another line of the status, which agents read.
fn one_line(text: &str) -> String {
    // Not `inert::one_line`, which joins blanks: the directory of the state is there to be copied.
    inert(text).replace('\n', "\\u{a}")
}
