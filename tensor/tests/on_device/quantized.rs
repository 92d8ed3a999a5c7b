//! Tests weight-only GEMM with int4, FP4, int8 and FP8 weights.

use std::marker::PhantomData;

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{
    Activation, Element4, Epilogue, F8E4M3, Fp8Weights, Int4Weights, Int8Weights, Mxfp4Weights, Nvfp4Weights,
    RmsNorm, TensorError, matmul_4bit, matmul_8bit,
};

use crate::number::{TestNumber, random, random_integers};
use crate::skinny::{normalized, swiglu};
use crate::under_test;

/// Kind of quantized weights.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Int4,
    Int8,
    Fp8,
    Mxfp4,
    Nvfp4,
}
use Kind::{Fp8, Int4, Int8, Mxfp4, Nvfp4};

/// E2M1 numbers.
fn e2m1(code: u8) -> f64 {
    let number = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code as usize % 8];
    if code < 8 { number } else { -number }
}

/// Scale of all weights.
const TENSOR_SCALE: f32 = 0.5;

/// Quantized weights on the device, and their values, column after column.
struct Coded<T: TestNumber> {
    kind: Kind,
    codes: DeviceBuffer<u8>,
    scales: DeviceBuffer<u8>,
    zeros: Option<DeviceBuffer<T>>,
    numbers: Vec<f64>,
    element: PhantomData<T>,
}

impl<T: TestNumber<Output = T> + Element4> Coded<T> {
    fn new(stream: &Stream, kind: Kind, [n, k]: [usize; 2], group: usize, has_zeros: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let on = |bytes: &[u8]| DeviceBuffer::from_host(stream, bytes).unwrap();
        let exponents: Vec<i32> = (0..n * k / group).map(|_| random.i32(-2..=1)).collect();
        let (on_scales, scales): (DeviceBuffer<u8>, Vec<f64>) = match kind {
            Mxfp4 => {
                let bytes: Vec<u8> = exponents.iter().map(|exponent| (127 + exponent) as u8).collect();
                (on(&bytes), exponents.iter().map(|exponent| 2f64.powi(*exponent)).collect())
            }
            Nvfp4 => {
                let scales: Vec<F8E4M3> =
                    exponents.iter().map(|exponent| F8E4M3::from_f32(*exponent as f32 / 2.0)).collect();
                let bytes: Vec<u8> = scales.iter().map(|scale| scale.to_bits()).collect();
                let value = |scale: &F8E4M3| f64::from(scale.to_f32() * TENSOR_SCALE);
                (on(&bytes), scales.iter().map(value).collect())
            }
            _ => {
                let scales: Vec<T> = exponents.iter().map(|exponent| T::of(2f32.powi(*exponent))).collect();
                let on_scales = DeviceBuffer::from_host(stream, &scales).unwrap();
                (on_scales.cast().unwrap(), scales.iter().map(|scale| scale.value()).collect())
            }
        };
        let zero = |random: &mut fastrand::Rng| T::of(random.u8(..80) as f32 / 4.0);
        let zeros: Vec<T> =
            (0..n * k / group).map(|_| if has_zeros { zero(&mut random) } else { T::of(8.0) }).collect();
        let codes: Vec<u8> = (0..n * k)
            .map(|_| match kind {
                Int4 | Mxfp4 | Nvfp4 => random.u8(..16),
                Int8 => random.u8(..),
                Fp8 => F8E4M3::from_f32(random.i32(-8..=8) as f32 / 2.0).to_bits(),
            })
            .collect();
        let code = |i: usize| match kind {
            Int4 => f64::from(codes[i]) - zeros[i / group].value(),
            Int8 => f64::from(codes[i] as i8),
            Fp8 => f64::from(F8E4M3::from_bits(codes[i]).to_f32()),
            Mxfp4 | Nvfp4 => e2m1(codes[i]),
        };
        let numbers = (0..n * k).map(|i| scales[i / group] * code(i)).collect();
        let packed: Vec<u8> = codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
        Self {
            kind,
            codes: on(if matches!(kind, Int8 | Fp8) { &codes } else { &packed }),
            scales: on_scales,
            zeros: has_zeros.then(|| DeviceBuffer::from_host(stream, &zeros).unwrap()),
            numbers,
            element: PhantomData,
        }
    }

    fn multiply(&self, stream: &Stream, epilogue: &Epilogue<'_, T>, a: &[T], c: &mut [T], m: usize) {
        let (on_a, mut on_c) =
            (DeviceBuffer::from_host(stream, a).unwrap(), DeviceBuffer::from_host(stream, c).unwrap());
        let (k, n) = (a.len() / m, c.len() / m);
        let (a, to) = (on_a.as_2d(m, k).unwrap(), on_c.as_2d_mut(m, n).unwrap());
        let (codes, scales) = (self.codes.as_slice(), self.scales.as_slice());
        match self.kind {
            Int4 => {
                let zeros = self.zeros.as_ref().map(|zeros| zeros.as_slice());
                let scales = scales.cast().unwrap();
                matmul_4bit(stream, epilogue, a, &Int4Weights { codes, scales, zeros }, to)
            }
            Int8 => {
                let weights = Int8Weights { codes: codes.cast().unwrap(), scales: scales.cast().unwrap() };
                matmul_8bit(stream, epilogue, a, &weights, to)
            }
            Fp8 => {
                let weights = Fp8Weights { numbers: codes.cast().unwrap(), scales: scales.cast().unwrap() };
                matmul_8bit(stream, epilogue, a, &weights, to)
            }
            Mxfp4 => matmul_4bit(stream, epilogue, a, &Mxfp4Weights { codes, scales }, to),
            Nvfp4 => {
                let scales = scales.cast().unwrap();
                let weights = Nvfp4Weights { codes, scales, tensor_scale: TENSOR_SCALE };
                matmul_4bit(stream, epilogue, a, &weights, to)
            }
        }
        .unwrap();
        c.copy_from_slice(&on_c.to_host().unwrap());
    }
}

/// Products of integers by weights whose scales are powers of two.
fn exact<T: TestNumber<Output = T> + Element4>(
    kind: Kind,
    [m, n, k]: [usize; 3],
    group: usize,
    has_zeros: bool,
) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let a = random_integers::<T>(1, m * k);
    let coded = Coded::<T>::new(&stream, kind, [n, k], group, has_zeros);
    let mut c = vec![T::POISON; m * n];
    coded.multiply(&stream, &Epilogue::default(), &a, &mut c, m);
    for (i, value) in c.into_iter().enumerate() {
        let (a, b) = (&a[i / n * k..][..k], &coded.numbers[i % n * k..][..k]);
        let expected: f64 = a.iter().zip(b).map(|(a, b)| a.value() * b).sum();
        let case =
            format!("{kind:?}, {m} x {n} x {k}, groups of {group}, zeros: {has_zeros}, {}, {}", i / n, i % n);
        assert_eq!(T::number_of(value), T::rounded(expected), "{case}");
    }
}

#[test]
fn products_by_4_bit_weights_are_exact() {
    for shape in [[1, 1, 128], [2, 17, 256], [8, 48, 128], [9, 16, 1152], [16, 33, 2048], [3, 1000, 128]] {
        for has_zeros in [false, true] {
            exact::<bf16>(Int4, shape, 128, has_zeros);
            exact::<f16>(Int4, shape, 128, has_zeros);
        }
    }
    // There are more rows than a block multiplies at once.
    exact::<bf16>(Int4, [35, 20, 256], 128, true);
    // Blocks of four warps on a device with 132 SMs, without and with tiles of 32.
    exact::<bf16>(Int4, [2, 6001, 256], 128, true);
    exact::<bf16>(Int4, [1, 21_200, 128], 128, false);
}

/// Blocks store one row in shared memory if it fits.
#[test]
fn one_row_of_any_length_is_exact() {
    for k in [128, 1152, 5120, 40_960] {
        for (group, has_zeros) in [(32, false), (32, true), (64, true), (128, true), (k, false)] {
            exact::<bf16>(Int4, [1, 40, k], group, has_zeros);
        }
        exact::<bf16>(Mxfp4, [1, 40, k], 32, false);
        exact::<bf16>(Nvfp4, [1, 17, k], 16, false);
        exact::<f16>(Int4, [1, 17, k], 128, false);
    }
}

#[test]
fn products_by_groups_of_all_sizes_are_exact() {
    for [m, n, k] in [[1, 1, 128], [2, 17, 384], [9, 40, 1152], [16, 33, 2048], [3, 1000, 128]] {
        for group in [32, 64, k] {
            exact::<bf16>(Int4, [m, n, k], group, group == 64);
            exact::<f16>(Int4, [m, n, k], group, group != 64);
        }
        for (kind, group) in
            [Int8, Fp8].into_iter().flat_map(|kind| [32, 64, 128, k].map(|group| (kind, group)))
        {
            exact::<bf16>(kind, [m, n, k], group, false);
            exact::<f16>(kind, [m, n, k], group, false);
        }
    }
    exact::<bf16>(Int8, [35, 20, 256], 32, false);
    // The first products use the mixed-input kernel; for the second ones, the weights are dequantized.
    for (kind, group, has_zeros) in [
        (Int4, 32, true),
        (Int4, 64, false),
        (Int4, 384, true),
        (Int8, 128, false),
        (Int8, 384, false),
        (Fp8, 32, false),
        (Fp8, 384, false),
    ] {
        exact::<f16>(kind, [65, 17, 384], group, has_zeros);
        exact::<bf16>(kind, [130, 200, 384], group, has_zeros);
    }
    exact::<bf16>(Int8, [2, 6001, 256], 128, false);
    exact::<bf16>(Int8, [1, 21_200, 128], 32, false);
}

/// Products of 17 to 128 rows. The emulated device has 16 SMs, so products of few columns are divided along K.
#[test]
fn products_of_tens_of_rows_are_exact() {
    for (m, n, k) in [(17, 1, 128), (33, 200, 128), (63, 130, 640), (65, 24, 1152), (128, 257, 256)] {
        for group in [32, 64, 128, k] {
            exact::<bf16>(Int4, [m, n, k], group, group == 64 || group == k);
            exact::<f16>(Int8, [m, n, k], group, false);
            exact::<bf16>(Fp8, [m, n, k], group, false);
        }
        exact::<f16>(Int4, [m, n, k], 128, true);
        exact::<bf16>(Int8, [m, n, k], 64, false);
        exact::<f16>(Fp8, [m, n, k], 32, false);
    }
    // Wide tiles.
    exact::<bf16>(Int4, [24, 25_600, 128], 32, true);
    exact::<bf16>(Int4, [40, 25_600, 128], 128, false);
    exact::<f16>(Fp8, [70, 25_600, 128], 64, false);
}

/// The k of these products are multiples of 64, but not all of 128.
#[test]
fn products_by_fp4_weights_are_exact() {
    for [m, n, k] in [
        [1, 1, 64],
        [2, 17, 128],
        [8, 48, 320],
        [9, 16, 1152],
        [16, 33, 2112],
        [35, 20, 192],
        [3, 1000, 128],
        [17, 1, 128],
        [33, 200, 192],
        [64, 130, 640],
        [65, 24, 1216],
        [128, 257, 320],
        [129, 40, 192],
        [200, 300, 128],
    ] {
        for (kind, group) in [(Mxfp4, 32), (Nvfp4, 16)] {
            exact::<bf16>(kind, [m, n, k], group, false);
            exact::<f16>(kind, [m, n, k], group, false);
        }
    }
    // Two column tiles per block, and wide tiles of the mixed-input kernel.
    exact::<bf16>(Mxfp4, [1, 21_200, 64], 32, false);
    exact::<f16>(Nvfp4, [24, 25_600, 128], 16, false);
}

/// All E2M1 numbers with all scales. Each product has one weight that is not zero.
#[test]
fn all_fp4_numbers_and_scales_are_multiplied() {
    fn check<T: TestNumber<Output = T> + Element4>(m: usize) {
        let stream = Stream::new(&under_test::device()).unwrap();
        let ([k, n], on) = ([64, 256], |bytes: &[u8]| DeviceBuffer::from_host(&stream, bytes).unwrap());
        let a = DeviceBuffer::from_host(&stream, &vec![T::of(1.0); m * k]).unwrap();
        for code in 0..16 {
            // The number is in the first group of a column for MXFP4, and in the second one for NVFP4.
            let codes: Vec<u8> =
                (0..n * k / 2).map(|i| if i % (k / 2) == 11 { code << 4 } else { 0 }).collect();
            let codes = on(&codes);
            for kind in [Mxfp4, Nvfp4] {
                let (groups, group) = if kind == Mxfp4 { (2, 0) } else { (4, 1) };
                let other = if kind == Mxfp4 { 127 } else { 0x38 };
                let scale = |i: usize| if i % groups == group { (i / groups) as u8 } else { other };
                let scales: Vec<u8> = (0..n * groups).map(scale).collect();
                let scales = on(&scales);
                let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
                let (from, to) = (a.as_2d(m, k).unwrap(), c.as_2d_mut(m, n).unwrap());
                let (codes, scales) = (codes.as_slice(), scales.as_slice());
                let epilogue = Epilogue::default();
                if kind == Mxfp4 {
                    matmul_4bit(&stream, &epilogue, from, &Mxfp4Weights { codes, scales }, to).unwrap();
                } else {
                    let scales = scales.cast().unwrap();
                    let weights = Nvfp4Weights { codes, scales, tensor_scale: 1.0 };
                    matmul_4bit(&stream, &epilogue, from, &weights, to).unwrap();
                }
                for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
                    let byte = (i % n) as u8;
                    let scale = match kind {
                        Mxfp4 if byte == 255 => f64::NAN,
                        Mxfp4 => 2f64.powi(i32::from(byte) - 127),
                        _ => f64::from(F8E4M3::from_bits(byte).to_f32()),
                    };
                    // Scales for which all weights are exact and finite.
                    let exact = if T::of(1e6).value().is_infinite() { -16..=8 } else { -68..=65 };
                    if kind == Mxfp4 && byte != 255 && !exact.contains(&(i32::from(byte) - 127)) {
                        continue;
                    }
                    let expected = T::of((e2m1(code) * scale) as f32).value();
                    let (value, case) = (value.value(), format!("{kind:?}, {m}, {code}, {byte}"));
                    let is_same = value == expected || value.is_nan() && expected.is_nan();
                    assert!(is_same, "{case}: {value} instead of {expected}");
                }
            }
        }
    }
    // The skinny kernel, the mixed-input kernel, and dequantization.
    check::<bf16>(1);
    check::<f16>(3);
    check::<bf16>(33);
    check::<f16>(40);
    check::<bf16>(129);
    check::<f16>(130);
}

/// All numbers of E4M3, by each of a row of ones at a time.
#[test]
fn all_fp8_numbers_are_multiplied() {
    fn check<T: TestNumber<Output = T> + Element4>(m: usize) {
        let stream = Stream::new(&under_test::device()).unwrap();
        let bits: Vec<u8> = (0..=255).collect();
        let numbers: Vec<F8E4M3> = bits
            .iter()
            .flat_map(|&bits| (0..128).map(move |i| F8E4M3::from_bits(if i == 77 { bits } else { 0 })))
            .collect();
        let numbers = DeviceBuffer::from_host(&stream, &numbers).unwrap();
        let scales = DeviceBuffer::from_host(&stream, &[T::of(2.0); 256]).unwrap();
        let a = DeviceBuffer::from_host(&stream, &vec![T::of(1.0); m * 128]).unwrap();
        let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * 256]).unwrap();
        let weights = Fp8Weights { numbers: numbers.as_slice(), scales: scales.as_slice() };
        let (from, to) = (a.as_2d(m, 128).unwrap(), c.as_2d_mut(m, 256).unwrap());
        matmul_8bit(&stream, &Epilogue::default(), from, &weights, to).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let expected = 2.0 * f64::from(F8E4M3::from_bits((i % 256) as u8).to_f32());
            let is_same = value.value() == expected || value.value().is_nan() && expected.is_nan();
            assert!(is_same, "{i}: {value:?} instead of {expected}");
        }
    }
    // The skinny kernel, the mixed-input kernel, and dequantization.
    check::<bf16>(1);
    check::<f16>(3);
    check::<bf16>(33);
    check::<f16>(40);
    check::<bf16>(129);
}

#[test]
fn rows_are_normalized_before_quantized_products() {
    rows_are_normalized(1);
    rows_are_normalized(3);
}

fn rows_are_normalized(m: usize) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [n, k] = [50, 1152];
    let (a, weight) = (random::<f16>(1, m * k), random::<f16>(2, k));
    let on_weight = DeviceBuffer::from_host(&stream, &weight).unwrap();
    let norm = Some(RmsNorm { weight: on_weight.as_slice(), epsilon: 0.25 });
    for (kind, group) in [(Int4, 128), (Int4, 32), (Int8, 32), (Fp8, 128), (Mxfp4, 32), (Nvfp4, 16)] {
        let coded = Coded::<f16>::new(&stream, kind, [n, k], group, kind == Int4);
        let mut c = vec![f16::NAN; m * n];
        coded.multiply(&stream, &Epilogue { norm, ..Epilogue::default() }, &a, &mut c, m);
        for (i, value) in c.into_iter().enumerate() {
            let (expected, all) =
                normalized(&a[i / n * k..][..k], &weight, 0.25, |j| coded.numbers[i % n * k + j]);
            let error = (f64::from(value) - expected).abs();
            assert!(error <= all / 1000.0, "{kind:?}, {i}: {value} instead of {expected}");
        }
    }
}

/// The sums of A are large, compared with the products, from which multiples of them are subtracted.
#[test]
fn zero_points_of_positive_rows_are_accurate() {
    fn check<T: TestNumber<Output = T> + Element4>(m: usize, precision: f64) {
        let stream = Stream::new(&under_test::device()).unwrap();
        let [n, k] = [50, 1152];
        let a: Vec<T> =
            random::<T>(1, m * k).into_iter().map(|x| T::of(x.value().abs() as f32 + 1.0)).collect();
        for (kind, group, has_zeros) in [
            (Int4, 128, false),
            (Int4, 64, true),
            (Int4, 32, true),
            (Int8, 128, false),
            (Int8, 32, false),
            (Fp8, 128, false),
            (Mxfp4, 32, false),
            (Nvfp4, 16, false),
        ] {
            let coded = Coded::<T>::new(&stream, kind, [n, k], group, has_zeros);
            let mut c = vec![T::POISON; m * n];
            let epilogue = Epilogue { scale: 1.0 / 64.0, ..Epilogue::default() };
            coded.multiply(&stream, &epilogue, &a, &mut c, m);
            for (i, value) in c.into_iter().enumerate() {
                let products = a[i / n * k..][..k].iter().zip(&coded.numbers[i % n * k..]);
                let products = products.map(|(a, b)| a.value() * b / 64.0);
                let (expected, all) = (products.clone().sum::<f64>(), products.map(f64::abs).sum::<f64>());
                let error = (value.value() - expected).abs();
                assert!(error <= expected.abs() * precision + all * 1e-5, "{kind:?}, {group}, {i}: {error}");
            }
        }
    }
    check::<bf16>(1, 1.0 / 256.0);
    check::<f16>(1, 1.0 / 2048.0);
    check::<bf16>(3, 1.0 / 256.0);
    check::<f16>(3, 1.0 / 2048.0);
    check::<bf16>(34, 1.0 / 256.0);
    check::<f16>(34, 1.0 / 2048.0);
}

#[test]
fn quantized_products_are_gated_and_accumulated() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [n, k] = [50, 256];
    // The skinny kernels, and three tiles of the mixed-input kernel.
    let cases = [(Int4, 128), (Int4, 32), (Int8, 32), (Fp8, 128), (Mxfp4, 32), (Nvfp4, 16)];
    for (m, (kind, group)) in [1, 3, 20, 40, 150].into_iter().flat_map(|m| cases.map(|case| (m, case))) {
        let a: Vec<bf16> = random_integers::<bf16>(1, m * k);
        let coded = Coded::<bf16>::new(&stream, kind, [2 * n, k], group, false);
        let before = random_integers::<bf16>(2, m * n);
        let mut c = before.clone();
        let scale = 1.0 / 256.0;
        let epilogue =
            Epilogue { scale, activation: Activation::SwiGlu, accumulate: true, ..Epilogue::default() };
        coded.multiply(&stream, &epilogue, &a, &mut c, m);
        for (i, value) in c.into_iter().enumerate() {
            let sum = |column: usize| {
                let b = &coded.numbers[column * k..][..k];
                a[i / n * k..][..k].iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum::<f64>()
                    * f64::from(scale)
            };
            let expected = swiglu(sum(i % n), sum(n + i % n)) + f64::from(before[i]);
            let error = (f64::from(value) - expected).abs();
            assert!(
                error <= expected.abs() / 256.0 + 1e-5,
                "{kind:?}, {m}, {i}: {value} instead of {expected}"
            );
        }
    }
}

#[test]
fn products_of_nothing_are_zero_or_the_bias() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let nothing = DeviceBuffer::<bf16>::zeros(&stream, 0).unwrap();
    let bytes = DeviceBuffer::<u8>::zeros(&stream, 0).unwrap();
    let weights = Int4Weights { codes: bytes.as_slice(), scales: nothing.as_slice(), zeros: None };
    let bias = DeviceBuffer::from_host(&stream, &[bf16::ONE; 3]).unwrap();
    for bias in [None, Some(bias.as_slice())] {
        let mut c = DeviceBuffer::from_host(&stream, &[bf16::NAN; 6]).unwrap();
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        let a = nothing.as_2d(2, 0).unwrap();
        matmul_4bit(&stream, &epilogue, a, &weights, c.as_2d_mut(2, 3).unwrap()).unwrap();
        let expected = if bias.is_some() { bf16::ONE } else { bf16::ZERO };
        assert_eq!(c.to_host().unwrap(), [expected; 6]);
    }
}

#[test]
fn bad_weights_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 1024).unwrap();
    let bytes = DeviceBuffer::<u8>::zeros(&stream, 1024).unwrap();
    let codes = |range: std::ops::Range<usize>| bytes.slice(range);
    let good = Int4Weights { codes: codes(0..256), scales: numbers.slice(..4), zeros: None };
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 8).unwrap();
    let mut multiply = |k: usize, m: usize, weights: Int4Weights<'_, bf16>, bias: Option<usize>| {
        let epilogue = Epilogue { bias: bias.map(|len| numbers.slice(..len)), ..Epilogue::default() };
        let a = numbers.slice(..m * k).as_2d(m, k).unwrap();
        matmul_4bit(&stream, &epilogue, a, &weights, c.as_2d_mut(2, 4).unwrap()).unwrap_err()
    };
    let scales = Int4Weights { scales: numbers.slice(..3), ..good };
    let zeros = Int4Weights { zeros: Some(numbers.slice(..5)), ..good };
    let cases = [
        (
            multiply(128, 2, Int4Weights { codes: codes(0..255), ..good }, None),
            "there are 255 bytes of codes for weights of 128 x 4",
        ),
        (
            multiply(128, 2, scales, None),
            "there are 3 scales for weights of 128 x 4, but groups of 32, 64, 128",
        ),
        (multiply(128, 2, zeros, None), "there are 5 zeros"),
        (multiply(128, 2, good, Some(3)), "there are 3 elements of the bias"),
        (multiply(64, 2, good, None), "k is 64, but must be a multiple of 128"),
        (multiply(128, 3, good, None), "a is 3 x 128, c is 2 x 4"),
    ];
    for (error, expected) in cases {
        let text = error.to_string();
        assert!(matches!(error.downcast_ref(), Some(TensorError::Shape { .. })), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let error = multiply(128, 2, Int4Weights { codes: codes(4..260), ..good }, None);
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "codes", .. })), "{error}");
}

#[test]
fn bad_fp4_weights_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 1024).unwrap();
    let bytes = DeviceBuffer::<u8>::zeros(&stream, 1024).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 8).unwrap();
    let mut multiply = |k: usize, codes: usize, scales: std::ops::Range<usize>, is_mx: bool| {
        let (a, c) = (numbers.slice(..2 * k).as_2d(2, k).unwrap(), c.as_2d_mut(2, 4).unwrap());
        let (codes, scales, epilogue) = (bytes.slice(..codes), bytes.slice(scales), Epilogue::default());
        if is_mx {
            return matmul_4bit(&stream, &epilogue, a, &Mxfp4Weights { codes, scales }, c);
        }
        let scales = scales.cast().unwrap();
        matmul_4bit(&stream, &epilogue, a, &Nvfp4Weights { codes, scales, tensor_scale: 1.0 }, c)
    };
    multiply(192, 384, 0..24, true).unwrap();
    multiply(192, 384, 0..48, false).unwrap();
    for (k, codes, scales, is_mx, expected) in [
        (32, 64, 4, true, "k is 32, but must be a multiple of 64"),
        (64, 128, 4, true, "there are 4 scales for weights of 64 x 4, but groups of 32 codes require 8"),
        (64, 128, 8, false, "there are 8 scales for weights of 64 x 4, but groups of 16 codes require 16"),
        (64, 127, 8, true, "there are 127 bytes of codes for weights of 64 x 4, which require 128"),
    ] {
        let error = multiply(k, codes, 0..scales, is_mx).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error.downcast_ref(), Some(TensorError::Shape { .. })), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let error = multiply(64, 128, 4..12, true).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "scales", .. })), "{error}");
}

#[test]
fn bad_8_bit_weights_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 1024).unwrap();
    let bytes = DeviceBuffer::<i8>::zeros(&stream, 1024).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 8).unwrap();
    let mut multiply = |codes: std::ops::Range<usize>, scales: std::ops::Range<usize>| {
        let weights = Int8Weights { codes: bytes.slice(codes), scales: numbers.slice(scales) };
        let a = numbers.slice(..256).as_2d(2, 128).unwrap();
        matmul_8bit(&stream, &Epilogue::default(), a, &weights, c.as_2d_mut(2, 4).unwrap())
    };
    multiply(0..512, 0..16).unwrap();
    let text = multiply(0..511, 0..16).unwrap_err().to_string();
    assert!(
        text.contains("there are 511 bytes of codes for weights of 128 x 4, which require 512"),
        "{text}"
    );
    for (codes, scales, expected) in [(8..520, 0..16, "codes"), (0..512, 1..17, "scales")] {
        let error = multiply(codes, scales).unwrap_err();
        let is_named = matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix, .. }) if *matrix == expected);
        assert!(is_named, "{error}");
    }
}
