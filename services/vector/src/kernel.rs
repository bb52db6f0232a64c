//! Counts differing bits, one block of 64 codes at a time.

/// Number of codes in a block.
pub(crate) const BLOCK: usize = 64;

/// Number of differing bits for each code of a block.
pub(crate) type Counts = [u64; BLOCK];

/// Fills `counts` for the codes of a block. A block holds the first words of its 64 codes, then their second words, and
/// so on, so that every load is contiguous.
pub(crate) type Kernel = fn(block: &[u64], query: &[u64], counts: &mut Counts);

/// The fastest kernel that this processor supports.
pub(crate) fn fastest() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vpopcntdq") {
            return |block, query, counts| {
                // SAFETY: the processor has these features.
                unsafe { widest(block, query, counts) }
            };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            return |block, query, counts| {
                // SAFETY: the processor has these features.
                unsafe { wide(block, query, counts) }
            };
        }
    }
    portable
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
fn widest(block: &[u64], query: &[u64], counts: &mut Counts) {
    count(block, query, counts);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn wide(block: &[u64], query: &[u64], counts: &mut Counts) {
    count(block, query, counts);
}

pub(crate) fn portable(block: &[u64], query: &[u64], counts: &mut Counts) {
    count(block, query, counts);
}

/// The loops use a counter and a constant length, for the reason given at `exact::LANES`.
#[inline(always)]
fn count(block: &[u64], query: &[u64], counts: &mut Counts) {
    let (words, _) = block.as_chunks::<BLOCK>();
    let mut sums = [0; BLOCK];
    for word in 0..words.len().min(query.len()) {
        let (words, query) = (&words[word], query[word]);
        for slot in 0..BLOCK {
            // The sum cannot overflow: it grows by at most 64 for each of a code's few words. An overflow check would
            // prevent the compiler from using one instruction for eight codes.
            sums[slot] =
                u64::wrapping_add(sums[slot], u64::from((words[slot] ^ query).count_ones()));
        }
    }
    *counts = sums;
}

/// Number of bits in which one code of a block differs from the query.
pub(crate) fn count_one(block: &[u64], slot: usize, query: &[u64]) -> u64 {
    block
        .chunks_exact(BLOCK)
        .zip(query)
        .fold(0, |sum, (words, query)| {
            u64::wrapping_add(sum, u64::from((words[slot] ^ query).count_ones()))
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
            let query: Vec<u64> = (0..words as u64)
                .map(|i| i.wrapping_mul(0xD1B5_4A32_D192_ED03))
                .collect();
            let (mut fast, mut slow) = ([0; BLOCK], [0; BLOCK]);
            fastest()(&block, &query, &mut fast);
            portable(&block, &query, &mut slow);
            assert_eq!(fast, slow);
            let by_hand: u32 = (0..words)
                .map(|word| (block[word * BLOCK + 5] ^ query[word]).count_ones())
                .sum();
            assert_eq!(fast[5], u64::from(by_hand));
        }
    }
}
