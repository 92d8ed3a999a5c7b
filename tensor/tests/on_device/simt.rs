//! Products of `f32` in full precision: every layout, anywhere in memory.

use warpsmith_core::{DeviceBuffer, Stream};
use warpsmith_tensor::{Activation, Epilogue, Matrix, TensorError, matmul_f32};

use crate::under_test;

/// m, n, k: edges of tiles of 128 x 128 and of steps of 8.
const SHAPES: [[usize; 3]; 9] = [
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

/// A product whose rows have `gap` elements between them and begin `offset` elements into a buffer.
struct Case {
    shape: [usize; 3],
    are_transposed: [bool; 2],
    planes: [usize; 3],
    offset: usize,
    gap: usize,
}

/// Integers, so that sums are exact; what is between rows is NaN.
fn exact(Case { shape: [m, n, k], are_transposed, planes, offset, gap }: Case) {
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
            let view = elements.as_3d_pitched([width, height, count], width + gap, height).unwrap();
            if is_transposed { Matrix::from(view).transposed() } else { view.into() }
        };
        let a = view(&on_a, a_sides, planes[0], are_transposed[0]);
        let b = view(&on_b, b_sides, planes[1], are_transposed[1]);
        let mut c = on_c.slice_mut(offset..);
        let c = c.as_3d_pitched_mut([n, m, planes[2]], n + gap, m).unwrap();
        matmul_f32(&stream, &Epilogue::default(), a, b, c).unwrap();
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
    let epilogue = Epilogue { scale: -2.0, bias: Some(on_bias.as_slice()), activation: Activation::Relu };
    let views = (on_a.as_2d(k, m).unwrap(), on_b.as_2d(n, k).unwrap());
    matmul_f32(&stream, &epilogue, views.0, views.1, c.as_2d_mut(n, m).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let products = (0..k).map(|j| f64::from(a[i / n * k + j]) * f64::from(b[j * n + i % n]));
        let (sum, all) = products.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
        let expected = (-2.0 * sum + f64::from(bias[i % n])).max(0.0);
        let allowed = 2.0 * (k as f64 + 2.0) * 2f64.powi(-24) * (all + 1.0);
        assert!((f64::from(value) - expected).abs() <= allowed, "{i}: {value} instead of {expected}");
    }
}

#[test]
fn wrong_sides_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    let mut c = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    let (a, b) = (x.as_2d(8, 8).unwrap(), x.slice(..56).as_2d(8, 7).unwrap());
    let error = matmul_f32(&stream, &Epilogue::default(), a, b, c.as_2d_mut(8, 8).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error.downcast_ref(), Some(TensorError::Shape { operation: "matmul_f32", .. })),
        "{text}"
    );
    assert!(text.contains("a is 8 x 8, b is 7 x 8, c is 8 x 8"), "{text}");
}
