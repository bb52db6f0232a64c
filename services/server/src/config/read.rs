//! Reading settings from flags and environment.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use context_model::expand_variables;

use super::settings::Settings;

/// An error in the command line or the environment, or the text that `--help` or `--version` prints.
#[derive(Debug)]
pub struct ReadError {
    /// What to print.
    pub text: String,
    /// The exit status: 0 for `--help` and `--version`, 2 otherwise.
    pub exit_code: u8,
}

/// Reads a command line. `env` returns the value of an environment variable.
///
/// # Errors
/// A message that names the setting and its allowed values.
pub fn read<C: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<C, ReadError> {
    read_settings(arguments, env).map(|(command, _)| command)
}

/// Like [`read`], but also returns where each setting came from.
///
/// # Errors
/// As [`read`].
pub(super) fn read_settings<C: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(C, Settings), ReadError> {
    let mut given = arguments.into_iter();
    let named = C::command();
    let mut line: Vec<OsString> = given.next().into_iter().collect();
    for arg in named.get_arguments() {
        let Some(name) = arg.get_env().and_then(|name| name.to_str()) else {
            continue;
        };
        match env(name).map(|value| expand_variables(&value, env)) {
            Some(value) if !value.trim().is_empty() => {
                line.push(format!("--{}={value}", arg.get_long().unwrap_or_default()).into());
            }
            _ => {}
        }
    }
    let mut flags: Vec<OsString> = line.first().cloned().into_iter().collect();
    flags.extend(given.map(|argument| match argument.into_string() {
        Ok(text) => expand_variables(&text, env).into(),
        Err(not_unicode) => not_unicode,
    }));
    line.extend(flags.iter().skip(1).cloned());
    // clap's message may repeat a value, and the value of any setting may be an address with a password.
    let sensitive: Vec<String> = line
        .iter()
        .filter_map(|argument| argument.to_str())
        .filter_map(address)
        .map(str::to_owned)
        .collect();
    let mut command = C::command().args_override_self(true).mut_args(without_env);
    let mut matches = command.try_get_matches_from_mut(&line).map_err(|error| {
        let error = match error.kind() {
            ErrorKind::DisplayHelp => help::<C>(&line).unwrap_or(error),
            _ => error,
        };
        refusal(&error, &named, &sensitive)
    })?;
    // In `line` the environment variables look like flags, so the real flags are parsed once more by themselves.
    let flags = command.try_get_matches_from_mut(flags).ok();
    let settings = Settings::read(&named, &matches, flags.as_ref());
    C::from_arg_matches_mut(&mut matches)
        .map(|command| (command, settings))
        .map_err(|error| refusal(&error, &named, &sensitive))
}

/// The help that this command line requests. That of a subcommand has only its own options.
fn help<C: CommandFactory>(line: &[OsString]) -> Option<clap::Error> {
    let command = C::command().args_override_self(true).mut_args(without_env);
    let settings: Vec<Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.clone().hide(true))
        .collect();
    let advice = format!(
        "Every setting of the service is also a flag of this command. `{} --help` explains the settings.",
        command.get_name()
    );
    command
        .mut_subcommands(|command| with_advice(command.args(&settings), &advice))
        .try_get_matches_from(line)
        .err()
}

/// Adds the advice to a command and its subcommands. The subcommands get copies of the hidden settings from clap, so
/// their help lists no settings either.
fn with_advice(command: Command, advice: &str) -> Command {
    command
        .after_help(advice.to_owned())
        .mut_subcommands(|command| with_advice(command, advice))
}

/// Stops clap from reading the variable itself, which would not expand it. The help text still names the variable.
fn without_env(arg: Arg) -> Arg {
    let Some(name) = arg
        .get_env()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
    else {
        return arg;
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long_help = arg
        .get_long_help()
        .map_or_else(|| help.clone(), ToString::to_string);
    arg.env(Resettable::Reset)
        .help(format!("{help} [env: {name}]"))
        .long_help(format!("{long_help}\n\n[env: {name}]"))
}

/// The value of an argument that looks like an address, which may contain a password.
fn address(argument: &str) -> Option<&str> {
    let value = argument
        .strip_prefix("--")
        .and_then(|flag| flag.split_once('='))
        .map_or(argument, |(_, value)| value);
    (value.contains('@') || value.contains("://")).then_some(value)
}

fn refusal(error: &clap::Error, command: &Command, sensitive: &[String]) -> ReadError {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        let text = error.render();
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let text = if terminal {
            text.ansi().to_string()
        } else {
            text.to_string()
        };
        return ReadError {
            text: format!("{}\n", text.trim_end()),
            exit_code: 0,
        };
    }
    let text = about_a_value(error, command).unwrap_or_else(|| error.render().to_string());
    let text = sensitive.iter().fold(text, |text, value| {
        text.replace(value, &context_model::shown_url(value))
    });
    ReadError { text, exit_code: 2 }
}

/// An error message that names the environment variable too: clap names only the flag.
fn about_a_value(error: &clap::Error, command: &Command) -> Option<String> {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let long = arg.strip_prefix("--")?.split([' ', '=', '[']).next()?;
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(long))?;
    let env = arg.get_env()?.to_str()?;
    let shown = if arg.is_hide_env_values_set() {
        "***"
    } else {
        value
    };
    let why = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) => format!("it must be one of {}", valid.join(", ")),
        _ => std::error::Error::source(error)?.to_string(),
    };
    Some(format!("error: {env} (--{long}) is `{shown}`; {why}\n"))
}
