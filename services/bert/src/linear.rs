//! Matrix products over slices.

use gemm::Parallelism;

use crate::ModelError;
use crate::tensors::Tensors;

/// A part of a buffer seen as a matrix: `rows` × `columns`, a row every `row_step`, a column every `column_step` floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub row_step: usize,
    pub column_step: usize,
}

impl Shape {
    /// Rows that lie one after the other.
    pub const fn of_rows(rows: usize, columns: usize, row_step: usize) -> Self {
        Self { rows, columns, row_step, column_step: 1 }
    }

    /// The same memory, rows and columns exchanged.
    pub const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_step: self.column_step, column_step: self.row_step }
    }

    /// Floats from the first element to behind the last.
    const fn reach(self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return 0;
        }
        (self.rows - 1) * self.row_step + (self.columns - 1) * self.column_step + 1
    }
}

/// `to` = `factor` · `left` · `right`, or `to` + that when `add`.
pub(crate) fn product(
    (to, to_shape): (&mut [f32], Shape),
    (left, left_shape): (&[f32], Shape),
    (right, right_shape): (&[f32], Shape),
    factor: f32,
    add: bool,
    parallelism: Parallelism,
) {
    assert!(to_shape.reach() <= to.len() && left_shape.reach() <= left.len() && right_shape.reach() <= right.len());
    assert!(to_shape.rows == left_shape.rows && to_shape.columns == right_shape.columns && left_shape.columns == right_shape.rows);
    // A step never exceeds the length of its slice, which is below isize::MAX.
    let step = |step: usize| step as isize;
    // SAFETY: the pointers come from live slices; the assertions say that every element lies within its slice; `to` is
    // borrowed alone, so nothing overlaps it.
    unsafe {
        gemm::gemm(
            to_shape.rows,
            to_shape.columns,
            left_shape.columns,
            to.as_mut_ptr(),
            step(to_shape.column_step),
            step(to_shape.row_step),
            add,
            left.as_ptr(),
            step(left_shape.column_step),
            step(left_shape.row_step),
            right.as_ptr(),
            step(right_shape.column_step),
            step(right_shape.row_step),
            1.0,
            factor,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// `x · weightᵀ + bias`.
pub(crate) struct Linear {
    /// A row for each output.
    weight: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
}

impl Linear {
    pub fn load(tensors: &mut Tensors, name: &str, inputs: usize, outputs: usize) -> Result<Self, ModelError> {
        Ok(Self {
            weight: tensors.take(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: tensors.take(&format!("{name}.bias"), &[outputs])?,
            inputs,
        })
    }

    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Writes a row of outputs for each row of `x`; the rows of `to` begin every `row_step` floats.
    pub fn apply(&self, x: &[f32], to: &mut [f32], row_step: usize, parallelism: Parallelism) {
        let (rows, outputs) = (x.len() / self.inputs, self.outputs());
        for row in to.chunks_mut(row_step).take(rows) {
            row[..outputs].copy_from_slice(&self.bias);
        }
        let x_shape = Shape::of_rows(rows, self.inputs, self.inputs);
        let weight_shape = Shape::of_rows(outputs, self.inputs, self.inputs).transposed();
        product((to, Shape::of_rows(rows, outputs, row_step)), (x, x_shape), (&self.weight, weight_shape), 1.0, true, parallelism);
    }
}
