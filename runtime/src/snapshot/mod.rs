//! Snapshots of device memory: the blocks of every segment, and the preceding history.
//!
//! The types mirror PyTorch's snapshots, so PyTorch's viewers can read the files. Viewers rely on the following rules
//! for a [`Snapshot`]:
//!
//! - The blocks of a segment are in address order and fill it: their sizes add up to `total_size`, and no block's
//!   `requested_size` exceeds its `size`.
//! - `device_traces` contains one list per device, in ordinal order, each oldest entry first. A missing list of a
//!   device with segments is written as an empty list.
//! - A `free_requested` is followed by a `free_completed` for the same address, unless the block is still
//!   [`BlockState::ActivePendingFree`].
//! - Frames are listed innermost first.
//!
//! # Example
//!
//! ```
//! use warpsmith_runtime::snapshot::BlockState;
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! let device = Device::emulated(0)?;
//! let buffer = DeviceBuffer::<u8>::uninit(&device.default_stream(), 1000)?;
//! let snapshot = device.memory().snapshot();
//! let segment = &snapshot.segments[0];
//! let block = &segment.blocks[0];
//! assert_eq!((block.address, block.requested_size, block.size), (buffer.as_device_ptr().0, 1000, 1024));
//! assert_eq!(block.state, BlockState::ActiveAllocated);
//! assert_eq!((snapshot.allocated(), snapshot.reserved()), (1024, segment.total_size));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `file` | writes files |
//! | `write` | writes a snapshot as a pickle |

mod file;
mod write;

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use crate::error::SnapshotError;

/// Memory state of all devices at one point in time, with the preceding history.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Segments, sorted by device and address.
    pub segments: Vec<Segment>,
    /// History of each device, indexed by ordinal, oldest entry first; empty if no history was recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// Settings of the allocator.
    pub allocator_settings: AllocatorSettings,
}

/// Memory allocated from the device by one call, and its blocks.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Ordinal of the device.
    pub device: u32,
    /// Start address.
    pub address: u64,
    /// Size of the segment in bytes.
    pub total_size: u64,
    /// Bytes in blocks in use.
    pub allocated_size: u64,
    /// Bytes in active blocks, which are in use or pending free.
    pub active_size: u64,
    /// Bytes requested for active blocks, before rounding.
    pub requested_size: u64,
    /// Stream that owns the memory; 0 is the default stream.
    pub stream: u64,
    /// The class of request sizes that the segment serves.
    pub segment_type: SegmentType,
    /// ID of the pool: (0, 0) is the default pool, (0, n) a pool created by the program, (n, 0) the pool of a graph.
    pub segment_pool_id: (u64, u64),
    /// True if the segment can grow in place.
    pub is_expandable: bool,
    /// Call stack of the allocation.
    pub frames: Vec<Frame>,
    /// Blocks in address order, without gaps.
    pub blocks: Vec<Block>,
}

/// The class of request sizes that a segment serves.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentType {
    /// Small requests.
    Small,
    /// Large requests.
    #[default]
    Large,
}

/// A range of a segment that is allocated and freed as a unit.
///
/// See the [example](self#example).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Start address.
    pub address: u64,
    /// Size of the block in bytes.
    pub size: u64,
    /// Requested size in bytes, at most `size`; 0 for a free block.
    pub requested_size: u64,
    /// State of the block.
    pub state: BlockState,
    /// Call stack of the request; empty if not recorded.
    pub frames: Vec<Frame>,
}

/// State of a block.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Freed, but possibly still in use by work on a stream.
    ActivePendingFree,
    /// Free.
    Inactive,
}

/// A source location.
///
/// A [snapshot](crate::Memory::snapshot) contains frames if a [history](crate::Memory::record_history) is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// Source file.
    pub filename: String,
    /// Line number, starting at 1; 0 if unknown.
    pub line: u32,
    /// Function name.
    pub name: String,
}

/// An allocator operation.
///
/// ```
/// use warpsmith_runtime::snapshot::{TraceAction, TraceEntry};
///
/// let entry = TraceEntry {
///     action: TraceAction::Oom,
///     addr: 4096,
///     size: 1 << 20,
///     stream: 0,
///     time_us: 0,
///     frames: Vec::new(),
///     pool_id: (0, 0),
/// };
/// let json = serde_json::to_value(&entry)?;
/// assert_eq!((json["action"].as_str(), json["device_free"].as_u64()), (Some("oom"), Some(4096)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEntry {
    /// Kind of the operation.
    pub action: TraceAction,
    /// Address; for [`TraceAction::Oom`], the number of free bytes on the device.
    pub addr: u64,
    /// Size in bytes.
    pub size: u64,
    /// Stream.
    pub stream: u64,
    /// Time in microseconds since the Unix epoch.
    pub time_us: i64,
    /// Call stack of the operation; empty if not recorded.
    pub frames: Vec<Frame>,
    /// Pool ID, as in [`Segment::segment_pool_id`].
    pub pool_id: (u64, u64),
}

impl Serialize for TraceEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = serializer.serialize_struct("TraceEntry", 7)?;
        entry.serialize_field("action", &self.action)?;
        let address = if self.action == TraceAction::Oom { "device_free" } else { "addr" };
        entry.serialize_field(address, &self.addr)?;
        entry.serialize_field("size", &self.size)?;
        entry.serialize_field("stream", &self.stream)?;
        entry.serialize_field("time_us", &self.time_us)?;
        entry.serialize_field("frames", &self.frames)?;
        entry.serialize_field("pool_id", &self.pool_id)?;
        entry.end()
    }
}

/// Kind of allocator operation.
///
/// See the example of [`TraceEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceAction {
    /// Allocated a block.
    Alloc,
    /// Received a free request for a block.
    FreeRequested,
    /// Made a freed block available for later requests.
    FreeCompleted,
    /// Allocated a segment from the device.
    SegmentAlloc,
    /// Returned a segment to the device.
    SegmentFree,
    /// Mapped memory into an expandable segment.
    SegmentMap,
    /// Unmapped memory from an expandable segment.
    SegmentUnmap,
    /// Ran out of memory; `size` is the size of the request.
    Oom,
}

/// Settings of the allocator, under PyTorch's names.
///
/// ```
/// use warpsmith_runtime::snapshot::AllocatorSettings;
///
/// let json = serde_json::to_value(AllocatorSettings::default())?;
/// assert_eq!(json["max_split_size"].as_i64(), Some(-1));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AllocatorSettings {
    /// The option string set last.
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    pub alloc_conf: String,
    /// Size in bytes from which blocks are not split; -1 for no limit.
    pub max_split_size: i64,
    /// Fraction of the allowed memory above which unused segments are released; 0 disables this.
    pub garbage_collection_threshold: f64,
    /// True if segments can grow in place.
    pub expandable_segments: bool,
    /// Number of rounding steps between two consecutive powers of two, keyed by size in MiB.
    pub roundup_power2_divisions: BTreeMap<String, i64>,
    /// Size in bytes above which requests for page-locked memory are not rounded up to a size class; -1 for no limit.
    pub max_round_threshold: i64,
    /// Size in bytes above which page-locked memory is not cached; -1 for no limit.
    pub max_cached_size: i64,
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        Self {
            alloc_conf: String::new(),
            max_split_size: -1,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            roundup_power2_divisions: BTreeMap::new(),
            max_round_threshold: -1,
            max_cached_size: -1,
        }
    }
}

impl Snapshot {
    /// Returns the number of bytes allocated from the devices.
    pub fn reserved(&self) -> u64 {
        self.total(|segment| segment.total_size)
    }

    /// Returns the total size of blocks in use, in bytes.
    pub fn allocated(&self) -> u64 {
        self.total(|segment| segment.allocated_size)
    }

    /// Returns the total size of active blocks, in bytes.
    pub fn active(&self) -> u64 {
        self.total(|segment| segment.active_size)
    }

    /// Returns the number of bytes requested for active blocks, before rounding.
    pub fn requested(&self) -> u64 {
        self.total(|segment| segment.requested_size)
    }

    fn total(&self, of: impl Fn(&Segment) -> u64) -> u64 {
        self.segments.iter().map(of).sum()
    }
}
