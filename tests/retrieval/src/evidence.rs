//! Measures evidence: whether a result shows the answer when it lies beyond the opening of a long text.

use std::path::PathBuf;
use std::sync::Arc;

use context_engine::Switch;
use context_providers::Embedder;

use crate::Error;
use crate::backend::{Hit, Setup};
use crate::cli::Cli;
use crate::method::{Method, Request};
use crate::opened::Opened;
use crate::set::{Question, Set, name};

/// Prints for each set and search how many answers its results show.
pub async fn report(
    cli: &Cli,
    paths: &[PathBuf],
    embedder: Option<&Arc<dyn Embedder>>,
) -> Result<(), Error> {
    println!(
        "| set | search | questions with a hidden answer | entry found | answer in its snippet |"
    );
    println!("|---|---|---|---|---|");
    for path in paths {
        let mut set = Set::read(path)?.of(cli.half);
        set.questions.retain(|question| question.answer.is_some());
        if set.questions.is_empty() {
            continue;
        }
        let opened = Opened::fill(cli, &set, embedder).await?;
        let setup = Setup {
            reranking: Switch::Auto,
            context_weight: opened.context_weight,
        };
        let mut backend = opened.entries.open(setup).await?;
        for (search, method) in [
            ("hybrid", Method::Hybrid),
            ("semantic", Method::Semantic),
            ("hybrid by words alone", Method::HybridWords),
            ("full-text, highlighted", Method::Fts),
        ] {
            if method.needs_model() && embedder.is_none() {
                continue;
            }
            let (mut hidden, mut found, mut shown) = (0, 0, 0);
            for question in &set.questions {
                let mut request = method.request(&question.text, question.thread_id.clone());
                if let Request::Fts(request) = &mut request {
                    request.highlight = Some(true);
                }
                let hits = backend.search(request).await?.hits;
                let hit = hits
                    .iter()
                    .find(|hit| question.relevant.contains(&opened.keys[hit.id as usize]));
                if hit.is_some_and(|hit| has_answer(&hit.opening, question)) {
                    continue;
                }
                hidden += 1;
                found += usize::from(hit.is_some());
                let is_shown = hit.is_some_and(|hit| in_snippet(hit, question));
                shown += usize::from(is_shown);
                if cli.misses && !is_shown {
                    let snippet = hit.map(|hit| evidence(hit).unwrap_or("no snippet".to_owned()));
                    println!(
                        "{}\n  wanted: {}\n  got: {}",
                        question.text,
                        question.answer.as_deref().unwrap_or_default(),
                        snippet.as_deref().unwrap_or("not found")
                    );
                }
            }
            println!(
                "| {} | {search} | {hidden} | {found} | {shown} |",
                name(path)
            );
        }
        backend.close().await;
        opened.close().await;
    }
    Ok(())
}

fn in_snippet(hit: &Hit, question: &Question) -> bool {
    evidence(hit).is_some_and(|shown| has_answer(&shown, question))
}

/// What a result shows of the text beyond its opening. Full-text search marks words instead of choosing a snippet.
fn evidence(hit: &Hit) -> Option<String> {
    let plain = |marked: &String| {
        let unmarked = marked.replace("<mark>", "").replace("</mark>", "");
        let unescaped = unmarked.replace("&lt;", "<").replace("&gt;", ">");
        unescaped.replace("&amp;", "&")
    };
    let highlighted = hit.highlighted.as_ref().map(plain);
    hit.snippet.clone().or(highlighted)
}

fn has_answer(text: &str, question: &Question) -> bool {
    question
        .answer
        .as_deref()
        .is_some_and(|answer| text.contains(answer))
}
