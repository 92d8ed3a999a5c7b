//! The records of a trace. Times are nanoseconds, since 1970 for real devices, from 0 with simulated time; an end is
//! never before its start. A correlation of 0 is none; else it ties work on a device to the call that enqueued it.

use crate::definitions::{CounterId, StreamId, ThreadId};
use crate::names::Name;

/// A kernel on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernel {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its name, as the user wrote it.
    pub name: Name,
    /// The stream.
    pub stream: StreamId,
    /// Of its launch; all nodes of one launch of a graph have the same.
    pub correlation: u64,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory that the kernel declares.
    pub shared_static: u32,
    /// Bytes of shared memory that the launch added.
    pub shared_dynamic: u32,
    /// The graph it is a node of; 0 for none.
    pub graph: u32,
    /// The node; 0 for none.
    pub node: u64,
    /// The [`Range::id`] in which it was launched or captured; 0 for none.
    pub range: u64,
    /// The source line of its launch, or for a node of a graph of its capture: `src/main.rs:12`.
    pub line: Name,
    /// Of a node of a graph the names of the ranges in which it was captured or added, the outermost first, such as
    /// `step > forward`.
    pub captured_in: Name,
    /// Bytes it reads and writes in device memory at least; 0 when unknown.
    pub bytes: u64,
}

/// The kind of a [`Transfer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum TransferKind {
    /// A copy whose ends are unknown.
    #[default]
    Unknown,
    /// A copy from host to device.
    HostToDevice,
    /// A copy from device to host.
    DeviceToHost,
    /// A copy within a device.
    DeviceToDevice,
    /// A copy from one device to another.
    PeerToPeer,
    /// A copy within host memory.
    HostToHost,
    /// A memset.
    Fill,
}

impl TransferKind {
    /// All kinds.
    pub const ALL: [TransferKind; 7] = [
        TransferKind::Unknown,
        TransferKind::HostToDevice,
        TransferKind::DeviceToHost,
        TransferKind::DeviceToDevice,
        TransferKind::PeerToPeer,
        TransferKind::HostToHost,
        TransferKind::Fill,
    ];

    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            TransferKind::Unknown => "copy",
            TransferKind::HostToDevice => "copy host to device",
            TransferKind::DeviceToHost => "copy device to host",
            TransferKind::DeviceToDevice => "copy device to device",
            TransferKind::PeerToPeer => "copy peer to peer",
            TransferKind::HostToHost => "copy host to host",
            TransferKind::Fill => "memset",
        }
    }
}

/// A copy or a memset on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfer {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What it did.
    pub kind: TransferKind,
    /// The stream.
    pub stream: StreamId,
    /// Of the call that enqueued it.
    pub correlation: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The ordinal of the other device of a copy between peers.
    pub peer: Option<u32>,
    /// The graph it is a node of; 0 for none.
    pub graph: u32,
    /// The node; 0 for none.
    pub node: u64,
    /// The [`Range::id`] in which it was enqueued; 0 for none.
    pub range: u64,
    /// The source line of the call.
    pub line: Name,
    /// Of a node of a graph the names of the ranges in which it was captured or added, the outermost first, such as
    /// `step > forward`.
    pub captured_in: Name,
}

/// Which library a [`Call`] went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Library {
    /// The driver.
    #[default]
    Driver,
    /// CUDA's runtime library.
    Runtime,
    /// Another: cuBLAS, cuDNN, ….
    Other,
    /// None: what the profiler or the driver spent besides.
    Overhead,
}

/// A call on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// When it began.
    pub start: u64,
    /// When it returned.
    pub end: u64,
    /// The function.
    pub name: Name,
    /// The library.
    pub library: Library,
    /// The thread.
    pub thread: ThreadId,
    /// Of what it enqueued.
    pub correlation: u64,
    /// The [`Range::id`] around it; 0 for none.
    pub range: u64,
    /// The source line.
    pub line: Name,
    /// What else is known, for example how a configuration was chosen.
    pub detail: Name,
}

/// What a [`Sync`] waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum SyncKind {
    /// The host for all work of a device.
    #[default]
    Device,
    /// The host for a stream.
    Stream,
    /// The host for an event.
    Event,
    /// A stream for an event.
    StreamWait,
}

impl SyncKind {
    /// All kinds.
    pub const ALL: [SyncKind; 4] =
        [SyncKind::Device, SyncKind::Stream, SyncKind::Event, SyncKind::StreamWait];

    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            SyncKind::Device => "device synchronize",
            SyncKind::Stream => "stream synchronize",
            SyncKind::Event => "event synchronize",
            SyncKind::StreamWait => "stream wait event",
        }
    }
}

/// A synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sync {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What waited for what.
    pub kind: SyncKind,
    /// The stream that was waited for, or that waits.
    pub stream: StreamId,
    /// Of the call.
    pub correlation: u64,
    /// The event; 0 for none.
    pub event: u64,
}

/// A number with a [`Range`] or a [`Mark`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Payload {
    /// None.
    #[default]
    None,
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
}

/// A part of the program with a name, on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Range {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its name.
    pub name: Name,
    /// Its category; may be empty.
    pub category: Name,
    /// The thread.
    pub thread: ThreadId,
    /// Its id, to which records refer; 0 for none.
    pub id: u64,
    /// The id of the range around it; 0 for none.
    pub parent: u64,
    /// Its colour as 0xAARRGGBB; 0 for none.
    pub colour: u32,
    /// Its number.
    pub payload: Payload,
    /// The source line.
    pub line: Name,
}

/// A moment with a name, on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mark {
    /// When.
    pub at: u64,
    /// Its name.
    pub name: Name,
    /// Its category; may be empty.
    pub category: Name,
    /// The thread.
    pub thread: ThreadId,
    /// Its colour as 0xAARRGGBB; 0 for none.
    pub colour: u32,
    /// Its number.
    pub payload: Payload,
}

/// A wait that the runtime inserted, so that a stream uses a buffer after another stream's use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wait {
    /// When it was enqueued.
    pub at: u64,
    /// The stream that waits.
    pub stream: StreamId,
    /// The stream it waits for.
    pub on: StreamId,
    /// The buffer that made it necessary.
    pub buffer: Name,
    /// Of the operation that needs it.
    pub correlation: u64,
    /// The source line of that operation.
    pub line: Name,
}

/// An allocation or a free of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// When.
    pub at: u64,
    /// The ordinal of the device.
    pub device: u32,
    /// The address.
    pub address: u64,
    /// Bytes that were allocated; negative for a free.
    pub bytes: i64,
    /// Bytes in use afterwards.
    pub allocated: u64,
    /// Bytes reserved from the device afterwards.
    pub reserved: u64,
    /// The stream's id.
    pub stream: i64,
    /// The source line.
    pub line: Name,
}

/// A value of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// When.
    pub at: u64,
    /// The counter.
    pub counter: CounterId,
    /// The value, in the counter's unit.
    pub value: f64,
}

/// What a host thread did with a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum GraphKind {
    /// Recorded it.
    #[default]
    Capture,
    /// Made it executable.
    Instantiate,
    /// Launched it.
    Launch,
}

impl GraphKind {
    /// All kinds.
    pub const ALL: [GraphKind; 3] = [GraphKind::Capture, GraphKind::Instantiate, GraphKind::Launch];

    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            GraphKind::Capture => "capture",
            GraphKind::Instantiate => "instantiate graph",
            GraphKind::Launch => "launch graph",
        }
    }
}

/// A capture, instantiation or launch of a graph, on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Graph {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What was done.
    pub kind: GraphKind,
    /// The thread.
    pub thread: ThreadId,
    /// The graph.
    pub graph: u32,
    /// Its nodes; 0 when unknown.
    pub nodes: u32,
    /// Of a launch.
    pub correlation: u64,
    /// The [`Range::id`] around it; 0 for none.
    pub range: u64,
    /// The source line.
    pub line: Name,
}

/// A record of any kind.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the types say what they are")]
pub enum Record {
    Kernel(Kernel),
    Transfer(Transfer),
    Call(Call),
    Sync(Sync),
    Range(Range),
    Mark(Mark),
    Wait(Wait),
    Memory(Memory),
    Sample(Sample),
    Graph(Graph),
}

impl Record {
    /// When it began, or happened.
    pub fn start(&self) -> u64 {
        match self {
            Record::Kernel(record) => record.start,
            Record::Transfer(record) => record.start,
            Record::Call(record) => record.start,
            Record::Sync(record) => record.start,
            Record::Range(record) => record.start,
            Record::Graph(record) => record.start,
            Record::Mark(record) => record.at,
            Record::Wait(record) => record.at,
            Record::Memory(record) => record.at,
            Record::Sample(record) => record.at,
        }
    }

    /// When it ended, or happened.
    pub fn end(&self) -> u64 {
        match self {
            Record::Kernel(record) => record.end,
            Record::Transfer(record) => record.end,
            Record::Call(record) => record.end,
            Record::Sync(record) => record.end,
            Record::Range(record) => record.end,
            Record::Graph(record) => record.end,
            _ => self.start(),
        }
    }

    /// Sets the end, no earlier than the begin; a record of a moment stays as it is.
    pub(crate) fn end_at(&mut self, at: u64) {
        let at = at.max(self.start());
        match self {
            Record::Kernel(record) => record.end = at,
            Record::Transfer(record) => record.end = at,
            Record::Call(record) => record.end = at,
            Record::Sync(record) => record.end = at,
            Record::Range(record) => record.end = at,
            Record::Graph(record) => record.end = at,
            Record::Mark(_) | Record::Wait(_) | Record::Memory(_) | Record::Sample(_) => {}
        }
    }
}
