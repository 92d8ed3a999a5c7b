//! Moments and frequencies for fixed seeds, compared with the known deviations of a correct generator.

use half::bf16;
use warpsmith::gpu_std::random::{Philox, uniform};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use super::model::filled;
use crate::common::{Padded, device, stream};

const N: usize = 200_000;

fn generator(seed: u64) -> Generator {
    let generator = Generator::new(&device());
    generator.manual_seed(seed).unwrap();
    generator
}

/// Fails unless counts are consistent with equal probabilities. χ² with 255 degrees of freedom is above 340 with a
/// probability of 3·10⁻⁴.
fn assert_even(values: impl Iterator<Item = f64>, what: &str) {
    let mut counts = [0u32; 256];
    let mut all = 0;
    for value in values {
        counts[(value * 256.0) as usize] += 1;
        all += 1;
    }
    let expected = f64::from(all) / 256.0;
    let chi_squared: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    assert!((170.0..340.0).contains(&chi_squared), "{what}: {chi_squared}");
}

#[test]
fn exponential_numbers_have_their_rates_mean() {
    let stream = stream();
    let x: Vec<f32> = filled(&stream, N, |out| random::exponential(&stream, &generator(9), 4.0, out));
    assert!(x.iter().all(|&x| x > 0.0));
    assert_even(x.iter().map(|&x| 1.0 - (-4.0 * f64::from(x)).exp()), "f32");
    let x: Vec<f64> = filled(&stream, N, |out| random::exponential(&stream, &generator(10), 0.5, out));
    assert!(x.iter().all(|&x| x > 0.0));
    assert_even(x.iter().map(|&x| 1.0 - (-0.5 * x).exp()), "f64");
    let x: Vec<bf16> = filled(&stream, N, |out| random::exponential(&stream, &generator(11), 1.0, out));
    assert!(x.into_iter().all(|x| x > bf16::ZERO));
}

#[test]
fn dropout_keeps_and_scales_what_the_mask_says() {
    let stream = stream();
    for (case, n) in [0, 1, 3, 4, 5, 1023, 4096, 40_001].into_iter().enumerate() {
        for (p, start) in [(0.5, 0), (0.1, case % 4), (0.0, 1), (1.0, 0), (0.3, 8)] {
            let generator = generator(13);
            generator.set_offset(24).unwrap();
            let mut values: Vec<f32> = (0..n).map(|i| i as f32 - 7.0).collect();
            values.iter_mut().skip(2).step_by(7).for_each(|value| *value = f32::NAN);
            let x = Padded::new(&stream, start, &values);
            let mut y = Padded::<f32>::poisoned(&stream, start, n);
            let mut mask = DeviceBuffer::<u8>::uninit(&stream, n + 1).unwrap();
            random::dropout(
                &stream,
                &generator,
                x.get(),
                p,
                y.get_mut(),
                mask.slice_mut(case % 2..n + case % 2),
            )
            .unwrap();
            let mask = mask.to_host().unwrap()[case % 2..n + case % 2].to_vec();
            for (i, (found, kept)) in y.read().into_iter().zip(mask).enumerate() {
                let word = Philox::new(13, (i / 4) as u64, 24).next4()[i % 4];
                assert_eq!(
                    kept == 1,
                    f64::from(uniform(word)) < 1.0 - p || p == 0.0,
                    "element {i} of {n}, {p}"
                );
                let scale = (1.0 / (1.0 - p)) as f32;
                let expected = if kept == 1 { values[i] * scale } else { 0.0 };
                let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                assert!(same, "element {i} of {n}, {p}: {found} instead of {expected}");
            }
            assert_eq!(generator.offset().unwrap(), if n == 0 { 24 } else { 28 });
        }
    }
}
