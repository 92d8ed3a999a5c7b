//! Linear algebra on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A device or a
//! library that is not there fails the tests.
//!
//! Results are compared with sums in `f64`. With u the unit roundoff of the type in which is summed, v that of the type
//! of the result, and S the sum of the sizes of all terms of an element, the bound is `2 (k + 4) u S + 2 v S`.

mod epilogues;
mod misuse;
mod products;
mod streams;
mod vectors;

use crate::under_test::device;
use half::{bf16, f16};
use warpsmith_runtime::library::blas::{
    self, Epilogue, F8E4M3, F8E5M2, Float, Gemm, Layout, Math, Matmul, Matrix, MatrixMut, Scale, Search,
    Side, Triangle, Trsm, Vector, VectorMut,
};

use warpsmith_runtime::library::{LibraryError, Vendor};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, Error, Graph, Stream};

fn stream() -> Stream {
    Stream::new(&device()).unwrap()
}

/// Numbers in -1..1 with 8 bits after the point.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| f64::from(random.u32(..512)) / 256.0 - 1.0).collect()
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

/// Whether partial sums may be added in the narrow type.
fn reducing(allowed: bool) -> Math {
    Math {
        allow_fp16_reduced_precision_reduction: allowed,
        allow_bf16_reduced_precision_reduction: allowed,
        ..Math::default()
    }
}

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

fn is_unsupported(done: &warpsmith_runtime::Result<()>) -> bool {
    matches!(done, Err(error) if matches!(error.downcast_ref(), Some(LibraryError::Unsupported { .. })))
}
