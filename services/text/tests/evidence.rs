//! What a snippet shows of a text whose opening does not have what matches.

use std::ops::Range;

use context_text::{Analyzer, Language, content_words, evidence};

const TEXT: &str = "The team met on Tuesday and talked about many things. \
    Somebody had brought cake. The nightly build runs at half past two. \
    Nobody liked that. Ann keeps the key of the cellar; Bob has a copy.";
/// The bytes of the first sentence.
const OPENING: usize = 53;

fn find(query: &str, nearest: Option<Range<usize>>, max_chars: usize) -> Option<String> {
    let analyzer = Analyzer::new(Language::English);
    let words = content_words(query, &analyzer);
    evidence(TEXT, OPENING, nearest, &words, &analyzer, max_chars)
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
        "...The nightly build runs at half past two. Nobody liked that. Ann keeps the key of the cellar;..."
    );
    assert!(snippet.chars().count() <= 110);
}

#[test]
fn nothing_is_shown_twice() {
    assert_eq!(find("what was on Tuesday?", None, 60), None);
    let query = "the team met on Tuesday and ate cake";
    assert_eq!(find(query, None, 60), None, "the opening has more of it");
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
fn of_equal_parts_one_in_the_nearest_chunk_is_shown() {
    // Both names of the owners of keys are in sentences of their own.
    let text = "An opening. Ann has a key. Something else. Bob has a key. The end.";
    let analyzer = Analyzer::new(Language::English);
    let words = content_words("keys", &analyzer);
    let find = |nearest: &str| {
        let start = text.find(nearest).unwrap();
        evidence(
            text,
            11,
            Some(start..start + nearest.len()),
            &words,
            &analyzer,
            24,
        )
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
                let found = evidence(&text, 9, None, &words, &analyzer, max_chars);
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
