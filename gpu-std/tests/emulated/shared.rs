//! Arrays in shared memory that safe code writes and reads.

use crate::common::{Args, launch, launch_shared, random, randoms};
use gpu_std::Kernel;
use gpu_std::prelude::*;
use warpsmith_emulator::{Fault, FaultKind};

/// Blocks of one to three dimensions, smaller and larger than the arrays.
const BLOCKS: [[u32; 3]; 8] =
    [[1, 1, 1], [7, 1, 1], [32, 1, 1], [16, 16, 1], [5, 3, 2], [1, 33, 1], [64, 1, 1], [1024, 1, 1]];

/// Writes the arrays' elements in memory order, from the last thread.
#[kernel(types(T = u32, u64), consts(N = 1, 6))]
fn positions<T: Scalar, const N: usize>(
    mut line: Shared<[T; N]>,
    mut grid: Shared<[[T; 5]; N]>,
    mut cube: Shared<[[[T; 2]; N]; 3]>,
    mut out: DisjointMut<T, Chunks<100>>,
) {
    let number = |digits: &[usize]| {
        digits
            .iter()
            .fold(T::ONE, |n, digit| n.wrapping_mul((10_u32).cast()).wrapping_add((*digit as u32).cast()))
    };
    let line = line.fill(|[i]| number(&[i]));
    let grid = grid.fill(|[row, column]| number(&[row, column]));
    let cube = cube.fill(|[plane, row, column]| number(&[plane, row, column]));
    let all = line.iter().chain(grid.iter().flatten()).chain(cube.iter().flatten().flatten());
    if let Some(out) = out.get_mut(thread::unique_index()) {
        for (out, element) in out.iter_mut().zip(all) {
            *out = *element;
        }
    }
}

fn check_positions<T: Scalar, const N: usize>()
where
    positions<T, N>: Kernel,
{
    let number = |digits: &[usize]| digits.iter().fold(1, |n, digit| n * 10 + digit);
    let mut expected = Vec::new();
    expected.extend((0..N).map(|i| number(&[i])));
    expected.extend((0..N * 5).map(|i| number(&[i / 5, i % 5])));
    expected.extend((0..N * 6).map(|i| number(&[i / (2 * N), i / 2 % N, i % 2])));
    for block in BLOCKS {
        let threads = block.iter().product::<u32>() as usize;
        let mut out = vec![T::ZERO; threads * 100 * 2];
        launch::<positions<T, N>>([2, 1, 1], block, &Args::new().view(&mut out));
        for out in out.chunks(100) {
            let found: Vec<usize> =
                out.iter().map(|x| x.cast::<u64>() as usize).take(expected.len()).collect();
            assert_eq!(found, expected, "{block:?}");
        }
    }
}

#[test]
fn fill_gives_every_element_its_indices() {
    check_positions::<u32, 1>();
    check_positions::<u32, 6>();
    check_positions::<u64, 1>();
    check_positions::<u64, 6>();
}

#[test]
fn shared_arrays_are_no_launch_parameters() {
    let spec = positions::<u32, 6>::spec();
    assert_eq!(spec.params.iter().map(|param| param.name).collect::<Vec<_>>(), ["out"]);
}

/// Every thread reads another thread's element in each round, and the next round overwrites it.
#[kernel]
fn rounds(data: &[u32], mut tile: Shared<[u32; 64]>, mut out: DisjointMut<u32>) {
    let own = thread::linear_in_block() as usize;
    let mut value = data[grid::rank()];
    for round in 0..20 {
        let tile = tile.fill(|[_]| value);
        value = tile[(own * 5 + round) % 64].wrapping_mul(3).wrapping_add(tile[own]);
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = value;
    }
}

#[test]
fn a_refill_waits_for_readers() {
    for _ in 0..10 {
        let data: Vec<u32> = randoms(64 * 3).into_iter().map(|r| r as u32).collect();
        let mut expected = data.clone();
        for block in expected.chunks_mut(64) {
            for round in 0..20 {
                let old = block.to_vec();
                for (own, value) in block.iter_mut().enumerate() {
                    *value = old[(own * 5 + round) % 64].wrapping_mul(3).wrapping_add(old[own]);
                }
            }
        }
        let mut out = vec![0; data.len()];
        launch::<rounds>([3, 1, 1], [64, 1, 1], &Args::new().slice(&data).view(&mut out));
        assert_eq!(out, expected);
    }
}

/// Checks that elements keep their thread from one operation to the next, and start as zero.
#[kernel]
fn updates(rounds: u32, mut tile: Shared<[[u32; 7]; 9]>, mut out: DisjointMut<u32, Chunks<63>>) {
    let own = thread::linear_in_block();
    tile.update(|element, [row, column]| {
        assert_eq!(*element, 0);
        *element = own + (row * 7 + column) as u32;
    });
    for _ in 0..rounds {
        tile.update(|element, _: [usize; 2]| *element += 1);
        tile.update(|element, [row, column]| {
            assert_eq!(*element, own + (row * 7 + column) as u32 + 1);
            *element -= 1;
        });
    }
    let tile = tile.update(|element, [_, _]| *element *= 2);
    if let Some(out) = out.get_mut(thread::unique_index()) {
        out.copy_from_slice(tile.as_flattened());
    }
}

#[test]
fn update_changes_own_elements() {
    for threads in [1, 63, 64, 256] {
        let mut out = vec![9; threads * 63];
        launch::<updates>([1, 1, 1], [threads as u32, 1, 1], &Args::new().value(3_u32).view(&mut out));
        let expected: Vec<u32> = (0..63).map(|i| 2 * (i + i % threads as u32)).collect();
        assert!(out.chunks(63).all(|out| out == expected), "{out:?}");
    }
}

/// Uses a double buffer whose first operation is not a fill.
#[kernel]
fn unwritten(first: u32, mut pair: DoubleBuffer<[u64; 40]>, mut out: DisjointMut<u64>) {
    let sum: u64 = match first {
        0 => pair.current().iter().sum(),
        1 => pair.step(|old, [i]| old.iter().sum::<u64>() + i as u64).iter().sum(),
        _ => {
            pair.fill(|[i]| i as u64);
            pair.step(|old, [i]| old[39 - i]);
            pair.step(|old, [i]| old[i] * 2).iter().sum()
        }
    };
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = sum;
    }
}

#[test]
fn unwritten_elements_are_zero() {
    for (first, expected) in [(0_u32, 0), (1, 780), (2, 1560)] {
        for threads in [7_u32, 64] {
            let mut out = vec![7_u64; threads as usize];
            launch::<unwritten>([1, 1, 1], [threads, 1, 1], &Args::new().value(first).view(&mut out));
            assert_eq!(out, vec![expected; threads as usize]);
        }
    }
}

/// Calls a kernel as a function, with the array that the caller reserved.
#[kernel]
fn calls(data: &[u32], tile: Shared<[u32; 64]>, out: DisjointMut<u32>) {
    rounds(data, tile, out);
}

#[test]
fn a_called_kernel_takes_its_callers_array() {
    let data: Vec<u32> = (0..64).collect();
    let (mut direct, mut called) = (vec![0; 64], vec![0; 64]);
    launch::<rounds>([1, 1, 1], [64, 1, 1], &Args::new().slice(&data).view(&mut direct));
    launch::<calls>([1, 1, 1], [64, 1, 1], &Args::new().slice(&data).view(&mut called));
    assert_eq!(direct, called);
}

/// Violates the requirement that all threads reach an operation, in a way given by `kind`.
#[kernel]
fn disagreeing(kind: u32, mut a: Shared<[u32; 8]>, mut b: Shared<[u32; 8]>) {
    let is_last = thread::linear_in_block() + 1 == block::threads();
    match kind {
        0 if is_last => {}
        0 => _ = a.fill(|[i]| i as u32),
        1 if is_last => _ = a.fill(|[i]| i as u32),
        1 => _ = a.fill(|[i]| 2 * i as u32),
        2 if is_last => _ = a.fill(|[i]| i as u32),
        2 => _ = b.fill(|[i]| i as u32),
        3 if is_last => block::sync_threads(),
        3 => _ = a.zeroed(),
        _ => {
            a.zeroed();
            if is_last {
                return;
            }
            a.zeroed();
        }
    }
}

fn disagreement(kind: u32) -> Fault {
    launch_shared::<disagreeing>([2, 1, 1], [40, 1, 1], 0, &Args::new().value(kind)).unwrap_err()
}

#[test]
fn a_returned_thread_is_a_fault() {
    for kind in [0, 4] {
        let fault = disagreement(kind);
        assert!(matches!(fault.kind, FaultKind::Collective { .. }), "{fault}");
        let operation = ["Shared::fill", "Shared::zeroed"][usize::from(kind == 4)];
        let message = format!(
            "{operation} waits for every thread of the block, but 1 thread of the block has exited without it"
        );
        assert!(fault.to_string().contains(&message), "{fault}");
        assert!(fault.location().unwrap().contains("shared.rs:"), "{fault}");
    }
}

#[test]
fn fills_of_two_places_are_a_fault() {
    let fault = disagreement(1).to_string();
    assert!(
        fault.contains("the threads of the block diverge: this one is in Shared::fill, thread")
            && fault.contains("in Shared::fill at"),
        "{fault}"
    );
}

#[test]
fn another_barrier_is_a_deadlock_that_names_both() {
    for (kind, places) in [
        (2, ["39 threads are in Shared::fill", "1 thread is in Shared::fill"]),
        (3, ["39 threads are in Shared::zeroed", "1 thread is in sync_threads"]),
    ] {
        let fault = disagreement(kind);
        assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
        for place in places {
            assert!(fault.to_string().contains(place), "{fault}");
        }
    }
}

/// Catches a panic in a function that an operation calls.
#[kernel]
fn caught(kind: u32, mut tile: Shared<[u32; 8]>, mut pair: DoubleBuffer<[u32; 8]>) {
    let catch = |f: &mut dyn FnMut()| {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err());
    };
    match kind {
        0 => catch(&mut || _ = tile.fill(|[i]| if i == 3 { panic!("three") } else { 0 })),
        _ => catch(&mut || _ = pair.step(|old, [i]| if i == 3 { panic!("three") } else { old[i] })),
    }
    match kind {
        0 => _ = tile.zeroed(),
        _ => _ = pair.current(),
    }
}

#[test]
fn an_array_is_unusable_after_a_panic() {
    for kind in [0_u32, 1] {
        let fault = launch_shared::<caught>([1, 1, 1], [1, 1, 1], 0, &Args::new().value(kind)).unwrap_err();
        assert!(
            fault.to_string().contains("after a panic in an earlier operation on the same array"),
            "{fault}"
        );
    }
}

/// Swaps two arrays of one type, which also swaps their barriers.
#[kernel]
fn exchanged<'a>(mut a: Shared<'a, [u32; 32]>, mut b: Shared<'a, [u32; 32]>, mut out: DisjointMut<u32>) {
    a.fill(|[i]| i as u32);
    core::mem::swap(&mut a, &mut b);
    let b_sum: u32 = b.update(|element, [_]| *element += 1).iter().sum();
    let a_sum: u32 = a.fill(|[_]| 1).iter().sum();
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = 1000 * a_sum + b_sum;
    }
}

#[test]
fn arrays_can_be_exchanged() {
    let threads = 1 + (random() % 100) as u32;
    let mut out = vec![0; threads as usize];
    launch::<exchanged>([1, 1, 1], [threads, 1, 1], &Args::new().view(&mut out));
    assert_eq!(out, vec![32_000 + 496 + 32; threads as usize]);
}
