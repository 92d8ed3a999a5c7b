//! What is kept of an operation or a record until it is joined with others: plain values, cheap to store.

use std::panic::Location;

use gpu_spec::KernelSpec;
use warpsmith_runtime::driver::activity::{ActivityPlace, ActivityTransfer, ActivityWait};
use warpsmith_runtime::launch::Source;
use warpsmith_runtime::seam::{Awaited, AwaitedBuffer, CopyDirection, MemoryKind};
use warpsmith_trace::{CounterId, Name, Payload};

/// A driver that is recorded, by its place in the list.
pub(crate) type DriverIndex = u16;

/// Something that was recorded. Names are of the [recording's](crate::recording::Recording) texts.
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
    /// A range that another thread may end, and in which its thread is not.
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
    /// Whether it is a record of work on a device.
    pub(crate) fn is_work(&self) -> bool {
        matches!(self, Raw::Kernel { .. } | Raw::Transfer { .. })
    }
}

/// A call of the driver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) driver: DriverIndex,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) thread: u64,
    pub(crate) correlation: u64,
    pub(crate) function: Name,
}

/// The beginning of a range, or a mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Push {
    pub(crate) at: u64,
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) category: Name,
    pub(crate) colour: u32,
    pub(crate) payload: Payload,
    pub(crate) line: Name,
}

/// An operation of the runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Operations that begin later have a larger one.
    pub(crate) id: u64,
    pub(crate) driver: DriverIndex,
    pub(crate) device: u32,
    /// The stream's number in records; `None` without a stream.
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
    /// The nodes are a list of the recording.
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
    /// Whether it captures work, or adds it to a graph.
    pub(crate) fn captures(&self) -> bool {
        self.is_capturing || matches!(self.what, What::GraphAdd)
    }

    /// Whether there must be a record of what it enqueued.
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
