//! `context-gateway install`: adds the gateway to a client's configuration, or removes it.
//!
//! Configuration files belong to their users. Other entries, comments and formatting stay unchanged,
//! byte for byte. The previous file is saved next to the new one, until the gateway is removed. An entry that was replaced
//! comes back then. A file that cannot be parsed is not changed.
//! Exception: if `claude` is on the PATH, Claude Code's own command changes its file, and no copy is saved.

mod change;
mod clients;
mod file;
mod hooks;
mod jsonc;
mod part;
mod text;
mod tomlc;

pub use hooks::has_hook;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::cli::{Client, InstallArgs};
use clients::Server;
use file::read;
use part::Part;
use text::{pretty, say, shell_line, utf8};

/// Runs the command and prints what it did to stdout.
///
/// # Errors
/// A sentence if the configuration cannot be read, parsed or written, or if the client's own
/// command fails.
pub fn run(args: &InstallArgs) -> Result<(), String> {
    let Some(client) = args.client else {
        return say(&detected(&args.name)?);
    };
    let agent = client.agent();
    if args.hooks && agent.is_none() {
        return Err("hooks can be installed for claude, codex and gemini".to_owned());
    }
    if args.hooks && args.url.is_some() {
        return Err("hooks call the service and not the gateway; give its address with --backend instead of --url".to_owned());
    }
    let agent = agent.filter(|_| args.hooks || args.uninstall);
    let server = server(args)?;
    let file = match &args.file {
        Some(file) => file.clone(),
        None => client.file()?,
    };
    if args.print {
        say(&planned(client, args, &server, &file)?)?;
        return match agent {
            Some(agent) if args.uninstall => say(&format!(
                "remove the hooks of this program from {}",
                hooks::settings_file(agent)?.display()
            )),
            Some(agent) => say(&hooks::printed(agent, args)?),
            None => Ok(()),
        };
    }
    let mut files: Vec<(PathBuf, Vec<Part>)> = Vec::new();
    let claude = (client == Client::Claude && args.file.is_none() && !args.dry_run)
        .then(|| on_path("claude"))
        .flatten();
    match claude {
        Some(claude) => with_claude(&claude, args, &server, &file)?,
        None => files.push((file, vec![server_part(client, args, &server)?])),
    }
    if let Some(agent) = agent {
        let groups = hooks::groups(agent, args)?;
        add_to(
            &mut files,
            hooks::settings_file(agent)?,
            Part::Hooks { agent, groups },
        );
        let keys = hooks::trust_keys(agent)?;
        if args.uninstall && !keys.is_empty() {
            add_to(&mut files, client.file()?, Part::Trust { keys });
        }
    }
    for (file, parts) in &files {
        let change = if args.uninstall {
            change::remove(file, parts)
        } else {
            change::add(file, parts)
        };
        let change =
            change.map_err(|error| format!("{} was not changed: {error}", file.display()))?;
        if args.dry_run && change.changes_something() {
            say(&change.difference())?;
        } else {
            say(&change.make()?)?;
        }
    }
    Ok(())
}

/// The clients that are installed for this user, one on each line, and whether each has the server registered.
fn detected(name: &str) -> Result<String, String> {
    let mut lines = Vec::new();
    for client in Client::ALL {
        let file = client.file()?;
        // `.claude.json` is in HOME itself, a directory that exists without Claude Code too.
        let has_configuration = match client {
            Client::Claude => file.is_file(),
            _ => file.parent().is_some_and(Path::is_dir),
        };
        if !has_configuration && on_path(client.program()).is_none() {
            continue;
        }
        let path = [client.servers(), name];
        let found = read(&file).and_then(|text| client.syntax().get(&text, &path));
        let is_registered = match found {
            Ok(Some(_)) => "registered".to_owned(),
            Ok(None) => format!(
                "not registered; context-gateway install {}",
                client.argument()
            ),
            Err(error) => format!("unknown: {error}"),
        };
        let title = client.title();
        lines.push(format!("{title:14} {is_registered} ({})", file.display()));
    }
    if lines.is_empty() {
        return Ok("none of the known clients was found".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Adds a part to the parts of its file, so that the file is changed once.
fn add_to(files: &mut Vec<(PathBuf, Vec<Part>)>, file: PathBuf, part: Part) {
    match files.iter_mut().find(|(other, _)| *other == file) {
        Some((_, parts)) => parts.push(part),
        None => files.push((file, vec![part])),
    }
}

/// The server as a part of the configuration file. To remove it, only its path is needed, and the entry is null.
fn server_part(client: Client, args: &InstallArgs, server: &Server) -> Result<Part, String> {
    Ok(Part::Server {
        syntax: client.syntax(),
        path: [client.servers().to_owned(), args.name.clone()],
        entry: if args.uninstall {
            Value::Null
        } else {
            client.entry(server)?
        },
    })
}

/// What `--print` shows: the entry as it stands in the file, and for Claude Code the command as well.
fn planned(
    client: Client,
    args: &InstallArgs,
    server: &Server,
    file: &Path,
) -> Result<String, String> {
    if args.uninstall {
        return Ok(format!(
            "remove `{}` from `{}` in {}",
            args.name,
            client.servers(),
            file.display()
        ));
    }
    let entry = client.entry(server)?;
    let path = [client.servers(), args.name.as_str()];
    let text = client.syntax().set("", &path, &entry)?;
    if client != Client::Claude {
        return Ok(text.trim_end().to_owned());
    }
    Ok(format!(
        "claude {}\n\nor, in {}:\n{}",
        shell_line(&claude_arguments(args, server)),
        file.display(),
        pretty(&json!({ path[0]: { path[1]: entry } }))
    ))
}

/// The server of these arguments.
fn server(args: &InstallArgs) -> Result<Server, String> {
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
        return Ok(Server::Url(url.clone()));
    }
    let command = std::env::current_exe()
        .map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let mut env = Map::new();
    if let Some(backend) = &args.backend {
        crate::backend::Target::parse(backend)?;
        env.insert("CONTEXT_BACKEND".into(), json!(backend));
    }
    if let Some(db_path) = &args.db_path {
        let db_path = context_model::local::absolute(&context_model::local::expand_home(db_path));
        env.insert("DB_PATH".into(), json!(utf8(&db_path)?));
    }
    Ok(Server::Process { command, env })
}

/// The arguments of `claude mcp …` for this server. User scope makes it available in every project.
fn claude_arguments(args: &InstallArgs, server: &Server) -> Vec<String> {
    let mut arguments: Vec<String> = ["mcp", "add", "--scope", "user"].map(String::from).into();
    match server {
        Server::Url(url) => arguments.extend([
            "--transport".into(),
            "http".into(),
            args.name.clone(),
            url.clone(),
        ]),
        Server::Process { command, env } => {
            arguments.push(args.name.clone());
            for (key, value) in env {
                let value = value.as_str().unwrap_or_default();
                arguments.extend(["--env".into(), format!("{key}={value}")]);
            }
            let command = command.to_string_lossy().into_owned();
            arguments.extend(["--".into(), command, "stdio".into()]);
        }
    }
    arguments
}

/// Registers or removes the server with Claude Code's own command, which changes `file`.
fn with_claude(
    claude: &Path,
    args: &InstallArgs,
    server: &Server,
    file: &Path,
) -> Result<(), String> {
    // `claude mcp add` refuses a name that exists.
    let part = server_part(Client::Claude, args, server)?;
    let earlier = read(file)
        .and_then(|text| part.found(&text))
        .unwrap_or_default();
    let remove = ["mcp", "remove", "--scope", "user", args.name.as_str()].map(String::from);
    let removed = claude_command(claude, &remove)?;
    if args.uninstall {
        return match removed {
            Ok(output) => say(&output),
            // "No user-scoped MCP server found with name: …"; the words differ between versions.
            Err(output) if output.starts_with("No ") && output.contains("MCP server") => {
                say(&format!("{output}; nothing to remove"))
            }
            Err(output) => Err(format!("claude mcp remove: {output}")),
        };
    }
    match claude_command(claude, &claude_arguments(args, server))? {
        Ok(output) => say(&format!(
            "{output}\nrestart Claude Code, or run /mcp in it, to use it"
        )),
        Err(output) => {
            let put_back = |part: Part| file::write(file, &part.add(&read(file)?)?);
            let then = match earlier.filter(|_| removed.is_ok()).map(put_back) {
                None => String::new(),
                Some(Ok(())) => "; the earlier registration is in place again".to_owned(),
                Some(Err(error)) => format!(
                    "; the earlier registration was removed and could not be put back: {error}"
                ),
            };
            Err(format!("claude mcp add: {output}{then}"))
        }
    }
}

/// Runs the client's own command. The inner error is the command's output if it failed.
fn claude_command(claude: &Path, arguments: &[String]) -> Result<Result<String, String>, String> {
    let output = Command::new(claude)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} could not be run: {error}", claude.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(Ok(text(&output.stdout)));
    }
    let complaint = text(&output.stderr);
    Ok(Err(if complaint.is_empty() {
        text(&output.stdout)
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
    fn each_client_gets_the_form_that_it_reads() {
        let process = Server::Process {
            command: "/opt/context-gateway".into(),
            env: Map::from_iter([("DB_PATH".to_owned(), json!("/data/a.db"))]),
        };
        let url = Server::Url("http://127.0.0.1:7421/mcp".to_owned());
        for client in Client::ALL {
            let entry = client.entry(&process).unwrap();
            assert_eq!(entry["command"], "/opt/context-gateway", "{client:?}");
            assert_eq!(entry["args"], json!(["stdio"]), "{client:?}");
            assert_eq!(entry["env"], json!({"DB_PATH": "/data/a.db"}), "{client:?}");
            let key = match client {
                Client::ClaudeDesktop => {
                    assert!(client.entry(&url).unwrap_err().contains("Connectors"));
                    continue;
                }
                Client::Gemini => "httpUrl",
                Client::Windsurf => "serverUrl",
                _ => "url",
            };
            let entry = client.entry(&url).unwrap();
            assert_eq!(entry[key], "http://127.0.0.1:7421/mcp", "{client:?}");
            assert!(entry.get("command").is_none(), "{client:?}");
        }
    }

    #[test]
    fn a_path_that_is_not_utf8_is_an_error() {
        use std::os::unix::ffi::OsStringExt as _;
        let command = std::ffi::OsString::from_vec(b"/opt/\xff/context-gateway".to_vec());
        let process = Server::Process {
            command: command.into(),
            env: Map::new(),
        };
        for client in Client::ALL {
            let error = client.entry(&process).unwrap_err();
            assert!(error.contains("/opt/"), "{client:?}: {error}");
        }
    }

    #[test]
    fn every_client_is_registered_and_removed_without_a_trace() {
        for client in Client::ALL {
            let name = client.argument();
            let original = match client {
                Client::Codex => "model = \"m\" # mine\n\n[mcp_servers.other]\ncommand = \"x\"\n",
                _ => {
                    "{\n  \"theme\": \"dark\", // mine\n  \"SERVERS\": {\n    \"other\": {}\n  }\n}\n"
                }
            };
            let original = original.replace("SERVERS", client.servers());
            let (_dir, file) = scratch("configuration", &original);
            run(&install(&[&name, "--file", &file, "--db-path", "/a.db"])).unwrap();
            let installed = fs::read_to_string(&file).unwrap();
            assert!(
                installed.contains("/a.db") && installed.contains("mine"),
                "{client:?}: {installed}"
            );
            run(&install(&[&name, "--file", &file, "--db-path", "/a.db"])).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), installed, "{client:?}");
            run(&install(&[&name, "--file", &file, "--uninstall"])).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), original, "{client:?}");
        }
    }

    #[test]
    fn the_printed_command_survives_a_shell() {
        let args = install(&["claude", "--db-path", "/data/it's here.db"]);
        let line = shell_line(&claude_arguments(&args, &server(&args).unwrap()));
        assert!(
            line.contains(r"--env 'DB_PATH=/data/it'\''s here.db' -- "),
            "{line}"
        );
    }
}
