//! Tests of the barriers of shared arrays.

use crate::common::{Elements, ORDERS, SHAPES, block, launch, launch_as, word};
use warpsmith_emulator::collective::{ARRAY_BARRIERS, array_barrier, barrier};
use warpsmith_emulator::{FaultKind, shared, thread};

kernel!(static ROTATE = "rotate"(rounds: u64, out: Elements<u64>) {
    static SITE: u8 = 0;
    let [x, y, z] = thread::block_dim();
    let (threads, me) = ((x * y * z) as usize, thread::linear_index() as usize);
    let memory = Elements(shared::static_memory(&SITE, 1024 * 8, 8).cast::<u64>());
    let mut value = me as u64;
    for round in 0..rounds as u32 {
        // Two arrays alternate, with the block's own barrier in between.
        let number = if round % 2 == 0 { 1 } else { ARRAY_BARRIERS };
        memory.set(me, value);
        array_barrier(number, "first");
        value = memory.get((me + 1) % threads);
        if round % 3 == 0 { barrier(true) } else { array_barrier(number, "second"); Default::default() };
    }
    out.set(block() * threads + me, value);
});

#[test]
fn array_barriers_order_memory_in_every_order() {
    for shape in SHAPES {
        let threads = shape.iter().product::<u32>() as usize;
        for order in ORDERS {
            let mut out = vec![u64::MAX; threads * 3];
            launch_as(&ROTATE, [3, 1, 1], shape, 0, order, &[7, word(&mut out)]).unwrap();
            let expected = |i: usize| (i % threads + 7) as u64 % threads as u64;
            assert!(out.iter().enumerate().all(|(i, got)| *got == expected(i)), "{shape:?} {order:?}");
        }
    }
}

kernel!(static EXITS = "exits"(exits: u64, number: u64) {
    if u64::from(thread::linear_index()) < exits {
        return;
    }
    array_barrier(number as u32, "meet");
});

#[test]
fn an_exited_thread_is_a_fault_in_every_order() {
    for order in ORDERS {
        launch_as(&EXITS, [2, 1, 1], [70, 1, 1], 0, order, &[0, 1]).unwrap();
        launch_as(&EXITS, [2, 1, 1], [70, 1, 1], 0, order, &[70, 1]).unwrap();
        for exits in [1, 33, 69] {
            let fault = launch_as(&EXITS, [2, 1, 1], [70, 1, 1], 0, order, &[exits, 1]).unwrap_err();
            assert!(matches!(fault.kind, FaultKind::Collective { .. }), "{order:?}: {fault}");
            assert!(fault.message().starts_with("meet waits for every thread of the block"), "{fault}");
        }
    }
}

#[test]
fn only_array_barriers_have_numbers() {
    for number in [0, u64::from(ARRAY_BARRIERS) + 1] {
        let fault = launch(&EXITS, [1, 1, 1], [1, 1, 1], &[0, number]).unwrap_err();
        assert!(fault.message().contains("the barriers are 1 to 15"), "{fault}");
    }
}
