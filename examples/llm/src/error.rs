//! [`Error`]: everything that can go wrong, with the remedy.

use std::path::{Path, PathBuf};

/// Error of this program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path}: {problem}", path = path.display())]
    Config { path: PathBuf, problem: String },
    #[error("{path} is not a valid safetensors file: {error}; download it again", path = path.display())]
    Shard { path: PathBuf, error: safetensors::SafeTensorError },
    #[error(
        "no weight file contains the tensor `{name}`, which the model of config.json needs; config.json and the weights \
         must belong to the same model"
    )]
    MissingTensor { name: String },
    #[error(
        "the tensor `{name}` has shape {found:?}, but config.json requires {expected:?}; config.json and the weights \
         must belong to the same model"
    )]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("the tensor `{name}` has elements of type {found:?}, but must have {expected}")]
    Dtype { name: String, found: safetensors::Dtype, expected: &'static str },
    #[error(
        "the matrix `{name}` has {k} inputs, {n} outputs and groups of {group} weights, but the inputs must be a \
         multiple of 128, the outputs a multiple of 8, and groups must have 32, 64, 128 or all weights of an output"
    )]
    PackedSizes { name: String, k: usize, n: usize, group: usize },
    #[error("the tensors `{name}` do not match config.json: {error}")]
    Packed { name: String, error: Box<warpsmith::Error> },
    #[error(
        "the model needs {needed} MiB of device memory, but {available} MiB are free; use a larger device, or \
             quantize the weights with --weights int4"
    )]
    TooLarge { needed: u64, available: u64 },
    #[error("{path}: {problem}", path = path.display())]
    Tokenizer { path: PathBuf, problem: String },
    #[error("{text}: {problem}")]
    Text { text: &'static str, problem: String },
    #[error(
        "the prompt has {prompt} tokens, but a sequence can have at most {capacity} tokens, including at least one new \
         token; shorten the prompt, or raise --context"
    )]
    PromptTooLong { prompt: usize, capacity: usize },
    #[error("the prompt contains no tokens; pass a text")]
    EmptyPrompt,
    #[error("the prompt contains the token {token}, but the vocabulary has {vocabulary} tokens")]
    UnknownToken { token: u32, vocabulary: usize },
    #[error("the cache has no free pages; retry later, or use fewer or shorter sequences")]
    CacheFull,
    #[error("the model produced NaN or infinity instead of probabilities")]
    NotANumber,
    #[error("{what}: {error}")]
    Network { what: &'static str, error: std::io::Error },
    #[error("cannot listen at {address}: {error}; choose another address with --address")]
    Listen { address: std::net::SocketAddr, error: std::io::Error },
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Device(#[from] warpsmith::Error),
}

/// Result of this program's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that adds the path to an I/O error.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Error::File { path: path.to_owned(), error }
    }
}
