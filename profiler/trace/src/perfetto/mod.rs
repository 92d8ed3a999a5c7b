//! Perfetto's protobuf format, which <https://ui.perfetto.dev> opens.
//!
//! Every track is a packet sequence of its own: its clock counts increments, its texts are interned, and its packets name
//! neither track nor clock, so that a slice takes a few tens of bytes. Slices of one track must nest; those that do not
//! get a lane, a track below it. What a track is stands as JSON in its description, from which the reader has it.

mod describe;
mod read;
mod sequence;
mod write;

pub(crate) use self::read::read;
pub use self::write::PerfettoWriter;

use serde::{Deserialize, Serialize};

use crate::definitions::{Counter, Device, Loss, Stream, Thread};
use crate::event::Track;

/// Field numbers, as in Perfetto's `.proto` files.
mod field {
    pub(super) mod trace {
        pub(in super::super) const PACKET: u32 = 1;
    }
    pub(super) mod packet {
        pub(in super::super) const CLOCK_SNAPSHOT: u32 = 6;
        pub(in super::super) const TIMESTAMP: u32 = 8;
        pub(in super::super) const SEQUENCE: u32 = 10;
        pub(in super::super) const TRACK_EVENT: u32 = 11;
        pub(in super::super) const INTERNED_DATA: u32 = 12;
        pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
        pub(in super::super) const TIMESTAMP_CLOCK: u32 = 58;
        pub(in super::super) const DEFAULTS: u32 = 59;
        pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;
    }
    pub(super) mod clocks {
        pub(in super::super) const CLOCK: u32 = 1;
        pub(in super::super) const ID: u32 = 1;
        pub(in super::super) const TIMESTAMP: u32 = 2;
        pub(in super::super) const IS_INCREMENTAL: u32 = 3;
    }
    pub(super) mod defaults {
        pub(in super::super) const TRACK_EVENT: u32 = 11;
        pub(in super::super) const TRACK: u32 = 11;
    }
    pub(super) mod event {
        pub(in super::super) const CATEGORY: u32 = 3;
        pub(in super::super) const ANNOTATION: u32 = 4;
        pub(in super::super) const KIND: u32 = 9;
        pub(in super::super) const NAME: u32 = 10;
        pub(in super::super) const TRACK: u32 = 11;
        pub(in super::super) const DOUBLE_VALUE: u32 = 44;
        pub(in super::super) const FLOW: u32 = 47;
    }
    pub(super) mod annotation {
        pub(in super::super) const NAME: u32 = 1;
        pub(in super::super) const UINT: u32 = 3;
        pub(in super::super) const INT: u32 = 4;
        pub(in super::super) const DOUBLE: u32 = 5;
        pub(in super::super) const TEXT: u32 = 17;
    }
    pub(super) mod interned {
        pub(in super::super) const CATEGORY: u32 = 1;
        pub(in super::super) const NAME: u32 = 2;
        pub(in super::super) const KEY: u32 = 3;
        pub(in super::super) const TEXT: u32 = 29;
        pub(in super::super) const ID: u32 = 1;
        pub(in super::super) const VALUE: u32 = 2;
    }
    pub(super) mod track {
        pub(in super::super) const UUID: u32 = 1;
        pub(in super::super) const NAME: u32 = 2;
        pub(in super::super) const PROCESS: u32 = 3;
        pub(in super::super) const THREAD: u32 = 4;
        pub(in super::super) const PARENT: u32 = 5;
        pub(in super::super) const COUNTER: u32 = 8;
        pub(in super::super) const DESCRIPTION: u32 = 14;
    }
    pub(super) mod process {
        pub(in super::super) const PID: u32 = 1;
        pub(in super::super) const NAME: u32 = 6;
    }
    pub(super) mod thread {
        pub(in super::super) const PID: u32 = 1;
        pub(in super::super) const TID: u32 = 2;
        pub(in super::super) const NAME: u32 = 5;
    }
    pub(super) mod counter {
        pub(in super::super) const UNIT_NAME: u32 = 6;
    }
}

/// The types of a track event.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// The clock that the trace is shown by, and the realtime clock, which here is the same.
const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;
/// A clock of each sequence. A timestamp of it is the time since the packet before.
const INCREMENTAL: u64 = 64;

/// The sequence state is new from this packet on; the packet needs it.
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// The kinds of tracks, in the highest byte of a track's uuid. Below are 16 bits for the lane and 32 for the index.
mod kind {
    pub(super) const THREAD: u64 = 1;
    pub(super) const STREAM: u64 = 2;
    pub(super) const MEMORY: u64 = 3;
    pub(super) const COUNTER: u64 = 4;
    pub(super) const DEVICE: u64 = 5;
    pub(super) const PROCESS: u64 = 6;
    pub(super) const ALLOCATED: u64 = 7;
    pub(super) const RESERVED: u64 = 8;
    pub(super) const TRACE: u64 = 9;
}

fn uuid(kind: u64, lane: u32, index: u32) -> u64 {
    kind << 48 | u64::from(lane) << 32 | u64::from(index)
}

fn track_uuid(track: Track, lane: u32) -> u64 {
    match track {
        Track::Thread(id) => uuid(kind::THREAD, lane, id.0),
        Track::Stream(id) => uuid(kind::STREAM, lane, id.0),
        Track::Memory(device) => uuid(kind::MEMORY, lane, device),
        Track::Counter(id) => uuid(kind::COUNTER, lane, id.0),
    }
}

/// What a track is, in its description.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Description {
    Trace(Facts),
    Device { ordinal: u32, device: Device },
    Thread(Thread),
    Stream(Stream),
    Memory { device: u32 },
    Counter(Counter),
}

/// What the trace says of itself.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Facts {
    schema: u32,
    /// Whether the file was finished.
    complete: bool,
    about: std::collections::BTreeMap<String, String>,
    loss: Loss,
}

/// The schema of descriptions and values that this version writes, and the newest that it reads.
const SCHEMA: u32 = 1;

/// The sequence of the descriptors of tracks; those of the tracks come after it.
const DESCRIPTORS: u64 = 1;
