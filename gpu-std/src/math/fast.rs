//! Approximate `f32` functions, each of which takes one or two instructions on the GPU.
//!
//! Subnormal numbers are flushed to 0. The errors are those of PTX's `.approx.ftz` instructions. On the emulated
//! device, the accurate functions are called instead.

use crate::math::Math;
#[cfg(target_arch = "nvptx64")]
use crate::nvvm;
#[cfg(target_arch = "nvptx64")]
use core::f32::consts::{LN_2, LOG2_E};

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($x:ident),*) = $gpu:expr, $host:expr;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($x: f32),*) -> f32 {
            gpu_or_host!($gpu, $host)
        }
    )* };
}

functions! {
    /// eˣ. The relative error is about 2⁻²² near 0 and grows with |x|.
    exp(x) = nvvm::ex2_approx(x * LOG2_E), x.exp();
    /// 2ˣ. The relative error is at most 2⁻²².
    exp2(x) = nvvm::ex2_approx(x), x.exp2();
    /// The natural logarithm. The absolute error is about 2⁻²² between 0.5 and 2; elsewhere, the relative error is
    /// about 2⁻²¹.
    ln(x) = nvvm::lg2_approx(x) * LN_2, x.ln();
    /// The logarithm to base 2. The absolute error is 2⁻²² between 0.5 and 2; elsewhere, the relative error is 2⁻²².
    log2(x) = nvvm::lg2_approx(x), x.log2();
    /// The sine. The absolute error is 2⁻²⁰ between −π and π and grows outside this range.
    sin(x) = nvvm::sin_approx(x), x.sin();
    /// The cosine. The absolute error is 2⁻²⁰ between −π and π and grows outside this range.
    cos(x) = nvvm::cos_approx(x), x.cos();
    /// 1 / √x. The relative error is at most 2⁻²².
    rsqrt(x) = nvvm::rsqrt_approx(x), 1.0 / x.sqrt();
    /// √x. The relative error is at most 2⁻²², and the result for 0 is 0.
    sqrt(x) = nvvm::sqrt_approx(x), x.sqrt();
    /// 1 / x. The error is at most 1 unit in the last place.
    recip(x) = nvvm::rcp_approx(x), 1.0 / x;
    /// The hyperbolic tangent. The relative error is at most 2⁻¹¹.
    tanh(x) = tanh_approx(x), x.tanh();
    /// x / y. The error is at most 2 units in the last place for |y| from 2⁻¹²⁶ to 2¹²⁶; for larger |y|, the result
    /// is 0.
    div(x, y) = nvvm::div_approx(x, y), x / y;
    /// xʸ for positive x, computed as 2 to the power y · log2(x).
    pow(x, y) = nvvm::ex2_approx(y * nvvm::lg2_approx(x)), x.powf(y);
}

/// x / 2 · (1 + erf(x / √2)), the exact Gaussian error linear unit (GELU). The relative error is at most 2⁻¹⁶, even for
/// negative x, if the result is normal and x has at most 16 bits of mantissa. The function is meant for results that
/// are rounded to 16 bits, for which the rounding error is 16 times as large. It takes two approximate instructions and
/// twelve other instructions.
///
/// It computes the upper tail of the normal distribution as exp(-x² / 2) · u · P(u) with u = 1 / (1 + 0.3 |x|). P is a
/// polynomial of degree 5, fitted for |x| up to 14.5 with a relative error of 9·10⁻⁶.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    /// Scales the polynomial down and the exponential up, so that no intermediate result is subnormal.
    const SCALE: f32 = 1.0 / (1 << 24) as f32;
    const P: [f32; 6] = [
        0.120_057_55 * SCALE,
        0.113_921_23 * SCALE,
        0.143_480_42 * SCALE,
        -0.015_611_947 * SCALE,
        0.214_862_69 * SCALE,
        -0.076_705_52 * SCALE,
    ];
    // For smaller x, including −∞, the result is 0.
    let x = if x < -100.0 { -100.0 } else { x };
    let u = recip(Math::mul_add(0.3, Math::abs(x), 1.0));
    let mut polynomial = P[5];
    polynomial = Math::mul_add(polynomial, u, P[4]);
    polynomial = Math::mul_add(polynomial, u, P[3]);
    polynomial = Math::mul_add(polynomial, u, P[2]);
    polynomial = Math::mul_add(polynomial, u, P[1]);
    polynomial = Math::mul_add(polynomial, u, P[0]);
    // The square of a 16-bit float is exact in `f32`.
    let exponential = exp2(Math::mul_add(x * x, -0.5 * core::f32::consts::LOG2_E, 24.0));
    let tail = exponential * (polynomial * u);
    x * if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn tanh_approx(x: f32) -> f32 {
    let y: f32;
    // SAFETY: the instruction accesses only registers.
    unsafe {
        core::arch::asm!("tanh.approx.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack));
    }
    y
}
