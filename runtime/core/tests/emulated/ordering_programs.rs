//! Random programs on several streams give what they give one step after the other, whatever order the streams run
//! in; and each wait that was inserted is needed: without it a race is found, and some order of the streams gives
//! another result.
//!
//! The emulated driver runs in steps here: streams advance in an order drawn from a seed, or one of them as late as
//! possible, so that a run says the same each time. `WARPSMITH_PROGRAMS` sets the number of programs; ten
//! thousand take two minutes.

use std::sync::Arc;

use crate::common::*;
use warpsmith_runtime::driver::emulated::{Call, EmulatedDriver, Schedule};
use warpsmith_runtime::{Device, DeviceBuffer, Launch, Pending, PinnedBuffer, Stream, TypedKernel};

const STREAMS: usize = 4;
const BUFFERS: usize = 4;
const STEPS: usize = 24;

fn programs() -> u64 {
    std::env::var("WARPSMITH_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(800)
}

/// What a program does besides using buffers.
#[derive(Clone, Copy, PartialEq)]
enum Explicit {
    /// Orders streams by events, waits on the host, asks.
    Mixed,
    /// Nothing: every wait is one that was inserted.
    None,
}

/// A program on a device, and what it should come to.
struct Program {
    random: fastrand::Rng,
    explicit: Explicit,
    device: Device,
    streams: [Stream; STREAMS],
    kernel: TypedKernel<Mix>,
    buffers: Vec<DeviceBuffer<u32>>,
    model: Vec<Vec<u32>>,
    uploads: Vec<Pending<PinnedBuffer<u32>>>,
    /// Downloads, with what should arrive.
    downloads: Vec<(Pending<PinnedBuffer<u32>>, Vec<u32>)>,
    /// Whether all that the host saw was as it should be.
    right: bool,
}

impl Program {
    /// `late` is the stream that runs as late as possible, if one does.
    fn new(driver: &Arc<EmulatedDriver>, seed: u64, explicit: Explicit, late: Option<usize>) -> Self {
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let streams: [Stream; STREAMS] = std::array::from_fn(|_| Stream::from_pool(&device).unwrap());
        if let Some(late) = late {
            driver.set_schedule(Schedule::Starve(streams[late].handle()));
        }
        let random = fastrand::Rng::with_seed(seed);
        // Every buffer's memory was used before, by work of its stream that nobody has waited for.
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
            right: true,
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

    /// A new buffer whose content a stream has yet to bring, or that the host has waited for.
    fn made(&mut self) -> (DeviceBuffer<u32>, Vec<u32>) {
        let len = 4 * (1 + self.below(4));
        let stream = self.stream();
        let data = self.data(len);
        let mut buffer = DeviceBuffer::uninit(&stream, len).unwrap();
        if self.below(4) == 0 {
            buffer.copy_from_host(&data).unwrap();
        } else {
            // On another stream than its own, a new buffer waits for what may have used its memory before, whether or not
            // something has.
            let other = self.stream();
            let stream = if self.explicit == Explicit::None { &stream } else { &other };
            let source = PinnedBuffer::from_slice(&self.device, &data).unwrap();
            self.uploads.push(stream.copy_from_host(source, &mut buffer).unwrap());
        }
        (buffer, data)
    }

    /// A range of that many elements: mostly all of them.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        match self.below(3) {
            0 => {
                let (a, b) = (self.below(len + 1), self.below(len + 1));
                a.min(b)..a.max(b)
            }
            _ => 0..len,
        }
    }

    fn check(&mut self, found: &[u32], expected: &[u32]) {
        self.right &= found == expected;
    }

    fn step(&mut self) {
        let target = self.below(BUFFERS);
        let source = (target + 1 + self.below(BUFFERS - 1)) % BUFFERS;
        let stream = self.stream();
        let common = self.model[source].len().min(self.model[target].len());
        let range = self.range(common);
        let a = self.random.u64(..) as u32;
        let kinds = if self.explicit == Explicit::Mixed { 16 } else { 12 };
        match self.below(kinds) {
            0 => {
                let (buffer, data) = self.made();
                self.buffers[target] = buffer;
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
                self.uploads.push(stream.copy_from_host(pinned, part).unwrap());
                self.model[target][range].copy_from_slice(&data);
            }
            3 => {
                let pinned = PinnedBuffer::zeroed(&self.device, range.len()).unwrap();
                let pending = stream.copy_to_host(self.buffers[target].slice(range.clone()), pinned).unwrap();
                self.downloads.push((pending, self.model[target][range].to_vec()));
            }
            4 | 5 => {
                let [x, y] = self.buffers.get_disjoint_mut([source, target]).unwrap();
                y.slice_mut(range.clone()).copy_from(x.slice(range.clone())).unwrap();
                let copied = self.model[source][range.clone()].to_vec();
                self.model[target][range].copy_from_slice(&copied);
            }
            6 => {
                self.buffers[target].slice_mut(range.clone()).memset(0).unwrap();
                self.model[target][range].fill(0);
            }
            7 => {
                // Both halves at once, each on a stream of its own.
                let other = self.stream();
                let middle = self.below(common + 1);
                let [x, y] = self.buffers.get_disjoint_mut([source, target]).unwrap();
                let (low, high) = y.split_at_mut(middle);
                let launch = |stream, part| self.kernel.launch(stream, Launch::linear(4, 4), (a, &*x, part));
                launch(&stream, low).unwrap();
                launch(&other, high).unwrap();
                let [x, y] = self.model.get_disjoint_mut([source, target]).unwrap();
                let (low, high) = y.split_at_mut(middle);
                for part in [low, high] {
                    part.iter_mut().zip(&*x).for_each(|(y, x)| *y = mixed(a, *x, *y));
                }
            }
            8..12 => {
                let [x, y] = self.buffers.get_disjoint_mut([source, target]).unwrap();
                let part = (a, x.slice(range.clone()), y.slice_mut(range.clone()));
                self.kernel.launch(&stream, Launch::linear(4, 4), part).unwrap();
                let [x, y] = self.model.get_disjoint_mut([source, target]).unwrap();
                let (x, y) = (&x[range.clone()], &mut y[range]);
                y.iter_mut().zip(x).for_each(|(y, x)| *y = mixed(a, *x, *y));
            }
            12 => {
                let event = stream.record_event().unwrap();
                self.stream().wait_event(&event).unwrap();
                if a.is_multiple_of(2) {
                    event.synchronize().unwrap();
                }
            }
            13 => self.stream().wait_stream(&stream).unwrap(),
            14 => stream.synchronize().unwrap(),
            _ => {
                stream.query().unwrap();
                self.uploads.clear();
            }
        }
    }

    /// Runs all steps and looks at what is left. True if everything was right.
    fn run(mut self) -> bool {
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
        self.right
    }
}

fn stepped(schedule: Schedule) -> Arc<EmulatedDriver> {
    EmulatedDriver::builder().memory(1 << 28).stepped(schedule).check_races().build()
}

#[test]
fn random_programs_equal_sequential_ones() {
    for seed in 0..programs() {
        let driver = stepped(Schedule::Random(seed));
        let right = Program::new(&driver, seed, Explicit::Mixed, None).run();
        let races = driver.take_races();
        assert!(races.is_empty(), "program {seed}: {races:#?}");
        assert!(right, "program {seed} gave another result");
    }
}

#[test]
fn whichever_stream_is_late_the_results_are_the_same() {
    for seed in 0..programs() / 8 {
        for late in 0..STREAMS {
            let driver = stepped(Schedule::Oldest);
            assert!(
                Program::new(&driver, seed, Explicit::Mixed, Some(late)).run(),
                "program {seed}, stream {late} late"
            );
        }
    }
}

/// Runs a program of which one wait is left out: whether the race check finds it, and whether the result is another
/// when one of the streams is late.
fn without(seed: u64, wait: u64) -> (bool, bool) {
    let mut race = false;
    let mut wrong = false;
    for late in 0..STREAMS {
        let driver = stepped(Schedule::Oldest);
        // SAFETY: the driver is stepped, and the memory lives until its work has run.
        unsafe { driver.skip_wait(wait) };
        wrong |= !Program::new(&driver, seed, Explicit::None, Some(late)).run();
        race |= !driver.take_races().is_empty();
    }
    (race, wrong)
}

#[test]
fn no_inserted_wait_can_be_left_out() {
    let (mut waits, mut races, mut wrong) = (0, 0, 0);
    for seed in 0..programs() / 50 {
        let driver = stepped(Schedule::Oldest);
        assert!(Program::new(&driver, seed, Explicit::None, None).run());
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
    println!("{waits} waits: {races} races, {wrong} wrong results without them");
    assert!(waits > 200, "{waits}");
    assert_eq!(races, waits, "each wait is needed");
    assert!(2 * wrong > waits, "what is lost mostly shows in a result: {wrong} of {waits}");
}
