//! Properties that hold for any text.

use context_text::{Analyzer, Language, MAX_WORD_CHARS, Mode, Query, Term, fold, highlight, parse};
use proptest::prelude::*;

/// Text that is likely to cause errors: several scripts, marks, joiners, compatibility forms, syntax.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => "[a-zA-Z]{1,12}",
        4 => Just(" ".to_owned()),
        2 => "[\"()*<>&.,_-]",
        1 => prop_oneof![Just(" AND "), Just(" OR "), Just(" NOT ")].prop_map(str::to_owned),
        2 => "[\u{C0}-\u{24F}]{1,6}",
        1 => "[\u{300}-\u{36F}\u{640}-\u{65F}\u{200C}\u{200D}\u{AD}\u{FE0F}\u{20E3}\u{3099}\u{309A}]{1,4}",
        1 => "[\u{370}-\u{3FF}\u{1F00}-\u{1FFF}]{1,6}",
        1 => "[\u{400}-\u{52F}]{1,8}",
        1 => "[\u{590}-\u{6FF}]{1,8}",
        1 => "[\u{900}-\u{97F}\u{B80}-\u{BFF}]{1,8}",
        1 => "[\u{E00}-\u{E7F}\u{1000}-\u{109F}]{1,8}",
        2 => "[\u{3040}-\u{30FF}\u{4E00}-\u{4E20}]{1,8}",
        1 => "[\u{1100}-\u{11FF}\u{AC00}-\u{AC20}]{1,6}",
        1 => "[\u{FB00}-\u{FDFF}\u{FE70}-\u{FFEF}]{1,6}",
        1 => "[\u{1F1E6}-\u{1F1FF}\u{1F3FB}-\u{1F3FF}\u{1F468}]{1,4}",
        1 => "\\PC{1,8}",
        1 => any::<String>(),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn language() -> impl Strategy<Value = Language> {
    prop::sample::select(Language::ALL.to_vec())
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Match, Mode::Prefix, Mode::Phrase, Mode::Boolean])
}

fn terms(query: &Query, found: &mut Vec<Term>) {
    match query {
        Query::Word(term) | Query::Prefix(term) => found.push(term.clone()),
        Query::Phrase(phrase) => {
            assert!(phrase.len() > 1);
            found.extend(phrase.iter().cloned());
        }
        Query::And(queries) | Query::Or(queries) => {
            assert!(queries.len() > 1);
            queries.iter().for_each(|query| terms(query, found));
        }
        Query::Not { positive, negative } => {
            terms(positive, found);
            terms(negative, found);
        }
    }
}

/// Every token of a text as its word, its stem and the part of the text that it came from.
fn tokens(analyzer: &Analyzer, text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    analyzer.tokens(text, &mut |token| {
        found.push((
            token.word.to_owned(),
            token.stem.to_owned(),
            text[token.start..token.end].to_owned(),
        ));
        true
    });
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens_stand_in_order_on_character_boundaries(text in text(), language in language()) {
        let mut last = (0, 0);
        Analyzer::new(language).tokens(&text, &mut |token| {
            assert!(text.get(token.start..token.end).is_some_and(|found| !found.is_empty()));
            assert!((token.start, token.end) > last);
            assert!(!token.word.is_empty() && !token.stem.is_empty());
            assert!(token.word.chars().count() <= MAX_WORD_CHARS);
            last = (token.start, token.end);
            true
        });
    }

    #[test]
    fn a_word_analyzed_again_is_itself(text in text(), language in language()) {
        let analyzer = Analyzer::new(language);
        for (word, stem, source) in tokens(&analyzer, &text) {
            let again = tokens(&analyzer, &word);
            prop_assert_eq!(
                again,
                vec![(word.clone(), stem.clone(), word.clone())],
                "from {:?}", source
            );
            prop_assert_eq!(analyzer.stem(&word), stem.as_str());
            let folded = fold(&word);
            prop_assert_eq!(fold(&folded), folded.as_ref());
        }
    }

    #[test]
    fn any_input_parses_or_is_refused_with_a_position(
        input in text(), mode in mode(), language in language()
    ) {
        let analyzer = Analyzer::new(language);
        match parse(mode, &input, &analyzer) {
            Ok(None) => prop_assert!(mode == Mode::Boolean || tokens(&analyzer, &input).is_empty()),
            Ok(Some(parsed)) => {
                let mut found = Vec::new();
                terms(&parsed.query, &mut found);
                prop_assert!(!found.is_empty() && found.len() <= context_text::MAX_TERMS);
                for term in found {
                    let again = tokens(&analyzer, &term.word);
                    prop_assert_eq!(again, vec![(term.word.clone(), term.stem, term.word)]);
                }
            }
            Err(error) => {
                prop_assert_eq!(mode, Mode::Boolean);
                prop_assert!(error.position <= input.chars().count());
            }
        }
    }

    #[test]
    fn a_snippet_is_a_window_of_the_text(
        text in text(), query in text(), mode in mode(), language in language(),
        max_chars in 0..120usize, from_text in any::<prop::sample::Index>()
    ) {
        let analyzer = Analyzer::new(language);
        // Half of the queries are words of the text, so that there are hits.
        let words = tokens(&analyzer, &text);
        let query = match words.is_empty() || max_chars % 2 == 0 {
            true => query,
            false => from_text.get(&words).2.clone(),
        };
        let Ok(Some(parsed)) = parse(mode, &query, &analyzer) else {
            return Ok(());
        };
        let snippet = highlight(&text, &parsed.query, &analyzer, max_chars);
        prop_assert_eq!(snippet.matches("<mark>").count(), snippet.matches("</mark>").count());
        prop_assert!(!snippet.contains("<mark></mark>"));
        prop_assert!(snippet.chars().count() <= max_chars, "{snippet:?}");
        let shown = snippet
            .replace("<mark>", "")
            .replace("</mark>", "");
        prop_assert!(!shown.contains(['<', '>']));
        let shown = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let start = shown.strip_prefix("...").unwrap_or(&shown);
        let both = start.strip_suffix("...").unwrap_or(start);
        let end = shown.strip_suffix("...").unwrap_or(&shown);
        prop_assert!([&shown, start, both, end].iter().any(|shown| text.contains(*shown)));
    }

    #[test]
    fn a_text_found_by_its_own_word_shows_a_mark(text in text(), language in language()) {
        let analyzer = Analyzer::new(language);
        for (_, _, source) in tokens(&analyzer, &text).into_iter().take(3) {
            for mode in [Mode::Match, Mode::Prefix, Mode::Phrase] {
                let parsed = parse(mode, &source, &analyzer).expect("only boolean mode refuses input");
                let parsed = parsed.expect("a token is a word to search for");
                let snippet = highlight(&text, &parsed.query, &analyzer, 300);
                prop_assert!(snippet.contains("<mark>"), "{source:?} in {text:?}: {snippet:?}");
            }
        }
    }
}

#[test]
fn every_character_before_a_mark_or_after_a_letter_is_stable() {
    let analyzer = Analyzer::new(Language::Unstemmed);
    for c in ('\0'..='\u{1FFFF}').chain('\u{E0000}'..='\u{E01FF}') {
        for text in [format!("{c}\u{301}"), format!("字{c}")] {
            for (word, stem, _) in tokens(&analyzer, &text) {
                assert_eq!(
                    tokens(&analyzer, &word),
                    [(word.clone(), stem, word)],
                    "{text:?}"
                );
            }
        }
    }
}
