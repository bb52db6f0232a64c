//! `kill -9` while entries are embedded. Afterwards no entry lacks vectors or has the vectors of another text, and the
//! index after a start equals the content of the database.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use context_faults::audit::{audit, connect};
use context_faults::client::{Client as _, Grpc};
use context_faults::ledger::Ledger;
use context_faults::load::{Load, Signals, nothing_wrong, settle};
use context_model::{Filter, Source, StoreContextRequest};
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{Embedder as _, Role};
use context_store::{
    EmbeddingModel, OwnerId, RankSearch, Read, SemanticSearch, Store as _, VectorStore as _,
};
use context_store_sqlite::{Config, SqliteStore};
use context_test_support::{Home, Random, rounds, seed};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Text};

const WRITERS: usize = 8;

/// A small network with random weights, which the tests of `context-bert` use as reference.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/bert/tests/reference/cross-encoder")
}

fn home() -> Home {
    Home::new()
        .with("EMBEDDING_MODEL_PATH", model())
        .with("RERANK_STORE_TOKENS", "true")
}

#[derive(QueryableByName)]
struct Chunk {
    #[diesel(sql_type = Text)]
    text: String,
    #[diesel(sql_type = BigInt)]
    start_char: i64,
    #[diesel(sql_type = BigInt)]
    end_char: i64,
    #[diesel(sql_type = Binary)]
    vector: Vec<u8>,
    #[diesel(sql_type = Text)]
    model: String,
}

#[derive(QueryableByName)]
struct Counts {
    #[diesel(sql_type = BigInt)]
    entries: i64,
    #[diesel(sql_type = BigInt)]
    embedded: i64,
    #[diesel(sql_type = BigInt)]
    without_tokens: i64,
}

/// Copies the files that a killed process left, so that reading them recovers only the copy.
fn copy(database: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for suffix in ["", "-wal", "-journal"] {
        let from = PathBuf::from(format!("{}{suffix}", database.display()));
        if from.exists() {
            std::fs::copy(from, directory.path().join(format!("contexts.db{suffix}")))
                .expect("room for a copy");
        }
    }
    directory
}

fn chunks(database: &Path) -> Vec<Chunk> {
    diesel::sql_query(
        "SELECT e.text, c.start_char, c.end_char, v.vector, s.model FROM chunks c JOIN vectors v USING (chunk_id) \
         JOIN entries e USING (row_id) JOIN embedding_sets s USING (set_id)",
    )
    .load(&mut connect(database))
    .expect("the vectors can be read")
}

/// The numbers of entries, of entries with vectors of the current set, and of chunks of all models without token
/// vectors.
fn counts(database: &Path) -> Counts {
    diesel::sql_query(
        "SELECT (SELECT count(*) FROM entries) AS entries, (SELECT count(DISTINCT row_id) FROM chunks JOIN embedding_sets USING (set_id) \
         WHERE current = 1) AS embedded, (SELECT count(*) FROM chunks c LEFT JOIN chunk_tokens t USING (owner, row_id, set_id, position) \
         WHERE t.tokens IS NULL) AS without_tokens",
    )
    .get_result(&mut connect(database))
    .expect("the entries can be counted")
}

/// Computes every vector again. Returns a line for each stored vector that differs.
async fn vectors_of_other_texts(chunks: &[Chunk]) -> Vec<String> {
    let directory = ModelDirectory::new(model(), None);
    let embedder = LocalEmbedder::load(&directory, Prefixes::default(), ChunkSettings::default())
        .expect("the model loads");
    let part = |chunk: &Chunk| {
        let length = usize::try_from(chunk.end_char - chunk.start_char).expect("a length");
        chunk
            .text
            .chars()
            .skip(usize::try_from(chunk.start_char).expect("a position"))
            .take(length)
            .collect::<String>()
    };
    let texts: Vec<String> = chunks.iter().map(part).collect();
    let expected = embedder
        .embed(texts, Role::Document)
        .await
        .expect("the texts can be embedded");
    let cosine = |(chunk, expected): (&Chunk, &Vec<f32>)| {
        let stored = chunk
            .vector
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
        stored.zip(expected).map(|(a, b)| a * b).sum::<f32>()
    };
    // Most vectors differ from that of the next chunk. Otherwise the comparison below would prove nothing.
    let next = expected.iter().cycle().skip(1);
    let distinct = chunks
        .iter()
        .zip(next)
        .filter(|pair| cosine((pair.0, pair.1)) < 0.999)
        .count();
    assert!(
        chunks.len() < 10 || distinct * 2 > chunks.len(),
        "only {distinct} of {} vectors differ from that of the next chunk",
        chunks.len()
    );
    let wrong = chunks
        .iter()
        .zip(&expected)
        .filter(|pair| cosine((pair.0, pair.1)) < 0.999);
    wrong
        .map(|(chunk, _)| format!("the vector of another text: {:.60}", chunk.text))
        .collect()
}

/// Opens the database like a start, and compares the index with the stored vectors.
async fn index_equals_the_database(database: &Path) {
    let chunks = chunks(database);
    let counted = counts(database);
    let store = SqliteStore::open(Config::new(database)).expect("the database opens");
    let of = |chunk: &Chunk| EmbeddingModel {
        identity: chunk.model.clone(),
        dimensions: (chunk.vector.len() / 4) as u32,
    };
    let Some(first) = chunks.first() else {
        panic!("no vectors are stored")
    };
    let embedded = store
        .embedded_entries(&OwnerId::default(), &of(first), None)
        .await
        .expect("counted");
    assert_eq!(embedded, counted.embedded, "the index counts the entries");
    for chunk in chunks.iter().step_by(3) {
        let vector = chunk
            .vector
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")))
            .collect();
        let search = RankSearch {
            kind: context_store::DocumentKind::Context,
            fts: None,
            semantic: Some(SemanticSearch {
                model: of(chunk),
                vector,
            }),
            depth: 1,
            exact: 1,
            boundaries: &[],
            explain: false,
        };
        let found = store
            .rank(
                &OwnerId::default(),
                search,
                Filter::default(),
                Read::default(),
            )
            .await
            .expect("the search works");
        assert!(
            found
                .semantic
                .first()
                .is_some_and(|found| found.distance < 1e-3),
            "{:?} of {:.60}",
            found.semantic,
            chunk.text
        );
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_dash_nine_under_writers_leaves_every_entry_with_the_vectors_of_its_text() {
    let random = Random::new(seed());
    let home = home();
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::new).collect();
    let rounds = rounds("CONTEXT_FAULTS_EMBEDDING_KILLS", 6);
    for round in 0..rounds {
        let mut random = random.part(round as u64);
        let mut service = home.start().await;
        nothing_wrong(
            &settle(&Grpc::of(&home), &mut ledgers).await,
            &format!("round {round}, after the start"),
        );
        let signals = Arc::new(Signals::default());
        let load = Load::start(ledgers, &random, &signals, |_| Grpc::of(&home));
        signals.acknowledged(10 + random.below(80), &load).await;
        tokio::time::sleep(Duration::from_micros(random.below(30_000) as u64)).await;
        signals.fault.store(true, Ordering::SeqCst);
        service.kill();
        ledgers = load.finish().await;

        let left = copy(&home.database());
        let left = left.path().join("contexts.db");
        nothing_wrong(&audit(&left), &format!("round {round}, in the files"));
        // The model runs inside the service and is available, so no entry had to wait.
        let Counts {
            entries,
            embedded,
            without_tokens,
        } = counts(&left);
        assert_eq!((embedded, without_tokens), (entries, 0), "round {round}");
        nothing_wrong(
            &vectors_of_other_texts(&chunks(&left)).await,
            &format!("round {round}, in the files"),
        );
    }
    let service = home.start().await;
    nothing_wrong(
        &settle(&Grpc::of(&home), &mut ledgers).await,
        "after the last round",
    );
    assert!(
        service.terminate().await.success(),
        "a service that gets SIGTERM ends with success"
    );
    nothing_wrong(&audit(&home.database()), "after an orderly stop");
    index_equals_the_database(&home.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_dash_nine_in_the_middle_of_a_move_to_another_model_loses_neither_the_old_vectors_nor_the_new_ones()
 {
    const ENTRIES: usize = 800;
    let mut random = Random::new(seed());
    let home = home().with("EMBEDDING_MODEL", "first");
    let mut service = home.start().await;
    let client = Grpc::of(&home);
    for n in 0..ENTRIES {
        let text = format!(
            "entry {n} of thread {}: {}",
            n % 7,
            "agents search the database. ".repeat(1 + n % 5)
        );
        let request = StoreContextRequest {
            thread_id: format!("t{}", n % 7),
            source: Source::User.as_str().to_owned(),
            text,
            ..StoreContextRequest::default()
        };
        client.store(request).await.expect("stored");
    }
    let command = || {
        let mut command = home.command("context-service");
        command
            .arg("reembed")
            .env("EMBEDDING_MODEL", "second")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().expect("the command starts")
    };
    let new_vectors = |database: &Path| {
        chunks(database)
            .iter()
            .filter(|chunk| chunk.model.starts_with("second"))
            .count()
    };
    let (mut before, mut kills_in_the_middle) = (0, 0);
    let mut delay = 10_000.0;
    for round in 0..rounds("CONTEXT_FAULTS_MOVE_KILLS", 30) {
        let mut moving = command();
        tokio::time::sleep(Duration::from_micros(
            delay as u64 + random.below(5_000) as u64,
        ))
        .await;
        // The command is killed first. Without a service it would do the work itself.
        moving.kill().expect("a child");
        service.kill();
        moving.wait().expect("a child");
        let left = copy(&home.database());
        let left = left.path().join("contexts.db");
        nothing_wrong(&audit(&left), &format!("round {round}, in the files"));
        let Counts {
            embedded,
            without_tokens,
            ..
        } = counts(&left);
        assert_eq!(
            embedded, ENTRIES as i64,
            "round {round}: searches had all vectors of one model all the time"
        );
        assert_eq!(without_tokens, 0, "round {round}");
        let now = new_vectors(&left);
        assert!(
            now >= before,
            "round {round}: of {before} new vectors only {now} are left"
        );
        before = now;
        service = home.start().await;
        let statistics = statistics_of(&home).await;
        if statistics.0.is_none() && now >= ENTRIES {
            // The move was finished, and this service uses the other model.
            break;
        }
        assert_eq!(
            statistics,
            (Some("first".to_owned()), ENTRIES as i64),
            "round {round}: searches use the old vectors"
        );
        kills_in_the_middle += usize::from(now > 0);
        if now == 0 {
            // The durations of a start and of the move depend on the machine. The kills come later until they hit the
            // move.
            delay *= 1.2;
        }
    }
    let ended = tokio::task::spawn_blocking({
        let mut moving = command();
        move || moving.wait()
    });
    assert!(
        ended.await.expect("no panic").expect("a child").success(),
        "the move ends"
    );
    eprintln!("{kills_in_the_middle} kills in the middle of the move");
    assert!(
        kills_in_the_middle > 0,
        "no kill hit the middle of the move"
    );
    assert!(
        service.terminate().await.success(),
        "a service that gets SIGTERM ends with success"
    );
    nothing_wrong(&audit(&home.database()), "after an orderly stop");
    assert_eq!(counts(&home.database()).embedded, ENTRIES as i64);
    let current: Vec<Chunk> = chunks(&home.database())
        .into_iter()
        .filter(|chunk| chunk.model.starts_with("second"))
        .collect();
    assert!(current.len() >= ENTRIES);
    nothing_wrong(&vectors_of_other_texts(&current).await, "after the move");
}

/// The model in use, and the number of embedded entries.
async fn statistics_of(home: &Home) -> (Option<String>, i64) {
    let statistics = Grpc::of(home)
        .statistics()
        .await
        .expect("the service responds");
    (
        statistics.semantic_search.model,
        statistics.semantic_search.embedding_count,
    )
}
