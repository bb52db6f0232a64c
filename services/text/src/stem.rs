//! Stemming, with a small cache of recent words.

use std::cell::RefCell;

use rust_stemmers::Stemmer;

use crate::Language;
use crate::chars::{Class, class};
use crate::fold::fold_into;

/// Appends the stem of a word to `out`: Snowball's stem, folded.
///
/// Words with a digit are identifiers (`utf8`, `k8s`, `3a7bd3e2`) and are not stemmed. The English stemmer is applied
/// only to words of ASCII letters.
pub(crate) fn stem_into(language: Language, word: &str, out: &mut String) {
    let Some(algorithm) = language.algorithm() else {
        out.push_str(word);
        return;
    };
    let ascii = word.is_ascii();
    // Snowball's English stemmer does not change words of up to two letters.
    if language == Language::English && (!ascii || word.len() <= 2) {
        out.push_str(word);
        return;
    }
    let dense = |c| class(c) == Class::Dense;
    if !ascii && word.starts_with(dense) {
        out.push_str(word);
        return;
    }
    if word.bytes().any(|byte| byte.is_ascii_digit()) {
        fold_into(word, out);
        return;
    }
    CACHE.with_borrow_mut(|cache| {
        cache.get_or_insert(language, word, out, |word, out| {
            let before = out.len();
            let stem = Stemmer::create(algorithm).stem(word);
            fold_into(&stem, out);
            if out.len() == before {
                fold_into(word, out);
            }
        });
    });
}

/// Maximum length of a cached word and of its stem, in bytes. A slot then has 63 bytes, about one cache line.
const MAX_CACHED: usize = 30;
const SLOTS: usize = 4096;

thread_local! {
    // Stemming a word takes about 300 ns, a cache lookup 10 ns. Ordinary text repeats its words, so nine lookups in ten
    // hit. The cache takes 252 KiB per thread, allocated when the thread first stems a word.
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache { slots: Vec::new() }) };
}

struct Cache {
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Slot {
    language: u8,
    word_len: u8,
    stem_len: u8,
    word: [u8; MAX_CACHED],
    stem: [u8; MAX_CACHED],
}

impl Cache {
    fn get_or_insert(
        &mut self,
        language: Language,
        word: &str,
        out: &mut String,
        compute: impl FnOnce(&str, &mut String),
    ) {
        if word.len() > MAX_CACHED {
            compute(word, out);
            return;
        }
        if self.slots.is_empty() {
            let empty = Slot {
                language: 0,
                word_len: 0,
                stem_len: 0,
                word: [0; MAX_CACHED],
                stem: [0; MAX_CACHED],
            };
            self.slots.resize(SLOTS, empty);
        }
        let language = language as u8;
        let slot = &mut self.slots[slot_of(word.as_bytes(), language)];
        let cached = slot.language == language
            && slot.word.get(..slot.word_len.into()) == Some(word.as_bytes());
        if cached
            && let Some(stem) = slot.stem.get(..slot.stem_len.into())
            && let Ok(stem) = std::str::from_utf8(stem)
        {
            out.push_str(stem);
            return;
        }
        let before = out.len();
        compute(word, out);
        let stem = &out.as_bytes()[before..];
        if stem.len() <= MAX_CACHED {
            slot.language = language;
            slot.word_len = word.len() as u8;
            slot.stem_len = stem.len() as u8;
            slot.word[..word.len()].copy_from_slice(word.as_bytes());
            slot.stem[..stem.len()].copy_from_slice(stem);
        }
    }
}

/// Fibonacci hash of the word, eight bytes at a time.
fn slot_of(word: &[u8], language: u8) -> usize {
    const K: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = u64::from(language);
    for chunk in word.chunks(8) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(K);
    }
    (hash >> (64 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem(language: Language, word: &str) -> String {
        let mut out = String::new();
        stem_into(language, word, &mut out);
        out
    }

    #[test]
    fn words_are_stemmed_in_their_language() {
        let table = [
            (Language::English, "running", "run"),
            (Language::English, "utf8s", "utf8s"),
            (Language::English, "собаки", "собаки"),
            (Language::German, "häuser", "haus"),
            (Language::German, "schöner", "schon"),
            (Language::French, "aimée", "aim"),
            (Language::Russian, "лисицы", "лисиц"),
            (Language::Unstemmed, "running", "running"),
        ];
        for (language, word, expected) in table {
            assert_eq!(stem(language, word), expected, "{language:?}");
            assert_eq!(stem(language, word), expected, "from the cache");
        }
    }

    #[test]
    fn the_cache_keeps_languages_apart() {
        assert_eq!(stem(Language::English, "nation"), "nation");
        assert_eq!(stem(Language::French, "nation"), "nation");
        assert_eq!(stem(Language::English, "chanter"), "chanter");
        assert_eq!(stem(Language::French, "chanter"), "chant");
        assert_eq!(stem(Language::English, "chanter"), "chanter");
    }
}
