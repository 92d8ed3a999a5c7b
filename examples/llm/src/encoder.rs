//! [`Encoder`]: embeddings of texts by a BERT model in `f32`, such as all-MiniLM-L6-v2.

use std::collections::HashMap;
use std::path::Path;

use warpsmith::ops::{self, Activation, Epilogue, Indices, Matrix};
use warpsmith::prelude::*;

use crate::config::{Config, ENCODERS};
use crate::error::{Error, Result};
use crate::weights::Folder;

type Buffer = DeviceBuffer<f32>;

/// A BERT model on a device.
pub struct Encoder {
    config: Config,
    stream: Stream,
    /// Tensors by name. The embeddings of the positions include the embedding of the first token type.
    tensors: HashMap<String, Buffer>,
}

impl Encoder {
    /// Loads the model of a Hugging Face folder.
    pub fn load(stream: &Stream, folder: &Path) -> Result<Self> {
        let (config, folder) = (Config::read(folder, &ENCODERS)?, Folder::open(folder)?);
        let (hidden, wide) = (config.hidden, config.intermediate);
        let table =
            |name: &str, rows| folder.f32(&format!("embeddings.{name}_embeddings.weight"), &[rows, hidden]);
        let mut positions = table("position", config.max_positions)?;
        let types = table("token_type", 2)?;
        positions.iter_mut().zip(types[..hidden].iter().cycle()).for_each(|(x, y)| *x += y);
        let tables = [("words", table("word", config.vocabulary)?), ("positions", positions)];
        let upload =
            |(name, table): (&str, Vec<_>)| Ok((name.into(), DeviceBuffer::from_host(stream, &table)?));
        let mut tensors: HashMap<String, _> = tables.into_iter().map(upload).collect::<Result<_>>()?;
        let mut load = |name: String, shape: &[usize]| -> Result<()> {
            for (part, shape) in [("weight", shape), ("bias", &shape[..1])] {
                let name = format!("{name}.{part}");
                let tensor = DeviceBuffer::from_host(stream, &folder.f32(&name, shape)?)?;
                tensors.insert(name, tensor);
            }
            Ok(())
        };
        load("embeddings.LayerNorm".to_owned(), &[hidden])?;
        for layer in 0..config.layers {
            for (name, shape) in [
                ("attention.self.query", &[hidden, hidden][..]),
                ("attention.self.key", &[hidden, hidden]),
                ("attention.self.value", &[hidden, hidden]),
                ("attention.output.dense", &[hidden, hidden]),
                ("attention.output.LayerNorm", &[hidden]),
                ("intermediate.dense", &[wide, hidden]),
                ("output.dense", &[hidden, wide]),
                ("output.LayerNorm", &[hidden]),
            ] {
                load(format!("encoder.layer.{layer}.{name}"), shape)?;
            }
        }
        Ok(Self { config, stream: stream.clone(), tensors })
    }

    /// Returns the embedding of a text: mean pooling over its tokens, then L2 normalization.
    pub fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let (c, stream, rows) = (&self.config, &self.stream, tokens.len());
        let (hidden, vocabulary, most) = (c.hidden, c.vocabulary, c.max_positions);
        if rows == 0 {
            return Err(Error::EmptyPrompt);
        }
        if rows > most {
            return Err(Error::at("text")(format!("{rows} tokens, but the model supports at most {most}")));
        }
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::UnknownToken { token, vocabulary });
        }
        let tokens = DeviceBuffer::from_host(stream, tokens)?;
        let mut x = DeviceBuffer::uninit(stream, rows * hidden)?;
        let (words, tokens) = (self.tensor("words")?, Indices::unchecked(&tokens, vocabulary));
        ops::gather_rows(stream, words.as_2d(vocabulary, hidden)?, &tokens, x.as_2d_mut(rows, hidden)?)?;
        let positions = self.tensor("positions")?.slice(..rows * hidden);
        x = self.norm_of_sum("embeddings.LayerNorm", &x, positions)?;
        for layer in 0..c.layers {
            let of = |name: &str| format!("encoder.layer.{layer}.{name}");
            let dense = |name: &str, activation, x: &Buffer| self.dense(&of(name), activation, x);
            let qkv = ["attention.self.query", "attention.self.key", "attention.self.value"];
            let qkv = qkv.map(|name| dense(name, Activation::None, &x));
            let attended = self.attend(qkv)?;
            let out = dense("attention.output.dense", Activation::None, &attended)?;
            x = self.norm_of_sum(&of("attention.output.LayerNorm"), &out, x.as_slice())?;
            // BERT uses erf; the tanh approximation of GELU differs by less than 1e-3.
            let wide = dense("intermediate.dense", Activation::Gelu, &x)?;
            let out = dense("output.dense", Activation::None, &wide)?;
            x = self.norm_of_sum(&of("output.LayerNorm"), &out, x.as_slice())?;
        }
        let outputs = x.to_host()?;
        let sum = |column| outputs.iter().skip(column).step_by(hidden).sum::<f32>();
        let sums: Vec<f32> = (0..hidden).map(sum).collect();
        let length = sums.iter().map(|x| x * x).sum::<f32>().sqrt();
        Ok(sums.iter().map(|x| x / length).collect())
    }

    fn tensor(&self, name: &str) -> Result<&Buffer> {
        self.tensors.get(name).ok_or_else(|| Error::at("the encoder")(format!("`{name}` is not loaded")))
    }

    /// Returns the attention of all tokens to each other.
    fn attend(&self, [q, k, v]: [Result<Buffer>; 3]) -> Result<Buffer> {
        let (stream, hidden, heads) = (&self.stream, self.config.hidden, self.config.heads);
        let (q, k, v) = (q?, k?, v?);
        let (rows, width) = (q.len() / hidden, hidden / heads);
        let buffer = |len| DeviceBuffer::uninit(stream, len);
        let (mut out, mut scores, mut weights) =
            (buffer(q.len())?, buffer(rows * rows)?, buffer(rows * rows)?);
        let scale = Epilogue { scale: (width as f32).sqrt().recip(), ..Epilogue::default() };
        for head in 0..heads {
            let columns = head * width..(head + 1) * width;
            let of_head =
                |x| Ok::<_, Error>(Matrix::from(Buffer::as_2d(x, rows, hidden)?.part(.., columns.clone())));
            let (q, k) = (of_head(&q)?, of_head(&k)?.transposed());
            ops::matmul_f32(stream, &scale, q, k, scores.as_2d_mut(rows, rows)?)?;
            ops::softmax(stream, scores.as_2d(rows, rows)?, weights.as_2d_mut(rows, rows)?)?;
            let to = out.as_2d_mut(rows, hidden)?.into_part(.., columns.clone());
            ops::matmul_f32(stream, &Epilogue::default(), weights.as_2d(rows, rows)?, of_head(&v)?, to)?;
        }
        Ok(out)
    }

    /// Returns the layer norm of the rows of `a + b`.
    fn norm_of_sum(&self, name: &str, a: &Buffer, b: DeviceSlice<'_, f32>) -> Result<Buffer> {
        let (rows, width) = (a.len() / self.config.hidden, self.config.hidden);
        let buffer = || DeviceBuffer::uninit(&self.stream, a.len());
        let (mut sum, mut out) = (buffer()?, buffer()?);
        ops::add(&self.stream, a, b, &mut sum)?;
        let [weight, bias] = ["weight", "bias"].map(|part| self.tensor(&format!("{name}.{part}")));
        let (weight, bias) = (Some(weight?.as_slice()), Some(bias?.as_slice()));
        let (sum, to) = (sum.as_2d(rows, width)?, out.as_2d_mut(rows, width)?);
        ops::layer_norm(&self.stream, sum, weight, bias, self.config.epsilon, to)?;
        Ok(out)
    }

    /// Returns the product of each row of `x` with a matrix, whose rows contain the weights of an output.
    fn dense(&self, name: &str, activation: Activation, x: &Buffer) -> Result<Buffer> {
        let [weight, bias] = ["weight", "bias"].map(|part| self.tensor(&format!("{name}.{part}")));
        let (weight, bias) = (weight?, bias?);
        let (columns, width) = (weight.len() / bias.len(), bias.len());
        let rows = x.len() / columns;
        let mut out = DeviceBuffer::uninit(&self.stream, rows * width)?;
        let epilogue = Epilogue { bias: Some(bias.as_slice()), activation, ..Epilogue::default() };
        let (weight, to) =
            (Matrix::from(weight.as_2d(width, columns)?).transposed(), out.as_2d_mut(rows, width)?);
        ops::matmul_f32(&self.stream, &epilogue, x.as_2d(rows, columns)?, weight, to)?;
        Ok(out)
    }
}
