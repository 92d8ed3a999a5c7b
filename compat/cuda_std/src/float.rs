//! [`GpuFloat`]: float functions that the standard library provides, but `core` does not.

use gpu_std::math::Math;

/// Functions that the standard library provides for `f32` and `f64`, and that kernels can also call. On a GPU, they
/// call CUDA's libdevice functions.
///
/// ```
/// use cuda_std::GpuFloat;
/// assert_eq!(GpuFloat::sqrt(9.0_f32), 3.0);
/// ```
#[allow(missing_docs, reason = "each is the standard library's function of the same name")]
pub trait GpuFloat: Copy + PartialOrd + Math {
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round(self) -> Self;
    fn trunc(self) -> Self;
    fn fract(self) -> Self;
    fn abs(self) -> Self;
    fn signum(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn mul_add(self, a: Self, b: Self) -> Self;
    fn div_euclid(self, rhs: Self) -> Self;
    fn rem_euclid(self, rhs: Self) -> Self;
    fn powi(self, n: i32) -> Self;
    fn powf(self, n: Self) -> Self;
    fn sqrt(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn ln(self) -> Self;
    fn log(self, base: Self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn cbrt(self) -> Self;
    fn hypot(self, other: Self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn atan2(self, other: Self) -> Self;
    fn sin_cos(self) -> (Self, Self);
    fn exp_m1(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
}

/// Methods whose names differ in `Math`.
macro_rules! same {
    ($($name:ident($($argument:ident),*) = $math:ident;)*) => { $(
        #[inline(always)]
        fn $name(self $(, $argument: Self)*) -> Self {
            Math::$math(self $(, $argument)*)
        }
    )* };
}

macro_rules! implement {
    ($t:ident, $powi:ident) => {
        impl GpuFloat for $t {
            same! {
                floor() = floor;
                ceil() = ceil;
                round() = round;
                trunc() = trunc;
                abs() = abs;
                copysign(sign) = copysign;
                mul_add(a, b) = mul_add;
                powf(n) = pow;
                sqrt() = sqrt;
                exp() = exp;
                exp2() = exp2;
                ln() = ln;
                log2() = log2;
                log10() = log10;
                cbrt() = cbrt;
                hypot(other) = hypot;
                sin() = sin;
                cos() = cos;
                tan() = tan;
                asin() = asin;
                acos() = acos;
                atan() = atan;
                atan2(other) = atan2;
                exp_m1() = exp_m1;
                ln_1p() = ln_1p;
                sinh() = sinh;
                cosh() = cosh;
                tanh() = tanh;
                asinh() = asinh;
                acosh() = acosh;
                atanh() = atanh;
            }

            #[inline(always)]
            fn fract(self) -> Self {
                self - Math::trunc(self)
            }

            #[inline(always)]
            fn signum(self) -> Self {
                $t::signum(self)
            }

            #[inline(always)]
            fn div_euclid(self, rhs: Self) -> Self {
                let quotient = Math::trunc(self / rhs);
                match self % rhs < 0.0 {
                    true if rhs > 0.0 => quotient - 1.0,
                    true => quotient + 1.0,
                    false => quotient,
                }
            }

            #[inline(always)]
            fn rem_euclid(self, rhs: Self) -> Self {
                let remainder = self % rhs;
                if remainder < 0.0 { remainder + Math::abs(rhs) } else { remainder }
            }

            #[inline(always)]
            fn powi(self, n: i32) -> Self {
                #[cfg(target_arch = "nvptx64")]
                // SAFETY: the function is defined for all numbers.
                unsafe {
                    crate::intrinsics::$powi(self, n)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    $t::powi(self, n)
                }
            }

            #[inline(always)]
            fn log(self, base: Self) -> Self {
                Math::ln(self) / Math::ln(base)
            }

            #[inline(always)]
            fn sin_cos(self) -> (Self, Self) {
                (Math::sin(self), Math::cos(self))
            }
        }
    };
}
implement!(f32, powif);
implement!(f64, powi);
