//! Multiplies a few rows by a panel of weights, with one kernel for each kind of processor.

/// The operands of one kernel call: consecutive rows of `x`, the panel, and where the outputs go.
struct Tile {
    x: *const f32,
    inputs: usize,
    /// For each input, the weights of the panel's outputs.
    panel: *const f32,
    bias: *const f32,
    to: *mut f32,
    /// Distance between the starts of two output rows, in floats.
    to_step: usize,
}

/// Maximum number of outputs of a tile, in floats.
const MAX_OUTPUTS: usize = 14 * 32;

/// Prefetch distance, in floats. The processor's own prefetching stops at page boundaries, and the weights of a network
/// span thousands of pages, which one short text reads completely.
const PREFETCH_DISTANCE: usize = 512;

/// The code for one kind of processor, and the size of the tile that it computes at once.
pub(crate) struct Kernel {
    /// Outputs per panel.
    pub width: usize,
    /// Maximum number of rows.
    pub rows: usize,
    /// The functions for 1 row, 2 rows, and so on.
    tiles: &'static [unsafe fn(&Tile)],
}

impl Kernel {
    /// The fastest kernel that this processor supports.
    pub fn fastest() -> &'static Self {
        Self::all()[0]
    }

    /// All kernels that this processor supports, the fastest first.
    pub fn all() -> Vec<&'static Self> {
        let mut all: Vec<&'static Self> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                all.push(&x86::WIDEST);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(&x86::WIDE);
            }
        }
        all.push(&PORTABLE);
        all
    }

    /// Computes `x` · `panel` + `bias`. `x` has at most [`rows`](Self::rows) rows of `inputs` floats. `panel` and
    /// `bias` are [`width`](Self::width) outputs wide, of which the first `columns` are written. The rows of `to` start
    /// every `to_step` floats.
    pub fn product(
        &self,
        x: &[f32],
        inputs: usize,
        panel: &[f32],
        bias: &[f32],
        (to, to_step, columns): (&mut [f32], usize, usize),
    ) {
        let rows = x.len() / inputs;
        assert!(
            x.len() == rows * inputs
                && panel.len() == inputs * self.width
                && bias.len() == self.width
        );
        assert!(
            (1..=self.rows).contains(&rows)
                && columns <= self.width
                && columns <= to_step
                && (rows - 1) * to_step + columns <= to.len()
        );
        let tile = |to: &mut [f32], to_step| Tile {
            x: x.as_ptr(),
            inputs,
            panel: panel.as_ptr(),
            bias: bias.as_ptr(),
            to: to.as_mut_ptr(),
            to_step,
        };
        let run = self.tiles[rows - 1];
        if columns == self.width {
            // SAFETY: `all` returns only kernels whose instructions the processor has. The assertions guarantee that
            // the rows and the weights lie within their slices, and that each row's `width` outputs lie within `to`.
            unsafe { run(&tile(to, to_step)) };
            return;
        }
        let mut outputs = [0.0; MAX_OUTPUTS];
        // SAFETY: as above. `outputs` has room for the largest tile of any kernel.
        unsafe { run(&tile(&mut outputs, self.width)) };
        for (to, outputs) in to
            .chunks_mut(to_step)
            .zip(outputs.chunks(self.width))
            .take(rows)
        {
            to[..columns].copy_from_slice(&outputs[..columns]);
        }
    }
}

/// A SIMD register of floats.
trait Lanes: Copy {
    const COUNT: usize;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn all(value: f32) -> Self;
    /// `self` + `a` · `b`.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn prefetch(from: *const f32);
}

/// Computes the outputs of `ROWS` rows with `VECTORS` registers for each row. With AVX2 and AVX-512 all sums stay in
/// registers.
///
/// # Safety
/// The processor must have the instructions of `V`. The rows, the panel and the bias must be readable and the outputs
/// writable.
#[inline(always)]
unsafe fn compute<V: Lanes, const VECTORS: usize, const ROWS: usize>(tile: &Tile) {
    // SAFETY: the caller guarantees that there is a float at each address that is read or written. A prefetch is only a
    // hint: its address may lie outside the panel.
    unsafe {
        let mut bias = [V::all(0.0); VECTORS];
        for (vector, bias) in bias.iter_mut().enumerate() {
            *bias = V::load(tile.bias.add(vector * V::COUNT));
        }
        let mut sums = [bias; ROWS];
        let mut panel = tile.panel;
        for input in 0..tile.inputs {
            let mut weights = [V::all(0.0); VECTORS];
            for (vector, weights) in weights.iter_mut().enumerate() {
                V::prefetch(panel.wrapping_add(PREFETCH_DISTANCE + vector * V::COUNT));
                *weights = V::load(panel.add(vector * V::COUNT));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = V::all(*tile.x.add(row * tile.inputs + input));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = sum.plus_product(x, weights);
                }
            }
            panel = panel.add(VECTORS * V::COUNT);
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vector, sum) in sums.iter().enumerate() {
                sum.store(tile.to.add(row * tile.to_step + vector * V::COUNT));
            }
        }
    }
}

/// The functions for 1 row, 2 rows, and so on, compiled for these instructions.
macro_rules! tiles {
    (@one [$($attribute:meta)?], $lanes:ty, $vectors:literal, $rows:literal) => {{
        $(#[$attribute])?
        unsafe fn tile(tile: &Tile) {
            // SAFETY: the caller guarantees the processor's features and the tile.
            unsafe { compute::<$lanes, $vectors, $rows>(tile) }
        }
        tile
    }};
    ($attributes:tt, $lanes:ty, $vectors:literal, $($rows:literal)*) => {
        &[$(tiles!(@one $attributes, $lanes, $vectors, $rows)),*]
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, _MM_HINT_T0, _mm_prefetch, _mm256_fmadd_ps, _mm256_loadu_ps,
        _mm256_set1_ps, _mm256_storeu_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps,
        _mm512_storeu_ps,
    };

    use super::{Kernel, Lanes, Tile, compute};

    /// 28 of 32 registers hold sums.
    pub(super) static WIDEST: Kernel = Kernel {
        width: 32,
        rows: 14,
        tiles: tiles!([target_feature(enable = "avx512f")], __m512, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    };

    /// 12 of 16 registers hold sums.
    pub(super) static WIDE: Kernel = Kernel {
        width: 16,
        rows: 6,
        tiles: tiles!([target_feature(enable = "avx2,fma")], __m256, 2, 1 2 3 4 5 6),
    };

    macro_rules! lanes {
        ($lanes:ty, $count:literal, $load:ident, $all:ident, $fmadd:ident, $store:ident) => {
            // SAFETY of all functions: the caller guarantees the processor's features and the address.
            impl Lanes for $lanes {
                const COUNT: usize = $count;
                #[inline(always)]
                unsafe fn load(from: *const f32) -> Self {
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn all(value: f32) -> Self {
                    unsafe { $all(value) }
                }
                #[inline(always)]
                unsafe fn plus_product(self, a: Self, b: Self) -> Self {
                    unsafe { $fmadd(a, b, self) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut f32) {
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn prefetch(from: *const f32) {
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
                }
            }
        };
    }
    lanes!(
        __m512,
        16,
        _mm512_loadu_ps,
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_storeu_ps
    );
    lanes!(
        __m256,
        8,
        _mm256_loadu_ps,
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_storeu_ps
    );
}

/// For any other processor: four floats per register, as in SSE and NEON.
static PORTABLE: Kernel = Kernel {
    width: 16,
    rows: 4,
    tiles: tiles!([], Four, 4, 1 2 3 4),
};

#[derive(Clone, Copy)]
struct Four([f32; 4]);

impl Lanes for Four {
    const COUNT: usize = 4;
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees the address. An array needs no stricter alignment than its elements.
        Self(unsafe { from.cast::<[f32; 4]>().read() })
    }
    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        Self([value; 4])
    }
    #[inline(always)]
    unsafe fn plus_product(mut self, a: Self, b: Self) -> Self {
        for ((sum, a), b) in self.0.iter_mut().zip(a.0).zip(b.0) {
            // Every 64-bit ARM processor has a fused multiply-add instruction. Elsewhere `mul_add` may be a function
            // call, which is slow.
            *sum = if cfg!(target_arch = "aarch64") {
                a.mul_add(b, *sum)
            } else {
                *sum + a * b
            };
        }
        self
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as for `load`.
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
}
