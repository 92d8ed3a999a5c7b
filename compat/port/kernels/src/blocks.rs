//! Cooperating threads, with shared and constant memory, warps and atomics.

use core::sync::atomic::Ordering;

use cuda_std::atomic::{AtomicF32, mid};
use cuda_std::prelude::*;
use cuda_std::{address_space, externally_visible, shared_array, warp};

#[address_space(constant)]
static WEIGHTS: [f32; 5] = [0.0625, 0.25, 0.375, 0.25, 0.0625];

/// Computes `y[i]` as the weighted mean of `x` around `i`, within each block of 256 elements.
#[kernel]
pub unsafe fn smooth(x: &[f32], y: *mut f32) {
    #[address_space(shared)]
    static mut TILE: [f32; 256] = [0.0; 256];

    let (i, t) = (thread::index_1d() as usize, thread::thread_idx_x() as usize);
    unsafe { TILE[t] = if i < x.len() { x[i] } else { 0.0 } };
    thread::sync_threads();
    if i < x.len() {
        let mut sum = 0.0;
        for (k, weight) in WEIGHTS.iter().enumerate() {
            let place = (t + k).saturating_sub(2).min(255);
            sum += weight * unsafe { TILE[place] };
        }
        unsafe { *y.add(i) = sum };
    }
}

/// Sums `x`.
#[kernel]
pub unsafe fn sum(x: &[f32], total: &AtomicF32) {
    let partial = shared_array![f32; 32];
    let (i, t) = (thread::index_1d() as usize, thread::thread_idx_x());
    let mut value = if i < x.len() { x[i] } else { 0.0 };
    for delta in [16, 8, 4, 2, 1] {
        let (other, _) = unsafe { warp::warp_shuffle_down(u32::MAX, value, delta, 32) };
        value += other;
    }
    if warp::lane_id() == 0 {
        unsafe { *partial.add(t as usize / 32) = value };
    }
    thread::sync_threads();
    if t == 0 {
        let warps = thread::block_dim_x().div_ceil(32) as usize;
        let sum = (0..warps).map(|warp| unsafe { *partial.add(warp) }).sum();
        total.fetch_add(sum, Ordering::Relaxed);
    }
}

/// Stores the results of shuffles, votes and matches for each lane of a warp.
#[kernel]
pub unsafe fn lanes(out: *mut [u32; 8]) {
    let lane = warp::lane_id();
    let wide = u128::from(lane) << 96 | 5;
    unsafe {
        let (xor, inside) = warp::warp_shuffle_xor(u32::MAX, wide, 8, 16);
        let (up, has_up) = warp::warp_shuffle_up(u32::MAX, lane as i8, 3, 32);
        let (first, _) = warp::warp_shuffle_idx(u32::MAX, f64::from(lane) + 0.5, 1, 8);
        *out.add(lane as usize) = [
            (xor >> 96) as u32 + u32::from(inside) * 1000,
            up as u32 + u32::from(has_up) * 1000,
            (first * 2.0) as u32,
            warp::warp_vote_ballot(u32::MAX, lane.is_multiple_of(5)),
            warp::warp_match_any(u32::MAX, lane / 8),
            warp::warp_match_all(u32::MAX, 7u64).unwrap_or(0),
            warp::warp_reduce(u32::MAX, lane, warp::WarpReductionOp::Add),
            warp::activemask(),
        ];
    }
}

#[address_space(global)]
#[externally_visible]
pub static mut CALLS: u32 = 5;

#[externally_visible]
#[address_space(constant)]
static SCALE: [f32; 2] = [2.0, 0.5];

/// Multiplies `x[i]` by the scale for even or for odd indices; the host can change the scales.
#[kernel]
pub unsafe fn scale(x: *mut f32) {
    let i = thread::index_1d() as usize;
    unsafe { *x.add(i) *= SCALE[i % 2] };
}

/// In thread `i`, stores element `i` modulo 5 of constant memory, and the value that the counter had before.
#[kernel]
pub unsafe fn statics(weights: *mut f32, calls: *mut u32) {
    let i = thread::index_1d() as usize;
    unsafe {
        *weights.add(i) = WEIGHTS[i % WEIGHTS.len()];
        *calls.add(i) = mid::atomic_fetch_add_u32_device(&raw mut CALLS, Ordering::Relaxed, 2);
    }
}
