//! A crate that forbids `unsafe` can use every macro.
#![forbid(unsafe_code)]

use core::mem::MaybeUninit;

use gpu_std::prelude::*;
use gpu_std::{Checked, address_space, printf};

use crate::common::{Args, launch};

#[derive(Debug, Clone, Copy, PartialEq, KernelValue)]
#[repr(u8)]
enum Mode {
    Add,
    Multiply,
}

#[derive(Clone, Copy, KernelValue)]
#[repr(C)]
struct Settings {
    mode: Mode,
    factor: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
struct Sample {
    value: f32,
    mode: Checked<Mode>,
    _padding: [u8; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
struct Pair<T>(T, T);

#[address_space(shared)]
static _TILE: MaybeUninit<[f32; 32]> = MaybeUninit::uninit();

#[elementwise]
fn twice(x: f32) -> f32 {
    2.0 * x
}

#[reduction(identity = f32::MIN)]
fn largest(a: f32, b: f32) -> f32 {
    a.max(b)
}

#[scan(identity = 1)]
fn product(a: u64, b: u64) -> u64 {
    a * b % 1_000_003
}

#[kernel(bytes = samples.bytes(), launch_bounds(64))]
fn apply(
    settings: Settings,
    samples: &[Sample],
    mut shared: Shared<[f32; 64]>,
    mut out: DisjointMut<Pair<f32>>,
) {
    let shared = shared.fill(|[i]| i as f32);
    let index = thread::unique_index();
    if let Some(out) = out.get_mut(index) {
        let Sample { value, mode, .. } = samples[index.get()];
        let result = match settings.mode {
            Mode::Add => value + settings.factor,
            Mode::Multiply => value * settings.factor,
        };
        *out = Pair(twice(result), shared[index.get() % 64]);
        if mode.get().is_none() {
            printf!("thread %u has no mode\n", thread::index_1d());
        }
    }
}

#[test]
fn every_macro_works_where_unsafe_is_forbidden() {
    let samples = [1.0, 2.0, 3.0].map(|value| Sample { value, mode: Mode::Add.into(), _padding: [0; 3] });
    let mut out = [Pair(0.0_f32, 0.0); 3];
    let settings = Settings { mode: Mode::Multiply, factor: 5.0 };
    launch::<apply>([1; 3], [64, 1, 1], &Args::new().value(settings).slice(&samples).view(&mut out));
    assert_eq!(out, [Pair(10.0, 0.0), Pair(20.0, 1.0), Pair(30.0, 2.0)]);
    assert_eq!((largest(1.0, 2.0), product(2, 600_000)), (2.0, 199_997));
}
