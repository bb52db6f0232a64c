//! The value of each setting, and where the value came from.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use context_engine::Switch;
use context_model::{Secret, shown_url};
use context_store_postgres::SslMode;

use super::oidc::Scopes;
use super::value::{List, Listen, Url};

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Not set: the default applies.
    Default,
    /// The environment variable of the same name.
    Environment,
    /// This environment variable, a setting of mcp-context-server.
    Renamed(&'static str),
    /// A flag.
    Flag,
    /// A downloaded model.
    Cache,
}

impl Source {
    /// Whether an operator set the value.
    #[must_use]
    pub const fn is_explicit(self) -> bool {
        match self {
            Self::Environment | Self::Renamed(_) | Self::Flag => true,
            Self::Default | Self::Cache => false,
        }
    }
}

/// A setting and its value.
#[derive(Clone)]
pub struct Setting {
    /// The name of its environment variable.
    pub name: String,
    /// Where the value came from.
    pub source: Source,
    flag: String,
    /// The value, in one spelling whatever the user wrote.
    value: Option<Secret>,
    shown: Option<String>,
}

impl Setting {
    /// The value as it may be printed, without passwords: a key is `***`. `None` if there is none.
    #[must_use]
    pub fn shown(&self) -> Option<&str> {
        self.shown.as_deref()
    }

    /// The value itself if it must not be printed.
    #[must_use]
    pub fn secret(&self) -> Option<&Secret> {
        self.value
            .as_ref()
            .filter(|value| Some(value.reveal()) != self.shown())
    }

    /// The flag, with its dashes.
    #[must_use]
    pub fn flag(&self) -> &str {
        &self.flag
    }

    /// Sets the value, which must not be a secret.
    fn set(&mut self, value: String, source: Source) {
        self.shown = Some(value.clone());
        self.value = Some(Secret::new(value));
        self.source = source;
    }
}

/// Every setting, in the order of the settings' page.
#[derive(Clone, Default)]
pub struct Settings(Vec<Setting>);

impl fmt::Debug for Settings {
    /// Prints only the number of settings, because values can be secrets. [`Setting::shown`] returns what may be
    /// printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Settings").field(&self.0.len()).finish()
    }
}

impl Settings {
    /// Collects the settings that were read. `all` has the values of the environment and of flags, `flags` only those
    /// of flags.
    pub(super) fn read(command: &Command, all: &ArgMatches, flags: Option<&ArgMatches>) -> Self {
        let named = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(|arg| Some((arg.get_env()?.to_str()?, arg)));
        let is_given = |matches: &ArgMatches, arg: &Arg| {
            matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        Self(
            named
                .map(|(name, arg)| {
                    let value = value(all, arg).filter(|value| !value.is_empty());
                    let source = match flags {
                        Some(flags) if is_given(flags, arg) => Source::Flag,
                        _ if is_given(all, arg) => Source::Environment,
                        _ => Source::Default,
                    };
                    let is_url = typed::<Url>(all, arg, |_| String::new()).is_some();
                    let shown = value.as_deref().map(|value| {
                        if arg.is_hide_env_values_set() {
                            "***".to_owned()
                        } else if is_url {
                            shown_url(value)
                        } else {
                            value.to_owned()
                        }
                    });
                    Setting {
                        name: name.to_owned(),
                        source,
                        flag: format!("--{}", arg.get_long().unwrap_or_default()),
                        value: value.map(Secret::new),
                        shown,
                    }
                })
                .collect(),
        )
    }

    /// The settings in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// The setting of this name; `None` if there is no such setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.iter().find(|setting| setting.name == name)
    }

    /// Records that the value of the setting `ours` came from the variable `theirs` of mcp-context-server.
    pub(super) fn renamed(&mut self, ours: &str, theirs: &'static str) {
        if let Some(setting) = self.0.iter_mut().find(|setting| setting.name == ours)
            && setting.source == Source::Environment
        {
            setting.source = Source::Renamed(theirs);
        }
    }

    /// Adds the value of a setting that was not set.
    pub(crate) fn found(&mut self, name: &str, value: String, source: Source) {
        if let Some(setting) = self.0.iter_mut().find(|setting| setting.name == name)
            && setting.value.is_none()
        {
            setting.set(value, source);
        }
    }
}

/// The value in one spelling: `true` for `YES`, an absolute path.
fn value(matches: &ArgMatches, arg: &Arg) -> Option<String> {
    let switch = |switch: &Switch| match switch {
        Switch::True => "true".to_owned(),
        Switch::False => "false".to_owned(),
        Switch::Auto => "auto".to_owned(),
    };
    let path = |path: &PathBuf| context_model::local::absolute(path).display().to_string();
    let listen = |Listen(address): &Listen| {
        address.map_or_else(|| "off".to_owned(), |address| address.to_string())
    };
    let scopes = |Scopes(scopes): &Scopes| {
        let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
        names.join(",")
    };
    typed(matches, arg, bool::to_string)
        .or_else(|| typed(matches, arg, u64::to_string))
        .or_else(|| typed(matches, arg, f64::to_string))
        .or_else(|| typed(matches, arg, switch))
        .or_else(|| typed(matches, arg, path))
        .or_else(|| typed(matches, arg, SocketAddr::to_string))
        .or_else(|| typed(matches, arg, listen))
        .or_else(|| typed(matches, arg, |List(items): &List| items.join(",")))
        .or_else(|| typed(matches, arg, scopes))
        .or_else(|| typed(matches, arg, |mode: &SslMode| mode.name().to_owned()))
        .or_else(|| typed(matches, arg, String::clone))
        .or_else(|| as_written(matches, arg))
}

/// The value if it has the type `T`.
fn typed<T: Any + Clone + Send + Sync>(
    matches: &ArgMatches,
    arg: &Arg,
    text: impl Fn(&T) -> String,
) -> Option<String> {
    let value = matches.try_get_one::<T>(arg.get_id().as_str()).ok()?;
    value.map(text)
}

/// The value as the user wrote it; one of a fixed set by its name.
fn as_written(matches: &ArgMatches, arg: &Arg) -> Option<String> {
    let written = matches.get_raw(arg.get_id().as_str())?.next()?;
    let written = written.to_string_lossy();
    let possible = arg.get_possible_values();
    let named = possible.iter().find(|value| value.matches(&written, true));
    Some(named.map_or_else(
        || written.trim().to_owned(),
        |value| value.get_name().to_owned(),
    ))
}
