//! Conversion of events to records.

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::event::{Event, Loose};
use super::{CATEGORIES, MARK, MEMORY, OF_DEVICE, RANGES, SYNCS, TRANSFERS, WAIT};
use crate::definitions::LeftOut;
use crate::event::category;
use crate::record::*;
use crate::sink::Sink;

/// Maximum number of event kinds for which unread events are counted separately. Only a damaged file can contain more
/// kinds.
const MAX_KINDS: usize = 100;
/// Separate maximum for track names, for words that identify processes and threads, and for events at time 0.
const MAX_HELD: usize = 1 << 16;
/// Upper bound of the IDs that are assigned to processes and threads identified by a word instead of a number.
const WORDS: i64 = -1_000_000;
/// An event at time 0 is assumed to have no time if the next event is later by more than this number of nanoseconds,
/// because PyTorch's profiler writes 0 for lost times. However, if the event lasts until the next one, its time is
/// assumed to be valid, provided that the next event is within `LONG_GAP`.
const GAP: u64 = 1_000_000_000;
const LONG_GAP: u64 = 3_600 * GAP;

/// Converts events to records.
pub(super) struct Records<'a> {
    pub(super) sink: &'a mut dyn Sink,
    /// Base time, in nanoseconds, to which all other times are relative.
    pub(super) base: u64,
    /// True if this crate wrote the file.
    pub(super) is_ours: bool,
    events: u64,
    has_records: bool,
    /// Number of events that no record can represent, by kind.
    unread: BTreeMap<String, u64>,
    /// Number of events without a time, by kind.
    timeless: BTreeMap<String, u64>,
    /// Names of threads and streams, by process or device.
    tracks: BTreeMap<(i64, i64), String>,
    /// IDs assigned to words that stand for processes or threads.
    words: HashMap<String, i64>,
    /// Records of events at time 0, with the kinds of the events. They are kept until it is known whether their time is
    /// valid.
    at_zero: Vec<(Record, String)>,
    /// First time other than 0.
    first: Option<u64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Self {
        Records {
            sink,
            base: 0,
            is_ours: false,
            events: 0,
            has_records: false,
            unread: BTreeMap::new(),
            timeless: BTreeMap::new(),
            tracks: BTreeMap::new(),
            words: HashMap::new(),
            at_zero: Vec::new(),
            first: None,
        }
    }

    /// Returns the number of events.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        self.events += 1;
        let phase = event.phase.text();
        match phase {
            "M" => {
                self.name_track(event);
                return Ok(());
            }
            // Flows are derived from correlations. In a list written by this crate, an empty object marks the end.
            "s" | "t" | "f" | "" => return Ok(()),
            _ => {}
        }
        let Some(start) = self.time(event) else {
            count(&mut self.timeless, &kind(event));
            return Ok(());
        };
        let record = match phase {
            "X" => {
                let duration = event.duration.nanoseconds().unwrap_or(0).max(0);
                self.slice(event, start, start.saturating_add_signed(duration))
            }
            "i" | "I" | "n" => self.moment(event, start),
            "C" => self.sample(event, start),
            _ => None,
        };
        let Some(record) = record else {
            count(&mut self.unread, &kind(event));
            return Ok(());
        };
        if record.start() == self.base && !self.is_ours {
            if self.at_zero.len() < MAX_HELD {
                self.at_zero.push((record, kind(event)));
            } else {
                count(&mut self.timeless, &kind(event));
            }
            return Ok(());
        }
        let start = record.start();
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.take(&record)
    }

    fn take(&mut self, record: &Record) -> io::Result<()> {
        self.has_records = true;
        self.sink.record(record)
    }

    /// Returns the time of an event in nanoseconds.
    fn time(&self, event: &Event) -> Option<u64> {
        self.base.checked_add_signed(event.time.nanoseconds()?)
    }

    fn name_track(&mut self, event: &Event) {
        let (process, thread) = self.place(event);
        let name = event.arguments.name.text();
        let is_name = event.name.text() == "thread_name" && !name.is_empty() && !name.ends_with(" overlap");
        if is_name && (self.tracks.len() < MAX_HELD || self.tracks.contains_key(&(process, thread))) {
            let name = self.sink.definitions().names.kept(name);
            self.tracks.insert((process, thread), name);
        }
    }

    /// Adds the records at time 0, names the tracks, and reports events that were not read.
    pub(super) fn end(&mut self) -> io::Result<()> {
        for (record, kind) in std::mem::take(&mut self.at_zero) {
            let gap = self.first.unwrap_or(self.base).saturating_sub(self.base);
            let is_near = gap <= GAP;
            let lasts = gap <= LONG_GAP && record.end().saturating_add(GAP) >= self.base + gap;
            if is_near || lasts || self.is_ours {
                self.take(&record)?;
            } else {
                count(&mut self.timeless, &kind);
            }
        }
        let definitions = self.sink.definitions();
        for (word, id) in std::mem::take(&mut self.words) {
            self.tracks.entry((id, id)).or_insert(word);
        }
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
        if !self.timeless.is_empty() {
            let all: u64 = self.timeless.values().sum();
            definitions.add_left_out(LeftOut::Timeless, &format!("{all} ({})", listed(&self.timeless)));
        }
        if !self.unread.is_empty() {
            let kinds = listed(&self.unread);
            match self.has_records {
                true => definitions.add_fact("events not read", &kinds),
                false => definitions.add_left_out(LeftOut::All, &kinds),
            }
        }
        Ok(())
    }

    fn slice(&mut self, event: &Event, start: u64, end: u64) -> Option<Record> {
        let arguments = &event.arguments;
        let kineto = event.category.text();
        let is_range = RANGES.contains(&kineto);
        let kind = CATEGORIES.iter().find(|(_, theirs)| *theirs == kineto).map(|(ours, _)| *ours);
        let kind = if is_range { category::RANGE } else { kind? };
        let text = event.name.text();
        let (process, thread) = self.place(event);
        let definitions = self.sink.definitions();
        let line = definitions.names.intern(arguments.line.text());
        let captured_in = definitions.names.intern(arguments.captured.text());
        let correlation = arguments.correlation.uint().unwrap_or(0);
        let range = arguments.external.uint().unwrap_or(0);
        let graph = small(&arguments.graph);
        let device = u32::try_from(arguments.device.int().unwrap_or(process)).unwrap_or(0);
        // An event without a stream does not belong to stream 0, but to a separate stream.
        let on_thread = if event.thread == Loose::None { -1 } else { thread };
        let stream_id = arguments.stream.int().unwrap_or(on_thread);
        Some(match kind {
            category::KERNEL => {
                let (name, stream) = (definitions.names.intern(text), definitions.stream(device, stream_id));
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
                color: small(&arguments.color),
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
        let (process, thread) = self.place(event);
        let definitions = self.sink.definitions();
        let line = definitions.names.intern(arguments.line.text());
        if event.name.text() == MEMORY {
            // Device type 0 is the host.
            arguments.device_type.uint().filter(|kind| *kind != 0)?;
            return Some(Record::Memory(Memory {
                at,
                device: small(&arguments.memory_device),
                address: arguments.address.uint().unwrap_or(0),
                bytes: arguments.memory_bytes.int()?,
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
                stream: definitions.stream(device(&arguments.device), arguments.stream.int()?),
                on: definitions.stream(device(&arguments.on_device), arguments.on_stream.int()?),
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
            color: small(&arguments.color),
            payload: payload(&arguments.payload),
        }))
    }

    fn sample(&mut self, event: &Event, at: u64) -> Option<Record> {
        let (process, _) = self.place(event);
        let is_of_device = event.category.text() == OF_DEVICE;
        let device = u32::try_from(process).ok().filter(|_| is_of_device);
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

    /// Returns the process and the thread of an event.
    fn place(&mut self, event: &Event) -> (i64, i64) {
        (self.id(&event.process), self.id(&event.thread))
    }

    /// Returns the ID for a number or for a word. As in trace viewers, a missing value becomes 0.
    fn id(&mut self, value: &Loose) -> i64 {
        let (number, text) = (value.int(), value.text());
        if number.is_some() || text.is_empty() {
            return number.unwrap_or(0);
        }
        let next = WORDS - self.words.len() as i64;
        match self.words.get(text) {
            Some(id) => *id,
            None if self.words.len() == MAX_HELD => next,
            None => {
                let text = self.sink.definitions().names.kept(text);
                *self.words.entry(text).or_insert(next)
            }
        }
    }
}

/// Returns the kind under which an event is counted.
fn kind(event: &Event) -> String {
    match event.category.text() {
        "" => format!("phase {}", event.phase.text().chars().take(8).collect::<String>()),
        kind => kind.chars().take(40).collect(),
    }
}

fn count(kinds: &mut BTreeMap<String, u64>, kind: &str) {
    if kinds.len() < MAX_KINDS || kinds.contains_key(kind) {
        *kinds.entry(kind.to_owned()).or_default() += 1;
    } else {
        *kinds.entry("others".to_owned()).or_default() += 1;
    }
}

fn listed(kinds: &BTreeMap<String, u64>) -> String {
    kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
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
    match value.whole() {
        Some(value) => Payload::Int(value),
        None => value.float().map_or(Payload::None, Payload::Float),
    }
}
