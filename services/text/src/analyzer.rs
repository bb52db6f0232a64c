//! Splits a text into the tokens that are indexed and searched.

use std::borrow::Cow;

use unicode_normalization::char::{compose, decompose_canonical, decompose_compatible};

use crate::Language;
use crate::chars::{Class, class, is_ignorable};
use crate::fold::{fold_into, lower_into};
use crate::stem::stem_into;

/// Words are indexed up to this many characters. The rest of a longer word (base64, minified code) is skipped.
pub const MAX_WORD_CHARS: usize = 64;

/// Maximum number of characters of one unit: a base character of a dense script (a script without spaces, or Korean) and
/// its marks. Further marks are dropped.
const MAX_UNIT_CHARS: usize = 4;

/// Splits a text into words, folds and stems them. Documents and queries use the same analyzer.
///
/// A word is a run of letters, digits and their marks. Every other character separates words, including underscore,
/// hyphen, dot, slash and `@`. Runs in scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese)
/// and in Korean become overlapping pairs of characters (bigrams) instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analyzer {
    language: Language,
}

/// One token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'t> {
    /// The word in lower case, normalised (NFC, full-width forms replaced by plain ones) and unstemmed. In English and
    /// unstemmed text it has no diacritics. The other stemmers need diacritics, so in those languages only
    /// [`crate::fold`] removes them.
    ///
    /// Analyzing `word` again yields one token with the same `word` and `stem`.
    pub word: &'t str,
    /// The form that is indexed and compared: the stem without diacritics. Never empty.
    pub stem: &'t str,
    /// Byte offset of the token's first character in the text.
    pub start: usize,
    /// Byte offset after the token's last character.
    pub end: usize,
    /// Whether this is a word or a piece of a run without spaces.
    pub kind: TokenKind,
}

/// What a [`Token`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A word.
    Word,
    /// Two adjacent characters of a run without spaces. Consecutive bigrams of a run overlap.
    CjkBigram,
    /// The only character of such a run.
    CjkUnigram,
}

/// Buffers that live for one call, so that most tokens cost no allocation.
#[derive(Default)]
struct Scratch {
    lower: String,
    word: String,
    stem: String,
}

type Sink<'f> = &'f mut dyn FnMut(Token<'_>) -> bool;

impl Analyzer {
    /// An analyzer for texts in one language.
    pub fn new(language: Language) -> Self {
        Self { language }
    }

    /// The language this analyzer stems in.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Calls `f` with every token of `text`, in order, until `f` returns false.
    ///
    /// Takes time linear in the length of the text and a constant amount of memory.
    pub fn tokens(&self, text: &str, f: &mut dyn FnMut(Token<'_>) -> bool) {
        let bytes = text.as_bytes();
        let mut scratch = Scratch::default();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let next = if byte.is_ascii_alphanumeric() {
                self.word(text, at, &mut scratch, f)
            } else if byte.is_ascii() {
                Some(at + 1)
            } else {
                let Some(c) = text[at..].chars().next() else {
                    return;
                };
                match class(c) {
                    Class::Word => self.unicode_word(text, at, &mut scratch, f),
                    Class::Dense => dense_run(text, at, &mut scratch, f),
                    Class::Separator | Class::Extend => Some(at + c.len_utf8()),
                }
            };
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// The stem, without diacritics, of a word in the form of [`Token::word`].
    pub fn stem<'w>(&self, word: &'w str) -> Cow<'w, str> {
        let mut stem = String::with_capacity(word.len());
        stem_into(self.language, word, &mut stem);
        if stem == word {
            Cow::Borrowed(word)
        } else {
            Cow::Owned(stem)
        }
    }

    /// Emits the word that starts with the ASCII letter or digit at `start`. Returns the offset at which to continue,
    /// or `None` to stop.
    fn word(&self, text: &str, start: usize, scratch: &mut Scratch, f: Sink<'_>) -> Option<usize> {
        let bytes = text.as_bytes();
        let mut end = start;
        let mut upper = false;
        while let Some(byte) = bytes.get(end)
            && byte.is_ascii_alphanumeric()
        {
            upper |= byte.is_ascii_uppercase();
            end += 1;
        }
        let has_more = bytes.get(end).is_some_and(|byte| !byte.is_ascii())
            && text[end..]
                .chars()
                .next()
                .is_some_and(|c| matches!(class(c), Class::Word | Class::Extend));
        // Turkish lower-cases I to a letter outside ASCII.
        if has_more || (upper && self.language == Language::Turkish) {
            return self.unicode_word(text, start, scratch, f);
        }
        let shown = end.min(start + MAX_WORD_CHARS);
        let mut word = &text[start..shown];
        if upper {
            scratch.word.clear();
            scratch.word.push_str(word);
            scratch.word.make_ascii_lowercase();
            word = &scratch.word;
        }
        let go_on = emit_word(self.language, word, start, shown, &mut scratch.stem, f);
        go_on.then_some(end)
    }

    /// [`Analyzer::word`] for words that contain non-ASCII letters.
    fn unicode_word(
        &self,
        text: &str,
        start: usize,
        scratch: &mut Scratch,
        f: Sink<'_>,
    ) -> Option<usize> {
        let mut shown = start;
        let mut end = text.len();
        for (chars, (offset, c)) in text[start..].char_indices().enumerate() {
            if !matches!(class(c), Class::Word | Class::Extend) {
                end = start + offset;
                break;
            }
            if chars < MAX_WORD_CHARS {
                shown = start + offset + c.len_utf8();
            }
        }
        let source = &text[start..shown];
        scratch.word.clear();
        if self.language.stems_diacritics() {
            lower_into(source, self.language, MAX_WORD_CHARS, &mut scratch.word);
        } else {
            scratch.lower.clear();
            lower_into(source, self.language, MAX_WORD_CHARS, &mut scratch.lower);
            fold_into(&scratch.lower, &mut scratch.word);
            cut(&mut scratch.word, MAX_WORD_CHARS);
        }
        let word = &scratch.word;
        let go_on = emit_word(self.language, word, start, shown, &mut scratch.stem, f);
        go_on.then_some(end)
    }
}

fn emit_word(
    language: Language,
    word: &str,
    start: usize,
    end: usize,
    stem: &mut String,
    f: Sink<'_>,
) -> bool {
    let stem = if language == Language::Unstemmed {
        word
    } else {
        stem.clear();
        stem_into(language, word, stem);
        stem.as_str()
    };
    stem.is_empty()
        || f(Token {
            word,
            stem,
            start,
            end,
            kind: TokenKind::Word,
        })
}

fn cut(word: &mut String, max_chars: usize) {
    if word.len() > max_chars
        && let Some((offset, _)) = word.char_indices().nth(max_chars)
    {
        word.truncate(offset);
    }
}

/// One written character of a dense run: a base character with its marks, and its byte range.
#[derive(Clone, Copy)]
struct Unit {
    chars: [char; MAX_UNIT_CHARS],
    len: usize,
    start: usize,
    end: usize,
}

impl Unit {
    fn new(c: char, start: usize, end: usize) -> Self {
        Self {
            chars: [c; MAX_UNIT_CHARS],
            len: 1,
            start,
            end,
        }
    }

    fn chars(&self) -> &[char] {
        &self.chars[..self.len]
    }

    /// Joins `c` to the unit's last character when Unicode has a composed form of the two.
    fn join(&mut self, c: char) -> bool {
        let last = &mut self.chars[self.len - 1];
        match compose(*last, c) {
            Some(composed) => {
                *last = composed;
                true
            }
            None => false,
        }
    }

    fn add_mark(&mut self, mark: char) {
        if !self.join(mark) && self.len < MAX_UNIT_CHARS {
            self.chars[self.len] = mark;
            self.len += 1;
        }
    }
}

/// Emits the dense run that starts at `start` as bigrams. Returns the offset at which to continue, or `None` to stop.
fn dense_run(text: &str, start: usize, scratch: &mut Scratch, f: Sink<'_>) -> Option<usize> {
    let mut run_end = text.len();
    let mut previous: Option<Unit> = None;
    let mut current: Option<Unit> = None;
    for (offset, c) in text[start..].char_indices() {
        let from = start + offset;
        let to = from + c.len_utf8();
        let kind = class(c);
        if !matches!(kind, Class::Dense | Class::Extend) {
            run_end = from;
            break;
        }
        if let Some(unit) = &mut current {
            if kind == Class::Extend {
                if !is_ignorable(c) {
                    unit.add_mark(plain_dense(c));
                }
                unit.end = to;
                continue;
            }
            // Hangul written as separate jamo composes into syllables.
            if unit.join(c) {
                unit.end = to;
                continue;
            }
        }
        if let (Some(a), Some(b)) = (&previous, &current)
            && !emit_bigram(a, b, &mut scratch.word, f)
        {
            return None;
        }
        previous = current;
        current = Some(Unit::new(plain_dense(c), from, to));
    }
    let go_on = match (&previous, &current) {
        (Some(a), Some(b)) => emit_bigram(a, b, &mut scratch.word, f),
        (None, Some(only)) => {
            scratch.word.clear();
            scratch.word.extend(only.chars());
            emit_dense(
                &scratch.word,
                only.start,
                only.end,
                TokenKind::CjkUnigram,
                f,
            )
        }
        _ => true,
    };
    go_on.then_some(run_end)
}

/// Maps half-width kana to full-width kana and compatibility ideographs to unified ones. Returns other characters
/// unchanged.
fn plain_dense(c: char) -> char {
    let mut plain = c;
    let mut count = 0;
    let mut keep = |part| {
        plain = part;
        count += 1;
    };
    match c {
        '\u{FF66}'..='\u{FF9F}' => decompose_compatible(c, &mut keep),
        '\u{F900}'..='\u{FAFF}' | '\u{2F800}'..='\u{2FA1F}' => decompose_canonical(c, &mut keep),
        _ => return c,
    }
    if count == 1 { plain } else { c }
}

fn emit_bigram(a: &Unit, b: &Unit, word: &mut String, f: Sink<'_>) -> bool {
    word.clear();
    word.extend(a.chars().iter().chain(b.chars()));
    emit_dense(word, a.start, b.end, TokenKind::CjkBigram, f)
}

fn emit_dense(word: &str, start: usize, end: usize, kind: TokenKind, f: Sink<'_>) -> bool {
    f(Token {
        word,
        stem: word,
        start,
        end,
        kind,
    })
}
