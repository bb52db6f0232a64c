//! `context-gateway install`: adds the gateway to a client's configuration, or removes it.
//!
//! Configuration files belong to their users. Other entries, comments and formatting stay unchanged,
//! byte for byte. The previous file is saved next to the new one. A file that cannot be parsed is not
//! changed.

mod file;
mod hooks;
mod jsonc;
mod text;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::cli::{Client, InstallArgs};
use file::{difference, read, write};
use text::{pretty, say, shell_line};

/// Runs the command and prints what it did to stdout.
///
/// # Errors
/// A sentence if the configuration cannot be read, parsed or written, or if the client's own
/// command fails.
pub fn run(args: &InstallArgs) -> Result<(), String> {
    if args.hooks && args.client != Client::Claude {
        return Err("hooks can be installed for Claude Code only".to_owned());
    }
    if args.hooks && args.url.is_some() {
        return Err("hooks call the service and not the gateway; give its address with --backend instead of --url".to_owned());
    }
    register(args)?;
    if args.client == Client::Claude && (args.hooks || args.uninstall) {
        return hooks::run(args);
    }
    Ok(())
}

/// Adds or removes the server.
fn register(args: &InstallArgs) -> Result<(), String> {
    let entry = entry(args)?;
    if args.client == Client::Claude
        && args.file.is_none()
        && !args.print
        && !args.dry_run
        && let Some(claude) = on_path("claude")
    {
        return with_claude(&claude, args, &entry);
    }
    let file = match &args.file {
        Some(file) => file.clone(),
        None => default_file(args.client)?,
    };
    let servers = if args.client == Client::Vscode {
        "servers"
    } else {
        "mcpServers"
    };
    if args.print {
        return say(&planned(args, &entry, servers, &file));
    }
    let before = read(&file)?;
    let path = [servers, args.name.as_str()];
    let unreadable = |error: String| format!("{} was not changed: {error}", file.display());
    let after = if args.uninstall {
        match jsonc::remove(&before, &path).map_err(unreadable)? {
            Some(after) => after,
            None => {
                return say(&format!(
                    "`{}` is not in {}; nothing to remove",
                    args.name,
                    file.display()
                ));
            }
        }
    } else {
        jsonc::set(&before, &path, &entry).map_err(unreadable)?
    };
    if after == before {
        return say(&format!(
            "{} already contains this entry for `{}`",
            file.display(),
            args.name
        ));
    }
    if args.dry_run {
        return say(&difference(&file, &before, &after));
    }
    let saved = write(&file, &before, &after)?;
    let did = if args.uninstall {
        "removed from"
    } else {
        "registered in"
    };
    say(&format!(
        "`{}` was {did} {}{saved}; restart the client to use it",
        args.name,
        file.display()
    ))
}

/// What `--print` shows: the change that the command would make to the key `servers` of the file.
fn planned(args: &InstallArgs, entry: &Value, servers: &str, file: &Path) -> String {
    if args.uninstall {
        return format!(
            "remove `{}` from `{servers}` in {}",
            args.name,
            file.display()
        );
    }
    let mut text = String::new();
    if args.client == Client::Claude {
        text = format!(
            "claude {}\n\nor, in {}:\n",
            shell_line(&claude_arguments(args, entry)),
            file.display()
        );
    }
    text + &pretty(&json!({ servers: { &args.name: entry } }))
}

/// The server entry in the form of the client's configuration.
fn entry(args: &InstallArgs) -> Result<Value, String> {
    if let Some(url) = &args.url {
        let uri = url
            .parse::<http::Uri>()
            .ok()
            .filter(|uri| uri.host().is_some());
        if !uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
            return Err(format!(
                "`{url}` is not a URL such as http://127.0.0.1:7421/mcp"
            ));
        }
        return Ok(json!({"type": "http", "url": url}));
    }
    let exe = std::env::current_exe()
        .map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let mut entry = json!({"type": "stdio", "command": exe, "args": ["stdio"]});
    let mut env = Map::new();
    if let Some(backend) = &args.backend {
        crate::backend::Target::parse(backend)?;
        env.insert("CONTEXT_BACKEND".into(), json!(backend));
    }
    if let Some(db_path) = &args.db_path {
        env.insert(
            "DB_PATH".into(),
            json!(context_model::local::absolute(
                &context_model::local::expand_home(db_path)
            )),
        );
    }
    if !env.is_empty() {
        entry["env"] = Value::Object(env);
    }
    Ok(entry)
}

/// The arguments of `claude mcp …` for this entry. User scope makes it available in every project.
fn claude_arguments(args: &InstallArgs, entry: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut arguments: Vec<String> = ["mcp", "add", "--scope", "user"].map(String::from).into();
    if let Some(url) = &args.url {
        arguments.extend([
            "--transport".into(),
            "http".into(),
            args.name.clone(),
            url.clone(),
        ]);
        return arguments;
    }
    arguments.push(args.name.clone());
    for (key, value) in entry["env"].as_object().into_iter().flatten() {
        arguments.extend(["--env".into(), format!("{key}={}", text(value))]);
    }
    arguments.extend(["--".into(), text(&entry["command"]), "stdio".into()]);
    arguments
}

fn with_claude(claude: &Path, args: &InstallArgs, entry: &Value) -> Result<(), String> {
    let remove = ["mcp", "remove", "--scope", "user", args.name.as_str()].map(String::from);
    let removed = claude_command(claude, &remove)?;
    if args.uninstall {
        return match removed {
            Ok(said) => say(&said),
            Err(said) if said.starts_with("No MCP server") => {
                say(&format!("{said}; nothing to remove"))
            }
            Err(said) => Err(format!("claude mcp remove: {said}")),
        };
    }
    match claude_command(claude, &claude_arguments(args, entry))? {
        Ok(said) => say(&format!(
            "{said}\nrestart Claude Code, or run /mcp in it, to use it"
        )),
        Err(said) => Err(format!("claude mcp add: {said}")),
    }
}

/// Runs the client's own command. The inner error is the command's output if it failed.
fn claude_command(claude: &Path, arguments: &[String]) -> Result<Result<String, String>, String> {
    let output = Command::new(claude)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} could not be run: {error}", claude.display()))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(Ok(said(&output.stdout)));
    }
    let complaint = said(&output.stderr);
    Ok(Err(if complaint.is_empty() {
        said(&output.stdout)
    } else {
        complaint
    }))
}

fn on_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|path| {
            path.metadata()
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

fn default_file(client: Client) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from);
    let home = home.ok_or("HOME is not set; name the configuration file with --file")?;
    Ok(match client {
        Client::Claude => home.join(".claude.json"),
        Client::Cursor => home.join(".cursor").join("mcp.json"),
        Client::Vscode if cfg!(target_os = "macos") => {
            home.join("Library/Application Support/Code/User/mcp.json")
        }
        Client::Vscode => std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .unwrap_or_else(|| home.join(".config"))
            .join("Code/User/mcp.json"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn install(args: &[&str]) -> InstallArgs {
        match Cli::parse_from(["context-gateway", "install"].iter().chain(args)).command {
            Command::Install(args) => args,
            _ => unreachable!("install was given"),
        }
    }

    fn scratch(name: &str, content: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        fs::write(&file, content).unwrap();
        let file = file.to_str().unwrap().to_owned();
        (dir, file)
    }

    #[test]
    fn install_and_uninstall_leave_the_rest_of_the_file_as_it_was() {
        let original = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" } // keep\n  },\n  \"theme\": \"dark\"\n}\n";
        let (_dir, file) = scratch("mcp.json", original);
        run(&install(&["cursor", "--file", &file])).unwrap();
        let installed = fs::read_to_string(&file).unwrap();
        assert!(
            installed.contains("// mine")
                && installed.contains("// keep")
                && installed.contains("\"theme\": \"dark\"")
        );
        assert!(installed.contains("\"stdio\""));
        assert_eq!(
            fs::read_to_string(format!("{file}.before-context-gateway")).unwrap(),
            original
        );
        run(&install(&["cursor", "--file", &file])).unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            installed,
            "installing twice changes nothing"
        );
        run(&install(&["cursor", "--file", &file, "--uninstall"])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), original);
    }

    #[test]
    fn a_missing_file_is_made_and_vscode_keeps_servers_under_its_own_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("Code/User/mcp.json");
        run(&install(&[
            "vscode",
            "--file",
            file.to_str().unwrap(),
            "--url",
            "http://127.0.0.1:7421/mcp",
        ]))
        .unwrap();
        let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({"servers": {"context": {"type": "http", "url": "http://127.0.0.1:7421/mcp"}}})
        );
    }

    #[test]
    fn a_file_that_is_not_json_is_left_alone() {
        for content in [
            "{ \"mcpServers\": ",
            "[]",
            "{\"mcpServers\": []}",
            "not json",
        ] {
            let (_dir, file) = scratch("mcp.json", content);
            assert!(
                run(&install(&["cursor", "--file", &file]))
                    .unwrap_err()
                    .contains("was not changed"),
                "{content}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
    }

    #[test]
    fn the_printed_command_survives_a_shell() {
        let args = install(&["claude", "--db-path", "/data/it's here.db"]);
        let line = shell_line(&claude_arguments(&args, &entry(&args).unwrap()));
        assert!(
            line.contains(r"--env 'DB_PATH=/data/it'\''s here.db' -- "),
            "{line}"
        );
    }
}
