//! Elementwise operations at the ends of the range: correct rounding where it is guaranteed, interpolation that ends
//! exactly at its ends, and gates in their tails.

use std::cmp::Ordering;

use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;

use super::fixed::Fixed;
use super::{assert_near, exponents, largest, two_to};
use crate::common::{Random, TestNumber, for_types, stream};

/// Numbers of all magnitudes, zeros, the ends of the range, infinities and NaN.
pub fn specials<T: TestNumber>(random: &mut Random, n: usize) -> Vec<T> {
    let [smallest, normal, most] = exponents::<T>();
    let fixed = [
        0.0,
        1.0,
        two_to(smallest),
        two_to(normal),
        two_to(normal) - two_to(smallest),
        two_to(most),
        largest::<T>(),
        1.0 + T::EPSILON,
        1.0 - T::EPSILON / 2.0,
        f64::INFINITY,
        f64::NAN,
    ];
    let mut values: Vec<T> = fixed.into_iter().flat_map(|x| [x, -x]).map(T::nearest).collect();
    while values.len() < n {
        let power = smallest + random.below((most - smallest) as usize) as i32;
        values.push(T::nearest(random.unit() * two_to(power + 1)));
    }
    values
}

/// The number of `T` nearest to a sum, with ties to even.
fn nearest_sum<T: TestNumber>(a: f64, b: f64) -> T {
    let about = T::nearest(a + b);
    if !(a + b).is_finite() || about.bits() & !(1 << (8 * size_of::<T>() - 1)) == 0 && a + b == 0.0 {
        return about;
    }
    let exact = Fixed::of(a).plus(&Fixed::of(b));
    // The number that would follow the largest one, if the range had it.
    let beyond = two_to(exponents::<T>()[2] + 1);
    let place = |x: T| if x.to_f64().is_infinite() { beyond.copysign(x.to_f64()) } else { x.to_f64() };
    let sign = 1u64 << (8 * size_of::<T>() - 1);
    let of = |bits: u64| bytemuck::pod_read_unaligned::<T>(&bits.to_le_bytes()[..size_of::<T>()]);
    let magnitude = about.bits() & !sign;
    let candidates = (magnitude.saturating_sub(1)..=magnitude + 1).map(|bits| of(about.bits() & sign | bits));
    let distance = |x: &T| {
        let difference = Fixed::of(place(*x)).minus(&exact);
        if difference.sign() == Ordering::Less { Fixed::of(0.0).minus(&difference) } else { difference }
    };
    candidates
        .filter(|x| !x.to_f64().is_nan())
        .min_by(|a, b| distance(a).minus(&distance(b)).sign().then((a.bits() & 1).cmp(&(b.bits() & 1))))
        .unwrap()
}

fn fused<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 40_000;
    let mut columns: Vec<Vec<T>> = (0..3).map(|_| specials(&mut random, n)).collect();
    for column in &mut columns {
        for i in (1..n).rev() {
            column.swap(i, random.below(i + 1));
        }
    }
    // Sums that are almost in the middle of two numbers.
    let [first, second, third] = &mut columns[..] else { panic!("three columns") };
    for ((first, second), third) in first.iter_mut().zip(second).zip(third).take(n / 2) {
        let near_one = |random: &mut Random| {
            T::nearest((1.0 + (random.below(40) as f64 - 20.0) * T::EPSILON / 2.0) * 0.5)
        };
        let power = -(random.below(14) as i32);
        *first = T::nearest(near_one(&mut random).to_f64() * two_to(power));
        *second = near_one(&mut random);
        *third = near_one(&mut random);
    }
    let [x, y, z] = [0, 1, 2].map(|i| DeviceBuffer::from_host(&stream, &columns[i]).unwrap());
    let mut out = DeviceBuffer::<T>::uninit(&stream, n).unwrap();
    let same = |found: T, [x, y, z]: [T; 3], what: &str| {
        let expected = nearest_sum::<T>(x.to_f64() * y.to_f64(), z.to_f64());
        let is_nan = (x.to_f64() * y.to_f64() + z.to_f64()).is_nan();
        assert!(
            if is_nan { found.to_f64().is_nan() } else { found.to_f64() == expected.to_f64() },
            "{what} {}: {x:?} · {y:?} + {z:?} is {found:?}, not {expected:?}, seed {}",
            T::NAME,
            random.seed
        );
    };
    ops::fma(&stream, &x, &y, &z, &mut out).unwrap();
    for (i, found) in out.to_host().unwrap().into_iter().enumerate() {
        same(found, [columns[0][i], columns[1][i], columns[2][i]], "fma");
    }
    for factor in
        [columns[0][0], columns[0][1], T::nearest(0.1), T::nearest(-largest::<T>()), columns[0][n - 1]]
    {
        let mut y = DeviceBuffer::from_host(&stream, &columns[2]).unwrap();
        ops::axpy(&stream, &x, factor, &mut y).unwrap();
        for (i, found) in y.to_host().unwrap().into_iter().enumerate() {
            same(found, [factor, columns[0][i], columns[2][i]], "axpy");
        }
    }
}

#[test]
fn narrow_products_and_sums_are_rounded_once() {
    for_types!(fused: f16, bf16);
    // The tie of a public bug report.
    let stream = stream();
    let [x, y, z] = [0x3bfe, 0x1001, 0x3c01]
        .map(|bits| DeviceBuffer::from_host(&stream, &[f16::from_bits(bits)]).unwrap());
    let mut out = DeviceBuffer::<f16>::uninit(&stream, 1).unwrap();
    ops::fma(&stream, &x, &y, &z, &mut out).unwrap();
    assert_eq!(out.to_host().unwrap()[0].to_bits(), 0x3c01);
}

fn interpolated<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 4000;
    let (x, y): (Vec<T>, Vec<T>) =
        (specials(&mut random, n), specials(&mut random, n).into_iter().rev().collect());
    let run = |weight: T, x: &[T], y: &[T]| {
        let [x, y] = [x, y].map(|values| DeviceBuffer::from_host(&stream, values).unwrap());
        let mut out = DeviceBuffer::<T>::uninit(&stream, x.len()).unwrap();
        ops::lerp(&stream, &x, &y, weight, &mut out).unwrap();
        out.to_host().unwrap()
    };
    let same = |a: &[T], b: &[T]| {
        a.iter().zip(b).all(|(a, b)| a.bits() == b.bits() || a.to_f64().is_nan() && b.to_f64().is_nan())
    };
    assert!(same(&run(T::nearest(0.0), &x, &y), &x), "{}", T::NAME);
    assert!(same(&run(T::nearest(1.0), &x, &y), &y), "{}", T::NAME);
    let half = T::nearest(0.5);
    assert!(same(&run(half, &x, &x), &x), "{}", T::NAME);
    for weight in [0.5, 0.25, 0.3, 0.75, 0.999, 1e-6, 2.0, -1.0].map(T::nearest) {
        for (i, found) in run(weight, &x, &y).into_iter().enumerate() {
            // Scaled to half of the range, where the difference is representable too.
            let (a, b, w) = (x[i].to_f64() / 2.0, y[i].to_f64() / 2.0, weight.to_f64());
            let expected = 2.0 * ((1.0 - w) * a + w * b);
            let within = 8.0 * (a.abs() * (1.0 - w).abs().max(1.0) + b.abs() * w.abs().max(1.0));
            let what = ("lerp", x[i], y[i], weight, "seed", random.seed);
            if expected.is_finite() && expected.abs() < largest::<T>() * (1.0 - T::EPSILON) {
                let error = (found.to_f64() - expected).abs();
                assert!(
                    error <= T::EPSILON * within + 4.0 * two_to(exponents::<T>()[0]),
                    "{what:?}: {found:?}"
                );
            } else if a.is_finite() && b.is_finite() {
                assert!(
                    found.to_f64().abs() >= largest::<T>() * (1.0 - 4.0 * T::EPSILON),
                    "{what:?}: {found:?}"
                );
            }
        }
    }
    let most = largest::<T>();
    let at =
        |weight: f64, x: f64, y: f64| run(T::nearest(weight), &[T::nearest(x)], &[T::nearest(y)])[0].to_f64();
    assert_eq!(at(0.5, -most, most), 0.0);
    assert_eq!(at(0.5, f64::INFINITY, f64::INFINITY), f64::INFINITY);
    assert_eq!(at(0.5, f64::INFINITY, 1.0), f64::INFINITY);
    assert_eq!(at(0.5, 1.0, f64::NEG_INFINITY), f64::NEG_INFINITY);
    assert!(at(0.5, f64::NEG_INFINITY, f64::INFINITY).is_nan());
    assert!(at(0.5, f64::NAN, 1.0).is_nan());
    assert_eq!(at(1.0, 1e8, 1.0), 1.0);
    assert_eq!(at(1.0, -most, most), most);
}

#[test]
fn interpolation_ends_at_its_ends() {
    for_types!(interpolated: f32, f64, f16, bf16);
}

type Function<T> = fn(&Stream, DeviceSlice<'_, T>, DeviceSliceMut<'_, T>) -> Result<(), Error>;

fn gates<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let mut x: Vec<T> =
        (-12_000..1200).map(|i| T::nearest(f64::from(i) / 10.0 + random.unit() / 20.0)).collect();
    x.extend(specials::<T>(&mut random, 300));
    let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
    let run = |function: Function<T>| {
        let mut out = DeviceBuffer::<T>::uninit(&stream, x.len()).unwrap();
        function(&stream, on_device.as_slice(), out.as_mut_slice()).unwrap();
        out.to_host().unwrap()
    };
    // x · σ(z); the reference also computes the exponential as a square.
    let gate = |x: f64, z: f64| match (z < 0.0, (z / 2.0).exp()) {
        (true, 0.0) => -0.0,
        (true, root) => x * root / (1.0 + root * root) * root,
        _ => x / (1.0 + (-z).exp()),
    };
    let is_wide = size_of::<T>() == 8;
    // Exponentials with an error of two units, and three more roundings.
    let bound = 8.0 * if is_wide { f64::EPSILON } else { f32::EPSILON as f64 } + T::EPSILON;
    for (i, found) in run(|s, x, out| ops::silu(s, x, out)).into_iter().enumerate() {
        let x = x[i].to_f64();
        assert_near::<T>(found.to_f64(), T::nearest(gate(x, x)).to_f64(), bound, 2.0, &("silu", x));
    }
    for (i, found) in run(|s, x, out| ops::sigmoid(s, x, out)).into_iter().enumerate() {
        let x = x[i].to_f64();
        let expected = if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
        assert_near::<T>(found.to_f64(), T::nearest(expected).to_f64(), bound, 2.0, &("sigmoid", x));
    }
    for (i, found) in run(|s, x, out| ops::gelu_tanh(s, x, out)).into_iter().enumerate() {
        let x = x[i].to_f64();
        let z = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x);
        // The rounding of z moves the result by the same number of units.
        let bound =
            bound + 8.0 * z.abs().min(1500.0) * if is_wide { f64::EPSILON } else { f32::EPSILON as f64 };
        assert_near::<T>(found.to_f64(), T::nearest(gate(x, z)).to_f64(), bound, 2.0, &("gelu_tanh", x));
    }
    for (name, found) in [
        ("silu", run(|s, x, out| ops::silu(s, x, out))),
        ("gelu", run(|s, x, out| ops::gelu(s, x, out))),
        ("gelu_tanh", run(|s, x, out| ops::gelu_tanh(s, x, out))),
        ("relu", run(|s, x, out| ops::relu(s, x, out))),
    ] {
        for (x, found) in
            x.iter().zip(found).filter(|(x, _)| !x.to_f64().is_finite() || x.to_f64().abs() > 1e4)
        {
            let expected = if x.to_f64() < 0.0 { 0.0 } else { x.to_f64() };
            assert_near::<T>(found.to_f64(), expected, 0.0, 0.0, &(name, x));
        }
    }
}

#[test]
fn gates_are_close_in_their_tails() {
    for_types!(gates: f32, f64, f16, bf16);
}

#[test]
fn gated_numbers_are_in_range_where_the_product_is() {
    let stream = stream();
    let (gate, up) =
        ([-95.0f32, -110.0, -150.0, f32::NEG_INFINITY, 3.0, -0.0], [1e30f32, 3e38, 3e38, 2.0, -1e30, 1.0]);
    let (x, y) =
        (DeviceBuffer::from_host(&stream, &gate).unwrap(), DeviceBuffer::from_host(&stream, &up).unwrap());
    let mut out = DeviceBuffer::<f32>::uninit(&stream, 6).unwrap();
    ops::swiglu(&stream, x.as_2d(1, 6).unwrap(), y.as_2d(1, 6).unwrap(), out.as_2d_mut(1, 6).unwrap())
        .unwrap();
    for (i, found) in out.to_host().unwrap().into_iter().enumerate() {
        let (gate, up) = (f64::from(gate[i]), f64::from(up[i]));
        let expected = if gate.is_infinite() { -0.0 } else { gate / (1.0 + (-gate).exp()) * up };
        assert_near::<f32>(f64::from(found), expected, 1e-6, 1.0, &(gate, up));
    }
}

fn basic<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 20_000;
    let (x, mut y): (Vec<T>, Vec<T>) = (specials(&mut random, n), specials(&mut random, n));
    for i in (1..n).rev() {
        y.swap(i, random.below(i + 1));
    }
    let [a, b] = [&x, &y].map(|values| DeviceBuffer::from_host(&stream, values).unwrap());
    let mut out = DeviceBuffer::<T>::uninit(&stream, n).unwrap();
    let mut check = |name: &str, run: &dyn Fn(&mut DeviceBuffer<T>), exact: &dyn Fn(f64, f64) -> f64| {
        run(&mut out);
        for (i, found) in out.to_host().unwrap().iter().enumerate() {
            let expected = T::nearest(exact(x[i].to_f64(), y[i].to_f64()));
            let same =
                found.bits() == expected.bits() || found.to_f64().is_nan() && expected.to_f64().is_nan();
            assert!(
                same,
                "{name} {}: {:?}, {:?}: {found:?} for {expected:?}, seed {}",
                T::NAME,
                x[i],
                y[i],
                random.seed
            );
        }
    };
    // For f64, the reference is the operation itself. For other types it is the rounded f64 result, since double
    // rounding is harmless here.
    check("add", &|o| ops::add(&stream, &a, &b, o).unwrap(), &|x, y| x + y);
    check("sub", &|o| ops::sub(&stream, &a, &b, o).unwrap(), &|x, y| x - y);
    check("mul", &|o| ops::mul(&stream, &a, &b, o).unwrap(), &|x, y| x * y);
    check("div", &|o| ops::div(&stream, &a, &b, o).unwrap(), &|x, y| x / y);
    check("sqrt", &|o| ops::sqrt(&stream, &a, o).unwrap(), &|x, _| x.sqrt());
    check("reciprocal", &|o| ops::reciprocal(&stream, &a, o).unwrap(), &|x, _| 1.0 / x);
    check("neg", &|o| ops::neg(&stream, &a, o).unwrap(), &|x, _| -x);
    check("abs", &|o| ops::abs(&stream, &a, o).unwrap(), &|x, _| x.abs());
    check("floor", &|o| ops::floor(&stream, &a, o).unwrap(), &|x, _| x.floor());
    check("ceil", &|o| ops::ceil(&stream, &a, o).unwrap(), &|x, _| x.ceil());
    check("round", &|o| ops::round(&stream, &a, o).unwrap(), &|x, _| x.round_ties_even());
    check("trunc", &|o| ops::trunc(&stream, &a, o).unwrap(), &|x, _| x.trunc());
    let nan_or = |x: f64, y: f64, of: f64| if x.is_nan() || y.is_nan() { f64::NAN } else { of };
    check("minimum", &|o| ops::minimum(&stream, &a, &b, o).unwrap(), &|x, y| {
        nan_or(x, y, if x == y { if x.is_sign_negative() { x } else { y } } else { x.min(y) })
    });
    check("maximum", &|o| ops::maximum(&stream, &a, &b, o).unwrap(), &|x, y| {
        nan_or(x, y, if x == y { if x.is_sign_negative() { y } else { x } } else { x.max(y) })
    });
    let (low, high) = (T::nearest(-1.0), T::nearest(f64::INFINITY));
    check("clamp", &|o| ops::clamp(&stream, &a, low, high, o).unwrap(), &|x, _| {
        if x < -1.0 { -1.0 } else { x }
    });
    // A NaN bound does not clamp.
    let nan = T::nearest(f64::NAN);
    check("clamp by NaN", &|o| ops::clamp(&stream, &a, nan, nan, o).unwrap(), &|x, _| x);
    check("clamp by NaN", &|o| ops::clamp(&stream, &a, low, nan, o).unwrap(), &|x, _| {
        if x < -1.0 { -1.0 } else { x }
    });
}

#[test]
fn basic_operations_are_rounded_once() {
    for_types!(basic: f32, f64, f16, bf16);
}
