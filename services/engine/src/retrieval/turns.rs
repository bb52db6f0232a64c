//! Preceding turns are included when a reply is compared with a query. In a conversation, a question often contains the
//! words of the query, and the next turn contains the answer. So the question itself is ranked lower.

use std::collections::HashMap;
use std::time::Duration;

use context_model::{Source, Timestamp};

use super::rerank::Excerpt;

/// Preceding turns with a smaller factor are ignored.
const MIN_FACTOR: f32 = 0.1;

/// An entry that is compared with the query.
#[derive(Debug)]
pub(super) struct Turn {
    pub id: i64,
    pub thread_id: String,
    pub source: Source,
    pub created_at: Timestamp,
    /// For each token of the query, its similarity to the most similar token of the entry, 0 to 1.
    pub similarities: Vec<f32>,
}

/// The similarities of each entry including its preceding turns: for each token the maximum of the entry's own
/// similarity and theirs. A preceding turn's similarities are multiplied by `weight` to the power of the difference of
/// the ids, with `weight` from 0 to 1. Only entries in `turns` count that are of the same thread and at most `gap`
/// older. An entry that follows one of the same source is no reply, and only its own similarities count
/// ([`context_store::ContextWindow`]).
///
/// Ids stand for positions in the thread. They are an approximation: entries of other threads lie between them, and
/// several services on one database lease ids in blocks, so the id of the preceding entry may be much smaller, or
/// greater.
pub(super) fn with_preceding(turns: &[Turn], weight: f64, gap: Duration) -> Vec<(i64, Vec<f32>)> {
    let of = |turn: &Turn| {
        let mut similarities = turn.similarities.clone();
        let preceding = turns.iter().filter(|before| {
            before.id < turn.id
                && before.thread_id == turn.thread_id
                && are_within(gap, (before.created_at, turn.created_at))
        });
        let is_next = |before: &Turn| before.id + 1 == turn.id;
        if preceding
            .clone()
            .any(|before| is_next(before) && before.source == turn.source)
        {
            return (turn.id, similarities);
        }
        for before in preceding {
            let steps = i32::try_from(turn.id - before.id).unwrap_or(i32::MAX);
            let factor = weight.powi(steps) as f32;
            if factor < MIN_FACTOR {
                continue;
            }
            for (own, preceding) in similarities.iter_mut().zip(&before.similarities) {
                *own = own.max(factor * preceding);
            }
        }
        (turn.id, similarities)
    };
    turns.iter().map(of).collect()
}

/// How much of each entry's text is a question that a later turn may answer: the share of the text, 0 to 1. Entries
/// without one are missing. Later turns are those in `excerpts` of the same thread that are at most `gap` younger. Only
/// they show that there were replies: a question that is alone in its thread has none.
pub(super) fn answered_questions(excerpts: &[Excerpt], gap: Duration) -> HashMap<i64, f64> {
    let is_followed = |excerpt: &Excerpt| {
        excerpts.iter().any(|later| {
            later.id > excerpt.id
                && later.thread_id == excerpt.thread_id
                && are_within(gap, (excerpt.created_at, later.created_at))
        })
    };
    excerpts
        .iter()
        .filter(|excerpt| excerpt.question > 0.0 && is_followed(excerpt))
        .map(|excerpt| (excerpt.id, excerpt.question))
        .collect()
}

/// Whether the second time is the same or later, by at most `gap`.
fn are_within(gap: Duration, (earlier, later): (Timestamp, Timestamp)) -> bool {
    let gap = i64::try_from(gap.as_micros()).unwrap_or(i64::MAX);
    let passed = later.micros().saturating_sub(earlier.micros());
    (0..=gap).contains(&passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(1800);

    /// A turn of a conversation in which an agent replies to a user.
    fn turn(id: i64, thread_id: &str, minute: i64, similarities: [f32; 2]) -> Turn {
        let is_odd = id % 2 == 1;
        Turn {
            id,
            thread_id: thread_id.to_owned(),
            source: if is_odd { Source::User } else { Source::Agent },
            created_at: Timestamp(minute * 60_000_000),
            similarities: similarities.to_vec(),
        }
    }

    #[test]
    fn the_nearest_predecessor_lends_most_and_nothing_is_taken_away() {
        let turns = [
            turn(1, "t", 0, [1.0, 0.2]),
            turn(2, "t", 1, [0.1, 0.3]),
            turn(3, "t", 2, [0.6, 0.0]),
        ];
        let found = with_preceding(&turns, 0.5, GAP);
        assert_eq!(
            found,
            [
                (1, vec![1.0, 0.2]),
                (2, vec![0.5, 0.3]),
                (3, vec![0.6, 0.15])
            ]
        );
        assert_eq!(
            with_preceding(&turns, 0.0, GAP)[1].1,
            [0.1, 0.3],
            "a weight of 0 turns it off"
        );
    }

    #[test]
    fn other_threads_later_entries_and_older_conversations_lend_nothing() {
        let turns = [
            turn(1, "other", 0, [1.0, 1.0]),
            turn(2, "t", 0, [1.0, 1.0]),
            turn(3, "t", 31, [0.0, 0.0]),
            turn(4, "t", 32, [0.9, 0.9]),
        ];
        let found = with_preceding(&turns, 0.9, GAP);
        assert_eq!(found[2], (3, vec![0.0, 0.0]));
    }

    #[test]
    fn an_entry_after_one_of_the_same_source_is_no_reply() {
        let notes = [1, 2, 3].map(|id| Turn {
            source: Source::Agent,
            ..turn(id, "t", 0, [1.0 / id as f32, 0.0])
        });
        let found = with_preceding(&notes, 0.9, GAP);
        assert_eq!(found[1], (2, vec![0.5, 0.0]));
        assert_eq!(found[2], (3, vec![1.0 / 3.0, 0.0]));
        // The entry just before is no candidate, so its source is unknown.
        let [first, _, third] = notes;
        let found = with_preceding(&[first, third], 0.9, GAP);
        assert_eq!(found[1], (3, vec![0.81, 0.0]));
    }

    #[test]
    fn far_ids_do_not_overflow() {
        let turns = [
            turn(1, "t", 0, [1.0, 1.0]),
            turn(i64::MAX, "t", 0, [0.0, 0.0]),
        ];
        assert_eq!(with_preceding(&turns, 1.0, GAP)[1].1, [1.0, 1.0]);
        assert_eq!(with_preceding(&turns, 0.99, GAP)[1].1, [0.0, 0.0]);
    }

    #[test]
    fn a_question_counts_if_a_later_turn_of_its_conversation_is_a_candidate() {
        let excerpt = |id, thread_id: &str, minute: i64, text: &str| Excerpt {
            id,
            thread_id: thread_id.to_owned(),
            source: Source::User,
            created_at: Timestamp(minute * 60_000_000),
            text: text.to_owned(),
            question: context_text::closing_question(text),
        };
        let excerpts = [
            excerpt(1, "t", 0, "Who has the key?"),
            excerpt(2, "t", 0, "Ann. Do you need it?"),
            excerpt(3, "t", 30, "Who else has one?"),
            excerpt(4, "other", 31, "Where is Ann?"),
            excerpt(5, "t", 61, "It is here."),
        ];
        let found = answered_questions(&excerpts, GAP);
        let mut ids: Vec<i64> = found.keys().copied().collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2], "the others have no reply within the gap");
        assert_eq!(found[&1], 1.0);
        assert!((0.5..1.0).contains(&found[&2]), "{found:?}");
        assert!(answered_questions(&excerpts[..1], GAP).is_empty());
    }
}
