//! How the types look in a file where that is not what their definitions say.
//!
//! Guarantees: what old files lack is worked out, the addresses of blocks from their sizes and the sums of a
//! segment from its blocks. Lists of the history of host memory are taken in either of their forms.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Block, BlockState, Frame, Segment, SegmentType, TraceAction, TraceEntry};

/// Reads a number that some writers give as -1 when they do not know it.
pub(super) fn natural<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = i64::deserialize(deserializer)?;
    Ok(u32::try_from(value.max(0)).unwrap_or(u32::MAX))
}

/// Reads one history, or a list of them, as one.
pub(super) fn flat_or_nested<'de, D>(deserializer: D) -> Result<Vec<TraceEntry>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut entries = Vec::new();
    for item in Vec::<OneOrMore>::deserialize(deserializer)? {
        match item {
            OneOrMore::One(entry) => entries.push(entry),
            OneOrMore::More(list) => entries.extend(list),
        }
    }
    Ok(entries)
}

/// An entry of a history, or a list of them. An untagged enum would keep all of what it reads before it looks.
enum OneOrMore {
    One(TraceEntry),
    More(Vec<TraceEntry>),
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an entry of a history or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMore, A::Error> {
                TraceEntry::deserialize(MapAccessDeserializer::new(map)).map(OneOrMore::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMore, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMore::More)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A segment as files have it.
#[derive(Deserialize)]
#[serde(expecting = "a segment")]
pub(super) struct SegmentIn {
    #[serde(default, deserialize_with = "natural")]
    device: u32,
    #[serde(default)]
    address: u64,
    #[serde(alias = "size")]
    total_size: u64,
    allocated_size: Option<u64>,
    active_size: Option<u64>,
    requested_size: Option<u64>,
    #[serde(default)]
    stream: u64,
    #[serde(default)]
    segment_type: SegmentType,
    #[serde(default)]
    segment_pool_id: (u64, u64),
    #[serde(default)]
    is_expandable: bool,
    #[serde(default = "unregistered")]
    registration_counter: i64,
    #[serde(default)]
    frames: Vec<Frame>,
    #[serde(default)]
    blocks: Vec<BlockIn>,
}

fn unregistered() -> i64 {
    -1
}

impl From<SegmentIn> for Segment {
    fn from(from: SegmentIn) -> Self {
        let mut next = from.address;
        let mut blocks = Vec::with_capacity(from.blocks.len());
        for block in from.blocks {
            let address = block.address.unwrap_or(next);
            next = address.saturating_add(block.size);
            blocks.push(Block::from(BlockIn { address: Some(address), ..block }));
        }
        let sum = |of: fn(&Block) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
        let in_use = |block: &Block| if block.state == BlockState::ActiveAllocated { block.size } else { 0 };
        let active = |block: &Block| if block.state == BlockState::Inactive { 0 } else { block.size };
        let asked =
            |block: &Block| if block.state == BlockState::Inactive { 0 } else { block.requested_size };
        Segment {
            device: from.device,
            address: from.address,
            total_size: from.total_size,
            allocated_size: from.allocated_size.unwrap_or_else(|| sum(in_use)),
            active_size: from.active_size.unwrap_or_else(|| sum(active)),
            requested_size: from.requested_size.unwrap_or_else(|| sum(asked)),
            stream: from.stream,
            segment_type: from.segment_type,
            segment_pool_id: from.segment_pool_id,
            is_expandable: from.is_expandable,
            registration_counter: from.registration_counter,
            frames: from.frames,
            blocks,
        }
    }
}

/// A block as files have it.
#[derive(Deserialize)]
#[serde(expecting = "a block")]
pub(super) struct BlockIn {
    address: Option<u64>,
    size: u64,
    requested_size: Option<u64>,
    state: BlockState,
    #[serde(default)]
    frames: Vec<Frame>,
}

impl From<BlockIn> for Block {
    fn from(from: BlockIn) -> Self {
        let whole = if from.state == BlockState::Inactive { 0 } else { from.size };
        Block {
            address: from.address.unwrap_or(0),
            size: from.size,
            requested_size: from.requested_size.unwrap_or(whole),
            state: from.state,
            frames: from.frames,
        }
    }
}

/// An entry of a history as files have it.
#[derive(Deserialize)]
#[serde(expecting = "an entry of a history")]
pub(super) struct TraceIn {
    action: TraceAction,
    #[serde(alias = "device_free", default)]
    addr: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stream: u64,
    #[serde(default)]
    time_us: i64,
    #[serde(default)]
    frames: Vec<Frame>,
    #[serde(default)]
    pool_id: (u64, u64),
}

impl From<TraceIn> for TraceEntry {
    fn from(from: TraceIn) -> Self {
        let TraceIn { action, addr, size, stream, time_us, frames, pool_id } = from;
        TraceEntry { action, addr, size, stream, time_us, frames, pool_id }
    }
}

impl Serialize for TraceEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = serializer.serialize_struct("TraceEntry", 7)?;
        entry.serialize_field("action", &self.action)?;
        entry.serialize_field(self.action.address_key(), &self.addr)?;
        entry.serialize_field("size", &self.size)?;
        entry.serialize_field("stream", &self.stream)?;
        entry.serialize_field("time_us", &self.time_us)?;
        entry.serialize_field("frames", &self.frames)?;
        entry.serialize_field("pool_id", &self.pool_id)?;
        entry.end()
    }
}

impl TraceAction {
    /// The key of [`TraceEntry::addr`].
    pub(super) fn address_key(self) -> &'static str {
        if self == TraceAction::Oom { "device_free" } else { "addr" }
    }
}
