//! Warp-level products: register layout, and missing lanes.

use gpu_std::prelude::*;
use gpu_std::tensor::mma::{WarpOperand, mma};

use crate::common::{Args, launch_shared};

/// Computes `out[lane] = sums + a * b` from the registers of each lane.
#[kernel(types(T = bf16, f16), arch = 80, block(32))]
unsafe fn multiply<T: WarpOperand>(a: &[u32], b: &[u32], sums: &[f32], mut out: DisjointMut<f32>) {
    let lane = warp::lane_id() as usize;
    // SAFETY: the whole warp calls it.
    let d = unsafe {
        mma::<T>(
            core::array::from_fn(|i| sums[4 * lane + i]),
            core::array::from_fn(|i| a[4 * lane + i]),
            core::array::from_fn(|i| b[2 * lane + i]),
        )
    };
    for (i, value) in d.into_iter().enumerate() {
        // SAFETY: each lane has its own four elements.
        unsafe { out.as_mut_ptr().add(4 * lane + i).write(value) };
    }
}

/// Multiplies after lane 7 has returned.
#[kernel(arch = 80, block(32))]
unsafe fn lane_missing(mut out: DisjointMut<f32>) {
    if warp::lane_id() == 7 {
        return;
    }
    // SAFETY: guaranteed by the caller, except for the seeded bug.
    let [value, ..] = unsafe { mma::<bf16>([0.0; 4], [0; 4], [0; 2]) };
    if let Some(element) = out.get_mut(thread::unique_index()) {
        *element = value;
    }
}

/// Checks the registers of all lanes for a product of 16 x 16 and 16 x 8 integers.
fn product<K: gpu_std::Kernel>(bits: fn(f32) -> u16) {
    let a_at = |row: usize, k: usize| ((row * 31 + k * 7) % 9) as f32 - 4.0;
    let b_at = |k: usize, column: usize| ((k * 5 + column * 3) % 7) as f32 - 3.0;
    let pair = |low: f32, high: f32| u32::from(bits(low)) | u32::from(bits(high)) << 16;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for lane in 0..32 {
        let (row, k) = (lane / 4, 2 * (lane % 4));
        for (row, k) in [(row, k), (row + 8, k), (row, k + 8), (row + 8, k + 8)] {
            a.push(pair(a_at(row, k), a_at(row, k + 1)));
        }
        for k in [k, k + 8] {
            b.push(pair(b_at(k, row), b_at(k + 1, row)));
        }
    }
    let sums: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let mut out = vec![f32::NAN; 128];
    let args = Args::new().slice(&a).slice(&b).slice(&sums).view(&mut out);
    launch_shared::<K>([1; 3], [32, 1, 1], 0, &args).unwrap();
    for (i, value) in out.into_iter().enumerate() {
        let (lane, register) = (i / 4, i % 4);
        let (row, column) = (lane / 4 + 8 * (register / 2), 2 * (lane % 4) + register % 2);
        let dot: f32 = (0..16).map(|k| a_at(row, k) * b_at(k, column)).sum();
        assert_eq!(value, i as f32 + dot, "row {row}, column {column}");
    }
}

#[test]
fn products_of_a_warp_are_exact() {
    product::<multiply<bf16>>(|x| bf16::from_f32(x).to_bits());
    product::<multiply<f16>>(|x| f16::from_f32(x).to_bits());
}

#[test]
fn a_missing_lane_is_a_fault() {
    let mut out = vec![0.0f32; 32];
    let args = Args::new().view(&mut out);
    let fault = launch_shared::<lane_missing>([1; 3], [32, 1, 1], 0, &args).unwrap_err().to_string();
    assert!(fault.contains("mma") && fault.contains("lane 7"), "{fault}");
}
