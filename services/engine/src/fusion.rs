//! Fusing rankings.

use std::collections::HashMap;

use context_store::{RankedByMeaning, RankedByWords, Ranking};

/// Places of each ranking that are fused first. Pages beyond what they hold go on with the deeper places, fused among
/// themselves, so that the order of a query never depends on the page that is asked for.
pub(crate) const SHALLOW: usize = 200;

/// How two rankings become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fusion {
    /// The sum of `1 / (k + rank)`.
    ReciprocalRank {
        /// The constant k.
        k: f64,
    },
    /// A weighted sum of the scores, each scaled to 0 to 1 within its ranking.
    Convex,
}

/// What the scores by words weigh in a convex sum; those by meaning weigh the rest.
const WORDS_WEIGHT: f64 = 0.6;
/// The same in the blend.
const BLENDED_WORDS_WEIGHT: f64 = 0.65;

impl Fusion {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReciprocalRank { .. } => "rrf",
            Self::Convex => "convex",
        }
    }
}

/// An entry of a fused ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fused {
    pub id: i64,
    /// Higher is better.
    pub score: f64,
    /// What a reranker chooses its candidates by and blends with: a weighted sum of the scores, whatever the fusion.
    /// Ranks say little about how much better the first is than the tenth. Deeper places are below 0.
    pub blend: f64,
    /// The place by words, from 1, and the score there.
    pub words: Option<(i64, f64)>,
    /// The place by meaning, from 1, and what was found there.
    pub meaning: Option<(i64, RankedByMeaning)>,
}

/// Fuses the rankings, best first, then the greater id.
pub(crate) fn fuse(ranking: &Ranking, fusion: Fusion) -> Vec<Fused> {
    let cut = |len: usize| len.min(SHALLOW);
    let (words, deep_words) = ranking.fts.split_at(cut(ranking.fts.len()));
    let (meaning, deep_meaning) = ranking.semantic.split_at(cut(ranking.semantic.len()));
    let mut fused = part(words, meaning, 1, fusion);
    let seen: std::collections::HashSet<i64> = fused.iter().map(|entry| entry.id).collect();
    let deeper = part(deep_words, deep_meaning, SHALLOW as i64 + 1, fusion);
    fused.extend(deeper.into_iter().filter(|entry| !seen.contains(&entry.id)));
    fused
}

fn part(words: &[RankedByWords], meaning: &[RankedByMeaning], first: i64, fusion: Fusion) -> Vec<Fused> {
    let mut entries: HashMap<i64, Fused> = HashMap::with_capacity(words.len() + meaning.len());
    for (rank, found) in (first..).zip(words) {
        let empty = Fused { id: found.id, score: 0.0, blend: 0.0, words: None, meaning: None };
        entries.entry(found.id).or_insert(empty).words = Some((rank, found.score));
    }
    for (rank, found) in (first..).zip(meaning) {
        let empty = Fused { id: found.id, score: 0.0, blend: 0.0, words: None, meaning: None };
        entries.entry(found.id).or_insert(empty).meaning = Some((rank, *found));
    }
    let of_words = scale(words.iter().map(|found| found.score));
    // A smaller distance is a better score.
    let of_meaning = scale(meaning.iter().map(|found| -found.distance));
    let mut fused: Vec<Fused> = entries.into_values().collect();
    for entry in &mut fused {
        let (words, meaning) = (entry.words, entry.meaning.map(|(rank, found)| (rank, -found.distance)));
        let by_words = words.map_or(0.0, |(_, score)| of_words(score));
        let by_meaning = meaning.map_or(0.0, |(_, score)| of_meaning(score));
        let convex = |weight: f64| weight * by_words + (1.0 - weight) * by_meaning;
        entry.score = match fusion {
            Fusion::ReciprocalRank { k } => [words, meaning].into_iter().flatten().map(|(rank, _)| 1.0 / (k + rank as f64)).sum(),
            Fusion::Convex => convex(WORDS_WEIGHT),
        };
        entry.blend = if first == 1 { convex(BLENDED_WORDS_WEIGHT) } else { convex(BLENDED_WORDS_WEIGHT) - 1.0 };
    }
    fused.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    fused
}

/// Scales values so that the least becomes 0 and the greatest 1; equal ones become 1.
pub(crate) fn scale(values: impl Iterator<Item = f64>) -> impl Fn(f64) -> f64 {
    let (least, greatest) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| (least.min(value), greatest.max(value)));
    move |value| if greatest > least { (value - least) / (greatest - least) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(words: &[i64], meaning: &[i64]) -> Ranking {
        let words = words.iter().enumerate().map(|(place, id)| RankedByWords { id: *id, score: 10.0 / (1.0 + place as f64) });
        let meaning = meaning.iter().enumerate().map(|(place, id)| RankedByMeaning {
            id: *id,
            distance: place as f64 / 1000.0,
            position: 0,
            start: 0,
            end: 1,
        });
        Ranking { fts: words.collect(), semantic: meaning.collect(), ..Ranking::default() }
    }

    #[test]
    fn reciprocal_ranks_are_summed_exactly() {
        let fused = fuse(&ranking(&[7, 8], &[8, 9]), Fusion::ReciprocalRank { k: 60.0 });
        let scores: Vec<(i64, f64)> = fused.iter().map(|entry| (entry.id, entry.score)).collect();
        assert_eq!(scores, [(8, 1.0 / 62.0 + 1.0 / 61.0), (7, 1.0 / 61.0), (9, 1.0 / 62.0)]);
        assert_eq!((fused[0].words.map(|w| w.0), fused[0].meaning.map(|m| m.0)), (Some(2), Some(1)));
    }

    #[test]
    fn a_convex_sum_weighs_scaled_scores() {
        let fused = fuse(&ranking(&[7, 8], &[8, 9]), Fusion::Convex);
        let scores: Vec<(i64, f64)> = fused.iter().map(|entry| (entry.id, entry.score)).collect();
        assert_eq!(scores, [(7, 0.6), (8, 0.4), (9, 0.0)]);
    }

    #[test]
    fn the_blend_is_the_same_whatever_the_fusion_and_deeper_places_are_below_it() {
        let both = ranking(&[7, 8], &[8, 9]);
        let blends = |fusion| {
            let mut blends: Vec<(i64, f64)> = fuse(&both, fusion).iter().map(|entry| (entry.id, entry.blend)).collect();
            blends.sort_unstable_by_key(|(id, _)| *id);
            blends
        };
        assert_eq!(blends(Fusion::Convex), [(7, 0.65), (8, 0.35), (9, 0.0)]);
        assert_eq!(blends(Fusion::ReciprocalRank { k: 60.0 }), blends(Fusion::Convex));
        let all: Vec<i64> = (1..=500).collect();
        let deep = fuse(&ranking(&all, &all), Fusion::Convex);
        assert!(deep[..SHALLOW].iter().all(|entry| entry.blend >= 0.0) && deep[SHALLOW..].iter().all(|entry| entry.blend <= 0.0));
    }

    #[test]
    fn deeper_places_follow_and_never_change_what_is_before_them() {
        let all: Vec<i64> = (1..=1000).collect();
        let reversed: Vec<i64> = (1..=1000).rev().collect();
        let rrf = Fusion::ReciprocalRank { k: 60.0 };
        let (deep, shallow) = (fuse(&ranking(&all, &reversed), rrf), fuse(&ranking(&all[..SHALLOW], &reversed[..SHALLOW]), rrf));
        assert_eq!(deep[..shallow.len()], shallow);
        let mut ids: Vec<i64> = deep.iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, all, "each entry once");
    }
}
