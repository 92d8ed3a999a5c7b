//! Element types, and input values for measuring and checking kernels.
//!
//! Values depend only on the seed and the index, so they can be generated in parallel. Every value is exactly
//! representable in its type. The exact result of sums and products of these values is the same in every order of
//! evaluation. Therefore, even a single element that a kernel skips or counts twice is detected, which a bound on
//! rounding errors could not guarantee. Data for minima and maxima contains each extreme value at two indices; a kernel
//! that searches for an index must return the first.

use gpu_std::scalar::Scalar;
use rayon::prelude::*;

/// Number of elements that one task generates or checks.
pub const CHUNK: usize = 1 << 16;

/// Returns the initial contents of an output, which no kernel writes: NaN, or bytes of 0xA5.
pub fn poison<T: Scalar>() -> T {
    match T::EPSILON > 0.0 {
        true => f64::NAN.cast(),
        false => bytemuck::pod_read_unaligned(&[0xA5; 8][..size_of::<T>()]),
    }
}

/// Kinds of input values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Values from -4 to 4 (for integers, from -100 to 100; for unsigned types, from 0) in steps that the type can
    /// represent.
    Spread,
    /// Small whole numbers around 0 (for unsigned types, 0 and 1). The sum of 2^32 of them is exact.
    Whole,
    /// 1 and -1 (for unsigned types, only 1), and the value 2 at most eight times. Their products are exact.
    Factors,
    /// Like [`Values::Spread`], but with the same maximum at two indices and the same minimum at two other indices.
    Extremes,
}

/// Generates `n` values of the kind `values`.
pub fn generate<T: Scalar>(values: Values, seed: u64, n: usize) -> Vec<T> {
    let mut data = vec![T::zeroed(); n];
    let stride = n.div_ceil(8).max(1);
    let marked = hash(seed, u64::MAX) as usize % stride;
    data.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
        let start = chunk * CHUNK;
        for (offset, value) in part.iter_mut().enumerate() {
            let index = start + offset;
            let random = hash(seed, index as u64);
            *value = match values {
                Values::Spread | Values::Extremes => spread(random),
                Values::Whole if T::IS_SIGNED => T::from_f64((random % 5) as f64 - 2.0),
                Values::Whole => T::from_f64((random & 1) as f64),
                Values::Factors if index % stride == marked => T::from_f64(2.0),
                Values::Factors if T::IS_SIGNED && random & 1 == 1 => T::from_f64(-1.0),
                Values::Factors => T::from_f64(1.0),
            };
        }
    });
    if values == Values::Extremes && n > 0 {
        for (which, value) in [(0, 120.0), (2, if T::IS_SIGNED { -120.0 } else { 0.0 })] {
            for copy in 0..2 {
                data[hash(seed, u64::MAX - 1 - which - copy) as usize % n] = T::from_f64(value);
            }
        }
    }
    data
}

fn spread<T: Scalar>(random: u64) -> T {
    let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
    match (T::EPSILON > 0.0, T::IS_SIGNED) {
        (true, _) => T::from_f64(unit * 8.0 - 4.0),
        (false, true) => T::from_f64((unit * 201.0).floor() - 100.0),
        (false, false) => T::from_f64((unit * 100.0).floor() + 1.0),
    }
}

/// Computes the hash of an index (the finalizer of SplitMix64).
fn hash(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    fn seed() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    }

    #[test]
    fn data_depends_on_seed_and_index_only() {
        let seed = seed();
        let long: Vec<f32> = generate(Values::Spread, seed, CHUNK + 33);
        let short: Vec<f32> = generate(Values::Spread, seed, CHUNK - 1);
        assert_eq!(long[..CHUNK - 1], short[..]);
        assert_ne!(long, generate::<f32>(Values::Spread, seed + 1, CHUNK + 33));
        let mean = long.iter().map(|&v| v as f64).sum::<f64>() / long.len() as f64;
        assert!(mean.abs() < 0.1, "{mean}");
    }

    #[test]
    fn sums_and_products_are_exact_in_any_order() {
        let seed = seed();
        let values: Vec<f32> = generate(Values::Whole, seed, 100_003);
        let forward: f32 = values.iter().sum();
        let backward: f32 = values.iter().rev().sum();
        let reference: f64 = values.iter().map(|&v| v as f64).sum();
        assert_eq!((forward as f64, backward as f64), (reference, reference));
        for n in [1, 2, 9, 31, 33, 100_003] {
            let values: Vec<f16> = generate(Values::Factors, seed, n);
            let product: f32 = values.iter().map(|v| v.to_f32()).product();
            assert!((1.0..=256.0).contains(&product.abs()), "{n}: {product}");
        }
        let values: Vec<u32> = generate(Values::Whole, seed, 1000);
        assert!(values.iter().all(|&v| v <= 1) && values.contains(&1));
    }

    #[test]
    fn extremes_are_seeded() {
        for n in [1, 2, 33, 70_001] {
            let values: Vec<i32> = generate(Values::Extremes, seed(), n);
            let (low, high) = (values.iter().min().unwrap(), values.iter().max().unwrap());
            assert!(*high == 120 || *low == -120, "{n}: {low} {high}");
        }
        let values: Vec<u64> = generate(Values::Extremes, seed(), 5000);
        assert_eq!((values.iter().min(), values.iter().max()), (Some(&0), Some(&120)));
    }

    #[test]
    fn every_type_converts_exactly() {
        fn check<T: Scalar>() {
            for value in generate::<T>(Values::Spread, seed(), 1000) {
                assert!(T::from_f64(value.cast()) == value);
            }
        }
        check::<f32>();
        check::<f16>();
        check::<bf16>();
        check::<i32>();
        check::<u64>();
        assert_eq!(<bf16 as Scalar>::EPSILON, 0.0078125);
    }
}
