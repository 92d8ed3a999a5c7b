//! Real functions. This module contains the accurate versions, and [`fast`] contains approximations.
//!
//! [`Math`] declares functions of the standard library's `f32` and `f64` under the same names. A kernel that calls
//! `x.sin()` therefore also compiles for the GPU, where `core` provides none of these functions. The prelude brings the
//! trait's methods into scope. On the host, the standard library's inherent methods take precedence. The trait also
//! declares functions that are efficient on a GPU, such as `rsqrt`, `exp10` and `gelu`.
//!
//! On the GPU, the implementations come from CUDA's libdevice, except for `sin` and `cos`, whose implementations in
//! this module need no stack. On the emulated device, the implementations come from the standard library and `libm`.
//! Inherent methods of the standard library, which take precedence, have the error bounds of the system's C library.
//! The errors of both implementations are within the following bounds from the CUDA programming guide, in units in the
//! last place (ULP). GPU results and emulated results may differ within these bounds:
//!
//! | functions | maximum error for `f32` | maximum error for `f64` |
//! | --- | --- | --- |
//! | `sqrt`, `mul_add`, `fmod`, `rem_euclid`, `fract`, rounding functions, `/`, `%` | 0 | 0 |
//! | `ln`, `log2`, `ln_1p`, `cbrt` | 1 | 1 |
//! | `exp`, `exp2`, `exp10`, `exp_m1`, `log10`, `rsqrt`, `tanh` | 2 | 1 |
//! | `sin`, `cos`, `asin`, `acos`, `atan`, `erf` | 2 | 2 |
//! | `atan2`, `hypot`, `sinh`, `cosh`, `atanh` | 3 | 2 |
//! | `asinh` | 3 | 3 |
//! | `tan`, `pow` | 4 | 2 |
//! | `acosh` | 4 | 3 |
//! | `erfc` | 4 | 5 |
//! | `gamma` | 5 | 10 |
//! | `ln_gamma`, outside the intervals -24..-2 and 0.5..3, which contain its zeros | 6 | 4 |
//!
//! `gelu` has an additional error because x / √2 is rounded. For 16-bit floats, compute in their
//! [`Scalar::Accumulator`].
//!
//! A future standard library may add `erf`, `erfc`, `gamma` and `ln_gamma`, so the compiler warns if you call them as
//! methods. Call the free functions of this module instead.
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::math;
//!
//! fn wave(t: f32) -> f32 {
//!     (2.0 * t).sin().powi(2) + t.sqrt() + math::erf(t)
//! }
//!
//! assert_eq!(wave(0.0), 0.0);
//! assert_eq!(math::sqrt(9.0_f32), 3.0);
//! assert_eq!(1.0_f64.exp(), core::f64::consts::E);
//! ```

pub mod fast;
mod trigonometry;

use core::f64::consts::FRAC_1_SQRT_2;
use core::ops::{Add, Div, Mul, Neg, Sub};

use crate::scalar::Scalar;

#[cfg(target_arch = "nvptx64")]
mod libdevice {
    macro_rules! declare {
        ($($f32_name:ident, $f64_name:ident($($argument:ident),*);)*) => {
            unsafe extern "C" {
                $(
                    pub safe fn $f32_name($($argument: f32),*) -> f32;
                    pub safe fn $f64_name($($argument: f64),*) -> f64;
                )*
            }
        };
    }
    declare! {
        __nv_expf, __nv_exp(x); __nv_exp2f, __nv_exp2(x); __nv_exp10f, __nv_exp10(x);
        __nv_expm1f, __nv_expm1(x); __nv_logf, __nv_log(x); __nv_log2f, __nv_log2(x);
        __nv_log10f, __nv_log10(x); __nv_log1pf, __nv_log1p(x); __nv_tanf, __nv_tan(x); __nv_asinf, __nv_asin(x);
        __nv_acosf, __nv_acos(x); __nv_atanf, __nv_atan(x); __nv_sinhf, __nv_sinh(x);
        __nv_coshf, __nv_cosh(x); __nv_tanhf, __nv_tanh(x); __nv_asinhf, __nv_asinh(x);
        __nv_acoshf, __nv_acosh(x); __nv_atanhf, __nv_atanh(x); __nv_erff, __nv_erf(x);
        __nv_erfcf, __nv_erfc(x); __nv_tgammaf, __nv_tgamma(x); __nv_lgammaf, __nv_lgamma(x);
        __nv_rsqrtf, __nv_rsqrt(x); __nv_cbrtf, __nv_cbrt(x); __nv_fabsf, __nv_fabs(x);
        __nv_floorf, __nv_floor(x); __nv_ceilf, __nv_ceil(x); __nv_truncf, __nv_trunc(x);
        __nv_roundf, __nv_round(x); __nv_rintf, __nv_rint(x); __nv_atan2f, __nv_atan2(y, x);
        __nv_hypotf, __nv_hypot(x, y); __nv_powf, __nv_pow(x, y); __nv_fmodf, __nv_fmod(x, y);
        __nv_copysignf, __nv_copysign(x, sign); __nv_fmaf, __nv_fma(x, y, z);
        __nv_sqrtf, __nv_sqrt(x);
    }
    use super::trigonometry;

    macro_rules! trigonometry {
        ($($name:ident: $t:ident, $quadrants:literal;)*) => { $(
            #[inline(always)]
            pub fn $name(x: $t) -> $t {
                trigonometry::$t(x, $quadrants)
            }
        )* };
    }
    trigonometry! { sine32: f32, 0; sine64: f64, 0; cosine32: f32, 1; cosine64: f64, 1; }

    unsafe extern "C" {
        pub safe fn __nv_powif(x: f32, n: i32) -> f32;
        pub safe fn __nv_powi(x: f64, n: i32) -> f64;
    }
}

/// Declares the trait, its two implementations, and the free functions.
macro_rules! functions {
    (@ $t:ident $x:ident) => { $t };
    ($(
        $(#[$doc:meta])*
        $name:ident($this:ident $(, $argument:ident)*) =
            $gpu32:ident, $gpu64:ident, |$($x:ident),+| $host32:expr, $host64:expr;
    )*) => {
        /// Real functions of `f32` and `f64`. All of them are also available as free functions of this module.
        ///
        /// ```
        /// use gpu_std::math::Math;
        /// use gpu_std::scalar::Scalar;
        ///
        /// fn sigmoid<T: Math>(x: T) -> T {
        ///     T::ONE / (T::ONE + (-x).exp())
        /// }
        /// assert_eq!((sigmoid(0.0_f32), sigmoid(0.0_f64)), (0.5, 0.5));
        /// ```
        pub trait Math:
            Scalar<Accumulator = Self>
            + Add<Output = Self>
            + Sub<Output = Self>
            + Mul<Output = Self>
            + Div<Output = Self>
            + Neg<Output = Self>
        {
            $(
                $(#[$doc])*
                fn $name(self $(, $argument: Self)*) -> Self;
            )*

            /// x / 2 · (1 + erf(x / √2)), the exact Gaussian error linear unit, which is also accurate for negative x.
            fn gelu(self) -> Self;

            /// x to the integer power n.
            fn powi(self, n: i32) -> Self;

            /// x to the power y. This is [`pow`](Self::pow) under the standard library's name.
            #[inline(always)]
            fn powf(self, y: Self) -> Self {
                self.pow(y)
            }

            /// Returns the logarithm of x to base `base`.
            #[inline(always)]
            fn log(self, base: Self) -> Self {
                self.ln() / base.ln()
            }

            /// Returns the sine and the cosine of x in radians.
            #[inline(always)]
            fn sin_cos(self) -> (Self, Self) {
                (self.sin(), self.cos())
            }

            /// Returns the fractional part of x: `self - self.trunc()`.
            #[inline(always)]
            fn fract(self) -> Self {
                self - self.trunc()
            }

            /// Returns the integer q that satisfies x = q · y + [`rem_euclid`](Self::rem_euclid).
            #[inline(always)]
            fn div_euclid(self, y: Self) -> Self {
                let quotient = (self / y).trunc();
                if self.fmod(y) >= Self::ZERO {
                    quotient
                } else if y > Self::ZERO {
                    quotient - Self::ONE
                } else {
                    quotient + Self::ONE
                }
            }

            /// Returns the non-negative remainder of x / y.
            #[inline(always)]
            fn rem_euclid(self, y: Self) -> Self {
                let remainder = self.fmod(y);
                if remainder < Self::ZERO { remainder + y.abs() } else { remainder }
            }
        }

        impl Math for f32 {
            #[inline(always)]
            fn powi(self, n: i32) -> Self {
                gpu_or_host!(libdevice::__nv_powif(self, n), f32::powi(self, n))
            }

            $(
                #[inline(always)]
                fn $name(self $(, $argument: Self)*) -> Self {
                    #[cfg(target_arch = "nvptx64")]
                    {
                        libdevice::$gpu32(self $(, $argument)*)
                    }
                    #[cfg(not(target_arch = "nvptx64"))]
                    {
                        let call: fn($(functions!(@ f32 $x)),+) -> f32 = |$($x),+| $host32;
                        call(self $(, $argument)*)
                    }
                }
            )*

            #[inline(always)]
            fn gelu(self) -> Self {
                // Because of the clamp, the result at −∞ is 0 rather than NaN.
                0.5 * (if self < -1e4 { -1e4 } else { self }) * erfc(-self * FRAC_1_SQRT_2 as f32)
            }
        }

        impl Math for f64 {
            #[inline(always)]
            fn powi(self, n: i32) -> Self {
                gpu_or_host!(libdevice::__nv_powi(self, n), f64::powi(self, n))
            }

            $(
                #[inline(always)]
                fn $name(self $(, $argument: Self)*) -> Self {
                    #[cfg(target_arch = "nvptx64")]
                    {
                        libdevice::$gpu64(self $(, $argument)*)
                    }
                    #[cfg(not(target_arch = "nvptx64"))]
                    {
                        let call: fn($(functions!(@ f64 $x)),+) -> f64 = |$($x),+| $host64;
                        call(self $(, $argument)*)
                    }
                }
            )*

            #[inline(always)]
            fn gelu(self) -> Self {
                0.5 * (if self < -1e4 { -1e4 } else { self }) * erfc(-self * FRAC_1_SQRT_2)
            }
        }

        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name<T: Math>($this: T $(, $argument: T)*) -> T {
                Math::$name($this $(, $argument)*)
            }
        )*

        /// x / 2 · (1 + erf(x / √2)), the exact Gaussian error linear unit, which is also accurate for negative x.
        #[inline(always)]
        pub fn gelu<T: Math>(x: T) -> T {
            x.gelu()
        }
    };
}

/// Returns the inverse hyperbolic cosine. Unlike `libm::acosh`, the result is NaN for all x below 1.
#[cfg(not(target_arch = "nvptx64"))]
fn acosh_on_host(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

functions! {
    /// eˣ.
    exp(x) = __nv_expf, __nv_exp, |x| f32::exp(x), f64::exp(x);
    /// 2ˣ.
    exp2(x) = __nv_exp2f, __nv_exp2, |x| f32::exp2(x), f64::exp2(x);
    /// 10ˣ.
    exp10(x) = __nv_exp10f, __nv_exp10, |x| libm::pow(10.0, x.into()) as f32, libm::pow(10.0, x);
    /// eˣ − 1, accurate near 0.
    exp_m1(x) = __nv_expm1f, __nv_expm1, |x| f64::exp_m1(x.into()) as f32, f64::exp_m1(x);
    /// The natural logarithm.
    ln(x) = __nv_logf, __nv_log, |x| f32::ln(x), f64::ln(x);
    /// The logarithm to base 2.
    log2(x) = __nv_log2f, __nv_log2, |x| f32::log2(x), f64::log2(x);
    /// The logarithm to base 10.
    log10(x) = __nv_log10f, __nv_log10, |x| f32::log10(x), f64::log10(x);
    /// ln(1 + x), accurate near 0.
    ln_1p(x) = __nv_log1pf, __nv_log1p, |x| f64::ln_1p(x.into()) as f32, f64::ln_1p(x);
    /// The sine of x in radians.
    sin(x) = sine32, sine64, |x| f32::sin(x), f64::sin(x);
    /// The cosine of x in radians.
    cos(x) = cosine32, cosine64, |x| f32::cos(x), f64::cos(x);
    /// The tangent of x in radians.
    tan(x) = __nv_tanf, __nv_tan, |x| f32::tan(x), f64::tan(x);
    /// The arc sine, in radians.
    asin(x) = __nv_asinf, __nv_asin, |x| f32::asin(x), f64::asin(x);
    /// The arc cosine, in radians.
    acos(x) = __nv_acosf, __nv_acos, |x| f32::acos(x), f64::acos(x);
    /// The arc tangent, in radians.
    atan(x) = __nv_atanf, __nv_atan, |x| f32::atan(x), f64::atan(x);
    /// The angle of the point (x, y) in radians, called as `y.atan2(x)`.
    atan2(y, x) = __nv_atan2f, __nv_atan2, |y, x| f32::atan2(y, x), f64::atan2(y, x);
    /// The hyperbolic sine.
    sinh(x) = __nv_sinhf, __nv_sinh, |x| f32::sinh(x), f64::sinh(x);
    /// The hyperbolic cosine.
    cosh(x) = __nv_coshf, __nv_cosh, |x| f32::cosh(x), f64::cosh(x);
    /// The hyperbolic tangent.
    tanh(x) = __nv_tanhf, __nv_tanh, |x| f64::tanh(x.into()) as f32, f64::tanh(x);
    /// The inverse hyperbolic sine.
    asinh(x) = __nv_asinhf, __nv_asinh, |x| libm::asinh(x.into()) as f32, libm::asinh(x);
    /// The inverse hyperbolic cosine.
    acosh(x) = __nv_acoshf, __nv_acosh, |x| acosh_on_host(x.into()) as f32, acosh_on_host(x);
    /// The inverse hyperbolic tangent.
    atanh(x) = __nv_atanhf, __nv_atanh, |x| libm::atanh(x.into()) as f32, libm::atanh(x);
    /// The error function.
    erf(x) = __nv_erff, __nv_erf, |x| libm::erff(x), libm::erf(x);
    /// 1 − erf(x), accurate for large x.
    erfc(x) = __nv_erfcf, __nv_erfc, |x| libm::erfcf(x), libm::erfc(x);
    /// The gamma function.
    gamma(x) = __nv_tgammaf, __nv_tgamma, |x| libm::tgammaf(x), libm::tgamma(x);
    /// The natural logarithm of the absolute value of the gamma function.
    ln_gamma(x) = __nv_lgammaf, __nv_lgamma, |x| libm::lgammaf(x), libm::lgamma(x);
    /// The square root, correctly rounded.
    sqrt(x) = __nv_sqrtf, __nv_sqrt, |x| f32::sqrt(x), f64::sqrt(x);
    /// 1 / √x.
    rsqrt(x) = __nv_rsqrtf, __nv_rsqrt, |x| 1.0 / f32::sqrt(x), 1.0 / f64::sqrt(x);
    /// The cube root.
    cbrt(x) = __nv_cbrtf, __nv_cbrt, |x| f32::cbrt(x), f64::cbrt(x);
    /// √(x² + y²) without intermediate overflow.
    hypot(x, y) = __nv_hypotf, __nv_hypot, |x, y| f32::hypot(x, y), f64::hypot(x, y);
    /// x to the power y.
    pow(x, y) = __nv_powf, __nv_pow, |x, y| f32::powf(x, y), f64::powf(x, y);
    /// The remainder of x / y, with the sign of x.
    fmod(x, y) = __nv_fmodf, __nv_fmod, |x, y| x % y, x % y;
    /// The absolute value.
    abs(x) = __nv_fabsf, __nv_fabs, |x| f32::abs(x), f64::abs(x);
    /// x with the sign of `sign`.
    copysign(x, sign) = __nv_copysignf, __nv_copysign, |x, s| f32::copysign(x, s), f64::copysign(x, s);
    /// The largest integer not above x.
    floor(x) = __nv_floorf, __nv_floor, |x| f32::floor(x), f64::floor(x);
    /// The smallest integer not below x.
    ceil(x) = __nv_ceilf, __nv_ceil, |x| f32::ceil(x), f64::ceil(x);
    /// x without its fractional part.
    trunc(x) = __nv_truncf, __nv_trunc, |x| f32::trunc(x), f64::trunc(x);
    /// x rounded to the nearest integer, with ties away from 0.
    round(x) = __nv_roundf, __nv_round, |x| f32::round(x), f64::round(x);
    /// x rounded to the nearest integer, with ties to even.
    round_ties_even(x) = __nv_rintf, __nv_rint, |x| f32::round_ties_even(x), f64::round_ties_even(x);
    /// x · y + z, rounded once.
    mul_add(x, y, z) = __nv_fmaf, __nv_fma, |x, y, z| f32::mul_add(x, y, z), f64::mul_add(x, y, z);
}
