//! Tests scales, biases and activations of the GEMM kernels, and batches.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{
    Activation, Epilogue, F8E4M3, GemmElement, Matrix, TensorError, matmul, matmul_fused,
};

use crate::number::{Stored, TestNumber, random, random_integers};
use crate::under_test;

/// Reference epilogue of a sum.
fn finished(epilogue: &Epilogue<'_, impl warpsmith_runtime::DeviceCopy>, sum: f64, bias: f64) -> f64 {
    let x = f64::from(epilogue.scale) * sum + bias;
    match epilogue.activation {
        Activation::None => x,
        Activation::SwiGlu => unreachable!("only skinny GEMMs support it"),
        Activation::Relu => x.max(0.0),
        Activation::Gelu => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
    }
}

/// Tests all epilogues of a type. The error bound is `precision` times the result plus `1e-5` times the sum.
fn fused<T: TestNumber<Sum = f32>>(b_transposed: bool, precision: f64)
where
    T::Output: TestNumber<Output = T::Output> + Copy,
{
    let stream = Stream::new(&under_test::device()).unwrap();
    let [m, n, k] = [70, 272, 48];
    let a = Stored::<T>::new([m, k], false, random(3, m * k));
    let b = Stored::<T>::new([k, n], b_transposed, random(4, n * k));
    let bias = random::<T::Output>(5, n);
    let (on_a, on_b, on_bias) =
        (a.on(&stream), b.on(&stream), DeviceBuffer::from_host(&stream, &bias).unwrap());
    let sums = a.times(&b);
    for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
        for (scale, has_bias) in [(1.0, true), (0.25, false), (-2.5, true)] {
            let epilogue = Epilogue {
                scale,
                bias: has_bias.then(|| on_bias.as_slice()),
                activation,
                ..Epilogue::default()
            };
            let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
            let views = (a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap());
            matmul_fused(&stream, &epilogue, views.0, views.1, views.2).unwrap();
            for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
                let (sum, all) = sums[i];
                let bias = if has_bias { T::number_of(bias[i % n]) } else { 0.0 };
                let expected = finished(&epilogue, sum, bias);
                let allowed = expected.abs() * precision + all * T::SUM_PRECISION * f64::from(scale.abs());
                let error = (T::number_of(value) - expected).abs();
                assert!(
                    error <= allowed + 1e-6,
                    "{activation:?}, {scale}, {i}: {value:?} instead of {expected}"
                );
            }
        }
    }
}

#[test]
fn epilogues_are_within_rounding() {
    fused::<bf16>(true, 1.0 / 256.0);
    fused::<bf16>(false, 1.0 / 256.0);
    fused::<f16>(true, 1.0 / 1024.0);
    fused::<f32>(true, 1e-5);
    fused::<F8E4M3>(true, 1.0 / 256.0);
}

/// With k = 0 the sums are zero and only the bias remains, in all layouts, with and without rows.
#[test]
fn sums_of_nothing_have_a_bias() {
    fn of<T: TestNumber<Sum = f32>>(b_transposed: bool, a_transposed: bool)
    where
        T::Output: TestNumber<Output = T::Output>,
    {
        let stream = Stream::new(&under_test::device()).unwrap();
        for [m, n] in [[3, 8], [70, 136], [300, 264]] {
            let nothing = DeviceBuffer::<T>::zeros(&stream, 0).unwrap();
            let bias: Vec<T::Output> = random_integers(1, n);
            let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
            let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
            let view = |[rows, columns]: [usize; 2], is_transposed: bool| {
                let [width, height] = if is_transposed { [rows, columns] } else { [columns, rows] };
                let matrix = Matrix::from(nothing.as_2d(height, width).unwrap());
                if is_transposed { matrix.transposed() } else { matrix }
            };
            let (a, b) = (view([m, 0], a_transposed), view([0, n], b_transposed));
            let (bias_of, activation) = (Some(on_bias.as_slice()), Activation::Relu);
            let epilogue = Epilogue { bias: bias_of, activation, ..Epilogue::default() };
            matmul_fused(&stream, &epilogue, a, b, c.as_2d_mut(m, n).unwrap()).unwrap();
            for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
                assert_eq!(T::number_of(value), T::number_of(bias[i % n]).max(0.0), "{m} x {n}, element {i}");
            }
        }
    }
    of::<bf16>(true, false);
    of::<bf16>(false, false);
    of::<f16>(false, true);
    of::<f32>(true, false);
    of::<F8E4M3>(true, false);
}

#[test]
fn relu_keeps_nan() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut numbers = vec![bf16::NEG_ONE; 64];
    numbers[0] = bf16::NAN;
    let a = DeviceBuffer::from_host(&stream, &numbers).unwrap();
    let b = DeviceBuffer::from_host(&stream, &[bf16::ONE; 64]).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    let views = (a.as_2d(8, 8).unwrap(), b.as_2d(8, 8).unwrap());
    matmul_fused(&stream, &epilogue, views.0, views.1, c.as_2d_mut(8, 8).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        assert!(if i < 8 { value.is_nan() } else { value == bf16::ZERO }, "element {i}: {value}");
    }
}

#[test]
fn a_bias_of_another_length_is_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let epilogue = Epilogue { bias: Some(x.slice(..7)), ..Epilogue::default() };
    let views = (x.as_2d(8, 8).unwrap(), x.as_2d(8, 8).unwrap());
    let error = matmul_fused(&stream, &epilogue, views.0, views.1, c.as_2d_mut(8, 8).unwrap()).unwrap_err();
    assert!(error.to_string().contains("the bias has 7 elements, but b has 8 columns"), "{error}");
}

/// Tests batches in which `a` or `b` can be broadcast. Gaps between the matrices of `c` must be unchanged.
fn batched<T: TestNumber>(b_transposed: bool, [a_planes, b_planes]: [usize; 2]) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [m, n, k, planes] = [67, 48, 80, 3];
    let planes_of = |count, rows, columns, is_transposed| -> Vec<Stored<T>> {
        let matrix = |i| random_integers(10 * i + rows as u64, rows * columns);
        (0..count as u64).map(|i| Stored::new([rows, columns], is_transposed, matrix(i))).collect()
    };
    let (a, b) = (planes_of(a_planes, m, k, false), planes_of(b_planes, k, n, b_transposed));
    let on = |matrices: &[Stored<T>]| {
        let all: Vec<T> = matrices.iter().flat_map(|matrix| matrix.elements.iter().copied()).collect();
        DeviceBuffer::from_host(&stream, &all).unwrap()
    };
    let (on_a, on_b) = (on(&a), on(&b));
    let rows = m + 2;
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; planes * rows * n]).unwrap();
    let a_view: Matrix<'_, T> = on_a.as_3d(a_planes, m, k).unwrap().into();
    let b_view: Matrix<'_, T> = if b_transposed {
        Matrix::from(on_b.as_3d(b_planes, n, k).unwrap()).transposed()
    } else {
        on_b.as_3d(b_planes, k, n).unwrap().into()
    };
    {
        let mut c = c.as_mut_slice();
        matmul(&stream, a_view, b_view, c.as_3d_strided_mut([planes, m, n], [rows * n, n]).unwrap()).unwrap();
    }
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (plane, row, column) = (i / (rows * n), i / n % rows, i % n);
        let found = T::number_of(value);
        if row < m {
            let expected = a[plane.min(a_planes - 1)].dot(&b[plane.min(b_planes - 1)], row, column);
            assert_eq!(found, expected, "plane {plane}, row {row}, column {column}");
        } else {
            assert!(found.is_nan() || value == T::POISON, "the gap of plane {plane} was written");
        }
    }
}

#[test]
fn batches_are_exact() {
    batched::<bf16>(true, [3, 3]);
    batched::<f16>(false, [3, 3]);
    batched::<i8>(true, [3, 3]);
}

#[test]
fn one_matrix_is_multiplied_by_a_batch() {
    batched::<bf16>(true, [1, 3]);
    batched::<f32>(true, [3, 1]);
}

#[test]
fn batches_of_other_lengths_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 256).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 192).unwrap();
    let (a, b) = (x.slice(..128).as_3d(2, 8, 8).unwrap(), x.as_3d(4, 8, 8).unwrap());
    let error = matmul(&stream, a, b, c.as_3d_mut(3, 8, 8).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Shape { .. })), "{text}");
    assert!(text.contains("a is 2 matrices of 8 x 8, b is 4 matrices of 8 x 8, c is 3 matrices"), "{text}");
}

/// Compiles only for types with `f32` sums.
const _: fn() = || {
    fn has_epilogues<T: GemmElement<Sum = f32>>() {}
    has_epilogues::<F8E4M3>();
};
