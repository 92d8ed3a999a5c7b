//! [`Config`]: the architecture of a model, from `config.json` of a Hugging Face folder.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// Fields of `config.json` that Llama and Qwen3 models use.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    model_type: String,
    #[serde(rename = "hidden_size")]
    pub hidden: usize,
    #[serde(rename = "intermediate_size")]
    pub intermediate: usize,
    #[serde(rename = "num_hidden_layers")]
    pub layers: usize,
    #[serde(rename = "num_attention_heads")]
    pub heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(rename = "vocab_size")]
    pub vocabulary: usize,
    #[serde(rename = "rms_norm_eps")]
    pub epsilon: f64,
    #[serde(rename = "max_position_embeddings")]
    pub max_positions: usize,
    /// The output layer is the transposed embedding.
    #[serde(rename = "tie_word_embeddings", default)]
    pub is_tied: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    /// The field has either name, depending on the version of `transformers` that wrote the file.
    #[serde(alias = "rope_parameters")]
    rope_scaling: Option<Rope>,
    eos_token_id: Option<Tokens>,
    quantization_config: Option<Quantization>,
}

/// Quantization of the weights in the files.
#[derive(Debug, Clone, Deserialize)]
struct Quantization {
    quant_method: String,
    bits: Option<u32>,
    #[serde(default)]
    desc_act: bool,
    checkpoint_format: Option<String>,
    version: Option<String>,
}

/// Format of 4-bit weights in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Gptq,
    Awq,
}

/// Parameters of the rotary position embedding.
#[derive(Debug, Clone, Default, Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Tokens {
    One(u32),
    Several(Vec<u32>),
}

impl Config {
    /// Reads and checks `config.json`, and takes the end tokens from `generation_config.json` if this file exists.
    pub fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Generation {
            eos_token_id: Option<Tokens>,
        }
        let read = |name| {
            let path = folder.join(name);
            let text = std::fs::read(&path).map_err(Error::file(&path))?;
            Ok::<_, Error>((path, text))
        };
        let (path, text) = read("config.json")?;
        let mut config = Self::parse(&text).map_err(|problem| Error::Config { path, problem })?;
        if folder.join("generation_config.json").exists() {
            let (path, text) = read("generation_config.json")?;
            let generation: Generation = serde_json::from_slice(&text)
                .map_err(|error| Error::Config { path, problem: error.to_string() })?;
            config.eos_token_id = generation.eos_token_id.or(config.eos_token_id);
        }
        Ok(config)
    }

    /// Parses and checks the text of `config.json`. The error says what is wrong.
    pub fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let c: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if !["llama", "qwen3"].contains(&c.model_type.as_str()) {
            return Err(format!("the model type is `{}`, but must be `llama` or `qwen3`", c.model_type));
        }
        if c.attention_bias || c.mlp_bias || c.use_sliding_window {
            return Err("biases and sliding windows are not supported".into());
        }
        if let Some(activation) = c.hidden_act.as_ref().filter(|activation| *activation != "silu") {
            return Err(format!("`hidden_act` is `{activation}`, but must be `silu`"));
        }
        // With these limits, the number of bytes of a model or of a cache fits into 64 bits.
        let sizes = [
            ("hidden_size", c.hidden, 8, 20),
            ("intermediate_size", c.intermediate, 8, 20),
            ("num_hidden_layers", c.layers, 1, 12),
            ("num_attention_heads", c.heads, 1, 12),
            ("num_key_value_heads", c.kv_heads(), 1, 12),
            ("vocab_size", c.vocabulary, 1, 24),
            ("max_position_embeddings", c.max_positions, 1, 24),
        ];
        for (name, size, multiple, bits) in sizes {
            if size == 0 || size > 1 << bits || !size.is_multiple_of(multiple) {
                return Err(format!(
                    "`{name}` is {size}, but must be a multiple of {multiple} up to 2^{bits}"
                ));
            }
        }
        if !c.heads.is_multiple_of(c.kv_heads()) {
            let (heads, kv_heads) = (c.heads, c.kv_heads());
            return Err(format!("{heads} attention heads cannot share {kv_heads} key and value heads"));
        }
        if ![64, 128, 256].contains(&c.head_dim()) {
            return Err(format!("heads have {} elements, but must have 64, 128 or 256", c.head_dim()));
        }
        c.frequencies()?;
        c.packing()?;
        Ok(c)
    }

    /// Returns the format of 4-bit weights in the files. The error says what is wrong.
    pub fn packing(&self) -> std::result::Result<Option<Packing>, String> {
        let Some(quantization) = &self.quantization_config else { return Ok(None) };
        let Quantization { quant_method, bits, desc_act, checkpoint_format, version } = quantization;
        let (packing, found, expected) = match quant_method.as_str() {
            "gptq" => (Packing::Gptq, checkpoint_format, "gptq"),
            "awq" => (Packing::Awq, version, "gemm"),
            other => return Err(format!("`quant_method` is `{other}`, but must be `gptq` or `awq`")),
        };
        if let Some(found) = found.as_ref().filter(|found| !found.eq_ignore_ascii_case(expected)) {
            return Err(format!(
                "the {quant_method} weights have the format `{found}`, but must have `{expected}`"
            ));
        }
        if *bits != Some(4) || *desc_act {
            return Err(format!("{quant_method} weights must have 4 bits, and `desc_act` must be false"));
        }
        Ok(Some(packing))
    }

    /// Number of heads of keys and values.
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.heads)
    }

    /// Elements per head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden.checked_div(self.heads).unwrap_or(0))
    }

    /// Elements of the queries of a token.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim()
    }

    /// Elements of the keys of a token, and of its values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads() * self.head_dim()
    }

    /// Elements of the queries, keys and values of a token.
    pub fn qkv_width(&self) -> usize {
        self.q_width() + 2 * self.kv_width()
    }

    /// The heads of q and k are normalized.
    pub fn has_head_norms(&self) -> bool {
        self.model_type == "qwen3"
    }

    /// Tokens that end a text.
    pub fn end_tokens(&self) -> &[u32] {
        match &self.eos_token_id {
            None => &[],
            Some(Tokens::One(token)) => std::slice::from_ref(token),
            Some(Tokens::Several(tokens)) => tokens,
        }
    }

    /// Returns the angle per position of each pair of a head's elements. The error says what is wrong.
    pub fn frequencies(&self) -> std::result::Result<Vec<f64>, String> {
        let rope = self.rope_scaling.clone().unwrap_or_default();
        let theta = self.rope_theta.or(rope.rope_theta).unwrap_or(10000.0);
        if theta <= 0.0 {
            return Err(format!("`rope_theta` is {theta}, but must be positive"));
        }
        let pairs = self.head_dim() / 2;
        let plain = (0..pairs).map(|pair| theta.powf(-(pair as f64) / pairs as f64));
        match rope.rope_type.as_deref().unwrap_or("default") {
            "default" => Ok(plain.collect()),
            "llama3" => {
                let number = |name: &str, number: Option<f64>| match number {
                    Some(number) if number > 0.0 => Ok(number),
                    Some(number) => {
                        Err(format!("`{name}` of the rope scaling is {number}, but must be positive"))
                    }
                    None => Err(format!("the rope scaling `llama3` has no `{name}`")),
                };
                let factor = number("factor", rope.factor)?;
                let low = number("low_freq_factor", rope.low_freq_factor)?;
                let high = number("high_freq_factor", rope.high_freq_factor)?;
                let length =
                    number("original_max_position_embeddings", rope.original_max_position_embeddings)?;
                if low >= high {
                    return Err(format!(
                        "`low_freq_factor` is {low}, but must be below `high_freq_factor`, {high}"
                    ));
                }
                // Low frequencies are divided by the factor, and high frequencies stay unchanged.
                let scaled = plain.map(|frequency| {
                    let rotations = length * frequency / std::f64::consts::TAU;
                    let share = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - share) * frequency / factor + share * frequency
                });
                Ok(scaled.collect())
            }
            other => Err(format!("the rope scaling has type `{other}`, but must be `default` or `llama3`")),
        }
    }
}
