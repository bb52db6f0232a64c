//! `context-service verify`: whether everything that is stored is what was stored.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use context_store::transfer::{Examination, Examined, Examiner, Finding, Observer, Phase, examine};
use context_store_postgres::PostgresSource;
use context_store_sqlite::{OpenError, SqliteSource};

use crate::config::{Backend, Config};
use crate::migrate_data::{Progress, config_timeout};

/// The exit code when something is damaged, and when that could not be found out.
const DAMAGED: u8 = 1;
const UNKNOWN: u8 = 2;

/// Reads every row of the database of these settings and prints what is damaged, a line each. It changes nothing, and a
/// service may run meanwhile. Gives 0 when everything is sound, 1 when something is damaged, and 2 when it cannot tell.
pub async fn verify(config: &Config) -> ExitCode {
    let mut source = match open(config).await {
        Ok(source) => source,
        Err(Refusal::Damaged(sentence)) => {
            let _ = writeln!(std::io::stdout(), "damaged: {sentence}");
            return ExitCode::from(DAMAGED);
        }
        Err(Refusal::Other(sentence)) => return unknown(&sentence),
    };
    let mut shown = Shown {
        progress: Progress::new(),
        findings: 0,
    };
    shown.note(&format!(
        "Checking {}; a service may go on meanwhile",
        source.shown()
    ));
    let examined = examine(source.as_mut(), &mut shown).await;
    shown.progress.end_line();
    match examined {
        Ok(examination) => {
            let _ = writeln!(std::io::stdout(), "{}", sentence(examination));
            if examination.findings == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(DAMAGED)
            }
        }
        // The damage that was found may be what keeps it from reading on.
        Err(error) if shown.findings > 0 => {
            let _ = writeln!(
                std::io::stdout(),
                "damaged: the rest cannot be read: {error}"
            );
            ExitCode::from(DAMAGED)
        }
        Err(error) => unknown(&error.to_string()),
    }
}

fn unknown(sentence: &str) -> ExitCode {
    eprintln!("error: {sentence}");
    ExitCode::from(UNKNOWN)
}

enum Refusal {
    Damaged(String),
    Other(String),
}

async fn open(config: &Config) -> Result<Box<dyn Examined>, Refusal> {
    match config.storage.storage_backend {
        Backend::Sqlite => {
            match SqliteSource::open_to_examine(config.storage.db_path.clone()).await {
                Ok(source) => Ok(Box::new(source)),
                Err(error @ OpenError::Corrupt { .. }) => Err(Refusal::Damaged(error.to_string())),
                Err(error) => Err(Refusal::Other(error.to_string())),
            }
        }
        Backend::Postgresql => {
            let settings = config
                .postgres()
                .map_err(|error| Refusal::Other(error.to_string()))?;
            let opened =
                PostgresSource::open_to_examine(&settings.target, config_timeout(config)).await;
            opened
                .map(|source| Box::new(source) as Box<dyn Examined>)
                .map_err(|error| Refusal::Other(error.to_string()))
        }
    }
}

fn sentence(examination: Examination) -> String {
    let Examination {
        checked,
        unsealed,
        findings,
    } = examination;
    let mut sentence = match findings {
        0 => format!("sound: {checked} rows are what was stored"),
        1 => format!("damaged: 1 finding in {checked} rows with checksums"),
        _ => format!("damaged: {findings} findings in {checked} rows with checksums"),
    };
    if unsealed > 0 {
        let _ = write!(
            sentence,
            "; {unsealed} rows have no checksums yet, which a running service gives them in the background"
        );
    }
    if findings > 0 {
        sentence.push_str(
            ". Restore a backup, or replace or delete what is named; then start the service again",
        );
    }
    sentence
}

/// Progress on standard error, findings on standard output.
struct Shown {
    progress: Progress,
    findings: u64,
}

impl Observer for Shown {
    fn progress(&mut self, phase: Phase, table: &'static str, done: u64, total: u64) {
        self.progress.progress(phase, table, done, total);
    }

    fn note(&mut self, sentence: &str) {
        self.progress.note(sentence);
    }
}

impl Examiner for Shown {
    fn found(&mut self, finding: &Finding) {
        let Finding { owner, what, field } = finding;
        self.findings += 1;
        self.progress.end_line();
        // Nothing that a name holds is to reach the terminal as a command.
        let owner = owner.as_ref().map_or_else(
            || "structure".to_owned(),
            |owner| format!("owner {}", owner.as_str().escape_debug()),
        );
        let field = if field.is_empty() {
            String::new()
        } else {
            format!(": {field}")
        };
        let _ = writeln!(std::io::stdout(), "damaged: {owner}: {what}{field}");
    }
}
