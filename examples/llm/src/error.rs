//! [`Error`]: everything that can go wrong, with the remedy.

use std::fmt::Display;

/// Error of this program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A problem with a file, a tensor, an argument or a connection.
    #[error("{place}: {problem}")]
    At { place: String, problem: String },
    #[error(
        "the model needs {needed} MiB of device memory, but {available} MiB are free; use a larger device, or \
         quantize the weights with --weights int4"
    )]
    TooLarge { needed: u64, available: u64 },
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
    #[error(transparent)]
    Device(#[from] warpsmith::Error),
}

/// Result of this program's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that adds the place to a problem.
    pub fn at<P: Display>(place: impl Display) -> impl FnOnce(P) -> Self {
        move |problem| Error::At { place: place.to_string(), problem: problem.to_string() }
    }
}
