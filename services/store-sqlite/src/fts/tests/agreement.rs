//! FTS5 finds exactly what the query tree describes, word by word.

use context_model::{Comparison, Condition, Filter, JsonObject, Scalar, Timestamp};
use context_store::{FtsSearch, Page, StoredEntry};
use context_text::{Analyzer, Language, Mode, Query, fold, parse};
use serde_json::json;

use super::{OWNER, Texts, path, search};
use crate::collection::Collection;
use context_test_support::Random;

const WORDS: [&str; 18] = [
    "run",
    "running",
    "runs",
    "runner",
    "fox",
    "Foxes",
    "general",
    "generalizing",
    "generous",
    "the",
    "and",
    "数据库",
    "数据",
    "naïve",
    "x9",
    "C++",
    "foo_bar",
    "10.5",
];

/// The tokens at each position of a text: the stem and the colocated word.
fn places(text: &str, analyzer: &Analyzer) -> Vec<[String; 2]> {
    let mut places = Vec::new();
    analyzer.tokens(text, &mut |token| {
        places.push([token.stem.to_owned(), fold(token.word).into_owned()]);
        true
    });
    places
}

fn holds(query: &Query, places: &[[String; 2]]) -> bool {
    let is = |place: &[String; 2], stem: &str| place.iter().any(|token| token == stem);
    match query {
        Query::Word(term) => places.iter().any(|place| is(place, &term.stem)),
        Query::Prefix(term) => places
            .iter()
            .flatten()
            .any(|token| token.starts_with(&*fold(&term.word))),
        Query::Phrase(terms) => places.windows(terms.len()).any(|window| {
            window
                .iter()
                .zip(terms)
                .all(|(place, term)| is(place, &term.stem))
        }),
        Query::And(all) => all.iter().all(|query| holds(query, places)),
        Query::Or(any) => any.iter().any(|query| holds(query, places)),
        Query::Not { positive, negative } => holds(positive, places) && !holds(negative, places),
    }
}

fn words(random: &mut Random, most: usize) -> String {
    (0..1 + random.below(most))
        .map(|_| *random.pick(&WORDS))
        .collect::<Vec<_>>()
        .join(" ")
}

fn boolean(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 3 } else { 7 }) {
        0 => (*random.pick(&["run", "fox", "general", "数据", "x9"])).to_owned(),
        1 => format!("{}*", random.pick(&["ru", "gen", "fo", "generali", "naï"])),
        2 => format!("\"{}\"", words(random, 3)),
        3 => format!(
            "({} AND {})",
            boolean(random, depth - 1),
            boolean(random, depth - 1)
        ),
        4 => format!(
            "({} OR {})",
            boolean(random, depth - 1),
            boolean(random, depth - 1)
        ),
        5 => format!(
            "({} {})",
            boolean(random, depth - 1),
            boolean(random, depth - 1)
        ),
        _ => format!(
            "({} NOT {})",
            boolean(random, depth - 1),
            boolean(random, depth - 1)
        ),
    }
}

#[test]
fn random_queries_find_what_their_tree_says() {
    let analyzer = Analyzer::new(Language::English);
    let mut random = Random::new(11);
    let (mut cases, mut proper) = (0, 0);
    for _ in 0..15 {
        let mut texts = Texts::english(&[]);
        let documents: Vec<String> = (0..30).map(|_| words(&mut random, 6)).collect();
        for document in &documents {
            texts.add(document);
        }
        for _ in 0..100 {
            let (mode, text) = match random.below(4) {
                0 => (Mode::Match, words(&mut random, 4)),
                1 => (Mode::Prefix, words(&mut random, 2)),
                2 => (Mode::Phrase, words(&mut random, 3)),
                _ => (Mode::Boolean, boolean(&mut random, 3)),
            };
            let Ok(Some(parsed)) = parse(mode, &text, &analyzer) else {
                continue;
            };
            let found_by = |query: &Query| -> Vec<i64> {
                let all = documents.iter().zip(1..);
                all.filter(|(document, _)| holds(query, &places(document, &analyzer)))
                    .map(|(_, id)| id)
                    .collect()
            };
            let mut expected = found_by(&parsed.query);
            if let (true, Some(fallback)) = (expected.is_empty(), &parsed.fallback) {
                expected = found_by(fallback);
            }
            assert_eq!(
                texts.sorted(mode, &text),
                expected,
                "{mode:?} {text}: {parsed:?}"
            );
            cases += 1;
            proper += usize::from(!expected.is_empty() && expected.len() < documents.len());
        }
    }
    assert!(
        cases > 1000 && proper * 2 > cases,
        "{proper} of {cases} find a part of the texts"
    );
}

/// One of six statuses. Two of them differ only in case, and two only in type.
fn status(random: &mut Random) -> JsonObject {
    let values = [
        json!("Open"),
        json!("open"),
        json!("done"),
        json!("[1]"),
        json!([1]),
        json!(1),
    ];
    let value = random.pick(&values).clone();
    JsonObject::from_iter([("status".to_owned(), value)])
}

fn condition(random: &mut Random) -> Condition {
    let text = *random.pick(&["open", "Open", "done", "[1]", "absent"]);
    let case_sensitive = random.below(2) == 0;
    let value = Scalar::Text(text.to_owned());
    let comparison = match random.below(4) {
        0 => Comparison::Exists,
        1 => Comparison::In {
            values: vec![value, Scalar::Int(1)],
            case_sensitive,
        },
        _ => Comparison::Eq {
            value,
            case_sensitive,
        },
    };
    Condition {
        path: path("status"),
        comparison,
    }
}

#[test]
fn an_index_on_the_filter_changes_neither_the_scores_nor_the_order() {
    let analyzer = Analyzer::new(Language::English);
    let mut random = Random::new(12);
    let (mut found, mut capped) = (0, 0);
    for _ in 0..10 {
        let mut texts = Texts::english(&[]);
        for _ in 0..60 {
            let (text, context) = (words(&mut random, 6), words(&mut random, 3));
            let metadata = status(&mut random);
            let change = |entry: &mut StoredEntry| entry.metadata = (&metadata).into();
            texts.put_after(OWNER, change, &context, &text);
        }
        for _ in 0..100 {
            let (mode, text) = match random.below(4) {
                0 => (Mode::Boolean, boolean(&mut random, 2)),
                1 => (Mode::Phrase, words(&mut random, 2)),
                _ => (Mode::Match, words(&mut random, 3)),
            };
            let Ok(Some(query)) = parse(mode, &text, &analyzer) else {
                continue;
            };
            let words = FtsSearch {
                query,
                ranking_cap: *random.pick(&[5, 20, 5000]),
                context_weight: *random.pick(&[0.0, 0.4]),
            };
            let filter = Filter {
                conditions: vec![condition(&mut random)],
                created_from: (random.below(2) == 0).then_some(Timestamp(20_000)),
                ..Filter::default()
            };
            let page = Page {
                limit: 10,
                offset: *random.pick(&[0, 3]),
            };
            let mut run = |indexed: &[_]| {
                let entries = Collection::entries(OWNER);
                let found =
                    search(&mut texts.conn, &words, &filter, entries, page, indexed).unwrap();
                let bits = |(row, score): &(i64, f64)| (*row, score.to_bits());
                let rows: Vec<(i64, u64)> = found.rows.iter().map(bits).collect();
                (rows, found.capped_at, found.used_fallback)
            };
            let with_index = run(&[path("status")]);
            assert_eq!(with_index, run(&[]), "{words:?} {filter:?}");
            found += usize::from(!with_index.0.is_empty());
            capped += usize::from(with_index.1.is_some());
        }
    }
    assert!(
        found > 200 && capped > 50,
        "{found} find something, {capped} reach the cap"
    );
}
