//! Opening a database file: checks that it is ours, checks its schema, and locks it for this process.

use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use context_model::MetadataPath;
use context_store::StoreError;
use context_store::transfer::{INCOMPLETE_MIGRATION, MARK};
use diesel::connection::SimpleConnection as _;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};

use crate::config::{Config, Started};
use crate::connection::{self, APPLICATION_ID, ConnectError, WriterSettings, pragma_int};
use crate::failure::{Kind, is_io_error, kind};
use crate::filter;
use crate::lock::{Holder, Lock, LockError};
use crate::schema::meta;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations/sqlite");

/// The `user_version` after the newest migration.
pub(crate) const SCHEMA_VERSION: i64 = 13;

/// Why a database was not opened. Each message is a sentence for the operator who started the service, and names the
/// file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the file.
    #[error("the database {} is held by {holder}; stop it, or reach it through its socket", path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// The process that holds it.
        holder: Holder,
    },
    /// A newer version of the service wrote the file.
    #[error(
        "the database {} has schema version {found}; this program supports versions up to {known}: use the newer program that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// The file is a database of another program. It was not modified.
    #[error(
        "the database {} was not made by this service and was left untouched; name another file, or, if an mcp-context-server \
         made it, import it with `context-service migrate-data --from sqlite://{} --to sqlite://<new file>`",
        path.display(),
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The database holds an incomplete migration.
    #[error("the database {} {INCOMPLETE_MIGRATION}", path.display())]
    IncompleteMigration {
        /// The file.
        path: PathBuf,
    },
    /// The schema is older than this program's, and the file is only read, so it is not migrated.
    #[error(
        "the database {} has an older schema; start `context-service` on it once, which brings it up to date, and stop it again",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged or not a database.
    #[error("the database {} is damaged or not an SQLite database; restore it from a backup", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        #[source]
        source: context_store::BoxError,
    },
    /// The disk is full.
    #[error("the disk that holds the database {} is full; free some space and start again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The error of SQLite or of the system.
        #[source]
        source: context_store::BoxError,
    },
    /// The file or its directory cannot be created or written.
    #[error("the database {} cannot be written ({source}); check the permissions of the file and its directory", path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// The error of SQLite or of the system.
        #[source]
        source: context_store::BoxError,
    },
    /// A metadata field to be indexed is not a path.
    #[error(
        "METADATA_INDEXED_FIELDS names `{field}`; a field is a path of 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots"
    )]
    IndexedField {
        /// The field as given.
        field: String,
    },
    /// Any other error.
    #[error("the database {} cannot be opened: {source}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: context_store::BoxError,
    },
}

impl OpenError {
    fn from_io(path: &Path, error: std::io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full {
                path,
                source: error.into(),
            },
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory => Self::NotWritable {
                path,
                source: error.into(),
            },
            _ => Self::Other {
                path,
                source: error.into(),
            },
        }
    }

    fn from_lock(path: &Path, error: LockError) -> Self {
        match error {
            LockError::Held(holder) => Self::Held {
                path: path.to_owned(),
                holder,
            },
            LockError::Io(error) => Self::from_io(path, error),
        }
    }

    fn from_driver(path: &Path, error: impl Into<context_store::BoxError>) -> Self {
        let (path, source) = (path.to_owned(), error.into());
        match kind(&source.to_string()) {
            Kind::Full => Self::Full { path, source },
            Kind::Corrupt => Self::Corrupt { path, source },
            Kind::ReadOnly => Self::NotWritable { path, source },
            // SQLite does not say that there is no room for its shared memory file.
            Kind::Unavailable if is_io_error(&source.to_string()) && has_no_room(&path) => {
                Self::Full { path, source }
            }
            Kind::Unavailable | Kind::Interrupted | Kind::Internal => Self::Other { path, source },
        }
    }

    pub(crate) fn from_store(path: &Path, error: StoreError) -> Self {
        let path = path.to_owned();
        match error {
            StoreError::Full(source) => Self::Full { path, source },
            StoreError::Corrupt(source) => Self::Corrupt { path, source },
            StoreError::ReadOnly(source) => Self::NotWritable { path, source },
            other => Self::Other {
                path,
                source: other.into(),
            },
        }
    }
}

/// Whether the disk that holds this file has no room for SQLite's shared memory file, which takes 32 KiB at first.
fn has_no_room(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(path);
    rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < 64 * 1024)
}

/// A database file of this service, locked and migrated.
#[derive(Debug)]
pub(crate) struct Opened {
    pub lock: Lock,
    pub settings: WriterSettings,
    pub indexed: Vec<MetadataPath>,
}

/// Locks the file, checks that it is ours, and migrates its schema over the returned connection.
pub(crate) fn open(config: &Config) -> Result<(Opened, SqliteConnection), OpenError> {
    let path = context_model::local::absolute(&config.path);
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|e| OpenError::from_io(&path, e))?;
    }
    let mut lock =
        Lock::acquire(&path, config.started).map_err(|error| OpenError::from_lock(&path, error))?;
    let identity = identify(&path)?;
    lock.acquire_inode(&path, config.started)
        .map_err(|error| OpenError::from_lock(&path, error))?;
    let connect = |e: ConnectError| OpenError::from_driver(&path, e);
    let settings = WriterSettings {
        path: path.clone(),
        busy_timeout: config.busy_timeout,
        max_file_bytes: config.max_file_bytes,
    };
    let mut conn = connection::writer(&settings).map_err(connect)?;
    migrate(&mut conn, &path, identity)?;
    let mut indexed = Vec::with_capacity(config.indexed_fields.len());
    for field in &config.indexed_fields {
        indexed.push(
            MetadataPath::parse(field).ok_or_else(|| OpenError::IndexedField {
                field: field.clone(),
            })?,
        );
    }
    keep_indexes(&mut conn, &indexed).map_err(|e| OpenError::from_driver(&path, e))?;
    Ok((
        Opened {
            lock,
            settings,
            indexed,
        },
        conn,
    ))
}

/// The kind of a file that is opened for reading.
#[derive(Debug)]
pub(crate) enum Readable {
    /// A file of this service. Nothing else opens it while the lock is held.
    Ours(Lock),
    /// A file of another program.
    Foreign,
}

/// Opens an existing file for reading only.
pub(crate) fn open_to_read(path: &Path) -> Result<(Readable, SqliteConnection), OpenError> {
    let path = context_model::local::absolute(path);
    std::fs::File::open(&path).map_err(|error| OpenError::Other {
        path: path.clone(),
        source: error.into(),
    })?;
    let driver = |e: diesel::result::Error| OpenError::from_driver(&path, e);
    let mut conn = open_read_only(&path).map_err(|e| OpenError::from_driver(&path, e))?;
    if pragma_int(&mut conn, "PRAGMA application_id").map_err(driver)? != i64::from(APPLICATION_ID)
    {
        return Ok((Readable::Foreign, conn));
    }
    let lock = Lock::acquire(&path, Started::ByHand)
        .map_err(|error| OpenError::from_lock(&path, error))?;
    require_this_schema(&mut conn, &path)?;
    refuse_incomplete_migration(&mut conn, &path)?;
    Ok((Readable::Ours(lock), conn))
}

/// Opens a file of this service for reading only, while a service may be running on it.
pub(crate) fn open_to_examine(path: &Path) -> Result<SqliteConnection, OpenError> {
    std::fs::File::open(path).map_err(|error| OpenError::Other {
        path: path.to_owned(),
        source: error.into(),
    })?;
    let mut conn = open_read_only(path).map_err(|e| OpenError::from_driver(path, e))?;
    let application = pragma_int(&mut conn, "PRAGMA application_id")
        .map_err(|e| OpenError::from_driver(path, e))?;
    if application != i64::from(APPLICATION_ID) {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
        });
    }
    require_this_schema(&mut conn, path)?;
    Ok(conn)
}

/// Rejects a schema of a different version than this program's.
fn require_this_schema(conn: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let found =
        pragma_int(conn, "PRAGMA user_version").map_err(|e| OpenError::from_driver(path, e))?;
    match found {
        SCHEMA_VERSION => Ok(()),
        newer if newer > SCHEMA_VERSION => Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        }),
        _ => Err(OpenError::Older {
            path: path.to_owned(),
        }),
    }
}

/// Rejects a database with an incomplete migration.
pub(crate) fn refuse_incomplete_migration(
    conn: &mut SqliteConnection,
    path: &Path,
) -> Result<(), OpenError> {
    match mark(conn) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(OpenError::IncompleteMigration {
            path: path.to_owned(),
        }),
        Err(error) => Err(OpenError::from_driver(path, error)),
    }
}

/// The mark of an incomplete migration.
pub(crate) fn mark(conn: &mut SqliteConnection) -> QueryResult<Option<String>> {
    meta::table
        .find(MARK)
        .select(meta::value)
        .get_result(conn)
        .optional()
}

/// Creates the missing indexes of these metadata fields and drops all others.
fn keep_indexes(conn: &mut SqliteConnection, indexed: &[MetadataPath]) -> QueryResult<()> {
    let wanted: Vec<(String, String)> = indexed.iter().map(filter::index_statement).collect();
    let present: Vec<String> =
        sql::<Text>("SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'entries\\_by\\_metadata:%' ESCAPE '\\'")
            .load(conn)?;
    for name in present
        .iter()
        .filter(|name| !wanted.iter().any(|(wanted, _)| wanted == *name))
    {
        tracing::info!(
            "Dropping the index `{name}`: METADATA_INDEXED_FIELDS no longer lists its field"
        );
        conn.batch_execute(&format!("DROP INDEX \"{name}\""))?;
    }
    for (name, statement) in wanted.iter().filter(|(name, _)| !present.contains(name)) {
        tracing::info!("Creating the index `{name}`");
        conn.batch_execute(statement)?;
    }
    Ok(())
}

/// The program that a database file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    Ours,
    Empty,
}

/// Distinguishes our files from empty ones, and rejects all others. SQLite does not open the file for
/// writing, because it would then checkpoint the log of a foreign database.
fn identify(path: &Path) -> Result<Identity, OpenError> {
    let io = |e| OpenError::from_io(path, e);
    let mut options = std::fs::OpenOptions::new();
    let mut file = match options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
    {
        Ok(file) => file,
        Err(error) => return Err(io(error)),
    };
    let mut header = Vec::with_capacity(100);
    (&mut file).take(100).read_to_end(&mut header).map_err(io)?;
    if header.is_empty() || creation_was_cut_short(path) {
        return Ok(Identity::Empty);
    }
    // https://www.sqlite.org/fileformat.html#the_database_header
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        let source = std::io::Error::new(
            ErrorKind::InvalidData,
            "the file does not start as an SQLite database does",
        );
        return Err(OpenError::Corrupt {
            path: path.to_owned(),
            source: source.into(),
        });
    }
    if header[68..72] == APPLICATION_ID.to_be_bytes() {
        return Ok(Identity::Ours);
    }
    // The log counts too, because our application id may still be only in the log.
    drop(file);
    let (application, tables) = read_identity(path).map_err(|e| OpenError::from_driver(path, e))?;
    match (application, tables) {
        (id, _) if id == i64::from(APPLICATION_ID) => Ok(Identity::Ours),
        (0, 0) => Ok(Identity::Empty),
        _ => Err(OpenError::Foreign {
            path: path.to_owned(),
        }),
    }
}

/// Whether a rollback journal shows that the database was empty before a transaction that was cut off by a killed
/// process or a power failure. The first page then contains the result of creating it. Opening the file for writing
/// rolls that back. Opening it for reading only is an error.
fn creation_was_cut_short(path: &Path) -> bool {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    // https://www.sqlite.org/fileformat.html#the_rollback_journal: magic, records, nonce, initial pages.
    let mut header = [0; 20];
    let read = std::fs::File::open(journal).and_then(|mut journal| journal.read_exact(&mut header));
    read.is_ok()
        && header[..8] == [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]
        && header[16..] == [0; 4]
}

/// Opens a connection that cannot write to the file.
fn open_read_only(path: &Path) -> Result<SqliteConnection, ConnectError> {
    let text = path.to_str().ok_or(ConnectError::Path)?;
    // In a URI these three characters have a meaning of their own (https://www.sqlite.org/uri.html).
    let escaped = text
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let mut conn = SqliteConnection::establish(&format!("file://{escaped}?mode=ro"))?;
    conn.batch_execute(
        "PRAGMA busy_timeout = 1000; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY",
    )?;
    Ok(conn)
}

fn read_identity(path: &Path) -> Result<(i64, i64), ConnectError> {
    let mut conn = open_read_only(path)?;
    Ok((
        pragma_int(&mut conn, "PRAGMA application_id")?,
        pragma_int(&mut conn, "SELECT count(*) FROM sqlite_schema")?,
    ))
}

fn migrate(conn: &mut SqliteConnection, path: &Path, identity: Identity) -> Result<(), OpenError> {
    let driver = |e: diesel::result::Error| OpenError::from_driver(path, e);
    let found = pragma_int(conn, "PRAGMA user_version").map_err(driver)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    if identity == Identity::Empty {
        // Set before the first table, so that the file of an interrupted first start is recognised as ours.
        conn.batch_execute(&format!("PRAGMA application_id = {APPLICATION_ID}"))
            .map_err(driver)?;
    }
    if found < SCHEMA_VERSION {
        conn.run_pending_migrations(MIGRATIONS)
            .map_err(|e| OpenError::from_driver(path, e))?;
    }
    Ok(())
}
