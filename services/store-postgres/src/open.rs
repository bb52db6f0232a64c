//! Opens a database: creates its schema, applies the migrations and creates the indexes. Other services may do the same
//! at the same time.

use std::time::Duration;

use context_model::MetadataPath;
use context_store::transfer::{INCOMPLETE_MIGRATION, MARK};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use crate::config::Config;
use crate::filter;
use crate::fts::Language;
use crate::pg::connection::{AsyncPgConnection, ConnectError, connect};
use crate::pg::sql::{self, Bind, Fragment};
use crate::pg::target::Target;
use crate::pg::tls::{Tls, TlsError};
use crate::schema::owners;
use crate::settings;
use crate::vectors::{create_tables, lock_sets};

/// The migration steps in order. A database's schema version is the number of steps applied to it.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/2026-11-21-000001_contexts/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000002_artifacts/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000003_keys/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000004_vectors/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000005_neighbours/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000006_summaries/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-21-000007_chunk_tokens/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-22-000008_key_digests/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-22-000009_checksums/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-23-000010_feed/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-23-000011_audited_changes/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-24-000012_artifact_documents/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-24-000013_artifact_paths/up.sql"),
    include_str!("../../../migrations/postgres/2026-11-27-000014_sharding/up.sql"),
];

/// The version of this program's schema.
pub(crate) const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// The advisory lock that serialises services that start at the same time. The number is arbitrary, but no other
/// program may lock it in this database.
const LOCK: i64 = 0x6374_785f_7365_7276;

/// Indexes on tables with more rows than this are built concurrently with writes.
const SMALL_TABLE_ROWS: i64 = 100_000;

/// Why a database was not opened. Each message is a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// TLS cannot be set up.
    #[error("TLS to the database cannot be set up: {0}")]
    Tls(#[from] TlsError),
    /// The server cannot be reached or rejects the login.
    #[error(
        "the database {shown} cannot be opened: {reason}; check POSTGRESQL_CONNECTION_STRING or the POSTGRESQL_… settings"
    )]
    Connect {
        /// Host, port and database.
        shown: String,
        /// The error of the server or the system.
        reason: String,
    },
    /// A newer version of the service created the schema.
    #[error(
        "the database {shown} has schema version {found}; this program supports versions up to {known}: use the newer program that created it"
    )]
    Newer {
        /// Host, port and database.
        shown: String,
        /// Its schema version.
        found: usize,
        /// The newest version that this program supports.
        known: usize,
    },
    /// The schema `context` was made by another program. It was left untouched.
    #[error(
        "the database {shown} has a schema `context` that was not made by this service and was left untouched; use another database"
    )]
    Foreign {
        /// Host, port and database.
        shown: String,
    },
    /// A migration into the database is incomplete.
    #[error("the database {shown} {INCOMPLETE_MIGRATION}")]
    IncompleteMigration {
        /// Host, port and database.
        shown: String,
    },
    /// The schema is older than this program's, and the database is opened only for reading.
    #[error(
        "the database {shown} has an older schema; start `context-service` on it once, which brings it up to date, and stop it again"
    )]
    Older {
        /// Host, port and database.
        shown: String,
    },
    /// The database is not in UTF-8.
    #[error("the database {shown} has the encoding {encoding}; create one with ENCODING 'UTF8'")]
    Encoding {
        /// Host, port and database.
        shown: String,
        /// Its encoding.
        encoding: String,
    },
    /// The server does not have this text search configuration.
    #[error("FTS_LANGUAGE is `{language}`; this server supports {known}")]
    Language {
        /// The language as given.
        language: String,
        /// The languages that the server offers.
        known: String,
    },
    /// A metadata field to index is not a valid path.
    #[error(
        "METADATA_INDEXED_FIELDS names `{field}`; a field is a path of 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots"
    )]
    IndexedField {
        /// The field as given.
        field: String,
    },
    /// The schema cannot be created or updated.
    #[error("the schema of the database {shown} cannot be made or brought up to date: {source}")]
    Schema {
        /// Host, port and database.
        shown: String,
        /// The server's error.
        #[source]
        source: context_store::BoxError,
    },
}

/// Facts about an open database that the store needs.
pub(crate) struct Opened {
    pub tls: Tls,
    /// Whether the parameters of a session stay. False behind a pooler.
    pub has_sessions: bool,
    pub indexed: Vec<MetadataPath>,
    pub language: Language,
    pub has_vectors: bool,
    /// Whether Citus distributes owners over servers.
    pub is_distributed: bool,
}

/// Connects, creates or updates the schema, and closes the connection.
pub(crate) async fn open(config: &Config) -> Result<Opened, OpenError> {
    let mut indexed = Vec::with_capacity(config.indexed_fields.len());
    for field in &config.indexed_fields {
        indexed.push(
            MetadataPath::parse(field).ok_or_else(|| OpenError::IndexedField {
                field: field.clone(),
            })?,
        );
    }
    let tls = Tls::new(&config.target)?;
    let shown = config.target.shown();
    let mut conn = connect(&config.target, &tls, config.connect_timeout)
        .await
        .map_err(|error: ConnectError| OpenError::Connect {
            shown: shown.clone(),
            reason: error.to_string(),
        })?;
    let schema = |source: diesel::result::Error| OpenError::Schema {
        shown: shown.clone(),
        source: source.into(),
    };
    let encoding = text(
        &mut conn,
        "SELECT current_setting('server_encoding') AS value",
    )
    .await
    .map_err(schema)?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { shown, encoding });
    }
    warn_of_the_locale(&mut conn).await.map_err(schema)?;
    let has_own_process = has_own_process(&mut conn, &config.target)
        .await
        .map_err(schema)?;
    if !has_own_process {
        tracing::info!("Connected through a pooler; each transaction sets its own parameters");
    }
    let language = language(&mut conn, &config.language)
        .await
        .map_err(schema)??;
    conn.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        .await
        .map_err(schema)?;
    sql::execute(
        &mut conn,
        Fragment::prepared("SELECT pg_advisory_xact_lock(?)", vec![Bind::Int(LOCK)]),
    )
    .await
    .map_err(schema)?;
    // Services that select a model create the tables of vectors too. This lock is taken before any table is locked, so
    // that it cannot deadlock with them.
    lock_sets(&mut conn).await.map_err(schema)?;
    let migrated = match migrate(&mut conn, &shown).await {
        Ok(()) => create_tables(&mut conn).await.map_err(schema),
        Err(error) => Err(error),
    };
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    conn.batch_execute(end).await.map_err(schema)?;
    let has_vectors = migrated?
        .inspect_err(|reason| tracing::warn!("Semantic search is unavailable: {reason}"))
        .is_ok();
    if config.builds_indexes {
        create_indexes(&mut conn, &indexed).await.map_err(schema)?;
    }
    let is_distributed = is_distributed(&mut conn, "context.owners")
        .await
        .map_err(schema)?;
    Ok(Opened {
        tls,
        has_sessions: has_own_process && config.target.caches_statements,
        indexed,
        language,
        has_vectors,
        is_distributed,
    })
}

/// Whether this connection has a server process of its own. The process then has the application name from this
/// connection's startup packet. A pooler connects to the server itself and passes each client's name on with SET, if at
/// all. PgBouncer gives no other sign of itself that the driver shows: it forwards the server's parameters.
async fn has_own_process(
    conn: &mut AsyncPgConnection,
    target: &Target,
) -> diesel::QueryResult<bool> {
    let own = "SELECT count(*) FROM pg_catalog.pg_settings WHERE name = 'application_name' AND source = 'client' \
               AND setting = ?";
    let name = target.config.get_application_name().unwrap_or_default();
    let own = Fragment::prepared(own, vec![Bind::text(name)]);
    Ok(sql::number(conn, own).await? > 0)
}

/// Whether Citus distributes this table's rows over servers. The script in docs/scale.md sets that up.
pub(crate) async fn is_distributed(
    conn: &mut AsyncPgConnection,
    table: &'static str,
) -> diesel::QueryResult<bool> {
    let installed = "SELECT count(*) FROM pg_catalog.pg_extension WHERE extname = 'citus'";
    if count(conn, installed).await? == 0 {
        return Ok(false);
    }
    let distributed =
        "SELECT count(*) FROM pg_catalog.pg_dist_partition WHERE logicalrelid = ?::regclass";
    let distributed = Fragment::prepared(distributed, vec![Bind::text(table)]);
    Ok(sql::number(conn, distributed).await? > 0)
}

async fn migrate(conn: &mut AsyncPgConnection, shown: &str) -> Result<(), OpenError> {
    let schema = |source: diesel::result::Error| OpenError::Schema {
        shown: shown.to_owned(),
        source: source.into(),
    };
    let tables = count(
        conn,
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'context'",
    )
    .await
    .map_err(schema)?;
    let ours = count(conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'context' AND tablename = 'schema_version'")
        .await
        .map_err(schema)?;
    if tables > 0 && ours == 0 {
        return Err(OpenError::Foreign {
            shown: shown.to_owned(),
        });
    }
    if ours == 0 {
        // A role without the right to create schemas may have been given an empty schema.
        let given = count(
            conn,
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'context'",
        )
        .await
        .map_err(schema)?;
        if given == 0 {
            conn.batch_execute("CREATE SCHEMA context")
                .await
                .map_err(schema)?;
        }
        conn.batch_execute(
            "CREATE TABLE context.schema_version (version bigint NOT NULL PRIMARY KEY)",
        )
        .await
        .map_err(schema)?;
        try_create_pgvector(conn).await.map_err(schema)?;
    }
    let found = version(conn).await.map_err(schema)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            shown: shown.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    for (migration, version) in MIGRATIONS.iter().zip(1i64..).skip(found) {
        conn.batch_execute(migration).await.map_err(schema)?;
        let done = Fragment::prepared(
            "INSERT INTO context.schema_version (version) VALUES (?)",
            vec![Bind::Int(version)],
        );
        sql::execute(conn, done).await.map_err(schema)?;
        tracing::info!(version, "Brought the schema of the database up to date");
    }
    Ok(())
}

/// The version of the database's schema.
pub(crate) async fn version(conn: &mut AsyncPgConnection) -> diesel::QueryResult<usize> {
    let found = count(
        conn,
        "SELECT coalesce(max(version), 0) FROM context.schema_version",
    )
    .await?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// Whether a database opened for reading belongs to this service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// It has this program's schema, and data in it.
    Ours,
    /// Another program's database, or an empty one.
    Foreign,
}

/// Connects to a database for reading only.
pub(crate) async fn open_to_read(
    target: &Target,
    timeout: Duration,
) -> Result<(Readable, AsyncPgConnection), OpenError> {
    let shown = target.shown();
    let tls = Tls::new(target)?;
    let mut conn = connect(target, &tls, timeout)
        .await
        .map_err(|error: ConnectError| OpenError::Connect {
            shown: shown.clone(),
            reason: error.to_string(),
        })?;
    let schema = |source: diesel::result::Error| OpenError::Schema {
        shown: shown.clone(),
        source: source.into(),
    };
    let ours = count(&mut conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'context' AND tablename = 'schema_version'")
        .await
        .map_err(schema)?;
    if ours == 0 {
        return Ok((Readable::Foreign, conn));
    }
    let found = version(&mut conn).await.map_err(schema)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            shown,
            found,
            known: SCHEMA_VERSION,
        });
    }
    // This service may have been started in a database that holds another program's tables.
    let owners: i64 = owners::table
        .count()
        .get_result(&mut conn)
        .await
        .map_err(schema)?;
    if owners == 0 {
        return Ok((Readable::Foreign, conn));
    }
    if found < SCHEMA_VERSION {
        return Err(OpenError::Older { shown });
    }
    refuse_incomplete_migration(&mut conn, &shown).await?;
    Ok((Readable::Ours, conn))
}

/// Rejects a database with an incomplete migration.
pub(crate) async fn refuse_incomplete_migration(
    conn: &mut AsyncPgConnection,
    shown: &str,
) -> Result<(), OpenError> {
    match mark(conn).await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(OpenError::IncompleteMigration {
            shown: shown.to_owned(),
        }),
        Err(error) => Err(OpenError::Schema {
            shown: shown.to_owned(),
            source: error.into(),
        }),
    }
}

/// The mark that an incomplete migration left. `None` when the database has no mark.
pub(crate) async fn mark(conn: &mut AsyncPgConnection) -> diesel::QueryResult<Option<String>> {
    settings::read(conn, MARK).await
}

/// Creates the pgvector extension if the role may do so. Only semantic search needs it.
async fn try_create_pgvector(conn: &mut AsyncPgConnection) -> diesel::QueryResult<()> {
    conn.batch_execute("SAVEPOINT extension").await?;
    match conn
        .batch_execute("CREATE EXTENSION IF NOT EXISTS vector")
        .await
    {
        Ok(()) => conn.batch_execute("RELEASE extension").await,
        Err(error) => {
            tracing::debug!(%error, "The extension pgvector cannot be created by this role");
            conn.batch_execute("ROLLBACK TO extension").await
        }
    }
}

/// Logs a warning when the server's locale supports only ASCII letters, because the server then cannot lower-case and
/// stem others. Languages that this program stems itself are not affected.
async fn warn_of_the_locale(conn: &mut AsyncPgConnection) -> diesel::QueryResult<()> {
    if text(conn, "SELECT lower('Ä') AS value").await? != "ä" {
        tracing::warn!(
            "The database's locale supports only ASCII letters; create the database with the locale C.UTF-8 or one of \
             a language"
        );
    }
    Ok(())
}

async fn language(
    conn: &mut AsyncPgConnection,
    given: &str,
) -> diesel::QueryResult<Result<Language, OpenError>> {
    #[derive(QueryableByName)]
    struct Configuration {
        #[diesel(sql_type = Text)]
        name: String,
    }
    if let Some(language) = Language::of_ours(given) {
        return Ok(Ok(language));
    }
    let all = "SELECT cfgname::text AS name FROM pg_catalog.pg_ts_config WHERE pg_catalog.pg_ts_config_is_visible(oid) ORDER BY cfgname";
    let known: Vec<String> = sql::query::<Configuration>(conn, Fragment::prepared(all, Vec::new()))
        .await?
        .into_iter()
        .map(|c| c.name)
        .collect();
    let exact = given.trim();
    let lower = exact.to_ascii_lowercase();
    let found = [exact, &lower]
        .into_iter()
        .find(|name| known.iter().any(|known| known == name));
    Ok(found.map(named_in_sql).ok_or_else(|| OpenError::Language {
        language: given.to_owned(),
        known: known.join(", "),
    }))
}

/// A text search configuration of the server. Without quotation marks, the server lower-cases a name, ends it at white
/// space, and splits it at a dot.
fn named_in_sql(name: &str) -> Language {
    let is_special =
        |c: char| c.is_ascii_uppercase() || c.is_whitespace() || matches!(c, '.' | '"');
    Language::of_the_server(match name.contains(is_special) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    })
}

/// Creates the missing indexes of these metadata fields. Indexes of other fields stay: during a rolling update,
/// services may have different settings.
async fn create_indexes(
    conn: &mut AsyncPgConnection,
    indexed: &[MetadataPath],
) -> diesel::QueryResult<()> {
    #[derive(QueryableByName)]
    struct Index {
        #[diesel(sql_type = Text)]
        name: String,
        #[diesel(sql_type = Bool)]
        valid: bool,
    }
    let rows = count(conn, "SELECT coalesce(reltuples, 0)::bigint FROM pg_class WHERE oid = 'context.entries'::regclass").await?;
    let concurrently = if rows > SMALL_TABLE_ROWS {
        " CONCURRENTLY"
    } else {
        ""
    };
    let present = "SELECT c.relname::text AS name, i.indisvalid AS valid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                   WHERE i.indrelid = 'context.entries'::regclass";
    let present: Vec<Index> = sql::query(conn, Fragment::prepared(present, Vec::new())).await?;
    for (name, definition) in indexed.iter().flat_map(filter::indexes) {
        match present.iter().find(|index| index.name == name) {
            Some(index) if index.valid => continue,
            Some(_) => {
                tracing::warn!(
                    "The index context.{name} is incomplete: another service is building it, or its build was \
                     interrupted. In the second case drop it and start again"
                );
                continue;
            }
            None => {}
        }
        tracing::info!("Creating the index `{name}`");
        let statement = format!(
            "CREATE INDEX{concurrently} IF NOT EXISTS {name} ON context.entries {definition}"
        );
        if let Err(error) = conn.batch_execute(&statement).await {
            // When two services create the same index at the same time, one of them gets an error. An index whose build
            // failed stays, and is incomplete.
            let made =
                "SELECT count(*) FROM pg_indexes WHERE schemaname = 'context' AND indexname = ?";
            let made = Fragment::prepared(made, vec![Bind::text(name.as_str())]);
            if sql::number(conn, made).await? == 0 {
                return Err(error);
            }
            tracing::warn!(
                %error,
                "The index context.{name} was not created here. Either another service creates it, or it is incomplete"
            );
        }
    }
    Ok(())
}

async fn count(conn: &mut AsyncPgConnection, sql: &'static str) -> diesel::QueryResult<i64> {
    sql::number(conn, Fragment::prepared(sql, Vec::new())).await
}

async fn text(conn: &mut AsyncPgConnection, sql: &'static str) -> diesel::QueryResult<String> {
    #[derive(QueryableByName)]
    struct Word {
        #[diesel(sql_type = Text)]
        value: String,
    }
    let rows: Vec<Word> = sql::query(conn, Fragment::prepared(sql, Vec::new())).await?;
    rows.into_iter()
        .next()
        .map(|row| row.value)
        .ok_or(diesel::result::Error::NotFound)
}
