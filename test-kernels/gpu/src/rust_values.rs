//! Operations whose results on a GPU must match Rust on the host: remainders, roots, casts of 128-bit integers, atomics
//! in local memory.

use core::hint::black_box;
use core::ops::Rem;
use core::sync::atomic::{AtomicBool, AtomicI16, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use gpu_std::atomic::Atomic;
use gpu_std::math::Math;
use gpu_std::prelude::*;
use half::{bf16, f16};

/// Computes `x % y`.
#[kernel(types(T = f32, f64, f16, bf16))]
pub fn remainders<T: KernelType + Rem<Output = T>>(x: &[T], y: &[T], mut out: DisjointMut<T>) {
    for i in thread::grid_stride(out.len()) {
        if let Some(out) = out.get_mut(i) {
            *out = x[i.get()] % y[i.get()];
        }
    }
}

/// Computes the square root of `x`, and the hypotenuse of `x` and `y`.
#[kernel(types(T = f32, f64))]
pub fn roots<T: KernelType + Math>(
    x: &[T],
    y: &[T],
    mut root: DisjointMut<T>,
    mut hypotenuse: DisjointMut<T>,
) {
    for i in thread::grid_stride(root.len()) {
        if let Some((root, hypotenuse)) = root.get_mut(i).zip(hypotenuse.get_mut(i)) {
            (*root, *hypotenuse) = (x[i.get()].sqrt(), x[i.get()].hypot(y[i.get()]));
        }
    }
}

/// Casts `x` and `y` to 128-bit integers.
#[kernel]
pub fn wide_from_floats(x: &[f32], y: &[f64], mut out: DisjointMut<u128, Chunks<4>>) {
    for i in thread::grid_stride(out.chunks()) {
        if let Some(out) = out.get_mut(i) {
            out.copy_from_slice(&wide(x[i.get()], y[i.get()]));
        }
    }
}

/// Casts `x` and `y` to `u128` and `i128`.
pub fn wide(x: f32, y: f64) -> [u128; 4] {
    [x as u128, x as i128 as u128, y as u128, y as i128 as u128]
}

/// Writes the [`negations`] of `n` to `out`.
#[kernel]
pub fn negated(n: &[i64], mut out: DisjointMut<i64, Chunks<24>>) {
    for i in thread::grid_stride(out.chunks()) {
        if let Some(out) = out.get_mut(i) {
            out.copy_from_slice(&negations(n[i.get()]));
        }
    }
}

/// Negations, absolute values and values derived from them, of `n` cast to each signed type.
pub fn negations(n: i64) -> [i64; 24] {
    let mut out = [0; 24];
    macro_rules! of {
        ($($t:ty: $at:expr;)*) => { $(
            let x = n as $t;
            let (negation, magnitude) = (x.wrapping_neg(), x.wrapping_abs());
            out[$at] = negation as i64;
            out[$at + 1] = magnitude as i64;
            out[$at + 2] = magnitude.signum() as i64;
            out[$at + 3] = x.unsigned_abs() as i64;
            out[$at + 4] = negation.cmp(&((n >> 7) as $t)) as i64;
            out[$at + 5] = negation.overflowing_sub(1).1 as i64;
        )* };
    }
    of! { i8: 0; i16: 6; i32: 12; i64: 18; }
    out
}

/// Casts 128-bit integers to `f32` and `f64`.
#[kernel]
pub fn floats_from_wide(n: &[u128], mut x: DisjointMut<f32, Chunks<2>>, mut y: DisjointMut<f64, Chunks<2>>) {
    for i in thread::grid_stride(x.chunks()) {
        if let Some((x, y)) = x.get_mut(i).zip(y.get_mut(i)) {
            let (of_32, of_64) = floats(n[i.get()]);
            x.copy_from_slice(&of_32);
            y.copy_from_slice(&of_64);
        }
    }
}

/// Casts `n`, as unsigned and as signed integer, to floats.
pub fn floats(n: u128) -> ([f32; 2], [f64; 2]) {
    ([n as f32, n as i128 as f32], [n as f64, n as i128 as f64])
}

/// Applies atomics in local memory to each number of `x`. Adds 1 to `total` per number, with a function that also
/// changes local memory.
#[kernel]
pub fn local_atomics(x: &[u32], mut out: DisjointMut<u64>, total: &[Atomic<u32>]) {
    for i in thread::grid_stride(out.len()) {
        if let Some(out) = out.get_mut(i) {
            *out = of_local(x[i.get()]);
            count_up(&total[0], 1);
        }
    }
}

/// A number computed from `n` with atomics of all widths.
pub fn of_local(n: u32) -> u64 {
    let bytes: [AtomicU8; 6] = core::array::from_fn(|i| AtomicU8::new((n >> i) as u8));
    let byte = &bytes[n as usize % 6];
    let words: [AtomicI16; 3] = core::array::from_fn(|i| AtomicI16::new((n >> (8 * i)) as i16));
    let word = &words[n as usize % 3];
    let (plain, long) = (AtomicU32::new(n), AtomicU64::new(u64::from(n) << 13));
    let flag = AtomicBool::new(n & 4 == 0);
    let own = Atomic::<u32>::new(n ^ 9);
    let float = Atomic::<f32>::new(0.5);
    let mut sum = u64::from(byte.fetch_add(200, AcqRel)) ^ (word.fetch_min(-5, Relaxed) as u64);
    sum ^= byte.compare_exchange(n as u8, 7, AcqRel, Acquire).map_or_else(u64::from, |old| u64::from(!old));
    sum ^= word.compare_exchange(-5, 11, Relaxed, Relaxed).map_or(3, |old| !old as u64);
    sum = sum.rotate_left(9) ^ u64::from(plain.swap(n / 3, SeqCst)) ^ long.fetch_nand(n.into(), Release);
    sum ^= u64::from(flag.fetch_xor(true, Relaxed)) << 40 | u64::from(flag.swap(n & 1 == 0, AcqRel)) << 41;
    sum ^= change(&plain, n % 7) ^ long.compare_exchange(3, 4, SeqCst, Relaxed).unwrap_or_else(|old| old ^ 1);
    sum ^= u64::from(count_up(&own, n) ^ own.fetch_max(77, Release) ^ own.swap(n, AcqRel));
    sum ^= u64::from((float.fetch_add(n as f32, AcqRel) + float.load(Relaxed)).to_bits());
    let left = bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(byte.load(Acquire)));
    let left = words.iter().fold(left, |sum: u64, word| sum.rotate_left(21) ^ word.load(Relaxed) as u64);
    sum.wrapping_mul(31)
        ^ left
        ^ u64::from(plain.into_inner())
        ^ long.into_inner()
        ^ u64::from(own.load(Acquire))
}

/// Changes memory whose address space is unknown at compile time.
#[inline(never)]
fn change(number: &AtomicU32, by: u32) -> u64 {
    let old = number.fetch_add(by, AcqRel);
    let exchanged = number.compare_exchange(old.wrapping_add(by), old ^ by, AcqRel, Relaxed);
    u64::from(old) << 3 | u64::from(exchanged.is_ok())
}

/// Does the same with gpu-std's operations.
#[inline(never)]
fn count_up(number: &Atomic<u32>, by: u32) -> u32 {
    let number = black_box(number);
    number.fetch_add(by, AcqRel)
}

/// A kernel name that is not a valid PTX symbol.
#[kernel]
pub fn größe(mut out: DisjointMut<u32>) {
    write(&mut out, 1);
}

/// A kernel name that is a keyword.
#[kernel]
pub fn r#loop(mut out: DisjointMut<u32>) {
    write(&mut out, 2);
}

/// A kernel name that is also a CUDA function.
#[kernel]
pub fn vprintf(mut out: DisjointMut<u32>) {
    write(&mut out, 3);
}

/// A module with a kernel that has the same name as another one.
pub mod first {
    use super::*;

    /// The first kernel with this name.
    #[kernel(types(T = u32, u64))]
    pub fn twin<T: KernelType + From<u32>>(mut out: DisjointMut<T>) {
        for i in thread::grid_stride(out.len()) {
            if let Some(out) = out.get_mut(i) {
                *out = T::from(4);
            }
        }
    }
}

/// The other module.
pub mod second {
    use super::*;

    /// The second kernel with this name.
    #[kernel(types(T = u32, u64))]
    pub fn twin<T: KernelType + From<u32>>(mut out: DisjointMut<T>) {
        for i in thread::grid_stride(out.len()) {
            if let Some(out) = out.get_mut(i) {
                *out = T::from(5);
            }
        }
    }
}

fn write(out: &mut DisjointMut<u32>, number: u32) {
    for i in thread::grid_stride(out.len()) {
        if let Some(out) = out.get_mut(i) {
            *out = number;
        }
    }
}
