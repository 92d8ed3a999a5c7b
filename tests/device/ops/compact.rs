//! Compaction of every type compared with host filters: odd lengths, unaligned arrays, none and all selected, NaN.

use crate::common::{LENGTHS, Padded, Random, TestNumber, for_types, stream};
use half::{bf16, f16};
use warpsmith::gpu_std::Checked;
use warpsmith::ops::{self, Comparison, Config};
use warpsmith::prelude::*;

type Predicate = fn(f64, f64) -> bool;

const COMPARISONS: [(Comparison, Predicate); 6] = [
    (Comparison::Less, |a, b| a < b),
    (Comparison::LessOrEqual, |a, b| a <= b),
    (Comparison::Greater, |a, b| a > b),
    (Comparison::GreaterOrEqual, |a, b| a >= b),
    (Comparison::Equal, |a, b| a == b),
    (Comparison::NotEqual, |a, b| a != b),
];

/// Small numbers, some of them repeated; with NaN if the type has one.
fn values<T: TestNumber>(random: &mut Random, n: usize) -> Vec<T> {
    let nan = T::nearest(f64::NAN);
    let is_float = nan.to_f64().is_nan();
    (0..n)
        .map(|_| if is_float && random.below(9) == 0 { nan } else { T::nearest(random.below(5) as f64) })
        .collect()
}

/// Returns the values that were written, and checks that nothing after them was written.
#[track_caller]
fn begin<T: TestNumber>(out: &Padded<T>, count: usize) -> Vec<u64> {
    let all: Vec<u64> = out.read().into_iter().map(TestNumber::bits).collect();
    assert!(all[count..].iter().all(|&bits| bits == T::poison().bits()), "written beyond {count}");
    all[..count].to_vec()
}

fn compared<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        let (comparison, holds) = COMPARISONS[(round + random.below(2)) % COMPARISONS.len()];
        let with = T::nearest([2.0, 2.0, 0.0, 9.0][round % 4]);
        let x: Vec<T> = values(&mut random, n);
        let (kept, others): (Vec<T>, Vec<T>) =
            x.iter().copied().partition(|value| holds(value.to_f64(), with.to_f64()));
        let [kept, others] =
            [kept, others].map(|of| of.into_iter().map(TestNumber::bits).collect::<Vec<u64>>());
        let input = Padded::new(&stream, round % 4, &x);
        let [mut selected, mut rejected] = [0, 1].map(|offset| Padded::<T>::poisoned(&stream, offset, n));
        let mut count = DeviceBuffer::from_host(&stream, &[u64::MAX]).unwrap();
        let what = (comparison, with, n, "seed", random.seed);
        ops::select_if(&stream, comparison, with, input.get(), selected.get_mut(), &mut count).unwrap();
        assert_eq!(count.to_host().unwrap(), [kept.len() as u64], "{what:?}");
        assert_eq!(begin(&selected, kept.len()), kept, "{what:?}");
        let mut selected = Padded::<T>::poisoned(&stream, 3, n);
        ops::partition_if(
            &stream,
            comparison,
            with,
            input.get(),
            selected.get_mut(),
            rejected.get_mut(),
            &mut count,
        )
        .unwrap();
        assert_eq!(count.to_host().unwrap(), [kept.len() as u64], "{what:?}");
        assert_eq!(begin(&selected, kept.len()), kept, "{what:?}");
        assert_eq!(begin(&rejected, others.len()), others, "{what:?}");
    }
}

#[test]
fn comparisons_select_and_partition() {
    for_types!(compared: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn flags_select_and_partition() {
    macro_rules! of {
        ($($t:ty),*) => { $( {
            let stream = stream();
            let mut random = Random::new();
            for (round, n) in LENGTHS.into_iter().enumerate() {
                let x: Vec<$t> = (0..n).map(|_| random.bits() as $t).collect();
                // Offset of the flags from an aligned address, and the density of set flags.
                let (offset, of_eight) = (round % 3, round % 9);
                let flags: Vec<bool> = (0..offset + n).map(|_| random.below(8) < of_eight).collect();
                let device_flags = DeviceBuffer::from_host(&stream, Checked::from_slice(&flags)).unwrap();
                let input = DeviceBuffer::from_host(&stream, &x).unwrap();
                let expected = |kept: bool| -> Vec<$t> {
                    x.iter().zip(&flags[offset..]).filter(|(_, flag)| **flag == kept).map(|(x, _)| *x).collect()
                };
                let (kept, others) = (expected(true), expected(false));
                let mut selected = DeviceBuffer::from_host(&stream, &vec![77 as $t; n]).unwrap();
                let mut rejected = DeviceBuffer::from_host(&stream, &vec![77 as $t; n]).unwrap();
                let mut count = DeviceBuffer::zeros(&stream, 1).unwrap();
                let what = (stringify!($t), n, offset, of_eight, "seed", random.seed);
                let flags = || device_flags.slice(offset..);
                ops::select_flagged(&stream, &input, flags(), &mut selected, &mut count).unwrap();
                assert_eq!(count.to_host().unwrap(), [kept.len() as u64], "{what:?}");
                let found = selected.to_host().unwrap();
                assert_eq!(found[..kept.len()], kept[..], "{what:?}");
                assert!(found[kept.len()..].iter().all(|&x| x == 77 as $t), "{what:?}");
                ops::partition_flagged(&stream, &input, flags(), &mut selected, &mut rejected, &mut count).unwrap();
                assert_eq!(selected.to_host().unwrap()[..kept.len()], kept[..], "{what:?}");
                assert_eq!(rejected.to_host().unwrap()[..others.len()], others[..], "{what:?}");
            }
        } )* };
    }
    of!(u8, i16, u32, i64);
}

fn runs_of<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        let longest = 1 + [1, 3, 700][round % 3];
        let mut x: Vec<T> = Vec::new();
        while x.len() < n {
            let value: T = values(&mut random, 1)[0];
            x.extend(std::iter::repeat_n(value, 1 + random.below(longest)));
        }
        x.truncate(n);
        let (mut values, mut lengths): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (i, value) in x.iter().enumerate() {
            if i > 0 && x[i - 1] == *value {
                *lengths.last_mut().unwrap() += 1;
            } else {
                values.push(value.bits());
                lengths.push(1);
            }
        }
        let input = Padded::new(&stream, round % 4, &x);
        let mut selected = Padded::<T>::poisoned(&stream, 1, n);
        let mut count = DeviceBuffer::from_host(&stream, &[u64::MAX]).unwrap();
        let what = (n, longest, "seed", random.seed);
        ops::unique(&stream, input.get(), selected.get_mut(), &mut count).unwrap();
        assert_eq!(count.to_host().unwrap(), [values.len() as u64], "{what:?}");
        assert_eq!(begin(&selected, values.len()), values, "{what:?}");
        let mut selected = Padded::<T>::poisoned(&stream, 0, n);
        let mut found = Padded::<u64>::poisoned(&stream, 1, n);
        ops::run_lengths(&stream, input.get(), selected.get_mut(), found.get_mut(), &mut count).unwrap();
        assert_eq!(count.to_host().unwrap(), [values.len() as u64], "{what:?}");
        assert_eq!(begin(&selected, values.len()), values, "{what:?}");
        assert_eq!(begin(&found, lengths.len()), lengths, "{what:?}");
    }
}

#[test]
fn runs_are_found_with_their_lengths() {
    for_types!(runs_of: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn every_configuration_selects_the_same() {
    let stream = stream();
    let mut random = Random::new();
    let x: Vec<u32> = random.values(50_021, 1.0);
    let expected: Vec<u32> = x.iter().copied().filter(|&x| x >= 1 << 31).collect();
    let input = DeviceBuffer::from_host(&stream, &x).unwrap();
    for block in [32, 160, 256] {
        for grid in ["blocks:1", "blocks:7", "auto", "waves:2"] {
            let config = Config { block, grid: grid.parse().unwrap(), items: 5, vector: 16 };
            let mut out = DeviceBuffer::zeros(&stream, x.len()).unwrap();
            let mut count = DeviceBuffer::zeros(&stream, 1).unwrap();
            let at_least = Comparison::GreaterOrEqual;
            ops::with_config(config, || {
                ops::select_if(&stream, at_least, 1 << 31, &input, &mut out, &mut count)
            })
            .unwrap();
            assert_eq!(count.to_host().unwrap()[0], expected.len() as u64, "{config}");
            assert_eq!(out.to_host().unwrap()[..expected.len()], expected, "{config}");
        }
    }
}

#[test]
fn outputs_that_do_not_fit_stay_as_they_are() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1i32; 10]).unwrap();
    let mut short = DeviceBuffer::from_host(&stream, &[7i32; 9]).unwrap();
    let mut whole = DeviceBuffer::from_host(&stream, &[7i32; 10]).unwrap();
    let mut count = DeviceBuffer::from_host(&stream, &[7u64; 2]).unwrap();
    let flags = DeviceBuffer::from_host(&stream, Checked::from_slice(&[true; 8])).unwrap();
    let errors = [
        ops::select_if(&stream, Comparison::Equal, 1, &x, &mut short, count.slice_mut(..1)),
        ops::select_if(&stream, Comparison::Equal, 1, &x, &mut whole, &mut count),
        ops::partition_if(&stream, Comparison::Equal, 1, &x, &mut whole, &mut short, count.slice_mut(..1)),
        ops::select_flagged(&stream, &x, &flags, &mut whole, count.slice_mut(..1)),
        ops::unique(&stream, &x, &mut short, count.slice_mut(..1)),
    ];
    let words = [
        ["selected has 9", "x has 10"],
        ["count has 2", "1"],
        ["rejected has 9", "10"],
        ["flags has 8", "10"],
        ["unique", "9"],
    ];
    for (error, words) in errors.into_iter().zip(words) {
        let text = error.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} are not in: {text}");
    }
    assert_eq!((short.to_host().unwrap(), whole.to_host().unwrap()), (vec![7; 9], vec![7; 10]));
    assert_eq!(count.to_host().unwrap(), [7; 2]);
}
