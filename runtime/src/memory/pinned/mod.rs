//! Page-locked host memory: copies to and from it run at full speed and without the host waiting.
//!
//! Guarantees: memory of a dropped [`PinnedBuffer`] is not reused before everything that
//! was enqueued until the drop has run on every stream that [`PinnedBuffer::record_use`] named. Dropping a
//! buffer does not wait for the device. Locking pages is slow, so memory is kept and reused; it
//! returns to the system with [`PinnedMemory::empty_cache`], when memory is short, and with the device.
//!
//! Sizes are rounded up by at most an eighth, not to a power of two. A cached block is allocated for a
//! request that leaves at most a quarter of the request unused, or less than a page; blocks are never split.
//!
//! While a stream of a device is captured into a graph, nothing is queried or recorded on that device's
//! streams: what is dropped meanwhile is kept until the capture ends.
//!
//! Locks, each taken before those after it: captures, pending, events; and the reserve, emptying the cache, a
//! free list. No driver call is made under the lock of a free list or of the counters.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`buffer`] | [`PinnedBuffer`], which owns memory |
//! | [`range`] | [`PinnedRange`], a buffer with a range of it to copy |
//! | [`view`] | [`PinnedMemory`]: statistics, options, emptying the cache |
//! | `allocator` | where buffers get their memory and bring it back |
//! | `store` | the blocks of one device, without the device |
//! | `classes` | how sizes are rounded |
//! | `cache` | free blocks, by class |
//! | `reserve` | the segment that is locked once |
//! | `pending` | blocks that wait for their streams |
//! | `events` | the marks they wait for |
//! | `background` | the thread that looks for done ones |
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
