//! Element types for tests, and row-major or column-major matrices with their expected products.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{F8E4M3, GemmElement, Matrix};

/// Element type of matrices in tests.
pub trait TestNumber: GemmElement<Output: PartialEq + std::fmt::Debug> {
    const POISON: Self::Output;
    /// Maximum error of a sum, relative to the sum of absolute products.
    const SUM_PRECISION: f64;
    /// Largest magnitude of the random numbers.
    const LARGEST: f32 = 1.0;
    fn of(number: f32) -> Self;
    /// Returns the value that the kernels multiply.
    fn value(self) -> f64;
    fn number_of(output: Self::Output) -> f64;
    /// Returns the value of the nearest output.
    fn rounded(number: f64) -> f64;
}

macro_rules! numbers {
    ($($ty:ident -> $output:ident: $poison:expr, $precision:expr, $largest:expr, $of:expr, $value:expr, $to:expr;)*) => { $(
        impl TestNumber for $ty {
            const POISON: $output = $poison;
            const SUM_PRECISION: f64 = $precision;
            const LARGEST: f32 = $largest;
            fn of(number: f32) -> Self {
                let of: fn(f32) -> $ty = $of;
                of(number)
            }
            fn value(self) -> f64 {
                let value: fn($ty) -> f64 = $value;
                value(self)
            }
            fn number_of(output: $output) -> f64 {
                f64::from(output)
            }
            fn rounded(number: f64) -> f64 {
                let to: fn(f64) -> $output = $to;
                f64::from(to(number))
            }
        }
    )* };
}

numbers! {
    bf16 -> bf16: bf16::NAN, 1e-5, 1.0, bf16::from_f32, f64::from, bf16::from_f64;
    f16 -> f16: f16::NAN, 1e-5, 1.0, f16::from_f32, f64::from, f16::from_f64;
    // The number is truncated to 10 bits of mantissa, as the GEMM does.
    f32 -> f32: f32::NAN, 1e-5, 1.0, |x| x, |x| f64::from(f32::from_bits(x.to_bits() & !0x1fff)), |x| x as f32;
    // The tensor cores add with about 14 bits.
    F8E4M3 -> bf16: bf16::NAN, 1e-3, 1.0, F8E4M3::from_f32, |x| f64::from(x.to_f32()), bf16::from_f64;
    i8 -> i32: i32::MIN, 0.0, 127.0, |x| x as i8, f64::from, |x| x as i32;
}

/// Returns `len` integers from -2 to 2.
pub fn random_integers<T: TestNumber>(seed: u64, len: usize) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of(random.i32(-2..=2) as f32)).collect()
}

/// Returns `len` numbers from -1 to 1, scaled from integers from -127 to 127.
pub fn random<T: TestNumber>(seed: u64, len: usize) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of((random.f32() * 2.0 - 1.0) * T::LARGEST)).collect()
}

/// Matrix in row-major order, or in column-major order if it is transposed.
pub struct Stored<T> {
    pub rows: usize,
    pub columns: usize,
    pub is_transposed: bool,
    pub elements: Vec<T>,
}

impl<T: TestNumber> Stored<T> {
    pub fn new([rows, columns]: [usize; 2], is_transposed: bool, elements: Vec<T>) -> Self {
        assert_eq!(elements.len(), rows * columns);
        Self { rows, columns, is_transposed, elements }
    }

    pub fn on(&self, stream: &Stream) -> DeviceBuffer<T> {
        DeviceBuffer::from_host(stream, &self.elements).unwrap()
    }

    pub fn view<'a>(&self, buffer: &'a DeviceBuffer<T>) -> Matrix<'a, T> {
        if self.is_transposed {
            Matrix::from(buffer.as_2d(self.columns, self.rows).unwrap()).transposed()
        } else {
            buffer.as_2d(self.rows, self.columns).unwrap().into()
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        let index = if self.is_transposed { column * self.rows + row } else { row * self.columns + column };
        self.elements[index].value()
    }

    /// Returns an element of the product with `b`.
    pub fn dot(&self, b: &Self, row: usize, column: usize) -> f64 {
        (0..self.columns).map(|k| self.at(row, k) * b.at(k, column)).sum()
    }

    /// Returns the product with `b` in row-major order, with the product of the absolute values.
    pub fn times(&self, b: &Self) -> Vec<(f64, f64)> {
        let n = b.columns;
        let b_rows: Vec<f64> = (0..b.rows).flat_map(|k| (0..n).map(move |column| b.at(k, column))).collect();
        let mut product = vec![(0.0, 0.0); self.rows * n];
        for (row, sums) in product.chunks_mut(n.max(1)).enumerate() {
            for k in 0..self.columns {
                let x = self.at(row, k);
                for ((sum, all), y) in sums.iter_mut().zip(&b_rows[k * n..]) {
                    *sum += x * y;
                    *all += (x * y).abs();
                }
            }
        }
        product
    }
}
