//! The arguments and settings of hooks.

use clap::{Args, Subcommand, ValueEnum};

use crate::connection::{StdioArgs, expanded, number, or, switch_or};

/// The arguments of `hook`.
#[derive(Debug, Clone, Args)]
pub struct HookArgs {
    /// Where the service is, and the key for it.
    #[command(flatten)]
    pub service: StdioArgs,
    /// What is captured and recalled.
    #[command(flatten)]
    pub settings: HookSettings,
    /// A plugin makes this call: do nothing if the user's settings have the hook too
    #[arg(long, hide = true)]
    pub plugin: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: HookCommand,
}

/// The commands of `hook`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum HookCommand {
    /// Handle an event of Claude Code, whose JSON is on stdin
    Claude {
        /// The event
        event: HookEvent,
    },
    /// Handle an event of Codex, whose JSON is on stdin
    Codex {
        /// The event
        event: HookEvent,
    },
    /// Handle an event of Gemini CLI, whose JSON is on stdin
    Gemini {
        /// The event
        event: HookEvent,
    },
    /// Show what is captured here, what waits for the service, and what was sent
    Status,
}

impl HookCommand {
    /// The agent and the event. `None` for `status`, which a person runs.
    #[must_use]
    pub const fn event(self) -> Option<(HookAgent, HookEvent)> {
        match self {
            Self::Claude { event } => Some((HookAgent::Claude, event)),
            Self::Codex { event } => Some((HookAgent::Codex, event)),
            Self::Gemini { event } => Some((HookAgent::Gemini, event)),
            Self::Status => None,
        }
    }
}

/// The agents that have hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAgent {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
}

impl HookAgent {
    /// Its name on the command line and in metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// The events at which it calls hooks, in the order of a session.
    #[must_use]
    pub const fn events(self) -> &'static [HookEvent] {
        match self {
            Self::Claude => &HookEvent::ALL,
            // The transcripts of these two are not read, so nothing is left to do before a compaction.
            Self::Codex | Self::Gemini => &[
                HookEvent::SessionStart,
                HookEvent::UserPromptSubmit,
                HookEvent::Stop,
                HookEvent::SessionEnd,
            ],
        }
    }
}

/// The moments at which agents call a hook. The names are Claude Code's; Gemini CLI has names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum HookEvent {
    /// A session starts, or continues: the agent gets a brief
    SessionStart,
    /// The person submitted a prompt: the agent gets what was remembered about it, and the prompt is captured
    #[value(alias = "BeforeAgent")]
    UserPromptSubmit,
    /// The agent finished its answer: the answer is captured
    #[value(alias = "AfterAgent")]
    Stop,
    /// The conversation will be compacted: what was not captured yet is captured
    PreCompact,
    /// The session ends: what was not captured yet is captured
    SessionEnd,
}

impl HookEvent {
    /// Its name in the agent's settings and in the hook's output.
    #[must_use]
    pub const fn name(self, agent: HookAgent) -> &'static str {
        match (self, agent) {
            (Self::UserPromptSubmit, HookAgent::Gemini) => "BeforeAgent",
            (Self::Stop, HookAgent::Gemini) => "AfterAgent",
            (Self::SessionStart, _) => "SessionStart",
            (Self::UserPromptSubmit, _) => "UserPromptSubmit",
            (Self::Stop, _) => "Stop",
            (Self::PreCompact, _) => "PreCompact",
            (Self::SessionEnd, _) => "SessionEnd",
        }
    }

    /// All of them, in the order of a session.
    pub const ALL: [Self; 5] = [
        Self::SessionStart,
        Self::UserPromptSubmit,
        Self::Stop,
        Self::PreCompact,
        Self::SessionEnd,
    ];
}

/// Settings of hooks.
#[derive(Debug, Clone, Args)]
pub struct HookSettings {
    /// Whether prompts and answers are captured: on, off, or auto, which is on unless CONTEXT_BACKEND is another
    /// machine
    #[arg(long, env = "CONTEXT_HOOK_CAPTURE", default_value = "auto", value_parser = capture)]
    pub capture: CaptureMode,
    /// Whether stored entries are shown to the agent
    #[arg(long, env = "CONTEXT_HOOK_RECALL", default_value = "true", value_parser = recall, action = clap::ArgAction::Set)]
    pub recall: bool,
    /// How a project is named in entries: plain or hashed
    #[arg(long, env = "CONTEXT_HOOK_PROJECT_NAMES", default_value = "plain", value_parser = project_names)]
    pub project_names: ProjectNames,
    /// Projects and directories that are left out, comma-separated: github.com/acme/*, /home/me/private
    #[arg(long, env = "CONTEXT_HOOK_EXCLUDE", value_parser = expanded)]
    pub exclude: Vec<String>,
    /// Milliseconds after which a hook ends, whatever it does, 200 to 60000
    #[arg(long, env = "CONTEXT_HOOK_TIMEOUT_MS", value_name = "MS", default_value_t = HOOK_TIMEOUT_MS, value_parser = hook_timeout)]
    pub timeout_ms: u64,
    /// Directory for what hooks remember between two events. If empty, $XDG_STATE_HOME/context-service/hooks or
    /// ~/.local/state/context-service/hooks
    #[arg(long, env = "CONTEXT_HOOK_STATE", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub state: String,
}

/// Whether hooks capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMode {
    /// Unless the service is on another machine.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How a project is named in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectNames {
    /// By its remote or path.
    Plain,
    /// By a hash.
    Hashed,
}

/// The default of CONTEXT_HOOK_TIMEOUT_MS.
pub const HOOK_TIMEOUT_MS: u64 = 950;

fn hook_timeout(value: &str) -> Result<u64, String> {
    number(value, &HOOK_TIMEOUT_MS.to_string(), 200, 60_000).map(|milliseconds| milliseconds as u64)
}

fn capture(value: &str) -> Result<CaptureMode, String> {
    match or(&expanded(value)?, "auto").to_ascii_lowercase().as_str() {
        "auto" => Ok(CaptureMode::Auto),
        "on" | "true" | "1" => Ok(CaptureMode::On),
        "off" | "false" | "0" => Ok(CaptureMode::Off),
        _ => Err("must be auto, on or off".into()),
    }
}

fn project_names(value: &str) -> Result<ProjectNames, String> {
    match or(&expanded(value)?, "plain").to_ascii_lowercase().as_str() {
        "plain" => Ok(ProjectNames::Plain),
        "hashed" => Ok(ProjectNames::Hashed),
        _ => Err("must be plain or hashed".into()),
    }
}

fn recall(value: &str) -> Result<bool, String> {
    switch_or(value, "true")
}
