//! Token vectors that are stored for reranking (`--rerank-store-tokens`).

use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Database, TEXTS, model, named, search, start, with_model};
use crate::service::Service;

/// The scores after reranking by id, and the note on which token vectors were stored.
async fn reranked(service: &Service, kind: &str, query: &str) -> (Vec<(i64, f64)>, Option<String>) {
    let found = search(
        service,
        kind,
        json!({"query": query, "limit": 100, "explain_query": true}),
    )
    .await;
    let score = |hit: &Value| {
        (
            hit["id"].as_i64().unwrap(),
            hit["scores"]["rerank_score"].as_f64().unwrap(),
        )
    };
    let plan = found["stats"]["query_plan"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str);
    let note = plan.clone().find_map(|line| {
        line.split_once("; ")
            .filter(|_| line.starts_with("rerank: by late interaction"))
    });
    assert!(
        plan.into_iter().any(|line| line.starts_with("rerank:")),
        "{found}"
    );
    (
        found["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(score)
            .collect(),
        note.map(|(_, note)| note.to_owned()),
    )
}

/// Asserts that both rankings have the same entries with nearly the same scores.
fn assert_same_scores(one: &[(i64, f64)], other: &[(i64, f64)]) {
    assert_eq!(one.len(), other.len());
    for (id, score) in one {
        let found = other
            .iter()
            .find(|(found, _)| found == id)
            .unwrap_or_else(|| panic!("{id} is missing"));
        assert!(
            (found.1 - score).abs() < 0.02,
            "{id}: {score} and {}",
            found.1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_token_vectors_rerank_as_encoding_again_does_and_entries_without_them_are_encoded() {
    for database in Database::all().await {
        let storing = [with_model(), vec!["--rerank-store-tokens=true".to_owned()]].concat();
        let long = format!(
            "{}agents search threads. {}",
            "the database stores tags. ".repeat(60),
            "why did we choose. ".repeat(60)
        );
        let texts = TEXTS
            .iter()
            .map(|text| (*text).to_owned())
            .chain((0..20).map(|n| format!("{} {n}", TEXTS[n % 4])))
            .chain([long]);
        let (first, second): (Vec<_>, Vec<_>) = texts.enumerate().partition(|(n, _)| n % 3 > 0);
        let queries = ["agents and tags", "why did we choose the database?"];

        let service = database.start(&storing).await;
        for (n, text) in &first {
            service.store(&format!("t{}", n % 2), text).await;
        }
        for kind in ["semantic", "hybrid"] {
            let (_, note) = reranked(&service, kind, queries[0]).await;
            assert_eq!(
                note.as_deref(),
                Some("the token vectors of 16 entries were stored, of 0 not"),
                "{kind}"
            );
        }
        service.begin_stop();
        service.stopped().await;

        // With the setting off, token vectors are neither read nor written.
        let service = database.start(&with_model()).await;
        for (n, text) in &second {
            service.store(&format!("t{}", n % 2), text).await;
        }
        let mut encoded = Vec::new();
        for kind in ["semantic", "hybrid"] {
            for query in queries {
                let (scores, note) = reranked(&service, kind, query).await;
                assert_eq!(note, None);
                encoded.push(scores);
            }
        }
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&storing).await;
        let mut encoded = encoded.into_iter();
        for kind in ["semantic", "hybrid"] {
            for query in queries {
                let (scores, note) = reranked(&service, kind, query).await;
                assert_eq!(
                    note.as_deref(),
                    Some("the token vectors of 16 entries were stored, of 9 not"),
                    "{kind}"
                );
                assert_same_scores(&scores, &encoded.next().unwrap());
            }
        }
        let changed = reranked(&service, "semantic", queries[0]).await.0[0].0;
        service
            .patch(
                &format!("/v1/contexts/{changed}"),
                json!({"text": "agents search"}),
            )
            .send()
            .await;
        let (scores, _) = reranked(&service, "semantic", "agents search").await;
        assert_eq!(
            scores[0].0, changed,
            "a changed entry has the token vectors of its new text"
        );
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_very_many_chunks_is_stored_without_token_vectors() {
    for database in Database::all().await {
        let flags = [
            with_model(),
            vec![
                "--rerank-store-tokens=true".to_owned(),
                "--chunk-size=16".to_owned(),
            ],
        ]
        .concat();
        let service = database.start(&flags).await;
        let book = "the database stores tags. ".repeat(400);
        // In one batch, so that mixed-up vectors would be detected.
        let entries: Vec<Value> = [TEXTS[1], &book, TEXTS[2]]
            .iter()
            .map(|text| json!({"thread_id": "t", "source": "user", "text": text}))
            .collect();
        let reply = service
            .post("/v1/contexts/batch", json!({"entries": entries}))
            .send()
            .await;
        assert_eq!(reply.json()["succeeded"], 3, "{}", reply.json());
        for text in [TEXTS[1], TEXTS[2]] {
            let found = search(&service, "semantic", json!({"query": text})).await;
            assert!(
                found["results"][0]["scores"]["semantic_distance"]
                    .as_f64()
                    .unwrap()
                    < 1e-2,
                "{found}"
            );
            assert_eq!(found["results"][0]["text_content"], text);
        }
        let (_, note) = reranked(&service, "semantic", "tags").await;
        assert_eq!(
            note.as_deref(),
            Some("the token vectors of 2 entries were stored, of 1 not")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reembed_without_a_service_stores_token_vectors_only_if_reranking_reads_them() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        service.begin_stop();
        service.stopped().await;

        let storing = "--rerank-store-tokens=true".to_owned();
        let cross_encoder = ["--rerank-model-path".to_owned(), model()];
        for (name, reranker, stored) in [
            ("second", cross_encoder.as_slice(), 0),
            ("third", &[][..], TEXTS.len()),
        ] {
            let elsewhere = TempDir::new().unwrap();
            let flags = [named(name), vec![storing.clone()], database.flags.clone()].concat();
            let moving = [flags.as_slice(), reranker].concat();
            let config = crate::service::settings(
                elsewhere.path(),
                &moving.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            context_service::reembed(&config).await.unwrap();
            let service = start(&flags).await;
            let (_, note) = reranked(&service, "semantic", TEXTS[0]).await;
            let unstored = TEXTS.len() - stored;
            assert_eq!(
                note,
                Some(format!(
                    "the token vectors of {stored} entries were stored, of {unstored} not"
                )),
                "{name}"
            );
            service.begin_stop();
            service.stopped().await;
        }
    }
}
