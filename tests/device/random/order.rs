//! Each element compared with the host model of the order, at every alignment.

use half::{bf16, f16};
use warpsmith::gpu_std::random::{Draw, Philox, uniform, uniform_below_one};
use warpsmith::gpu_std::scalar::Float;
use warpsmith::kernels::random as kernels;
use warpsmith::launch::Dim;
use warpsmith::ops::{self, Config, GridRule};
use warpsmith::prelude::*;
use warpsmith::{IMAGE, random};

use super::model::{LAYOUTS, generator, increment, lengths, place};
use crate::common::{Padded, TestNumber, for_types, stream};

const SEED: u64 = 0x0123_4567_89AB_CDEF;

/// Checks the uniform numbers of a type in all layouts, lengths and alignments, and their advance of the offset.
fn uniform_of<T: TestNumber + Float<Accumulator: Draw>>() {
    let stream = stream();
    let lanes = <T::Accumulator as Draw>::LANES;
    for layout in LAYOUTS {
        for (case, n) in lengths(layout, lanes).into_iter().enumerate() {
            let (start, begin) = ([0, 1, 2, 3, 5][case % 5], 12 * case as u64);
            let generator = generator(layout, SEED, begin);
            let mut out = Padded::<T>::poisoned(&stream, start, n);
            random::uniform(&stream, &generator, out.get_mut()).unwrap();
            for (i, found) in out.read().into_iter().enumerate() {
                let (words, lane) = place(i, n, lanes, layout, SEED, begin);
                let unit = T::from_acc(<T::Accumulator as Draw>::uniform(words)[lane]);
                let expected = if unit == T::ONE { T::ZERO } else { unit };
                assert_eq!(found.bits(), expected.bits(), "{layout:?}, element {i} of {n}, from {start}");
                assert!(found >= T::ZERO && found < T::ONE, "{found:?}");
            }
            assert_eq!(generator.offset().unwrap(), begin + increment(n, lanes, layout), "{layout:?} {n}");
        }
    }
}

#[test]
fn uniform_numbers_have_pytorchs_order() {
    for_types!(uniform_of: f32, f64, f16, bf16);
}

#[test]
fn every_configuration_gives_the_same_numbers() {
    let stream = stream();
    let (layout, n) = ((2, 512), 9_001);
    for start in [0, 3] {
        let mut expected = None;
        for block in [1, 32, 96, 256, 512] {
            for grid in [GridRule::Auto, GridRule::Waves(1), GridRule::Blocks(1), GridRule::Blocks(7)] {
                let config = Config { block, grid, items: 4, vector: 16 };
                let mut out = Padded::<f32>::poisoned(&stream, start, n);
                ops::with_config(config, || {
                    random::uniform(&stream, &generator(layout, SEED, 0), out.get_mut())
                })
                .unwrap();
                let found: Vec<u32> = out.read().into_iter().map(f32::to_bits).collect();
                assert!(*expected.get_or_insert_with(|| found.clone()) == found, "{config}, from {start}");
            }
        }
    }
}

#[test]
fn the_kernel_is_independent_of_the_launch() {
    let stream = stream();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<kernels::uniform<f32, 4, 16>>().unwrap();
    let base = DeviceBuffer::<u64>::uninit(&stream, 0).unwrap();
    for (threads, n) in [(0, 5), (1, 9), (6, 100), (8, 100), (8, 64), (300, 4001)] {
        let expected: Vec<f32> = (0..n)
            .map(|i| {
                let (step, lane, thread) = (i / (4 * threads), i % (4 * threads) / threads, i % threads);
                uniform_below_one(Philox::new(SEED, thread as u64, 8 + 4 * step as u64).next4()[lane])
            })
            .take(if threads == 0 { 0 } else { n })
            .collect();
        let launches: [(Dim, Dim); 5] = [
            (1.into(), 1.into()),
            ((2, 3).into(), 32.into()),
            ((1, 2, 3).into(), (8, 2, 2).into()),
            ((5, 70).into(), (3, 1, 4).into()),
            ((3, 1, 2).into(), (64, 3).into()),
        ];
        for (grid, block) in launches {
            let what = format!("{n} by {threads} in {grid:?} blocks of {block:?}");
            let mut out = Padded::<f32>::poisoned(&stream, 0, n);
            let arguments = (SEED, 8, &base, threads as u32, 0.0, 1.0, out.get_mut());
            kernel.launch(&stream, Launch::grid_block(grid, block), arguments).unwrap();
            let found = out.read();
            if threads == 0 {
                // Nothing was written.
                assert!(found.iter().all(|x| x.to_bits() == f32::poison().to_bits()), "{what}");
            } else {
                assert!(found == expected, "{what}");
            }
        }
    }
}

#[test]
fn ranges_are_kept_and_scaled_with_one_rounding() {
    let stream = stream();
    let (layout, n) = ((1, 256), 5_003);
    let ranges = [(-1.0f32, 1.0), (3.0, 3.0000002), (0.0, f32::MAX), (1e-40, 2e-40), (-7.5, 1e9)];
    for (low, high) in ranges {
        let mut out = Padded::<f32>::poisoned(&stream, 1, n);
        random::uniform_in(&stream, &generator(layout, SEED, 8), low..high, out.get_mut()).unwrap();
        for (i, found) in out.read().into_iter().enumerate() {
            let (words, lane) = place(i, n, 4, layout, SEED, 8);
            let value = uniform(words[lane]).mul_add(high - low, low);
            let expected = if value == high { low } else { value };
            assert_eq!(found.to_bits(), expected.to_bits(), "element {i} of {low:e}..{high:e}");
            assert!((low..high).contains(&found));
        }
    }
    let mut out = Padded::<bf16>::poisoned(&stream, 0, n);
    let [low, high] = [-2.0, 3.0].map(bf16::from_f32);
    random::uniform_in(&stream, &generator(layout, SEED, 8), low..high, out.get_mut()).unwrap();
    assert!(out.read().into_iter().all(|value| low <= value && value < high));
}

/// Compares normal numbers with exact functions.
fn normal_of<T: TestNumber + Float<Accumulator: Draw + Into<f64>>>(tolerance: impl Fn(f64) -> f64) {
    let stream = stream();
    let lanes = <T::Accumulator as Draw>::LANES;
    let (mean, std) = (0.75, 1.5);
    for layout in LAYOUTS {
        for (case, n) in lengths(layout, lanes).into_iter().enumerate() {
            let start = [0, 1, 2, 3, 5][case % 5];
            let mut out = Padded::<T>::poisoned(&stream, start, n);
            random::normal(&stream, &generator(layout, SEED, 4), mean, std, out.get_mut()).unwrap();
            for (i, found) in out.read().into_iter().enumerate() {
                let (words, lane) = place(i, n, lanes, layout, SEED, 4);
                // Host implementation, whose functions are accurate.
                let normals = <T::Accumulator as Draw>::normal(words).map(Into::<f64>::into);
                let radius = normals[lane].hypot(normals[lane ^ 1]);
                let expected = mean + std * normals[lane];
                let error = (found.to_f64() - expected).abs();
                let allowed = std * tolerance(radius) + T::EPSILON * expected.abs();
                assert!(error <= allowed, "{layout:?}, {i} of {n}: {found:?} instead of {expected}");
            }
        }
    }
}

#[test]
fn normal_numbers_have_pytorchs_order() {
    let f32_tolerance = |radius: f64| 2.1e-6 * radius + (2.1e-7 / radius).min(6e-4) + 1e-7;
    normal_of::<f32>(f32_tolerance);
    normal_of::<f64>(|_| 1e-14);
    normal_of::<f16>(f32_tolerance);
    normal_of::<bf16>(f32_tolerance);
}

#[test]
fn integers_are_pytorchs() {
    macro_rules! of {
        ($($t:ty: $low:expr, $high:expr;)*) => { $({
            let stream = stream();
            let (low, high): ($t, $t) = ($low, $high);
            let range = (i128::from(high) - i128::from(low)) as u128;
            let lanes = if range < 1 << 28 { 4 } else { 2 };
            for layout in LAYOUTS {
                for (case, n) in lengths(layout, lanes).into_iter().enumerate() {
                    let generator = generator(layout, SEED, 16);
                    let mut out = Padded::<$t>::poisoned(&stream, case % 4, n);
                    random::integers(&stream, &generator, low..high, out.get_mut()).unwrap();
                    for (i, found) in out.read().into_iter().enumerate() {
                        let (words, lane) = place(i, n, lanes, layout, SEED, 16);
                        let word = match lanes {
                            4 => u128::from(words[lane]),
                            _ => u128::from(words[2 * lane]) << 32 | u128::from(words[2 * lane + 1]),
                        };
                        let expected = i128::from(low) + (word % range) as i128;
                        assert_eq!(i128::from(found), expected, "{low}..{high}, element {i} of {n}");
                    }
                    assert_eq!(generator.offset().unwrap(), 16 + increment(n, lanes, layout));
                }
            }
        })* };
    }
    of! {
        u32: 0, 6;
        i32: -5, (1 << 28) - 6;
        i32: i32::MIN, i32::MAX;
        u32: 7, u32::MAX;
        i64: -1, 0;
        i64: i64::MIN, i64::MAX;
        u64: 0, u64::MAX;
        u64: 1 << 40, (1 << 40) + 10;
    }
}

#[test]
fn bernoulli_numbers_are_comparisons_with_uniform_ones() {
    let stream = stream();
    for layout in LAYOUTS {
        for (n, p) in lengths(layout, 4).into_iter().zip([0.5, 0.1, 0.9, 0.0, 1.0, 1e-3].into_iter().cycle())
        {
            let generator = generator(layout, SEED, 0);
            let mut out = Padded::<f32>::poisoned(&stream, n % 4, n);
            random::bernoulli(&stream, &generator, p, out.get_mut()).unwrap();
            generator.set_offset(0).unwrap();
            let flags: Vec<u8> =
                super::model::filled(&stream, n, |out| random::bernoulli(&stream, &generator, p, out));
            for (i, found) in out.read().into_iter().enumerate() {
                let (words, lane) = place(i, n, 4, layout, SEED, 0);
                let expected = uniform(words[lane]) < p as f32 || p == 1.0;
                assert_eq!((found, flags[i]), (f32::from(u8::from(expected)), u8::from(expected)), "{i} {p}");
            }
        }
    }
}
