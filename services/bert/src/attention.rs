//! Self-attention within each sequence, head by head.

use rayon::prelude::*;

use crate::linear::{Shape, product};
use crate::math::softmax;

/// Minimum number of tokens in a batch for which several threads pay off.
const PARALLEL_FROM_TOKENS: usize = 64;

/// Fills `to` (`hidden` floats per token) from `states` (query, key and value side by side for each token). `lengths`
/// are the token counts of the sequences, in order.
pub(crate) fn attend(
    states: &[f32],
    to: &mut [f32],
    lengths: &[usize],
    hidden: usize,
    heads: usize,
) {
    let mut parts = Vec::with_capacity(lengths.len());
    let (mut states, mut to) = (states, to);
    let tokens: usize = lengths.iter().sum();
    for &length in lengths {
        let (own_states, later_states) = states.split_at(length * 3 * hidden);
        let (own_to, later_to) = to.split_at_mut(length * hidden);
        (states, to) = (later_states, later_to);
        parts.push((own_states, own_to, length));
    }
    if parts.len() > 1 && tokens >= PARALLEL_FROM_TOKENS {
        parts
            .into_par_iter()
            .for_each(|(states, to, length)| sequence(states, to, length, hidden, heads));
    } else {
        parts
            .into_iter()
            .for_each(|(states, to, length)| sequence(states, to, length, hidden, heads));
    }
}

fn sequence(states: &[f32], to: &mut [f32], length: usize, hidden: usize, heads: usize) {
    let width = hidden / heads;
    let of_states = Shape::of_rows(length, width, 3 * hidden);
    let of_scores = Shape::of_rows(length, length, length);
    let mut scores = vec![0.0; length * length];
    for head in 0..heads {
        let at = head * width;
        let (query, key, value) = (
            &states[at..],
            &states[hidden + at..],
            &states[2 * hidden + at..],
        );
        let factor = 1.0 / (width as f32).sqrt();
        product(
            (&mut scores, of_scores),
            (query, of_states),
            (key, of_states.transposed()),
            factor,
        );
        softmax(&mut scores, length);
        let of_to = Shape::of_rows(length, width, hidden);
        product(
            (&mut to[at..], of_to),
            (&scores, of_scores),
            (value, of_states),
            1.0,
        );
    }
}
