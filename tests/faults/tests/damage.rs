//! Damaged database files are reported and never served.

use std::path::Path;

use context_faults::client::{Client as _, Embedded};
use context_faults::content::Content;
use context_model::{GetContextByIdsRequest, Reason, SearchContextRequest};
use context_store_sqlite::{Config, OpenError};
use context_test_support::{Home, Random, rounds, seed};

const PAGE: usize = 4096;
const ENTRIES: u64 = 300;

/// The file of an undamaged database, and its entries.
async fn undamaged() -> (Vec<u8>, Vec<(i64, Content)>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("contexts.db");
    let store = Embedded::open(Config::new(&path)).expect("a new database");
    let mut entries = Vec::new();
    for serial in 0..ENTRIES {
        let content = Content::new(0, serial, 0, "damage");
        let id = store
            .store(content.request())
            .await
            .expect("it is stored")
            .context_id;
        entries.push((id, content));
    }
    store.close().await;
    (std::fs::read(path).expect("the file"), entries)
}

/// Cuts the file, or damages a page that holds a B-tree. SQLite cannot check overflow pages or the inside of a cell.
fn damage(file: &mut Vec<u8>, random: &mut Random) -> String {
    let pages = file.len() / PAGE;
    if random.chance(15) {
        let remaining = pages / 4 + random.below(pages / 2);
        file.truncate(remaining * PAGE);
        return format!("cut after {remaining} of {pages} pages");
    }
    loop {
        let page = 1 + random.below(pages - 1);
        let bytes = &mut file[page * PAGE..(page + 1) * PAGE];
        if matches!(bytes[0], 2 | 5 | 10 | 13) {
            let how = random.below(3);
            match how {
                0 => bytes.fill(0),
                1 => bytes.fill(0xff),
                _ => {
                    bytes.copy_from_slice(&random.bytes(PAGE));
                    bytes[0] = 0x55;
                }
            }
            return format!(
                "page {} of {pages} {}",
                page + 1,
                ["zeroed", "filled with ones", "filled with noise"][how]
            );
        }
    }
}

fn open(directory: &Path, file: &[u8]) -> Result<Embedded, OpenError> {
    let path = directory.join("contexts.db");
    std::fs::write(&path, file).expect("room for a file");
    Embedded::open(Config::new(path))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_reported_and_nothing_wrong_is_served() {
    let random = Random::new(seed());
    let (file, entries) = undamaged().await;
    let newest: Vec<i64> = entries.iter().rev().take(100).map(|(id, _)| *id).collect();
    let mut reported = 0;
    for round in 0..rounds("CONTEXT_FAULTS_DAMAGES", 25) {
        let mut spoilt = file.clone();
        let what = damage(&mut spoilt, &mut random.part(round as u64));
        let directory = tempfile::tempdir().expect("a directory");
        let store = match open(directory.path(), &spoilt) {
            Ok(store) => store,
            Err(error) => {
                assert!(
                    matches!(error, OpenError::Corrupt { .. }),
                    "{what}: {error:?}"
                );
                reported += 1;
                continue;
            }
        };
        let mut errors = 0;
        for (id, content) in &entries {
            let request = GetContextByIdsRequest {
                context_ids: vec![*id],
                include_images: Some(true),
                min_revision: None,
            };
            match store.get(request).await {
                Ok(reply) => {
                    let found: Vec<Content> = reply.result.into_iter().map(Content::from).collect();
                    assert_eq!(
                        found,
                        std::slice::from_ref(content),
                        "{what}: entry {id} has wrong content"
                    );
                }
                Err(error) => {
                    assert_eq!(
                        error.reason,
                        Reason::StorageCorrupt,
                        "{what}: entry {id}: {error:?}"
                    );
                    errors += 1;
                }
            }
        }
        let lists = store
            .search(SearchContextRequest {
                limit: Some(100),
                ..SearchContextRequest::default()
            })
            .await;
        match lists {
            Ok(page) => {
                let found: Vec<i64> = page.results.iter().map(|hit| hit.id).collect();
                assert_eq!(found, newest, "{what}: the newest entries");
            }
            Err(error) => {
                assert_eq!(error.reason, Reason::StorageCorrupt, "{what}: {error:?}");
                errors += 1;
            }
        }
        reported += usize::from(errors > 0);
        store.close().await;
    }
    eprintln!("{reported} damaged files were reported");
    assert!(reported > 0, "no damaged file was reported");
}

#[tokio::test]
async fn a_service_refuses_to_start_on_a_damaged_header() {
    let (file, _) = undamaged().await;
    for (from, what) in [
        (0, "magic"),
        (16, "page size"),
        (100, "the page of the schema"),
    ] {
        let home = Home::new();
        let mut spoilt = file.clone();
        for byte in &mut spoilt[from..from + 8] {
            *byte ^= 0xa5;
        }
        std::fs::write(home.database(), &spoilt).expect("room for a file");
        let mut service = home.spawn();
        let status = service.ended().await;
        let log = service.log();
        assert!(!status.success(), "{what}: {log}");
        assert!(log.contains("damaged"), "{what}: {log}");
        assert_eq!(
            std::fs::read(home.database()).expect("the file"),
            spoilt,
            "{what}: the file is unchanged"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    for bytes in [
        b"a shopping list".to_vec(),
        vec![0; 3 * PAGE],
        Random::new(1).bytes(5000),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let error = open(directory.path(), &bytes).expect_err("it is no database");
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert_eq!(
            std::fs::read(directory.path().join("contexts.db")).expect("the file"),
            bytes
        );
    }
}
