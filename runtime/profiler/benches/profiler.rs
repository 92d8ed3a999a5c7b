//! What the profiler costs: launches, graphs and kernels before it, with it, and after it, in one run.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device. By default it is an emulated one that accepts launches and runs none, so that what
//! recording adds to the host is seen. On a CUDA device the kernels are empty, or wait as long as they are asked to.

mod kernels;

use std::time::Instant;

use warpsmith_profiler::{ProfilerOptions, Written};
use warpsmith_runtime::driver::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, Graph, GraphExec, Launch, Stream};

use self::kernels::{Empty, IMAGE, Spin};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LAUNCHES: usize = 100_000;
const NODES: usize = 1000;
/// Times that each is measured; the least counts.
const ROUNDS: usize = 7;

struct Rig {
    stream: Stream,
    empty: warpsmith_runtime::TypedKernel<Empty>,
    spin: warpsmith_runtime::TypedKernel<Spin>,
    graph: GraphExec,
}

impl Rig {
    fn new() -> Result<Self> {
        let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
            Ok(name) => Device::open(&name)?,
            Err(_) => Device::with_driver(EmulatedDriver::builder().memory(1 << 28).idle().build(), 0)?,
        };
        println!("{}", device.name());
        let stream = Stream::new(&device)?;
        let module = device.load(&IMAGE)?;
        let (empty, spin) = (module.kernel::<Empty>()?, module.kernel::<Spin>()?);
        let graph = Graph::capture(&stream, || {
            (0..NODES).try_for_each(|_| empty.launch(&stream, Launch::grid_block(1, 32), ()))
        })?;
        let graph = graph.instantiate()?;
        Ok(Self { stream, empty, spin, graph })
    }

    /// The least time of a few rounds, in nanoseconds for each of `count`.
    fn time(&self, count: usize, work: impl Fn() -> Result<()>) -> Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            self.stream.synchronize()?;
            let start = Instant::now();
            work()?;
            self.stream.synchronize()?;
            least = least.min(start.elapsed().as_nanos() as f64 / count as f64);
        }
        Ok(least)
    }

    fn launches(&self) -> Result<f64> {
        self.time(LAUNCHES, || {
            let launch = Launch::grid_block(1, 32);
            (0..LAUNCHES).try_for_each(|_| self.empty.launch(&self.stream, launch, ()))?;
            Ok(())
        })
    }

    fn graphs(&self) -> Result<f64> {
        self.time(20, || Ok((0..20).try_for_each(|_| self.graph.launch(&self.stream))?))
    }

    fn kernels(&self) -> Result<f64> {
        self.time(1000, || {
            let launch = Launch::grid_block(1, 32);
            Ok((0..1000).try_for_each(|_| self.spin.launch(&self.stream, launch, (10_000,)))?)
        })
    }

    fn captures(&self) -> Result<f64> {
        self.time(NODES, || {
            let launch = Launch::grid_block(1, 32);
            let launches = || (0..NODES).try_for_each(|_| self.empty.launch(&self.stream, launch, ()));
            drop(Graph::capture(&self.stream, launches)?);
            Ok(())
        })
    }

    fn all(&self) -> Result<[f64; 4]> {
        Ok([self.launches()?, self.graphs()?, self.kernels()?, self.captures()?])
    }
}

fn main() -> Result<()> {
    // Cargo runs benches with this argument alone; tests do not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let rig = Rig::new()?;
    let before = rig.all()?;
    let profiler = ProfilerOptions::default().memory(4 << 30).start()?;
    let with = rig.all()?;
    let begun = Instant::now();
    let trace = profiler.stop()?;
    let (joined, records) = (begun.elapsed(), trace.len());
    let loss = trace.definitions.loss;
    let source =
        trace.definitions.about.iter().filter(|(key, _)| key.contains("CUPTI") || key.contains("records"));
    source.for_each(|(key, fact)| println!("{key}: {fact}"));
    let after = rig.all()?;
    let names = ["empty launch", "graph of 1000 nodes", "kernel of 10 us", "captured launch"];
    for (index, name) in names.into_iter().enumerate() {
        let (off, on, then) = (before[index], with[index], after[index]);
        println!(
            "{name}: off {off:.1} ns, on {on:.1} ns (+{:.1} ns, {:.3} x), after stop {then:.1} ns ({:.3} x)",
            on - off,
            on / off,
            then / off
        );
    }
    println!("{records} records joined in {:.2} s, {loss:?}", joined.as_secs_f64());
    files(&rig)
}

/// What a file costs: bytes and time for each record.
fn files(rig: &Rig) -> Result<()> {
    for name in ["profiler-bench.pftrace", "profiler-bench.json.gz"] {
        let path = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        let profiler = ProfilerOptions::default().to_file(&path)?;
        let begun = Instant::now();
        let launch = Launch::grid_block(1, 32);
        (0..LAUNCHES).try_for_each(|_| rig.empty.launch(&rig.stream, launch, ()))?;
        let Written { records, loss, .. } = profiler.finish()?;
        let (took, bytes) = (begun.elapsed(), std::fs::metadata(&path)?.len());
        println!(
            "{name}: {records} records, {:.1} bytes and {:.0} ns each, unaccounted {}",
            bytes as f64 / records as f64,
            took.as_nanos() as f64 / records as f64,
            loss.unaccounted()
        );
        std::fs::remove_file(path)?;
    }
    Ok(())
}
