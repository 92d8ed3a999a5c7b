//! [`Model`]: the weights of a Llama or Qwen3 model on a device, and its layers.

use half::bf16;
use warpsmith::ops::{
    self, Attention, AttentionDecode, Heads, HeadsMut, Indices, KvCache, Matrix, RotaryPairs,
};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::linear::{Linear, WeightFormat};
use crate::weights::{Folder, Tensors, Uploader};

/// Tokens per page of the cache.
pub const PAGE: usize = 64;

/// A model on a device.
pub struct Model {
    pub config: Config,
    embedding: DeviceBuffer<bf16>,
    layers: Vec<Layer>,
    norm: DeviceBuffer<bf16>,
    /// Output layer. `None` means the transposed embedding.
    head: Option<Linear>,
    /// Cosines and sines of the rotary position embedding: one row per position.
    cos: DeviceBuffer<f32>,
    sin: DeviceBuffer<f32>,
    /// Number of positions in the tables.
    pub context: usize,
}

/// Weights of a layer. Products with the same input are fused: q, k and v, and the gate and up projections.
struct Layer {
    attention_norm: DeviceBuffer<bf16>,
    qkv: Linear,
    /// Norms of the heads of q and k.
    head_norms: Option<[DeviceBuffer<bf16>; 2]>,
    output: Linear,
    mlp_norm: DeviceBuffer<bf16>,
    gate_up: Linear,
    down: Linear,
}

/// Source of a model's weights.
pub enum Source<'a> {
    Folder(&'a Folder),
    /// Normally distributed numbers, for benchmarks and tests.
    Random {
        seed: u64,
    },
}

/// Reads weights one after another.
pub(crate) enum Loader<'a> {
    Folder { tensors: Tensors<'a>, uploader: Uploader },
    Random(Generator),
}

impl Loader<'_> {
    /// Enqueues the copy of several weights, which are stored one after another. Each has a name, a number of rows, and
    /// `columns` columns.
    pub fn load(
        &mut self,
        stream: &Stream,
        parts: &[(String, usize)],
        columns: usize,
    ) -> Result<DeviceBuffer<bf16>> {
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        let mut buffer = DeviceBuffer::uninit(stream, rows * columns)?;
        match self {
            Loader::Folder { tensors, uploader } => {
                let mut start = 0;
                for (name, rows) in parts {
                    let tensor = tensors.get(name, &[*rows, columns])?;
                    uploader.copy(tensor, buffer.slice_mut(start..start + rows * columns))?;
                    start += rows * columns;
                }
            }
            Loader::Random(generator) => random::normal(stream, generator, 0.0, 0.02, &mut buffer)?,
        }
        Ok(buffer)
    }

    /// Enqueues the copy of the weights of a norm.
    fn load_norm(&mut self, stream: &Stream, name: &str, len: usize) -> Result<DeviceBuffer<bf16>> {
        match self {
            Loader::Folder { tensors, uploader } => {
                let mut buffer = DeviceBuffer::uninit(stream, len)?;
                uploader.copy(tensors.get(name, &[len])?, buffer.as_mut_slice())?;
                Ok(buffer)
            }
            Loader::Random(_) => Ok(DeviceBuffer::filled(stream, len, bf16::ONE)?),
        }
    }
}

/// Memory for the intermediate results of up to `rows` tokens.
pub struct Activations {
    x: DeviceBuffer<bf16>,
    hidden: DeviceBuffer<bf16>,
    qkv: DeviceBuffer<bf16>,
    q: [DeviceBuffer<bf16>; 2],
    k: [DeviceBuffer<bf16>; 2],
    v: DeviceBuffer<bf16>,
    attended: DeviceBuffer<bf16>,
    gate_up: DeviceBuffer<bf16>,
    activated: DeviceBuffer<bf16>,
    /// Keys and values of a sequence, gathered from its pages.
    gathered: [DeviceBuffer<bf16>; 2],
    /// Cosines and sines of the tokens' positions.
    angles: [DeviceBuffer<f32>; 2],
    pub logits: DeviceBuffer<bf16>,
}

/// Keys and values of all sequences, in pages.
pub struct Cache {
    pub pages: usize,
    layers: Vec<[DeviceBuffer<bf16>; 2]>,
}

impl Cache {
    /// Bytes of a page in all layers.
    pub fn page_bytes(config: &Config) -> u64 {
        (config.layers * 2 * PAGE * config.kv_width() * size_of::<bf16>()) as u64
    }

    /// Allocates the cache.
    pub fn new(stream: &Stream, config: &Config, pages: usize) -> Result<Self> {
        let buffer = || DeviceBuffer::zeros(stream, pages * PAGE * config.kv_width());
        let layer = |_| Ok([buffer()?, buffer()?]);
        let layers = (0..config.layers).map(layer).collect::<std::result::Result<_, warpsmith::Error>>()?;
        Ok(Self { pages, layers })
    }
}

/// Keys to which the tokens of a pass attend, in addition to their own.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// None: the tokens start a sequence.
    Own,
    /// The keys in these pages, of a sequence with `length` tokens including those of the pass.
    Pages { pages: Indices<'a, u32>, length: usize },
    /// Each token is the last one of a sequence.
    Decode { lengths: DeviceSlice<'a, u32>, table: DeviceSlice2<'a, u32> },
}

/// Inputs of a pass through the layers, in device memory.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub tokens: DeviceSlice<'a, u32>,
    pub positions: DeviceSlice<'a, u32>,
    /// Row of the cache for each token's keys and values.
    pub slots: Indices<'a, u32>,
    pub keys: Keys<'a>,
}

impl Model {
    /// Loads a model. `context` is the largest number of tokens per sequence.
    pub fn load(
        stream: &Stream,
        config: Config,
        context: usize,
        format: WeightFormat,
        source: Source<'_>,
    ) -> Result<Self> {
        let c = &config;
        let bytes = parameter_bytes(c, format);
        let available = stream.device().memory_info()?.free;
        if bytes > available {
            return Err(Error::TooLarge { needed: bytes >> 20, available: available >> 20 });
        }
        let mut loader = match source {
            Source::Folder(folder) => {
                let (tensors, uploader) = (folder.tensors()?, Uploader::new(stream, bytes)?);
                Loader::Folder { tensors, uploader }
            }
            Source::Random { seed } => {
                let generator = Generator::new(stream.device());
                generator.manual_seed(seed)?;
                Loader::Random(generator)
            }
        };
        if let Loader::Folder { tensors, .. } = &loader
            && tensors.contains(&format!("model.layers.{}.input_layernorm.weight", c.layers))
        {
            let problem = format!("the weights have more than the {} layers of config.json", c.layers);
            return Err(Error::Text { text: "config.json", problem });
        }
        let loading = &mut loader;
        let embedding =
            loading.load(stream, &[("model.embed_tokens.weight".to_owned(), c.vocabulary)], c.hidden)?;
        let mut layers = Vec::with_capacity(c.layers);
        for layer in 0..c.layers {
            let of = |name: &str| format!("model.layers.{layer}.{name}.weight");
            let part = |name: &str, rows| (of(name), rows);
            let mut linear =
                |parts: &[(String, usize)], columns| Linear::load(stream, loading, parts, columns, format);
            let qkv = [
                part("self_attn.q_proj", c.q_width()),
                part("self_attn.k_proj", c.kv_width()),
                part("self_attn.v_proj", c.kv_width()),
            ];
            let qkv = linear(&qkv, c.hidden)?;
            let output = linear(&[part("self_attn.o_proj", c.hidden)], c.q_width())?;
            let gate_up = [part("mlp.gate_proj", c.intermediate), part("mlp.up_proj", c.intermediate)];
            let gate_up = linear(&gate_up, c.hidden)?;
            let down = linear(&[part("mlp.down_proj", c.hidden)], c.intermediate)?;
            let mut norm = |name: &str, len| loading.load_norm(stream, &of(name), len);
            layers.push(Layer {
                attention_norm: norm("input_layernorm", c.hidden)?,
                qkv,
                head_norms: match c.has_head_norms {
                    true => {
                        Some([norm("self_attn.q_norm", c.head_dim)?, norm("self_attn.k_norm", c.head_dim)?])
                    }
                    false => None,
                },
                output,
                mlp_norm: norm("post_attention_layernorm", c.hidden)?,
                gate_up,
                down,
            });
        }
        let norm = loading.load_norm(stream, "model.norm.weight", c.hidden)?;
        let head = match c.is_tied {
            true => None,
            false => {
                let parts = [("lm_head.weight".to_owned(), c.vocabulary)];
                Some(Linear::load(stream, loading, &parts, c.hidden, WeightFormat::Bf16)?)
            }
        };
        if let Loader::Folder { uploader, .. } = loader {
            uploader.finish()?;
        }
        let frequencies = c.rope.frequencies(c.head_dim);
        let angles = (0..context).flat_map(|position| frequencies.iter().map(move |f| position as f64 * f));
        let (sin, cos): (Vec<_>, Vec<_>) =
            angles.map(f64::sin_cos).map(|(sin, cos)| (sin as f32, cos as f32)).unzip();
        let [sin, cos] = [sin, cos].map(|table| DeviceBuffer::from_host(stream, &table));
        Ok(Self { embedding, layers, norm, head, cos: cos?, sin: sin?, context, config })
    }

    /// Allocates the memory for passes of up to `rows` tokens, whose logits are computed for up to `outputs` tokens.
    pub fn activations(&self, stream: &Stream, rows: usize, outputs: usize) -> Result<Activations> {
        let c = &self.config;
        let buffer = |width: usize| DeviceBuffer::uninit(stream, rows * width);
        let gathered = || DeviceBuffer::uninit(stream, self.context.next_multiple_of(PAGE) * c.kv_width());
        let angles = || DeviceBuffer::uninit(stream, rows * c.head_dim / 2);
        Ok(Activations {
            x: buffer(c.hidden)?,
            hidden: buffer(c.hidden)?,
            qkv: buffer(c.qkv_width())?,
            q: [buffer(c.q_width())?, buffer(c.q_width())?],
            k: [buffer(c.kv_width())?, buffer(c.kv_width())?],
            v: buffer(c.kv_width())?,
            attended: buffer(c.q_width())?,
            gate_up: buffer(2 * c.intermediate)?,
            activated: buffer(c.intermediate)?,
            gathered: [gathered()?, gathered()?],
            angles: [angles()?, angles()?],
            logits: DeviceBuffer::uninit(stream, outputs * c.vocabulary)?,
        })
    }

    /// Enqueues a pass of tokens through all layers. Their keys and values are added to the cache, and the logits of the
    /// last `outputs` tokens are stored in `a.logits`.
    pub fn forward(
        &self,
        stream: &Stream,
        pass: &Pass<'_>,
        outputs: usize,
        cache: &mut Cache,
        a: &mut Activations,
    ) -> Result<()> {
        let c = &self.config;
        let rows = pass.tokens.len();
        let embedding = self.embedding.as_2d(c.vocabulary, c.hidden)?;
        let tokens = Indices::unchecked(pass.tokens, c.vocabulary);
        ops::gather_rows(stream, embedding, &tokens, first_mut(&mut a.x, rows, c.hidden)?)?;
        let positions = Indices::unchecked(pass.positions, self.context);
        for (table, out) in [&self.cos, &self.sin].into_iter().zip(&mut a.angles) {
            let pairs = c.head_dim / 2;
            let table = table.as_2d(self.context, pairs)?;
            ops::gather_rows(stream, table, &positions, first_mut(out, rows, pairs)?)?;
        }
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            self.attend(stream, layer, pass, rows, cache, a)?;
            rms_norm(stream, &a.x, &layer.mlp_norm, c, &mut a.hidden, rows)?;
            let hidden = first(&a.hidden, rows, c.hidden)?;
            layer.gate_up.apply(stream, hidden, first_mut(&mut a.gate_up, rows, 2 * c.intermediate)?)?;
            let gate_up = first(&a.gate_up, rows, 2 * c.intermediate)?;
            let (gate, up) = (gate_up.part(.., ..c.intermediate), gate_up.part(.., c.intermediate..));
            ops::swiglu(stream, gate, up, first_mut(&mut a.activated, rows, c.intermediate)?)?;
            let activated = first(&a.activated, rows, c.intermediate)?;
            layer.down.apply(stream, activated, first_mut(&mut a.hidden, rows, c.hidden)?)?;
            ops::axpy(
                stream,
                a.hidden.slice(..rows * c.hidden),
                bf16::ONE,
                a.x.slice_mut(..rows * c.hidden),
            )?;
        }
        let last = first(&a.x, rows, c.hidden)?.part(rows - outputs.., ..);
        let normed = first_mut(&mut a.hidden, outputs, c.hidden)?;
        ops::rms_norm(stream, last, Some(self.norm.as_slice()), c.epsilon, normed)?;
        let normed = first(&a.hidden, outputs, c.hidden)?;
        let logits = first_mut(&mut a.logits, outputs, c.vocabulary)?;
        match &self.head {
            Some(head) => head.apply(stream, normed, logits),
            None => Ok(ops::matmul(stream, normed, Matrix::from(embedding).transposed(), logits)?),
        }
    }

    /// Enqueues the attention of a layer, and adds its result to `a.x`.
    fn attend(
        &self,
        stream: &Stream,
        layer: &Layer,
        pass: &Pass<'_>,
        rows: usize,
        [k_cache, v_cache]: &mut [DeviceBuffer<bf16>; 2],
        a: &mut Activations,
    ) -> Result<()> {
        let c = &self.config;
        rms_norm(stream, &a.x, &layer.attention_norm, c, &mut a.hidden, rows)?;
        let hidden = first(&a.hidden, rows, c.hidden)?;
        layer.qkv.apply(stream, hidden, first_mut(&mut a.qkv, rows, c.qkv_width())?)?;
        let [q, rotated_q] = &mut a.q;
        let [k, rotated_k] = &mut a.k;
        let mut parts = [
            first_mut(q, rows, c.q_width())?,
            first_mut(k, rows, c.kv_width())?,
            first_mut(&mut a.v, rows, c.kv_width())?,
        ];
        ops::split_columns(stream, first(&a.qkv, rows, c.qkv_width())?, &mut parts)?;
        if let Some(norms) = &layer.head_norms {
            let heads = [(&mut *q, &mut *rotated_q, c.heads), (&mut *k, &mut *rotated_k, c.kv_heads)];
            for ((x, out, heads), weight) in heads.into_iter().zip(norms) {
                let (rows, weight) = (rows * heads, Some(weight.as_slice()));
                let normed = first_mut(out, rows, c.head_dim)?;
                ops::rms_norm(stream, first(x, rows, c.head_dim)?, weight, c.epsilon, normed)?;
                std::mem::swap(x, out);
            }
        }
        let [cos, sin] = &a.angles;
        let angles = (first(cos, rows, c.head_dim / 2)?, first(sin, rows, c.head_dim / 2)?);
        for (x, out, width) in [(&*q, &mut *rotated_q, c.q_width()), (&*k, &mut *rotated_k, c.kv_width())] {
            let (x, out) = (first(x, rows, width)?, first_mut(out, rows, width)?);
            ops::rotary(stream, x, None::<DeviceSlice<u32>>, angles, RotaryPairs::Halves, out)?;
        }
        let slots = k_cache.len() / c.kv_width();
        let new = [(&*rotated_k, &mut *k_cache), (&a.v, &mut *v_cache)];
        for (x, cache) in new {
            let x = first(x, rows, c.kv_width())?;
            ops::scatter_rows(stream, x, &pass.slots, cache.as_2d_mut(slots, c.kv_width())?)?;
        }

        let by_token = |buffer, rows, heads: usize, sequences| -> Result<_> {
            let width = heads * c.head_dim;
            let view = DeviceBuffer::slice(buffer, ..rows * width).as_3d(rows, heads, c.head_dim)?;
            Ok(Heads::by_token(view, sequences)?)
        };
        let mut attended = a.attended.slice_mut(..rows * c.q_width());
        let sequences = if matches!(pass.keys, Keys::Decode { .. }) { rows } else { 1 };
        let out = HeadsMut::by_token(attended.as_3d_mut(rows, c.heads, c.head_dim)?, sequences)?;
        let causal = Attention { is_causal: true, ..Attention::default() };
        match pass.keys {
            Keys::Own => {
                let q = by_token(rotated_q, rows, c.heads, 1)?;
                let [k, v] = [&*rotated_k, &a.v].map(|x| by_token(x, rows, c.kv_heads, 1));
                ops::attention(stream, &causal, q, k?, v?, out)?;
            }
            Keys::Pages { pages, length } => {
                for (cache, out) in [&*k_cache, &*v_cache].into_iter().zip(&mut a.gathered) {
                    let width = PAGE * c.kv_width();
                    let cache = cache.as_2d(slots / PAGE, width)?;
                    ops::gather_rows(stream, cache, &pages, first_mut(out, pages.len(), width)?)?;
                }
                let q = by_token(rotated_q, rows, c.heads, 1)?;
                let [k, v] = &a.gathered;
                let [k, v] = [k, v].map(|x| by_token(x, length, c.kv_heads, 1));
                ops::attention(stream, &causal, q, k?, v?, out)?;
            }
            Keys::Decode { lengths, table } => {
                let q = by_token(rotated_q, rows, c.heads, rows)?;
                let [k, v] =
                    [&*k_cache, &*v_cache].map(|cache| by_token(cache, slots, c.kv_heads, slots / PAGE));
                let cache = KvCache { k: k?, v: v?, lengths, pages: Some(table) };
                ops::attention_decode(stream, &AttentionDecode::default(), q, &cache, out)?;
            }
        }
        let attended = first(&a.attended, rows, c.q_width())?;
        layer.output.apply(stream, attended, first_mut(&mut a.hidden, rows, c.hidden)?)?;
        let len = rows * c.hidden;
        Ok(ops::axpy(stream, a.hidden.slice(..len), bf16::ONE, a.x.slice_mut(..len))?)
    }

    /// Bytes of weights that a decoding step reads.
    pub fn bytes_per_step(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|l| [&l.qkv, &l.output, &l.gate_up, &l.down]);
        let linear: u64 = layers.map(Linear::bytes).sum();
        linear + 2 * (self.config.vocabulary * self.config.hidden) as u64
    }
}

/// Returns the number of bytes of all weights.
fn parameter_bytes(c: &Config, format: WeightFormat) -> u64 {
    let [hidden, intermediate] = [c.hidden, c.intermediate].map(|size| size as u64);
    let attention = hidden * (c.qkv_width() + c.q_width()) as u64;
    let norms = 2 * hidden + if c.has_head_norms { 2 * c.head_dim as u64 } else { 0 };
    let layer = format.bytes(attention + 3 * hidden * intermediate) + 2 * norms;
    let embeddings = if c.is_tied { 1 } else { 2 };
    c.layers as u64 * layer + 2 * (embeddings * c.vocabulary as u64 * hidden + hidden)
}

/// Views the first `rows` rows of `width` elements of a buffer.
fn first<T: DeviceCopy>(buffer: &DeviceBuffer<T>, rows: usize, width: usize) -> Result<DeviceSlice2<'_, T>> {
    Ok(buffer.slice(..rows * width).as_2d(rows, width)?)
}

/// Like [`first`], for writing.
fn first_mut<T: DeviceCopy>(
    buffer: &mut DeviceBuffer<T>,
    rows: usize,
    width: usize,
) -> Result<DeviceSliceMut2<'_, T>> {
    Ok(buffer.slice_mut(..rows * width).into_2d(rows, width)?)
}

/// Enqueues the RMS norm of the first rows of `x`.
fn rms_norm(
    stream: &Stream,
    x: &DeviceBuffer<bf16>,
    weight: &DeviceBuffer<bf16>,
    c: &Config,
    out: &mut DeviceBuffer<bf16>,
    rows: usize,
) -> Result<()> {
    let (x, out) = (first(x, rows, c.hidden)?, first_mut(out, rows, c.hidden)?);
    Ok(ops::rms_norm(stream, x, Some(weight.as_slice()), c.epsilon, out)?)
}
