//! The program `context-service`: what each command does.

use std::env::VarError;
use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;
use context_engine::{AUDIT_LINES, Admin};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::admin::command as administer;
use crate::cli::{Cli, Command, Follow, PrintConfig};
use crate::compare_settings::{CompareOptions, compare_running};
use crate::config::{Config, Predecessor};
use crate::doctor::{examine, ready};
use crate::error_codes::errors_page;
use crate::fetch_model::fetch_model;
use crate::follow::{self, Key};
use crate::migrate_data::migrate_data;
use crate::reembed::command as reembed;
use crate::rest::document;
use crate::serve::{Started, start};
use crate::stderr::announce;
use crate::verify::verify;
use crate::{config, logging, models, page_port};

/// Maximum number of threads that serve requests. The database has its own threads, so further ones
/// would be idle.
const MAX_WORKERS: usize = 4;

/// Runs `context-service`: reads its arguments and executes the command. Returns the exit code of the process.
#[must_use]
pub fn main() -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let read = config::read_translated::<Cli>(std::env::args_os(), &env);
    let (cli, predecessor) = match read {
        Ok((mut cli, settings, predecessor)) => {
            cli.config.settings = models::with_found(&cli.config, settings);
            (cli, predecessor)
        }
        Err(refusal) if refusal.exit_code == 0 => return print(&refusal.text),
        Err(refusal) => {
            announce(&refusal.text);
            return ExitCode::from(refusal.exit_code);
        }
    };
    // `env` has no value for such a variable, and the default may mean another database.
    if let Some(name) = variable_beyond_unicode() {
        announce(&format!("error: {name} is not valid UTF-8\n"));
        return ExitCode::from(2);
    }
    logging::start(&cli.config.log);
    if let Some(command) = cli.command.as_ref().and_then(Command::admin) {
        return with_runtime(async {
            let skipped = if let Admin::Audit { skip, .. } = &command {
                Some(*skip)
            } else {
                None
            };
            match administer(&cli.config, command).await {
                Ok(text) => {
                    let printed = print(&text);
                    if let Some(skipped) = skipped
                        && text.lines().count() >= AUDIT_LINES as usize
                    {
                        let next = skipped.saturating_add(AUDIT_LINES);
                        announce(&format!(
                            "These are {AUDIT_LINES} lines. To continue, run the same command with --skip={next}.\n"
                        ));
                    }
                    printed
                }
                Err(sentence) => failed(sentence),
            }
        });
    }
    match cli.command {
        None => with_runtime(serve(&cli.config, &predecessor)),
        Some(Command::Doctor) => with_runtime(async {
            let examination = examine(&cli.config, &predecessor).await;
            let printed = print(&examination.report);
            if examination.healthy {
                printed
            } else {
                ExitCode::FAILURE
            }
        }),
        Some(Command::Config(PrintConfig {
            compare: true,
            stop_unused,
            explicit,
            ..
        })) => {
            let options = CompareOptions {
                explicit_only: explicit,
                may_stop: stop_unused,
            };
            with_runtime(async {
                let found = compare_running(&cli.config, &predecessor, options).await;
                match serde_json::to_string(&found) {
                    Ok(text) => print(&format!("{text}\n")),
                    Err(_) => ExitCode::FAILURE,
                }
            })
        }
        Some(Command::Config(PrintConfig { json: true, .. })) => {
            print(&format!("{:#}\n", config::json(&cli.config.settings)))
        }
        Some(Command::Config(_)) => {
            for warning in predecessor.warnings() {
                announce(&format!("warning: {warning}\n"));
            }
            print(&config::table(&cli.config.settings))
        }
        Some(Command::Ready) => with_runtime(async {
            match ready(&cli.config).await {
                Ok(()) => ExitCode::SUCCESS,
                Err(sentence) => failed(sentence),
            }
        }),
        Some(Command::Open { print: only_print }) => with_runtime(async {
            match page_port::command(&cli.config).await {
                Ok(url) => {
                    let printed = print(&format!("{url}\n"));
                    if !only_print && !page_port::show(&url) {
                        announce(
                            "There is no browser here; open the URL in one on this machine.\n",
                        );
                    }
                    printed
                }
                Err(sentence) => failed(sentence),
            }
        }),
        // Handled above.
        Some(Command::Keys(_) | Command::Owners(_) | Command::Audit { .. }) => ExitCode::SUCCESS,
        Some(Command::FetchModel { model, hub }) => with_runtime(async move {
            match fetch_model(&model, hub.as_str()).await {
                Ok(sentence) => {
                    announce(&format!("{sentence}\n"));
                    ExitCode::SUCCESS
                }
                Err(sentence) => failed(sentence),
            }
        }),
        Some(Command::Reembed) => with_runtime(async {
            match reembed(&cli.config).await {
                Ok(sentence) => {
                    announce(&format!("{sentence}\n"));
                    ExitCode::SUCCESS
                }
                Err(sentence) => failed(sentence),
            }
        }),
        Some(Command::Follow(arguments)) => {
            with_runtime(serve_copy(&cli.config, &predecessor, &arguments, &env))
        }
        Some(Command::Verify) => with_runtime(verify(&cli.config)),
        Some(Command::MigrateData(migration)) => with_runtime(async {
            match migrate_data(&cli.config, &migration).await {
                Ok(report) => print(&report),
                Err(sentence) => failed(sentence),
            }
        }),
        Some(Command::Openapi) => print(&document()),
        Some(Command::ConfigDocs) => print(&config::configuration_page(&Cli::command())),
        Some(Command::ErrorDocs) => print(&errors_page()),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "context-service", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    }
}

fn with_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_WORKERS));
    match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(16)
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            // After a signal, dropping the runtime would wait for blocking work, such as opening a database.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed(format_args!(
            "the service cannot start its threads: {error}"
        )),
    }
}

async fn serve(config: &Config, predecessor: &Predecessor) -> ExitCode {
    predecessor.log();
    if let Err(sentence) = predecessor.check(config) {
        return failed(sentence);
    }
    let Some(mut signals) = Signals::listen() else {
        return ExitCode::FAILURE;
    };
    let started = tokio::select! {
        biased;
        started = start(config) => started,
        // A start that indexes every entry again can take minutes. If it is interrupted, the next start repeats it.
        () = signals.next() => {
            announce("stopped by a signal before the start was complete\n");
            return ExitCode::SUCCESS;
        }
    };
    let running = match started {
        Ok(Started::Running(running)) => running,
        Ok(Started::ServedByAnother) => {
            announce("another service serves this database already\n");
            return ExitCode::SUCCESS;
        }
        Err(error) => return failed(error),
    };
    announce(&running.start_report().banner());
    // The default of LOG_LEVEL hides warnings.
    if !predecessor.warnings().is_empty() && !tracing::enabled!(tracing::Level::WARN) {
        announce(
            "Some settings of mcp-context-server are read as other settings or have no effect; `context-service doctor` names them.\n",
        );
    }
    let stop = running.stop();
    tokio::select! {
        () = running.run() => ExitCode::SUCCESS,
        failed = signals.stop(&stop) => failed,
    }
}

/// Follows another service, and serves the copy.
async fn serve_copy(
    config: &Config,
    predecessor: &Predecessor,
    arguments: &Follow,
    env: &dyn Fn(&str) -> Option<String>,
) -> ExitCode {
    predecessor.log();
    if let Err(sentence) = predecessor.check(config) {
        return failed(sentence);
    }
    let Some(mut signals) = Signals::listen() else {
        return ExitCode::FAILURE;
    };
    let key = match Key::read(env) {
        Ok(key) => key,
        Err(sentence) => return failed(sentence),
    };
    let following = tokio::select! {
        following = follow::start(config, arguments, key) => following,
        () = signals.next() => return ExitCode::SUCCESS,
    };
    let following = match following {
        Ok(following) => following,
        Err(sentence) => return failed(sentence),
    };
    announce(&following.running().start_report().banner());
    let stop = following.running().stop();
    tokio::select! {
        ended = following.run() => ended.map_or_else(failed, |()| ExitCode::SUCCESS),
        failed = signals.stop(&stop) => failed,
    }
}

/// The variable of a setting whose value is not valid UTF-8.
fn variable_beyond_unicode() -> Option<String> {
    let command = Cli::command();
    let mut names = command
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str());
    names
        .find(|name| matches!(std::env::var(name), Err(VarError::NotUnicode(_))))
        .map(str::to_owned)
}

/// The signals that end the program.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installed before anything listens, so that no signal reaches the default handler.
    fn listen() -> Option<Self> {
        let (Ok(terminate), Ok(interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            announce("error: the service cannot listen for signals\n");
            return None;
        };
        Some(Self {
            terminate,
            interrupt,
        })
    }

    async fn next(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }

    /// Stops the service at the first signal. Returns at the second, which ends the program at once.
    async fn stop(&mut self, service: &CancellationToken) -> ExitCode {
        self.next().await;
        service.cancel();
        self.next().await;
        failed("stopped by a second signal before the shutdown was complete")
    }
}

/// Prints an error to stderr.
fn failed(error: impl Display) -> ExitCode {
    announce(&format!("error: {error}\n"));
    ExitCode::FAILURE
}

/// Prints to stdout. A reader that closes early (`| head`) is not an error.
fn print(text: &str) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(format_args!("the output cannot be written: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}
