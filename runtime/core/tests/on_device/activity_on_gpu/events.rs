//! Recording from events, which a GPU without CUPTI has.

use warpsmith_runtime::driver::activity::{ActivityLoss, ActivityOptions, ActivitySource, ActivityWait};
use warpsmith_runtime::driver::{CaptureMode, LaunchConfig};

use super::bench::{
    Bench, Kept, MILLISECOND, begins_after_its_call, cupti, durations, has_all_work, one_block, work,
};

fn events() -> ActivityOptions {
    ActivityOptions { source: ActivitySource::Events, ..ActivityOptions::default() }
}

#[test]
#[ignore = "needs a GPU"]
fn events_time_kernels_as_cupti_does() {
    let bench = Bench::new();
    let [by_cupti, by_events] = [cupti(), events()].map(|options| {
        let (records, started) = bench.start(options);
        for _ in 0..21 {
            bench.spin(bench.rig.stream, one_block(), MILLISECOND);
        }
        let (kept, loss) = bench.stop(&records);
        assert_eq!(loss, ActivityLoss::default());
        println!("{}: work begins {} ns after its call", started.source, begins_after_its_call(&kept));
        let durations = durations(&kept);
        assert_eq!(durations.len(), 21);
        durations[10]
    });
    println!("{by_cupti} ns by CUPTI, {by_events} ns by events");
    assert!(by_events.abs_diff(by_cupti) * 5 < by_cupti, "{by_events} ns by events, {by_cupti} ns by CUPTI");
}

#[test]
#[ignore = "needs a GPU"]
fn events_record_work_of_every_kind() {
    let bench = Bench::new();
    let rig = &bench.rig;
    let (records, started) = bench.start(events());
    assert_eq!((started.source.as_str(), started.without_cupti), ("events", None));
    let config = LaunchConfig::new([7, 5, 3], [32, 4, 2], 2048);
    bench.spin(rig.stream, config, 100_000);
    let transfers = work(&bench);
    rig.begin(CaptureMode::ThreadLocal);
    bench.spin(rig.stream, one_block(), MILLISECOND);
    bench.spin(rig.stream, one_block(), MILLISECOND);
    let exec = rig.instantiate(rig.end().unwrap());
    rig.launch(exec);
    let stream = bench.stream(rig.stream);
    let (kept, loss) = bench.stop(&records);
    assert_eq!(loss, ActivityLoss::default());
    begins_after_its_call(&kept);
    has_all_work(&kept, stream, &transfers);
    let kernels: Vec<&Kept> = kept.iter().filter(|record| matches!(record, Kept::Kernel { .. })).collect();
    match kernels[..] {
        [Kept::Kernel { start, end, place, symbol, config: of, registers }] => {
            assert_eq!((symbol.as_str(), *of, place.stream), ("warpsmith_spin", config, stream));
            assert!(*registers > 0 && (100_000..MILLISECOND).contains(&(end - start)), "{kernels:?}");
        }
        _ => panic!("captured kernels have no records of their own: {kernels:?}"),
    }
    let graphs: Vec<u64> = kept
        .iter()
        .filter_map(|record| match record {
            Kept::Graph { start, end, .. } => Some(end - start),
            _ => None,
        })
        .collect();
    assert!(graphs.len() == 1 && (2 * MILLISECOND..4 * MILLISECOND).contains(&graphs[0]), "{graphs:?}");
    assert!(kept.iter().any(|record| matches!(record, Kept::Wait { kind: ActivityWait::HostForStream, .. })));
}

#[test]
#[ignore = "needs a GPU"]
fn many_events_are_reused_without_loss() {
    const LAUNCHES: usize = 100_000;
    let bench = Bench::new();
    let (records, _) = bench.start(events());
    let began = std::time::Instant::now();
    for _ in 0..LAUNCHES {
        bench.spin(bench.rig.stream, one_block(), 0);
    }
    println!("{:.2} us a launch", began.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
    let (kept, loss) = bench.stop(&records);
    begins_after_its_call(&kept);
    let recorded = durations(&kept).len() as u64;
    println!("{recorded} kernels, {loss:?}");
    assert_eq!(recorded + loss.dropped + loss.zero_time, LAUNCHES as u64);
    assert!(recorded * 10 > LAUNCHES as u64 * 9, "{loss:?}");
}
