//! [`FloatExt`]: libdevice functions that the standard library does not provide.
#![cfg_attr(not(target_arch = "nvptx64"), allow(unused_unsafe, reason = "the host's functions are safe"))]

use gpu_std::math::Math;

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics as raw;
#[cfg(not(target_arch = "nvptx64"))]
use host as raw;

/// Functions of `f32` and `f64` that CUDA provides in addition to those of the standard library.
///
/// On the emulated device, `libm` computes them in double precision, so the last bits may differ.
///
/// ```
/// use cuda_std::FloatExt;
/// assert!((1.0_f64.error_function() - 0.8427007929497149).abs() < 1e-15);
/// assert_eq!(6.0_f32.frexp(), (0.75, 3));
/// ```
pub trait FloatExt: Sized + Math {
    /// Returns cos(π x).
    fn cospi(self) -> Self;
    /// Returns the error function of x.
    fn error_function(self) -> Self;
    /// Returns 1 − erf(x), which is accurate for large x.
    fn complementary_error_function(self) -> Self;
    /// Returns the inverse of [`complementary_error_function`](Self::complementary_error_function) for arguments from 0
    /// to 2.
    fn inv_complementary_error_function(self) -> Self;
    /// Returns exp(x²) · erfc(x).
    fn scaled_complementary_error_function(self) -> Self;
    /// Returns the mantissa (0, or at least 0.5 and less than 1) and the exponent, where `x = mantissa · 2^exponent`.
    fn frexp(self) -> (Self, i32);
    /// Returns the exponent as an integer.
    fn unbiased_exp(self) -> i32;
    /// Returns the Bessel function of the first kind of order 0.
    fn j0(self) -> Self;
    /// Returns the Bessel function of the first kind of order 1.
    fn j1(self) -> Self;
    /// Returns the Bessel function of the first kind of the given order.
    fn jn(self, order: i32) -> Self;
    /// Returns x · 2^exponent.
    fn ldexp(self, exp: i32) -> Self;
    /// Returns the logarithm of the absolute value of the gamma function.
    fn log_gamma(self) -> Self;
    /// Returns ln(1 + x), which is accurate near 0.
    fn log1p(self) -> Self;
    /// Returns the cumulative distribution function of the standard normal distribution.
    fn norm_cdf(self) -> Self;
    /// Returns the inverse of [`norm_cdf`](Self::norm_cdf) for arguments from 0 to 1.
    fn inv_norm_cdf(self) -> Self;
    /// Returns 1 / ∛x.
    fn rcbrt(self) -> Self;
    /// Clamps x to the range from 0 to 1; NaN becomes 0.
    fn saturate(self) -> Self;
    /// Returns x · 2^exponent.
    fn scale_by_n(self, exp: i32) -> Self;
    /// Returns sin(π x) and cos(π x).
    fn sincospi(self) -> (Self, Self);
    /// Returns sin(π x).
    fn sinpi(self) -> Self;
    /// Returns the gamma function of x.
    fn gamma(self) -> Self;
    /// Returns the Bessel function of the second kind of order 0.
    fn y0(self) -> Self;
    /// Returns the Bessel function of the second kind of order 1.
    fn y1(self) -> Self;
    /// Returns the Bessel function of the second kind of the given order.
    fn yn(self, order: i32) -> Self;
}

/// Defines methods that each call one function of libdevice.
macro_rules! same {
    ($($name:ident() = $raw:ident;)*) => { $(
        #[inline(always)]
        fn $name(self) -> Self {
            // SAFETY: the function is defined for all numbers.
            unsafe { raw::$raw(self) }
        }
    )* };
}

macro_rules! implement {
    ($t:ident: $cospi:ident $erfcinv:ident $erfcx:ident $j0:ident $j1:ident $normcdf:ident $normcdfinv:ident $rcbrt:ident
        $sinpi:ident $y0:ident $y1:ident $jn:ident $yn:ident $ldexp:ident $scalbn:ident $ilogb:ident $frexp:ident) => {
        impl FloatExt for $t {
            same! {
                cospi() = $cospi;
                inv_complementary_error_function() = $erfcinv;
                scaled_complementary_error_function() = $erfcx;
                j0() = $j0;
                j1() = $j1;
                norm_cdf() = $normcdf;
                inv_norm_cdf() = $normcdfinv;
                rcbrt() = $rcbrt;
                sinpi() = $sinpi;
                y0() = $y0;
                y1() = $y1;
            }

            #[inline(always)]
            fn error_function(self) -> Self {
                Math::erf(self)
            }

            #[inline(always)]
            fn complementary_error_function(self) -> Self {
                Math::erfc(self)
            }

            #[inline(always)]
            fn frexp(self) -> (Self, i32) {
                let mut exponent = 0;
                // SAFETY: the pointer points to a local variable.
                let mantissa = unsafe { raw::$frexp(self, &mut exponent) };
                (mantissa, exponent)
            }

            #[inline(always)]
            fn unbiased_exp(self) -> i32 {
                // SAFETY: the function is defined for all numbers.
                unsafe { raw::$ilogb(self) }
            }

            #[inline(always)]
            fn jn(self, order: i32) -> Self {
                // SAFETY: the function is defined for all numbers.
                unsafe { raw::$jn(order, self) }
            }

            #[inline(always)]
            fn ldexp(self, exp: i32) -> Self {
                // SAFETY: the function is defined for all numbers.
                unsafe { raw::$ldexp(self, exp) }
            }

            #[inline(always)]
            fn log_gamma(self) -> Self {
                Math::ln_gamma(self)
            }

            #[inline(always)]
            fn log1p(self) -> Self {
                Math::ln_1p(self)
            }

            #[inline(always)]
            fn saturate(self) -> Self {
                // NaN becomes 0, because comparisons with NaN are false.
                if self > 0.0 { if self < 1.0 { self } else { 1.0 } } else { 0.0 }
            }

            #[inline(always)]
            fn scale_by_n(self, exp: i32) -> Self {
                // SAFETY: the function is defined for all numbers.
                unsafe { raw::$scalbn(self, exp) }
            }

            #[inline(always)]
            fn sincospi(self) -> (Self, Self) {
                (self.sinpi(), self.cospi())
            }

            #[inline(always)]
            fn gamma(self) -> Self {
                Math::gamma(self)
            }

            #[inline(always)]
            fn yn(self, order: i32) -> Self {
                // SAFETY: the function is defined for all numbers.
                unsafe { raw::$yn(order, self) }
            }
        }
    };
}
implement!(f64: cospi erfcinv erfcx j0 j1 normcdf normcdfinv rcbrt sinpi y0 y1 jn yn ldexp scalbn ilogb frexp);
implement!(f32: cospif erfcinvf erfcxf j0f j1f normcdff normcdfinvf rcbrtf sinpif y0f y1f jnf ynf ldexpf scalbnf ilogbf frexpf);

/// Host implementations of the libdevice functions.
#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use core::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

    pub use libm::{ilogb, ilogbf, j0, j1, jn, ldexp, ldexpf, scalbn, scalbnf, y0, y1, yn};

    /// Reduces the argument of sin(π x) or cos(π x) to the range from −1 to 1. The reduction is exact.
    fn half_turns(x: f64) -> f64 {
        x - 2.0 * (x / 2.0).round()
    }

    pub fn sinpi(x: f64) -> f64 {
        let turns = half_turns(x);
        // For whole numbers, the result must be exactly zero.
        if turns == turns.trunc() { 0.0_f64.copysign(x) } else { (PI * turns).sin() }
    }

    pub fn cospi(x: f64) -> f64 {
        let turns = half_turns(x);
        if turns.abs() == 0.5 { 0.0 } else { (PI * turns).cos() }
    }

    pub fn erfcx(x: f64) -> f64 {
        if x < 25.0 {
            return (x * x).exp() * libm::erfc(x);
        }
        // Asymptotic series whose terms become smaller than the last bit before they grow again.
        let (mut term, mut sum) = (1.0, 1.0);
        for n in 0..8 {
            term *= -f64::from(2 * n + 1) / (2.0 * x * x);
            sum += term;
        }
        FRAC_2_SQRT_PI / 2.0 / x * sum
    }

    /// Computes the root of erfc(x) = y with Newton's method, starting from the result of a bisection.
    pub fn erfcinv(y: f64) -> f64 {
        match y {
            _ if !(0.0..=2.0).contains(&y) => return f64::NAN,
            0.0 => return f64::INFINITY,
            2.0 => return f64::NEG_INFINITY,
            _ => {}
        }
        // erfc(28) is below the smallest positive number.
        let (mut low, mut high) = (-28.0, 28.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if libm::erfc(middle) > y { low = middle } else { high = middle }
        }
        let mut x = 0.5 * (low + high);
        for _ in 0..3 {
            let slope = -FRAC_2_SQRT_PI * (-x * x).exp();
            let step = (libm::erfc(x) - y) / slope;
            if step.is_finite() && step.abs() < 1e-3 {
                x -= step;
            }
        }
        x
    }

    pub fn normcdf(x: f64) -> f64 {
        0.5 * libm::erfc(-x / SQRT_2)
    }

    pub fn normcdfinv(y: f64) -> f64 {
        -SQRT_2 * erfcinv(2.0 * y)
    }

    pub fn rcbrt(x: f64) -> f64 {
        1.0 / x.cbrt()
    }

    pub unsafe fn frexp(x: f64, exponent: *mut i32) -> f64 {
        let (mantissa, found) = libm::frexp(x);
        // SAFETY: guaranteed by the caller.
        unsafe { exponent.write(found) };
        mantissa
    }

    pub unsafe fn frexpf(x: f32, exponent: *mut i32) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe { frexp(f64::from(x), exponent) as f32 }
    }

    /// Defines single-precision functions, computed in double precision and rounded.
    macro_rules! rounded {
        ($($name:ident = $double:ident;)*) => { $(
            pub fn $name(x: f32) -> f32 {
                $double(f64::from(x)) as f32
            }
        )* };
    }
    rounded! {
        cospif = cospi; sinpif = sinpi; erfcinvf = erfcinv; erfcxf = erfcx; normcdff = normcdf;
        normcdfinvf = normcdfinv; rcbrtf = rcbrt; j0f = j0; j1f = j1; y0f = y0; y1f = y1;
    }

    pub fn jnf(order: i32, x: f32) -> f32 {
        jn(order, f64::from(x)) as f32
    }

    pub fn ynf(order: i32, x: f32) -> f32 {
        yn(order, f64::from(x)) as f32
    }
}
