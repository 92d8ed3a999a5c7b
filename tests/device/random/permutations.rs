//! Permutations: for every length, and with equal frequency for few elements.

use std::collections::HashMap;

use warpsmith::IMAGE;
use warpsmith::gpu_std::random::Philox;
use warpsmith::kernels::random::{permutation, permuted_at, sides};
use warpsmith::ops::Integer;
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use crate::common::{Padded, TestNumber, device, stream};

fn check<T: TestNumber + Integer>(number: impl Fn(T) -> u64) {
    let stream = stream();
    let generator = Generator::new(&device());
    for n in [0, 1, 2, 3, 4, 5, 31, 33, 255, 256, 257, 1000, 4097, (1 << 16) + 1] {
        for start in [0, 1, 3] {
            generator.manual_seed(n as u64).unwrap();
            let mut out = Padded::<T>::poisoned(&stream, start, n);
            random::permutation(&stream, &generator, out.get_mut()).unwrap();
            let found: Vec<u64> = out.read().into_iter().map(&number).collect();
            let mut sorted = found.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..n as u64), "{n} elements from {start}");
            assert_eq!(generator.offset().unwrap(), if n == 0 { 0 } else { 4 });
            // Same as on the host, at every alignment.
            let (key, (a, b)) = (Philox::new(n as u64, 0, 0).next4(), sides(n as u64).unwrap());
            let expected = (0..n as u64).map(|i| permuted_at(key, [a, b], n as u64, i));
            assert!(found.into_iter().eq(expected), "{n} elements from {start}");
        }
    }
}

#[test]
fn permutations_have_each_element_once() {
    check::<u32>(u64::from);
    check::<i32>(|x| x as u64);
    check::<u64>(|x| x);
    check::<i64>(|x| x as u64);
}

#[test]
fn each_permutation_differs_from_the_last() {
    let stream = stream();
    let generator = Generator::new(&device());
    let draw = || {
        let mut out = DeviceBuffer::<u32>::uninit(&stream, 1000).unwrap();
        random::permutation(&stream, &generator, &mut out).unwrap();
        out.to_host().unwrap()
    };
    let (first, second) = (draw(), draw());
    let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
    assert!(same < 10, "{same} of 1000 in the same place, where 1 is to be expected");
}

#[test]
fn sides_of_another_length_write_nothing() {
    let stream = stream();
    let kernel = device().load(&IMAGE).unwrap().kernel::<permutation<u32, 1, 16>>().unwrap();
    let base = DeviceBuffer::<u64>::uninit(&stream, 0).unwrap();
    let written = |(a, b)| {
        let mut out = DeviceBuffer::from_host(&stream, &[u32::MAX; 10]).unwrap();
        kernel.launch(&stream, Launch::auto(10), (1, 0, &base, a, b, &mut out)).unwrap();
        out.to_host().unwrap() != [u32::MAX; 10]
    };
    assert!(written(sides(10).unwrap()));
    // Too few pairs, and too many pairs, almost none of which are among the ten elements.
    for sides in [(0, 0), (3, 3), (5, 0), (4, 4), (u32::MAX, u32::MAX)] {
        assert!(!written(sides), "{sides:?}");
    }
}

/// Permutation of `n` elements for a seed.
fn of_seed(n: u64, seed: u64) -> Vec<u64> {
    let (key, (a, b)) = (Philox::new(seed, 0, 0).next4(), sides(n).unwrap());
    (0..n).map(|i| permuted_at(key, [a, b], n, i)).collect()
}

#[test]
fn permutations_of_few_elements_are_all_as_frequent() {
    // χ² with this number of degrees of freedom exceeds these bounds with a probability of 10⁻⁴.
    for (n, orders, most) in
        [(2, 2, 15.2), (3, 6, 25.8), (4, 24, 54.0), (5, 120, 184.0), (6, 720, 868.0), (7, 5040, 5420.0)]
    {
        let mut counts = HashMap::new();
        let draws = 100 * orders;
        for seed in 0..draws {
            *counts.entry(of_seed(n, seed)).or_insert(0) += 1;
        }
        assert_eq!(counts.len() as u64, orders, "every order of {n} elements comes up");
        let chi_squared: f64 = counts.values().map(|&count| f64::from(count - 100).powi(2) / 100.0).sum();
        assert!(chi_squared < most, "{n} elements: {chi_squared}");
    }
}

#[test]
fn elements_are_placed_uniformly_and_independently() {
    for n in [16, 37, 100] {
        let draws = 100 * n;
        let mut at = vec![0u32; (n * n) as usize];
        let mut step = vec![0u32; n as usize];
        for seed in 0..draws {
            let order = of_seed(n, seed);
            for (place, element) in order.iter().enumerate() {
                at[place * n as usize + *element as usize] += 1;
            }
            order.windows(2).for_each(|pair| step[((pair[1] + n - pair[0]) % n) as usize] += 1);
        }
        // The variance of χ² is twice its degrees of freedom; the bound is five standard deviations.
        let freedom = ((n - 1) * (n - 1)) as f64;
        let chi_squared: f64 = at.iter().map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0).sum();
        assert!(
            (chi_squared - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(),
            "{n}: {chi_squared} of {freedom}"
        );
        assert_eq!(step[0], 0);
        let expected = draws as f64;
        let freedom = (n - 2) as f64;
        let chi_squared: f64 =
            step[1..].iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        assert!(chi_squared < freedom + 6.0 * (2.0 * freedom).sqrt(), "{n}: {chi_squared} of {freedom}");
    }
}

#[test]
fn sides_hold_all_elements_and_hardly_more() {
    for n in [0, 1, 2, 3, 5, 1 << 16, (1 << 32) - 1, 1 << 32, (1 << 33) + 7, (1 << 62) + 1, 1 << 63] {
        let (a, b) = sides(n).unwrap();
        let all = u128::from(a) * u128::from(b);
        assert!(all >= u128::from(n) && all <= u128::from(n) + u128::from(a), "{n}: {a} by {b}");
    }
    for n in 2..100_000 {
        let (a, b) = sides(n).unwrap();
        assert!(
            (a * b).is_multiple_of(2) && u64::from(a * b) >= n && u64::from(a * b) < n + u64::from(a),
            "{n}"
        );
    }
    assert_eq!(sides((1 << 63) + 1), None);
    // Elements of a permutation that is too large to store.
    let (n, sides) = ((1 << 40) + 5, sides((1 << 40) + 5).unwrap().into());
    let mut found: Vec<u64> = (0..10_000).map(|i| permuted_at([1, 2, 3, 4], sides, n, i << 26)).collect();
    found.sort_unstable();
    found.dedup();
    assert!(found.len() == 10_000 && found[9999] < n && found[9000] > n / 2);
}
