//! Benchmarks of the host time of typed and prepared launches and of graphs, compared with the driver's own calls in
//! the same loop. Also measures the cost of waiting for a launch by blocking and by awaiting.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device. The default is an emulated device that accepts launches but runs none, so
//! that the overhead of this crate is visible. On a CUDA device the kernels are empty. `docs/benchmarks/launches.md`
//! contains the results.

#[path = "../tests/common/bench_kernels.rs"]
mod kernels;

use std::ffi::c_void;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use gpu_spec::{Kernel, KernelSpec};
use kernels::{EightArguments, Empty, IMAGE, PTX, Spin, TwoArguments};
use warpsmith_runtime::driver::{FunctionHandle, ModuleSource, NodeHandle, NodeWork};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer, Graph, Launch, LaunchConfig, Module, Result, Stream};

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(50)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion).expect("every call succeeds");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::with_driver(EmulatedDriver::builder().memory(1 << 28).idle().build(), 0)?,
    };
    let stream = Stream::new(&device)?;
    let module = device.load(&IMAGE)?;
    let raw = Raw::new(&device)?;
    let from = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
    let mut to = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
    let (a, b) = (from.as_device_ptr(), to.as_device_ptr());
    let launch = Launch::linear(1000, 256);

    let kernel = module.kernel::<Empty>()?;
    let prepared = kernel.prepare(launch)?;
    let mut group = criterion.benchmark_group("launch, no arguments");
    raw.bench(&mut group, &stream, Empty::spec(), &[])?;
    group.bench_function("typed", |bencher| bencher.iter(|| kernel.launch(&stream, launch, ())));
    group.bench_function("prepared", |bencher| bencher.iter(|| prepared.launch(&stream, ())));
    group.finish();

    let kernel = module.kernel::<TwoArguments>()?;
    let prepared = kernel.prepare(launch)?;
    let mut group = criterion.benchmark_group("launch, two arguments");
    raw.bench(&mut group, &stream, TwoArguments::spec(), &[a.0, b.0])?;
    group.bench_function("typed, addresses", |bencher| {
        bencher.iter(|| kernel.launch(&stream, launch, (a, b)));
    });
    group.bench_function("typed, buffers", |bencher| {
        bencher.iter(|| kernel.launch(&stream, launch, (&from, &mut to)));
    });
    group.bench_function("prepared, buffers", |bencher| {
        bencher.iter(|| prepared.launch(&stream, (&from, &mut to)));
    });
    group.bench_function("typed, buffers, automatic shape", |bencher| {
        bencher.iter(|| kernel.launch(&stream, Launch::auto(1000), (&from, &mut to)));
    });
    group.finish();

    let kernel = module.kernel::<EightArguments>()?;
    let prepared = kernel.prepare(launch)?;
    let mut group = criterion.benchmark_group("launch, eight arguments");
    raw.bench(&mut group, &stream, EightArguments::spec(), &[a.0, a.0, a.0, a.0, a.0, a.0, a.0, b.0])?;
    group.bench_function("typed, addresses", |bencher| {
        bencher.iter(|| kernel.launch(&stream, launch, (a, a, a, a, a, a, a, b)));
    });
    group.bench_function("typed, buffers", |bencher| {
        bencher.iter(|| {
            let args = (&from, &from, &from, &from, &from, &from, &from, &mut to);
            kernel.launch(&stream, launch, args)
        });
    });
    group.bench_function("prepared, buffers", |bencher| {
        bencher.iter(|| prepared.launch(&stream, (&from, &from, &from, &from, &from, &from, &from, &mut to)));
    });
    group.finish();
    awaited(criterion, &stream, &module)?;
    graphs(criterion, &stream, &raw)?;
    device.synchronize()
}

/// Measures waiting for a launch and for longer work, by blocking and by awaiting on a thread that sleeps until it is
/// woken.
fn awaited(criterion: &mut Criterion, stream: &Stream, module: &Module) -> Result<()> {
    let prepared = module.kernel::<Empty>()?.prepare(Launch::linear(1000, 256))?;
    let mut group = criterion.benchmark_group("await, empty kernel");
    group.bench_function("synchronize", |bencher| {
        bencher.iter(|| prepared.launch(stream, ()).and_then(|()| stream.synchronize()));
    });
    group.bench_function("event, synchronize", |bencher| {
        bencher.iter(|| {
            prepared.launch(stream, ())?;
            stream.record_event()?.synchronize()
        });
    });
    group.bench_function("completed, await", |bencher| {
        bencher.iter(|| {
            prepared.launch(stream, ())?;
            block_on(stream.completed())
        });
    });
    group.bench_function("event, await", |bencher| {
        bencher.iter(|| {
            prepared.launch(stream, ())?;
            block_on(stream.record_event()?)
        });
    });
    group.finish();
    let kernel = module.kernel::<Spin>()?;
    let mut group = criterion.benchmark_group("await, longer work");
    for us in [20, 100, 1000, 5000] {
        let work = || {
            if !stream.device().is_emulated() {
                return kernel.launch(stream, Launch::linear(1, 32), (us * 1000,));
            }
            let end = Instant::now() + Duration::from_micros(us.into());
            stream.host_function(move || while Instant::now() < end {})
        };
        group.bench_function(format!("synchronize, {us} us"), |bencher| {
            bencher.iter(|| work().and_then(|()| stream.synchronize()));
        });
        let (start, cpu) = (Instant::now(), cpu_time());
        group.bench_function(format!("completed, await, {us} us"), |bencher| {
            bencher.iter(|| work().and_then(|()| block_on(stream.completed())));
        });
        let share = (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
        println!("  the awaiting thread and the waking one: {:.1} % of a core", 100.0 * share);
    }
    group.finish();
    Ok(())
}

/// Returns the CPU time of this thread and of the thread that wakes futures. It is zero except on Linux.
fn cpu_time() -> Duration {
    let read = |path: std::path::PathBuf, file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let this = std::process::id().to_string();
    let meant = tasks.filter(|task| {
        task.file_name().to_str() == Some(&this) || read(task.path(), "comm").trim() == "warpsmith-await"
    });
    let nanos =
        meant.filter_map(|task| read(task.path(), "schedstat").split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanos.sum())
}

/// Awaits a future on this thread, which sleeps until it is woken.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    thread_local! {
        static WAKER: Waker = Arc::new(Unpark(std::thread::current())).into();
    }
    let mut future = pin!(future.into_future());
    WAKER.with(|waker| {
        loop {
            match future.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}

/// Number of kernels in a graph.
const NODES: usize = 100;

/// Measures launching a graph of kernels, changing each of its nodes, and updating the whole graph.
fn graphs(criterion: &mut Criterion, stream: &Stream, raw: &Raw) -> Result<()> {
    let device = stream.device();
    let kernel = device.load(&IMAGE)?.kernel::<TwoArguments>()?;
    let from = DeviceBuffer::<u32>::uninit(stream, 1000)?;
    let mut to = DeviceBuffer::<u32>::uninit(stream, 1000)?;
    let launch = Launch::linear(32, 32);
    let mut graph = Graph::new(device)?;
    let nodes = (0..NODES)
        .map(|_| graph.add_kernel(&kernel, launch, (&from, &mut to), &[]))
        .collect::<Result<Vec<_>>>()?;
    let mut exec = graph.instantiate()?;

    // SAFETY: all objects passed to its methods belong to this device and are alive.
    let (driver, context) = unsafe { device.driver() };
    let function = driver.module_function(context, raw.module, TwoArguments::spec())?;
    let config = LaunchConfig::new([1, 1, 1], [32, 1, 1], 0);
    let words = [from.as_device_ptr().0, to.as_device_ptr().0];
    let args: Vec<*const c_void> = words.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
    let work = NodeWork::Kernel { function, config, args: &args };
    let raw_graph = driver.graph_create(context)?;
    let mut raw_nodes: Vec<NodeHandle> = Vec::new();
    for _ in 0..NODES {
        let after: Vec<NodeHandle> = raw_nodes.last().copied().into_iter().collect();
        // SAFETY: `args` contains a value for each parameter, and the kernel does nothing.
        raw_nodes.push(unsafe { driver.graph_add(context, raw_graph, &after, work) }?);
    }
    let raw_exec = driver.graph_instantiate(context, raw_graph)?;
    let handle = stream.handle();

    let mut group = criterion.benchmark_group("graph of 100 kernels, launch");
    group.bench_function("raw", |bencher| {
        // SAFETY: its kernels do nothing.
        bencher.iter(|| unsafe { driver.graph_launch(context, raw_exec, handle) });
    });
    group.bench_function("executable", |bencher| bencher.iter(|| exec.launch(stream)));
    group.finish();

    let mut group = criterion.benchmark_group("graph of 100 kernels, every node changed");
    group.bench_function("raw", |bencher| {
        bencher.iter(|| {
            // SAFETY: as above; the node belongs to the graph from which the executable was created.
            raw_nodes
                .iter()
                .try_for_each(|node| unsafe { driver.graph_exec_set(context, raw_exec, *node, work) })
        });
    });
    group.bench_function("executable", |bencher| {
        bencher.iter(|| {
            nodes.iter().try_for_each(|node| exec.set_kernel(node, &kernel, launch, (&from, &mut to)))
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("graph of 100 kernels, updated as a whole");
    group.bench_function("raw", |bencher| {
        // SAFETY: as above.
        bencher.iter(|| unsafe { driver.graph_exec_update(context, raw_exec, raw_graph) });
    });
    group.bench_function("executable", |bencher| bencher.iter(|| exec.update(&graph)));
    group.finish();
    stream.synchronize()?;
    // SAFETY: the graphs are not running and are not used again.
    unsafe {
        driver.graph_exec_destroy(context, raw_exec);
        driver.graph_destroy(context, raw_graph);
    }
    Ok(())
}

/// Benchmarks of the driver's own calls.
struct Raw {
    device: Device,
    module: warpsmith_runtime::driver::ModuleHandle,
}

impl Raw {
    fn new(device: &Device) -> Result<Self> {
        // SAFETY: all objects passed to its methods belong to this device and are alive.
        let (driver, context) = unsafe { device.driver() };
        let source = if device.is_emulated() { ModuleSource::HostEntries } else { ModuleSource::Ptx(PTX) };
        Ok(Self { device: device.clone(), module: driver.module_load(context, source)? })
    }

    fn bench(
        &self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        stream: &Stream,
        spec: &'static KernelSpec,
        words: &[u64],
    ) -> Result<()> {
        // SAFETY: all objects passed to its methods belong to this device and are alive.
        let (driver, context) = unsafe { self.device.driver() };
        let function: FunctionHandle = driver.module_function(context, self.module, spec)?;
        let config = LaunchConfig::new([4, 1, 1], [256, 1, 1], 0);
        let args: Vec<*const c_void> = words.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
        let handle = stream.handle();
        group.bench_function("raw", |bencher| {
            // SAFETY: `args` contains a value for each parameter, and the kernel does nothing.
            bencher.iter(|| unsafe { driver.launch(context, function, &config, &args, handle) });
        });
        Ok(())
    }
}
