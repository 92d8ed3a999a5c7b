//! Formats of snapshots that PyTorch 1.12 and later versions write, or that PyTorch's viewer creates.
//!
//! | source | format |
//! | --- | --- |
//! | `torch.cuda.memory_snapshot()` | a list of segments |
//! | 1.12 | blocks have neither addresses nor requests |
//! | 1.13 and 2.0 | blocks have a `history`, whose first entry is the request |
//! | 2.1 and later | blocks have addresses, requests and frames |
//! | `_memory_viz.py` from a profile | segments have no sums |

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize as Derive;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::text;
use super::{
    AllocatorSettings, Block, BlockState, Frame, Segment, SegmentType, Snapshot, TraceAction, TraceEntry,
};

/// Reads a value, or returns the default for a null value.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(data: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(data)?.unwrap_or_default())
}

/// A text in which invalid bytes are replaced by the replacement character.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(data: D) -> Result<Self, D::Error> {
        struct Lossy;
        impl Visitor<'_> for Lossy {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            // Lone surrogates in JSON are passed to this function as bytes. Python writes them for bytes that it could
            // not decode.
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(text::lossy(bytes).into_owned()))
            }
        }
        data.deserialize_byte_buf(Lossy)
    }
}

/// A number that may unexpectedly be negative, such as an unknown line or the pointer of a stream.
#[derive(Debug, Default, Derive)]
#[serde(transparent)]
struct Signed(i128);

impl Signed {
    /// Returns the bits of a pointer.
    fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Returns the number as `u32`; 0 if it is negative or too large.
    fn small(self) -> u32 {
        u32::try_from(self.0).unwrap_or(0)
    }
}

/// An entire snapshot: an object, or a list of segments.
#[derive(Default)]
pub(crate) struct AnySnapshot(Whole);

#[derive(Default, Derive)]
#[serde(expecting = "a snapshot")]
struct Whole {
    segments: Option<Vec<Segment>>,
    device_traces: Option<Vec<Option<Vec<TraceEntry>>>>,
    #[serde(default, deserialize_with = "or_default")]
    allocator_settings: AllocatorSettings,
}

impl<'de> Deserialize<'de> for AnySnapshot {
    fn deserialize<D: Deserializer<'de>>(data: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = AnySnapshot;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a snapshot")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<AnySnapshot, A::Error> {
                let segments = Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(list))?;
                Ok(AnySnapshot(Whole { segments: Some(segments), ..Whole::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnySnapshot, A::Error> {
                let whole = Whole::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                if whole.segments.is_none() && whole.device_traces.is_none() {
                    return Err(A::Error::missing_field("segments"));
                }
                Ok(AnySnapshot(whole))
            }
        }
        data.deserialize_any(Any)
    }
}

impl From<AnySnapshot> for Snapshot {
    fn from(AnySnapshot(whole): AnySnapshot) -> Self {
        let traces = whole.device_traces.unwrap_or_default();
        Snapshot {
            segments: whole.segments.unwrap_or_default(),
            device_traces: traces.into_iter().map(Option::unwrap_or_default).collect(),
            allocator_settings: whole.allocator_settings,
        }
    }
}

#[derive(Derive)]
#[serde(expecting = "a segment")]
pub(crate) struct AnySegment {
    #[serde(default, deserialize_with = "or_default")]
    device: Signed,
    #[serde(default, deserialize_with = "or_default")]
    address: u64,
    total_size: Option<u64>,
    allocated_size: Option<u64>,
    active_size: Option<u64>,
    requested_size: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    stream: Signed,
    #[serde(default, deserialize_with = "or_default")]
    segment_type: Text,
    #[serde(default, deserialize_with = "or_default")]
    segment_pool_id: (u64, u64),
    #[serde(default, deserialize_with = "or_default")]
    is_expandable: bool,
    #[serde(default, deserialize_with = "or_default")]
    frames: Vec<Frame>,
    blocks: Vec<AnyBlock>,
}

impl From<AnySegment> for Segment {
    fn from(any: AnySegment) -> Self {
        let mut next = any.address;
        let block = |block: AnyBlock| {
            let block = block.at(next);
            next = block.address.saturating_add(block.size);
            block
        };
        let blocks: Vec<Block> = any.blocks.into_iter().map(block).collect();
        let sum = |is_counted: fn(BlockState) -> bool, size: fn(&Block) -> u64| {
            blocks.iter().filter(|block| is_counted(block.state)).map(size).fold(0, u64::saturating_add)
        };
        let is_active = |state| state != BlockState::Inactive;
        Segment {
            device: any.device.small(),
            address: any.address,
            total_size: any.total_size.unwrap_or_else(|| sum(|_| true, |block| block.size)),
            allocated_size: any
                .allocated_size
                .unwrap_or_else(|| sum(|state| state == BlockState::ActiveAllocated, |block| block.size)),
            active_size: any.active_size.unwrap_or_else(|| sum(is_active, |block| block.size)),
            requested_size: any
                .requested_size
                .unwrap_or_else(|| sum(is_active, |block| block.requested_size)),
            stream: any.stream.bits(),
            segment_type: match any.segment_type.0.as_str() {
                "small" => SegmentType::Small,
                _ => SegmentType::Large,
            },
            segment_pool_id: any.segment_pool_id,
            is_expandable: any.is_expandable,
            frames: any.frames,
            blocks,
        }
    }
}

#[derive(Derive)]
#[serde(expecting = "a block")]
pub(crate) struct AnyBlock {
    address: Option<u64>,
    size: u64,
    requested_size: Option<u64>,
    state: BlockState,
    frames: Option<Vec<Frame>>,
    #[serde(default, deserialize_with = "or_default")]
    history: Vec<Request>,
}

/// A request for a block.
#[derive(Default, Derive)]
#[serde(expecting = "a request for a block")]
struct Request {
    real_size: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    frames: Vec<Frame>,
}

impl AnyBlock {
    /// Returns the block, placed at `next` if the snapshot does not record its address.
    fn at(self, next: u64) -> Block {
        // The first entry of the history is the most recent request.
        let request = self.history.into_iter().next().unwrap_or_default();
        let in_use = if self.state == BlockState::Inactive { 0 } else { self.size };
        Block {
            address: self.address.unwrap_or(next),
            size: self.size,
            requested_size: self
                .requested_size
                .unwrap_or_else(|| request.real_size.map_or(in_use, |size| size.min(in_use))),
            state: self.state,
            frames: self.frames.unwrap_or(request.frames),
        }
    }
}

impl From<AnyBlock> for Block {
    fn from(any: AnyBlock) -> Self {
        any.at(0)
    }
}

#[derive(Derive)]
#[serde(expecting = "a frame")]
pub(crate) struct AnyFrame {
    #[serde(default, deserialize_with = "or_default")]
    filename: Text,
    #[serde(default, deserialize_with = "or_default")]
    line: Signed,
    #[serde(default, deserialize_with = "or_default")]
    name: Text,
}

impl From<AnyFrame> for Frame {
    fn from(any: AnyFrame) -> Self {
        Frame { filename: any.filename.0, line: any.line.small(), name: any.name.0 }
    }
}

#[derive(Derive)]
#[serde(expecting = "an entry of a history")]
pub(crate) struct AnyEntry {
    action: TraceAction,
    addr: Option<u64>,
    device_free: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    size: u64,
    #[serde(default, deserialize_with = "or_default")]
    stream: Signed,
    #[serde(default, deserialize_with = "or_default")]
    time_us: i64,
    #[serde(default, deserialize_with = "or_default")]
    frames: Vec<Frame>,
    #[serde(default, deserialize_with = "or_default")]
    pool_id: (u64, u64),
}

impl From<AnyEntry> for TraceEntry {
    fn from(any: AnyEntry) -> Self {
        TraceEntry {
            action: any.action,
            addr: any.addr.or(any.device_free).unwrap_or(0),
            size: any.size,
            stream: any.stream.bits(),
            time_us: any.time_us,
            frames: any.frames,
            pool_id: any.pool_id,
        }
    }
}

/// Allocator settings. Each of them may have any type.
#[derive(Derive)]
#[serde(transparent)]
pub(crate) struct AnySettings(BTreeMap<Text, Setting>);

enum Setting {
    None,
    Number(i128),
    Float(f64),
    Text(String),
    Numbers(BTreeMap<String, i64>),
}

impl Setting {
    fn number(&self) -> Option<i64> {
        match *self {
            Setting::Number(number) => i64::try_from(number).ok(),
            Setting::Float(number) => Some(number as i64),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(data: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Setting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a setting")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Setting, E> {
                Ok(Setting::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Setting, E> {
                Ok(Setting::Number(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Setting, E> {
                Ok(Setting::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Setting, E> {
                Ok(Setting::Float(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Setting, E> {
                Ok(Setting::Text(value.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Setting, E> {
                Ok(Setting::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Setting, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Setting::None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Setting, A::Error> {
                let mut numbers = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<Text, Setting>()? {
                    numbers.extend(value.number().map(|value| (key.0, value)));
                }
                Ok(Setting::Numbers(numbers))
            }
        }
        data.deserialize_any(Any)
    }
}

impl From<AnySettings> for AllocatorSettings {
    fn from(AnySettings(settings): AnySettings) -> Self {
        let mut read = AllocatorSettings::default();
        for (key, value) in settings {
            let number = value.number();
            match (key.0.as_str(), value) {
                ("PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF", Setting::Text(text)) => {
                    read.alloc_conf = text
                }
                ("max_split_size", _) => read.max_split_size = number.unwrap_or(read.max_split_size),
                ("garbage_collection_threshold", Setting::Float(share)) => {
                    read.garbage_collection_threshold = share;
                }
                ("garbage_collection_threshold", Setting::Number(share)) => {
                    read.garbage_collection_threshold = share as f64;
                }
                ("expandable_segments", _) => {
                    read.expandable_segments = number.is_some_and(|number| number != 0)
                }
                ("roundup_power2_divisions", Setting::Numbers(numbers)) => {
                    read.roundup_power2_divisions = numbers
                }
                ("max_round_threshold", _) => {
                    read.max_round_threshold = number.unwrap_or(read.max_round_threshold);
                }
                ("max_cached_size", _) => read.max_cached_size = number.unwrap_or(read.max_cached_size),
                _ => {}
            }
        }
        read
    }
}
