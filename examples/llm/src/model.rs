//! [`Model`]: the weights of a Llama or Qwen3 model on a device, and its layers.

use half::bf16;
use warpsmith::ops::{
    self, Activation, Attention, AttentionDecode, Epilogue, HeadNorm, Heads, HeadsMut, Indices, KvCache,
    KvCacheMut, Matrix, RmsNorm, Rotary,
};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::{Config, Packing};
use crate::error::{Error, Result};
use crate::linear::{Linear, WeightFormat};
use crate::weights::{Folder, Tensors};

/// Tokens per page of the cache.
pub const PAGE: usize = 64;
/// Largest number of tokens for which norms, SwiGLU and the residual addition are parts of products.
const SKINNY: usize = 16;

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
    /// Tensors, and the format of quantized weights.
    Folder(Tensors<'a>, Option<Packing>),
    Random(Generator),
}

impl Loader<'_> {
    /// Enqueues the copy of several weights, which are stored one after another. Each has a name and a number of rows of
    /// `columns` elements. Weights of norms have no columns.
    pub fn load(
        &mut self,
        stream: &Stream,
        parts: &[(String, usize)],
        columns: Option<usize>,
    ) -> Result<DeviceBuffer<bf16>> {
        let (rows, width) = (parts.iter().map(|(_, rows)| rows).sum::<usize>(), columns.unwrap_or(1));
        let mut buffer = DeviceBuffer::uninit(stream, rows * width)?;
        match self {
            Loader::Folder(tensors, _) => {
                let mut start = 0;
                for (name, rows) in parts {
                    let shape: Vec<usize> = [*rows].into_iter().chain(columns).collect();
                    let end = start + rows * width;
                    tensors.copy(name, &shape, &mut buffer.slice_mut(start..end))?;
                    start = end;
                }
            }
            Loader::Random(_) if columns.is_none() => ops::fill(stream, bf16::ONE, &mut buffer)?,
            Loader::Random(generator) => random::normal(stream, generator, 0.0, 0.02, &mut buffer)?,
        }
        Ok(buffer)
    }
}

/// Memory for the intermediate results of up to `rows` tokens.
pub struct Activations {
    /// Residual stream.
    x: DeviceBuffer<bf16>,
    normed: DeviceBuffer<bf16>,
    projected: DeviceBuffer<bf16>,
    qkv: DeviceBuffer<bf16>,
    q: DeviceBuffer<bf16>,
    attended: DeviceBuffer<bf16>,
    gate_up: DeviceBuffer<bf16>,
    activated: DeviceBuffer<bf16>,
    /// Keys and values of a sequence, gathered from its pages.
    gathered: [DeviceBuffer<bf16>; 2],
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

/// Inputs of a pass through the layers, in device memory.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// New tokens: the same number for each sequence.
    pub tokens: DeviceSlice<'a, u32>,
    /// Number of tokens of each sequence, including the new ones.
    pub lengths: DeviceSlice<'a, u32>,
    /// Pages of each sequence.
    pub table: DeviceSlice2<'a, u32>,
    /// The pages and the length of the only sequence, if the tokens are a part of its prompt.
    pub prompt: Option<(Indices<'a, u32>, usize)>,
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
        let problem = |problem| Error::Text { text: "config.json", problem };
        let packing = c.packing().map_err(problem)?;
        let is_packed = packing.is_some() && matches!(source, Source::Folder(_));
        let bytes = parameter_bytes(c, if is_packed { WeightFormat::Int4 } else { format });
        let available = stream.device().memory_info()?.free;
        if bytes > available {
            return Err(Error::TooLarge { needed: bytes >> 20, available: available >> 20 });
        }
        let mut loader = match source {
            Source::Folder(folder) => Loader::Folder(folder.tensors()?, packing),
            Source::Random { seed } => {
                let generator = Generator::new(stream.device());
                generator.manual_seed(seed)?;
                Loader::Random(generator)
            }
        };
        if let Loader::Folder(tensors, _) = &loader
            && tensors.contains(&format!("model.layers.{}.input_layernorm.weight", c.layers))
        {
            return Err(problem(format!(
                "the weights have more than the {} layers of config.json",
                c.layers
            )));
        }
        let loading = &mut loader;
        let embedding = loading.load(
            stream,
            &[("model.embed_tokens.weight".to_owned(), c.vocabulary)],
            Some(c.hidden),
        )?;
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
            let mut norm = |name: &str, len| loading.load(stream, &[part(name, len)], None);
            layers.push(Layer {
                attention_norm: norm("input_layernorm", c.hidden)?,
                qkv,
                head_norms: match c.has_head_norms() {
                    true => Some([
                        norm("self_attn.q_norm", c.head_dim())?,
                        norm("self_attn.k_norm", c.head_dim())?,
                    ]),
                    false => None,
                },
                output,
                mlp_norm: norm("post_attention_layernorm", c.hidden)?,
                gate_up,
                down,
            });
        }
        let norm = loading.load(stream, &[("model.norm.weight".to_owned(), c.hidden)], None)?;
        let head = match c.is_tied {
            true => None,
            false => {
                let parts = [("lm_head.weight".to_owned(), c.vocabulary)];
                Some(Linear::load(stream, loading, &parts, c.hidden, WeightFormat::Bf16)?)
            }
        };
        let frequencies = c.frequencies().map_err(problem)?;
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
        Ok(Activations {
            x: buffer(c.hidden)?,
            normed: buffer(c.hidden)?,
            projected: buffer(c.hidden)?,
            qkv: buffer(c.qkv_width())?,
            q: buffer(c.q_width())?,
            attended: buffer(c.q_width())?,
            gate_up: buffer(2 * c.intermediate)?,
            activated: buffer(c.intermediate)?,
            gathered: [gathered()?, gathered()?],
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
        let (c, rows) = (&self.config, pass.tokens.len());
        let embedding = self.embedding.as_2d(c.vocabulary, c.hidden)?;
        let tokens = Indices::unchecked(pass.tokens, c.vocabulary);
        ops::gather_rows(stream, embedding, &tokens, first_mut(&mut a.x, rows, c.hidden)?)?;
        let weight = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);
        if rows > SKINNY {
            let (x, normed) = (first(&a.x, rows, c.hidden)?, first_mut(&mut a.normed, rows, c.hidden)?);
            ops::rms_norm(stream, x, Some(weight.as_slice()), c.epsilon, normed)?;
        }
        for (i, (layer, cache)) in self.layers.iter().zip(&mut cache.layers).enumerate() {
            self.attend(stream, layer, pass, cache, a)?;
            let attended = first(&a.attended, rows, c.q_width())?;
            let sums = [&mut a.x, &mut a.projected, &mut a.normed];
            self.add(stream, &layer.output, attended, &layer.mlp_norm, sums)?;

            let activated = first_mut(&mut a.activated, rows, c.intermediate)?;
            let (x, epilogue) = self.normed(rows, &layer.mlp_norm, [&a.x, &a.normed])?;
            if rows <= SKINNY {
                let epilogue = Epilogue { activation: Activation::SwiGlu, ..epilogue };
                layer.gate_up.apply(stream, &epilogue, x, activated)?;
            } else {
                let gate_up = first_mut(&mut a.gate_up, rows, 2 * c.intermediate)?;
                layer.gate_up.apply(stream, &epilogue, x, gate_up)?;
                let gate_up = first(&a.gate_up, rows, 2 * c.intermediate)?;
                let (gate, up) = (gate_up.part(.., ..c.intermediate), gate_up.part(.., c.intermediate..));
                ops::swiglu(stream, gate, up, activated)?;
            }
            let activated = first(&a.activated, rows, c.intermediate)?;
            let next = self.layers.get(i + 1).map_or(&self.norm, |layer| &layer.attention_norm);
            let sums = [&mut a.x, &mut a.projected, &mut a.normed];
            self.add(stream, &layer.down, activated, next, sums)?;
        }
        let (x, epilogue) = self.normed(rows, &self.norm, [&a.x, &a.normed])?;
        let last = x.part(rows - outputs.., ..);
        let logits = first_mut(&mut a.logits, outputs, c.vocabulary)?;
        match &self.head {
            Some(head) => head.apply(stream, &epilogue, last, logits),
            None => {
                let weights = Matrix::from(embedding).transposed();
                Ok(ops::matmul_fused(stream, &epilogue, last, weights, logits)?)
            }
        }
    }

    /// Enqueues the addition of a product to the residual stream `x`. With more rows than a skinny product has, also
    /// enqueues the norm of the sum.
    fn add(
        &self,
        stream: &Stream,
        linear: &Linear,
        input: DeviceSlice2<'_, bf16>,
        weight: &DeviceBuffer<bf16>,
        [x, projected, normed]: [&mut DeviceBuffer<bf16>; 3],
    ) -> Result<()> {
        let (rows, width) = (input.rows(), self.config.hidden);
        let x = first_mut(x, rows, width)?;
        if rows <= SKINNY {
            let accumulate = Epilogue { accumulate: true, ..Epilogue::default() };
            return linear.apply(stream, &accumulate, input, x);
        }
        linear.apply(stream, &Epilogue::default(), input, first_mut(projected, rows, width)?)?;
        let (projected, normed) = (first(projected, rows, width)?, first_mut(normed, rows, width)?);
        Ok(ops::add_rms_norm(stream, projected, x, Some(weight.as_slice()), self.config.epsilon, normed)?)
    }

    /// Returns the operand of a product with the normalized residual stream, and the epilogue. Skinny products
    /// normalize their operand themselves.
    fn normed<'a>(
        &self,
        rows: usize,
        weight: &'a DeviceBuffer<bf16>,
        [x, normed]: [&'a DeviceBuffer<bf16>; 2],
    ) -> Result<(DeviceSlice2<'a, bf16>, Epilogue<'a, bf16>)> {
        let is_fused = rows <= SKINNY;
        let norm = RmsNorm { weight: weight.as_slice(), epsilon: self.config.epsilon as f32 };
        let epilogue = Epilogue { norm: is_fused.then_some(norm), ..Epilogue::default() };
        Ok((first(if is_fused { x } else { normed }, rows, self.config.hidden)?, epilogue))
    }

    /// Enqueues the attention of a layer, up to `a.attended`.
    fn attend(
        &self,
        stream: &Stream,
        layer: &Layer,
        pass: &Pass<'_>,
        [k_cache, v_cache]: &mut [DeviceBuffer<bf16>; 2],
        a: &mut Activations,
    ) -> Result<()> {
        let Pass { lengths, table, .. } = *pass;
        let (c, rows, sequences) = (&self.config, pass.tokens.len(), lengths.len());
        let (x, epilogue) = self.normed(rows, &layer.attention_norm, [&a.x, &a.normed])?;
        layer.qkv.apply(stream, &epilogue, x, first_mut(&mut a.qkv, rows, c.qkv_width())?)?;

        let part = |start: usize, heads: usize| -> Result<_> {
            let (shape, strides) = ([rows, heads, c.head_dim()], [c.qkv_width(), c.head_dim()]);
            let view = a.qkv.slice(start..).as_3d_strided(shape, strides)?;
            Ok(Heads::by_token(view, sequences)?)
        };
        let q = part(0, c.heads)?;
        let (k, v) = (part(c.q_width(), c.kv_heads())?, part(c.q_width() + c.kv_width(), c.kv_heads())?);
        let rotary = Rotary {
            cos: self.cos.as_2d(self.context, c.head_dim() / 2)?,
            sin: self.sin.as_2d(self.context, c.head_dim() / 2)?,
            is_interleaved: false,
            norm: layer.head_norms.as_ref().map(|[q, k]| HeadNorm {
                q: q.as_slice(),
                k: k.as_slice(),
                epsilon: c.epsilon as f32,
            }),
        };
        let slots = k_cache.len() / c.kv_width();
        let pages = slots / PAGE;
        let cache = KvCacheMut {
            k: HeadsMut::by_token(k_cache.as_3d_mut(slots, c.kv_heads(), c.head_dim())?, pages)?,
            v: HeadsMut::by_token(v_cache.as_3d_mut(slots, c.kv_heads(), c.head_dim())?, pages)?,
            lengths,
            pages: Some(table),
            scales: None,
        };
        let mut rotated = a.q.slice_mut(..rows * c.q_width());
        let out = HeadsMut::by_token(rotated.as_3d_mut(rows, c.heads, c.head_dim())?, sequences)?;
        ops::rotary_append(stream, &rotary, q, k, v, cache, out)?;

        let heads = |buffer, rows: usize, heads: usize, sequences| -> Result<_> {
            let part = DeviceBuffer::slice(buffer, ..rows * heads * c.head_dim());
            Ok(Heads::by_token(part.as_3d(rows, heads, c.head_dim())?, sequences)?)
        };
        let q = heads(&a.q, rows, c.heads, sequences)?;
        let mut attended = a.attended.slice_mut(..rows * c.q_width());
        let out = HeadsMut::by_token(attended.as_3d_mut(rows, c.heads, c.head_dim())?, sequences)?;
        let Some((chosen, length)) = pass.prompt else {
            let k = heads(&*k_cache, slots, c.kv_heads(), pages)?;
            let v = heads(&*v_cache, slots, c.kv_heads(), pages)?;
            let cache = KvCache { k, v, lengths, pages: Some(table), scales: None };
            return Ok(ops::attention_decode(stream, &AttentionDecode::default(), q, &cache, out)?);
        };
        let width = PAGE * c.kv_width();
        for (cache, out) in [k_cache, v_cache].into_iter().zip(&mut a.gathered) {
            let out = first_mut(out, chosen.len(), width)?;
            ops::gather_rows(stream, cache.as_2d(pages, width)?, &chosen, out)?;
        }
        let causal = Attention { is_causal: true, ..Attention::default() };
        let [k, v] = &a.gathered;
        let (k, v) = (heads(k, length, c.kv_heads(), 1)?, heads(v, length, c.kv_heads(), 1)?);
        Ok(ops::attention(stream, &causal, q, k, v, out)?)
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
    let norms = 2 * hidden + if c.has_head_norms() { 2 * c.head_dim() as u64 } else { 0 };
    let layer = format.bytes(attention + 3 * hidden * intermediate) + 2 * norms;
    let embeddings = if c.is_tied { 1 } else { 2 };
    c.layers as u64 * layer + 2 * (embeddings * c.vocabulary as u64 * hidden + hidden)
}

/// Views the first `rows` rows of `width` elements of a buffer.
pub(crate) fn first<T: DeviceCopy>(
    buffer: &DeviceBuffer<T>,
    rows: usize,
    width: usize,
) -> Result<DeviceSlice2<'_, T>> {
    Ok(buffer.slice(..rows * width).as_2d(rows, width)?)
}

/// Like [`first`], but for writing.
pub(crate) fn first_mut<T: DeviceCopy>(
    buffer: &mut DeviceBuffer<T>,
    rows: usize,
    width: usize,
) -> Result<DeviceSliceMut2<'_, T>> {
    Ok(buffer.slice_mut(..rows * width).into_2d(rows, width)?)
}
