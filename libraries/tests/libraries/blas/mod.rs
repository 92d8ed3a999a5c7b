//! Linear algebra on the device under test: `WARPSMITH_TEST_DEVICE`, by default the emulated one. A missing device or
//! library fails the tests.
//!
//! Results are compared with sums in `f64`. Let u be the unit roundoff of the accumulation type, v the unit roundoff of
//! the result type, and S the sum of the magnitudes of an element's terms. The bound is then `2 (k + 4) u S + 2 v S`.

mod epilogues;
mod misuse;
mod products;
mod streams;
mod vectors;

use crate::numbers::{TestValue, assert_refused, buffer, each, is_refused, name, stream};
use crate::under_test::device;
use half::{bf16, f16};
use warpsmith_libraries::LibraryError;
use warpsmith_libraries::blas::{
    self, Activation, F8E4M3, F8E5M2, Gemm, GemmType, Layout, Math, Matmul, Matrix, MatrixMut, Multiply,
    Scale, Search, Vector, VectorMut, VectorType,
};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, Stream};

/// Returns random numbers in -1..1 with 8 fractional bits.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| f64::from(random.u32(..512)) / 256.0 - 1.0).collect()
}

/// Types that the emulated device and every GPU support, with their scalars.
trait Plain: TestValue + VectorType {
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

/// Returns settings that allow or forbid partial sums in the narrow type.
fn reducing(allowed: bool) -> Math {
    Math {
        allow_fp16_reduced_precision_reduction: allowed,
        allow_bf16_reduced_precision_reduction: allowed,
        ..Math::default()
    }
}

/// A matrix on the host, in logical order.
#[derive(Clone)]
struct HostMatrix {
    rows: usize,
    cols: usize,
    values: Vec<f64>,
}

impl HostMatrix {
    fn zeros(rows: usize, cols: usize) -> Self {
        Self { rows, cols, values: vec![0.0; rows * cols] }
    }

    fn new<T: TestValue>(seed: u64, rows: usize, cols: usize) -> Self {
        let values = numbers(seed, rows * cols).into_iter().map(|x| T::of(x).value()).collect();
        Self { rows, cols, values }
    }

    fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.cols + col]
    }

    fn at_place<T: TestValue>(&self, place: Place) -> Vec<T> {
        let mut memory = vec![T::of(77.0); place.len()];
        for row in 0..self.rows {
            for col in 0..self.cols {
                memory[place.index(row, col)] = T::of(self.at(row, col));
            }
        }
        memory
    }
}

/// Placement of a matrix in memory: with gaps between rows, filled with values that must not be used, and transposed or
/// not.
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
        let layout = Layout::new(rows, cols).with_row_stride(cols + self.gap);
        if self.transposed { layout.transposed() } else { layout }
    }

    /// Returns the matrix, after checking that the gaps are unchanged.
    #[track_caller]
    fn read<T: TestValue>(&self, memory: &[T]) -> Vec<f64> {
        let indices = || (0..self.rows).flat_map(|row| (0..self.cols).map(move |col| self.index(row, col)));
        let mut inside = vec![false; memory.len()];
        indices().for_each(|index| inside[index] = true);
        for (value, inside) in memory.iter().zip(inside) {
            assert!(inside || *value == T::of(77.0), "{self:?}: a gap was written");
        }
        indices().map(|index| memory[index].value()).collect()
    }
}

/// Returns `alpha * a * b + beta * c`, and the sums of the magnitudes of the terms.
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
fn assert_near<T: TestValue>(what: &str, k: usize, found: &[f64], (expected, sizes): &(Vec<f64>, Vec<f64>)) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, ((found, expected), size)) in found.iter().zip(expected).zip(sizes).enumerate() {
        let bound = 2.0 * (k as f64 + 4.0) * T::SUM_UNIT * size + 2.0 * T::UNIT * size;
        assert!(
            (found - expected).abs() <= bound,
            "{what}, element {index}: {found} instead of {expected}, not within {bound}"
        );
    }
}

/// A GEMM on a stream, and the placement of its operands.
struct Product<A: TestValue = f32, B: TestValue = A, C: TestValue = A> {
    stream: Stream,
    places: [Place; 3],
    /// Initial content of c.
    before: HostMatrix,
    a: DeviceBuffer<A>,
    b: DeviceBuffer<B>,
    c: DeviceBuffer<C>,
}

impl<A: TestValue, B: TestValue, C: TestValue> Product<A, B, C> {
    /// Creates random matrices with these gaps, stored transposed or not.
    fn new(stream: &Stream, [m, n, k]: [usize; 3], gaps: [usize; 3], transposed: [bool; 3]) -> Self {
        let (a, b, c) =
            (HostMatrix::new::<A>(1, m, k), HostMatrix::new::<B>(2, k, n), HostMatrix::new::<C>(3, m, n));
        let place = |which: usize, matrix| Place::of(matrix, gaps[which], transposed[which]);
        let places = [place(0, &a), place(1, &b), place(2, &c)];
        Self {
            stream: stream.clone(),
            places,
            a: buffer(stream, &a.at_place(places[0])),
            b: buffer(stream, &b.at_place(places[1])),
            c: buffer(stream, &c.at_place(places[2])),
            before: c,
        }
    }

    fn matrices(&mut self) -> (Matrix<'_, A>, Matrix<'_, B>, MatrixMut<'_, C>) {
        let [a, b, c] = self.places.map(|place| place.layout());
        (
            Matrix::with_layout(&self.a, a).unwrap(),
            Matrix::with_layout(&self.b, b).unwrap(),
            MatrixMut::with_layout(&mut self.c, c).unwrap(),
        )
    }

    /// Returns the expected content of c, and the sums of the magnitudes of the terms.
    fn expected(&self, scalars: (f64, f64)) -> (Vec<f64>, Vec<f64>) {
        let [of_a, of_b, _] = self.places;
        let a =
            HostMatrix { rows: of_a.rows, cols: of_a.cols, values: of_a.read(&self.a.to_host().unwrap()) };
        let b =
            HostMatrix { rows: of_b.rows, cols: of_b.cols, values: of_b.read(&self.b.to_host().unwrap()) };
        reference(scalars, &a, &b, &self.before)
    }

    #[track_caller]
    fn check(&self, what: &str, expected: &(Vec<f64>, Vec<f64>)) {
        let found = self.places[2].read(&self.c.to_host().unwrap());
        assert_near::<C>(&format!("{} {what}", name::<C>()), self.places[0].cols, &found, expected);
    }
}

impl<
    A: TestValue + Multiply<B, C>,
    B: TestValue + GemmType<Sum = A::Sum>,
    C: TestValue + GemmType<Sum = A::Sum>,
> Product<A, B, C>
{
    fn gemm_as(&mut self, options: Gemm<Scale<A>>) -> warpsmith_runtime::Result<()> {
        let stream = self.stream.clone();
        let (a, b, c) = self.matrices();
        blas::gemm(&stream, options, a, b, c)
    }

    fn gemm(&mut self) {
        self.gemm_as(Gemm::default()).unwrap();
    }

    fn matmul_as(&mut self, options: &Matmul<'_, Scale<A>, C>) -> warpsmith_runtime::Result<()> {
        let stream = self.stream.clone();
        let (a, b, c) = self.matrices();
        blas::matmul(&stream, options, a, b, c)
    }

    fn matmul(&mut self, options: &Matmul<'_, Scale<A>, C>) {
        self.matmul_as(options).unwrap();
    }
}

impl Product {
    /// Creates square matrices without gaps.
    fn square(stream: &Stream, seed: u64, size: usize) -> Self {
        let mut product = Self::new(stream, [size; 3], [0; 3], [false; 3]);
        for (seed, buffer) in [(seed, &mut product.a), (seed + 1, &mut product.b)] {
            let values: Vec<f32> = numbers(seed, size * size).into_iter().map(|x| x as f32).collect();
            buffer.copy_from_host(&values).unwrap();
        }
        stream.memset(&mut product.c, 0).unwrap();
        product
    }

    #[track_caller]
    fn check_product(&self, what: &str) {
        self.check(what, &self.expected((1.0, 0.0)));
    }
}

fn is_unsupported(done: &warpsmith_runtime::Result<()>) -> bool {
    is_refused!(done, LibraryError::Unsupported { .. })
}
