//! Small kernels that fail or print on purpose. Tests run them to check that a panic, a wrong index, a deadlock or a
//! line of output is reported correctly.

use glam::Vec3;
use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;
use gpu_std::{thread, warp};

/// Panics in the thread with global index `thread`, with the text `the diagnostic kernel panics as it was asked to`.
#[kernel]
pub fn diagnose_panic(thread: u32) {
    assert!(thread::index_1d() != thread, "the diagnostic kernel panics as it was asked to");
}

/// Reads `data[index]` and writes it to `out[0]`: out of bounds, it panics with index and length.
#[kernel]
pub fn diagnose_index(data: &[u32], index: usize, mut out: DisjointMut<u32>) {
    let me = thread::unique_index();
    if let Some(out) = out.get_mut(me) {
        *out = data[index];
    }
}

/// Deadlocks with blocks of more than one warp: the first half of every block waits at a barrier, and the rest waits
/// for a warp that never converges. The emulated device reports which threads wait where. A GPU hangs or has undefined
/// behavior, so tests run it only on the emulated device.
///
/// # Safety
/// The kernel must not run on a GPU.
#[kernel]
pub unsafe fn diagnose_deadlock() {
    if thread::linear_in_block() < 16 {
        thread::sync_threads();
    } else {
        warp::sync_warp(warp::FULL_MASK);
    }
}

/// Waits until `flag[0]` is not zero: forever, unless the host or another kernel sets it.
#[kernel]
pub fn diagnose_wait(flag: &[Atomic<u32>]) {
    while flag[0].load(Ordering::Acquire) == 0 {}
}

/// The first thread prints `block 0 of N: value V`.
#[kernel]
pub fn diagnose_print(value: f64) {
    if thread::index_1d() == 0 {
        printf!("block 0 of %u: value %f\n", thread::grid_dim_x(), value);
    }
}

/// `out[i] = points[i] × axis`, the cross product: glam types in an array and by value.
#[kernel]
pub fn diagnose_glam(axis: Vec3, points: &[Vec3], mut out: DisjointMut<Vec3>) {
    let me = thread::unique_index();
    if let Some(out) = out.get_mut(me) {
        *out = points[me.get()].cross(axis);
    }
}
