//! [`GemmType`]: element types of matrices. [`Multiply`]: supported products.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::element::{LibraryType, elements};

pub mod sealed {
    use super::LibraryType;

    /// An element type and the type in which its products are accumulated.
    pub trait Summed: LibraryType {
        type Sum: Sum;
    }

    /// An accumulation type.
    pub trait Sum: LibraryType + Send + Sync + PartialEq + 'static {
        /// Computes `alpha * product + beta * before`.
        fn scaled(alpha: Self, product: Self, beta: Self, before: Self) -> Self;
        /// Computes the product of two packed row-major matrices with the shapes m x k and k x n.
        fn product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]);
    }
}

use self::sealed::{Sum, Summed};

/// The type of `alpha` and `beta` for an element type, which is also the accumulation type: `f64` for `f64`, `i32` for
/// integers, otherwise `f32`.
pub type Scale<T> = <T as Summed>::Sum;

/// A matrix element type of cuBLAS: `f32`, `f64`, `f16`, `bf16`, `i8`, `i32`, [`F8E4M3`] or [`F8E5M2`]. The trait is
/// sealed. Conversions to 8-bit floats round to nearest even and saturate, as in CUDA.
pub trait GemmType: Summed {}

impl<T: Summed> GemmType for T {}

/// A supported product of matrices of types `Self` and `B`, stored as `C`.
///
/// | a | b | c | accumulation |
/// | --- | --- | --- | --- |
/// | `f32` | `f32` | `f32` | `f32`; with [`Math::allow_tf32`](super::Math), inputs may be rounded to TF32 |
/// | `f64` | `f64` | `f64` | `f64` |
/// | `f16` | `f16` | `f16`, `f32` | `f32` |
/// | `bf16` | `bf16` | `bf16`, `f32` | `f32` |
/// | `i8` | `i8` | `i32` | `i32` |
/// | `F8E4M3` | `F8E4M3`, `F8E5M2` | `bf16`, `f16`, `f32` | `f32` |
/// | `F8E5M2` | `F8E4M3` | `bf16`, `f16`, `f32` | `f32` |
pub trait Multiply<B: GemmType<Sum = Self::Sum>, C: GemmType<Sum = Self::Sum>>: GemmType {}

/// An element type of [`gemv`](super::gemv): `f32`, `f64`, `f16` or `bf16`. The trait is sealed.
pub trait VectorType: Multiply<Self, Self> {}

impl VectorType for f32 {}
impl VectorType for f64 {}
impl VectorType for f16 {}
impl VectorType for bf16 {}

macro_rules! products {
    ($($a:ty, $b:ty => $($c:ty),*;)*) => { $($(impl Multiply<$b, $c> for $a {})*)* };
}

products! {
    f32, f32 => f32;
    f64, f64 => f64;
    f16, f16 => f16, f32;
    bf16, bf16 => bf16, f32;
    i8, i8 => i32;
    F8E4M3, F8E4M3 => bf16, f16, f32;
    F8E4M3, F8E5M2 => bf16, f16, f32;
    F8E5M2, F8E4M3 => bf16, f16, f32;
}

elements! {
    i8, I8, |x| f64::from(x), |x| x as i8;
    i32, I32, |x| f64::from(x), |x| x as i32;
    F8E4M3, F8E4M3, |x| f64::from(x.to_f32()), |x| F8E4M3::from_f32(x as f32);
    F8E5M2, F8E5M2, |x| f64::from(x.to_f32()), |x| F8E5M2::from_f32(x as f32);
}

macro_rules! summed {
    ($($type:ty => $sum:ty),*) => { $(impl Summed for $type { type Sum = $sum; })* };
}

summed!(f32 => f32, f64 => f64, f16 => f32, bf16 => f32, i8 => i32, i32 => i32, F8E4M3 => f32, F8E5M2 => f32);

macro_rules! float_sum {
    ($type:ident, $gemm:ident) => {
        impl Sum for $type {
            fn scaled(alpha: Self, product: Self, beta: Self, before: Self) -> Self {
                alpha * product + beta * before
            }

            fn product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
                assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "packed matrices");
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                let (k_stride, n_stride) = (k as isize, n as isize);
                // SAFETY: all three slices contain the elements that the strides reach, and `c` is borrowed
                // exclusively.
                unsafe {
                    matrixmultiply::$gemm(m, k, n, 1.0, a, k_stride, 1, b, n_stride, 1, 0.0, c, n_stride, 1);
                }
            }
        }
    };
}

float_sum!(f32, sgemm);
float_sum!(f64, dgemm);

impl Sum for i32 {
    fn scaled(alpha: Self, product: Self, beta: Self, before: Self) -> Self {
        alpha.wrapping_mul(product).wrapping_add(beta.wrapping_mul(before))
    }

    fn product(_: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
        c.fill(0);
        if k == 0 || n == 0 {
            return;
        }
        for (a, c) in a.chunks(k).zip(c.chunks_mut(n)) {
            for (a, b) in a.iter().zip(b.chunks(n)) {
                c.iter_mut().zip(b).for_each(|(c, b)| *c = c.wrapping_add(a.wrapping_mul(*b)));
            }
        }
    }
}
