//! The token vectors of texts that were stored or encoded recently, in memory. Reranking need not encode them again.
//! The vectors of sentences that were compared for snippets are cached here too.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use context_providers::TokenCodes;

use crate::lock;

/// Bytes that a text takes besides its codes.
const OVERHEAD: usize = 160;

/// A text, as 128 bits of a keyed hash. The keys differ in each process, so no caller can make two texts collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TextKey([u64; 2]);

/// The token vectors of the most recently used texts.
///
/// The key is a hash of the text, not an entry's id, so a changed text never gets the token vectors of the old one.
#[derive(Debug)]
pub(crate) struct TokenCache {
    max_bytes: usize,
    hashers: [RandomState; 2],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    texts: HashMap<TextKey, Cached>,
    /// The texts by their last use, oldest first.
    by_use: BTreeMap<u64, TextKey>,
    /// Number of uses so far.
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Cached {
    codes: Arc<TokenCodes>,
    last_use: u64,
}

impl TokenCache {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            hashers: Default::default(),
            state: Mutex::default(),
        }
    }

    /// The key of the token vectors of this text.
    pub fn key(&self, text: &str) -> TextKey {
        TextKey(self.hashers.each_ref().map(|hasher| hasher.hash_one(text)))
    }

    /// The key of a sentence's one vector. It differs from the key of the token vectors of the same text.
    pub fn sentence_key(&self, text: &str) -> TextKey {
        let hash = |hasher: &RandomState| hasher.hash_one(("sentence", text));
        TextKey(self.hashers.each_ref().map(hash))
    }

    pub fn get(&self, text: TextKey) -> Option<Arc<TokenCodes>> {
        let mut state = lock::locked(&self.state);
        let State {
            texts,
            by_use,
            uses,
            bytes: _,
        } = &mut *state;
        let cached = texts.get_mut(&text)?;
        *uses += 1;
        by_use.remove(&cached.last_use);
        by_use.insert(*uses, text);
        cached.last_use = *uses;
        Some(Arc::clone(&cached.codes))
    }

    /// Stores the codes of a text. If they do not fit, the least recently used texts are dropped.
    pub fn insert(&self, text: TextKey, codes: Arc<TokenCodes>) {
        let size = size(&codes);
        if size > self.max_bytes {
            return;
        }
        let mut state = lock::locked(&self.state);
        state.remove(text);
        while state.bytes + size > self.max_bytes
            && let Some((_, oldest)) = state.by_use.first_key_value()
        {
            let oldest = *oldest;
            state.remove(oldest);
        }
        state.uses += 1;
        state.bytes += size;
        let last_use = state.uses;
        state.by_use.insert(last_use, text);
        state.texts.insert(text, Cached { codes, last_use });
    }
}

impl State {
    fn remove(&mut self, text: TextKey) {
        if let Some(Cached { codes, last_use }) = self.texts.remove(&text) {
            self.by_use.remove(&last_use);
            self.bytes -= size(&codes);
        }
    }
}

fn size(codes: &TokenCodes) -> usize {
    codes.bytes() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of this many tokens with two dimensions. They take 1 byte each, and 1 byte more together.
    fn codes(tokens: usize) -> Arc<TokenCodes> {
        Arc::new(TokenCodes::encode(&[0.6, 0.8].repeat(tokens), 2))
    }

    #[test]
    fn the_texts_that_were_used_last_are_kept_within_the_bytes() {
        let cache = TokenCache::new(3 * (OVERHEAD + 101));
        let keys = ["a", "b", "c", "d"].map(|text| cache.key(text));
        for key in &keys[..3] {
            cache.insert(*key, codes(100));
        }
        assert!(cache.get(keys[0]).is_some(), "now the newest");
        cache.insert(keys[3], codes(100));
        assert_eq!(
            keys.map(|key| cache.get(key).is_some()),
            [true, false, true, true]
        );
        // A text that is twice as large replaces two.
        cache.insert(cache.key("long"), codes(200));
        assert_eq!(
            keys.map(|key| cache.get(key).is_some()),
            [false, false, false, true]
        );
        cache.insert(cache.key("too long"), codes(1_000));
        assert!(cache.get(cache.key("too long")).is_none());
        assert!(cache.get(keys[3]).is_some(), "it dropped nothing for that");
    }

    #[test]
    fn a_text_that_is_inserted_again_takes_its_place_once() {
        let cache = TokenCache::new(2 * (OVERHEAD + 101));
        let (a, b) = (cache.key("a"), cache.key("b"));
        cache.insert(b, codes(100));
        for _ in 0..5 {
            cache.insert(a, codes(100));
        }
        assert_eq!(cache.get(a), Some(codes(100)));
        assert!(cache.get(b).is_some());
        let state = lock::locked(&cache.state);
        assert_eq!((state.texts.len(), state.by_use.len()), (2, 2));
        assert_eq!(state.bytes, cache.max_bytes);
    }
}
