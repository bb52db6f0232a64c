//! What hooks recall for the 200 prompts of `recall.jsonl`, from an invented history of three projects, with the
//! embedding model that the other suites use.
//!
//! 100 prompts have an answer in the history. The others have none: prompts without a topic, about something else, and
//! near misses, which only share words with the history. Half of each kind was used to tune the relevance thresholds
//! and the list of generic words; the other half was not. The command that prints the figures of docs/agents.md:
//!
//! ```text
//! cargo nextest run --locked --workspace --no-capture -E 'test(recall_finds_what_helps)'
//! ```

#![expect(clippy::disallowed_methods, reason = "the deadline of the requests")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use context_gateway::backend::{Backend, Target};
use context_gateway::hook::frame::tokens;
use context_gateway::hook::recall::{find, frame, query};
use context_gateway::hook::service::Service;
use context_gateway::hook::state::Message;
use context_test_support::Home;
use serde_json::Value;
use tonic::metadata::MetadataMap;

/// The counts for one half of the prompts.
#[derive(Debug, Default)]
struct Figures {
    /// Prompts with an answer in the history, and those for which it was shown.
    answered: usize,
    right: usize,
    /// Prompts without one, and those for which nothing was shown.
    others: usize,
    silent: usize,
    /// Prompts for which something was shown, the entries shown, those of them that are an answer, and all tokens.
    firings: usize,
    shown: usize,
    helpful: usize,
    tokens: usize,
    /// For each kind: the number of prompts, and of those with the expected result.
    kinds: BTreeMap<String, (usize, usize)>,
    /// The prompts without the expected result, each with the text that was shown.
    wrong: Vec<String>,
}

impl Figures {
    fn count(&mut self, prompt: &Prompt, shown: &[i64], right: &[i64], text: Option<&str>) {
        let helpful = shown.iter().filter(|id| right.contains(id)).count();
        let is_as_expected = if right.is_empty() {
            self.others += 1;
            self.silent += usize::from(shown.is_empty());
            shown.is_empty()
        } else {
            self.answered += 1;
            self.right += usize::from(helpful > 0);
            helpful > 0
        };
        if let Some(text) = text {
            self.firings += 1;
            self.shown += shown.len();
            self.helpful += helpful;
            self.tokens += tokens(text);
        }
        let kind = self.kinds.entry(prompt.kind.clone()).or_default();
        kind.0 += 1;
        kind.1 += usize::from(is_as_expected);
        if !is_as_expected {
            self.wrong
                .push(format!("{} | {:?} | {text:?}", prompt.kind, prompt.text));
        }
    }

    fn line(&self) -> String {
        format!(
            "answer shown for {} of {}, silent for {} of {}, precision {}/{} = {:.2}, {} tokens a firing; {:?}",
            self.right,
            self.answered,
            self.silent,
            self.others,
            self.helpful,
            self.shown,
            self.helpful as f64 / self.shown.max(1) as f64,
            self.tokens / self.firings.max(1),
            self.kinds,
        )
    }
}

/// A prompt of the set.
struct Prompt {
    text: String,
    project: String,
    kind: String,
    half: String,
    /// The names of the entries that answer it.
    right: Vec<String>,
}

impl Prompt {
    fn of(line: &Value) -> Option<Self> {
        let text = |name: &str| Some(line[name].as_str()?.to_owned());
        let right = line["right"].as_array().into_iter().flatten();
        Some(Self {
            text: text("prompt")?,
            project: text("project")?,
            kind: text("kind")?,
            half: text("half")?,
            right: right.map(|id| id.as_str().unwrap().to_owned()).collect(),
        })
    }
}

/// Without the model, the test prints that it was skipped.
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
    // Each entry's id, and the project that it is limited to.
    let mut ids = HashMap::new();
    let mut projects = HashMap::new();
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
        projects.insert(id, text_of(&line["metadata"]["project"]));
        ids.insert(message.id, id);
    }
    let mut halves = BTreeMap::<String, Figures>::new();
    for prompt in lines.iter().filter_map(Prompt::of) {
        let hits = match query(&prompt.text) {
            Some(query) => find(&service(), &query, &prompt.project, "now", "now")
                .await
                .unwrap(),
            None => Vec::new(),
        };
        let recalled = frame(&hits, &[]);
        let shown = recalled.ids.clone();
        let may_be_shown = |id: &i64| projects[id].is_empty() || projects[id] == prompt.project;
        assert!(
            shown.len() <= 3 && shown.iter().all(may_be_shown),
            "{}",
            prompt.text
        );
        let right: Vec<i64> = prompt.right.iter().map(|name| ids[name]).collect();
        let text = recalled.finish();
        let figures = halves.entry(prompt.half.clone()).or_default();
        figures.count(&prompt, &shown, &right, text.as_deref());
    }
    server.kill();
    assert_eq!(halves.len(), 2);
    for (half, figures) in &halves {
        eprintln!("{half}: {}", figures.line());
    }
    for line in &halves["tuning"].wrong {
        eprintln!("  {line}");
    }
    for (half, figures) in &halves {
        let line = format!("{half}: {}", figures.line());
        assert_eq!((figures.answered, figures.others), (50, 50), "{line}");
        assert!(figures.right * 100 >= figures.answered * 60, "{line}");
        assert!(figures.silent * 100 >= figures.others * 80, "{line}");
        assert!(figures.helpful * 10 >= figures.shown * 6, "{line}");
        assert!(figures.tokens <= figures.firings * 250, "{line}");
    }
}
