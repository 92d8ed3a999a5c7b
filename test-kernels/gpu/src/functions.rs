//! Every function of `gpu_std::math`, selected by number: for tests of the documented error bounds.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;

macro_rules! numbered {
    ($names:ident, $call:ident<$t:ident $(: $bound:path)?>($x:ident, $y:ident): $($name:ident = $value:expr;)*) => {
        /// Names of the functions, in the order of their numbers.
        pub const $names: &[&str] = &[$(stringify!($name)),*];

        fn $call<$t $(: $bound)?>(function: u32, $x: $t, $y: $t) -> $t {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Number { $($name),* }
            match function {
                $(number if number == Number::$name as u32 => $value,)*
                _ => $x,
            }
        }
    };
}

numbered! { FUNCTIONS, call<T: Math>(x, y):
    exp = Math::exp(x);
    exp2 = Math::exp2(x);
    exp10 = Math::exp10(x);
    exp_m1 = Math::exp_m1(x);
    ln = Math::ln(x);
    log2 = Math::log2(x);
    log10 = Math::log10(x);
    ln_1p = Math::ln_1p(x);
    sin = Math::sin(x);
    cos = Math::cos(x);
    tan = Math::tan(x);
    asin = Math::asin(x);
    acos = Math::acos(x);
    atan = Math::atan(x);
    atan2 = Math::atan2(x, y);
    sinh = Math::sinh(x);
    cosh = Math::cosh(x);
    tanh = Math::tanh(x);
    asinh = Math::asinh(x);
    acosh = Math::acosh(x);
    atanh = Math::atanh(x);
    erf = Math::erf(x);
    erfc = Math::erfc(x);
    gamma = Math::gamma(x);
    ln_gamma = Math::ln_gamma(x);
    sqrt = Math::sqrt(x);
    rsqrt = Math::rsqrt(x);
    cbrt = Math::cbrt(x);
    hypot = Math::hypot(x, y);
    pow = Math::pow(x, y);
    fmod = Math::fmod(x, y);
    abs = Math::abs(x);
    copysign = Math::copysign(x, y);
    floor = Math::floor(x);
    ceil = Math::ceil(x);
    trunc = Math::trunc(x);
    round = Math::round(x);
    round_ties_even = Math::round_ties_even(x);
    mul_add = Math::mul_add(x, y, x);
    gelu = Math::gelu(x);
    fract = Math::fract(x);
    div_euclid = Math::div_euclid(x, y);
    rem_euclid = Math::rem_euclid(x, y);
    divide = x / y;
}

numbered! { FAST_FUNCTIONS, call_fast<F: Fast>(x, y):
    exp = F::from(fast::exp(x.into()));
    exp2 = F::from(fast::exp2(x.into()));
    ln = F::from(fast::ln(x.into()));
    log2 = F::from(fast::log2(x.into()));
    sin = F::from(fast::sin(x.into()));
    cos = F::from(fast::cos(x.into()));
    rsqrt = F::from(fast::rsqrt(x.into()));
    sqrt = F::from(fast::sqrt(x.into()));
    recip = F::from(fast::recip(x.into()));
    tanh = F::from(fast::tanh(x.into()));
    div = F::from(fast::div(x.into(), y.into()));
    pow = F::from(fast::pow(x.into(), y.into()));
    gelu = F::from(fast::gelu(x.into()));
}

/// Implemented by `f32` only: [`fast`] has no other type.
trait Fast: From<f32> + Into<f32> {}
impl Fast for f32 {}

/// Evaluates the function of [`FUNCTIONS`] with this number at `x[i]`, or at `x[i]` and `y[i]`, into `out[i]`.
#[kernel(types(T = f32, f64), stack = 4096)]
pub fn evaluate<T: Math>(function: u32, x: &[T], y: &[T], mut out: DisjointMut<T>) {
    let i = thread::unique_index();
    if let Some(out) = out.get_mut(i) {
        *out = call(function, x[i.get()], y[i.get()]);
    }
}

/// Evaluates a function of [`FAST_FUNCTIONS`] in the same way.
#[kernel]
pub fn evaluate_fast(function: u32, x: &[f32], y: &[f32], mut out: DisjointMut<f32>) {
    let i = thread::unique_index();
    if let Some(out) = out.get_mut(i) {
        *out = call_fast(function, x[i.get()], y[i.get()]);
    }
}
