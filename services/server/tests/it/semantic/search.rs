//! Which entries semantic and hybrid search find, in which order and with which scores.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::harness::{Database, TEXTS, ids, search, until_embedded, with_model};
use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_found_by_meaning_when_the_call_returns() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let mut stored = Vec::new();
        for text in TEXTS {
            stored.push(service.store("t", text).await);
            let found = search(&service, "semantic", json!({"query": text, "limit": 1})).await;
            assert_eq!(ids(&found), stored[stored.len() - 1..]);
            let scores = &found["results"][0]["scores"];
            assert!(
                scores["semantic_distance"].as_f64().unwrap() < 1e-2,
                "{scores}"
            );
            assert!(scores["semantic_rank"].is_null());
        }
        let reply = service
            .patch(
                &format!("/v1/contexts/{}", stored[0]),
                json!({"text": "agents and tags"}),
            )
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), 200);
        let found = search(
            &service,
            "semantic",
            json!({"query": "agents and tags", "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), stored[..1]);
        service
            .delete(&format!("/v1/contexts/{}", stored[0]))
            .send()
            .await;
        let found = search(
            &service,
            "semantic",
            json!({"query": "agents and tags", "explain_query": true}),
        )
        .await;
        assert!(!ids(&found).contains(&stored[0]));
        assert!(!found["stats"]["query_plan"].as_array().unwrap().is_empty());
        let statistics = service.get("/v1/statistics").send().await.json();
        assert_eq!(statistics["semantic_search"]["embedding_count"], 3);
        assert_eq!(statistics["semantic_search"]["coverage_percentage"], 100.0);
        assert_eq!(statistics["semantic_search"]["dimensions"], 48);
        assert_eq!(statistics["reranking"]["enabled"], true);
    }
}

/// On SQLite, fusion uses ranks from estimated distances. The returned distances are exact.
#[tokio::test(flavor = "multi_thread")]
async fn every_returned_distance_is_exact_on_every_page_with_and_without_reranking() {
    for database in Database::all().await {
        for reranking in ["false", "auto"] {
            let mut flags = with_model();
            flags.push(format!("--enable-reranking={reranking}"));
            let service = database.start(&flags).await;
            if reranking == "false" {
                store_300(&service).await;
            }
            let query = "word3 and word9";
            let mut exact = HashMap::new();
            for offset in [0, 100, 200] {
                let page = json!({"query": query, "limit": 100, "offset": offset});
                for (id, distance) in distances(&search(&service, "semantic", page).await) {
                    exact.insert(id, distance);
                }
            }
            assert_eq!(exact.len(), 300);
            for retrievers in [json!(["semantic"]), json!(["fts", "semantic"])] {
                for offset in [0, 100] {
                    let page = json!({"query": query, "limit": 100, "offset": offset, "search_modes": retrievers});
                    let found = search(&service, "hybrid", page).await;
                    assert_eq!(ids(&found).len(), 100);
                    let distances = distances(&found);
                    let expected = if retrievers == json!(["semantic"]) {
                        100..=100
                    } else {
                        1..=100
                    };
                    assert!(expected.contains(&distances.len()), "{found}");
                    for (id, distance) in distances {
                        let expected = exact[&id];
                        assert!(
                            (distance - expected).abs() < 1e-6,
                            "{distance} instead of {expected}"
                        );
                    }
                }
            }
            service.begin_stop();
            service.stopped().await;
        }
    }
}

async fn store_300(service: &Service) {
    for batch in 0..3 {
        let entry = |n: u32| {
            let text = format!("entry {n} has word{} and word{}", n % 7, n * n % 31);
            json!({"thread_id": "t", "source": "user", "text": text})
        };
        let entries: Vec<Value> = (batch * 100..batch * 100 + 100).map(entry).collect();
        let stored = service
            .post("/v1/contexts/batch", json!({"entries": entries}))
            .send()
            .await;
        assert_eq!(stored.json()["succeeded"], 100);
    }
    until_embedded(service, 300).await;
}

/// The id and the distance of each result that has a distance.
fn distances(found: &Value) -> Vec<(i64, f64)> {
    let hits = found["results"].as_array().unwrap().iter();
    let with_distance = |hit: &Value| {
        let distance = hit["scores"]["semantic_distance"].as_f64()?;
        Some((hit["id"].as_i64()?, distance))
    };
    hits.filter_map(with_distance).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_search_fuses_words_and_meaning_by_the_documented_formula() {
    for database in Database::all().await {
        let mut flags = with_model();
        flags.extend(["--enable-reranking".to_owned(), "false".to_owned()]);
        let service = database.start(&flags).await;
        let mut stored = Vec::new();
        for text in TEXTS {
            stored.push(service.store("t", text).await);
        }
        let found = search(
            &service,
            "hybrid",
            json!({"query": "tags and metadata", "rrf_k": 10}),
        )
        .await;
        assert_eq!(found["search_modes_used"], json!(["fts", "semantic"]));
        assert_eq!(found["results"][0]["id"], stored[3]);
        for hit in found["results"].as_array().unwrap() {
            let scores = &hit["scores"];
            let term = |rank: &str| {
                scores[rank]
                    .as_i64()
                    .map_or(0.0, |rank| 1.0 / (10.0 + rank as f64))
            };
            let expected = term("fts_rank") + term("semantic_rank");
            assert!(
                (scores["rrf"].as_f64().unwrap() - expected).abs() < 1e-12,
                "{scores}"
            );
            assert!(scores["rerank_score"].is_null());
        }
        let only = search(
            &service,
            "hybrid",
            json!({"query": "tags", "search_modes": ["semantic"]}),
        )
        .await;
        assert_eq!(
            (&only["search_modes_used"], &only["fts_count"]),
            (&json!(["semantic"]), &json!(0))
        );
        // Such a query contains no word for full-text search, so only semantic search can run.
        let wordless = search(&service, "hybrid", json!({"query": "?"})).await;
        assert_eq!(wordless["search_modes_used"], json!(["semantic"]));
        let nothing = search(
            &service,
            "hybrid",
            json!({"query": "!?", "search_modes": ["fts"]}),
        )
        .await;
        assert_eq!(
            (&nothing["search_modes_used"], &nothing["results"]),
            (&json!([]), &json!([]))
        );
        let convex = search(
            &service,
            "hybrid",
            json!({"query": "tags and metadata", "fusion_method": "convex"}),
        )
        .await;
        assert_eq!(convex["fusion_method"], "convex");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_ranked_results_neither_repeat_nor_skip_with_and_without_reranking() {
    let (with, without) = (Database::all().await, Database::all().await);
    for (reranking, database) in with
        .iter()
        .map(|database| ("true", database))
        .chain(without.iter().map(|database| ("false", database)))
    {
        let mut flags = with_model();
        flags.extend(["--enable-reranking".to_owned(), reranking.to_owned()]);
        let service = database.start(&flags).await;
        let words = [
            "database", "context", "tags", "metadata", "agents", "threads", "service",
        ];
        // More than are reranked.
        for n in 0..120 {
            let text = format!(
                "{} {} {}",
                words[n % 7],
                words[n / 7 % 7],
                words[(n * 5 + 3) % 7]
            );
            service.store(&format!("t{n}"), &text).await;
        }
        for kind in ["semantic", "hybrid"] {
            let page = async |offset: usize, limit: usize| {
                let page = json!({"query": "database agents", "limit": limit, "offset": offset});
                ids(&search(&service, kind, page).await)
            };
            let whole = [page(0, 100).await, page(100, 100).await].concat();
            let distinct: HashSet<i64> = whole.iter().copied().collect();
            assert_eq!((whole.len(), distinct.len()), (120, 120), "{kind}");
            let mut paged = Vec::new();
            for offset in (0..120).step_by(9) {
                paged.extend(page(offset, 9).await);
            }
            assert_eq!(paged, whole, "{kind}, reranking {reranking}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_narrows_what_is_near_without_starving_it() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for n in 0..30 {
            service
                .store(
                    "many",
                    &format!("the database {}", "tags ".repeat(n % 5 + 1)),
                )
                .await;
        }
        let other = service.store("other", "agents search threads").await;
        for kind in ["semantic", "hybrid"] {
            let found = search(
                &service,
                kind,
                json!({"query": "the database tags", "thread_id": "other"}),
            )
            .await;
            assert_eq!(ids(&found), [other], "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_give_the_same_distances_and_the_same_order() {
    let Some(server) = Database::postgres().await else {
        return;
    };
    let mut results = Vec::new();
    for database in [Database::sqlite(), server] {
        let service = database.start(&with_model()).await;
        let words = [
            "database", "context", "tags", "metadata", "agents", "threads", "service",
        ];
        for n in 0..40 {
            let text = format!(
                "{} {} {}",
                words[n % 7],
                words[n / 7 % 7],
                words[(n * 5 + 3) % 7]
            );
            service
                .store(&format!("t{}", n % 3), &text.repeat(1 + n % 4))
                .await;
        }
        let mut found = Vec::new();
        for query in ["database agents", "why tags", "threads of the service"] {
            for filter in [json!({}), json!({"thread_id": "t1"})] {
                let mut body = json!({"query": query, "limit": 20});
                body.as_object_mut()
                    .unwrap()
                    .extend(filter.as_object().unwrap().clone());
                let hits = search(&service, "semantic", body).await;
                assert!(ids(&hits).len() > 10, "{hits}");
                let distance = |hit: &Value| {
                    (hit["scores"]["semantic_distance"].as_f64().unwrap() * 1e4).round() as i64
                };
                found.push((
                    ids(&hits),
                    hits["results"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(distance)
                        .collect::<Vec<_>>(),
                ));
            }
        }
        results.push(found);
    }
    assert_eq!(results[0], results[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_service_embeds_another_one_finds_at_once() {
    let Some(database) = Database::postgres().await else {
        return;
    };
    let services = [
        database.start(&with_model()).await,
        database.start(&with_model()).await,
    ];
    for (n, text) in TEXTS.iter().enumerate() {
        let id = services[n % 2].store("t", text).await;
        let found = search(
            &services[1 - n % 2],
            "semantic",
            json!({"query": text, "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), [id]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_the_model_cannot_read_is_searched_by_its_words_alone() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for text in ["the database stores tags", "a zebra with stripes"] {
            let entry = json!({"thread_id": "t", "source": "user", "text": text});
            let stored = service.post("/v1/contexts", entry).send().await;
            assert_eq!(stored.status.as_u16(), 201);
        }
        // The network of the tests knows 40 words.
        let found = search(
            &service,
            "hybrid",
            json!({"query": "zebra stripes", "explain_query": true}),
        )
        .await;
        assert_eq!(found["search_modes_used"], json!(["fts"]), "{found}");
        assert_eq!(found["results"][0]["text_content"], "a zebra with stripes");
        assert!(
            found["results"][0]["relevance"].as_f64().unwrap() > 0.9,
            "{found}"
        );
        let plan = found["stats"]["query_plan"].to_string();
        assert!(
            plan.contains("semantic: left out, because the model"),
            "{plan}"
        );
        assert!(!plan.contains("late interaction"), "{plan}");
        let both = search(&service, "hybrid", json!({"query": "tags database"})).await;
        assert_eq!(
            both["search_modes_used"],
            json!(["fts", "semantic"]),
            "{both}"
        );
        let request =
            json!({"query": "zebra stripes", "search_modes": ["fts"], "explain_query": true});
        let words = search(&service, "hybrid", request).await;
        let plan = words["stats"]["query_plan"].to_string();
        assert!(
            !plan.contains("late interaction") && !plan.contains("semantic: left out"),
            "{plan}"
        );
        let request = json!({"query": "zebra stripes", "search_modes": ["semantic"]});
        let alone = search(&service, "hybrid", request).await;
        assert_eq!(alone["search_modes_used"], json!(["semantic"]), "{alone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn symbols_that_the_model_does_not_know_find_nothing_relevant() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        let request = json!({"query": "🚀 🎉!", "explain_query": true});
        let found = search(&service, "hybrid", request).await;
        assert_eq!(
            (&found["search_modes_used"], &found["results"]),
            (&json!([]), &json!([])),
            "{found}"
        );
        let plan = found["stats"]["query_plan"].to_string();
        assert!(
            plan.contains("semantic: left out, because the model"),
            "{plan}"
        );
        let alone = search(&service, "semantic", json!({"query": "🚀 🎉!"})).await;
        let relevance = alone["results"][0]["relevance"].as_f64().unwrap();
        assert!(relevance < 0.1, "{alone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn min_relevance_drops_what_is_not_about_the_query_and_a_warning_says_so() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for text in ["the database stores tags", "agents search threads"] {
            let entry = json!({"thread_id": "t", "source": "user", "text": text});
            let stored = service.post("/v1/contexts", entry).send().await;
            assert_eq!(stored.status.as_u16(), 201);
        }
        for kind in ["semantic", "hybrid"] {
            let found = search(&service, kind, json!({"query": "the database tags"})).await;
            assert_eq!(found["count"], 2, "{found}");
            assert!(found["warnings"].is_null(), "{found}");
            let floor = json!({"query": "the database tags", "min_relevance": 0.3});
            let found = search(&service, kind, floor).await;
            assert_eq!(found["count"], 1, "{found}");
            assert_eq!(
                found["results"][0]["text_content"],
                "the database stores tags"
            );

            let found = search(&service, kind, json!({"query": "metadata meaning"})).await;
            let warnings = found["warnings"].to_string();
            assert!(warnings.contains("no entry is clearly relevant"), "{found}");
            let scores = &found["results"][0]["scores"];
            assert!(scores["rerank_score"].as_f64().unwrap() < 0.3, "{found}");
            let floor = json!({"query": "metadata meaning", "min_relevance": 0.3});
            let found = search(&service, kind, floor).await;
            assert_eq!(found["results"], json!([]), "{found}");
            let warnings = found["warnings"].to_string();
            assert!(
                warnings.contains("no entry has a relevance of at least 0.3"),
                "{found}"
            );
        }
    }
}
