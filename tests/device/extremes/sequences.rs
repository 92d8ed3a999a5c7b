//! Scans (running sums and extremes), random numbers and samples at the ends of the range.

use half::{bf16, f16};
use warpsmith::ops::{self, Sampling};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use super::elementwise::specials;
use super::{largest, two_to};
use crate::common::{Random, TestNumber, device, for_types, stream};

macro_rules! integers {
    ($($t:ident)*) => { $({
        let stream = stream();
        let mut random = Random::new();
        for n in [1, 2, 33, 5000] {
            let ends = [$t::MIN, $t::MAX, 0, 1, $t::MAX - 1, $t::MIN + 1];
            let x: Vec<$t> = (0..n).map(|_| ends[random.below(6)]).collect();
            let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
            let mut out = DeviceBuffer::<$t>::uninit(&stream, n).unwrap();
            let running = |of: &dyn Fn($t, $t) -> $t, mut value: $t, exclusive: bool| -> Vec<$t> {
                x.iter().map(|x| { let before = value; value = of(value, *x); if exclusive { before } else { value } }).collect()
            };
            let what = (stringify!($t), n, "seed", random.seed);
            ops::inclusive_sum(&stream, &on_device, &mut out).unwrap();
            assert_eq!(out.to_host().unwrap(), running(&$t::wrapping_add, 0, false), "{what:?}");
            ops::exclusive_sum(&stream, &on_device, 0, &mut out).unwrap();
            assert_eq!(out.to_host().unwrap(), running(&$t::wrapping_add, 0, true), "{what:?}");
            ops::inclusive_min(&stream, &on_device, &mut out).unwrap();
            assert_eq!(out.to_host().unwrap(), running(&$t::min, $t::MAX, false), "{what:?}");
            ops::exclusive_max(&stream, &on_device, $t::MIN, &mut out).unwrap();
            assert_eq!(out.to_host().unwrap(), running(&$t::max, $t::MIN, true), "{what:?}");
            ops::inclusive_max(&stream, &on_device, &mut out).unwrap();
            assert_eq!(out.to_host().unwrap(), running(&$t::max, $t::MIN, false), "{what:?}");
        }
    })* };
}

#[test]
fn running_sums_and_extremes_of_integers() {
    integers! { i32 u32 i64 u64 }
}

fn extremes_of<T: TestNumber + ops::Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let mut x: Vec<T> = specials(&mut random, 3000);
    for i in (1..x.len()).rev() {
        x.swap(i, random.below(i + 1));
    }
    // The first NaN is moved to a late index.
    let first = x.iter().position(|x| x.to_f64().is_nan()).unwrap();
    x.swap(first, 2999);
    let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
    let mut out = DeviceBuffer::<T>::uninit(&stream, x.len()).unwrap();
    for is_max in [false, true] {
        match is_max {
            true => ops::inclusive_max(&stream, &on_device, &mut out).unwrap(),
            false => ops::inclusive_min(&stream, &on_device, &mut out).unwrap(),
        }
        let mut best = if is_max { f64::NEG_INFINITY } else { f64::INFINITY };
        for (i, found) in out.to_host().unwrap().iter().enumerate() {
            let x = x[i].to_f64();
            best = if best.is_nan() || x.is_nan() {
                f64::NAN
            } else if is_max {
                best.max(x)
            } else {
                best.min(x)
            };
            let same = found.to_f64() == best || found.to_f64().is_nan() && best.is_nan();
            assert!(same, "{} {i}, max {is_max}: {found:?} for {best}, seed {}", T::NAME, random.seed);
        }
    }
}

#[test]
fn running_extremes_of_floats() {
    for_types!(extremes_of: f32, f64, f16, bf16);
}

fn random_numbers<T: TestNumber + ops::Float>() {
    let stream = stream();
    let generator = Generator::new(&device());
    let most = largest::<T>();
    let n = 5000;
    let mut out = DeviceBuffer::<T>::uninit(&stream, n).unwrap();
    // Half of the largest number, so that the length of the range is representable.
    for (low, high) in [
        (-most / 2.0, most / 2.0 * (1.0 - T::EPSILON)),
        (0.0, most),
        (0.0, two_to(super::exponents::<T>()[1])),
    ] {
        let [low, high] = [low, high].map(T::nearest);
        random::uniform_in(&stream, &generator, low..high, &mut out).unwrap();
        let found = out.to_host().unwrap();
        assert!(found.iter().all(|x| *x >= low && *x < high), "{} {low:?} {high:?}", T::NAME);
        let above = found.iter().filter(|x| x.to_f64() >= low.to_f64() / 2.0 + high.to_f64() / 2.0).count();
        assert!((2000..3000).contains(&above), "{} {low:?} {high:?}: {above}", T::NAME);
    }
    // A range whose length is not representable is rejected.
    let [low, high] = [-most, most].map(T::nearest);
    assert!(random::uniform_in(&stream, &generator, low..high, &mut out).is_err());
    // −most + most / 3 · z overflows only for z below 0.
    random::normal(&stream, &generator, -most, most / 3.0, &mut out).unwrap();
    let finite = out.to_host().unwrap().iter().filter(|x| x.to_f64().is_finite()).count();
    assert!((2000..3000).contains(&finite), "{}: {finite}", T::NAME);
    assert!(out.to_host().unwrap().iter().all(|x| x.to_f64() < most && !x.to_f64().is_nan()));
    random::normal(&stream, &generator, most, 0.0, &mut out).unwrap();
    assert!(out.to_host().unwrap().iter().all(|x| x.to_f64() == most));
}

#[test]
fn random_numbers_of_wide_ranges() {
    for_types!(random_numbers: f32, f64, f16, bf16);
    let stream = stream();
    let generator = Generator::new(&device());
    let mut out = DeviceBuffer::<f32>::uninit(&stream, 1000).unwrap();
    assert!(random::exponential(&stream, &generator, 1e-40, &mut out).is_err());
    random::exponential(&stream, &generator, 1e-36, &mut out).unwrap();
    assert!(out.to_host().unwrap().iter().all(|x| *x > 0.0 && !x.is_nan()));
    let mut integers = DeviceBuffer::<i64>::uninit(&stream, 1000).unwrap();
    random::integers(&stream, &generator, i64::MIN..i64::MAX, &mut integers).unwrap();
    let below = integers.to_host().unwrap().iter().filter(|x| **x < 0).count();
    assert!((400..600).contains(&below), "{below}");
}

#[test]
fn samples_of_logits_at_the_ends_of_the_range() {
    let stream = stream();
    let generator = Generator::new(&device());
    let rows = 1500;
    // With a temperature as large as the logits, the smaller one has the weight e⁻² of the larger.
    let logits: Vec<f32> = (0..rows).flat_map(|_| [3e38, -3e38]).collect();
    let logits = DeviceBuffer::from_host(&stream, &logits).unwrap();
    let mut out = DeviceBuffer::<u64>::uninit(&stream, rows).unwrap();
    let sampling = Sampling { temperature: 3e38, ..Sampling::default() };
    ops::sample(&stream, &generator, sampling, logits.as_2d(rows, 2).unwrap(), &mut out).unwrap();
    let lesser = out.to_host().unwrap().iter().sum::<u64>();
    // The mean is 179 and the standard deviation 12.6.
    assert!((110..250).contains(&lesser), "{lesser}");
    ops::sample(&stream, &generator, Sampling::default(), logits.as_2d(rows, 2).unwrap(), &mut out).unwrap();
    assert!(out.to_host().unwrap().iter().all(|column| *column == 0));
}
