//! Every reduction and type compared with a reference in float64 or 128-bit integers: odd lengths, unaligned arrays,
//! NaN, infinities and ties. Results must be bit-identical in every run.

use crate::common::{LENGTHS, Padded, Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Config, Float, GridRule};
use warpsmith::prelude::*;

/// Launch shapes that a reduction must support.
const SHAPES: [(u32, GridRule); 6] = [
    (1, GridRule::Blocks(1)),
    (31, GridRule::Blocks(3)),
    (32, GridRule::Auto),
    (100, GridRule::Waves(1)),
    (256, GridRule::Blocks(40)),
    (512, GridRule::Blocks(2)),
];

fn floats_sum_up<T: TestNumber + Float>()
where
    T::Sum: TestNumber,
{
    let stream = stream();
    let mut random = Random::new();
    for n in LENGTHS {
        for offset in [0, 1, 3] {
            let values: Vec<T> = random.values(n, 1.0);
            let exact: f64 = values.iter().map(|v| v.to_f64()).sum();
            // Partial sums are at most the sum of magnitudes; a tree of depth d has an error of d roundings of it.
            let magnitude: f64 = values.iter().map(|v| v.to_f64().abs()).sum();
            let rounding = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
            let x = Padded::new(&stream, offset, &values);
            let sum = ops::sum(&stream, x.get()).unwrap();
            let what = ("sum", n, offset, "seed", random.seed);
            assert_close(sum, exact, 1.0, 40.0 * rounding * magnitude, &what);
            let mean = ops::mean(&stream, x.get()).unwrap();
            let expected = if n == 0 { f64::NAN } else { exact / n as f64 };
            assert_close(mean, expected, 1.0, 40.0 * rounding * magnitude / n.max(1) as f64, &what);
        }
    }
}

#[test]
fn sum_and_mean_of_floats_are_close() {
    for_types!(floats_sum_up: f32, f64, f16, bf16);
}

#[test]
fn sums_that_need_a_wide_accumulator_are_correct() {
    let stream = stream();
    // In f16 the running sum would stop growing at 2048, and its mean would overflow.
    let ones = DeviceBuffer::from_host(&stream, &vec![f16::ONE; 50_000]).unwrap();
    assert_eq!(ops::sum(&stream, &ones).unwrap(), f16::from_f32(50_000.0));
    let large = DeviceBuffer::from_host(&stream, &vec![f16::from_f32(60_000.0); 1000]).unwrap();
    assert_eq!(ops::sum(&stream, &large).unwrap(), f16::INFINITY);
    assert_eq!(ops::mean(&stream, &large).unwrap(), f16::from_f32(60_000.0));
    let tiny = DeviceBuffer::from_host(&stream, &vec![bf16::ONE; 40_000]).unwrap();
    assert_eq!(ops::sum(&stream, &tiny).unwrap(), bf16::from_f32(40_000.0));
    // Sums of 32-bit integers have 64 bits.
    let high = DeviceBuffer::from_host(&stream, &vec![i32::MIN; 5000]).unwrap();
    assert_eq!(ops::sum(&stream, &high).unwrap(), 5000 * i64::from(i32::MIN));
    let high = DeviceBuffer::from_host(&stream, &vec![u32::MAX; 5000]).unwrap();
    assert_eq!(ops::sum(&stream, &high).unwrap(), 5000 * u64::from(u32::MAX));
}

#[test]
fn methods_of_buffers_are_the_functions() {
    let mut x = DeviceBuffer::from_host(&stream(), &[3.0f32, -1.0, 4.0, 0.5]).unwrap();
    assert_eq!((x.sum().unwrap(), x.prod().unwrap(), x.mean().unwrap()), (6.5, -6.0, 1.625));
    assert_eq!((x.min().unwrap(), x.max().unwrap()), (-1.0, 4.0));
    assert_eq!((x.argmin().unwrap(), x.argmax().unwrap()), (1, 2));
    assert_eq!((x.slice(1..3).sum().unwrap(), x.as_mut_slice().max().unwrap()), (3.0, 4.0));
    let error = x.slice(..0).min().unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&warpsmith::OpError::Empty { operation: "min" }));
}

#[test]
fn integer_sums_and_products_wrap() {
    macro_rules! of {
        ($($t:ty => $sum:ty),*) => { $( {
            let stream = stream();
            let mut random = Random::new();
            for n in LENGTHS {
                let values: Vec<$t> = random.values(n, 1.0);
                let x = Padded::new(&stream, n % 4, &values);
                let what = (stringify!($t), n, "seed", random.seed);
                let sum = values.iter().fold(0, |sum: $sum, v| sum.wrapping_add(<$sum>::from(*v)));
                assert_eq!(ops::sum(&stream, x.get()).unwrap(), sum, "{what:?}");
                // Odd factors: a product with 64 even factors is 0, which would hide errors.
                let odd: Vec<$t> = values.iter().map(|v| v | 1).collect();
                let product = odd.iter().fold(1, |product: $sum, v| product.wrapping_mul(<$sum>::from(*v)));
                let x = Padded::new(&stream, n % 4, &odd);
                assert_eq!(ops::prod(&stream, x.get()).unwrap(), product, "{what:?}");
            }
        } )* };
    }
    of!(i32 => i64, u32 => u64, i64 => i64, u64 => u64);
}

#[test]
fn product_of_floats_is_close() {
    fn of<T: TestNumber + Float>()
    where
        T::Sum: TestNumber,
    {
        let stream = stream();
        let mut random = Random::new();
        for n in LENGTHS {
            // Powers of two, so that rounding cannot hide a factor that is skipped or counted twice.
            let values: Vec<T> = (0..n)
                .map(|i| [2.0, 0.5, -1.0, 1.0][if i % 64 < 2 { i % 2 } else { 2 + random.below(2) }])
                .map(T::nearest)
                .collect();
            let expected: f64 = values.iter().map(|v| v.to_f64()).product();
            let x = Padded::new(&stream, n % 3, &values);
            let product = ops::prod(&stream, x.get()).unwrap();
            assert_eq!(product.to_f64(), expected, "{n}, seed {}", random.seed);
        }
    }
    for_types!(of: f32, f64, f16, bf16);
}

fn extremes_of<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for n in LENGTHS.into_iter().filter(|&n| n > 0) {
        for round in 0..4 {
            let mut values: Vec<T> = random.values(n, if round == 1 { 2.0 } else { 1e4 });
            if round == 2 {
                // All values equal the initial value of the search: the first index is the result.
                values.fill(T::nearest(f64::NEG_INFINITY));
            }
            if round == 3 {
                // A tie between two indices.
                let (i, j) = (random.below(n), random.below(n));
                values[i] = T::nearest(2e9);
                values[j] = values[i];
            }
            let x = Padded::new(&stream, round, &values);
            let what = (n, round, "seed", random.seed);
            let place = |better: fn(T, T) -> bool| {
                (1..n).fold(0, |best, i| if better(values[i], values[best]) { i } else { best })
            };
            let (smallest, largest) = (place(|a, b| a < b), place(|a, b| a > b));
            assert_eq!(ops::min(&stream, x.get()).unwrap(), values[smallest], "min {what:?}");
            assert_eq!(ops::max(&stream, x.get()).unwrap(), values[largest], "max {what:?}");
            assert_eq!(ops::argmin(&stream, x.get()).unwrap(), smallest as u64, "argmin {what:?}");
            assert_eq!(ops::argmax(&stream, x.get()).unwrap(), largest as u64, "argmax {what:?}");
        }
    }
}

#[test]
fn extremes_and_their_indices_are_exact() {
    for_types!(extremes_of: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn nan_wins_wherever_it_is() {
    fn of<T: TestNumber + Float>()
    where
        T::Sum: TestNumber,
    {
        let stream = stream();
        let mut random = Random::new();
        for n in [1, 2, 31, 33, 1025, 30_001] {
            let mut values: Vec<T> = random.values(n, 10.0);
            values[random.below(n)] = T::nearest(f64::INFINITY);
            let nans = [random.below(n), random.below(n)];
            for at in nans {
                values[at] = T::nearest(f64::NAN);
            }
            let first = nans[0].min(nans[1]) as u64;
            let x = Padded::new(&stream, n % 5, &values);
            let what = (n, nans, "seed", random.seed);
            assert!(ops::min(&stream, x.get()).unwrap().to_f64().is_nan(), "min {what:?}");
            assert!(ops::max(&stream, x.get()).unwrap().to_f64().is_nan(), "max {what:?}");
            assert!(ops::sum(&stream, x.get()).unwrap().to_f64().is_nan(), "sum {what:?}");
            assert_eq!(ops::argmin(&stream, x.get()).unwrap(), first, "argmin {what:?}");
            assert_eq!(ops::argmax(&stream, x.get()).unwrap(), first, "argmax {what:?}");
        }
    }
    for_types!(of: f32, f64, f16, bf16);
}

#[test]
fn infinities_add_up_as_ieee_says() {
    let stream = stream();
    let mut values = vec![1.0f32; 5000];
    values[77] = f32::INFINITY;
    let x = DeviceBuffer::from_host(&stream, &values).unwrap();
    assert_eq!(ops::sum(&stream, &x).unwrap(), f32::INFINITY);
    values[4999] = f32::NEG_INFINITY;
    let x = DeviceBuffer::from_host(&stream, &values).unwrap();
    assert!(ops::sum(&stream, &x).unwrap().is_nan());
}

#[test]
fn zero_elements_have_a_sum_but_no_extreme() {
    let stream = stream();
    let none = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    assert_eq!(ops::sum(&stream, &none).unwrap(), 0.0);
    assert_eq!(ops::prod(&stream, &none).unwrap(), 1.0);
    assert!(ops::mean(&stream, &none).unwrap().is_nan());
    for error in [
        ops::min(&stream, &none).unwrap_err(),
        ops::max(&stream, &none).unwrap_err(),
        ops::argmin(&stream, &none).map(|_| ()).unwrap_err(),
        ops::argmax(&stream, &none).map(|_| ()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("zero elements"), "{error}");
    }
}

#[test]
fn every_configuration_sums_reproducibly() {
    let stream = stream();
    let mut random = Random::new();
    for n in [1, 33, 1025, 50_021] {
        let values: Vec<f32> = random.values(n, 1.0);
        let exact: f64 = values.iter().map(|&v| f64::from(v)).sum();
        let x = DeviceBuffer::from_host(&stream, &values).unwrap();
        let mut out = DeviceBuffer::from_host(&stream, &[f32::NAN]).unwrap();
        for variant in ops::variants("reduce_sum", "f32") {
            for (block, grid) in SHAPES {
                let config = Config { block, grid, items: variant.items, vector: variant.vector };
                let mut bits = Vec::new();
                for _ in 0..3 {
                    ops::with_config(config, || ops::sum_into(&stream, &x, &mut out)).unwrap();
                    let found = out.to_host().unwrap()[0];
                    bits.push(found.to_bits());
                    let what = (config, n, "seed", random.seed);
                    assert_close(found, exact, 4.0, n as f64 * f64::from(f32::EPSILON), &what);
                }
                assert!(bits.iter().all(|&b| b == bits[0]), "{config}: {bits:?}, seed {}", random.seed);
            }
        }
    }
}

#[test]
fn reductions_on_two_streams_are_independent() {
    let device = crate::common::device();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let inputs: Vec<DeviceBuffer<u32>> = streams
        .iter()
        .enumerate()
        .map(|(i, stream)| DeviceBuffer::from_host(stream, &vec![1 + i as u32; 70_001]).unwrap())
        .collect();
    let mut outputs: Vec<[DeviceBuffer<u64>; 2]> =
        (0..20).map(|_| streams.each_ref().map(|stream| DeviceBuffer::zeros(stream, 1).unwrap())).collect();
    for round in &mut outputs {
        for ((stream, input), output) in streams.iter().zip(&inputs).zip(round) {
            ops::sum_into(stream, input, output).unwrap();
        }
    }
    for round in outputs {
        for (i, output) in round.iter().enumerate() {
            assert_eq!(output.to_host().unwrap(), [70_001 * (1 + i as u64)]);
        }
    }
}
