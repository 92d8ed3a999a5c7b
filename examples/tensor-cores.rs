//! A tensor-core GEMM with a kernel of about a hundred lines, compared with `ops::matmul`.
//!
//! `cargo run --release --example tensor-cores -- [DEVICE] [SIDE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is
//! the best available device; a GPU must have compute capability 9.0. The kernel is `test_kernels::tensor_cores`, and
//! `docs/tensor-cores.md` explains it.

use std::error::Error;

use test_kernels::IMAGE;
use test_kernels::tensor_cores::{Pair, SHARED_BYTES, THREADS, TILE, multiply};
use warpsmith::ops::{self, Matrix};
use warpsmith::prelude::*;
use warpsmith::{Swizzle, TensorLayout, bf16};

const REPEATS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let capability = device.properties().capability;
    if !device.is_emulated() && capability != (9, 0) {
        return Err(format!("{} has compute capability {capability:?}, not (9, 0)", device.name()).into());
    }
    let side = match std::env::args().nth(2) {
        Some(side) => side.parse::<usize>()?.next_multiple_of(8).max(8),
        None if device.is_emulated() => 264,
        None => 4096,
    };
    let stream = device.default_stream();
    let number = |i: usize| bf16::from_f32((i * 7 % 11) as f32 / 4.0 - 1.25);
    let numbers: Vec<bf16> = (0..2 * side * side).map(number).collect();
    let a = DeviceBuffer::from_host(&stream, &numbers[..side * side])?;
    let b = DeviceBuffer::from_host(&stream, &numbers[side * side..])?;
    let mut c = DeviceBuffer::<Pair>::uninit(&stream, side * side / 2)?;

    // The TMA boxes have 64 elements of 128 rows of A, and of 256 rows of B.
    let layout = |rows| TensorLayout::packed([side, side], [TILE[2], rows], Swizzle::Bytes128);
    let maps = (a.as_slice().tensor_map(&layout(TILE[0]))?, b.as_slice().tensor_map(&layout(TILE[1]))?);
    let tiles = side.div_ceil(TILE[1] as usize) * side.div_ceil(TILE[0] as usize);
    let launch = Launch::grid_block(tiles as u32, THREADS).shared(SHARED_BYTES);
    let kernel = device.load(&IMAGE)?.kernel::<multiply>()?;
    let mut own = || {
        let arguments = (maps.0, maps.1, &mut c, [side as u32; 3]);
        // SAFETY: the maps have the boxes of the kernel, and `c` has one pair for every two elements of the result.
        unsafe { kernel.launch_unsafe(&stream, launch, arguments) }
    };
    let own_us = time(&stream, &mut own)?;

    let mut expected = DeviceBuffer::<bf16>::uninit(&stream, side * side)?;
    let columns = Matrix::from(b.as_2d(side, side)?).transposed();
    let mut library = || ops::matmul(&stream, a.as_2d(side, side)?, columns, expected.as_2d_mut(side, side)?);
    let library_us = time(&stream, &mut library)?;

    let found: Vec<bf16> = c.to_host()?.into_iter().flat_map(|pair| pair.0).collect();
    // Elements along a diagonal are compared with their definition.
    for i in 0..side {
        let (row, column) = (i, (i * 31 + 5) % side);
        let products = (0..side).map(|k| {
            f64::from(numbers[row * side + k]) * f64::from(numbers[side * side + column * side + k])
        });
        let (sum, value) = (products.sum::<f64>(), f64::from(found[row * side + column]));
        if (value - sum).abs() > sum.abs() / 256.0 + 1e-3 {
            return Err(format!("row {row}, column {column} is {value} instead of {sum}").into());
        }
    }
    if found != expected.to_host()? {
        return Err("the kernel and `ops::matmul` differ".into());
    }
    let tflops = |us: f64| 2.0 * (side as f64).powi(3) / us / 1e6;
    println!("{side} x {side} x {side} on {}: correct", device.name());
    println!("this kernel {own_us:.1} us, {:.1} TFLOP/s", tflops(own_us));
    println!("ops::matmul {library_us:.1} us, {:.1} TFLOP/s", tflops(library_us));
    Ok(())
}

/// Returns the microseconds per call, as the mean of several calls after two warm-up calls.
fn time(
    stream: &Stream,
    call: &mut impl FnMut() -> Result<(), warpsmith::Error>,
) -> Result<f64, warpsmith::Error> {
    let repeats = if stream.device().is_emulated() { 1 } else { REPEATS };
    call()?;
    call()?;
    let start = stream.record_timed_event()?;
    (0..repeats).try_for_each(|_| call())?;
    let end = stream.record_timed_event()?;
    stream.synchronize()?;
    Ok(end.elapsed_us(&start)? / repeats as f64)
}
