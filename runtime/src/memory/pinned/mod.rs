//! Page-locked host memory, for copies that run at full bandwidth and do not block the host.
//!
//! Dropping a [`PinnedBuffer`] does not wait for the device. Its memory is reused once every stream passed to
//! [`PinnedBuffer::record_use`] has finished all work enqueued before the drop. Because page-locking is slow, memory is
//! cached. It is returned to the system by [`PinnedMemory::empty_cache`], when memory runs out, and when the device is
//! closed.
//!
//! Rounding up to a size class adds at most an eighth. A cached block may serve a request if the excess is at most a
//! quarter of the request, or less than a page; blocks are never split.
//!
//! During a capture on a device, no events are queried or recorded on the device's streams. Blocks dropped during the
//! capture are kept until it ends.
//!
//! There are two independent lock orders: captures, pending blocks, events; and reserve, emptying of the cache, free
//! lists. No driver call is made while a free list or the counters are locked.
//!
//! | module | contents |
//! | --- | --- |
//! | [`buffer`] | [`PinnedBuffer`], which owns memory |
//! | [`range`] | [`PinnedRange`], a range of a buffer to copy |
//! | [`view`] | [`PinnedMemory`]: statistics, options, release of cached memory |
//! | `allocator` | allocation and release of memory |
//! | `store` | the blocks of one device |
//! | `classes` | size rounding |
//! | `cache` | free blocks, by size class |
//! | `reserve` | the segment allocated on first use |
//! | `pending` | blocks that wait for their streams |
//! | `events` | stream positions for which blocks wait |
//! | `background` | the thread that reclaims blocks |
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
