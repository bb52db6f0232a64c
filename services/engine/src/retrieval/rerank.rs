//! Reranking: sorts the best candidates again by comparing their texts with the query. It uses a reranker if one is
//! configured, or else late interaction.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long reranking takes"
)]

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::warnings::NOT_RERANKED;
use context_model::{Source, Timestamp};
use context_providers::{ProviderError, TokenVectors};
use context_store::{ChunkRange, RowSelection, StoreError};

use super::Retrieval;
use super::embedding::ActiveModel;
use super::evidence::character_range;
use super::fusion::scale;
use super::hits::milliseconds;
use crate::access::Caller;
use crate::config::Switch;
use crate::read;

/// Maximum number of candidates that are reranked. All others follow in their original order.
pub(super) const CANDIDATES: u32 = 50;
/// The same in hybrid search with late interaction, which is cheaper than a reranker. In long conversations 100 find
/// more answers than 50 (docs/benchmarks.md).
pub(super) const HYBRID_CANDIDATES: u32 = 100;
/// Weight of the retrievers' scores in the blend with late interaction. The weight of late interaction is 1 minus this.
const RETRIEVAL_WEIGHT: f64 = 0.4;
/// How much this weight rises with the fragmentation of the query. Late interaction compares words poorly that its
/// tokenizer breaks into many pieces.
const FRAGMENTATION_WEIGHT: f64 = 0.2;
/// The part of its score that a candidate loses if it is only a question and a later turn of its conversation is a
/// candidate too. Such a question is similar to the query, and the turn after it has the answer. Weights from 0.4 to
/// 0.9 give about the same recall.
const QUESTION_LOSS: f64 = 0.5;
/// How much the score of late interaction usually rises with the scaled score of the retrievers and with the share of
/// the query's words, from 0 to 1 each. Fitted on the tuning halves of the evaluation sets with all-MiniLM-L6-v2.
const USUAL_SLOPES: [f64; 2] = [0.15, 0.15];
/// Weight of the usual slopes in the estimate: as much as this many candidates whose features differ by 1.
const PRIOR_WEIGHT: f64 = 1.0;
/// Number of characters read of an entry whose best chunk is unknown because the semantic retriever did not find it.
pub(super) const EXCERPT_CHARS: u32 = 1_000;
/// Number of characters of all texts that are read at a time, except of a single longer text.
const PIECE_CHARS: u64 = 1_000_000;
/// Maximum number of texts that are read at a time. The metadata of their entries, up to 1 MiB each, is read too.
const PIECE_TEXTS: usize = 50;
/// Number of characters read after each range. A range is at the end of its text if fewer than this many follow it and
/// all of them are white space.
const TAIL_CHARS: u32 = 16;

/// An entry that may be reranked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub id: i64,
    /// The retrievers' score. Higher is better. It decides which candidates are reranked, and is blended with the score
    /// of late interaction.
    pub score: f64,
    /// The entry's chunk that is nearest to the query, if the semantic retriever found the entry.
    pub best_chunk: Option<ChunkRange>,
}

/// The vectors of a query's tokens, and the model that made them.
pub(super) type EncodedQuery = (Arc<ActiveModel>, Arc<TokenVectors>);

/// The query that candidates are compared with.
pub(super) struct RerankQuery<'q> {
    /// The query.
    pub text: &'q str,
    /// The vectors of the query's tokens, if they were created together with the query's vector.
    pub encoded: Option<EncodedQuery>,
    /// To what degree the model's tokenizer breaks the query's words into pieces, 0 to 1.
    pub fragmentation: f64,
    /// Maximum number of candidates that late interaction compares.
    pub max_candidates: u32,
    /// Whether this is the first page. On others late interaction encodes texts only if nothing is cached, or if it has
    /// no token vectors.
    pub is_first_page: bool,
}

/// The part of a candidate's text that is compared with the query, with the candidate's thread, source and creation
/// time.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub id: i64,
    pub thread_id: String,
    pub source: Source,
    pub created_at: Timestamp,
    pub text: String,
    /// The share of the entry's text that is questions at its end, 0 to 1. 0 if the excerpt does not reach the end.
    pub question: f64,
}

/// Why candidates could not be reranked.
#[derive(Debug)]
pub(super) enum RerankError {
    /// The provider failed.
    Provider(ProviderError),
    /// The candidates could not be read.
    Store(StoreError),
}

impl From<ProviderError> for RerankError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl From<StoreError> for RerankError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The sentence of a warning.
impl fmt::Display for RerankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(error) => error.fmt(f),
            Self::Store(error) => write!(f, "the texts could not be read: {error}"),
        }
    }
}

/// The results of late interaction.
#[derive(Debug, Default)]
pub(super) struct Interaction {
    /// The scores, 0 to 1, of the candidates that were compared with the query.
    pub scores: HashMap<i64, f64>,
    /// For each reranked candidate that was read, the share of the query's words that it contains, 0 to 1. Rare words
    /// count more.
    pub coverage: HashMap<i64, f64>,
    /// For each candidate that ends with a question which a later turn may answer, the share of its text that is this
    /// question, 0 to 1.
    pub questions: HashMap<i64, f64>,
    /// Number of different content words of the query.
    pub query_words: usize,
    /// The share of these words that no candidate contains.
    pub absent_words: f64,
}

/// The result of reranking.
#[derive(Debug)]
pub(super) struct Reranked {
    /// All candidates in their new order, each with its score from 0 to 1 if it was reranked.
    pub order: Vec<(i64, Option<f64>)>,
    /// The results of late interaction. Empty if it did not run.
    pub interaction: Interaction,
    /// Why nothing was reranked although reranking is on.
    pub warning: Option<String>,
}

impl Reranked {
    /// The candidates in their order.
    pub fn unchanged(candidates: &[Candidate]) -> Self {
        Self {
            order: candidates
                .iter()
                .map(|candidate| (candidate.id, None))
                .collect(),
            interaction: Interaction::default(),
            warning: None,
        }
    }
}

/// The scores of candidates.
struct Scored {
    /// The score that decides the order.
    scores: HashMap<i64, f64>,
    /// The results of late interaction. Empty if it did not run.
    interaction: Interaction,
}

impl Retrieval {
    /// Whether a reranker is configured.
    pub(super) fn has_reranker(&self) -> bool {
        self.reranker.get().is_some()
    }

    /// Whether searches are reranked.
    pub(super) fn reranks(&self) -> bool {
        let by_tokens = || {
            self.embeddings
                .model()
                .is_ok_and(|active| active.embedder.has_token_vectors())
        };
        self.reranking.enabled != Switch::False && (self.has_reranker() || by_tokens())
    }

    /// Maximum number of candidates to rerank in a search that may rerank `max` of them by late interaction. 0 when
    /// reranking is off.
    pub(super) fn max_reranked(&self, max: u32) -> u32 {
        if !self.reranks() {
            0
        } else if self.has_reranker() {
            max.min(CANDIDATES)
        } else {
            max
        }
    }

    /// The entries that [`rerank`](Self::rerank) reranks.
    pub(super) fn chosen_for_reranking(&self, candidates: &[Candidate], max: u32) -> HashSet<i64> {
        best(candidates, self.max_reranked(max))
            .into_iter()
            .map(|candidate| candidate.id)
            .collect()
    }

    /// Reranks the best candidates. If reranking is off, fails or times out, the order stays the same. The time limit
    /// includes the read of the texts. Blocking work that has begun continues after it. Adds lines for `explain_query`
    /// to `plan`.
    pub(super) async fn rerank(
        &self,
        caller: &Caller,
        query: RerankQuery<'_>,
        candidates: &[Candidate],
        plan: &mut Vec<String>,
    ) -> Reranked {
        let unchanged = |warning| Reranked {
            warning,
            ..Reranked::unchanged(candidates)
        };
        let chosen = best(candidates, self.max_reranked(query.max_candidates));
        if chosen.is_empty() {
            return unchanged(None);
        }
        let started = Instant::now();
        let timeout = Duration::from_millis(u64::from(self.reranking.timeout_ms));
        let scoring = self.rerank_scores(caller, query, &chosen, plan);
        let Scored {
            scores,
            interaction,
        } = match tokio::time::timeout(timeout, scoring).await {
            Ok(Ok(Some(scored))) => scored,
            Ok(Ok(None)) => return unchanged(None),
            Ok(Err(error)) => {
                return unchanged(Some(format!("{NOT_RERANKED}: {error}")));
            }
            Err(_) => {
                return unchanged(Some(format!(
                    "{NOT_RERANKED}: it took more than {} ms",
                    timeout.as_millis()
                )));
            }
        };
        // A reranker compares all candidates, late interaction only as many as the budget allows.
        let compared = if interaction.scores.is_empty() {
            scores.len()
        } else {
            interaction.scores.len()
        };
        plan.push(format!(
            "rerank: {compared} of {} candidates in {:.1} ms",
            candidates.len(),
            milliseconds(started)
        ));
        let mut reranked: Vec<(i64, f64)> = scores
            .iter()
            .map(|(id, score)| (*id, score.clamp(0.0, 1.0)))
            .collect();
        reranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        // The other candidates are not among the best, or were deleted in the meantime.
        let others = candidates
            .iter()
            .filter(|candidate| !scores.contains_key(&candidate.id))
            .map(|candidate| (candidate.id, None));
        let order = reranked
            .into_iter()
            .map(|(id, score)| (id, Some(score)))
            .chain(others)
            .collect();
        Reranked {
            order,
            interaction,
            warning: None,
        }
    }

    /// The scores of the candidates that could be compared with the query, 0 to 1. These are the reranker's scores if
    /// there is a reranker, or else the scores of late interaction blended with the retrievers' scores. `None` when
    /// neither is available.
    async fn rerank_scores(
        &self,
        caller: &Caller,
        query: RerankQuery<'_>,
        candidates: &[Candidate],
        plan: &mut Vec<String>,
    ) -> Result<Option<Scored>, RerankError> {
        if let Some(reranker) = self.reranker.get() {
            let excerpts = self.excerpts(caller, candidates, EXCERPT_CHARS).await?;
            let (ids, texts): (Vec<i64>, Vec<String>) = excerpts
                .into_iter()
                .map(|excerpt| (excerpt.id, excerpt.text))
                .unzip();
            plan.push(format!(
                "rerank: by {} of {}",
                reranker.model(),
                reranker.provider()
            ));
            let scores = reranker.rerank(query.text, texts).await?;
            if scores.len() != ids.len() || scores.iter().any(|score| !score.is_finite()) {
                return Err(RerankError::Provider(ProviderError::Malformed(
                    "the number of scores is wrong, or a score is not finite".to_owned(),
                )));
            }
            return Ok(Some(Scored {
                scores: ids.into_iter().zip(scores).collect(),
                interaction: Interaction::default(),
            }));
        }
        let retrieval_weight = RETRIEVAL_WEIGHT + FRAGMENTATION_WEIGHT * query.fragmentation;
        let Some(interaction) = self
            .late_interaction(caller, query, candidates, plan)
            .await?
        else {
            return Ok(None);
        };
        Ok(Some(Scored {
            scores: blended(candidates, &interaction, retrieval_weight),
            interaction,
        }))
    }

    /// Reads the best chunk of each candidate, or the first `start_chars` characters of its text. Entries that were
    /// deleted meanwhile are omitted. Reads the newest state: if an entry changed after the ranking, the read of the
    /// page notices it.
    pub(super) async fn excerpts(
        &self,
        caller: &Caller,
        candidates: &[Candidate],
        start_chars: u32,
    ) -> Result<Vec<Excerpt>, StoreError> {
        let ranges = ranges(candidates, start_chars);
        let mut excerpts = Vec::with_capacity(candidates.len());
        // The store reads a text from its start, so a chunk far into a long text would make the read of all texts long.
        for (ids, chars) in pieces(&ranges) {
            let selection = RowSelection {
                // No reply has these texts. Their number and the caller's memory budget limit the bytes.
                max_bytes: u64::MAX,
                ..self.selection(caller, None, false, Some(chars))
            };
            let found = self
                .read_ids(caller, ids, selection, read::at(None))
                .await?;
            for entry in found {
                let Some(range) = ranges.get(&entry.id) else {
                    continue;
                };
                let range = character_range(&entry.text, *range);
                let question = question_at_end(&entry.text, range.end);
                let dropped = entry.text.len() - range.len() + entry.metadata.as_str().len();
                excerpts.push(Excerpt {
                    id: entry.id,
                    text: entry.text[range].to_owned(),
                    question,
                    thread_id: entry.thread_id,
                    source: entry.source,
                    created_at: entry.created_at,
                });
                caller.memory.give_back(dropped as u64);
            }
        }
        Ok(excerpts)
    }
}

/// The share of a text that is questions at its end, 0 to 1. 0 if the text goes on after the byte `end`: what it ends
/// with is unknown then.
fn question_at_end(text: &str, end: usize) -> f64 {
    let rest = &text[end..];
    let is_end = rest.trim().is_empty() && rest.chars().count() < TAIL_CHARS as usize;
    if is_end {
        context_text::closing_question(text)
    } else {
        0.0
    }
}

/// The retrievers' scores blended with those of late interaction, 0 to 1. Candidates beyond the budget of late
/// interaction get the score that is expected of them, so they neither gain nor lose by it. Questions that a later turn
/// may answer get less.
fn blended(
    candidates: &[Candidate],
    interaction: &Interaction,
    retrieval_weight: f64,
) -> HashMap<i64, f64> {
    let Interaction {
        scores,
        coverage,
        questions,
        ..
    } = interaction;
    // The candidates that still exist: late interaction has read their texts.
    let existing: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| coverage.contains_key(&candidate.id))
        .collect();
    let scaled_score = scale(existing.iter().map(|candidate| candidate.score));
    let features = |candidate: &Candidate| {
        let coverage = coverage.get(&candidate.id).copied().unwrap_or(0.0);
        [scaled_score(candidate.score), coverage]
    };
    let compared: Vec<([f64; 2], f64)> = existing
        .iter()
        .filter_map(|candidate| Some((features(candidate), *scores.get(&candidate.id)?)))
        .collect();
    let Some(expected) = expected(&compared) else {
        return HashMap::new();
    };
    let interaction = |candidate: &Candidate| match scores.get(&candidate.id) {
        Some(score) => *score,
        None => expected(features(candidate)),
    };
    let scaled_interaction = scale(existing.iter().map(|candidate| interaction(candidate)));
    let blend = |candidate: &&Candidate| {
        let score = retrieval_weight * scaled_score(candidate.score)
            + (1.0 - retrieval_weight) * scaled_interaction(interaction(candidate));
        let question = questions.get(&candidate.id).copied().unwrap_or(0.0);
        (candidate.id, score * (1.0 - QUESTION_LOSS * question))
    };
    existing.iter().map(blend).collect()
}

/// Estimates the late-interaction score of a candidate from its features. `compared` has the features and the scores of
/// the candidates that were compared with the query. The estimate is a linear regression that starts from the usual
/// slopes, because few candidates may have been compared. `None` if none was compared.
fn expected(compared: &[([f64; 2], f64)]) -> Option<impl Fn([f64; 2]) -> f64> {
    let count = compared.len() as f64;
    let mean_of = |feature: usize| compared.iter().map(|(x, _)| x[feature]).sum::<f64>() / count;
    let center = [mean_of(0), mean_of(1)];
    let middle = compared.iter().map(|(_, y)| y).sum::<f64>() / count;
    // The normal equations of the difference to the usual slopes.
    let (mut a, mut b) = ([[PRIOR_WEIGHT, 0.0], [0.0, PRIOR_WEIGHT]], [0.0; 2]);
    for (x, y) in compared {
        let x = [x[0] - center[0], x[1] - center[1]];
        let residual = y - middle - USUAL_SLOPES[0] * x[0] - USUAL_SLOPES[1] * x[1];
        for row in 0..2 {
            for column in 0..2 {
                a[row][column] += x[row] * x[column];
            }
            b[row] += x[row] * residual;
        }
    }
    let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    let slopes = [
        USUAL_SLOPES[0] + (b[0] * a[1][1] - b[1] * a[0][1]) / determinant,
        USUAL_SLOPES[1] + (b[1] * a[0][0] - b[0] * a[1][0]) / determinant,
    ];
    let expected =
        move |x: [f64; 2]| middle + slopes[0] * (x[0] - center[0]) + slopes[1] * (x[1] - center[1]);
    (!compared.is_empty()).then_some(expected)
}

/// The parts of the candidates' texts that are compared with the query, by entry: the best chunk, or the first
/// `start_chars` characters.
pub(super) fn ranges(candidates: &[Candidate], start_chars: u32) -> HashMap<i64, (u32, u32)> {
    let range = |candidate: &Candidate| {
        let range = candidate
            .best_chunk
            .map_or((0, start_chars), |chunk| (chunk.start, chunk.end));
        (candidate.id, range)
    };
    candidates.iter().map(range).collect()
}

/// Divides the entries so that each piece reads at most [`PIECE_CHARS`] characters and [`PIECE_TEXTS`] texts, or one
/// text. Returns the ids of each piece and the number of characters to read of each of its texts.
fn pieces(ranges: &HashMap<i64, (u32, u32)>) -> Vec<(Vec<i64>, u32)> {
    let mut ends: Vec<(u32, i64)> = ranges
        .iter()
        .map(|(id, (_, end))| (end.saturating_add(TAIL_CHARS), *id))
        .collect();
    ends.sort_unstable();
    let mut pieces: Vec<(Vec<i64>, u32)> = Vec::new();
    for (chars, id) in ends {
        match pieces.last_mut() {
            Some((ids, last))
                if ids.len() < PIECE_TEXTS
                    && (ids.len() as u64 + 1) * u64::from(chars) <= PIECE_CHARS =>
            {
                ids.push(id);
                *last = chars;
            }
            _ => pieces.push((vec![id], chars)),
        }
    }
    pieces
}

/// The `count` best candidates, best first. Among equal scores the greater id comes first.
fn best(candidates: &[Candidate], count: u32) -> Vec<Candidate> {
    let mut best = candidates.to_vec();
    best.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    best.truncate(count as usize);
    best
}

/// The characters of a text from `start` to `end`.
pub(super) fn characters(text: &str, range: (u32, u32)) -> &str {
    &text[character_range(text, range)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: i64, score: f64) -> Candidate {
        Candidate {
            id,
            score,
            best_chunk: None,
        }
    }

    /// The order after blending. Each candidate has an id, a score, a coverage, and perhaps a score of late
    /// interaction.
    fn order(of: &[(i64, f64, f64, Option<f64>)]) -> Vec<i64> {
        let candidates: Vec<Candidate> = of
            .iter()
            .map(|(id, score, ..)| candidate(*id, *score))
            .collect();
        let interaction = Interaction {
            scores: of
                .iter()
                .filter_map(|(id, _, _, score)| Some((*id, (*score)?)))
                .collect(),
            coverage: of.iter().map(|(id, _, share, _)| (*id, *share)).collect(),
            ..Interaction::default()
        };
        let mut scores: Vec<(i64, f64)> = blended(&candidates, &interaction, RETRIEVAL_WEIGHT)
            .into_iter()
            .collect();
        assert!(
            scores
                .iter()
                .all(|(_, score)| (0.0..=1.0 + 1e-9).contains(score))
        );
        scores.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scores.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn a_candidate_that_was_not_compared_keeps_its_place_among_those_that_were() {
        // The second one matches much worse than its score promises, the third one as well as its score promises.
        let compared = [
            (1, 1.0, 0.5, Some(0.50)),
            (2, 0.9, 0.5, Some(0.20)),
            (3, 0.8, 0.5, Some(0.47)),
        ];
        let others = [(4, 0.7, 0.5, None), (5, 0.1, 0.5, None)];
        assert_eq!(
            order(&[&compared[..], &others[..]].concat()),
            [1, 3, 4, 2, 5]
        );
    }

    #[test]
    fn candidates_that_were_not_compared_stay_in_their_order_and_more_words_raise_them() {
        let first = (1, 1.0, 0.5, Some(0.4));
        assert_eq!(
            order(&[first, (2, 0.6, 0.5, None), (3, 0.5, 0.5, None)]),
            [1, 2, 3]
        );
        assert_eq!(
            order(&[first, (2, 0.6, 0.1, None), (3, 0.5, 1.0, None)]),
            [1, 3, 2]
        );
    }

    #[test]
    fn with_one_or_two_compared_candidates_the_scores_still_fall_as_before() {
        let scored = |compared: i64| {
            let candidates: Vec<Candidate> = (1..=10)
                .map(|id| candidate(id, 1.0 - id as f64 / 20.0))
                .collect();
            let interaction = Interaction {
                scores: (1..=compared)
                    .map(|id| (id, 0.52 - id as f64 / 50.0))
                    .collect(),
                coverage: (1..=10).map(|id| (id, 0.5)).collect(),
                ..Interaction::default()
            };
            let scores = blended(&candidates, &interaction, RETRIEVAL_WEIGHT);
            (1..=10).map(|id| scores[&id]).collect::<Vec<f64>>()
        };
        for compared in [1, 2] {
            let scores = scored(compared);
            assert!(scores.is_sorted_by(|a, b| a > b), "{scores:?}");
            assert!(scores[0] - scores[1] < 0.2, "{scores:?}");
        }
    }

    #[test]
    fn a_question_loses_as_much_of_its_score_as_of_its_text_asks() {
        let candidates = [1, 2, 3].map(|id| candidate(id, 1.0 - id as f64 / 10.0));
        let scored = |questions: &[(i64, f64)]| {
            let interaction = Interaction {
                scores: HashMap::from([(1, 0.5), (2, 0.45), (3, 0.3)]),
                coverage: HashMap::from([(1, 0.5), (2, 0.5), (3, 0.5)]),
                questions: questions.iter().copied().collect(),
                ..Interaction::default()
            };
            blended(&candidates, &interaction, RETRIEVAL_WEIGHT)
        };
        let before = scored(&[]);
        let after = scored(&[(1, 1.0), (2, 0.2)]);
        assert!((after[&1] - before[&1] * (1.0 - QUESTION_LOSS)).abs() < 1e-12);
        assert!((after[&2] - before[&2] * (1.0 - 0.2 * QUESTION_LOSS)).abs() < 1e-12);
        assert_eq!(after[&3], before[&3]);
        assert!(before[&1] > before[&2] && after[&2] > after[&1]);
    }

    #[test]
    fn a_far_chunk_does_not_lengthen_the_read_of_the_other_texts() {
        let mut of = HashMap::from([(1, (0, 1_000)), (2, (899_000, 900_000))]);
        assert_eq!(
            pieces(&of),
            [
                (vec![1], 1_000 + TAIL_CHARS),
                (vec![2], 900_000 + TAIL_CHARS)
            ]
        );
        of.extend((3..=200).map(|id| (id, (500_000, 600_000 + id as u32))));
        let pieces = pieces(&of);
        let read: usize = pieces.iter().map(|(ids, _)| ids.len()).sum();
        assert_eq!(read, 200);
        for (ids, chars) in pieces {
            let all = ids.len() as u64 * u64::from(chars);
            assert!(ids.len() == 1 || all <= PIECE_CHARS, "{ids:?} {chars}");
        }
        assert!(super::pieces(&HashMap::new()).is_empty());
    }

    #[test]
    fn a_read_of_short_texts_has_the_metadata_of_few_entries() {
        let ranges: HashMap<i64, (u32, u32)> = (1..=200).map(|id| (id, (0, 10))).collect();
        let texts = pieces(&ranges).into_iter().map(|(ids, _)| ids.len());
        assert!(texts.eq([PIECE_TEXTS; 4]));
    }

    #[test]
    fn only_the_end_of_the_whole_text_is_a_closing_question() {
        let text = format!("Who has it? {}", "Ann has it. ".repeat(9));
        assert_eq!(question_at_end(&text, 11), 0.0, "the text goes on");
        assert_eq!(question_at_end("Who has it?\n", 11), 1.0);
        let asks = format!("{}Who has it?", "Ann has it. ".repeat(9));
        let share = question_at_end(&asks, asks.len());
        assert!(
            (0.05..0.15).contains(&share),
            "of the whole text, not of its last chunk: {share}"
        );
    }

    #[test]
    fn a_warning_names_the_store_if_the_store_failed() {
        assert_eq!(
            RerankError::from(StoreError::Overloaded).to_string(),
            "the texts could not be read: too many requests wait for the database"
        );
    }

    #[test]
    fn entries_that_were_deleted_meanwhile_get_no_score() {
        let interaction = Interaction {
            scores: HashMap::from([(1, 0.3)]),
            coverage: HashMap::from([(1, 1.0), (2, 0.5)]),
            ..Interaction::default()
        };
        let candidates = [1, 2, 3].map(|id| candidate(id, 1.0 / id as f64));
        let mut scored: Vec<i64> = blended(&candidates, &interaction, RETRIEVAL_WEIGHT)
            .into_keys()
            .collect();
        scored.sort_unstable();
        assert_eq!(scored, [1, 2]);
        assert!(blended(&candidates, &Interaction::default(), RETRIEVAL_WEIGHT).is_empty());
    }

    #[test]
    fn the_expectation_follows_what_is_known() {
        let usual = expected(&[([0.5, 0.5], 0.4)]).unwrap();
        assert!((usual([0.5, 0.5]) - 0.4).abs() < 1e-12);
        assert!((usual([1.0, 0.5]) - 0.4 - USUAL_SLOPES[0] / 2.0).abs() < 1e-12);
        // Here late interaction does not depend on the first feature.
        let known: Vec<([f64; 2], f64)> = (0..500)
            .map(|n| {
                let x = [f64::from(n % 10) / 10.0, f64::from(n % 7) / 7.0];
                (x, 0.3 + 0.5 * x[1])
            })
            .collect();
        let learned = expected(&known).unwrap();
        assert!(
            (learned([0.0, 0.9]) - 0.75).abs() < 0.02,
            "{}",
            learned([0.0, 0.9])
        );
        assert!(
            (learned([1.0, 0.0]) - 0.3).abs() < 0.02,
            "{}",
            learned([1.0, 0.0])
        );
    }
}
