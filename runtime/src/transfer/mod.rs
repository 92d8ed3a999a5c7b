//! Copies between host and devices, on streams and without waiting.
//!
//! What can be relied on: a copy that a method of [`Stream`] enqueues returns at once, whatever its source and target. Host
//! memory is moved into the copy and given back by [`Pending::wait`] when it is done, so nobody sees or changes it
//! meanwhile; device memory is borrowed until the copy is enqueued, and is ordered and kept afterwards as for
//! kernels. Copies that borrow host memory ([`DeviceBuffer::copy_from_host`](crate::DeviceBuffer::copy_from_host)
//! and its kin) wait until they are done.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`pending`] | [`Pending`], a copy that was enqueued with its host memory |
//! | `host` | copies between page-locked host memory and a device |

mod host;
pub mod pending;

pub use self::pending::{CopyFailed, Pending};
