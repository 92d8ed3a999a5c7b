//! Atomic operations: their results, and that no update is lost under contention.

use crate::common::{Args, launch, randoms};
use gpu_std::atomic::{Atomic, AtomicInteger, AtomicValue, Ordering, fence, scope};
use gpu_std::prelude::*;
use std::collections::BTreeSet;

const ORDERINGS: [Ordering; 5] =
    [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel, Ordering::SeqCst];

/// Every thread changes every cell; `fetch_add` returns distinct previous values.
#[kernel(types(T = i32, u32, i64, u64, f32, f64))]
fn contend<T: AtomicValue>(
    sum: &[Atomic<T>],
    smallest: &[Atomic<T, scope::System>],
    largest: &[Atomic<T>],
    input: &[T],
    mut before: DisjointMut<T>,
) {
    let me = thread::unique_index();
    let value = input[me.get()];
    let order = ORDERINGS[me.get() % 5];
    let old = sum[0].fetch_add(T::ONE, order);
    smallest[0].fetch_min(value, order);
    largest[0].fetch_max(value, order);
    if let Some(before) = before.get_mut(me) {
        *before = old;
    }
}

macro_rules! check_contention {
    ($($t:ty),*) => { $( {
        let n = 8 * 64;
        let input: Vec<$t> = randoms(n).into_iter().map(|bits| (bits as i32 >> 4) as $t).collect();
        let (sum, smallest, largest) = ([Atomic::<$t>::new(0 as $t)], [Atomic::<$t, scope::System>::new(<$t>::MAX)], [Atomic::<$t>::new(<$t>::MIN)]);
        let mut before = vec![0 as $t; n];
        let args = Args::new().slice(&sum).slice(&smallest).slice(&largest).slice(&input).view(&mut before);
        launch::<contend<$t>>([8, 1, 1], [64, 1, 1], &args);
        assert_eq!(sum[0].load(Ordering::SeqCst), n as $t);
        assert_eq!(smallest[0].load(Ordering::Relaxed), input.iter().copied().fold(<$t>::MAX, |a, b| if b < a { b } else { a }));
        assert_eq!(largest[0].load(Ordering::Acquire), input.iter().copied().fold(<$t>::MIN, |a, b| if b > a { b } else { a }));
        let seen: BTreeSet<u64> = before.iter().map(|&old| old as u64).collect();
        assert_eq!(seen, (0..n as u64).collect(), "every addition saw another value");
    } )* };
}

#[test]
fn nothing_is_lost() {
    check_contention!(i32, u32, i64, u64, f32, f64);
}

fn check_bits<T: AtomicInteger>(a: T, b: T, and: T, or: T, xor: T) {
    let cell: Atomic<T> = Atomic::new(a);
    assert_eq!(cell.fetch_and(b, Ordering::AcqRel), a);
    assert_eq!(cell.swap(a, Ordering::Relaxed), and);
    assert_eq!(cell.fetch_or(b, Ordering::SeqCst), a);
    assert_eq!(cell.swap(a, Ordering::Relaxed), or);
    assert_eq!(cell.fetch_xor(b, Ordering::Relaxed), a);
    assert_eq!(cell.load(Ordering::Relaxed), xor);
    assert_eq!(cell.compare_exchange(a, b, Ordering::AcqRel, Ordering::Acquire), Err(xor));
    assert_eq!(cell.compare_exchange(xor, b, Ordering::SeqCst, Ordering::Relaxed), Ok(xor));
    cell.store(a, Ordering::Release);
    assert_eq!(format!("{cell:?}"), format!("{a:?}"));
}

/// Checks the bit operations. They must run in a kernel, because loads let other emulated threads run.
#[kernel]
fn bits(a: u64, b: u64) {
    check_bits(a, b, a & b, a | b, a ^ b);
    let (a, b) = (a as i32, b as i32);
    check_bits(a, b, a & b, a | b, a ^ b);
    // For floats, NaN wins, zeros are ordered, and comparison is by bits.
    let cell: Atomic<f32> = Atomic::new(0.0);
    assert_eq!(cell.fetch_min(-0.0, Ordering::Relaxed).to_bits(), 0);
    assert!(cell.load(Ordering::Relaxed).is_sign_negative());
    assert!(cell.compare_exchange(0.0, 1.0, Ordering::Relaxed, Ordering::Relaxed).is_err());
    cell.fetch_max(f32::NAN, Ordering::Relaxed);
    assert!(cell.load(Ordering::Relaxed).is_nan());
    cell.fetch_min(1.0, Ordering::Relaxed);
    assert!(cell.load(Ordering::Relaxed).is_nan());
    fence::<scope::Block>(Ordering::AcqRel);
    thread::block_fence();
    thread::device_fence();
    thread::system_fence();
}

#[test]
fn bit_operations_and_floats() {
    let r = randoms(2);
    launch::<bits>([1, 1, 1], [1, 1, 1], &Args::new().value(r[0]).value(r[1]));
}

/// Thread 0 waits for the last thread of the block, in a loop without a barrier.
#[kernel]
fn wait_for_last(flag: &[Atomic<u32>], mut out: DisjointMut<u32>) {
    let me = thread::unique_index();
    if thread::linear_in_block() == 0 {
        while flag[0].load(Ordering::Acquire) == 0 {}
        if let Some(out) = out.get_mut(me) {
            *out = flag[0].load(Ordering::Relaxed);
        }
    } else if thread::linear_in_block() == block::threads() - 1 {
        flag[0].store(7, Ordering::Release);
    }
}

#[test]
fn a_spinning_thread_lets_others_run() {
    let flag = [Atomic::<u32>::new(0)];
    let mut out = [0; 64];
    launch::<wait_for_last>([1, 1, 1], [64, 1, 1], &Args::new().slice(&flag).view(&mut out));
    assert_eq!(out[0], 7);
}

/// Waits like `wait_for_last`, with operations that leave the flag unchanged.
#[kernel]
fn wait_by_updates(flag: &[Atomic<u32>], by: u32) {
    let flag = &flag[0];
    if thread::linear_in_block() == 0 {
        let waits = || match by {
            0 => flag.fetch_add(0, Ordering::Acquire) != 2,
            1 => flag.fetch_or(1, Ordering::Acquire) & 2 == 0,
            2 => flag.fetch_and(3, Ordering::Acquire) != 2,
            3 => flag.fetch_xor(0, Ordering::Acquire) != 2,
            _ => flag.swap(1, Ordering::Acquire) != 2,
        };
        while waits() {}
    } else if thread::linear_in_block() == block::threads() - 1 {
        flag.store(2, Ordering::Release);
    }
}

#[test]
fn updates_that_change_nothing_let_others_run() {
    for by in 0..5_u32 {
        let flag = [Atomic::<u32>::new(1)];
        launch::<wait_by_updates>([1, 1, 1], [64, 1, 1], &Args::new().slice(&flag).value(by));
    }
}

/// Protects a plain counter with a lock based on `compare_exchange`.
#[kernel]
unsafe fn locked(lock: &[Atomic<u32>], counter: *mut u64) {
    while lock[0].compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
    // SAFETY: the lock is held.
    unsafe { *counter += 1 };
    lock[0].store(0, Ordering::Release);
}

#[test]
fn a_lock_excludes() {
    let lock = [Atomic::<u32>::new(0)];
    let mut counter = 0_u64;
    launch::<locked>([6, 1, 1], [50, 1, 1], &Args::new().slice(&lock).value(&raw mut counter));
    assert_eq!(counter, 300);
}

/// Counts with atomics in shared memory.
#[kernel]
fn histogram(data: &[u8], counts: &[Atomic<u32>]) {
    let local = shared_array![u32; 256];
    let own = thread::linear_in_block() as usize;
    for bin in (own..256).step_by(block::threads() as usize) {
        // SAFETY: each thread clears its own element.
        unsafe { local.add(bin).write(0) };
    }
    thread::sync_threads();
    for i in thread::grid_stride(data.len()) {
        // SAFETY: between the barriers all accesses are atomic.
        let bin: &Atomic<u32, scope::Block> = unsafe { Atomic::from_ptr(local.add(data[i.get()] as usize)) };
        bin.fetch_add(1, Ordering::Relaxed);
    }
    thread::sync_threads();
    for bin in (own..256).step_by(block::threads() as usize) {
        // SAFETY: no thread writes after the barrier.
        counts[bin].fetch_add(unsafe { local.add(bin).read() }, Ordering::Relaxed);
    }
}

#[test]
fn histograms_add_up() {
    let data: Vec<u8> = randoms(10_001).into_iter().map(|bits| bits as u8).collect();
    let counts: Vec<Atomic<u32>> = (0..256).map(|_| Atomic::new(0)).collect();
    launch::<histogram>([3, 1, 1], [96, 1, 1], &Args::new().slice(&data).slice(&counts));
    let mut expected = [0; 256];
    data.iter().for_each(|&byte| expected[byte as usize] += 1);
    let found: Vec<u32> = counts.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
    assert_eq!(found, expected);
}

#[kernel]
fn density(points: &[[i32; 2]], counts: Slice2<Atomic<u32>>, levels: Slice3<Atomic<u64>>) {
    for i in thread::grid_stride(points.len()) {
        let [row, column] = points[i.get()];
        if let Some(count) = counts.get([row, column]) {
            let before = count.fetch_add(1, Ordering::Relaxed);
            levels[[before as i32 % 2, row, column]].fetch_add(u64::from(before), Ordering::Relaxed);
        }
    }
}

#[test]
fn atomics_are_viewed_as_rows_and_planes() {
    let (rows, columns, row_stride) = (5usize, 7usize, 9usize);
    let points: Vec<[i32; 2]> =
        randoms(2000).into_iter().map(|bits| [(bits % 7) as i32 - 1, (bits >> 32) as i32 % 9 - 1]).collect();
    let (mut counts, mut levels) = (vec![0u32; rows * row_stride], vec![0u64; 2 * rows * columns]);
    let args = Args::new()
        .slice(&points)
        .value(counts.as_mut_ptr())
        .value(gpu_std::Extents2::new(rows, columns, row_stride).unwrap())
        .value(levels.as_mut_ptr())
        .value(gpu_std::Extents3::new([2, rows, columns], [rows * columns, columns]).unwrap());
    launch::<density>([3, 1, 1], [32, 1, 1], &args);
    for (i, count) in counts.into_iter().enumerate() {
        let place = [(i / row_stride) as i32, (i % row_stride) as i32];
        let is_inside = i % row_stride < columns;
        let expected = points.iter().filter(|point| is_inside && **point == place).count() as u64;
        assert_eq!(u64::from(count), expected, "{place:?}");
        if is_inside {
            let at = i / row_stride * columns + i % row_stride;
            let sum = |parity: u64| (0..expected).filter(|before| before % 2 == parity).sum::<u64>();
            assert_eq!([levels[at], levels[rows * columns + at]], [sum(0), sum(1)], "{place:?}");
        }
    }
}
