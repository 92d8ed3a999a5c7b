//! Tests block-scaled FP8 GEMM with poisoned outputs.

use half::bf16;
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{Activation, BlockScales, Epilogue, F8E4M3, Matrix, TensorError, matmul_scaled};

use crate::number::{Stored, TestNumber, random_integers};
use crate::under_test;

/// Tests integers with scales that are powers of two, for which sums are exact. The rows of `c` have gaps.
fn exact([m, n, k]: [usize; 3]) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let a = Stored::<F8E4M3>::new([m, k], false, random_integers(1, m * k));
    let b = Stored::<F8E4M3>::new([k, n], true, random_integers(2, n * k));
    let blocks = k.div_ceil(128);
    let mut random = fastrand::Rng::with_seed(3);
    let mut scales =
        |len: usize| -> Vec<f32> { (0..len).map(|_| f32::exp2(random.i32(-2..=2) as f32)).collect() };
    let (a_scales, b_scales) = (scales(m * blocks), scales(n.div_ceil(128) * blocks));
    let bias = random_integers::<bf16>(4, n);
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let on = |scales: &[f32]| DeviceBuffer::from_host(&stream, scales).unwrap();
    let (on_a_scales, on_b_scales) = (on(&a_scales), on(&b_scales));
    let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
    let pitch = n + 5;
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * pitch]).unwrap();
    let epilogue = Epilogue {
        scale: 0.5,
        bias: Some(on_bias.as_slice()),
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    let scales = BlockScales { a: on_a_scales.as_slice(), b: on_b_scales.as_slice() };
    let c_view = c.as_2d_strided_mut(m, n, pitch).unwrap();
    matmul_scaled(&stream, &epilogue, a.view(&on_a), b.view(&on_b), scales, c_view).unwrap();
    let value = |matrix: &Stored<F8E4M3>, i: usize| matrix.elements[i].value();
    for (i, found) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (i / pitch, i % pitch);
        if column >= n {
            assert!(found.is_nan(), "the gap of row {row} was written");
            continue;
        }
        let product = |l: usize| {
            let scale = a_scales[row * blocks + l / 128] * b_scales[column / 128 * blocks + l / 128];
            value(&a, row * k + l) * value(&b, column * k + l) * f64::from(scale)
        };
        let expected = (0.5 * (0..k).map(product).sum::<f64>() + f64::from(bias[column])).max(0.0);
        assert_eq!(f64::from(found), bf16::rounded(expected), "{m} x {n} x {k}, row {row}, column {column}");
    }
}

#[test]
fn blocks_have_their_scales() {
    // The last shapes use split-K clusters, with and without shared tiles.
    for shape in [
        [1, 1, 16],
        [3, 130, 144],
        [128, 128, 128],
        [129, 257, 400],
        [300, 24, 256],
        [40, 130, 2096],
        [100, 128, 4224],
        [250, 128, 2304],
    ] {
        exact(shape);
    }
}

#[test]
fn wrong_scales_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<F8E4M3>::zeros(&stream, 256).unwrap();
    let scales = DeviceBuffer::<f32>::zeros(&stream, 32).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 256).unwrap();
    let mut refused = |b_transposed: bool, of_a, of_b| {
        let b = Matrix::from(x.as_2d(16, 16).unwrap());
        let b = if b_transposed { b.transposed() } else { b };
        let scales = BlockScales { a: scales.slice(..of_a), b: scales.slice(..of_b) };
        let (a, c) = (x.as_2d(16, 16).unwrap(), c.as_2d_mut(16, 16).unwrap());
        let error = matmul_scaled(&stream, &Epilogue::default(), a, b, scales, c).unwrap_err();
        (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
    };
    let (error, text) = refused(true, 15, 1);
    assert!(matches!(error, TensorError::Shape { .. }) && text.contains("a has 15 scales"), "{text}");
    let (error, text) = refused(true, 16, 2);
    assert!(matches!(error, TensorError::Shape { .. }) && text.contains("b has 2 scales"), "{text}");
    let (error, text) = refused(false, 16, 1);
    assert!(matches!(error, TensorError::Layout { matrix: "b", .. }), "{text}");
}
