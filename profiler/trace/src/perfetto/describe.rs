//! Descriptors of tracks: what Perfetto shows them as, and what the reader has of them.

use std::collections::BTreeSet;

use super::{DESCRIPTORS, Description, Facts, SCHEMA, field, kind, track_uuid, uuid};
use crate::definitions::{Definitions, Stream, Thread};
use crate::event::Track;
use crate::proto;

/// The definitions that have their descriptors.
#[derive(Debug, Default)]
pub(super) struct Described {
    trace: bool,
    is_complete: bool,
    devices: BTreeSet<u32>,
    allocators: BTreeSet<u32>,
    processes: Vec<i64>,
    streams: usize,
    threads: usize,
    counters: usize,
}

impl Described {
    /// Describes all once more, at the end of a file.
    pub(super) fn last() -> Self {
        Described { is_complete: true, ..Described::default() }
    }

    /// Describes what has no descriptor yet.
    pub(super) fn describe(&mut self, definitions: &Definitions, out: &mut Vec<u8>) {
        if !self.trace {
            self.trace = true;
            let (about, loss) = (definitions.about.clone(), definitions.loss);
            let facts = Facts { schema: SCHEMA, complete: self.is_complete, about, loss };
            let track = Descriptor { uuid: uuid(kind::TRACE, 0, 0), parent: 0, name: "Warpsmith" };
            track.write(out, Some(&Description::Trace(facts)), |_| ());
        }
        for ordinal in definitions.devices.keys() {
            self.device(*ordinal, definitions, out);
        }
        for (index, stream) in definitions.streams().iter().enumerate().skip(self.streams) {
            self.device(stream.device, definitions, out);
            let name = stream_name(stream);
            let uuid = uuid(kind::STREAM, 0, index as u32);
            let track = Descriptor { uuid, parent: device_uuid(stream.device), name: &name };
            track.write(out, Some(&Description::Stream(stream.clone())), |_| ());
        }
        self.streams = definitions.streams().len();
        for (index, thread) in definitions.threads().iter().enumerate().skip(self.threads) {
            let parent = self.process(thread.process, out);
            let name =
                if thread.name.is_empty() { format!("thread {}", thread.id) } else { thread.name.clone() };
            let uuid = uuid(kind::THREAD, 0, index as u32);
            let track = Descriptor { uuid, parent, name: &name };
            track.write(out, Some(&Description::Thread(thread.clone())), |out| {
                if let Some((process, id)) = system_ids(thread) {
                    proto::message(out, field::track::THREAD, |out| {
                        proto::uint(out, field::thread::PID, process);
                        proto::uint(out, field::thread::TID, id);
                        proto::bytes(out, field::thread::NAME, name.as_bytes());
                    });
                }
            });
        }
        self.threads = definitions.threads().len();
        for (index, counter) in definitions.counters().iter().enumerate().skip(self.counters) {
            if let Some(device) = counter.device {
                self.device(device, definitions, out);
            }
            let uuid = uuid(kind::COUNTER, 0, index as u32);
            let parent = counter.device.map_or(0, device_uuid);
            let track = Descriptor { uuid, parent, name: &counter.name };
            track.write(out, Some(&Description::Counter(counter.clone())), |out| {
                counter_of(out, &counter.unit)
            });
        }
        self.counters = definitions.counters().len();
    }

    /// Describes the tracks of a device's allocator.
    pub(super) fn allocator(&mut self, device: u32, definitions: &Definitions, out: &mut Vec<u8>) {
        if !self.allocators.insert(device) {
            return;
        }
        self.device(device, definitions, out);
        let parent = device_uuid(device);
        let track = Descriptor { uuid: uuid(kind::MEMORY, 0, device), parent, name: "allocator" };
        track.write(out, Some(&Description::Memory { device }), |_| ());
        for (kind, name) in [(kind::ALLOCATED, "allocated"), (kind::RESERVED, "reserved")] {
            let track = Descriptor { uuid: uuid(kind, 0, device), parent, name };
            track.write(out, None, |out| counter_of(out, "B"));
        }
    }

    fn device(&mut self, ordinal: u32, definitions: &Definitions, out: &mut Vec<u8>) {
        if self.devices.insert(ordinal) {
            let device = definitions.devices.get(&ordinal).cloned().unwrap_or_default();
            let name = format!("device {ordinal} {}", device.name);
            let track = Descriptor { uuid: device_uuid(ordinal), parent: 0, name: name.trim() };
            track.write(out, Some(&Description::Device { ordinal, device }), |_| ());
        }
    }

    /// The uuid of a process that is described.
    fn process(&mut self, process: i64, out: &mut Vec<u8>) -> u64 {
        let known = self.processes.iter().position(|known| *known == process);
        let index = known.unwrap_or(self.processes.len());
        let uuid = uuid(kind::PROCESS, 0, index as u32);
        if known.is_none() {
            self.processes.push(process);
            let name = format!("process {process}");
            Descriptor { uuid, parent: 0, name: &name }.write(out, None, |out| {
                if let Some(id) = system_id(process) {
                    proto::message(out, field::track::PROCESS, |out| {
                        proto::uint(out, field::process::PID, id);
                        proto::bytes(out, field::process::NAME, b"host");
                    });
                }
            });
        }
        uuid
    }
}

/// Describes the track of a lane.
pub(super) fn overlap(definitions: &Definitions, track: Track, lane: u32, out: &mut Vec<u8>) {
    let name = match track {
        Track::Stream(id) => definitions.streams().get(id.index()).map(stream_name),
        _ => None,
    };
    let name = format!("{} overlap", name.unwrap_or_default());
    let parent = track_uuid(track, 0);
    Descriptor { uuid: track_uuid(track, lane), parent, name: name.trim() }.write(out, None, |_| ());
}

fn device_uuid(ordinal: u32) -> u64 {
    uuid(kind::DEVICE, 0, ordinal)
}

fn stream_name(stream: &Stream) -> String {
    match (stream.id, stream.name.as_str()) {
        (i64::MIN..0, "") => "all streams".to_owned(),
        (id, "") => format!("stream {id}"),
        (id, name) => format!("stream {id} {name}"),
    }
}

/// The ids of a thread, when a system can have given them: Perfetto holds 31 bits, and 0 is the idle process.
fn system_ids(thread: &Thread) -> Option<(u64, u64)> {
    Some((system_id(thread.process)?, system_id(thread.id)?))
}

fn system_id(id: i64) -> Option<u64> {
    i32::try_from(id).ok().filter(|id| *id > 0).map(|id| id as u64)
}

fn counter_of(out: &mut Vec<u8>, unit: &str) {
    proto::message(out, field::track::COUNTER, |out| {
        proto::bytes(out, field::counter::UNIT_NAME, unit.as_bytes());
    });
}

struct Descriptor<'a> {
    uuid: u64,
    parent: u64,
    name: &'a str,
}

impl Descriptor<'_> {
    fn write(&self, out: &mut Vec<u8>, description: Option<&Description>, rest: impl FnOnce(&mut Vec<u8>)) {
        proto::message(out, field::trace::PACKET, |packet| {
            proto::uint(packet, field::packet::SEQUENCE, DESCRIPTORS);
            proto::message(packet, field::packet::TRACK_DESCRIPTOR, |track| {
                proto::uint(track, field::track::UUID, self.uuid);
                proto::bytes(track, field::track::NAME, self.name.as_bytes());
                if self.parent != 0 {
                    proto::uint(track, field::track::PARENT, self.parent);
                }
                // Plain data always becomes JSON.
                if let Some(text) =
                    description.and_then(|description| serde_json::to_string(description).ok())
                {
                    proto::bytes(track, field::track::DESCRIPTION, text.as_bytes());
                }
                rest(track);
            });
        });
    }
}
