//! What is logged, and in which form.

use clap::Args;

/// The five levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Everything, rejected requests included
    Debug,
    /// What the service does
    Info,
    /// What somebody should look at
    #[value(alias = "warn")]
    Warning,
    /// What failed
    Error,
    /// The same as error: nothing is logged above it
    Critical,
}

/// The forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// Settings of the log, which goes to stderr.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// What is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL, in any case.
    #[arg(
        long,
        env = "LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "ERROR",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub log_level: Level,

    /// How it is written: text or json.
    #[arg(
        long,
        env = "LOG_FORMAT",
        value_name = "FORM",
        default_value = "text",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub log_format: Format,
}
