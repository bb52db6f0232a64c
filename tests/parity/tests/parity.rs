//! Equal calls return equal results on every client.

use context_model::{Operation, Resource};
use context_parity::keys::{Gateway, KeyedService};
use context_parity::{Answer, Brief, Client, Names, Scenario, Step, Storage, substitute};
use serde_json::{Value, json};

/// Checks that `actual` contains everything in `expected`.
fn contains(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected.iter().all(|(key, value)| {
            actual
                .get(key)
                .is_some_and(|actual| contains(actual, value))
        }),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual.iter().zip(expected).all(|(a, e)| contains(a, e))
        }
        _ => actual == expected,
    }
}

fn check(
    step: &Step,
    answer: &Answer,
    storage: Storage,
    brief: Option<&Brief>,
) -> Result<(), String> {
    let (actual, expected) = match (answer, &step.gives, &step.fails) {
        (Answer::Ok(actual), Some(expected), None) => (actual, expected),
        (Answer::Ok(_), None, None) => return Ok(()),
        (Answer::Err(actual), None, Some(expected)) => (actual, expected),
        _ => {
            return Err(format!(
                "an error instead of a reply, or the reverse: {answer:?}"
            ));
        }
    };
    let mut expected = of_storage(&substitute(expected), storage);
    if let Some(brief) = brief {
        expected = brief.value(&expected);
    }
    let expected = &expected;
    if contains(actual, expected) {
        Ok(())
    } else {
        Err(format!("expected {expected}\n     got {actual}"))
    }
}

/// Replaces the names of the storage and its full-text index, the only differences between the databases.
fn of_storage(expected: &Value, storage: Storage) -> Value {
    match (expected, storage) {
        (Value::String(text), Storage::Postgres) if text == "sqlite" => "postgresql".into(),
        (Value::String(text), Storage::Postgres) if text == "fts5" => "tsvector".into(),
        (Value::Array(items), _) => items.iter().map(|item| of_storage(item, storage)).collect(),
        (Value::Object(object), _) => Value::Object(
            object
                .iter()
                .map(|(key, value)| (key.clone(), of_storage(value, storage)))
                .collect(),
        ),
        (other, _) => other.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_gives_the_same_answers() {
    run_scenario(Storage::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_gives_the_same_answers_on_postgresql() {
    if context_test_postgres::server().is_some() {
        run_scenario(Storage::Postgres).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_text_results_are_reranked_alike_on_every_transport() {
    check_reranking(Storage::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_text_results_are_reranked_alike_on_every_transport_on_postgresql() {
    if context_test_postgres::server().is_some() {
        check_reranking(Storage::Postgres).await;
    }
}

async fn check_reranking(storage: Storage) {
    // A network of random weights: it reranks, and no model has to be downloaded.
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../services/bert/tests/reference/cross-encoder"
    );
    let settings = [
        ("EMBEDDING_PROVIDER", "local"),
        ("EMBEDDING_MODEL_PATH", model),
        ("RERANK_TIMEOUT_MS", "60000"),
        // On a busy machine the default would not suffice for all three entries.
        ("RERANK_BUDGET_MS", "10000"),
    ];
    let service = KeyedService::start_on(storage, &settings).await;
    let gateway = Gateway::http(&service).await;
    let key = service.key("reader", &["read", "write"]).await;
    let mut clients = service.clients(&gateway, &key).await;
    for text in ["tags of a kind", "tags and tags of every kind", "a tag"] {
        let entry = json!({"thread_id": text, "source": "user", "text": text});
        clients[0].1.call("store_context", &entry).await;
    }
    let query = json!({"query": "tags", "highlight": true});
    let mut first = None;
    for (name, client) in &mut clients {
        let Answer::Ok(found) = client.call("fts_search_context", &query).await else {
            panic!("{name} finds them")
        };
        let hits = found["results"].as_array().expect("results");
        let scores: Vec<f64> = hits
            .iter()
            .filter_map(|hit| hit["scores"]["rerank_score"].as_f64())
            .collect();
        assert!(
            scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b),
            "{name}: {found}"
        );
        assert!(hits[0]["highlighted"].is_string(), "{name}: {found}");
        let first = first.get_or_insert_with(|| found.clone());
        let expected = match client.brief() {
            Some(brief) => brief.value(first),
            None => first.clone(),
        };
        assert_eq!(found, expected, "{name}");
    }
}

async fn run_scenario(storage: Storage) {
    let scenario: Scenario = serde_json::from_str(include_str!("../scenario.json"))
        .expect("the scenario has the form of `Scenario`");
    for operation in Operation::ALL {
        let is_called = scenario
            .steps
            .iter()
            .any(|step| step.call == operation.as_str());
        // Keys and streams have tests of their own.
        let is_elsewhere =
            operation.resource() == Resource::ApiKey || *operation == Operation::Watch;
        assert!(
            is_called || is_elsewhere,
            "no step calls {}",
            operation.as_str()
        );
    }
    let mut clients = Client::open_all(storage).await;
    let mut names: Vec<Names> = clients.iter().map(|_| Names::default()).collect();
    let mut briefs: Vec<Option<Brief>> = clients.iter().map(|(_, client)| client.brief()).collect();
    let mut failures = Vec::new();
    for step in &scenario.steps {
        let arguments = if step.with.is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            substitute(&step.with)
        };
        let mut first: Option<(&str, Answer)> = None;
        for (((name, client), names), brief) in clients.iter_mut().zip(&mut names).zip(&mut briefs)
        {
            let is_tool =
                !step.no_tool && Operation::parse(&step.call).is_some_and(Operation::is_tool);
            if step.json_only && !client.is_json() || client.brief().is_some() && !is_tool {
                continue;
            }
            let mut answer = client.call(&step.call, &names.resolve(&arguments)).await;
            let body = answer.body();
            names.save(&step.saves, body);
            for key in step.saves.values() {
                if !body[key.as_str()].is_string() {
                    failures.push(format!("{} on {name}: no {key} to save", step.shows));
                }
            }
            *body = names.hide(body);
            if let Err(problem) = check(step, &answer, storage, brief.as_ref()) {
                failures.push(format!("{} on {name}: {problem}", step.shows));
            }
            let Some((other, full)) = &first else {
                first = Some((*name, answer));
                continue;
            };
            let expected = brief
                .as_ref()
                .map_or_else(|| full.clone(), |brief| brief.answer(full));
            if expected != answer {
                failures.push(format!(
                    "{}: {other} and {name} differ:\n  {expected:?}\n  {answer:?}",
                    step.shows
                ));
            }
            if let Some(brief) = brief {
                brief.record_warnings(full);
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures in {} steps:\n{}",
        failures.len(),
        scenario.steps.len(),
        failures.join("\n")
    );
}
