//! Search in texts that are longer than what a search result shows.

use serde_json::{Value, json};

use super::harness::{Database, ids, search, with_model};
use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_long_text_shows_what_matches_beyond_its_opening() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let opening = "We talked about the database and its threads. ".repeat(6);
        let text = format!(
            "{opening}Nobody remembers any of it. The nightly build runs at half past two. {}",
            "Then everybody went home. ".repeat(60)
        );
        let long = service.store("t", &text).await;
        let short = service.store("t", "the nightly build").await;
        let hit = |found: &Value, id: i64| {
            let hits = found["results"].as_array().unwrap().iter();
            hits.clone().find(|hit| hit["id"] == id).unwrap().clone()
        };
        let query = "when does the nightly build run?";
        for (kind, body) in [
            ("hybrid", json!({"query": query})),
            ("hybrid", json!({"query": query, "search_modes": ["fts"]})),
            (
                "hybrid",
                json!({"query": query, "search_modes": ["semantic"]}),
            ),
            ("semantic", json!({"query": query})),
        ] {
            let found = search(&service, kind, body).await;
            let found_long = hit(&found, long);
            let snippet = found_long["snippet"].as_str().unwrap();
            assert!(snippet.contains("runs at half past two."), "{snippet}");
            assert!(snippet.chars().count() <= 300, "{snippet}");
            let shown = found_long["text_content"].as_str().unwrap();
            assert!(
                shown.starts_with("We talked") && shown.len() <= 303,
                "{shown}"
            );
            let found_short = hit(&found, short);
            assert!(found_short.get("snippet").is_none(), "{found_short}");
            assert!(found_short.get("highlighted").is_none(), "{found_short}");
        }
        let body = json!({"query": "what did we say about the database and its threads?"});
        let in_opening = hit(&search(&service, "hybrid", body).await, long);
        assert!(in_opening.get("snippet").is_none(), "{in_opening}");

        for modes in [
            json!(["fts", "semantic"]),
            json!(["fts"]),
            json!(["semantic"]),
        ] {
            let body = json!({"query": query, "search_modes": modes, "highlight": true});
            let found = search(&service, "hybrid", body).await;
            for id in [long, short] {
                let marked = hit(&found, id)["highlighted"].clone();
                let marked = marked.as_str().unwrap();
                assert!(
                    marked.contains("<mark>nightly</mark> <mark>build</mark>"),
                    "{marked}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_found_by_any_part_of_it() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let long = format!(
            "{}\n\nagents search threads for meaning\n\n{}",
            "the database stores tags. ".repeat(60),
            "why did we choose. ".repeat(60)
        );
        let id = service.store("t", &long).await;
        service.store("t", "metadata").await;
        let found = search(
            &service,
            "semantic",
            json!({"query": "why did we choose.", "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), [id]);
    }
}

/// How many sentences a search compared for snippets within its budget, and how many there are.
async fn compared_sentences(service: &Service) -> [usize; 2] {
    let body = json!({"query": "tags", "explain_query": true});
    let found = search(service, "semantic", body).await;
    let plan = found["stats"]["query_plan"].as_array().unwrap();
    let numbers = |line: &str| {
        let line = line.strip_prefix("snippets: ")?;
        let line = line.strip_suffix(" sentences compared")?;
        let (compared, all) = line.split_once(" of ")?;
        Some([compared, all].map(|number| number.parse().unwrap()))
    };
    let counts = plan.iter().filter_map(Value::as_str).find_map(numbers);
    counts.unwrap_or_else(|| panic!("{plan:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentence_is_not_embedded_again_for_the_next_search_also_without_reranking() {
    for database in Database::all().await {
        let own = ["--rerank-budget-ms=1", "--enable-reranking=false"].map(str::to_owned);
        let service = database
            .start(&[&with_model()[..3], &own[..]].concat())
            .await;
        let sentence = |n: usize| format!("the database stores tags {n}.");
        let sentences: Vec<String> = (0..1000).map(sentence).collect();
        service.store("t", &sentences.join(" ")).await;
        let mut before = 0;
        for _ in 0..4 {
            let [compared, all] = compared_sentences(&service).await;
            assert!(
                compared > before || compared == all,
                "{compared} of {all}, before {before}"
            );
            before = compared;
        }
    }
}
