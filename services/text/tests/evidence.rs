//! Snippets of texts whose match lies beyond the opening.

use std::ops::Range;

use context_text::{Analyzer, Clues, Language, content_words, evidence, evidence_sentences};

const TEXT: &str = "The team met on Tuesday and talked about many things. \
    Somebody had brought cake. The nightly build runs at half past two. \
    Nobody liked that. Ann keeps the key of the cellar; Bob has a copy.";

fn find(query: &str, nearest: Option<Range<usize>>, max_chars: usize) -> Option<String> {
    find_in(TEXT, query, nearest, &|_| None, max_chars)
}

fn find_in(
    text: &str,
    query: &str,
    nearest: Option<Range<usize>>,
    similarity: &dyn Fn(&str) -> Option<f64>,
    max_chars: usize,
) -> Option<String> {
    let analyzer = Analyzer::new(Language::English);
    let clues = Clues {
        words: &content_words(query, &analyzer),
        nearest: nearest.as_ref(),
        similarity,
    };
    let opening = text.find(". ").unwrap() + 1;
    evidence(text, opening, clues, &analyzer, max_chars)
}

fn chunk(of: &str) -> Range<usize> {
    let start = TEXT.find(of).unwrap();
    start..start + of.len()
}

#[test]
fn sentences_with_the_words_of_the_query_are_shown_whole() {
    assert_eq!(
        find("when does the build run?", None, 50).as_deref(),
        Some("...The nightly build runs at half past two....")
    );
    assert_eq!(
        find("who has a key?", None, 60).as_deref(),
        Some("...Ann keeps the key of the cellar; Bob has a copy.")
    );
}

#[test]
fn there_is_room_for_what_stands_around_them() {
    let snippet = find("when does the build run?", None, 110).unwrap();
    assert_eq!(
        snippet,
        "...Somebody had brought cake. The nightly build runs at half past two. Nobody liked that...."
    );
    assert!(snippet.chars().count() <= 110);
}

#[test]
fn nothing_is_shown_twice() {
    assert_eq!(find("what was on Tuesday?", None, 60), None);
    let query = "the team met on Tuesday and ate cake";
    assert_eq!(
        find(query, None, 60),
        None,
        "the opening has more words of the query"
    );
}

#[test]
fn without_a_word_in_common_the_nearest_chunk_is_shown() {
    let late = chunk("Nobody liked that. Ann keeps the key");
    assert_eq!(
        find("xylophone", Some(late), 30).as_deref(),
        Some("...Nobody liked that....")
    );
    assert_eq!(find("xylophone", Some(chunk("met on Tuesday")), 30), None);
    let from_the_opening = chunk("things. Somebody had brought cake. The nightly build");
    assert_eq!(
        find("xylophone", Some(from_the_opening), 40).as_deref(),
        Some("...Somebody had brought cake....")
    );
    assert_eq!(find("xylophone", None, 30), None);
}

#[test]
fn a_nearest_chunk_of_white_space_shows_nothing() {
    let text = format!("An opening. The end.{}", " ".repeat(20));
    let chunk = Some(30..text.len());
    assert_eq!(find_in(&text, "xylophone", chunk, &|_| None, 30), None);
}

#[test]
fn of_equal_parts_one_in_the_nearest_chunk_is_shown() {
    // The two sentences about a key have equal scores.
    let text = "An opening. Ann has a key. Something else. Bob has a key. The end.";
    let find = |nearest: &str| {
        let start = text.find(nearest).unwrap();
        let chunk = Some(start..start + nearest.len());
        find_in(text, "keys", chunk, &|_| None, 24)
    };
    assert_eq!(
        find("Ann has a key.").as_deref(),
        Some("...Ann has a key....")
    );
    assert_eq!(
        find("Bob has a key.").as_deref(),
        Some("...Bob has a key....")
    );
}

#[test]
fn long_sentences_and_texts_without_spaces_are_cut_at_the_limit() {
    let analyzer = Analyzer::new(Language::English);
    for text in [
        format!(
            "Opening. {} zebra {}",
            "word ".repeat(200),
            "word ".repeat(200)
        ),
        format!(
            "始まり。{}東京{}",
            "長い話が続く".repeat(60),
            "そして終わる".repeat(60)
        ),
        "👨‍👩‍👧‍👦".repeat(200),
    ] {
        for query in ["zebra", "東京", "👨"] {
            let words = content_words(query, &analyzer);
            for max_chars in [7, 30, 300] {
                let clues = Clues {
                    words: &words,
                    nearest: None,
                    similarity: &|_| None,
                };
                let found = evidence(&text, 9, clues, &analyzer, max_chars);
                let chars = found.as_deref().map_or(0, |found| found.chars().count());
                assert!(chars <= max_chars, "{chars} of {max_chars}");
                assert_eq!(
                    found.is_some(),
                    text.contains(query) && !words.is_empty(),
                    "{query}"
                );
            }
        }
    }
}

#[test]
fn a_similar_sentence_is_shown_although_it_has_none_of_the_words() {
    let similarity = |sentence: &str| {
        Some(if sentence.starts_with("Ann") {
            0.6
        } else {
            0.1
        })
    };
    assert_eq!(
        find_in(TEXT, "who can open the basement?", None, &similarity, 60).as_deref(),
        Some("...Ann keeps the key of the cellar; Bob has a copy.")
    );
    let similarity = |sentence: &str| {
        Some(if sentence.starts_with("The team") {
            0.9
        } else {
            0.1
        })
    };
    assert_eq!(
        find_in(TEXT, "who gathered?", None, &similarity, 60),
        None,
        "the opening is more similar"
    );
}

#[test]
fn words_alone_decide_when_only_some_sentences_were_compared() {
    // Only two sentences were compared, and neither is related to the query.
    let similarity = |sentence: &str| match sentence {
        "Somebody had brought cake." => Some(0.10),
        "Nobody liked that." => Some(0.12),
        _ => None,
    };
    assert_eq!(
        find_in(TEXT, "when does the build run?", None, &similarity, 50).as_deref(),
        Some("...The nightly build runs at half past two....")
    );
}

#[test]
fn two_parts_that_are_far_apart_are_shown_with_a_gap() {
    let filler = "Then we spoke of other things for a while. ".repeat(9);
    let text = format!(
        "An opening. The invoice was sent by Ann. {filler}The invoice was paid in May. The end."
    );
    assert_eq!(
        find_in(&text, "invoice", None, &|_| None, 80).as_deref(),
        Some("...The invoice was sent by Ann. ... The invoice was paid in May. The end.")
    );
}

#[test]
fn a_word_that_begins_alike_is_found_too() {
    let text = "Eine Begrüßung. Es gab Kuchen. Wir haben die Wohnung gekündigt. Danach war Pause.";
    assert_eq!(
        find_in(text, "Kündigung", None, &|_| None, 60),
        None,
        "the first five characters differ"
    );
    let text = "Eine Begrüßung. Es gab Kuchen. Die Anmeldung ist im Mai. Danach war Pause.";
    assert_eq!(
        find_in(text, "anmelden", None, &|_| None, 32).as_deref(),
        Some("...Die Anmeldung ist im Mai....")
    );
}

#[test]
fn of_two_words_that_begin_alike_the_first_decides_in_every_call() {
    // `control` is similar to both words. As a form of `contribute`, which is rarer, it would decide.
    let text = "The opening. Contract one. Contract two. Contract three. Contract four. Contract five. \
        The control is off. The end.";
    for _ in 0..32 {
        assert_eq!(
            find_in(text, "contract, contribute", None, &|_| None, 25).as_deref(),
            Some("...Contract one....")
        );
    }
}

#[test]
fn the_sentences_are_those_that_are_compared() {
    let sentences = evidence_sentences(TEXT, 300);
    let shown: Vec<&str> = sentences.into_iter().map(|bytes| &TEXT[bytes]).collect();
    assert_eq!(shown[1], "Somebody had brought cake.");
    assert_eq!(shown.len(), 6);
}

#[test]
fn the_name_of_a_speaker_stays_with_what_is_said() {
    let text =
        "[9:02] mira: hello. somebody there?\n[9:14] jules: I paused the job.\n[9:20] mira: thanks";
    assert_eq!(
        find_in(text, "who paused the job?", None, &|_| None, 40).as_deref(),
        Some("...[9:14] jules: I paused the job....")
    );
}
