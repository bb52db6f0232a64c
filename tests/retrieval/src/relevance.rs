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
/// Sets that share subjects. A question of one is often about a subject of another, and has no answer there.
const SHARED_SUBJECTS: [&str; 4] = ["notes", "long-answers", "long-chats", "team-chat"];
/// Maximum number of questions of a set. About as many questions about other topics are asked too, and as many
/// near-misses, equally many of each other set.
const QUESTIONS: usize = 100;
/// Maximum number of stores of two entries for each set.
const PAIRS: usize = 100;
/// Number of results of each question that are checked: the default of `limit`.
const RESULTS: usize = 5;
/// Number of printed questions without an answer that look most relevant.
const LISTED: usize = 8;

/// The relevance of the best result of each question.
#[derive(Debug, Default)]
struct Best {
    answerable: Vec<f64>,
    other_topics: Vec<f64>,
    near_misses: Vec<f64>,
}

impl Best {
    /// The shares of questions of each kind for which a floor withholds everything.
    fn withheld(&self, floor: f64) -> [Option<f64>; 3] {
        [&self.answerable, &self.other_topics, &self.near_misses].map(|best| withheld(best, floor))
    }

    /// The questions without an answer.
    fn others(&mut self, is_near: bool) -> &mut Vec<f64> {
        if is_near {
            &mut self.near_misses
        } else {
            &mut self.other_topics
        }
    }
}

/// The share of questions for which a floor withholds everything, by the relevance of the best result of each. `None`
/// without questions.
fn withheld(best: &[f64], floor: f64) -> Option<f64> {
    let count = best.iter().filter(|best| **best < floor).count();
    (!best.is_empty()).then(|| count as f64 / best.len() as f64)
}

/// A question of another set.
#[derive(Debug, Clone, Copy)]
struct Other<'q> {
    /// The index of the set that it is from.
    source: usize,
    question: &'q Question,
    /// Whether its set shares subjects with the one that is asked. Then it is a near-miss.
    is_near: bool,
}

/// What was measured on one set.
#[derive(Debug, Default)]
struct Measured {
    /// The store of the whole set.
    whole: Best,
    /// Stores of two entries.
    pairs: Best,
    /// Questions of other sets in the store of the whole set: the set that each is from, and the relevance of its best
    /// result.
    by_source: Vec<(usize, f64)>,
    /// The relevance of each result, and whether it is a relevant entry of the question.
    results: Vec<(f64, bool)>,
    /// Questions of other sets with the relevance of their best result.
    listed: Vec<(f64, String)>,
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
    /// Whether the question is of a set that shares subjects with this one, and has no answer here.
    near_miss: bool,
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
    /// Writes a line for each result of a question that has these answers, or is from another set.
    fn write(
        &mut self,
        store: StoreKind,
        found: &Found,
        keys: &[String],
        asked: Result<&[String], Other<'_>>,
    ) -> Result<(), Error> {
        self.questions += 1;
        let answers = asked.unwrap_or_default();
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
                answerable: asked.is_ok(),
                near_miss: asked.is_err_and(|other| other.is_near),
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

/// The questions of the other sets that this one is asked: as many about other topics as near-misses. Sets in another
/// language with the same entries are left out.
fn others<'q>(name: &str, set: &Set, sets: &'q [(String, Set)]) -> Vec<Other<'q>> {
    let shares_subjects = |name: &str| SHARED_SUBJECTS.contains(&name);
    let mut questions = Vec::new();
    for is_near in [false, true] {
        let sources: Vec<(usize, &Set)> = sets
            .iter()
            .enumerate()
            .filter(|(_, (other, _))| (shares_subjects(name) && shares_subjects(other)) == is_near)
            .map(|(source, (_, other))| (source, other))
            .filter(|(_, other)| !are_translations(set, other))
            .collect();
        let of_each = QUESTIONS.div_ceil(sources.len().max(1));
        for (source, other) in sources {
            let of_source = evenly(&other.questions, of_each).into_iter();
            questions.extend(of_source.map(|question| Other {
                source,
                question,
                is_near,
            }));
        }
    }
    questions
}

/// Prints how well relevance works on these sets. Each is asked its own questions and those of the other sets.
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
        let others = others(name, set, &sets);
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
    println!(
        "| set | answerable | other topics | near-misses \
         | two entries: answerable | other topics | near-misses |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, of_set) in &measured {
        let cells = [&of_set.whole, &of_set.pairs].map(|best| best.withheld(RECOMMENDED));
        println!(
            "| {name} | {} |",
            cells
                .concat()
                .into_iter()
                .map(percent)
                .collect::<Vec<_>>()
                .join(" | ")
        );
    }
    println!("\nOf the questions of other sets, by the set that they are from:\n");
    let columns: Vec<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
    println!("| set | {} |", columns.join(" | "));
    println!("|---|{}", "---|".repeat(sets.len()));
    for (name, of_set) in &measured {
        let cell = |source: usize| {
            let from = of_set.by_source.iter().filter(|(from, _)| *from == source);
            let best: Vec<f64> = from.map(|(_, best)| *best).collect();
            percent(withheld(&best, RECOMMENDED))
        };
        let cells: Vec<String> = (0..sets.len()).map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!("\nMeans over the sets:\n");
    println!(
        "| min_relevance | results at or above it | of these relevant | answerable withheld | other topics | near-misses \
         | two entries: answerable | other topics | near-misses |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for floor in FLOORS {
        let mean = |value: &dyn Fn(&Measured) -> Option<f64>| {
            let values: Vec<f64> = measured
                .iter()
                .filter_map(|(_, of_set)| value(of_set))
                .collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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
            mean(&|of_set| Some(shown(of_set)[0])),
            mean(&|of_set| Some(shown(of_set)[1])),
            mean(&|of_set| of_set.whole.withheld(floor)[0]),
            mean(&|of_set| of_set.whole.withheld(floor)[1]),
            mean(&|of_set| of_set.whole.withheld(floor)[2]),
            mean(&|of_set| of_set.pairs.withheld(floor)[0]),
            mean(&|of_set| of_set.pairs.withheld(floor)[1]),
            mean(&|of_set| of_set.pairs.withheld(floor)[2]),
        ];
        println!("| {floor} | {} |", cells.map(percent).join(" | "));
    }
    let mut listed: Vec<(f64, String)> = measured
        .into_iter()
        .flat_map(|(_, of_set)| of_set.listed)
        .collect();
    listed.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\nQuestions of other sets whose best result has the highest relevance:\n");
    for (relevance, question) in listed.iter().take(LISTED) {
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
            Ok(&question.relevant),
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
    for other in others {
        let Other {
            source,
            question,
            is_near,
        } = *other;
        let found = backend.search(ask(&question.text, None)).await?;
        evidence.write(StoreKind::WholeSet, &found, &opened.keys, Err(*other))?;
        let relevance = best(&found.hits);
        measured.whole.others(is_near).push(relevance);
        measured.by_source.push((source, relevance));
        let text = found
            .hits
            .first()
            .and_then(|hit| opened.keys.get(usize::try_from(hit.id).ok()?))
            .and_then(|key| set.entries.iter().find(|entry| entry.key == *key))
            .map_or_else(String::new, |entry| entry.text.chars().take(100).collect());
        measured
            .listed
            .push((relevance, format!("{} → {text}", question.text)));
    }
    backend.close().await;
    opened.close().await;

    let (near_misses, other_topics): (Vec<Other<'_>>, Vec<Other<'_>>) =
        others.iter().partition(|other| other.is_near);
    let asked = evenly(&set.questions, PAIRS);
    for (number, question) in asked.iter().enumerate() {
        let place = set
            .entries
            .iter()
            .position(|entry| question.relevant.contains(&entry.key));
        let Some(place) = place else {
            continue;
        };
        // Spread over all others, because consecutive ones are of the same set.
        let without_answer = [&other_topics, &near_misses]
            .map(|others| others.get(number * others.len() / asked.len()).copied());
        let second = (place + set.entries.len() / 2) % set.entries.len();
        let pair = Set {
            entries: [place, second]
                .map(|place| set.entries[place].clone())
                .to_vec(),
            questions: Vec::new(),
        };
        let opened = Opened::fill(cli, &pair, Some(embedder)).await?;
        let mut backend = opened.entries.open(default_setup(&opened)).await?;
        let found = backend.search(ask(&question.text, None)).await?;
        evidence.write(
            StoreKind::TwoEntries,
            &found,
            &opened.keys,
            Ok(&question.relevant),
        )?;
        measured.pairs.answerable.push(best(&found.hits));
        for other in without_answer.into_iter().flatten() {
            let found = backend.search(ask(&other.question.text, None)).await?;
            evidence.write(StoreKind::TwoEntries, &found, &opened.keys, Err(other))?;
            let best_of = measured.pairs.others(other.is_near);
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

/// `-` without questions.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}
