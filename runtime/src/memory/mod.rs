//! Device memory: buffers, slices of them, and their ordering between streams.
//!
//! Guarantees for safe code: a buffer's memory is not freed while work that uses it runs. Work on a buffer is
//! ordered after all earlier work on it, on whatever streams and from whatever threads; a copy that borrows host
//! memory is done when the call returns. A buffer of no elements has the null address and needs no driver call.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`buffer`] | [`DeviceBuffer`], which owns memory |
//! | [`mod@slice`] | [`DeviceSlice`] and [`DeviceSliceMut`], which borrow a range of it |
//! | [`views`], [`tensor_map`] | elements as rows and planes, and as tensors |
//! | [`mapped`] | [`MappedBuffer`], memory of the host that kernels use |
//! | `foreign` | memory that came from elsewhere, and a buffer's in other forms |
//! | `shared` | [`SharedMemory`], which other devices and processes can map |
//! | `owners` | what frees such memory, after its last use |
//! | `storage` | the memory without its type, and work enqueued on it |
//! | `large_pages` | asking for large pages under new host memory |
//! | `usage` | which streams may still use a buffer |
//! | [`allocator`] | where memory comes from: the caching allocator |
//! | [`pinned`] | [`PinnedBuffer`], page-locked host memory for fast copies |
//! | [`options`] | how they allocate |
//! | [`statistics`], `summary` | its figures, and a table of them |

pub mod allocator;
pub mod buffer;
pub(crate) mod capturing;
mod device;
mod foreign;
pub(crate) mod graph_resource;
mod large_pages;
pub mod mapped;
pub mod options;
pub(crate) mod owners;
pub mod pinned;
mod scratch;
mod shared;
pub mod slice;
pub mod statistics;
pub(crate) mod storage;
mod summary;
pub mod tensor_map;
pub(crate) mod usage;
pub mod views;

pub use self::allocator::Memory;
pub use self::allocator::pool::{CaptureGuard, MemoryPool, PoolGuard, PoolOptions};
pub use self::buffer::DeviceBuffer;
pub use self::mapped::{MappedBuffer, MappedGuard};
pub use self::pinned::{PinnedBuffer, PinnedMemory, PinnedRange};
pub(crate) use self::scratch::stream_ended;
pub use self::shared::SharedMemory;
pub use self::slice::{DeviceSlice, DeviceSliceMut};
pub use self::tensor_map::{TensorLayout, TensorMap, TensorMapMut};
pub use self::views::{DeviceSlice2, DeviceSlice3, DeviceSliceMut2, DeviceSliceMut3};
pub use crate::error::OutOfMemory;
pub use gpu_spec::DeviceCopy;

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that no process uses.
    pub free: u64,
    /// Bytes that the device has.
    pub total: u64,
}
