//! Fuses the rankings of the full-text retriever and the semantic retriever into one.

use std::collections::{HashMap, HashSet};

use context_model::FusionMethod;
use context_store::{FtsHit, Ranking, SemanticHit};

/// Number of ranks in the first part of each ranking.
pub(super) const FIRST_PART: usize = 200;
/// Number of ranks in the first and the second part of each ranking together.
pub(super) const DEEP: usize = 1_000;
/// The ranks at which the first and the second part end.
pub(super) const BOUNDARIES: [u32; 2] = [FIRST_PART as u32, DEEP as u32];

/// The method that fuses two rankings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fusion {
    /// The sum of `1 / (k + rank)` (Cormack, Clarke, Büttcher, SIGIR 2009).
    ReciprocalRank {
        /// The constant k.
        k: f64,
        /// Only ranks up to this one are added. With k = 60, an entry with rank 61 in both rankings would otherwise
        /// score higher than one that is first in only one ranking. An entry that is beyond the window in both gets the
        /// score of its better rank only. This score is below that of any rank in the window.
        window: i64,
    },
    /// The weighted sum of the scores. The scores of each ranking are first scaled to the range 0 to 1.
    Convex,
}

/// Weight of full-text scores in [`Fusion::Convex`]. The weight of semantic scores is 1 minus this.
const FTS_WEIGHT: f64 = 0.6;
/// Weight of full-text scores in [`Fused::blend`] if the best hits of both retrievers stand out equally. Late
/// interaction, which follows, also compares words.
const BLEND_FTS_WEIGHT: f64 = 0.35;
/// How much the weight of full-text scores in [`Fused::blend`] rises with the fragmentation of the query. A model
/// embeds words poorly that its tokenizer breaks into many pieces.
const FRAGMENTATION_WEIGHT: f64 = 0.3;
/// How much a retriever's weight in [`Fused::blend`] rises when its best hit stands out by one more standard deviation.
const LEAD_WEIGHT: f64 = 0.05;
/// Limits of the weight of full-text scores in [`Fused::blend`].
const BLEND_FTS_WEIGHTS: (f64, f64) = (0.1, 0.9);
/// The full-text score for which an entry without the query's words stands, as a share of the last hit's score. With 0,
/// answers in long chats whose words are common would move up too far.
const NOT_FOUND: f64 = 0.5;
/// Number of the best hits of a ranking from which the lead of the first is computed.
const CROWD: usize = 64;
/// Rankings with fewer hits have no lead.
const MIN_CROWD: usize = 4;

impl Fusion {
    /// The name in requests and replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReciprocalRank { .. } => FusionMethod::Rrf.as_str(),
            Self::Convex => FusionMethod::Convex.as_str(),
        }
    }
}

/// An entry of a fused ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fused {
    pub id: i64,
    /// The fused score. Higher is better.
    pub score: f64,
    /// The score for reranking. Ranks do not show how much better one entry is than the next, so this score is computed
    /// from scores, whichever [`Fusion`] is used (see [`blended`]). The weights depend on the query (see
    /// [`blend_fts_weight`]). It is 0 to 1 in the first part and -1 to 0 in the others, so the entries of the first
    /// part are reranked first.
    pub blend: f64,
    /// The full-text retriever's rank, from 1. `None` if the retriever did not find the entry in the same part, or if
    /// reciprocal rank fusion does not count the rank.
    pub fts_rank: Option<i64>,
    /// The full-text retriever's score.
    pub fts_score: Option<f64>,
    /// The semantic retriever's rank, from 1. `None` in the same cases.
    pub semantic_rank: Option<i64>,
    /// The semantic retriever's hit.
    pub semantic: Option<SemanticHit>,
}

/// The boundaries between the parts of a ranking. Each part is fused separately, and the fused parts are concatenated.
/// The depth of a ranking is [`FIRST_PART`], [`DEEP`] or the maximum depth. A deeper ranking therefore only adds a
/// part, and a page does not depend on the depth. An entry in two parts counts only in the first.
const PARTS: [usize; 4] = [0, FIRST_PART, DEEP, usize::MAX];

/// The rank at which the part ends that has this index of a ranking.
pub(super) fn part_end(index: usize) -> usize {
    PARTS
        .into_iter()
        .find(|end| *end > index)
        .unwrap_or(usize::MAX)
}

/// Fuses the rankings, best first. Among equal scores the greater id comes first.
/// `fragmentation` is that of the query, 0 to 1.
pub(super) fn fuse(ranking: &Ranking, fusion: Fusion, fragmentation: f64) -> Vec<Fused> {
    let mut fused: Vec<Fused> = Vec::with_capacity(ranking.fts.len() + ranking.semantic.len());
    let mut seen = HashSet::new();
    let fts_weight = blend_fts_weight(ranking, fragmentation);
    for bounds in PARTS.windows(2) {
        let part_of = |len: usize| bounds[0].min(len)..bounds[1].min(len);
        let fts = &ranking.fts[part_of(ranking.fts.len())];
        let semantic = &ranking.semantic[part_of(ranking.semantic.len())];
        let first = i64::try_from(bounds[0]).unwrap_or(0) + 1;
        let capacity = bounds[1] - bounds[0];
        fused.extend(
            fuse_part(fts, semantic, first, capacity, fusion, fts_weight)
                .into_iter()
                .filter(|entry| seen.insert(entry.id)),
        );
    }
    fused
}

/// The weight of full-text scores in [`Fused::blend`]. The retriever whose best hit stands out more from its ranking
/// gets more weight: it has found something specific. The full-text retriever has no lead when the query's words are in
/// no entry or in many.
fn blend_fts_weight(ranking: &Ranking, fragmentation: f64) -> f64 {
    let fts = lead(ranking.fts.iter().map(|found| found.score));
    let semantic = lead(ranking.semantic.iter().map(|found| {
        // The cosine similarity.
        1.0 - found.distance * found.distance / 2.0
    }));
    let (min, max) = BLEND_FTS_WEIGHTS;
    let weight =
        BLEND_FTS_WEIGHT + LEAD_WEIGHT * (fts - semantic) + FRAGMENTATION_WEIGHT * fragmentation;
    weight.clamp(min, max)
}

/// The weighted sum of scaled scores. The part that both retrievers agree on counts once, with the smaller of the two
/// weights: the higher one score is, the less the other one adds.
fn blended(fts_weight: f64, fts: f64, semantic: f64) -> f64 {
    let semantic_weight = 1.0 - fts_weight;
    let shared = fts_weight.min(semantic_weight);
    fts_weight * fts + semantic_weight * semantic - shared * fts * semantic
}

/// By how many standard deviations the first of these scores exceeds the mean of the first [`CROWD`]. 0 if there are
/// too few, or if all are equal.
fn lead(scores: impl Iterator<Item = f64>) -> f64 {
    let scores: Vec<f64> = scores.take(CROWD).collect();
    if scores.len() < MIN_CROWD {
        return 0.0;
    }
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let variance = scores
        .iter()
        .map(|score| (score - mean).powi(2))
        .sum::<f64>()
        / count;
    let deviation = variance.sqrt();
    if deviation > 1e-9 {
        (scores[0] - mean) / deviation
    } else {
        0.0
    }
}

/// Fuses one part of each ranking. The parts begin at rank `first` and have at most `capacity` hits.
/// `blend_fts_weight` is the weight of full-text scores in the blend.
fn fuse_part(
    fts: &[FtsHit],
    semantic: &[SemanticHit],
    first: i64,
    capacity: usize,
    fusion: Fusion,
    blend_fts_weight: f64,
) -> Vec<Fused> {
    let mut entries: HashMap<i64, Fused> = HashMap::with_capacity(fts.len() + semantic.len());
    for (rank, found) in (first..).zip(fts) {
        let entry = entries.entry(found.id).or_insert(Fused::of(found.id));
        (entry.fts_rank, entry.fts_score) = (Some(rank), Some(found.score));
    }
    for (rank, found) in (first..).zip(semantic) {
        let entry = entries.entry(found.id).or_insert(Fused::of(found.id));
        (entry.semantic_rank, entry.semantic) = (Some(rank), Some(*found));
    }
    // The entries that full text did not find count as 0. If it found fewer than the part holds, the last of them has
    // some of the query's words, and the others have none.
    let floor = fts
        .last()
        .filter(|_| fts.len() < capacity)
        .map(|last| NOT_FOUND * last.score);
    let scaled_fts = scale(fts.iter().map(|found| found.score).chain(floor));
    // A smaller distance is a better score.
    let scaled_semantic = scale(semantic.iter().map(|found| -found.distance));
    let mut fused: Vec<Fused> = entries.into_values().collect();
    for entry in &mut fused {
        let fts = entry.fts_score.map_or(0.0, &scaled_fts);
        let semantic = entry
            .semantic
            .map_or(0.0, |found| scaled_semantic(-found.distance));
        let penalty = if first == 1 { 0.0 } else { 1.0 };
        entry.blend = blended(blend_fts_weight, fts, semantic) - penalty;
        entry.score = match fusion {
            Fusion::ReciprocalRank { k, window } => entry.reciprocal_ranks(k, window),
            Fusion::Convex => FTS_WEIGHT * fts + (1.0 - FTS_WEIGHT) * semantic,
        };
    }
    fused.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    fused
}

impl Fused {
    const fn of(id: i64) -> Self {
        Self {
            id,
            score: 0.0,
            blend: 0.0,
            fts_rank: None,
            fts_score: None,
            semantic_rank: None,
            semantic: None,
        }
    }

    /// Removes the ranks beyond `window`, except for the better one if both are, and returns the sum of `1 / (k +
    /// rank)` over the others.
    fn reciprocal_ranks(&mut self, k: f64, window: i64) -> f64 {
        let within = |rank: Option<i64>| rank.filter(|rank| *rank <= window);
        let (fts, semantic) = (within(self.fts_rank), within(self.semantic_rank));
        if fts.or(semantic).is_some() {
            (self.fts_rank, self.semantic_rank) = (fts, semantic);
        } else if let (Some(fts), Some(semantic)) = (self.fts_rank, self.semantic_rank) {
            if semantic < fts {
                self.fts_rank = None
            } else {
                self.semantic_rank = None
            }
        }
        [self.fts_rank, self.semantic_rank]
            .into_iter()
            .flatten()
            .map(|rank| 1.0 / (k + rank as f64))
            .sum()
    }
}

/// Scales values so that the smallest becomes 0 and the largest becomes 1. If all values are equal, they become 1.
pub(super) fn scale(values: impl Iterator<Item = f64>) -> impl Fn(f64) -> f64 {
    let (least, greatest) = values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, greatest), value| (least.min(value), greatest.max(value)),
    );
    move |value| {
        if greatest > least {
            (value - least) / (greatest - least)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RRF: Fusion = Fusion::ReciprocalRank {
        k: 60.0,
        window: 15,
    };

    fn ranking(words: &[i64], semantic: &[i64]) -> Ranking {
        let words = words.iter().enumerate().map(|(place, id)| FtsHit {
            id: *id,
            score: 10.0 / (1.0 + place as f64),
        });
        let semantic = semantic.iter().enumerate().map(|(place, id)| SemanticHit {
            id: *id,
            distance: place as f64 / 1000.0,
            chunk: None,
        });
        Ranking {
            fts: words.collect(),
            semantic: semantic.collect(),
            ..Ranking::default()
        }
    }

    #[test]
    fn the_last_hit_of_full_text_scores_more_than_what_it_did_not_find() {
        let semantic: Vec<i64> = (3..100).collect();
        for fusion in [RRF, Fusion::Convex] {
            let fused = fuse(&ranking(&[1, 2], &semantic), fusion, 0.0);
            let blend = |id| fused.iter().find(|entry| entry.id == id).unwrap().blend;
            assert!(blend(2) > blend(95), "{fusion:?}");
        }
        let convex = fuse(&ranking(&[1, 2], &semantic), Fusion::Convex, 0.0);
        let place = |id| convex.iter().position(|entry| entry.id == id).unwrap();
        assert!(place(2) < place(95));
    }

    #[test]
    fn reciprocal_ranks_are_summed_exactly() {
        let fused = fuse(&ranking(&[7, 8], &[8, 9]), RRF, 0.0);
        let scores: Vec<(i64, f64)> = fused.iter().map(|entry| (entry.id, entry.score)).collect();
        assert_eq!(
            scores,
            [
                (8, 1.0 / 62.0 + 1.0 / 61.0),
                (7, 1.0 / 61.0),
                (9, 1.0 / 62.0)
            ]
        );
        assert_eq!(
            (fused[0].fts_rank, fused[0].semantic_rank),
            (Some(2), Some(1))
        );
    }

    #[test]
    fn only_places_within_the_window_are_summed_and_others_come_after_them() {
        let rrf = Fusion::ReciprocalRank { k: 60.0, window: 2 };
        // Full-text and semantic ranks: entry 3 has 3 and 1, entry 4 has 4 and 3, entry 5 has 5 and 5.
        let fused = fuse(&ranking(&[1, 2, 3, 4, 5], &[3, 6, 4, 7, 5]), rrf, 0.0);
        let found: Vec<_> = fused
            .iter()
            .map(|entry| (entry.id, entry.fts_rank, entry.semantic_rank))
            .collect();
        let expected = [
            (3, None, Some(1)),
            (1, Some(1), None),
            (6, None, Some(2)),
            (2, Some(2), None),
            (4, None, Some(3)),
            (7, None, Some(4)),
            (5, Some(5), None),
        ];
        assert_eq!(found, expected);
        for entry in &fused {
            let ranks = [entry.fts_rank, entry.semantic_rank];
            let sum: f64 = ranks
                .iter()
                .flatten()
                .map(|rank| 1.0 / (60.0 + *rank as f64))
                .sum();
            assert_eq!(entry.score, sum);
        }
        assert!(
            fused
                .iter()
                .all(|entry| entry.id != 5 || entry.fts_score.is_some() && entry.semantic.is_some()),
            "scores stay"
        );
    }

    #[test]
    fn a_convex_sum_weighs_scaled_scores() {
        let fused = fuse(&ranking(&[7, 8], &[8, 9]), Fusion::Convex, 0.0);
        let score = |id| fused.iter().find(|entry| entry.id == id).unwrap().score;
        // The scores of full text are 10 and 5. An entry without the words stands for 2.5.
        let last = (5.0 - 2.5) / (10.0 - 2.5);
        for (id, expected) in [(7, 0.6), (8, 0.6 * last + 0.4), (9, 0.0)] {
            assert!((score(id) - expected).abs() < 1e-12, "{id}");
        }
    }

    #[test]
    fn the_blend_is_the_same_whatever_the_fusion_and_deeper_places_are_below_it() {
        let both = ranking(&[7, 8], &[8, 9]);
        let blends = |fusion| {
            let mut blends: Vec<(i64, f64)> = fuse(&both, fusion, 0.0)
                .iter()
                .map(|entry| (entry.id, (entry.blend * 1e9).round() / 1e9))
                .collect();
            blends.sort_unstable_by_key(|(id, _)| *id);
            blends
        };
        // Entry 8 is the worst of one ranking and the best of the other, which has the greater weight.
        assert_eq!(blends(Fusion::Convex), [(7, 0.35), (8, 0.65), (9, 0.0)]);
        assert_eq!(blends(RRF), blends(Fusion::Convex));
        let all: Vec<i64> = (1..=500).collect();
        let deep = fuse(&ranking(&all, &all), Fusion::Convex, 0.0);
        assert!(
            deep[..FIRST_PART].iter().all(|entry| entry.blend >= 0.0)
                && deep[FIRST_PART..].iter().all(|entry| entry.blend <= 0.0)
        );
    }

    #[test]
    fn the_retriever_whose_best_hit_stands_out_more_weighs_more_in_the_blend() {
        let ids: Vec<i64> = (1..=100).collect();
        let even = ranking(&[], &ids);
        let scores = |first: f64| {
            let fts = ids.iter().map(|id| FtsHit {
                id: 101 - id,
                score: if *id == 1 { first } else { 1.0 / *id as f64 },
            });
            Ranking {
                fts: fts.collect(),
                ..even.clone()
            }
        };
        let weight = |first| blend_fts_weight(&scores(first), 0.0);
        assert!(weight(20.0) > BLEND_FTS_WEIGHT + 0.2, "{}", weight(20.0));
        assert!(weight(0.5) < weight(20.0) && weight(0.5) > BLEND_FTS_WEIGHT);
        assert!(
            blend_fts_weight(&even, 0.0) < BLEND_FTS_WEIGHT,
            "no full-text hits"
        );
        let fragmented = blend_fts_weight(&scores(0.5), 1.0);
        assert!((fragmented - weight(0.5) - FRAGMENTATION_WEIGHT).abs() < 1e-12);
        // The order of the fused ranking does not depend on it.
        let order = |first| {
            let fused = fuse(&scores(first), RRF, 0.0);
            fused.iter().map(|entry| entry.id).collect::<Vec<_>>()
        };
        assert_eq!(order(20.0), order(0.5));
    }

    #[test]
    fn a_better_score_never_lowers_the_blend_and_what_both_say_counts_once() {
        for fts_weight in [0.1, 0.3, 0.5, 0.9] {
            let steps = || (0..=10).map(|step| f64::from(step) / 10.0);
            for (fts, semantic) in steps().flat_map(|fts| steps().map(move |other| (fts, other))) {
                let blend = blended(fts_weight, fts, semantic);
                assert!((0.0..=1.0).contains(&blend));
                assert!(blended(fts_weight, fts + 0.1, semantic) >= blend - 1e-12);
                assert!(blended(fts_weight, fts, semantic + 0.1) >= blend - 1e-12);
            }
        }
        let sure = blended(0.3, 0.0, 1.0);
        assert!((blended(0.3, 1.0, 1.0) - sure).abs() < 1e-12);
        assert!((blended(0.3, 1.0, 0.5) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn deeper_places_follow_and_never_change_what_is_before_them() {
        let all: Vec<i64> = (1..=3000).collect();
        let reversed: Vec<i64> = (1..=3000).rev().collect();
        for fusion in [RRF, Fusion::Convex] {
            let deep = fuse(&ranking(&all, &reversed), fusion, 0.0);
            for places in [FIRST_PART, DEEP] {
                let shallow = fuse(&ranking(&all[..places], &reversed[..places]), fusion, 0.0);
                assert_eq!(deep[..shallow.len()], shallow, "{places} {fusion:?}");
            }
        }
        let deep = fuse(&ranking(&all, &reversed), RRF, 0.0);
        assert!(
            deep.is_sorted_by(|a, b| a.score >= b.score),
            "and are worth less"
        );
        let mut ids: Vec<i64> = deep.iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, all, "each entry once");
    }
}
