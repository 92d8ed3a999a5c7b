//! Programs on several GPUs: which rank a process is, the store by which ranks meet, and what they do together.
//!
//! | wanted | use |
//! | --- | --- |
//! | rank and number of ranks, from the engine that started the process | [`Launch`] |
//! | values that all ranks see | a [`Store`], in [`store`] |
//! | all ranks there, each on a GPU of its own, of one version | [`rendezvous`] |
//! | sums, copies and messages between ranks | a [`Communicator`] |
//! | gradients reduced together, while others are computed | [`Buckets`] |
//! | memory of all ranks that kernels of all reach | a [`SymmetricBuffer`] |
//! | what became of an operation | its [`Work`]; [`Communicator::dump`] |
//! | why a communicator has failed | [`Failure`], in a [`CommunicatorError`] |
#![deny(missing_docs)]

// As tests outside of the crate name it.
#[cfg(test)]
extern crate self as warpsmith_collective;

mod backend;
mod buckets;
mod communicator;
mod deadline;
mod element;
mod ending;
mod error;
mod exchange;
mod failure;
mod fingerprint;
mod host;
mod keepalive;
mod launch;
mod machine;
mod mesh;
mod nccl;
mod peer;
mod recorder;
pub mod rendezvous;
mod rendezvous_error;
pub mod store;
mod symmetric;
mod work;

pub use self::buckets::Buckets;
pub use self::communicator::{BackendChoice, Communicator, CommunicatorOptions, Group};
pub use self::element::{Element, ElementType, F8E4M3, F8E5M2, ReduceOp};
pub use self::error::{Error, Result};
pub use self::failure::{CommunicatorError, Failure};
pub use self::fingerprint::Fingerprint;
pub use self::launch::{Engine, Launch, StoreAddress, StoreHost};
pub use self::nccl::{NcclError, NcclLibrary, nccl_library};
pub use self::recorder::{FlightRecord, OperationState, RecordedOperation};
pub use self::store::Store;
pub use self::symmetric::{SymmetricBuffer, ipc_collect};
pub use self::work::Work;
