//! The server and database to connect to, and how its certificate is verified.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use tokio_postgres::config::SslMode as DriverMode;

/// Maximum length of an application name, which is ASCII on the server (NAMEDATALEN - 1).
const MAX_APPLICATION_NAME: usize = 63;

/// The server and the database to connect to.
#[derive(Clone)]
pub struct Target {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) trust: Trust,
    pub(crate) root_certificate: Option<PathBuf>,
    /// Whether connections cache prepared statements. False behind a pooler that loses them.
    pub(crate) caches_statements: bool,
}

/// How strict a connection is about encryption and the server's identity: libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// Never encrypted.
    Disable,
    /// As `Prefer`: libpq would try without encryption first.
    Allow,
    /// Encrypted if the server supports it.
    Prefer,
    /// Encrypted. The server's certificate is not verified.
    Require,
    /// Encrypted, and a known authority signed the certificate.
    VerifyCa,
    /// Encrypted, and a known authority signed the certificate for this host.
    VerifyFull,
}

impl SslMode {
    const ALL: [Self; 6] = [
        Self::Disable,
        Self::Allow,
        Self::Prefer,
        Self::Require,
        Self::VerifyCa,
        Self::VerifyFull,
    ];

    /// The mode with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The name in `sslmode` and `POSTGRESQL_SSL_MODE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// The driver's mode, and how the certificate is verified.
    const fn for_driver(self) -> (DriverMode, Trust) {
        match self {
            Self::Disable => (DriverMode::Disable, Trust::Anyone),
            Self::Allow | Self::Prefer => (DriverMode::Prefer, Trust::Anyone),
            Self::Require => (DriverMode::Require, Trust::Anyone),
            Self::VerifyCa => (DriverMode::Require, Trust::KnownAuthority),
            Self::VerifyFull => (DriverMode::Require, Trust::ThisHost),
        }
    }
}

/// A number that is higher for a stricter mode. It is 0 for `disable`, `allow` and `prefer`, because each of them can
/// end in a connection without encryption.
const fn strictness(mode: DriverMode, trust: Trust) -> u8 {
    match (mode, trust) {
        (_, Trust::ThisHost) => 3,
        (_, Trust::KnownAuthority) => 2,
        (DriverMode::Require, Trust::Anyone) => 1,
        (_, Trust::Anyone) => 0,
    }
}

/// How the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// `disable`, `allow`, `prefer`, `require`: not verified. The connection is encrypted or not.
    Anyone,
    /// `verify-ca`: it must be signed by a known authority.
    KnownAuthority,
    /// `verify-full`: it must also be issued for this host.
    ThisHost,
}

/// Why a connection string or setting was rejected. No message contains a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The connection string cannot be read.
    #[error(
        "{0}; write it as postgresql://user:password@host:5432/database, with special characters percent-encoded"
    )]
    Malformed(String),
    /// `sslmode` has an unknown value. The message does not repeat it: if a password contains a `?`, the value may be a
    /// part of the password.
    #[error("sslmode must be disable, allow, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// `sslrootcert=system` with a mode that does not verify the host.
    #[error(
        "it has sslmode={} and sslrootcert=system, which requires sslmode=verify-full; remove one of them",
        .0.name()
    )]
    WeakForSystem(SslMode),
    /// The string's `sslmode` is less strict than the setting.
    #[error(
        "it has sslmode={}, which is less strict than POSTGRESQL_SSL_MODE={}; remove one of them",
        .string.name(),
        .setting.name()
    )]
    Weaker {
        /// The mode of the connection string.
        string: SslMode,
        /// The mode of the setting.
        setting: SslMode,
    },
}

/// The parts of a connection, from `POSTGRESQL_HOST` and the other settings.
#[derive(Debug, Clone)]
pub struct Parts<'p> {
    /// A host name, an address (IPv6 with or without brackets), the directory of a Unix socket, or several of these
    /// separated by commas.
    pub host: &'p str,
    /// The port.
    pub port: u16,
    /// The role.
    pub user: &'p str,
    /// The role's password. Empty means none.
    pub password: &'p str,
    /// The database.
    pub database: &'p str,
    /// Encryption and verification. The authorities are the system's.
    pub ssl_mode: SslMode,
}

impl Target {
    /// Parses a connection string: a URL (`postgresql://…`) or `key=value` pairs, as libpq accepts them.
    ///
    /// # Errors
    /// A sentence that does not repeat the string.
    pub fn parse(connection_string: &str) -> Result<Self, TargetError> {
        Self::parse_with(connection_string, None)
    }

    /// As [`Target::parse`], with the mode for a string that has no `sslmode` of its own.
    ///
    /// # Errors
    /// As [`Target::parse`], and if the string's own `sslmode` is less strict than this mode.
    pub fn parse_with(
        connection_string: &str,
        setting: Option<SslMode>,
    ) -> Result<Self, TargetError> {
        let text = connection_string.trim();
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let (rest, own_options) = if is_url {
            take_from_url(text)
        } else {
            take_from_pairs(text)
        };
        let mut config: tokio_postgres::Config =
            rest.parse().map_err(|error: tokio_postgres::Error| {
                TargetError::Malformed(described(&error, text))
            })?;
        if is_url && has_several_ats(&rest) {
            return Err(TargetError::Malformed(
                "the connection string has more than one `@` before its options".to_owned(),
            ));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(TargetError::Malformed(
                "the connection string names no host".to_owned(),
            ));
        }
        if config.get_user().is_none() {
            return Err(TargetError::Malformed(
                "the connection string names no user".to_owned(),
            ));
        }
        let (mut ssl_mode, mut caches_statements) = (None, true);
        let (mut root_certificate, mut with_system) = (None, false);
        for (key, value) in own_options {
            match key {
                OwnOption::SslMode => {
                    ssl_mode = Some(SslMode::named(&value).ok_or(TargetError::SslMode)?);
                }
                OwnOption::SslRootCert => {
                    with_system = value == "system";
                    root_certificate = (!with_system).then(|| PathBuf::from(value));
                }
                OwnOption::PgBouncer => caches_statements = value != "true",
                OwnOption::Ignored => {}
            }
        }
        if with_system {
            // libpq's rule: anyone can get a certificate of a public authority, so its name must be checked, too.
            match *ssl_mode.get_or_insert(SslMode::VerifyFull) {
                SslMode::VerifyFull => {}
                weak => return Err(TargetError::WeakForSystem(weak)),
            }
        }
        let (mode, mut trust) = ssl_mode.or(setting).unwrap_or(SslMode::Prefer).for_driver();
        config.ssl_mode(mode);
        if root_certificate.is_some() && trust == Trust::Anyone && mode == DriverMode::Require {
            // libpq's rule: naming a root certificate requests verification.
            trust = Trust::KnownAuthority;
        }
        if let (Some(string), Some(setting)) = (ssl_mode, setting) {
            let (required_mode, required_trust) = setting.for_driver();
            if strictness(mode, trust) < strictness(required_mode, required_trust) {
                return Err(TargetError::Weaker { string, setting });
            }
        }
        Ok(Self {
            config: with_application_name(config),
            trust,
            root_certificate,
            caches_statements,
        })
    }

    /// Builds the target from separate settings.
    #[must_use]
    pub fn from_parts(parts: &Parts<'_>) -> Self {
        let Parts {
            host,
            port,
            user,
            password,
            database,
            ssl_mode,
        } = parts;
        let mut config = tokio_postgres::Config::new();
        for host in host.split(',').map(str::trim) {
            config.host(
                host.strip_prefix('[')
                    .and_then(|host| host.strip_suffix(']'))
                    .unwrap_or(host),
            );
        }
        config.port(*port).user(*user).dbname(*database);
        if !password.is_empty() {
            config.password(password);
        }
        let (mode, trust) = ssl_mode.for_driver();
        config.ssl_mode(mode);
        Self {
            config: with_application_name(config),
            trust,
            root_certificate: None,
            caches_statements: true,
        }
    }

    /// Turns off prepared statements, for a pooler in transaction mode that loses them between server connections. Each
    /// statement is then parsed again for each use, in the same round trip.
    #[must_use]
    pub fn without_prepared_statements(mut self) -> Self {
        self.caches_statements = false;
        self
    }

    /// Hosts, ports and database, for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                tokio_postgres::config::Host::Tcp(name) if name.contains(':') => {
                    format!("[{name}]")
                }
                tokio_postgres::config::Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
            })
            .chain(
                self.config
                    .get_hostaddrs()
                    .iter()
                    .filter(|_| self.config.get_hosts().is_empty())
                    .map(|address| match address {
                        IpAddr::V4(address) => address.to_string(),
                        IpAddr::V6(address) => format!("[{address}]"),
                    }),
            )
            .collect();
        let hosts = match self.config.get_ports() {
            [] => format!("{}:5432", hosts.join(",")),
            [port] => format!("{}:{port}", hosts.join(",")),
            ports => {
                let each = hosts.iter().zip(ports);
                let each: Vec<String> = each.map(|(host, port)| format!("{host}:{port}")).collect();
                each.join(",")
            }
        };
        let database = self
            .config
            .get_dbname()
            .or(self.config.get_user())
            .unwrap_or_default();
        format!("{hosts}/{database}")
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("shown", &self.shown())
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

/// Sets the application name to one that the server keeps as it is. It would cut a longer one with a NOTICE and replace
/// other characters, and then the service would think that there is a pooler in between.
fn with_application_name(mut config: tokio_postgres::Config) -> tokio_postgres::Config {
    let name = config.get_application_name().unwrap_or("context-service");
    let name: String = name
        .chars()
        .take(MAX_APPLICATION_NAME)
        .map(|c| if matches!(c, ' '..='~') { c } else { '?' })
        .collect();
    config.application_name(name);
    config
}

/// Whether a URL has an `@` in its host or database. The driver ends the password at the first `@`, so if the password
/// contains one, its rest would be a part of the host or the database, which messages show.
fn has_several_ats(url: &str) -> bool {
    let after_password = url.split_once('@').map(|(_, after)| after);
    let host_and_database = after_password.and_then(|after| after.split('?').next());
    host_and_database.is_some_and(|text| text.contains('@'))
}

fn described(error: &tokio_postgres::Error, string: &str) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    // The cause may name an unknown option. If the password contains an `@` and later a `?`, that name is a part of the
    // password, and the string has an `@` after the `?`. In key=value pairs, the name itself may contain the `@`.
    let options = string.split_once('?').map_or("", |(_, options)| options);
    cause
        .filter(|cause| !cause.contains('@') && !options.contains('@'))
        .unwrap_or_else(|| "the connection string cannot be read".to_owned())
}

/// Options that the driver does not know and this program handles itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnOption {
    SslMode,
    SslRootCert,
    /// The option that other tools (Prisma, Supabase) use when a transaction pooler does not carry prepared statements.
    PgBouncer,
    /// An option for other programs, which has no effect on this one.
    Ignored,
}

fn own_option(key: &str) -> Option<OwnOption> {
    match key {
        "sslmode" => Some(OwnOption::SslMode),
        "sslrootcert" => Some(OwnOption::SslRootCert),
        "pgbouncer" => Some(OwnOption::PgBouncer),
        "supa" | "connection_limit" | "pool_timeout" | "gssencmode" | "sslsni"
        | "sslcompression" => Some(OwnOption::Ignored),
        _ => None,
    }
}

/// Takes this program's options from a URL. Returns the URL without them, and the options with their values.
fn take_from_url(url: &str) -> (Cow<'_, str>, Vec<(OwnOption, String)>) {
    let Some((before, parameters)) = url.split_once('?') else {
        return (Cow::Borrowed(url), Vec::new());
    };
    let (mut others, mut found) = (Vec::new(), Vec::new());
    for parameter in parameters.split('&') {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match own_option(key) {
            Some(key) => found.push((key, percent_decoded(value))),
            None => others.push(parameter),
        }
    }
    let rest = if others.is_empty() {
        before.to_owned()
    } else {
        format!("{before}?{}", others.join("&"))
    };
    (Cow::Owned(rest), found)
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// As [`take_from_url`], from libpq's pairs: `key = value` or `key='a value'`, with backslashes before quotes.
fn take_from_pairs(text: &str) -> (Cow<'_, str>, Vec<(OwnOption, String)>) {
    let (mut others, mut found) = (String::new(), Vec::new());
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            // Malformed: the driver reports the error.
            others.push_str(rest);
            break;
        };
        let after = after.trim_start();
        let Some((value, length)) = pair_value(after) else {
            // Otherwise the value would swallow the options after it, such as `sslmode`. The driver reports the error.
            others.push_str(rest);
            break;
        };
        match own_option(key.trim()) {
            Some(key) => found.push((key, value)),
            None => {
                others.push_str(key.trim());
                others.push('=');
                others.push_str(&after[..length]);
                others.push(' ');
            }
        }
        rest = after[length..].trim_start();
    }
    (Cow::Owned(others), found)
}

/// A value, and the number of bytes it takes, quotes included. `None` if its closing quote is missing.
fn pair_value(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Some((value, at + 1)),
            c if !quoted && c.is_whitespace() => return Some((value, at)),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::Host;

    fn parse(text: &str) -> Target {
        Target::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_strings_of_supabase_are_understood() {
        let direct = parse("postgresql://postgres:p%40ss@db.abc.supabase.co:5432/postgres");
        assert_eq!(direct.config.get_user(), Some("postgres"));
        assert_eq!(direct.config.get_password(), Some(&b"p@ss"[..]));
        let pooled = parse(
            "postgresql://postgres.abcdefghijklmno:pw@aws-0-us-east-1.pooler.supabase.com:5432/postgres?sslmode=require",
        );
        assert_eq!(pooled.config.get_user(), Some("postgres.abcdefghijklmno"));
        assert_eq!(pooled.config.get_ssl_mode(), DriverMode::Require);
        assert_eq!(pooled.trust, Trust::Anyone);
        let encoded = parse("postgres://postgres%2Eabc:pw@h/db?pgbouncer=true");
        assert_eq!(encoded.config.get_user(), Some("postgres.abc"));
        assert!(!encoded.caches_statements && pooled.caches_statements);
    }

    #[test]
    fn an_ipv6_address_may_stand_in_brackets() {
        let url = parse("postgresql://u:p@[2600:1f18::7]:6543/db");
        assert_eq!(url.config.get_hosts(), [Host::Tcp("2600:1f18::7".into())]);
        assert_eq!(url.config.get_ports(), [6543]);
        assert_eq!(url.shown(), "[2600:1f18::7]:6543/db");
        let numeric = parse("hostaddr=2600:1f18::7 user=u dbname=db");
        assert_eq!(numeric.shown(), "[2600:1f18::7]:5432/db");
        for host in ["2600:1f18::7", "[2600:1f18::7]"] {
            let parts = Parts {
                host,
                port: 5432,
                user: "u",
                password: "p",
                database: "db",
                ssl_mode: SslMode::Prefer,
            };
            assert_eq!(
                Target::from_parts(&parts).config.get_hosts(),
                [Host::Tcp("2600:1f18::7".into())]
            );
        }
    }

    #[test]
    fn modes_of_tls_are_those_of_libpq() {
        for (text, mode, trust) in [
            ("postgres://u@h/d", DriverMode::Prefer, Trust::Anyone),
            (
                "postgres://u@h/d?sslmode=disable",
                DriverMode::Disable,
                Trust::Anyone,
            ),
            (
                "postgres://u@h/d?sslmode=verify-full&connect_timeout=3",
                DriverMode::Require,
                Trust::ThisHost,
            ),
            (
                "host=h user=u sslmode=verify-ca sslrootcert='/a b/ca.pem' dbname=d",
                DriverMode::Require,
                Trust::KnownAuthority,
            ),
            (
                "postgres://u@h/d?sslmode=require&sslrootcert=%2Fca.pem",
                DriverMode::Require,
                Trust::KnownAuthority,
            ),
            (
                "postgres://u@h/d?sslrootcert=system",
                DriverMode::Require,
                Trust::ThisHost,
            ),
            (
                "host=h user=u sslrootcert=system sslmode=verify-full",
                DriverMode::Require,
                Trust::ThisHost,
            ),
        ] {
            let target = parse(text);
            assert_eq!(
                (target.config.get_ssl_mode(), target.trust),
                (mode, trust),
                "{text}"
            );
        }
        for weak in ["disable", "prefer", "require", "verify-ca"] {
            let refused = Target::parse(&format!(
                "postgres://u@h/d?sslmode={weak}&sslrootcert=system"
            ));
            let mode = SslMode::named(weak).unwrap();
            assert_eq!(refused.unwrap_err(), TargetError::WeakForSystem(mode));
        }
        assert_eq!(
            parse("host=h user=u sslrootcert='/a b/c\\'a.pem'").root_certificate,
            Some(PathBuf::from("/a b/c'a.pem"))
        );
        assert_eq!(
            Target::parse("postgres://u@h/d?sslmode=on").unwrap_err(),
            TargetError::SslMode
        );
    }

    #[test]
    fn the_setting_applies_to_the_parts_and_to_a_string_without_a_mode() {
        for (setting, mode, trust) in [
            (SslMode::Disable, DriverMode::Disable, Trust::Anyone),
            (SslMode::Allow, DriverMode::Prefer, Trust::Anyone),
            (SslMode::Prefer, DriverMode::Prefer, Trust::Anyone),
            (SslMode::Require, DriverMode::Require, Trust::Anyone),
            (
                SslMode::VerifyCa,
                DriverMode::Require,
                Trust::KnownAuthority,
            ),
            (SslMode::VerifyFull, DriverMode::Require, Trust::ThisHost),
        ] {
            let parts = Parts {
                host: "h",
                port: 5432,
                user: "u",
                password: "p",
                database: "d",
                ssl_mode: setting,
            };
            let parts = Target::from_parts(&parts);
            let url = Target::parse_with("postgres://u@h/d?connect_timeout=3", Some(setting));
            let pairs = Target::parse_with("host=h user=u", Some(setting));
            for target in [parts, url.unwrap(), pairs.unwrap()] {
                assert_eq!(
                    (target.config.get_ssl_mode(), target.trust),
                    (mode, trust),
                    "{setting:?}"
                );
            }
            assert_eq!(SslMode::named(setting.name()), Some(setting));
        }
        let verified = Target::parse_with("host=h user=u sslrootcert=/ca", Some(SslMode::Require));
        assert_eq!(verified.unwrap().trust, Trust::KnownAuthority);
        let verified =
            Target::parse_with("host=h user=u sslrootcert=system", Some(SslMode::Prefer));
        assert_eq!(verified.unwrap().trust, Trust::ThisHost);
    }

    #[test]
    fn a_string_s_own_mode_wins_unless_it_promises_less_than_the_setting() {
        let with = |string: &str, setting| {
            Target::parse_with(&format!("postgres://u@h/d?{string}"), Some(setting))
        };
        for (string, setting, trust) in [
            ("sslmode=verify-full", SslMode::Prefer, Trust::ThisHost),
            ("sslmode=verify-full", SslMode::VerifyFull, Trust::ThisHost),
            ("sslmode=disable", SslMode::Prefer, Trust::Anyone),
            ("sslmode=require", SslMode::Disable, Trust::Anyone),
            (
                "sslmode=require&sslrootcert=/ca",
                SslMode::VerifyCa,
                Trust::KnownAuthority,
            ),
        ] {
            let target = with(string, setting).unwrap_or_else(|error| panic!("{string}: {error}"));
            assert_eq!(target.trust, trust, "{string} {setting:?}");
        }
        for (string, setting) in [
            ("sslmode=prefer", SslMode::Require),
            ("sslmode=disable", SslMode::VerifyFull),
            ("sslmode=require", SslMode::VerifyCa),
            ("sslmode=verify-ca", SslMode::VerifyFull),
        ] {
            let refused = with(string, setting).expect_err(string).to_string();
            let named = format!("POSTGRESQL_SSL_MODE={}", setting.name());
            assert!(
                refused.contains(string) && refused.contains(&named),
                "{refused}"
            );
        }
    }

    #[test]
    fn several_hosts_and_the_wish_for_a_primary_pass_through() {
        let target = parse("postgresql://u@a:1,b:2/d?target_session_attrs=read-write");
        assert_eq!(target.config.get_hosts().len(), 2);
        assert_eq!(target.shown(), "a:1,b:2/d");
        assert_eq!(parse("host=a,b port=1 user=u").shown(), "a,b:1/u");
        assert_eq!(
            target.config.get_target_session_attrs(),
            tokio_postgres::config::TargetSessionAttrs::ReadWrite
        );
    }

    #[test]
    fn a_bad_string_is_refused_without_repeating_it() {
        for text in [
            "",
            "hunter2",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@[::1/d",
            "user=u password=hunter2",
            "postgres:///d?user=u",
            "postgres://u:p?sslmode=hunter2@h/d",
            "postgres://u:p@hunter2@h/d",
            "postgres://u:p@a/hunter2@h/d",
            "postgres://u:p@a?hunter2=b@h/d",
            "host=h user=u sslrootcert='hunter2 sslmode=verify-full",
            "host=h user=u sslmode='require",
            "host=h user=u password='hunter2",
        ] {
            let refused = Target::parse(text)
                .map(|t| t.shown())
                .expect_err(text)
                .to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        assert!(!format!("{:?}", parse("postgres://u:hunter2@h/d")).contains("hunter2"));
        let encoded = parse("postgres://u:p%40a@h/d%40e?application_name=a@b");
        assert_eq!(encoded.shown(), "h:5432/d@e");
    }

    #[test]
    fn an_application_name_is_one_that_the_server_keeps() {
        let long = format!("&application_name={}", "x".repeat(64));
        let cut = "x".repeat(63);
        for (given, sent) in [
            ("", "context-service"),
            ("&application_name=a%20b~", "a b~"),
            ("&application_name=caf%C3%A9", "caf?"),
            (long.as_str(), cut.as_str()),
        ] {
            let target = parse(&format!("postgres://u@h/d?sslmode=disable{given}"));
            assert_eq!(target.config.get_application_name(), Some(sent), "{given}");
        }
    }
}
