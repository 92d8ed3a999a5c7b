//! Tests of output and panics: the text is correct, all values on kernel stacks are dropped, and the next launch works.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::common::{Elements, ORDERS, block, global, launch, launch_as, word};
use warpsmith_emulator::collective::{barrier, spin_hint, warp_exchange};
use warpsmith_emulator::{FaultKind, Order, output, thread};

kernel!(static OUT_OF_BOUNDS = "out_of_bounds"(at: u64) {
    let data = [1u8; 8];
    if global() as u64 == at {
        let index = thread::linear_index() as usize;
        std::hint::black_box(data[index]);
    }
    barrier(true);
});

#[test]
fn a_panic_names_kernel_thread_text_and_place() {
    for order in ORDERS {
        let fault = launch_as(&OUT_OF_BOUNDS, [4, 2, 1], [20, 5, 1], 0, order, &[717]).unwrap_err();
        assert_eq!(
            (fault.kernel, fault.block, fault.thread),
            ("out_of_bounds", Some([3, 1, 0]), Some([17, 0, 0]))
        );
        assert_eq!(fault.message(), "index out of bounds: the len is 8 but the index is 17");
        let location = fault.location().expect("a place").to_owned();
        assert!(location.contains("emulator/faults.rs:"), "{location}");
        assert_eq!(
            fault.to_string(),
            format!(
                "kernel `out_of_bounds` panicked in block [3,1,0], thread [17,0,0]: \
                 index out of bounds: the len is 8 but the index is 17 ({location})"
            )
        );
    }
}

kernel!(static MANY = "many"(first: u64) {
    assert!(block() < first as usize || thread::linear_index() != 9, "block {} fails", block());
});

#[test]
fn of_many_panics_the_first_block_is_reported() {
    for first in [0u64, 1, 63, 500, 1999] {
        for _ in 0..20 {
            let fault = launch(&MANY, [2000, 1, 1], [32, 1, 1], &[first]).unwrap_err();
            assert_eq!(fault.block, Some([first as u32, 0, 0]));
            assert_eq!(fault.message(), format!("block {first} fails"));
        }
    }
}

/// Counts live values. On drop, waits for the other values, as an incorrect guard would.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicU64) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        barrier(true);
        (0..100).for_each(|_| spin_hint());
    }
}

kernel!(static DROPS = "drops"(alive: &'static AtomicU64, created: &'static AtomicU64, how: u64) {
    let _boxed = Box::new(Counted::new(alive));
    created.fetch_add(1, Ordering::Relaxed);
    match how {
        // One thread panics while most threads wait at a barrier, some wait in a warp, and some spin.
        0 if thread::linear_index() == 700 => panic!("enough"),
        0 if thread::linear_index() < 32 => _ = warp_exchange(u32::MAX, "shuffle", 0),
        0 if thread::linear_index() == 40 => loop { spin_hint() },
        // A deadlock.
        1 if thread::linear_index() == 5 => _ = warp_exchange(0b10_0001, "shuffle", 0),
        _ => {}
    }
    let _second = Counted::new(alive);
    barrier(true);
});

#[test]
fn a_failing_block_drops_values_on_its_stacks() {
    for how in 0..2u64 {
        for order in ORDERS {
            let (alive, created) = (AtomicU64::new(0), AtomicU64::new(0));
            let args = [std::ptr::from_ref(&alive) as u64, std::ptr::from_ref(&created) as u64, how];
            let fault = launch_as(&DROPS, [40, 1, 1], [1000, 1, 1], 0, order, &args).unwrap_err();
            match how {
                0 => assert_eq!(fault.message(), "enough"),
                _ => assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}"),
            }
            assert!(created.load(Ordering::Relaxed) > 0);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "{how} {order:?}");
        }
    }
}

kernel!(static HANDSHAKE = "handshake"(turn: &'static AtomicU32, rounds: u64) {
    // Two threads alternate through memory only.
    let me = thread::linear_index();
    if me < 2 {
        for round in 0..rounds as u32 {
            while turn.load(Ordering::Acquire) != 2 * round + me {
                spin_hint();
            }
            turn.store(2 * round + me + 1, Ordering::Release);
        }
    }
    barrier(true);
});

#[test]
fn spinning_threads_of_a_block_meet() {
    for order in ORDERS {
        let turn = AtomicU32::new(0);
        launch_as(&HANDSHAKE, [1; 3], [70, 1, 1], 0, order, &[std::ptr::from_ref(&turn) as u64, 100])
            .unwrap();
        assert_eq!(turn.load(Ordering::Relaxed), 200);
    }
}

kernel!(static CHAIN = "chain"(done: &'static AtomicU64) {
    // Each block waits for the one before it.
    if thread::linear_index() == 0 {
        while done.load(Ordering::Acquire) != block() as u64 {
            spin_hint();
        }
    }
    barrier(true);
    if thread::linear_index() == 63 {
        done.fetch_add(1, Ordering::Release);
    }
});

#[test]
fn blocks_can_wait_for_earlier_blocks() {
    let done = AtomicU64::new(0);
    launch(&CHAIN, [500, 1, 1], [64, 1, 1], &[std::ptr::from_ref(&done) as u64]).unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 500);
}

kernel!(static ORPHANED = "orphaned"(flag: &'static AtomicU64) {
    // The last block would set the awaited flag, but panics.
    if block() + 1 == thread::grid_dim()[0] as usize {
        panic!("no flag");
    }
    while flag.load(Ordering::Acquire) == 0 {
        spin_hint();
    }
});

#[test]
fn a_spinning_block_stops_when_another_fails() {
    let flag = AtomicU64::new(0);
    // One block spins on this host thread, so the other block can run only if there is a second host thread.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let fault = pool
        .install(|| launch(&ORPHANED, [3, 1, 1], [1024, 1, 1], &[std::ptr::from_ref(&flag) as u64]))
        .unwrap_err();
    assert_eq!(fault.message(), "no flag");
}

kernel!(static SQUARES = "squares"(out: Elements<u64>, rounds: u64) {
    let mut value = global() as u64;
    for _ in 0..rounds {
        value = warp_exchange(u32::MAX, "shuffle", value).values[thread::lane() as usize ^ 1];
        barrier(true);
    }
    out.set(global(), value * value);
});

#[test]
fn launches_from_many_host_threads_do_not_meet() {
    std::thread::scope(|scope| {
        for host in 0..8u32 {
            scope.spawn(move || {
                for launches in 0..20u32 {
                    if (host + launches).is_multiple_of(4) {
                        assert!(launch(&MANY, [50, 1, 1], [64, 1, 1], &[7]).is_err());
                    }
                    let mut out = vec![0u64; 96 * 50];
                    launch(&SQUARES, [50, 1, 1], [96, 1, 1], &[word(&mut out), 4]).unwrap();
                    assert!(out.iter().enumerate().all(|(i, &v)| v == (i * i) as u64));
                }
            });
        }
    });
}

kernel!(static PRINTS = "prints"() {
    output::print(&format!("thread {}\n", thread::linear_index()));
    barrier(true);
    if thread::linear_index() == 2 {
        panic!("after printing");
    }
});

#[test]
fn output_of_a_failing_kernel_is_captured() {
    let (result, printed) = output::capture(|| launch(&PRINTS, [1, 1, 1], [3, 1, 1], &[]));
    assert_eq!(result.unwrap_err().message(), "after printing");
    let printed: Vec<_> = printed.into_iter().filter(|p| p.kernel == "prints").collect();
    for (i, p) in printed.iter().enumerate() {
        assert_eq!(
            (p.block, p.thread, p.text.as_str()),
            ([0; 3], [i as u32, 0, 0], &*format!("thread {i}\n"))
        );
    }
    assert_eq!(printed.len(), 3);
}

kernel!(static NESTED_LAUNCH = "nested_launch"() {
    let fault = launch(&PRINTS, [1; 3], [1; 3], &[]).unwrap_err();
    assert_eq!(fault.message(), "a kernel on the emulated device cannot launch kernels in this way");
});

#[test]
fn a_launch_inside_a_kernel_is_refused() {
    launch_as(&NESTED_LAUNCH, [1; 3], [1; 3], 0, Order::Sequential, &[]).unwrap();
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

kernel!(static BOMB = "bomb"() {
    if thread::linear_index() == 5 {
        std::panic::panic_any(Bomb);
    }
    barrier(true);
});

kernel!(static AFTER = "after"() {
    panic!("the next one");
});

#[test]
fn a_payload_panicking_on_drop_is_one_fault() {
    for order in ORDERS {
        let fault = launch_as(&BOMB, [2, 1, 1], [64, 1, 1], 0, order, &[]).unwrap_err();
        assert_eq!(fault.message(), "a panic without text");
        assert_eq!(fault.thread, Some([5, 0, 0]));
        // The location of the second panic must not be reported with the next fault.
        let fault = launch_as(&AFTER, [1, 1, 1], [1, 1, 1], 0, order, &[]).unwrap_err();
        assert_eq!(fault.message(), "the next one");
        assert!(fault.location().is_some_and(|place| place.contains("faults.rs")), "{fault}");
    }
}
