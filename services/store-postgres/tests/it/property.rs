//! PostgreSQL, SQLite and the oracle select the same entries for random filters.

use std::collections::HashMap;

use context_model::{Filter, Metadata, NewEntry, NewImage, Operator, Tags, ThreadId, Timestamp};
use context_store::{
    Memory, OwnerId, Page, Read, RowSelection, Store, StoredEntry, WriteOptions, oracle,
};
use context_store_conformance::generate::{FIELDS, INDEXED, Kind, Pools};
use context_store_postgres::{Config, PostgresStore};
use context_store_sqlite::SqliteStore;
use context_test_support::Random;

use super::arrange::{config, database};

/// Number of owners, divided among the tests below. Together the tests run at least 20 000 cases.
const OWNERS: u64 = 390;
/// Number of tests that share the work, so that they run in parallel.
const PARTS: u64 = 3;
const ENTRIES: i64 = 24;
/// Number of entries with the same time.
const BATCH: usize = 4;
/// Number of filters for each owner, operator and kind of value.
const ROUNDS: usize = 2;
const ALL: Page = Page {
    limit: 100,
    offset: 0,
};
const PLAIN: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

/// Stores an owner's entries, in the same way in every database.
async fn fill(store: &dyn Store, owner: &OwnerId, entries: &[StoredEntry]) {
    for (batch, at) in entries.chunks(BATCH).zip(1..) {
        let new = batch
            .iter()
            .map(|entry| NewEntry {
                thread_id: ThreadId::from_stored(entry.thread_id.clone()),
                source: entry.source,
                text: format!("entry {}", entry.id),
                images: (entry.content_type == context_model::ContentType::Multimodal).then(|| {
                    vec![NewImage {
                        data: vec![1],
                        mime_type: "image/png".to_owned(),
                        metadata: None,
                    }]
                }),
                metadata: Some(Metadata::from_stored(
                    entry
                        .metadata
                        .to_object()
                        .expect("it was made from an object"),
                )),
                tags: Some(Tags::from_normalised(entry.tags.clone())),
            })
            .collect();
        // The times in the filters are between 0 and 30.
        let options = WriteOptions {
            now: Timestamp(at * 5),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        store
            .store_contexts(owner, new, true, options)
            .await
            .expect("the entries are stored");
    }
}

async fn select(
    store: &dyn Store,
    owner: &OwnerId,
    filter: &Filter,
    page: Page,
) -> Vec<StoredEntry> {
    store
        .search_contexts(owner, filter.clone(), page, PLAIN, Read::default())
        .await
        .expect("the search works")
        .entries
}

fn texts<'e>(entries: impl IntoIterator<Item = &'e StoredEntry>) -> Vec<&'e str> {
    entries
        .into_iter()
        .map(|entry| entry.text.as_str())
        .collect()
}

macro_rules! parts {
    ($($name:ident: $part:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            agree($part).await;
        }
    )*};
}

parts! {
    random_filters_select_the_same_in_postgresql_in_sqlite_and_by_the_oracle: 0;
    more_random_filters_select_the_same: 1;
    yet_more_random_filters_select_the_same: 2;
}

async fn agree(part: u64) {
    let Some(database) = database().await else {
        return;
    };
    let fields: Vec<String> = FIELDS[..INDEXED]
        .iter()
        .map(|&field| field.to_owned())
        .collect();
    let with_indexes = Config {
        indexed_fields: fields.clone(),
        ..config(database.url())
    };
    let with_indexes = PostgresStore::open(with_indexes)
        .await
        .expect("it opens with indexes");
    let without = PostgresStore::open(config(database.url()))
        .await
        .expect("it opens without");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sqlite = context_store_sqlite::Config {
        indexed_fields: fields,
        ..context_store_sqlite::Config::new(directory.path().join("c.db"))
    };
    let sqlite = SqliteStore::open(sqlite).expect("a new database opens");

    // Number of cases that select a proper, non-empty subset.
    let mut hits: HashMap<(Operator, Kind), usize> = HashMap::new();
    let (mut cases, mut cut) = (0_usize, 0_usize);
    for seed in (0..OWNERS).filter(|seed| seed % PARTS == part) {
        let mut random = Random::new(seed);
        let pools = Pools::new(&mut random);
        let entries: Vec<StoredEntry> = (1..=ENTRIES)
            .map(|id| pools.entry(&mut random, id))
            .collect();
        let owner = OwnerId::new(format!("owner {seed}"));
        fill(&without, &owner, &entries).await;
        fill(&sqlite, &owner, &entries).await;
        // The filters are generated from the entries as they are read back, newest first.
        let stored = select(&without, &owner, &Filter::default(), ALL).await;
        assert_eq!(stored.len(), entries.len());
        assert_eq!(
            stored,
            select(&sqlite, &owner, &Filter::default(), ALL).await,
            "owner {seed}"
        );
        for operator in Operator::ALL {
            for (kind, round) in Kind::of(operator)
                .iter()
                .flat_map(|kind| (0..ROUNDS).map(move |round| (*kind, round)))
            {
                let filter = pools.clone().filter(&mut random, operator, kind);
                let expected = texts(
                    stored
                        .iter()
                        .filter(|entry| oracle::matches(&filter, entry)),
                );
                // Half of the pages may be shorter than the result.
                let (limit, offset) = match random.one_in(2) {
                    true => (1 + random.below(5), random.below(4)),
                    false => (100, 0),
                };
                let page = Page {
                    limit: u32::try_from(limit).expect("small"),
                    offset: u64::try_from(offset).expect("small"),
                };
                let wanted: Vec<&str> = expected.iter().copied().skip(offset).take(limit).collect();
                let postgres = if round == 0 { &with_indexes } else { &without };
                let found = select(postgres, &owner, &filter, page).await;
                assert_eq!(
                    texts(&found),
                    wanted,
                    "PostgreSQL, owner {seed}, {page:?}, {filter:?}"
                );
                let found = select(&sqlite, &owner, &filter, page).await;
                assert_eq!(
                    texts(&found),
                    wanted,
                    "SQLite, owner {seed}, {page:?}, {filter:?}"
                );
                let is_proper = !expected.is_empty() && expected.len() < stored.len();
                *hits.entry((operator, kind)).or_default() += usize::from(is_proper);
                cases += 1;
                cut += usize::from(wanted.len() < expected.len());
            }
        }
    }
    let proper: usize = hits.values().sum();
    assert!(cases * 3 >= 20_000, "{cases} cases");
    assert!(
        cut * 20 >= cases,
        "{cut} of {cases} pages are shorter than the result"
    );
    assert!(
        proper * 10 >= cases * 3,
        "{proper} of {cases} match a proper, non-empty subset"
    );
    assert!(hits.values().all(|&hit| hit > 0), "{hits:?}");
}
