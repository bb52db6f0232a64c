//! Folding: removes the spelling differences that search ignores.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_canonical, decompose_compatible};

use crate::Language;
use crate::chars::{Class, class, is_ignorable};

/// Removes the diacritics of Latin, Greek, Cyrillic, Arabic and Hebrew letters and spells out ligatures (`ß` as `ss`,
/// `æ` as `ae`). `й` stays because it is a letter of its own. Marks of other scripts stay because they are vowels.
/// `word` must be lower-case, in the form of [`crate::Token::word`].
///
/// ```
/// assert_eq!(context_text::fold("müßig"), "mussig");
/// ```
pub fn fold(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    let mut folded = String::with_capacity(word.len());
    fold_into(word, &mut folded);
    if folded == word {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(folded)
    }
}

/// Appends [`fold`] of `word` to `out`.
pub(crate) fn fold_into(word: &str, out: &mut String) {
    let mut base_loses_marks = false;
    for c in word.chars() {
        if c.is_ascii() {
            base_loses_marks = true;
            out.push(c);
        } else if let Some(spelled) = spelled_out(c) {
            base_loses_marks = true;
            out.push_str(spelled);
        } else if is_general_mark(c) {
            if !base_loses_marks {
                out.push(c);
            }
        } else if is_semitic_mark(c) {
        } else if c == 'й' {
            base_loses_marks = false;
            out.push(c);
        } else if loses_marks(c) {
            base_loses_marks = true;
            decompose_canonical(c, |part| {
                if !is_general_mark(part) && !is_semitic_mark(part) {
                    match spelled_out(part) {
                        Some(spelled) => out.push_str(spelled),
                        None => out.push(part),
                    }
                }
            });
        } else {
            // A mark of another script does not change whether the base loses its marks.
            base_loses_marks &= class(c) == Class::Extend;
            out.push(c);
        }
    }
}

/// Letters that Unicode does not decompose but that people type as plain letters.
fn spelled_out(c: char) -> Option<&'static str> {
    Some(match c {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'ø' => "o",
        'ł' => "l",
        'đ' | 'ð' => "d",
        'þ' => "th",
        'ħ' => "h",
        'ı' => "i",
        'ς' => "σ",
        _ => return None,
    })
}

fn is_general_mark(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{36F}' | '\u{483}'..='\u{489}' | '\u{1AB0}'..='\u{1AFF}'
            | '\u{1DC0}'..='\u{1DFF}' | '\u{20D0}'..='\u{20FF}' | '\u{FE20}'..='\u{FE2F}'
    )
}

/// Arabic short vowels and Hebrew points, which everyday writing omits.
fn is_semitic_mark(c: char) -> bool {
    matches!(
        c,
        '\u{591}'..='\u{5BD}' | '\u{5BF}' | '\u{5C1}' | '\u{5C2}' | '\u{5C4}' | '\u{5C5}'
            | '\u{5C7}' | '\u{610}'..='\u{61A}' | '\u{64B}'..='\u{65F}' | '\u{670}'
            | '\u{6D6}'..='\u{6DC}' | '\u{6DF}'..='\u{6E4}' | '\u{6E7}' | '\u{6E8}'
            | '\u{6EA}'..='\u{6ED}'
    )
}

fn loses_marks(c: char) -> bool {
    matches!(
        c,
        '\u{C0}'..='\u{24F}' | '\u{370}'..='\u{52F}' | '\u{590}'..='\u{6FF}'
            | '\u{1E00}'..='\u{1FFF}' | '\u{2C60}'..='\u{2C7F}' | '\u{A720}'..='\u{A7FF}'
            | '\u{FB1D}'..='\u{FB4F}'
    )
}

/// Appends at most `max_chars` characters of the word in lower case and composed form (NFC). Compatibility characters,
/// such as full-width letters, are replaced by the plain ones.
///
/// A character whose compatibility form contains spaces or symbols (`½`, `ﷺ`) stays as it is, so that the result is
/// still one word.
pub(crate) fn lower_into(word: &str, language: Language, max_chars: usize, out: &mut String) {
    if word.chars().all(is_simple) && language != Language::Turkish {
        out.extend(word.chars().take(max_chars).map(simple_lower));
        return;
    }
    let mut decomposed = String::with_capacity(word.len() * 2);
    for c in word.chars().filter(|c| !is_ignorable(*c)) {
        match (c, language) {
            ('I', Language::Turkish) => decomposed.push('ı'),
            ('İ', Language::Turkish) => decomposed.push('i'),
            _ => lower_char_into(c, &mut decomposed),
        }
    }
    out.extend(decomposed.chars().nfc().take(max_chars));
}

fn lower_char_into(c: char, out: &mut String) {
    let start = out.len();
    let mut is_word = true;
    decompose_compatible(c, |part| {
        is_word &= matches!(class(part), Class::Word | Class::Extend) && !is_ignorable(part);
        push_lower(part, out);
    });
    if !is_word || out.len() == start {
        out.truncate(start);
        push_lower(c, out);
    }
}

fn push_lower(c: char, out: &mut String) {
    for lower in c.to_lowercase() {
        out.push(if lower == 'ς' { 'σ' } else { lower });
    }
}

/// Characters that are already composed, have no compatibility form and have a single-character lower case.
fn is_simple(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '\u{C0}'..='\u{FF}' | '\u{410}'..='\u{44F}' | 'Ё' | 'ё' | 'α'..='ω' | 'Α'..='Ω')
}

fn simple_lower(c: char) -> char {
    match c {
        'ς' => 'σ',
        _ => c.to_lowercase().next().unwrap_or(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_removes_what_people_leave_out() {
        let table = [
            ("müller", "muller"),
            ("straße", "strasse"),
            ("œuvre", "oeuvre"),
            ("łódź", "lodz"),
            ("ἄνθρωποσ", "ανθρωποσ"),
            ("ёлка", "елка"),
            ("мой", "мой"),
            ("việt", "viet"),
            ("e\u{301}te\u{301}", "ete"),
            ("مُحَمَّد", "محمد"),
            ("שָׁלוֹם", "שלום"),
            ("हिन्दी", "हिन्दी"),
            ("ガ", "ガ"),
            ("한", "한"),
        ];
        for (word, expected) in table {
            assert_eq!(fold(word), expected);
        }
    }

    #[test]
    fn lower_casing_normalises() {
        let lower = |word: &str, language| {
            let mut out = String::new();
            lower_into(word, language, 64, &mut out);
            out
        };
        let table = [
            ("ÄÖÜ", "äöü"),
            ("A\u{308}", "ä"),
            ("ＡＢＣ１２", "abc12"),
            ("ﬁn", "fin"),
            ("ΟΔΟΣ", "οδοσ"),
            ("J\u{30C}", "\u{1F0}"),
            ("x²", "x2"),
            ("½", "½"),
            ("co\u{AD}op", "coop"),
            ("\u{212A}", "k"),
        ];
        for (word, expected) in table {
            assert_eq!(lower(word, Language::English), expected);
        }
        assert_eq!(lower("IĞDIR", Language::Turkish), "ığdır");
        assert_eq!(lower("İzmir", Language::Turkish), "izmir");
    }
}
