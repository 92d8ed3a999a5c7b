//! Overhead of the profiler: launches, graphs and kernels before, during and after profiling, in one run.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device. By default, it is an emulated device that accepts launches but does not
//! run them. The difference is then the recording overhead on the host, in CPU time of the launching thread where the
//! system provides it. On a CUDA device, the kernels are empty or wait for a given time.
//!
//! `WARPSMITH_BENCH_SOAK` is the number of nodes whose records are joined into a file at the end; the default is 25
//! million.

#[path = "../../runtime/tests/common/bench_kernels.rs"]
mod kernels;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warpsmith_profiler::trace::summary::Digest;
use warpsmith_profiler::{ProfilerOptions, Written};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{Device, Graph, GraphExec, Launch, Stream};

use self::kernels::{Empty, IMAGE, Spin};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LAUNCHES: usize = 100_000;
const NODES: usize = 1000;
/// Number of measurements. Only the minimum counts.
const ROUNDS: usize = 7;

struct Fixture {
    stream: Stream,
    empty: warpsmith_runtime::TypedKernel<Empty>,
    spin: warpsmith_runtime::TypedKernel<Spin>,
    graph: GraphExec,
}

impl Fixture {
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

    /// Returns the time. If the device is emulated and idle, this thread does all the work. The time is then its CPU
    /// time, which excludes other programs.
    fn now(&self) -> Duration {
        #[cfg(target_os = "linux")]
        if self.stream.device().is_emulated() {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the pointer points to a local variable for the time.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
            return Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// Returns the minimum time over several rounds, in nanoseconds per item of `count`.
    fn time(&self, count: usize, work: impl Fn() -> Result<()>) -> Result<f64> {
        let mut minimum = f64::INFINITY;
        for _ in 0..ROUNDS {
            self.stream.synchronize()?;
            let start = self.now();
            work()?;
            self.stream.synchronize()?;
            minimum = minimum.min((self.now() - start).as_nanos() as f64 / count as f64);
        }
        Ok(minimum)
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
    if std::env::args().any(|argument| argument == "soak") {
        return soak();
    }
    // Cargo passes this argument only to benches, so that tests do not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let fixture = Fixture::new()?;
    off(&fixture)?;
    let before = fixture.all()?;
    let profiler = ProfilerOptions::default().memory(4 << 30).start()?;
    let with = fixture.all()?;
    let begun = Instant::now();
    let trace = profiler.stop()?;
    let (joined, records) = (begun.elapsed(), trace.len());
    let loss = trace.definitions.loss;
    let source =
        trace.definitions.about.iter().filter(|(key, _)| key.contains("CUPTI") || key.contains("records"));
    source.for_each(|(key, fact)| println!("{key}: {fact}"));
    let after = fixture.all()?;
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
    files(&fixture)?;
    drop(fixture);
    // This runs in a separate process, so that the peak memory includes only this run.
    let status = std::process::Command::new(std::env::current_exe()?).arg("soak").status()?;
    if status.success() { Ok(()) } else { Err(format!("soak: {status}").into()) }
}

/// Measures the overhead of a launch while no profiler records. Every second round repeats the check for observers
/// several times, so that the difference between the rounds is the cost of the repeated checks.
fn off(fixture: &Fixture) -> Result<()> {
    /// Number of checks per launch: one for its source line, and one for the operation.
    const QUESTIONS: f64 = 2.0;
    const MORE: usize = 64;
    let launch = Launch::grid_block(1, 32);
    let round = |more: usize| -> Result<f64> {
        let begun = fixture.now();
        for _ in 0..LAUNCHES / 10 {
            (0..more).for_each(|_| drop(site()));
            fixture.empty.launch(&fixture.stream, launch, ())?;
        }
        Ok((fixture.now() - begun).as_nanos() as f64 / (LAUNCHES / 10) as f64)
    };
    let (mut without, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..30 {
        without = without.min(round(0)?);
        fixture.stream.synchronize()?;
        with = with.min(round(MORE)?);
        fixture.stream.synchronize()?;
    }
    let cost = (with - without) / MORE as f64 * QUESTIONS;
    println!(
        "off: {cost:.2} ns of a launch of {without:.1} ns (goal 1), ratio {:.4} (goal 0.99)",
        (without - cost) / without
    );
    Ok(())
}

/// Joins the records of many nodes into a file in bounded memory. Every missing record must be counted.
fn soak() -> Result<()> {
    let nodes: usize = std::env::var("WARPSMITH_BENCH_SOAK").map_or(Ok(25_000_000), |nodes| nodes.parse())?;
    let fixture = Fixture::new()?;
    let path = std::env::temp_dir().join(format!("{}-profiler-soak.json.gz", std::process::id()));
    let profiler = ProfilerOptions::default().to_file(&path)?;
    let begun = Instant::now();
    for _ in 0..nodes / NODES {
        fixture.graph.launch(&fixture.stream)?;
    }
    fixture.stream.synchronize()?;
    let launched = begun.elapsed();
    let Written { records, loss, .. } = profiler.finish()?;
    let (took, bytes) = (begun.elapsed(), std::fs::metadata(&path)?.len());
    println!(
        "soak: {records} records in {:.1} s, launched in {:.1} s; {:.2} GiB, at most {} MiB of memory; {loss:?}, unaccounted {}",
        took.as_secs_f64(),
        launched.as_secs_f64(),
        bytes as f64 / (1u64 << 30) as f64,
        peak_memory() >> 20,
        loss.unaccounted()
    );
    let digest = Digest::read(&path)?;
    std::fs::remove_file(&path)?;
    let (summary, damage) = (digest.summary(), digest.damage());
    let kernels: u64 = summary.kernels.iter().map(|row| row.count).sum();
    println!("soak: {kernels} kernels of {} in the file, damage {damage:?}", nodes / NODES * NODES);
    assert_eq!((loss.unaccounted(), damage), (0, None));
    assert_eq!(kernels + loss.dropped + loss.zero_time, (nodes / NODES * NODES) as u64);
    Ok(())
}

/// Returns the peak memory of this process in bytes, or 0 if the system does not provide it.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Measures the cost of a file, in bytes and in time per record.
fn files(fixture: &Fixture) -> Result<()> {
    for name in ["profiler-bench.json", "profiler-bench.json.gz"] {
        let path = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        let profiler = ProfilerOptions::default().to_file(&path)?;
        let begun = Instant::now();
        let launch = Launch::grid_block(1, 32);
        (0..LAUNCHES).try_for_each(|_| fixture.empty.launch(&fixture.stream, launch, ()))?;
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
