//! Raw functions of CUDA's libdevice, named as there but without the prefix `__nv_`.
//!
//! On the host, all of them panic, because libdevice is not available there. [`GpuFloat`](crate::GpuFloat) and
//! [`FloatExt`](crate::FloatExt) work on both host and device.
//!
//! # Safety
//! Pointers must be valid for writes. Functions without pointers are `unsafe` only because Rust-CUDA declares them so.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

macro_rules! declare {
    ($($name:ident($($argument:ident: $t:ty),*) $(-> $result:ty)?;)*) => { $(
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
    )* };
}

// Functions of one number.
declare! {
    acos(x: f64) -> f64;
    acosh(x: f64) -> f64;
    asin(x: f64) -> f64;
    asinh(x: f64) -> f64;
    atan(x: f64) -> f64;
    atanh(x: f64) -> f64;
    cbrt(x: f64) -> f64;
    ceil(x: f64) -> f64;
    cos(x: f64) -> f64;
    cosh(x: f64) -> f64;
    cospi(x: f64) -> f64;
    cyl_bessel_i0(x: f64) -> f64;
    cyl_bessel_i1(x: f64) -> f64;
    erf(x: f64) -> f64;
    erfc(x: f64) -> f64;
    erfcinv(x: f64) -> f64;
    erfcx(x: f64) -> f64;
    erfinv(x: f64) -> f64;
    exp(x: f64) -> f64;
    exp10(x: f64) -> f64;
    exp2(x: f64) -> f64;
    expm1(x: f64) -> f64;
    fabs(x: f64) -> f64;
    floor(x: f64) -> f64;
    j0(x: f64) -> f64;
    j1(x: f64) -> f64;
    lgamma(x: f64) -> f64;
    log(x: f64) -> f64;
    log10(x: f64) -> f64;
    log1p(x: f64) -> f64;
    log2(x: f64) -> f64;
    logb(x: f64) -> f64;
    nearbyint(x: f64) -> f64;
    normcdf(x: f64) -> f64;
    normcdfinv(x: f64) -> f64;
    rcbrt(x: f64) -> f64;
    rint(x: f64) -> f64;
    round(x: f64) -> f64;
    rsqrt(x: f64) -> f64;
    sin(x: f64) -> f64;
    sinh(x: f64) -> f64;
    sinpi(x: f64) -> f64;
    sqrt(x: f64) -> f64;
    tan(x: f64) -> f64;
    tanh(x: f64) -> f64;
    tgamma(x: f64) -> f64;
    trunc(x: f64) -> f64;
    y0(x: f64) -> f64;
    y1(x: f64) -> f64;
}

declare! {
    acosf(x: f32) -> f32;
    acoshf(x: f32) -> f32;
    asinf(x: f32) -> f32;
    asinhf(x: f32) -> f32;
    atanf(x: f32) -> f32;
    atanhf(x: f32) -> f32;
    cbrtf(x: f32) -> f32;
    ceilf(x: f32) -> f32;
    cosf(x: f32) -> f32;
    coshf(x: f32) -> f32;
    cospif(x: f32) -> f32;
    cyl_bessel_i0f(x: f32) -> f32;
    cyl_bessel_i1f(x: f32) -> f32;
    erff(x: f32) -> f32;
    erfcf(x: f32) -> f32;
    erfcinvf(x: f32) -> f32;
    erfcxf(x: f32) -> f32;
    erfinvf(x: f32) -> f32;
    expf(x: f32) -> f32;
    exp10f(x: f32) -> f32;
    exp2f(x: f32) -> f32;
    expm1f(x: f32) -> f32;
    fabsf(x: f32) -> f32;
    floorf(x: f32) -> f32;
    j0f(x: f32) -> f32;
    j1f(x: f32) -> f32;
    lgammaf(x: f32) -> f32;
    logf(x: f32) -> f32;
    log10f(x: f32) -> f32;
    log1pf(x: f32) -> f32;
    log2f(x: f32) -> f32;
    logbf(x: f32) -> f32;
    nearbyintf(x: f32) -> f32;
    normcdff(x: f32) -> f32;
    normcdfinvf(x: f32) -> f32;
    rcbrtf(x: f32) -> f32;
    rintf(x: f32) -> f32;
    roundf(x: f32) -> f32;
    rsqrtf(x: f32) -> f32;
    sinf(x: f32) -> f32;
    sinhf(x: f32) -> f32;
    sinpif(x: f32) -> f32;
    sqrtf(x: f32) -> f32;
    tanf(x: f32) -> f32;
    tanhf(x: f32) -> f32;
    tgammaf(x: f32) -> f32;
    truncf(x: f32) -> f32;
    y0f(x: f32) -> f32;
    y1f(x: f32) -> f32;
}

// Functions of two numbers.
declare! {
    atan2(x: f64, y: f64) -> f64;
    copysign(x: f64, y: f64) -> f64;
    fdim(x: f64, y: f64) -> f64;
    fmax(x: f64, y: f64) -> f64;
    fmin(x: f64, y: f64) -> f64;
    fmod(x: f64, y: f64) -> f64;
    hypot(x: f64, y: f64) -> f64;
    nextafter(x: f64, y: f64) -> f64;
    pow(x: f64, y: f64) -> f64;
    remainder(x: f64, y: f64) -> f64;
}

declare! {
    atan2f(x: f32, y: f32) -> f32;
    copysignf(x: f32, y: f32) -> f32;
    fdimf(x: f32, y: f32) -> f32;
    fmaxf(x: f32, y: f32) -> f32;
    fminf(x: f32, y: f32) -> f32;
    fmodf(x: f32, y: f32) -> f32;
    hypotf(x: f32, y: f32) -> f32;
    nextafterf(x: f32, y: f32) -> f32;
    powf(x: f32, y: f32) -> f32;
    remainderf(x: f32, y: f32) -> f32;
}

declare! {
    fma(x: f64, y: f64, z: f64) -> f64;
    fmaf(x: f32, y: f32, z: f32) -> f32;
    saturatef(x: f32) -> f32;
}

// Functions with integer arguments or results.
declare! {
    ilogb(x: f64) -> i32;
    ilogbf(x: f32) -> i32;
    jn(n: i32, x: f64) -> f64;
    jnf(n: i32, x: f32) -> f32;
    yn(n: i32, x: f64) -> f64;
    ynf(n: i32, x: f32) -> f32;
    ldexp(x: f64, exponent: i32) -> f64;
    ldexpf(x: f32, exponent: i32) -> f32;
    scalbn(x: f64, exponent: i32) -> f64;
    scalbnf(x: f32, exponent: i32) -> f32;
    powi(x: f64, exponent: i32) -> f64;
    powif(x: f32, exponent: i32) -> f32;
    llrint(x: f64) -> i64;
    llrintf(x: f32) -> i64;
    llround(x: f64) -> i64;
    llroundf(x: f32) -> i64;
}

// Functions with a second result.
declare! {
    frexp(x: f64, exponent: *mut i32) -> f64;
    frexpf(x: f32, exponent: *mut i32) -> f32;
    modf(x: f64, whole: *mut f64) -> f64;
    modff(x: f32, whole: *mut f32) -> f32;
    remquo(x: f64, y: f64, quotient: *mut i32) -> f64;
    remquof(x: f32, y: f32, quotient: *mut i32) -> f32;
    sincos(x: f64, sin: *mut f64, cos: *mut f64);
    sincosf(x: f32, sin: *mut f32, cos: *mut f32);
    sincospi(x: f64, sin: *mut f64, cos: *mut f64);
    sincospif(x: f32, sin: *mut f32, cos: *mut f32);
}

// Approximate functions.
declare! {
    fast_cosf(x: f32) -> f32;
    fast_exp10f(x: f32) -> f32;
    fast_expf(x: f32) -> f32;
    fast_fdividef(x: f32, y: f32) -> f32;
    fast_log10f(x: f32) -> f32;
    fast_log2f(x: f32) -> f32;
    fast_logf(x: f32) -> f32;
    fast_powf(x: f32, y: f32) -> f32;
    fast_sinf(x: f32) -> f32;
    fast_tanf(x: f32) -> f32;
    fast_sincosf(x: f32, sin: *mut f32, cos: *mut f32);
}

// Functions of integers.
declare! {
    abs(x: i32) -> i32;
    llabs(x: i64) -> i64;
    brev(x: u32) -> u32;
    brevll(x: u64) -> u64;
    clz(x: i32) -> i32;
    clzll(x: i64) -> i32;
    ffs(x: i32) -> i32;
    ffsll(x: i64) -> i32;
    popc(x: i32) -> i32;
    popcll(x: i64) -> i32;
    min(x: i32, y: i32) -> i32;
    max(x: i32, y: i32) -> i32;
    umin(x: u32, y: u32) -> u32;
    umax(x: u32, y: u32) -> u32;
    llmin(x: i64, y: i64) -> i64;
    llmax(x: i64, y: i64) -> i64;
    ullmin(x: u64, y: u64) -> u64;
    ullmax(x: u64, y: u64) -> u64;
    mulhi(x: i32, y: i32) -> i32;
    umulhi(x: u32, y: u32) -> u32;
    mul64hi(x: i64, y: i64) -> i64;
    umul64hi(x: u64, y: u64) -> u64;
    mul24(x: i32, y: i32) -> i32;
    umul24(x: u32, y: u32) -> u32;
    hadd(x: i32, y: i32) -> i32;
    uhadd(x: u32, y: u32) -> u32;
    rhadd(x: i32, y: i32) -> i32;
    urhadd(x: u32, y: u32) -> u32;
    sad(x: i32, y: i32, z: u32) -> i32;
    usad(x: u32, y: u32, z: u32) -> u32;
    byte_perm(x: i32, y: i32, selector: i32) -> i32;
}

// Functions with a rounding mode: down, nearest, up, toward zero.
declare! {
    fadd_rd(x: f32, y: f32) -> f32;
    dadd_rd(x: f64, y: f64) -> f64;
    fsub_rd(x: f32, y: f32) -> f32;
    dsub_rd(x: f64, y: f64) -> f64;
    fmul_rd(x: f32, y: f32) -> f32;
    dmul_rd(x: f64, y: f64) -> f64;
    fdiv_rd(x: f32, y: f32) -> f32;
    ddiv_rd(x: f64, y: f64) -> f64;
    fma_rd(x: f64, y: f64, z: f64) -> f64;
    fmaf_rd(x: f32, y: f32, z: f32) -> f32;
    frcp_rd(x: f32) -> f32;
    drcp_rd(x: f64) -> f64;
    fsqrt_rd(x: f32) -> f32;
    dsqrt_rd(x: f64) -> f64;
    fadd_rn(x: f32, y: f32) -> f32;
    dadd_rn(x: f64, y: f64) -> f64;
    fsub_rn(x: f32, y: f32) -> f32;
    dsub_rn(x: f64, y: f64) -> f64;
    fmul_rn(x: f32, y: f32) -> f32;
    dmul_rn(x: f64, y: f64) -> f64;
    fdiv_rn(x: f32, y: f32) -> f32;
    ddiv_rn(x: f64, y: f64) -> f64;
    fma_rn(x: f64, y: f64, z: f64) -> f64;
    fmaf_rn(x: f32, y: f32, z: f32) -> f32;
    frcp_rn(x: f32) -> f32;
    drcp_rn(x: f64) -> f64;
    fsqrt_rn(x: f32) -> f32;
    dsqrt_rn(x: f64) -> f64;
    fadd_ru(x: f32, y: f32) -> f32;
    dadd_ru(x: f64, y: f64) -> f64;
    fsub_ru(x: f32, y: f32) -> f32;
    dsub_ru(x: f64, y: f64) -> f64;
    fmul_ru(x: f32, y: f32) -> f32;
    dmul_ru(x: f64, y: f64) -> f64;
    fdiv_ru(x: f32, y: f32) -> f32;
    ddiv_ru(x: f64, y: f64) -> f64;
    fma_ru(x: f64, y: f64, z: f64) -> f64;
    fmaf_ru(x: f32, y: f32, z: f32) -> f32;
    frcp_ru(x: f32) -> f32;
    drcp_ru(x: f64) -> f64;
    fsqrt_ru(x: f32) -> f32;
    dsqrt_ru(x: f64) -> f64;
    fadd_rz(x: f32, y: f32) -> f32;
    dadd_rz(x: f64, y: f64) -> f64;
    fsub_rz(x: f32, y: f32) -> f32;
    dsub_rz(x: f64, y: f64) -> f64;
    fmul_rz(x: f32, y: f32) -> f32;
    dmul_rz(x: f64, y: f64) -> f64;
    fdiv_rz(x: f32, y: f32) -> f32;
    ddiv_rz(x: f64, y: f64) -> f64;
    fma_rz(x: f64, y: f64, z: f64) -> f64;
    fmaf_rz(x: f32, y: f32, z: f32) -> f32;
    frcp_rz(x: f32) -> f32;
    drcp_rz(x: f64) -> f64;
    fsqrt_rz(x: f32) -> f32;
    dsqrt_rz(x: f64) -> f64;
}
