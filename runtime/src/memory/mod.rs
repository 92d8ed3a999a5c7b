//! Device memory: buffers, slices, synchronization between streams, and the caching allocator.
//!
//! In safe code, a buffer's memory is not freed while work uses it, and work on a buffer waits for all earlier
//! conflicting work, across streams and threads. A copy that borrows host memory has finished when the call returns. An
//! empty buffer has a null address, and creating it makes no driver call.
//!
//! | module | contents |
//! | --- | --- |
//! | [`buffer`] | [`DeviceBuffer`], which owns memory |
//! | [`mod@slice`] | [`DeviceSlice`] and [`DeviceSliceMut`], which borrow a range of a buffer |
//! | [`views`], [`tensor_map`] | views of elements as rows and planes, and as tensors |
//! | [`mapped`] | [`MappedBuffer`], host memory that kernels access |
//! | `foreign` | buffers over foreign memory, and conversions of buffers |
//! | `shared` | [`SharedMemory`], device memory that other devices and processes can map |
//! | `owners` | owners of foreign memory, dropped after its last use |
//! | `storage` | a buffer's untyped memory, and work enqueued on it |
//! | `large_pages` | requests for large pages for new host memory |
//! | `usage` | streams that may still use a buffer |
//! | [`allocator`] | the caching allocator |
//! | [`pinned`] | [`PinnedBuffer`], page-locked host memory for fast copies |
//! | [`options`] | allocator options |
//! | [`statistics`], `summary` | allocator statistics, and a table of them |

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

/// Free and total memory of a device, in bytes.
///
/// ```
/// use warpsmith_runtime::Device;
///
/// let info = Device::emulated(0)?.memory_info()?;
/// assert!(info.free <= info.total);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Memory that no process uses, in bytes.
    pub free: u64,
    /// Total memory, in bytes.
    pub total: u64,
}
