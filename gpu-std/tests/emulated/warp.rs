//! Shuffles, votes, matches and reductions, compared with their definitions for random values and masks.

use crate::common::{Args, launch, launch_shared, random, randoms};
use gpu_std::prelude::*;
use gpu_std::{Kernel, warp};

/// Computes the results of one lane; only lanes in `mask` take part.
#[kernel(types(T = i32, u64, f32, f64, f16, u8))]
fn shuffles<T: Scalar>(mask: u32, operand: u32, width: u32, input: &[T], mut out: DisjointMut<[T; 8]>) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    let value = input[lane as usize];
    let results = [
        warp::shuffle(mask, value, operand),
        warp::shuffle_up(mask, value, operand),
        warp::shuffle_down(mask, value, operand),
        warp::shuffle_xor(mask, value, operand),
        warp::shuffle_width(mask, value, operand, width),
        warp::shuffle_up_width(mask, value, operand, width),
        warp::shuffle_down_width(mask, value, operand, width),
        warp::shuffle_xor_width(mask, value, operand, width),
    ];
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = results;
    }
}

/// Returns the lane that `lane` reads from, by the tables of the PTX manual (section shfl.sync).
fn source(operation: usize, lane: u32, operand: u32, width: u32) -> u32 {
    let first = lane / width * width;
    let last = first + width - 1;
    let (j, valid) = match operation {
        0 => (first + operand % width, true),
        1 => (lane.wrapping_sub(operand), lane >= operand && lane - operand >= first),
        2 => (lane + operand, lane + operand <= last),
        _ => (lane ^ operand, lane ^ operand <= last),
    };
    if valid { j } else { lane }
}

fn check_shuffles<K: Kernel, T: Scalar>() {
    for _ in 0..30 {
        let mask = if random().is_multiple_of(2) { u32::MAX } else { random() as u32 | 1 };
        let (operand, width) = (random() as u32 % 32, 1 << (random() % 6));
        let input: Vec<T> = randoms(32)
            .into_iter()
            .map(|bits| bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..T::SIZE]))
            .collect();
        let mut out = vec![[T::ZERO; 8]; 32];
        let args = Args::new().value(mask).value(operand).value(width).slice(&input).view(&mut out);
        launch::<K>([1, 1, 1], [32, 1, 1], &args);
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            for (operation, &found) in out[lane as usize].iter().enumerate() {
                let width = if operation < 4 { 32 } else { width };
                let source = source(operation % 4, lane, operand, width);
                if mask >> source & 1 == 1 {
                    assert_eq!(
                        bytemuck::bytes_of(&found),
                        bytemuck::bytes_of(&input[source as usize]),
                        "operation {operation} operand {operand} width {width} lane {lane} of {mask:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn shuffles_read_the_right_lane() {
    check_shuffles::<shuffles<i32>, i32>();
    check_shuffles::<shuffles<u64>, u64>();
    check_shuffles::<shuffles<f32>, f32>();
    check_shuffles::<shuffles<f64>, f64>();
    check_shuffles::<shuffles<f16>, f16>();
    check_shuffles::<shuffles<u8>, u8>();
}

#[kernel]
fn votes(mask: u32, predicates: u32, values: &[u64], mut out: DisjointMut<[u32; 8]>) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    let (predicate, value) = (predicates >> lane & 1 == 1, values[lane as usize]);
    let results = [
        warp::all(mask, predicate) as u32,
        warp::any(mask, predicate) as u32,
        warp::ballot(mask, predicate),
        warp::match_any(mask, value),
        warp::match_any(mask, value as u32 as f32),
        warp::match_all(mask, value) as u32,
        warp::match_all(mask, mask) as u32,
        warp::elect(mask) as u32,
    ];
    warp::sync_warp(mask);
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = results;
    }
}

#[test]
fn votes_and_matches() {
    for round in 0..60 {
        let mask = if round % 3 == 0 { u32::MAX } else { random() as u32 | 1 << (random() % 32) };
        let predicates = [0, u32::MAX, mask, random() as u32][round % 4];
        // Uses few distinct values, some of which differ only in the high half.
        let kinds = 1 + random() % 3;
        let values: Vec<u64> =
            randoms(32).into_iter().map(|r| r % kinds + (((r >> 32) % kinds) << 40)).collect();
        let mut out = vec![[0; 8]; 32];
        let args = Args::new().value(mask).value(predicates).slice(&values).view(&mut out);
        launch::<votes>([1, 1, 1], [32, 1, 1], &args);
        let lanes: Vec<u32> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
        let same = |lane: u32, key: fn(u64) -> u64| {
            let own = key(values[lane as usize]);
            lanes.iter().filter(|&&l| key(values[l as usize]) == own).fold(0, |found, l| found | 1 << l)
        };
        for &lane in &lanes {
            let expected = [
                (predicates & mask == mask) as u32,
                (predicates & mask != 0) as u32,
                predicates & mask,
                same(lane, |v| v),
                same(lane, |v| v & u32::MAX as u64),
                (same(lane, |v| v) == mask) as u32,
                1,
                (lane == lanes[0]) as u32,
            ];
            assert_eq!(out[lane as usize], expected, "lane {lane} of {mask:#x}");
        }
    }
}

#[kernel(types(T = i32, u32, i64, u64))]
fn reduce_integers<T>(mask: u32, input: &[T], mut out: DisjointMut<[T; 6]>)
where
    T: Scalar + core::ops::BitAnd<Output = T> + core::ops::BitOr<Output = T> + core::ops::BitXor<Output = T>,
{
    let lane = warp::lane_id();
    if mask >> lane & 1 == 1 {
        let value = input[lane as usize];
        let results = [
            warp::reduce_add(mask, value),
            warp::reduce_min(mask, value),
            warp::reduce_max(mask, value),
            warp::reduce_and(mask, value),
            warp::reduce_or(mask, value),
            warp::reduce_xor(mask, value),
        ];
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = results;
        }
    }
}

macro_rules! check_integers {
    ($($t:ty),*) => { $(
        for round in 0..20 {
            let mask = if round % 2 == 0 { u32::MAX } else { random() as u32 | 1 << (random() % 32) };
            let input: Vec<$t> = randoms(32).into_iter().map(|bits| bits as $t).collect();
            let mut out = vec![[0; 6]; 32];
            launch::<reduce_integers<$t>>([1, 1, 1], [32, 1, 1], &Args::new().value(mask).slice(&input).view(&mut out));
            let members = || (0..32).filter(|lane| mask >> lane & 1 == 1).map(|lane| input[lane as usize]);
            let expected = [
                members().fold(0, <$t>::wrapping_add),
                members().min().expect("one lane at least"),
                members().max().expect("one lane at least"),
                members().fold(!0, |a, b| a & b),
                members().fold(0, |a, b| a | b),
                members().fold(0, |a, b| a ^ b),
            ];
            for lane in 0..32 {
                let expected = if mask >> lane & 1 == 1 { expected } else { [0; 6] };
                assert_eq!(out[lane], expected, "{} lane {lane} of {mask:#x}", stringify!($t));
            }
        }
    )* };
}

#[test]
fn integers_are_reduced() {
    check_integers!(i32, u32, i64, u64);
}

#[kernel(types(T = f32, f64, f16, bf16))]
fn reduce_floats<T: Scalar>(mask: u32, input: &[T], mut out: DisjointMut<[T; 3]>) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 1 {
        let value = input[lane as usize];
        let results =
            [warp::reduce_add(mask, value), warp::reduce_min(mask, value), warp::reduce_max(mask, value)];
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = results;
        }
    }
}

fn check_floats<K: Kernel, T: Scalar>(tolerance: f64) {
    for round in 0..20 {
        let mask = if round % 2 == 0 { u32::MAX } else { random() as u32 | 1 << (random() % 32) };
        let mut input: Vec<T> = crate::common::floats(32).into_iter().map(|x| x.cast::<T>()).collect();
        let with_nan = round % 5 == 0;
        if with_nan {
            input[mask.trailing_zeros() as usize] = f32::NAN.cast::<T>();
        }
        let mut out = vec![[T::ZERO; 3]; 32];
        launch::<K>([1, 1, 1], [32, 1, 1], &Args::new().value(mask).slice(&input).view(&mut out));
        let members: Vec<f64> = (0..32)
            .filter(|lane| mask >> lane & 1 == 1)
            .map(|lane| input[lane as usize].cast::<f64>())
            .collect();
        let first = out[mask.trailing_zeros() as usize].map(|x| x.cast::<f64>());
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            let own = out[lane as usize].map(|x| x.cast::<f64>().to_bits());
            assert_eq!(own, first.map(f64::to_bits), "all lanes have the same bits");
        }
        if with_nan {
            assert!(first.iter().all(|x| x.is_nan()), "{first:?}");
        } else {
            let sum: f64 = members.iter().sum();
            assert!((first[0] - sum).abs() <= tolerance * members.iter().map(|x| x.abs()).sum::<f64>());
            assert_eq!(first[1], members.iter().copied().fold(f64::INFINITY, f64::min));
            assert_eq!(first[2], members.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
    }
}

#[test]
fn floats_are_reduced() {
    check_floats::<reduce_floats<f32>, f32>(1e-6);
    check_floats::<reduce_floats<f64>, f64>(1e-14);
    check_floats::<reduce_floats<f16>, f16>(0.02);
    check_floats::<reduce_floats<bf16>, bf16>(0.15);
}

#[kernel]
fn bad_width(width: u32) {
    warp::shuffle_width(warp::FULL_MASK, 0, 0, width);
}

#[test]
fn a_width_not_power_of_two_panics() {
    for width in [0, 3, 33, 64] {
        let fault =
            launch_shared::<bad_width>([1, 1, 1], [32, 1, 1], 0, &Args::new().value(width)).unwrap_err();
        assert!(fault.message().contains("the width of a shuffle must be a power of two"), "{fault}");
    }
}
