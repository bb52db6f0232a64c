//! Compares the settings of two processes. The value of a key or password takes part as a keyed hash only.

use std::fmt;

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::settings::{Setting, Settings};

/// Settings that do not change what a client on the Unix socket gets. The first seven concern TCP, or say where the
/// service is found. The gateway has settings of the last two names for its own log.
const OF_THE_PROCESS: [&str; 9] = [
    "CONTEXT_LISTEN",
    "CONTEXT_GRPC_LISTEN",
    "CONTEXT_SOCKET",
    "CONTEXT_INSECURE",
    "CONTEXT_ALLOWED_HOSTS",
    "CONTEXT_CORS_ORIGINS",
    "CONTEXT_MAX_CONNECTIONS_PER_ADDRESS",
    "LOG_LEVEL",
    "LOG_FORMAT",
];

/// Settings with this prefix have an effect only while another setting has this value.
const ONLY_WITH: [(&str, [&str; 2]); 4] = [
    ("DB_PATH", ["STORAGE_BACKEND", "sqlite"]),
    ("SQLITE_", ["STORAGE_BACKEND", "sqlite"]),
    ("POSTGRESQL_", ["STORAGE_BACKEND", "postgresql"]),
    ("OIDC_", ["AUTH", "oidc"]),
];

/// A setting of one process as another process gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    /// The name of its environment variable.
    pub name: String,
    /// The value as it may be printed.
    pub value: Option<String>,
    /// HMAC-SHA-256 of a value that must not be printed, in hexadecimal.
    pub hmac: Option<String>,
}

/// A setting that has another value in the running service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The name of its environment variable.
    pub name: String,
    /// The value of this process, as it may be printed.
    pub here: Option<String>,
    /// The value of the service, as it may be printed.
    pub there: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, here, there } = self;
        match (there.as_deref(), here.as_deref()) {
            (there, here) if there == here => write!(f, "{name} differs (the value is not shown)"),
            (Some(there), Some(here)) => {
                let (there, here) = (cut(there), cut(here));
                write!(f, "{name} is `{there}` in the service and `{here}` here")
            }
            (Some(there), None) => {
                let there = cut(there);
                write!(f, "{name} is `{there}` in the service and not set here")
            }
            (None, here) => {
                let here = cut(here.unwrap_or_default());
                write!(f, "{name} is not set in the service and `{here}` here")
            }
        }
    }
}

/// At most 80 characters of a value.
fn cut(value: &str) -> String {
    const MAX_CHARS: usize = 80;
    match value.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

impl Settings {
    /// The settings for a process that compares them with its own under the same key.
    #[must_use]
    pub fn stated(&self, key: &hmac::Key) -> Vec<Stated> {
        self.iter().map(|setting| setting.stated(key)).collect()
    }
}

impl Setting {
    fn stated(&self, key: &hmac::Key) -> Stated {
        let hmac = self.secret().map(|secret| {
            let mut context = hmac::Context::with_key(key);
            // The name is hashed too, so that equal keys of two providers do not look equal.
            context.update(self.name.as_bytes());
            context.update(&[0]);
            context.update(secret.reveal().as_bytes());
            let tag = context.sign();
            tag.as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        });
        Stated {
            name: self.name.clone(),
            value: self.shown().map(str::to_owned),
            hmac,
        }
    }
}

/// The settings that have an effect on clients and differ between this process (`here`) and the service (`there`). With
/// `explicit_only`, settings that are not set here are left out.
#[must_use]
pub fn compare(
    here: &Settings,
    there: &[Stated],
    key: &hmac::Key,
    explicit_only: bool,
) -> Vec<Difference> {
    let of_service = |name: &str| there.iter().find(|stated| stated.name == name);
    let is = |name: &str, value: &str| {
        let here = here.get(name).and_then(Setting::shown);
        let there = of_service(name).and_then(|stated| stated.value.as_deref());
        here == Some(value) || there == Some(value)
    };
    let matters = |setting: &&Setting| {
        let name = setting.name.as_str();
        let mut conditions = ONLY_WITH
            .iter()
            .filter(|(prefix, _)| name.starts_with(prefix));
        !OF_THE_PROCESS.contains(&name)
            && conditions.all(|(_, [setting, value])| is(setting, value))
            && (setting.source.is_explicit() || !explicit_only)
    };
    let difference = |setting: &Setting| {
        // A service of another version may not know the setting.
        let there = of_service(&setting.name)?;
        let here = setting.stated(key);
        (here != *there).then(|| Difference {
            name: here.name,
            here: here.value,
            there: there.value.clone(),
        })
    };
    here.iter().filter(matters).filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::config::read_translated;

    fn settings(environment: &[(&str, &str)], flags: &[&str]) -> Settings {
        let arguments = ["context-service"].iter().chain(flags).map(Into::into);
        let read = read_translated::<Cli>(arguments, &|name| {
            let found = environment.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        read.unwrap_or_else(|error| panic!("{}", error.text)).1
    }

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
    }

    fn sentences(here: &Settings, there: &Settings, explicit_only: bool) -> Vec<String> {
        let found = compare(here, &there.stated(&key()), &key(), explicit_only);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_spellings_of_a_value_do_not_differ() {
        let one = settings(
            &[
                ("ENABLE_FTS", "YES"),
                ("EMBEDDING_PROVIDER", "NONE"),
                ("DB_PATH", "/tmp/./a.db"),
                ("MAX_IMAGE_SIZE_MB", "010"),
                ("METADATA_INDEXED_FIELDS", "a:integer, b"),
            ],
            &[],
        );
        let other = settings(
            &[],
            &[
                "--enable-fts=true",
                "--embedding-provider=none",
                "--db-path=/tmp/a.db",
                "--metadata-indexed-fields=a,b",
            ],
        );
        assert_eq!(sentences(&one, &other, false), Vec::<String>::new());
    }

    #[test]
    fn all_settings_of_either_side_count_or_only_those_that_are_set_here() {
        let here = settings(&[("ENABLE_FTS", "false")], &[]);
        let there = settings(&[("SUMMARY_MODEL", "m"), ("LOG_LEVEL", "info")], &[]);
        assert_eq!(
            sentences(&here, &there, false),
            [
                "ENABLE_FTS is `auto` in the service and `false` here",
                "SUMMARY_MODEL is `m` in the service and not set here",
            ]
        );
        assert_eq!(
            sentences(&here, &there, true),
            ["ENABLE_FTS is `auto` in the service and `false` here"]
        );
        assert_eq!(
            sentences(&there, &here, true),
            ["SUMMARY_MODEL is not set in the service and `m` here"]
        );
    }

    #[test]
    fn a_secret_differs_without_being_stated() {
        let here = settings(
            &[
                ("EMBEDDING_API_KEY", "canary-1"),
                ("OLLAMA_HOST", "http://u:canary-2@h:1"),
            ],
            &[],
        );
        let there = settings(
            &[
                ("EMBEDDING_API_KEY", "canary-3"),
                ("OLLAMA_HOST", "http://u:canary-4@h:1"),
            ],
            &[],
        );
        let found = sentences(&here, &there, false);
        assert_eq!(
            found,
            [
                "OLLAMA_HOST differs (the value is not shown)",
                "EMBEDDING_API_KEY differs (the value is not shown)",
            ]
        );
        let stated = format!("{:?}{:?}", here.stated(&key()), there);
        assert!(!stated.contains("canary"), "{stated}");
        let other_key = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
        assert_ne!(here.stated(&key()), here.stated(&other_key));
        assert!(sentences(&here, &here.clone(), false).is_empty());
    }

    #[test]
    fn settings_without_effect_do_not_differ() {
        let plain = settings(&[], &[]);
        let of_postgres = [("POSTGRESQL_POOL_SIZE", "3"), ("OIDC_SCOPE_CLAIM", "x")];
        let other = settings(&of_postgres, &["--listen=127.0.0.1:1"]);
        assert_eq!(sentences(&other, &plain, false), Vec::<String>::new());
        let on_postgres = settings(&of_postgres, &["--storage-backend=postgresql"]);
        let found = sentences(&on_postgres, &plain, false).join("\n");
        assert!(
            found.contains("POSTGRESQL_POOL_SIZE") && !found.contains("OIDC"),
            "{found}"
        );
    }
}
