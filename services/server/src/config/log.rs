//! Settings of the log.

use clap::Args;

/// The levels of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Everything, also a second line about each rejected request
    Debug,
    /// What the service does, and a line for each request
    Info,
    /// What the operator should check
    #[value(alias = "warn")]
    Warning,
    /// What failed
    Error,
    /// The same as error: no line has a higher level
    Critical,
}

/// The forms of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON object on each line
    Json,
}

/// Settings of the log, which goes to stderr.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// The lowest level that is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL, in any case.
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

    /// The form of the log: text or json.
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
