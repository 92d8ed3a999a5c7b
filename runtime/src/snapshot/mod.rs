//! Snapshots of device memory: the contents of every segment, and the history before.
//!
//! The types have the shape and the keys of PyTorch's snapshots, so that PyTorch's viewers and this crate read each
//! other's files. Viewers rely on these rules for the writer of a [`Snapshot`]:
//!
//! - The blocks of a segment are in the order of their addresses and fill it: their sizes add up to `total_size`, and
//!   no block is larger than its `size` says.
//! - `device_traces` has one list per device, by ordinal, oldest entry first. Missing lists of devices with segments
//!   are written as empty ones.
//! - A `free_requested` is followed by the `free_completed` of the same address, or the block still is
//!   [`BlockState::ActivePendingFree`].
//! - Frames are listed innermost first.
//!
//! Files that PyTorch has written since 1.12 can be read, as pickles of any protocol or as JSON, compressed or not.
//! Unknown keys are ignored, and missing ones have their default. The default address of a block is the end of the
//! block before it. The default of a sum is computed from the blocks.
//!
//! | module | contents |
//! | --- | --- |
//! | `file` | reading and writing files |
//! | `write` | a snapshot as a pickle |
//! | `forms` | the formats of other versions |
//! | `text` | texts as Python writes them |
//! | `machine`, `data` | running a pickle, which creates values; the values as serde data |
//! | `opcode` | the operations of pickles |

mod data;
mod file;
mod forms;
mod machine;
mod opcode;
mod text;
mod write;

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

pub use crate::error::SnapshotError;

/// The state of the memory of all devices at one moment, and the history that led to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "forms::AnySnapshot")]
pub struct Snapshot {
    /// The segments, by device and address.
    pub segments: Vec<Segment>,
    /// History of each device, by ordinal, oldest entry first; empty if none was recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings of the allocator.
    pub allocator_settings: AllocatorSettings,
}

/// Memory that was allocated from the device in one piece, and its blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "forms::AnySegment")]
pub struct Segment {
    /// The ordinal of the device.
    pub device: u32,
    /// The first address.
    pub address: u64,
    /// Size of the segment in bytes.
    pub total_size: u64,
    /// Bytes of blocks that are in use.
    pub allocated_size: u64,
    /// Bytes of blocks that are in use or waiting to become free.
    pub active_size: u64,
    /// Bytes requested, before rounding, of blocks that are in use or waiting to become free.
    pub requested_size: u64,
    /// The stream that the memory belongs to; 0 is the default stream.
    pub stream: u64,
    /// Request sizes for which the segment is used.
    pub segment_type: SegmentType,
    /// ID of the pool: (0, 0) is the default pool, (0, n) a pool that the program created, (n, 0) the pool of a graph.
    pub segment_pool_id: (u64, u64),
    /// True if the segment can grow in place.
    pub is_expandable: bool,
    /// The stack of the allocating call.
    pub frames: Vec<Frame>,
    /// The blocks, by address, without gaps.
    pub blocks: Vec<Block>,
}

/// Request sizes for which a segment is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentType {
    /// Small requests.
    Small,
    /// Large requests.
    #[default]
    Large,
}

impl SegmentType {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            SegmentType::Small => "small",
            SegmentType::Large => "large",
        }
    }
}

/// A part of a segment that is allocated or free as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "forms::AnyBlock")]
pub struct Block {
    /// The first address.
    pub address: u64,
    /// Size of the block in bytes.
    pub size: u64,
    /// Bytes requested; at most `size`, 0 for a free block.
    pub requested_size: u64,
    /// State of the block.
    pub state: BlockState,
    /// The stack of the requesting call; empty if it was not recorded.
    pub frames: Vec<Frame>,
}

/// State of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Freed, but work on a stream may still use it.
    #[serde(alias = "active_awaiting_free")]
    ActivePendingFree,
    /// Free.
    Inactive,
}

/// A source location.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "forms::AnyFrame")]
pub struct Frame {
    /// The file.
    pub filename: String,
    /// The line, starting at 1; 0 if unknown.
    pub line: u32,
    /// The function.
    pub name: String,
}

/// An operation of the allocator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "forms::AnyEntry")]
pub struct TraceEntry {
    /// Kind of the operation.
    pub action: TraceAction,
    /// The address; for [`TraceAction::Oom`] the bytes that the device still had free.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// Time in microseconds since 1970.
    pub time_us: i64,
    /// The stack of the call that caused the operation; empty if it was not recorded.
    pub frames: Vec<Frame>,
    /// The pool, as in [`Segment::segment_pool_id`].
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

/// Kind of an operation of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceAction {
    /// Allocated a block.
    Alloc,
    /// Received a request to free a block.
    FreeRequested,
    /// Made a freed block available for later requests.
    FreeCompleted,
    /// Took a segment from the device.
    SegmentAlloc,
    /// Returned a segment to the device.
    SegmentFree,
    /// Mapped memory behind a part of an expandable segment.
    SegmentMap,
    /// Unmapped the memory behind a part of an expandable segment.
    SegmentUnmap,
    /// Took a snapshot.
    Snapshot,
    /// Ran out of memory; `size` is the request.
    Oom,
    /// Recorded something about a block in use.
    Annotate,
    /// An operation that is unknown to this version.
    #[serde(other)]
    Other,
}

impl TraceAction {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            TraceAction::Alloc => "alloc",
            TraceAction::FreeRequested => "free_requested",
            TraceAction::FreeCompleted => "free_completed",
            TraceAction::SegmentAlloc => "segment_alloc",
            TraceAction::SegmentFree => "segment_free",
            TraceAction::SegmentMap => "segment_map",
            TraceAction::SegmentUnmap => "segment_unmap",
            TraceAction::Snapshot => "snapshot",
            TraceAction::Oom => "oom",
            TraceAction::Annotate => "annotate",
            TraceAction::Other => "other",
        }
    }
}

/// The settings of the allocator, with PyTorch's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "forms::AnySettings")]
pub struct AllocatorSettings {
    /// The settings as they were last set.
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    pub alloc_conf: String,
    /// Size in bytes of the largest block that is split; -1 for any.
    pub max_split_size: i64,
    /// Fraction of the allowed memory above which unused segments are freed; 0 for never.
    pub garbage_collection_threshold: f64,
    /// True if segments can grow in place.
    pub expandable_segments: bool,
    /// Number of steps to which sizes between two powers of two are rounded, by size in MiB.
    pub roundup_power2_divisions: BTreeMap<String, i64>,
    /// Page-locked memory: the size in bytes above which sizes are not rounded; -1 for none.
    pub max_round_threshold: i64,
    /// Page-locked memory: the size in bytes above which memory is not cached; -1 for none.
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
    /// Bytes that were allocated from the devices.
    pub fn reserved(&self) -> u64 {
        self.total(|segment| segment.total_size)
    }

    /// Bytes of blocks in use.
    pub fn allocated(&self) -> u64 {
        self.total(|segment| segment.allocated_size)
    }

    /// Bytes of blocks in use or waiting to become free.
    pub fn active(&self) -> u64 {
        self.total(|segment| segment.active_size)
    }

    /// Bytes requested, before rounding.
    pub fn requested(&self) -> u64 {
        self.total(|segment| segment.requested_size)
    }

    // A damaged file can claim any sizes.
    fn total(&self, of: impl Fn(&Segment) -> u64) -> u64 {
        self.segments.iter().map(of).fold(0, u64::saturating_add)
    }
}
