//! `context-service verify`: checks entries, images and artifact versions against their checksums.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use context_store::transfer::{Examination, Examined, Examiner, Finding, Observer, Phase, examine};
use context_store_postgres::PostgresSource;
use context_store_sqlite::{OpenError, SqliteSource};

use crate::config::{Backend, Config};
use crate::migrate_data::{Progress, postgres_connect_timeout};
use crate::stderr::announce;

/// Exit codes: damage was found; the check failed.
const DAMAGED: u8 = 1;
const UNKNOWN: u8 = 2;

/// Reads every entry, image and artifact version of the configured database, and prints a line for each piece of
/// damage. It changes nothing, and a service may be running meanwhile. Exit code 0: no damage, 1: damage found, 2: the
/// check failed.
pub async fn verify(config: &Config) -> ExitCode {
    let mut source = match open(config).await {
        Ok(source) => source,
        Err(Refusal::Damaged(sentence)) => {
            let _ = writeln!(std::io::stdout(), "damaged: {sentence}");
            return ExitCode::from(DAMAGED);
        }
        Err(Refusal::Other(sentence)) => return unknown(&sentence),
    };
    let mut printer = Printer {
        progress: Progress::new(),
        findings: 0,
    };
    printer.note(&format!(
        "Checking {}; a service may keep running meanwhile",
        source.shown()
    ));
    let examined = examine(source.as_mut(), &mut printer).await;
    printer.progress.end_line();
    match examined {
        Ok(examination) => {
            let _ = writeln!(std::io::stdout(), "{}", sentence(examination));
            if examination.findings == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(DAMAGED)
            }
        }
        // The reported damage may be the cause of this error.
        Err(error) if printer.findings > 0 => {
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
    announce(&format!("error: {sentence}\n"));
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
                PostgresSource::open_to_examine(&settings.target, postgres_connect_timeout(config))
                    .await;
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
        0 => format!("no damage: {checked} rows match their checksums"),
        1 => format!("damaged: 1 finding in {checked} rows with checksums"),
        _ => format!("damaged: {findings} findings in {checked} rows with checksums"),
    };
    if unsealed > 0 {
        let _ = write!(
            sentence,
            "; {unsealed} rows have no checksums yet; a running service adds them in the background"
        );
    }
    if findings > 0 {
        sentence.push_str(
            ". Restore a backup, or replace or delete what is named; then start the service again",
        );
    }
    sentence
}

/// Prints progress to standard error and findings to standard output.
struct Printer {
    progress: Progress,
    findings: u64,
}

impl Observer for Printer {
    fn progress(&mut self, phase: Phase, table: &'static str, done: u64, total: u64) {
        self.progress.progress(phase, table, done, total);
    }

    fn note(&mut self, sentence: &str) {
        self.progress.note(sentence);
    }
}

impl Examiner for Printer {
    fn found(&mut self, finding: &Finding) {
        let Finding { owner, what, field } = finding;
        self.findings += 1;
        self.progress.end_line();
        // Escaped, because a name could contain control sequences for the terminal.
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
