//! Approximate functions of `f32`: one or two instructions each on the GPU.
//!
//! Subnormal numbers count as 0. The errors are those of PTX's `.approx.ftz` instructions. On the emulated device
//! these are the accurate functions.

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
    /// eˣ; relative error about 2⁻²² near 0, growing with |x|.
    exp(x) = nvvm::ex2_approx(x * LOG2_E), x.exp();
    /// 2ˣ; relative error at most 2⁻²².
    exp2(x) = nvvm::ex2_approx(x), x.exp2();
    /// The natural logarithm; absolute error about 2⁻²² between 0.5 and 2, relative error 2⁻²¹ elsewhere.
    ln(x) = nvvm::lg2_approx(x) * LN_2, x.ln();
    /// The logarithm to base 2; absolute error 2⁻²² between 0.5 and 2, relative error 2⁻²² elsewhere.
    log2(x) = nvvm::lg2_approx(x), x.log2();
    /// The sine; absolute error 2⁻²⁰ between −π and π, growing outside.
    sin(x) = nvvm::sin_approx(x), x.sin();
    /// The cosine; absolute error 2⁻²⁰ between −π and π, growing outside.
    cos(x) = nvvm::cos_approx(x), x.cos();
    /// 1 / √x; relative error at most 2⁻²².
    rsqrt(x) = nvvm::rsqrt_approx(x), 1.0 / x.sqrt();
    /// √x; relative error at most 2⁻²²; 0 for 0.
    sqrt(x) = nvvm::sqrt_approx(x), x.sqrt();
    /// 1 / x; at most 1 unit in the last place.
    recip(x) = nvvm::rcp_approx(x), 1.0 / x;
    /// The hyperbolic tangent; relative error at most 2⁻¹¹.
    tanh(x) = tanh_approx(x), x.tanh();
    /// x / y; at most 2 units in the last place for |y| from 2⁻¹²⁶ to 2¹²⁶, 0 beyond.
    div(x, y) = nvvm::div_approx(x, y), x / y;
    /// xʸ for positive x, as 2 to the power y · log2(x).
    pow(x, y) = nvvm::ex2_approx(y * nvvm::lg2_approx(x)), x.powf(y);
}

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn tanh_approx(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        core::arch::asm!("tanh.approx.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack));
    }
    y
}
