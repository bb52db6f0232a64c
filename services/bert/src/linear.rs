//! Products of rows and a matrix of weights.

use crate::ModelError;
use crate::kernel::Kernel;
use crate::tensors::Tensors;

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

    /// Weights and biases of zero.
    pub fn zeros(kernel: &'static Kernel, inputs: usize, outputs: usize) -> Self {
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
        let weights = weight.chunks_exact(self.inputs);
        for (output, (weights, bias)) in (first..).zip(weights.zip(bias)) {
            self.bias[output] = *bias;
            self.set_output(output, weights);
        }
    }

    /// Sets the weights of one output, one for each input.
    pub fn set_output(&mut self, output: usize, weights: &[f32]) {
        let (width, inputs) = (self.kernel.width, self.inputs);
        let panel = &mut self.panels.get_mut()[output / width * width * inputs..][..width * inputs];
        for (to, weight) in panel[output % width..]
            .iter_mut()
            .step_by(width)
            .zip(weights)
        {
            *to = *weight;
        }
    }

    /// Sets the weights of one input, one for each output.
    pub fn set_input(&mut self, input: usize, weights: &[f32]) {
        let (width, inputs) = (self.kernel.width, self.inputs);
        let panels = self.panels.get_mut().chunks_exact_mut(width * inputs);
        for (panel, weights) in panels.zip(weights.chunks(width)) {
            panel[input * width..][..weights.len()].copy_from_slice(weights);
        }
    }

    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Writes one row of outputs for each row of `x`.
    pub fn apply(&self, x: &[f32], to: &mut [f32]) {
        self.apply_with_step(x, to, self.outputs);
    }

    /// Writes one row of outputs for each row of `x`. The rows of `to` start every `to_step` floats.
    pub fn apply_with_step(&self, x: &[f32], to: &mut [f32], to_step: usize) {
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
        // The rows are divided as evenly as possible, because a tile of one row takes as long as one of several.
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
                    (&mut to[start * to_step + first..], to_step, columns),
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

    proptest! {
        #[test]
        fn weights_set_by_input_and_rows_with_a_step_give_the_same(
            rows in 1usize..40, inputs in 1usize..50, outputs in 1usize..80, gap in 0usize..5, seed in any::<u64>()
        ) {
            let x = whole_numbers(rows * inputs, seed);
            let weight = whole_numbers(outputs * inputs, !seed);
            for kernel in Kernel::all() {
                let (mut by_output, mut by_input) =
                    (Linear::zeros(kernel, inputs, outputs), Linear::zeros(kernel, inputs, outputs));
                for (output, weights) in weight.chunks_exact(inputs).enumerate() {
                    by_output.set_output(output, weights);
                }
                for input in 0..inputs {
                    let weights: Vec<f32> = weight.iter().skip(input).step_by(inputs).copied().collect();
                    by_input.set_input(input, &weights);
                }
                let mut expected = vec![f32::NAN; rows * outputs];
                by_output.apply(&x, &mut expected);
                let step = outputs + gap;
                let mut to = vec![-0.5; rows * step];
                by_input.apply_with_step(&x, &mut to, step);
                for (row, expected) in to.chunks_exact(step).zip(expected.chunks_exact(outputs)) {
                    prop_assert_eq!(&row[..outputs], expected);
                    prop_assert!(row[outputs..].iter().all(|value| *value == -0.5), "the gap is not written");
                }
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
