//! [`Joiner`]: correlates host operations with device work, and creates trace records.
//!
//! A driver call belongs to the runtime operation on the same thread whose time span encloses the call. The correlation
//! ID of the call identifies the work that it enqueued. If the calling thread records the call itself, the order of the
//! thread's records is used instead of times. This also works in simulated time, in which calls have no duration.
//! Kernels and copies are thus attributed to the source line and range of their launch, and graph nodes to the source
//! line and range of their capture.
//!
//! Records arrive in batches and in any order. A call is kept until the operation that encloses it has ended. Work is
//! kept until the record of its call arrives, but for no more than [`PATIENCE`] rounds. In simulated time, the result
//! depends only on the program.
//!
//! | module | content |
//! | --- | --- |
//! | `operations` | runtime operations: calls, graphs, memory, waits |
//! | `work` | driver calls, and the work that they enqueued |
//! | `graphs` | capture locations of graph nodes |
//! | `nodes` | identification of the graph node to which a record belongs |
//! | `ranges` | ranges |
//! | `spans` | operations of a thread, which can be searched by time |

mod graphs;
mod nodes;
mod operations;
mod ranges;
mod spans;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::Location;

use foldhash::{HashMap, HashSet};
use warpsmith_trace::{self as trace, Definitions, Library, Loss, Name, Record, StreamId, ThreadId};

use self::graphs::Graphs;
use self::spans::Spans;
use crate::names;
use crate::output::Output;
use crate::raw::{Call, DriverIndex, Push, Raw, Span};
use crate::recording::log::{Log, Taken};
use crate::recording::{Recorded, Recording};

/// Number of rounds for which work waits for the record of its call.
const PATIENCE: u64 = 3;
/// Maximum number of calls whose work may still arrive.
const ORIGINS: usize = 1 << 20;

/// Origin of work: the location where it was enqueued or captured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    pub(crate) line: Name,
    pub(crate) range: u64,
    /// Names of the ranges that enclose captured work, outermost first.
    ranges: Name,
    /// Number of bytes that a kernel moves; 0 if unknown.
    bytes: u64,
    /// ID of the operation; 0 if no operation enqueued the work.
    op: u64,
    /// ID of the node list of the launched executable; 0 if the work is not a graph launch.
    nodes: u64,
    /// True if work with this origin has been recorded.
    is_seen: bool,
}

/// State of a host thread.
#[derive(Debug)]
struct Thread {
    id: ThreadId,
    spans: Spans,
    /// Ranges that the thread has entered, innermost last.
    ranges: Vec<Push>,
    /// Start of the oldest operation that has not ended yet; see [`Taken::open_since`].
    open_since: u64,
    /// Calls that the thread has recorded itself and whose enclosing operation has not ended yet.
    own_calls: Vec<Call>,
    /// Last round in which the thread had a log.
    lived: u64,
}

impl Thread {
    /// Returns true if the thread has had no log for some rounds, so that records no longer need its state.
    fn is_settled(&self, round: u64) -> bool {
        let is_unused = self.spans.is_empty() && self.ranges.is_empty() && self.own_calls.is_empty();
        is_unused && self.lived + PATIENCE < round
    }
}

/// Operation with its thread, its range, the names of the ranges that enclose its captured work, and the calls that the
/// thread has recorded itself.
type Operation = (u64, Span, (u64, Name), Vec<Call>);

/// Allocator state of a device.
#[derive(Debug, Default)]
struct Memory {
    allocated: u64,
    reserved: u64,
    /// Blocks in use, each with its size in bytes, its source line and its index.
    live: HashMap<u64, (u64, Name, u64)>,
}

/// Correlates host operations with device work. See the [module documentation](self).
pub(crate) struct Joiner {
    output: Output,
    /// Error after which nothing more is written to the file.
    error: Option<io::Error>,
    threads: HashMap<u64, Thread>,
    calls: Vec<(Call, u64)>,
    work: Vec<(Raw, u64)>,
    origins: HashMap<(DriverIndex, u64), Origin>,
    /// Keys of the origins, oldest first.
    known: VecDeque<(DriverIndex, u64)>,
    /// Operations for whose work no record has arrived yet.
    open_ops: HashSet<u64>,
    loss: Loss,
    records: u64,
    names: HashMap<Name, Name>,
    kernels: HashMap<Name, Name>,
    /// Names of kernel launches, keyed by the address of the kernel spec.
    launches: HashMap<usize, Name>,
    lines: HashMap<usize, Name>,
    memory: BTreeMap<u32, Memory>,
    blocks: u64,
    /// Start times of captures, keyed by driver and stream.
    captures: HashMap<(DriverIndex, u32), u64>,
    graphs: Graphs,
    samples: HashMap<usize, trace::CounterId>,
    /// Ranges that any thread can end, each with the thread that started it, and ends of ranges that belong to no
    /// thread.
    started: HashMap<u64, (u64, Push)>,
    ended: Vec<(u64, u64)>,
    round: u64,
}

impl Joiner {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            error: None,
            threads: HashMap::default(),
            calls: Vec::new(),
            work: Vec::new(),
            origins: HashMap::default(),
            known: VecDeque::new(),
            open_ops: HashSet::default(),
            loss: Loss::default(),
            records: 0,
            names: HashMap::default(),
            kernels: HashMap::default(),
            launches: HashMap::default(),
            lines: HashMap::default(),
            memory: BTreeMap::new(),
            blocks: 0,
            captures: HashMap::default(),
            graphs: Graphs::default(),
            samples: HashMap::default(),
            started: HashMap::default(),
            ended: Vec::new(),
            round: 0,
        }
    }

    fn definitions(&mut self) -> &mut Definitions {
        self.output.sink().definitions()
    }

    /// Describes a device, with the number of bytes that its allocator currently uses and reserves.
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

    /// Returns the name that the trace uses for a string of the recording.
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

    /// Joins the names of nested ranges into one string.
    fn path(&mut self, recording: &Recording, ranges: &[Name]) -> Name {
        match ranges {
            [] => Name::NONE,
            [one] => self.name(recording, *one),
            _ => {
                let names: Vec<String> = ranges.iter().map(|name| recording.text(*name)).collect();
                self.text(&names.join(" > "))
            }
        }
    }

    fn text(&mut self, text: &str) -> Name {
        self.definitions().names.intern(text)
    }

    /// Returns the kernel name, as the user wrote it, for a symbol.
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

    fn line(&mut self, site: Option<&'static Location<'static>>) -> Name {
        let Some(site) = site else { return Name::NONE };
        let key = std::ptr::from_ref(site).addr();
        if let Some(known) = self.lines.get(&key) {
            return *known;
        }
        let line = self.text(&names::line(site));
        self.lines.insert(key, line);
        line
    }

    /// Returns the state of the thread whose system-wide thread ID is `number`.
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
                lived: self.round,
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

    /// Takes the contents of the logs and creates records from them. At the end of the recording, creates all records;
    /// before that, creates only records that can be joined.
    pub(crate) fn settle(&mut self, recording: &Recording, is_last: bool) {
        self.round += 1;
        let round = self.round;
        let drivers = recording.drivers();
        let began = if is_last { u64::MAX } else { recording.now() };
        let taken = recording.take_logs();
        let mut spans = Vec::new();
        let mut freed = 0;
        // Threads are numbered in the order of their first operations.
        let mut taken: Vec<(u64, Taken)> =
            taken.into_iter().map(|taken| (first_operation(&taken), taken)).collect();
        taken.sort_by_key(|(first, _)| *first);
        for (first, Taken { log, chunks, open_since }) in taken {
            freed += chunks.len();
            if first != u64::MAX || self.threads.contains_key(&log.thread) {
                let thread = self.thread(log.thread, &log.name, recording.is_simulated());
                thread.open_since = open_since;
                thread.lived = round;
            }
            for raw in chunks.into_iter().flatten() {
                self.sort_in(recording, &log, raw, &mut spans);
            }
        }
        spans.sort_by_key(|(_, span, ..)| span.id);
        for (thread, span, range, calls) in spans {
            let origin = self.span(recording, &drivers, thread, &span, range);
            calls.iter().for_each(|call| self.call(recording, call, origin));
        }
        self.end_started(recording);
        self.take_lists(recording);
        if is_last {
            self.end_own_calls(recording);
        }
        self.join_calls(recording, began, is_last);
        self.join_work(recording, &drivers, is_last);
        recording.freed(freed);
        for thread in self.threads.values_mut() {
            thread.spans.forget(round.saturating_sub(PATIENCE));
        }
        if !recording.is_simulated() {
            // In simulated time, a new thread would reuse the ID of a removed thread.
            self.threads.retain(|_, thread| !thread.is_settled(round));
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

    /// Adds a raw record to the list of its kind.
    fn sort_in(&mut self, recording: &Recording, log: &Log, raw: Raw, spans: &mut Vec<Operation>) {
        match raw {
            Raw::Span(span) => {
                let Some(thread) = self.threads.get_mut(&log.thread) else { return };
                let range = thread.ranges.last().map_or(0, |range| range.id);
                let around: Vec<Name> = match span.captures() {
                    true => thread.ranges.iter().map(|range| range.name).collect(),
                    false => Vec::new(),
                };
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
                let ranges = self.path(recording, &around);
                spans.push((log.thread, span, (range, ranges), inside));
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
            Raw::Start(push) => {
                self.thread(log.thread, &log.name, recording.is_simulated());
                self.started.insert(push.id, (log.thread, push));
            }
            Raw::Pop { id, at } => self.end_range(recording, log.thread, id, at),
            Raw::Mark(mark) => {
                let thread = self.thread(log.thread, &log.name, recording.is_simulated()).id;
                let (name, category) = (self.name(recording, mark.name), self.name(recording, mark.category));
                let Push { at, color, payload, .. } = mark;
                self.emit(Record::Mark(trace::Mark { at, name, category, thread, color, payload }));
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

    /// Writes buffered data to the file; if this fails, stores the error.
    pub(crate) fn flush(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.output.flush()
        {
            self.error = Some(error);
        }
    }

    /// Ends the trace: adds facts and losses, and completes the file. Returns the trace (if it is in memory), the
    /// losses, and the number of records.
    pub(crate) fn finish(
        &mut self,
        facts: Vec<(String, String)>,
        driver_loss: Loss,
    ) -> (io::Result<Option<trace::Trace>>, Loss, u64) {
        let mut loss = self.loss;
        loss.dropped += driver_loss.dropped;
        loss.zero_time += driver_loss.zero_time;
        loss.refused += driver_loss.refused;
        // `issued` does not include operations whose only record was lost, and counts an operation only once if several
        // of its records were lost.
        loss.issued = loss.issued.max(loss.recorded + loss.dropped + loss.zero_time);
        let nodes = self.graphs.facts();
        let definitions = self.definitions();
        definitions.loss = loss;
        definitions.about.extend(facts);
        definitions.about.extend(nodes);
        let output = std::mem::replace(&mut self.output, Output::Memory(Box::default()));
        let finished = match self.error.take() {
            // A file with missing records must not look complete, so its end is not written.
            Some(error) => Err(error),
            None => output.finish(),
        };
        (finished, loss, self.records)
    }
}

/// Returns the process ID for the trace. In simulated time, it is constant, so that the same program always produces
/// the same trace.
fn process(is_simulated: bool) -> i64 {
    if is_simulated { 1 } else { i64::from(std::process::id()) }
}

/// Returns the ID of the first operation or range in a log.
fn first_operation(taken: &Taken) -> u64 {
    let all = taken.chunks.iter().flatten();
    let ids = all.filter_map(|raw| match raw {
        Raw::Span(span) => Some(span.id),
        Raw::Push(_) | Raw::Start(_) | Raw::Mark(_) => Some(0),
        _ => None,
    });
    ids.min().unwrap_or(u64::MAX)
}

/// Returns the ordinal that a driver's device has in the trace.
fn ordinal(drivers: &[Recorded], driver: DriverIndex, device: u32) -> u32 {
    drivers.get(usize::from(driver)).map_or(0, |recorded| recorded.first_ordinal) + device
}
