//! One layer of the encoder.

use gemm::Parallelism;

use crate::ModelError;
use crate::attention::attend;
use crate::config::Config;
use crate::linear::Linear;
use crate::math::{add_and_normalise, gelu};
use crate::tensors::Tensors;

/// A row's scale and shift after normalisation.
pub(crate) struct Norm {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
    pub epsilon: f32,
}

impl Norm {
    pub fn load(tensors: &mut Tensors, name: &str, config: &Config) -> Result<Self, ModelError> {
        let columns = [config.hidden_size];
        // Checkpoints converted from TensorFlow keep its names.
        let (scale, shift) = if tensors.has(&format!("{name}.gamma")) { ("gamma", "beta") } else { ("weight", "bias") };
        Ok(Self {
            scale: tensors.take(&format!("{name}.{scale}"), &columns)?,
            shift: tensors.take(&format!("{name}.{shift}"), &columns)?,
            epsilon: config.layer_norm_eps,
        })
    }

    pub fn apply(&self, values: &mut [f32], residual: &[f32]) {
        add_and_normalise(values, residual, &self.scale, &self.shift, self.epsilon);
    }
}

pub(crate) struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
    heads: usize,
}

/// Memory that the layers of a pass share.
pub(crate) struct Scratch {
    states: Vec<f32>,
    attended: Vec<f32>,
    projected: Vec<f32>,
    wide: Vec<f32>,
}

impl Scratch {
    pub fn new(tokens: usize, config: &Config) -> Self {
        let hidden = config.hidden_size;
        Self {
            states: vec![0.0; tokens * 3 * hidden],
            attended: vec![0.0; tokens * hidden],
            projected: vec![0.0; tokens * hidden],
            wide: vec![0.0; tokens * config.intermediate_size],
        }
    }
}

impl Layer {
    pub fn load(tensors: &mut Tensors, number: usize, config: &Config) -> Result<Self, ModelError> {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        Ok(Self {
            query: Linear::load(tensors, &name("attention.self.query"), hidden, hidden)?,
            key: Linear::load(tensors, &name("attention.self.key"), hidden, hidden)?,
            value: Linear::load(tensors, &name("attention.self.value"), hidden, hidden)?,
            attended: Linear::load(tensors, &name("attention.output.dense"), hidden, hidden)?,
            attended_norm: Norm::load(tensors, &name("attention.output.LayerNorm"), config)?,
            wide: Linear::load(tensors, &name("intermediate.dense"), hidden, wide)?,
            narrow: Linear::load(tensors, &name("output.dense"), wide, hidden)?,
            norm: Norm::load(tensors, &name("output.LayerNorm"), config)?,
            heads: config.num_attention_heads,
        })
    }

    /// Replaces the rows of `x`, one for each token, by the layer's output.
    pub fn apply(&self, x: &mut Vec<f32>, lengths: &[usize], scratch: &mut Scratch, parallelism: Parallelism) {
        let hidden = self.query.outputs();
        let Scratch { states, attended, projected, wide } = scratch;
        for (part, linear) in [&self.query, &self.key, &self.value].into_iter().enumerate() {
            linear.apply(x, &mut states[part * hidden..], 3 * hidden, parallelism);
        }
        attend(states, attended, lengths, hidden, self.heads);
        self.attended.apply(attended, projected, hidden, parallelism);
        self.attended_norm.apply(projected, x);
        std::mem::swap(x, projected);
        self.wide.apply(x, wide, self.wide.outputs(), parallelism);
        gelu(wide);
        self.narrow.apply(wide, projected, hidden, parallelism);
        self.norm.apply(projected, x);
        std::mem::swap(x, projected);
    }
}
