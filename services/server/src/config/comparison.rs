//! Compares the settings of two processes. The value of a key or password takes part as a keyed hash only.

use std::fmt;

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::settings::{Setting, Settings};

/// Settings that have no effect on clients of the Unix socket. The first seven concern TCP or the address of the
/// service. The gateway has settings of the last two names for its own log.
const WITHOUT_EFFECT_ON_CLIENTS: [&str; 9] = [
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

/// Pairs of a prefix and `[setting, value]`: settings whose names begin with the prefix have an effect only while the
/// other setting has this value.
const CONDITIONAL: [(&str, [&str; 2]); 4] = [
    ("DB_PATH", ["STORAGE_BACKEND", "sqlite"]),
    ("SQLITE_", ["STORAGE_BACKEND", "sqlite"]),
    ("POSTGRESQL_", ["STORAGE_BACKEND", "postgresql"]),
    ("OIDC_", ["AUTH", "oidc"]),
];

/// A setting as one process reports it to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedSetting {
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
    #[serde(rename = "here")]
    pub own: Option<String>,
    /// The value of the service, as it may be printed.
    #[serde(rename = "there")]
    pub of_service: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            own,
            of_service,
        } = self;
        match (of_service.as_deref(), own.as_deref()) {
            (of_service, own) if of_service == own => {
                write!(f, "{name} differs (the value is not shown)")
            }
            (Some(of_service), Some(own)) => {
                let (of_service, own) = (cut(of_service), cut(own));
                write!(
                    f,
                    "{name} is `{of_service}` in the service and `{own}` here"
                )
            }
            (Some(of_service), None) => {
                let of_service = cut(of_service);
                write!(
                    f,
                    "{name} is `{of_service}` in the service and not set here"
                )
            }
            (None, own) => {
                let own = cut(own.unwrap_or_default());
                write!(f, "{name} is not set in the service and `{own}` here")
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
    /// The settings for another process, which compares them with its own. Secrets are hashed with this key.
    #[must_use]
    pub fn reported(&self, key: &hmac::Key) -> Vec<ReportedSetting> {
        self.iter().map(|setting| setting.reported(key)).collect()
    }
}

impl Setting {
    fn reported(&self, key: &hmac::Key) -> ReportedSetting {
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
        ReportedSetting {
            name: self.name.clone(),
            value: self.shown().map(str::to_owned),
            hmac,
        }
    }
}

/// The settings that have an effect on clients and differ between this process (`own`) and the service. With
/// `explicit_only`, settings that are not set for this process are left out.
#[must_use]
pub fn compare(
    own: &Settings,
    of_service: &[ReportedSetting],
    key: &hmac::Key,
    explicit_only: bool,
) -> Vec<Difference> {
    let in_service = |name: &str| of_service.iter().find(|setting| setting.name == name);
    let is = |name: &str, value: &str| {
        let own = own.get(name).and_then(Setting::shown);
        let other = in_service(name).and_then(|setting| setting.value.as_deref());
        own == Some(value) || other == Some(value)
    };
    let matters = |setting: &&Setting| {
        let name = setting.name.as_str();
        let mut conditions = CONDITIONAL
            .iter()
            .filter(|(prefix, _)| name.starts_with(prefix));
        !WITHOUT_EFFECT_ON_CLIENTS.contains(&name)
            && conditions.all(|(_, [setting, value])| is(setting, value))
            && (setting.source.is_explicit() || !explicit_only)
    };
    let difference = |setting: &Setting| {
        // A service of another version may not know the setting.
        let other = in_service(&setting.name)?;
        let own = setting.reported(key);
        (own != *other).then(|| Difference {
            name: own.name,
            own: own.value,
            of_service: other.value.clone(),
        })
    };
    own.iter().filter(matters).filter_map(difference).collect()
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

    fn sentences(own: &Settings, of_service: &Settings, explicit_only: bool) -> Vec<String> {
        let found = compare(own, &of_service.reported(&key()), &key(), explicit_only);
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
        let own = settings(&[("ENABLE_FTS", "false")], &[]);
        let of_service = settings(&[("SUMMARY_MODEL", "m"), ("LOG_LEVEL", "info")], &[]);
        assert_eq!(
            sentences(&own, &of_service, false),
            [
                "ENABLE_FTS is `auto` in the service and `false` here",
                "SUMMARY_MODEL is `m` in the service and not set here",
            ]
        );
        assert_eq!(
            sentences(&own, &of_service, true),
            ["ENABLE_FTS is `auto` in the service and `false` here"]
        );
        assert_eq!(
            sentences(&of_service, &own, true),
            ["SUMMARY_MODEL is not set in the service and `m` here"]
        );
    }

    #[test]
    fn a_secret_differs_without_being_stated() {
        let own = settings(
            &[
                ("EMBEDDING_API_KEY", "canary-1"),
                ("OLLAMA_HOST", "http://u:canary-2@h:1"),
            ],
            &[],
        );
        let of_service = settings(
            &[
                ("EMBEDDING_API_KEY", "canary-3"),
                ("OLLAMA_HOST", "http://u:canary-4@h:1"),
            ],
            &[],
        );
        let found = sentences(&own, &of_service, false);
        assert_eq!(
            found,
            [
                "OLLAMA_HOST differs (the value is not shown)",
                "EMBEDDING_API_KEY differs (the value is not shown)",
            ]
        );
        let shown = format!("{:?}{:?}", own.reported(&key()), of_service);
        assert!(!shown.contains("canary"), "{shown}");
        let other_key = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
        assert_ne!(own.reported(&key()), own.reported(&other_key));
        assert!(sentences(&own, &own.clone(), false).is_empty());
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
