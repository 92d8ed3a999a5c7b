//! Raw functions of CUDA's libdevice, named as there but without the prefix `__nv_`.
//!
//! On the host, all of them panic, because libdevice is not available there. [`GpuFloat`](crate::GpuFloat) and
//! [`FloatExt`](crate::FloatExt) work on both host and device.
//!
//! # Safety
//! Pointers must be valid for writes. Functions without pointers are `unsafe` only because Rust-CUDA declares them so.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

macro_rules! declare {
    (@$name:ident [($($argument:ident: $t:ty),*) $(-> $result:ty)?]) => {
        #[doc = concat!("Calls libdevice's `__nv_", stringify!($name), "`.")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), allow(unused_variables))]
        pub unsafe fn $name($($argument: $t),*) $(-> $result)? {
            #[cfg(target_arch = "nvptx64")]
            {
                unsafe extern "C" {
                    #[link_name = concat!("__nv_", stringify!($name))]
                    fn function($($argument: $t),*) $(-> $result)?;
                }
                // SAFETY: guaranteed by the caller.
                unsafe { function($($argument),*) }
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                unimplemented!(
                    concat!("`__nv_", stringify!($name), "` is in CUDA's libdevice and can be called only on a GPU")
                )
            }
        }
    };
    ($($signature:tt $($name:ident)*;)*) => { $($(declare!(@$name $signature);)*)* };
}

// Each line starts with the signature of its functions.
declare! {
    // Functions of one number.
    [(x: f64) -> f64] acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1
        erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb
        nearbyint normcdf normcdfinv rcbrt rint round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1;
    [(x: f32) -> f32] acosf acoshf asinf asinhf atanf atanhf cbrtf ceilf cosf coshf cospif cyl_bessel_i0f
        cyl_bessel_i1f erff erfcf erfcinvf erfcxf erfinvf expf exp10f exp2f expm1f fabsf floorf j0f j1f
        lgammaf logf log10f log1pf log2f logbf nearbyintf normcdff normcdfinvf rcbrtf rintf roundf rsqrtf
        sinf sinhf sinpif sqrtf tanf tanhf tgammaf truncf y0f y1f;

    // Functions of two numbers.
    [(x: f64, y: f64) -> f64] atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder;
    [(x: f32, y: f32) -> f32] atan2f copysignf fdimf fmaxf fminf fmodf hypotf nextafterf powf remainderf;
    [(x: f64, y: f64, z: f64) -> f64] fma;
    [(x: f32, y: f32, z: f32) -> f32] fmaf;
    [(x: f32) -> f32] saturatef;

    // Functions with integer arguments or results.
    [(x: f64) -> i32] ilogb;
    [(x: f32) -> i32] ilogbf;
    [(n: i32, x: f64) -> f64] jn yn;
    [(n: i32, x: f32) -> f32] jnf ynf;
    [(x: f64, exponent: i32) -> f64] ldexp scalbn powi;
    [(x: f32, exponent: i32) -> f32] ldexpf scalbnf powif;
    [(x: f64) -> i64] llrint llround;
    [(x: f32) -> i64] llrintf llroundf;

    // Functions with a second result.
    [(x: f64, exponent: *mut i32) -> f64] frexp;
    [(x: f32, exponent: *mut i32) -> f32] frexpf;
    [(x: f64, whole: *mut f64) -> f64] modf;
    [(x: f32, whole: *mut f32) -> f32] modff;
    [(x: f64, y: f64, quotient: *mut i32) -> f64] remquo;
    [(x: f32, y: f32, quotient: *mut i32) -> f32] remquof;
    [(x: f64, sin: *mut f64, cos: *mut f64)] sincos sincospi;
    [(x: f32, sin: *mut f32, cos: *mut f32)] sincosf sincospif;

    // Approximate functions.
    [(x: f32) -> f32] fast_cosf fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_sinf fast_tanf;
    [(x: f32, y: f32) -> f32] fast_fdividef fast_powf;
    [(x: f32, sin: *mut f32, cos: *mut f32)] fast_sincosf;

    // Functions of integers.
    [(x: i32) -> i32] abs clz ffs popc;
    [(x: i64) -> i64] llabs;
    [(x: u32) -> u32] brev;
    [(x: u64) -> u64] brevll;
    [(x: i64) -> i32] clzll ffsll popcll;
    [(x: i32, y: i32) -> i32] min max mulhi mul24 hadd rhadd;
    [(x: u32, y: u32) -> u32] umin umax umulhi umul24 uhadd urhadd;
    [(x: i64, y: i64) -> i64] llmin llmax mul64hi;
    [(x: u64, y: u64) -> u64] ullmin ullmax umul64hi;
    [(x: i32, y: i32, z: u32) -> i32] sad;
    [(x: u32, y: u32, z: u32) -> u32] usad;
    [(x: i32, y: i32, selector: i32) -> i32] byte_perm;

    // Functions with a rounding mode: down, nearest, up, toward zero.
    [(x: f32, y: f32) -> f32] fadd_rd fsub_rd fmul_rd fdiv_rd fadd_rn fsub_rn fmul_rn fdiv_rn fadd_ru
        fsub_ru fmul_ru fdiv_ru fadd_rz fsub_rz fmul_rz fdiv_rz;
    [(x: f64, y: f64) -> f64] dadd_rd dsub_rd dmul_rd ddiv_rd dadd_rn dsub_rn dmul_rn ddiv_rn dadd_ru
        dsub_ru dmul_ru ddiv_ru dadd_rz dsub_rz dmul_rz ddiv_rz;
    [(x: f64, y: f64, z: f64) -> f64] fma_rd fma_rn fma_ru fma_rz;
    [(x: f32, y: f32, z: f32) -> f32] fmaf_rd fmaf_rn fmaf_ru fmaf_rz;
    [(x: f32) -> f32] frcp_rd fsqrt_rd frcp_rn fsqrt_rn frcp_ru fsqrt_ru frcp_rz fsqrt_rz;
    [(x: f64) -> f64] drcp_rd dsqrt_rd drcp_rn dsqrt_rn drcp_ru dsqrt_ru drcp_rz dsqrt_rz;
}
