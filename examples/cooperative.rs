//! Cooperative launches and programmatic dependent launch, each compared with a version without it. The cases are a
//! simulation in one cooperative launch, a sum in one launch, a histogram in distributed shared memory, and a chain of
//! dependent launches. The example checks every result and prints the time of each case.
//!
//! `cargo run --release --example cooperative -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the best
//! available device. Times on the emulated device do not represent a GPU.

use std::error::Error;

use test_kernels::IMAGE;
use test_kernels::cooperative::{
    BINS, cluster_histogram, cooperative_sum, diffuse, diffuse_step, global_histogram, partial_sum,
    spin_dependent, spin_plain,
};
use warpsmith::gpu_std::Kernel;
use warpsmith::{Device, DeviceBuffer, Launch, Stream, TypedKernel};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Number of runs. Only the fastest counts.
const RUNS: usize = 5;

fn main() -> Outcome<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let bench = Bench::new(device)?;
    println!("{}\n", bench.device.name());
    println!("{:<52} {:>12} {:>12} {:>7}", "", "without", "with", "gain");
    bench.simulation()?;
    bench.sum()?;
    bench.chain()?;
    if bench.device.is_emulated() || bench.device.properties().capability.0 >= 9 {
        bench.histogram()?;
    } else {
        println!("no clusters: they need compute capability 9.0");
    }
    println!("\nall results correct");
    Ok(())
}

/// Device, and the problem size for it.
struct Bench {
    device: Device,
    stream: Stream,
    /// Number of blocks that can be resident on the device at once.
    blocks: u32,
    /// Threads per block.
    threads: u32,
}

impl Bench {
    fn new(device: Device) -> Outcome<Self> {
        let stream = Stream::new(&device)?;
        let (blocks, threads) =
            if device.is_emulated() { (8, 64) } else { (device.properties().multiprocessors, 256) };
        Ok(Self { device, stream, blocks, threads })
    }

    fn kernel<K: Kernel>(&self) -> Outcome<TypedKernel<K>> {
        Ok(self.device.load(&IMAGE)?.kernel::<K>()?)
    }

    /// Returns the first size for a GPU, and the second for the emulated device.
    fn size(&self, gpu: usize, emulated: usize) -> usize {
        if self.device.is_emulated() { emulated } else { gpu }
    }

    /// Returns the minimum time of several runs of `work`, after one warm-up run, in microseconds.
    fn time(&self, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
        work()?;
        let mut minimum = f64::INFINITY;
        for _ in 0..RUNS {
            let start = self.stream.record_timed_event()?;
            work()?;
            let end = self.stream.record_timed_event()?;
            self.stream.synchronize()?;
            minimum = minimum.min(end.elapsed_us(&start)?);
        }
        Ok(minimum)
    }

    /// Simulates heat flow along a line, with one launch per step, or with a grid-wide barrier between steps.
    fn simulation(&self) -> Outcome<()> {
        let (len, rounds) = (self.size(1 << 17, 1 << 11), self.size(200, 20) as u32);
        let line: Vec<f32> = (0..len).map(|i| (i % 1000) as f32).collect();
        let zeros = vec![0.0; len];
        let (step, steps) = (self.kernel::<diffuse_step>()?, self.kernel::<diffuse>()?);
        let launch = Launch::grid_block(self.blocks, self.threads);
        let load = || -> Outcome<[DeviceBuffer<f32>; 2]> {
            Ok([
                DeviceBuffer::from_host(&self.stream, &line)?,
                DeviceBuffer::from_host(&self.stream, &zeros)?,
            ])
        };

        let mut plain = load()?;
        let without = self.time(|| {
            for _ in 0..rounds {
                let [a, b] = &mut plain;
                // SAFETY: both arrays have this length.
                unsafe { step.launch_unsafe(&self.stream, launch, (&*a, &mut *b, len)) }?;
                plain.swap(0, 1);
            }
            Ok(())
        })?;
        let [mut a, mut b] = load()?;
        let with = self.time(|| {
            // SAFETY: as above. After an even number of rounds, the result is in the input array.
            Ok(unsafe {
                steps.launch_unsafe(&self.stream, launch.cooperative(), (rounds, &mut a, &mut b, len))
            }?)
        })?;
        if a.to_host()? != plain[0].to_host()? {
            return Err("the steps of one launch end elsewhere than those of many".into());
        }
        report(&format!("{rounds} steps: a launch each, one cooperative launch"), without, with);
        Ok(())
    }

    /// Sums an array, with partial sums and their sum in two launches, or in one.
    fn sum(&self) -> Outcome<()> {
        let n = self.size(1 << 20, 1 << 14);
        let host: Vec<f32> = (0..n).map(|i| (i % 64) as f32).collect();
        // A float represents the sum of these whole numbers exactly.
        let exact = (0..n as u64).map(|i| i % 64).sum::<u64>() as f32;
        let input = DeviceBuffer::from_host(&self.stream, &host)?;
        let mut partials = DeviceBuffer::<f32>::zeros(&self.stream, self.blocks as usize)?;
        let mut result = DeviceBuffer::<f32>::zeros(&self.stream, 1)?;
        let (part, whole) = (self.kernel::<partial_sum>()?, self.kernel::<cooperative_sum>()?);
        let launch = Launch::grid_block(self.blocks, self.threads);
        let last = Launch::grid_block(1, self.threads);

        let without = self.time(|| {
            // SAFETY: the launches are one-dimensional, and there is one element per block.
            unsafe {
                part.launch_unsafe(&self.stream, launch, (&input, &mut partials))?;
                part.launch_unsafe(&self.stream, last, (&partials, &mut result))?;
            }
            Ok(())
        })?;
        let in_two = result.to_host()?[0];
        let with = self.time(|| {
            let arguments = (&input, &mut partials, &mut result);
            // SAFETY: as above.
            Ok(unsafe { whole.launch_unsafe(&self.stream, launch.cooperative(), arguments) }?)
        })?;
        let in_one = result.to_host()?[0];
        if in_one != exact || in_two != exact {
            return Err(format!("sums of {in_two} and {in_one}, not {exact}").into());
        }
        report(&format!("sum of {n}: two launches, one cooperative launch"), without, with);
        Ok(())
    }

    /// Runs a chain of launches of about 4 µs. Each starts after the previous one has completed, or while it is still
    /// running.
    fn chain(&self) -> Outcome<()> {
        let launches = self.size(200, 20);
        let cycles = 7000u64;
        let (plain, dependent) = (self.kernel::<spin_plain>()?, self.kernel::<spin_dependent>()?);
        let launch = Launch::grid_block(self.blocks, self.threads);
        let n = (self.blocks * self.threads) as usize;
        let mut counters = DeviceBuffer::<u32>::zeros(&self.stream, n)?;

        let without = self.time(|| {
            for _ in 0..launches {
                plain.launch(&self.stream, launch, (cycles, &mut counters))?;
            }
            Ok(())
        })?;
        let with = self.time(|| {
            for _ in 0..launches {
                dependent.launch(&self.stream, launch.dependent(), (cycles, &mut counters))?;
            }
            Ok(())
        })?;
        let expected = (2 * (RUNS + 1) * launches) as u32;
        if counters.to_host()?.iter().any(|&count| count != expected) {
            return Err(format!("a counter is not {expected}: launches ran into each other").into());
        }
        report(&format!("{launches} launches: plain, dependent"), without, with);
        Ok(())
    }

    /// Computes a histogram with more bins than fit in the shared memory of a block, in global memory or in the
    /// distributed shared memory of a cluster.
    fn histogram(&self) -> Outcome<()> {
        let n = self.size(1 << 24, 1 << 14);
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 7
        };
        let host: Vec<u32> = (0..n).map(|_| next()).collect();
        let mut expected = vec![0u32; BINS];
        host.iter().for_each(|value| expected[*value as usize % BINS] += (RUNS + 1) as u32);
        let data = DeviceBuffer::from_host(&self.stream, &host)?;
        let (global, cluster) = (self.kernel::<global_histogram>()?, self.kernel::<cluster_histogram>()?);
        let threads = if self.device.is_emulated() { 64 } else { 1024 };
        let launch = Launch::grid_block(self.blocks.div_ceil(8) * 8, threads);
        let zeros = || DeviceBuffer::<u32>::zeros(&self.stream, BINS);

        let mut bins = zeros()?;
        let without = self.time(|| Ok(global.launch(&self.stream, launch, (&data, &mut bins))?))?;
        let mut shared = zeros()?;
        let with = self
            .time(|| Ok(cluster.launch(&self.stream, launch.cluster((8, 1, 1)), (&data, &mut shared))?))?;
        if bins.to_host()? != expected || shared.to_host()? != expected {
            return Err("a histogram has incorrect counts".into());
        }
        report(&format!("histogram of {n}: global atomics, clusters of 8"), without, with);
        Ok(())
    }
}

/// Prints a line of the table.
fn report(what: &str, without: f64, with: f64) {
    println!("{what:<52} {without:>9.1} us {with:>9.1} us {:>6.2}x", without / with);
}
