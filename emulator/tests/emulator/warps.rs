//! Tests of warp exchanges with full and partial masks, and of lane errors in them.

use crate::common::{Elements, ORDERS, global, launch, launch_as, word};
use warpsmith_emulator::collective::{WarpValues, active_mask, barrier, warp_exchange};
use warpsmith_emulator::{FaultKind, thread};

const EMPTY: WarpValues = WarpValues { mask: 0, values: [0; 32] };

kernel!(static GATHER = "gather"(mask: u64, out: Elements<WarpValues>) {
    let mask = mask as u32;
    if mask >> thread::lane() & 1 == 1 {
        for round in 0..3 {
            let value = global() as u64 + 1000 * round;
            let values = warp_exchange(mask, "shuffle", value);
            assert_eq!(values.values[thread::lane() as usize], value);
            out.set(global(), values);
        }
    }
});

#[test]
fn each_lane_gets_the_values_of_all() {
    for threads in [1u32, 31, 32, 33, 64, 95, 1000, 1024] {
        for mask in [u32::MAX, 1, 0x8000_0000, 0x5555_5555, 0x0000_ffff, 0xffff_0000, 0x0000_0006] {
            for order in ORDERS {
                let mut out = vec![EMPTY; threads as usize * 3];
                launch_as(&GATHER, [3, 1, 1], [threads, 1, 1], 0, order, &[mask.into(), word(&mut out)])
                    .unwrap();
                for (i, got) in out.iter().enumerate() {
                    let (me, base) = (i as u32 % threads, i as u32 / threads * threads);
                    let (warp, lane) = (me / 32 * 32, me % 32);
                    let mut want = EMPTY;
                    if mask >> lane & 1 == 1 {
                        for other in (0..32).filter(|l| mask >> l & 1 == 1 && warp + l < threads) {
                            want.mask |= 1 << other;
                            want.values[other as usize] = u64::from(base + warp + other) + 2000;
                        }
                    }
                    assert_eq!(*got, want, "{threads} {mask:#x} {order:?} {i}");
                }
            }
        }
    }
}

kernel!(static HALVES = "halves"(out: Elements<u64>) {
    // Each half exchanges separately, a different number of times. Then all lanes exchange together.
    let (half, rounds) = if thread::lane() < 16 { (0x0000_ffff, 3) } else { (0xffff_0000, 5) };
    let mut sum = 1;
    for _ in 0..rounds {
        sum = warp_exchange(half, "reduce_add", sum).values.iter().sum();
    }
    let all = warp_exchange(u32::MAX, "reduce_add", sum).values.iter().sum();
    out.set(global(), all);
});

#[test]
fn halves_of_a_warp_part_and_meet() {
    for order in ORDERS {
        let mut out = vec![0u64; 96];
        launch_as(&HALVES, [1; 3], [96, 1, 1], 0, order, &[word(&mut out)]).unwrap();
        assert!(out.iter().all(|&v| v == 16 * 16u64.pow(3) + 16 * 16u64.pow(5)), "{out:?}");
    }
}

kernel!(static NESTED = "nested"(out: Elements<u64>) {
    // The mask of lane 2 contains lanes 0 and 1, which first exchange with each other.
    if thread::lane() < 2 {
        warp_exchange(0b11, "shuffle", 0);
    }
    let values = warp_exchange(0b111, "shuffle", thread::lane().into());
    out.set(global(), values.values[2]);
});

#[test]
fn a_lane_may_finish_another_exchange_first() {
    for seed in 0..50 {
        let mut out = vec![0u64; 3];
        let order = warpsmith_emulator::Order::Seeded(seed);
        launch_as(&NESTED, [1; 3], [3, 1, 1], 0, order, &[word(&mut out)]).unwrap();
        assert_eq!(out, [2; 3]);
    }
}

kernel!(static ACTIVE = "active"(out: Elements<u64>) {
    let all = active_mask();
    let branch = match thread::lane() % 3 {
        0 => active_mask(),
        _ => u32::from(all == 0) | active_mask(),
    };
    // Lanes that are active together can exchange.
    let sum: u64 = warp_exchange(branch, "reduce_add", 1).values.iter().sum();
    assert_eq!(sum, u64::from(branch.count_ones()));
    out.set(global(), u64::from(all) << 32 | u64::from(branch));
});

#[test]
fn lanes_at_the_same_place_are_active_together() {
    for order in ORDERS {
        let mut out = vec![0u64; 40];
        launch_as(&ACTIVE, [1; 3], [40, 1, 1], 0, order, &[word(&mut out)]).unwrap();
        for (i, got) in out.iter().enumerate() {
            let (lane, exist) = (i as u32 % 32, if i < 32 { u32::MAX } else { 0xff });
            let thirds = 0x4924_9249u32;
            let branch = if lane.is_multiple_of(3) { thirds } else { !thirds } & exist;
            assert_eq!(*got, u64::from(exist) << 32 | u64::from(branch), "{i}");
        }
    }
}

fn text(kernel: &'static gpu_spec::KernelSpec) -> String {
    let fault = launch(kernel, [1; 3], [64, 1, 1], &[]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Collective { .. }), "{fault:?}");
    assert!(fault.to_string().contains("emulator/warps.rs:"), "{fault}");
    fault.to_string()
}

kernel!(static OPERATIONS = "operations"() {
    match thread::linear_index() {
        40 => warp_exchange(u32::MAX, "ballot", 0),
        _ => warp_exchange(u32::MAX, "shuffle_down", 0),
    };
});
kernel!(static MASKS = "masks"() {
    warp_exchange(if thread::lane() == 7 { 0x0000_00ff } else { u32::MAX }, "shuffle", 0);
});
kernel!(static EXITED_FIRST = "exited_first"() {
    if thread::linear_index() != 3 {
        warp_exchange(u32::MAX, "shuffle_xor", 0);
    }
});
kernel!(static EXITED_LAST = "exited_last"() {
    if thread::linear_index() != 31 {
        warp_exchange(u32::MAX, "shuffle_xor", 0);
    }
});
kernel!(static NOT_NAMED = "not_named"() {
    warp_exchange(0x0000_fffe, "all", 0);
});

#[test]
fn lanes_that_disagree_are_named() {
    let text_of = text(&OPERATIONS);
    assert!(text_of.contains("the lanes of warp 1 diverge"), "{text_of}");
    assert!(text_of.contains("calls ballot") && text_of.contains("calls shuffle_down"), "{text_of}");
    let text_of = text(&MASKS);
    assert!(text_of.contains("lane 7 calls shuffle with mask 0x000000ff"), "{text_of}");
    for kernel in [&EXITED_FIRST, &EXITED_LAST] {
        let text_of = text(kernel);
        assert!(text_of.contains("shuffle_xor with mask 0xffffffff includes lane 3"), "{text_of}");
        assert!(text_of.contains("whose thread has exited"), "{text_of}");
    }
    let text_of = text(&NOT_NAMED);
    assert!(text_of.contains("was called by lane 0, which is not in the mask"), "{text_of}");
}

kernel!(static SPLIT = "split"() {
    if thread::linear_index() == 17 {
        warp_exchange(u32::MAX, "shuffle_down", 0);
    } else {
        barrier(true);
    }
});

#[test]
fn a_deadlock_names_each_place_once() {
    let fault = launch(&SPLIT, [5, 1, 1], [1024, 1, 1], &[]).unwrap_err();
    assert_eq!((fault.kernel, fault.block), ("split", Some([0, 0, 0])));
    let FaultKind::Deadlock { waiting, note: None } = &fault.kind else { panic!("{fault:?}") };
    assert_eq!(waiting.len(), 2);
    assert_eq!((waiting[0].threads.len(), waiting[1].threads.as_slice()), (1023, &[17][..]));
    let text = fault.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "kernel `split` deadlocked in block [0,0,0]: every thread waits");
    assert!(
        lines[1].starts_with("  1023 threads are in sync_threads at ")
            && lines[1].ends_with(": threads 0-16, 18-1023"),
        "{text}"
    );
    assert!(
        lines[2].starts_with("  1 thread is in shuffle_down, mask 0xffffffff at ")
            && lines[2].ends_with(": thread 17"),
        "{text}"
    );
    assert_eq!(lines.len(), 3);
}
