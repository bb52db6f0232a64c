//! Artifacts in searches, on each available database, with the small network of the semantic tests.

use context_test_support::{Home, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{program, run};
use crate::semantic::harness::{Database, ids, named, search, with_model};
use crate::service::Service;

/// A document whose last paragraph is far beyond the opening that a result shows.
fn document(last: &str) -> String {
    let filler = "The agenda of this week has no item that anyone remembers.\n\n".repeat(40);
    format!("# Minutes\n\n{filler}{last}")
}

const LAST: &str = "On thursday agents search threads for meaning.";

async fn create(service: &Service, content: &str, metadata: Value) -> String {
    let body = json!({"content": content, "metadata": metadata});
    let created = service.post("/v1/artifacts", body).send().await.json();
    created["id"].as_str().expect("an id").to_owned()
}

/// The results of a hybrid search over artifacts and entries.
async fn found(service: &Service, query: &str) -> Vec<Value> {
    let body = json!({"query": query, "include": ["contexts", "artifacts"], "limit": 3});
    let found = search(service, "hybrid", body).await;
    found["results"].as_array().expect("results").clone()
}

/// Whether the results contain this artifact, with its last paragraph as the snippet. The network has random weights,
/// so the order has no significance.
async fn finds(service: &Service, artifact: &str) -> bool {
    let results = found(service, "agents search threads for meaning").await;
    results.iter().any(|hit| {
        let snippet = hit["snippet"].as_str().unwrap_or_default();
        hit["artifact_id"] == artifact && snippet.contains("thursday")
    })
}

/// The result that is this artifact.
async fn hit(service: &Service, artifact: &str, query: &str) -> Value {
    let results = found(service, query).await;
    let hit = results
        .into_iter()
        .find(|hit| hit["artifact_id"] == artifact);
    hit.expect("it is found")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_only_an_artifact_has_counts_in_a_long_query() {
    for database in Database::all().await {
        let service = database.start(&[]).await;
        let words: Vec<String> = (0..70).map(|n| format!("w{n}")).collect();
        let words = words.join(" ");
        service.store("t", &words).await;
        let artifact = create(&service, "a quokka & a lion", json!({})).await;
        for include in [vec!["contexts", "artifacts"], vec!["artifacts"]] {
            let query = format!("quokka {words}");
            let body = json!({"query": query, "include": include, "search_modes": ["fts"]});
            let found = search(&service, "hybrid", body).await;
            let results = found["results"].as_array().expect("results");
            let has = results.iter().any(|hit| hit["artifact_id"] == artifact);
            assert!(has, "{include:?}: {found}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_paragraph_of_an_artifact_is_found_until_the_artifact_is_deleted() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let entry = service.store("t", "an entry about something else").await;
        let artifact = create(&service, &document(LAST), json!({})).await;
        assert!(finds(&service, &artifact).await);
        let first = hit(&service, &artifact, "agents search threads").await;
        assert_eq!(first["title"], "Minutes");
        assert_eq!(first["is_text_content_truncated"], true);
        assert!(first["scores"]["fts_rank"].is_number());
        assert!(first["scores"]["semantic_rank"].is_number());
        for absent in ["id", "thread_id", "source"] {
            assert!(first.get(absent).is_none(), "{first}");
        }
        let without = search(
            &service,
            "hybrid",
            json!({"query": "agents search threads"}),
        )
        .await;
        // The entry has none of the words, but it is the nearest one.
        assert_eq!(ids(&without), [entry], "{without}");
        let statistics = service.get("/v1/statistics").send().await.json();
        assert_eq!(
            statistics["semantic_search"]["embedding_count"], 1,
            "of entries"
        );
        assert_eq!(statistics["semantic_search"]["pending_count"], 0);

        service.begin_stop();
        service.stopped().await;
        let service = database.start(&with_model()).await;
        assert!(finds(&service, &artifact).await, "after a restart");

        let path = format!("/v1/artifacts/{artifact}");
        let reply = service.delete(&path).send().await;
        assert_eq!(reply.status.as_u16(), 200);
        let results = found(&service, "agents search threads for meaning").await;
        assert_eq!(results.len(), 1, "the entry alone: {results:?}");
        assert_eq!(results[0]["id"], entry, "{results:?}");
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_sees_the_artifact_that_the_last_write_left() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let artifact = create(&service, &document("Nothing yet."), json!({})).await;
        assert!(!finds(&service, &artifact).await);
        let path = format!("/v1/artifacts/{artifact}");
        let edit = json!({"edits": [{"old_str": "Nothing yet.", "new_str": LAST}]});
        let reply = service.patch(&path, edit).send().await;
        assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
        assert!(finds(&service, &artifact).await, "after an edit");
        let title = json!({"title": "tags and metadata"});
        let reply = service.patch(&path, title).send().await;
        assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
        assert!(finds(&service, &artifact).await, "after another title");
        let retitled = hit(&service, &artifact, "tags and metadata").await;
        assert_eq!(retitled["title"], "tags and metadata", "{retitled}");
        let ranks = &retitled["scores"];
        assert!(
            ranks["semantic_rank"].is_number(),
            "it has vectors: {ranks}"
        );
        let restore = service.post(&format!("{path}/versions/1/restore"), json!({}));
        let reply = restore.send().await;
        assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
        assert!(!finds(&service, &artifact).await, "after a restore");
        let restore = service.post(&format!("{path}/versions/2/restore"), json!({}));
        let reply = restore.send().await;
        assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
        assert!(finds(&service, &artifact).await, "after another one");
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ranked_search_of_artifacts_orders_them_and_shows_the_evidence() {
    for database in Database::all().await {
        let service = database.start(&[]).await;
        service.store("t", "agents search threads").await;
        let other = create(
            &service,
            "# Other\n\nthreads of a carpet",
            json!({"team": "a"}),
        )
        .await;
        let artifact = create(&service, &document(LAST), json!({"team": "b"})).await;
        let ranked = async |more: &str| {
            let path =
                format!("/v1/artifacts/search?mode=ranked&query=agents%20search%20threads{more}");
            service.get(&path).send().await.json()
        };
        let reply = ranked("").await;
        let first = &reply["result"][0];
        assert_eq!(first["id"], artifact, "{reply}");
        assert!(
            first["snippet"]
                .as_str()
                .expect("evidence")
                .contains("thursday")
        );
        assert!(first["relevance"].as_f64().expect("a relevance") > 0.3);
        assert_eq!(
            first["relevance_context"],
            "Matched query: 'agents search threads'"
        );
        let narrowed =
            "&metadata_filters=%5B%7B%22key%22%3A%22team%22%2C%22value%22%3A%22a%22%7D%5D";
        let reply = ranked(narrowed).await;
        assert_eq!(reply["result"].as_array().expect("artifacts").len(), 1);
        assert_eq!(reply["result"][0]["id"], other);
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_of_artifacts_with_a_key_for_contexts_is_refused() {
    let database = Database::sqlite();
    let auth = [with_model(), vec!["--auth=keys".to_owned()]].concat();
    let service = database.start(&auth).await;
    let key = service
        .key_with(
            "default",
            &["read", "write"],
            serde_json::from_value(json!({"name": "n", "scopes": ["read"], "only": "contexts"}))
                .expect("a request"),
        )
        .await;
    let including = |kind: &str| {
        service
            .post(
                "/v1/contexts/search/hybrid",
                json!({"query": "x", "include": [kind]}),
            )
            .header("authorization", &format!("Bearer {}", key.text))
            .send()
    };
    let reply = including("artifacts").await;
    assert_eq!(reply.status.as_u16(), 403, "{}", reply.body);
    assert_eq!(reply.reason(), "SCOPE_MISSING", "{}", reply.body);
    let reply = including("contexts").await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_move_to_another_model_with_the_entries() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        let artifact = create(&service, &document(LAST), json!({})).await;
        service.begin_stop();
        service.stopped().await;
        let elsewhere = TempDir::new().expect("a directory");
        let flags = [named("second"), database.flags.clone()].concat();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = crate::service::settings(elsewhere.path(), &flags);
        let sentence = context_service::reembed(&config).await.expect("it moves");
        assert!(sentence.contains("now uses second"), "{sentence}");
        let service = database.start(&named("second")).await;
        assert!(finds(&service, &artifact).await);
        let scores = &hit(&service, &artifact, "agents search threads").await["scores"];
        assert_eq!(scores["semantic_rank"], 1, "{scores}");
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_found_after_a_migration_to_another_database() {
    let from = Database::sqlite();
    let service = from.start(&with_model()).await;
    let artifact = create(&service, &document(LAST), json!({})).await;
    service.begin_stop();
    service.stopped().await;
    let home = &Home::new();
    let source = format!("sqlite://{}", from.flags[1]);
    for to in Database::all().await {
        let target = match to.flags[0].as_str() {
            "--db-path" => format!("sqlite://{}", to.flags[1]),
            _ => to.flags[1]
                .trim_start_matches("--postgresql-connection-string=")
                .to_owned(),
        };
        let mut migration = program(home);
        migration.args(["migrate-data", "--from", &source, "--to", &target]);
        let (code, _, stderr) = run(&mut migration);
        assert_eq!(code, 0, "{stderr}");
        let service = to.start(&with_model()).await;
        assert!(finds(&service, &artifact).await, "by its words at once");
        until("it has vectors again", async || {
            let scores = &hit(&service, &artifact, "agents search threads").await["scores"];
            scores["semantic_rank"].is_number()
        })
        .await;
        service.begin_stop();
        service.stopped().await;
    }
}
