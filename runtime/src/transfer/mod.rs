//! Copies between host and devices, and between devices. Copies between devices and methods whose names end in `_async`
//! do not block. Other copies from or to host memory wait until they have finished.
//!
//! In a non-blocking copy, host memory is moved into the copy and returned by [`Pending::wait`], so no other code can
//! access it during the copy. Device memory is borrowed until the copy is enqueued and then tracked as for kernels.
//! After an error, the host memory is returned once it is no longer in use.
//!
//! | call | memory | blocks for | cost |
//! | --- | --- | --- | --- |
//! | [`Stream::copy_from_host_async`], [`Stream::copy_to_host_async`] | [`PinnedBuffer`], [`PinnedRange`] | nothing | one copy by the device, at the full bandwidth of its link |
//! | the same | `Vec`, `Box<[T]>`, over 2 MiB | nothing | an additional host copy of up to [`CHUNK_BYTES`] at a time, on a driver thread, overlapped with the device's copies; two chunks of page-locked memory |
//! | the same | `Vec`, `Box<[T]>`, up to 2 MiB | a copy between the memory and page-locked memory, in the call (to the device) or in `wait` (to the host) | page-locked memory of the same size |
//! | [`Stream::copy`], [`Stream::copy_rows`] | on one device | nothing | one copy by the device |
//! | [`Stream::copy`] | on two devices with peer access | nothing | one copy over the link between them |
//! | the same | on two devices without peer access | nothing | two overlapped copies through twice [`CHUNK_BYTES`] of page-locked memory |
//! | [`broadcast`], [`scatter`], [`gather`] | on any devices of one driver | nothing | one copy as above per target or source |
//! | [`Stream::memset`] | on one device | nothing | one memset |
//! | [`DeviceBuffer::from_host`], `copy_from_host`, `to_host`, `copy_to_host` | pageable slices, 1 MiB or more | the copy, and earlier work on the buffer and its stream | an additional host copy, overlapped with the device's copies; up to three times [`CHUNK_BYTES`] of page-locked memory |
//! | the same | smaller and page-locked slices | the same | the driver's copy |
//!
//! Page-locked memory comes from the device's [cache](crate::memory::pinned). A call that uses it blocks only if the
//! cache's limit is reached, until earlier copies release memory. The driver may serialize a device's host functions,
//! so a host function that waits also delays copies of large `Vec`s.
//!
//! Between devices of two drivers, such as a GPU and an emulated device, [`Stream::copy`] fails with
//! [`Error::NoPeerAccess`](crate::Error::NoPeerAccess); use `to_host` and `copy_from_host` instead.
//!
//! | module | contents |
//! | --- | --- |
//! | [`pending`] | [`Pending`], an enqueued copy and its host memory |
//! | [`host_memory`] | [`HostMemory`], memory that can be moved into a copy |
//! | `host` | asynchronous copies between host memory and a device |
//! | `blocking` | blocking copies between host slices and devices |
//! | `staged` | chunked copies of pageable memory |
//! | `host_copy` | multithreaded copies of host memory |
//! | `device` | copies between buffers, memsets |
//! | `peer` | copies between devices |
//! | `rows` | copies of strided rows |
//! | [`collective`] | [`broadcast`], [`scatter`], [`gather`] |
//! | `coalesced` | operations on many small buffers |
//! | `columns` | scatter and gather of matrix columns |
//!
//! [`broadcast`]: collective::broadcast
//! [`scatter`]: collective::scatter
//! [`gather`]: collective::gather
//! [`Stream::copy_from_host_async`]: crate::Stream::copy_from_host_async
//! [`Stream::copy_to_host_async`]: crate::Stream::copy_to_host_async
//! [`Stream::copy`]: crate::Stream::copy
//! [`Stream::copy_rows`]: crate::Stream::copy_rows
//! [`Stream::memset`]: crate::Stream::memset
//! [`DeviceBuffer::from_host`]: crate::DeviceBuffer::from_host
//! [`PinnedBuffer`]: crate::PinnedBuffer
//! [`PinnedRange`]: crate::PinnedRange

mod blocking;
mod coalesced;
pub mod collective;
mod columns;
mod device;
mod host;
mod host_copy;
pub mod host_memory;
mod peer;
pub mod pending;
mod rows;
mod staged;

pub use self::host_memory::HostMemory;
pub use self::pending::{CopyFailed, Pending, PendingFuture};
pub use self::staged::CHUNK_BYTES;
