//! [`Joiner`]: ties what the host did to what devices did, and makes records of it.
//!
//! A driver's call lies within the operation of the runtime that made it, on the same thread and by the same clock; its
//! correlation leads to the work that it enqueued. Where the calling thread records the call itself, the order of its records
//! says the same, also in simulated time, in which calls take none. So kernels and copies get the source line and the range of their launch.
//! Nodes of a graph get those of their capture: the k-th piece of captured work is the k-th node.
//!
//! Records come in parts and in any order. A call waits until the operation around it has ended; work waits for its call, but
//! not longer than [`PATIENCE`] rounds. With simulated time the result depends on nothing but the program.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use warpsmith_core::driver::activity::{ActivityPlace, ActivityTransfer, ActivityWait};
use warpsmith_trace::{
    self as trace, Definitions, GraphKind, Kernel, Library, Loss, Name, Record, StreamId, Sync, SyncKind,
    ThreadId, Transfer, TransferKind,
};

use crate::log::{Log, Taken};
use crate::names;
use crate::output::Output;
use crate::raw::{Call, DriverIndex, Push, Raw, Span, What};
use crate::recording::{Recorded, Recording};
use crate::spans::Spans;

/// Rounds that work waits for the record of its call.
const PATIENCE: u64 = 3;
/// The most calls whose work may still come.
const ORIGINS: usize = 1 << 20;

/// Where work was enqueued, or captured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    pub(crate) line: Name,
    pub(crate) range: u64,
    /// The operation; 0 for none.
    op: u64,
    /// The executable that was launched; 0 for none.
    exec: u64,
    /// Whether work of it was recorded.
    is_seen: bool,
}

/// What is known of a host thread.
#[derive(Debug)]
struct Thread {
    id: ThreadId,
    spans: Spans,
    /// The ranges that it is in, the innermost last.
    ranges: Vec<Push>,
    /// See [`Taken::open_since`].
    open_since: u64,
    /// Calls that the thread recorded itself, until the operation around them has ended.
    own_calls: Vec<Call>,
}

/// An operation with its thread, its range, and the calls in it that the thread recorded itself.
type Operation = (u64, Span, u64, Vec<Call>);

/// The allocator of a device.
#[derive(Debug, Default)]
struct Memory {
    allocated: u64,
    reserved: u64,
    /// Blocks in use: their bytes, their source lines, and a number.
    live: HashMap<u64, (u64, Name, u64)>,
}

/// See the [module's documentation](self).
pub(crate) struct Joiner {
    output: Output,
    /// Why the file cannot be written.
    error: Option<io::Error>,
    threads: HashMap<u64, Thread>,
    calls: Vec<(Call, u64)>,
    work: Vec<(Raw, u64)>,
    origins: HashMap<(DriverIndex, u64), Origin>,
    /// The keys of the origins, the oldest first.
    known: VecDeque<(DriverIndex, u64)>,
    /// Operations whose work has no record yet.
    open_ops: HashSet<u64>,
    loss: Loss,
    records: u64,
    names: HashMap<Name, Name>,
    kernels: HashMap<Name, Name>,
    lines: HashMap<usize, Name>,
    memory: BTreeMap<u32, Memory>,
    blocks: u64,
    /// When captures began, by driver and stream, and what was captured since.
    captures: HashMap<(DriverIndex, u32), (u64, Vec<Origin>)>,
    /// The captured work of graphs, and of executables of them.
    graphs: HashMap<(DriverIndex, u64), Arc<[Origin]>>,
    execs: HashMap<(DriverIndex, u64), Arc<[Origin]>>,
    /// Where the nodes of executables were captured.
    nodes: HashMap<(DriverIndex, u64), HashMap<u64, Origin>>,
    samples: HashMap<usize, trace::CounterId>,
    round: u64,
}

impl Joiner {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            error: None,
            threads: HashMap::new(),
            calls: Vec::new(),
            work: Vec::new(),
            origins: HashMap::new(),
            known: VecDeque::new(),
            open_ops: HashSet::new(),
            loss: Loss::default(),
            records: 0,
            names: HashMap::new(),
            kernels: HashMap::new(),
            lines: HashMap::new(),
            memory: BTreeMap::new(),
            blocks: 0,
            captures: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            nodes: HashMap::new(),
            samples: HashMap::new(),
            round: 0,
        }
    }

    fn definitions(&mut self) -> &mut Definitions {
        self.output.sink().definitions()
    }

    /// Describes a device, whose allocator has these bytes.
    pub(crate) fn device(&mut self, ordinal: u32, device: trace::Device, allocated: u64, reserved: u64) {
        self.definitions().devices.insert(ordinal, device);
        let memory = self.memory.entry(ordinal).or_default();
        (memory.allocated, memory.reserved) = (allocated, reserved);
    }

    pub(crate) fn has_device(&self, ordinal: u32) -> bool {
        self.memory.contains_key(&ordinal)
    }

    fn emit(&mut self, record: Record) {
        if self.error.is_some() {
            return;
        }
        self.records += 1;
        if let Err(error) = self.output.record(&record) {
            self.error = Some(error);
        }
    }

    /// The name in the trace of a text of the recording.
    fn name(&mut self, recording: &Recording, name: Name) -> Name {
        if name.is_none() {
            return name;
        }
        if let Some(known) = self.names.get(&name) {
            return *known;
        }
        let text = recording.text(name);
        let known = self.definitions().names.intern(&text);
        self.names.insert(name, known);
        known
    }

    fn text(&mut self, text: &str) -> Name {
        self.definitions().names.intern(text)
    }

    /// The kernel with a symbol as the user wrote it.
    fn kernel_name(&mut self, recording: &Recording, symbol: Name) -> Name {
        if let Some(known) = self.kernels.get(&symbol) {
            return *known;
        }
        let text = recording.text(symbol);
        let Some(spec) = recording.kernel(&text) else { return self.name(recording, symbol) };
        let name = self.text(&names::kernel(spec));
        self.kernels.insert(symbol, name);
        name
    }

    fn line(&mut self, span: &Span) -> Name {
        let Some(site) = span.site else { return Name::NONE };
        let key = std::ptr::from_ref(site).addr();
        if let Some(known) = self.lines.get(&key) {
            return *known;
        }
        let line = self.text(&names::line(site));
        self.lines.insert(key, line);
        line
    }

    /// The state of a thread, by the system's number.
    fn thread(&mut self, number: u64, name: &str, is_simulated: bool) -> &mut Thread {
        if !self.threads.contains_key(&number) {
            let shown = if is_simulated { self.threads.len() as i64 + 1 } else { number as i64 };
            let process = process(is_simulated);
            let id = self.definitions().thread(process, shown);
            let thread = Thread {
                id,
                spans: Spans::default(),
                ranges: Vec::new(),
                open_since: u64::MAX,
                own_calls: Vec::new(),
            };
            self.threads.insert(number, thread);
        }
        if !name.is_empty() {
            let id = self.threads[&number].id;
            self.definitions().name_thread(id, name);
        }
        match self.threads.get_mut(&number) {
            Some(thread) => thread,
            None => unreachable!("it was added above"),
        }
    }

    fn stream(&mut self, drivers: &[Recorded], driver: DriverIndex, device: u32, number: i64) -> StreamId {
        let device = ordinal(drivers, driver, device);
        self.definitions().stream(device, number)
    }

    /// Takes what the logs have and makes records of it: at the end of all, else of what can be joined.
    pub(crate) fn settle(&mut self, recording: &Recording, is_last: bool) {
        self.round += 1;
        let drivers = recording.drivers();
        let began = if is_last { u64::MAX } else { recording.now() };
        let taken: Vec<Taken> = recording.logs().iter().map(Log::take).collect();
        let mut spans = Vec::new();
        let mut freed = 0;
        // Threads get their numbers in the order in which they began to work.
        let mut taken: Vec<(u64, Taken)> =
            taken.into_iter().map(|taken| (first_operation(&taken), taken)).collect();
        taken.sort_by_key(|(first, _)| *first);
        for (first, Taken { log, chunks, open_since }) in taken {
            freed += chunks.len();
            if first != u64::MAX || self.threads.contains_key(&log.thread) {
                self.thread(log.thread, &log.name, recording.is_simulated()).open_since = open_since;
            }
            for raw in chunks.into_iter().flatten() {
                self.sort_in(recording, &log, raw, &mut spans);
            }
        }
        recording.freed(freed);
        spans.sort_by_key(|(_, span, ..)| span.id);
        for (thread, span, range, calls) in spans {
            let origin = self.span(recording, &drivers, thread, &span, range);
            calls.iter().for_each(|call| self.call(recording, call, origin));
        }
        if is_last {
            self.end_own_calls(recording);
        }
        self.join_calls(recording, began, is_last);
        self.join_work(recording, &drivers, is_last);
        let round = self.round;
        for thread in self.threads.values_mut() {
            thread.spans.forget(round.saturating_sub(PATIENCE));
        }
        while self.known.len() > ORIGINS {
            if let Some(oldest) = self.known.pop_front() {
                self.origins.remove(&oldest);
            }
        }
        if is_last {
            self.end_ranges(recording);
        }
    }

    /// Puts a record with those of its kind.
    fn sort_in(&mut self, recording: &Recording, log: &Log, raw: Raw, spans: &mut Vec<Operation>) {
        match raw {
            Raw::Span(span) => {
                let Some(thread) = self.threads.get_mut(&log.thread) else { return };
                let range = thread.ranges.last().map_or(0, |range| range.id);
                let (mut inside, mut outside) = (Vec::new(), Vec::new());
                for call in std::mem::take(&mut thread.own_calls) {
                    if span.start <= call.start && call.end <= span.end {
                        inside.push(call);
                    } else if call.start < span.start {
                        outside.push(call);
                    } else {
                        thread.own_calls.push(call);
                    }
                }
                spans.push((log.thread, span, range, inside));
                outside.iter().for_each(|call| self.call(recording, call, Origin::default()));
            }
            Raw::Call(call) if call.thread == log.thread => {
                self.thread(log.thread, &log.name, recording.is_simulated()).own_calls.push(call);
            }
            Raw::Call(call) => self.calls.push((call, self.round)),
            Raw::Kernel { .. } | Raw::Transfer { .. } | Raw::Wait { .. } => self.work.push((raw, self.round)),
            Raw::Overhead { start, end, what } => {
                let name = self.name(recording, what);
                let process = process(recording.is_simulated());
                let thread = self.definitions().thread(process, -1);
                self.definitions().name_thread(thread, "driver");
                let library = Library::Overhead;
                self.emit(Record::Call(trace::Call {
                    start,
                    end,
                    name,
                    library,
                    thread,
                    ..Default::default()
                }));
            }
            Raw::Push(push) => {
                let thread = self.thread(log.thread, &log.name, recording.is_simulated());
                thread.ranges.push(push);
            }
            Raw::Pop { id, at } => self.end_range(recording, log.thread, id, at),
            Raw::Mark(mark) => {
                let thread = self.thread(log.thread, &log.name, recording.is_simulated()).id;
                let (name, category) = (self.name(recording, mark.name), self.name(recording, mark.category));
                let Push { at, colour, payload, .. } = mark;
                self.emit(Record::Mark(trace::Mark { at, name, category, thread, colour, payload }));
            }
            Raw::Sample { at, counter, value } => {
                let counter = self.sample_counter(recording, counter);
                self.emit(Record::Sample(trace::Sample { at, counter, value }));
            }
        }
    }

    fn sample_counter(&mut self, recording: &Recording, counter: trace::CounterId) -> trace::CounterId {
        if let Some(known) = self.samples.get(&counter.index()) {
            return *known;
        }
        let trace::Counter { device, name, unit } = recording.counters()[counter.index()].clone();
        let known = self.definitions().counter(device, &name, &unit);
        self.samples.insert(counter.index(), known);
        known
    }

    fn end_range(&mut self, recording: &Recording, number: u64, id: u64, at: u64) {
        let Some(thread) = self.threads.get_mut(&number) else { return };
        let Some(place) = thread.ranges.iter().rposition(|range| range.id == id) else { return };
        let range = thread.ranges.remove(place);
        let parent = place.checked_sub(1).map_or(0, |parent| thread.ranges[parent].id);
        let thread = thread.id;
        let (name, category) = (self.name(recording, range.name), self.name(recording, range.category));
        let line = self.name(recording, range.line);
        let Push { at: start, id, colour, payload, .. } = range;
        let end = at.max(start);
        self.emit(Record::Range(trace::Range {
            start,
            end,
            name,
            category,
            thread,
            id,
            parent,
            colour,
            payload,
            line,
        }));
    }

    /// Ends the ranges that are open.
    fn end_ranges(&mut self, recording: &Recording) {
        let now = recording.now();
        let mut open: Vec<(u64, u64)> = Vec::new();
        for (number, thread) in &self.threads {
            open.extend(thread.ranges.iter().rev().map(|range| (*number, range.id)));
        }
        open.sort_by_key(|(number, id)| (*number, std::cmp::Reverse(*id)));
        for (number, id) in open {
            self.end_range(recording, number, id, now);
        }
    }

    /// Calls that nothing is around.
    fn end_own_calls(&mut self, recording: &Recording) {
        let threads = self.threads.values_mut();
        let mut calls: Vec<Call> = threads.flat_map(|thread| std::mem::take(&mut thread.own_calls)).collect();
        calls.sort_by_key(|call| (call.driver, call.correlation));
        calls.iter().for_each(|call| self.call(recording, call, Origin::default()));
    }

    /// Makes records of an operation of the runtime, and returns what is inside it.
    fn span(
        &mut self,
        recording: &Recording,
        drivers: &[Recorded],
        number: u64,
        span: &Span,
        range: u64,
    ) -> Origin {
        let line = self.line(span);
        let op = if span.is_work() { span.id } else { 0 };
        let exec = if let What::GraphLaunch { exec, .. } = span.what { exec } else { 0 };
        let origin = Origin { line, range, op, exec, is_seen: false };
        if let Some(thread) = self.threads.get_mut(&number) {
            let id = thread.id;
            thread.spans.add(span.start, span.end, origin, self.round);
            self.operation(recording, drivers, id, span, origin);
        }
        origin
    }

    fn operation(
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
        let is_captured = span.is_capturing
            && matches!(span.what, What::Launch { .. } | What::Copy { .. } | What::Memset { .. });
        if is_captured
            && let Some(stream) = span.stream
            && let Some((_, captured)) = self.capture_of(span.driver, stream)
        {
            captured.push(origin);
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
                    self.captures.insert((span.driver, stream), (start, Vec::new()));
                }
                return;
            }
            What::CaptureEnd { graph: made, kernels } => {
                let began = span.stream.and_then(|stream| self.captures.remove(&(span.driver, stream)));
                let Some((began, captured)) = began else { return };
                if made != 0 {
                    self.graphs.insert((span.driver, made), captured.into());
                }
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
            What::Instantiate { graph: of, exec } => {
                if let Some(captured) = self.graphs.get(&(span.driver, of)) {
                    self.execs.insert((span.driver, exec), Arc::clone(captured));
                    self.nodes.remove(&(span.driver, exec));
                }
                return self.emit(graph(GraphKind::Instantiate, exec, 0));
            }
            What::GraphLaunch { exec, .. } => return self.emit(graph(GraphKind::Launch, exec, 0)),
            What::Allocate { .. } | What::Free { .. } => self.memory(recording, drivers, span, line),
            What::EventWait { on: Some(on), buffer: Some(_) } => self.wait(drivers, span, on, line),
            _ => {}
        }
        let (name, library) = match span.what {
            What::Launch { spec, .. } => (format!("launch {}", names::kernel(spec)), Library::Runtime),
            What::Copy { direction, .. } => (transfer_kind(direction).name().to_owned(), Library::Runtime),
            What::Memset { .. } => ("memset".to_owned(), Library::Runtime),
            What::HostFunction => ("host function".to_owned(), Library::Runtime),
            What::Extension { name } => (name.trim_end_matches("::{{closure}}").to_owned(), Library::Other),
            What::EventRecord => ("record event".to_owned(), Library::Runtime),
            What::EventWait { .. } => ("wait for event".to_owned(), Library::Runtime),
            What::Synchronize(awaited) => (awaited_name(awaited).to_owned(), Library::Runtime),
            What::Allocate { cached: false, .. } => ("allocate".to_owned(), Library::Runtime),
            _ => return,
        };
        let detail = match span.what {
            _ if !span.succeeded => "failed".to_owned(),
            _ if span.is_capturing => "captured".to_owned(),
            What::Launch { source, .. } => source.to_string(),
            _ => String::new(),
        };
        let (name, detail) = (self.text(&name), self.text(&detail));
        let call =
            trace::Call { start, end, name, library, thread: thread_id, correlation: 0, range, line, detail };
        self.emit(Record::Call(call));
    }

    /// The capture that a stream takes part in: the one that began on it, or the only one of the driver.
    fn capture_of(&mut self, driver: DriverIndex, stream: u32) -> Option<&mut (u64, Vec<Origin>)> {
        if self.captures.contains_key(&(driver, stream)) {
            return self.captures.get_mut(&(driver, stream));
        }
        let mut of_driver = self.captures.iter_mut().filter(|((of, _), _)| *of == driver);
        let only = of_driver.next().map(|(_, capture)| capture)?;
        if of_driver.next().is_some() { None } else { Some(only) }
    }

    fn memory(&mut self, recording: &Recording, drivers: &[Recorded], span: &Span, line: Name) {
        use warpsmith_core::seam::MemoryKind;
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
            // Addresses differ from run to run.
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

    /// A wait that the runtime inserted.
    fn wait(&mut self, drivers: &[Recorded], span: &Span, on: u32, line: Name) {
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

    /// Makes records of calls that cannot lie in operations which have not ended.
    fn join_calls(&mut self, recording: &Recording, began: u64, is_last: bool) {
        let mut ready = Vec::new();
        let threads = &self.threads;
        self.calls.retain(|(call, _)| {
            let open_since = threads.get(&call.thread).map_or(u64::MAX, |thread| thread.open_since);
            let is_ready = is_last || (call.end < began && call.start < open_since);
            if is_ready {
                ready.push(*call);
            }
            !is_ready
        });
        ready.sort_by_key(|call| (call.driver, call.correlation, call.start));
        for call in ready {
            let thread = self.thread(call.thread, "", recording.is_simulated());
            let origin = thread.spans.around(call.start, call.end).unwrap_or_default();
            self.call(recording, &call, origin);
        }
    }

    /// Makes a record of a call.
    fn call(&mut self, recording: &Recording, call: &Call, origin: Origin) {
        let thread = self.thread(call.thread, "", recording.is_simulated()).id;
        let name = self.name(recording, call.function);
        let key = (call.driver, call.correlation);
        if call.correlation != 0 && self.origins.insert(key, origin).is_none() {
            self.known.push_back(key);
        }
        let (Call { start, end, .. }, Origin { line, range, .. }) = (*call, origin);
        self.emit(Record::Call(trace::Call {
            start,
            end,
            name,
            library: Library::Driver,
            thread,
            correlation: correlation(key),
            range,
            line,
            detail: Name::NONE,
        }));
    }

    /// Makes records of work whose call is known, or that has waited long enough.
    fn join_work(&mut self, recording: &Recording, drivers: &[Recorded], is_last: bool) {
        let mut ready = Vec::new();
        let (origins, round) = (&self.origins, self.round);
        self.work.retain(|(raw, since)| {
            let (driver, place, ..) = placed(raw);
            let is_known = place.correlation == 0 || origins.contains_key(&(driver, place.correlation));
            let is_ready = is_last || is_known || round - since >= PATIENCE;
            if is_ready {
                ready.push(*raw);
            }
            !is_ready
        });
        ready.sort_by_key(|raw| {
            let (driver, place, start, end) = placed(raw);
            (start, end, driver, place.device, place.stream, place.correlation, place.node, raw.is_work())
        });
        self.find_nodes(&ready);
        for raw in ready {
            let (driver, place, start, end) = placed(&raw);
            let origin = self.origin(driver, &place, raw.is_work());
            let key = if place.correlation == 0 { 0 } else { correlation((driver, place.correlation)) };
            let Origin { line, range, .. } = origin;
            let ActivityPlace { graph, node, .. } = place;
            match raw {
                Raw::Kernel { symbol, grid, block, registers, shared_static, shared_dynamic, .. } => {
                    let name = self.kernel_name(recording, symbol);
                    let stream = self.stream(drivers, driver, place.device, place.stream.into());
                    self.emit(Record::Kernel(Kernel {
                        start,
                        end,
                        name,
                        stream,
                        correlation: key,
                        grid,
                        block,
                        registers,
                        shared_static,
                        shared_dynamic,
                        graph,
                        node,
                        range,
                        line,
                        bytes: 0,
                    }));
                }
                Raw::Transfer { kind, bytes, .. } => {
                    let (kind, peer) = transfer(kind);
                    let peer = peer.map(|peer| ordinal(drivers, driver, peer));
                    let stream = self.stream(drivers, driver, place.device, place.stream.into());
                    self.emit(Record::Transfer(Transfer {
                        start,
                        end,
                        kind,
                        stream,
                        correlation: key,
                        bytes,
                        peer,
                        graph,
                        node,
                        range,
                        line,
                    }));
                }
                Raw::Wait { kind, .. } => {
                    let (kind, number) = match kind {
                        ActivityWait::HostForDevice => (SyncKind::Device, -1),
                        ActivityWait::HostForStream => (SyncKind::Stream, place.stream.into()),
                        ActivityWait::HostForEvent => (SyncKind::Event, place.stream.into()),
                        ActivityWait::StreamForEvent => (SyncKind::StreamWait, place.stream.into()),
                    };
                    let stream = self.stream(drivers, driver, place.device, number);
                    let (correlation, event) = (key, 0);
                    self.emit(Record::Sync(Sync { start, end, kind, stream, correlation, event }));
                }
                _ => {}
            }
        }
    }

    /// Where work was enqueued; counts the first piece of work of an operation.
    fn origin(&mut self, driver: DriverIndex, place: &ActivityPlace, is_work: bool) -> Origin {
        let key = (driver, place.correlation);
        let Some(origin) = self.origins.get_mut(&key) else {
            if is_work {
                // Of a call that was not recorded.
                self.loss.issued += 1;
                self.loss.recorded += 1;
            }
            return Origin::default();
        };
        if is_work && !std::mem::replace(&mut origin.is_seen, true) {
            self.loss.recorded += 1;
            if !self.open_ops.remove(&origin.op) {
                // Of a library, or one of several pieces of an operation.
                self.loss.issued += 1;
            }
        }
        let origin = *origin;
        if place.node == 0 {
            return origin;
        }
        let captured = self.nodes.get(&(driver, origin.exec)).and_then(|nodes| nodes.get(&place.node));
        captured.map_or(origin, |captured| Origin { line: captured.line, range: captured.range, ..origin })
    }

    /// Finds where the nodes of executables were captured, by launches of which all nodes are there.
    fn find_nodes(&mut self, ready: &[Raw]) {
        let mut launches: HashMap<(DriverIndex, u64), Vec<u64>> = HashMap::new();
        for raw in ready.iter().filter(|raw| raw.is_work()) {
            let (driver, place, ..) = placed(raw);
            if place.node != 0 {
                launches.entry((driver, place.correlation)).or_default().push(place.node);
            }
        }
        for ((driver, correlation), mut nodes) in launches {
            let Some(exec) = self.origins.get(&(driver, correlation)).map(|origin| origin.exec) else {
                continue;
            };
            if self.nodes.contains_key(&(driver, exec)) {
                continue;
            }
            let Some(captured) = self.execs.get(&(driver, exec)) else { continue };
            nodes.sort_unstable();
            nodes.dedup();
            if nodes.len() == captured.len() {
                let nodes = nodes.into_iter().zip(captured.iter().copied()).collect();
                self.nodes.insert((driver, exec), nodes);
            }
        }
    }

    /// Writes what is held to the file, and returns whether that works.
    pub(crate) fn flush(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.output.flush()
        {
            self.error = Some(error);
        }
    }

    /// Ends the trace: facts and loss are added, and the file is finished. The trace if it is in memory, the loss, the number of
    /// records.
    pub(crate) fn finish(
        &mut self,
        facts: Vec<(String, String)>,
        driver_loss: Loss,
    ) -> (io::Result<Option<trace::Trace>>, Loss, u64) {
        let mut loss = self.loss;
        loss.dropped += driver_loss.dropped;
        loss.zero_time += driver_loss.zero_time;
        loss.refused += driver_loss.refused;
        // One operation can have several records that were lost, and a lost record of an operation can be all there is of it.
        loss.issued = loss.issued.max(loss.recorded + loss.dropped + loss.zero_time);
        let definitions = self.definitions();
        definitions.loss = loss;
        definitions.about.extend(facts);
        let output = std::mem::replace(&mut self.output, Output::Memory(Box::default()));
        let finished = match self.error.take() {
            Some(error) => {
                // What can still be written is.
                let _ = output.finish();
                Err(error)
            }
            None => output.finish(),
        };
        (finished, loss, self.records)
    }
}

/// The number of the process in the trace. Equal programs make equal traces with simulated time.
fn process(is_simulated: bool) -> i64 {
    if is_simulated { 1 } else { i64::from(std::process::id()) }
}

/// The id of the first operation or range in it.
fn first_operation(taken: &Taken) -> u64 {
    let all = taken.chunks.iter().flatten();
    let ids = all.filter_map(|raw| match raw {
        Raw::Span(span) => Some(span.id),
        Raw::Push(_) | Raw::Mark(_) => Some(0),
        _ => None,
    });
    ids.min().unwrap_or(u64::MAX)
}

/// The driver, place and times of a record of a device.
fn placed(raw: &Raw) -> (DriverIndex, ActivityPlace, u64, u64) {
    match *raw {
        Raw::Kernel { driver, place, start, end, .. }
        | Raw::Transfer { driver, place, start, end, .. }
        | Raw::Wait { driver, place, start, end, .. } => (driver, place, start, end),
        _ => (0, ActivityPlace::default(), 0, 0),
    }
}

/// The ordinal in the trace of a device of a driver.
fn ordinal(drivers: &[Recorded], driver: DriverIndex, device: u32) -> u32 {
    drivers.get(usize::from(driver)).map_or(0, |recorded| recorded.first_ordinal) + device
}

/// One number for correlations of all drivers.
fn correlation((driver, correlation): (DriverIndex, u64)) -> u64 {
    u64::from(driver) << 48 | correlation
}

fn transfer(kind: ActivityTransfer) -> (TransferKind, Option<u32>) {
    match kind {
        ActivityTransfer::Unknown => (TransferKind::Unknown, None),
        ActivityTransfer::HostToDevice => (TransferKind::HostToDevice, None),
        ActivityTransfer::DeviceToHost => (TransferKind::DeviceToHost, None),
        ActivityTransfer::DeviceToDevice => (TransferKind::DeviceToDevice, None),
        ActivityTransfer::PeerToPeer { peer } => (TransferKind::PeerToPeer, Some(peer)),
        ActivityTransfer::HostToHost => (TransferKind::HostToHost, None),
        ActivityTransfer::Memset => (TransferKind::Fill, None),
    }
}

fn transfer_kind(direction: warpsmith_core::seam::CopyDirection) -> TransferKind {
    use warpsmith_core::seam::CopyDirection;
    match direction {
        CopyDirection::HostToDevice => TransferKind::HostToDevice,
        CopyDirection::DeviceToHost => TransferKind::DeviceToHost,
        CopyDirection::DeviceToDevice => TransferKind::DeviceToDevice,
        CopyDirection::PeerToPeer => TransferKind::PeerToPeer,
    }
}

fn awaited_name(awaited: warpsmith_core::seam::Awaited) -> &'static str {
    use warpsmith_core::seam::Awaited;
    match awaited {
        Awaited::Device => SyncKind::Device.name(),
        Awaited::Stream => SyncKind::Stream.name(),
        Awaited::Event(_) => SyncKind::Event.name(),
    }
}
