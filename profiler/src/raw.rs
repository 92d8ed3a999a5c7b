//! Raw data of operations and records before the two are joined. The values are plain data, so that storing them is
//! cheap.

use std::panic::Location;

use gpu_spec::KernelSpec;
use warpsmith_runtime::driver::activity::{ActivityPlace, ActivityTransfer, ActivityWait};
use warpsmith_runtime::extension::{Awaited, AwaitedBuffer, CopyDirection, MemoryKind};
use warpsmith_runtime::launch::Source;
use warpsmith_trace::{CounterId, Name, Payload};

/// Index of a driver in the list of recorded drivers.
pub(crate) type DriverIndex = u16;

/// Raw record. Its names refer to strings of the [recording](crate::recording::Recording).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw {
    Span(Span),
    Kernel {
        driver: DriverIndex,
        start: u64,
        end: u64,
        place: ActivityPlace,
        symbol: Name,
        grid: [u32; 3],
        block: [u32; 3],
        registers: u32,
        shared_static: u32,
        shared_dynamic: u32,
    },
    Transfer {
        driver: DriverIndex,
        start: u64,
        end: u64,
        place: ActivityPlace,
        kind: ActivityTransfer,
        bytes: u64,
    },
    Wait {
        driver: DriverIndex,
        start: u64,
        end: u64,
        place: ActivityPlace,
        kind: ActivityWait,
    },
    Call(Call),
    Overhead {
        start: u64,
        end: u64,
        what: Name,
    },
    Push(Push),
    /// Start of a range that another thread may end and that does not enclose operations of its own thread.
    Start(Push),
    Pop {
        id: u64,
        at: u64,
    },
    Mark(Push),
    Sample {
        at: u64,
        counter: CounterId,
        value: f64,
    },
}

impl Raw {
    /// Returns true if this is a record of device work.
    pub(crate) fn is_work(&self) -> bool {
        matches!(self, Raw::Kernel { .. } | Raw::Transfer { .. })
    }
}

/// A driver call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) driver: DriverIndex,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) thread: u64,
    pub(crate) correlation: u64,
    pub(crate) function: Name,
}

/// Start of a range, or a mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Push {
    pub(crate) at: u64,
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) category: Name,
    pub(crate) color: u32,
    pub(crate) payload: Payload,
    pub(crate) line: Name,
}

/// A runtime operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// ID of the operation; IDs increase in the order of the operations.
    pub(crate) id: u64,
    pub(crate) driver: DriverIndex,
    pub(crate) device: u32,
    /// ID of the stream in records; `None` if the operation has no stream.
    pub(crate) stream: Option<u32>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) site: Option<&'static Location<'static>>,
    pub(crate) succeeded: bool,
    pub(crate) is_capturing: bool,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Launch {
        spec: &'static KernelSpec,
        source: Source,
        bytes: u64,
    },
    GraphAdd,
    /// Launch of a graph. `nodes` is the ID of a node list in the recording.
    GraphLaunch {
        exec: u64,
        has_kernels: bool,
        nodes: u64,
    },
    CaptureBegin,
    CaptureEnd {
        graph: u64,
        kernels: u32,
    },
    Instantiate {
        exec: u64,
    },
    Copy {
        direction: CopyDirection,
        bytes: u64,
    },
    Memset {
        bytes: u64,
    },
    HostFunction,
    Extension {
        name: &'static str,
    },
    EventRecord,
    EventWait {
        on: Option<u32>,
        buffer: Option<AwaitedBuffer>,
    },
    Synchronize(Awaited),
    Allocate {
        memory: MemoryKind,
        address: u64,
        bytes: u64,
        cached: bool,
        reserved: u64,
    },
    Free {
        memory: MemoryKind,
        address: u64,
        bytes: u64,
    },
}

impl Span {
    /// Returns true if the operation captures work or adds work to a graph.
    pub(crate) fn captures(&self) -> bool {
        self.is_capturing || matches!(self.what, What::GraphAdd)
    }

    /// Returns true if the work of the operation must have a device record.
    pub(crate) fn is_work(&self) -> bool {
        let enqueues = match self.what {
            What::Launch { .. } => true,
            What::GraphLaunch { has_kernels, .. } => has_kernels,
            What::Copy { bytes, .. } | What::Memset { bytes } => bytes > 0,
            _ => false,
        };
        enqueues && self.succeeded && !self.is_capturing
    }
}
