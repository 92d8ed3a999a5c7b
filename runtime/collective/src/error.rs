//! The one error of the crate.

/// Why ranks could not meet, or not do something together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No rank set a key in time.
    #[error("no rank has set `{key}` in the store by the deadline")]
    StoreTimeout {
        /// The key.
        key: String,
    },
    /// A key whose value is no number was added to.
    #[error("`{key}` in the store holds no decimal number")]
    NotANumber {
        /// The key.
        key: String,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] warpsmith_core::Error),
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
