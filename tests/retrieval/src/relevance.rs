//! Measures the relevance of results: whether it tells answerable questions from questions about other topics.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use context_engine::Switch;
use context_providers::Embedder;
use serde::Serialize;

use crate::Error;
use crate::backend::{Found, Hit, Setup};
use crate::cli::Cli;
use crate::method::Method;
use crate::opened::Opened;
use crate::set::{Question, Set, name};

/// Values of `min_relevance` in the table.
const FLOORS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// The recommended value, for the table of the sets.
const RECOMMENDED: f64 = 0.3;
/// Maximum number of questions of a set. About as many questions about other topics are asked too, equally many of each
/// other set.
const QUESTIONS: usize = 100;
/// Maximum number of stores of two entries for each set.
const PAIRS: usize = 40;
/// Number of results of each question that are checked: the default of `limit`.
const RESULTS: usize = 5;
/// Number of printed questions about other topics that look most relevant.
const NEAR_MISSES: usize = 8;

/// The relevance of the best result of each question.
#[derive(Debug, Default)]
struct Best {
    answerable: Vec<f64>,
    others: Vec<f64>,
}

impl Best {
    /// The shares of answerable questions and of others for which a floor withholds everything.
    fn withheld(&self, floor: f64) -> [f64; 2] {
        [&self.answerable, &self.others].map(|best| withheld(best, floor))
    }
}

/// The share of questions for which a floor withholds everything, by the relevance of the best result of each.
fn withheld(best: &[f64], floor: f64) -> f64 {
    best.iter().filter(|best| **best < floor).count() as f64 / best.len().max(1) as f64
}

/// A question about another topic.
#[derive(Debug, Clone, Copy)]
struct Other<'q> {
    /// The index of the set that it is from.
    source: usize,
    question: &'q Question,
}

/// What was measured on one set.
#[derive(Debug, Default)]
struct Measured {
    /// The store of the whole set.
    whole: Best,
    /// Stores of two entries.
    pairs: Best,
    /// Questions about other topics in the store of the whole set: the set that each is from, and the relevance of its
    /// best result.
    by_source: Vec<(usize, f64)>,
    /// The relevance of each result, and whether it is a relevant entry of the question.
    results: Vec<(f64, bool)>,
    /// Questions about other topics with the relevance of their best result.
    near_misses: Vec<(f64, String)>,
}

/// A line of the file of features: what is known about a result, and whether it should be found.
#[derive(Debug, Serialize)]
struct Line<'l> {
    set: &'l str,
    store: StoreKind,
    /// The number of the question, from 1, among all questions that the stores of the set were asked.
    question: usize,
    /// Whether the store has an answer.
    answerable: bool,
    /// Whether this result is an answer.
    relevant: bool,
    /// The relevance, and after a colon what it was computed from, as `explain_query` says it.
    evidence: &'l str,
}

/// The kind of store that was asked.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum StoreKind {
    WholeSet,
    TwoEntries,
}

/// Writes the evidence of questions to a file, if one is named.
struct Evidence<'e> {
    file: Option<std::io::BufWriter<std::fs::File>>,
    set: &'e str,
    questions: usize,
}

impl Evidence<'_> {
    /// Writes a line for each result of a question that has these answers.
    fn write(
        &mut self,
        store: StoreKind,
        found: &Found,
        keys: &[String],
        answers: &[String],
    ) -> Result<(), Error> {
        self.questions += 1;
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        for line in &found.plan {
            let Some((id, evidence)) = line
                .strip_prefix("relevance of ")
                .and_then(|line| line.split_once(": "))
            else {
                continue;
            };
            let key = keys.get(id.parse::<usize>()?);
            let line = Line {
                set: self.set,
                store,
                question: self.questions,
                answerable: !answers.is_empty(),
                relevant: key.is_some_and(|key| answers.contains(key)),
                evidence,
            };
            serde_json::to_writer(&mut *file, &line)?;
            writeln!(file)?;
        }
        Ok(())
    }
}

/// Whether two sets have the same entries in two languages. Then each answers the questions of the other.
fn are_translations(one: &Set, other: &Set) -> bool {
    let keys = [one, other].map(|set| set.entries.iter().map(|entry| &entry.key));
    let [one, other] = keys;
    one.eq(other)
}

/// Prints how well relevance works on these sets. Questions of the other sets are the questions about other topics,
/// except for those of translations.
pub async fn report(
    cli: &Cli,
    paths: &[PathBuf],
    embedder: &Arc<dyn Embedder>,
) -> Result<(), Error> {
    let mut sets = Vec::new();
    for path in paths {
        sets.push((name(path), Set::read(path)?.of(cli.half)));
    }
    let mut measured = Vec::new();
    let mut evidence = match &cli.features {
        Some(path) => Some(std::io::BufWriter::new(std::fs::File::create(path)?)),
        None => None,
    };
    for (name, set) in &sets {
        let others: Vec<(usize, &Set)> = sets
            .iter()
            .map(|(_, other)| other)
            .enumerate()
            .filter(|(_, other)| !are_translations(set, other))
            .collect();
        let of_each = QUESTIONS.div_ceil(others.len().max(1));
        let others: Vec<Other<'_>> = others
            .into_iter()
            .flat_map(|(source, other)| {
                let questions = evenly(&other.questions, of_each).into_iter();
                questions.map(move |question| Other { source, question })
            })
            .collect();
        let mut of_set = Evidence {
            file: evidence.take(),
            set: name,
            questions: 0,
        };
        measured.push((
            name,
            measure(cli, set, &others, embedder, &mut of_set).await?,
        ));
        evidence = of_set.file;
    }
    if let Some(mut file) = evidence {
        file.flush()?;
    }

    println!("Questions for which min_relevance={RECOMMENDED} withholds everything:\n");
    println!("| set | answerable | other topics | two entries: answerable | other topics |");
    println!("|---|---|---|---|---|");
    for (name, of_set) in &measured {
        let [whole, pairs] = [&of_set.whole, &of_set.pairs].map(|best| best.withheld(RECOMMENDED));
        let cells = [whole, pairs]
            .concat()
            .iter()
            .map(|share| percent(*share))
            .collect::<Vec<_>>();
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!("\nOf the questions about other topics, by the set that they are from:\n");
    let columns: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
    println!("| set | {} |", columns.join(" | "));
    println!("|---|{}", "---|".repeat(sets.len()));
    for (name, of_set) in &measured {
        let cell = |source: usize| {
            let from = of_set.by_source.iter().filter(|(from, _)| *from == source);
            let best: Vec<f64> = from.map(|(_, best)| *best).collect();
            if best.is_empty() {
                return "-".to_owned();
            }
            percent(withheld(&best, RECOMMENDED))
        };
        let cells: Vec<String> = (0..sets.len()).map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!("\nMeans over the sets:\n");
    println!(
        "| min_relevance | results at or above it | of these relevant | answerable withheld | other topics withheld \
         | two entries: answerable | other topics |"
    );
    println!("|---|---|---|---|---|---|---|");
    for floor in FLOORS {
        let mean = |value: &dyn Fn(&Measured) -> f64| {
            measured
                .iter()
                .map(|(_, of_set)| value(of_set))
                .sum::<f64>()
                / measured.len() as f64
        };
        let shown = |of_set: &Measured| {
            let shown = of_set
                .results
                .iter()
                .filter(|(relevance, _)| *relevance >= floor);
            let (count, relevant) = shown.fold((0_u32, 0_u32), |(count, relevant), (_, is)| {
                (count + 1, relevant + u32::from(*is))
            });
            [
                f64::from(count) / of_set.results.len().max(1) as f64,
                f64::from(relevant) / f64::from(count.max(1)),
            ]
        };
        let cells = [
            mean(&|of_set| shown(of_set)[0]),
            mean(&|of_set| shown(of_set)[1]),
            mean(&|of_set| of_set.whole.withheld(floor)[0]),
            mean(&|of_set| of_set.whole.withheld(floor)[1]),
            mean(&|of_set| of_set.pairs.withheld(floor)[0]),
            mean(&|of_set| of_set.pairs.withheld(floor)[1]),
        ];
        println!("| {floor} | {} |", cells.map(percent).join(" | "));
    }
    let mut near_misses: Vec<(f64, String)> = measured
        .into_iter()
        .flat_map(|(_, of_set)| of_set.near_misses)
        .collect();
    near_misses.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\nQuestions about other topics whose best result has the highest relevance:\n");
    for (relevance, question) in near_misses.iter().take(NEAR_MISSES) {
        println!("- {relevance:.2}: {question}");
    }
    Ok(())
}

async fn measure(
    cli: &Cli,
    set: &Set,
    others: &[Other<'_>],
    embedder: &Arc<dyn Embedder>,
    evidence: &mut Evidence<'_>,
) -> Result<Measured, Error> {
    let ask = |question: &str, thread_id: Option<String>| {
        Method::Hybrid.request(question, thread_id).explained()
    };
    let mut measured = Measured::default();
    let opened = Opened::fill(cli, set, Some(embedder)).await?;
    let mut backend = opened.entries.open(default_setup(&opened)).await?;
    for question in evenly(&set.questions, QUESTIONS) {
        let request = ask(&question.text, question.thread_id.clone());
        let found = backend.search(request).await?;
        evidence.write(
            StoreKind::WholeSet,
            &found,
            &opened.keys,
            &question.relevant,
        )?;
        measured.whole.answerable.push(best(&found.hits));
        measured
            .results
            .extend(found.hits.iter().take(RESULTS).map(|hit| {
                let key = usize::try_from(hit.id)
                    .ok()
                    .and_then(|id| opened.keys.get(id));
                let is_relevant = key.is_some_and(|key| question.relevant.contains(key));
                (hit.relevance.unwrap_or(0.0), is_relevant)
            }));
    }
    for Other { source, question } in others {
        let found = backend.search(ask(&question.text, None)).await?;
        evidence.write(StoreKind::WholeSet, &found, &opened.keys, &[])?;
        let relevance = best(&found.hits);
        measured.whole.others.push(relevance);
        measured.by_source.push((*source, relevance));
        let text = found
            .hits
            .first()
            .and_then(|hit| opened.keys.get(usize::try_from(hit.id).ok()?))
            .and_then(|key| set.entries.iter().find(|entry| entry.key == *key))
            .map_or_else(String::new, |entry| entry.text.chars().take(100).collect());
        measured
            .near_misses
            .push((relevance, format!("{} → {text}", question.text)));
    }
    backend.close().await;
    opened.close().await;

    for (number, question) in evenly(&set.questions, PAIRS).into_iter().enumerate() {
        let place = set
            .entries
            .iter()
            .position(|entry| question.relevant.contains(&entry.key));
        // Spread over all others, because consecutive ones are of the same set.
        let other = others.get(number * others.len() / PAIRS);
        let (Some(place), Some(other)) = (place, other) else {
            continue;
        };
        let second = (place + set.entries.len() / 2) % set.entries.len();
        let pair = Set {
            entries: [place, second]
                .map(|place| set.entries[place].clone())
                .to_vec(),
            questions: Vec::new(),
        };
        let opened = Opened::fill(cli, &pair, Some(embedder)).await?;
        let mut backend = opened.entries.open(default_setup(&opened)).await?;
        for (question, answers, best_of) in [
            (
                question,
                question.relevant.as_slice(),
                &mut measured.pairs.answerable,
            ),
            (other.question, [].as_slice(), &mut measured.pairs.others),
        ] {
            let found = backend.search(ask(&question.text, None)).await?;
            evidence.write(StoreKind::TwoEntries, &found, &opened.keys, answers)?;
            best_of.push(best(&found.hits));
        }
        backend.close().await;
        opened.close().await;
    }
    Ok(measured)
}

/// The settings of a service by default, except for a context weight that a flag sets.
fn default_setup(opened: &Opened) -> Setup {
    Setup {
        reranking: Switch::Auto,
        context_weight: opened.context_weight,
    }
}

/// The highest relevance of the results.
fn best(found: &[Hit]) -> f64 {
    found
        .iter()
        .filter_map(|hit| hit.relevance)
        .fold(0.0, f64::max)
}

/// At most `count` items, evenly chosen.
fn evenly<T>(items: &[T], count: usize) -> Vec<&T> {
    let step = items.len().div_ceil(count.max(1)).max(1);
    items.iter().step_by(step).collect()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
