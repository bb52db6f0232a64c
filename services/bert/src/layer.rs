//! One layer of the encoder.

use rayon::prelude::*;

use crate::ModelError;
use crate::attention::attend;
use crate::config::Config;
use crate::linear::Linear;
use crate::math::{add_and_normalise, gelu};
use crate::tensors::Tensors;

/// The scale and shift of a layer normalisation.
pub(crate) struct Norm {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
    pub epsilon: f32,
}

impl Norm {
    pub fn load(tensors: &mut Tensors, name: &str, config: &Config) -> Result<Self, ModelError> {
        let columns = [config.hidden_size];
        // Checkpoints converted from TensorFlow use TensorFlow's names.
        let (scale, shift) = if tensors.has(&format!("{name}.gamma")) {
            ("gamma", "beta")
        } else {
            ("weight", "bias")
        };
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
    /// Query, key and value side by side.
    states: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
    heads: usize,
}

/// Buffers that the layers of a pass share.
pub(crate) struct Scratch {
    states: Vec<f32>,
    attended: Vec<f32>,
}

impl Scratch {
    pub fn new(tokens: usize, config: &Config) -> Self {
        let hidden = config.hidden_size;
        Self {
            states: vec![0.0; tokens * 3 * hidden],
            attended: vec![0.0; tokens * hidden],
        }
    }
}

/// Buffers of one thread.
#[derive(Default)]
struct Buffers {
    projected: Vec<f32>,
    wide: Vec<f32>,
}

impl Layer {
    pub fn load(tensors: &mut Tensors, number: usize, config: &Config) -> Result<Self, ModelError> {
        let (hidden, wide) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let states = [
            name("attention.self.query"),
            name("attention.self.key"),
            name("attention.self.value"),
        ];
        Ok(Self {
            states: Linear::load_side_by_side(
                tensors,
                &states.each_ref().map(String::as_str),
                hidden,
                hidden,
            )?,
            attention_output: Linear::load(
                tensors,
                &name("attention.output.dense"),
                hidden,
                hidden,
            )?,
            attention_norm: Norm::load(tensors, &name("attention.output.LayerNorm"), config)?,
            wide: Linear::load(tensors, &name("intermediate.dense"), hidden, wide)?,
            narrow: Linear::load(tensors, &name("output.dense"), wide, hidden)?,
            norm: Norm::load(tensors, &name("output.LayerNorm"), config)?,
            heads: config.num_attention_heads,
        })
    }

    /// Replaces the rows of `x`, one per token, by the layer's output. Processes `group_rows` rows at a time.
    pub fn apply(
        &self,
        x: &mut [f32],
        lengths: &[usize],
        scratch: &mut Scratch,
        group_rows: usize,
    ) {
        let hidden = self.attention_output.outputs();
        let Scratch { states, attended } = scratch;
        if x.len() <= group_rows * hidden {
            self.states.apply(x, states);
            attend(states, attended, lengths, hidden, self.heads);
            self.after_attention(x, attended, &mut Buffers::default());
            return;
        }
        let parts = x
            .par_chunks(group_rows * hidden)
            .zip(states.par_chunks_mut(group_rows * 3 * hidden));
        parts.for_each(|(x, states)| self.states.apply(x, states));
        attend(states, attended, lengths, hidden, self.heads);
        let parts = x
            .par_chunks_mut(group_rows * hidden)
            .zip(attended.par_chunks(group_rows * hidden));
        parts.for_each_init(Buffers::default, |buffers, (x, attended)| {
            self.after_attention(x, attended, buffers)
        });
    }

    /// The steps of a layer after attention, which treat each row independently.
    fn after_attention(
        &self,
        x: &mut [f32],
        attended: &[f32],
        Buffers { projected, wide }: &mut Buffers,
    ) {
        projected.resize(x.len(), 0.0);
        wide.resize(
            x.len() / self.attention_output.outputs() * self.wide.outputs(),
            0.0,
        );
        self.attention_output.apply(attended, projected);
        self.attention_norm.apply(x, projected);
        self.wide.apply(x, wide);
        gelu(wide);
        self.narrow.apply(wide, projected);
        self.norm.apply(x, projected);
    }
}
