//! Copies between host and devices, and between devices. Copies between devices and methods that end in `_async` do not
//! wait. Other methods that copy from or to host memory return when the copy has finished.
//!
//! A method of [`Stream`](crate::Stream) that enqueues a copy returns immediately, for any source and target. Host
//! memory is moved into the copy and returned by [`Pending::wait`] when the copy has finished, so no other code can
//! access it during the copy. Device memory is borrowed until the copy is enqueued; after that, its use is ordered and
//! it is kept alive, as for kernels. After an error, the host memory is returned once it is no longer in use. Copies
//! that borrow host memory wait until the copy has finished.
//!
//! | call | memory | the host waits for | cost |
//! | --- | --- | --- | --- |
//! | [`Stream::copy_from_host_async`], [`Stream::copy_to_host_async`] | [`PinnedBuffer`], [`PinnedRange`] | nothing | one copy by the device, at the full speed of its link |
//! | the same | `Vec`, `Box<[T]>`, over 2 MiB | nothing | an additional copy by the host, up to [`CHUNK_BYTES`] at a time on a driver thread while the device copies; two chunks of page-locked memory |
//! | the same | `Vec`, `Box<[T]>`, up to 2 MiB | a copy between the memory and page-locked memory, made by the call (to the device) or by `wait` (to the host) | page-locked memory of the same size |
//! | [`Stream::copy_rows_from_host_async`], [`Stream::copy_rows_to_host_async`] | [`PinnedRows`] | nothing | one copy by the device |
//! | [`Stream::copy`], [`Stream::copy_rows`] | on one device | nothing | one copy by the device |
//! | [`Stream::copy`] | on two devices with peer access | nothing | one copy over the link between them |
//! | the same | on two devices without peer access | nothing | a copy out and a copy in, overlapping, through twice [`CHUNK_BYTES`] of page-locked memory |
//! | [`broadcast`], [`scatter`], [`gather`] | on any devices of one driver | nothing | for each target or source, one copy as above |
//! | [`Stream::memset`] | on one device | nothing | one memset |
//! | [`DeviceBuffer::from_host`], `copy_from_host`, `to_host`, `copy_to_host` | pageable slices, 1 MiB or more | the copy, and earlier work on the buffer and its stream | an additional copy by the host, while the device copies other chunks; up to three [`CHUNK_BYTES`] of page-locked memory |
//! | the same | smaller and page-locked slices | the same | the driver's copy |
//!
//! Page-locked memory comes from the device's [cache](crate::memory::pinned) and is returned to it. A call that uses
//! page-locked memory waits only if the limit of the cache is reached, until earlier copies release memory. The host
//! functions of a device may run one after another, so a host function that waits also delays the copies of large
//! `Vec`s.
//!
//! Devices that belong to two drivers, such as a GPU and an emulated device, cannot wait for each other. For such
//! devices, [`Stream::copy`] fails with [`Error::NoPeerAccess`](crate::Error::NoPeerAccess); use `to_host` and
//! `copy_from_host` instead.
//!
//! | module | contents |
//! | --- | --- |
//! | [`pending`] | [`Pending`], an enqueued copy and its host memory |
//! | [`host_memory`] | [`HostMemory`], memory that can be moved into a copy |
//! | `host` | asynchronous copies between host memory and a device |
//! | `blocking` | blocking copies between a host slice and a device |
//! | `staged` | copies of memory that the device cannot access, in chunks |
//! | `host_copy` | copying host memory with several threads |
//! | `device` | copies between buffers, memsets |
//! | `peer` | copies between devices |
//! | [`rows`] | copies of strided rows |
//! | [`collective`] | [`broadcast`], [`scatter`], [`gather`]: copies of one buffer to several devices and back |
//! | `coalesced` | broadcast of many small buffers in few copies, and other operations on them |
//! | `columns` | scatter and gather of matrix columns |
//!
//! [`broadcast`]: collective::broadcast
//! [`scatter`]: collective::scatter
//! [`gather`]: collective::gather
//! [`Stream::copy_from_host_async`]: crate::Stream::copy_from_host_async
//! [`Stream::copy_to_host_async`]: crate::Stream::copy_to_host_async
//! [`Stream::copy_rows_from_host_async`]: crate::Stream::copy_rows_from_host_async
//! [`Stream::copy_rows_to_host_async`]: crate::Stream::copy_rows_to_host_async
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
pub mod rows;
mod staged;

pub use self::host_memory::HostMemory;
pub use self::pending::{CopyFailed, Pending, PendingFuture};
pub use self::rows::PinnedRows;
pub use self::staged::CHUNK_BYTES;
