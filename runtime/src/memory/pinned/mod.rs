//! Page-locked host memory. Copies to and from it run at full speed and do not block the host.
//!
//! The memory of a dropped [`PinnedBuffer`] is not reused until every stream that was passed to
//! [`PinnedBuffer::record_use`] has finished all work that was enqueued on it before the drop. Dropping a buffer does
//! not wait for the device. Because locking pages is slow, memory is cached and reused. It is returned to the system by
//! [`PinnedMemory::empty_cache`], when memory is short, and when the device is closed.
//!
//! Rounding up adds at most an eighth to a size; sizes are not rounded up to powers of two. A cached block may serve a
//! request if the excess is at most a quarter of the request, or less than a page; blocks are never split.
//!
//! While a stream of a device is being captured into a graph, no events are queried or recorded on that device's
//! streams. Blocks that are dropped during the capture are kept until it ends.
//!
//! The locks of captures, pending blocks and events are acquired in this order. Independently of these locks, the
//! reserve's lock, the lock for emptying the cache, and a free list's lock are also acquired in this order. No driver
//! call is made while the lock of a free list or of the counters is held.
//!
//! | module | contents |
//! | --- | --- |
//! | [`buffer`] | [`PinnedBuffer`], which owns memory |
//! | [`range`] | [`PinnedRange`], a buffer with a selected range to copy |
//! | [`view`] | [`PinnedMemory`]: statistics, options, release of cached memory |
//! | `allocator` | allocation and release of buffers' memory |
//! | `store` | the blocks of one device; does not refer to the device |
//! | `classes` | size rounding |
//! | `cache` | free blocks, by size class |
//! | `reserve` | the segment that is allocated once, on first use |
//! | `pending` | blocks that wait for their streams |
//! | `events` | the positions in streams for which blocks wait |
//! | `background` | the thread that checks which blocks are no longer in use |
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
