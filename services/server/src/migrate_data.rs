//! `context-service migrate-data`: copies all data of one database into an empty one.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use context_store::OwnerId;
use context_store::transfer::{Losses, Observer, Phase, Report, Source, Target, migrate};
use context_store_postgres::{PostgresSource, PostgresTarget};
use context_store_sqlite::{SqliteSource, SqliteTarget};

use crate::cli::MigrateData;
use crate::config::Config;
use crate::stderr::announce;

/// The width of the progress bar in characters.
const BAR: u64 = 40;

/// Copies all data, with a progress bar on a terminal. Returns a table of what both databases now
/// contain.
///
/// # Errors
/// A sentence that says what went wrong. It contains no password.
pub async fn migrate_data(config: &Config, migration: &MigrateData) -> Result<String, String> {
    let owner = owner(&migration.owner)?;
    let from =
        Endpoint::parse(migration.from.reveal(), config).map_err(|why| format!("--from {why}"))?;
    let to = Endpoint::parse(migration.to.reveal(), config).map_err(|why| format!("--to {why}"))?;
    if let (Endpoint::Sqlite(from), Endpoint::Sqlite(to)) = (&from, &to)
        && same_file(from, to)
    {
        return Err(format!(
            "--from and --to are the same file, {}",
            from.display()
        ));
    }
    // The source is opened first: if it cannot be read, no target is created.
    let mut source = from.source(config, owner).await?;
    let mut target = to.target(config).await?;
    let mut progress = Progress::new();
    let outcome = migrate(source.as_mut(), target.as_mut(), &mut progress).await;
    progress.end_line();
    let report = outcome.map_err(|error| error.to_string())?;
    Ok(report_text(
        &report,
        source.shown(),
        target.source().shown(),
    ))
}

/// The owner of this name.
///
/// # Errors
/// A sentence about `--owner`.
pub(crate) fn owner(name: &str) -> Result<OwnerId, String> {
    let name = name.trim();
    // As in the operator's commands: for another name, no key could be created.
    if name.is_empty() || name.chars().nth(128).is_some() || name.chars().any(char::is_control) {
        return Err(
            "--owner must have 1 to 128 characters, none of them a control character".to_owned(),
        );
    }
    Ok(OwnerId::new(name))
}

fn same_file(one: &PathBuf, other: &PathBuf) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// One end of the migration.
enum Endpoint {
    Sqlite(PathBuf),
    Postgres(Box<context_store_postgres::Config>),
}

impl Endpoint {
    fn parse(text: &str, config: &Config) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with("postgresql://") || text.starts_with("postgres://") {
            let mut settings = config
                .postgres()
                .map_err(|error| format!("needs valid POSTGRESQL_… settings: {error}"))?;
            let ssl_mode = config.postgres.postgresql_ssl_mode;
            settings.target = context_store_postgres::Target::parse_with(text, ssl_mode)
                .map_err(|error| format!("is not a valid connection string: {error}"))?;
            return Ok(Self::Postgres(Box::new(settings)));
        }
        match (text, text.strip_prefix("sqlite://")) {
            ("sqlite", _) => Ok(Self::Sqlite(config.storage.db_path.clone())),
            ("postgresql", _) => {
                let settings = config.postgres().map_err(|error| format!("needs valid POSTGRESQL_… settings: {error}"))?;
                Ok(Self::Postgres(Box::new(settings)))
            }
            (_, Some(path)) if !path.is_empty() => {
                Ok(Self::Sqlite(context_model::local::absolute(&context_model::local::expand_home(path))))
            }
            _ => Err("must be sqlite://PATH (sqlite:///home/me/contexts.db), postgresql://USER:PASSWORD@HOST:5432/DATABASE, or \
                      `sqlite` or `postgresql` for the database of the settings"
                .to_owned()),
        }
    }

    async fn source(self, config: &Config, owner: OwnerId) -> Result<Box<dyn Source>, String> {
        let opened = match self {
            Self::Sqlite(path) => SqliteSource::open(path, owner).await,
            Self::Postgres(settings) => {
                PostgresSource::open(&settings.target, postgres_connect_timeout(config), owner)
                    .await
            }
        };
        opened.map_err(|error| error.to_string())
    }

    async fn target(self, config: &Config) -> Result<Box<dyn Target>, String> {
        match self {
            Self::Sqlite(path) => {
                let mut settings = config.sqlite();
                settings.path = path;
                let target = SqliteTarget::open(settings)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(Box::new(target))
            }
            Self::Postgres(settings) => {
                let target = PostgresTarget::open(&settings)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(Box::new(target))
            }
        }
    }
}

pub(crate) const fn postgres_connect_timeout(config: &Config) -> std::time::Duration {
    std::time::Duration::from_millis(config.postgres.postgresql_connect_timeout_ms)
}

/// Progress: a bar on a terminal, otherwise a line for each tenth.
pub(crate) struct Progress {
    terminal: bool,
    last: Option<(Phase, &'static str, u64)>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last: None,
        }
    }

    pub(crate) fn end_line(&mut self) {
        if self.terminal && self.last.take().is_some() {
            announce("\n");
        }
    }
}

impl Observer for Progress {
    fn progress(&mut self, phase: Phase, table: &'static str, done: u64, total: u64) {
        let cells = if self.terminal { BAR } else { 10 };
        let filled = (done * cells / total.max(1)).min(cells);
        let verb = match phase {
            Phase::Copy => "copying",
            Phase::Verify => "comparing",
            Phase::Examine => "checking",
        };
        // If stderr is closed, progress cannot be shown, and the work continues.
        if self.terminal {
            if self.last != Some((phase, table, filled)) {
                let bar = "#".repeat(usize::try_from(filled).unwrap_or(0));
                let _ = write!(
                    std::io::stderr(),
                    "\r{verb:<9} {table:<17} [{bar:<40}] {done} of {total} rows"
                );
                self.last = Some((phase, table, filled));
            }
        } else if self
            .last
            .is_none_or(|(before, _, tenths)| before != phase || tenths != filled)
        {
            let _ = writeln!(
                std::io::stderr(),
                "{verb} {}% ({done} of {total} rows)",
                filled * 10
            );
            self.last = Some((phase, table, filled));
        }
    }

    fn note(&mut self, sentence: &str) {
        self.end_line();
        let _ = writeln!(std::io::stderr(), "{sentence}");
    }
}

/// A table of what both databases contain, with a line for each owner and table.
fn report_text(report: &Report, from: &str, to: &str) -> String {
    let Report {
        copied,
        verified,
        left_behind,
        losses,
    } = report;
    let mut text = format!("{:<20} {:<18} {:>10}  checksum\n", "owner", "table", "rows");
    for found in verified {
        // Escaped, because a name could contain control sequences for the terminal.
        let owner = found.owner.as_str().escape_debug().to_string();
        let _ = writeln!(
            text,
            "{owner:<20} {:<18} {:>10}  {}",
            found.table,
            found.rows,
            &found.checksum[..16]
        );
    }
    for (table, rows) in left_behind {
        let _ = writeln!(
            text,
            "not copied: {rows} rows of {table}, which the target does not store; a service rebuilds them"
        );
    }
    text.push_str(&changed(losses));
    let rows: u64 = verified.iter().map(|found| found.rows).sum();
    let except = match losses.total() {
        0 => String::new(),
        1 => ", except for the changed value above".to_owned(),
        total => format!(", except for the {total} changed values above"),
    };
    let _ = writeln!(
        text,
        "{to} and {from} have the same content{except}: {rows} rows with equal checksums, {copied} of them copied by this run"
    );
    text
}

/// The values that an import changed: for each field their number and the first of them.
fn changed(losses: &Losses) -> String {
    let mut text = String::new();
    for (name, field) in losses.fields() {
        let _ = write!(text, "changed values of {name}: {}", field.total);
        // A thread is listed once for all its entries.
        let listable = if name == Losses::THREAD {
            let _ = write!(text, ", in threads: {}", losses.renamed_threads());
            losses.renamed_threads()
        } else {
            field.total
        };
        text.push('\n');
        for loss in &field.listed {
            let _ = writeln!(text, "  entry {}: {}", loss.id, loss.what);
        }
        let more = listable.saturating_sub(field.listed.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_name_for_which_keys_can_be_created() {
        let longest = "x".repeat(128);
        for name in ["default", " default ", "Ünïcode", &longest] {
            assert_eq!(owner(name), Ok(OwnerId::new(name.trim())), "{name}");
        }
        for name in ["", " ", "a\0b", "a\nb", &"x".repeat(129)] {
            assert!(owner(name).is_err(), "{name:?}");
        }
    }
}
