//! Counts in how many bits the sign bits of codes differ from a query, for a block of 64 codes at a time.
//!
//! The query has four bits per dimension: see [`SignQuery`](crate::query::SignQuery). Its lowest bits are plane 0, and
//! so on. A difference in plane p counts 2^p times.

/// Number of codes in a block.
pub(crate) const BLOCK: usize = 64;

/// Number of bits per dimension of a query.
pub(crate) const PLANES: usize = 4;

/// The words of a query, one per plane, that are compared with the same word of a code.
pub(crate) type QueryWord = [u64; PLANES];

/// The weighted number of differing bits of each code in a block.
pub(crate) type Counts = [u64; BLOCK];

/// Fills `counts` for the codes of a block, and returns a bit for each code whose count is less than `below`. A block
/// holds the first words of its 64 codes, then their second words, and so on, so that every load is contiguous.
pub(crate) type Kernel =
    fn(block: &[u64], query: &[QueryWord], below: u64, counts: &mut Counts) -> u64;

/// The fastest kernel that this processor supports.
pub(crate) fn fastest() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vpopcntdq") {
            return |block, query, below, counts| {
                // SAFETY: the processor has these features.
                unsafe { widest(block, query, below, counts) }
            };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            return |block, query, below, counts| {
                // SAFETY: the processor has these features.
                unsafe { wide(block, query, below, counts) }
            };
        }
    }
    portable
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
fn widest(block: &[u64], query: &[QueryWord], below: u64, counts: &mut Counts) -> u64 {
    count(block, query, below, counts)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn wide(block: &[u64], query: &[QueryWord], below: u64, counts: &mut Counts) -> u64 {
    count(block, query, below, counts)
}

pub(crate) fn portable(block: &[u64], query: &[QueryWord], below: u64, counts: &mut Counts) -> u64 {
    count(block, query, below, counts)
}

/// The loops use a counter and a constant length, for the reason given at `exact::LANES`.
#[expect(
    clippy::needless_range_loop,
    reason = "iterators are not always inlined here: see `exact::LANES`"
)]
#[inline(always)]
fn count(block: &[u64], query: &[QueryWord], below: u64, counts: &mut Counts) -> u64 {
    let (words, _) = block.as_chunks::<BLOCK>();
    let mut sums = [0; BLOCK];
    for word in 0..words.len().min(query.len()) {
        let (words, query) = (&words[word], &query[word]);
        for slot in 0..BLOCK {
            sums[slot] = u64::wrapping_add(sums[slot], differences(words[slot], query));
        }
    }
    *counts = sums;
    let mut mask = 0;
    for slot in 0..BLOCK {
        mask |= u64::from(sums[slot] < below) << slot;
    }
    mask
}

/// The weighted number of bits in which a word differs from the query. The sum over all words of a code cannot
/// overflow, because each adds at most 960. An overflow check would prevent the compiler from using one instruction for
/// eight codes.
#[expect(
    clippy::needless_range_loop,
    reason = "iterators are not always inlined here: see `exact::LANES`"
)]
#[inline(always)]
fn differences(word: u64, query: &QueryWord) -> u64 {
    let mut sum = 0;
    for plane in 0..PLANES {
        sum = u64::wrapping_add(sum, u64::from((word ^ query[plane]).count_ones()) << plane);
    }
    sum
}

/// The count for one code of a block.
pub(crate) fn count_one(block: &[u64], slot: usize, query: &[QueryWord]) -> u64 {
    block
        .chunks_exact(BLOCK)
        .zip(query)
        .fold(0, |sum, (words, query)| {
            u64::wrapping_add(sum, differences(words[slot], query))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_counts_the_same() {
        for words in [1, 3, 6, 16] {
            let block: Vec<u64> = (0..words as u64 * 64)
                .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .collect();
            let query: Vec<QueryWord> = (0..words as u64)
                .map(|i| [1, 2, 3, 4].map(|plane| (i + plane).wrapping_mul(0xD1B5_4A32_D192_ED03)))
                .collect();
            let (mut fast, mut slow) = ([0; BLOCK], [0; BLOCK]);
            let below = words as u64 * 32 * 15;
            let mask = fastest()(&block, &query, below, &mut fast);
            assert_eq!(portable(&block, &query, below, &mut slow), mask);
            assert_eq!(fast, slow);
            let less = |slot: usize| fast[slot] < below;
            assert!((0..BLOCK).all(|slot| (mask >> slot & 1 == 1) == less(slot)));
            assert!(mask.count_ones() > 0 && mask.count_zeros() > 0);
            let by_hand: u32 = (0..words)
                .map(|word| {
                    let bits =
                        |plane: usize| (block[word * BLOCK + 5] ^ query[word][plane]).count_ones();
                    bits(0) + 2 * bits(1) + 4 * bits(2) + 8 * bits(3)
                })
                .sum();
            assert_eq!(fast[5], u64::from(by_hand));
        }
    }
}
