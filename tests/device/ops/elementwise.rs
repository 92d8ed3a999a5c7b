//! Every elementwise operation and type compared with a float64 reference: odd lengths, unaligned arrays, poisoned
//! outputs, NaN and infinities.

use crate::common::{LENGTHS, OFFSETS, Padded, Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Config, Float, GridRule};
use warpsmith::prelude::*;

type Outcome = Result<(), warpsmith::Error>;

/// Runs `operation` for all lengths, with inputs and output at various alignments. Compares with a float64 reference,
/// within `tolerance` units of the type's epsilon plus `absolute`.
fn check<T: TestNumber, const INPUTS: usize>(
    name: &str,
    scale: f64,
    (tolerance, absolute): (f64, f64),
    reference: impl Fn([f64; INPUTS]) -> f64,
    operation: impl Fn(&Stream, [DeviceSlice<'_, T>; INPUTS], DeviceSliceMut<'_, T>) -> Outcome,
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
                assert_close(found, reference(arguments.map(T::to_f64)), tolerance, absolute, &what);
            }
        }
    }
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
                ops::with_config(config, || ops::axpy(&stream, &x, 3.0, &mut out)).unwrap();
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
fn fma_rounds_once() {
    fn of<T: TestNumber + Float>() {
        let fma = |[x, y, z]: [f64; 3]| x.mul_add(y, z);
        check::<T, 3>("fma", 30.0, (1.0, 0.0), fma, |s, [x, y, z], out| ops::fma(s, x, y, z, out));
    }
    for_types!(of: f32, f64, f16, bf16);
}

#[test]
fn activations_follow_their_definitions() {
    fn of<T: TestNumber + Float>() {
        let relu = |[x]: [f64; 1]| if x.is_nan() { x } else { x.max(0.0) };
        check::<T, 1>("relu", 10.0, (0.0, 0.0), relu, |s, [x], out| ops::relu(s, x, out));
        let sigmoid = |[x]: [f64; 1]| 1.0 / (1.0 + (-x).exp());
        check::<T, 1>("sigmoid", 20.0, (4.0, 0.0), sigmoid, |s, [x], out| ops::sigmoid(s, x, out));
        let exp = |[x]: [f64; 1]| x.exp();
        check::<T, 1>("exp", 10.0, (2.0, 0.0), exp, |s, [x], out| ops::exp(s, x, out));
        let gelu = |[x]: [f64; 1]| match x {
            f64::NEG_INFINITY => -0.0,
            _ => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        };
        // At x = -8 the rounding of x / √2 alone moves the result by 64 units of its epsilon.
        let within = if size_of::<T>() == 2 { (1.0, 6e-8) } else { (100.0, 0.0) };
        check::<T, 1>("gelu", 8.0, within, gelu, |s, [x], out| ops::gelu(s, x, out));
    }
    for_types!(of: f32, f64, f16, bf16);
}
