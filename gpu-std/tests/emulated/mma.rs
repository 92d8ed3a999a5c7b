//! Warp-level products: register layout, and missing lanes.

use gpu_std::prelude::*;
use gpu_std::tensor::mma::{WarpOperand, mma};

use crate::common::{Args, launch_shared};

/// Computes `out[lane] = sums + a * b` from the registers of each lane.
#[kernel(types(T = bf16, f16, f32, i8), arch = 80, block(32))]
unsafe fn multiply<T: WarpOperand>(a: &[u32], b: &[u32], sums: &[T::Sum], mut out: DisjointMut<T::Sum>) {
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

/// Checks the registers of all lanes for a product of 16 x k and k x 8 integers.
fn product<K: gpu_std::Kernel, T, S: Scalar>(of: fn(f32) -> T) {
    let (in_register, k) = (4 / size_of::<T>(), 32 / size_of::<T>());
    let a_at = |row: usize, k: usize| ((row * 31 + k * 7) % 9) as f32 - 4.0;
    let b_at = |k: usize, column: usize| ((k * 5 + column * 3) % 7) as f32 - 3.0;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for lane in 0..32 {
        let (row, first) = (lane / 4, in_register * (lane % 4));
        let register = |first: usize| first..first + in_register;
        for (row, first) in [(row, first), (row + 8, first), (row, first + k / 2), (row + 8, first + k / 2)] {
            a.extend(register(first).map(|k| of(a_at(row, k))));
        }
        for first in [first, first + k / 2] {
            b.extend(register(first).map(|k| of(b_at(k, row))));
        }
    }
    // SAFETY: the elements are numbers without padding.
    let [a, b] = [&a, &b].map(|all| unsafe { all.align_to::<u8>().1 });
    let registers = |bytes: &[u8]| -> Vec<u32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
    };
    let (a, b) = (registers(a), registers(b));
    let sums: Vec<S> = (0..128).map(|i| (i as f32).cast()).collect();
    let mut out = vec![S::MAX_IDENTITY; 128];
    let args = Args::new().slice(&a).slice(&b).slice(&sums).view(&mut out);
    launch_shared::<K>([1; 3], [32, 1, 1], 0, &args).unwrap();
    for (i, value) in out.into_iter().enumerate() {
        let (lane, register) = (i / 4, i % 4);
        let (row, column) = (lane / 4 + 8 * (register / 2), 2 * (lane % 4) + register % 2);
        let dot: f32 = (0..k).map(|k| a_at(row, k) * b_at(k, column)).sum();
        assert_eq!(value.cast::<f32>(), i as f32 + dot, "row {row}, column {column}");
    }
}

#[test]
fn products_of_a_warp_are_exact() {
    product::<multiply<bf16>, _, f32>(bf16::from_f32);
    product::<multiply<f16>, _, f32>(f16::from_f32);
    // The low bits of an `f32` are not read.
    product::<multiply<f32>, _, f32>(|x| f32::from_bits(x.to_bits() | 0x1fff));
    product::<multiply<i8>, _, i32>(|x| x as i8);
}

#[test]
fn a_missing_lane_is_a_fault() {
    let mut out = vec![0.0f32; 32];
    let args = Args::new().view(&mut out);
    let fault = launch_shared::<lane_missing>([1; 3], [32, 1, 1], 0, &args).unwrap_err().to_string();
    assert!(fault.contains("mma") && fault.contains("lane 7"), "{fault}");
}
