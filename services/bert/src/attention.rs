//! Self-attention within each sequence, head by head.

use rayon::prelude::*;

use crate::kernel::Kernel;
use crate::linear::Linear;
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
    let factor = 1.0 / (width as f32).sqrt();
    // Both products are linear layers: the keys of a head are the weights from a query to its scores, and the values
    // are the weights from the scores to the output.
    let mut keys = Linear::zeros(Kernel::fastest(), width, length);
    let mut values = Linear::zeros(Kernel::fastest(), length, width);
    let mut queries = vec![0.0; length * width];
    let mut scores = vec![0.0; length * length];
    for head in 0..heads {
        let at = head * width;
        let tokens = states.chunks_exact(3 * hidden);
        for (token, (state, query)) in tokens.zip(queries.chunks_exact_mut(width)).enumerate() {
            for (to, from) in query.iter_mut().zip(&state[at..at + width]) {
                *to = from * factor;
            }
            keys.set_output(token, &state[hidden + at..][..width]);
            values.set_input(token, &state[2 * hidden + at..][..width]);
        }
        keys.apply(&queries, &mut scores);
        softmax(&mut scores, length);
        values.apply_with_step(&scores, &mut to[at..], hidden);
    }
}
