//! Linear algebra on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A device or a
//! library that is not there fails the tests.
//!
//! Results are compared with sums in `f64`. With u the unit roundoff of the type in which is summed, v that of the type
//! of the result, and S the sum of the sizes of all terms of an element, the bound is `2 (k + 4) u S + 2 v S`.

use std::sync::Arc;

use half::{bf16, f16};
use warpsmith_runtime::library::blas::{
    self, Epilogue, F8E4M3, F8E5M2, Float, Gemm, Layout, Math, Matmul, Matrix, MatrixMut, Scale, Search,
    Side, Triangle, Trsm, Vector, VectorMut,
};
use warpsmith_runtime::library::{LibraryError, Vendor};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, Error, Graph, Stream};

/// The device under test, with handles and caches of its own.
fn device() -> Device {
    let name = std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let shared = Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_TEST_DEVICE={name}: {error}"));
    // SAFETY: what goes into its methods is of this device and alive.
    Device::with_driver(Arc::clone(unsafe { shared.driver() }.0), shared.id().ordinal()).unwrap()
}

fn stream() -> Stream {
    Stream::new(&device()).unwrap()
}

/// Numbers in -1..1 with 8 bits after the point.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..len).map(|_| f64::from(next() % 512) / 256.0 - 1.0).collect()
}

/// A type with its unit roundoffs.
trait Number: DeviceCopy + PartialEq + std::fmt::Debug {
    const STORED: f64;
    const SUMMED: f64;
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! number {
    ($($type:ty, $stored:expr, $summed:expr, |$x:ident| $of:expr, |$y:ident| $value:expr;)*) => {
        $(impl Number for $type {
            const STORED: f64 = 1.0 / (1u64 << $stored) as f64;
            const SUMMED: f64 = 1.0 / (1u64 << $summed) as f64;
            fn of($x: f64) -> Self { $of }
            fn value(self) -> f64 { let $y = self; $value }
        })*
    };
}

number! {
    f32, 24, 24, |x| x as f32, |x| x.into();
    f64, 53, 53, |x| x, |x| x;
    f16, 11, 24, |x| f16::from_f64(x), |x| x.to_f64();
    bf16, 8, 24, |x| bf16::from_f64(x), |x| x.to_f64();
    F8E4M3, 4, 24, |x| F8E4M3::from_f32(x as f32), |x| x.to_f32().into();
    F8E5M2, 3, 24, |x| F8E5M2::from_f32(x as f32), |x| x.to_f32().into();
}

/// Types that the emulated device and every GPU take, with their scalars.
trait Plain: Number + Float {
    fn scalar(value: f64) -> Scale<Self>;
}

macro_rules! plain {
    ($($type:ty, $scalar:ty;)*) => {
        $(impl Plain for $type {
            fn scalar(value: f64) -> $scalar { value as $scalar }
        })*
    };
}

plain! { f32, f32; f64, f64; f16, f32; bf16, f32; }

/// A matrix of the host, by what it is read as.
#[derive(Clone)]
struct HostMatrix {
    rows: usize,
    cols: usize,
    values: Vec<f64>,
}

impl HostMatrix {
    fn new<T: Number>(seed: u64, rows: usize, cols: usize) -> Self {
        let values = numbers(seed, rows * cols).into_iter().map(|x| T::of(x).value()).collect();
        Self { rows, cols, values }
    }

    fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.cols + col]
    }

    fn at_place<T: Number>(&self, place: Place) -> Vec<T> {
        let mut memory = vec![T::of(77.0); place.len()];
        for row in 0..self.rows {
            for col in 0..self.cols {
                memory[place.index(row, col)] = T::of(self.at(row, col));
            }
        }
        memory
    }
}

/// Where a matrix is in memory: with gaps between rows, of what must not be used, and transposed or not.
#[derive(Debug, Clone, Copy)]
struct Place {
    rows: usize,
    cols: usize,
    gap: usize,
    transposed: bool,
}

impl Place {
    fn of(matrix: &HostMatrix, gap: usize, transposed: bool) -> Self {
        Self { rows: matrix.rows, cols: matrix.cols, gap, transposed }
    }

    fn stored(&self) -> (usize, usize) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    fn len(&self) -> usize {
        let (rows, cols) = self.stored();
        rows * (cols + self.gap)
    }

    fn index(&self, row: usize, col: usize) -> usize {
        let (row, col) = if self.transposed { (col, row) } else { (row, col) };
        row * (self.stored().1 + self.gap) + col
    }

    fn layout(&self) -> Layout {
        let (rows, cols) = self.stored();
        let layout = Layout::new(rows, cols).with_stride(cols + self.gap);
        if self.transposed { layout.transposed() } else { layout }
    }

    /// The matrix that is there, after checking that nothing lies in the gaps.
    #[track_caller]
    fn read<T: Number>(&self, memory: &[T]) -> Vec<f64> {
        let indices = || (0..self.rows).flat_map(|row| (0..self.cols).map(move |col| self.index(row, col)));
        let mut inside = vec![false; memory.len()];
        indices().for_each(|index| inside[index] = true);
        for (value, inside) in memory.iter().zip(inside) {
            assert!(inside || *value == T::of(77.0), "{self:?}: a gap was written");
        }
        indices().map(|index| memory[index].value()).collect()
    }
}

/// `alpha * a * b + beta * c` and the sums of the sizes of the terms.
fn reference(
    (alpha, beta): (f64, f64),
    a: &HostMatrix,
    b: &HostMatrix,
    c: &HostMatrix,
) -> (Vec<f64>, Vec<f64>) {
    let indices = (0..a.rows).flat_map(|row| (0..b.cols).map(move |col| (row, col)));
    let element = |(row, col)| {
        let terms = (0..a.cols).map(|inner| alpha * a.at(row, inner) * b.at(inner, col));
        let last = if beta == 0.0 { 0.0 } else { beta * c.at(row, col) };
        let terms: Vec<f64> = terms.chain([last]).collect();
        (terms.iter().sum::<f64>(), terms.iter().map(|term| term.abs()).sum::<f64>())
    };
    indices.map(element).unzip()
}

#[track_caller]
fn assert_near<T: Number>(what: &str, k: usize, found: &[f64], (expected, sizes): &(Vec<f64>, Vec<f64>)) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, ((found, expected), size)) in found.iter().zip(expected).zip(sizes).enumerate() {
        let bound = 2.0 * (k as f64 + 4.0) * T::SUMMED * size + 2.0 * T::STORED * size;
        assert!(
            (found - expected).abs() <= bound,
            "{what}, element {index}: {found} instead of {expected}, not within {bound}"
        );
    }
}

fn check_gemm<T: Plain>() {
    let stream = stream();
    let shapes = [(1, 1, 1), (3, 5, 7), (16, 32, 48), (33, 17, 65), (1, 40, 9), (40, 1, 9)];
    for (number, (m, n, k)) in shapes.into_iter().enumerate() {
        for flags in 0..8 {
            let flag = |bit: u32| flags >> bit & 1 == 1;
            let scalars = [(1.0, 0.0), (-0.5, 2.0)][(number + flags) % 2];
            let [a, b, c] =
                [(1, m, k), (2, k, n), (3, m, n)].map(|(seed, r, c)| HostMatrix::new::<T>(seed, r, c));
            let places =
                [Place::of(&a, 3, flag(0)), Place::of(&b, number, flag(1)), Place::of(&c, 2, flag(2))];
            let upload = |matrix: &HostMatrix, place: Place| {
                DeviceBuffer::from_host(&stream, &matrix.at_place::<T>(place)).unwrap()
            };
            let (a_memory, b_memory) = (upload(&a, places[0]), upload(&b, places[1]));
            let mut c_memory = upload(&c, places[2]);
            let options = Gemm { alpha: T::scalar(scalars.0), beta: T::scalar(scalars.1), ..Gemm::default() };
            blas::gemm(
                &stream,
                options,
                Matrix::with_layout(&a_memory, places[0].layout()).unwrap(),
                Matrix::with_layout(&b_memory, places[1].layout()).unwrap(),
                MatrixMut::with_layout(&mut c_memory, places[2].layout()).unwrap(),
            )
            .unwrap();
            let found = places[2].read(&c_memory.to_host().unwrap());
            let what = format!("{} of {m} x {n} x {k}, {flags:03b}", std::any::type_name::<T>());
            assert_near::<T>(&what, k, &found, &reference(scalars, &a, &b, &c));
        }
    }
}

#[test]
fn products_of_every_shape_stride_and_transpose() {
    check_gemm::<f32>();
    check_gemm::<f64>();
    check_gemm::<f16>();
    check_gemm::<bf16>();
}

#[test]
fn half_precision_products_may_be_stored_in_single_precision() {
    let stream = stream();
    let (a, b) = (HostMatrix::new::<f16>(1, 8, 24), HostMatrix::new::<f16>(2, 24, 16));
    let zero = HostMatrix::new::<f32>(0, 8, 16);
    let place = |matrix| Place::of(matrix, 0, false);
    let a_memory = DeviceBuffer::from_host(&stream, &a.at_place::<f16>(place(&a))).unwrap();
    let b_memory = DeviceBuffer::from_host(&stream, &b.at_place::<f16>(place(&b))).unwrap();
    let mut c_memory = DeviceBuffer::<f32>::zeros(&stream, 8 * 16).unwrap();
    let (a_matrix, b_matrix) =
        (Matrix::new(&a_memory, 8, 24).unwrap(), Matrix::new(&b_memory, 24, 16).unwrap());
    let c_matrix = MatrixMut::new(&mut c_memory, 8, 16).unwrap();
    blas::gemm(&stream, Gemm::default(), a_matrix, b_matrix, c_matrix).unwrap();
    let found = place(&zero).read(&c_memory.to_host().unwrap());
    assert_near::<f32>("f16 to f32", 24, &found, &reference((1.0, 0.0), &a, &b, &zero));
}

#[test]
fn integers_are_multiplied_exactly() {
    let stream = stream();
    let (m, n, k) = (20, 24, 32);
    let number = |seed: usize, index: usize| ((index * 37 + seed * 11) % 256) as u8 as i8;
    let a: Vec<i8> = (0..m * k).map(|index| number(1, index)).collect();
    let b: Vec<i8> = (0..k * n).map(|index| number(2, index)).collect();
    let c: Vec<i32> = (0..m * n).map(|index| index as i32 * 1000).collect();
    let a_memory = DeviceBuffer::from_host(&stream, &a).unwrap();
    let b_memory = DeviceBuffer::from_host(&stream, &b).unwrap();
    let mut c_memory = DeviceBuffer::from_host(&stream, &c).unwrap();
    blas::gemm(
        &stream,
        Gemm { alpha: 3, beta: -1, math: None },
        Matrix::new(&a_memory, m, k).unwrap(),
        Matrix::new(&b_memory, k, n).unwrap(),
        MatrixMut::new(&mut c_memory, m, n).unwrap(),
    )
    .unwrap();
    let found = c_memory.to_host().unwrap();
    for row in 0..m {
        for col in 0..n {
            let sum: i32 = (0..k).map(|i| i32::from(a[row * k + i]) * i32::from(b[i * n + col])).sum();
            assert_eq!(found[row * n + col], 3 * sum - c[row * n + col]);
        }
    }
}

#[test]
fn without_beta_the_output_is_not_read() {
    let stream = stream();
    let a = DeviceBuffer::from_host(&stream, &[1f32; 64]).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &[f32::NAN; 64]).unwrap();
    let matrix = Matrix::new(&a, 8, 8).unwrap();
    blas::gemm(&stream, Gemm::default(), matrix, matrix, MatrixMut::new(&mut c, 8, 8).unwrap()).unwrap();
    assert_eq!(c.to_host().unwrap(), [8.0; 64]);
    let mut c = DeviceBuffer::from_host(&stream, &[f32::NAN; 64]).unwrap();
    let options = Matmul::default();
    blas::matmul(&stream, &options, matrix, matrix, MatrixMut::new(&mut c, 8, 8).unwrap()).unwrap();
    assert_eq!(c.to_host().unwrap(), [8.0; 64]);
    let mut y = DeviceBuffer::from_host(&stream, &[f32::NAN; 8]).unwrap();
    blas::gemv(&stream, Gemm::default(), matrix, a.slice(..8), &mut y).unwrap();
    assert_eq!(y.to_host().unwrap(), [8.0; 8]);
}

#[test]
fn batches_lie_apart_or_side_by_side_and_one_input_serves_all() {
    let stream = stream();
    let (m, n, k, count) = (5, 6, 7, 4);
    let (a, b) = (numbers(1, count * m * k), numbers(2, k * n));
    let to_f32 = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    let a_memory = DeviceBuffer::from_host(&stream, &to_f32(&a)).unwrap();
    let b_memory = DeviceBuffer::from_host(&stream, &to_f32(&b)).unwrap();
    let a_layout = Layout::new(m, k).with_batch(count, m * k);
    // The outputs' rows side by side, as the heads of attention.
    let side_by_side = Layout::new(m, n).with_stride(count * n).with_batch(count, n);
    let apart = Layout::new(m, n).with_batch(count, m * n + 3);
    for (layout, at) in [
        (
            side_by_side,
            &(|batch: usize, row: usize| row * count * n + batch * n) as &dyn Fn(usize, usize) -> usize,
        ),
        (apart, &|batch: usize, row: usize| batch * (m * n + 3) + row * n),
    ] {
        for with_plans in [false, true] {
            let mut c_memory = DeviceBuffer::<f32>::zeros(&stream, layout.extent().unwrap()).unwrap();
            let a_matrix = Matrix::with_layout(&a_memory, a_layout).unwrap();
            let b_matrix = Matrix::new(&b_memory, k, n).unwrap();
            let c_matrix = MatrixMut::with_layout(&mut c_memory, layout).unwrap();
            match with_plans {
                false => blas::gemm(&stream, Gemm::default(), a_matrix, b_matrix, c_matrix).unwrap(),
                true => blas::matmul(&stream, &Matmul::default(), a_matrix, b_matrix, c_matrix).unwrap(),
            }
            let found = c_memory.to_host().unwrap();
            for batch in 0..count {
                let values = a[batch * m * k..][..m * k].to_vec();
                let a = HostMatrix { rows: m, cols: k, values };
                let b = HostMatrix { rows: k, cols: n, values: b.clone() };
                let zero = HostMatrix { rows: m, cols: n, values: vec![0.0; m * n] };
                let rows = (0..m).flat_map(|row| found[at(batch, row)..][..n].iter());
                let found: Vec<f64> = rows.map(|x| f64::from(*x)).collect();
                assert_near::<f32>("a batch", k, &found, &reference((1.0, 0.0), &a, &b, &zero));
            }
        }
    }
}

fn check_groups<T: Plain>(captured: bool) {
    let stream = stream();
    let shapes = [(4, 8, 3), (0, 8, 3), (9, 2, 30), (16, 16, 16), (5, 6, 0)];
    let inputs: Vec<_> = shapes
        .iter()
        .enumerate()
        .map(|(seed, (m, n, k))| {
            (HostMatrix::new::<T>(seed as u64, *m, *k), HostMatrix::new::<T>(seed as u64 + 9, *k, *n))
        })
        .collect();
    let upload = |matrix: &HostMatrix, transposed| {
        let memory = matrix.at_place::<T>(Place::of(matrix, 0, transposed));
        DeviceBuffer::from_host(&stream, &memory).unwrap()
    };
    let memory: Vec<_> = inputs.iter().map(|(a, b)| (upload(a, false), upload(b, true))).collect();
    let mut outputs: Vec<_> =
        shapes.iter().map(|(m, n, _)| DeviceBuffer::<T>::zeros(&stream, m * n).unwrap()).collect();
    let mut run = || {
        let products = shapes.iter().zip(&memory).zip(&mut outputs).map(|(((m, n, k), (a, b)), c)| {
            let b = Matrix::new(b, *n, *k).unwrap().transposed();
            (Matrix::new(a, *m, *k).unwrap(), b, MatrixMut::new(c, *m, *n).unwrap())
        });
        let options = Gemm { alpha: T::scalar(2.0), ..Gemm::default() };
        blas::gemm_grouped(&stream, options, products.collect())
    };
    match captured {
        false => run().unwrap(),
        true => Graph::capture(&stream, run).unwrap().instantiate().unwrap().launch(&stream).unwrap(),
    }
    for ((a, b), output) in inputs.iter().zip(&outputs) {
        let zero = HostMatrix { rows: a.rows, cols: b.cols, values: vec![0.0; a.rows * b.cols] };
        let found: Vec<f64> = output.to_host().unwrap().into_iter().map(T::value).collect();
        let what = format!("a group of {}, captured: {captured}", std::any::type_name::<T>());
        assert_near::<T>(&what, a.cols, &found, &reference((2.0, 0.0), a, b, &zero));
    }
    blas::gemm_grouped::<T, T, T>(&stream, Gemm::default(), Vec::new()).unwrap();
}

#[test]
fn groups_have_many_shapes() {
    for captured in [false, true] {
        check_groups::<f32>(captured);
        check_groups::<f64>(captured);
        check_groups::<f16>(captured);
        check_groups::<bf16>(captured);
    }
}

#[test]
fn without_an_inner_dimension_the_product_is_zero_and_without_elements_nothing_is_done() {
    let stream = stream();
    let empty = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let (a, b) = (Matrix::new(&empty, 4, 0).unwrap(), Matrix::new(&empty, 0, 6).unwrap());
    let bias = DeviceBuffer::from_host(&stream, &[1f32, -2.0, 3.0, -4.0, 5.0, -6.0]).unwrap();
    for (beta, expected) in [(0.0, 0.0), (1.0, 3.0), (-2.0, -6.0)] {
        let start = if beta == 0.0 { f32::NAN } else { 3.0 };
        let mut c = DeviceBuffer::from_host(&stream, &[start; 4 * 8]).unwrap();
        let layout = Layout::new(4, 6).with_stride(8);
        let c_matrix = MatrixMut::with_layout(&mut c, layout).unwrap();
        blas::gemm(&stream, Gemm { beta, ..Gemm::default() }, a, b, c_matrix).unwrap();
        for row in c.to_host().unwrap().chunks(8) {
            assert_eq!(row[..6], [expected; 6], "beta {beta}");
            assert!(row[6..].iter().all(|gap| gap.to_bits() == start.to_bits()));
        }
        let mut c = DeviceBuffer::from_host(&stream, &[start; 4 * 6]).unwrap();
        let options = Matmul { beta, epilogue: Epilogue::Bias(bias.as_slice()), ..Matmul::default() };
        blas::matmul(&stream, &options, a, b, MatrixMut::new(&mut c, 4, 6).unwrap()).unwrap();
        let host = [1f32, -2.0, 3.0, -4.0, 5.0, -6.0].map(|bias| expected + bias);
        assert!(c.to_host().unwrap().chunks(6).all(|row| row == host));
        let mut y = DeviceBuffer::from_host(&stream, &[start; 4]).unwrap();
        blas::gemv(&stream, Gemm { beta, ..Gemm::default() }, a, &empty, &mut y).unwrap();
        assert_eq!(y.to_host().unwrap(), [expected; 4]);
    }
    let mut none = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let one = DeviceBuffer::from_host(&stream, &[1f32; 6]).unwrap();
    let wide = Matrix::new(&one, 1, 6).unwrap();
    let nothing = MatrixMut::new(&mut none, 0, 6).unwrap();
    blas::gemm(&stream, Gemm::default(), Matrix::new(&empty, 0, 1).unwrap(), wide, nothing).unwrap();
    let nothing = MatrixMut::new(&mut none, 0, 6).unwrap();
    let system = Matrix::new(&empty, 0, 0).unwrap();
    blas::trsm(&stream, Trsm::default(), system, nothing).unwrap();
    blas::scal(&stream, 2.0, &mut none).unwrap();
    let mut result = DeviceBuffer::from_host(&stream, &[9f32; 2]).unwrap();
    blas::dot(&stream, &empty, &empty, result.slice_mut(..1)).unwrap();
    blas::nrm2(&stream, &empty, result.slice_mut(1..)).unwrap();
    assert_eq!(result.to_host().unwrap(), [0.0; 2]);
}

fn check_vectors<T: Plain>() {
    let stream = stream();
    for (len, stride) in [(1, 1), (37, 1), (37, 3), (1000, 2)] {
        let host =
            |seed| -> Vec<T> { numbers(seed, (len - 1) * stride + 1).into_iter().map(T::of).collect() };
        let (x, y) = (host(1), host(2));
        let picked =
            |values: &[T]| -> Vec<f64> { values.iter().step_by(stride).map(|x| x.value()).collect() };
        let (xs, ys) = (picked(&x), picked(&y));
        let what = format!("{} of {len} by {stride}", std::any::type_name::<T>());
        let x_memory = DeviceBuffer::from_host(&stream, &x).unwrap();
        let mut y_memory = DeviceBuffer::from_host(&stream, &y).unwrap();
        let mut results = DeviceBuffer::<T>::zeros(&stream, 2).unwrap();
        let x_vector = || Vector::new(&x_memory).with_stride(stride).unwrap();
        let y_vector = Vector::new(&y_memory).with_stride(stride).unwrap();
        blas::dot(&stream, x_vector(), y_vector, results.slice_mut(..1)).unwrap();
        blas::nrm2(&stream, x_vector(), results.slice_mut(1..)).unwrap();
        let products: Vec<f64> = xs.iter().zip(&ys).map(|(x, y)| x * y).collect();
        let sizes = products.iter().map(|term| term.abs()).sum();
        let norm = xs.iter().map(|x| x * x).sum::<f64>().sqrt();
        let found: Vec<f64> = results.to_host().unwrap().into_iter().map(T::value).collect();
        let expected = (vec![products.iter().sum(), norm], vec![sizes, norm]);
        assert_near::<T>(&what, len, &found, &expected);

        let y_mut = VectorMut::new(&mut y_memory).with_stride(stride).unwrap();
        blas::axpy(&stream, T::scalar(-1.5), x_vector(), y_mut).unwrap();
        let after = y_memory.to_host().unwrap();
        let expected = xs.iter().zip(&ys).map(|(x, y)| (y - 1.5 * x, y.abs() + 1.5 * x.abs())).unzip();
        assert_near::<T>(&what, 1, &picked(&after), &expected);
        let y_mut = VectorMut::new(&mut y_memory).with_stride(stride).unwrap();
        blas::scal(&stream, T::scalar(0.25), y_mut).unwrap();
        let scaled = y_memory.to_host().unwrap();
        let expected = picked(&after).iter().map(|y| (y * 0.25, y.abs())).unzip();
        assert_near::<T>(&what, 1, &picked(&scaled), &expected);
        let kept = |values: &[T]| -> Vec<T> {
            values.iter().enumerate().filter(|(at, _)| at % stride != 0).map(|(_, value)| *value).collect()
        };
        assert_eq!(kept(&scaled), kept(&y), "{what}: nothing between the elements is written");
    }
}

#[test]
fn vectors_of_every_type_and_stride() {
    check_vectors::<f32>();
    check_vectors::<f64>();
    check_vectors::<f16>();
    check_vectors::<bf16>();
}

#[test]
fn squares_of_a_norm_do_not_overflow() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[3e30f32, 4e30]).unwrap();
    let mut result = DeviceBuffer::<f32>::zeros(&stream, 1).unwrap();
    blas::nrm2(&stream, &x, &mut result).unwrap();
    let found = result.to_host().unwrap()[0];
    assert!((found / 5e30 - 1.0).abs() < 1e-6, "{found}");
}

fn check_gemv<T: Plain>() {
    let stream = stream();
    for (m, n) in [(1, 1), (5, 9), (64, 33)] {
        for flags in 0..4 {
            let (transposed, stride) = (flags & 1 == 1, 1 + (flags >> 1) * 2);
            let a = HostMatrix::new::<T>(1, m, n);
            let [x, y] = [(2, n), (3, m)].map(|(seed, len)| HostMatrix::new::<T>(seed, len, 1));
            let place = Place::of(&a, 2, transposed);
            let spread = |vector: &HostMatrix| vector.at_place::<T>(Place::of(vector, stride - 1, false));
            let a_memory = DeviceBuffer::from_host(&stream, &a.at_place::<T>(place)).unwrap();
            let x_memory = DeviceBuffer::from_host(&stream, &spread(&x)).unwrap();
            let mut y_memory = DeviceBuffer::from_host(&stream, &spread(&y)).unwrap();
            let options = Gemm { alpha: T::scalar(2.0), beta: T::scalar(-1.0), ..Gemm::default() };
            blas::gemv(
                &stream,
                options,
                Matrix::with_layout(&a_memory, place.layout()).unwrap(),
                Vector::new(&x_memory).with_stride(stride).unwrap(),
                VectorMut::new(&mut y_memory).with_stride(stride).unwrap(),
            )
            .unwrap();
            let found = Place::of(&y, stride - 1, false).read(&y_memory.to_host().unwrap());
            let what = format!("{} of {m} x {n}, {flags:02b}", std::any::type_name::<T>());
            assert_near::<T>(&what, n, &found, &reference((2.0, -1.0), &a, &x, &y));
        }
    }
}

#[test]
fn products_of_matrix_and_vector() {
    check_gemv::<f32>();
    check_gemv::<f64>();
    check_gemv::<f16>();
    check_gemv::<bf16>();
}

/// What is solved, multiplied again, is the right-hand side.
#[test]
fn triangular_systems_of_every_kind() {
    let stream = stream();
    let (rows, cols) = (7, 5);
    for flags in 0..32u32 {
        let flag = |bit: u32| flags >> bit & 1 == 1;
        let side = if flag(0) { Side::Left } else { Side::Right };
        let triangle = if flag(1) { Triangle::Lower } else { Triangle::Upper };
        let unit_diagonal = flag(2);
        let order = if side == Side::Left { rows } else { cols };
        let mut a = HostMatrix::new::<f64>(u64::from(flags), order, order);
        (0..order).for_each(|at| a.values[at * order + at] += 3.0);
        let b = HostMatrix::new::<f64>(50, rows, cols);
        let (a_place, b_place) = (Place::of(&a, 2, flag(3)), Place::of(&b, 1, flag(4)));
        let a_memory = DeviceBuffer::from_host(&stream, &a.at_place::<f64>(a_place)).unwrap();
        let mut b_memory = DeviceBuffer::from_host(&stream, &b.at_place::<f64>(b_place)).unwrap();
        blas::trsm(
            &stream,
            Trsm { alpha: 2.0, side, triangle, unit_diagonal },
            Matrix::with_layout(&a_memory, a_place.layout()).unwrap(),
            MatrixMut::with_layout(&mut b_memory, b_place.layout()).unwrap(),
        )
        .unwrap();
        let values = b_place.read(&b_memory.to_host().unwrap());
        let x = HostMatrix { rows, cols, values };
        for row in 0..order {
            for col in 0..order {
                let kept = if triangle == Triangle::Lower { col <= row } else { col >= row };
                let value = &mut a.values[row * order + col];
                *value = match row == col {
                    true if unit_diagonal => 1.0,
                    _ if kept => *value,
                    _ => 0.0,
                };
            }
        }
        let zero = HostMatrix { rows, cols, values: vec![0.0; rows * cols] };
        let (again, _) = match side {
            Side::Left => reference((1.0, 0.0), &a, &x, &zero),
            Side::Right => reference((1.0, 0.0), &x, &a, &zero),
        };
        for (again, b) in again.iter().zip(&b.values) {
            assert!((again - 2.0 * b).abs() < 1e-10, "{flags:05b}: {again} instead of {}", 2.0 * b);
        }
    }
}

fn check_epilogues<T: Plain>() {
    let stream = stream();
    let (m, n, k) = (24, 40, 16);
    let [a, b, c] = [(1, m, k), (2, k, n), (3, m, n)].map(|(seed, r, c)| HostMatrix::new::<T>(seed, r, c));
    let bias = HostMatrix::new::<T>(4, 1, n);
    let bias_memory =
        DeviceBuffer::from_host(&stream, &bias.at_place::<T>(Place::of(&bias, 0, false))).unwrap();
    let bias_slice = bias_memory.as_slice();
    for epilogue in [
        Epilogue::None,
        Epilogue::Relu,
        Epilogue::Gelu,
        Epilogue::Bias(bias_slice),
        Epilogue::ReluBias(bias_slice),
        Epilogue::GeluBias(bias_slice),
    ] {
        for (a_transposed, b_transposed, beta) in
            [(false, true, 0.0), (true, false, 0.5), (false, false, 0.0)]
        {
            let places =
                [Place::of(&a, 8, a_transposed), Place::of(&b, 0, b_transposed), Place::of(&c, 8, false)];
            let upload = |matrix: &HostMatrix, place: Place| {
                DeviceBuffer::from_host(&stream, &matrix.at_place::<T>(place)).unwrap()
            };
            let (a_memory, b_memory) = (upload(&a, places[0]), upload(&b, places[1]));
            let mut c_memory = upload(&c, places[2]);
            let options =
                Matmul { alpha: T::scalar(0.5), beta: T::scalar(beta), epilogue, ..Matmul::default() };
            blas::matmul(
                &stream,
                &options,
                Matrix::with_layout(&a_memory, places[0].layout()).unwrap(),
                Matrix::with_layout(&b_memory, places[1].layout()).unwrap(),
                MatrixMut::with_layout(&mut c_memory, places[2].layout()).unwrap(),
            )
            .unwrap();
            let (mut expected, mut sizes) = reference((0.5, beta), &a, &b, &c);
            for (at, (value, size)) in expected.iter_mut().zip(&mut sizes).enumerate() {
                if epilogue.bias().is_some() {
                    *value += bias.values[at % n];
                    *size += bias.values[at % n].abs();
                }
                let before = value.abs();
                *value = match epilogue.activation() {
                    blas::Activation::None => *value,
                    blas::Activation::Relu => value.max(0.0),
                    blas::Activation::Gelu => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (*value + 0.044715 * value.powi(3));
                        0.5 * *value * (1.0 + inner.tanh())
                    }
                };
                // The hardware's `tanh` has some 11 bits.
                if epilogue.activation() == blas::Activation::Gelu && T::STORED < 1e-3 {
                    *size += before * 5e-4 / T::STORED;
                }
            }
            let found = places[2].read(&c_memory.to_host().unwrap());
            let what = format!("{} with {epilogue:?}", std::any::type_name::<T>());
            assert_near::<T>(&what, k, &found, &(expected, sizes));
        }
    }
}

#[test]
fn epilogues_add_a_bias_for_each_column_and_activate() {
    check_epilogues::<f32>();
    check_epilogues::<f16>();
    check_epilogues::<bf16>();
}

/// Multiplies 8-bit floating point with scales at these places of a buffer, and without.
fn check_eight_bits<A: Number + blas::Multiply<B, bf16, Sum = f32>, B: Number + blas::Element<Sum = f32>>(
    scale_places: Option<[usize; 2]>,
) {
    let stream = stream();
    let (m, n, k) = (32, 48, 64);
    let (a, b) = (HostMatrix::new::<A>(1, m, k), HostMatrix::new::<B>(2, k, n));
    let (a_place, b_place) = (Place::of(&a, 0, false), Place::of(&b, 0, true));
    let a_memory = DeviceBuffer::from_host(&stream, &a.at_place::<A>(a_place)).unwrap();
    let b_memory = DeviceBuffer::from_host(&stream, &b.at_place::<B>(b_place)).unwrap();
    let mut scales = [0f32; 64];
    let (mut scale_a, mut scale_b) = (1.0, 1.0);
    if let Some([a, b]) = scale_places {
        (scale_a, scale_b) = (2.0, 0.25);
        (scales[a], scales[b]) = (scale_a, scale_b);
    }
    let scales = DeviceBuffer::from_host(&stream, &scales).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, m * n).unwrap();
    let at = |place: usize| scales.slice(place..place + 1);
    let options = Matmul {
        scale_a: scale_places.map(|places| at(places[0])),
        scale_b: scale_places.map(|places| at(places[1])),
        ..Matmul::default()
    };
    let a_matrix = Matrix::with_layout(&a_memory, a_place.layout()).unwrap();
    let b_matrix = Matrix::with_layout(&b_memory, b_place.layout()).unwrap();
    let c_matrix = MatrixMut::new(&mut c, m, n).unwrap();
    let done = match scale_places {
        Some(_) => blas::matmul(&stream, &options, a_matrix, b_matrix, c_matrix),
        None => blas::gemm(&stream, Gemm::default(), a_matrix, b_matrix, c_matrix),
    };
    let device = stream.device();
    if !device.is_emulated() && device.capability() < (8, 9) {
        assert!(is_unsupported(&done), "{done:?}");
        return;
    }
    done.unwrap();
    let zero = HostMatrix { rows: m, cols: n, values: vec![0.0; m * n] };
    let found: Vec<f64> = c.to_host().unwrap().into_iter().map(bf16::to_f64).collect();
    let (expected, sizes) = reference((f64::from(scale_a * scale_b), 0.0), &a, &b, &zero);
    // The tensor cores of Hopper sum with some 14 bits.
    let sizes = sizes.into_iter().map(|size| size * (1.0 + 2f64.powi(-13) / bf16::STORED)).collect();
    assert_near::<bf16>("8-bit", k, &found, &(expected, sizes));
}

#[test]
fn eight_bit_floats_are_multiplied() {
    check_eight_bits::<F8E4M3, F8E4M3>(None);
    check_eight_bits::<F8E4M3, F8E5M2>(None);
    check_eight_bits::<F8E5M2, F8E4M3>(None);
}

#[test]
fn eight_bit_floats_are_multiplied_with_their_scales() {
    check_eight_bits::<F8E4M3, F8E4M3>(Some([0, 32]));
    check_eight_bits::<F8E4M3, F8E5M2>(Some([0, 32]));
}

#[test]
fn scales_may_be_at_any_address() {
    check_eight_bits::<F8E4M3, F8E4M3>(Some([0, 4]));
    check_eight_bits::<F8E4M3, F8E4M3>(Some([1, 2]));
}

/// A product of squares on a stream, and its operands.
struct Square {
    stream: Stream,
    size: usize,
    a: DeviceBuffer<f32>,
    b: DeviceBuffer<f32>,
    c: DeviceBuffer<f32>,
}

impl Square {
    fn new(stream: &Stream, seed: u64, size: usize) -> Self {
        let upload = |seed| {
            let values: Vec<f32> = numbers(seed, size * size).into_iter().map(|x| x as f32).collect();
            DeviceBuffer::from_host(stream, &values).unwrap()
        };
        let c = DeviceBuffer::zeros(stream, size * size).unwrap();
        Self { stream: stream.clone(), size, a: upload(seed), b: upload(seed + 1), c }
    }

    fn matrices(&mut self) -> (Matrix<'_, f32>, Matrix<'_, f32>, MatrixMut<'_, f32>) {
        let Self { size, a, b, c, .. } = self;
        let (a, b) = (Matrix::new(&*a, *size, *size).unwrap(), Matrix::new(&*b, *size, *size).unwrap());
        (a, b, MatrixMut::new(c, *size, *size).unwrap())
    }

    fn gemm(&mut self) {
        let stream = self.stream.clone();
        let (a, b, c) = self.matrices();
        blas::gemm(&stream, Gemm::default(), a, b, c).unwrap();
    }

    fn matmul(&mut self, options: &Matmul<'_, f32, f32>) {
        let stream = self.stream.clone();
        let (a, b, c) = self.matrices();
        blas::matmul(&stream, options, a, b, c).unwrap();
    }

    #[track_caller]
    fn check(&self, what: &str) {
        let size = self.size;
        let host = |buffer: &DeviceBuffer<f32>| {
            let values = buffer.to_host().unwrap().into_iter().map(f64::from).collect();
            HostMatrix { rows: size, cols: size, values }
        };
        let zero = HostMatrix { rows: size, cols: size, values: vec![0.0; size * size] };
        let expected = reference((1.0, 0.0), &host(&self.a), &host(&self.b), &zero);
        assert_near::<f32>(what, size, &host(&self.c).values, &expected);
    }
}

/// Each stream has its own workspace: products that split their inner dimension would mix their sums otherwise.
#[test]
fn two_streams_and_many_threads_compute_at_once() {
    let device = device();
    let size = if device.is_emulated() { 24 } else { 160 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let streams = [(); 2].map(|()| Stream::new(device).unwrap());
                let mut squares: Vec<Square> = streams
                    .iter()
                    .enumerate()
                    .map(|(at, stream)| Square::new(stream, thread * 10 + at as u64 * 3, size))
                    .collect();
                for _ in 0..10 {
                    squares.iter_mut().for_each(Square::gemm);
                    squares.iter_mut().for_each(|square| square.matmul(&Matmul::default()));
                }
                squares.iter().for_each(|square| square.check("at once"));
            });
        }
    });
}

#[test]
fn a_graph_computes_again_with_what_its_inputs_hold() {
    let stream = stream();
    let mut square = Square::new(&stream, 1, 32);
    let mut other = Square::new(&stream, 5, 32);
    let mut result = DeviceBuffer::<f32>::zeros(&stream, 1).unwrap();
    let graph = Graph::capture(&stream, || {
        square.gemm();
        other.matmul(&Matmul { search: Search::Timed { candidates: 4, repeats: 2 }, ..Matmul::default() });
        blas::dot(&stream, &square.c, &other.c, &mut result)
    })
    .unwrap();
    assert_eq!(square.c.to_host().unwrap(), vec![0.0; 32 * 32], "nothing has run");
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for seed in [1, 20, 40] {
        let values: Vec<f32> = numbers(seed, 32 * 32).into_iter().map(|x| x as f32).collect();
        square.a.copy_from_host(&values).unwrap();
        other.b.copy_from_host(&values).unwrap();
        exec.launch(&stream).unwrap();
        square.check("the first of the graph");
        other.check("the second of the graph");
        let (c, d) = (square.c.to_host().unwrap(), other.c.to_host().unwrap());
        let terms: Vec<f64> = c.iter().zip(&d).map(|(c, d)| f64::from(*c) * f64::from(*d)).collect();
        let sizes = terms.iter().map(|term| term.abs()).sum();
        let found = f64::from(result.to_host().unwrap()[0]);
        assert_near::<f32>("dot", 1024, &[found], &(vec![terms.iter().sum()], vec![sizes]));
        // Work of other calls on the stream does not disturb what the graph keeps for itself.
        Square::new(&stream, 7, 64).gemm();
    }
}

#[test]
fn plans_are_kept_and_results_do_not_depend_on_it() {
    let stream = stream();
    let device = stream.device();
    let cache = blas::plan_cache(device);
    let run = || {
        let mut square = Square::new(&stream, 3, 48);
        square.matmul(&Matmul::default());
        square.c.to_host().unwrap()
    };
    let first = run();
    let kept = run();
    if !device.is_emulated() {
        assert_eq!((cache.size(), cache.hits_and_misses()), (1, (1, 1)));
    }
    cache.set_max_size(0);
    assert_eq!((cache.size(), cache.max_size()), (0, 0));
    let without = run();
    assert_eq!(cache.size(), 0);
    assert!(first == kept && kept == without, "the same bits");
    cache.set_max_size(8);
    run();
    assert_eq!(cache.size(), usize::from(!device.is_emulated()));
    cache.clear();
    assert_eq!(cache.size(), 0);
}

#[test]
fn a_timed_search_writes_the_output_once() {
    let stream = stream();
    let size = 64;
    let mut square = Square::new(&stream, 1, size);
    square.matmul(&Matmul::default());
    let once = square.c.to_host().unwrap();
    let search = Search::Timed { candidates: 6, repeats: 3 };
    for _ in 0..2 {
        square.matmul(&Matmul { beta: 1.0, search, ..Matmul::default() });
    }
    for (found, once) in square.c.to_host().unwrap().iter().zip(once) {
        assert!((found - 3.0 * once).abs() < 1e-3, "{found} instead of 3 x {once}");
    }
}

#[test]
fn without_a_workspace_the_result_is_right_too() {
    let stream = stream();
    let mut square = Square::new(&stream, 1, 64);
    square.matmul(&Matmul { workspace_limit: Some(0), ..Matmul::default() });
    square.check("no workspace");
}

#[test]
fn the_same_call_gives_the_same_bits() {
    let stream = stream();
    let math = Math { deterministic: true, ..Math::default() };
    let search = Search::Timed { candidates: 8, repeats: 1 };
    let run = || {
        let mut square = Square::new(&stream, 3, 96);
        square.gemm();
        let product = square.c.to_host().unwrap();
        square.matmul(&Matmul { math: Some(math), search, ..Matmul::default() });
        (product, square.c.to_host().unwrap())
    };
    assert!(run() == run());
}

/// As `torch.backends.cuda.matmul.allow_tf32` describes it: some 1e-3 of the result's size.
#[test]
fn tf32_is_off_by_default_and_less_exact() {
    let stream = stream();
    let device = stream.device();
    let size = if device.is_emulated() { 32 } else { 1024 };
    let mut square = Square::new(&stream, 11, size);
    // Numbers with more bits than TF32 has.
    for (seed, buffer) in [(1, &mut square.a), (2, &mut square.b)] {
        let values: Vec<f32> =
            numbers(seed, size * size).into_iter().map(|x| (x * 1.234_567) as f32).collect();
        buffer.copy_from_host(&values).unwrap();
    }
    square.gemm();
    let exact = square.c.to_host().unwrap();
    blas::set_math(device, Math { allow_tf32: true, ..Math::default() });
    square.gemm();
    let rounded = square.c.to_host().unwrap();
    blas::set_math(device, Math::default());
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |most, x| most.max(x.abs()));
    let size = largest(&mut exact.iter().copied());
    let difference = largest(&mut exact.iter().zip(&rounded).map(|(x, y)| x - y)) / size;
    match device.is_emulated() || device.capability() < (8, 0) {
        true => assert_eq!(difference, 0.0),
        false => assert!((1e-5..5e-3).contains(&difference), "{difference}"),
    }
    if device.is_emulated() {
        square.check("without TF32");
    }
}

#[track_caller]
fn assert_shape(done: warpsmith_runtime::Result<()>, text: &str) {
    let Err(Error::Library(error)) = done else { panic!("{done:?} instead of an error with {text:?}") };
    assert!(matches!(*error, LibraryError::Shape { .. }), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
}

fn is_unsupported(done: &warpsmith_runtime::Result<()>) -> bool {
    matches!(done, Err(Error::Library(error)) if matches!(**error, LibraryError::Unsupported { .. }))
}

fn two(y: &mut DeviceBuffer<f32>) -> MatrixMut<'_, f32> {
    MatrixMut::new(y, 2, 2).unwrap()
}

#[test]
fn what_does_not_fit_is_told_and_nothing_is_done() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1f32; 12]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[5f32; 12]).unwrap();
    let matrix = |rows, cols| Matrix::new(&x, rows, cols);
    assert_shape(matrix(4, 4).map(drop), "takes 16 elements, but the memory has 12");
    assert_shape(matrix(2, 3).unwrap().with_stride(2).map(drop), "less than a row of 3");
    assert_shape(matrix(3, 3).unwrap().with_stride(5).map(drop), "takes 13");
    assert_shape(Matrix::new(&x, usize::MAX, 2).map(drop), "more than can be");
    let overlapping = Layout::new(2, 2).with_batch(3, 3);
    assert_shape(MatrixMut::with_layout(&mut y, overlapping).map(drop), "overlap");
    assert_shape(MatrixMut::with_layout(&mut y, Layout::new(2, 2).with_batch(2, 0)).map(drop), "overlap");
    assert_shape(Vector::new(&x).with_stride(0).map(drop), "stride of 0");

    let options = Gemm::default();
    let (wide, tall) = (matrix(2, 3).unwrap(), matrix(3, 2).unwrap());
    assert_shape(blas::gemm(&stream, options, wide, wide, two(&mut y)), "a (2 x 3) times b (2 x 3)");
    assert_shape(blas::gemm(&stream, options, tall, wide, two(&mut y)), "c (2 x 2)");
    let batch = Matrix::with_layout(&x, Layout::new(2, 3).with_batch(2, 6)).unwrap();
    assert_shape(blas::gemm(&stream, options, batch, tall, two(&mut y)), "2 of 2 x 3");
    let products = vec![(wide, wide, two(&mut y))];
    assert_shape(blas::gemm_grouped(&stream, options, products), "times b");
    assert_shape(blas::gemv(&stream, options, wide, x.slice(..2), y.slice_mut(..2)), "x has 2");
    assert_shape(blas::axpy(&stream, 1.0, x.slice(..2), y.slice_mut(..3)), "x has 2 elements and y 3");
    assert_shape(blas::dot(&stream, &x, &x, y.slice_mut(..2)), "one element, but there are 2");
    assert_shape(blas::nrm2(&stream, &x, y.slice_mut(..0)), "there are 0");
    assert_shape(blas::trsm(&stream, Trsm::default(), wide, two(&mut y)), "must be 2 x 2");
    let options = Matmul { epilogue: Epilogue::Bias(x.slice(..3)), ..Matmul::default() };
    assert_shape(blas::matmul(&stream, &options, wide, tall, two(&mut y)), "a bias of 3 elements for 2");
    let options = Matmul { scale_a: Some(x.slice(..1)), ..Matmul::default() };
    let refused = blas::matmul(&stream, &options, wide, tall, two(&mut y));
    assert!(is_unsupported(&refused), "{refused:?}");
    let elsewhere = Stream::new(&device()).unwrap();
    let refused = blas::gemm(&elsewhere, Gemm::default(), wide, tall, two(&mut y));
    assert!(matches!(refused, Err(Error::DifferentDevices { .. })), "{refused:?}");
    assert_eq!(y.to_host().unwrap(), [5.0; 12], "nothing was written");
    // The stream still works.
    blas::gemm(&stream, Gemm::default(), wide, tall, two(&mut y)).unwrap();
    assert_eq!(y.to_host().unwrap()[..4], [3.0; 4]);
}

#[test]
fn on_a_gpu_the_libraries_are_there() {
    if device().is_emulated() {
        return;
    }
    for vendor in [Vendor::Cublas, Vendor::CublasLt] {
        println!("{} {}", vendor.name(), vendor.version().unwrap());
    }
}

#[test]
fn integers_need_strides_of_four_on_a_gpu() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1i8; 64]).unwrap();
    let mut y = DeviceBuffer::<i32>::zeros(&stream, 9).unwrap();
    let matrix = Matrix::new(&x, 3, 3).unwrap();
    let done = blas::gemm(&stream, Gemm::default(), matrix, matrix, MatrixMut::new(&mut y, 3, 3).unwrap());
    match stream.device().is_emulated() {
        true => done.unwrap(),
        false => assert!(is_unsupported(&done), "{done:?}"),
    }
}
