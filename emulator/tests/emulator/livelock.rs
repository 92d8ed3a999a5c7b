//! Tests of threads that spin forever. Each test runs in its own process, because the limit is process-wide.

use crate::alone::only_alone;
use crate::common::{ORDERS, launch_as};
use warpsmith_emulator::collective::{barrier, spin_hint};
use warpsmith_emulator::{FaultKind, settings, thread};

kernel!(static FOREVER = "forever"() {
    if thread::linear_index().is_multiple_of(2) {
        loop {
            spin_hint();
        }
    }
    barrier(true);
});

kernel!(static LONG = "long"() {
    for _ in 0..90_000 {
        spin_hint();
    }
});

#[test]
fn spinning_without_progress_is_reported() {
    only_alone!();
    settings::set_spin_limit(100_000);
    for order in ORDERS {
        let fault = launch_as(&FOREVER, [2, 1, 1], [64, 1, 1], 0, order, &[]).unwrap_err();
        let FaultKind::Livelock { spins, waiting } = &fault.kind else { panic!("{fault:?}") };
        assert!(*spins > 100_000);
        assert_eq!(waiting.iter().map(|w| w.threads.len()).collect::<Vec<_>>(), [32, 32], "{fault}");
        let text = fault.to_string();
        assert!(text.contains("WARPSMITH_EMULATOR_SPIN_LIMIT"), "{text}");
        assert!(text.contains("32 threads are in a loop that reads an atomic at "), "{text}");
        assert!(text.contains("32 threads are in sync_threads at "), "{text}");
        launch_as(&LONG, [3, 1, 1], [1, 1, 1], 0, order, &[]).unwrap();
    }
}

kernel!(static SLOW_FIRST = "slow_first"(flag: &'static std::sync::atomic::AtomicU64) {
    use std::sync::atomic::Ordering;
    if thread::block_index()[0] == 0 && thread::linear_index() == 0 {
        // The sleep is far longer than the time for which the others may spin.
        std::thread::sleep(std::time::Duration::from_millis(200));
        flag.store(1, Ordering::Release);
    }
    while flag.load(Ordering::Acquire) == 0 {
        spin_hint();
    }
});

#[test]
fn a_block_may_spin_while_another_works() {
    only_alone!();
    settings::set_spin_limit(100_000);
    let flag = std::sync::atomic::AtomicU64::new(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let args = [std::ptr::from_ref(&flag) as u64];
    pool.install(|| launch_as(&SLOW_FIRST, [3, 1, 1], [1024, 1, 1], 0, ORDERS[0], &args)).unwrap();
}
