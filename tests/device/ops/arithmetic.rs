//! Arithmetic, comparisons and selections compared with float64 or Rust's integers: every type, odd lengths, every
//! alignment, special values, and broadcast inputs.

use half::{bf16, f16};
use warpsmith::gpu_std::Checked;
use warpsmith::ops::{self, Float, Integer, Operand, Scalar};
use warpsmith::prelude::*;

use crate::common::{self, LENGTHS, Padded, Random, assert_close, for_types, stream};

/// A buffer whose values start `offset` elements after an aligned address.
fn at<T: DeviceCopy>(stream: &Stream, offset: usize, values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_host(stream, &[&vec![T::zeroed(); offset], values].concat()).unwrap()
}

/// Random bits, which give numbers of all magnitudes, together with the ends of the range.
fn numbers<T: Scalar>(random: &mut Random, n: usize) -> Vec<T> {
    let special = [T::ZERO, T::ONE, (-1_i64).cast(), T::MIN_IDENTITY, T::MAX_IDENTITY];
    let mut number = |_| match random.below(6) {
        0 => special[random.below(5)],
        1 | 2 => (random.below(200) as i64 - 100).cast::<T>(),
        _ => bytemuck::pod_read_unaligned(&random.bits().to_le_bytes()[..size_of::<T>()]),
    };
    (0..n).map(&mut number).collect()
}

/// The bytes of values; every NaN is mapped to the same bits.
fn bits<T: Scalar>(values: &[T]) -> Vec<u64> {
    let bits = |value: &T| {
        #[allow(clippy::eq_op, reason = "NaN is not equal to itself")]
        if value != value {
            return u64::MAX;
        }
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(value));
        u64::from_le_bytes(bytes)
    };
    values.iter().map(bits).collect()
}

type OneNumber<T> = fn(&Stream, DeviceSlice<'_, T>, DeviceSliceMut<'_, T>) -> Result<(), Error>;
type TwoNumbers<T> = fn(&Stream, Operand<'_, T>, Operand<'_, T>, DeviceSliceMut<'_, T>) -> Result<(), Error>;

/// Tests a unary operation that is exact in every type.
fn exact<T: Scalar>(name: &str, operation: OneNumber<T>, reference: impl Fn(T) -> T) {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        for (from, to) in [(0, 0), (1, 1), (3, 0), (0, 5), (7, 15)] {
            let x = numbers::<T>(&mut random, n);
            let on_device = at(&stream, from, &x);
            let mut out = at(&stream, to, &vec![T::ONE; n]);
            operation(&stream, on_device.slice(from..), out.slice_mut(to..)).unwrap();
            let expected: Vec<T> = x.iter().map(|x| reference(*x)).collect();
            let found = out.to_host().unwrap();
            assert_eq!(
                bits(&found[to..]),
                bits(&expected),
                "{name} of {} {n}, seed {}",
                T::NAME,
                random.seed
            );
            assert_eq!(bits(&found[..to]), bits(&vec![T::ZERO; to]), "{name} wrote before its output");
        }
    }
}

/// Tests a binary operation that is exact in every type, with all forms of inputs.
fn exact_2<T: Scalar>(name: &str, operation: TwoNumbers<T>, reference: impl Fn(T, T) -> T) {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        for (from, to) in [(0, 0), (1, 1), (3, 0), (0, 5)] {
            let (x, y) = (numbers::<T>(&mut random, n), numbers::<T>(&mut random, n));
            let (on_x, on_y) = (at(&stream, from, &x), at(&stream, 0, &y));
            let mut out = at(&stream, to, &vec![T::ONE; n]);
            operation(&stream, on_x.slice(from..).into(), (&on_y).into(), out.slice_mut(to..)).unwrap();
            let expected: Vec<T> = x.iter().zip(&y).map(|(x, y)| reference(*x, *y)).collect();
            let found = out.to_host().unwrap();
            assert_eq!(
                bits(&found[to..]),
                bits(&expected),
                "{name} of {} {n}, seed {}",
                T::NAME,
                random.seed
            );
            let y = numbers::<T>(&mut random, 1)[0];
            operation(&stream, on_x.slice(from..).into(), y.into(), out.slice_mut(to..)).unwrap();
            let expected: Vec<T> = x.iter().map(|x| reference(*x, y)).collect();
            assert_eq!(bits(&out.to_host().unwrap()[to..]), bits(&expected), "{name} with a number, {n}");
        }
    }
}

fn integers_of<T: Integer + std::fmt::Debug>(
    not: impl Fn(T) -> T + Copy,
    [and, or, xor]: [fn(T, T) -> T; 3],
    [shl, shr, div]: [fn(T, T) -> T; 3],
) {
    exact::<T>("not", |s, x, o| ops::not(s, x, o), not);
    exact_2::<T>("bit_and", |s, x, y, o| ops::bit_and(s, x, y, o), and);
    exact_2::<T>("bit_or", |s, x, y, o| ops::bit_or(s, x, y, o), or);
    exact_2::<T>("bit_xor", |s, x, y, o| ops::bit_xor(s, x, y, o), xor);
    exact_2::<T>("shl", |s, x, y, o| ops::shl(s, x, y, o), shl);
    exact_2::<T>("shr", |s, x, y, o| ops::shr(s, x, y, o), shr);
    exact_2::<T>("div", |s, x, y, o| ops::div(s, x, y, o), div);
}

macro_rules! integer_tests {
    ($($test:ident: $t:ident, $abs:expr, $sign:expr;)*) => { $(
        #[test]
        fn $test() {
            integers_of::<$t>(
                |x| !x,
                [|x, y| x & y, |x, y| x | y, |x, y| x ^ y],
                [
                    |x, y| x.wrapping_shl(y as u32),
                    |x, y| x.wrapping_shr(y as u32),
                    |x, y| if y == 0 { 0 } else { x.wrapping_div(y) },
                ],
            );
            exact::<$t>("neg", |s, x, o| ops::neg(s, x, o), |x| x.wrapping_neg());
            exact::<$t>("abs", |s, x, o| ops::abs(s, x, o), $abs);
            exact::<$t>("sign", |s, x, o| ops::sign(s, x, o), $sign);
            exact::<$t>("clamp", |s, x, o| ops::clamp(s, x, $t::MIN, $t::MAX, o), |x| x);
            exact::<$t>("clamp to the end", |s, x, o| ops::clamp(s, x, $t::MAX, $t::MIN, o), |_| $t::MIN);
            exact_2::<$t>("add", |s, x, y, o| ops::add(s, x, y, o), |x, y| x.wrapping_add(y));
            exact_2::<$t>("sub", |s, x, y, o| ops::sub(s, x, y, o), |x, y| x.wrapping_sub(y));
            exact_2::<$t>("mul", |s, x, y, o| ops::mul(s, x, y, o), |x, y| x.wrapping_mul(y));
            exact_2::<$t>("minimum", |s, x, y, o| ops::minimum(s, x, y, o), |x, y| x.min(y));
            exact_2::<$t>("maximum", |s, x, y, o| ops::maximum(s, x, y, o), |x, y| x.max(y));
        }
    )* };
}
integer_tests! {
    operations_of_i8: i8, |x| x.wrapping_abs(), |x| x.signum();
    operations_of_i16: i16, |x| x.wrapping_abs(), |x| x.signum();
    operations_of_i32: i32, |x| x.wrapping_abs(), |x| x.signum();
    operations_of_i64: i64, |x| x.wrapping_abs(), |x| x.signum();
    operations_of_u8: u8, |x| x, |x| x.min(1);
    operations_of_u16: u16, |x| x, |x| x.min(1);
    operations_of_u32: u32, |x| x, |x| x.min(1);
    operations_of_u64: u64, |x| x, |x| x.min(1);
}

/// Tests a function of floats: within `tolerance` units of the type's epsilon, or `absolute`.
fn function<T: common::TestNumber + Float>(
    name: &str,
    operation: OneNumber<T>,
    (tolerance, absolute): (f64, f64),
    reference: impl Fn(f64) -> f64,
) {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        for (from, to) in [(0, 0), (1, 1), (3, 0)] {
            let mut x: Vec<T> = random.values(n, 8.0);
            let specials =
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -3e4, 0.5, 2.5, -7e5, 3e37];
            for special in specials.into_iter().filter(|_| n > 20) {
                x[random.below(n)] = T::nearest(special);
            }
            let on_device = Padded::new(&stream, from, &x);
            let mut out = Padded::poisoned(&stream, to, n);
            operation(&stream, on_device.get(), out.get_mut()).unwrap();
            for (x, found) in x.iter().zip(out.read()) {
                let what = (name, T::NAME, n, x, "seed", random.seed);
                assert_close(found, reference(x.to_f64()), tolerance, absolute, &what);
            }
        }
    }
}

fn floats_of<T: common::TestNumber + Float>() {
    function::<T>("neg", |s, x, o| ops::neg(s, x, o), (0.0, 0.0), |x| -x);
    function::<T>("abs", |s, x, o| ops::abs(s, x, o), (0.0, 0.0), f64::abs);
    function::<T>("sqrt", |s, x, o| ops::sqrt(s, x, o), (0.0, 0.0), f64::sqrt);
    function::<T>("rsqrt", |s, x, o| ops::rsqrt(s, x, o), (2.0, 0.0), |x| 1.0 / x.sqrt());
    function::<T>("reciprocal", |s, x, o| ops::reciprocal(s, x, o), (1.0, 0.0), |x| 1.0 / x);
    function::<T>("log", |s, x, o| ops::log(s, x, o), (2.0, 1e-7), f64::ln);
    function::<T>("sin", |s, x, o| ops::sin(s, x, o), (2.0, 1e-6), f64::sin);
    function::<T>("cos", |s, x, o| ops::cos(s, x, o), (2.0, 1e-6), f64::cos);
    function::<T>("tanh", |s, x, o| ops::tanh(s, x, o), (2.0, 0.0), f64::tanh);
    // Both gates are 0 at -∞.
    let silu = |x: f64| if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-x).exp()) };
    function::<T>("silu", |s, x, o| ops::silu(s, x, o), (4.0, 1e-37), silu);
    let gelu = |x: f64| {
        let z = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
        if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-z).exp()) }
    };
    // For x = -8, z is -49: each of the five roundings of z moves the result by up to 24.5 units of epsilon. For f64,
    // this also applies to the reference.
    function::<T>("gelu_tanh", |s, x, o| ops::gelu_tanh(s, x, o), (256.0, 1e-30), gelu);
    function::<T>("floor", |s, x, o| ops::floor(s, x, o), (0.0, 0.0), f64::floor);
    function::<T>("ceil", |s, x, o| ops::ceil(s, x, o), (0.0, 0.0), f64::ceil);
    function::<T>("round", |s, x, o| ops::round(s, x, o), (0.0, 0.0), f64::round_ties_even);
    function::<T>("trunc", |s, x, o| ops::trunc(s, x, o), (0.0, 0.0), f64::trunc);
    let sign = |x: f64| {
        if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            x
        }
    };
    function::<T>("sign", |s, x, o| ops::sign(s, x, o), (0.0, 0.0), sign);
    fn clamped<T: common::TestNumber + Float>(
        s: &Stream,
        x: DeviceSlice<'_, T>,
        o: DeviceSliceMut<'_, T>,
    ) -> Result<(), Error> {
        ops::clamp(s, x, T::nearest(-1.5), T::nearest(2.0), o)
    }
    let clamp = |x: f64| if x.is_nan() { x } else { x.clamp(-1.5, 2.0) };
    function::<T>("clamp", clamped::<T>, (0.0, 0.0), clamp);
}

#[test]
fn functions_of_floats_are_close() {
    for_types!(floats_of: f32, f64, f16, bf16);
}

fn two_floats_of<T: common::TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    type Case<T> = (&'static str, TwoNumbers<T>, f64, fn(f64, f64) -> f64);
    let cases: [Case<T>; 6] = [
        ("add", |s, x, y, o| ops::add(s, x, y, o), 1.0, |x, y| x + y),
        ("sub", |s, x, y, o| ops::sub(s, x, y, o), 1.0, |x, y| x - y),
        ("mul", |s, x, y, o| ops::mul(s, x, y, o), 1.0, |x, y| x * y),
        ("div", |s, x, y, o| ops::div(s, x, y, o), 1.0, |x, y| x / y),
        (
            "minimum",
            |s, x, y, o| ops::minimum(s, x, y, o),
            0.0,
            |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) },
        ),
        ("pow", |s, x, y, o| ops::pow(s, x, y, o), 16.0, f64::powf),
    ];
    for (name, operation, tolerance, reference) in cases {
        for n in LENGTHS {
            let (mut x, mut y): (Vec<T>, Vec<T>) = (random.values(n, 4.0), random.values(n, 4.0));
            for special in
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0].into_iter().filter(|_| n > 8)
            {
                x[random.below(n)] = T::nearest(special);
                y[random.below(n)] = T::nearest(special);
            }
            let (on_x, on_y) = (Padded::new(&stream, 1, &x), Padded::new(&stream, 0, &y));
            let mut out = Padded::poisoned(&stream, 0, n);
            operation(&stream, on_x.get().into(), on_y.get().into(), out.get_mut()).unwrap();
            for (i, found) in out.read().into_iter().enumerate() {
                let (x, y) = (x[i].to_f64(), y[i].to_f64());
                let what = (name, T::NAME, n, i, x, y, "seed", random.seed);
                assert_close(found, reference(x, y), tolerance, 0.0, &what);
            }
        }
    }
    let (x, y): (Vec<T>, Vec<T>) = (random.values(1001, 4.0), random.values(1001, 4.0));
    let (on_x, on_y) = (Padded::new(&stream, 1, &x), Padded::new(&stream, 0, &y));
    let mut out = Padded::poisoned(&stream, 0, 1001);
    ops::lerp(&stream, on_x.get(), on_y.get(), T::nearest(0.25), out.get_mut()).unwrap();
    for (i, found) in out.read().into_iter().enumerate() {
        let expected = 0.25f64.mul_add(y[i].to_f64() - x[i].to_f64(), x[i].to_f64());
        assert_close(found, expected, 1.0, 8.0 * T::EPSILON, &("lerp", i, x[i], y[i]));
    }
}

#[test]
fn operations_of_two_floats_are_close() {
    for_types!(two_floats_of: f32, f64, f16, bf16);
}

fn comparisons_of<T: Scalar>() {
    let (stream, mut random) = (stream(), Random::new());
    type Comparison<T> =
        fn(&Stream, Operand<'_, T>, Operand<'_, T>, DeviceSliceMut<'_, Checked<bool>>) -> Result<(), Error>;
    type Reference<T> = fn(T, T) -> bool;
    let cases: [(Comparison<T>, Reference<T>); 6] = [
        (|s, x, y, o| ops::eq(s, x, y, o), |x, y| x == y),
        (|s, x, y, o| ops::ne(s, x, y, o), |x, y| x != y),
        (|s, x, y, o| ops::lt(s, x, y, o), |x, y| x < y),
        (|s, x, y, o| ops::le(s, x, y, o), |x, y| x <= y),
        (|s, x, y, o| ops::gt(s, x, y, o), |x, y| x > y),
        (|s, x, y, o| ops::ge(s, x, y, o), |x, y| x >= y),
    ];
    for n in [0, 1, 31, 33, 1025, 4097] {
        let (x, mut y) = (numbers::<T>(&mut random, n), numbers::<T>(&mut random, n));
        (0..n).step_by(3).for_each(|i| y[i] = x[i]);
        let (on_x, on_y) = (at(&stream, 1, &x), at(&stream, 0, &y));
        for (index, (operation, reference)) in cases.iter().enumerate() {
            let mut out = DeviceBuffer::<Checked<bool>>::zeros(&stream, n + 3).unwrap();
            operation(&stream, on_x.slice(1..).into(), (&on_y).into(), out.slice_mut(3..)).unwrap();
            let expected: Vec<bool> = x.iter().zip(&y).map(|(x, y)| reference(*x, *y)).collect();
            let found = out.to_host().unwrap();
            assert_eq!(found[3..], *Checked::from_slice(&expected), "comparison {index} of {} {n}", T::NAME);
        }
    }
}

#[test]
fn comparisons_are_those_of_rust() {
    for_types!(comparisons_of: f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64);
}

fn choices_of<T: Scalar>() {
    let (stream, mut random) = (stream(), Random::new());
    for n in [0, 1, 31, 33, 1025, 4097] {
        let (x, y) = (numbers::<T>(&mut random, n), numbers::<T>(&mut random, n));
        let condition: Vec<bool> = (0..n).map(|_| random.below(2) == 1).collect();
        let on_condition = at(&stream, 3, Checked::from_slice(&condition));
        let (on_x, on_y) = (at(&stream, 1, &x), at(&stream, 0, &y));
        let mut out = at(&stream, 0, &vec![T::ONE; n]);
        ops::select(&stream, on_condition.slice(3..), on_x.slice(1..), &on_y, &mut out).unwrap();
        let expected: Vec<T> = (0..n).map(|i| if condition[i] { x[i] } else { y[i] }).collect();
        assert_eq!(bits(&out.to_host().unwrap()), bits(&expected), "{} {n}", T::NAME);
        ops::select(&stream, on_condition.slice(3..), T::ONE, &on_y, &mut out).unwrap();
        let expected: Vec<T> = (0..n).map(|i| if condition[i] { T::ONE } else { y[i] }).collect();
        assert_eq!(bits(&out.to_host().unwrap()), bits(&expected), "{} {n}, of a number", T::NAME);
        ops::select(&stream, Checked::from(false), on_x.slice(1..), &on_y, &mut out).unwrap();
        assert_eq!(bits(&out.to_host().unwrap()), bits(&y), "{} {n}, of one condition", T::NAME);
    }
}

#[test]
fn choices_follow_their_condition() {
    for_types!(choices_of: f32, f64, bf16, i8, u16, i32, u64);
}

#[test]
fn rows_and_columns_are_broadcast() {
    fn of<T: Scalar>() {
        let (stream, mut random) = (stream(), Random::new());
        for (rows, width) in
            [(1, 1), (1, 40), (40, 1), (3, 5), (16, 64), (33, 31), (7, 1000), (1000, 7), (64, 48)]
        {
            for offset in [0, 1] {
                let x = numbers::<T>(&mut random, rows * width);
                let (row, column) = (numbers::<T>(&mut random, width), numbers::<T>(&mut random, rows));
                let (on_x, on_row) = (at(&stream, offset, &x), at(&stream, 0, &row));
                let on_column = at(&stream, 1, &column);
                let mut out = at(&stream, offset, &vec![T::ONE; rows * width]);
                let (of_x, of_row) = (on_x.slice(offset..), ops::row(&on_row));
                let of_column = ops::column(on_column.slice(1..));
                ops::maximum(&stream, of_x, of_row, out.slice_mut(offset..)).unwrap();
                let expected = (0..rows * width).map(|i| x[i].max_propagate(row[i % width]));
                let what = (T::NAME, rows, width, offset, "seed", random.seed);
                assert_eq!(
                    bits(&out.to_host().unwrap()[offset..]),
                    bits(&Vec::from_iter(expected)),
                    "{what:?}"
                );
                ops::minimum(&stream, of_column, of_row, out.slice_mut(offset..)).unwrap();
                let expected = (0..rows * width).map(|i| column[i / width].min_propagate(row[i % width]));
                assert_eq!(
                    bits(&out.to_host().unwrap()[offset..]),
                    bits(&Vec::from_iter(expected)),
                    "{what:?}"
                );
                let mut is_less = DeviceBuffer::<Checked<bool>>::zeros(&stream, rows * width).unwrap();
                ops::lt(&stream, of_x, of_column, &mut is_less).unwrap();
                let expected = Vec::from_iter((0..rows * width).map(|i| x[i] < column[i / width]));
                assert_eq!(is_less.to_host().unwrap(), *Checked::from_slice(&expected), "{what:?}");
                ops::select(&stream, &is_less, of_row, of_x, out.slice_mut(offset..)).unwrap();
                let expected = (0..rows * width).map(|i| if expected[i] { row[i % width] } else { x[i] });
                assert_eq!(
                    bits(&out.to_host().unwrap()[offset..]),
                    bits(&Vec::from_iter(expected)),
                    "{what:?}"
                );
            }
        }
    }
    for_types!(of: f32, bf16, i8, i64);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let stream = stream();
    let of = |n: usize| DeviceBuffer::from_host(&stream, &vec![1.0f32; n]).unwrap();
    let (x, row, column) = (of(12), of(5), of(3));
    let mut out = of(12);
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();
    let row_error = message(ops::sub(&stream, &x, ops::row(&row), &mut out));
    assert!(row_error.starts_with("sub: y is a row of 5 elements, but the output's 12"), "{row_error}");
    let both = message(ops::sub(&stream, ops::row(x.slice(..6)), ops::column(&column), &mut out));
    assert!(both.contains("rows of 6 elements") && both.contains("rows of 4"), "{both}");
    let long = message(ops::sqrt(&stream, &column, &mut out));
    assert_eq!(long, "sqrt: x has 3 elements, but the output has 12; pass slices of equal length");
    let empty =
        message(ops::lt(&stream, &x, ops::row(x.slice(..0)), &mut DeviceBuffer::zeros(&stream, 12).unwrap()));
    assert!(empty.contains("row of 0 elements"), "{empty}");
    assert_eq!(out.to_host().unwrap(), vec![1.0; 12]);
}
