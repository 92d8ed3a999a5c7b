//! [`Model`]: the weights of a Llama or Qwen3 model on a device, and its layers.

use std::ops::Range;

use half::bf16;
use warpsmith::collective::{Communicator, ReduceOp};
use warpsmith::ops::{
    self, Activation, Attention, AttentionDecode, Epilogue, HeadNorm, Heads, HeadsMut, Indices, KvCacheMut,
    Matrix, NewTokens, RmsNorm, Rotary,
};
use warpsmith::prelude::*;
use warpsmith::random::Generator;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::config::{Config, Packing};
use crate::error::{Error, Result};
use crate::linear::{Linear, Loader, Split, WeightFormat};
use crate::weights::Folder;

/// Tokens per page of the cache.
pub const PAGE: usize = 64;
/// Largest number of tokens for which norms, SwiGLU and the residual addition are parts of products.
const SKINNY: usize = 8;

/// A model on a device, or a device's part of it: some heads, and some rows of the MLP.
pub struct Model {
    pub config: Config,
    /// The devices that have the parts.
    ranks: Option<Communicator>,
    embedding: DeviceBuffer<bf16>,
    layers: Vec<Layer>,
    norm: DeviceBuffer<bf16>,
    /// This device's part of the output layer. `None` means the transposed embedding.
    head: Option<Linear>,
    /// Tokens whose logits this device computes.
    outputs: Range<usize>,
    /// Cosines and sines of the rotary position embedding: one row per position.
    cos: DeviceBuffer<f32>,
    sin: DeviceBuffer<f32>,
    /// Number of positions in the tables.
    pub context: usize,
    /// Bytes of weights that a decoding step reads.
    pub bytes_per_step: u64,
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

/// Device memory of an engine: keys and values of all sequences, and the intermediate results of a pass.
pub struct Memory {
    pub pages: usize,
    /// Keys and values of each layer, in pages.
    cache: Vec<[Rows; 2]>,
    residual: Residual,
    qkv: Rows,
    q: Rows,
    attended: Rows,
    gate_up: Rows,
    activated: Rows,
    /// Keys and values of a sequence, gathered from its pages.
    gathered: [Rows; 2],
    /// Logits in blocks: one block per rank, which contains all rows.
    blocks: DeviceBuffer<bf16>,
    pub logits: Rows,
}

/// The residual stream.
struct Residual {
    x: Rows,
    /// Result that is added to `x` before the next norm, if there are more tokens than [`SKINNY`].
    pending: Rows,
    normed: Rows,
}

/// A buffer of rows.
pub struct Rows {
    pub buffer: DeviceBuffer<bf16>,
    width: usize,
}

impl Rows {
    fn new(stream: &Stream, rows: usize, width: usize) -> Result<Self> {
        Ok(Self { buffer: DeviceBuffer::zeros(stream, rows * width)?, width })
    }

    /// Views the first rows.
    pub fn first(&self, rows: usize) -> Result<DeviceSlice2<'_, bf16>> {
        Ok(self.buffer.slice(..rows * self.width).as_2d(rows, self.width)?)
    }

    fn first_mut(&mut self, rows: usize) -> Result<DeviceSliceMut2<'_, bf16>> {
        Ok(self.buffer.slice_mut(..rows * self.width).into_2d(rows, self.width)?)
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
    /// Loads a model. `context` is the largest number of tokens per sequence. Without a folder, the weights are random
    /// numbers. With several ranks, each loads its part of the matrices.
    pub fn load(
        stream: &Stream,
        config: Config,
        context: usize,
        format: WeightFormat,
        folder: Option<&Folder>,
        ranks: Option<Communicator>,
    ) -> Result<Self> {
        let part = ranks.as_ref().map_or([0, 1], |ranks| [ranks.rank(), ranks.world_size()]);
        let config = config.split(part[1])?;
        let (c, problem) = (&config, Error::at::<String>);
        let packing = folder.and(c.packing().map_err(problem("config.json"))?);
        // A vocabulary that cannot be divided is whole on each rank.
        let of_head = if c.vocabulary.is_multiple_of(part[1]) { part } else { [0, 1] };
        let width = c.vocabulary / of_head[1];
        let outputs = of_head[0] * width..(of_head[0] + 1) * width;
        let of_layers = match packing {
            Some(Packing::Gptq | Packing::Awq) => WeightFormat::Int4,
            Some(Packing::Fp8) => WeightFormat::Int8,
            None => format,
        };
        let of_output = if c.is_tied { WeightFormat::Bf16 } else { format.of_output_layer() };
        let bytes_per_step = of_output.bytes((c.hidden * width) as u64) + layer_bytes(c, of_layers);
        let only_embedded = if c.is_tied { c.vocabulary - width } else { c.vocabulary };
        let needed = bytes_per_step + 2 * (only_embedded * c.hidden) as u64;
        let available = stream.device().memory_info()?.free;
        if needed > available {
            return Err(Error::TooLarge { needed: needed >> 20, available: available >> 20 });
        }
        let surplus = format!("model.layers.{}.input_layernorm.weight", c.layers);
        if folder.is_some_and(|folder| folder.dtype(&surplus).is_some()) {
            let more = format!("the weights have more than the {} layers of config.json", c.layers);
            return Err(problem("config.json")(more));
        }
        let generator = Generator::new(stream.device());
        generator.manual_seed(1)?;
        let loader = Loader { stream, folder, generator: &generator, format, packing, prefix: "", part };
        let whole = Loader { part: [0, 1], ..loader };
        let embedding = whole.matrix(&[("model.embed_tokens", c.vocabulary)], c.hidden, Split::Outputs)?;
        let layer = |layer| {
            let prefix = format!("model.layers.{layer}.");
            let loader = Loader { prefix: &prefix, ..loader };
            let [q, k, v] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
            let qkv = [(q, c.q_width()), (k, c.kv_width()), (v, c.kv_width())];
            let gate_up = ["mlp.gate_proj", "mlp.up_proj"].map(|name| (name, c.intermediate));
            let [output, down] = ["self_attn.o_proj", "mlp.down_proj"].map(|name| [(name, c.hidden)]);
            let head_norm = |name| loader.norm(name, c.head_dim());
            let head_norms = match c.has_head_norms() {
                true => Some([head_norm("self_attn.q_norm")?, head_norm("self_attn.k_norm")?]),
                false => None,
            };
            Ok(Layer {
                attention_norm: loader.norm("input_layernorm", c.hidden)?,
                qkv: loader.linear(&qkv, c.hidden, Split::Outputs)?,
                head_norms,
                output: loader.linear(&output, c.q_width(), Split::Inputs)?,
                mlp_norm: loader.norm("post_attention_layernorm", c.hidden)?,
                gate_up: loader.linear(&gate_up, c.hidden, Split::Outputs)?,
                down: loader.linear(&down, c.intermediate, Split::Inputs)?,
            })
        };
        let layers = (0..c.layers).map(layer).collect::<Result<_>>()?;
        let norm = loader.norm("model.norm", c.hidden)?;
        let head = Loader { format: format.of_output_layer(), part: of_head, ..loader };
        let head = match c.is_tied {
            true => None,
            false => Some(head.linear(&[("lm_head", width)], c.hidden, Split::Outputs)?),
        };
        let frequencies = c.frequencies().map_err(problem("config.json"))?;
        let angles = (0..context).flat_map(|position| frequencies.iter().map(move |f| position as f64 * f));
        let (sin, cos): (Vec<_>, Vec<_>) =
            angles.map(f64::sin_cos).map(|(sin, cos)| (sin as f32, cos as f32)).unzip();
        let (sin, cos) = (DeviceBuffer::from_host(stream, &sin)?, DeviceBuffer::from_host(stream, &cos)?);
        Ok(Self { ranks, embedding, layers, norm, head, outputs, cos, sin, context, bytes_per_step, config })
    }

    /// Bytes of a page of the cache, in all layers.
    pub fn page_bytes(&self) -> u64 {
        (self.config.layers * 2 * PAGE * self.config.kv_width() * size_of::<bf16>()) as u64
    }

    /// Number of pages for a sequence.
    pub fn pages(&self) -> usize {
        self.context.div_ceil(PAGE)
    }

    /// Allocates the memory for passes of up to `rows` tokens, whose logits are computed for up to `outputs` tokens.
    /// Without a number of `pages`, the cache gets nine tenths of the free memory, but at most what `outputs` sequences
    /// can need.
    pub fn memory(
        &mut self,
        stream: &Stream,
        rows: usize,
        outputs: usize,
        pages: Option<usize>,
    ) -> Result<Memory> {
        let (c, device) = (&self.config, stream.device());
        let new = |width| Rows::new(stream, rows, width);
        let gathered = || Rows::new(stream, self.pages() * PAGE, c.kv_width());
        let has_blocks = self.outputs.len() < c.vocabulary && outputs > 1;
        let blocks = if has_blocks { outputs * c.vocabulary } else { 0 };
        let mut memory = Memory {
            pages: 0,
            cache: Vec::new(),
            residual: Residual { x: new(c.hidden)?, pending: new(c.hidden)?, normed: new(c.hidden)? },
            qkv: new(c.qkv_width())?,
            q: new(c.q_width())?,
            attended: new(c.q_width())?,
            gate_up: new(2 * c.intermediate)?,
            activated: new(c.intermediate)?,
            gathered: [gathered()?, gathered()?],
            blocks: DeviceBuffer::zeros(stream, blocks)?,
            logits: Rows::new(stream, outputs, c.vocabulary)?,
        };
        let (free, of_page) = (device.memory_info()?.free, self.page_bytes());
        let mut affordable = free / 10 * 9 / of_page.max(1);
        if let Some(ranks) = &mut self.ranks {
            // All ranks must have the same pages.
            let mut least = DeviceBuffer::from_host(stream, &[affordable])?;
            drop(ranks.all_reduce_in_place(ReduceOp::Min, &mut least)?);
            affordable = least.to_host()?[0];
        }
        memory.pages = pages.unwrap_or((outputs * self.pages() + 1).min(affordable as usize));
        if memory.pages == 0 {
            return Err(Error::TooLarge { needed: of_page >> 20, available: free >> 20 });
        }
        let rows = || Rows::new(stream, memory.pages * PAGE, c.kv_width());
        memory.cache = (0..c.layers).map(|_| Ok([rows()?, rows()?])).collect::<Result<_>>()?;
        Ok(memory)
    }

    /// Enqueues a pass of a part of a prompt: its tokens, up to the one at position `length`.
    pub fn prefill(
        &mut self,
        stream: &Stream,
        (tokens, length, pages): (&[u32], usize, &[u32]),
        outputs: usize,
        m: &mut Memory,
    ) -> Result<()> {
        let upload = |numbers: &[u32]| DeviceBuffer::from_host(stream, numbers);
        let (tokens, lengths) = (upload(tokens)?, upload(&[length as u32])?);
        let pages = upload(&pages[..length.div_ceil(PAGE)])?;
        let prompt = Some((Indices::unchecked(&pages, m.pages), length));
        let (tokens, lengths, table) = (tokens.as_slice(), lengths.as_slice(), pages.as_2d(1, pages.len())?);
        self.forward(stream, &Pass { tokens, lengths, table, prompt }, outputs, m)
    }

    /// Enqueues a pass of tokens through all layers. Their keys and values are added to the cache, and the logits of
    /// the last `outputs` tokens are stored in `m.logits`.
    pub fn forward(
        &mut self,
        stream: &Stream,
        pass: &Pass<'_>,
        outputs: usize,
        m: &mut Memory,
    ) -> Result<()> {
        let Some(ranks) = &self.ranks else { return self.enqueue(stream, pass, outputs, m) };
        // A stream that is captured is not the communicator's, which takes part in the capture.
        let shared = ranks.stream().clone();
        shared.wait_stream(stream)?;
        self.enqueue(&shared, pass, outputs, m)?;
        Ok(stream.wait_stream(&shared)?)
    }

    fn enqueue(&mut self, stream: &Stream, pass: &Pass<'_>, outputs: usize, m: &mut Memory) -> Result<()> {
        let (c, rows) = (&self.config, pass.tokens.len());
        let embedding = self.embedding.as_2d(c.vocabulary, c.hidden)?;
        m.residual.start(stream, embedding, &Indices::unchecked(pass.tokens, c.vocabulary))?;
        for (i, layer) in self.layers.iter().enumerate() {
            self.attend(stream, i, pass, m)?;
            m.residual.add(stream, &mut self.ranks, &layer.output, m.attended.first(rows)?)?;

            let (x, epilogue) = m.residual.normed(stream, rows, &layer.mlp_norm, c.epsilon)?;
            if rows <= SKINNY {
                let epilogue = Epilogue { activation: Activation::SwiGlu, ..epilogue };
                layer.gate_up.apply(stream, &epilogue, x, m.activated.first_mut(rows)?)?;
            } else {
                layer.gate_up.apply(stream, &epilogue, x, m.gate_up.first_mut(rows)?)?;
                let gate_up = m.gate_up.first(rows)?;
                let (gate, up) = (gate_up.part(.., ..c.intermediate), gate_up.part(.., c.intermediate..));
                ops::swiglu(stream, gate, up, m.activated.first_mut(rows)?)?;
            }
            m.residual.add(stream, &mut self.ranks, &layer.down, m.activated.first(rows)?)?;
        }
        let (x, epilogue) = m.residual.normed(stream, rows, &self.norm, c.epsilon)?;
        let (last, width) = (x.part(rows - outputs.., ..), self.outputs.len());
        let (parts, size) = (c.vocabulary / width, outputs * width);
        // With one row, the blocks of all ranks are the row.
        let blocks = if parts > 1 && outputs > 1 { &mut m.blocks } else { &mut m.logits.buffer };
        let start = self.outputs.start * outputs;
        let own = blocks.slice_mut(start..start + size).into_2d(outputs, width)?;
        match &self.head {
            Some(head) => head.apply(stream, &epilogue, last, own)?,
            None => {
                let weights = Matrix::from(embedding.part(self.outputs.clone(), ..)).transposed();
                ops::matmul_fused(stream, &epilogue, last, weights, own)?;
            }
        }
        let Some(ranks) = self.ranks.as_mut().filter(|_| parts > 1) else { return Ok(()) };
        drop(ranks.all_gather_in_place(blocks.slice_mut(..parts * size))?);
        for part in (0..parts).filter(|_| outputs > 1) {
            let block = m.blocks.slice(part * size..(part + 1) * size).as_2d(outputs, width)?;
            let logits = m.logits.first_mut(outputs)?.into_part(.., part * width..(part + 1) * width);
            stream.copy_rows(block, logits)?;
        }
        Ok(())
    }

    /// Enqueues the attention of a layer, up to `m.attended`.
    fn attend(&self, stream: &Stream, layer: usize, pass: &Pass<'_>, m: &mut Memory) -> Result<()> {
        let (layer, [k_cache, v_cache]) = (&self.layers[layer], &mut m.cache[layer]);
        let Pass { lengths, table, .. } = *pass;
        let (c, rows, sequences) = (&self.config, pass.tokens.len(), lengths.len());
        let (dim, kv_heads, width) = (c.head_dim(), c.kv_heads(), PAGE * c.kv_width());
        let (x, epilogue) = m.residual.normed(stream, rows, &layer.attention_norm, c.epsilon)?;
        layer.qkv.apply(stream, &epilogue, x, m.qkv.first_mut(rows)?)?;

        let (qkv, of_v) = (m.qkv.first(rows)?, c.q_width() + c.kv_width());
        let q = Heads::by_row(qkv.part(.., ..c.q_width()), c.heads, sequences)?;
        let k = Heads::by_row(qkv.part(.., c.q_width()..of_v), kv_heads, sequences)?;
        let v = Heads::by_row(qkv.part(.., of_v..), kv_heads, sequences)?;
        let [cos, sin] = [&self.cos, &self.sin].map(|table| table.as_2d(self.context, dim / 2));
        let (norms, epsilon) = (layer.head_norms.as_ref(), c.epsilon as f32);
        let norm = norms.map(|[q, k]| HeadNorm { q: q.as_slice(), k: k.as_slice(), epsilon });
        let rotary = Rotary { cos: cos?, sin: sin?, is_interleaved: false, norm };
        let (pages, slots) = (m.pages, m.pages * PAGE);
        let cache = KvCacheMut {
            k: HeadsMut::by_row(k_cache.first_mut(slots)?, kv_heads, pages)?,
            v: HeadsMut::by_row(v_cache.first_mut(slots)?, kv_heads, pages)?,
            lengths,
            pages: Some(table),
            scales: None,
        };
        let out = HeadsMut::by_row(m.attended.first_mut(rows)?, c.heads, sequences)?;
        let Some((chosen, length)) = pass.prompt else {
            let (new, options) = (NewTokens { k, v, rotary }, AttentionDecode::default());
            return Ok(ops::attention_decode_append(stream, &options, q, &new, cache, out)?);
        };
        let rotated = HeadsMut::by_row(m.q.first_mut(rows)?, c.heads, sequences)?;
        ops::rotary_append(stream, &rotary, q, k, v, cache, rotated)?;
        let q = Heads::by_row(m.q.first(rows)?, c.heads, sequences)?;
        for (cache, out) in [k_cache, v_cache].into_iter().zip(&mut m.gathered) {
            let out = out.buffer.slice_mut(..chosen.len() * width).into_2d(chosen.len(), width)?;
            ops::gather_rows(stream, cache.buffer.as_2d(pages, width)?, &chosen, out)?;
        }
        let causal = Attention { is_causal: true, ..Attention::default() };
        let [k, v] = m.gathered.each_ref().map(|rows| rows.first(length));
        let (k, v) = (Heads::by_row(k?, kv_heads, 1)?, Heads::by_row(v?, kv_heads, 1)?);
        Ok(ops::attention(stream, &causal, q, k, v, out)?)
    }
}

impl Residual {
    /// Enqueues the copy of the tokens' embeddings.
    fn start(
        &mut self,
        stream: &Stream,
        embedding: DeviceSlice2<'_, bf16>,
        tokens: &Indices<'_, u32>,
    ) -> Result<()> {
        if tokens.len() > SKINNY {
            ops::fill(stream, bf16::ZERO, self.pending.first_mut(tokens.len())?.into_elements())?;
        }
        Ok(ops::gather_rows(stream, embedding, tokens, self.x.first_mut(tokens.len())?)?)
    }

    /// Enqueues a product, which is added to `x`: at once, or with the next norm.
    fn add(
        &mut self,
        stream: &Stream,
        ranks: &mut Option<Communicator>,
        linear: &Linear,
        input: DeviceSlice2<'_, bf16>,
    ) -> Result<()> {
        let (rows, is_skinny) = (input.rows(), input.rows() <= SKINNY);
        // Only the first rank adds its part to `x`, so that the sum over the ranks contains `x` once.
        let accumulate = is_skinny && ranks.as_ref().is_none_or(|ranks| ranks.rank() == 0);
        let out = if is_skinny { &mut self.x } else { &mut self.pending };
        linear.apply(stream, &Epilogue { accumulate, ..Epilogue::default() }, input, out.first_mut(rows)?)?;
        if let Some(ranks) = ranks {
            // `stream` is the communicator's.
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, out.first_mut(rows)?.into_elements())?);
        }
        Ok(())
    }

    /// Returns the operand and the epilogue of a product with the normalized `x`. Skinny products normalize their
    /// operand themselves; otherwise, the norm is enqueued.
    fn normed<'a>(
        &'a mut self,
        stream: &Stream,
        rows: usize,
        weight: &'a DeviceBuffer<bf16>,
        epsilon: f64,
    ) -> Result<(DeviceSlice2<'a, bf16>, Epilogue<'a, bf16>)> {
        let weight = weight.as_slice();
        if rows <= SKINNY {
            let norm = Some(RmsNorm { weight, epsilon: epsilon as f32 });
            return Ok((self.x.first(rows)?, Epilogue { norm, ..Epilogue::default() }));
        }
        let (x, normed) = (self.x.first_mut(rows)?, self.normed.first_mut(rows)?);
        ops::add_rms_norm(stream, self.pending.first(rows)?, x, Some(weight), epsilon, normed)?;
        Ok((self.normed.first(rows)?, Epilogue::default()))
    }
}

/// Returns the number of bytes of the weights of all layers, and of the last norm.
fn layer_bytes(c: &Config, format: WeightFormat) -> u64 {
    let [hidden, intermediate] = [c.hidden, c.intermediate].map(|size| size as u64);
    let attention = hidden * (c.qkv_width() + c.q_width()) as u64;
    let norms = 2 * hidden + if c.has_head_norms() { 2 * c.head_dim() as u64 } else { 0 };
    c.layers as u64 * (format.bytes(attention + 3 * hidden * intermediate) + 2 * norms) + 2 * hidden
}
