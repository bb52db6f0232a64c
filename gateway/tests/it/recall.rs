//! What hooks recall for the prompts of `recall.jsonl`, over a written project history, with the embedding model that the
//! other suites use.

#![expect(clippy::disallowed_methods, reason = "the deadline of the requests")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use context_gateway::backend::{Backend, Target};
use context_gateway::hook::recall::{find, frame, query};
use context_gateway::hook::service::Service;
use context_gateway::hook::state::Message;
use context_test_support::Home;
use serde_json::Value;
use tonic::metadata::MetadataMap;

const PROJECT: &str = "git.example/acme/app";

/// It prints the figures of docs/agents.md. Without the model it says that it was skipped.
#[tokio::test(flavor = "multi_thread")]
async fn recall_finds_what_helps_and_is_silent_otherwise() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models/all-MiniLM-L6-v2");
    if !model.join("model.safetensors").exists() {
        eprintln!("SKIPPED: {} is no embedding model", model.display());
        return;
    }
    let home = Home::new()
        .with("EMBEDDING_PROVIDER", "local")
        .with("EMBEDDING_MODEL_PATH", &model);
    let mut server = home.start().await;
    let backend = Backend::new(Target::Unix(home.socket()), 1 << 20).unwrap();
    let service = || {
        let until = Instant::now() + Duration::from_secs(30);
        Service::new(backend.clone(), MetadataMap::new(), until)
    };
    let lines: Vec<Value> = include_str!("recall.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut ids = HashMap::new();
    let mut foreign = Vec::new();
    for line in lines.iter().filter(|line| line["entry"].is_string()) {
        let message = Message {
            id: text_of(&line["entry"]),
            thread_id: "history".to_owned(),
            source: text_of(&line["source"]),
            text: text_of(&line["text"]),
            metadata: line["metadata"].as_object().unwrap().clone(),
            removed: 0,
        };
        let id = service().store(&message).await.unwrap();
        if line["metadata"]["project"].is_string() && line["metadata"]["project"] != PROJECT {
            foreign.push(id);
        }
        ids.insert(message.id, id);
    }
    let mut count = BTreeMap::<String, (usize, usize)>::new();
    let mut wrong = Vec::new();
    for line in lines.iter().filter(|line| line["prompt"].is_string()) {
        let (asked, kind) = (text_of(&line["prompt"]), text_of(&line["kind"]));
        let hits = match query(&asked) {
            Some(query) => find(&service(), &query, PROJECT, "now", "now")
                .await
                .unwrap(),
            None => Vec::new(),
        };
        let told = frame(&hits, &[]);
        assert!(
            told.ids.len() <= 3 && told.ids.iter().all(|id| !foreign.contains(id)),
            "{asked}"
        );
        let is_right = match ids.get(&text_of(&line["answer"])) {
            Some(id) => told.ids.contains(id),
            None => told.ids.is_empty(),
        };
        let figures = count.entry(kind).or_default();
        figures.1 += 1;
        if is_right {
            figures.0 += 1;
        } else {
            wrong.push(format!("{asked}: {:?}", told.finish()));
        }
    }
    eprintln!("right, and all, by kind: {count:?}\n{}", wrong.join("\n"));
    for (kind, percent) in [("answered", 85), ("useless", 100), ("unrelated", 80)] {
        let (right, all) = count[kind];
        assert!(
            right * 100 >= all * percent,
            "{kind}: {right} of {all}\n{}",
            wrong.join("\n")
        );
    }
    server.kill();
}
