//! Files that are damaged or do not belong together.

use std::fs;
use std::path::{Path, PathBuf};

use llm::bench;
use llm::config::{Config, DECODERS};
use llm::error::{Error, Result};
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::text::Text;
use llm::weights::Folder;

use crate::fuzzed;
use crate::replay::replay;
use crate::{folder, stream};

/// A copy of a model, which is deleted at the end of the test.
pub struct Copy(pub PathBuf);

impl Copy {
    pub fn new(model: &str, test: &str) -> Self {
        let target = std::env::temp_dir().join(format!("llm-{}-{test}", std::process::id()));
        fs::create_dir_all(&target).unwrap();
        for entry in fs::read_dir(folder(model)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
        }
        Self(target)
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Replaces a part of a text or of a file's header.
    pub fn replace(&self, file: &str, from: &str, to: &str) {
        let bytes = fs::read(self.path(file)).unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        fs::write(self.path(file), [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat())
            .unwrap();
    }

    pub fn load(&self) -> Result<()> {
        load(&self.0)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn load(path: &Path) -> Result<()> {
    let (config, stream) = (Config::read(path, &DECODERS)?, stream()?);
    let folder = Folder::open(path)?;
    Model::load(&stream, config, 64, WeightFormat::Bf16, Some(&folder), None).map(drop)
}

/// Loads the folder and compares the error, in which the folder's path is left out.
#[track_caller]
pub fn fails(copy: &Copy, expected: &str) {
    let error = copy.load().unwrap_err().to_string();
    let error = error.replace(&format!("{}/", copy.0.display()), "");
    assert!(error.starts_with(expected), "{error}");
}

const WEIGHTS: &str = "model.safetensors";
const SHARD: &str = "model-00002-of-00002.safetensors";

#[test]
fn truncated_files_are_refused() {
    let copy = Copy::new("qwen3", "truncated");
    let bytes = fs::read(copy.path(WEIGHTS)).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for len in [0, 7, 8, header / 2, header, header + 1, bytes.len() - 1] {
        fs::write(copy.path(WEIGHTS), &bytes[..len]).unwrap();
        fails(&copy, "model.safetensors: not a valid safetensors file: ");
    }
}

#[test]
fn lying_headers_are_refused() {
    let copy = Copy::new("qwen3", "lying");
    let bytes = fs::read(copy.path(WEIGHTS)).unwrap();
    for length in [0, 1, 1 << 20, u64::MAX] {
        fs::write(copy.path(WEIGHTS), [&length.to_le_bytes(), &bytes[8..]].concat()).unwrap();
        fails(&copy, "model.safetensors: not a valid safetensors file: ");
    }
    // A shape that does not match the offsets.
    fs::write(copy.path(WEIGHTS), &bytes).unwrap();
    copy.replace(WEIGHTS, "[288,64]", "[289,64]");
    fails(&copy, "model.safetensors: not a valid safetensors file: ");
}

#[test]
fn missing_shards_and_files_are_named() {
    let copy = Copy::new("llama", "missing");
    let index = "model.safetensors.index.json";
    copy.replace(index, SHARD, &format!("../{SHARD}"));
    fails(&copy, &format!("{index}: `../{SHARD}` is not the name of a file in this folder"));
    copy.replace(index, &format!("../{SHARD}"), SHARD);
    fs::remove_file(copy.path(SHARD)).unwrap();
    fails(&copy, "model-00002-of-00002.safetensors: No such file");
    for file in [index, "config.json"] {
        fs::remove_file(copy.path(file)).unwrap();
    }
    fails(&copy, "config.json: No such file");
    let error = Text::read(Path::new("/nowhere")).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/tokenizer.json: No such file"), "{error}");
}

#[test]
fn tensors_must_match_the_configuration() {
    let cases = [
        (
            "\"hidden_size\": 64",
            "\"hidden_size\": 72",
            "the tensor `model.embed_tokens.weight`: the shape is [288, 64], but config.json requires [288, 72]",
        ),
        (
            "\"num_key_value_heads\": 2",
            "\"num_key_value_heads\": 4",
            "the tensor `model.layers.0.self_attn.k_proj.weight`: the shape is",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "the tensor `model.layers.2.input_layernorm.weight`: no weight file contains it",
        ),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1",
            "config.json: the weights have more than the 1 layers",
        ),
        (
            "\"model_type\": \"llama\"",
            "\"model_type\": \"qwen3\"",
            "the tensor `model.layers.0.self_attn.q_norm.weight`: no weight file contains it",
        ),
        (
            "\"model_type\": \"llama\"",
            "\"model_type\": \"gpt2\"",
            "config.json: `model_type` is `gpt2`, but must be `llama` or `qwen3`",
        ),
        (
            "\"num_attention_heads\": 4",
            "\"num_attention_heads\": 3",
            "config.json: 3 attention heads cannot share 2",
        ),
        ("\"head_dim\": 64", "\"head_dim\": 80", "config.json: heads have 80 elements, but"),
        ("\"hidden_size\": 64", "\"hidden_size\": 0", "config.json: `hidden_size` is 0, but"),
        ("\"hidden_size\": 64", "\"hidden_size\": -1", "config.json: invalid value: integer `-1`"),
        (
            "\"rope_type\": \"llama3\"",
            "\"rope_type\": \"yarn\"",
            "config.json: `rope_type` is `yarn`, but must be `default` or `llama3`",
        ),
        ("\"factor\": 8.0", "\"fact\": 8.0", "config.json: `factor` must be a positive number"),
        ("\"factor\": 8.0", "\"factor\": 0.0", "config.json: `factor` must be a positive number"),
        (
            "\"low_freq_factor\": 1.0",
            "\"low_freq_factor\": 4.0",
            "config.json: `low_freq_factor` is 4, but must be below `high_freq_factor`, 4",
        ),
        (
            "\"attention_bias\": false",
            "\"attention_bias\": true",
            "config.json: biases and sliding windows are not supported",
        ),
        ("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "config.json: `hidden_act` is `gelu`, but"),
        ("{", "[", "config.json: "),
    ];
    for (i, (from, to, expected)) in cases.into_iter().enumerate() {
        let copy = Copy::new("llama", &format!("config-{i}"));
        copy.replace("config.json", from, to);
        fails(&copy, expected);
    }
}

#[test]
fn wrong_element_types_are_refused() {
    let copy = Copy::new("qwen3", "dtype");
    copy.replace(WEIGHTS, "\"dtype\":\"BF16\"", "\"dtype\":\"I16\" ");
    let error = copy.load().unwrap_err().to_string();
    assert!(error.ends_with(": the elements have type I16, but must have BF16, F16 or F32"), "{error}");
}

#[test]
fn models_larger_than_the_device_are_refused() -> Result<()> {
    let stream = stream()?;
    let mut config = bench::config("llama-3-8b")?;
    config.layers = 100_000;
    let error = Model::load(&stream, config, 64, WeightFormat::Bf16, None, None).map(drop).unwrap_err();
    assert!(matches!(error, Error::TooLarge { needed, available } if needed > available), "{error}");
    Ok(())
}

#[test]
fn damaged_tokenizers_are_refused() {
    let copy = Copy::new("llama", "tokenizer");
    fs::write(copy.path("tokenizer.json"), "{\"model\": 1}").unwrap();
    let error = Text::read(&copy.0).map(drop).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with(&format!("{}: ", copy.path("tokenizer.json").display())), "{error}");
}

#[test]
fn the_corpus_of_the_fuzzer_passes() {
    replay("llm_folder", fuzzed::load_folder);
}
