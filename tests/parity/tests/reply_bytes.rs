//! How many bytes typical replies on MCP take. An agent pays for each of them. This test checks bounds of some of them
//! and prints the numbers of the column "now" of the table in docs/gateway.md:
//! `cargo nextest run -p context-parity --test reply_bytes --no-capture`.

#![expect(clippy::print_stdout, reason = "it prints the table")]

use context_parity::Client;
use serde_json::{Value, json};

/// Number of threads in the store.
const THREADS: usize = 1_000;

/// A client whose replies are measured.
struct Measured {
    client: Client,
}

impl Measured {
    /// Calls a tool, and prints how many bytes of text the reply has. Returns the text.
    async fn row(&mut self, what: &str, tool: &str, arguments: Value) -> String {
        let text = self.client.text(tool, &arguments).await;
        println!("| `{tool}` | {what} | {} |", text.len());
        text
    }
}

fn long_text(n: usize) -> String {
    let about = ["billing", "search", "login", "export"][n];
    format!(
        "Notes on the {about} release. {} The {about} service was deployed to the second region after the tests had passed. {}",
        "We talked about many things that nobody will ever ask about again, and wrote all of it down. ".repeat(5),
        "Then everybody went home and had a quiet evening. ".repeat(4)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn typical_replies_are_short() {
    // A network of random weights: hits have all their scores, and no model has to be downloaded.
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../services/bert/tests/reference/cross-encoder"
    );
    let settings = [
        ("EMBEDDING_PROVIDER", "local"),
        ("EMBEDDING_MODEL_PATH", model),
        ("RERANK_TIMEOUT_MS", "60000"),
        ("RERANK_BUDGET_MS", "60000"),
    ];
    let mut client = Client::open_mcp_with(&settings).await;
    for batch in 0..THREADS / 100 {
        let entry = |n: usize| {
            let n = batch * 100 + n;
            json!({"thread_id": format!("project-{n:04}"), "source": "user", "text": format!("Build {n} of the nightly job is green."),
                "tags": ["build"], "metadata": {"status": "done"}})
        };
        let entries: Vec<Value> = (0..100).map(entry).collect();
        client
            .text("store_context_batch", &json!({"entries": entries}))
            .await;
    }
    let entry = |n: usize| json!({"thread_id": "notes", "source": "agent", "text": long_text(n)});
    let entries: Vec<Value> = (0..4).map(entry).collect();
    client
        .text("store_context_batch", &json!({"entries": entries}))
        .await;
    let line = "Every line of this plan says what is done, by whom, and until when.\n";
    let content = format!("# Plan\nShip on Friday.\n{}", line.repeat(1_320));
    let created = client
        .text("create_artifact", &json!({"content": content}))
        .await;
    let created: Value = serde_json::from_str(&created).unwrap();

    println!("| tool | reply | bytes |");
    println!("|---|---|---|");
    let mut measured = Measured { client };
    let stored = json!({"thread_id": "plans", "source": "user", "text": "We ship on Monday."});
    measured
        .row("one entry stored", "store_context", stored)
        .await;
    let query = json!({"query": "to which region was the service deployed?", "thread_id": "notes", "limit": 4});
    let hybrid = measured
        .row(
            "4 hits of long texts",
            "hybrid_search_context",
            query.clone(),
        )
        .await;
    let short = json!({"query": "is the nightly build green?", "tags": ["build"], "limit": 4});
    measured
        .row("4 hits of 38 characters", "hybrid_search_context", short)
        .await;
    measured
        .row(
            "4 hits of long texts",
            "semantic_search_context",
            query.clone(),
        )
        .await;
    let mut highlighted = query;
    highlighted["highlight"] = json!(true);
    measured
        .row(
            "4 hits of long texts, with `highlight`",
            "fts_search_context",
            highlighted,
        )
        .await;
    let newest = json!({"thread_id": "notes", "limit": 5});
    measured
        .row("4 entries of a thread", "search_context", newest)
        .await;
    let ids = json!({"context_ids": [THREADS + 1]});
    measured
        .row("a text of 778 characters", "get_context_by_ids", ids)
        .await;
    let threads = measured
        .row("1 002 threads", "list_threads", json!({}))
        .await;
    let error = measured
        .row("an error", "search_context", json!({"limit": 500}))
        .await;
    let artifacts = json!({});
    measured
        .row("1 artifact", "list_artifacts", artifacts)
        .await;
    let edit = |old: &str, new: &str| json!({"artifact_id": created["id"], "edits": [{"old_str": old, "new_str": new}]});
    measured
        .row(
            "an edit of 90 kB",
            "update_artifact",
            edit("Friday", "Monday"),
        )
        .await;
    let mut without_content = edit("Monday", "Sunday");
    without_content["return_content"] = json!(false);
    let edited = measured
        .row(
            "the same with `return_content: false`",
            "update_artifact",
            without_content,
        )
        .await;
    measured.client.close().await;

    let found: Value = serde_json::from_str(&hybrid).unwrap();
    let hits = found["results"].as_array().unwrap();
    let text_of = |hit: &Value| {
        let bytes = |key: &str| hit[key].as_str().map_or(0, str::len);
        bytes("text_content") + bytes("snippet")
    };
    assert_eq!(hits.len(), 4, "{found}");
    for hit in hits {
        assert!(
            hit["snippet"].as_str().unwrap().contains("second region"),
            "{hit}"
        );
        let beside = hit.to_string().len() - text_of(hit);
        assert!(beside <= 430, "{beside} bytes beside the text: {hit}");
    }
    let text: usize = hits.iter().map(text_of).sum();
    assert!(
        hybrid.len() * 10 <= text * 26,
        "{} for {text}",
        hybrid.len()
    );
    let listed: Value = serde_json::from_str(&threads).unwrap();
    assert_eq!(listed["total_threads"], THREADS + 2, "{threads}");
    assert!(threads.len() <= 12_000, "{}", threads.len());
    assert_eq!(
        error.matches("the allowed range is 1 to 100").count(),
        1,
        "{error}"
    );
    let of_edit: Value = serde_json::from_str(&edited).unwrap();
    // Version 2 is that of the edit before.
    assert_eq!(
        (&of_edit["id"], &of_edit["version"]),
        (&created["id"], &json!(3)),
        "{edited}"
    );
    assert!(edited.len() <= 500, "{edited}");
}
