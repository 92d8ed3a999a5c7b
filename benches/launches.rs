//! Device-side cost of special launches: graphs, grid and cluster barriers, and dependent launches. The runtime's bench
//! `launch` measures the host-side cost; `docs/benchmarks/launches.md` contains the figures.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is the best available one.
//!
//! | group | measured work |
//! | --- | --- |
//! | `graph/N` | a graph of N empty kernels of one warp |
//! | `grid_sync/BxT/R`, `cluster_sync/8x256/R` | one launch whose threads pass R barriers |
//! | `chain/plain/C`, `chain/dependent/C` | 500 kernels, one after another, of C cycles each |

use std::time::Duration;

use criterion::Criterion;
use test_kernels::IMAGE;
use test_kernels::cooperative::{cluster_sync_rounds, empty, grid_sync_rounds, spin_dependent, spin_plain};
use warpsmith::bench::criterion::EventTime;
use warpsmith::graph::Graph;
use warpsmith::prelude::*;

fn main() {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => {
            Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_BENCH_DEVICE={name}: {error}"))
        }
        Err(_) => Device::best().expect("the emulated device at least"),
    };
    let stream = Stream::new(&device).expect("a stream");
    let mut criterion = Criterion::default()
        .with_measurement(EventTime::new(&stream))
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion, &stream).expect("every kernel runs");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion<EventTime>, stream: &Stream) -> warpsmith::Result<()> {
    let device = stream.device();
    let module = device.load(&IMAGE)?;
    let mut measure = |name: String, work: &mut dyn FnMut() -> warpsmith::Result<()>| {
        criterion.bench_function(&name, |bencher| bencher.iter(|| work().expect("a launch")));
    };

    let kernel = module.kernel::<empty>()?;
    let one_warp = Launch::grid_block(1, 32);
    for n in [1, 10, 100, 1000] {
        let graph = Graph::capture(stream, || (0..n).try_for_each(|_| kernel.launch(stream, one_warp, ())))?;
        let exec = graph.instantiate()?;
        measure(format!("graph/{n}"), &mut || exec.launch(stream));
    }

    let sync = module.kernel::<grid_sync_rounds>()?;
    let multiprocessors = device.properties().multiprocessors;
    for (blocks, rounds) in [(1, 0), (1, 1000), (4, 0), (4, 1000)] {
        let blocks = blocks * multiprocessors;
        let launch = Launch::grid_block(blocks, 256);
        measure(format!("grid_sync/{blocks}x256/{rounds}"), &mut || sync.launch(stream, launch, (rounds,)));
    }
    if device.is_emulated() || device.properties().max_cluster >= 8 {
        let sync = module.kernel::<cluster_sync_rounds>()?;
        for rounds in [0u32, 10_000] {
            let launch = Launch::grid_block(8, 256).cluster((8, 1, 1));
            measure(format!("cluster_sync/8x256/{rounds}"), &mut || sync.launch(stream, launch, (rounds,)));
        }
    }

    let (plain, dependent) = (module.kernel::<spin_plain>()?, module.kernel::<spin_dependent>()?);
    let mut counters = DeviceBuffer::<u32>::zeros(stream, multiprocessors as usize * 256)?;
    for cycles in [0u64, 3000, 4000, 5500, 7000] {
        let launch = Launch::grid_block(multiprocessors, 256);
        measure(format!("chain/plain/{cycles}"), &mut || {
            (0..500).try_for_each(|_| plain.launch(stream, launch, (cycles, &mut counters)))
        });
        let launch = launch.dependent();
        measure(format!("chain/dependent/{cycles}"), &mut || {
            (0..500).try_for_each(|_| dependent.launch(stream, launch, (cycles, &mut counters)))
        });
    }
    Ok(())
}
