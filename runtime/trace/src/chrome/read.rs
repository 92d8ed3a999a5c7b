//! Reading, event by event: ours, PyTorch's, and lists of events as Chrome takes them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::event::{Event, Loose};
use super::{CATEGORIES, Facts, MARK, MEMORY, OF_DEVICE, RANGES, RANK, SYNCS, TRANSFERS, WAIT};
use crate::definitions::{Device, KernelCounted};
use crate::error::Stop;
use crate::event::category;
use crate::record::*;
use crate::sink::Sink;

/// Reads a trace into `sink`.
pub(crate) fn read(input: &mut impl BufRead, sink: &mut dyn Sink) -> Result<(), Stop> {
    let at = Cell::new(0);
    let mut reader =
        Reader { sink, base: 0, events: 0, unread: BTreeMap::new(), tracks: BTreeMap::new(), failed: None };
    let mut json = serde_json::Deserializer::from_reader(Counted { input, at: &at });
    let read = Top(&mut reader).deserialize(&mut json).and_then(|is_trace| json.end().map(|()| is_trace));
    reader.end();
    let (events, failed) = (reader.events, reader.failed.take());
    if let Some(error) = failed {
        return Err(Stop::Output(error));
    }
    match read {
        Ok(true) => Ok(()),
        Ok(false) => Err(Stop::Foreign(
            "is JSON, but not that of a trace: it has no `traceEvents`; give another file".into(),
        )),
        Err(error) if events == 0 && !error.is_eof() && !error.is_io() => {
            Err(Stop::Foreign(format!("is no trace: its JSON is damaged ({error}); write it again")))
        }
        Err(error) if error.is_eof() => Err(Stop::cut_off(at.get())),
        Err(error) => Err(Stop::damaged(at.get(), format!("{error}, after {events} events"))),
    }
}

/// Counts the bytes that were read.
struct Counted<'a, R> {
    input: R,
    at: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.at.set(self.at.get() + read as u64);
        Ok(read)
    }
}

struct Reader<'a> {
    sink: &'a mut dyn Sink,
    /// Nanoseconds that times are relative to.
    base: u64,
    events: u64,
    /// How many events of each kind there were that no record stands for.
    unread: BTreeMap<String, u64>,
    /// Names of threads and streams, by process or device.
    tracks: BTreeMap<(i64, i64), String>,
    failed: Option<io::Error>,
}

/// The document; true when it has events.
struct Top<'a, 'b>(&'a mut Reader<'b>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut has_events = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    has_events = true;
                    map.next_value_seed(Events(self.0))?;
                }
                "baseTimeNanoseconds" => {
                    let base = map.next_value::<Loose>()?.uint().unwrap_or(0);
                    if has_events {
                        self.0.about("times are relative to (ns)", base.to_string());
                    } else {
                        self.0.base = base;
                    }
                }
                "distributedInfo" => {
                    let info: serde_json::Value = map.next_value()?;
                    if let Some(rank) = info[RANK].as_u64().filter(|rank| *rank > 0) {
                        self.0.about(RANK, rank.to_string());
                    }
                }
                "deviceProperties" => {
                    for device in map.next_value::<Vec<serde_json::Map<String, serde_json::Value>>>()? {
                        self.0.device(&device);
                    }
                }
                "warpsmith" => {
                    let facts: Facts = map.next_value()?;
                    let definitions = self.0.sink.definitions();
                    definitions.about.extend(facts.about);
                    definitions.loss = facts.loss;
                    definitions.devices.extend(facts.devices);
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(has_events)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<bool, A::Error> {
        Events(self.0).visit_seq(list)?;
        Ok(true)
    }
}

struct Events<'a, 'b>(&'a mut Reader<'b>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(event) = list.next_element::<Event>()? {
            self.0.events += 1;
            if let Err(error) = self.0.event(&event) {
                self.0.failed = Some(error);
                return Err(A::Error::custom("the other file cannot be written"));
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn about(&mut self, key: &str, value: String) {
        self.sink.definitions().about.insert(key.to_owned(), value);
    }

    fn device(&mut self, properties: &serde_json::Map<String, serde_json::Value>) {
        let number = |key: &str| properties.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let small = |key: &str| u32::try_from(number(key)).unwrap_or(0);
        let device = Device {
            name: properties.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned(),
            memory: number("totalGlobalMem"),
            bandwidth: 0,
            multiprocessors: small("numSms"),
            capability: (small("computeMajor"), small("computeMinor")),
        };
        self.sink.definitions().devices.insert(small("id"), device);
    }

    /// Names the tracks, and says what was not read.
    fn end(&mut self) {
        let definitions = self.sink.definitions();
        for ((process, thread), name) in std::mem::take(&mut self.tracks) {
            let is_stream =
                |stream: &crate::Stream| i64::from(stream.device) == process && stream.id == thread;
            if definitions.streams().iter().any(is_stream) {
                let id = definitions.stream(process as u32, thread);
                let prefix = format!("stream {thread}");
                definitions.name_stream(id, name.strip_prefix(&prefix).unwrap_or(&name).trim());
            } else {
                let id = definitions.thread(process, thread);
                definitions.name_thread(id, &name);
            }
        }
        if !self.unread.is_empty() {
            let kinds: Vec<String> =
                self.unread.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            self.about("events not read", kinds.join(", "));
        }
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let time = |time: i64| self.base.saturating_add_signed(time);
        let start = time(event.time.nanoseconds().unwrap_or(0));
        let end = start.saturating_add_signed(event.duration.nanoseconds().unwrap_or(0).max(0));
        let record = match event.phase.text() {
            "X" => self.slice(event, start, end),
            "i" | "I" => self.moment(event, start),
            "C" => self.sample(event, start),
            "M" => {
                let (process, thread) = place(event);
                let name = event.arguments.name.text();
                if event.name.text() == "thread_name" && !name.is_empty() && !name.ends_with(" overlap") {
                    self.tracks.insert((process, thread), name.to_owned());
                }
                return Ok(());
            }
            // Flows follow from correlations; an empty object is the end of our list.
            "s" | "t" | "f" | "" => return Ok(()),
            _ => None,
        };
        if let Some(record) = record {
            return self.sink.record(&record);
        }
        let kind = match event.category.text() {
            "" => format!("phase {}", event.phase.text().chars().take(8).collect::<String>()),
            kind => kind.chars().take(40).collect(),
        };
        // As many kinds as a program has; a damaged file may have more.
        if self.unread.len() < 100 || self.unread.contains_key(&kind) {
            *self.unread.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    fn slice(&mut self, event: &Event, start: u64, end: u64) -> Option<Record> {
        let arguments = &event.arguments;
        let kineto = event.category.text();
        let is_range = RANGES.contains(&kineto);
        let kind = CATEGORIES.iter().find(|(_, theirs)| *theirs == kineto).map(|(ours, _)| *ours);
        let kind = if is_range { category::RANGE } else { kind? };
        let definitions = self.sink.definitions();
        let text = event.name.text();
        let (process, thread) = place(event);
        let line = definitions.names.intern(arguments.line.text());
        let captured_in = definitions.names.intern(arguments.captured.text());
        let correlation = arguments.correlation.uint().unwrap_or(0);
        let range = arguments.external.uint().unwrap_or(0);
        let graph = small(&arguments.graph);
        let device = u32::try_from(arguments.device.int().unwrap_or(process)).unwrap_or(0);
        let stream_id = arguments.stream.int().unwrap_or(thread);
        Some(match kind {
            category::KERNEL => {
                let (name, stream) = (definitions.names.intern(text), definitions.stream(device, stream_id));
                let counted = KernelCounted {
                    read: arguments.dram_read.uint().unwrap_or(0),
                    written: arguments.dram_written.uint().unwrap_or(0),
                    l2_hits: arguments.l2_hits.float(),
                    occupancy: arguments.occupancy.float(),
                    stalls: definitions.names.intern(arguments.stalls.text()),
                };
                definitions.read_counted(name, stream, counted);
                Record::Kernel(Kernel {
                    start,
                    end,
                    name,
                    stream,
                    correlation,
                    grid: size(&arguments.grid),
                    block: size(&arguments.block),
                    registers: small(&arguments.registers),
                    shared_static: small(&arguments.shared).saturating_sub(small(&arguments.shared_dynamic)),
                    shared_dynamic: small(&arguments.shared_dynamic),
                    graph,
                    node: arguments.node.uint().unwrap_or(0),
                    range,
                    line,
                    captured_in,
                    bytes: arguments.bytes.uint().unwrap_or(0),
                })
            }
            category::COPY | category::MEMSET => Record::Transfer(Transfer {
                start,
                end,
                kind: TRANSFERS
                    .iter()
                    .find(|(_, begin)| text.starts_with(begin))
                    .map_or(TransferKind::Unknown, |(kind, _)| *kind),
                stream: definitions.stream(device, stream_id),
                correlation,
                bytes: arguments.bytes.uint().unwrap_or(0),
                peer: arguments.peer.uint().and_then(|peer| u32::try_from(peer).ok()),
                graph,
                node: arguments.node.uint().unwrap_or(0),
                range,
                line,
                captured_in,
            }),
            category::SYNC => Record::Sync(Sync {
                start,
                end,
                kind: SYNCS.iter().find(|(_, name)| text == *name).map(|(kind, _)| *kind)?,
                stream: definitions.stream(device, arguments.sync_stream.int().unwrap_or(stream_id)),
                correlation,
                event: arguments.event.uint().or(arguments.waited_event.uint()).unwrap_or(0),
            }),
            category::RANGE => Record::Range(Range {
                start,
                end,
                name: definitions.names.intern(text),
                category: match kineto {
                    "user_annotation" => definitions.names.intern(arguments.category.text()),
                    other => definitions.names.intern(other),
                },
                thread: definitions.thread(process, thread),
                id: range,
                parent: arguments.parent.uint().unwrap_or(0),
                colour: small(&arguments.colour),
                payload: payload(&arguments.payload),
                line,
            }),
            category::GRAPH => Record::Graph(Graph {
                start,
                end,
                kind: GraphKind::ALL.into_iter().find(|kind| kind.name() == text)?,
                thread: definitions.thread(process, thread),
                graph,
                nodes: small(&arguments.nodes),
                correlation,
                range,
                line,
            }),
            _ => Record::Call(Call {
                start,
                end,
                name: definitions.names.intern(match arguments.function.text() {
                    "" => text,
                    function => function,
                }),
                library: match kind {
                    category::DRIVER => Library::Driver,
                    category::RUNTIME => Library::Runtime,
                    category::LIBRARY => Library::Other,
                    _ => Library::Overhead,
                },
                thread: definitions.thread(process, thread),
                correlation,
                range,
                line,
                detail: definitions.names.intern(arguments.detail.text()),
            }),
        })
    }

    fn moment(&mut self, event: &Event, at: u64) -> Option<Record> {
        let arguments = &event.arguments;
        let definitions = self.sink.definitions();
        let (process, thread) = place(event);
        let line = definitions.names.intern(arguments.line.text());
        if event.name.text() == MEMORY {
            // Device type 0 is the host.
            arguments.device_type.uint().filter(|kind| *kind != 0)?;
            return Some(Record::Memory(Memory {
                at,
                device: small(&arguments.memory_device),
                address: arguments.address.uint().unwrap_or(0),
                bytes: arguments.memory_bytes.int().unwrap_or(0),
                allocated: arguments.allocated.uint().unwrap_or(0),
                reserved: arguments.reserved.uint().unwrap_or(0),
                stream: arguments.stream.int().unwrap_or(0),
                line,
            }));
        }
        if event.category.text() == WAIT {
            let device = |device: &Loose| u32::try_from(device.int().unwrap_or(0)).unwrap_or(0);
            return Some(Record::Wait(Wait {
                at,
                stream: definitions.stream(device(&arguments.device), arguments.stream.int().unwrap_or(0)),
                on: definitions.stream(device(&arguments.on_device), arguments.on_stream.int().unwrap_or(0)),
                buffer: definitions.names.intern(event.name.text()),
                correlation: arguments.correlation.uint().unwrap_or(0),
                line,
            }));
        }
        let category = match event.category.text() {
            MARK => arguments.category.text(),
            other => other,
        };
        Some(Record::Mark(Mark {
            at,
            name: definitions.names.intern(event.name.text()),
            category: definitions.names.intern(category),
            thread: definitions.thread(process, thread),
            colour: small(&arguments.colour),
            payload: payload(&arguments.payload),
        }))
    }

    fn sample(&mut self, event: &Event, at: u64) -> Option<Record> {
        let (process, _) = place(event);
        let is_of_device = event.category.text() == OF_DEVICE;
        let device = is_of_device.then(|| u32::try_from(process).unwrap_or(0));
        let text = event.name.text();
        let unit = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
        let (name, unit) = unit.unwrap_or((text, ""));
        let value = event.arguments.other.float()?;
        Some(Record::Sample(Sample {
            at,
            counter: self.sink.definitions().counter(device, name, unit),
            value,
        }))
    }
}

/// The process and thread; words, which PyTorch has for some, are 0.
fn place(event: &Event) -> (i64, i64) {
    (event.process.int().unwrap_or(0), event.thread.int().unwrap_or(0))
}

fn small(value: &Loose) -> u32 {
    u32::try_from(value.uint().unwrap_or(0)).unwrap_or(u32::MAX)
}

fn size(value: &Loose) -> [u32; 3] {
    match value {
        Loose::Size(size) => *size,
        _ => [0; 3],
    }
}

fn payload(value: &Loose) -> Payload {
    match value {
        Loose::Float(value) => Payload::Float(*value),
        other => other.int().map_or(Payload::None, Payload::Int),
    }
}
