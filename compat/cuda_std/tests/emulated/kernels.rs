//! Tests of parameters, indices, shared and constant memory, atomics, and text.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use cuda_std::atomic::{AtomicF32, BlockAtomicF32, SystemAtomicF64, mid};
use cuda_std::cg::GridGroup;
use cuda_std::glam::{Mat2, Vec2};
use cuda_std::prelude::*;
use cuda_std::{address_space, gpu_only, shared_array};

use crate::common::{Args, launch_shared};

fn run<K: gpu_std::Kernel>(grid: [u32; 3], block: [u32; 3], args: &Args) {
    launch_shared::<K>(grid, block, 0, args).unwrap();
}

/// Type that is only `Copy`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Circle(f32),
    Square { side: f32 },
}

#[kernel(grid_dim = 1d)]
pub unsafe fn areas(
    scale: f32,
    shapes: &[Shape],
    unit: &Shape,
    turn: Mat2,
    areas: *mut f32,
    turned: *mut Vec2,
) {
    let i = thread::index_1d() as usize;
    if i < shapes.len() {
        let area = |shape: &Shape| match shape {
            Shape::Circle(radius) => 3.0 * radius * radius,
            Shape::Square { side } => side * side,
        };
        unsafe {
            *areas.add(i) = scale * area(&shapes[i]) / area(unit);
            *turned.add(i) = turn * Vec2::new(i as f32, 1.0);
        }
    }
}

#[test]
fn any_copy_types_are_parameters() {
    let shapes = [Shape::Circle(2.0), Shape::Square { side: 3.0 }, Shape::Circle(1.0)];
    let unit = Shape::Square { side: 2.0 };
    let (mut found, mut turned) = ([0.0f32; 3], [Vec2::ZERO; 3]);
    let turn = Mat2::from_cols_array(&[0.0, 1.0, -1.0, 0.0]);
    let args = Args::new()
        .value(10.0f32)
        .slice(&shapes)
        .value(&raw const unit)
        .value(turn)
        .value(found.as_mut_ptr())
        .value(turned.as_mut_ptr());
    run::<areas_kernel>([2, 1, 1], [2, 1, 1], &args);
    assert_eq!(found, [30.0, 22.5, 7.5]);
    assert_eq!(turned[2], Vec2::new(-1.0, 2.0));
}

#[kernel]
pub unsafe fn indices(out: *mut [u32; 4]) {
    let (i2, i3, dims) = (thread::index_2d(), thread::index_3d(), thread::block_dim() * thread::grid_dim());
    let mut grid = GridGroup::this_grid();
    assert_eq!(u64::from(thread::index()), grid.thread_rank());
    assert_eq!(dims.element_product() as u64, grid.size());
    assert_eq!(i2, i3.truncate());
    let first = u32::from(thread::first()) + thread::warp_size();
    unsafe { *out.add(thread::index() as usize) = [i3.x, i3.y, i3.z, first] };
}

#[test]
fn indices_are_vectors() {
    let mut out = vec![[u32::MAX; 4]; 48];
    run::<indices_kernel>([2, 1, 3], [2, 4, 1], &Args::new().value(out.as_mut_ptr()));
    let mut sorted = out.clone();
    sorted.sort();
    let expected = |i: usize| [i / 12 % 4, i / 3 % 4, i % 3].map(|value| value as u32);
    for (i, found) in sorted.iter().enumerate() {
        assert_eq!(found[..3], expected(i), "{i}");
    }
    assert_eq!(out.iter().filter(|found| found[3] == 33).count(), 1);
    assert_eq!(out[0], [0, 0, 0, 33]);
}

#[address_space(constant)]
static WEIGHTS: [f32; 3] = [0.25, 0.5, 0.25];

#[address_space(global)]
static LAUNCHES: AtomicF32 = AtomicF32::new(0.0);

#[kernel]
pub unsafe fn smooth(x: &[f32], y: *mut f32) {
    #[address_space(shared)]
    static mut TILE: [f32; 64] = [7.0; 64];
    #[address_space(shared)]
    static LEFT: MaybeUninit<[f32; 4]> = MaybeUninit::uninit();

    let (i, t) = (thread::index_1d() as usize, thread::thread_idx_x() as usize);
    let doubled = shared_array![f32; 64];
    unsafe {
        TILE[t] = x[i];
        *doubled.add(t) = 2.0 * x[i];
        if t == 0 {
            LEFT.as_ptr().cast::<f32>().cast_mut().write(x[i]);
            LAUNCHES.fetch_add(1.0, Ordering::Relaxed);
        }
        thread::sync_threads();
        let left = if t == 0 { *LEFT.as_ptr().cast::<f32>() } else { TILE[t - 1] };
        let right = if t == 63 { TILE[63] } else { *doubled.add(t + 1) / 2.0 };
        *y.add(i) = WEIGHTS[0] * left + WEIGHTS[1] * TILE[t] + WEIGHTS[2] * right;
    }
}

#[test]
fn statics_lie_in_shared_and_constant_memory() {
    let x: Vec<f32> = (0..256).map(|i| (i * i % 17) as f32).collect();
    let mut y = vec![f32::NAN; 256];
    run::<smooth_kernel>([4, 1, 1], [64, 1, 1], &Args::new().slice(&x).value(y.as_mut_ptr()));
    for (i, found) in y.iter().enumerate() {
        let block = i / 64 * 64;
        let (left, right) = (x[i.max(block + 1) - 1], x[(i + 1).min(block + 63)]);
        assert_eq!(*found, 0.25 * left + 0.5 * x[i] + 0.25 * right, "{i}");
    }
    // Each block counts once for every thread order in which the launch ran.
    let launches = LAUNCHES.load(Ordering::Relaxed);
    assert!(launches > 0.0 && launches % 4.0 == 0.0, "{launches}");
}

#[kernel]
pub unsafe fn sums(device: &AtomicF32, system: &SystemAtomicF64, raw: *mut u32, float: *mut f32) {
    let block = shared_array![u32; 1].cast::<BlockAtomicF32>();
    unsafe {
        if thread::thread_idx_x() == 0 {
            block.write(BlockAtomicF32::new(0.0));
        }
        thread::sync_threads();
        (*block).fetch_add(1.0, Ordering::Relaxed);
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            device.fetch_add((*block).load(Ordering::Relaxed), Ordering::AcqRel);
            mid::device_thread_fence(Ordering::SeqCst);
        }
        system.fetch_sub(0.5, Ordering::Relaxed);
        mid::atomic_fetch_sub_u32_device(raw, Ordering::Relaxed, 1);
        mid::atomic_fetch_max_u32_system(raw.add(1), Ordering::Relaxed, thread::index());
        mid::atomic_fetch_add_f32_block(float, Ordering::Relaxed, 0.25);
    }
}

#[test]
fn atomics_add_up() {
    let (device, system) = (AtomicF32::new(1.0), SystemAtomicF64::new(100.0));
    let (mut raw, mut float) = ([1000u32, 0], 0.0f32);
    let args = Args::new()
        .value(&raw const device)
        .value(&raw const system)
        .value(raw.as_mut_ptr())
        .value(&raw mut float);
    let block_launch = |args: &Args| run::<sums_kernel>([3, 1, 1], [32, 1, 1], args);
    block_launch(&args);
    // The launch counts once for every thread order in which it ran.
    let launches = (device.load(Ordering::Relaxed) - 1.0) / 96.0;
    assert!(launches >= 1.0 && launches.fract() == 0.0, "{launches}");
    assert_eq!(f64::from(launches), (100.0 - system.into_inner()) / 48.0);
    assert_eq!(raw, [1000 - 96 * launches as u32, 95]);
    assert_eq!(float, 24.0 * launches);
}

#[gpu_only]
fn lane_register() -> u32 {
    unreachable!()
}

#[kernel]
pub unsafe fn calls_gpu_only(out: *mut u32) {
    unsafe { *out = lane_register() };
}

#[kernel]
pub unsafe fn compares(a: u32) {
    cuda_std::println!("a is {a:?}");
    assert_ne!(a, 7, "a must not be {}", 7);
}

#[test]
fn failures_stop_the_launch_with_their_text() {
    let mut out = 0u32;
    let args = Args::new().value(&raw mut out);
    let fault = launch_shared::<calls_gpu_only_kernel>([1; 3], [1; 3], 0, &args).unwrap_err();
    assert!(fault.message().contains("`lane_register` can be called only on a GPU"), "{}", fault.message());
    let fault = launch_shared::<compares_kernel>([1; 3], [1; 3], 0, &Args::new().value(7u32)).unwrap_err();
    assert!(fault.message().contains("a must not be 7"), "{}", fault.message());
}
