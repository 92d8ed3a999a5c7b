//! Copies between host and devices, on streams and without waiting.
//!
//! Guarantees: a copy that a method of [`Stream`](crate::Stream) enqueues returns at once, whatever its
//! source and target. Host memory is moved into the copy and returned by [`Pending::wait`] when it is done, so no other
//! code sees or changes it meanwhile. Device memory is borrowed until the copy is enqueued; after that it is ordered and
//! kept alive as for kernels. An error returns the host memory when nothing uses it any more. Copies that borrow
//! host memory wait until they are done.
//!
//! | call | memory | the host waits for | what it costs |
//! | --- | --- | --- | --- |
//! | [`Stream::copy_from_host`], [`Stream::copy_to_host`] | [`PinnedBuffer`], [`PinnedRange`] | nothing | one copy by the device, at the full speed of its link |
//! | the same | `Vec`, `Box<[T]>`, over 2 MiB | nothing | another copy by the host, up to [`CHUNK_BYTES`] at a time on a thread of the driver's while the device copies; twice as much page-locked memory |
//! | the same | `Vec`, `Box<[T]>`, up to 2 MiB | its own copy into page-locked memory, in the call (to the device) or in `wait` (to the host) | page-locked memory of the same size |
//! | [`Stream::copy_rows_from_host`], [`Stream::copy_rows_to_host`] | [`PinnedRows`] | nothing | one copy by the device |
//! | [`Stream::copy`], [`Stream::copy_rows`], [`DeviceSliceMut::copy_from`], [`DeviceSliceMut::copy_within`] | of one device | nothing | one copy by the device |
//! | [`Stream::copy`], [`DeviceSliceMut::copy_from`] | of two devices that reach each other | nothing | one copy over the link between them |
//! | the same | of two devices that do not | nothing | a copy out and a copy in, overlapping, through twice [`CHUNK_BYTES`] of page-locked memory |
//! | [`broadcast`], [`scatter`], [`gather`] | of any devices of one driver | nothing | a copy as above for each target or source |
//! | [`Stream::memset`] | of one device | nothing | one fill |
//! | [`DeviceBuffer::from_host`], `copy_from_host`, `to_host`, `copy_to_host` | any slice | the copy, and the work before it on the buffer and its stream | whatever the driver does for the slice's memory |
//!
//! Page-locked memory comes from the device's [cache](crate::memory::pinned) and goes back there; only when its limit
//! is reached does a call wait, for copies that use some. Host functions of one device may run one after the other:
//! one that waits for something keeps the copies of large `Vec`s waiting too.
//!
//! Devices of two drivers, a GPU and the emulated device, cannot wait for each other. [`Stream::copy`] refuses them
//! with [`Error::NoPeerAccess`](crate::Error::NoPeerAccess): copy with `to_host` and `copy_from_host`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`pending`] | [`Pending`], a copy that was enqueued with its host memory |
//! | [`host_memory`] | [`HostMemory`], what can be moved into a copy |
//! | `host` | copies between host memory and a device |
//! | `staged` | those of memory that the device does not reach, in chunks |
//! | `host_copy` | copying host memory with several threads |
//! | `device` | copies between buffers, fills |
//! | `peer` | copies between devices |
//! | [`rows`] | copies of rows that lie apart |
//! | [`collective`] | [`broadcast`], [`scatter`], [`gather`]: one buffer to several devices and back |
//! | `coalesced` | the broadcast of many small buffers in few copies, and other work on them |
//! | `columns` | scatter and gather of the columns of a matrix |
//!
//! [`broadcast`]: collective::broadcast
//! [`scatter`]: collective::scatter
//! [`gather`]: collective::gather
//! [`Stream::copy_from_host`]: crate::Stream::copy_from_host
//! [`Stream::copy_to_host`]: crate::Stream::copy_to_host
//! [`Stream::copy_rows_from_host`]: crate::Stream::copy_rows_from_host
//! [`Stream::copy_rows_to_host`]: crate::Stream::copy_rows_to_host
//! [`Stream::copy`]: crate::Stream::copy
//! [`Stream::copy_rows`]: crate::Stream::copy_rows
//! [`Stream::memset`]: crate::Stream::memset
//! [`DeviceSliceMut::copy_from`]: crate::DeviceSliceMut::copy_from
//! [`DeviceSliceMut::copy_within`]: crate::DeviceSliceMut::copy_within
//! [`DeviceBuffer::from_host`]: crate::DeviceBuffer::from_host
//! [`PinnedBuffer`]: crate::PinnedBuffer
//! [`PinnedRange`]: crate::PinnedRange

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
