//! What the analyzer produces for texts.

use context_text::{Analyzer, Language, TokenKind};

fn words(language: Language, text: &str) -> Vec<String> {
    collect(language, text, |word, _| word.to_owned())
}

fn stems(language: Language, text: &str) -> Vec<String> {
    collect(language, text, |_, stem| stem.to_owned())
}

fn collect(language: Language, text: &str, pick: fn(&str, &str) -> String) -> Vec<String> {
    let mut found = Vec::new();
    Analyzer::new(language).tokens(text, &mut |token| {
        found.push(pick(token.word, token.stem));
        true
    });
    found
}

#[test]
fn words_are_runs_of_letters_and_digits() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        (" \t\n", &[]),
        ("Hello, World!", &["hello", "world"]),
        (
            "foo_bar-baz.qux/a@b",
            &["foo", "bar", "baz", "qux", "a", "b"],
        ),
        ("utf8 v2 3.14", &["utf8", "v2", "3", "14"]),
        ("don't", &["don", "t"]),
        (
            "👩\u{200D}💻 ok👍🏽 ❤\u{FE0F} 🅰 1\u{FE0F}\u{20E3}",
            &["ok", "1"],
        ),
        ("co\u{AD}operate", &["cooperate"]),
        ("ＦＵＬＬ　ｗｉｄｔｈ１２", &["full", "width12"]),
        (
            "İstanbul STRASSE straße Äpfel",
            &["istanbul", "strasse", "strasse", "apfel"],
        ),
        ("cafe\u{301} CAFÉ", &["cafe", "cafe"]),
        ("ΟΔΟΣ Οδός", &["οδοσ", "οδοσ"]),
        ("Ёлка мой", &["елка", "мой"]),
        ("السَّلامُ عليكم", &["السلام", "عليكم"]),
        ("می\u{200C}خواهم", &["میخواهم"]),
        ("हिन्दी में", &["हिन्दी", "में"]),
        ("ﬁre ﬃ", &["fire", "ffi"]),
        ("\u{301}x", &["x"]),
    ];
    for (text, expected) in table {
        assert_eq!(words(Language::Unstemmed, text), *expected, "{text:?}");
    }
}

#[test]
fn scripts_without_spaces_become_bigrams() {
    let table: &[(&str, &[&str])] = &[
        ("数据库", &["数据", "据库"]),
        ("猫", &["猫"]),
        ("東京タワー", &["東京", "京タ", "タワ", "ワー"]),
        ("Python入門v2書", &["python", "入門", "v2", "書"]),
        ("한국어", &["한국", "국어"]),
        ("한국", &["한국"]),
        ("ｶﾞｷﾞ", &["ガギ"]),
        ("か\u{3099}き", &["がき"]),
        ("中、文", &["中", "文"]),
        ("3月", &["3", "月"]),
        ("ที่นี่", &["ที่นี่"]),
        ("ภาษาไทย", &["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
    ];
    for (text, expected) in table {
        assert_eq!(words(Language::English, text), *expected, "{text:?}");
    }
}

#[test]
fn bigrams_and_words_say_what_they_are_and_where() {
    let mut found = Vec::new();
    Analyzer::new(Language::English).tokens("Ab 中文字, é 字", &mut |token| {
        found.push((token.kind, token.start, token.end));
        true
    });
    assert_eq!(
        found,
        [
            (TokenKind::Word, 0, 2),
            (TokenKind::CjkBigram, 3, 9),
            (TokenKind::CjkBigram, 6, 12),
            (TokenKind::Word, 14, 16),
            (TokenKind::CjkUnigram, 17, 20),
        ]
    );
}

#[test]
fn stems_follow_the_language_and_lose_their_diacritics() {
    let table: &[(Language, &str, &[&str])] = &[
        (Language::English, "Running foxes", &["run", "fox"]),
        (Language::English, "Cafés собаки", &["cafe", "собаки"]),
        (
            Language::German,
            "Häuser Müller muller",
            &["haus", "mull", "mull"],
        ),
        (Language::French, "aimée aimer", &["aim", "aim"]),
        (
            Language::Spanish,
            "canción canciones",
            &["cancion", "cancion"],
        ),
        (Language::Russian, "собака собаки", &["собак", "собак"]),
        (Language::Turkish, "ISPARTA ısparta", &["ispar", "ispar"]),
        (Language::Unstemmed, "Running", &["running"]),
    ];
    for (language, text, expected) in table {
        assert_eq!(stems(*language, text), *expected, "{language:?} {text:?}");
    }
}

#[test]
fn a_word_longer_than_64_characters_is_cut() {
    for letter in ["a", "é", "я"] {
        let text = format!("{} end", letter.repeat(1000));
        let found = words(Language::Unstemmed, &text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].chars().count(), 64);
        assert_eq!(found[1], "end");
    }
}

#[test]
fn false_stops_the_stream() {
    for text in ["one two", "中文字", "é é", "中 é"] {
        let mut calls = 0;
        Analyzer::new(Language::English).tokens(text, &mut |_| {
            calls += 1;
            false
        });
        assert_eq!(calls, 1, "{text:?}");
    }
}
