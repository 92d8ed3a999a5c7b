//! A simulation of many small steps, with individual launches, a graph, a graph with updated nodes, and a graph cache.
//!
//! `cargo run --release --example graphs -- [DEVICE] [FILE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the
//! best available device. It writes a picture of the graph to FILE in the Graphviz language. Every result is checked.

use std::error::Error;
use std::time::Instant;

use warpsmith::TypedKernel;
use warpsmith::graph::{CacheInput, Graph, GraphCache};
use warpsmith::kernels::elementwise::axpy;
use warpsmith::{Device, DeviceBuffer, IMAGE, Launch, Stream};

type Axpy = axpy<f32, 1, 16>;

const POINTS: usize = 4096;
const STEPS: usize = 50;
/// Total number of kernels.
const KERNELS: usize = 2 * STEPS;
const REPEATS: usize = 20;

/// Points on springs, with their positions and velocities.
struct Springs {
    x: DeviceBuffer<f32>,
    v: DeviceBuffer<f32>,
    kernel: TypedKernel<Axpy>,
    launch: Launch,
}

impl Springs {
    fn new(stream: &Stream) -> Result<Self, Box<dyn Error>> {
        let kernel = stream.device().load(&IMAGE)?.kernel::<Axpy>()?;
        let x = DeviceBuffer::from_host(stream, &start())?;
        let v = DeviceBuffer::zeros(stream, POINTS)?;
        Ok(Self { x, v, kernel, launch: Launch::auto(POINTS / 4) })
    }

    /// Enqueues a step, which updates the velocities from the positions, and then the positions from the velocities.
    fn step(&mut self, stream: &Stream, dt: f32) -> warpsmith::Result<()> {
        self.kernel.launch(stream, self.launch, (-dt, &self.x, &mut self.v))?;
        self.kernel.launch(stream, self.launch, (dt, &self.v, &mut self.x))
    }

    fn steps(&mut self, stream: &Stream, dt: f32) -> warpsmith::Result<()> {
        (0..STEPS).try_for_each(|_| self.step(stream, dt))
    }

    fn reset(&mut self) -> warpsmith::Result<()> {
        self.x.copy_from_host(&start())?;
        self.v.copy_from_host(&[0.0; POINTS])
    }

    /// Fails unless the points match the CPU result after n runs of all steps.
    fn check(&self, runs: usize, dt: f32) -> Result<(), Box<dyn Error>> {
        let (mut x, mut v) = (start(), vec![0.0f32; POINTS]);
        for _ in 0..runs * STEPS {
            v.iter_mut().zip(&x).for_each(|(v, x)| *v = (-dt).mul_add(*x, *v));
            x.iter_mut().zip(&v).for_each(|(x, v)| *x = dt.mul_add(*v, *x));
        }
        let found = self.x.to_host()?;
        match found.iter().zip(&x).position(|(found, expected)| found != expected) {
            None => Ok(()),
            Some(at) => Err(format!("point {at} is at {}, not {}", found[at], x[at]).into()),
        }
    }
}

fn start() -> Vec<f32> {
    (0..POINTS).map(|i| (i as f32).sin()).collect()
}

/// Returns nanoseconds per kernel, for the host time to enqueue all kernels, and for the time until all have run.
fn time(
    stream: &Stream,
    mut work: impl FnMut() -> warpsmith::Result<()>,
) -> Result<(f64, f64), Box<dyn Error>> {
    let (mut enqueued, mut done) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let start = Instant::now();
        work()?;
        enqueued.push(start.elapsed().as_nanos() as f64 / KERNELS as f64);
        stream.synchronize()?;
        done.push(start.elapsed().as_nanos() as f64 / KERNELS as f64);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok((median(enqueued), median(done)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let stream = Stream::new(&device)?;
    let mut springs = Springs::new(&stream)?;
    let dt = 0.01f32;
    println!("{KERNELS} kernels over {POINTS} points on {}; nanoseconds a kernel", device.name());
    println!("{:24} {:>14} {:>14}", "", "host enqueues", "until done");
    let row = |name: &str, (enqueued, done): (f64, f64)| println!("{name:24} {enqueued:14.0} {done:14.0}");

    // The kernels are launched one after another.
    springs.steps(&stream, dt)?;
    springs.check(1, dt)?;
    let eager = time(&stream, || springs.steps(&stream, dt))?;
    row("launch by launch", eager);

    // The same launches are captured once.
    springs.reset()?;
    let graph = Graph::capture(&stream, || springs.steps(&stream, dt))?;
    if let Some(file) = std::env::args().nth(2) {
        std::fs::write(file, graph.to_dot()?)?;
    }
    let exec = graph.instantiate()?;
    exec.launch(&stream)?;
    springs.check(1, dt)?;
    let captured = time(&stream, || exec.launch(&stream))?;
    row("as a graph", captured);

    // The graph is built node by node. The time step of each node is updated before each launch.
    springs.reset()?;
    let mut built = Graph::new(&device)?;
    let mut nodes = Vec::new();
    for _ in 0..STEPS {
        let Springs { x, v, kernel, launch } = &mut springs;
        nodes.push(built.add_kernel(kernel, *launch, (-dt, &*x, &mut *v), &[])?);
        nodes.push(built.add_kernel(kernel, *launch, (dt, &*v, &mut *x), &[])?);
    }
    let mut exec = built.instantiate()?;
    let shorter = dt / 2.0;
    let Springs { x, v, kernel, launch } = &mut springs;
    let started = Instant::now();
    for pair in nodes.chunks(2) {
        exec.set_kernel(&pair[0], kernel, *launch, (-shorter, &*x, &mut *v))?;
        exec.set_kernel(&pair[1], kernel, *launch, (shorter, &*v, &mut *x))?;
    }
    let update = started.elapsed().as_nanos() as f64 / KERNELS as f64;
    exec.launch(&stream)?;
    springs.check(1, shorter)?;
    row("built node by node", time(&stream, || exec.launch(&stream))?);
    println!("{:24} {update:14.0}", "changing a node");

    // The graph is captured on first use.
    springs.reset()?;
    let mut cache = GraphCache::new(&device, 8);
    for _ in 0..3 {
        let inputs = [(&springs.x).into(), (&springs.v).into(), CacheInput::value(dt.to_bits())];
        cache.launch(&stream, "steps", &inputs, |stream| springs.steps(stream, dt))?;
    }
    springs.check(3, dt)?;
    let stats = cache.stats();
    println!("cache: {} capture, {} launches without", stats.misses, stats.hits);

    println!(
        "a graph: {:.1} times less work for the host, done {:.1} times as fast",
        eager.0 / captured.0,
        eager.1 / captured.1
    );
    Ok(())
}
