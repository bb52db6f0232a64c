//! The tokens of the full-text index's `scope` column: an entry's thread, source, content type and tags, so that a
//! search can filter by them. The first letter of a token is its kind.

use context_model::{ContentType, Filter, Source};
use sha2::{Digest, Sha256};

/// Length of the tokens of sources and content types.
const SHORT_TOKEN: usize = 2;
/// Length of the other tokens: the kind, and 64 bits in hexadecimal digits.
const HASHED_TOKEN: usize = 17;

pub(super) fn thread(thread_id: &str) -> String {
    hashed('t', thread_id)
}

pub(super) fn tag(tag: &str) -> String {
    hashed('g', tag)
}

pub(super) const fn source(source: Source) -> &'static str {
    match source {
        Source::User => "su",
        Source::Agent => "sa",
    }
}

pub(super) const fn content_type(content_type: ContentType) -> &'static str {
    match content_type {
        ContentType::Text => "ct",
        ContentType::Multimodal => "cm",
    }
}

/// The kind, and 64 bits of a SHA-256. Every hit is checked against its row, so a collision adds no hit to a search.
fn hashed(kind: char, value: &str) -> String {
    let digest = Sha256::digest(value.as_bytes());
    let mut token = String::with_capacity(HASHED_TOKEN);
    token.push(kind);
    for byte in &digest[..8] {
        for nibble in [byte >> 4, byte & 15] {
            token.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    token
}

/// Whether a word may be equal to a token of the scope: it is as long as one.
pub(super) const fn is_like_token(word: &str) -> bool {
    matches!(word.len(), SHORT_TOKEN | HASHED_TOKEN)
}

/// The part of a filter that the `scope` column serves, as text to append to an FTS5 expression. Empty when it serves
/// nothing.
pub(super) fn expression(filter: &Filter) -> String {
    let mut all = String::new();
    let mut and = |tokens: String| {
        all.push_str(" AND scope : ");
        all.push_str(&tokens);
    };
    if let Some(thread_id) = &filter.thread_id {
        and(quoted(&thread(thread_id.as_str())));
    }
    if let Some(given) = filter.source {
        and(quoted(source(given)));
    }
    if let Some(given) = filter.content_type {
        and(quoted(content_type(given)));
    }
    if let Some(tags) = &filter.tags {
        let any: Vec<String> = tags
            .as_slice()
            .iter()
            .map(|given| quoted(&tag(given)))
            .collect();
        and(format!("({})", any.join(" OR ")));
    }
    all
}

fn quoted(token: &str) -> String {
    format!("\"{token}\"")
}
