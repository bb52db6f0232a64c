//! The Unix socket of the service of a database on this machine.
//!
//! The service and the gateway compute the path by the same rule, so that a gateway finds the
//! service of its database, no matter what started that service.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The default database file: `~/.mcp/context_storage.db`.
#[must_use]
pub fn default_db_path() -> PathBuf {
    home().join(".mcp").join("context_storage.db")
}

/// The path with a leading `~` replaced by the home directory.
#[must_use]
pub fn expand_home(path: &str) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home(),
        Some(rest) if rest.starts_with('/') => home().join(&rest[1..]),
        _ => PathBuf::from(path),
    }
}

/// The directory for sockets, locks and logs: `$XDG_RUNTIME_DIR/context-service`, else
/// `/tmp/context-service-<uid>` (in `std::env::temp_dir`). [`make_runtime_dir`] creates it.
#[must_use]
pub fn runtime_dir(uid: u32) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir).join("context-service"),
        None => std::env::temp_dir().join(format!("context-service-{uid}")),
    }
}

/// Creates the directory of [`runtime_dir`] with access only for this user, or restricts an
/// existing one to this user. `None` if it belongs to another user or is a symbolic link: its name is
/// predictable, and anyone can create it below `/tmp`.
///
/// # Errors
/// The system's error.
pub fn make_runtime_dir(uid: u32) -> io::Result<Option<PathBuf>> {
    let directory = runtime_dir(uid);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    let found = std::fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != uid {
        return Ok(None);
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(Some(directory))
}

/// The socket of the service of this database file. Its name is a hash of the file's absolute path,
/// short enough for `sockaddr_un` (108 bytes).
#[must_use]
pub fn socket_path(db_path: &Path, uid: u32) -> PathBuf {
    runtime_dir(uid).join(format!(
        "{:016x}.sock",
        fnv1a(absolute(db_path).as_os_str().as_encoded_bytes())
    ))
}

/// The address of a PostgreSQL database, from the settings of the same names. The socket's name is
/// derived from it.
#[derive(Debug, Clone, Copy)]
pub struct PostgresAddress<'p> {
    /// `POSTGRESQL_CONNECTION_STRING`; overrides the others.
    pub connection_string: Option<&'p str>,
    /// `POSTGRESQL_HOST`.
    pub host: &'p str,
    /// `POSTGRESQL_PORT`.
    pub port: &'p str,
    /// `POSTGRESQL_USER`.
    pub user: &'p str,
    /// `POSTGRESQL_DATABASE`.
    pub database: &'p str,
}

/// The socket of a service of this PostgreSQL database. Two services of one database on one machine
/// need different `CONTEXT_SOCKET` settings.
#[must_use]
pub fn postgres_socket_path(address: PostgresAddress<'_>, uid: u32) -> PathBuf {
    let PostgresAddress {
        connection_string,
        host,
        port,
        user,
        database,
    } = address;
    let name = match connection_string {
        Some(string) => without_password(string),
        None => format!("{user}@{host}:{port}/{database}"),
    };
    runtime_dir(uid).join(format!(
        "{:016x}.sock",
        fnv1a(format!("postgresql {name}").as_bytes())
    ))
}

/// The connection string without its password, which must not even enter the hash of a file name.
fn without_password(connection_string: &str) -> String {
    let text = connection_string.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        return pairs_without_password(text);
    };
    // The driver ends user and password at the first `@`, so a password may contain `/` and `?`.
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    let user = user.split_once(':').map_or(user, |(user, _)| user);
    let Some((place, parameters)) = place.split_once('?') else {
        return format!("{scheme}://{user}@{place}");
    };
    let parameters: Vec<&str> = parameters
        .split('&')
        .filter(|pair| !pair.starts_with("password="))
        .collect();
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}@{place}{mark}{}", parameters.join("&"))
}

/// The key=value pairs without the password. Spaces around `=` are dropped.
fn pairs_without_password(mut text: &str) -> String {
    let mut pairs = Vec::new();
    while let Some((key, rest)) = text.split_once('=') {
        let (value, rest) = split_value(rest.trim_start());
        let key = key.trim();
        if key != "password" {
            pairs.push(format!("{key}={value}"));
        }
        text = rest;
    }
    pairs.join(" ")
}

/// Splits off the value at the start of the text. It ends at a space, or if it is quoted at its closing quote. A
/// backslash escapes the next character.
fn split_value(text: &str) -> (&str, &str) {
    let quoted = text.starts_with('\'');
    let mut escaped = false;
    let mut chars = text.char_indices().skip(usize::from(quoted));
    let end = chars.find_map(|(at, c)| {
        if std::mem::take(&mut escaped) {
            return None;
        }
        escaped = c == '\\';
        match c {
            '\'' if quoted => Some(at + 1),
            _ if !quoted && c.is_whitespace() => Some(at),
            _ => None,
        }
    });
    text.split_at(end.unwrap_or(text.len()))
}

/// The absolute path, with symbolic links resolved as far as the path exists, so that two spellings
/// of one file agree.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent != path => absolute(parent).join(name),
        _ => path,
    }
}

/// HOME, or without it the directory that the system has for this user.
fn home() -> PathBuf {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .unwrap_or_else(std::env::temp_dir)
}

/// FNV-1a with 64 bits. Only a file name depends on it, and it must be the same in every build.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_a_file_give_one_socket() {
        let here = std::env::current_dir().unwrap();
        let plain = socket_path(&here.join("new.db"), 7);
        assert_eq!(socket_path(Path::new("new.db"), 7), plain);
        assert_eq!(socket_path(&here.join(".").join("new.db"), 7), plain);
        assert_ne!(socket_path(&here.join("other.db"), 7), plain);
    }

    #[test]
    fn a_socket_of_postgresql_depends_on_the_database_and_not_on_the_password() {
        let of = |connection_string| {
            let address = PostgresAddress {
                connection_string,
                host: "h",
                port: "5432",
                user: "u",
                database: "d",
            };
            postgres_socket_path(address, 7)
        };
        assert_eq!(
            of(Some("postgres://u:one@h:5432/d")),
            of(Some("postgres://u:t%40wo@h:5432/d"))
        );
        assert_ne!(
            of(Some("postgres://u:one@h:5432/d")),
            of(Some("postgres://u:one@h:5432/e"))
        );
        assert_eq!(
            of(Some("host=h password=one dbname=d")),
            of(Some("host=h password=two dbname=d"))
        );
        for (one, two) in [
            ("postgres://u:o/ne@h:5432/d", "postgres://u:two@h:5432/d"),
            ("postgres://u:o?ne@h:5432/d", "postgres://u:two@h:5432/d"),
            ("host=h password = one dbname=d", "host=h dbname=d"),
            (
                "host=h password='o ne' dbname=d",
                r"host=h password='t\' wo' dbname=d",
            ),
            (r"password=o\ ne host=h", "host = h"),
            (
                "postgres://u@h:5432/d?password=one",
                "postgres://u@h:5432/d",
            ),
            (
                "postgres://u@h:5432/d?sslmode=require&password=one",
                "postgres://u@h:5432/d?sslmode=require",
            ),
            (
                "postgres://u@h:5432?password=one&dbname=d",
                "postgres://u@h:5432?password=two&dbname=d",
            ),
        ] {
            assert_eq!(of(Some(one)), of(Some(two)), "{one}");
        }
        assert_ne!(
            of(Some("postgres://u@h:5432/d?sslmode=require")),
            of(Some("postgres://u@h:5432/d"))
        );
        assert_ne!(of(Some("host=h dbname=d")), of(Some("host=h dbname=e")));
        assert_ne!(of(None), of(Some("postgres://u@h:5432/d")));
    }
}
