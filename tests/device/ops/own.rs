//! User functions and operators in a kernel crate, launched by `ops::map` and `ops::reduce`: compared with the same
//! functions on the host, at odd lengths and every alignment.

use half::bf16;
use test_kernels::IMAGE;
use test_kernels::own::{
    self, Keyed, Pixel, Summary, accumulate, blended, constant, is_above, largest, mean, min_key,
    scaled_relu, sum_of_squares, summary,
};
use warpsmith::ops::{self, Config, GridRule};
use warpsmith::prelude::*;

use crate::common::{Random, stream};

const LENGTHS: [usize; 12] = [0, 1, 2, 31, 32, 33, 127, 129, 1023, 1025, 4097, 70_001];

/// A buffer whose values start `offset` elements after an aligned address.
fn at<T: DeviceCopy>(stream: &Stream, offset: usize, values: &[T]) -> DeviceBuffer<T> {
    let padding = vec![T::zeroed(); offset];
    DeviceBuffer::from_host(stream, &[&padding[..], values].concat()).unwrap()
}

#[test]
fn a_function_of_two_arrays_is_applied() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        for (x_at, y_at, out_at) in [(0, 0, 0), (1, 1, 1), (3, 3, 3), (0, 1, 2), (2, 0, 0)] {
            let (x, y): (Vec<f32>, Vec<f32>) = (random.values(n, 4.0), random.values(n, 4.0));
            let (on_x, on_y) = (at(&stream, x_at, &x), at(&stream, y_at, &y));
            let mut out = DeviceBuffer::from_host(&stream, &vec![7.0f32; n + out_at + 5]).unwrap();
            let target = out.slice_mut(out_at..out_at + n);
            ops::map::<scaled_relu>(&stream, &IMAGE, (on_x.slice(x_at..), on_y.slice(y_at..), target))
                .unwrap();
            let out = out.to_host().unwrap();
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| own::scaled_relu(*x, *y)).collect();
            assert_eq!(out[out_at..out_at + n], expected, "{n} elements at {x_at}, {y_at}, {out_at}");
            let around = out[..out_at].iter().chain(&out[out_at + n..]);
            assert!(
                around.into_iter().all(|guard| *guard == 7.0),
                "written outside, {n} elements at {out_at}"
            );
        }
    }
}

#[test]
fn scalars_are_one_value_for_all() {
    fn of<T: crate::common::TestNumber>()
    where
        is_above<T>: gpu_std::elementwise::Elementwise<
                Params = (gpu_std::param::Slice<T>, gpu_std::param::Value<T>, gpu_std::param::SliceMut<u8>),
            >,
    {
        let (stream, mut random) = (stream(), Random::new());
        for n in LENGTHS {
            for offset in [0, 1, 5] {
                let (x, limit): (Vec<T>, T) = (random.values(n, 2.0), T::nearest(0.5));
                let on_x = at(&stream, offset, &x);
                let mut out = DeviceBuffer::from_host(&stream, &vec![9u8; n]).unwrap();
                ops::map::<is_above<T>>(&stream, &IMAGE, (on_x.slice(offset..), limit, &mut out)).unwrap();
                let expected: Vec<u8> = x.iter().map(|x| u8::from(x.to_f64() > 0.5)).collect();
                assert_eq!(out.to_host().unwrap(), expected, "{n} elements at {offset}");
            }
        }
    }
    of::<f32>();
    of::<f64>();
    of::<bf16>();
}

#[test]
fn an_updated_array_is_read_and_written() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        let (x, y): (Vec<f32>, Vec<f64>) = (random.values(n, 4.0), random.values(n, 4.0));
        let (on_x, mut on_y) = (at(&stream, 1, &x), at(&stream, 1, &y));
        ops::map::<accumulate>(&stream, &IMAGE, (0.5, on_x.slice(1..), on_y.slice_mut(1..))).unwrap();
        let expected: Vec<f64> = x.iter().zip(&y).map(|(x, y)| own::accumulate(0.5, *x, *y)).collect();
        assert_eq!(on_y.to_host().unwrap()[1..], expected, "{n} elements");
    }
}

#[test]
fn four_arrays_of_three_types_become_pixels() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        let bytes = |random: &mut Random| Vec::from_iter((0..n).map(|_| random.bits() as u8));
        let (red, green) = (bytes(&mut random), bytes(&mut random));
        let blue = Vec::from_iter((0..n).map(|_| random.bits() as u16));
        let alpha: Vec<f32> = random.values(n, 2.0);
        let weights = [255, 17, 128];
        let mut out = DeviceBuffer::<Pixel>::zeros(&stream, n).unwrap();
        let (on_red, on_green) = (at(&stream, 0, &red), at(&stream, 3, &green));
        let (on_blue, on_alpha) = (at(&stream, 1, &blue), at(&stream, 0, &alpha));
        let arguments = (
            weights,
            on_red.slice(..),
            on_green.slice(3..),
            on_blue.slice(1..),
            on_alpha.slice(..),
            &mut out,
        );
        ops::map::<blended>(&stream, &IMAGE, arguments).unwrap();
        let expected = (0..n).map(|i| own::blended(weights, red[i], green[i], blue[i], alpha[i]));
        assert_eq!(out.to_host().unwrap(), Vec::from_iter(expected), "{n} elements");
        let mut words = DeviceBuffer::<u64>::zeros(&stream, n).unwrap();
        ops::map::<constant>(&stream, &IMAGE, ([7, n as u32], &mut words)).unwrap();
        assert!(words.to_host().unwrap().iter().all(|word| *word == (7 << 32 | n as u64)));
    }
}

#[test]
fn other_lengths_are_refused_and_nothing_written() {
    let stream = stream();
    let (x, y) = (at(&stream, 0, &[1.0f32; 8]), at(&stream, 0, &[1.0f32; 7]));
    let mut out = DeviceBuffer::from_host(&stream, &[5.0f32; 8]).unwrap();
    let error = ops::map::<scaled_relu>(&stream, &IMAGE, (&x, &y, &mut out)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "scaled_relu: y has 7 elements, but out has 8; pass slices of equal length"
    );
    let config = Config { block: 256, grid: GridRule::Auto, items: 3, vector: 16 };
    let error = ops::with_config(config, || ops::map::<scaled_relu>(&stream, &IMAGE, (&x, &x, &mut out)))
        .unwrap_err();
    assert!(error.to_string().contains("items=3") && error.to_string().contains("1/16, 4/16"), "{error}");
    assert_eq!(out.to_host().unwrap(), [5.0; 8]);
    let mut two = DeviceBuffer::<f32>::zeros(&stream, 2).unwrap();
    let error = ops::reduce_into::<largest>(&stream, &IMAGE, &x, &mut two).unwrap_err();
    assert!(error.to_string().contains("largest"), "{error}");
}

#[test]
fn every_configuration_gives_the_same_elements() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 5003;
    let x: Vec<f32> = random.values(n, 4.0);
    let expected: Vec<f32> = x.iter().map(|x| own::scaled_relu(*x, *x)).collect();
    let x = at(&stream, 0, &x);
    for items in [1, 4] {
        for grid in [GridRule::Auto, GridRule::Waves(1), GridRule::Blocks(3)] {
            let config = Config { block: 96, grid, items, vector: 16 };
            let mut out = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
            ops::with_config(config, || ops::map::<scaled_relu>(&stream, &IMAGE, (&x, &x, &mut out)))
                .unwrap();
            assert_eq!(out.to_host().unwrap(), expected, "{config}");
        }
    }
}

#[test]
fn operators_reduce_numbers_and_structs() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        for offset in [0, 1, 3] {
            let x: Vec<f32> = random.values(n, 4.0);
            let on_device = at(&stream, offset, &x);
            let found = ops::reduce::<largest>(&stream, &IMAGE, on_device.slice(offset..)).unwrap();
            assert_eq!(
                found,
                x.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                "{n} elements at {offset}"
            );

            let found = ops::reduce::<mean>(&stream, &IMAGE, on_device.slice(offset..)).unwrap();
            let expected = x.iter().copied().map(f64::from).sum::<f64>() / n as f64;
            let close = (f64::from(found) - expected).abs() < 1e-6;
            assert!(close || n == 0 && found.is_nan(), "{found} for {expected}, {n} elements");

            let keyed: Vec<Keyed> =
                x.iter().map(|x| Keyed { key: random.below(n / 4 + 1) as u32, value: *x }).collect();
            let on_device = at(&stream, offset, &keyed);
            let found = ops::reduce::<min_key>(&stream, &IMAGE, on_device.slice(offset..)).unwrap();
            let none = Keyed { key: u32::MAX, value: f32::INFINITY };
            assert_eq!(found, keyed.iter().copied().fold(none, own::min_key), "{n} elements at {offset}");
        }
    }
}

#[test]
fn running_values_may_be_larger_than_a_slot() {
    let (stream, mut random) = (stream(), Random::new());
    for n in LENGTHS {
        let pixels = Vec::from_iter((0..n).map(|_| {
            let bits = random.bits();
            Pixel { channels: [(bits as u8) | (bits >> 24) as u8, (bits >> 8) as u8, (bits >> 16) as u8] }
        }));
        let on_device = at(&stream, 1, &pixels);
        let mut out = DeviceBuffer::<Summary>::zeros(&stream, 1).unwrap();
        ops::reduce_into::<summary>(&stream, &IMAGE, on_device.slice(1..), &mut out).unwrap();
        let none = Summary { count: 0, sums: [0; 3], smallest: [255; 3], last_red: [0; 2] };
        let of = pixels.iter().enumerate().map(|(i, pixel)| Summary::of(*pixel, i as u64));
        assert_eq!(out.to_host().unwrap(), [of.fold(none, own::summary)], "{n} elements");
    }
}

#[test]
fn sums_repeat_to_the_bit() {
    let (stream, mut random) = (stream(), Random::new());
    let x: Vec<f32> = random.values(70_001, 4.0);
    let exact: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let on_device = at(&stream, 0, &x);
    let sum = || ops::reduce::<sum_of_squares<f32>>(&stream, &IMAGE, &on_device).unwrap();
    let first = sum();
    assert!((f64::from(first) - exact).abs() < 1e-5 * exact, "{first} for {exact}");
    assert!((0..5).all(|_| sum().to_bits() == first.to_bits()));
    for items in [1, 4] {
        let config = Config { block: 128, grid: GridRule::Blocks(7), items, vector: 16 };
        let mut out = DeviceBuffer::<f32>::zeros(&stream, 1).unwrap();
        ops::with_config(config, || {
            ops::reduce_into::<sum_of_squares<f32>>(&stream, &IMAGE, &on_device, &mut out)
        })
        .unwrap();
        assert!((f64::from(out.to_host().unwrap()[0]) - exact).abs() < 1e-5 * exact, "{config}");
    }
}
