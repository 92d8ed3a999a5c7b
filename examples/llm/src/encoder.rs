//! [`Encoder`]: embeddings of texts by a BERT model in `f32`, such as all-MiniLM-L6-v2.

use std::path::Path;

use warpsmith::ops::{self, Activation, Epilogue, Indices, Matrix};
use warpsmith::prelude::*;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::weights::Folder;

type Buffer = DeviceBuffer<f32>;

/// A BERT model on a device.
pub struct Encoder {
    config: Config,
    words: Buffer,
    /// Embeddings of the positions, to which the embedding of the first token type is added.
    positions: Buffer,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    /// Projections of q, k and v.
    qkv: [Dense; 3],
    output: Dense,
    attention_norm: Norm,
    up: Dense,
    down: Dense,
    norm: Norm,
}

struct Norm {
    weight: Buffer,
    bias: Buffer,
    epsilon: f64,
}

/// A weight matrix, whose rows contain the weights of an output, and a bias.
struct Dense {
    weight: Buffer,
    bias: Buffer,
    columns: usize,
}

impl Encoder {
    /// Loads the model of a Hugging Face folder.
    pub fn load(stream: &Stream, folder: &Path) -> Result<Self> {
        let (config, folder) = (Config::read_encoder(folder)?, Folder::open(folder)?);
        let (hidden, epsilon) = (config.hidden, config.epsilon);
        let vector = |name: &str, len| upload(stream, &folder.f32(name, &[len])?);
        let norm = |name: &str| -> Result<Norm> {
            let [weight, bias] =
                ["weight", "bias"].map(|part| vector(&format!("{name}.LayerNorm.{part}"), hidden));
            Ok(Norm { weight: weight?, bias: bias?, epsilon })
        };
        let dense = |name: &str, rows, columns| -> Result<Dense> {
            let weight = upload(stream, &folder.f32(&format!("{name}.weight"), &[rows, columns])?)?;
            Ok(Dense { weight, bias: vector(&format!("{name}.bias"), rows)?, columns })
        };
        let layer = |i| {
            let of = |part: &str| format!("encoder.layer.{i}.{part}");
            let projection = |part: &str| dense(&of(part), hidden, hidden);
            let [q, k, v] = ["query", "key", "value"].map(|part| format!("attention.self.{part}"));
            Ok(Layer {
                qkv: [projection(&q)?, projection(&k)?, projection(&v)?],
                output: projection("attention.output.dense")?,
                attention_norm: norm(&of("attention.output"))?,
                up: dense(&of("intermediate.dense"), config.intermediate, hidden)?,
                down: dense(&of("output.dense"), hidden, config.intermediate)?,
                norm: norm(&of("output"))?,
            })
        };
        let layers = (0..config.layers).map(layer).collect::<Result<_>>()?;
        let table =
            |name: &str, rows| folder.f32(&format!("embeddings.{name}_embeddings.weight"), &[rows, hidden]);
        let (mut positions, types) = (table("position", config.max_positions)?, table("token_type", 2)?);
        positions.iter_mut().zip(types[..hidden].iter().cycle()).for_each(|(x, y)| *x += y);
        let (words, positions) =
            (upload(stream, &table("word", config.vocabulary)?)?, upload(stream, &positions)?);
        Ok(Self { words, positions, norm: norm("embeddings")?, layers, config })
    }

    /// Returns the embedding of a text: mean pooling over its tokens, then L2 normalization.
    pub fn embed(&self, stream: &Stream, tokens: &[u32]) -> Result<Vec<f32>> {
        let c = &self.config;
        let (rows, hidden, vocabulary) = (tokens.len(), c.hidden, c.vocabulary);
        if rows == 0 {
            return Err(Error::EmptyPrompt);
        }
        if rows > c.max_positions {
            let most = c.max_positions;
            return Err(Error::at("text")(format!("{rows} tokens, but the model supports at most {most}")));
        }
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::UnknownToken { token, vocabulary });
        }
        let tokens = DeviceBuffer::from_host(stream, tokens)?;
        let mut x = DeviceBuffer::uninit(stream, rows * hidden)?;
        let words = self.words.as_2d(vocabulary, hidden)?;
        ops::gather_rows(
            stream,
            words,
            &Indices::unchecked(&tokens, vocabulary),
            x.as_2d_mut(rows, hidden)?,
        )?;
        let positions = self.positions.slice(..rows * hidden);
        let mut x = self.norm.of_sum(stream, &x, positions)?;
        for layer in &self.layers {
            let attended = layer.attend(stream, c.heads, &x)?;
            let attended = layer.output.apply(stream, Activation::None, &attended)?;
            x = layer.attention_norm.of_sum(stream, &attended, x.as_slice())?;
            // BERT uses erf; the tanh approximation of GELU differs by less than 1e-3.
            let wide = layer.up.apply(stream, Activation::Gelu, &x)?;
            let out = layer.down.apply(stream, Activation::None, &wide)?;
            x = layer.norm.of_sum(stream, &out, x.as_slice())?;
        }
        let outputs = x.to_host()?;
        let sum = |column| outputs.iter().skip(column).step_by(hidden).sum::<f32>();
        let sums: Vec<f32> = (0..hidden).map(sum).collect();
        let length = sums.iter().map(|x| x * x).sum::<f32>().sqrt();
        Ok(sums.iter().map(|x| x / length).collect())
    }
}

fn upload(stream: &Stream, numbers: &[f32]) -> Result<Buffer> {
    Ok(DeviceBuffer::from_host(stream, numbers)?)
}

impl Layer {
    /// Returns the attention of all tokens to each other.
    fn attend(&self, stream: &Stream, heads: usize, x: &Buffer) -> Result<Buffer> {
        let [q, k, v] = self.qkv.each_ref().map(|dense| dense.apply(stream, Activation::None, x));
        let (q, k, v, mut out) = (q?, k?, v?, DeviceBuffer::uninit(stream, x.len())?);
        let hidden = self.output.columns;
        let (rows, width) = (x.len() / hidden, hidden / heads);
        let [mut scores, mut weights] =
            [DeviceBuffer::uninit(stream, rows * rows)?, DeviceBuffer::uninit(stream, rows * rows)?];
        let scale = Epilogue { scale: (width as f32).sqrt().recip(), ..Epilogue::default() };
        for head in 0..heads {
            let columns = head * width..(head + 1) * width;
            let of_head =
                |x| Ok::<_, Error>(Matrix::from(Buffer::as_2d(x, rows, hidden)?.part(.., columns.clone())));
            ops::matmul_f32(
                stream,
                &scale,
                of_head(&q)?,
                of_head(&k)?.transposed(),
                scores.as_2d_mut(rows, rows)?,
            )?;
            ops::softmax(stream, scores.as_2d(rows, rows)?, weights.as_2d_mut(rows, rows)?)?;
            let to = out.as_2d_mut(rows, hidden)?.into_part(.., columns.clone());
            ops::matmul_f32(stream, &Epilogue::default(), weights.as_2d(rows, rows)?, of_head(&v)?, to)?;
        }
        Ok(out)
    }
}

impl Norm {
    /// Returns the layer norm of the rows of `a + b`.
    fn of_sum(&self, stream: &Stream, a: &Buffer, b: DeviceSlice<'_, f32>) -> Result<Buffer> {
        let [mut sum, mut out] =
            [DeviceBuffer::uninit(stream, a.len())?, DeviceBuffer::uninit(stream, a.len())?];
        let (rows, width) = (a.len() / self.weight.len(), self.weight.len());
        ops::add(stream, a, b, &mut sum)?;
        let (weight, bias) = (Some(self.weight.as_slice()), Some(self.bias.as_slice()));
        ops::layer_norm(
            stream,
            sum.as_2d(rows, width)?,
            weight,
            bias,
            self.epsilon,
            out.as_2d_mut(rows, width)?,
        )?;
        Ok(out)
    }
}

impl Dense {
    /// Returns the product of each row of `x` with the matrix.
    fn apply(&self, stream: &Stream, activation: Activation, x: &Buffer) -> Result<Buffer> {
        let (rows, width) = (x.len() / self.columns, self.bias.len());
        let mut out = DeviceBuffer::uninit(stream, rows * width)?;
        let epilogue = Epilogue { bias: Some(self.bias.as_slice()), activation, ..Epilogue::default() };
        let weight = Matrix::from(self.weight.as_2d(width, self.columns)?).transposed();
        ops::matmul_f32(
            stream,
            &epilogue,
            x.as_2d(rows, self.columns)?,
            weight,
            out.as_2d_mut(rows, width)?,
        )?;
        Ok(out)
    }
}
