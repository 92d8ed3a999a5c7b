//! Element types of kernels and operations.
//!
//! | trait | types |
//! | --- | --- |
//! | [`Scalar`] | `f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64` |
//! | [`Number`], which supports sums and products | `f32 f64 f16 bf16 i32 u32 i64 u64` |
//! | [`Float`] | `f32 f64 f16 bf16` |
//! | [`Integer`] | `i8 u8 i16 u16 i32 u32 i64 u64` |
//! | [`Element`] | every [`Scalar`], and [`Checked<bool>`](crate::Checked) |
//! | [`Bits`] | every [`Integer`], and [`Checked<bool>`](crate::Checked) |
//!
//! Every [`Float`] is a [`Number`], and every [`Number`] or [`Integer`] is a [`Scalar`]. All these traits are sealed.
//! Computations with 16-bit floats use `f32`, their [`Scalar::Accumulator`].

use core::fmt::Debug;
use core::hash::Hash;
use core::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use bytemuck::Pod;
use gpu_spec::DeviceCopy;
use half::{bf16, f16};

use crate::Checked;
use crate::element::KernelType;
use crate::math::Math;
use crate::sealed::Sealed;

/// A plain number: `f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64`. The trait is sealed.
///
/// ```
/// use gpu_std::scalar::Scalar;
/// fn add<T: Scalar>(a: T, b: T) -> T {
///     T::from_acc(a.to_acc().wrapping_add(b.to_acc()))
/// }
/// assert_eq!(add(250_u8, 10), 4);
/// assert_eq!(3.9_f32.cast::<u8>(), 3);
/// ```
pub trait Scalar: Sealed + KernelType + Pod + PartialEq + PartialOrd + Debug + Send + Sync + From64 {
    /// The type's name, for example `"f32"`.
    const NAME: &'static str;
    /// Size in bytes.
    const SIZE: usize = size_of::<Self>();
    /// The number 0.
    const ZERO: Self;
    /// The number 1.
    const ONE: Self;
    /// Identity of the minimum: +∞, or the largest integer.
    const MIN_IDENTITY: Self;
    /// Identity of the maximum: −∞, or the smallest integer.
    const MAX_IDENTITY: Self;
    /// Distance from 1 to the next larger value, or 0 for integers.
    const EPSILON: f64;
    /// True if the type has negative values.
    const IS_SIGNED: bool = true;

    /// The type for accumulation: `f32` for `f16` and `bf16`, the type itself for all others.
    type Accumulator: Scalar<Accumulator = Self::Accumulator>;

    /// Converts to the accumulator type, exactly.
    fn to_acc(self) -> Self::Accumulator;
    /// Returns the number of this type that is nearest to `value`.
    fn from_acc(value: Self::Accumulator) -> Self;

    /// Returns the sum. Integers wrap around on overflow.
    fn wrapping_add(self, other: Self) -> Self;
    /// Returns the product. Integers wrap around on overflow.
    fn wrapping_mul(self, other: Self) -> Self;

    /// Returns the minimum, or NaN if either operand is NaN. −0 is less than +0.
    fn min_propagate(self, other: Self) -> Self;
    /// Returns the maximum, or NaN if either operand is NaN. +0 is greater than −0.
    fn max_propagate(self, other: Self) -> Self;

    /// Converts as `as` does: integers wrap around, and floats round to nearest even. A cast from a float to an integer
    /// truncates and saturates, and NaN becomes 0.
    fn cast<U: Scalar>(self) -> U;
}

/// Conversions from the widest types, through which any number can be converted to any other type.
#[doc(hidden)]
pub trait From64: Sized {
    fn from_i64(value: i64) -> Self;
    fn from_u64(value: u64) -> Self;
    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
}

/// A number that supports sums and products: `f32 f64 f16 bf16 i32 u32 i64 u64`.
///
/// ```
/// use gpu_std::scalar::{Number, Scalar};
///
/// fn sum<T: Number>(x: &[T]) -> T::Sum {
///     x.iter().fold(T::Sum::ZERO, |sum, x| sum.wrapping_add(x.cast()))
/// }
/// // The sum of `i32` is an `i64`.
/// assert_eq!(sum(&[i32::MAX, 1]), 1 << 31);
/// ```
pub trait Number: Scalar {
    /// Type of a sum or product: the type itself for floats, `i64` for signed integers, and `u64` for unsigned
    /// integers.
    type Sum: Scalar<Accumulator = Self::SumAccumulator>;
    /// Accumulator type of a sum or product: `f32` for `f16` and `bf16`, and [`Self::Sum`] for all others.
    type SumAccumulator: Scalar<Accumulator = Self::SumAccumulator>;
}

macro_rules! numbers {
    ($($t:ty: $sum:ty, $accumulator:ty;)*) => { $(
        impl Number for $t {
            type Sum = $sum;
            type SumAccumulator = $accumulator;
        }
    )* };
}
numbers! {
    f32: f32, f32; f64: f64, f64; f16: f16, f32; bf16: bf16, f32;
    i32: i64, i64; u32: u64, u64; i64: i64, i64; u64: u64, u64;
}

/// An integer: `i8 u8 i16 u16 i32 u32 i64 u64`.
///
/// ```
/// use gpu_std::scalar::Integer;
/// fn without<T: Integer>(flags: T, removed: T) -> T {
///     flags & !removed
/// }
/// assert_eq!(without(0b111_u8, 0b101), 0b10);
/// ```
pub trait Integer:
    Scalar
    + Bits
    + Ord
    + Hash
    + Not<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
{
}

/// A type with bitwise operations: an [`Integer`], or `Checked<bool>`.
///
/// ```
/// use gpu_std::Checked;
/// use gpu_std::scalar::Bits;
///
/// fn is_bits<T: Bits>(_: T) -> bool {
///     true
/// }
/// assert!(is_bits(1_u8) && is_bits(Checked::from(true)));
/// ```
pub trait Bits: Element {
    /// Operand that inverts a value by XOR.
    #[doc(hidden)]
    const ONES: Self;
}

impl Bits for Checked<bool> {
    const ONES: Self = Checked::TRUE;
}

macro_rules! bits {
    ($($t:ty: $ones:expr;)*) => { $(
        impl Integer for $t {}

        impl Bits for $t {
            const ONES: Self = $ones;
        }
    )* };
}
bits! { i8: -1; u8: u8::MAX; i16: -1; u16: u16::MAX; i32: -1; u32: u32::MAX; i64: -1; u64: u64::MAX; }

/// A type that operations can fill, compare and convert: every [`Scalar`], and [`Checked<bool>`](crate::Checked), which
/// represents `bool` in a buffer.
///
/// ```
/// use gpu_std::Checked;
/// use gpu_std::scalar::Element;
///
/// fn bytes<T: Element>(x: T) -> usize {
///     size_of_val(&x.to_scalar())
/// }
/// assert_eq!((bytes(1.0_f64), bytes(Checked::from(true))), (8, 1));
/// ```
pub trait Element: Sealed + KernelType + DeviceCopy {
    /// Type that kernels use to process the elements: the type itself, or `u8` for `Checked<bool>`.
    type Scalar: Scalar;
    /// True if casting a number to this type tests whether the number is nonzero.
    #[doc(hidden)]
    const IS_BOOL: bool = false;

    /// Returns the number that has the same bytes as this element.
    fn to_scalar(self) -> Self::Scalar;
}

impl<T: Scalar> Element for T {
    type Scalar = T;

    #[inline(always)]
    fn to_scalar(self) -> T {
        self
    }
}

impl Sealed for Checked<bool> {}

impl Element for Checked<bool> {
    type Scalar = u8;
    const IS_BOOL: bool = true;

    #[inline(always)]
    fn to_scalar(self) -> u8 {
        self.bits()
    }
}

/// A floating-point number: `f32 f64 f16 bf16`.
///
/// ```
/// use gpu_std::math::Math;
/// use gpu_std::scalar::Float;
/// fn sigmoid<T: Float>(x: T) -> T {
///     let x = x.to_acc();
///     T::from_acc(T::Accumulator::from_f32(1.0) / (T::Accumulator::from_f32(1.0) + (-x).exp()))
/// }
/// # use gpu_std::scalar::From64;
/// assert_eq!(sigmoid(0.0_f32), 0.5);
/// ```
pub trait Float:
    Scalar<Accumulator: Math>
    + Number<Sum = Self, SumAccumulator = <Self as Scalar>::Accumulator>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Returns `self` · y + z, rounded once. This is also true of `f16` and `bf16`, for which a computation in the
    /// accumulator type would round twice.
    ///
    /// ```
    /// use gpu_std::f16;
    /// use gpu_std::scalar::Float;
    /// // The product is 2⁻¹¹ − 2⁻³¹, and half a unit of z is 2⁻¹¹.
    /// let [x, y, z] = [0x3bfe, 0x1001, 0x3c01].map(f16::from_bits);
    /// assert_eq!(x.fused_mul_add(y, z), z);
    /// // As f32 the sum is in the middle of two numbers, of which the nearest even one is another.
    /// assert_ne!(f16::from_f32(x.to_f32().mul_add(y.to_f32(), z.to_f32())), z);
    /// ```
    fn fused_mul_add(self, y: Self, z: Self) -> Self;
}

macro_rules! wide_floats {
    ($($t:ty)*) => { $(
        impl Float for $t {
            #[inline(always)]
            fn fused_mul_add(self, y: Self, z: Self) -> Self {
                Math::mul_add(self, y, z)
            }
        }
    )* };
}
wide_floats! { f32 f64 }

/// Returns x · y + z in a form that can be rounded to a 16-bit float. The product is exact, and an inexact sum is
/// rounded to odd.
#[inline(always)]
fn odd_mul_add(x: f64, y: f64, z: f64) -> f64 {
    let product = x * y;
    let sum = product + z;
    // Rounding error of the sum (Knuth's two-sum).
    let of_z = sum - product;
    let lost = (product - (sum - of_z)) + (z - of_z);
    if lost == 0.0 || lost.is_nan() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let is_away = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if is_away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

macro_rules! fused_narrow_floats {
    ($($t:ident: $min_arch:literal, $instruction:literal;)*) => { $(
        impl Float for $t {
            #[inline(always)]
            fn fused_mul_add(self, y: Self, z: Self) -> Self {
                #[cfg(target_arch = "nvptx64")]
                if crate::arch() >= $min_arch {
                    let out: u16;
                    // SAFETY: the instruction accesses only registers.
                    unsafe {
                        core::arch::asm!(
                            concat!($instruction, " {0}, {1}, {2}, {3};"),
                            out(reg16) out, in(reg16) self.to_bits(), in(reg16) y.to_bits(), in(reg16) z.to_bits(),
                            options(pure, nomem, nostack)
                        );
                    }
                    return $t::from_bits(out);
                }
                let [x, y, z] = [self, y, z].map(|value| value.to_f32() as f64);
                <$t as From64>::from_f64(odd_mul_add(x, y, z))
            }
        }
    )* };
}
fused_narrow_floats! {
    f16: 53, "fma.rn.f16";
    bf16: 80, "fma.rn.bf16";
}

/// Defines the IEEE 754 minimum and maximum in stable Rust.
macro_rules! extremes {
    ($($name:ident: $t:ident, $op:tt, $first_of_equals:ident;)*) => { $(
        #[inline(always)]
        fn $name(a: $t, b: $t) -> $t {
            if a.is_nan() {
                a
            } else if b.is_nan() {
                b
            } else if a == b {
                if a.$first_of_equals() { a } else { b }
            } else if a $op b {
                a
            } else {
                b
            }
        }
    )* };
}
extremes! { min_f64: f64, <, is_sign_negative; max_f64: f64, >, is_sign_positive; }
#[cfg(not(target_arch = "nvptx64"))]
extremes! { min_f32: f32, <, is_sign_negative; max_f32: f32, >, is_sign_positive; }
#[cfg(target_arch = "nvptx64")]
use crate::nvvm::{maximum_f32 as max_f32, minimum_f32 as min_f32};

/// Implements `Scalar` for types that are their own accumulator.
macro_rules! plain {
    ($($t:ident: [$zero:expr, $one:expr, $largest:ident, $smallest:ident, $epsilon:expr],
        [$add:expr, $mul:expr, $min:expr, $max:expr], $wide:ident $from_wide:ident;)*) => { $(
        impl Scalar for $t {
            const NAME: &'static str = stringify!($t);
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            const MIN_IDENTITY: Self = $t::$largest;
            const MAX_IDENTITY: Self = $t::$smallest;
            const EPSILON: f64 = $epsilon;
            const IS_SIGNED: bool = $t::$smallest != $zero;
            type Accumulator = Self;

            #[inline(always)]
            fn to_acc(self) -> Self {
                self
            }
            #[inline(always)]
            fn from_acc(value: Self) -> Self {
                value
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                $add(self, other)
            }
            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                $mul(self, other)
            }
            #[inline(always)]
            fn min_propagate(self, other: Self) -> Self {
                $min(self, other)
            }
            #[inline(always)]
            fn max_propagate(self, other: Self) -> Self {
                $max(self, other)
            }
            #[inline(always)]
            fn cast<U: Scalar>(self) -> U {
                U::$from_wide(self as $wide)
            }
        }

        impl From64 for $t {
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $t
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
        }
    )* };
}

macro_rules! integers {
    ($($t:ident: $wide:ident $from_wide:ident;)*) => { plain! { $(
        $t: [0, 1, MAX, MIN, 0.0], [$t::wrapping_add, $t::wrapping_mul, lesser, greater], $wide $from_wide;
    )* } };
}
integers! {
    i8: i64 from_i64; u8: u64 from_u64; i16: i64 from_i64; u16: u64 from_u64;
    i32: i64 from_i64; u32: u64 from_u64; i64: i64 from_i64; u64: u64 from_u64;
}
plain! {
    f32: [0.0, 1.0, INFINITY, NEG_INFINITY, f32::EPSILON as f64], [Add::add, Mul::mul, min_f32, max_f32], f32 from_f32;
    f64: [0.0, 1.0, INFINITY, NEG_INFINITY, f64::EPSILON], [Add::add, Mul::mul, min_f64, max_f64], f64 from_f64;
}

#[inline(always)]
fn lesser<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

#[inline(always)]
fn greater<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

macro_rules! narrow_floats {
    ($($t:ident;)*) => { $(
        impl Scalar for $t {
            const NAME: &'static str = stringify!($t);
            const ZERO: Self = $t::ZERO;
            const ONE: Self = $t::ONE;
            const MIN_IDENTITY: Self = $t::INFINITY;
            const MAX_IDENTITY: Self = $t::NEG_INFINITY;
            const EPSILON: f64 = $t::EPSILON.to_f64_const();
            type Accumulator = f32;

            #[inline(always)]
            fn to_acc(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn from_acc(value: f32) -> Self {
                $t::from_f32(value)
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn min_propagate(self, other: Self) -> Self {
                $t::from_f32(min_f32(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn max_propagate(self, other: Self) -> Self {
                $t::from_f32(max_f32(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn cast<U: Scalar>(self) -> U {
                U::from_f32(self.to_f32())
            }
        }

        impl From64 for $t {
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                // This code avoids the absolute value, which ptxas 13.0 computes incorrectly (as a negative number) for
                // the smallest `i32`.
                let exact = if value >> 53 == value >> 63 { value } else { spared(value as u64) as i64 };
                $t::from_f32(round_to_odd(exact as f64))
            }
            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                let exact = if value >> 53 == 0 { value } else { spared(value) };
                $t::from_f32(round_to_odd(exact as f64))
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                $t::from_f32(value)
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                $t::from_f32(round_to_odd(value))
            }
        }
    )* };
}
narrow_floats! { f16; bf16; }

/// Clears the lowest 12 bits of a number that has more than 53 bits, so that `f64` represents it exactly. If any of
/// these bits was set, bit 12 is set as a sticky bit. The result rounds to the same 16-bit float, even if it is read as
/// a two's complement number.
#[inline(always)]
fn spared(value: u64) -> u64 {
    const SPARE: u64 = (1 << 12) - 1;
    value & !SPARE | ((value & SPARE != 0) as u64) << 12
}

/// Rounds `value` to `f32` by round-to-odd. If `value` is not representable in `f32`, the result is the adjacent `f32`
/// whose last bit is odd. The result rounds to the same 16-bit float as `value` because both are on the same side of
/// every tie. (`half`'s own conversion from `f64` ignores the lower half of the mantissa.)
#[inline(always)]
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = near as f64;
    if back == value || value.is_nan() {
        return near;
    }
    let toward_zero = if back.abs() > value.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}
