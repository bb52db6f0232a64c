//! The program `context-gateway`: what each command does.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::backend::Backend;
use crate::catalogue::{Catalogue, ToolSet};
use crate::cli::{Cli, Command, HttpArgs};
use crate::connection::{BackendArgs, StdioArgs, items};
use crate::handler::{Credentials, Gateway};
use crate::http::ConnectionLimits;
use crate::stderr::announce;
use crate::{command, hook, http, install, predecessor, stdio};

/// The service's message about a setting that cannot be read.
#[derive(Debug)]
struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs `context-gateway`: reads its arguments and executes the command. Returns the exit code of the process.
#[must_use]
pub fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    if hook::is_called_by_agent(&given) {
        return hook::answer(given);
    }
    let (arguments, warnings) =
        match predecessor::translated(given, &|name| std::env::var(name).ok()) {
            Ok(translated) => translated,
            Err(sentence) => {
                announce(&format!("context-gateway: {sentence}"));
                return ExitCode::from(2);
            }
        };
    for warning in warnings {
        announce(&format!("context-gateway: {warning}"));
    }
    let outcome = match Cli::read(arguments).command {
        Command::Line(line) => return command::run(line),
        Command::Stdio(args) => serve_stdio(&args),
        Command::Http(args) => serve_http(&args),
        Command::Hook(args) => hook::status(&args)
            .map_err(Into::into)
            .and_then(|text| print(text.as_bytes())),
        Command::Install(args) => install::run(&args).map_err(Into::into),
        Command::Tools => print_tools(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "context-gateway", &mut script);
            print(&script)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            announce(&format!("context-gateway: {error}"));
            if error.is::<Malformed>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn serve_stdio(args: &StdioArgs) -> Outcome {
    log_to_stderr(args.backend.log_level);
    if io::stdin().is_terminal() {
        announce(
            "context-gateway is waiting for an MCP client on stdin; `context-gateway install claude` registers it with one",
        );
    }
    // One thread: a call is two socket hops, and waking another thread for each adds a quarter to
    // its time.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let gateway = gateway(&args.backend, args.credentials()?).await?;
        stdio::serve(
            gateway,
            args.backend.max_request_bytes(),
            args.backend.budget(),
            stop,
        )
        .await?;
        Ok(())
    });
    // If stdin is not a pipe, a thread may still be blocked reading it.
    runtime.shutdown_background();
    outcome
}

fn serve_http(args: &HttpArgs) -> Outcome {
    args.check()?;
    log_to_stderr(args.backend.log_level);
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let limits = fit_descriptors(args.connection_limits());
        let gateway = gateway(&args.backend, Credentials::Callers).await?;
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
        let listen = listener.local_addr()?;
        let config = http::HttpConfig {
            listen,
            allowed_hosts: items(&args.allowed_hosts),
            allowed_origins: items(&args.allowed_origins),
            guarded_as: args.guarded(listen),
            max_message_bytes: args.backend.max_request_bytes(),
        };
        announce(&format!(
            "context-gateway listens on http://{listen}/mcp (service: {})",
            gateway.backend()
        ));
        announce(&format!(
            "register it: claude mcp add --scope user --transport http context http://{listen}/mcp"
        ));
        let app = http::app(gateway, &config, args.backend.budget(), stop.clone());
        http::serve(listener, app, limits, stop).await?;
        Ok(())
    });
    runtime.shutdown_background();
    outcome
}

async fn gateway(
    args: &BackendArgs,
    credentials: Credentials,
) -> Result<std::sync::Arc<Gateway>, Box<dyn std::error::Error>> {
    let tools = args.selection();
    for warning in tools.warnings() {
        announce(&format!("context-gateway: {warning}"));
    }
    let backend = Backend::new(args.target()?, args.max_message_bytes())?;
    backend
        .check_settings(args.program())
        .await
        .map_err(Malformed)?;
    Ok(Gateway::with_tools(backend, credentials, tools))
}

/// Raises the limit on open files as far as the connections need it and the system allows. If the
/// limit stays too low, fewer connections are allowed, so that this process chooses which ones are
/// closed.
fn fit_descriptors(limits: ConnectionLimits) -> ConnectionLimits {
    use rustix::process::{Resource, getrlimit, setrlimit};

    /// Files for the standard streams, the runtime, the service, and connections that are being
    /// opened or closed.
    const OTHERS: usize = 64;
    let mut files = getrlimit(Resource::Nofile);
    let needed = (limits.connections + OTHERS) as u64;
    if files.current.is_some_and(|current| current < needed) {
        let raised = files.maximum.map_or(needed, |maximum| needed.min(maximum));
        files.current = Some(raised);
        if setrlimit(Resource::Nofile, files).is_err() {
            files = getrlimit(Resource::Nofile);
        }
    }
    if let Some(current) = files.current.filter(|current| *current < needed) {
        let fewer = usize::try_from(current)
            .unwrap_or(usize::MAX)
            .saturating_sub(OTHERS)
            .max(1);
        announce(&format!(
            "the limit of {current} open files (ulimit -n) allows context-gateway {fewer} connections instead of {}",
            limits.connections
        ));
        return limits.reduced_to(fewer);
    }
    limits
}

/// A token that SIGTERM and SIGINT cancel.
fn stop_on_signals() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}

/// Stdout belongs to MCP, so logs go to stderr. Only the errors of rmcp are logged, whatever `level` is: its other
/// lines hold whole messages, with the arguments of tools and the texts of entries.
fn log_to_stderr(level: LevelFilter) {
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::INFO))
        .with_target("context_gateway", level)
        .with_target("rmcp", level.min(LevelFilter::ERROR));
    tracing_subscriber::registry()
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(io::stderr)
                .with_ansi(false)
                .with_target(false),
        )
        .with(targets)
        .init();
}

fn print_tools() -> Outcome {
    let mut text = serde_json::to_vec_pretty(
        &serde_json::json!({ "tools": Catalogue::get().listed(ToolSet::Default) }),
    )?;
    text.push(b'\n');
    print(&text)
}

/// Writes to stdout. A reader that closes early, such as `head`, is not an error.
fn print(bytes: &[u8]) -> Outcome {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}
