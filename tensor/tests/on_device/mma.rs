//! Tests GEMM with `mma.sync`, in all layouts and alignments, with poisoned outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{Activation, Epilogue, Matrix, matmul, matmul_mma};

use crate::number::{Stored, TestNumber, random_integers};
use crate::under_test;

/// Values of m, n and k at the edges of tiles, whose rows are multiples of 16 bytes in all layouts.
const ALIGNED: [[usize; 3]; 5] = [[8, 8, 8], [128, 256, 64], [136, 264, 72], [64, 520, 40], [264, 128, 160]];
/// Values of m, n and k of which no row is a multiple of 16 bytes.
const RAGGED: [[usize; 3]; 5] = [[1, 1, 1], [17, 3, 33], [127, 129, 31], [130, 257, 65], [3, 260, 100]];

fn exact<T: TestNumber<Sum = f32>>(shapes: &[[usize; 3]]) {
    let stream = Stream::new(&under_test::device()).unwrap();
    for [a_transposed, b_transposed] in [[false, true], [false, false], [true, true], [true, false]] {
        for (seed, &[m, n, k]) in shapes.iter().enumerate() {
            let a = Stored::<T>::new([m, k], a_transposed, random_integers(seed as u64, m * k));
            let b = Stored::<T>::new([k, n], b_transposed, random_integers(100 + seed as u64, n * k));
            let (on_a, on_b) = (a.on(&stream), b.on(&stream));
            let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
            let to = c.as_2d_mut(m, n).unwrap();
            matmul_mma(&stream, &Epilogue::default(), a.view(&on_a), b.view(&on_b), to).unwrap();
            let case =
                format!("{} {m} x {n} x {k} {a_transposed} {b_transposed}", std::any::type_name::<T>());
            for (i, (value, (expected, _))) in c.to_host().unwrap().into_iter().zip(a.times(&b)).enumerate() {
                let (row, column) = (i / n, i % n);
                assert_eq!(T::number_of(value), T::rounded(expected), "{case}, row {row}, column {column}");
            }
        }
    }
}

#[test]
fn aligned_integers_are_exact_in_all_layouts() {
    exact::<bf16>(&ALIGNED);
    exact::<f16>(&ALIGNED[2..3]);
}

#[test]
fn ragged_integers_are_exact_in_all_layouts() {
    exact::<bf16>(&RAGGED);
    exact::<f16>(&RAGGED[2..3]);
}

/// A batch with a broadcast operand, whose rows are padded and of which each matrix is transposed.
#[test]
fn batches_are_multiplied_with_their_epilogue() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [batches, m, n, k] = [3, 40, 24, 16];
    let a = random_integers::<bf16>(1, batches * k * m);
    let b = random_integers::<bf16>(2, n * k);
    let bias = random_integers::<bf16>(3, n);
    let [on_a, on_b, on_bias] = [&a, &b, &bias].map(|host| DeviceBuffer::from_host(&stream, host).unwrap());
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; batches * m * n]).unwrap();
    let epilogue = Epilogue { scale: -2.0, bias: Some(on_bias.as_slice()), activation: Activation::Relu };
    let a_view = Matrix::from(on_a.as_3d(batches, k, m).unwrap()).transposed();
    let c_view = c.as_3d_mut(batches, m, n).unwrap();
    matmul_mma(&stream, &epilogue, a_view, on_b.as_2d(k, n).unwrap(), c_view).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (batch, row, column) = (i / n / m, i / n % m, i % n);
        let dot = |x: usize| a[(batch * k + x) * m + row].to_f32() * b[x * n + column].to_f32();
        let sum: f32 = (0..k).map(dot).sum();
        let expected = (-2.0 * sum + bias[column].to_f32()).max(0.0);
        assert_eq!(value, bf16::from_f32(expected), "matrix {batch}, row {row}, column {column}");
    }
}

/// Matrices that TMA cannot copy: these start at any element.
#[test]
fn products_of_unaligned_matrices_take_these_kernels() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [m, n, k] = [70, 40, 24];
    let a = random_integers::<f16>(1, 1 + m * k);
    let b = random_integers::<f16>(2, 3 + n * k);
    let (on_a, on_b) =
        (DeviceBuffer::from_host(&stream, &a).unwrap(), DeviceBuffer::from_host(&stream, &b).unwrap());
    let mut c = DeviceBuffer::from_host(&stream, &vec![f16::NAN; m * n]).unwrap();
    let a_view = on_a.slice(1..).as_2d(m, k).unwrap();
    let b_view = on_b.slice(3..).as_2d(k, n).unwrap();
    matmul(&stream, a_view, b_view, c.as_2d_mut(m, n).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (i / n, i % n);
        let sum: f32 = (0..k).map(|x| a[1 + row * k + x].to_f32() * b[3 + x * n + column].to_f32()).sum();
        assert_eq!(value, f16::from_f32(sum), "row {row}, column {column}");
    }
}
