//! What snippets show.

use context_text::{Analyzer, Language, Mode, highlight, parse};

fn snippet(mode: Mode, query: &str, text: &str, max_chars: usize) -> String {
    let analyzer = Analyzer::new(Language::English);
    let parsed = parse(mode, query, &analyzer)
        .expect("a well-formed query")
        .expect("has words");
    highlight(text, &parsed.query, &analyzer, max_chars)
}

#[test]
fn hits_are_marked_and_everything_else_is_escaped() {
    let table = [
        (
            Mode::Match,
            "fox",
            "A fox, Foxes & <b>",
            "A <mark>fox</mark>, <mark>Foxes</mark> &amp; &lt;b&gt;",
        ),
        (
            Mode::Match,
            "quick fox",
            "quick fox",
            "<mark>quick</mark> <mark>fox</mark>",
        ),
        (
            Mode::Match,
            "cafe",
            "Le Cafe\u{301}!",
            "Le <mark>Cafe\u{301}</mark>!",
        ),
        (Mode::Match, "fox", "no hit", "no hit"),
        (Mode::Match, "fox", "", ""),
        (
            Mode::Prefix,
            "conf",
            "Config the unconf, CONFÉRENCE",
            "<mark>Config</mark> the unconf, <mark>CONFÉRENCE</mark>",
        ),
        (
            Mode::Prefix,
            "connecti",
            "a connection",
            "a <mark>connection</mark>",
        ),
        (
            Mode::Phrase,
            "quick fox",
            "fox quick, quick-fox",
            "fox quick, <mark>quick-fox</mark>",
        ),
        (
            Mode::Phrase,
            "a b a",
            "a b a b a c",
            "<mark>a b a b a</mark> c",
        ),
        (
            Mode::Boolean,
            "fox NOT dog",
            "fox dog",
            "<mark>fox</mark> dog",
        ),
        (
            Mode::Boolean,
            "a OR \"b c\"",
            "c b c a",
            "c <mark>b c</mark> <mark>a</mark>",
        ),
        (
            Mode::Match,
            "数据库",
            "用数据库的",
            "用<mark>数据库</mark>的",
        ),
        (Mode::Match, "数据", "数据库", "<mark>数据</mark>库"),
        (
            Mode::Match,
            "数据库什么时候迁移",
            "周六迁移了数据库，很顺利",
            "周六<mark>迁移</mark>了<mark>数据库</mark>，很顺利",
        ),
        (Mode::Match, "猫", "黒い猫が猫", "黒い<mark>猫が</mark>猫"),
        (
            Mode::Match,
            "x",
            "<x>&amp;",
            "&lt;<mark>x</mark>&gt;&amp;amp;",
        ),
    ];
    for (mode, query, text, expected) in table {
        assert_eq!(
            snippet(mode, query, text, 300),
            expected,
            "{mode:?} {query:?} {text:?}"
        );
    }
}

#[test]
fn a_long_text_is_cut_at_words_around_the_hit() {
    let text = format!(
        "{}the fox sleeps {}",
        "lorem ipsum ".repeat(200),
        "dolor sit ".repeat(200)
    );
    let cut = snippet(Mode::Match, "fox", &text, 60);
    assert_eq!(
        cut,
        "...lorem ipsum the <mark>fox</mark> sleeps dolor sit..."
    );
}

#[test]
fn a_hit_near_an_end_uses_the_whole_width() {
    let words = "lorem ipsum ".repeat(200);
    assert_eq!(
        snippet(Mode::Match, "fox", &format!("fox {words}"), 40),
        "<mark>fox</mark> lorem ipsum lorem..."
    );
    assert_eq!(
        snippet(Mode::Match, "fox", &format!("{words} fox"), 40),
        "...ipsum lorem ipsum  <mark>fox</mark>"
    );
    assert_eq!(
        snippet(Mode::Match, "fox", &words, 40),
        "lorem ipsum lorem ipsum lorem..."
    );
}

#[test]
fn white_space_at_an_end_of_the_text_is_no_cut() {
    let words = "lorem ipsum ".repeat(200);
    assert_eq!(
        snippet(Mode::Match, "fox", &format!("\n\n fox {words}"), 40),
        "<mark>fox</mark> lorem ipsum lorem..."
    );
    assert_eq!(
        snippet(Mode::Match, "fox", &format!("{words} fox \n"), 40),
        "...ipsum lorem ipsum  <mark>fox</mark>"
    );
}

#[test]
fn the_window_with_most_distinct_words_wins_then_most_hits() {
    let gap = "lorem ipsum ".repeat(50);
    let text = format!("quick quick quick {gap} fox quick {gap} fox quick fox");
    let cut = snippet(Mode::Match, "quick fox", &text, 60);
    assert!(
        cut.ends_with("<mark>fox</mark> <mark>quick</mark> <mark>fox</mark>"),
        "{cut}"
    );
}

#[test]
fn marks_and_entities_take_room_from_the_text_and_the_best_words_stay() {
    let foxes = "fox ".repeat(70) + "quick";
    let cut = snippet(Mode::Match, "quick fox", &foxes, 300);
    let expected = "<mark>fox</mark> ".repeat(16) + "<mark>quick</mark>";
    assert_eq!(cut, format!("...{expected}"));
    let tags = "a <fox> & <b>, ".repeat(19);
    for (query, text) in [
        ("fox", tags.repeat(10)),
        ("fox", tags),
        ("fox", "<".repeat(290)),
        ("fox", "<".repeat(290) + "fox"),
        ("fox", "fox&".repeat(1_000)),
        ("数据库", "数据库".repeat(100)),
    ] {
        let cut = snippet(Mode::Match, query, &text, 300);
        let len = cut.chars().count();
        assert!((270..=300).contains(&len), "{query} {len}: {cut}");
        assert_eq!(cut.contains("<mark>"), text.contains(query), "{cut}");
        assert_eq!(
            cut.matches("<mark>").count(),
            cut.matches("</mark>").count(),
            "{cut}"
        );
        // Nothing is left of an entity or a mark that was cut.
        let plain = ["<mark>", "</mark>", "&lt;", "&gt;", "&amp;"]
            .iter()
            .fold(cut.clone(), |cut, whole| cut.replace(whole, ""));
        assert!(!plain.contains(['<', '>', '&', ';']), "{cut}");
    }
}

#[test]
fn a_phrase_torn_apart_by_punctuation_is_marked_in_pieces() {
    let text = format!("quick {} fox {}", ".".repeat(500), "lorem ".repeat(100));
    let cut = snippet(Mode::Phrase, "quick fox", &text, 100);
    assert!(cut.starts_with("<mark>quick</mark>"), "{cut}");
}

#[test]
fn cuts_leave_joined_characters_whole() {
    let family = "👩\u{200D}👩\u{200D}👧";
    let text = format!("{}fox{}", family.repeat(50), family.repeat(50));
    let cut = snippet(Mode::Match, "fox", &text, 40);
    let shown = cut.replace("<mark>", "").replace("</mark>", "");
    let shown = shown.trim_matches('.');
    assert_eq!(shown.replace(family, ""), "fox");
    let accents = "e\u{301}".repeat(500);
    let cut = snippet(Mode::Match, "fox", &format!("fox {accents}"), 40);
    assert!(!cut.ends_with("e..."), "{cut}");
    // A text without spaces is cut between any two characters. One of the widths ends between a kana and its mark.
    let kana = "か\u{3099}".repeat(500);
    for max_chars in [40, 41] {
        let cut = snippet(Mode::Match, "fox", &format!("fox {kana}"), max_chars);
        assert!(cut.ends_with("か\u{3099}..."), "{max_chars}: {cut}");
    }
}

#[test]
fn a_text_without_spaces_is_cut_anywhere() {
    let text = "の".repeat(1000) + "数据库" + &"は".repeat(1000);
    let cut = snippet(Mode::Match, "数据库", &text, 30);
    assert_eq!(
        cut,
        format!(
            "...{}<mark>数据库</mark>{}...",
            "の".repeat(4),
            "は".repeat(4)
        )
    );
}

#[test]
fn the_smallest_widths_are_kept() {
    for max_chars in 0..20 {
        let text = "lorem ipsum abcdefghijklmnopqrstuvwxyz dolor";
        let cut = snippet(Mode::Match, "abcdefghijklmnopqrstuvwxyz", text, max_chars);
        assert!(cut.chars().count() <= max_chars, "{max_chars}: {cut}");
    }
}
