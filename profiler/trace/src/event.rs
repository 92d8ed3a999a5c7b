//! A record, decomposed into a category, a name, a track, times, and named values.

use crate::definitions::{CounterId, StreamId, ThreadId};
use crate::names::{Name, Names};
use crate::record::*;

/// Track on which an event is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Track {
    Thread(ThreadId),
    Stream(StreamId),
    /// Allocator of a device.
    Memory(u32),
    Counter(CounterId),
}

macro_rules! keys {
    ($($key:ident = $text:literal),* $(,)?) => {
        /// Name of a value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Key { $($key),* }

        impl Key {
            pub(crate) fn text(self) -> &'static str {
                match self { $(Key::$key => $text),* }
            }

        }
    };
}

keys! {
    Grid = "grid", Block = "block", Registers = "registers per thread", SharedStatic = "static shared memory",
    SharedDynamic = "dynamic shared memory", Graph = "graph", Node = "graph node", Nodes = "nodes", Range = "range",
    Line = "line", Bytes = "bytes", Peer = "peer", Detail = "detail", Event = "event", Id = "id", Parent = "parent",
    Category = "category", Color = "color", Payload = "payload", Stream = "stream", On = "waits for stream",
    Address = "address", Allocated = "allocated", Reserved = "reserved", Correlation = "correlation",
    Captured = "captured in",
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(Name),
    Size([u32; 3]),
}

/// A name, or a fixed string of the format.
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

/// Named values. Empty values are omitted.
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

/// Decomposed record.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) category: &'static str,
    pub(crate) label: Label,
    pub(crate) track: Track,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Correlation ID shared by related events; 0 if no event is related.
    pub(crate) correlation: u64,
    pub(crate) values: Values,
}

impl Event {
    /// Returns true if events of this category have a duration.
    pub(crate) fn is_slice(category: &str) -> bool {
        use category::*;
        !matches!(category, MARK | WAIT | MEMORY | SAMPLE)
    }

    /// Decomposes a record. The memory of `values` is reused.
    pub(crate) fn of(record: &Record, values: Values) -> Event {
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
        let mut put = |key, value| values.push(key, value);
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
            }
            Record::Transfer(transfer) => {
                let is_fill = transfer.kind == TransferKind::Fill;
                event.category = if is_fill { category::MEMSET } else { category::COPY };
                event.label = Label::Fixed(transfer.kind.name());
                event.track = Track::Stream(transfer.stream);
                event.correlation = transfer.correlation;
                put(Key::Bytes, Value::Uint(transfer.bytes));
                if let Some(peer) = transfer.peer {
                    // Device 0 is valid, so it must not be omitted.
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
                put(Key::Color, Value::Uint(range.color.into()));
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
                put(Key::Color, Value::Uint(mark.color.into()));
                if let Some(payload) = mark.payload.into() {
                    put(Key::Payload, payload);
                }
            }
            Record::Wait(wait) => {
                event.category = category::WAIT;
                event.label = Label::Name(wait.buffer);
                event.track = Track::Stream(wait.stream);
                // Stream 0 is valid, so it must not be omitted.
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
