//! The form in which both formats carry a record: a category, a name, a track, times, and named values. Writers take a
//! record apart, readers put it together again.

use crate::definitions::{CounterId, Definitions, KernelCounted, StreamId, ThreadId};
use crate::names::{Name, Names};
use crate::record::*;

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Track {
    Thread(ThreadId),
    Stream(StreamId),
    /// The allocator of a device.
    Memory(u32),
    Counter(CounterId),
}

macro_rules! keys {
    ($($key:ident = $text:literal),* $(,)?) => {
        /// The name of a value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Key { $($key),* }

        impl Key {
            pub(crate) fn text(self) -> &'static str {
                match self { $(Key::$key => $text),* }
            }

            pub(crate) fn of(text: &str) -> Option<Key> {
                match text { $($text => Some(Key::$key),)* _ => None }
            }
        }
    };
}

keys! {
    Grid = "grid", Block = "block", Registers = "registers per thread", SharedStatic = "static shared memory",
    SharedDynamic = "dynamic shared memory", Graph = "graph", Node = "graph node", Nodes = "nodes", Range = "range",
    Line = "line", Bytes = "bytes", Peer = "peer", Detail = "detail", Event = "event", Id = "id", Parent = "parent",
    Category = "category", Colour = "colour", Payload = "payload", Stream = "stream", On = "waits for stream",
    Address = "address", Allocated = "allocated", Reserved = "reserved", Correlation = "correlation",
    Duration = "duration", Captured = "captured in", DramRead = "DRAM bytes read", DramWritten = "DRAM bytes written",
    L2Hits = "L2 hits", Occupancy = "achieved occupancy", Stalls = "stalls",
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(Name),
    Size([u32; 3]),
}

/// A name, or one that the format itself gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    Name(Name),
    Fixed(&'static str),
}

impl Label {
    pub(crate) fn text(self, names: &Names) -> &str {
        match self {
            Label::Name(name) => names.text(name),
            Label::Fixed(text) => text,
        }
    }
}

pub(crate) mod category {
    pub(crate) const KERNEL: &str = "kernel";
    pub(crate) const COPY: &str = "copy";
    pub(crate) const MEMSET: &str = "memset";
    pub(crate) const DRIVER: &str = "driver";
    pub(crate) const RUNTIME: &str = "runtime";
    pub(crate) const LIBRARY: &str = "library";
    pub(crate) const OVERHEAD: &str = "overhead";
    pub(crate) const SYNC: &str = "sync";
    pub(crate) const RANGE: &str = "range";
    pub(crate) const MARK: &str = "mark";
    pub(crate) const WAIT: &str = "wait";
    pub(crate) const MEMORY: &str = "memory";
    pub(crate) const SAMPLE: &str = "sample";
    pub(crate) const GRAPH: &str = "graph";
}

/// Named values; those that say nothing are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(pub(crate) Vec<(Key, Value)>);

impl Values {
    fn push(&mut self, key: Key, value: Value) {
        let is_none = match value {
            Value::Uint(value) => value == 0,
            Value::Text(name) => name.is_none(),
            Value::Size(size) => size == [0; 3],
            Value::Int(_) | Value::Float(_) => false,
        };
        if !is_none {
            self.0.push((key, value));
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn uint(&self, key: Key) -> u64 {
        match self.get(key) {
            Some(Value::Uint(value)) => value,
            Some(Value::Int(value)) => value.max(0) as u64,
            Some(Value::Float(value)) => value as u64,
            _ => 0,
        }
    }

    fn small(&self, key: Key) -> u32 {
        u32::try_from(self.uint(key)).unwrap_or(u32::MAX)
    }

    fn int(&self, key: Key) -> i64 {
        match self.get(key) {
            Some(Value::Int(value)) => value,
            Some(Value::Uint(value)) => i64::try_from(value).unwrap_or(i64::MAX),
            Some(Value::Float(value)) => value as i64,
            _ => 0,
        }
    }

    fn name(&self, key: Key) -> Name {
        match self.get(key) {
            Some(Value::Text(name)) => name,
            _ => Name::NONE,
        }
    }

    fn size(&self, key: Key) -> [u32; 3] {
        match self.get(key) {
            Some(Value::Size(size)) => size,
            _ => [0; 3],
        }
    }

    fn float(&self, key: Key) -> Option<f64> {
        match self.get(key)? {
            Value::Float(value) => Some(value),
            Value::Uint(value) => Some(value as f64),
            _ => None,
        }
    }

    /// What was counted of a kernel.
    pub(crate) fn counted(&self) -> KernelCounted {
        KernelCounted {
            read: self.uint(Key::DramRead),
            written: self.uint(Key::DramWritten),
            l2_hits: self.float(Key::L2Hits),
            occupancy: self.float(Key::Occupancy),
            stalls: self.name(Key::Stalls),
        }
    }

    fn payload(&self) -> Payload {
        match self.get(Key::Payload) {
            Some(Value::Int(value)) => Payload::Int(value),
            Some(Value::Uint(value)) => Payload::Int(i64::try_from(value).unwrap_or(i64::MAX)),
            Some(Value::Float(value)) => Payload::Float(value),
            _ => Payload::None,
        }
    }
}

impl From<Payload> for Option<Value> {
    fn from(payload: Payload) -> Self {
        match payload {
            Payload::None => None,
            Payload::Int(value) => Some(Value::Int(value)),
            Payload::Float(value) => Some(Value::Float(value)),
        }
    }
}

/// A record taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) category: &'static str,
    pub(crate) label: Label,
    pub(crate) track: Track,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Ties it to events with the same; 0 for none.
    pub(crate) correlation: u64,
    pub(crate) values: Values,
}

impl Event {
    /// Whether it has a duration.
    pub(crate) fn is_slice(category: &str) -> bool {
        use category::*;
        !matches!(category, MARK | WAIT | MEMORY | SAMPLE)
    }

    /// Takes a record apart; the values are left out unless `with_values`, except those a reader cannot do without.
    pub(crate) fn of(record: &Record, definitions: &Definitions, with_values: bool, values: Values) -> Event {
        let mut values = values;
        values.0.clear();
        let mut event = Event {
            category: category::RANGE,
            label: Label::Fixed(""),
            track: Track::Thread(ThreadId(0)),
            start: record.start(),
            end: record.end().max(record.start()),
            correlation: 0,
            values: Values::default(),
        };
        let with_values =
            with_values || matches!(record, Record::Wait(_) | Record::Memory(_) | Record::Sample(_));
        let mut put = |key, value| {
            if with_values {
                values.push(key, value);
            }
        };
        match record {
            Record::Kernel(kernel) => {
                event.category = category::KERNEL;
                event.label = Label::Name(kernel.name);
                event.track = Track::Stream(kernel.stream);
                event.correlation = kernel.correlation;
                put(Key::Grid, Value::Size(kernel.grid));
                put(Key::Block, Value::Size(kernel.block));
                put(Key::Registers, Value::Uint(kernel.registers.into()));
                put(Key::SharedStatic, Value::Uint(kernel.shared_static.into()));
                put(Key::SharedDynamic, Value::Uint(kernel.shared_dynamic.into()));
                put(Key::Graph, Value::Uint(kernel.graph.into()));
                put(Key::Node, Value::Uint(kernel.node));
                put(Key::Range, Value::Uint(kernel.range));
                put(Key::Line, Value::Text(kernel.line));
                put(Key::Captured, Value::Text(kernel.captured_in));
                put(Key::Bytes, Value::Uint(kernel.bytes));
                if let Some(counted) = definitions.counted_of(kernel.name, kernel.stream) {
                    put(Key::DramRead, Value::Uint(counted.read));
                    put(Key::DramWritten, Value::Uint(counted.written));
                    let shares = [(Key::L2Hits, counted.l2_hits), (Key::Occupancy, counted.occupancy)];
                    for (key, share) in shares.into_iter().filter_map(|(key, share)| Some((key, share?))) {
                        put(key, Value::Float(share));
                    }
                    put(Key::Stalls, Value::Text(counted.stalls));
                }
            }
            Record::Transfer(transfer) => {
                let is_fill = transfer.kind == TransferKind::Fill;
                event.category = if is_fill { category::MEMSET } else { category::COPY };
                event.label = Label::Fixed(transfer.kind.name());
                event.track = Track::Stream(transfer.stream);
                event.correlation = transfer.correlation;
                put(Key::Bytes, Value::Uint(transfer.bytes));
                if let Some(peer) = transfer.peer {
                    // Also device 0 is one.
                    put(Key::Peer, Value::Int(peer.into()));
                }
                put(Key::Graph, Value::Uint(transfer.graph.into()));
                put(Key::Node, Value::Uint(transfer.node));
                put(Key::Range, Value::Uint(transfer.range));
                put(Key::Line, Value::Text(transfer.line));
                put(Key::Captured, Value::Text(transfer.captured_in));
            }
            Record::Call(call) => {
                event.category = match call.library {
                    Library::Driver => category::DRIVER,
                    Library::Runtime => category::RUNTIME,
                    Library::Other => category::LIBRARY,
                    Library::Overhead => category::OVERHEAD,
                };
                event.label = Label::Name(call.name);
                event.track = Track::Thread(call.thread);
                event.correlation = call.correlation;
                put(Key::Range, Value::Uint(call.range));
                put(Key::Line, Value::Text(call.line));
                put(Key::Detail, Value::Text(call.detail));
            }
            Record::Sync(sync) => {
                event.category = category::SYNC;
                event.label = Label::Fixed(sync.kind.name());
                event.track = Track::Stream(sync.stream);
                put(Key::Correlation, Value::Uint(sync.correlation));
                put(Key::Event, Value::Uint(sync.event));
            }
            Record::Range(range) => {
                event.label = Label::Name(range.name);
                event.track = Track::Thread(range.thread);
                put(Key::Id, Value::Uint(range.id));
                put(Key::Parent, Value::Uint(range.parent));
                put(Key::Category, Value::Text(range.category));
                put(Key::Colour, Value::Uint(range.colour.into()));
                if let Some(payload) = range.payload.into() {
                    put(Key::Payload, payload);
                }
                put(Key::Line, Value::Text(range.line));
            }
            Record::Mark(mark) => {
                event.category = category::MARK;
                event.label = Label::Name(mark.name);
                event.track = Track::Thread(mark.thread);
                put(Key::Category, Value::Text(mark.category));
                put(Key::Colour, Value::Uint(mark.colour.into()));
                if let Some(payload) = mark.payload.into() {
                    put(Key::Payload, payload);
                }
            }
            Record::Wait(wait) => {
                event.category = category::WAIT;
                event.label = Label::Name(wait.buffer);
                event.track = Track::Stream(wait.stream);
                // Also stream 0 is one.
                put(Key::On, Value::Int(wait.on.0.into()));
                put(Key::Correlation, Value::Uint(wait.correlation));
                put(Key::Line, Value::Text(wait.line));
            }
            Record::Memory(memory) => {
                event.category = category::MEMORY;
                event.label = Label::Fixed(if memory.bytes < 0 { "free" } else { "allocate" });
                event.track = Track::Memory(memory.device);
                put(Key::Address, Value::Uint(memory.address));
                put(Key::Bytes, Value::Int(memory.bytes));
                put(Key::Allocated, Value::Uint(memory.allocated));
                put(Key::Reserved, Value::Uint(memory.reserved));
                put(Key::Stream, Value::Int(memory.stream));
                put(Key::Line, Value::Text(memory.line));
            }
            Record::Sample(sample) => {
                event.category = category::SAMPLE;
                event.track = Track::Counter(sample.counter);
                put(Key::Payload, Value::Float(sample.value));
            }
            Record::Graph(graph) => {
                event.category = category::GRAPH;
                event.label = Label::Fixed(graph.kind.name());
                event.track = Track::Thread(graph.thread);
                event.correlation = graph.correlation;
                put(Key::Graph, Value::Uint(graph.graph.into()));
                put(Key::Nodes, Value::Uint(graph.nodes.into()));
                put(Key::Range, Value::Uint(graph.range));
                put(Key::Line, Value::Text(graph.line));
            }
        }
        event.values = values;
        event
    }
}

/// An event as a reader sees it.
#[derive(Debug, Clone)]
pub(crate) struct Seen<'a> {
    pub(crate) category: &'a str,
    pub(crate) name: Name,
    pub(crate) track: Track,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u64,
    pub(crate) values: &'a Values,
}

impl Seen<'_> {
    /// The record it stands for; `None` for one of another kind, or on a track where there is none such.
    pub(crate) fn record(&self, names: &Names) -> Option<Record> {
        let Seen { start, name, correlation, values, .. } = *self;
        let text = names.text(name);
        let end = self.end.max(start).max(start.saturating_add(values.uint(Key::Duration)));
        let (at, range, line) = (start, values.uint(Key::Range), values.name(Key::Line));
        Some(match (self.category, self.track) {
            (category::KERNEL, Track::Stream(stream)) => Record::Kernel(Kernel {
                start,
                end,
                name,
                stream,
                correlation,
                grid: values.size(Key::Grid),
                block: values.size(Key::Block),
                registers: values.small(Key::Registers),
                shared_static: values.small(Key::SharedStatic),
                shared_dynamic: values.small(Key::SharedDynamic),
                graph: values.small(Key::Graph),
                node: values.uint(Key::Node),
                range,
                line,
                captured_in: values.name(Key::Captured),
                bytes: values.uint(Key::Bytes),
            }),
            (category::COPY | category::MEMSET, Track::Stream(stream)) => Record::Transfer(Transfer {
                start,
                end,
                kind: named(TransferKind::ALL, TransferKind::name, text).unwrap_or_default(),
                stream,
                correlation,
                bytes: values.uint(Key::Bytes),
                peer: values.get(Key::Peer).map(|_| values.small(Key::Peer)),
                graph: values.small(Key::Graph),
                node: values.uint(Key::Node),
                range,
                line,
                captured_in: values.name(Key::Captured),
            }),
            (
                category::DRIVER | category::RUNTIME | category::LIBRARY | category::OVERHEAD,
                Track::Thread(thread),
            ) => Record::Call(Call {
                start,
                end,
                name,
                library: match self.category {
                    category::DRIVER => Library::Driver,
                    category::RUNTIME => Library::Runtime,
                    category::LIBRARY => Library::Other,
                    _ => Library::Overhead,
                },
                thread,
                correlation,
                range,
                line,
                detail: values.name(Key::Detail),
            }),
            (category::SYNC, Track::Stream(stream)) => Record::Sync(Sync {
                start,
                end,
                kind: named(SyncKind::ALL, SyncKind::name, text)?,
                stream,
                correlation: values.uint(Key::Correlation),
                event: values.uint(Key::Event),
            }),
            (category::RANGE, Track::Thread(thread)) => Record::Range(Range {
                start,
                end,
                name,
                category: values.name(Key::Category),
                thread,
                id: values.uint(Key::Id),
                parent: values.uint(Key::Parent),
                colour: values.small(Key::Colour),
                payload: values.payload(),
                line,
            }),
            (category::MARK, Track::Thread(thread)) => Record::Mark(Mark {
                at,
                name,
                category: values.name(Key::Category),
                thread,
                colour: values.small(Key::Colour),
                payload: values.payload(),
            }),
            (category::WAIT, Track::Stream(stream)) => Record::Wait(Wait {
                at,
                stream,
                on: StreamId(values.small(Key::On)),
                buffer: name,
                correlation: values.uint(Key::Correlation),
                line,
            }),
            (category::MEMORY, Track::Memory(device)) => Record::Memory(Memory {
                at,
                device,
                address: values.uint(Key::Address),
                bytes: values.int(Key::Bytes),
                allocated: values.uint(Key::Allocated),
                reserved: values.uint(Key::Reserved),
                stream: values.int(Key::Stream),
                line,
            }),
            (category::GRAPH, Track::Thread(thread)) => Record::Graph(Graph {
                start,
                end,
                kind: named(GraphKind::ALL, GraphKind::name, text)?,
                thread,
                graph: values.small(Key::Graph),
                nodes: values.small(Key::Nodes),
                correlation,
                range,
                line,
            }),
            _ => return None,
        })
    }
}

/// The value whose name is `text`.
fn named<T: Copy, const N: usize>(all: [T; N], name: fn(T) -> &'static str, text: &str) -> Option<T> {
    all.into_iter().find(|value| name(*value) == text)
}
