//! Tests skinny GEMM, and its epilogues.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Graph, Stream};
use warpsmith_tensor::{
    Activation, Element4, Epilogue, Matrix, RmsNorm, Schedule, TensorError, matmul, matmul_f32, matmul_fused,
    matmul_with,
};

use crate::number::{Stored, TestNumber, random, random_integers};
use crate::under_test;

/// Values of m, n and k for groups of 8 rows, tiles of 16 and 32 columns, steps of 64 and partial steps.
const SHAPES: [[usize; 3]; 14] = [
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
    // Blocks of four warps, and of two warps with tiles of 32, on a device with 132 SMs.
    [2, 6001, 136],
    [1, 21_200, 72],
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

/// Both operands of the last product are results of preceding ones, so it must not read `b` early.
#[test]
fn results_of_preceding_products_are_operands() {
    const K: usize = 512;
    let stream = Stream::new(&under_test::device()).unwrap();
    let upload = |numbers: Vec<bf16>| DeviceBuffer::from_host(&stream, &numbers).unwrap();
    let picked = |rows: usize, factor: usize| {
        let place = |i: usize| if i % K == i / K * factor % K { bf16::ONE } else { bf16::ZERO };
        upload((0..rows * K).map(place).collect())
    };
    let [x, y] = [7, 8].map(|rows| upload(random_integers::<bf16>(rows as u64, rows * K)));
    // Each column of the products is a column of the left operand, in a different order.
    let [first, second] = [3, 5].map(|factor| picked(K, factor));
    let [mut a, mut b] = [7, 8].map(|rows| DeviceBuffer::<bf16>::zeros(&stream, rows * K).unwrap());
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 7 * 8).unwrap();
    let mut enqueue = || {
        // Numbers that are read too early are NaN.
        stream.memset(&mut a, 0xff)?;
        stream.memset(&mut b, 0xff)?;
        let [of_a, of_b] = [&first, &second].map(|weights| weights.as_2d(K, K));
        matmul(&stream, x.as_2d(7, K)?, Matrix::from(of_a?).transposed(), a.as_2d_mut(7, K)?)?;
        matmul(&stream, y.as_2d(8, K)?, Matrix::from(of_b?).transposed(), b.as_2d_mut(8, K)?)?;
        matmul(&stream, a.as_2d(7, K)?, Matrix::from(b.as_2d(8, K)?).transposed(), c.as_2d_mut(7, 8)?)
    };
    enqueue().unwrap();
    let graph = Graph::capture(&stream, &mut enqueue).unwrap().instantiate().unwrap();
    let (x, y) = (x.to_host().unwrap(), y.to_host().unwrap());
    let sum = |row: usize, column: usize| -> f64 {
        (0..K).map(|i| x[row * K + 3 * i % K].value() * y[column * K + 5 * i % K].value()).sum()
    };
    let expected: Vec<_> = (0..7 * 8).map(|i| bf16::rounded(sum(i / 8, i % 8))).collect();
    for _ in 0..5 {
        let found: Vec<_> = c.to_host().unwrap().into_iter().map(bf16::number_of).collect();
        assert_eq!(found, expected);
        stream.memset(&mut c, 0xff).unwrap();
        graph.launch(&stream).unwrap();
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
    let epilogue = Epilogue {
        scale: 0.5,
        bias: Some(on_bias.as_slice()),
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
    matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
    for ((i, value), (sum, all)) in c.to_host().unwrap().into_iter().enumerate().zip(a.times(&b)) {
        let expected = (0.5 * sum + f64::from(bias[i % n])).max(0.0);
        let error = (f64::from(value) - expected).abs();
        assert!(error <= expected / 256.0 + 1e-5 * all, "{i}: {value} instead of {expected}");
    }
}

/// Expected result of an epilogue with SwiGLU for the sums of a column and of the column n further on.
pub fn swiglu(gate: f64, up: f64) -> f64 {
    gate / (1.0 + (-gate).exp()) * up
}

fn gated<T: TestNumber<Output = T> + Element4>([m, n, k]: [usize; 3]) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let a = Stored::<T>::new([m, k], false, random(3, m * k));
    let b = Stored::<T>::new([k, 2 * n], true, random(4, 2 * n * k));
    let (bias, before) = (random::<T>(5, 2 * n), random::<T>(6, m * n));
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
    for (has_bias, accumulate) in [(false, false), (true, true)] {
        let bias_slice = has_bias.then(|| on_bias.as_slice());
        let activation = Activation::SwiGlu;
        let epilogue =
            Epilogue { scale: 0.5, bias: bias_slice, activation, accumulate, ..Epilogue::default() };
        let mut c = DeviceBuffer::from_host(&stream, &before).unwrap();
        matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
        let sums = a.times(&b);
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let sum = |column: usize| {
                let bias = if has_bias { bias[column].value() } else { 0.0 };
                0.5 * sums[row * 2 * n + column].0 + bias
            };
            let expected = swiglu(sum(column), sum(n + column));
            let expected = if accumulate { expected + before[i].value() } else { expected };
            let error = (T::number_of(value) - expected).abs();
            // With more rows than a skinny GEMM has, the gate and the other factor may be rounded, too.
            let roundings = if m > 16 { 3.0 } else { 1.0 };
            assert!(
                error <= expected.abs() * roundings / 256.0 + 1e-2,
                "{m} x {n} x {k}, {i}: {value:?} instead of {expected}"
            );
        }
    }
}

#[test]
fn gated_products_are_within_rounding() {
    for shape in SHAPES.into_iter().filter(|[_, _, k]| k % 8 == 0) {
        gated::<bf16>(shape);
        gated::<f16>(shape);
    }
    // There are more rows than a block multiplies at once.
    for shape in [[17, 8, 64], [35, 20, 64], [130, 136, 200], [257, 264, 72]] {
        gated::<bf16>(shape);
        gated::<f16>(shape);
    }
}

#[test]
fn gates_of_integers_are_exact() {
    for shape in [[5, 70, 192], [33, 70, 192], [40, 72, 192], [300, 400, 128], [600, 8, 64]] {
        are_gates_exact(shape);
    }
}

fn are_gates_exact([m, n, k]: [usize; 3]) {
    let stream = Stream::new(&under_test::device()).unwrap();
    // The gate of each column is 0 or so large that its sigmoid is 1.
    let a = Stored::<bf16>::new([m, k], false, vec![bf16::ONE; m * k]);
    let weight = |i: usize| {
        [(i / k % 2) as f32, (i / k % 5) as f32 - 2.0][i / k / n] / if i / k < n { 1.0 } else { 64.0 }
    };
    let b = Stored::new([k, 2 * n], true, (0..2 * n * k).map(|i| bf16::from_f32(weight(i))).collect());
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
    let epilogue = Epilogue { activation: Activation::SwiGlu, ..Epilogue::default() };
    matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let column = i % n;
        let (gate, up) = (column % 2 * k, (((n + column) % 5) as f32 - 2.0) * k as f32 / 64.0);
        assert_eq!(value, bf16::from_f32(gate as f32 * up), "{m} x {n} x {k}, {i}");
    }
}

#[test]
fn products_are_added_to_c() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for [m, n, k] in [[1, 1, 8], [3, 33, 128], [16, 40, 512], [20, 17, 0]] {
        let a = Stored::<bf16>::new([m, k], false, random_integers(1, m * k));
        let b = Stored::<bf16>::new([k, n], true, random_integers(2, n * k));
        let before = random_integers::<bf16>(3, m * n);
        let (on_a, on_b) = (a.on(&stream), b.on(&stream));
        let mut c = DeviceBuffer::from_host(&stream, &before).unwrap();
        let epilogue = Epilogue { accumulate: true, ..Epilogue::default() };
        matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
        for (i, (value, (sum, _))) in c.to_host().unwrap().into_iter().zip(a.times(&b)).enumerate() {
            assert_eq!(f64::from(value), bf16::rounded(sum + f64::from(before[i])), "{m} x {n} x {k}, {i}");
        }
    }
}

/// Expected product of a normalized row by a column, and the sum of the terms' magnitudes.
pub fn normalized<T: TestNumber>(
    row: &[T],
    weight: &[T],
    epsilon: f64,
    column: impl Fn(usize) -> f64,
) -> (f64, f64) {
    let square: f64 = row.iter().map(|x| x.value() * x.value()).sum();
    let factor = (square / row.len() as f64 + epsilon).sqrt().recip();
    let terms =
        row.iter().zip(weight).enumerate().map(|(i, (x, w))| factor * x.value() * w.value() * column(i));
    terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()))
}

fn with_norm<T: TestNumber<Output = T> + Element4>([m, n, k]: [usize; 3], activation: Activation) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let columns = if activation == Activation::SwiGlu { 2 * n } else { n };
    let a = Stored::<T>::new([m, k], false, random(3, m * k));
    let b = Stored::<T>::new([k, columns], true, random(4, columns * k));
    let (weight, before) = (random::<T>(5, k), random_integers::<T>(6, m * n));
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let on_weight = DeviceBuffer::from_host(&stream, &weight).unwrap();
    let norm = Some(RmsNorm { weight: on_weight.as_slice(), epsilon: 0.5 });
    let mut c = DeviceBuffer::from_host(&stream, &before).unwrap();
    let epilogue = Epilogue { activation, norm, accumulate: true, ..Epilogue::default() };
    matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (&a.elements[i / n * k..][..k], i % n);
        let product = |column: usize| normalized(row, &weight, 0.5, |j| b.elements[column * k + j].value());
        let ((sum, all), before) = (product(column), before[i].value());
        let (expected, error) = match activation {
            Activation::SwiGlu => {
                let (up, of_up) = product(n + column);
                (swiglu(sum, up), (all * up.abs() + of_up * (sum.abs() + 1.0)) / 128.0)
            }
            _ => (sum, all / 256.0),
        };
        let expected = expected + before;
        let found = T::number_of(value);
        assert!(
            (found - expected).abs() <= error + expected.abs() / 256.0 + 1e-6,
            "{m} x {n} x {k}, {i}: {found} instead of {expected}"
        );
    }
}

#[test]
fn rows_are_normalized_before_the_product() {
    for shape in SHAPES.into_iter().filter(|[_, _, k]| k % 8 == 0) {
        with_norm::<bf16>(shape, Activation::None);
        with_norm::<f16>(shape, Activation::SwiGlu);
    }
    // There are more rows than a block multiplies at once.
    with_norm::<bf16>([35, 20, 64], Activation::None);
}

#[test]
fn norms_of_other_lengths_and_addresses_are_rejected() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 128).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 8).unwrap();
    let mut error = |weight| {
        let norm = Some(RmsNorm { weight, epsilon: 1e-5 });
        let b = Matrix::from(numbers.slice(..32).as_2d(4, 8).unwrap()).transposed();
        let a = numbers.slice(..16).as_2d(2, 8).unwrap();
        let epilogue = Epilogue { norm, ..Epilogue::default() };
        matmul_fused(&stream, &epilogue, a, b, c.as_2d_mut(2, 4).unwrap()).unwrap_err()
    };
    let text = error(numbers.slice(..7)).to_string();
    assert!(text.contains("the weight of the norm has 7 elements, but a has 8 columns"), "{text}");
    let unaligned = error(numbers.slice(1..9));
    assert!(matches!(unaligned.downcast_ref(), Some(TensorError::Alignment { .. })), "{unaligned}");
}

#[test]
fn nan_and_infinity_propagate_through_gates() {
    let stream = Stream::new(&under_test::device()).unwrap();
    // Columns of b: two of the gate, and two of the other factor.
    let b = [bf16::NEG_INFINITY, bf16::ONE, bf16::ONE, bf16::NAN]
        .map(|x| [vec![x], vec![bf16::ZERO; 7]].concat());
    let b = Stored::new([8, 4], true, b.concat());
    let a = Stored::new([1, 8], false, vec![bf16::ONE; 8]);
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 2).unwrap();
    let epilogue = Epilogue { activation: Activation::SwiGlu, ..Epilogue::default() };
    matmul_fused(&stream, &epilogue, a.view(&on_a), b.view(&on_b), c.as_2d_mut(1, 2).unwrap()).unwrap();
    assert!(c.to_host().unwrap().iter().all(|x| x.is_nan()), "-inf * 0 and NaN");
}

#[test]
fn gates_and_accumulation_need_a_skinny_kernel() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 128).unwrap();
    let singles = DeviceBuffer::<f32>::zeros(&stream, 128).unwrap();
    let (mut c, mut single) = (numbers.clone_on(&stream).unwrap(), singles.clone_on(&stream).unwrap());
    let accumulate = Epilogue { accumulate: true, ..Epilogue::default() };
    let (a, columns) = (numbers.slice(..16).as_2d(2, 8).unwrap(), numbers.slice(..32).as_2d(4, 8).unwrap());
    let b = Matrix::from(columns).transposed();
    let schedule = Schedule { tile: [64, 128], cluster: 1, split_k: 1 };
    let errors = [
        // The weights are not transposed, or not aligned.
        matmul_fused(
            &stream,
            &accumulate,
            a,
            numbers.slice(..32).as_2d(8, 4).unwrap(),
            c.slice_mut(..8).as_2d_mut(2, 4).unwrap(),
        ),
        matmul_fused(
            &stream,
            &accumulate,
            a,
            Matrix::from(numbers.slice(1..33).as_2d(4, 8).unwrap()).transposed(),
            c.slice_mut(..8).as_2d_mut(2, 4).unwrap(),
        ),
        matmul_with(&stream, schedule, &accumulate, a, b, c.slice_mut(..8).as_2d_mut(2, 4).unwrap()),
        matmul_f32(
            &stream,
            &Epilogue { activation: Activation::SwiGlu, ..Epilogue::default() },
            singles.slice(..16).as_2d(2, 8).unwrap(),
            singles.slice(..64).as_2d(8, 8).unwrap(),
            single.slice_mut(..8).as_2d_mut(2, 4).unwrap(),
        ),
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(TensorError::Epilogue { .. })), "{error}");
    }
    let swiglu = Epilogue { activation: Activation::SwiGlu, ..Epilogue::default() };
    let error = matmul_fused(&stream, &swiglu, a, b, c.slice_mut(..8).as_2d_mut(2, 4).unwrap()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Shape { .. })), "{error}");
}

/// On a GPU with programmatic dependent launch, each product of the chain can start before the preceding one ends.
#[test]
fn chains_of_products_are_ordered() {
    const N: usize = 512;
    let stream = Stream::new(&under_test::device()).unwrap();
    // Each matrix moves element i to i + 1 and negates it, so that a product before the end of the preceding one is
    // wrong.
    let element = |i: usize| if i % N == (i / N + N - 1) % N { -1.0 } else { 0.0 };
    let b =
        DeviceBuffer::from_host(&stream, &(0..N * N).map(|i| bf16::from_f32(element(i))).collect::<Vec<_>>());
    let b = b.unwrap();
    let first: Vec<bf16> = (0..2 * N).map(|i| bf16::from_f32((i % 251) as f32)).collect();
    let mut buffers = [0; 2].map(|_| DeviceBuffer::from_host(&stream, &first).unwrap());
    let graph = Graph::capture(&stream, || {
        for _ in 0..16 {
            let [a, c] = &mut buffers;
            let b = Matrix::from(b.as_2d(N, N)?).transposed();
            matmul(&stream, a.as_2d(2, N)?, b, c.as_2d_mut(2, N)?)?;
            buffers.swap(0, 1);
        }
        Ok::<(), warpsmith_runtime::Error>(())
    });
    let graph = graph.unwrap().instantiate().unwrap();
    for _ in 0..3 {
        buffers[0].copy_from_host(&first).unwrap();
        graph.launch(&stream).unwrap();
        let found = buffers[0].to_host().unwrap();
        let expected: Vec<bf16> = (0..2 * N).map(|i| first[i / N * N + (i + N - 16) % N]).collect();
        assert_eq!(found, expected);
    }
}
