//! Tests full-precision `f32` GEMM, without tensor cores and by 3xTF32, in every layout and alignment.

use warpsmith_runtime::{DeviceBuffer, Result, Stream};
use warpsmith_tensor::{Activation, Epilogue, Matrix, MatrixMut, TensorError, matmul_f32, matmul_tf32x3};

use crate::under_test;

type Multiply =
    fn(&Stream, &Epilogue<'_, f32>, Matrix<'_, f32>, Matrix<'_, f32>, MatrixMut<'_, f32>) -> Result<()>;

const BOTH: [Multiply; 2] =
    [|s, e, a, b, c| matmul_f32(s, e, a, b, c), |s, e, a, b, c| matmul_tf32x3(s, e, a, b, c)];

/// Values of m, n and k at the edges of tiles of 128 x 128 and of steps of 8, and values of k that are large enough for
/// clusters.
const SHAPES: [[usize; 3]; 10] = [
    [70, 36, 1030],
    [1, 1, 1],
    [3, 130, 7],
    [128, 128, 8],
    [127, 4, 9],
    [129, 257, 16],
    [64, 64, 100],
    [260, 12, 31],
    [5, 6, 0],
    [128, 256, 64],
];

/// Problem of one test. Rows have gaps of `gap` elements and start `offset` elements into a buffer.
#[derive(Clone, Copy)]
struct Case {
    shape: [usize; 3],
    are_transposed: [bool; 2],
    planes: [usize; 3],
    offset: usize,
    gap: usize,
}

fn exact(case: Case) {
    BOTH.into_iter().for_each(|multiply| exact_by(multiply, case));
}

/// Tests integers, for which sums are exact. Gaps between rows are NaN.
fn exact_by(multiply: Multiply, Case { shape: [m, n, k], are_transposed, planes, offset, gap }: Case) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut stored = |[height, width, count]: [usize; 3]| {
        let pitch = width + gap;
        let mut elements = vec![f32::NAN; offset + count * height * pitch];
        for row in elements[offset..].chunks_mut(pitch.max(1)) {
            row[..width].fill_with(|| random.i32(-4..=4) as f32);
        }
        elements
    };
    let sides = |rows, columns, is_transposed| if is_transposed { [columns, rows] } else { [rows, columns] };
    let [a_sides, b_sides] = [sides(m, k, are_transposed[0]), sides(k, n, are_transposed[1])];
    let (a, b) = (stored([a_sides[0], a_sides[1], planes[0]]), stored([b_sides[0], b_sides[1], planes[1]]));
    let c = vec![f32::NAN; offset + planes[2] * m * (n + gap)];
    let [on_a, on_b] = [&a, &b].map(|elements| DeviceBuffer::from_host(&stream, elements).unwrap());
    let mut on_c = DeviceBuffer::from_host(&stream, &c).unwrap();
    {
        let view = |buffer, [height, width]: [usize; 2], count, is_transposed| {
            let elements = DeviceBuffer::slice(buffer, offset..);
            let view = elements
                .as_3d_strided([count, height, width], [height * (width + gap), width + gap])
                .unwrap();
            if is_transposed { Matrix::from(view).transposed() } else { Matrix::from(view) }
        };
        let a = view(&on_a, a_sides, planes[0], are_transposed[0]);
        let b = view(&on_b, b_sides, planes[1], are_transposed[1]);
        let mut c = on_c.slice_mut(offset..);
        let c = c.as_3d_strided_mut([planes[2], m, n], [m * (n + gap), n + gap]).unwrap();
        multiply(&stream, &Epilogue::default(), a, b, c.into()).unwrap();
    }
    let at =
        |elements: &[f32], [height, width]: [usize; 2], plane, row: usize, column: usize, is_transposed| {
            let (row, column) = if is_transposed { (column, row) } else { (row, column) };
            elements[offset + (plane * height + row) * (width + gap) + column]
        };
    for (i, value) in on_c.to_host().unwrap().into_iter().enumerate() {
        let place = i.checked_sub(offset).map(|i| (i / (m * (n + gap)), i / (n + gap) % m, i % (n + gap)));
        let Some((plane, row, column)) = place.filter(|(.., column)| *column < n) else {
            assert!(value.is_nan(), "element {i} is none of c and was written");
            continue;
        };
        let [a_plane, b_plane] = [0, 1].map(|i| plane.min(planes[i] - 1));
        let of_a = |k| at(&a, a_sides, a_plane, row, k, are_transposed[0]);
        let of_b = |k| at(&b, b_sides, b_plane, k, column, are_transposed[1]);
        let expected: f32 = (0..k).map(|k| of_a(k) * of_b(k)).sum();
        assert_eq!(
            value, expected,
            "{m} x {n} x {k}, {are_transposed:?}, gap {gap}: {plane}, {row}, {column}"
        );
    }
}

#[test]
fn products_are_exact_in_all_layouts() {
    for shape in SHAPES {
        for are_transposed in [[false, true], [false, false], [true, true], [true, false]] {
            exact(Case { shape, are_transposed, planes: [1; 3], offset: 0, gap: 0 });
        }
    }
}

#[test]
fn matrices_begin_anywhere() {
    for (offset, gap) in [(1, 0), (0, 1), (4, 4), (3, 5)] {
        for are_transposed in [[false, true], [true, false]] {
            exact(Case { shape: [65, 132, 20], are_transposed, planes: [1; 3], offset, gap });
        }
    }
}

#[test]
fn batches_are_exact() {
    for planes in [[3, 3, 3], [1, 2, 2], [2, 1, 2]] {
        exact(Case { shape: [20, 130, 12], are_transposed: [false, true], planes, offset: 0, gap: 0 });
    }
}

#[test]
fn sums_have_the_precision_of_f32() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let [m, n, k] = [40, 36, 300];
    let mut random = fastrand::Rng::with_seed(5);
    let mut numbers = |len: usize| -> Vec<f32> { (0..len).map(|_| random.f32() - 0.5).collect() };
    let (a, b, bias) = (numbers(m * k), numbers(k * n), numbers(n));
    let on = |elements: &[f32]| DeviceBuffer::from_host(&stream, elements).unwrap();
    let (on_a, on_b, on_bias) = (on(&a), on(&b), on(&bias));
    let mut c = DeviceBuffer::<f32>::uninit(&stream, m * n).unwrap();
    let epilogue = Epilogue {
        scale: -2.0,
        bias: Some(on_bias.as_slice()),
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    for multiply in BOTH {
        let views = (on_a.as_2d(m, k).unwrap(), on_b.as_2d(k, n).unwrap());
        let to = c.as_2d_mut(m, n).unwrap();
        multiply(&stream, &epilogue, views.0.into(), views.1.into(), to.into()).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let products = (0..k).map(|j| f64::from(a[i / n * k + j]) * f64::from(b[j * n + i % n]));
            let (sum, all) = products.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
            let expected = (-2.0 * sum + f64::from(bias[i % n])).max(0.0);
            let allowed = 2.0 * (k as f64 + 2.0) * 2f64.powi(-24) * (all + 1.0);
            assert!((f64::from(value) - expected).abs() <= allowed, "{i}: {value} instead of {expected}");
        }
    }
}

/// The relative error of 3xTF32 is below 2^-21 for a single product of two numbers.
#[test]
fn parts_have_all_bits_but_few() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut random = fastrand::Rng::with_seed(6);
    let special = [
        0.0,
        1.0,
        -1.0,
        1.0 + f32::EPSILON,
        2.0 - f32::EPSILON,
        1.0e30,
        1.0e-30,
        -3.0e20,
        f32::MAX,
        -3.4025e38,
    ];
    let numbers: Vec<f32> = special.into_iter().chain((0..120).map(|_| random.f32() * 2.0 - 1.0)).collect();
    let x = DeviceBuffer::from_host(&stream, &numbers).unwrap();
    let len = numbers.len();
    let mut c = DeviceBuffer::<f32>::uninit(&stream, len * len).unwrap();
    let (a, b) = (x.as_2d(len, 1).unwrap(), x.as_2d(1, len).unwrap());
    matmul_tf32x3(&stream, &Epilogue::default(), a, b, c.as_2d_mut(len, len).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (x, y) = (f64::from(numbers[i / len]), f64::from(numbers[i % len]));
        let expected = x * y;
        if expected.abs() < f64::from(f32::MAX) {
            let allowed = expected.abs() * 2f64.powi(-21) + f64::from(f32::MIN_POSITIVE);
            assert!((f64::from(value) - expected).abs() <= allowed, "{x} * {y}: {value}");
        } else {
            assert!(!value.is_finite(), "{x} * {y}: {value}");
        }
    }
}

/// The other factor must have a low part that is not zero.
#[test]
fn what_is_no_number_stays_none() {
    let stream = Stream::new(&under_test::device()).unwrap();
    // The tensor cores would truncate the bits that make the last number a NaN.
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7f80_0001)] {
        let mut numbers = [1.0; 64];
        numbers[9] = special;
        let factor = 1.0 + 1.0 / 65536.0;
        let x = DeviceBuffer::from_host(&stream, &numbers).unwrap();
        let factors = DeviceBuffer::from_host(&stream, &[factor; 64]).unwrap();
        let mut c = DeviceBuffer::<f32>::uninit(&stream, 64).unwrap();
        let (a, b) = (x.as_2d(8, 8).unwrap(), factors.as_2d(8, 8).unwrap());
        matmul_tf32x3(&stream, &Epilogue::default(), a, b, c.as_2d_mut(8, 8).unwrap()).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let is_correct = match i / 8 {
                1 if special.is_nan() => value.is_nan(),
                1 => !value.is_finite(),
                _ => value == 8.0 * factor,
            };
            assert!(is_correct, "{special}, {i}: {value}");
        }
    }
}

#[test]
fn wrong_sides_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    let mut c = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    let b = x.slice(..56);
    for (multiply, name) in BOTH.into_iter().zip(["matmul_f32", "matmul_tf32x3"]) {
        let (a, b) = (x.as_2d(8, 8).unwrap(), b.as_2d(7, 8).unwrap());
        let c = c.as_2d_mut(8, 8).unwrap();
        let error = multiply(&stream, &Epilogue::default(), a.into(), b.into(), c.into()).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error.downcast_ref(), Some(TensorError::Shape { operation, .. }) if *operation == name),
            "{text}"
        );
        assert!(text.contains("a is 8 x 8, b is 7 x 8, c is 8 x 8"), "{text}");
    }
}
