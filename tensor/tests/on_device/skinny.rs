//! Tests skinny GEMM, and weight-only int4 GEMM.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{
    Activation, Element4, Epilogue, Int4Weights, Matrix, TensorError, matmul, matmul_4bit, matmul_fused,
};

use crate::number::{Stored, TestNumber, random, random_integers};
use crate::under_test;

/// Values of m, n and k for groups of 8 rows, tiles of 16 and 32 columns, steps of 64 and partial steps.
const SHAPES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [1, 16, 64],
    [2, 15, 63],
    [7, 17, 65],
    [8, 32, 7],
    [9, 33, 128],
    [15, 31, 520],
    [16, 40, 511],
    [3, 64, 1029],
    [5, 100, 513],
    // These are enough columns for tiles of 32 on a device with few SMs.
    [8, 1000, 72],
    [16, 1001, 71],
];

/// Rows of `a` and `b` start on 16-byte boundaries, and rows of `c` are unaligned. Gaps must be unchanged.
fn exact<T: TestNumber<Output = T> + Element4>([m, n, k]: [usize; 3], planes: usize) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let (pitch, c_pitch) = (k.next_multiple_of(8) + 8, n + 3);
    // NaN between the rows must not propagate to the sums.
    let padded = |seed: u64, rows: usize| {
        let numbers = random_integers::<T>(seed, rows * k);
        let mut stored = vec![T::POISON; rows * pitch];
        for (row, of_row) in numbers.chunks(k).enumerate() {
            stored[row * pitch..][..k].copy_from_slice(of_row);
        }
        (DeviceBuffer::from_host(&stream, &stored).unwrap(), numbers)
    };
    let ((on_a, a), (on_b, b)) = (padded(1, planes * m), padded(2, planes * n));
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; planes * m * c_pitch]).unwrap();
    {
        let (on_a, on_b) = (on_a.as_slice(), on_b.as_slice());
        let a: Matrix<'_, T> = on_a.as_3d_strided([planes, m, k], [m * pitch, pitch]).unwrap().into();
        let b: Matrix<'_, T> = on_b.as_3d_strided([planes, n, k], [n * pitch, pitch]).unwrap().into();
        let mut c = c.as_mut_slice();
        let c = c.as_3d_strided_mut([planes, m, n], [m * c_pitch, c_pitch]).unwrap();
        matmul(&stream, a, b.transposed(), c).unwrap();
    }
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (plane, row, column) = (i / (m * c_pitch), i / c_pitch % m, i % c_pitch);
        let found = T::number_of(value);
        if column < n {
            let (a, b) = (&a[(plane * m + row) * k..][..k], &b[(plane * n + column) * k..][..k]);
            let expected: f64 = a.iter().zip(b).map(|(a, b)| a.value() * b.value()).sum();
            assert_eq!(found, T::rounded(expected), "{m} x {n} x {k}: {plane}, {row}, {column}");
        } else {
            assert!(found.is_nan(), "{m} x {n} x {k}: the gap of row {row} was written");
        }
    }
}

#[test]
fn skinny_products_are_exact() {
    for shape in SHAPES {
        exact::<bf16>(shape, 1);
        exact::<f16>(shape, 1);
    }
}

#[test]
fn skinny_batches_are_exact() {
    exact::<bf16>([3, 20, 70], 3);
    exact::<f16>([12, 40, 200], 2);
}

#[test]
fn skinny_epilogues_are_within_rounding() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [m, n, k] = [6, 50, 200];
    let a = Stored::<bf16>::new([m, k], false, random(3, m * k));
    let b = Stored::<bf16>::new([k, n], true, random(4, n * k));
    let bias = random::<bf16>(5, n);
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
    let epilogue = Epilogue { scale: 0.5, bias: Some(on_bias.as_slice()), activation: Activation::Relu };
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
    matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
    for ((i, value), (sum, all)) in c.to_host().unwrap().into_iter().enumerate().zip(a.times(&b)) {
        let expected = (0.5 * sum + f64::from(bias[i % n])).max(0.0);
        let error = (f64::from(value) - expected).abs();
        assert!(error <= expected / 256.0 + 1e-5 * all, "{i}: {value} instead of {expected}");
    }
}

/// Packed int4 weights on the device, and their values, column after column.
struct Coded<T: TestNumber> {
    codes: DeviceBuffer<u8>,
    scales: DeviceBuffer<T>,
    zeros: DeviceBuffer<u8>,
    numbers: Vec<f64>,
}

impl<T: TestNumber<Output = T> + Element4> Coded<T> {
    fn new(stream: &Stream, [n, k]: [usize; 2], has_zeros: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let codes: Vec<u8> = (0..n * k).map(|_| random.u8(..16)).collect();
        let scales: Vec<T> = (0..n * k / 128).map(|_| T::of(2f32.powi(random.i32(-2..=1)))).collect();
        let zeros: Vec<u8> = (0..n * k / 128).map(|_| if has_zeros { random.u8(..20) } else { 8 }).collect();
        let number = |i: usize| scales[i / 128].value() * (f64::from(codes[i]) - f64::from(zeros[i / 128]));
        let numbers = (0..n * k).map(number).collect();
        let packed: Vec<u8> = codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
        Self {
            codes: DeviceBuffer::from_host(stream, &packed).unwrap(),
            scales: DeviceBuffer::from_host(stream, &scales).unwrap(),
            zeros: DeviceBuffer::from_host(stream, &zeros).unwrap(),
            numbers,
        }
    }

    fn weights(&self, has_zeros: bool) -> Int4Weights<'_, T> {
        let zeros = has_zeros.then(|| self.zeros.as_slice());
        Int4Weights { codes: self.codes.as_slice(), scales: self.scales.as_slice(), zeros }
    }
}

fn exact_4bit<T: TestNumber<Output = T> + Element4>([m, n, k]: [usize; 3], has_zeros: bool) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let a = random_integers::<T>(1, m * k);
    let on_a = DeviceBuffer::from_host(&stream, &a).unwrap();
    let coded = Coded::<T>::new(&stream, [n, k], has_zeros);
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
    let weights = coded.weights(has_zeros);
    let c_view = c.as_2d_mut(m, n).unwrap();
    matmul_4bit(&stream, &Epilogue::default(), on_a.as_2d(m, k).unwrap(), &weights, c_view).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (a, b) = (&a[i / n * k..][..k], &coded.numbers[i % n * k..][..k]);
        let expected: f64 = a.iter().zip(b).map(|(a, b)| a.value() * b).sum();
        let case = format!("{m} x {n} x {k}, zeros: {has_zeros}, row {}, column {}", i / n, i % n);
        assert_eq!(T::number_of(value), T::rounded(expected), "{case}");
    }
}

#[test]
fn products_by_4_bit_weights_are_exact() {
    for shape in [[1, 1, 128], [2, 17, 256], [8, 48, 128], [9, 16, 1152], [16, 33, 2048], [3, 1000, 128]] {
        for has_zeros in [false, true] {
            exact_4bit::<bf16>(shape, has_zeros);
            exact_4bit::<f16>(shape, has_zeros);
        }
    }
    // There are more rows than a block multiplies at once.
    exact_4bit::<bf16>([35, 20, 256], true);
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
    let zeros = Int4Weights { zeros: Some(codes(0..5)), ..good };
    let cases = [
        (
            multiply(128, 2, Int4Weights { codes: codes(0..255), ..good }, None),
            "there are 255 codes for weights of 128 x 4",
        ),
        (multiply(128, 2, scales, None), "there are 3 scales"),
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
