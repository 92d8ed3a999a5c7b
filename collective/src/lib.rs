//! Multi-GPU programs: ranks, the store through which they rendezvous, and collective operations.
//!
//! | task | use |
//! | --- | --- |
//! | rank and world size of the process, from its launcher | [`Launch`] |
//! | values that are visible to all ranks | a [`Store`], in [`store`] |
//! | check that all ranks are present, use different GPUs and have the same version | [`rendezvous`] |
//! | reductions, copies and messages between ranks | a [`Communicator`] |
//! | gradients reduced in buckets, overlapped with the backward pass | [`Buckets`] |
//! | memory on each rank that kernels of all ranks can access | a [`SymmetricBuffer`] |
//! | outcome of an operation | its [`Work`]; [`Communicator::dump`] |
//! | errors, in a [`warpsmith_runtime::Error`] | [`CollectiveError`], [`RendezvousError`](rendezvous::RendezvousError) |
//! | cause of a communicator's failure | [`Failure`], in a [`CommunicatorError`] |
#![deny(missing_docs)]

// With this alias, code inside the crate can use the crate's external name, as tests do.
#[cfg(test)]
extern crate self as warpsmith_collective;

mod backend;
mod buckets;
mod communicator;
mod deadline;
mod element;
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
mod shutdown;
pub mod store;
mod symmetric;
mod work;

pub use self::buckets::Buckets;
pub use self::communicator::{BackendChoice, Communicator, CommunicatorOptions, Group};
pub use self::element::{ElementType, F8E4M3, F8E5M2, ReduceOp, Reducible};
pub use self::error::CollectiveError;
pub use self::failure::{CommunicatorError, Failure};
pub use self::fingerprint::Fingerprint;
pub use self::launch::{Launch, Launcher, StoreAddress, StoreHost};
pub use self::nccl::{NcclLibrary, nccl_library};
pub use self::recorder::{FlightRecord, OperationState, RecordedOperation};
pub use self::store::Store;
pub use self::symmetric::{SymmetricBuffer, ipc_collect};
pub use self::work::Work;
