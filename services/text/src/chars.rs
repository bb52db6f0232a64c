//! Character classes that the analyzer distinguishes.

use unicode_normalization::char::is_combining_mark;

/// The role of a character when a text is split into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Ends a word: spaces, punctuation, symbols, emoji.
    Separator,
    /// A letter or digit of a script that separates its words.
    Word,
    /// A letter of Korean or of a script written without spaces. Indexed as bigrams.
    Dense,
    /// Continues the preceding character and never starts a token: combining marks and invisible joiners.
    Extend,
}

/// The class of a character. ASCII has only `Word` and `Separator`.
pub(crate) fn class(c: char) -> Class {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() {
            Class::Word
        } else {
            Class::Separator
        };
    }
    if is_ignorable(c) {
        return Class::Extend;
    }
    if c < '\u{300}' {
        return if c.is_alphanumeric() {
            Class::Word
        } else {
            Class::Separator
        };
    }
    // Unicode classifies the half-width voiced sound marks as letters.
    if is_combining_mark(c) || matches!(c, '\u{FF9E}' | '\u{FF9F}') {
        return Class::Extend;
    }
    // Unicode classifies the squared and circled letters of the emoji blocks as alphabetic.
    if matches!(c, '\u{1F000}'..='\u{1FAFF}') || !c.is_alphanumeric() {
        return Class::Separator;
    }
    if is_dense_script(c) && !c.is_numeric() || matches!(c, '\u{3007}' | '\u{3021}'..='\u{3029}') {
        Class::Dense
    } else {
        Class::Word
    }
}

/// Characters that search ignores: soft hyphen, joiners, tatweel, variation selectors. They neither split a word nor
/// become part of it.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{AD}'
            | '\u{34F}'
            | '\u{640}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200C}'
            | '\u{200D}'
            | '\u{2060}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{E0100}'..='\u{E01EF}'
    )
}

/// Han, Kana, Bopomofo and Hangul, and the South-East Asian scripts without spaces (Thai, Lao, Khmer, Myanmar). Without
/// this class a whole sentence in a script without spaces would be one word.
fn is_dense_script(c: char) -> bool {
    matches!(
        c,
        '\u{0E00}'..='\u{0EFF}'
            | '\u{1000}'..='\u{109F}'
            | '\u{1100}'..='\u{11FF}'
            | '\u{1780}'..='\u{17FF}'
            | '\u{3005}'..='\u{3007}'
            | '\u{3031}'..='\u{3035}'
            | '\u{303B}'..='\u{303C}'
            | '\u{3041}'..='\u{318F}'
            | '\u{31A0}'..='\u{31BF}'
            | '\u{31F0}'..='\u{31FF}'
            | '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'
            | '\u{A960}'..='\u{A97F}'
            | '\u{A9E0}'..='\u{A9FF}'
            | '\u{AA60}'..='\u{AA7F}'
            | '\u{AC00}'..='\u{D7FF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{FF66}'..='\u{FFDC}'
            | '\u{1AFF0}'..='\u{1B16F}'
            | '\u{20000}'..='\u{3FFFF}'
    )
}

/// Whether words that contain this dense character are short: Han and Hiragana. Words in Katakana, Hangul and the
/// South-East Asian scripts have more characters.
pub(crate) fn is_of_short_words(c: char) -> bool {
    matches!(
        c,
        '\u{3005}'..='\u{3007}'
            | '\u{3041}'..='\u{309F}'
            | '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{3FFFF}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_play_the_expected_part() {
        let table: &[(&str, Class)] = &[
            ("aZ0éßжλשع९\u{FF21}٣๓", Class::Word),
            ("中々〇あアーｱ한ㄱ\u{1112}ไทกကខ\u{20000}", Class::Dense),
            (" _-./@'\u{2019}…—。、・€👍🅰🇩☃\u{0}฿", Class::Separator),
            (
                "\u{301}\u{AD}\u{200D}\u{FE0F}\u{640}\u{64B}\u{E31}\u{3099}",
                Class::Extend,
            ),
        ];
        for (chars, expected) in table {
            for c in chars.chars() {
                assert_eq!(class(c), *expected, "{c:?}");
            }
        }
    }
}
