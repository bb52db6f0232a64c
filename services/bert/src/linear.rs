//! Matrix products over slices.

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

use crate::ModelError;
use crate::kernel::Kernel;
use crate::tensors::Tensors;

/// The layout of a matrix in a buffer: `rows` × `columns`, with distances of `row_step` and `column_step` floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub row_step: usize,
    pub column_step: usize,
}

impl Shape {
    /// Rows that start every `row_step` floats.
    pub const fn of_rows(rows: usize, columns: usize, row_step: usize) -> Self {
        Self {
            rows,
            columns,
            row_step,
            column_step: 1,
        }
    }

    /// The transpose of the same memory.
    pub const fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }

    /// Number of floats from the first element to the end of the last.
    const fn reach(self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return 0;
        }
        (self.rows - 1) * self.row_step + (self.columns - 1) * self.column_step + 1
    }
}

/// Computes `to` = `factor` · `left` · `right`.
pub(crate) fn product(
    (to, to_shape): (&mut [f32], Shape),
    (left, left_shape): (&[f32], Shape),
    (right, right_shape): (&[f32], Shape),
    factor: f32,
) {
    assert!(
        to_shape.reach() <= to.len()
            && left_shape.reach() <= left.len()
            && right_shape.reach() <= right.len()
    );
    assert!(
        to_shape.rows == left_shape.rows
            && to_shape.columns == right_shape.columns
            && left_shape.columns == right_shape.rows
    );
    // A step never exceeds the length of its slice, which is less than isize::MAX.
    let step = |step: usize| step as isize;
    // SAFETY: the pointers come from live slices. The assertions guarantee that every element lies within its slice.
    // `to` is borrowed exclusively, so nothing overlaps it.
    //
    // The library writes columns, and the rows of `to` are contiguous, so it computes the transpose: `rightᵀ` · `leftᵀ`.
    unsafe {
        get_gemm_fn()(
            to_shape.columns,
            to_shape.rows,
            left_shape.columns,
            to.as_mut_ptr(),
            step(to_shape.row_step),
            step(to_shape.column_step),
            false,
            right.as_ptr(),
            step(right_shape.row_step),
            step(right_shape.column_step),
            left.as_ptr(),
            step(left_shape.row_step),
            step(left_shape.column_step),
            1.0,
            factor,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Computes `x · weightᵀ + bias`.
///
/// The weights are stored only in the kernel's layout, so that a product of few rows does not spend more time
/// rearranging them than multiplying.
pub(crate) struct Linear {
    kernel: &'static Kernel,
    /// Consecutive panels. Each holds, for each input, the weights of the panel's outputs. The last panel is padded
    /// with zeros.
    panels: Aligned,
    /// Padded like the last panel.
    bias: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    pub fn load(
        tensors: &mut Tensors,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        Self::load_side_by_side(tensors, &[name], inputs, outputs)
    }

    /// Combines several layers with the same input into one, with `outputs` outputs for each.
    pub fn load_side_by_side(
        tensors: &mut Tensors,
        names: &[&str],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ModelError> {
        let mut linear = Self::zeros(Kernel::fastest(), inputs, names.len() * outputs);
        for (part, name) in names.iter().enumerate() {
            let weight = tensors.take(&format!("{name}.weight"), &[outputs, inputs])?;
            let bias = tensors.take(&format!("{name}.bias"), &[outputs])?;
            linear.fill(part * outputs, &weight, &bias);
        }
        Ok(linear)
    }

    fn zeros(kernel: &'static Kernel, inputs: usize, outputs: usize) -> Self {
        let padded = outputs.next_multiple_of(kernel.width);
        Self {
            kernel,
            panels: Aligned::zeros(padded * inputs),
            bias: vec![0.0; padded],
            inputs,
            outputs,
        }
    }

    /// Sets the weights and the bias of the outputs starting at `first`. `weight` has one row per output.
    fn fill(&mut self, first: usize, weight: &[f32], bias: &[f32]) {
        let (width, inputs) = (self.kernel.width, self.inputs);
        let panels = self.panels.get_mut();
        for (output, (weights, bias)) in (first..).zip(weight.chunks_exact(inputs).zip(bias)) {
            self.bias[output] = *bias;
            let panel = &mut panels[output / width * width * inputs..][..width * inputs];
            for (to, weight) in panel[output % width..]
                .iter_mut()
                .step_by(width)
                .zip(weights)
            {
                *to = *weight;
            }
        }
    }

    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Writes one row of outputs for each row of `x`.
    pub fn apply(&self, x: &[f32], to: &mut [f32]) {
        let Self {
            kernel,
            panels,
            bias,
            inputs,
            outputs,
        } = self;
        let rows = x.len() / inputs;
        if rows == 0 {
            return;
        }
        // Tiles are as even as possible, because a tile of one row would cost as much as one of several.
        let tiles = rows.div_ceil(kernel.rows);
        let panels = panels
            .get()
            .chunks_exact(kernel.width * inputs)
            .zip(bias.chunks_exact(kernel.width));
        for (first, (panel, bias)) in (0..*outputs).step_by(kernel.width).zip(panels) {
            let columns = kernel.width.min(outputs - first);
            for tile in 0..tiles {
                let (start, end) = (tile * rows / tiles, (tile + 1) * rows / tiles);
                kernel.product(
                    &x[start * inputs..end * inputs],
                    *inputs,
                    panel,
                    bias,
                    (&mut to[start * outputs + first..], *outputs, columns),
                );
            }
        }
    }
}

/// Floats that start at a cache line, so that no register load spans two lines.
struct Aligned {
    /// Never grown, so that its address does not change.
    floats: Vec<f32>,
    start: usize,
}

impl Aligned {
    const LINE_BYTES: usize = 64;

    fn zeros(len: usize) -> Self {
        let mut floats = vec![0.0; len + Self::LINE_BYTES / size_of::<f32>() - 1];
        let start = floats.as_ptr().align_offset(Self::LINE_BYTES);
        floats.truncate(start + len);
        Self { floats, start }
    }

    fn get(&self) -> &[f32] {
        &self.floats[self.start..]
    }

    fn get_mut(&mut self) -> &mut [f32] {
        &mut self.floats[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Small whole numbers, whose sums are exact in any order.
    fn whole_numbers(count: usize, mut seed: u64) -> Vec<f32> {
        let mut next = || {
            seed = seed
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(0x1405_7B7E_F767_814F);
            (seed >> 60) as f32 - 8.0
        };
        (0..count).map(|_| next()).collect()
    }

    proptest! {
        #[test]
        fn every_kernel_computes_what_three_loops_do(
            rows in 0usize..70, inputs in 1usize..80, own in 1usize..80, parts in 1usize..4, seed in any::<u64>()
        ) {
            let outputs = own * parts;
            let x = whole_numbers(rows * inputs, seed);
            let weight = whole_numbers(outputs * inputs, !seed);
            let bias = whole_numbers(outputs, seed ^ 1);
            let mut expected = vec![0.0; rows * outputs];
            for row in 0..rows {
                for output in 0..outputs {
                    let mut sum = bias[output];
                    for input in 0..inputs {
                        sum += x[row * inputs + input] * weight[output * inputs + input];
                    }
                    expected[row * outputs + output] = sum;
                }
            }
            for kernel in Kernel::all() {
                let mut linear = Linear::zeros(kernel, inputs, outputs);
                for part in 0..parts {
                    let (first, end) = (part * own, (part + 1) * own);
                    linear.fill(first, &weight[first * inputs..end * inputs], &bias[first..end]);
                }
                let mut to = vec![f32::NAN; rows * outputs];
                linear.apply(&x, &mut to);
                prop_assert_eq!(&to, &expected, "a kernel {} wide and {} high", kernel.width, kernel.rows);
            }
        }
    }

    #[test]
    fn panels_begin_where_cache_lines_do() {
        for len in [0, 1, 15, 16, 1000] {
            let aligned = Aligned::zeros(len);
            assert_eq!(
                (
                    aligned.get().len(),
                    aligned.get().as_ptr() as usize % Aligned::LINE_BYTES
                ),
                (len, 0)
            );
        }
    }
}
