//! Guessing the language of a text.

use crate::{Analyzer, Language, TokenKind, fold};

/// Number of leading characters that are read.
const CHARS: usize = 2_000;

/// Minimum number of stop words of a language in a text in Latin script for the text to count as one in that language.
const MIN_STOP_WORDS: usize = 2;

/// The languages in Latin script. The first wins a tie: English before all others.
const LATIN: [(Language, &str); 14] = [
    (Language::English, "English"),
    (Language::Danish, "Danish"),
    (Language::Dutch, "Dutch"),
    (Language::Finnish, "Finnish"),
    (Language::French, "French"),
    (Language::German, "German"),
    (Language::Italian, "Italian"),
    (Language::Norwegian, "Norwegian"),
    (Language::Portuguese, "Portuguese"),
    (Language::Spanish, "Spanish"),
    (Language::Swedish, "Swedish"),
    (Language::Turkish, "Turkish"),
    (Language::Hungarian, "Hungarian"),
    (Language::Romanian, "Romanian"),
];

/// Frequent words of the two languages in Latin script for which searches have no stop words, folded. Some words that
/// are also frequent in Spanish or French are left out, such as `de` and `la`.
const HUNGARIAN: [&str; 17] = [
    "a", "az", "csak", "egy", "es", "ez", "ezt", "hogy", "is", "lesz", "meg", "mert", "nem",
    "vagy", "van", "vannak", "volt",
];
const ROMANIAN: [&str; 17] = [
    "aceasta", "acest", "care", "cu", "dar", "din", "este", "fost", "intr", "mai", "nu", "pe",
    "pentru", "sa", "sau", "si", "sunt",
];

/// The English name of the language that a text is probably written in, such as `English` or `Chinese`. `None` when its
/// beginning does not show it: code, numbers, a single name.
///
/// The script decides. For Latin script it is the language with the most stop words in the text. For any other script
/// of several languages it is the one with the most speakers.
///
/// ```
/// use context_text::guess_language;
/// assert_eq!(guess_language("What did we decide about the database?"), Some("English"));
/// assert_eq!(guess_language("データベースの移行"), Some("Japanese"));
/// assert_eq!(guess_language("x = 7"), None);
/// ```
#[must_use]
pub fn guess_language(text: &str) -> Option<&'static str> {
    let end = text
        .char_indices()
        .nth(CHARS)
        .map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    let (mut letters, mut kana, mut scripts) = (0, 0, [0_usize; SCRIPTS.len()]);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        letters += 1;
        kana += usize::from(matches!(c, '\u{3041}'..='\u{30FF}'));
        let script = SCRIPTS.iter().position(|(_, is_of)| is_of(c));
        scripts[script.unwrap_or(0)] += 1;
    }
    let (script, count) = (1..SCRIPTS.len())
        .map(|script| (script, scripts[script]))
        .max_by_key(|(_, count)| *count)?;
    // A quarter of the letters suffices: a Chinese character stands for several letters, and texts in every script
    // contain Latin names.
    if count * 4 >= letters && count > 0 {
        let name = SCRIPTS[script].0;
        let japanese = name == "Chinese" && kana * 10 >= count;
        return Some(if japanese { "Japanese" } else { name });
    }
    latin(text)
}

type IsOf = fn(char) -> bool;

/// The language that each script indicates. The first item counts the letters of all other scripts.
const SCRIPTS: [(&str, IsOf); 9] = [
    ("", |_| false),
    (
        "Chinese",
        |c| matches!(c, '\u{3041}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{20000}'..='\u{3FFFF}'),
    ),
    (
        "Korean",
        |c| matches!(c, '\u{1100}'..='\u{11FF}' | '\u{3131}'..='\u{318E}' | '\u{AC00}'..='\u{D7A3}'),
    ),
    ("Thai", |c| matches!(c, '\u{0E00}'..='\u{0E7F}')),
    ("Russian", |c| matches!(c, '\u{0400}'..='\u{052F}')),
    ("Greek", |c| matches!(c, '\u{0370}'..='\u{03FF}')),
    ("Arabic", |c| matches!(c, '\u{0600}'..='\u{06FF}')),
    ("Hebrew", |c| matches!(c, '\u{0590}'..='\u{05FF}')),
    ("Hindi", |c| matches!(c, '\u{0900}'..='\u{097F}')),
];

/// Whether this folded word is frequent in the language.
fn is_frequent(language: Language, word: &str) -> bool {
    match language {
        Language::Hungarian => HUNGARIAN.contains(&word),
        Language::Romanian => ROMANIAN.contains(&word),
        _ => language.is_stop_word(word),
    }
}

fn latin(text: &str) -> Option<&'static str> {
    let mut counts = [0_usize; LATIN.len()];
    Analyzer::new(Language::Unstemmed).tokens(text, &mut |token| {
        if token.kind == TokenKind::Word {
            let word = fold(token.word);
            for (count, (language, _)) in counts.iter_mut().zip(LATIN) {
                *count += usize::from(is_frequent(language, &word));
            }
        }
        true
    });
    let most = counts.into_iter().max().unwrap_or(0);
    let best = LATIN
        .into_iter()
        .zip(counts)
        .find(|(_, count)| *count == most);
    best.filter(|_| most >= MIN_STOP_WORDS)
        .map(|((_, name), _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_of_a_sentence_is_found() {
        for (text, expected) in [
            (
                "We moved the nightly build to half past two.",
                Some("English"),
            ),
            (
                "Wir haben den nächtlichen Lauf auf halb drei verlegt.",
                Some("German"),
            ),
            (
                "Nous avons déplacé la compilation à deux heures et demie.",
                Some("French"),
            ),
            (
                "Hemos movido la compilación nocturna a las dos y media.",
                Some("Spanish"),
            ),
            (
                "Siirsimme yöajon alkamaan puoli kolmelta, koska se ei ole valmis.",
                Some("Finnish"),
            ),
            ("A kutya a házban van", Some("Hungarian")),
            (
                "Am mutat compilarea pentru că nu este gata și sunt erori.",
                Some("Romanian"),
            ),
            ("夜间构建改到两点半，由 Jenkins 运行。", Some("Chinese")),
            ("夜間ビルドは二時半に変わりました", Some("Japanese")),
            ("야간 빌드는 두 시 반으로 옮겼습니다", Some("Korean")),
            ("ย้ายการสร้างตอนกลางคืนไปเป็นตีสองครึ่ง", Some("Thai")),
            (
                "Ночную сборку перенесли на половину третьего",
                Some("Russian"),
            ),
            ("نقلنا البناء الليلي إلى الثانية والنصف", Some("Arabic")),
            ("the fn main() of the 数据", Some("English")),
            ("let x = 7;", None),
            ("", None),
            ("12:30 🙂", None),
        ] {
            assert_eq!(guess_language(text), expected, "{text}");
        }
    }
}
