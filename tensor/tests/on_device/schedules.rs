//! Tests GEMM with explicit schedules, with split-K and clusters.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{Activation, Epilogue, F8E4M3, Matrix, Schedule, TensorError, matmul_with};

use crate::number::{Stored, TestNumber, random_integers};
use crate::under_test;

const LARGE: [u32; 2] = [128, 256];

/// Tests split-K with integers, a scale, a bias and ReLU, into padded rows of `c`.
fn exact<T: TestNumber<Sum = f32>>(schedule: Schedule, b_transposed: bool, [m, n, k]: [usize; 3])
where
    T::Output: TestNumber<Output = T::Output>,
{
    let stream = Stream::new(&under_test::device()).unwrap();
    let a = Stored::<T>::new([m, k], false, random_integers(7, m * k));
    let b = Stored::<T>::new([k, n], b_transposed, random_integers(8, n * k));
    let bias = random_integers::<T::Output>(9, n);
    let (on_a, on_b, on_bias) =
        (a.on(&stream), b.on(&stream), DeviceBuffer::from_host(&stream, &bias).unwrap());
    let pitch = n + 16;
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * pitch]).unwrap();
    let epilogue = Epilogue {
        scale: 0.5,
        bias: Some(on_bias.as_slice()),
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    let c_view = c.as_2d_strided_mut(m, n, pitch).unwrap();
    matmul_with(&stream, schedule, &epilogue, a.view(&on_a), b.view(&on_b), c_view).unwrap();
    let sums = a.times(&b);
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (i / pitch, i % pitch);
        let found = T::number_of(value);
        if column < n {
            let expected = (0.5 * sums[row * n + column].0 + T::number_of(bias[column])).max(0.0);
            let case = format!("{} {m} x {n} x {k}, {schedule:?}", std::any::type_name::<T>());
            assert_eq!(found, T::rounded(expected), "{case}, row {row}, column {column}");
        } else {
            assert!(found.is_nan(), "the gap of row {row} was written");
        }
    }
}

#[test]
fn large_tiles_are_exact() {
    for shape in [[1, 8, 8], [64, 64, 64], [63, 248, 56], [127, 264, 72], [129, 256, 320], [257, 504, 136]] {
        for cluster in [1, 2] {
            let schedule = Schedule { tile: LARGE, cluster, split_k: 1 };
            exact::<bf16>(schedule, true, shape);
            exact::<f16>(schedule, false, shape);
        }
    }
}

#[test]
fn clusters_of_all_tiles_are_exact() {
    for tile in Schedule::TILES {
        for (cluster, split_k) in [(1, 1), (1, 2), (1, 3), (1, 4), (1, 8), (2, 1), (2, 2), (2, 3), (2, 4)] {
            let schedule = Schedule { tile, cluster, split_k };
            if !schedule.exists() {
                continue;
            }
            exact::<bf16>(schedule, true, [33, 272, 336]);
            exact::<bf16>(schedule, false, [130, 40, 336]);
            exact::<f16>(schedule, true, [1, 24, 584]);
            exact::<f16>(schedule, false, [200, 136, 72]);
            exact::<f32>(schedule, true, [20, 28, 172]);
            exact::<F8E4M3>(schedule, true, [17, 48, 656]);
        }
    }
}

#[test]
fn clusters_of_two_are_exact_for_odd_rows_of_tiles() {
    for m in [5, 128, 300] {
        exact::<bf16>(Schedule { tile: LARGE, cluster: 2, split_k: 1 }, true, [m, 264, 136]);
        exact::<bf16>(Schedule { tile: LARGE, cluster: 2, split_k: 1 }, false, [m, 264, 136]);
    }
}

#[test]
fn parts_of_batches_are_exact() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let ([m, n, k], planes) = ([9, 40, 264], 3);
    let a: Vec<Stored<bf16>> =
        (0..planes).map(|i| Stored::new([m, k], false, random_integers(i as u64, m * k))).collect();
    let b = Stored::<bf16>::new([k, n], false, random_integers(9, n * k));
    let all: Vec<bf16> = a.iter().flat_map(|matrix| matrix.elements.iter().copied()).collect();
    let (on_a, on_b) = (DeviceBuffer::from_host(&stream, &all).unwrap(), b.on(&stream));
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; planes * m * n]).unwrap();
    let a_view = Matrix::from(on_a.as_3d(planes, m, k).unwrap());
    let (schedule, plain) = (Schedule { tile: LARGE, cluster: 1, split_k: 4 }, Epilogue::default());
    let c_view = c.as_3d_mut(planes, m, n).unwrap();
    matmul_with(&stream, schedule, &plain, a_view, b.view(&on_b), c_view).unwrap();
    let expected = a.iter().flat_map(|a| a.times(&b));
    for (i, (value, (expected, _))) in c.to_host().unwrap().into_iter().zip(expected).enumerate() {
        assert_eq!(f64::from(value), bf16::rounded(expected), "element {i}");
    }
}

#[test]
fn schedules_that_there_are_not_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut refused = |tile, cluster, split_k, a_transposed| {
        let a = Matrix::from(x.as_2d(8, 8).unwrap());
        let a = if a_transposed { a.transposed() } else { a };
        let (plain, b) = (Epilogue::default(), x.as_2d(8, 8).unwrap());
        let c = c.as_2d_mut(8, 8).unwrap();
        let error = matmul_with(&stream, Schedule { tile, cluster, split_k }, &plain, a, b, c).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(TensorError::Schedule { .. })), "{error}");
        error.to_string()
    };
    assert!(refused([64, 64], 1, 1, false).contains("tiles of 64 x 64: tiles must have"));
    assert!(refused(LARGE, 3, 1, false).contains("clusters of 3 blocks"));
    assert!(refused([64, 128], 2, 8, false).contains("split_k 8 with cluster 2:"));
    assert!(refused(LARGE, 1, 0, false).contains("split_k 0 with"));
    assert!(refused(LARGE, 2, 1 << 31, false).contains("split_k 2147483648 with"));
    assert!(refused(LARGE, 1, 64, false).contains("split_k 64 with"));
    assert!(refused([64, 256], 1, 5, false).contains("split_k 5 with cluster 1:"));
    assert!(refused([128, 128], 1, 16, false).contains("split_k 16 with"));
    assert!(refused(LARGE, 1, 2, true).contains("a row-major a"));
    assert!(refused([64, 128], 1, 1, true).contains("require a row-major a"));
}
