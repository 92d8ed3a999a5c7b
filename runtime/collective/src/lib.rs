//! Programs on several GPUs: which rank a process is, the store by which ranks meet, and what they do together.
//!
//! | wanted | use |
//! | --- | --- |
//! | rank and number of ranks, from the engine that started the process | [`Launch`] |
//! | values that all ranks see | a [`Store`], in [`store`] |
//! | all ranks there, each on a GPU of its own, of one version | [`rendezvous`] |
#![deny(missing_docs)]

mod error;
mod launch;
mod machine;
pub mod rendezvous;
mod rendezvous_error;
pub mod store;

pub use self::error::{Error, Result};
pub use self::launch::{Engine, Launch, StoreAddress, StoreHost};
pub use self::store::Store;
