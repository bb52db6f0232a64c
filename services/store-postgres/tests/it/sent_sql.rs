//! The statements that the store sends to the server during the conformance suite.
//!
//! Joins in diesel's query language are not literals in the source. The test therefore reads the statements that are
//! sent: the connection logs each one, without values, as a `trace` event.

mod owners;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::arrange::database;
use super::behaviours;

/// A statement.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    sql: String,
    /// The literal in the source, or the text itself. `None` when diesel wrote the text.
    raw: Option<String>,
}

impl Visit for Sent {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "sql" => self.sql = value.to_owned(),
            "raw" => self.raw = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Collects the statements that are sent on this thread.
#[derive(Default, Clone)]
struct Recorder(Arc<Mutex<BTreeSet<Sent>>>);

impl Recorder {
    fn sent(&self) -> BTreeSet<Sent> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "context_store_postgres::sql"
    }

    fn event(&self, event: &Event<'_>) {
        let mut sent = Sent::default();
        event.record(&mut sent);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(sent);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The raw SQL in one line. In a text that is put together at run time, numbers are replaced.
fn shown(sent: &Sent) -> Option<String> {
    let raw = sent.raw.as_deref()?;
    if *raw != sent.sql {
        return Some(raw.trim().to_owned());
    }
    let mut shown = String::new();
    for c in raw.trim().chars() {
        match c {
            '0'..='9' if shown.ends_with([' ', '(', '_']) => shown.push('N'),
            '0'..='9' if shown.ends_with('N') => {}
            _ => shown.push(c),
        }
    }
    Some(shown)
}

/// The list of statements that are not written in diesel's query language. The line before each gives the reason.
const RAW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/raw_sql.txt");

/// The listed statements.
fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(RAW).expect("the list of raw SQL");
    let blocks = text
        .split("\n\n")
        .map(str::trim)
        .filter(|block| !block.is_empty());
    let statement = |block: &str| {
        let (reason, sql) = block.split_once('\n').expect("a reason and a statement");
        assert!(
            reason.starts_with("-- "),
            "a statement has no reason: {block}"
        );
        assert!(!sql.contains('\n'), "a reason has two statements: {block}");
        sql.to_owned()
    };
    blocks.map(statement).collect()
}

#[tokio::test]
async fn every_statement_keeps_to_its_owner_and_raw_sql_has_its_reason() {
    let Some(database) = database().await else {
        return;
    };
    let columns = "SELECT c.table_name::text FROM information_schema.columns AS c \
                   WHERE c.table_schema = 'context' AND c.column_name = 'owner_id'";
    let client = database.connect().await;
    let owned = client.query(columns, &[]).await.expect("the columns");
    let owned: BTreeSet<String> = owned.iter().map(|row| row.get(0)).collect();

    // The store's tasks run on the thread of this test.
    let recorder = Recorder::default();
    let recording = tracing::subscriber::set_default(recorder.clone());
    context_store_conformance::run_all(behaviours::open).await;
    drop(recording);
    let sent = recorder.sent();
    assert!(sent.len() > 100, "only {} statements were seen", sent.len());

    let faults: Vec<String> = sent
        .iter()
        .flat_map(|sent| owners::faults(&sent.sql, &owned))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    for (part, why) in owners::OVER_ALL_OWNERS {
        let is_sent = sent.iter().any(|sent| sent.sql.contains(part));
        assert!(is_sent, "no statement over all owners has `{part}` ({why})");
    }

    let raw: BTreeSet<String> = sent.iter().filter_map(shown).collect();
    let listed = listed();
    let unlisted: Vec<&String> = raw.difference(&listed).collect();
    let unsent: Vec<&String> = listed.difference(&raw).collect();
    assert!(
        unlisted.is_empty() && unsent.is_empty(),
        "{RAW} lists raw SQL with its reasons.\n\nSent, and not listed:\n{unlisted:#?}\n\nListed, and not sent:\n{unsent:#?}"
    );
}
