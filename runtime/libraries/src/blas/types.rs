//! [`Element`]: what matrices consist of, and [`Multiply`]: which products there are.

use half::{bf16, f16};

use super::float8::{F8E4M3, F8E5M2};
use warpsmith_core::memory::DeviceCopy;

/// A type of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataType {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    F8E4M3,
    F8E5M2,
}

impl DataType {
    pub fn is_float8(self) -> bool {
        matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }
}

pub mod sealed {
    use super::DataType;

    /// How the emulated device computes with a type.
    pub trait Element: Sized {
        const TYPE: DataType;
        type Sum: Sum;
        fn widen(self) -> Self::Sum;
        /// Rounds to the nearest value.
        fn narrow(sum: Self::Sum) -> Self;
    }

    /// A type in which is summed.
    pub trait Sum: Copy + Send + Sync + PartialEq + 'static {
        const ZERO: Self;
        const ONE: Self;
        fn add(self, other: Self) -> Self;
        fn sub(self, other: Self) -> Self;
        fn mul(self, other: Self) -> Self;
        fn div(self, other: Self) -> Self;
        fn to_f64(self) -> f64;
        fn from_f64(value: f64) -> Self;
        fn relu(self) -> Self;
        fn gelu(self) -> Self;
        /// The product of packed row-major matrices of m x k and k x n.
        fn product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]);
    }
}

use self::sealed::Sum;

/// The type of `alpha` and `beta` for a type of elements, in which products are summed: `f64` for `f64`, `i32` for
/// integers, else `f32`.
pub type Scale<T> = <T as sealed::Element>::Sum;

/// A type of elements: `f32`, `f64`, `f16`, `bf16`, `i8`, `i32`, [`F8E4M3`], [`F8E5M2`].
pub trait Element: DeviceCopy + sealed::Element {}

impl<T: DeviceCopy + sealed::Element> Element for T {}

/// Products of matrices that there are: of `Self` and `B`, stored as `C`.
///
/// | a | b | c | sums |
/// | --- | --- | --- | --- |
/// | `f32` | `f32` | `f32` | `f32`, or from TF32 inputs with [`Math::allow_tf32`](super::Math) |
/// | `f64` | `f64` | `f64` | `f64` |
/// | `f16` | `f16` | `f16`, `f32` | `f32` |
/// | `bf16` | `bf16` | `bf16`, `f32` | `f32` |
/// | `i8` | `i8` | `i32` | `i32` |
/// | `F8E4M3` | `F8E4M3`, `F8E5M2` | `bf16`, `f16`, `f32` | `f32` |
/// | `F8E5M2` | `F8E4M3` | `bf16`, `f16`, `f32` | `f32` |
pub trait Multiply<B: Element<Sum = Self::Sum>, C: Element<Sum = Self::Sum>>: Element {}

/// Types of floating point that the vector operations take: `f32`, `f64`, `f16`, `bf16`.
pub trait Float: Multiply<Self, Self> {}

impl Float for f32 {}
impl Float for f64 {}
impl Float for f16 {}
impl Float for bf16 {}

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

macro_rules! element {
    ($type:ty, $code:ident, $sum:ty, |$wide:ident| $widen:expr, |$narrow:ident| $round:expr) => {
        impl sealed::Element for $type {
            const TYPE: DataType = DataType::$code;
            type Sum = $sum;

            #[inline]
            fn widen(self) -> $sum {
                let $wide = self;
                $widen
            }

            #[inline]
            fn narrow($narrow: $sum) -> Self {
                $round
            }
        }
    };
}

element!(f32, F32, f32, |x| x, |x| x);
element!(f64, F64, f64, |x| x, |x| x);
element!(f16, F16, f32, |x| x.to_f32(), |x| f16::from_f32(x));
element!(bf16, Bf16, f32, |x| x.to_f32(), |x| bf16::from_f32(x));
element!(i8, I8, i32, |x| i32::from(x), |x| x as i8);
element!(i32, I32, i32, |x| x, |x| x);
element!(F8E4M3, F8E4M3, f32, |x| x.to_f32(), |x| F8E4M3::from_f32(x));
element!(F8E5M2, F8E5M2, f32, |x| x.to_f32(), |x| F8E5M2::from_f32(x));

macro_rules! float_sum {
    ($type:ident, $gemm:ident) => {
        impl Sum for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            fn add(self, other: Self) -> Self {
                self + other
            }

            fn sub(self, other: Self) -> Self {
                self - other
            }

            fn mul(self, other: Self) -> Self {
                self * other
            }

            fn div(self, other: Self) -> Self {
                self / other
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn relu(self) -> Self {
                // Unlike `max`, it keeps NaN.
                if self < 0.0 { 0.0 } else { self }
            }

            fn gelu(self) -> Self {
                let inner =
                    std::f64::consts::FRAC_2_PI.sqrt() as $type * (self + 0.044715 * self * self * self);
                0.5 * self * (1.0 + inner.tanh())
            }

            fn product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
                assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "packed matrices");
                let (k_stride, n_stride) = (k as isize, n as isize);
                // SAFETY: the three have as many elements as the strides reach; `c` is borrowed exclusively.
                unsafe {
                    matrixmultiply::$gemm(
                        m,
                        k,
                        n,
                        1.0,
                        a.as_ptr(),
                        k_stride,
                        1,
                        b.as_ptr(),
                        n_stride,
                        1,
                        0.0,
                        c.as_mut_ptr(),
                        n_stride,
                        1,
                    );
                }
            }
        }
    };
}

float_sum!(f32, sgemm);
float_sum!(f64, dgemm);

impl Sum for i32 {
    const ZERO: Self = 0;
    const ONE: Self = 1;

    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn sub(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }

    fn div(self, other: Self) -> Self {
        self.checked_div(other).unwrap_or(0)
    }

    fn to_f64(self) -> f64 {
        self.into()
    }

    fn from_f64(value: f64) -> Self {
        value as Self
    }

    fn relu(self) -> Self {
        self.max(0)
    }

    fn gelu(self) -> Self {
        f64::from(self).gelu() as i32
    }

    fn product(m: usize, k: usize, n: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
        assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "packed matrices");
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
