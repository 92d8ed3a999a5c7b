//! Every scan and type compared with a reference in float64 or wrapping integers: odd lengths, unaligned arrays, NaN,
//! infinities and negative zero. Results must be bit-identical in every grid.

use crate::common::{LENGTHS, Padded, Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use test_kernels::IMAGE;
use test_kernels::own::{self, Linear, one_after_the_other, own_running_sum};
use warpsmith::ops::{self, Config, Float, GridRule};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice, DeviceSliceMut};

/// Offsets of input and output from an aligned address.
const OFFSETS: [(usize, usize); 4] = [(0, 0), (1, 1), (3, 0), (0, 5)];

/// A scan with an initial value.
type Scan<T> = fn(&Stream, T, DeviceSlice<'_, T>, DeviceSliceMut<'_, T>) -> Result<(), warpsmith::Error>;

fn scanned<T: TestNumber>(
    stream: &Stream,
    (x_offset, out_offset): (usize, usize),
    values: &[T],
    initial: T,
    scan: Scan<T>,
) -> Vec<T> {
    let x = Padded::new(stream, x_offset, values);
    let mut out = Padded::poisoned(stream, out_offset, values.len());
    scan(stream, initial, x.get(), out.get_mut()).unwrap();
    assert!(x.read().iter().zip(values).all(|(a, b)| a.bits() == b.bits()), "the input was written");
    out.read()
}

fn float_sums<T: TestNumber + Float>() {
    let stream = stream();
    let mut random = Random::new();
    for n in LENGTHS {
        for offsets in OFFSETS {
            let values: Vec<T> = random.values(n, 1.0);
            let initial: T = random.values(1, 10.0)[0];
            let inclusive =
                scanned(&stream, offsets, &values, initial, |s, _, x, o| ops::inclusive_sum(s, x, o));
            let exclusive =
                scanned(&stream, offsets, &values, initial, |s, i, x, o| ops::exclusive_sum(s, x, i, o));
            let rounding = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
            let (mut sum, mut magnitude) = (0.0, initial.to_f64().abs());
            for (i, value) in values.iter().enumerate() {
                let what = (n, offsets, i, "seed", random.seed);
                let bound = 40.0 * rounding * magnitude;
                assert_close(exclusive[i], initial.to_f64() + sum, 1.0, bound, &("exclusive", what));
                sum += value.to_f64();
                magnitude += value.to_f64().abs();
                assert_close(inclusive[i], sum, 1.0, 40.0 * rounding * magnitude, &("inclusive", what));
            }
        }
    }
}

#[test]
fn running_sums_of_floats_are_close() {
    for_types!(float_sums: f32, f64, f16, bf16);
}

#[test]
fn running_sums_of_integers_wrap() {
    macro_rules! of {
        ($($t:ty),*) => { $( {
            let stream = stream();
            let mut random = Random::new();
            for (n, offsets) in LENGTHS.into_iter().zip(OFFSETS.into_iter().cycle()) {
                let values: Vec<$t> = random.values(n, 1.0);
                let start = random.bits() as $t;
                let inclusive = scanned(&stream, offsets, &values, start, |s, _, x, o| ops::inclusive_sum(s, x, o));
                let exclusive =
                    scanned(&stream, offsets, &values, start, |s, i, x, o| ops::exclusive_sum(s, x, i, o));
                let mut sum: $t = 0;
                for (i, value) in values.iter().enumerate() {
                    let what = (stringify!($t), n, i, "seed", random.seed);
                    assert_eq!(exclusive[i], start.wrapping_add(sum), "{what:?}");
                    sum = sum.wrapping_add(*value);
                    assert_eq!(inclusive[i], sum, "{what:?}");
                }
            }
        } )* };
    }
    of!(i32, u32, i64, u64);
}

fn extremes_of<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (n, offsets) in LENGTHS.into_iter().zip(OFFSETS.into_iter().cycle()) {
        // Slowly rising values, so that the running extreme changes often.
        let values: Vec<T> =
            (0..n).map(|i| T::nearest((1e4 + random.unit() * (10.0 + i as f64 / 50.0)).round())).collect();
        let initial = T::nearest(1e4);
        let inclusive = [
            scanned(&stream, offsets, &values, initial, |s, _, x, o| ops::inclusive_min(s, x, o)),
            scanned(&stream, offsets, &values, initial, |s, _, x, o| ops::inclusive_max(s, x, o)),
        ];
        let exclusive = [
            scanned(&stream, offsets, &values, initial, |s, i, x, o| ops::exclusive_min(s, x, i, o)),
            scanned(&stream, offsets, &values, initial, |s, i, x, o| ops::exclusive_max(s, x, i, o)),
        ];
        let mut so_far = [f64::INFINITY, f64::NEG_INFINITY];
        for (i, value) in values.iter().enumerate() {
            let (what, value) = ((n, i, "seed", random.seed), value.to_f64());
            let start = initial.to_f64();
            assert_eq!(exclusive[0][i].to_f64(), so_far[0].min(start), "exclusive_min {what:?}");
            assert_eq!(exclusive[1][i].to_f64(), so_far[1].max(start), "exclusive_max {what:?}");
            so_far = [so_far[0].min(value), so_far[1].max(value)];
            assert_eq!(inclusive[0][i].to_f64(), so_far[0], "inclusive_min {what:?}");
            assert_eq!(inclusive[1][i].to_f64(), so_far[1], "inclusive_max {what:?}");
        }
    }
}

#[test]
fn running_extremes_are_exact() {
    for_types!(extremes_of: f32, f64, f16, bf16, i32, u32, i64, u64);
}

fn special_values<T: TestNumber + Float>() {
    let stream = stream();
    let of = |value: f64| T::nearest(value);
    // A negative zero stays negative, even in a long array.
    let zeros = vec![of(-0.0); 5000];
    let sums = scanned(&stream, (1, 1), &zeros, of(0.0), |s, _, x, o| ops::inclusive_sum(s, x, o));
    assert!(sums.iter().all(|sum| sum.bits() == of(-0.0).bits()));
    let sums = scanned(&stream, (1, 1), &zeros, of(0.0), |s, i, x, o| ops::exclusive_sum(s, x, i, o));
    assert!(sums.iter().all(|sum| sum.bits() == of(0.0).bits()));

    let mut values = vec![of(1.0); 5000];
    (values[700], values[3000]) = (of(f64::INFINITY), of(f64::NEG_INFINITY));
    let sums = scanned(&stream, (3, 0), &values, of(0.0), |s, _, x, o| ops::inclusive_sum(s, x, o));
    for (i, sum) in sums.iter().enumerate() {
        let sum = sum.to_f64();
        let is_correct = match i {
            0..700 => sum.is_finite(),
            700..3000 => sum == f64::INFINITY,
            _ => sum.is_nan(),
        };
        assert!(is_correct, "{i}: {sum}");
    }
    values[1500] = of(f64::NAN);
    let smallest = scanned(&stream, (0, 1), &values, of(0.0), |s, _, x, o| ops::inclusive_min(s, x, o));
    let largest = scanned(&stream, (0, 1), &values, of(0.0), |s, _, x, o| ops::inclusive_max(s, x, o));
    for i in 0..values.len() {
        let expected = [1.0, if i < 700 { 1.0 } else { f64::INFINITY }];
        let found = [smallest[i].to_f64(), largest[i].to_f64()];
        assert!(
            if i < 1500 { found == expected } else { found.iter().all(|f| f.is_nan()) },
            "{i}: {found:?}"
        );
    }
}

#[test]
fn zeros_infinities_and_nan_pass_on() {
    for_types!(special_values: f32, f64, f16, bf16);
}

#[test]
fn narrow_floats_add_up_in_f32() {
    let stream = stream();
    // In f16 the running sum would stop growing at 2048.
    let ones = vec![f16::ONE; 30_000];
    let sums = scanned(&stream, (0, 0), &ones, f16::ZERO, |s, _, x, o| ops::inclusive_sum(s, x, o));
    for (i, sum) in sums.iter().enumerate() {
        assert_eq!(*sum, f16::from_f32(i as f32 + 1.0), "{i}");
    }
}

#[test]
fn every_grid_gives_the_same_bits() {
    let stream = stream();
    let mut random = Random::new();
    for (n, offset) in [(1, 0), (1025, 1), (60_021, 3)] {
        let values: Vec<f32> = random.values(n, 1.0);
        let x = Padded::new(&stream, offset, &values);
        for variant in ops::variants("scan_sum", "f32") {
            for block in [32, 96, variant.max_block] {
                let mut first = None;
                for grid in ["blocks:1", "blocks:3", "auto", "waves:1", "blocks:200"] {
                    let config = Config {
                        block,
                        grid: grid.parse().unwrap(),
                        items: variant.items,
                        vector: variant.vector,
                    };
                    let mut out = Padded::poisoned(&stream, 0, n);
                    ops::with_config(config, || ops::inclusive_sum(&stream, x.get(), out.get_mut())).unwrap();
                    let found: Vec<u32> = out.read().iter().map(|sum| sum.to_bits()).collect();
                    let what = (config, n, "seed", random.seed);
                    assert_eq!(&found, first.get_or_insert_with(|| found.clone()), "{what:?}");
                }
            }
        }
    }
}

#[test]
fn scans_refuse_what_does_not_fit() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 9]).unwrap();
    let text = ops::inclusive_sum(&stream, &x, &mut out).unwrap_err().to_string();
    assert!(text.contains("inclusive_sum") && text.contains("10") && text.contains("9"), "{text}");
    let config = Config { block: 48, grid: GridRule::Auto, items: 5, vector: 16 };
    let text = ops::with_config(config, || ops::exclusive_max(&stream, x.slice(1..), 0.0, &mut out))
        .unwrap_err()
        .to_string();
    assert!(text.contains("exclusive_max") && text.contains("48") && text.contains("32"), "{text}");
    assert_eq!(out.to_host().unwrap(), [7.0; 9]);
    let none = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    ops::inclusive_sum(&stream, &none, &mut DeviceBuffer::from_host(&stream, &[]).unwrap()).unwrap();
}

#[test]
fn an_operator_of_ones_own_scans_in_order() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        let x: Vec<Linear> = (0..n)
            .map(|_| Linear { factor: random.bits() as u32, offset: random.bits() as u32, count: 1 })
            .collect();
        let initial = Linear { factor: 3, offset: 5, count: 100 };
        let input = DeviceBuffer::from_host(&stream, &x).unwrap();
        let mut out = DeviceBuffer::from_host(&stream, &vec![initial; n]).unwrap();
        ops::inclusive_scan::<one_after_the_other>(&stream, &IMAGE, &input, &mut out).unwrap();
        let running = |start: Option<Linear>| {
            x.iter().scan(start, |so_far, x| {
                *so_far = Some(so_far.map_or(*x, |so_far| own::one_after_the_other(so_far, *x)));
                *so_far
            })
        };
        let expected: Vec<Linear> = running(None).collect();
        assert_eq!(out.to_host().unwrap(), expected, "{n}, seed {}", random.seed);
        ops::exclusive_scan::<one_after_the_other>(&stream, &IMAGE, &input, initial, &mut out).unwrap();
        let expected: Vec<Linear> = [initial].into_iter().chain(running(Some(initial))).take(n).collect();
        assert_eq!(out.to_host().unwrap(), expected, "{n}, seed {}", random.seed);
    }
    let x = DeviceBuffer::from_host(&stream, &[1.0f64; 3]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f64; 2]).unwrap();
    let text =
        ops::inclusive_scan::<own_running_sum<f64>>(&stream, &IMAGE, &x, &mut out).unwrap_err().to_string();
    assert!(text.contains("own_running_sum") && text.contains('3') && text.contains('2'), "{text}");
    assert_eq!(out.to_host().unwrap(), [7.0; 2]);
}

#[test]
fn ones_own_sum_is_that_of_the_operation() {
    let (stream, mut random) = (stream(), Random::new());
    let x: Vec<f32> = random.values(30_011, 1.0);
    let input = DeviceBuffer::from_host(&stream, &x).unwrap();
    let [mut own, mut ours] = [0, 1].map(|_| DeviceBuffer::zeros(&stream, x.len()).unwrap());
    ops::inclusive_scan::<own_running_sum<f32>>(&stream, &IMAGE, &input, &mut own).unwrap();
    ops::inclusive_sum(&stream, &input, &mut ours).unwrap();
    assert_eq!(own.to_host().unwrap(), ours.to_host().unwrap(), "seed {}", random.seed);
}
