//! The types that operations take, and what their reductions give.

use gpu_kernels::reduce::Summable;
use gpu_std::Checked;
use gpu_std::scalar::{Float, Scalar};
use half::{bf16, f16};
use warpsmith_runtime::DeviceCopy;

mod sealed {
    pub trait Sealed {}
}

/// A type that [`fill`](crate::ops::fill) and [`cast`](crate::ops::cast) take: every [`Number`], i8, u8, i16, u16, and
/// [`Checked<bool>`], which is `bool` in a buffer.
pub trait Element: DeviceCopy + sealed::Sealed {
    /// The number that kernels have for it: itself, and u8 for `Checked<bool>`.
    type Scalar: Scalar + DeviceCopy;
    /// Whether a cast to it asks if a number is not 0.
    #[doc(hidden)]
    const IS_BOOL: bool;

    /// The number of the same bytes.
    fn to_scalar(self) -> Self::Scalar;
}

/// A type that every operation takes: f32, f64, f16, bf16, i32, u32, i64, u64.
pub trait Number: Element<Scalar = Self> + Summable<Wide = Self::DeviceSum> {
    /// The result type of [`sum`](crate::ops::sum) and [`prod`](crate::ops::prod): the type itself for floats, i64 and
    /// u64 for integers.
    type Sum: DeviceCopy;
    /// The same as a kernel leaves it on the device: f32 for f16 and bf16, which are rounded on the host.
    type DeviceSum: DeviceCopy + Scalar;
    /// The type of a minimum or maximum on the device: f32 for f16 and bf16, else the type itself.
    type DeviceExtreme: DeviceCopy + Scalar;

    /// Rounds a sum to what is returned.
    fn sum_from_device(sum: Self::DeviceSum) -> Self::Sum;
    /// Narrows a minimum or maximum, which loses nothing.
    fn extreme_from_device(extreme: Self::DeviceExtreme) -> Self;
}

/// A floating-point [`Number`]: f32, f64, f16, bf16.
pub trait Real: Number<Sum = Self> + Float {
    /// `sum / count`, rounded once.
    fn mean_from_device(sum: Self::DeviceSum, count: usize) -> Self;
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
            fn mean_from_device(sum: Self::DeviceSum, count: usize) -> Self {
                Scalar::cast(f64::from(sum) / count as f64)
            }
        }
    )* };
}

real!(f32, f64, f16, bf16);
