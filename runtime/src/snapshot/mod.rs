//! Snapshots of device memory: what every segment holds, and what happened before.
//!
//! The types have the shape and the keys of PyTorch's snapshots, so that its viewers read ours and this crate reads its.
//! The rules for a writer of a [`Snapshot`], on which viewers rely:
//!
//! - The blocks of a segment stand in the order of their addresses and fill it: their sizes add up to
//!   `total_size`, and no block is larger than its `size` says.
//! - `device_traces` has one list for each device, by ordinal, oldest entry first. Lists that are missing for a
//!   device with segments are written as empty ones.
//! - After a `free_requested` comes the `free_completed` of the same address, or the block still is
//!   [`BlockState::ActivePendingFree`].
//! - Frames stand innermost first.
//!
//! Files that PyTorch has written since 1.12 can be read, as pickles of any protocol or as JSON, compressed or not: unknown
//! keys are ignored, missing ones have their default. The address of a block is by default where the block before it ends,
//! a sum is that of the blocks.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `file` | reading and writing files |
//! | `write` | a snapshot as a pickle |
//! | `forms` | the forms of other versions |
//! | `text` | texts as Python writes them |
//! | `machine`, `data` | running a pickle, which gives values; those values as serde's data |
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

pub use self::file::SnapshotError;

/// The state of the memory of all devices at one moment, and the history that led to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "forms::AnySnapshot")]
pub struct Snapshot {
    /// The segments, by device and address.
    pub segments: Vec<Segment>,
    /// For each device, by ordinal, its history, oldest entry first; empty where none was recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings of the allocator.
    pub allocator_settings: AllocatorSettings,
}

/// Memory that was taken from the device in one piece, and its blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "forms::AnySegment")]
pub struct Segment {
    /// The ordinal of the device.
    pub device: u32,
    /// The first address.
    pub address: u64,
    /// Bytes of the segment.
    pub total_size: u64,
    /// Bytes of blocks that are in use.
    pub allocated_size: u64,
    /// Bytes of blocks that are in use or wait to become free.
    pub active_size: u64,
    /// Bytes requested, before rounding, of blocks that are in use or wait to become free.
    pub requested_size: u64,
    /// The stream that the memory belongs to; 0 is the default stream.
    pub stream: u64,
    /// For which sizes of request the segment is.
    pub segment_type: SegmentType,
    /// The pool: (0, 0) the default one, (0, n) one that the program made, (n, 0) one of a graph.
    pub segment_pool_id: (u64, u64),
    /// Whether the segment can grow in place.
    pub is_expandable: bool,
    /// The stack of the allocating call.
    pub frames: Vec<Frame>,
    /// The blocks, by address, without gaps.
    pub blocks: Vec<Block>,
}

/// For which sizes of request a segment is.
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
    /// Its name in files.
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
    /// Bytes of the block.
    pub size: u64,
    /// Bytes requested; at most `size`, 0 for a free block.
    pub requested_size: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// The stack of the requesting call; empty when it was not recorded.
    pub frames: Vec<Frame>,
}

/// Whether a block is in use.
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

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "forms::AnyFrame")]
pub struct Frame {
    /// The file.
    pub filename: String,
    /// The line, from 1; 0 when unknown.
    pub line: u32,
    /// The function.
    pub name: String,
}

/// Something that the allocator did.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "forms::AnyEntry")]
pub struct TraceEntry {
    /// Its kind.
    pub action: TraceAction,
    /// The address; for [`TraceAction::Oom`] the bytes that the device still had free.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// The stack of the call that caused it; empty when it was not recorded.
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

/// The operation of the allocator.
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
    /// Noted something about a block in use.
    Annotate,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

impl TraceAction {
    /// Its name in files.
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

/// The settings of the allocator, by PyTorch's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "forms::AnySettings")]
pub struct AllocatorSettings {
    /// The settings as they were last given.
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    pub alloc_conf: String,
    /// The largest block in bytes that is split; -1 for any.
    pub max_split_size: i64,
    /// The share of the allowed memory above which unused segments are freed; 0 for never.
    pub garbage_collection_threshold: f64,
    /// Whether segments can grow in place.
    pub expandable_segments: bool,
    /// Into how many steps sizes between two powers of two are rounded, by size in MiB.
    pub roundup_power2_divisions: BTreeMap<String, i64>,
    /// Page-locked memory: the size in bytes above which nothing is rounded; -1 for none.
    pub max_round_threshold: i64,
    /// Page-locked memory: the size in bytes above which nothing is kept for later; -1 for none.
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
    /// Bytes that were taken from the devices.
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
