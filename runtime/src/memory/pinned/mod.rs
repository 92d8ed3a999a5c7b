//! Page-locked host memory. Copies to and from it run at full speed and do not block the host.
//!
//! Guarantees: memory of a dropped [`PinnedBuffer`] is not reused before all work that was enqueued before the drop has
//! run, on every stream that was passed to [`PinnedBuffer::record_use`]. Dropping a buffer does not wait for the
//! device. Because locking pages is slow, memory is cached and reused. It returns to the system with
//! [`PinnedMemory::empty_cache`], when memory is short, and when the device is closed.
//!
//! Sizes are rounded up by at most an eighth, not to a power of two. A cached block may serve a request if the excess
//! is at most a quarter of the request, or less than a page; blocks are never split.
//!
//! While a stream of a device is being captured into a graph, no events are queried or recorded on that device's
//! streams. Blocks that are dropped meanwhile are kept until the capture ends.
//!
//! The lock order is captures, pending, events; and separately, the reserve, emptying the cache, a free list. No driver
//! call occurs under the lock of a free list or of the counters.
//!
//! | module | contents |
//! | --- | --- |
//! | [`buffer`] | [`PinnedBuffer`], which owns memory |
//! | [`range`] | [`PinnedRange`], a buffer with a selected range to copy |
//! | [`view`] | [`PinnedMemory`]: statistics, options, release of cached memory |
//! | `allocator` | allocation and release of buffers' memory |
//! | `store` | the blocks of one device, without a reference to the device |
//! | `classes` | size rounding |
//! | `cache` | free blocks, by class |
//! | `reserve` | the segment that is locked once, on first use |
//! | `pending` | blocks that wait for their streams |
//! | `events` | the stream marks for which blocks wait |
//! | `background` | the thread that checks for done blocks |
//! | `counters` | statistics and the limit |

pub(crate) mod allocator;
mod background;
pub mod buffer;
mod cache;
mod classes;
mod counters;
mod events;
mod pending;
pub mod range;
mod reserve;
mod store;
pub mod view;

pub use self::buffer::PinnedBuffer;
pub use self::range::PinnedRange;
pub use self::view::PinnedMemory;
