//! [`Config`]: the architecture of a model, from `config.json` of a Hugging Face folder.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// Sizes and constants of a Llama or Qwen3 model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    pub epsilon: f64,
    pub rope: Rope,
    /// The output layer is the transposed embedding.
    pub is_tied: bool,
    /// The heads of q and k are normalized, as in Qwen3.
    pub has_head_norms: bool,
    /// Longest sequence that the model supports.
    pub max_positions: usize,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

/// Frequencies of the rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: Option<Llama3Scaling>,
}

/// Scaling of type `llama3`: low frequencies are divided by `factor`, high frequencies stay unchanged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    pub factor: f64,
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    pub original_max_position_embeddings: f64,
}

impl Rope {
    /// Returns the angle per position of each pair of a head's elements.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        let pairs = head_dim / 2;
        let plain = (0..pairs).map(|pair| self.theta.powf(-(pair as f64) / pairs as f64));
        plain.map(|frequency| self.scaling.as_ref().map_or(frequency, |by| by.scaled(frequency))).collect()
    }
}

impl Llama3Scaling {
    fn scaled(&self, frequency: f64) -> f64 {
        let rotations = self.original_max_position_embeddings * frequency / (2.0 * std::f64::consts::PI);
        // 0 for low frequencies, 1 for high frequencies.
        let share = (rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        let share = share.clamp(0.0, 1.0);
        (1.0 - share) * frequency / self.factor + share * frequency
    }
}

/// The fields of `config.json` that the architectures use.
#[derive(Deserialize)]
struct File {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    rms_norm_eps: f64,
    max_position_embeddings: usize,
    #[serde(default)]
    tie_word_embeddings: bool,
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
    rope_scaling: Option<serde_json::Map<String, serde_json::Value>>,
    eos_token_id: Option<Tokens>,
}

/// The field `eos_token_id`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Tokens {
    One(u32),
    Several(Vec<u32>),
}

impl Tokens {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Tokens::One(token) => vec![token],
            Tokens::Several(tokens) => tokens,
        }
    }
}

/// The fields of `generation_config.json` that are used.
#[derive(Deserialize)]
struct Generation {
    eos_token_id: Option<Tokens>,
}

impl Config {
    /// Reads and checks `config.json`, and the end tokens in `generation_config.json` if this file exists.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read(&path).map_err(Error::file(&path))?;
        let mut config = Self::parse(&text).map_err(|problem| Error::Config { path, problem })?;
        let path = folder.join("generation_config.json");
        if path.exists() {
            let text = std::fs::read(&path).map_err(Error::file(&path))?;
            let file: Generation = serde_json::from_slice(&text)
                .map_err(|error| Error::Config { path, problem: error.to_string() })?;
            config.end_tokens.extend(file.eos_token_id.into_iter().flat_map(Tokens::into_vec));
        }
        Ok(config)
    }

    /// Parses the text of `config.json`. The error says what is wrong.
    pub fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let has_head_norms = match file.model_type.as_str() {
            "llama" => false,
            "qwen3" => true,
            other => {
                return Err(format!("the model type is `{other}`, but must be `llama` or `qwen3`"));
            }
        };
        let (heads, kv_heads) =
            (file.num_attention_heads, file.num_key_value_heads.unwrap_or(file.num_attention_heads));
        let head_dim = file.head_dim.unwrap_or(file.hidden_size.checked_div(heads).unwrap_or(0));
        let unsupported = [
            ("attention_bias", file.attention_bias),
            ("mlp_bias", file.mlp_bias),
            ("use_sliding_window", file.use_sliding_window),
        ];
        if let Some((name, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
            return Err(format!("`{name}` is set, which this program does not support"));
        }
        if let Some(activation) = file.hidden_act.filter(|activation| activation != "silu") {
            return Err(format!("`hidden_act` is `{activation}`, but must be `silu`"));
        }
        let sizes = [
            ("hidden_size", file.hidden_size, 8),
            ("intermediate_size", file.intermediate_size, 8),
            ("num_hidden_layers", file.num_hidden_layers, 1),
            ("num_attention_heads", heads, 1),
            ("num_key_value_heads", kv_heads, 1),
            ("vocab_size", file.vocab_size, 1),
            ("max_position_embeddings", file.max_position_embeddings, 1),
        ];
        for (name, size, multiple) in sizes {
            if size == 0 || size > 1 << 24 || !size.is_multiple_of(multiple) {
                return Err(format!("`{name}` is {size}, but must be a multiple of {multiple} up to 2^24"));
            }
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("{heads} attention heads cannot share {kv_heads} key and value heads"));
        }
        if ![64, 128, 256].contains(&head_dim) {
            return Err(format!("heads have {head_dim} elements, but must have 64, 128 or 256"));
        }
        Ok(Self {
            hidden: file.hidden_size,
            intermediate: file.intermediate_size,
            layers: file.num_hidden_layers,
            heads,
            kv_heads,
            head_dim,
            vocabulary: file.vocab_size,
            epsilon: file.rms_norm_eps,
            rope: rope(file.rope_theta, file.rope_scaling.unwrap_or_default())?,
            is_tied: file.tie_word_embeddings,
            has_head_norms,
            max_positions: file.max_position_embeddings,
            end_tokens: file.eos_token_id.map_or_else(Vec::new, Tokens::into_vec),
        })
    }

    /// Number of elements of the queries of a token.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Number of elements of the keys of a token, and of its values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Number of elements of the queries, keys and values of a token.
    pub fn qkv_width(&self) -> usize {
        self.q_width() + 2 * self.kv_width()
    }
}

/// Reads the frequencies. `scaling` can also contain `rope_theta`.
fn rope(
    theta: Option<f64>,
    scaling: serde_json::Map<String, serde_json::Value>,
) -> std::result::Result<Rope, String> {
    let number = |name: &str| scaling.get(name).and_then(serde_json::Value::as_f64);
    let theta = theta.or(number("rope_theta")).unwrap_or(10000.0);
    let kind = scaling.get("rope_type").or(scaling.get("type")).and_then(|kind| kind.as_str());
    let scaling = match kind.unwrap_or("default") {
        "default" => None,
        "llama3" => {
            let scaling = serde_json::from_value(serde_json::Value::Object(scaling));
            Some(scaling.map_err(|error| format!("rope scaling of type `llama3`: {error}"))?)
        }
        other => {
            return Err(format!("the rope scaling has type `{other}`, but must be `default` or `llama3`"));
        }
    };
    Ok(Rope { theta, scaling })
}
