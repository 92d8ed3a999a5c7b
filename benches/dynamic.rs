//! What a launch by a kernel costs, beside one by the host: empty kernels, in time on the device.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device, by default the best there is.
//!
//! | group | what runs |
//! | --- | --- |
//! | `by_host/N` | N launches of an empty kernel by the host |
//! | `by_thread/N` | one launch of a kernel whose only thread launches N |
//! | `by_block/N` | one launch of a kernel whose 256 threads launch N together |

mod event_time;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use event_time::EventTime;
use warpsmith::IMAGE;
use warpsmith::kernels::dynamic::{launch_many, nothing};
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
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion, &stream).expect("every kernel runs");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion<EventTime>, stream: &Stream) -> warpsmith::Result<()> {
    let module = stream.device().load(&IMAGE)?;
    let (child, parent) = (module.kernel::<nothing>()?, module.kernel::<launch_many>()?);
    // A launch of none is the least of what a kernel costs that can launch.
    for n in [0u32, 1, 16, 256, 1024] {
        let mut measure = |group: &str, launch: &mut dyn FnMut()| {
            let mut group = criterion.benchmark_group(group);
            group.throughput(Throughput::Elements(n.max(1).into()));
            group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
                bencher.iter(&mut *launch);
            });
            group.finish();
        };
        if n > 0 {
            let launch = Launch::grid_block(1, 32);
            measure("by_host", &mut || {
                (0..n).for_each(|_| child.launch(stream, launch, ()).expect("a launch"));
            });
        }
        for (group, threads) in [("by_thread", 1u32), ("by_block", 256)] {
            let launch = Launch::grid_block(1, threads);
            measure(group, &mut || parent.launch(stream, launch, (n,)).expect("a launch"));
        }
    }
    Ok(())
}
