//! Element types of operations, and the result types of reductions.

use gpu_kernels::arithmetic::Arithmetic;
use gpu_kernels::reduce::{MeanSums, Summable, mean_of};
use gpu_std::Checked;
use gpu_std::scalar::{Float, Scalar};
use half::{bf16, f16};
use warpsmith_runtime::DeviceCopy;

mod sealed {
    pub trait Sealed {}
}

/// A type that [`fill`](crate::ops::fill) and [`cast`](crate::ops::cast) take: every [`Number`], i8, u8, i16, u16, and
/// [`Checked<bool>`], the form of `bool` in a buffer.
pub trait Element: DeviceCopy + sealed::Sealed {
    /// Type that kernels use for it: the type itself, or u8 for `Checked<bool>`.
    type Scalar: Scalar + DeviceCopy;
    /// True if a cast to this type tests for nonzero.
    #[doc(hidden)]
    const IS_BOOL: bool;

    /// Number with the same bytes.
    fn to_scalar(self) -> Self::Scalar;
}

/// A type that every operation takes: f32, f64, f16, bf16, i32, u32, i64, u64.
pub trait Number: Numeric + Summable<Wide = Self::DeviceSum> {
    /// The result type of [`sum`](crate::ops::sum) and [`prod`](crate::ops::prod): the type itself for floats, i64 and
    /// u64 for integers.
    type Sum: DeviceCopy;
    /// Type of the sum as a kernel leaves it on the device: f32 for f16 and bf16, which are rounded on the host.
    type DeviceSum: Element + Scalar;
    /// Type of a minimum or maximum on the device: f32 for f16 and bf16, otherwise the type itself.
    type DeviceExtreme: DeviceCopy + Scalar;

    /// Rounds a sum to the returned type.
    fn sum_from_device(sum: Self::DeviceSum) -> Self::Sum;
    /// Narrows a minimum or maximum; this is lossless.
    fn extreme_from_device(extreme: Self::DeviceExtreme) -> Self;
}

/// Every number: a [`Number`], or i8, u8, i16 or u16.
pub trait Numeric: Element<Scalar = Self> + Arithmetic {}

/// An integer.
pub trait Integer: Numeric + Bits {}

/// A type with bitwise operations: an integer, or `Checked<bool>`.
pub trait Bits: Element {
    /// Operand of the XOR that inverts a value.
    #[doc(hidden)]
    const ONES: Self;
}

/// A floating-point [`Number`]: f32, f64, f16, bf16.
pub trait Real: Number<Sum = Self> + Float {
    /// Mean of `count` elements with the accumulated `sums`, rounded once.
    fn mean_from_device(sums: MeanSums<Self::DeviceSum>, count: usize) -> Self;
}

macro_rules! elements {
    ($($t:ty),*) => { $(
        impl sealed::Sealed for $t {}

        impl Element for $t {
            type Scalar = Self;
            const IS_BOOL: bool = false;

            fn to_scalar(self) -> Self {
                self
            }
        }
    )* };
}

elements!(f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! numeric {
    ($($t:ty),*; $($integer:ident: $ones:expr),*) => {
        $(impl Numeric for $t {})*
        $(impl Integer for $integer {}
        impl Bits for $integer {
            const ONES: Self = $ones;
        })*
    };
}

numeric!(
    f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64;
    i8: -1, u8: u8::MAX, i16: -1, u16: u16::MAX, i32: -1, u32: u32::MAX, i64: -1, u64: u64::MAX
);

impl Bits for Checked<bool> {
    const ONES: Self = Checked::TRUE;
}

impl sealed::Sealed for Checked<bool> {}

impl Element for Checked<bool> {
    type Scalar = u8;
    const IS_BOOL: bool = true;

    fn to_scalar(self) -> u8 {
        self.bits()
    }
}

macro_rules! number {
    ($($t:ty, $sum:ty, $device_sum:ty, $extreme:ty;)*) => { $(
        impl Number for $t {
            type Sum = $sum;
            type DeviceSum = $device_sum;
            type DeviceExtreme = $extreme;

            fn sum_from_device(sum: $device_sum) -> $sum {
                Scalar::cast(sum)
            }
            fn extreme_from_device(extreme: $extreme) -> $t {
                Scalar::cast(extreme)
            }
        }
    )* };
}

number! {
    f32, f32, f32, f32;
    f64, f64, f64, f64;
    f16, f16, f32, f32;
    bf16, bf16, f32, f32;
    i32, i64, i64, i32;
    u32, u64, u64, u32;
    i64, i64, i64, i64;
    u64, u64, u64, u64;
}

macro_rules! real {
    ($($t:ty),*) => { $(
        impl Real for $t {
            fn mean_from_device(sums: MeanSums<Self::DeviceSum>, count: usize) -> Self {
                mean_of::<$t, _>(sums, count)
            }
        }
    )* };
}

real!(f32, f64, f16, bf16);

/// Bit pattern of a number.
#[cfg(any(feature = "rows", feature = "scan"))]
pub(super) fn bits<T: Scalar>(x: T) -> u64 {
    let mut bytes = [0; 8];
    bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&x));
    u64::from_le_bytes(bytes)
}

/// Bit layout of a type, for kernels that take integers of its size.
#[cfg(any(feature = "rows", feature = "scan"))]
#[derive(Debug, Clone, Copy)]
pub(super) struct BitLayout {
    /// Sign bit.
    #[cfg_attr(not(feature = "scan"), allow(dead_code, reason = "comparisons alone need it"))]
    pub sign: u64,
    #[cfg_attr(not(feature = "scan"), allow(dead_code, reason = "comparisons alone need it"))]
    pub is_float: bool,
    /// Bits to invert in a number whose highest bit is set, and in every number, so that the order of numbers is that
    /// of unsigned integers.
    pub negative: u64,
    pub always: u64,
    /// Bits of a float's magnitude, and the largest magnitude that is not NaN; all bits of an integer.
    pub magnitude: u64,
    pub most: u64,
}

#[cfg(any(feature = "rows", feature = "scan"))]
impl BitLayout {
    pub fn of<T: Scalar>() -> Self {
        let sign = 1 << (8 * size_of::<T>() - 1);
        let always = if T::MAX_IDENTITY < T::ZERO { sign } else { 0 };
        match 0.5_f64.cast::<T>() != T::ZERO {
            true => Self {
                sign,
                is_float: true,
                negative: sign - 1,
                always,
                magnitude: sign - 1,
                most: bits(T::MIN_IDENTITY),
            },
            false => Self { sign, is_float: false, negative: 0, always, magnitude: u64::MAX, most: u64::MAX },
        }
    }
}
