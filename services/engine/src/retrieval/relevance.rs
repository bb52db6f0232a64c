//! Relevance: how likely an entry is about the query, 0 to 1.
//!
//! Ranks and scores say which entry is better than another. They do not say whether the best one is any good. The
//! relevance does, and it can be compared between queries. It is a logistic function of these features of an entry:
//!
//! - its similarity to the query, and the share of the query's content words in its text;
//! - how well its token vectors match the query, and how much better than those of the other candidates;
//! - the mean and the spread of the similarities of the nearest entries. In a store without an answer all of them are
//!   about equally far away;
//! - the number of the query's content words, and how many of them no candidate contains. A short question shows
//!   little, and a word that does not occur cannot be matched.
//!
//! tests/retrieval/fit_relevance.py fitted the weights on the tuning halves of the evaluation sets
//! (docs/benchmarks.md), except those for entries without a similarity. A store of two entries has no meaningful mean
//! or spread, so both start from the values of an average store. The share of these values is one of the features.

use std::collections::{HashMap, HashSet};

use context_model::Result;
use context_store::{RankSearch, Ranking, SemanticHit, StoredEntry};

use super::Retrieval;
use super::fusion::part_end;
use super::rerank::{Candidate, Interaction, characters, ranges};
use crate::access::Caller;
use crate::error::store_error;

/// Entries with at least this relevance are clearly relevant. Also the recommended `min_relevance`.
pub(super) const CLEARLY_RELEVANT: f64 = 0.3;
/// Maximum number of entries whose relevance a search with `min_relevance` computes. Its ranking has at least as many,
/// if so many entries match.
pub(super) const MAX_CONSIDERED: u32 = 200;

/// Number of characters read of an entry whose best chunk is unknown.
const COVERAGE_CHARS: u32 = 8_000;

/// Number of nearest entries from which mean and spread are computed. Every search ranks at least as many.
const CROWD: usize = 64;
/// Number of entries that the mean and the spread of an average store stand for.
const CROWD_PRIOR: f64 = 20.0;
/// Mean and standard deviation of the similarities of the nearest entries in an average store.
const MEAN: f64 = 0.1;
const SPREAD: f64 = 0.07;
/// Similarities with a smaller standard deviation count as equal: only rounding distinguishes them.
const MIN_SPREAD: f64 = 1e-6;
/// Mean score of late interaction in an average store, and the number of entries that it stands for.
const INTERACTION_MEAN: f64 = 0.2;
const INTERACTION_PRIOR: f64 = 10.0;

/// The fingerprint and the name of the model that the weights were fitted with, all-MiniLM-L6-v2. Its similarities are
/// used as they are. Those of other models have another scale.
const FITTED_REVISION: &str = "53aa51172d14";
const FITTED_NAME: &str = "all-minilm-l6-v2";

/// A query of more content words than this counts as one of this many.
const MAX_QUERY_WORDS: usize = 12;

/// The relevance of an entry, and the features that it was computed from. `Display` writes the line of `explain_query`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relevance {
    /// 0 to 1.
    pub value: f64,
    features: Features,
}

impl std::fmt::Display for Relevance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Features {
            coverage,
            query_words,
            nearness,
            interaction,
        } = self.features;
        write!(
            f,
            "{:.2}: words {coverage:.3}, query words {query_words}",
            self.value
        )?;
        if let Some(Nearness {
            similarity,
            mean,
            spread,
            prior_share,
        }) = nearness
        {
            write!(
                f,
                ", similarity {similarity:.4}, mean {mean:.4}, spread {spread:.4}, prior share {prior_share:.3}"
            )?;
        }
        if let Some(Match {
            score,
            lead,
            absent_words,
        }) = interaction
        {
            write!(
                f,
                ", late interaction {score:.4}, lead {lead:.4}, absent words {absent_words:.3}"
            )?;
        }
        Ok(())
    }
}

/// The features of an entry from which its relevance is computed.
#[derive(Debug, Clone, Copy)]
struct Features {
    /// The share of the query's content words in the entry's excerpt: its best chunk, or the start of its text if the
    /// best chunk is unknown. With late interaction, rare words count more, and the start is 1 000 characters. Without
    /// late interaction, all words count equally, and the start is 8 000 characters.
    coverage: f64,
    /// Number of content words of the query, up to [`MAX_QUERY_WORDS`].
    query_words: usize,
    nearness: Option<Nearness>,
    interaction: Option<Match>,
}

/// How near an entry is, compared with the nearest ones.
#[derive(Debug, Clone, Copy)]
struct Nearness {
    /// Its similarity to the query.
    similarity: f64,
    /// Mean and spread of the similarities of the nearest entries.
    mean: f64,
    spread: f64,
    /// The share of an average store in mean and spread: 0.95 with one entry, 0.24 with [`CROWD`] entries. In a small
    /// store the nearest entry stands out less.
    prior_share: f64,
}

impl Nearness {
    /// How few entries there are: 0.78 with one, 0.62 with two, 0.04 with 18, 0 with [`CROWD`].
    fn few_entries(&self) -> f64 {
        self.prior_share.powi(5)
    }
}

/// How well an entry's token vectors match the query.
#[derive(Debug, Clone, Copy)]
struct Match {
    /// The score of late interaction.
    score: f64,
    /// The score minus the mean score of the candidates.
    lead: f64,
    /// The share of the query's words that no candidate contains.
    absent_words: f64,
}

impl Features {
    fn relevance(self) -> Relevance {
        let words = self.query_words as f64;
        let logit = match (self.nearness, self.interaction) {
            (Some(near), Some(matched)) => {
                11.44 * near.similarity
                    + 26.63 * near.spread
                    + 2.98 * near.prior_share
                    + 0.84 * near.few_entries()
                    + 1.22 * self.coverage
                    - 0.10 * words
                    + 5.32 * matched.score
                    + 7.17 * matched.lead
                    + 0.82 * matched.absent_words
                    - 8.91
            }
            (Some(near), None) => {
                15.16 * near.similarity
                    + 0.18 * near.mean
                    + 31.57 * near.spread
                    + 2.29 * near.prior_share
                    + 0.73 * near.few_entries()
                    + 4.43 * self.coverage
                    - 0.14 * words
                    - 6.94
            }
            (None, _) => 9.0 * self.coverage - 3.4,
        };
        Relevance {
            value: 1.0 / (1.0 + (-logit).exp()),
            features: self,
        }
    }
}

/// The nearest entries of a search.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Whether the weights were fitted with the model in use.
    is_fitted: bool,
    /// The similarity of each entry. An entry that full text ranks in an earlier part than the semantic ranking has the
    /// greatest similarity that it can have: that of the last semantic hit of the earlier part. A deeper ranking knows
    /// its own, but the relevance of an entry must not depend on the page.
    similarities: HashMap<i64, f64>,
    mean: f64,
    spread: f64,
    prior_share: f64,
}

impl Crowd {
    /// `None` if similarities say nothing: without a semantic ranking, or with a model of unknown scale and nearest
    /// entries that do not show it, because they are too few or equally similar.
    pub fn of(search: &RankSearch, ranking: &Ranking) -> Option<Self> {
        let model = &search.semantic.as_ref()?.model;
        let nearest: Vec<f64> = ranking
            .semantic
            .iter()
            .take(CROWD)
            .map(similarity)
            .collect();
        let count = nearest.len() as f64;
        if nearest.is_empty() {
            return None;
        }
        let mean = nearest.iter().sum::<f64>() / count;
        let variance = nearest
            .iter()
            .map(|similarity| (similarity - mean).powi(2))
            .sum::<f64>()
            / count;
        let is_fitted = is_fitted(&model.identity);
        let (scale, offset, mean, spread) = if is_fitted {
            let with_prior = |value: f64, prior: f64| {
                (count * value + CROWD_PRIOR * prior) / (count + CROWD_PRIOR)
            };
            let spread = with_prior(variance.sqrt(), SPREAD);
            (1.0, 0.0, with_prior(mean, MEAN), spread)
        } else if count >= CROWD_PRIOR && variance.sqrt() >= MIN_SPREAD {
            // Converts the similarities so that mean and spread are those of an average store.
            let scale = SPREAD / variance.sqrt();
            (scale, MEAN - mean * scale, MEAN, SPREAD)
        } else {
            return None;
        };
        let convert = |hit: &SemanticHit| similarity(hit) * scale + offset;
        let mut similarities: HashMap<i64, f64> = ranking
            .semantic
            .iter()
            .map(|hit| (hit.id, convert(hit)))
            .collect();
        for (index, found) in ranking.fts.iter().enumerate() {
            let end = part_end(index).min(search.depth as usize);
            if let Some(last) = ranking.semantic.get(end.saturating_sub(1)) {
                let bound = convert(last);
                let similarity = similarities.entry(found.id).or_insert(bound);
                *similarity = similarity.max(bound);
            }
        }
        Some(Self {
            is_fitted,
            similarities,
            mean,
            spread,
            prior_share: CROWD_PRIOR / (count + CROWD_PRIOR),
        })
    }

    fn nearness(&self, id: i64) -> Option<Nearness> {
        let similarity = *self.similarities.get(&id)?;
        Some(Nearness {
            similarity,
            mean: self.mean,
            spread: self.spread,
            prior_share: self.prior_share,
        })
    }
}

/// The cosine similarity of a hit. All vectors have length 1.
fn similarity(hit: &SemanticHit) -> f64 {
    1.0 - hit.distance * hit.distance / 2.0
}

/// Whether this is the model that the weights were fitted with.
fn is_fitted(identity: &str) -> bool {
    identity.ends_with(FITTED_REVISION) || identity.to_lowercase().contains(FITTED_NAME)
}

impl Retrieval {
    /// The relevance of each of these candidates. Entries that were deleted meanwhile may be missing. `texts`, if
    /// given, are all entries of the page, with as much of their texts as is needed. Otherwise the texts are read.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn relevances(
        &self,
        caller: &Caller,
        query: &str,
        crowd: Option<&Crowd>,
        interaction: &Interaction,
        candidates: &[Candidate],
        texts: Option<&[StoredEntry]>,
    ) -> Result<HashMap<i64, Relevance>> {
        let nearness = |id: i64| crowd.and_then(|crowd| crowd.nearness(id));
        let is_fitted = crowd.is_some_and(|crowd| crowd.is_fitted);
        let scores = &interaction.scores;
        // Sorted, because a sum of floats depends on the order, and that of a hash map differs from search to search.
        let mut sorted: Vec<f64> = scores.values().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let mean = (sorted.iter().sum::<f64>() + INTERACTION_PRIOR * INTERACTION_MEAN)
            / (scores.len() as f64 + INTERACTION_PRIOR);
        let matched = |id: i64| {
            let score = *scores.get(&id).filter(|_| is_fitted)?;
            Some(Match {
                score,
                lead: score - mean,
                absent_words: interaction.absent_words,
            })
        };
        let features = |id: i64, coverage: f64, query_words: usize| Features {
            coverage,
            query_words: query_words.min(MAX_QUERY_WORDS),
            nearness: nearness(id),
            interaction: matched(id),
        };
        let mut relevances = HashMap::with_capacity(candidates.len());
        let mut others = Vec::new();
        for candidate in candidates {
            match interaction.coverage.get(&candidate.id) {
                Some(coverage) => {
                    let features = features(candidate.id, *coverage, interaction.query_words);
                    relevances.insert(candidate.id, features.relevance());
                }
                None => others.push(*candidate),
            }
        }
        let (query_words, coverages) = self.coverage(caller, query, &others, texts).await?;
        for (id, coverage) in coverages {
            relevances.insert(id, features(id, coverage, query_words).relevance());
        }
        Ok(relevances)
    }

    /// Number of different content words of the query, and the share of them that occur in the best chunk of each
    /// candidate, or in the start of its text.
    async fn coverage(
        &self,
        caller: &Caller,
        query: &str,
        candidates: &[Candidate],
        texts: Option<&[StoredEntry]>,
    ) -> Result<(usize, Vec<(i64, f64)>)> {
        if candidates.is_empty() {
            return Ok((0, Vec::new()));
        }
        let words = context_text::content_words(query, &self.analyzer);
        let stems: HashSet<&str> = words.iter().map(|word| word.stem.as_str()).collect();
        let share = |text: &str| {
            let mut seen: HashSet<&str> = HashSet::new();
            self.analyzer.tokens(text, &mut |token| {
                seen.extend(stems.get(token.stem));
                seen.len() < stems.len()
            });
            seen.len() as f64 / stems.len().max(1) as f64
        };
        let coverages = match texts {
            Some(texts) => {
                let ranges = ranges(candidates, COVERAGE_CHARS);
                let of_entry = |entry: &StoredEntry| {
                    let range = ranges.get(&entry.id)?;
                    Some((entry.id, share(characters(&entry.text, *range))))
                };
                texts.iter().filter_map(of_entry).collect()
            }
            None => self
                .excerpts(caller, candidates, COVERAGE_CHARS)
                .await
                .map_err(store_error)?
                .iter()
                .map(|excerpt| (excerpt.id, share(&excerpt.text)))
                .collect(),
        };
        Ok((stems.len(), coverages))
    }
}

#[cfg(test)]
mod tests {
    use context_store::{EmbeddingModel, FtsHit, SemanticSearch};

    use super::*;

    fn search(identity: &str) -> RankSearch {
        RankSearch {
            kind: context_store::DocumentKind::Context,
            fts: None,
            semantic: Some(SemanticSearch {
                model: EmbeddingModel {
                    identity: identity.to_owned(),
                    dimensions: 2,
                },
                vector: vec![1.0, 0.0],
            }),
            depth: 1_000,
            exact: 0,
            boundaries: &[],
            explain: false,
        }
    }

    /// A semantic ranking with these similarities.
    fn ranking(similarities: &[f64]) -> Ranking {
        let hit = |(id, similarity): (i64, &f64)| SemanticHit {
            id,
            distance: (2.0 - 2.0 * similarity).sqrt(),
            chunk: None,
        };
        Ranking {
            semantic: (1..).zip(similarities).map(hit).collect(),
            ..Ranking::default()
        }
    }

    fn relevance(identity: &str, similarities: &[f64], coverage: f64) -> f64 {
        let crowd = Crowd::of(&search(identity), &ranking(similarities)).unwrap();
        let features = Features {
            coverage,
            query_words: 4,
            nearness: crowd.nearness(1),
            interaction: None,
        };
        features.relevance().value
    }

    const FITTED: &str = "model@53aa51172d14";

    #[test]
    fn of_two_entries_a_near_one_is_relevant_and_far_ones_are_not() {
        assert!(relevance(FITTED, &[0.55, 0.05], 0.5) > 0.6);
        assert!(relevance(FITTED, &[0.08, 0.05], 0.0) < 0.2);
    }

    #[test]
    fn each_feature_raises_the_relevance() {
        let base = relevance(FITTED, &[0.3, 0.1], 0.3);
        assert!(relevance(FITTED, &[0.4, 0.1], 0.3) > base, "similarity");
        assert!(relevance(FITTED, &[0.3, 0.1], 0.6) > base, "words");
        let nearness = Nearness {
            similarity: 0.3,
            mean: MEAN,
            spread: SPREAD,
            prior_share: 0.5,
        };
        let interaction = |score: f64| {
            let features = Features {
                coverage: 0.5,
                query_words: 4,
                nearness: Some(nearness),
                interaction: Some(Match {
                    score,
                    lead: score - INTERACTION_MEAN,
                    absent_words: 0.25,
                }),
            };
            features.relevance().value
        };
        assert!(interaction(0.5) > interaction(0.3), "late interaction");
        let words = |coverage: f64| {
            let features = Features {
                coverage,
                query_words: 4,
                nearness: None,
                interaction: None,
            };
            features.relevance().value
        };
        assert!(words(1.0) > 0.9 && words(0.0) < 0.05);
    }

    #[test]
    fn the_scale_of_another_model_is_learned_from_the_store() {
        let near_all = |best: f64| {
            let mut similarities = vec![best];
            similarities.extend((0..40).map(|i| 0.8 - f64::from(i % 5) * 0.005));
            similarities
        };
        assert!(relevance("other", &near_all(0.9), 0.3) > 0.5, "stands out");
        assert!(
            relevance("other", &near_all(0.801), 0.0) < CLEARLY_RELEVANT,
            "does not stand out"
        );
        assert!(
            Crowd::of(&search("other"), &ranking(&[0.9, 0.8])).is_none(),
            "too few to learn from"
        );
        assert!(
            Crowd::of(&search("other"), &ranking(&[0.9; 25])).is_none(),
            "only rounding distinguishes them"
        );
    }

    #[test]
    fn an_entry_that_only_full_text_found_is_at_most_as_similar_as_the_last_of_the_ranking() {
        let mut search = search(FITTED);
        let mut ranking = ranking(&[0.5, 0.2]);
        ranking.fts = vec![FtsHit { id: 9, score: 1.0 }];
        let of = |search: &RankSearch| {
            let nearness = Crowd::of(search, &ranking).unwrap().nearness(9);
            nearness.map(|nearness| nearness.similarity)
        };
        assert_eq!(of(&search), None, "all entries are in it");
        search.depth = 2;
        assert!((of(&search).unwrap() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_similarity_does_not_depend_on_the_depth_of_the_ranking() {
        let similarities: Vec<f64> = (0..300).map(|i| 0.9 - f64::from(i) / 500.0).collect();
        let of = |depth: u32, id: i64| {
            let found = similarities.len().min(depth as usize);
            let mut ranking = ranking(&similarities[..found]);
            ranking.fts = [250, 5].map(|id| FtsHit { id, score: 1.0 }).to_vec();
            let mut search = search(FITTED);
            search.depth = depth;
            let crowd = Crowd::of(&search, &ranking).unwrap();
            crowd.nearness(id).map(|nearness| nearness.similarity)
        };
        for (id, index) in [(250, 199), (5, 4), (200, 199)] {
            for depth in [200, 1_000] {
                let similarity = of(depth, id).unwrap();
                assert!(
                    (similarity - similarities[index]).abs() < 1e-9,
                    "{id} {depth}"
                );
            }
        }
    }
}
