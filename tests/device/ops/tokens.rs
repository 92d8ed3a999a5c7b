//! Rotary embedding and SwiGLU compared with the host; invalid indices are named in the error.

use super::softmax::run;
use super::views::{PLACES, Rows};
use crate::common::{Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::OpError;
use warpsmith::ops::{self, Float, RotaryPairs, Scalar};
use warpsmith::prelude::*;

#[test]
fn indices_out_of_range_are_named_and_nothing_written() {
    let stream = stream();
    let table = DeviceBuffer::from_host(&stream, &[1.0f32; 20]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 12]).unwrap();
    let positions = DeviceBuffer::from_host(&stream, &[0u32, 1, 5, 6]).unwrap();
    let tables = (table.slice(..5).as_2d(5, 1).unwrap(), table.slice(5..10).as_2d(5, 1).unwrap());
    let (x, at, pairs) = (table.slice(..8), Some(positions.as_slice()), RotaryPairs::Halves);
    let target = out.slice_mut(..8);
    let mut target = target;
    let error =
        ops::rotary(&stream, x.as_2d(4, 2).unwrap(), at, tables, pairs, target.as_2d_mut(4, 2).unwrap());
    let expected = OpError::Index { operation: "rotary", name: "positions", position: 2, index: 5, bound: 5 };
    assert_eq!(error.unwrap_err().downcast_ref(), Some(&expected));
    assert_eq!(out.to_host().unwrap(), [7.0; 12]);
}

#[test]
fn views_that_do_not_fit_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 24]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 24]).unwrap();
    let message = |outcome: Result<(), Error>| outcome.unwrap_err().to_string();
    let view = x.as_2d(6, 4).unwrap();
    let text = message(ops::swiglu(&stream, view, x.as_2d(4, 6).unwrap(), out.as_2d_mut(6, 4).unwrap()));
    assert!(text.contains("gate has 6 rows of 4, but up has 4 rows of 6"), "{text}");
    let tables = (x.slice(..18).as_2d(6, 3).unwrap(), x.slice(6..).as_2d(6, 3).unwrap());
    let (none, pairs) = (None::<DeviceSlice<u32>>, RotaryPairs::Halves);
    let text = message(ops::rotary(&stream, view, none, tables, pairs, out.as_2d_mut(6, 4).unwrap()));
    assert!(text.contains("rows of 4 elements, but the row length must be a multiple of 6"), "{text}");
    let tables = (x.slice(..5).as_2d(5, 1).unwrap(), x.slice(..5).as_2d(5, 1).unwrap());
    let text = message(ops::rotary(&stream, view, none, tables, pairs, out.as_2d_mut(6, 4).unwrap()));
    assert!(text.contains("x has 6 rows, but cos has only 5 positions"), "{text}");
    let positions = DeviceBuffer::from_host(&stream, &[0u32; 5]).unwrap();
    let (at, tables) = (Some(positions.as_slice()), (view.part(.., ..1), view.part(.., ..1)));
    let text = message(ops::rotary(&stream, view, at, tables, pairs, out.as_2d_mut(6, 4).unwrap()));
    assert!(text.contains("positions has 5 elements, but must have 6"), "{text}");
    assert_eq!(out.to_host().unwrap(), [7.0; 24]);
}

fn gates<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in [(1, 1), (3, 33), (40, 64), (2, 1025), (1, 9000)].into_iter().enumerate() {
        let halves = Rows::<T>::random(&stream, &mut random, (sides.0, 2 * sides.1), PLACES[i % 3]);
        let (gate, up) = (halves.view().part(.., ..sides.1), halves.view().part(.., sides.1..));
        let found = run(sides, PLACES[i / 2], |stream, out| ops::swiglu::<T>(stream, gate, up, out).unwrap());
        for (row, found) in halves.values.iter().zip(found) {
            let (gate, up) = row.split_at(sides.1);
            for ((gate, up), found) in gate.iter().zip(up).zip(found) {
                let (gate, up) = (gate.to_f64(), up.to_f64());
                assert_close(
                    found,
                    gate / (1.0 + (-gate).exp()) * up,
                    8.0,
                    1e-7 * T::EPSILON,
                    &(sides, random.seed),
                );
            }
        }
    }
}

#[test]
fn swiglu_is_close_to_the_exact() {
    for_types!(gates: f32, f64, f16, bf16);
}

fn rotations<T: TestNumber + Float>()
where
    T::SumAccumulator: TestNumber,
{
    let (stream, mut random) = (stream(), Random::new());
    for (i, (rows, heads, half)) in [(1, 1, 1), (5, 2, 3), (33, 4, 32), (2, 40, 64)].into_iter().enumerate() {
        let sides = (rows, 2 * heads * half);
        let x = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let positions = rows + 3;
        let cos = Rows::<T::SumAccumulator>::random(&stream, &mut random, (positions, half), (0, 0));
        let sin = Rows::<T::SumAccumulator>::random(&stream, &mut random, (positions, half), (1, 0));
        let at: Vec<u32> = (0..rows).map(|_| random.below(positions) as u32).collect();
        let on_device = DeviceBuffer::from_host(&stream, &at).unwrap();
        for (has_positions, pairs) in
            [(true, RotaryPairs::Halves), (false, RotaryPairs::Halves), (true, RotaryPairs::Interleaved)]
        {
            let found = run(sides, PLACES[i % 3], |stream, out| {
                let at = has_positions.then(|| on_device.as_slice());
                ops::rotary::<T, u32>(stream, x.view(), at, (cos.view(), sin.view()), pairs, out).unwrap();
            });
            for (row, found) in found.into_iter().enumerate() {
                let position = if has_positions { at[row] as usize } else { row };
                for pair in 0..heads * half {
                    let (head, i) = (pair / half, pair % half);
                    let (first, second) = match pairs {
                        RotaryPairs::Halves => (2 * half * head + i, 2 * half * head + half + i),
                        RotaryPairs::Interleaved => (2 * pair, 2 * pair + 1),
                    };
                    let (a, b) = (x.values[row][first].to_f64(), x.values[row][second].to_f64());
                    let (cos, sin) = (cos.values[position][i].to_f64(), sin.values[position][i].to_f64());
                    let absolute = 4.0 * T::SumAccumulator::EPSILON;
                    assert_close(
                        found[first],
                        a * cos - b * sin,
                        1.0,
                        absolute,
                        &(sides, pairs, random.seed),
                    );
                    assert_close(
                        found[second],
                        a * sin + b * cos,
                        1.0,
                        absolute,
                        &(sides, pairs, random.seed),
                    );
                }
            }
        }
    }
}

#[test]
fn pairs_of_each_head_are_rotated() {
    for_types!(rotations: f32, f64, f16, bf16);
}
