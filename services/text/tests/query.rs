//! What the query parser produces for user input.

use context_text::{
    Analyzer, Language, MAX_CANDIDATES, MAX_DEPTH, MAX_TERMS, Mode, Parsed, Query, Term, parse,
};

/// A query in a short notation: `word`, `prefix*`, `"a phrase"`, `(a & b)`, `(a | b)`, `(a - b)`.
fn show(query: &Query) -> String {
    let list = |queries: &[Query], operator: &str| {
        let shown: Vec<_> = queries.iter().map(show).collect();
        format!("({})", shown.join(operator))
    };
    match query {
        Query::Word(term) => term.word.clone(),
        Query::Prefix(term) => format!("{}*", term.word),
        Query::Phrase(terms) => {
            let words: Vec<_> = terms.iter().map(|term| term.word.as_str()).collect();
            format!("\"{}\"", words.join(" "))
        }
        Query::And(queries) => list(queries, " & "),
        Query::Or(queries) => list(queries, " | "),
        Query::Not { positive, negative } => format!("({} - {})", show(positive), show(negative)),
    }
}

fn parsed(mode: Mode, input: &str) -> Option<Parsed> {
    parse(mode, input, &Analyzer::new(Language::English)).expect("a well-formed query")
}

fn shown(mode: Mode, input: &str) -> Option<String> {
    parsed(mode, input).map(|parsed| show(&parsed.query))
}

fn check(mode: Mode, table: &[(&str, &str)]) {
    for (input, expected) in table {
        let found = shown(mode, input).unwrap_or_default();
        assert_eq!(found, *expected, "{mode:?} {input:?}");
    }
}

#[test]
fn match_takes_the_words_that_matter() {
    check(
        Mode::Match,
        &[
            ("", ""),
            ("?! … 👍 \"", ""),
            ("Fox", "fox"),
            ("the fox", "fox"),
            ("quick brown fox", "(quick & brown & fox)"),
            ("the quick brown fox", "(quick & brown & fox)"),
            ("quick brown fox jumps", "(quick | brown | fox | jumps)"),
            ("run running runs", "run"),
            ("fox OR dog", "(fox & dog)"),
            ("NOT (fox", "fox"),
            ("to be or not to be", "(to | be | or | not)"),
            ("who", "who"),
            ("foo-bar", "(foo & bar)"),
            ("数据库", "\"数据 据库\""),
            ("数据 fox", "(数据 & fox)"),
            ("猫", "猫*"),
        ],
    );
}

#[test]
fn match_looks_for_any_bigram_of_a_run_that_is_longer_than_a_word() {
    check(
        Mode::Match,
        &[
            ("数据安全", "\"数据 据安 安全\""),
            ("数据库安全", "(数据 | 据库 | 库安 | 安全)"),
            ("データベース", "\"デー ータ タベ ベー ース\""),
            ("設定を変更", "(設定 | 定を | を変 | 変更)"),
            ("데이터베이스", "\"데이 이터 터베 베이 이스\""),
            ("ข้อมูล", "\"ข้อ อมู มูล\""),
            ("fox 数据库安全", "(fox | 数据 | 据库 | 库安 | 安全)"),
            ("数据库 fox cow dog", "(数据 | 据库 | fox | cow | dog)"),
            ("猫 数据库安全", "(猫* | 数据 | 据库 | 库安 | 安全)"),
            (
                "数据库安全，数据库备份",
                "(数据 | 据库 | 库安 | 安全 | 库备 | 备份)",
            ),
            ("哈哈哈哈哈哈", "哈哈"),
        ],
    );
    let long_in_thai = shown(Mode::Match, "ฉันทำกุญแจบ้านหายเมื่อวานนี้").expect("has words");
    assert!(long_in_thai.starts_with("(ฉั"), "{long_in_thai}");
    for input in ["数据库安全", "수도꼭지에서물이새는것같아요"] {
        assert_eq!(
            parsed(Mode::Match, input).and_then(|parsed| parsed.fallback),
            None
        );
    }
}

#[test]
fn the_rarest_terms_of_a_long_query_are_those_that_few_texts_have() {
    let words: Vec<String> = (0..MAX_TERMS + 3).map(|n| format!("w{n}")).collect();
    let long = || parsed(Mode::Match, &words.join(" ")).expect("has words");
    assert_eq!(long().candidates.len(), words.len());
    let or = |words: &[String]| format!("({})", words.join(" | "));
    assert_eq!(show(&long().query), or(&words[..MAX_TERMS]));

    // The first is in no text, and the second and third are in most.
    let mut frequencies = vec![7; words.len()];
    frequencies[..3].copy_from_slice(&[0, 90, 80]);
    assert_eq!(show(&long().rarest(&frequencies).query), or(&words[3..]));
    frequencies[0] = 1;
    let chosen = long().rarest(&frequencies);
    let last = &words[3..MAX_TERMS + 2];
    assert_eq!(show(&chosen.query), or(&[&words[..1], last].concat()));
    assert!(chosen.candidates.is_empty());

    let nowhere = long().rarest(&vec![0; words.len()]);
    assert_eq!(show(&nowhere.query), or(&words[..MAX_TERMS]));
}

#[test]
fn a_query_whose_terms_fit_has_no_candidates() {
    let words: Vec<String> = (0..MAX_TERMS).map(|n| format!("w{n}")).collect();
    for input in [words.join(" "), "数据".repeat(500), "fox".to_owned()] {
        let found = parsed(Mode::Match, &input).expect("has words");
        assert!(found.candidates.is_empty());
        assert_eq!(found.clone().rarest(&[]), found);
    }
    for mode in [Mode::Prefix, Mode::Phrase] {
        let words: Vec<String> = (0..2 * MAX_TERMS).map(|n| format!("w{n}")).collect();
        assert!(
            parsed(mode, &words.join(" "))
                .expect("has words")
                .candidates
                .is_empty()
        );
    }
}

#[test]
fn candidates_come_from_all_parts_of_an_endless_query() {
    let words: Vec<String> = (0..5 * MAX_CANDIDATES).map(|n| format!("w{n}")).collect();
    let candidates = parsed(Mode::Match, &words.join(" "))
        .expect("has words")
        .candidates;
    assert_eq!(candidates.len(), MAX_CANDIDATES);
    let tenths: std::collections::HashSet<usize> = candidates
        .iter()
        .filter_map(|query| words.iter().position(|word| *word == show(query)))
        .map(|at| at * 10 / words.len())
        .collect();
    assert_eq!(tenths.len(), 10);
}

#[test]
fn match_falls_back_to_any_word_when_few_are_asked_for() {
    let fallback = |input| {
        parsed(Mode::Match, input)
            .and_then(|parsed| parsed.fallback)
            .map(|query| show(&query))
    };
    assert_eq!(fallback("fox"), None);
    assert_eq!(fallback("the fox"), None);
    assert_eq!(fallback("quick fox").as_deref(), Some("(quick | fox)"));
    assert_eq!(fallback("one two three four"), None);
    assert_eq!(fallback("数据库").as_deref(), Some("(数据 | 据库)"));
    assert_eq!(fallback("数据"), None);
}

#[test]
fn the_loosest_form_asks_for_any_word() {
    for (input, expected) in [
        ("fox", "fox"),
        ("quick fox", "(quick | fox)"),
        ("one two three four", "(one | two | three | four)"),
    ] {
        let parsed = parsed(Mode::Match, input).expect("has words");
        assert_eq!(show(parsed.loosest()), expected);
    }
}

#[test]
fn prefix_wants_every_word_as_a_beginning() {
    check(
        Mode::Prefix,
        &[
            ("", ""),
            ("*", ""),
            ("conf", "conf*"),
            ("conf*", "conf*"),
            ("the Conf AND", "(the* & conf* & and*)"),
            ("run run", "run*"),
            ("foo-ba", "(foo* & ba*)"),
            ("数据库", "\"数据 据库\""),
            ("猫", "猫*"),
        ],
    );
}

#[test]
fn phrase_keeps_every_word_in_order() {
    check(
        Mode::Phrase,
        &[
            ("  ", ""),
            ("fox", "fox"),
            ("the quick the fox", "\"the quick the fox\""),
            ("to \"be\" OR (not)", "\"to be or not\""),
            ("Python入門書", "\"python 入門 門書\""),
            ("black 猫", "(black & 猫*)"),
        ],
    );
}

#[test]
fn boolean_understands_operators_quotes_and_prefixes() {
    check(
        Mode::Boolean,
        &[
            ("", ""),
            ("fox", "fox"),
            ("fox dog", "(fox & dog)"),
            ("fox AND dog", "(fox & dog)"),
            ("fox OR dog", "(fox | dog)"),
            ("fox and dog", "(fox & and & dog)"),
            ("a OR b c", "(a | (b & c))"),
            ("a b OR c AND d", "((a & b) | (c & d))"),
            ("(a OR b) c", "((a | b) & c)"),
            ("a NOT b", "(a - b)"),
            ("a AND NOT b", "(a - b)"),
            ("NOT b a", "(a - b)"),
            ("a NOT b c", "((a & c) - b)"),
            ("a NOT b NOT c", "(a - (b | c))"),
            ("a OR b NOT c", "(a | (b - c))"),
            ("a NOT (b OR c)", "(a - (b | c))"),
            ("a NOT (b NOT c)", "(a - (b - c))"),
            ("\"quick fox\"", "\"quick fox\""),
            ("“quick fox” x", "(\"quick fox\" & x)"),
            ("„quick fox“ x", "(\"quick fox\" & x)"),
            ("„quick fox” „a b“", "(\"quick fox\" & \"a b\")"),
            ("\"fox\"", "fox"),
            ("\"a OR (b\"", "\"a or b\""),
            ("conf*", "conf*"),
            ("conf**", "conf*"),
            ("foo-bar", "\"foo bar\""),
            ("foo-ba*", "(foo & ba*)"),
            ("a.b.c*", "(\"a b\" & c*)"),
            ("AND*", "and*"),
            ("a(b)c\"d e\"f", "(a & b & c & \"d e\" & f)"),
            ("((((a))))", "a"),
            ("数据库 OR 猫", "(\"数据 据库\" | 猫*)"),
        ],
    );
}

#[test]
fn operands_with_nothing_to_search_for_are_left_out() {
    check(
        Mode::Boolean,
        &[
            ("👍", ""),
            ("\"\"", ""),
            ("a - b", "(a & b)"),
            ("a OR !!!", "a"),
            ("a NOT 👍", "a"),
            ("!!! NOT b", ""),
            ("a AND (\"!\" NOT b)", "(a - b)"),
            ("(! NOT b) AND (! NOT c) a", "(a - (b | c))"),
            ("a (! NOT b OR ! NOT c)", "(a - (b & c))"),
            ("a (! NOT b OR c)", "(a & c)"),
            ("a NOT (! NOT b)", "a"),
            ("(!!!) OR c", "c"),
            ("*", ""),
        ],
    );
}

#[test]
fn a_malformed_boolean_query_says_where_and_what() {
    let table = [
        ("fox \"dog", 4, "this quote is never closed: add a `\"`"),
        ("é (fox", 2, "this parenthesis is never closed: add a `)`"),
        ("fox (", 4, "this parenthesis is never closed: add a `)`"),
        (
            "fox)",
            3,
            "this parenthesis was never opened: remove it or add a `(`",
        ),
        (
            ")",
            0,
            "this parenthesis was never opened: remove it or add a `(`",
        ),
        (
            "()",
            1,
            "expected a word, a quoted phrase or `(` after `(`, found `)`",
        ),
        (
            "fox AND",
            7,
            "expected a word, a quoted phrase or `(` after `AND`, found the end of the query",
        ),
        (
            "AND fox",
            0,
            "expected a word, a quoted phrase or `(`, found AND",
        ),
        ("OR", 0, "expected a word, a quoted phrase or `(`, found OR"),
        (
            "a OR OR b",
            5,
            "expected a word, a quoted phrase or `(` after `OR`, found OR",
        ),
        (
            "a AND OR b",
            6,
            "expected a word, a quoted phrase or `(` after `AND`, found OR",
        ),
        (
            "a NOT NOT b",
            6,
            "expected a word, a quoted phrase or `(` after `NOT`, found NOT",
        ),
        (
            "a NOT",
            5,
            "expected a word, a quoted phrase or `(` after `NOT`, found the end of the query",
        ),
        (
            "(a OR) b",
            5,
            "expected a word, a quoted phrase or `(` after `OR`, found `)`",
        ),
        (
            "NOT fox",
            0,
            "NOT needs something to exclude from: write `this NOT that`",
        ),
        (
            "a OR NOT b",
            5,
            "NOT needs something to exclude from: write `this NOT that`",
        ),
        (
            "a (NOT b)",
            3,
            "NOT needs something to exclude from: write `this NOT that`",
        ),
    ];
    for (input, position, message) in table {
        let error = parse(Mode::Boolean, input, &Analyzer::new(Language::English)).unwrap_err();
        assert_eq!(
            (error.position, error.message.as_str()),
            (position, message),
            "{input:?}"
        );
    }
}

#[test]
fn parentheses_may_nest_only_so_deep() {
    let nested = |levels: usize| format!("{}x{}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(
        shown(Mode::Boolean, &nested(MAX_DEPTH)).as_deref(),
        Some("x")
    );
    let analyzer = Analyzer::new(Language::English);
    let error = parse(Mode::Boolean, &nested(MAX_DEPTH + 1), &analyzer).unwrap_err();
    assert_eq!(error.position, MAX_DEPTH);
    assert!(error.message.contains("deeper than"), "{error}");
    let error = parse(Mode::Boolean, &"(".repeat(1_000_000), &analyzer).unwrap_err();
    assert_eq!(error.position, MAX_DEPTH);
    assert!(error.message.contains("deeper than"), "{error}");
}

#[test]
fn a_boolean_query_with_too_many_words_is_refused() {
    let words = |count: usize| {
        let words: Vec<_> = (0..count).map(|n| format!("w{n}")).collect();
        words.join(" ")
    };
    let analyzer = Analyzer::new(Language::English);
    let quoted = |count| format!("\"{}\"", words(count));
    // The bigrams of a run are one fewer than its characters.
    let run = |count: usize| "字".repeat(count + 1);
    for most in [words(MAX_TERMS), quoted(MAX_TERMS), run(MAX_TERMS)] {
        assert!(parse(Mode::Boolean, &most, &analyzer).is_ok(), "{most}");
    }
    for input in [
        words(MAX_TERMS + 1),
        quoted(MAX_TERMS + 1),
        run(MAX_TERMS + 1),
    ] {
        let error = parse(Mode::Boolean, &input, &analyzer).unwrap_err();
        let message = format!("a query has at most {MAX_TERMS} words");
        assert_eq!(error.message, message, "{input}");
    }
}

#[test]
fn the_other_modes_use_the_first_terms() {
    let words: Vec<_> = (0..1000)
        .flat_map(|n| [format!("w{n}"), "w0".to_owned()])
        .collect();
    let run: String = ('一'..).take(1000).collect();
    for input in [words.join(" "), run] {
        for mode in [Mode::Match, Mode::Prefix, Mode::Phrase] {
            let parsed = parsed(mode, &input).expect("has words");
            assert_eq!(count(&parsed.query), MAX_TERMS, "{mode:?}");
        }
    }
}

fn count(query: &Query) -> usize {
    match query {
        Query::Word(_) | Query::Prefix(_) => 1,
        Query::Phrase(terms) => terms.len(),
        Query::And(queries) | Query::Or(queries) => queries.iter().map(count).sum(),
        Query::Not { positive, negative } => count(positive) + count(negative),
    }
}

#[test]
fn terms_carry_the_word_and_its_stem() {
    let query = |language, input| {
        parse(Mode::Phrase, input, &Analyzer::new(language))
            .expect("any input parses")
            .map(|parsed| parsed.query)
    };
    let word = |word: &str, stem: &str| {
        Some(Query::Word(Term {
            word: word.to_owned(),
            stem: stem.to_owned(),
        }))
    };
    assert_eq!(query(Language::English, "Running"), word("running", "run"));
    assert_eq!(query(Language::French, "Aimée"), word("aimée", "aim"));
    assert_eq!(
        query(Language::German, "Müller"),
        query(Language::German, "MÜLLER")
    );
}

#[test]
fn stop_words_are_those_of_the_language() {
    let table = [
        (
            Language::German,
            "die Häuser über dem Fluß",
            "(häuser & fluß)",
        ),
        (Language::French, "l'été à la mer", "(été & mer)"),
        (Language::Spanish, "qué hay más allá", "allá"),
        (Language::Russian, "где моя собака", "(моя & собака)"),
        (Language::Unstemmed, "the fox", "(the & fox)"),
    ];
    for (language, input, expected) in table {
        let parsed = parse(Mode::Match, input, &Analyzer::new(language)).expect("any input parses");
        assert_eq!(
            parsed.map(|parsed| show(&parsed.query)).as_deref(),
            Some(expected),
            "{language:?}"
        );
    }
}

#[test]
fn an_analyzer_can_be_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Analyzer>();
    shared::<Parsed>();
}
