//! Every elementwise operation and type compared with a float64 reference: odd lengths, unaligned arrays, poisoned
//! outputs, NaN and infinities.

use std::fmt::Debug;

use crate::common::{LENGTHS, OFFSETS, Padded, Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Config, Float, GridRule};
use warpsmith::prelude::*;

type Outcome = Result<(), warpsmith::Error>;

/// Runs `operation` for all lengths, with inputs and output at various alignments. `judge` compares each element with
/// the expected result of its inputs.
fn check<T: TestNumber, U: TestNumber, const INPUTS: usize>(
    name: &str,
    scale: f64,
    judge: impl Fn([T; INPUTS], U, &dyn Debug),
    operation: impl Fn(&Stream, [DeviceSlice<'_, T>; INPUTS], DeviceSliceMut<'_, U>) -> Outcome,
) {
    let stream = stream();
    let mut random = Random::new();
    for n in LENGTHS {
        for (case, &offset) in OFFSETS.iter().enumerate() {
            // The inputs have the same alignment as the output only in every other case.
            let offsets: [usize; INPUTS] =
                std::array::from_fn(|i| if case % 2 == 0 { offset } else { OFFSETS[(case + i) % 4] });
            let mut values: [Vec<T>; INPUTS] = std::array::from_fn(|_| random.values(n, scale));
            for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0] {
                if n > 8 {
                    values[random.below(INPUTS)][random.below(n)] = T::nearest(special);
                }
            }
            let inputs: [Padded<T>; INPUTS] =
                std::array::from_fn(|i| Padded::new(&stream, offsets[i], &values[i]));
            let mut out = Padded::poisoned(&stream, offset, n);
            operation(&stream, inputs.each_ref().map(Padded::get), out.get_mut())
                .unwrap_or_else(|error| panic!("{name}, n = {n}: {error}"));
            for (i, found) in out.read().into_iter().enumerate() {
                let arguments = values.each_ref().map(|values| values[i]);
                let what = (name, n, offset, offsets, "element", i, "of", arguments, "seed", random.seed);
                judge(arguments, found, &what);
            }
        }
    }
}

/// Compares with a float64 reference, within `tolerance` units of the type's epsilon plus `absolute`.
fn close<T: TestNumber, U: TestNumber, const INPUTS: usize>(
    tolerance: f64,
    absolute: f64,
    reference: impl Fn([f64; INPUTS]) -> f64,
) -> impl Fn([T; INPUTS], U, &dyn Debug) {
    move |arguments, found, what| {
        assert_close(found, reference(arguments.map(T::to_f64)), tolerance, absolute, what);
    }
}

/// Compares all bits, except NaN payloads, which devices choose differently.
fn same<T: TestNumber, U: TestNumber, const INPUTS: usize>(
    reference: impl Fn([T; INPUTS]) -> U,
) -> impl Fn([T; INPUTS], U, &dyn Debug) {
    move |arguments, found, what| {
        let expected = reference(arguments);
        let both_nan = found.to_f64().is_nan() && expected.to_f64().is_nan();
        let equal = found.bits() == expected.bits() || both_nan;
        assert!(equal, "{what:?}: got {found:?}, expected {expected:?}");
    }
}

#[test]
fn copy_moves_every_bit() {
    fn of<T: TestNumber>() {
        let every_bit =
            |[x]: [T; 1], found: T, what: &dyn Debug| assert_eq!(found.bits(), x.bits(), "{what:?}");
        check::<T, T, 1>("copy", 1e3, every_bit, |stream, [x], out| ops::copy(stream, x, out));
    }
    for_types!(of: f32, f64, f16, bf16, i32, u64);
}

#[test]
fn fill_writes_every_element() {
    fn of<T: TestNumber>() {
        let value = T::random(&mut Random::new(), 1e3);
        check::<T, T, 1>("fill", 1.0, same(|_: [T; 1]| value), |stream, _, out| {
            ops::fill(stream, value, out)
        });
    }
    for_types!(of: f32, f64, f16, bf16, u32, i64);
}

fn axpy_of<T: TestNumber + Float>() {
    let a = T::random(&mut Random::new(), 4.0);
    let stream = stream();
    let mut random = Random::new();
    for n in LENGTHS {
        for (x_offset, y_offset) in [(0, 0), (1, 1), (3, 0), (0, 5)] {
            let (x, y): (Vec<T>, Vec<T>) = (random.values(n, 10.0), random.values(n, 10.0));
            let on_device = Padded::new(&stream, x_offset, &x);
            let mut out = Padded::new(&stream, y_offset, &y);
            ops::axpy(&stream, on_device.get(), a, out.get_mut()).unwrap();
            for (i, found) in out.read().into_iter().enumerate() {
                let expected = a.to_f64().mul_add(x[i].to_f64(), y[i].to_f64());
                let what = ("axpy", n, x_offset, y_offset, "element", i, "seed", random.seed);
                assert_close(found, expected, 1.0, 0.0, &what);
            }
        }
    }
}

#[test]
fn axpy_is_correct_for_every_type() {
    for_types!(axpy_of: f32, f64, f16, bf16);
}

#[test]
fn every_configuration_of_axpy_gives_the_same_bits() {
    let stream = stream();
    let mut random = Random::new();
    for n in [1, 33, 1025, 20_011] {
        let (x, y): (Vec<f32>, Vec<f32>) = (random.values(n, 10.0), random.values(n, 10.0));
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.0f32.mul_add(*x, *y)).collect();
        let x = DeviceBuffer::from_host(&stream, &x).unwrap();
        for variant in ops::variants("axpy", "f32") {
            for (block, grid) in [
                (32, GridRule::Auto),
                (96, GridRule::Waves(1)),
                (256, GridRule::Blocks(3)),
                (1, GridRule::Blocks(7)),
                (512, GridRule::Blocks(1)),
            ] {
                let config = Config { block, grid, items: variant.items, vector: variant.vector };
                let mut out = DeviceBuffer::from_host(&stream, &y).unwrap();
                ops::axpy_with(&stream, config, &x, 3.0, &mut out).unwrap();
                let found = out.to_host().unwrap();
                for i in 0..n {
                    let (found, expected) = (found[i].to_bits(), expected[i].to_bits());
                    assert_eq!(found, expected, "{config}, element {i} of {n}, seed {}", random.seed);
                }
            }
        }
    }
}

#[test]
fn add_and_mul_of_floats_round_once() {
    fn of<T: TestNumber>() {
        check::<T, T, 2>("add", 1e3, close(0.0, 0.0, |[x, y]| x + y), |s, [x, y], out| {
            ops::add(s, x, y, out)
        });
        check::<T, T, 2>("mul", 1e3, close(0.0, 0.0, |[x, y]| x * y), |s, [x, y], out| {
            ops::mul(s, x, y, out)
        });
    }
    for_types!(of: f32, f64, f16, bf16);
}

#[test]
fn add_and_mul_of_integers_wrap() {
    macro_rules! of {
        ($($t:ty),*) => { $(
            check::<$t, $t, 2>("add", 1.0, same(|[x, y]: [$t; 2]| x.wrapping_add(y)), |s, [x, y], out| {
                ops::add(s, x, y, out)
            });
            check::<$t, $t, 2>("mul", 1.0, same(|[x, y]: [$t; 2]| x.wrapping_mul(y)), |s, [x, y], out| {
                ops::mul(s, x, y, out)
            });
        )* };
    }
    of!(i32, u32, i64, u64);
}

#[test]
fn fma_rounds_once() {
    fn of<T: TestNumber + Float>() {
        check::<T, T, 3>("fma", 30.0, close(1.0, 0.0, |[x, y, z]| x.mul_add(y, z)), |s, [x, y, z], out| {
            ops::fma(s, x, y, z, out)
        });
    }
    for_types!(of: f32, f64, f16, bf16);
}

#[test]
fn activations_follow_their_definitions() {
    fn of<T: TestNumber + Float>() {
        let relu = |[x]: [f64; 1]| if x.is_nan() { x } else { x.max(0.0) };
        check::<T, T, 1>("relu", 10.0, close(0.0, 0.0, relu), |s, [x], out| ops::relu(s, x, out));
        let sigmoid = |[x]: [f64; 1]| 1.0 / (1.0 + (-x).exp());
        check::<T, T, 1>("sigmoid", 20.0, close(4.0, 0.0, sigmoid), |s, [x], out| ops::sigmoid(s, x, out));
        let exp = |[x]: [f64; 1]| x.exp();
        check::<T, T, 1>("exp", 10.0, close(2.0, 0.0, exp), |s, [x], out| ops::exp(s, x, out));
        let gelu = |[x]: [f64; 1]| match x {
            f64::NEG_INFINITY => -0.0,
            _ => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        };
        // At x = -8 the rounding of x / √2 alone moves the result by 64 units of its epsilon.
        let (tolerance, absolute) = if size_of::<T>() == 2 { (1.0, 6e-8) } else { (100.0, 0.0) };
        check::<T, T, 1>("gelu", 8.0, close(tolerance, absolute, gelu), |s, [x], out| ops::gelu(s, x, out));
    }
    for_types!(of: f32, f64, f16, bf16);
}

#[test]
fn cast_converts_as_rust_does() {
    macro_rules! of {
        ($($t:ty => $u:ty),*) => { $(
            check::<$t, $u, 1>(concat!(stringify!($t), " to ", stringify!($u)), 3e9, same(|[x]: [$t; 1]| x as $u), |s, [x], out| {
                ops::cast(s, x, out)
            });
        )* };
    }
    of!(f32 => f64, f32 => i32, f32 => u32, f32 => i64, f32 => u64, f64 => f32, f64 => i32, f64 => u64);
    of!(i32 => f32, i32 => u32, i32 => i64, u32 => f64, i64 => f32, i64 => i32, u64 => f32, u64 => f64);
    macro_rules! of_halves {
        ($($t:ty),*) => { $(
            let narrow = same(|[x]: [f32; 1]| <$t>::from_f32(x));
            check::<f32, $t, 1>("f32 to half", 1e5, narrow, |s, [x], out| ops::cast(s, x, out));
            let narrow = same(|[x]: [f64; 1]| <$t>::nearest(x));
            check::<f64, $t, 1>("f64 to half", 1e5, narrow, |s, [x], out| ops::cast(s, x, out));
            let widen = same(|[x]: [$t; 1]| x.to_f32());
            check::<$t, f32, 1>("half to f32", 1e5, widen, |s, [x], out| ops::cast(s, x, out));
            let truncate = same(|[x]: [$t; 1]| x.to_f64() as i32);
            check::<$t, i32, 1>("half to i32", 1e5, truncate, |s, [x], out| ops::cast(s, x, out));
        )* };
    }
    of_halves!(f16, bf16);
    check::<f16, bf16, 1>(
        "f16 to bf16",
        1e4,
        same(|[x]: [f16; 1]| bf16::from_f32(x.to_f32())),
        |s, [x], out| ops::cast(s, x, out),
    );
}
