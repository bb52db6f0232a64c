//! Reads the environment of mcp-context-server 2.2.2, so that its users keep their settings.
//!
//! A name that means the same as a setting of ours is read as that setting. Every other name is reported, because a
//! setting that is ignored without a word looks as if it worked. Only environment variables count, because
//! mcp-context-server has no flags.

mod names;

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{CommandFactory, FromArgMatches, ValueEnum as _};
use context_model::{expand_variables, shown_url};

pub use names::{Handling, NAMES};

use names::{Conversion, Renaming, When};

use super::read::{ReadError, read_settings};
use super::settings::Settings;
use super::value::boolean;
use super::{Auth, Config, EmbeddingProvider};

/// The settings of mcp-context-server in the environment, and the warnings about them.
#[derive(Debug, Default)]
pub struct Predecessor {
    /// The settings of ours that other names set.
    values: Vec<Value>,
    warnings: Vec<String>,
    /// The names without effect that are set.
    not_needed: Vec<&'static str>,
    /// The names that are set and configure a protection that this service does not have.
    security: Vec<&'static str>,
    /// Whether ENABLE_EMBEDDING_GENERATION is false.
    no_embeddings: bool,
}

/// A setting of ours that another name sets.
#[derive(Debug)]
struct Value {
    ours: &'static str,
    theirs: &'static str,
    /// When the other name sets it.
    when: When,
    value: String,
}

/// Like [`read`](super::read), but also reads the settings of mcp-context-server, and returns where each setting came
/// from.
///
/// # Errors
/// As [`read`](super::read). A malformed value of a renamed setting is an error too.
pub fn read_translated<C: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(C, Settings, Predecessor), ReadError> {
    let translated = Predecessor::read(env);
    // A malformed renamed value is reported only after this, so that `--help` still works.
    let (config, mut settings) = read_settings(arguments, &|name| {
        let value = translated.as_ref().ok().and_then(|found| found.value(name));
        value.map(str::to_owned).or_else(|| env(name))
    })?;
    match translated {
        Ok(found) => {
            for value in &found.values {
                settings.renamed(value.ours, value.theirs);
            }
            Ok((config, settings, found))
        }
        Err(sentence) => Err(ReadError {
            text: format!("error: {sentence}\n"),
            exit_code: 2,
        }),
    }
}

impl Predecessor {
    /// Reads the environment. `env` returns the value of a variable.
    ///
    /// # Errors
    /// A sentence that names a variable whose value is malformed. It does not repeat the value of a key.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| {
            let value = expand_variables(&env(name)?, env).trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let mut found = Self::default();
        for (name, handling) in NAMES {
            let Some(value) = get(name) else { continue };
            match handling {
                Handling::Same(_) | Handling::Changed(_) | Handling::Gateway(_) => {}
                Handling::NotNeeded(_) => found.not_needed.push(name),
                Handling::Security(_) if name == "MCP_AUTH_PROVIDER" && value == "none" => {}
                Handling::Security(_) => found.security.push(name),
                Handling::Renamed(_, renamings) => {
                    for renaming in renamings {
                        found.rename(name, &value, renaming, &get)?;
                    }
                }
            }
        }
        found.special_cases(&get)?;
        Ok(found)
    }

    /// Adds one renamed setting.
    fn rename(
        &mut self,
        name: &'static str,
        value: &str,
        renaming: &Renaming,
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let Renaming {
            ours,
            when,
            conversion,
            overrides,
        } = *renaming;
        let own = get(ours);
        match when {
            When::Always => {}
            When::Named(setting) | When::OwnAddress(setting, _) if !is_named(setting, get) => {
                return Ok(());
            }
            When::Named(_) => {}
            When::OwnAddress(_, url) => {
                if get(url).is_some() {
                    if own.is_none() {
                        self.warnings.push(format!(
                            "{name} is not sent to the address in {url}; if it is meant for that address, set {ours}"
                        ));
                    }
                    return Ok(());
                }
            }
        }
        let Some((converted, limit)) =
            convert(conversion, value).map_err(|why| malformed(name, value, conversion, &why))?
        else {
            return Ok(());
        };
        let shown = match conversion {
            Conversion::Key => ours.to_owned(),
            Conversion::Text => format!("{ours}={}", shown_url(&converted)),
            Conversion::Number(_)
            | Conversion::Seconds(_)
            | Conversion::Milliseconds(_)
            | Conversion::NotZero
            | Conversion::Off => format!("{ours}={converted}"),
        };
        match own {
            Some(own) if same(&own, &converted) => return Ok(()),
            Some(_) if !overrides => {
                self.warnings.push(format!(
                    "{name}, a setting of mcp-context-server, differs from {ours}, which takes precedence"
                ));
                return Ok(());
            }
            Some(_) => self.warnings.push(format!(
                "{name}, a setting of mcp-context-server, takes precedence over {ours}: it means {shown}"
            )),
            None => {
                let limit = limit.map_or_else(String::new, |limit| format!(" ({limit})"));
                self.warnings.push(format!(
                    "{name} is a setting of mcp-context-server and is read as {shown}{limit}; rename it"
                ));
            }
        }
        self.values.push(Value {
            ours,
            theirs: name,
            when,
            value: converted,
        });
        Ok(())
    }

    /// Handles the settings whose effect depends on a value, or on two of them together.
    fn special_cases(&mut self, get: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        let is = |name: &str, word: &str| {
            get(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
        };
        if is("EMBEDDING_PROVIDER", "huggingface") {
            return Err(
                "EMBEDDING_PROVIDER is `huggingface`, whose hosted API is no provider of this service; set it to `tei` (a server of \
                 text-embeddings-inference, at EMBEDDING_URL), `local` (a model inside the service), `ollama`, `openai`, `azure`, `voyage` \
                 or `cohere`"
                    .to_owned(),
            );
        }
        self.no_embeddings = get("ENABLE_EMBEDDING_GENERATION")
            .is_some_and(|value| matches!(boolean(&value), Ok(false)));
        let demands_search =
            get("ENABLE_SEMANTIC_SEARCH").is_some_and(|value| matches!(boolean(&value), Ok(true)));
        if self.no_embeddings && demands_search {
            self.values.push(Value {
                ours: "ENABLE_SEMANTIC_SEARCH",
                theirs: "ENABLE_EMBEDDING_GENERATION",
                when: When::Always,
                value: "false".to_owned(),
            });
            self.warnings.push(
                "ENABLE_SEMANTIC_SEARCH is true, but ENABLE_EMBEDDING_GENERATION is false; semantic search is off"
                    .to_owned(),
            );
        }
        let schema = get("POSTGRESQL_SCHEMA").filter(|schema| schema != "public");
        if schema.is_some() && is("STORAGE_BACKEND", "postgresql") {
            self.warnings.push(
                "POSTGRESQL_SCHEMA has no effect: this service always uses the schema `context`; give each service its own database"
                    .to_owned(),
            );
        }
        if !self.security.is_empty() {
            self.warnings.push(format!(
                "{} has no effect: with AUTH=keys clients need a key of this service; create one with `context-service keys create`",
                self.security.join(", ")
            ));
        }
        Ok(())
    }

    /// The value that another name gives to this setting of ours.
    #[must_use]
    pub fn value(&self, ours: &str) -> Option<&str> {
        let found = self.values.iter().find(|value| value.ours == ours)?;
        Some(&found.value)
    }

    /// What the user should know or change, in sentences. No sentence contains a key.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A clause that lists the names without effect; `None` if none is set.
    #[must_use]
    pub fn not_needed(&self) -> Option<String> {
        (!self.not_needed.is_empty()).then(|| {
            format!(
                "these settings of mcp-context-server have no effect here: {}",
                self.not_needed.join(", ")
            )
        })
    }

    /// Logs the warnings, and one line about the names without effect.
    pub fn log(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(sentence) = self.not_needed() {
            tracing::info!("{sentence}");
        }
    }

    /// Checks that the service is not less protected than the user expects.
    ///
    /// # Errors
    /// A sentence that names the variable and what to do.
    pub fn check(&self, config: &Config) -> Result<(), String> {
        // Only its own user can use an auto-started service.
        if let Some(name) = self.security.first()
            && config.network.auth == Auth::Off
            && !config.auto_started
        {
            return Err(format!(
                "{name} is set, so callers of mcp-context-server may need a token, but AUTH is `off`, so this service would accept callers without one; set \
                 AUTH=keys and create a key with `context-service keys create`, or remove {name}"
            ));
        }
        // EMBEDDING_PROVIDER is already overridden. Only a flag can still name a provider.
        if self.no_embeddings && config.models.embedding_provider != EmbeddingProvider::None {
            return Err(
                "ENABLE_EMBEDDING_GENERATION is false, but --embedding-provider names a provider; remove one of them".to_owned(),
            );
        }
        // The environment decided which keys are renamed. A flag can name another provider or address.
        let models = &config.models;
        let name = |value: Option<PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        for (provider, ours, key, url, flag, address) in [
            (
                name(models.embedding_provider.to_possible_value()),
                "EMBEDDING_API_KEY",
                &models.embedding_api_key,
                "EMBEDDING_URL",
                "--embedding-url",
                &models.embedding_url,
            ),
            (
                name(models.summary_provider.to_possible_value()),
                "SUMMARY_API_KEY",
                &models.summary_api_key,
                "SUMMARY_URL",
                "--summary-url",
                &models.summary_url,
            ),
        ] {
            let is_used = |value: &&Value| {
                value.ours == ours && key.as_ref().is_some_and(|key| key.reveal() == value.value)
            };
            let Some(Value { theirs, when, .. }) = self.values.iter().find(is_used) else {
                continue;
            };
            let meant = match when {
                When::Named([_, meant]) | When::OwnAddress([_, meant], _) => *meant,
                When::Always => continue,
            };
            if provider != "none" && provider != meant {
                return Err(format!(
                    "{theirs} is not sent to the provider `{provider}`; if it is meant for it, set {ours}, else remove {theirs}"
                ));
            }
            let renamed = self.value(url);
            if matches!(when, When::OwnAddress(..))
                && address
                    .as_ref()
                    .is_some_and(|address| renamed != Some(address.as_str()))
            {
                return Err(format!(
                    "{theirs} is not sent to the address in {flag}; if it is meant for that address, set {ours}, else remove {theirs}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a setting of ours has this value. The default of STORAGE_BACKEND is sqlite; a provider has to be named.
fn is_named([setting, value]: [&str; 2], get: &dyn Fn(&str) -> Option<String>) -> bool {
    match get(setting) {
        Some(found) => found.eq_ignore_ascii_case(value),
        None => value == "sqlite",
    }
}

/// Whether two values are equal. Numbers and booleans may be spelled differently.
fn same(one: &str, other: &str) -> bool {
    one == other
        || finite(one).is_some_and(|number| Some(number) == finite(other))
        || boolean(one).is_ok_and(|value| Ok(value) == boolean(other))
}

/// The value for our setting, with a remark if it was limited; `None` if the value needs no setting of ours.
fn convert(
    conversion: Conversion,
    value: &str,
) -> Result<Option<(String, Option<String>)>, String> {
    let limited = |number: f64, max: u64| {
        // `max` is at most 3 600 000, which an f64 holds exactly.
        let limit = (number > max as f64).then(|| format!("the maximum is {max}"));
        (number.min(max as f64).to_string(), limit)
    };
    Ok(Some(match conversion {
        Conversion::Text | Conversion::Key => (value.to_owned(), None),
        Conversion::Number(max) => {
            let number = number(value)?;
            if number.fract() != 0.0 {
                return Err("it must be a whole number".to_owned());
            }
            limited(number, max)
        }
        Conversion::Seconds(max) => limited(number(value)?.ceil(), max),
        Conversion::Milliseconds(max) => limited((number(value)? * 1000.0).round().max(1.0), max),
        Conversion::NotZero => match finite(value) {
            Some(0.0) => ("false".to_owned(), None),
            Some(size) if size > 0.0 => ("true".to_owned(), None),
            _ => return Err("it must be a number from 0".to_owned()),
        },
        Conversion::Off => {
            if boolean(value)? {
                return Ok(None);
            }
            ("none".to_owned(), None)
        }
    }))
}

/// A number above 0, in any form that mcp-context-server accepts: `10`, `10.0`, `1_000`.
fn number(value: &str) -> Result<f64, String> {
    finite(value)
        .filter(|number| *number > 0.0)
        .ok_or_else(|| "it must be a number above 0".to_owned())
}

/// A finite number, perhaps with underscores between its digits.
fn finite(value: &str) -> Option<f64> {
    let number: f64 = value.replace('_', "").parse().ok()?;
    number.is_finite().then_some(number)
}

fn malformed(name: &str, value: &str, conversion: Conversion, why: &str) -> String {
    match conversion {
        Conversion::Key | Conversion::Text => format!("{name}: {why}"),
        Conversion::Number(_)
        | Conversion::Seconds(_)
        | Conversion::Milliseconds(_)
        | Conversion::NotZero
        | Conversion::Off => format!("{name} is `{value}`; {why}"),
    }
}

/// The table of `docs/migrating.md`.
#[must_use]
pub fn migration_table() -> String {
    let mut table = String::from("| setting | kind | what this service does |\n|---|---|---|\n");
    for (name, handling) in NAMES {
        let (kind, text) = match handling {
            Handling::Same(text) => ("same", text),
            Handling::Renamed(text, _) => ("renamed", text),
            Handling::Changed(text) => ("changed", text),
            Handling::NotNeeded(text) => ("not needed", text),
            Handling::Security(text) => ("security", text),
            Handling::Gateway(text) => ("gateway", text),
        };
        let text = if text.is_empty() { "–" } else { text };
        let _ = writeln!(table, "| `{name}` | {kind} | {text} |");
    }
    table
}
