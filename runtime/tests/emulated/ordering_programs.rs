//! Random programs on several streams. The result must be the same as in sequential execution, regardless of the order
//! in which the streams run. Each inserted wait must be necessary: without the wait, the race check must find a race,
//! and some order of the streams must produce another result.
//!
//! Some programs also contain graphs. The graphs are captured on several streams, with buffers created and dropped
//! inside. They are launched on any stream between other work on the same buffers, and dropped while they run.
//!
//! The emulated driver is stepped, so that runs are reproducible: streams advance in an order drawn from a seed, or one
//! of them runs as late as possible. `WARPSMITH_PROGRAMS` sets the number of programs. Ten thousand programs take two
//! minutes.

use std::ops::Range;
use std::sync::Arc;

use crate::common::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, Schedule};
use warpsmith_runtime::{
    Device, DeviceBuffer, Error, Graph, GraphError, GraphExec, Launch, Pending, PinnedBuffer, Stream,
    TypedKernel,
};

const STREAMS: usize = 4;
const BUFFERS: usize = 4;
const LEN: usize = 8;
const STEPS: usize = 24;

fn programs() -> u64 {
    std::env::var("WARPSMITH_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Operations of a program other than the use of buffers.
#[derive(Clone, Copy, PartialEq)]
enum Explicit {
    /// Stream order by events, host waits, queries.
    Mixed,
    /// As above, plus capturing, launching and dropping graphs.
    Graphs,
    /// None, so that every wait is an inserted one.
    None,
}

/// A step of work on buffers, named by index.
#[derive(Debug, Clone)]
enum Work {
    Mix {
        a: u32,
        x: usize,
        y: usize,
        range: Range<usize>,
    },
    Copy {
        x: usize,
        y: usize,
        range: Range<usize>,
    },
    Zero {
        y: usize,
        range: Range<usize>,
    },
    /// Work through a temporary buffer. In a capture the second half may be on the other stream.
    Detour {
        x: usize,
        y: usize,
        crosses: bool,
    },
}

impl Work {
    /// Returns the buffers of which the step uses any bytes.
    fn buffers(&self) -> Vec<usize> {
        match self {
            Work::Mix { range, .. } | Work::Copy { range, .. } | Work::Zero { range, .. }
                if range.is_empty() =>
            {
                Vec::new()
            }
            Work::Mix { x, y, .. } | Work::Copy { x, y, .. } | Work::Detour { x, y, .. } => vec![*x, *y],
            Work::Zero { y, .. } => vec![*y],
        }
    }

    fn apply(&self, model: &mut [Vec<u32>]) {
        match self.clone() {
            Work::Mix { a, x, y, range } => {
                for i in range {
                    model[y][i] = mixed(a, model[x][i], model[y][i]);
                }
            }
            Work::Copy { x, y, range } => {
                let copied = model[x][range.clone()].to_vec();
                model[y][range].copy_from_slice(&copied);
            }
            Work::Zero { y, range } => model[y][range].fill(0),
            Work::Detour { x, y, .. } => model[y] = model[x].clone(),
        }
    }

    fn enqueue(
        &self,
        stream: &Stream,
        other: &Stream,
        kernel: &TypedKernel<Mix>,
        buffers: &mut [DeviceBuffer<u32>],
    ) -> Result<(), Error> {
        match self.clone() {
            Work::Mix { a, x, y, range } => {
                let [x, y] = buffers.get_disjoint_mut([x, y]).unwrap();
                kernel.launch(stream, Launch::linear(4, 4), (a, x.slice(range.clone()), y.slice_mut(range)))
            }
            Work::Copy { x, y, range } => {
                let [x, y] = buffers.get_disjoint_mut([x, y]).unwrap();
                stream.copy(x.slice(range.clone()), y.slice_mut(range))
            }
            Work::Zero { y, range } => stream.memset(buffers[y].slice_mut(range), 0),
            Work::Detour { x, y, crosses } => {
                let [x, y] = buffers.get_disjoint_mut([x, y]).unwrap();
                let mut between = DeviceBuffer::uninit(stream, LEN)?;
                stream.copy(&*x, &mut between)?;
                if crosses { other } else { stream }.copy(&between, y)
            }
        }
    }
}

/// A graph, its work, and the buffers it uses with their generations.
struct Made {
    exec: GraphExec,
    work: Vec<Work>,
    uses: Vec<(usize, u64)>,
}

/// A program on a device, and its expected results.
struct Program {
    random: fastrand::Rng,
    explicit: Explicit,
    device: Device,
    streams: [Stream; STREAMS],
    kernel: TypedKernel<Mix>,
    buffers: Vec<DeviceBuffer<u32>>,
    model: Vec<Vec<u32>>,
    uploads: Vec<Pending<PinnedBuffer<u32>>>,
    /// Downloads, with the expected data.
    downloads: Vec<(Pending<PinnedBuffer<u32>>, Vec<u32>)>,
    /// Number of times each buffer was replaced.
    generations: [u64; BUFFERS],
    graphs: Vec<Made>,
    ran: Ran,
}

/// Outcome of a program.
struct Ran {
    /// True if all data seen by the host was correct.
    right: bool,
    /// Numbers of graph launches and of rejected graph launches.
    launches: u64,
    refused: u64,
}

impl Program {
    /// Creates a program. `late` is the stream that runs as late as possible, if any.
    fn new(driver: &Arc<EmulatedDriver>, seed: u64, explicit: Explicit, late: Option<usize>) -> Self {
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let streams: [Stream; STREAMS] = std::array::from_fn(|_| Stream::new(&device).unwrap());
        if let Some(late) = late {
            driver.set_schedule(Schedule::Starve(streams[late].handle()));
        }
        let random = fastrand::Rng::with_seed(seed);
        // The memory of every buffer was used earlier, by work of its stream that nothing has waited for.
        for stream in &streams {
            drop(DeviceBuffer::<u8>::zeros(stream, 64 << 10).unwrap());
        }
        let kernel = module(&device).kernel().unwrap();
        let mut program = Self {
            random,
            explicit,
            streams,
            kernel,
            buffers: Vec::new(),
            model: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            generations: [0; BUFFERS],
            graphs: Vec::new(),
            ran: Ran { right: true, launches: 0, refused: 0 },
            device,
        };
        for _ in 0..BUFFERS {
            let (buffer, data) = program.made();
            program.buffers.push(buffer);
            program.model.push(data);
        }
        program
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.usize(..bound)
    }

    fn stream(&mut self) -> Stream {
        let index = self.below(STREAMS);
        self.streams[index].clone()
    }

    fn data(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.random.u64(..) as u32).collect()
    }

    /// Creates a buffer whose contents either a stream has yet to write, or the host has waited for.
    fn made(&mut self) -> (DeviceBuffer<u32>, Vec<u32>) {
        let stream = self.stream();
        let data = self.data(LEN);
        let mut buffer = DeviceBuffer::uninit(&stream, LEN).unwrap();
        if self.below(4) == 0 {
            buffer.copy_from_host(&data).unwrap();
        } else {
            // On a stream other than its own, a new buffer waits for possible earlier uses of its memory.
            let other = self.stream();
            let stream = if self.explicit == Explicit::None { &stream } else { &other };
            let source = PinnedBuffer::from_slice(&self.device, &data).unwrap();
            self.uploads.push(stream.copy_from_host_async(source, &mut buffer).unwrap());
        }
        (buffer, data)
    }

    /// Returns a random range, in most cases of all elements.
    fn range(&mut self) -> Range<usize> {
        let (a, b) = (self.below(LEN + 1), self.below(LEN + 1));
        if self.below(3) == 0 { a.min(b)..a.max(b) } else { 0..LEN }
    }

    fn work(&mut self) -> Work {
        let y = self.below(BUFFERS);
        let x = (y + 1 + self.below(BUFFERS - 1)) % BUFFERS;
        let range = self.range();
        match self.below(7) {
            0 | 1 => Work::Copy { x, y, range },
            2 => Work::Zero { y, range },
            3 if self.explicit == Explicit::Graphs => Work::Detour { x, y, crosses: self.below(2) == 0 },
            _ => Work::Mix { a: self.random.u64(..) as u32, x, y, range },
        }
    }

    fn check(&mut self, found: &[u32], expected: &[u32]) {
        self.ran.right &= found == expected;
    }

    /// Captures a few steps on a stream, and in most cases on a second stream too.
    fn capture(&mut self) -> (Graph, Vec<Work>) {
        let count = 1 + self.below(5);
        let work: Vec<Work> = (0..count).map(|_| self.work()).collect();
        let main = self.below(STREAMS);
        let side = (main + 1 + self.below(STREAMS - 1)) % STREAMS;
        let forks = self.below(3) > 0;
        let on_side: Vec<bool> = (0..count).map(|_| forks && self.random.u64(..) & 64 == 0).collect();
        let (main, side) = (self.streams[main].clone(), self.streams[side].clone());
        let graph = Graph::capture(&main, || {
            if forks {
                side.wait_stream(&main)?;
            }
            for (work, on_side) in work.iter().zip(on_side) {
                let (stream, other) = if on_side { (&side, &main) } else { (&main, &side) };
                work.enqueue(stream, if forks { other } else { stream }, &self.kernel, &mut self.buffers)?;
            }
            if forks { main.wait_stream(&side) } else { Ok::<_, Error>(()) }
        });
        (graph.unwrap(), work)
    }

    fn uses(&self, work: &[Work]) -> Vec<(usize, u64)> {
        let mut uses: Vec<usize> = work.iter().flat_map(Work::buffers).collect();
        uses.sort_unstable();
        uses.dedup();
        uses.into_iter().map(|index| (index, self.generations[index])).collect()
    }

    fn step(&mut self) {
        let target = self.below(BUFFERS);
        let stream = self.stream();
        let other = self.stream();
        let range = self.range();
        if self.explicit == Explicit::Graphs && self.below(2) == 0 {
            return self.graph_step(&stream);
        }
        match self.below(if self.explicit == Explicit::None { 12 } else { 16 }) {
            0 => {
                let (buffer, data) = self.made();
                self.buffers[target] = buffer;
                self.generations[target] += 1;
                self.model[target] = data;
            }
            1 => {
                let found = self.buffers[target].slice(range.clone()).to_host().unwrap();
                let expected = self.model[target][range].to_vec();
                self.check(&found, &expected);
            }
            2 => {
                let data = self.data(range.len());
                let pinned = PinnedBuffer::from_slice(&self.device, &data).unwrap();
                let part = self.buffers[target].slice_mut(range.clone());
                self.uploads.push(stream.copy_from_host_async(pinned, part).unwrap());
                self.model[target][range].copy_from_slice(&data);
            }
            3 => {
                let pinned = PinnedBuffer::zeroed(&self.device, range.len()).unwrap();
                let pending =
                    stream.copy_to_host_async(self.buffers[target].slice(range.clone()), pinned).unwrap();
                self.downloads.push((pending, self.model[target][range].to_vec()));
            }
            4 => {
                // Both halves run concurrently on separate streams.
                let (a, x) = (self.random.u64(..) as u32, (target + 1) % BUFFERS);
                for (stream, range) in [(&stream, 0..range.start), (&other, range.start..LEN)] {
                    self.enqueue(&Work::Mix { a, x, y: target, range }, stream, stream);
                }
            }
            5..12 => {
                let work = self.work();
                self.enqueue(&work, &stream, &other);
            }
            12 => {
                let event = stream.record_event().unwrap();
                other.wait_event(&event).unwrap();
                if self.below(2) == 0 {
                    event.synchronize().unwrap();
                }
            }
            13 => other.wait_stream(&stream).unwrap(),
            14 => stream.synchronize().unwrap(),
            _ => {
                stream.query().unwrap();
                self.uploads.clear();
            }
        }
    }

    fn enqueue(&mut self, work: &Work, stream: &Stream, other: &Stream) {
        work.enqueue(stream, other, &self.kernel, &mut self.buffers).unwrap();
        work.apply(&mut self.model);
    }

    fn graph_step(&mut self, stream: &Stream) {
        match self.below(7) {
            0 | 1 if self.graphs.len() < 4 => {
                let (graph, work) = self.capture();
                let uses = self.uses(&work);
                self.graphs.push(Made { exec: graph.instantiate().unwrap(), work, uses });
            }
            2..6 if !self.graphs.is_empty() => {
                let index = self.below(self.graphs.len());
                let made = &self.graphs[index];
                let there =
                    made.uses.iter().all(|(index, generation)| self.generations[*index] == *generation);
                match made.exec.launch(stream) {
                    Ok(()) => {
                        assert!(there, "a buffer was dropped");
                        made.work.iter().for_each(|work| work.apply(&mut self.model));
                        self.ran.launches += 1;
                    }
                    Err(Error::Graph(GraphError::BufferDropped { .. })) => {
                        assert!(!there, "all buffers are there");
                        drop(self.graphs.swap_remove(index));
                        self.ran.refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            6 if !self.graphs.is_empty() => {
                let index = self.below(self.graphs.len());
                drop(self.graphs.swap_remove(index));
            }
            _ => {}
        }
    }

    /// Runs all steps and checks the final state.
    fn run(mut self) -> Ran {
        for _ in 0..STEPS {
            self.step();
        }
        for (pending, expected) in std::mem::take(&mut self.downloads) {
            let found = pending.wait().unwrap();
            self.check(&found, &expected);
        }
        for index in 0..BUFFERS {
            let found = self.buffers[index].to_host().unwrap();
            let expected = self.model[index].clone();
            self.check(&found, &expected);
        }
        assert!(self.device.take_drop_error().is_none());
        self.ran
    }
}

fn stepped(schedule: Schedule) -> Arc<EmulatedDriver> {
    EmulatedDriver::builder().memory(1 << 28).stepped(schedule).check_races().build()
}

/// Runs programs in random order. Returns the numbers of graph launches and of rejected graph launches.
fn equal_sequential_ones(programs: u64, explicit: Explicit) -> (u64, u64) {
    let (mut launches, mut refused) = (0, 0);
    for seed in 0..programs {
        let driver = stepped(Schedule::Random(seed));
        let ran = Program::new(&driver, seed, explicit, None).run();
        let races = driver.take_races();
        assert!(races.is_empty(), "program {seed}: {races:#?}");
        assert!(ran.right, "program {seed} gave another result");
        (launches, refused) = (launches + ran.launches, refused + ran.refused);
    }
    (launches, refused)
}

#[test]
fn random_programs_equal_sequential_ones() {
    equal_sequential_ones(programs(), Explicit::Mixed);
}

#[test]
fn random_programs_with_graphs_equal_sequential_ones() {
    let programs = programs() / 2;
    let (launches, refused) = equal_sequential_ones(programs, Explicit::Graphs);
    println!("{launches} launches, {refused} refused");
    assert!(launches > 2 * programs && refused > programs / 10, "{launches} {refused}");
}

#[test]
fn any_late_stream_gives_the_same_results() {
    for seed in 0..programs() / 8 {
        for late in 0..STREAMS {
            let driver = stepped(Schedule::Oldest);
            assert!(
                Program::new(&driver, seed, Explicit::Mixed, Some(late)).run().right,
                "program {seed}, stream {late} late"
            );
        }
    }
}

/// Runs a program with one wait omitted. Returns whether the race check finds the omission, and whether the result
/// differs when one of the streams is late.
fn without(seed: u64, wait: u64) -> (bool, bool) {
    let mut race = false;
    let mut wrong = false;
    for late in 0..STREAMS {
        let driver = stepped(Schedule::Oldest);
        // SAFETY: the driver is stepped, and the memory outlives the enqueued work.
        unsafe { driver.skip_wait(wait) };
        wrong |= !Program::new(&driver, seed, Explicit::None, Some(late)).run().right;
        race |= !driver.take_races().is_empty();
    }
    (race, wrong)
}

#[test]
fn no_inserted_wait_can_be_left_out() {
    let (mut waits, mut races, mut wrong) = (0, 0, 0);
    for seed in 0..programs() / 50 {
        let driver = stepped(Schedule::Oldest);
        assert!(Program::new(&driver, seed, Explicit::None, None).run().right);
        for wait in 0..driver.calls(Call::StreamWaitEvent) {
            let found = without(seed, wait);
            if !found.0 {
                println!("program {seed}: wait {wait} is not needed");
            }
            waits += 1;
            races += u64::from(found.0);
            wrong += u64::from(found.1);
        }
    }
    println!("{waits} waits: {races} races, {wrong} incorrect results without them");
    assert!(waits > 60, "{waits}");
    assert_eq!(races, waits, "each wait is needed");
    assert!(2 * wrong > waits, "what is lost mostly shows in a result: {wrong} of {waits}");
}
