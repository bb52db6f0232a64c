//! The command line. Every setting is a flag and an environment variable. The flag takes precedence.

mod hook;
mod http;
mod install;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::command::CommandLine;
use crate::connection::{StdioArgs, items};

pub use self::hook::{
    CaptureMode, HOOK_TIMEOUT_MS, HookAgent, HookArgs, HookCommand, HookEvent, HookSettings,
    ProjectNames,
};
pub use self::http::{HttpArgs, PerAddress};
pub use self::install::{Client, InstallArgs};

/// MCP gateway of the context service: turns each tool call into one gRPC request.
#[derive(Debug, Parser)]
#[command(name = "context-gateway", version, about, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// The subcommand to run.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Start here:\n  context-gateway install claude     register the gateway in Claude Code\n  \
context-gateway stdio --help       the settings of the local gateway\n  \
echo \"We chose SQLite\" | context-gateway add --thread notes\n  \
context-gateway search \"which database\"";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The commands for people and scripts.
    #[command(flatten)]
    Line(CommandLine),
    /// Serve the client that started this process, over stdin and stdout
    Stdio(StdioArgs),
    /// Serve clients over streamable HTTP on /mcp, with health checks on /healthz and /readyz
    Http(HttpArgs),
    /// Register the gateway in a client's configuration, or remove it again
    Install(InstallArgs),
    /// Capture and recall for an agent; its hooks call this
    Hook(HookArgs),
    /// Print the tools as clients see them: the result of tools/list
    Tools,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Settings that must be the same in the gateway and in a service that it starts. A value given as a flag is passed on
/// to that service. CONTEXT_SOCKET is always passed on.
const FOR_SERVICE: [&str; 11] = [
    "DB_PATH",
    "STORAGE_BACKEND",
    "POSTGRESQL_CONNECTION_STRING",
    "POSTGRESQL_HOST",
    "POSTGRESQL_PORT",
    "POSTGRESQL_USER",
    "POSTGRESQL_DATABASE",
    "MAX_TOTAL_SIZE_MB",
    "AUTH",
    "OIDC_ISSUER",
    "OIDC_SCOPE_PREFIX",
];

impl Cli {
    /// Reads a command line. If it is wrong or requests help, prints the error or the help and ends the process.
    #[must_use]
    pub fn read(arguments: Vec<OsString>) -> Self {
        Self::try_read(arguments).unwrap_or_else(|error| error.exit())
    }

    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help that it requests.
    pub fn try_read(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = Self::command();
        let matches = command
            .clone()
            .try_get_matches_from(&arguments)
            .map_err(|error| with_usage(error, command.clone(), &arguments))?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let for_service = for_service(&command, &matches);
        match &mut cli.command {
            Command::Line(line) => line.common().service.backend.for_service = for_service,
            Command::Stdio(args) => args.backend.for_service = for_service,
            Command::Http(args) => args.backend.for_service = for_service,
            Command::Hook(args) => {
                args.service.backend.for_service = for_service;
                args.settings.exclude = items(&args.settings.exclude);
            }
            Command::Install(_) | Command::Tools | Command::Completions { .. } => {}
        }
        Ok(cli)
    }
}

/// The error with the usage that the command's help has. clap's own repeats every setting of the environment, as if its
/// flag were required.
fn with_usage(
    mut error: clap::Error,
    mut command: clap::Command,
    arguments: &[OsString],
) -> clap::Error {
    if error.get(ContextKind::Usage).is_some() {
        command.build();
        let called = arguments
            .iter()
            .skip(1)
            .fold(&command, |command, argument| {
                command.find_subcommand(argument).unwrap_or(command)
            });
        let usage = called.clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// The values given as flags that the service needs too ([`FOR_SERVICE`]), by environment variable.
fn for_service(mut command: &clap::Command, mut matches: &ArgMatches) -> Vec<(OsString, OsString)> {
    let mut found = Vec::new();
    while let Some((name, below)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        (command, matches) = (subcommand, below);
        found.extend(command.get_arguments().filter_map(|arg| {
            let (id, name) = (arg.get_id().as_str(), arg.get_env()?);
            let is_flag = matches.value_source(id) == Some(ValueSource::CommandLine);
            let is_shared = FOR_SERVICE.iter().any(|shared| name == *shared);
            let value = matches.get_raw(id)?.next_back()?;
            (is_flag && is_shared).then(|| (name.to_owned(), value.to_owned()))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ToolSet;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn http(args: &[&str]) -> Result<(), String> {
        let cli = Cli::try_parse_from(["context-gateway", "http"].iter().chain(args))
            .map_err(|e| e.to_string())?;
        match cli.command {
            Command::Http(args) => args.check(),
            _ => unreachable!("http was given"),
        }
    }

    #[test]
    fn an_open_address_without_authentication_is_refused_unless_insecure() {
        assert!(http(&["--listen", "127.0.0.1:1"]).is_ok());
        assert!(
            http(&["--listen", "0.0.0.0:1"])
                .unwrap_err()
                .contains("--insecure")
        );
        assert!(http(&["--listen", "0.0.0.0:1", "--insecure"]).is_ok());
        assert!(http(&["--listen", "0.0.0.0:1", "--auth", "keys"]).is_ok());
        assert!(
            http(&["--auth", "oidc"])
                .unwrap_err()
                .contains("OIDC_ISSUER")
        );
        assert!(
            http(&[
                "--auth",
                "oidc",
                "--oidc-issuer",
                "https://accounts.example"
            ])
            .is_ok()
        );
    }

    #[test]
    fn values_that_are_set_but_empty_take_the_default() {
        let cli = Cli::parse_from([
            "context-gateway",
            "http",
            "--listen",
            "",
            "--max-total-size-mb",
            "",
            "--auth",
            "",
            "--log-level",
            "",
            "--tools",
            "",
            "--db-path",
            "",
        ]);
        let Command::Http(args) = cli.command else {
            unreachable!("http was given")
        };
        assert_eq!(
            (
                args.listen.port(),
                args.backend.max_total_size_mb,
                args.auth.as_str()
            ),
            (7421, 100, "off")
        );
        assert_eq!(args.backend.tools, ToolSet::Default);
        let hook = ["context-gateway", "hook", "--recall", "", "status"];
        let Command::Hook(hook) = Cli::parse_from(hook).command else {
            unreachable!("hook was given")
        };
        assert!(hook.settings.recall);
        assert_eq!(args.backend.target().unwrap().to_string(), {
            let default = Cli::parse_from([
                "context-gateway",
                "http",
                "--db-path",
                "~/.mcp/context_storage.db",
                "--backend",
                "",
                "--socket",
                "",
            ]);
            let Command::Http(default) = default.command else {
                unreachable!("http was given")
            };
            default.backend.target().unwrap().to_string()
        });
    }

    #[test]
    fn lists_are_split_after_variables_are_expanded() {
        let args = [
            "context-gateway",
            "http",
            "--allowed-hosts",
            "${NO_SUCH_VARIABLE:-a.example, b.example},c.example",
            "--allowed-origins",
            "https://a.example, https://b.example:*,",
            "--disabled-tools",
            "${NO_SUCH_VARIABLE:-list_threads,delete_context}",
        ];
        let Command::Http(args) = Cli::parse_from(args).command else {
            unreachable!("http was given")
        };
        assert_eq!(
            items(&args.allowed_hosts),
            ["a.example", "b.example", "c.example"]
        );
        assert_eq!(
            items(&args.allowed_origins),
            ["https://a.example", "https://b.example:*"]
        );
        assert_eq!(args.check(), Ok(()));
        let hosts = "context.example, context.example:8443,192.0.2.1,[::1]:7421,2001:db8::1";
        assert_eq!(http(&["--allowed-hosts", hosts]), Ok(()));
        assert!(args.backend.selection().warnings().is_empty());
        assert_eq!(
            items(&args.backend.disabled_tools),
            ["list_threads", "delete_context"]
        );
        let hook = [
            "context-gateway",
            "hook",
            "--exclude",
            "${NO_SUCH_VARIABLE:-github.com/acme/*, /home/me/private},/srv",
            "status",
        ];
        let Command::Hook(hook) = Cli::try_read(hook.map(OsString::from).into())
            .unwrap()
            .command
        else {
            unreachable!("hook was given")
        };
        assert_eq!(
            hook.settings.exclude,
            ["github.com/acme/*", "/home/me/private", "/srv"]
        );
    }

    #[test]
    fn a_usage_line_repeats_no_setting() {
        let arguments = [
            "context-gateway",
            "http",
            "--db-path",
            "/a.db",
            "--nonsense",
        ];
        let error = Cli::try_read(arguments.map(OsString::from).into()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("Usage: context-gateway http [OPTIONS]\n"),
            "{text}"
        );
        assert!(!text.contains("--db-path"), "{text}");
    }

    #[test]
    fn the_relevance_of_a_search_is_a_number_from_0_to_1() {
        let search = |value: &str| {
            let relevance = format!("--min-relevance={value}");
            Cli::try_parse_from(["context-gateway", "search", "q", &relevance])
        };
        for value in ["0", "0.3", "1"] {
            assert!(search(value).is_ok(), "{value}");
        }
        for value in ["nan", "inf", "-0.1", "1.5", "high"] {
            let error = search(value).unwrap_err().to_string();
            assert!(error.contains("must be a number from 0 to 1"), "{error}");
        }
    }

    #[test]
    fn an_empty_database_path_goes_into_no_client_s_file() {
        for path in ["", " "] {
            let path = format!("--db-path={path}");
            let refused = Cli::try_parse_from(["context-gateway", "install", "cursor", &path]);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("default database"), "{error}");
        }
    }

    #[test]
    fn malformed_values_and_unknown_flags_stop_the_start() {
        for args in [
            &["--listen", "nonsense"] as &[&str],
            &["--max-total-size-mb", "0"],
            &["--log-level", "LOUD"],
            &["--auth", "maybe"],
            &["--allowed-origins", "app.example"],
            &["--allowed-hosts", "https://context.example"],
            &["--allowed-hosts", "context.example/mcp"],
            &["--no-such-flag"],
        ] {
            assert!(http(args).is_err(), "{args:?}");
        }
    }
}
