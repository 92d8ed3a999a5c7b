//! Records of runtime operations.

use gpu_spec::KernelSpec;
use warpsmith_runtime::extension::{Awaited, CopyDirection, MemoryKind};
use warpsmith_runtime::launch::Source;
use warpsmith_trace::{self as trace, GraphKind, Library, Name, Record, SyncKind, ThreadId, TransferKind};

use super::nodes::Place;
use super::{Joiner, Origin, ordinal};
use crate::names;
use crate::raw::{Span, What};
use crate::recording::{Recorded, Recording};

impl Joiner {
    /// Creates the records of a runtime operation. Returns the origin of the work that the operation has enqueued.
    pub(super) fn span(
        &mut self,
        recording: &Recording,
        drivers: &[Recorded],
        number: u64,
        span: &Span,
        (range, ranges): (u64, Name),
    ) -> Origin {
        let line = self.line(span.site);
        let op = if span.is_work() { span.id } else { 0 };
        let nodes = if let What::GraphLaunch { nodes, .. } = span.what { nodes } else { 0 };
        let bytes = if let What::Launch { bytes, .. } = span.what { bytes } else { 0 };
        let origin = Origin { line, range, ranges: Name::NONE, bytes, op, nodes, is_seen: false };
        if span.captures() {
            self.graphs.captured(span.id, Place { line, range: Some(range), ranges, bytes: 0 });
        }
        if let Some(thread) = self.threads.get_mut(&number) {
            let id = thread.id;
            thread.spans.add(span.start, span.end, origin, self.round);
            self.operation(recording, drivers, id, span, origin);
        }
        origin
    }

    pub(super) fn operation(
        &mut self,
        recording: &Recording,
        drivers: &[Recorded],
        thread_id: ThreadId,
        span: &Span,
        origin: Origin,
    ) {
        let Origin { line, range, op, .. } = origin;
        if op != 0 {
            self.loss.issued += 1;
            self.open_ops.insert(op);
        }
        let Span { start, end, .. } = *span;
        let graph = |kind, graph: u64, nodes| {
            let graph = u32::try_from(graph).unwrap_or(0);
            let thread = thread_id;
            Record::Graph(trace::Graph {
                start,
                end,
                kind,
                thread,
                graph,
                nodes,
                correlation: 0,
                range,
                line,
            })
        };
        match span.what {
            What::CaptureBegin => {
                if let Some(stream) = span.stream.filter(|_| span.succeeded) {
                    self.captures.insert((span.driver, stream), start);
                }
                return;
            }
            What::CaptureEnd { graph: made, kernels } => {
                let began = span.stream.and_then(|stream| self.captures.remove(&(span.driver, stream)));
                let Some(began) = began else { return };
                let graph = u32::try_from(made).unwrap_or(0);
                return self.emit(Record::Graph(trace::Graph {
                    start: began,
                    end,
                    kind: GraphKind::Capture,
                    thread: thread_id,
                    graph,
                    nodes: kernels,
                    correlation: 0,
                    range,
                    line,
                }));
            }
            What::Instantiate { exec } => return self.emit(graph(GraphKind::Instantiate, exec, 0)),
            What::GraphLaunch { exec, .. } => return self.emit(graph(GraphKind::Launch, exec, 0)),
            What::Allocate { .. } | What::Free { .. } => self.memory(recording, drivers, span, line),
            What::EventWait { on: Some(on), buffer: Some(_) } => self.wait(drivers, span, on, line),
            _ => {}
        }
        let library = if let What::Extension { .. } = span.what { Library::Other } else { Library::Runtime };
        let name = match span.what {
            What::Launch { spec, .. } => self.launch_name(spec),
            What::Copy { direction, .. } => self.text(transfer_kind(direction).name()),
            What::Memset { .. } => self.text("memset"),
            What::HostFunction => self.text("host function"),
            What::Extension { name } => self.text(name.trim_end_matches("::{{closure}}")),
            What::EventRecord => self.text("record event"),
            What::EventWait { .. } => self.text("wait for event"),
            What::Synchronize(awaited) => self.text(awaited_name(awaited)),
            What::Allocate { cached: false, .. } => self.text("allocate"),
            _ => return,
        };
        let detail = match span.what {
            _ if !span.succeeded => self.text("failed"),
            _ if span.is_capturing => self.text("captured"),
            What::Launch { source, .. } => self.text(source_text(source)),
            _ => Name::NONE,
        };
        let call =
            trace::Call { start, end, name, library, thread: thread_id, correlation: 0, range, line, detail };
        self.emit(Record::Call(call));
    }

    fn launch_name(&mut self, spec: &'static KernelSpec) -> Name {
        let key = std::ptr::from_ref(spec).addr();
        if let Some(known) = self.launches.get(&key) {
            return *known;
        }
        let name = self.text(&format!("launch {}", names::kernel(spec)));
        self.launches.insert(key, name);
        name
    }

    pub(super) fn memory(&mut self, recording: &Recording, drivers: &[Recorded], span: &Span, line: Name) {
        let device = ordinal(drivers, span.driver, span.device);
        let memory = self.memory.entry(device).or_default();
        let (address, signed) = match span.what {
            What::Allocate { memory: MemoryKind::Device, address, bytes, reserved, .. } => {
                memory.allocated += bytes;
                memory.reserved = reserved;
                self.blocks += 1;
                memory.live.insert(address, (bytes, line, self.blocks));
                (address, bytes as i64)
            }
            What::Free { memory: MemoryKind::Device, address, bytes } => {
                memory.allocated = memory.allocated.saturating_sub(bytes);
                (address, -(bytes as i64))
            }
            _ => return,
        };
        let (allocated, reserved) = (memory.allocated, memory.reserved);
        let shown = match memory.live.get(&address) {
            // In simulated time, traces must not differ between runs, but addresses do. Therefore, the index of the
            // memory block replaces its address.
            Some((_, _, number)) if recording.is_simulated() => *number,
            _ if recording.is_simulated() => 0,
            _ => address,
        };
        let line = match (line.is_none(), memory.live.get(&address)) {
            (true, Some((_, line, _))) => *line,
            _ => line,
        };
        let stream = span.stream.map_or(-1, i64::from);
        self.emit(Record::Memory(trace::Memory {
            at: span.end,
            device,
            address: shown,
            bytes: signed,
            allocated,
            reserved,
            stream,
            line,
        }));
    }

    /// Creates the record of a wait that the runtime has inserted.
    pub(super) fn wait(&mut self, drivers: &[Recorded], span: &Span, on: u32, line: Name) {
        let (What::EventWait { buffer: Some(buffer), .. }, Some(stream)) = (span.what, span.stream) else {
            return;
        };
        let device = ordinal(drivers, span.driver, span.device);
        let of = self.memory.get(&device).and_then(|memory| memory.live.get(&buffer.address));
        let access = if buffer.write { "written" } else { "read" };
        let of = of.map(|(_, line, _)| *line).filter(|line| !line.is_none());
        let text = match of {
            Some(of) => {
                let of = self.definitions().names.text(of).to_owned();
                format!("buffer of {} bytes, allocated at {of}, {access}", buffer.bytes)
            }
            None => format!("buffer of {} bytes, {access}", buffer.bytes),
        };
        let buffer = self.text(&text);
        let on = self.stream(drivers, span.driver, span.device, on.into());
        let stream = self.stream(drivers, span.driver, span.device, stream.into());
        self.emit(Record::Wait(trace::Wait { at: span.start, stream, on, buffer, correlation: 0, line }));
    }
}

fn transfer_kind(direction: CopyDirection) -> TransferKind {
    match direction {
        CopyDirection::HostToDevice => TransferKind::HostToDevice,
        CopyDirection::DeviceToHost => TransferKind::DeviceToHost,
        CopyDirection::DeviceToDevice => TransferKind::DeviceToDevice,
        CopyDirection::PeerToPeer => TransferKind::PeerToPeer,
    }
}

fn awaited_name(awaited: Awaited) -> &'static str {
    match awaited {
        Awaited::Device => SyncKind::Device.name(),
        Awaited::Stream => SyncKind::Stream.name(),
        Awaited::Event(_) => SyncKind::Event.name(),
    }
}

/// Describes how a launch configuration was selected.
fn source_text(source: Source) -> &'static str {
    match source {
        Source::Given => "configuration given",
        Source::Heuristic => "configuration chosen from the properties of the device and the kernel",
        Source::Tuned => "tuned configuration from the launch store",
    }
}
