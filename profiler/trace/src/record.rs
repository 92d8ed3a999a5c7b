//! Records of a trace. Times are in nanoseconds: since 1970 for real devices, and since the start for simulated time.
//! The end of a record is never before its start. A correlation ID connects device work to the call that enqueued it. A
//! correlation ID of 0 means that the call is unknown.

use crate::definitions::{CounterId, StreamId, ThreadId};
use crate::names::Name;

/// Defines an enum whose variants have names in traces. The first variant is the default.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident[$count:literal]: $(#[$first_doc:meta])* $first:ident = $first_text:literal
        $(, $(#[$variant_doc:meta])* $variant:ident = $text:literal)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All kinds.
            pub const ALL: [$name; $count] = [$name::$first $(, $name::$variant)*];

            /// Returns the name of the kind in traces.
            pub fn name(self) -> &'static str {
                match self {
                    $name::$first => $first_text,
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

/// Kernel execution on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
    /// Name of the kernel, as the user wrote it.
    pub name: Name,
    /// Stream.
    pub stream: StreamId,
    /// Correlation ID of the launching call. All nodes of a graph launch have the same ID.
    pub correlation: u64,
    /// Grid size in x, y and z, in blocks.
    pub grid: [u32; 3],
    /// Block size in x, y and z, in threads.
    pub block: [u32; 3],
    /// Number of registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_static: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_dynamic: u32,
    /// Executable graph that launched the kernel; 0 if no graph launched it.
    pub graph: u32,
    /// ID of the graph node; 0 if no graph launched the work.
    pub node: u64,
    /// [`Range::id`] of the range in which the kernel was launched or captured; 0 outside of all ranges.
    pub range: u64,
    /// Source line of the launch or, for a graph node, of the capture, for example `src/main.rs:12`.
    pub line: Name,
    /// Names of the ranges in which a graph node was captured or added, outermost first, for example `step > forward`.
    pub captured_in: Name,
    /// Minimum number of bytes that the kernel reads and writes in device memory; 0 if unknown.
    pub bytes: u64,
}

kinds! {
    /// Kind of a [`Transfer`].
    TransferKind[7]:
    /// Copy between unknown kinds of memory.
    Unknown = "copy",
    /// Copy from host to device.
    HostToDevice = "copy host to device",
    /// Copy from device to host.
    DeviceToHost = "copy device to host",
    /// Copy within a device.
    DeviceToDevice = "copy device to device",
    /// Copy from one device to another.
    PeerToPeer = "copy peer to peer",
    /// Copy within host memory.
    HostToHost = "copy host to host",
    /// Memset.
    Fill = "memset"
}

/// Copy or memset on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfer {
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
    /// Kind of transfer.
    pub kind: TransferKind,
    /// Stream.
    pub stream: StreamId,
    /// Correlation ID of the enqueuing call.
    pub correlation: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Ordinal of the other device in a peer-to-peer copy.
    pub peer: Option<u32>,
    /// Executable graph that launched the transfer; 0 if no graph launched it.
    pub graph: u32,
    /// ID of the graph node; 0 if no graph launched the work.
    pub node: u64,
    /// [`Range::id`] of the range in which the transfer was enqueued; 0 outside of all ranges.
    pub range: u64,
    /// Source line of the call.
    pub line: Name,
    /// Names of the ranges in which a graph node was captured or added, outermost first, for example `step > forward`.
    pub captured_in: Name,
}

/// Library to which a [`Call`] belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Library {
    /// CUDA driver, or another driver.
    #[default]
    Driver,
    /// CUDA runtime library.
    Runtime,
    /// Another library, such as cuBLAS or cuDNN.
    Other,
    /// No library, but overhead of the profiler or of the driver.
    Overhead,
}

/// Call on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// Start time.
    pub start: u64,
    /// Return time.
    pub end: u64,
    /// Name of the function.
    pub name: Name,
    /// Library that was called.
    pub library: Library,
    /// Thread that made the call.
    pub thread: ThreadId,
    /// Correlation ID of the enqueued work.
    pub correlation: u64,
    /// [`Range::id`] of the enclosing range; 0 outside of all ranges.
    pub range: u64,
    /// Source line.
    pub line: Name,
    /// Further information, for example how a configuration was selected.
    pub detail: Name,
}

kinds! {
    /// Kind of a [`Sync`].
    SyncKind[4]:
    /// The host waits for all work of a device.
    Device = "device synchronize",
    /// The host waits for a stream.
    Stream = "stream synchronize",
    /// The host waits for an event.
    Event = "event synchronize",
    /// A stream waits for an event.
    StreamWait = "stream wait event"
}

/// Synchronization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sync {
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
    /// Kind of synchronization.
    pub kind: SyncKind,
    /// Stream that the host waits for, or the stream that waits.
    pub stream: StreamId,
    /// Correlation ID of the call.
    pub correlation: u64,
    /// ID of the event; 0 if no event is involved.
    pub event: u64,
}

/// Numeric payload of a [`Range`] or a [`Mark`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Payload {
    /// No payload.
    #[default]
    None,
    /// Integer.
    Int(i64),
    /// Floating-point number.
    Float(f64),
}

/// Named part of the program on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Range {
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
    /// Name.
    pub name: Name,
    /// Category; may be empty.
    pub category: Name,
    /// Thread.
    pub thread: ThreadId,
    /// ID by which records refer to this range; 0 if the range has no ID.
    pub id: u64,
    /// ID of the enclosing range; 0 for an outermost range.
    pub parent: u64,
    /// Color as 0xAARRGGBB; 0 if no color is set.
    pub color: u32,
    /// Numeric payload.
    pub payload: Payload,
    /// Source line.
    pub line: Name,
}

/// Named instant on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mark {
    /// Time of the mark.
    pub at: u64,
    /// Name.
    pub name: Name,
    /// Category; may be empty.
    pub category: Name,
    /// Thread.
    pub thread: ThreadId,
    /// Color as 0xAARRGGBB; 0 if no color is set.
    pub color: u32,
    /// Numeric payload.
    pub payload: Payload,
}

/// Wait that the runtime inserted to order a use of a buffer on one stream after a use on another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wait {
    /// Time at which the wait was enqueued.
    pub at: u64,
    /// Stream that waits.
    pub stream: StreamId,
    /// Stream for which the waiting stream waits.
    pub on: StreamId,
    /// Buffer that requires the wait.
    pub buffer: Name,
    /// Correlation ID of the operation that requires the wait.
    pub correlation: u64,
    /// Source line of that operation.
    pub line: Name,
}

/// Allocation or release of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Time of the allocation or release.
    pub at: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Address.
    pub address: u64,
    /// Allocated bytes; negative for a release.
    pub bytes: i64,
    /// Number of bytes in use afterwards.
    pub allocated: u64,
    /// Number of bytes reserved from the device after this event.
    pub reserved: u64,
    /// ID of the stream.
    pub stream: i64,
    /// Source line.
    pub line: Name,
}

/// Value of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// Time of the sample.
    pub at: u64,
    /// Counter.
    pub counter: CounterId,
    /// Value, in the counter's unit.
    pub value: f64,
}

kinds! {
    /// Kind of graph operation on a host thread.
    GraphKind[3]:
    /// Stream capture.
    Capture = "capture",
    /// Instantiation of an executable graph.
    Instantiate = "instantiate graph",
    /// Graph launch.
    Launch = "launch graph"
}

/// Capture, instantiation or launch of a graph on a host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Graph {
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
    /// Kind of operation.
    pub kind: GraphKind,
    /// Thread.
    pub thread: ThreadId,
    /// Graph.
    pub graph: u32,
    /// Number of nodes; 0 if unknown.
    pub nodes: u32,
    /// Correlation ID of a launch.
    pub correlation: u64,
    /// [`Range::id`] of the enclosing range; 0 outside of all ranges.
    pub range: u64,
    /// Source line.
    pub line: Name,
}

/// Record of any kind.
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
    /// Returns the start time or, for an instant, its time.
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

    /// Returns the end time or, for an instant, its time.
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
}
