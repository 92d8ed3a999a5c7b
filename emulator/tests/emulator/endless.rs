//! Tests of kernels that never end. Each test runs in its own process, because the limit is process-wide.

use crate::alone::only_alone;
use crate::common::{ORDERS, launch_as, launch_at_once};
use std::sync::atomic::{AtomicBool, Ordering};
use warpsmith_emulator::collective::{barrier, spin_hint, warp_exchange};
use warpsmith_emulator::{Fault, FaultKind, output};

/// Returns the thread and the text of a time limit fault.
#[track_caller]
fn endless(result: Result<(), Fault>) -> (Option<[u32; 3]>, String) {
    let fault = result.unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Endless { seconds: 1, .. }), "{fault:?}");
    let text = fault.to_string();
    assert!(text.contains("did not finish within 1 s in block"), "{text}");
    assert!(text.contains("WARPSMITH_EMULATOR_TIME_LIMIT sets the limit"), "{text}");
    (fault.thread, text)
}

kernel!(static BARRIERS = "barriers"() {
    loop {
        barrier(true);
    }
});

kernel!(static EXCHANGES = "exchanges"() {
    loop {
        warp_exchange(u32::MAX, "shuffle", 0);
    }
});

kernel!(static PRINTS = "prints"() {
    loop {
        output::print("again\n");
    }
});

kernel!(static SHORT = "short"() {
    barrier(true);
});

#[test]
fn endless_operations_fail_their_launch() {
    only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "1");
    for (kernel, operation) in [(&BARRIERS, "sync_threads"), (&EXCHANGES, "shuffle")] {
        // With two threads in a seeded order, about every third time slice no thread is waiting.
        for (threads, order) in
            [(1, ORDERS[0]), (64, ORDERS[1]), (2, ORDERS[1]), (2, ORDERS[2]), (2, ORDERS[3])]
        {
            let (_, text) = endless(launch_as(kernel, [2, 1, 1], [threads, 1, 1], 0, order, &[]));
            assert!(text.contains(operation) && text.contains("endless.rs:"), "{text}");
        }
    }
    let grid = launch_at_once(&BARRIERS, [4, 1, 1], [32, 1, 1], [1, 1, 1], true, ORDERS[0], &[]);
    endless(grid);
    let (printed, _) = output::capture(|| launch_as(&PRINTS, [1, 1, 1], [1, 1, 1], 0, ORDERS[0], &[]));
    assert!(endless(printed).1.contains("print at"));
    launch_as(&SHORT, [2, 1, 1], [64, 1, 1], 0, ORDERS[0], &[]).unwrap();
}

/// Kernels in loops that never call the emulator. Only Linux interrupts them.
#[cfg(target_os = "linux")]
mod interrupted {
    use std::hint::black_box;
    use std::sync::atomic::AtomicU32;

    use warpsmith_emulator::thread;

    use super::*;

    static DROPPED: AtomicU32 = AtomicU32::new(0);

    struct Counted;

    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    kernel!(static COMPUTES = "computes"(block: usize) {
        let _counted = Counted;
        if thread::block_index()[0] as usize == block && thread::linear_index() == 5 {
            let mut step = 1u64;
            while black_box(step) != 0 {
                step = black_box(step).wrapping_mul(3) | 1;
            }
        }
        barrier(true);
    });

    #[test]
    fn an_endless_loop_is_interrupted() {
        only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "1");
        for (round, order) in [ORDERS[0], ORDERS[2]].into_iter().enumerate() {
            DROPPED.store(0, Ordering::Relaxed);
            let (thread, text) = endless(launch_as(&COMPUTES, [2, 1, 1], [64, 1, 1], 0, order, &[1]));
            assert_eq!(thread, Some([5, 0, 0]), "{text}");
            assert!(text.contains("thread [5,0,0] is at ") && text.contains("endless.rs:"), "{text}");
            let dropped = DROPPED.load(Ordering::Relaxed);
            assert!((64..128).contains(&dropped), "round {round}: all but the interrupted thread: {dropped}");
            launch_as(&COMPUTES, [2, 1, 1], [64, 1, 1], 0, order, &[2]).unwrap();
        }
    }

    #[test]
    fn an_endless_loop_on_a_helper_is_interrupted() {
        only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "1");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| {
            for block in [0, 7] {
                let (thread, _) =
                    endless(launch_as(&COMPUTES, [8, 1, 1], [1024, 1, 1], 0, ORDERS[0], &[block]));
                assert_eq!(thread, Some([5, 0, 0]));
            }
            launch_as(&COMPUTES, [8, 1, 1], [1024, 1, 1], 0, ORDERS[0], &[8]).unwrap();
        });
    }
}

kernel!(static WAITS = "waits"(flag: &'static AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        spin_hint();
    }
});

#[test]
fn a_thread_that_waits_is_named_where_it_waits() {
    only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "1", "WARPSMITH_EMULATOR_SPIN_LIMIT" => "18446744073709551615");
    let flag = AtomicBool::new(false);
    let args = [std::ptr::from_ref(&flag) as u64];
    let (_, text) = endless(launch_as(&WAITS, [1, 1, 1], [32, 1, 1], 0, ORDERS[0], &args));
    assert!(text.contains("32 threads are in a loop that reads an atomic at "), "{text}");
}

kernel!(static SLOW = "slow"() {
    std::thread::sleep(std::time::Duration::from_millis(400));
});

#[test]
fn many_blocks_may_run_for_longer_than_one() {
    only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "1");
    launch_as(&SLOW, [5, 1, 1], [1, 1, 1], 0, ORDERS[1], &[]).unwrap();
}

#[test]
fn wrong_limits_are_named() {
    only_alone!("WARPSMITH_EMULATOR_TIME_LIMIT" => "soon");
    let text = launch_as(&SHORT, [1, 1, 1], [1, 1, 1], 0, ORDERS[0], &[]).unwrap_err().to_string();
    assert!(text.contains("WARPSMITH_EMULATOR_TIME_LIMIT is `soon`"), "{text}");
}
