//! The measured entries: the same on every machine and in every run.
//!
//! Words are drawn by Zipf's law from an artificial vocabulary, so that there are rare words and words that almost
//! every entry contains, as in real text. Entry `n` depends only on `n`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// Number of distinct words.
pub const VOCABULARY: usize = 50_000;
/// Number of entries in each thread of the loaded corpus.
pub const THREAD_ENTRIES: u64 = 100;
/// Size of an image in bytes, similar to a screenshot.
pub const IMAGE_BYTES: usize = 256 * 1024;
/// Numbers of distinct agents, projects and statuses in the metadata.
pub const AGENTS: u64 = 20;
const PROJECTS: u64 = 50;
const STATUSES: [&str; 5] = ["active", "pending", "done", "blocked", "archived"];
const TAGS: u64 = 200;

/// A description of the corpus for readers of the report.
pub const DESCRIPTION: &str = "entries of 400 to 800 characters (600 on average), words by Zipf's law (exponent 1) from a vocabulary of 50 000; \
     threads of 100 entries, ten written to in turn; metadata with status (5 values), agent_name (20), project (50), priority \
     (1 to 10) and a nested review object; 1 to 3 of 200 tags; images only where the title says so (one of 256 KiB); no model loaded, but vectors of a provider in the bench for semantic and hybrid search";

/// An entry to store.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: &'static str,
    /// The text.
    pub text: String,
    /// The metadata.
    pub metadata: Map<String, Value>,
    /// The tags, sorted.
    pub tags: Vec<String>,
    /// Random bytes that are stored under the type of a PNG image.
    pub image: Option<Bytes>,
}

/// The generator of entries.
#[derive(Debug)]
pub struct Corpus {
    words: Vec<String>,
    /// Cumulative probability of the words up to each rank.
    cumulative: Vec<f64>,
}

impl Corpus {
    /// Builds the vocabulary.
    pub fn new() -> Self {
        let mut total = 0.0;
        let mut cumulative: Vec<f64> = (1..=VOCABULARY)
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        for share in &mut cumulative {
            *share /= total;
        }
        Self {
            words: (0..VOCABULARY).map(word).collect(),
            cumulative,
        }
    }

    /// The word of a rank. Rank 0 is the most frequent.
    pub fn word(&self, rank: usize) -> &str {
        &self.words[rank]
    }

    /// Entry `n`.
    pub fn entry(&self, n: u64) -> Entry {
        let mut random = Random::new(n);
        let length = 400 + random.below(400) as usize;
        let mut text = String::with_capacity(length + 16);
        while text.len() < length {
            if !text.is_empty() {
                text.push_str(if random.below(12) == 0 { ". " } else { " " });
            }
            let share = random.unit();
            text.push_str(
                &self.words[self
                    .cumulative
                    .partition_point(|below| *below < share)
                    .min(VOCABULARY - 1)],
            );
        }
        let mut tags: Vec<String> = (0..1 + random.below(3))
            .map(|_| format!("tag-{:03}", random.below(TAGS).min(random.below(TAGS))))
            .collect();
        tags.sort();
        tags.dedup();
        let metadata = json!({
            "status": STATUSES[random.below(STATUSES.len() as u64) as usize],
            "agent_name": agent(random.below(AGENTS)),
            "project": format!("project-{:02}", random.below(PROJECTS)),
            "priority": 1 + random.below(10),
            "review": {"round": random.below(5), "score": (random.unit() * 1000.0).round() / 1000.0, "by": {"name": format!("reviewer-{}", random.below(8))}},
        });
        let Value::Object(metadata) = metadata else {
            unreachable!("json! of braces is an object")
        };
        let thread = n / (THREAD_ENTRIES * 10) * 10 + n % 10;
        Entry {
            thread_id: format!("thread-{thread:06}"),
            source: if random.below(2) == 0 {
                "user"
            } else {
                "agent"
            },
            text,
            metadata,
            tags,
            image: None,
        }
    }

    /// Entry `n` with an image of [`IMAGE_BYTES`].
    pub fn entry_with_image(&self, n: u64) -> Entry {
        let mut random = Random::new(n ^ 0x696D_6167_6500);
        let image: Vec<u8> = (0..IMAGE_BYTES / 8)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        Entry {
            image: Some(image.into()),
            ..self.entry(n)
        }
    }
}

/// The name of an agent in the metadata.
pub fn agent(n: u64) -> String {
    format!("agent-{n:02}")
}

/// The word for a rank: syllables of a consonant and a vowel. Frequent words are shorter.
fn word(rank: usize) -> String {
    const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
    const VOWELS: &[u8] = b"aiou";
    let syllables = CONSONANTS.len() * VOWELS.len();
    let mut word = String::new();
    // Two syllables yield 56² words. Later ranks have three.
    let mut left = rank;
    let count = if rank < syllables * syllables { 2 } else { 3 };
    if count == 3 {
        left -= syllables * syllables;
    }
    for _ in 0..count {
        let syllable = left % syllables;
        left /= syllables;
        word.push(CONSONANTS[syllable / VOWELS.len()] as char);
        word.push(VOWELS[syllable % VOWELS.len()] as char);
    }
    // With one of these letters at its end, no word of this shape is a stop word or loses a suffix to the stemmer.
    word.push(b"kmnpz"[rank % 5] as char);
    word
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast and the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x9E37_79B9_7F4A_7C15)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from 0, inclusive, to 1, exclusive.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_entry_depends_on_its_number_alone() {
        let (a, b) = (Corpus::new(), Corpus::new());
        let print = |entry: Entry| format!("{entry:?}");
        let first = [print(a.entry(7)), print(a.entry_with_image(8))];
        // In another order.
        let second = [print(b.entry_with_image(8)), print(b.entry(7))];
        assert_eq!((&first[0], &first[1]), (&second[1], &second[0]));
        assert_ne!(a.entry(7).text, a.entry(8).text);
        assert_ne!(a.entry_with_image(7).image, a.entry_with_image(8).image);
        let image = a.entry_with_image(7).image.unwrap();
        assert_eq!(image.len(), IMAGE_BYTES);
    }

    #[test]
    fn words_are_different_and_frequent_ones_are_in_most_entries() {
        let corpus = Corpus::new();
        assert_eq!(
            corpus.words.iter().collect::<HashSet<_>>().len(),
            VOCABULARY
        );
        let with = |rank| {
            (0..300)
                .filter(|n| {
                    corpus
                        .entry(*n)
                        .text
                        .split([' ', '.'])
                        .any(|word| word == corpus.word(rank))
                })
                .count()
        };
        assert!(with(5) > 150, "{}", with(5));
        assert!((1..60).contains(&with(100)), "{}", with(100));
    }

    #[test]
    fn threads_have_a_hundred_entries() {
        let corpus = Corpus::new();
        let threads = (0..2000).map(|n| corpus.entry(n).thread_id).fold(
            std::collections::BTreeMap::new(),
            |mut counts, thread| {
                *counts.entry(thread).or_insert(0) += 1;
                counts
            },
        );
        assert!(threads.len() == 20 && threads.values().all(|count| *count == 100));
    }
}
