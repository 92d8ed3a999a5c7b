//! [`ArrayKernel`]: kernels of a user as benchmarks, on the emulated device.

use gpu_std::Kernel;
use gpu_std::prelude::*;
use warpsmith_runtime::launch::Source;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Suite};
use warpsmith_tuner::data::Values;
use warpsmith_tuner::kernel::ArrayKernel;
use warpsmith_tuner::measure::{Effort, Mode};
use warpsmith_tuner::run::{Plan, Request};
use warpsmith_tuner::tune::{Event, Tuning, tune};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

static IMAGE: GpuImage = GpuImage::without_code(
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_VERSION"),
    "these kernels are not compiled for GPUs",
);

/// `y[i] += a * x[i]`.
#[kernel]
pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
    for i in thread::grid_stride(x.len()) {
        if let Some(y) = y.get_mut(i) {
            *y += a * x[i.get()];
        }
    }
}

/// `out[i] = data[i] * FACTOR`, in blocks of at most 128 threads.
#[kernel(consts(FACTOR = 2, 4), launch_bounds(128))]
pub fn scale<const FACTOR: usize>(data: &[i32], mut out: DisjointMut<i32>) {
    for i in thread::grid_stride(data.len()) {
        if let Some(out) = out.get_mut(i) {
            *out = data[i.get()] * FACTOR as i32;
        }
    }
}

/// `x[i] *= 2`, `ITEMS` elements per thread.
#[kernel(consts(ITEMS = 1, 4), same_len(x, launch))]
pub fn double<const ITEMS: usize>(mut x: DisjointMut<f32, Chunks<ITEMS>>) {
    for chunk in thread::grid_stride(x.chunks()) {
        for item in x.get_mut(chunk).into_iter().flatten() {
            *item *= 2.0;
        }
    }
}

fn own_saxpy() -> ArrayKernel<f32, f32> {
    ArrayKernel::new("saxpy", &IMAGE, |[x, y, _]| 2.0 * x + y)
        .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
        .updates()
        .axis("block", [32, 64])
        .axis("grid", ["auto", "waves:1"])
        .restrict("large blocks", |c| c.number("block").is_ok_and(|block| block >= 64))
}

fn own_scale() -> ArrayKernel<i32, i32> {
    ArrayKernel::new("scale", &IMAGE, |[x, ..]| x * 2.0)
        .launch::<scale<2>>(|kernel, stream, data, out| kernel.launch(stream, (&data[0], out)))
        .launch::<scale<4>>(|kernel, stream, data, out| kernel.launch(stream, (&data[0], out)))
        .inputs(1, Values::Whole)
        .axis("block", [64, 128, 256])
}

fn device() -> Device {
    Device::emulated(0).unwrap()
}

fn check(benchmark: &dyn Benchmark, configuration: &Configuration, n: usize) -> Check {
    let stream = Stream::new(&device()).unwrap();
    let dtype = benchmark.dtypes()[0];
    let mut case = benchmark.prepare(&Setup { stream: &stream, dtype, n, copies: 2, seed: 7 }).unwrap();
    case.select(configuration).unwrap();
    case.launch(1).unwrap();
    case.check().unwrap()
}

#[test]
fn every_configuration_launches_and_is_checked() {
    let benchmark = own_saxpy();
    let space = benchmark.space("f32", &device()).configurations("saxpy").unwrap();
    let texts: Vec<String> = space.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["block=64 grid=auto", "block=64 grid=waves:1"]);
    assert_eq!(benchmark.default_configuration("f32", 1000, &device()), space[0]);
    for n in [1, 63, 1000] {
        for configuration in &space {
            assert!(check(&benchmark, configuration, n).correct(), "{configuration} {n}");
        }
    }
}

#[test]
fn constants_become_axes() {
    let benchmark = own_scale();
    let space = benchmark.space("i32", &device()).configurations("scale").unwrap();
    assert_eq!(space.len(), 2 * 2, "blocks of 256 exceed the launch bounds");
    for configuration in &space {
        let factor = configuration.number("factor").unwrap();
        assert_eq!(check(&benchmark, configuration, 100).correct(), factor == 2, "{configuration}");
        let spec = benchmark.instance("i32", configuration).unwrap();
        assert_eq!(spec.const_argument("FACTOR"), Some(i64::from(factor)));
    }
    let stream = Stream::new(&device()).unwrap();
    let setup = Setup { stream: &stream, dtype: "i32", n: 10, copies: 1, seed: 1 };
    let mut case = benchmark.prepare(&setup).unwrap();
    let unknown: Configuration = "block=64 factor=3".parse().unwrap();
    assert!(case.select(&unknown).unwrap_err().to_string().contains("no instance of scale"));
}

#[test]
fn chunks_are_launched_with_a_thread_each() {
    let benchmark = ArrayKernel::new("double", &IMAGE, |[x, ..]| 2.0 * x)
        .launch::<double<1>>(|kernel, stream, _, x| kernel.launch(stream, (x,)))
        .launch::<double<4>>(|kernel, stream, _, x| kernel.launch(stream, (x,)))
        .updates()
        .inputs(0, Values::Spread);
    for (items, threads) in [("items=1", 1001), ("items=4", 251)] {
        let configuration: Configuration = items.parse().unwrap();
        assert!(check(&benchmark, &configuration, 1001).correct(), "{items}");
        assert_eq!(benchmark.threads("f32", 1001, &configuration), threads);
    }
    let chunks = benchmark.output_len(|n| 8 * n);
    assert_eq!(chunks.threads("f32", 1001, &"items=4".parse().unwrap()), 2002, "chunks of the output");
    let stream = Stream::new(&device()).unwrap();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<double<4>>().unwrap();
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 1001).unwrap();
    kernel.launch(&stream, Launch::auto(251), (&mut x,)).unwrap();
    let error = kernel.launch(&stream, Launch::auto(250), (&mut x,)).unwrap_err().to_string();
    assert!(error.contains("250 threads of 4 elements each"), "{error}");
}

#[test]
fn whole_references_see_updated_arrays() {
    let whole = ArrayKernel::with_reference("saxpy", &IMAGE, |arrays: &[Vec<f32>]| {
        arrays[0].iter().zip(&arrays[1]).map(|(x, y)| 2.0 * f64::from(*x) + f64::from(*y)).collect()
    });
    let whole = whole
        .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
        .updates()
        .default_to("block=32".parse().unwrap());
    assert!(check(&whole, &whole.default_configuration("f32", 100, &device()), 100).correct());
}

#[test]
fn work_is_what_the_arrays_are() {
    let work = own_saxpy().flops(|n| 2 * n).work("f32", 100);
    assert_eq!((work.bytes, work.flops, work.footprint, work.spare), (1200, 200, 800, 400));
    let work = own_scale().output_len(|_| 1).work("i32", 100);
    assert_eq!((work.bytes, work.footprint, work.spare), (404, 404, 4));
    assert_eq!(own_scale().work("i32", u64::MAX).bytes, u64::MAX);
    assert_eq!((own_saxpy().dtypes(), own_scale().dtypes()), (vec!["f32"], vec!["i32"]));
}

/// Tunes a kernel for `n` elements. Returns its winner.
fn tuned(benchmark: impl Benchmark + 'static, device: &Device, n: usize) -> Configuration {
    let kernels = vec![benchmark.name().to_owned()];
    let suite =
        Suite { benchmarks: vec![Box::new(benchmark)], left_out: Vec::new(), probes: |_| Ok(Vec::new()) };
    let (mode, effort) = (Mode::Cold, Effort::QUICK);
    let request = Request {
        kernels,
        dtypes: Vec::new(),
        sizes: vec![n as u64],
        axes: Vec::new(),
        mode,
        effort,
        seed: None,
    };
    let plan = Plan::new(&suite, device, &request).unwrap();
    let mut winner = None;
    tune(&plan, &Tuning::default(), &Default::default(), &mut |event| {
        if let Event::Done { tuned, .. } = event {
            winner = tuned.winner().map(|winner| winner.configuration.clone());
        }
    })
    .unwrap();
    winner.unwrap()
}

/// Asserts that an open launch uses this block.
fn uses<K: Kernel>(device: &Device, launch: Launch, block: Option<u32>) {
    let kernel = device.load(&IMAGE).unwrap().kernel::<K>().unwrap();
    let found = launch.explain(kernel.function()).unwrap();
    let source = if block.is_some() { Source::Tuned } else { Source::Heuristic };
    assert_eq!(found.source, source, "{found}");
    assert!(block.is_none() || found.config.map(|config| config.block[0]) == block, "{found}");
}

#[test]
fn open_launches_use_tuned_blocks() {
    const N: usize = 5000;
    let benchmark = ArrayKernel::new("saxpy", &IMAGE, |[x, y, _]| 2.0 * x + y)
        .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
        .updates()
        .axis("block", [32, 96, 160]);
    let device = device();
    uses::<saxpy>(&device, Launch::auto(N), None);
    let winner = tuned(benchmark, &device, N);
    uses::<saxpy>(&device, Launch::auto(N), Some(winner.number("block").unwrap()));
}

#[test]
fn open_launches_for_several_elements_per_thread_use_tuned_blocks() {
    const N: usize = 5000;
    let double = |grid| {
        ArrayKernel::new("double", &IMAGE, |[x, ..]| 2.0 * x)
            .launch::<double<4>>(|kernel, stream, _, x| kernel.launch(stream, (x,)))
            .updates()
            .inputs(0, Values::Spread)
            .axis("block", [32, 96, 160])
            .axis("grid", [grid])
    };
    let device = device();
    let winner = tuned(double("auto"), &device, N);
    uses::<double<4>>(&device, Launch::auto(N), None);
    uses::<double<4>>(&device, Launch::auto(N.div_ceil(4)), Some(winner.number("block").unwrap()));
    let winner = tuned(double("blocks:2"), &device, 4 * N);
    uses::<double<4>>(&device, Launch::for_bandwidth(4 * N, 8), None);
    uses::<double<4>>(&device, Launch::for_bandwidth(N, 8), Some(winner.number("block").unwrap()));
}
