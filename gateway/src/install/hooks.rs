//! The hooks in an agent's settings file, which call `context-gateway hook AGENT EVENT`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::file::{difference, read, write};
use super::jsonc;
use super::text::{pretty, say, shell_line};
use crate::cli::{Client, HookAgent, HookEvent, InstallArgs};

/// Seconds after which the agent ends a hook. By default the hook ends itself earlier (CONTEXT_HOOK_TIMEOUT_MS).
const TIMEOUT_S: u32 = 5;

/// Adds the hooks to the settings file, or removes them, and prints what it did.
///
/// # Errors
/// A sentence if the file cannot be read, parsed or written.
pub fn run(agent: HookAgent, args: &InstallArgs) -> Result<(), String> {
    if args.print {
        let groups = agent.events().iter().map(|event| {
            Ok((
                event.name(agent).to_owned(),
                json!([group(agent, args, *event)?]),
            ))
        });
        let groups: serde_json::Map<String, Value> = groups.collect::<Result<_, String>>()?;
        return say(&pretty(&json!({ "hooks": groups })));
    }
    let file = settings_file(agent)?;
    let before = read(&file)?;
    let unreadable = |error: String| format!("{} was not changed: {error}", file.display());
    let mut after = before.clone();
    let is_ours = |group: &Value| is_ours(agent, group);
    for event in agent.events() {
        let path = ["hooks", event.name(agent)];
        if args.uninstall {
            if let Some(without) =
                jsonc::remove_elements(&after, &path, is_ours).map_err(unreadable)?
            {
                after = without;
            }
        } else {
            after = jsonc::set_element(&after, &path, is_ours, &group(agent, args, *event)?)
                .map_err(unreadable)?;
        }
    }
    if after == before {
        let state = if args.uninstall {
            "has no hooks of this program"
        } else {
            "already has these hooks"
        };
        return say(&format!("{} {state}", file.display()));
    }
    if args.dry_run {
        return say(&difference(&file, &before, &after));
    }
    let saved = write(&file, &before, &after)?;
    let did = if args.uninstall {
        "removed from"
    } else {
        "added to"
    };
    say(&format!(
        "the hooks were {did} {}{saved}; `context-gateway hook status` shows what they do",
        file.display()
    ))
}

/// Whether the user's settings of the agent have this hook. Settings that cannot be read have none.
#[must_use]
pub fn has_hook(agent: HookAgent, event: HookEvent) -> bool {
    let Ok(text) = settings_file(agent).and_then(|file| read(&file)) else {
        return false;
    };
    let path = ["hooks", event.name(agent)];
    let without = jsonc::remove_elements(&text, &path, |group| is_ours(agent, group));
    matches!(without, Ok(Some(_)))
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
    let timeout = match agent {
        HookAgent::Claude | HookAgent::Codex => TIMEOUT_S,
        // In milliseconds.
        HookAgent::Gemini => TIMEOUT_S * 1000,
    };
    Ok(json!({
        "hooks": [{"type": "command", "command": shell_line(&words), "timeout": timeout}]
    }))
}

/// Whether a group has only hooks of this program, of any version and from any directory.
fn is_ours(agent: HookAgent, group: &Value) -> bool {
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

fn settings_file(agent: HookAgent) -> Result<PathBuf, String> {
    let given = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let beside = |client: Client, name: &str| Ok(client.file()?.with_file_name(name));
    match agent {
        HookAgent::Claude => {
            let directory =
                given("CLAUDE_CONFIG_DIR").or_else(|| Some(given("HOME")?.join(".claude")));
            Ok(directory.ok_or("HOME is not set")?.join("settings.json"))
        }
        HookAgent::Codex => beside(Client::Codex, "hooks.json"),
        HookAgent::Gemini => Client::Gemini.file(),
    }
}
