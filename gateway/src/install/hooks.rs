//! The hooks in an agent's settings file, which call `context-gateway hook AGENT EVENT`.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::clients::claude_directory;
use super::file::read;
use super::jsonc;
use super::text::{pretty, shell_line};
use crate::cli::{Client, HookAgent, HookEvent, InstallArgs};

/// Seconds after which the agent ends a hook. By default the hook ends itself earlier (CONTEXT_HOOK_TIMEOUT_MS).
const TIMEOUT_S: u32 = 5;

/// What `--print` shows.
///
/// # Errors
/// A sentence if the path of this program is unknown.
pub fn printed(agent: HookAgent, args: &InstallArgs) -> Result<String, String> {
    let groups = groups(agent, args)?.into_iter();
    let groups: Map<String, Value> = groups
        .map(|(event, group)| (event.to_owned(), json!([group])))
        .collect();
    Ok(pretty(&json!({ "hooks": groups })))
}

/// The groups of hooks of each event.
///
/// # Errors
/// A sentence if the path of this program is unknown.
pub fn groups(agent: HookAgent, args: &InstallArgs) -> Result<Vec<(&'static str, Value)>, String> {
    let events = agent.events().iter();
    events
        .map(|event| Ok((event.name(agent), group(agent, args, *event)?)))
        .collect()
}

/// The keys under which Codex records that our hooks are trusted: the file, the event, and two positions. Empty for
/// other agents, which have no such records.
///
/// # Errors
/// A sentence if the path of the file is unknown, or the file cannot be read. A file that cannot be parsed has no
/// hooks.
pub fn trust_keys(agent: HookAgent) -> Result<Vec<String>, String> {
    let mut keys = Vec::new();
    if agent != HookAgent::Codex {
        return Ok(keys);
    }
    let file = settings_file(agent)?;
    let text = read(&file)?;
    for event in agent.events() {
        let event = event.name(agent);
        let groups = jsonc::get_elements(&text, &["hooks", event], |_| true);
        for (at, group) in groups.unwrap_or_default().iter().enumerate() {
            if is_ours(agent, group) {
                keys.push(format!("{}:{}:{at}:0", file.display(), snake_case(event)));
            }
        }
    }
    Ok(keys)
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Whether the user's settings of the agent have this hook. Settings that cannot be read have none.
#[must_use]
pub fn has_hook(agent: HookAgent, event: HookEvent) -> bool {
    let Ok(text) = settings_file(agent).and_then(|file| read(&file)) else {
        return false;
    };
    let path = ["hooks", event.name(agent)];
    let found = jsonc::get_elements(&text, &path, |group| is_ours(agent, group));
    found.is_ok_and(|found| !found.is_empty())
}

/// The settings of one event: a group of hooks, with one hook.
fn group(agent: HookAgent, args: &InstallArgs, event: HookEvent) -> Result<Value, String> {
    let exe = std::env::current_exe()
        .map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let mut words = vec![exe.to_string_lossy().into_owned(), "hook".to_owned()];
    if let Some(backend) = &args.backend {
        words.extend(["--backend".to_owned(), backend.clone()]);
    }
    if let Some(db_path) = &args.db_path {
        let path = context_model::local::absolute(&context_model::local::expand_home(db_path));
        words.extend(["--db-path".to_owned(), path.to_string_lossy().into_owned()]);
    }
    words.extend([agent.name().to_owned(), event.name(agent).to_owned()]);
    let timeout = match (agent, event) {
        // At the end of a session Codex waits at most 3 seconds, and warns about a larger value.
        (HookAgent::Codex, HookEvent::SessionEnd) => 3,
        (HookAgent::Claude | HookAgent::Codex, _) => TIMEOUT_S,
        // In milliseconds.
        (HookAgent::Gemini, _) => TIMEOUT_S * 1000,
    };
    Ok(json!({
        "hooks": [{"type": "command", "command": shell_line(&words), "timeout": timeout}]
    }))
}

/// Whether a group has only hooks of this program, of any version and from any directory.
#[must_use]
pub fn is_ours(agent: HookAgent, group: &Value) -> bool {
    let hooks = group["hooks"].as_array();
    hooks.is_some_and(|hooks| {
        let is_ours = |hook: &Value| {
            let command = hook["command"].as_str().unwrap_or_default();
            command.contains("context-gateway")
                && command.contains(" hook ")
                && command.contains(&format!(" {} ", agent.name()))
        };
        !hooks.is_empty() && hooks.iter().all(is_ours)
    })
}

/// The file of the user that has the hooks.
///
/// # Errors
/// A sentence if HOME is not set.
pub fn settings_file(agent: HookAgent) -> Result<PathBuf, String> {
    let beside = |client: Client, name: &str| Ok(client.file()?.with_file_name(name));
    match agent {
        HookAgent::Claude => {
            let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".claude"));
            let directory = claude_directory().or_else(usual);
            Ok(directory.ok_or("HOME is not set")?.join("settings.json"))
        }
        HookAgent::Codex => beside(Client::Codex, "hooks.json"),
        HookAgent::Gemini => Client::Gemini.file(),
    }
}
