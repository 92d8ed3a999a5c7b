//! Programs on several GPUs: which rank a process is, the store by which ranks meet, and what they do together.
//!
//! | wanted | use |
//! | --- | --- |
//! | rank and number of ranks, from the engine that started the process | [`Launch`] |
//! | values that all ranks see | a [`Store`] |
#![deny(missing_docs)]

mod error;
mod launch;
pub mod store;

pub use self::error::{Error, Result};
pub use self::launch::Launch;
pub use self::store::Store;
