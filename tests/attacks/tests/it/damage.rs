//! Damaged disks: what is still served from a damaged database file, and what `context-service verify` reports.

use std::process::Output;
use std::time::Duration;

use context_attacks::client;
use context_test_support::{Home, Process, wait_for};
use serde_json::{Value, json};

const PAGE: usize = 4096;
/// How long a request may take.
const REPLY_WITHIN: Duration = Duration::from_secs(30);

/// A stored entry and the complete response of a get.
struct Stored {
    path: String,
    body: Value,
}

/// An undamaged database file and its content.
struct Undamaged {
    file: Vec<u8>,
    stored: Vec<Stored>,
    /// The ids of the entries with a small text, a large text, and images.
    small: i64,
    large: i64,
    images: i64,
    artifact: String,
}

async fn post(service: &Process, path: &str, body: &Value) -> Value {
    let request = client(REPLY_WITHIN)
        .post(format!("http://{}{path}", service.address()))
        .json(body);
    let reply = request.send().await.expect("a reply");
    let status = reply.status();
    let body = reply.text().await.expect("a body");
    assert!(status.is_success(), "{path}: {status} {body}");
    serde_json::from_str(&body).expect("JSON")
}

async fn get(service: &Process, path: &str) -> (u16, Value) {
    let reply = client(REPLY_WITHIN)
        .get(format!("http://{}{path}", service.address()))
        .send()
        .await
        .expect("a reply");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

/// Text whose lines all differ, so that every position in it can be found.
fn lines(name: &str, count: usize) -> String {
    (0..count)
        .map(|line| format!("{name} LINE {line:06}\n"))
        .collect()
}

async fn undamaged() -> Undamaged {
    let home = Home::new();
    let service = home.start().await;
    let store = async |text: &str, images: Value| {
        let body = json!({"thread_id": "t", "source": "user", "text": text, "metadata": {"kind": "MARKED-METADATA"}, "images": images});
        post(&service, "/v1/contexts", &body).await["context_id"]
            .as_i64()
            .expect("an id")
    };
    let small = store("a SMALL-TEXT of one line", json!([])).await;
    let large = store(&lines("LARGE", 3_000), json!([])).await;
    let data = base64(lines("IMAGE", 2_000).as_bytes());
    let images = store(
        "a text with an IMAGE-BESIDE it",
        json!([{"data": data, "mime_type": "image/png"}]),
    )
    .await;
    let mut ids = vec![small, large, images];
    for filler in 0..60 {
        ids.push(store(&lines(&format!("FILLER-{filler:02}"), 20), json!([])).await);
    }
    let new = json!({"title": "MARKED-TITLE", "content": lines("FIRST-VERSION", 10)});
    let artifact = post(&service, "/v1/artifacts", &new).await["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let request = client(REPLY_WITHIN).patch(format!(
        "http://{}/v1/artifacts/{artifact}",
        service.address()
    ));
    let changed = request
        .json(&json!({"content": lines("SECOND-VERSION", 600)}))
        .send()
        .await
        .expect("a reply");
    assert!(changed.status().is_success(), "{changed:?}");
    let mut paths: Vec<String> = ids.iter().map(|id| format!("/v1/contexts/{id}")).collect();
    paths.push(format!("/v1/artifacts/{artifact}"));
    paths.extend([1, 2].map(|version| format!("/v1/artifacts/{artifact}/versions/{version}")));
    let mut stored = Vec::new();
    for path in paths {
        let (status, body) = get(&service, &path).await;
        assert_eq!(status, 200, "{path}: {body}");
        stored.push(Stored { path, body });
    }
    assert!(service.terminate().await.success());
    assert!(
        !home.path().join("contexts.db-wal").exists(),
        "everything is in the file"
    );
    Undamaged {
        file: std::fs::read(home.database()).expect("the file"),
        stored,
        small,
        large,
        images,
        artifact,
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .chain([&0; 2])
            .take(3)
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let digits = (0..4).map(|at| {
            if at <= chunk.len() {
                char::from(DIGITS[bits >> (18 - 6 * at) & 63])
            } else {
                '='
            }
        });
        text.extend(digits);
    }
    text
}

/// All positions of these bytes. SQLite may have left a copy of bytes that it moved.
fn positions(file: &[u8], bytes: &[u8]) -> Vec<usize> {
    let found: Vec<usize> = file
        .windows(bytes.len())
        .enumerate()
        .filter(|(_, window)| *window == bytes)
        .map(|(at, _)| at)
        .collect();
    assert!(
        !found.is_empty(),
        "{} is in the file",
        String::from_utf8_lossy(bytes)
    );
    found
}

/// Flips the bits of `mask` in the byte at this offset of every occurrence of these bytes.
fn flip(file: &mut [u8], bytes: &[u8], offset: usize, mask: u8) {
    positions(file, bytes)
        .into_iter()
        .for_each(|at| file[at + offset] ^= mask);
}

/// Zeroes the pages that contain these bytes.
fn zero(file: &mut [u8], bytes: &[u8]) {
    positions(file, bytes)
        .into_iter()
        .for_each(|at| file[at / PAGE * PAGE..(at / PAGE + 1) * PAGE].fill(0));
}

/// The positions of the leaf pages of all indexes. Their first byte is 10 (<https://sqlite.org/fileformat2.html>, section
/// 1.6).
fn index_leaves(file: &[u8]) -> Vec<usize> {
    file.chunks_exact(PAGE)
        .enumerate()
        .skip(1)
        .filter(|(_, page)| page[0] == 10)
        .map(|(at, _)| at * PAGE)
        .collect()
}

fn verify(home: &Home) -> (i32, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = home
        .command("context-service")
        .arg("verify")
        .output()
        .expect("the command runs");
    let report = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    (status.code().expect("it ends by itself"), report)
}

/// Starts a service on the database file of `home`. `None` if it refuses the file.
async fn start(home: &Home) -> Option<Process> {
    let mut service = home.spawn();
    wait_for("the service ends or is ready", || {
        (!service.is_running() || service.log().contains("is ready")).then_some(())
    })
    .await;
    if service.is_running() {
        return Some(service);
    }
    let log = service.log();
    assert!(
        log.contains("is damaged") || log.contains("cannot be opened"),
        "{log}"
    );
    None
}

/// Asserts that every reply that succeeds equals what was stored. Returns the paths of the gets that failed.
async fn refused_paths(service: &Process, undamaged: &Undamaged, what: &str) -> Vec<String> {
    let mut refused = Vec::new();
    for Stored { path, body } in &undamaged.stored {
        let (status, mut found) = get(service, path).await;
        if status == 200 {
            let mut body = body.clone();
            // The revision is the owner's, not content of the entry.
            for value in [&mut found, &mut body] {
                value.as_object_mut().expect("an object").remove("revision");
            }
            assert_eq!(found, body, "{what}: {path} is served with changed content");
        } else {
            // SQLite trusts an index. A row that the index no longer references is not found, which only `verify` can
            // detect.
            let is_hidden = status == 404 && what.contains("index");
            let is_refused = (status, &found["reason"]) == (500, &json!("STORAGE_CORRUPT"));
            assert!(is_refused || is_hidden, "{what}: {path}: {status} {found}");
            refused.push(path.clone());
        }
    }
    // Search results contain the metadata and short texts, which must not differ either.
    let request = client(REPLY_WITHIN)
        .post(format!("http://{}/v1/contexts/search", service.address()))
        .json(&json!({"limit": 100}));
    let reply = request.send().await.expect("a reply");
    let status = reply.status().as_u16();
    let reply: Value = reply.json().await.expect("JSON");
    if status != 200 {
        assert_eq!(
            (status, &reply["reason"]),
            (500, &json!("STORAGE_CORRUPT")),
            "{what}: a search: {reply}"
        );
        return refused;
    }
    for hit in reply["results"].as_array().expect("results") {
        let path = format!("/v1/contexts/{}", hit["id"]);
        let stored = undamaged
            .stored
            .iter()
            .find(|stored| stored.path == path)
            .expect("it was stored");
        assert_eq!(hit["metadata"], stored.body["metadata"], "{what}: {path}");
        if hit["is_text_content_truncated"] == false {
            assert_eq!(
                hit["text_content"], stored.body["text_content"],
                "{what}: {path}"
            );
        }
    }
    refused
}

type Damage<'d> = (&'static str, Box<dyn Fn(&mut Vec<u8>) + 'd>, Vec<String>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_changed_content_of_a_damaged_file_is_served_as_good_and_verify_names_the_rows() {
    let undamaged = undamaged().await;
    let (small, large) = (
        format!("context {}: text", undamaged.small),
        format!("context {}: text", undamaged.large),
    );
    let image = format!("context {}, image 0: image", undamaged.images);
    let version = |number: i64, field: &str| {
        format!("artifact {}, version {number}: {field}", undamaged.artifact)
    };
    let damages: Vec<Damage<'_>> = vec![
        (
            "a bit of a small text",
            Box::new(|file| flip(file, b"a SMALL-TEXT", 3, 1)),
            vec![small.clone()],
        ),
        (
            "a bit that makes the text invalid UTF-8",
            Box::new(|file| flip(file, b"a SMALL-TEXT", 3, 0x80)),
            vec![small.clone()],
        ),
        (
            "a byte of the text that becomes NUL",
            Box::new(|file| flip(file, b"a SMALL-TEXT", 2, b'S')),
            vec![small.clone()],
        ),
        (
            "the checksum of a small text",
            Box::new(|file| flip(file, b"a SMALL-TEXT of one line", 24 + 12, 1)),
            vec![format!("context {}: checksum", undamaged.small)],
        ),
        (
            "a bit within a large text",
            Box::new(|file| flip(file, b"LARGE LINE 001500", 0, 2)),
            vec![large.clone()],
        ),
        (
            "a bit at the end of a large text",
            Box::new(|file| flip(file, b"LARGE LINE 002999", 16, 1)),
            vec![large.clone()],
        ),
        (
            "a zeroed page within a large text",
            Box::new(|file| zero(file, b"LARGE LINE 001500")),
            vec![format!("context {}", undamaged.large)],
        ),
        (
            "the zeroed page of the end of a large text",
            Box::new(|file| zero(file, b"LARGE LINE 002999")),
            vec![format!("context {}", undamaged.large)],
        ),
        (
            "a bit of all metadata",
            Box::new(|file| flip(file, b"{\"kind\":\"MARKED-METADATA\"}", 10, 1)),
            vec![
                format!("context {}: metadata", undamaged.small),
                format!("context {}: metadata", undamaged.images),
            ],
        ),
        (
            "a brace of all metadata",
            Box::new(|file| flip(file, b"{\"kind\":\"MARKED-METADATA\"}", 0, 4)),
            vec![format!("context {}: metadata", undamaged.small)],
        ),
        (
            "a bit of an image",
            Box::new(|file| flip(file, b"IMAGE LINE 001000", 0, 1)),
            vec![image.clone()],
        ),
        (
            "a zeroed page of an image",
            Box::new(|file| zero(file, b"IMAGE LINE 001000")),
            vec!["images cannot be read".to_owned()],
        ),
        (
            "the type of an image",
            Box::new(|file| flip(file, b"image/png", 8, 1)),
            vec![image.clone()],
        ),
        (
            "a bit of the current version",
            Box::new(|file| flip(file, b"SECOND-VERSION LINE 000300", 0, 1)),
            vec![version(2, "content")],
        ),
        (
            "a zeroed page of the current version",
            Box::new(|file| zero(file, b"SECOND-VERSION LINE 000300")),
            vec![version(2, "").replace(": ", "")],
        ),
        (
            "a bit of an earlier version",
            Box::new(|file| flip(file, b"FIRST-VERSION LINE 000005", 0, 1)),
            vec![version(1, "content")],
        ),
        (
            "a bit of a title",
            Box::new(|file| flip(file, b"MARKED-TITLE", 0, 2)),
            vec![version(1, "title"), version(2, "title")],
        ),
        (
            "a zeroed page of entries",
            Box::new(|file| zero(file, b"FILLER-30 LINE 000001")),
            vec!["cannot be read".to_owned()],
        ),
        (
            "zeroed pages of all indexes",
            Box::new(|file| {
                for at in index_leaves(file) {
                    file[at..at + PAGE].fill(0);
                }
            }),
            vec!["damaged: structure".to_owned()],
        ),
        (
            "a bit in each page of the indexes",
            Box::new(|file| {
                for at in index_leaves(file) {
                    file[at + PAGE - 3] ^= 4;
                }
            }),
            vec!["damaged: structure".to_owned()],
        ),
    ];
    assert_eq!(damages.len(), 20);
    let mut served = 0;
    for (what, damage, named) in damages {
        let home = Home::new();
        let mut file = undamaged.file.clone();
        damage(&mut file);
        std::fs::write(home.database(), &file).expect("room for a file");
        let (code, report) = verify(&home);
        assert_eq!(code, 1, "{what}: {report}");
        for name in named {
            assert!(
                report.contains(&name),
                "{what}: {name} is not named in {report}"
            );
        }
        assert_eq!(
            std::fs::read(home.database()).expect("the file"),
            file,
            "{what}: verify changes nothing"
        );
        let Some(service) = start(&home).await else {
            continue;
        };
        refused_paths(&service, &undamaged, what).await;
        served += 1;
    }
    // A service may refuse a file whose structure is damaged, but not the files with damaged rows.
    assert!(served >= 10, "only {served} damaged files were served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_gives_an_older_state_and_no_changed_content() {
    let home = Home::new();
    let mut service = home.start().await;
    let body = json!({"thread_id": "t", "source": "user", "text": lines("VERSION-0", 40)});
    let id = post(&service, "/v1/contexts", &body).await["context_id"]
        .as_i64()
        .expect("an id");
    let mut texts = vec![lines("VERSION-0", 40)];
    for version in 1..20 {
        let text = lines(&format!("VERSION-{version}"), 40);
        let request = client(REPLY_WITHIN)
            .patch(format!("http://{}/v1/contexts/{id}", service.address()))
            .json(&json!({"text": text}));
        assert!(request.send().await.expect("a reply").status().is_success());
        texts.push(text);
    }
    service.kill();
    let log_path = |home: &Home| home.path().join("contexts.db-wal");
    let (file, log) = (
        std::fs::read(home.database()).expect("the file"),
        std::fs::read(log_path(&home)).expect("a log"),
    );
    assert!(log.len() > 20 * PAGE, "the updates are in the log");
    type Damage<'d> = (&'d str, &'d dyn Fn(&mut Vec<u8>));
    let damages: [Damage<'_>; 4] = [
        ("a bit in the middle", &|log| {
            let at = log.len() / 2;
            log[at] ^= 1;
        }),
        ("a zeroed page", &|log| {
            let at = log.len() / 3;
            log[at..at + PAGE].fill(0);
        }),
        ("the end is missing", &|log| {
            log.truncate(log.len() * 2 / 3 + 100)
        }),
        ("a bit of every text", &|log| {
            flip(log, b" LINE 000020", 1, 1)
        }),
    ];
    let mut older = Vec::new();
    for (what, damage) in damages {
        let home = Home::new();
        let mut log = log.clone();
        damage(&mut log);
        std::fs::write(home.database(), &file).expect("room for a file");
        std::fs::write(log_path(&home), &log).expect("room for a log");
        let Some(service) = start(&home).await else {
            continue;
        };
        let (status, found) = get(&service, &format!("/v1/contexts/{id}")).await;
        match status {
            200 => {
                let text = found["text_content"].as_str().expect("a text");
                assert!(
                    texts.iter().any(|stored| stored == text),
                    "{what}: {text} was never stored"
                );
                if texts.last().is_some_and(|last| last != text) {
                    older.push(what);
                }
            }
            // The log begins with the entry, and may also contain the schema.
            404 => {}
            _ => assert_eq!(found["reason"], "STORAGE_CORRUPT", "{what}: {found}"),
        }
    }
    assert!(!older.is_empty(), "no older state was served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_refused_alone_and_counted_where_an_operator_sees_it() {
    let undamaged = undamaged().await;
    let home = Home::new();
    let mut file = undamaged.file.clone();
    flip(&mut file, b"a SMALL-TEXT", 3, 1);
    std::fs::write(home.database(), &file).expect("room for a file");
    let service = start(&home).await.expect("the service starts");
    let refused = refused_paths(&service, &undamaged, "a small text").await;
    assert_eq!(refused, [format!("/v1/contexts/{}", undamaged.small)]);
    let all = post(&service, "/v1/contexts/search", &json!({"limit": 100})).await;
    let entries = undamaged
        .stored
        .iter()
        .filter(|stored| stored.path.starts_with("/v1/contexts/"));
    assert_eq!(
        all["results"].as_array().expect("results").len(),
        entries.count() - 1,
        "a list leaves out the damaged entry alone"
    );
    // The full-text index still has the words of the entry.
    let found = post(
        &service,
        "/v1/contexts/search/fts",
        &json!({"query": "SMALL"}),
    )
    .await;
    let warning = found["warnings"][0].as_str().unwrap_or_default();
    let is_hit = found["results"]
        .as_array()
        .expect("results")
        .iter()
        .any(|hit| hit["id"] == undamaged.small);
    assert!(
        !is_hit && warning.starts_with(&format!("context {} is left out", undamaged.small)),
        "{found}"
    );
    let (status, several) = get(
        &service,
        &format!("/v1/contexts?ids={},{}", undamaged.small, undamaged.large),
    )
    .await;
    assert_eq!(
        (status, &several["reason"]),
        (500, &json!("STORAGE_CORRUPT")),
        "a batch does not hide it: {several}"
    );
    let detail = several["detail"].as_str().expect("a sentence");
    assert!(
        detail.contains(&format!("context {}", undamaged.small))
            && !detail.contains(&format!("context {}", undamaged.large)),
        "{detail}"
    );
    let ready = client(REPLY_WITHIN)
        .get(format!("http://{}/readyz", service.address()))
        .send()
        .await
        .expect("a reply");
    assert_eq!(ready.status(), 200, "one row does not stop the service");
    let metrics = client(REPLY_WITHIN)
        .get(format!("http://{}/metrics", service.address()))
        .send()
        .await
        .expect("a reply")
        .text()
        .await
        .expect("text");
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("context_damaged_rows_refused "))
        .expect("the metric");
    assert!(count.parse::<u64>().expect("a number") >= 2, "{count}");
    let doctor = home
        .command("context-service")
        .arg("doctor")
        .output()
        .expect("the command runs");
    let page = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        !doctor.status.success() && page.contains("damaged rows were refused"),
        "{page}"
    );
    let (code, report) = verify(&home);
    assert_eq!(code, 1, "verify works beside the service: {report}");
    assert!(
        report.contains(&format!("context {}: text", undamaged.small)),
        "{report}"
    );
    let deleted = client(REPLY_WITHIN)
        .delete(format!(
            "http://{}/v1/contexts/{}",
            service.address(),
            undamaged.small
        ))
        .send()
        .await
        .expect("a reply");
    assert_eq!(deleted.status(), 200, "what is damaged can be deleted");
    assert_eq!(verify(&home).0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structural_damage_stops_writes_until_an_operator_acts() {
    let undamaged = undamaged().await;
    let home = Home::new();
    let mut file = undamaged.file.clone();
    zero(&mut file, b"FILLER-30 LINE 000001");
    std::fs::write(home.database(), &file).expect("room for a file");
    let service = start(&home).await.expect("the service starts");
    let refused = refused_paths(&service, &undamaged, "a zeroed page").await;
    assert!(!refused.is_empty() && refused.len() < 40, "{refused:?}");
    let write = json!({"thread_id": "t", "source": "user", "text": "after the damage"});
    let reply = client(REPLY_WITHIN)
        .post(format!("http://{}/v1/contexts", service.address()))
        .json(&write)
        .send()
        .await
        .expect("a reply");
    let (status, problem) = (
        reply.status().as_u16(),
        reply.json::<Value>().await.expect("JSON"),
    );
    assert_eq!(
        (status, &problem["reason"]),
        (500, &json!("STORAGE_CORRUPT")),
        "{problem}"
    );
    assert!(
        problem["detail"]
            .as_str()
            .expect("a sentence")
            .contains("restart the service"),
        "{problem}"
    );
    let (status, _) = get(&service, &format!("/v1/contexts/{}", undamaged.small)).await;
    assert_eq!(status, 200, "undamaged entries are still read");
    let ready = client(REPLY_WITHIN)
        .get(format!("http://{}/readyz", service.address()))
        .send()
        .await
        .expect("a reply");
    assert_eq!(ready.status(), 503);
    let doctor = home
        .command("context-service")
        .arg("doctor")
        .output()
        .expect("the command runs");
    let page = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        !doctor.status.success()
            && page.contains("writes are rejected because the database reported damage"),
        "{page}"
    );
    assert!(service.terminate().await.success());
    assert_repaired(&home, &undamaged).await;
}

/// Asserts that writes work again after a restart on an undamaged file.
async fn assert_repaired(home: &Home, undamaged: &Undamaged) {
    for file in ["contexts.db-wal", "contexts.db-shm"] {
        let _ = std::fs::remove_file(home.path().join(file));
    }
    std::fs::write(home.database(), &undamaged.file).expect("room for a file");
    assert_eq!(verify(home).0, 0);
    let service = start(home).await.expect("the service starts");
    let refused = refused_paths(&service, undamaged, "the undamaged file").await;
    assert_eq!(refused, Vec::<String>::new());
    post(
        &service,
        "/v1/contexts",
        &json!({"thread_id": "t", "source": "user", "text": "after the repair"}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_names_the_damaged_rows_of_a_postgresql_database() {
    let Some(database) = context_test_postgres::TestDatabase::empty().await else {
        return;
    };
    let home = Home::new()
        .with("STORAGE_BACKEND", "postgresql")
        .with("POSTGRESQL_CONNECTION_STRING", database.url());
    let service = home.start().await;
    let mut ids = Vec::new();
    for text in ["one", "two", "three", "four"] {
        let data = base64(text.as_bytes());
        let body =
            json!({"thread_id": "t", "source": "user", "text": text, "images": [{"data": data}]});
        ids.push(
            post(&service, "/v1/contexts", &body).await["context_id"]
                .as_i64()
                .expect("an id"),
        );
    }
    let (code, report) = verify(&home);
    assert_eq!(code, 0, "{report}");
    let client = database.connect().await;
    // Gets of this one are not refused: the service does not look for images that the row does not count.
    let four = ids.pop().expect("four ids");
    let damage = format!(
        "UPDATE context.entries SET text = 'ONE' WHERE id = {}; UPDATE context.images SET data = '\\x00' WHERE id = {}; \
         DELETE FROM context.images WHERE id = {}; UPDATE context.entries SET image_count = 0 WHERE id = {four}",
        ids[0], ids[1], ids[2]
    );
    client
        .batch_execute(&damage)
        .await
        .expect("the rows are changed");
    let (code, report) = verify(&home);
    assert_eq!(code, 1, "{report}");
    let [one, two, three] = [ids[0], ids[1], ids[2]];
    for named in [
        format!("context {one}: text"),
        format!("context {two}, image 0: image"),
        format!("context {three}: images"),
        format!("context {four}: images"),
    ] {
        assert!(
            report.contains(&format!("damaged: owner default: {named}")),
            "{named}: {report}"
        );
    }
    for id in ids {
        let (status, problem) = get(&service, &format!("/v1/contexts/{id}")).await;
        assert_eq!(
            (status, &problem["reason"]),
            (500, &json!("STORAGE_CORRUPT")),
            "{problem}"
        );
    }
}
