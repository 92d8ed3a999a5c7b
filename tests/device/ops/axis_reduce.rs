//! Reductions along rows, columns and segments compared with float64 or 128-bit integers. They cover short and long
//! rows, few and many rows, row strides, unaligned views, NaN, ties and wrong offsets. Results must be bit-identical in
//! every run.

use std::fmt::Debug;

use super::views::{PLACES, Rows, exact_sum};
use crate::common::{Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut, OpError};

/// Shapes (rows, columns) in which lanes, warps, blocks and several blocks process a row or a column.
const SHAPES: [(usize, usize); 20] = [
    (1, 1),
    (5, 1),
    (1, 7),
    (33, 3),
    (300, 4),
    (9, 31),
    (17, 32),
    (6, 33),
    (40, 64),
    (3, 127),
    (4, 128),
    (5, 129),
    (2, 1023),
    (3, 1025),
    (2, 4097),
    (1, 30_001),
    (2, 20_000),
    (2000, 3),
    (601, 40),
    (600, 72),
];

/// Runs an operation twice on poisoned memory, and returns the results, which must be bit-identical.
fn run<O: TestNumber>(len: usize, operation: impl Fn(&Stream, DeviceSliceMut<'_, O>)) -> Vec<O> {
    let stream = stream();
    let once = || {
        let mut out = DeviceBuffer::from_host(&stream, &vec![O::poison(); len + 2]).unwrap();
        operation(&stream, out.slice_mut(1..len + 1));
        let found = out.to_host().unwrap();
        assert_eq!(
            [found[0].bits(), found[len + 1].bits()],
            [O::poison().bits(); 2],
            "written beside the output"
        );
        found[1..=len].to_vec()
    };
    let (first, second) = (once(), once());
    let bits = |values: &[O]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
    assert_eq!(bits(&first), bits(&second), "two runs differ");
    first
}

/// Results of all rows and all columns, together with their inputs.
fn both<T: TestNumber, O: TestNumber>(
    x: &Rows<T>,
    rows: impl Fn(&Stream, DeviceSlice2<'_, T>, DeviceSliceMut<'_, O>) -> Result<(), Error>,
    columns: impl Fn(&Stream, DeviceSlice2<'_, T>, DeviceSliceMut<'_, O>) -> Result<(), Error>,
) -> Vec<(Vec<T>, O)> {
    let of_rows = run(x.values.len(), |stream, out| rows(stream, x.view(), out).unwrap());
    let of_columns = run(x.values[0].len(), |stream, out| columns(stream, x.view(), out).unwrap());
    x.values.iter().cloned().zip(of_rows).chain(x.columns().into_iter().zip(of_columns)).collect()
}

/// Same as [`both`], with two operations given by name.
macro_rules! both {
    ($x:expr, $rows:ident, $columns:ident) => {
        both(&$x, |stream, x, out| ops::$rows(stream, x, out), |stream, x, out| ops::$columns(stream, x, out))
    };
}

fn sums<T: TestNumber + Float>()
where
    T::SumAccumulator: TestNumber,
{
    let (stream, mut random) = (stream(), Random::new());
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let place = PLACES[i % 3];
        let x = Rows::<T>::random(&stream, &mut random, shape, place);
        let what: &dyn Debug = &(shape, place, "seed", random.seed);
        let found = both!(x, sum_rows, sum_columns);
        let means = both!(x, mean_rows, mean_columns);
        for ((values, sum), (_, mean)) in found.iter().zip(&means) {
            let exact = exact_sum(values.iter().map(|value| value.to_f64()));
            let magnitude: f64 = values.iter().map(|value| value.to_f64().abs()).sum();
            let rounding = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
            let bound = 40.0 * rounding * magnitude;
            assert_close(*sum, exact, 1.0, bound, what);
            assert_close(*mean, exact / values.len() as f64, 1.0, bound / values.len() as f64, what);
        }
    }
}

#[test]
fn sums_and_means_of_floats_are_close() {
    for_types!(sums: f32, f64, f16, bf16);
}

#[test]
fn sums_and_products_of_integers_wrap() {
    macro_rules! of {
        ($($t:ty => $sum:ty),*) => { $( {
            let (stream, mut random) = (stream(), Random::new());
            for shape in SHAPES {
                let x = Rows::<$t>::random(&stream, &mut random, shape, PLACES[shape.0 % 3]);
                for (values, sum) in both!(x, sum_rows, sum_columns) {
                    let expected = values.iter().fold(0, |sum: $sum, v| sum.wrapping_add(<$sum>::from(*v)));
                    assert_eq!(sum, expected, "{shape:?}, seed {}", random.seed);
                }
                let odd = x.values.iter().map(|row| row.iter().map(|value| value | 1).collect()).collect();
                let x = Rows::<$t>::new(&stream, odd, x.place);
                for (values, product) in both!(x, prod_rows, prod_columns) {
                    let expected = values.iter().fold(1, |product: $sum, v| product.wrapping_mul(<$sum>::from(*v)));
                    assert_eq!(product, expected, "{shape:?}, seed {}", random.seed);
                }
            }
        } )* };
    }
    of!(i32 => i64, u32 => u64, i64 => i64, u64 => u64);
}

#[test]
fn products_of_floats_are_exact() {
    let (stream, mut random) = (stream(), Random::new());
    for shape in SHAPES {
        let row = |_| (0..shape.1).map(|_| [1.0f32, -1.0][random.below(2)]).collect();
        let mut x = Rows::new(&stream, (0..shape.0).map(row).collect(), PLACES[shape.1 % 3]);
        x.values[0][0] *= 8.0;
        let x = Rows::new(&stream, x.values, x.place);
        for (values, product) in both!(x, prod_rows, prod_columns) {
            assert_eq!(product, values.iter().product::<f32>(), "{shape:?}, seed {}", random.seed);
        }
    }
}

fn extremes<T: TestNumber>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, shape) in SHAPES.into_iter().enumerate() {
        let mut x = Rows::<T>::random(&stream, &mut random, shape, PLACES[i % 3]);
        // Adds ties to all rows and columns except the first.
        for row in x.values.iter_mut().skip(1) {
            let tie = [T::nearest(0.75), T::nearest(2.0)][i % 2];
            row.iter_mut().skip(1).for_each(|value| {
                if random.below(3) == 0 {
                    *value = tie;
                }
            });
        }
        let x = Rows::new(&stream, x.values, x.place);
        let smallest = both!(x, min_rows, min_columns);
        let largest = both!(x, max_rows, max_columns);
        let argmin = both!(x, argmin_rows, argmin_columns);
        let argmax = both!(x, argmax_rows, argmax_columns);
        for (i, (values, smallest)) in smallest.into_iter().enumerate() {
            let place = |better: fn(T, T) -> bool| {
                (1..values.len()).fold(0, |best, i| if better(values[i], values[best]) { i } else { best })
            };
            let (first_smallest, first_largest) = (place(|a, b| a < b), place(|a, b| a > b));
            let found = (smallest, largest[i].1, argmin[i].1, argmax[i].1);
            let expected =
                (values[first_smallest], values[first_largest], first_smallest as u64, first_largest as u64);
            assert_eq!(found, expected, "{shape:?}, result {i}, seed {}", random.seed);
        }
    }
}

#[test]
fn extremes_and_their_indices_are_exact() {
    for_types!(extremes: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn nan_wins_in_its_row_and_column() {
    let (stream, mut random) = (stream(), Random::new());
    for shape in [(3, 5), (40, 64), (7, 1025), (600, 33), (1, 70_001)] {
        let mut values: Vec<Vec<f32>> = (0..shape.0).map(|_| random.values(shape.1, 1.0)).collect();
        let (row, column) = (random.below(shape.0), random.below(shape.1));
        values[row][column] = f32::NAN;
        let x = Rows::new(&stream, values, (0, 0));
        let has_nan = |values: &[f32]| values.iter().any(|value| value.is_nan());
        for (values, smallest) in both!(x, min_rows, min_columns) {
            assert_eq!(smallest.is_nan(), has_nan(&values), "{shape:?}, seed {}", random.seed);
        }
        for (values, place) in both!(x, argmax_rows, argmax_columns) {
            let nan = values.iter().position(|value| value.is_nan());
            assert!(nan.is_none_or(|nan| nan as u64 == place), "{shape:?}, seed {}", random.seed);
        }
        for (values, sum) in both!(x, sum_rows, sum_columns) {
            assert_eq!(sum.is_nan(), has_nan(&values), "{shape:?}, seed {}", random.seed);
        }
    }
}

#[test]
fn segments_of_any_length_are_reduced() {
    let (stream, mut random) = (stream(), Random::new());
    for (segments, longest) in [(1, 10), (5, 3), (100, 40), (30, 1000), (4, 20_000), (1000, 2)] {
        let mut offsets = vec![random.below(5) as u64];
        for _ in 0..segments {
            offsets.push(offsets[offsets.len() - 1] + random.below(longest + 1) as u64);
        }
        let n = offsets[segments] as usize + random.below(5);
        let values: Vec<f32> = random.values(n, 1.0);
        let x = DeviceBuffer::from_host(&stream, &values).unwrap();
        let on_device = DeviceBuffer::from_host(&stream, &offsets).unwrap();
        let sums = run(segments, |stream, out| ops::sum_segments(stream, &x, &on_device, out).unwrap());
        let largest = run(segments, |stream, out| ops::max_segments(stream, &x, &on_device, out).unwrap());
        let places = run(segments, |stream, out| ops::argmin_segments(stream, &x, &on_device, out).unwrap());
        for (i, ends) in offsets.windows(2).enumerate() {
            let of_segment = &values[ends[0] as usize..ends[1] as usize];
            let exact = exact_sum(of_segment.iter().map(|&value| f64::from(value)));
            let what = (segments, longest, i, "seed", random.seed);
            assert_close(sums[i], exact, 1.0, 1e-5 * of_segment.len() as f64, &what);
            assert_eq!(largest[i], of_segment.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{what:?}");
            let smallest = of_segment.iter().enumerate().reduce(|a, b| if b.1 < a.1 { b } else { a });
            assert_eq!(places[i], smallest.map_or(u64::MAX, |(place, _)| place as u64), "{what:?}");
        }
    }
}

#[test]
fn wrong_offsets_are_named_and_nothing_written() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 3]).unwrap();
    for (offsets, position, offset, most) in
        [([0u64, 4, 3, 10], 1, 4, 3), ([0, 4, 5, 11], 3, 11, 10), ([12, 12, 12, 12], 0, 12, 10)]
    {
        let offsets = DeviceBuffer::from_host(&stream, &offsets).unwrap();
        let error = ops::sum_segments(&stream, &x, &offsets, &mut out).unwrap_err();
        let expected = OpError::Offset { operation: "sum_segments", position, offset, most };
        assert_eq!(error.downcast_ref(), Some(&expected));
    }
    let none = DeviceBuffer::<u64>::from_host(&stream, &[]).unwrap();
    let message = ops::sum_segments(&stream, &x, &none, &mut out).unwrap_err().to_string();
    assert!(message.contains("offsets is empty"), "{message}");
    assert_eq!(out.to_host().unwrap(), [7.0; 3]);
}

#[test]
fn outputs_of_another_length_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 5]).unwrap();
    let view = x.as_2d(3, 4).unwrap();
    let message = ops::sum_rows(&stream, view, &mut out).unwrap_err().to_string();
    assert_eq!(message, "sum_rows: out has 5 elements, but must have 3: one per row");
    let message = ops::max_columns(&stream, view, &mut out).unwrap_err().to_string();
    assert_eq!(message, "max_columns: out has 5 elements, but must have 4: one per column");
    assert_eq!(out.to_host().unwrap(), [7.0; 5]);
}

#[test]
fn empty_rows_have_a_sum_but_no_extreme() {
    let stream = stream();
    let none = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 3]).unwrap();
    let (no_columns, no_rows) = (none.as_2d(3, 0).unwrap(), none.as_2d(0, 3).unwrap());
    let error = ops::max_rows(&stream, no_columns, &mut out).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&OpError::Empty { operation: "max_rows" }));
    assert_eq!(out.to_host().unwrap(), [7.0; 3]);
    ops::sum_rows(&stream, no_columns, &mut out).unwrap();
    assert_eq!(out.to_host().unwrap(), [0.0; 3]);
    ops::prod_columns(&stream, no_rows, &mut out).unwrap();
    assert_eq!(out.to_host().unwrap(), [1.0; 3]);
    ops::mean_columns(&stream, no_rows, &mut out).unwrap();
    assert!(out.to_host().unwrap().iter().all(|mean| mean.is_nan()));
    ops::sum_rows(&stream, no_rows, out.slice_mut(..0)).unwrap();
}
