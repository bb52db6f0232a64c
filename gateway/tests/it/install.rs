//! `context-gateway install` and `--uninstall` for every client. Afterwards HOME is as it was before, byte for byte.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use context_test_support::Home;
use serde_json::{Value, json};

/// Each client, whether it has hooks, its file, and the key of its servers.
const CLIENTS: [(&str, bool, &str, &str); 9] = [
    ("claude", true, ".claude.json", "mcpServers"),
    ("claude-desktop", false, CLAUDE_DESKTOP, "mcpServers"),
    ("codex", true, ".codex/config.toml", "mcp_servers"),
    ("copilot", false, ".copilot/mcp-config.json", "mcpServers"),
    ("cursor", false, ".cursor/mcp.json", "mcpServers"),
    ("gemini", true, ".gemini/settings.json", "mcpServers"),
    ("vscode", false, VSCODE, "servers"),
    (
        "windsurf",
        false,
        ".codeium/windsurf/mcp_config.json",
        "mcpServers",
    ),
    ("zed", false, ".config/zed/settings.json", "context_servers"),
];
const CLAUDE_DESKTOP: &str = if cfg!(target_os = "macos") {
    "Library/Application Support/Claude/claude_desktop_config.json"
} else {
    ".config/Claude/claude_desktop_config.json"
};
const VSCODE: &str = if cfg!(target_os = "macos") {
    "Library/Application Support/Code/User/mcp.json"
} else {
    ".config/Code/User/mcp.json"
};

/// The file with the hooks of a client, if it is not the file with the servers.
fn hooks_file(client: &str) -> Option<&'static str> {
    match client {
        "claude" => Some(".claude/settings.json"),
        "codex" => Some(".codex/hooks.json"),
        _ => None,
    }
}

const JSON: &str = r#"{
  // mine
  "theme": "dark", /* keep */
  "SERVERS": {
    "other": { "command": "x", "args": ["-y"] },   // odd   spaces
    "second":{"url":"http://127.0.0.1:1"}
  },

  "hooks": {
    "Stop": [
      { "hooks": [{ "type": "command", "command": "say done" }] } // last
    ],
    "BeforeAgent": [ { "matcher": "*", "hooks": [ { "type": "command", "command": "echo ü" } ] } ]
  },
  "list": [1, 2,],
}
"#;

const TOML: &str = "# mine
model = 'm'   # odd   spaces
notify = [
  \"a\", # first
  \"b\",
]

[SERVERS.other]
command = \"x\"
env = { A = \"ü\" }

[profiles.p] # last
model = \"z\"
";

/// Configurations of a user: with entries that are not ours, or empty.
fn configurations(is_toml: bool, servers: &str) -> Vec<String> {
    let text = if is_toml { TOML } else { JSON }.replace("SERVERS", servers);
    let mut all = vec![
        text.replace('\n', "\r\n"),
        text.replacen('\n', "\r\n", 5),
        text.replace("  ", "\t"),
        format!("\u{feff}{text}"),
        text.trim_end().to_owned(),
        format!("\n\n{text}\n\n"),
        text,
        String::new(),
        "\n".to_owned(),
    ];
    let others: &[&str] = if is_toml {
        &[
            "# nothing yet",
            "[SERVERS]\n",
            "[SERVERS]",
            "SERVERS.a.url = 'u'\n",
            "a = 1\n\n\n[b]\n",
        ]
    } else {
        &[
            "{}",
            "{\n}\n",
            "{ }",
            "{\"SERVERS\":{}}",
            "{\"SERVERS\": {\n}}",
            "{\"SERVERS\":{\"a\":{}},\"x\":[]}",
            "{\"hooks\":{}}",
            "{\"hooks\":{\"Stop\":[],\"SessionStart\":[]}, \"SERVERS\":{}}",
            "// only a comment\n{}",
        ]
    };
    all.extend(others.iter().map(|text| text.replace("SERVERS", servers)));
    all
}

/// Runs `install`, without a program of a client in the PATH.
fn install(home: &Home, arguments: &[&str]) -> String {
    let output = home
        .command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")))
        .env("PATH", home.path())
        .arg("install")
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Everything below a directory: the mode and the bytes of each file, and the directories.
fn tree(directory: &Path) -> BTreeMap<String, (u32, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let data = path.symlink_metadata().unwrap();
        let content = data.is_file().then(|| std::fs::read(&path).unwrap());
        let name = path.to_str().unwrap().to_owned();
        found.insert(name, (data.permissions().mode(), content));
        if data.is_dir() {
            found.extend(tree(&path));
        }
    }
    found
}

fn write(home: &Home, file: &str, text: &str) {
    let path = home.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn read(home: &Home, file: &str) -> String {
    std::fs::read_to_string(home.path().join(file)).unwrap()
}

/// Installs twice, changes a setting, uninstalls, and checks that every file is as it was before.
fn install_and_uninstall(home: &Home, client: &str, has_hooks: bool) {
    let hooks: &[&str] = if has_hooks { &["--hooks"] } else { &[] };
    let run = |more: &[&str]| install(home, &[&[client], hooks, more].concat());
    let before = tree(home.path());
    run(&["--db-path", "/a.db"]);
    let installed = tree(home.path());
    assert_ne!(installed, before, "{client}");
    assert!(run(&["--db-path", "/a.db"]).contains("already"), "{client}");
    assert_eq!(
        tree(home.path()),
        installed,
        "{client}: installing twice changes nothing"
    );
    run(&["--db-path", "/b.db"]);
    let changed = tree(home.path());
    assert_ne!(changed, installed, "{client}");
    install(home, &[client, "--uninstall", "--dry-run"]);
    assert_eq!(
        tree(home.path()),
        changed,
        "{client}: --dry-run changes nothing"
    );
    install(home, &[client, "--uninstall"]);
    let after = tree(home.path());
    for (name, (_, content)) in &before {
        let now = after.get(name).and_then(|(_, content)| content.as_deref());
        let text =
            |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(text(now), text(content.as_deref()), "{client}: {name}");
    }
    assert_eq!(after, before, "{client}");
    install(home, &[client, "--uninstall"]);
    assert_eq!(
        tree(home.path()),
        before,
        "{client}: nothing was left to uninstall"
    );
}

#[test]
fn without_a_configuration_nothing_stays() {
    for (client, has_hooks, ..) in CLIENTS {
        install_and_uninstall(&Home::new(), client, has_hooks);
    }
}

#[test]
fn every_configuration_is_afterwards_what_it_was_before() {
    let configured = |file: &str, text: &str, client: &str, has_hooks: bool| {
        let home = Home::new();
        write(&home, file, text);
        install_and_uninstall(&home, client, has_hooks);
    };
    std::thread::scope(|threads| {
        for (client, has_hooks, file, servers) in CLIENTS {
            threads.spawn(move || {
                for text in configurations(client == "codex", servers) {
                    configured(file, &text, client, has_hooks);
                }
            });
            if let Some(file) = hooks_file(client) {
                threads.spawn(move || {
                    for text in configurations(false, "servers") {
                        configured(file, &text, client, true);
                    }
                });
            }
        }
    });
}

/// A link into a dotfiles repository whose file does not exist yet.
#[test]
fn a_dangling_link_stays_and_its_file_is_created() {
    let home = Home::new();
    write(&home, "dotfiles/other", "x");
    std::fs::create_dir(home.path().join(".cursor")).unwrap();
    let link = home.path().join(".cursor/mcp.json");
    std::os::unix::fs::symlink("../dotfiles/mcp.json", &link).unwrap();
    let before = tree(home.path());
    install(&home, &["cursor"]);
    assert!(link.is_symlink());
    let written: Value = serde_json::from_str(&read(&home, "dotfiles/mcp.json")).unwrap();
    assert!(written["mcpServers"]["context"].is_object(), "{written}");
    install(&home, &["cursor", "--uninstall"]);
    assert_eq!(tree(home.path()), before);
}

/// The client or its user changed the file after the installation, so uninstalling must not restore the saved copy.
#[test]
fn what_was_added_meanwhile_stays() {
    for (client, has_hooks, file, servers) in CLIENTS {
        if client == "codex" {
            continue;
        }
        let home = Home::new();
        write(&home, file, "{}");
        let hooks: &[&str] = if has_hooks { &["--hooks"] } else { &[] };
        install(&home, &[&[client], hooks].concat());
        let mut changed: Value = serde_json::from_str(&read(&home, file)).unwrap();
        changed["theme"] = json!("dark");
        write(&home, file, &changed.to_string());
        install(&home, &[client, "--uninstall"]);
        let left: Value = serde_json::from_str(&read(&home, file)).unwrap();
        assert_eq!(left, json!({"theme": "dark"}), "{client}");
        let names: Vec<String> = tree(home.path()).into_keys().collect();
        assert!(
            names
                .iter()
                .all(|name| !name.contains("before-context-gateway")),
            "{names:?}"
        );

        write(
            &home,
            file,
            &json!({servers: {"other": {"command": "x"}}}).to_string(),
        );
        install(&home, &[client]);
        let mut changed: Value = serde_json::from_str(&read(&home, file)).unwrap();
        changed[servers]["third"] = json!({"command": "z"});
        write(&home, file, &changed.to_string());
        install(&home, &[client, "--uninstall"]);
        let left: Value = serde_json::from_str(&read(&home, file)).unwrap();
        let others = json!({"other": {"command": "x"}, "third": {"command": "z"}});
        assert_eq!(left, json!({ servers: others }), "{client}");
    }
}

/// An entry of this name may be the user's own.
#[test]
fn an_entry_that_is_replaced_is_saved_and_comes_back() {
    for (client, _, file, servers) in CLIENTS {
        if client == "codex" {
            continue;
        }
        let home = Home::new();
        let own = json!({servers: {"context": {"command": "mine"}}}).to_string();
        write(&home, file, &own);
        let saved = format!("{file}.before-context-gateway");
        let said = install(&home, &[client]);
        assert!(said.contains("the previous file is"), "{client}: {said}");
        assert_eq!(read(&home, &saved), own, "{client}");
        install(&home, &[client, "--db-path", "/b.db"]);
        assert_eq!(read(&home, &saved), own, "{client}");
        let said = install(&home, &[client, "--uninstall"]);
        assert!(said.contains("in place again"), "{client}: {said}");
        assert_eq!(read(&home, file), own, "{client}");
        assert!(!home.path().join(&saved).exists(), "{client}");

        // The user changed something else meanwhile.
        install(&home, &[client]);
        let mut changed: Value = serde_json::from_str(&read(&home, file)).unwrap();
        changed["theme"] = json!("dark");
        write(&home, file, &changed.to_string());
        install(&home, &[client, "--uninstall"]);
        let left: Value = serde_json::from_str(&read(&home, file)).unwrap();
        let expected = json!({servers: {"context": {"command": "mine"}}, "theme": "dark"});
        assert_eq!(left, expected, "{client}");
        assert!(!home.path().join(&saved).exists(), "{client}");
    }
}

/// Two entries of different names, removed in either order.
#[test]
fn an_entry_of_another_name_stays() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let home = Home::new();
        write(&home, ".cursor/mcp.json", "{ \"x\": 1 }");
        let before = tree(home.path());
        for name in ["a", "b"] {
            install(&home, &["cursor", "--name", name]);
        }
        install(&home, &["cursor", "--name", first, "--uninstall"]);
        let left: Value = serde_json::from_str(&read(&home, ".cursor/mcp.json")).unwrap();
        assert!(left["mcpServers"].get(first).is_none());
        assert!(left["mcpServers"].get(second).is_some());
        install(&home, &["cursor", "--name", second, "--uninstall"]);
        let left: Value = serde_json::from_str(&read(&home, ".cursor/mcp.json")).unwrap();
        assert_eq!(left, json!({"x": 1}));
        assert_eq!(tree(home.path()).len(), before.len());
    }
}

/// `claude mcp add` refuses a name that exists, so the earlier entry is removed first.
#[test]
fn a_registration_survives_a_failure_of_claudes_own_command() {
    let home = Home::new();
    let file = "config/.claude.json";
    let entry = json!({"mcpServers": {"context": {"command": "x"}}, "theme": "dark"});
    write(&home, file, &entry.to_string());
    let script = "#!/bin/sh
case $2 in
remove) echo '{\"theme\": \"dark\"}' > \"$CLAUDE_CONFIG_DIR/.claude.json\" ;;
add) echo 'it is broken' >&2; exit 1 ;;
esac
";
    write(&home, "claude", script);
    let program = home.path().join("claude");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let output = home
        .command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")))
        .env("PATH", home.path())
        .env("CLAUDE_CONFIG_DIR", home.path().join("config"))
        .args(["install", "claude"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        stderr.contains("it is broken") && stderr.contains("in place again"),
        "{stderr}"
    );
    let left: Value = serde_json::from_str(&read(&home, file)).unwrap();
    assert_eq!(left, entry);
}

/// Claude Code names the scope in its message about a server that is missing.
#[test]
fn hooks_are_removed_when_claude_code_has_no_such_server() {
    let home = Home::new();
    let settings = ".claude/settings.json";
    write(&home, settings, "{\"theme\": \"dark\"}");
    let before = tree(home.path());
    let file = home.path().join("other.json");
    let file = ["--file", file.to_str().unwrap()];
    install(&home, &[&["claude", "--hooks"], &file[..]].concat());
    std::fs::remove_file(file[1]).unwrap();
    let shown = install(&home, &["claude", "--uninstall", "--print"]);
    assert!(
        shown.contains("remove the hooks") && !shown.contains("UserPromptSubmit"),
        "{shown}"
    );
    let script =
        "#!/bin/sh\necho 'No user-scoped MCP server found with name: context' >&2; exit 1\n";
    write(&home, "claude", script);
    let program = home.path().join("claude");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let said = install(&home, &["claude", "--uninstall"]);
    assert!(said.contains("nothing to remove"), "{said}");
    std::fs::remove_file(program).unwrap();
    assert_eq!(tree(home.path()), before);
}

#[test]
fn the_directory_that_the_user_named_has_all_files_of_claude() {
    let home = Home::new();
    let output = home
        .command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")))
        .env("PATH", home.path())
        .env("CLAUDE_CONFIG_DIR", home.path().join("config"))
        .args(["install", "claude", "--hooks"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let server: Value = serde_json::from_str(&read(&home, "config/.claude.json")).unwrap();
    assert!(server["mcpServers"]["context"].is_object(), "{server}");
    let hooks: Value = serde_json::from_str(&read(&home, "config/settings.json")).unwrap();
    assert!(hooks["hooks"].is_object(), "{hooks}");
}

#[test]
fn a_client_whose_file_cannot_be_read_hides_no_other_client() {
    let home = Home::new();
    write(&home, ".gemini/settings.json", "{}");
    // A directory cannot be read.
    std::fs::create_dir_all(home.path().join(".cursor/mcp.json")).unwrap();
    let listed = install(&home, &["--detect"]);
    let line = |title: &str| listed.lines().find(|line| line.starts_with(title)).unwrap();
    assert!(line("Cursor").contains("unknown"), "{listed}");
    assert!(line("Gemini").contains("not registered"), "{listed}");
}
