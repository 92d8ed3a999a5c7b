//! Random programs with graphs give what they give one step after the other, whatever order the streams run in.
//!
//! Graphs are captured on several streams at random, with buffers made and dropped within, and launched on any stream
//! between other work on the same buffers, updated, and dropped while they run. The emulated driver runs in steps, looks
//! for races, and refuses to free memory that enqueued work names. `WARPSMITH_PROGRAMS` sets the number of programs.

use std::ops::Range;
use std::sync::Arc;

use crate::common::*;
use warpsmith_runtime::driver::emulated::{EmulatedDriver, Schedule};
use warpsmith_runtime::{
    Device, DeviceBuffer, Error, Graph, GraphError, GraphExec, Launch, Stream, TypedKernel,
};

const STREAMS: usize = 4;
const BUFFERS: usize = 4;
const LEN: usize = 8;
const STEPS: usize = 30;

/// A step of work on buffers, by their numbers.
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
    /// Through a buffer that is made and dropped. In a capture the second half may be on the other stream.
    Detour {
        x: usize,
        y: usize,
        crosses: bool,
    },
}

impl Work {
    /// The buffers of which it uses any bytes.
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

/// A graph, what it does, and the buffers it uses with their generations.
struct Made {
    exec: GraphExec,
    work: Vec<Work>,
    uses: Vec<(usize, u64)>,
}

struct Program {
    random: fastrand::Rng,
    device: Device,
    streams: [Stream; STREAMS],
    kernel: TypedKernel<Mix>,
    buffers: Vec<DeviceBuffer<u32>>,
    generations: [u64; BUFFERS],
    model: Vec<Vec<u32>>,
    graphs: Vec<Made>,
    launches: u32,
    refused: u32,
}

impl Program {
    fn new(driver: &Arc<EmulatedDriver>, seed: u64) -> Self {
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let streams: [Stream; STREAMS] = std::array::from_fn(|_| Stream::new(&device).unwrap());
        let mut random = fastrand::Rng::with_seed(seed);
        let kernel = module(&device).kernel().unwrap();
        let model: Vec<Vec<u32>> =
            (0..BUFFERS).map(|_| (0..LEN).map(|_| random.u64(..) as u32).collect()).collect();
        let buffers = model
            .iter()
            .map(|data| DeviceBuffer::from_host(&streams[random.usize(..STREAMS)], data).unwrap())
            .collect();
        Self {
            random,
            device,
            streams,
            kernel,
            buffers,
            generations: [0; BUFFERS],
            model,
            graphs: Vec::new(),
            launches: 0,
            refused: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.usize(..bound)
    }

    fn stream(&mut self) -> Stream {
        let index = self.below(STREAMS);
        self.streams[index].clone()
    }

    fn work(&mut self) -> Work {
        let y = self.below(BUFFERS);
        let x = (y + 1 + self.below(BUFFERS - 1)) % BUFFERS;
        let (a, b) = (self.below(LEN + 1), self.below(LEN + 1));
        let range = if self.below(3) == 0 { a.min(b)..a.max(b) } else { 0..LEN };
        match self.below(6) {
            0 => Work::Copy { x, y, range },
            1 => Work::Zero { y, range },
            2 => Work::Detour { x, y, crosses: self.below(2) == 0 },
            _ => Work::Mix { a: self.random.u64(..) as u32, x, y, range },
        }
    }

    /// Captures a few steps on a stream, and mostly on another too.
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
        let stream = self.stream();
        match self.below(12) {
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
                match made.exec.launch(&stream) {
                    Ok(()) => {
                        assert!(there, "a buffer is gone");
                        made.work.iter().for_each(|work| work.apply(&mut self.model));
                        self.launches += 1;
                    }
                    Err(Error::Graph(GraphError::BufferDropped { .. })) => {
                        assert!(!there, "all buffers are there");
                        drop(self.graphs.swap_remove(index));
                        self.refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            6 if !self.graphs.is_empty() => {
                let index = self.below(self.graphs.len());
                drop(self.graphs.swap_remove(index));
            }
            7 => {
                let index = self.below(BUFFERS);
                let data: Vec<u32> = (0..LEN).map(|_| self.random.u64(..) as u32).collect();
                self.buffers[index] = DeviceBuffer::from_host(&stream, &data).unwrap();
                self.generations[index] += 1;
                self.model[index] = data;
            }
            8 => {
                let index = self.below(BUFFERS);
                assert_eq!(self.buffers[index].to_host().unwrap(), self.model[index]);
            }
            9 => {
                let other = self.stream();
                other.wait_stream(&stream).unwrap();
            }
            _ => {
                let work = self.work();
                let other = self.stream();
                work.enqueue(&stream, &other, &self.kernel, &mut self.buffers).unwrap();
                work.apply(&mut self.model);
            }
        }
    }

    /// Runs all steps and looks at what is left. The numbers of launches, and of those that were refused.
    fn run(mut self) -> (u32, u32) {
        (0..STEPS).for_each(|_| self.step());
        for (buffer, expected) in self.buffers.iter().zip(&self.model) {
            assert_eq!(buffer.to_host().unwrap(), *expected);
        }
        assert!(self.device.take_drop_error().is_none());
        (self.launches, self.refused)
    }
}

#[test]
fn random_programs_with_graphs_equal_sequential_ones() {
    let programs = std::env::var("WARPSMITH_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let (mut launches, mut refused) = (0, 0);
    let programs = programs.unwrap_or(1000u64);
    for seed in 0..programs {
        let driver =
            EmulatedDriver::builder().memory(1 << 28).stepped(Schedule::Random(seed)).check_races().build();
        println!("program {seed}");
        let found = Program::new(&driver, seed).run();
        launches += found.0;
        refused += found.1;
        let races = driver.take_races();
        assert!(races.is_empty(), "program {seed}: {races:#?}");
    }
    assert!(u64::from(launches) > 2 * programs && u64::from(refused) > programs / 10, "{launches} {refused}");
}
