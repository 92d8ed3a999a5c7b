//! Reading what [`PerfettoWriter`](super::PerfettoWriter) wrote, packet by packet.

use std::collections::HashMap;
use std::io::{BufRead, ErrorKind, Read};

use super::{BEGIN, BOOTTIME, COUNTER, Description, END, INCREMENTAL, INSTANT, SCHEMA, field, kind};
use crate::definitions::StreamId;
use crate::error::Stop;
use crate::event::{Key, Seen, Track, Value, Values};
use crate::names::Name;
use crate::proto::{Field, Fields};
use crate::record::{Record, Sample};
use crate::sink::Sink;

/// The largest packet that is read, in bytes; ours are a few hundred.
const MOST: u64 = 16 << 20;

/// The most sequences, tracks, and slices that are open at once; ours have a sequence for each lane of a track, and nest a few
/// deep.
const MOST_HELD: usize = 1 << 20;

/// The most texts that sequences number; ours number one for each name that occurs on a lane.
const MOST_INTERNED: usize = 8 << 20;

/// Reads a trace into `sink`; its length in bytes.
pub(crate) fn read(input: &mut impl BufRead, sink: &mut dyn Sink) -> Result<u64, Stop> {
    let mut reader = Reader::default();
    let mut at = 0;
    let mut packet = Vec::new();
    loop {
        let begun = at;
        let read = next_packet(input, &mut at, &mut packet);
        match read {
            Ok(true) => {}
            Ok(false) => break,
            Err(stop) if !reader.is_ours => return Err(reader.foreign().unwrap_or(stop)),
            Err(stop) => return Err(stop),
        }
        let mut fields = Fields::new(&packet);
        reader.packet(&mut fields, sink)?;
        if fields.is_damaged() {
            return Err(Stop::damaged(begun, "a packet is no protocol buffer"));
        }
        let held = [
            (reader.sequences.len(), MOST_HELD, "sequences"),
            (reader.tracks.len(), MOST_HELD, "tracks"),
            (reader.open, MOST_HELD, "open slices"),
            (reader.interned, MOST_INTERNED, "numbered texts"),
        ];
        if let Some((_, most, what)) = held.into_iter().find(|(held, most, _)| held > most) {
            return Err(Stop::damaged(begun, format!("there are more than {most} {what}")));
        }
    }
    match reader.foreign() {
        Some(stop) => Err(stop),
        None => reader.end(at).map(|()| at),
    }
}

/// Reads the next packet; false at the end.
fn next_packet(input: &mut impl BufRead, at: &mut u64, packet: &mut Vec<u8>) -> Result<bool, Stop> {
    let begun = *at;
    let mut byte = |at: &mut u64| -> Result<Option<u8>, Stop> {
        let mut byte = [0];
        match input.read_exact(&mut byte) {
            Ok(()) => {
                *at += 1;
                Ok(Some(byte[0]))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Stop::input(*at, error)),
        }
    };
    match byte(at)? {
        None => return Ok(false),
        Some(tag) if u32::from(tag) == field::trace::PACKET << 3 | 2 => {}
        Some(_) => return Err(Stop::damaged(begun, "no packet begins there")),
    }
    let mut length = 0;
    for shift in (0..64).step_by(7) {
        let Some(byte) = byte(at)? else { return Err(Stop::cut_off(*at)) };
        length |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    if length > MOST {
        return Err(Stop::damaged(begun, "a packet is longer than 16 MiB"));
    }
    packet.clear();
    let read = input.take(length).read_to_end(packet).map_err(|error| Stop::input(*at, error))?;
    *at += read as u64;
    if (read as u64) < length { Err(Stop::cut_off(*at)) } else { Ok(true) }
}

#[derive(Debug, Default)]
struct Reader {
    sequences: HashMap<u64, State>,
    tracks: HashMap<(u64, u32), Track>,
    is_ours: bool,
    is_complete: bool,
    has_packets: bool,
    /// Slices that are open, of all sequences.
    open: usize,
    /// Texts that sequences have numbered.
    interned: usize,
    /// Events of kinds or on tracks that this version does not know.
    unknown: u64,
}

/// The state of a sequence.
#[derive(Debug, Default)]
struct State {
    clock: u64,
    track: u64,
    categories: HashMap<u64, Name>,
    names: HashMap<u64, Name>,
    keys: HashMap<u64, Key>,
    texts: HashMap<u64, Value>,
    open: Vec<Open>,
}

/// A slice that has not ended yet, or an instant.
#[derive(Debug)]
struct Open {
    category: Name,
    name: Name,
    start: u64,
    correlation: u64,
    values: Values,
}

impl Reader {
    /// Why the file is none of ours, when it is not.
    fn foreign(&self) -> Option<Stop> {
        let reason = match (self.is_ours, self.has_packets) {
            (true, _) => return None,
            (false, true) => {
                "is a Perfetto trace that another program wrote; give one of Warpsmith's, or Chrome JSON"
            }
            (false, false) => {
                "is no trace: it is neither Perfetto's format nor JSON; give a file that the profiler wrote"
            }
        };
        Some(Stop::Foreign(reason.to_owned()))
    }

    fn end(self, at: u64) -> Result<(), Stop> {
        if !self.is_complete || self.open > 0 {
            let reason = format!("it was not finished: {} slices have no end", self.open);
            return Err(Stop::damaged(at, reason));
        }
        if self.unknown > 0 {
            let reason = format!("{} events are of kinds that this version does not know", self.unknown);
            return Err(Stop::damaged(at, reason));
        }
        Ok(())
    }

    fn packet(&mut self, fields: &mut Fields<'_>, sink: &mut dyn Sink) -> Result<(), Stop> {
        self.has_packets = true;
        let (mut sequence, mut time, mut clock, mut event, mut snapshot) = (0, 0, None, None, None);
        let mut interned: &[u8] = &[];
        let mut defaults: &[u8] = &[];
        for (number, value) in fields.by_ref() {
            match number {
                field::packet::SEQUENCE => sequence = value.uint(),
                field::packet::TIMESTAMP => time = value.uint(),
                field::packet::TIMESTAMP_CLOCK => clock = Some(value.uint()),
                field::packet::TRACK_EVENT => event = Some(value.bytes()),
                field::packet::CLOCK_SNAPSHOT => snapshot = Some(value.bytes()),
                field::packet::INTERNED_DATA => interned = value.bytes(),
                field::packet::DEFAULTS => defaults = value.bytes(),
                field::packet::TRACK_DESCRIPTOR => self.descriptor(value.bytes(), sink)?,
                _ => {}
            }
        }
        let state = self.sequences.entry(sequence).or_default();
        if let Some(snapshot) = snapshot {
            state.snapshot(snapshot);
        }
        for (number, value) in Fields::new(defaults) {
            if number == field::defaults::TRACK_EVENT {
                let mut fields = Fields::new(value.bytes());
                let track = fields.find(|(number, _)| *number == field::defaults::TRACK);
                state.track = track.map_or(state.track, |(_, track)| track.uint());
            }
        }
        self.interned += state.intern(interned, sink);
        if let Some(event) = event {
            let time = match clock {
                Some(BOOTTIME) => time,
                _ => {
                    state.clock = state.clock.saturating_add(time);
                    state.clock
                }
            };
            let open = state.open.len();
            let was_known = state.event(event, time, &self.tracks, sink)?;
            self.unknown += u64::from(!was_known);
            self.open = self.open + state.open.len() - open;
        }
        Ok(())
    }

    fn descriptor(&mut self, message: &[u8], sink: &mut dyn Sink) -> Result<(), Stop> {
        let (mut uuid, mut description) = (0, None);
        for (number, value) in Fields::new(message) {
            match number {
                field::track::UUID => uuid = value.uint(),
                field::track::DESCRIPTION => description = serde_json::from_slice(value.bytes()).ok(),
                _ => {}
            }
        }
        let Some(description) = description else { return Ok(()) };
        let definitions = sink.definitions();
        let (kind, index) = (uuid >> 48, uuid as u32);
        match description {
            Description::Trace(facts) if facts.schema > SCHEMA => {
                let schema = facts.schema;
                return Err(Stop::Foreign(format!(
                    "was written by a newer version of Warpsmith (schema {schema}, this one reads {SCHEMA}); update this one"
                )));
            }
            Description::Trace(facts) => {
                self.is_ours = true;
                self.is_complete = facts.complete;
                facts.about.iter().for_each(|(key, value)| definitions.add_fact(key, value));
                definitions.loss = facts.loss;
            }
            Description::Device { ordinal, device } => {
                definitions.add_device(ordinal, device);
            }
            Description::Thread(thread) => {
                let id = definitions.thread(thread.process, thread.id);
                definitions.name_thread(id, &thread.name);
                self.tracks.insert((kind, index), Track::Thread(id));
            }
            Description::Stream(stream) => {
                let id = definitions.stream(stream.device, stream.id);
                definitions.name_stream(id, &stream.name);
                self.tracks.insert((kind, index), Track::Stream(id));
            }
            Description::Memory { device } => {
                self.tracks.insert((kind, index), Track::Memory(device));
            }
            Description::Counter(counter) => {
                let id = definitions.counter(counter.device, &counter.name, &counter.unit);
                self.tracks.insert((kind, index), Track::Counter(id));
            }
        }
        Ok(())
    }
}

impl State {
    fn snapshot(&mut self, message: &[u8]) {
        for (_, clock) in Fields::new(message).filter(|(number, _)| *number == field::clocks::CLOCK) {
            let (mut id, mut time) = (0, 0);
            for (number, value) in Fields::new(clock.bytes()) {
                match number {
                    field::clocks::ID => id = value.uint(),
                    field::clocks::TIMESTAMP => time = value.uint(),
                    _ => {}
                }
            }
            if id == INCREMENTAL {
                self.clock = time;
            }
        }
    }

    /// Takes the texts that a packet numbers; how many there are.
    fn intern(&mut self, message: &[u8], sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        for (number, entry) in Fields::new(message) {
            let (mut id, mut text) = (0, "");
            for (number, value) in Fields::new(entry.bytes()) {
                match number {
                    field::interned::ID => id = value.uint(),
                    field::interned::VALUE => text = std::str::from_utf8(value.bytes()).unwrap_or_default(),
                    _ => {}
                }
            }
            count += 1;
            let names = &mut sink.definitions().names;
            match number {
                field::interned::CATEGORY => _ = self.categories.insert(id, names.intern(text)),
                field::interned::NAME => _ = self.names.insert(id, names.intern(text)),
                field::interned::KEY => {
                    if let Some(key) = Key::of(text) {
                        self.keys.insert(id, key);
                    }
                }
                field::interned::TEXT => {
                    // A name may look like a size: what it is, its key decides.
                    self.texts.insert(id, Value::Text(names.intern(text)));
                }
                _ => {}
            }
        }
        count
    }

    /// Whether the event is of a kind that this version knows.
    fn event(
        &mut self,
        message: &[u8],
        time: u64,
        tracks: &HashMap<(u64, u32), Track>,
        sink: &mut dyn Sink,
    ) -> Result<bool, Stop> {
        let mut open = Open {
            category: Name::NONE,
            name: Name::NONE,
            start: time,
            correlation: 0,
            values: Values::default(),
        };
        let (mut kind, mut count) = (0, 0.0);
        for (number, value) in Fields::new(message) {
            match number {
                field::event::KIND => kind = value.uint(),
                field::event::TRACK => self.track = value.uint(),
                field::event::CATEGORY => {
                    open.category = self.categories.get(&value.uint()).copied().unwrap_or_default()
                }
                field::event::NAME => open.name = self.names.get(&value.uint()).copied().unwrap_or_default(),
                field::event::FLOW => open.correlation = value.uint(),
                field::event::DOUBLE_VALUE => count = f64::from_bits(value.uint()),
                field::event::ANNOTATION => {
                    let value = self.annotation(value, tracks, sink);
                    // The first of a key counts, so that an event holds no more values than there are keys.
                    open.values.0.extend(value.filter(|(key, _)| open.values.get(*key).is_none()));
                }
                _ => {}
            }
        }
        let track = tracks.get(&(self.track >> 48, self.track as u32)).copied();
        match kind {
            BEGIN => {
                self.open.push(open);
                return Ok(true);
            }
            END => {
                let Some(begun) = self.open.pop() else { return Ok(false) };
                open = begun;
            }
            INSTANT => {}
            COUNTER => {
                // Those of the allocator are in its records.
                if let Some(Track::Counter(counter)) = track {
                    sink.record(&Record::Sample(Sample { at: time, counter, value: count }))
                        .map_err(Stop::Output)?;
                }
                return Ok(track.is_some() || self.track >> 48 >= self::kind::ALLOCATED);
            }
            _ => return Ok(false),
        }
        let Some(track) = track else { return Ok(false) };
        let names = &sink.definitions().names;
        let category = names.text(open.category).to_owned();
        let seen = Seen {
            category: &category,
            name: open.name,
            track,
            start: open.start,
            end: time,
            correlation: open.correlation,
            values: &open.values,
        };
        let Some(record) = seen.record(names) else { return Ok(false) };
        if let Record::Kernel(kernel) = &record {
            sink.definitions().read_counted(kernel.name, kernel.stream, open.values.counted());
        }
        sink.record(&record).map_err(Stop::Output)?;
        Ok(true)
    }

    fn annotation(
        &self,
        message: Field<'_>,
        tracks: &HashMap<(u64, u32), Track>,
        sink: &mut dyn Sink,
    ) -> Option<(Key, Value)> {
        let (mut key, mut value) = (None, None);
        for (number, field) in Fields::new(message.bytes()) {
            match number {
                field::annotation::NAME => key = self.keys.get(&field.uint()).copied(),
                field::annotation::UINT => value = Some(Value::Uint(field.uint())),
                field::annotation::INT => value = Some(Value::Int(field.uint() as i64)),
                field::annotation::DOUBLE => value = Some(Value::Float(f64::from_bits(field.uint()))),
                field::annotation::TEXT => value = self.texts.get(&field.uint()).copied(),
                _ => {}
            }
        }
        match (key?, value?) {
            (key @ (Key::Grid | Key::Block), Value::Text(name)) => {
                Some((key, Value::Size(size(sink.definitions().names.text(name))?)))
            }
            (Key::On, value) => {
                // Streams are numbered anew.
                let Value::Int(index) = value else { return None };
                match tracks.get(&(kind::STREAM, u32::try_from(index).ok()?)) {
                    Some(Track::Stream(StreamId(id))) => Some((Key::On, Value::Int(i64::from(*id)))),
                    _ => None,
                }
            }
            (key, value) => Some((key, value)),
        }
    }
}

/// A size as it is written: `8x4x1`.
fn size(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split('x').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}
