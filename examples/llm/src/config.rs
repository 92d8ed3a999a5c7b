//! [`Config`]: the architecture of a model, from `config.json` of a Hugging Face folder.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::files::{OneOrMany, read, read_json};

/// Model types with [`Model`](crate::model::Model) and with [`Encoder`](crate::encoder::Encoder).
pub const DECODERS: [&str; 2] = ["llama", "qwen3"];
pub const ENCODERS: [&str; 1] = ["bert"];

/// Fields of `config.json` that Llama, Qwen3 and BERT models use.
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
    #[serde(rename = "rms_norm_eps", alias = "layer_norm_eps")]
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
    position_embedding_type: Option<String>,
    rope_theta: Option<f64>,
    /// The field has either name, depending on the version of `transformers` that wrote the file.
    #[serde(alias = "rope_parameters")]
    rope_scaling: Option<Rope>,
    eos_token_id: Option<OneOrMany<u32>>,
    quantization_config: Option<Quantization>,
}

/// Quantization of the weights in the files.
#[derive(Debug, Clone, Deserialize)]
struct Quantization {
    quant_method: String,
    format: Option<String>,
    bits: Option<u32>,
    #[serde(default)]
    desc_act: bool,
    checkpoint_format: Option<String>,
    version: Option<String>,
}

/// Format of quantized weights in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Gptq,
    Awq,
    /// E4M3 numbers with scales.
    Fp8,
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

/// Description of what is wrong with a configuration.
type Problem = String;

/// Fails unless a text is absent or one of the supported texts.
fn check_text(name: &str, text: Option<&String>, supported: &[&str]) -> std::result::Result<(), Problem> {
    match text {
        Some(text) if !supported.contains(&text.as_str()) => {
            Err(format!("`{name}` is `{text}`, but must be `{}`", supported.join("` or `")))
        }
        _ => Ok(()),
    }
}

fn positive(name: &str, number: Option<f64>) -> std::result::Result<f64, Problem> {
    let is_positive = |number: &f64| *number > 0.0;
    number.filter(is_positive).ok_or_else(|| format!("`{name}` must be a positive number"))
}

impl Config {
    /// Reads `config.json` of one of these `models`, and takes the end tokens from `generation_config.json` if this
    /// file exists.
    pub fn read(folder: &Path, models: &[&str]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Generation {
            eos_token_id: Option<OneOrMany<u32>>,
        }
        let path = folder.join("config.json");
        let mut config = Self::parse(&read(&path)?, models).map_err(Error::at(path.display()))?;
        let path = folder.join("generation_config.json");
        if path.exists() {
            config.eos_token_id = read_json::<Generation>(&path)?.eos_token_id.or(config.eos_token_id);
        }
        Ok(config)
    }

    /// Parses and checks `config.json` of one of these `models`.
    pub fn parse(text: &[u8], models: &[&str]) -> std::result::Result<Self, Problem> {
        let c: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        check_text("model_type", Some(&c.model_type), models)?;
        c.check_sizes()?;
        if c.model_type == "bert" {
            check_text("hidden_act", c.hidden_act.as_ref(), &["gelu", "gelu_new"])?;
            check_text("position_embedding_type", c.position_embedding_type.as_ref(), &["absolute"])?;
            return Ok(c);
        }
        check_text("hidden_act", c.hidden_act.as_ref(), &["silu"])?;
        if c.attention_bias || c.mlp_bias || c.use_sliding_window {
            return Err("biases and sliding windows are not supported".into());
        }
        if ![64, 128, 256].contains(&c.head_dim()) {
            return Err(format!("heads have {} elements, but must have 64, 128 or 256", c.head_dim()));
        }
        c.packing()?;
        c.frequencies()?;
        Ok(c)
    }

    fn check_sizes(&self) -> std::result::Result<(), Problem> {
        // With these limits, the number of bytes of a model or of a cache fits into 64 bits.
        for (name, size, multiple, bits) in [
            ("hidden_size", self.hidden, 8, 20),
            ("intermediate_size", self.intermediate, 8, 20),
            ("num_hidden_layers", self.layers.max(1), 1, 12),
            ("num_attention_heads", self.heads, 1, 12),
            ("num_key_value_heads", self.kv_heads(), 1, 12),
            ("vocab_size", self.vocabulary, 1, 24),
            ("max_position_embeddings", self.max_positions, 1, 24),
        ] {
            if size == 0 || size > 1 << bits || !size.is_multiple_of(multiple) {
                return Err(format!(
                    "`{name}` is {size}, but must be a multiple of {multiple} up to 2^{bits}"
                ));
            }
        }
        let (heads, kv_heads, hidden) = (self.heads, self.kv_heads(), self.hidden);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("{heads} attention heads cannot share {kv_heads} key and value heads"));
        }
        if self.head_dim.is_none() && !hidden.is_multiple_of(heads) {
            return Err(format!("{heads} heads cannot share {hidden} elements"));
        }
        Ok(())
    }

    /// Returns the format of quantized weights in the files.
    pub fn packing(&self) -> std::result::Result<Option<Packing>, Problem> {
        let Some(q) = &self.quantization_config else { return Ok(None) };
        let (method, methods) = (&q.quant_method, ["gptq", "awq", "fp8", "compressed-tensors"]);
        check_text("quant_method", Some(method), &methods)?;
        let packing = match method.as_str() {
            "gptq" => Packing::Gptq,
            "awq" => Packing::Awq,
            _ => Packing::Fp8,
        };
        match packing {
            Packing::Gptq => check_text("checkpoint_format", q.checkpoint_format.as_ref(), &["gptq"])?,
            Packing::Awq => check_text("version", q.version.as_ref(), &["gemm", "GEMM"])?,
            Packing::Fp8 => check_text("format", q.format.as_ref(), &["float-quantized"])?,
        }
        if packing != Packing::Fp8 && (q.bits != Some(4) || q.desc_act) {
            return Err(format!("{method} weights must have 4 bits, and `desc_act` must be false"));
        }
        Ok(Some(packing))
    }

    /// Returns the configuration of one part of a model that is divided among several GPUs.
    pub fn split(mut self, gpus: usize) -> Result<Self> {
        let sizes = [
            ("num_attention_heads", self.heads, gpus),
            ("num_key_value_heads", self.kv_heads(), gpus),
            ("intermediate_size", self.intermediate, 8 * gpus),
        ];
        if let Some((name, size, multiple)) =
            sizes.into_iter().find(|(_, size, multiple)| size % multiple > 0)
        {
            let problem = format!("`{name}` is {size}, but must be a multiple of {multiple} for {gpus} GPUs");
            return Err(Error::at("config.json")(problem));
        }
        self.head_dim = Some(self.head_dim());
        self.num_key_value_heads = Some(self.kv_heads() / gpus);
        (self.heads, self.intermediate) = (self.heads / gpus, self.intermediate / gpus);
        Ok(self)
    }

    /// Number of heads of keys and values.
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.heads)
    }

    /// Elements per head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden / self.heads)
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
        self.eos_token_id.as_ref().map_or(&[], OneOrMany::as_slice)
    }

    /// Returns the angle per position of each pair of a head's elements.
    pub fn frequencies(&self) -> std::result::Result<Vec<f64>, Problem> {
        let rope = self.rope_scaling.clone().unwrap_or_default();
        let theta = self.rope_theta.or(rope.rope_theta).unwrap_or(10000.0);
        let (theta, pairs) = (positive("rope_theta", Some(theta))?, self.head_dim() / 2);
        let plain = (0..pairs).map(|pair| theta.powf(-(pair as f64) / pairs as f64));
        check_text("rope_type", rope.rope_type.as_ref(), &["default", "llama3"])?;
        if rope.rope_type.is_none_or(|kind| kind == "default") {
            return Ok(plain.collect());
        }
        let factor = positive("factor", rope.factor)?;
        let (low, high) = (positive("low_freq_factor", rope.low_freq_factor)?, rope.high_freq_factor);
        let high = positive("high_freq_factor", high)?;
        let length = positive("original_max_position_embeddings", rope.original_max_position_embeddings)?;
        if low >= high {
            return Err(format!("`low_freq_factor` is {low}, but must be below `high_freq_factor`, {high}"));
        }
        // Low frequencies are divided by the factor, and high frequencies stay unchanged.
        let scaled = plain.map(|frequency| {
            let rotations = length * frequency / std::f64::consts::TAU;
            let share = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - share) * frequency / factor + share * frequency
        });
        Ok(scaled.collect())
    }
}
