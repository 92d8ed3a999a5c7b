//! [`Encoder`]: embeddings of texts by a BERT model in `f32`, such as all-MiniLM-L6-v2.

use std::path::Path;

use serde::Deserialize;
use warpsmith::ops::{self, Activation, Epilogue, Indices, Matrix};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::error::{Error, Result};
use crate::model::{first, first_mut};
use crate::weights::{Folder, Tensors};

/// Fields of `config.json` that BERT models use.
#[derive(Deserialize)]
struct Config {
    model_type: String,
    #[serde(rename = "hidden_size")]
    hidden: usize,
    #[serde(rename = "intermediate_size")]
    intermediate: usize,
    #[serde(rename = "num_hidden_layers")]
    layers: usize,
    #[serde(rename = "num_attention_heads")]
    heads: usize,
    #[serde(rename = "vocab_size")]
    vocabulary: usize,
    #[serde(rename = "max_position_embeddings")]
    max_positions: usize,
    #[serde(rename = "layer_norm_eps")]
    epsilon: f64,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
}

impl Config {
    /// Returns what this program does not support.
    fn problem(&self) -> Option<String> {
        let Self { model_type, hidden, heads, hidden_act, position_embedding_type, .. } = self;
        if model_type != "bert" {
            return Some(format!("the model type is `{model_type}`, but must be `bert`"));
        }
        if *hidden == 0 || *heads == 0 || !hidden.is_multiple_of(*heads) {
            return Some(format!("{heads} heads cannot share {hidden} elements"));
        }
        let kinds = [
            ("hidden_act", hidden_act, ["gelu", "gelu_new"]),
            ("position_embedding_type", position_embedding_type, ["absolute"; 2]),
        ];
        let mut found =
            kinds.into_iter().filter_map(|(name, found, kinds)| Some((name, found.as_ref()?, kinds)));
        let (name, found, kinds) = found.find(|(_, found, kinds)| !kinds.contains(&found.as_str()))?;
        Some(format!("`{name}` is `{found}`, but must be `{}`", kinds[0]))
    }
}

/// A BERT model on a device.
pub struct Encoder {
    config: Config,
    words: DeviceBuffer<f32>,
    /// Embeddings of the positions, to which the embedding of the first token type is added.
    positions: DeviceBuffer<f32>,
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
    weight: DeviceBuffer<f32>,
    bias: DeviceBuffer<f32>,
}

/// A weight matrix, whose rows contain the weights of an output, and a bias.
struct Dense {
    weight: DeviceBuffer<f32>,
    bias: DeviceBuffer<f32>,
    columns: usize,
}

impl Encoder {
    /// Loads the model of a Hugging Face folder.
    pub fn load(stream: &Stream, folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read(&path).map_err(Error::file(&path))?;
        let config: std::result::Result<Config, String> =
            serde_json::from_slice(&text).map_err(|error| error.to_string());
        let config = config.and_then(|config| match config.problem() {
            Some(problem) => Err(problem),
            None => Ok(config),
        });
        let config = config.map_err(|problem| Error::Config { path, problem })?;
        let folder = Folder::open(folder)?;
        let tensors = folder.tensors()?;
        let (hidden, table) = (config.hidden, "embeddings.position_embeddings.weight");
        let mut positions = tensors.f32(table, &[config.max_positions, hidden])?;
        let types = tensors.f32("embeddings.token_type_embeddings.weight", &[2, hidden])?;
        positions.iter_mut().zip(types[..hidden].iter().cycle()).for_each(|(x, y)| *x += y);
        let words = tensors.f32("embeddings.word_embeddings.weight", &[config.vocabulary, hidden])?;
        Ok(Self {
            words: DeviceBuffer::from_host(stream, &words)?,
            positions: DeviceBuffer::from_host(stream, &positions)?,
            norm: Norm::load(stream, &tensors, "embeddings.LayerNorm", hidden)?,
            layers: (0..config.layers)
                .map(|i| Layer::load(stream, &tensors, &format!("encoder.layer.{i}"), &config))
                .collect::<Result<_>>()?,
            config,
        })
    }

    /// Returns the embedding of a text: mean pooling over its tokens, then L2 normalization.
    pub fn embed(&self, stream: &Stream, tokens: &[u32]) -> Result<Vec<f32>> {
        let c = &self.config;
        let (rows, hidden) = (tokens.len(), c.hidden);
        if rows == 0 {
            return Err(Error::EmptyPrompt);
        }
        if rows > c.max_positions {
            return Err(Error::Text {
                text: "text",
                problem: format!("{rows} tokens, but the model supports at most {}", c.max_positions),
            });
        }
        if let Some(&token) = tokens.iter().find(|token| **token as usize >= c.vocabulary) {
            return Err(Error::UnknownToken { token, vocabulary: c.vocabulary });
        }
        let buffer = |width: usize| DeviceBuffer::<f32>::uninit(stream, rows * width);
        let (mut x, mut sum, mut part, mut out) =
            (buffer(hidden)?, buffer(hidden)?, buffer(hidden)?, buffer(hidden)?);
        let (mut wide, mut scores, mut weights) = (buffer(c.intermediate)?, buffer(rows)?, buffer(rows)?);
        let mut qkv = [buffer(hidden)?, buffer(hidden)?, buffer(hidden)?];
        let tokens = DeviceBuffer::from_host(stream, tokens)?;
        let tokens = Indices::unchecked(&tokens, c.vocabulary);
        ops::gather_rows(
            stream,
            self.words.as_2d(c.vocabulary, hidden)?,
            &tokens,
            first_mut(&mut part, rows, hidden)?,
        )?;
        ops::add(stream, &part, self.positions.slice(..rows * hidden), &mut sum)?;
        self.norm.apply(stream, c.epsilon, first(&sum, rows, hidden)?, first_mut(&mut x, rows, hidden)?)?;
        let width = hidden / c.heads;
        let scale = Epilogue { scale: (width as f32).sqrt().recip(), ..Epilogue::default() };
        for layer in &self.layers {
            for (dense, out) in layer.qkv.iter().zip(&mut qkv) {
                dense.apply(
                    stream,
                    Activation::None,
                    first(&x, rows, hidden)?,
                    first_mut(out, rows, hidden)?,
                )?;
            }
            let [q, k, v] = &qkv;
            let (q, k, v) = (first(q, rows, hidden)?, first(k, rows, hidden)?, first(v, rows, hidden)?);
            for head in 0..c.heads {
                let columns = head * width..(head + 1) * width;
                let [q, k, v] = [q, k, v].map(|x| x.part(.., columns.clone()));
                let k = Matrix::from(k).transposed();
                ops::matmul_f32(stream, &scale, q, k, scores.as_2d_mut(rows, rows)?)?;
                ops::softmax(stream, scores.as_2d(rows, rows)?, weights.as_2d_mut(rows, rows)?)?;
                let to = first_mut(&mut out, rows, hidden)?.into_part(.., columns);
                ops::matmul_f32(stream, &Epilogue::default(), weights.as_2d(rows, rows)?, v, to)?;
            }
            layer.output.apply(
                stream,
                Activation::None,
                first(&out, rows, hidden)?,
                first_mut(&mut part, rows, hidden)?,
            )?;
            ops::add(stream, &part, &x, &mut sum)?;
            layer.attention_norm.apply(
                stream,
                c.epsilon,
                first(&sum, rows, hidden)?,
                first_mut(&mut x, rows, hidden)?,
            )?;

            let to = wide.as_2d_mut(rows, c.intermediate)?;
            // BERT uses erf; the tanh approximation of GELU differs by less than 1e-3.
            layer.up.apply(stream, Activation::Gelu, first(&x, rows, hidden)?, to)?;
            let wide = wide.as_2d(rows, c.intermediate)?;
            layer.down.apply(stream, Activation::None, wide, first_mut(&mut part, rows, hidden)?)?;
            ops::add(stream, &part, &x, &mut sum)?;
            layer.norm.apply(
                stream,
                c.epsilon,
                first(&sum, rows, hidden)?,
                first_mut(&mut x, rows, hidden)?,
            )?;
        }
        let outputs = x.to_host()?;
        let mut mean = vec![0.0; hidden];
        for output in outputs.chunks_exact(hidden) {
            mean.iter_mut().zip(output).for_each(|(mean, x)| *mean += x);
        }
        let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
        mean.iter_mut().for_each(|x| *x /= length);
        Ok(mean)
    }
}

impl Layer {
    fn load(stream: &Stream, tensors: &Tensors<'_>, name: &str, c: &Config) -> Result<Self> {
        let dense = |part: &str, rows, columns| {
            Dense::load(stream, tensors, &format!("{name}.{part}"), [rows, columns])
        };
        let norm = |part: &str| Norm::load(stream, tensors, &format!("{name}.{part}.LayerNorm"), c.hidden);
        let qkv = |part: &str| dense(&format!("attention.self.{part}"), c.hidden, c.hidden);
        Ok(Self {
            qkv: [qkv("query")?, qkv("key")?, qkv("value")?],
            output: dense("attention.output.dense", c.hidden, c.hidden)?,
            attention_norm: norm("attention.output")?,
            up: dense("intermediate.dense", c.intermediate, c.hidden)?,
            down: dense("output.dense", c.hidden, c.intermediate)?,
            norm: norm("output")?,
        })
    }
}

impl Norm {
    fn load(stream: &Stream, tensors: &Tensors<'_>, name: &str, width: usize) -> Result<Self> {
        let load = |part: &str| -> Result<_> {
            Ok(DeviceBuffer::from_host(stream, &tensors.f32(&format!("{name}.{part}"), &[width])?)?)
        };
        Ok(Self { weight: load("weight")?, bias: load("bias")? })
    }

    fn apply(
        &self,
        stream: &Stream,
        epsilon: f64,
        x: DeviceSlice2<'_, f32>,
        out: DeviceSliceMut2<'_, f32>,
    ) -> Result<()> {
        let (weight, bias) = (Some(self.weight.as_slice()), Some(self.bias.as_slice()));
        Ok(ops::layer_norm(stream, x, weight, bias, epsilon, out)?)
    }
}

impl Dense {
    fn load(stream: &Stream, tensors: &Tensors<'_>, name: &str, [rows, columns]: [usize; 2]) -> Result<Self> {
        let weight = tensors.f32(&format!("{name}.weight"), &[rows, columns])?;
        let bias = tensors.f32(&format!("{name}.bias"), &[rows])?;
        let (weight, bias) =
            (DeviceBuffer::from_host(stream, &weight)?, DeviceBuffer::from_host(stream, &bias)?);
        Ok(Self { weight, bias, columns })
    }

    fn apply(
        &self,
        stream: &Stream,
        activation: Activation,
        x: DeviceSlice2<'_, f32>,
        out: DeviceSliceMut2<'_, f32>,
    ) -> Result<()> {
        let epilogue = Epilogue { bias: Some(self.bias.as_slice()), activation, ..Epilogue::default() };
        let weight = Matrix::from(self.weight.as_2d(self.bias.len(), self.columns)?).transposed();
        Ok(ops::matmul_f32(stream, &epilogue, x, weight, out)?)
    }
}
