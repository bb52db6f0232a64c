//! The plugins in `plugins/`: the commands that they call exist, and a plugin's hook does nothing if the user's
//! settings have the same hook.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Parser as _;
use context_gateway::cli::{Cli, Command, HookAgent};
use context_test_support::Home;
use serde_json::{Value, json};

use crate::fake::Fake;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_plugin_calls_this_program_at_every_event_of_claude_code() {
    let hooks = read("plugins/claude-code/hooks/hooks.json");
    let named: Vec<&String> = hooks["hooks"].as_object().unwrap().keys().collect();
    let events = HookAgent::Claude.events();
    assert_eq!(named.len(), events.len());
    for event in events {
        let name = event.name(HookAgent::Claude);
        let command = hooks["hooks"][name][0]["hooks"][0]["command"]
            .as_str()
            .unwrap();
        let cli = Cli::try_parse_from(command.split(' ')).unwrap();
        let Command::Hook(args) = cli.command else {
            panic!("{command}");
        };
        assert!(args.plugin, "{command}");
        assert_eq!(args.command.event(), Some((HookAgent::Claude, *event)));
    }
    let server = &read("plugins/claude-code/.mcp.json")["mcpServers"]["context"];
    assert_eq!(
        server,
        &json!({"type": "stdio", "command": "context-gateway", "args": ["stdio"]})
    );
}

#[test]
fn the_versions_of_the_plugins_are_the_programs() {
    for manifest in [
        "plugins/claude-code/.claude-plugin/plugin.json",
        "plugins/agent-plugin/plugin.json",
    ] {
        assert_eq!(
            read(manifest)["version"],
            env!("CARGO_PKG_VERSION"),
            "{manifest}"
        );
    }
    let listed = &read(".claude-plugin/marketplace.json")["plugins"][0];
    let source = listed["source"].as_str().unwrap();
    assert_eq!(
        read(&format!("{source}/.claude-plugin/plugin.json"))["name"],
        listed["name"]
    );
}

/// Sections 5.2, 5.5, 7.1 and 7.2.1 of the specification. No client has a tool that validates a bundle.
#[test]
fn the_bundle_keeps_the_rules_of_agent_plugins_1_0() {
    let fields =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let schema = |name: &str| format!("https://agent-plugins.org/schemas/1.0.0/{name}.schema.json");
    let manifest = read("plugins/agent-plugin/plugin.json");
    let permitted = [
        "$schema",
        "name",
        "version",
        "description",
        "author",
        "homepage",
        "repository",
        "license",
        "keywords",
        "extensions",
    ];
    let unknown: Vec<_> = fields(&manifest)
        .into_iter()
        .filter(|field| !permitted.contains(&field.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(manifest["$schema"], schema("plugin"));
    let name = manifest["name"].as_str().unwrap();
    assert!(
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase()),
        "{name}"
    );
    let servers = read("plugins/agent-plugin/mcp.json");
    assert_eq!(fields(&servers), ["$schema", "mcpServers"]);
    assert_eq!(servers["$schema"], schema("mcp"));
    let server = &servers["mcpServers"]["context"];
    assert_eq!(
        server,
        &json!({"type": "stdio", "command": "context-gateway", "args": ["stdio"]})
    );
    // The name in the front matter of a skill is its directory's.
    for plugin in ["claude-code", "agent-plugin"] {
        let skills = std::fs::read_dir(path(&format!("plugins/{plugin}/skills"))).unwrap();
        let skills: Vec<_> = skills.collect();
        assert!(!skills.is_empty(), "{plugin}");
        for skill in skills {
            let skill = skill.unwrap();
            let text = std::fs::read_to_string(skill.path().join("SKILL.md")).unwrap();
            let name = format!("---\nname: {}\n", skill.file_name().to_string_lossy());
            assert!(text.starts_with(&name), "{}", skill.path().display());
        }
    }
}

/// Runs the plugin's hook, or else the one of the user's settings, at a prompt. Returns its stdout.
fn fire(home: &Home, plugin: bool, backend: &str) -> String {
    let mut command = home.command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")));
    command.arg("hook").args(plugin.then_some("--plugin"));
    let mut child = command
        .args(["claude", "UserPromptSubmit"])
        .env("CONTEXT_BACKEND", backend)
        .env("CONTEXT_HOOK_TIMEOUT_MS", "30000")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let prompt = "Where does the deploy key live?";
    let input = json!({"session_id": "s", "cwd": home.path(), "prompt_id": "p", "prompt": prompt});
    // A hook that does nothing ends without reading, and closes the pipe.
    let _ = child
        .stdin
        .take()
        .unwrap()
        .write_all(input.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_of_a_plugin_does_nothing_where_the_settings_have_it() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let install = |more: &[&str]| {
        let mcp = home.path().join("mcp.json");
        let output = home
            .command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")))
            .args(["install", "claude", "--file"])
            .arg(mcp)
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success());
    };
    // A hook of another program does not count as the gateway's.
    let settings = home.path().join(".claude/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let others = json!({"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "say hi"}]}]}});
    std::fs::write(&settings, others.to_string()).unwrap();
    install(&["--hooks"]);
    let before = fake.seen().len();
    assert_eq!(fire(&home, true, &backend), "");
    assert_eq!(
        fake.seen().len(),
        before,
        "nothing is searched for or stored"
    );
    assert!(fire(&home, false, &backend).contains("additionalContext"));
    install(&["--uninstall"]);
    let before = fake.seen().len();
    fire(&home, true, &backend);
    assert!(fake.seen().len() > before, "the plugin alone works");
    // Settings that cannot be parsed have no hook.
    std::fs::write(&settings, "{").unwrap();
    let before = fake.seen().len();
    fire(&home, true, &backend);
    assert!(fake.seen().len() > before);
}
