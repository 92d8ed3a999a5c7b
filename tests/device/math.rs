//! The functions of `gpu_std::math` on the device under test, within the error bounds that its documentation states.

use std::fmt::{Debug, Display};

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::functions::{FAST_FUNCTIONS, FUNCTIONS, evaluate, evaluate_fast};
use warpsmith::prelude::*;

/// Result in `f64`, from host functions with an error of at most two units in the last place (ULP).
fn exact(name: &str, x: f64, y: f64) -> f64 {
    match name {
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "exp10" => 10_f64.powf(x),
        "exp_m1" => x.exp_m1(),
        "ln" => x.ln(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "ln_1p" => x.ln_1p(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "atan2" => x.atan2(y),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        // The standard library's formula loses digits; libm's does not.
        "asinh" => libm::asinh(x),
        "acosh" => {
            if x < 1.0 {
                f64::NAN
            } else {
                libm::acosh(x)
            }
        }
        "atanh" => libm::atanh(x),
        "erf" => libm::erf(x),
        "erfc" => libm::erfc(x),
        "gamma" => libm::tgamma(x),
        "ln_gamma" => libm::lgamma(x),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "cbrt" => x.cbrt(),
        "hypot" => x.hypot(y),
        "pow" => x.powf(y),
        "fmod" => x % y,
        "abs" => x.abs(),
        "copysign" => x.copysign(y),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "trunc" => x.trunc(),
        "round" => x.round(),
        "round_ties_even" => x.round_ties_even(),
        "gelu" if x == f64::NEG_INFINITY => -0.0,
        "gelu" => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        "fract" => x.fract(),
        "divide" | "div" => x / y,
        "recip" => 1.0 / x,
        _ => panic!("no reference for {name}"),
    }
}

/// Documented error in ULP, for `f32` and for `f64`.
fn bound(name: &str) -> (f64, f64) {
    match name {
        "exp" | "exp2" | "exp10" => (2.0, 1.0),
        "exp_m1" => (2.0, 1.0),
        "ln" | "log2" | "ln_1p" | "cbrt" => (1.0, 1.0),
        "log10" => (2.0, 1.0),
        "sin" | "cos" | "asin" | "acos" | "atan" => (2.0, 2.0),
        "tan" => (4.0, 2.0),
        "atan2" => (3.0, 2.0),
        "sinh" => (3.0, 2.0),
        "cosh" => (3.0, 2.0),
        "tanh" => (2.0, 1.0),
        "asinh" => (3.0, 3.0),
        "acosh" => (4.0, 3.0),
        "atanh" => (3.0, 2.0),
        "erf" => (2.0, 2.0),
        "erfc" => (4.0, 5.0),
        "gamma" => (5.0, 10.0),
        "ln_gamma" => (6.0, 4.0),
        "rsqrt" => (2.0, 1.0),
        "hypot" => (3.0, 2.0),
        "pow" => (4.0, 2.0),
        _ => (0.0, 0.0),
    }
}

/// Error in ULP that the rounding of x / √2 adds to `erfc` in `gelu`.
fn rounding(name: &str, x: f64) -> f64 {
    if name == "gelu" && x.is_finite() { 8.0 + 4.0 * x * x } else { 0.0 }
}

/// Returns true if the bound is documented for these arguments.
fn is_bounded(name: &str, x: f64) -> bool {
    match name {
        // Excludes the zeros of ln_gamma.
        "ln_gamma" => !(-24.0..-2.0).contains(&x) && !(0.5..3.0).contains(&x),
        _ => true,
    }
}

trait Tested: Copy + PartialEq + Debug + Display {
    const DIGITS: i32;
    const MIN_EXPONENT: i32;
    fn wide(self) -> f64;
    fn narrow(x: f64) -> Self;
    fn any(random: &mut Random) -> Self;
    /// Result of functions whose intermediate results are rounded to this type.
    fn rounded(name: &str, x: Self, y: Self) -> Option<f64>;
}

impl Tested for f32 {
    const DIGITS: i32 = 23;
    const MIN_EXPONENT: i32 = -126;
    fn wide(self) -> f64 {
        self.into()
    }
    fn narrow(x: f64) -> Self {
        x as f32
    }
    fn any(random: &mut Random) -> Self {
        f32::from_bits(random.bits() as u32)
    }
    fn rounded(name: &str, x: Self, y: Self) -> Option<f64> {
        let value = match name {
            "mul_add" => x.mul_add(y, x),
            "div_euclid" => x.div_euclid(y),
            "rem_euclid" => x.rem_euclid(y),
            _ => return None,
        };
        Some(value.wide())
    }
}

impl Tested for f64 {
    const DIGITS: i32 = 52;
    const MIN_EXPONENT: i32 = -1022;
    fn wide(self) -> f64 {
        self
    }
    fn narrow(x: f64) -> Self {
        x
    }
    fn any(random: &mut Random) -> Self {
        f64::from_bits(random.bits())
    }
    fn rounded(name: &str, x: Self, y: Self) -> Option<f64> {
        let value = match name {
            "mul_add" => x.mul_add(y, x),
            "div_euclid" => x.div_euclid(y),
            "rem_euclid" => x.rem_euclid(y),
            _ => return None,
        };
        Some(value.wide())
    }
}

/// Distance of `found` from `expected` in ULP of `T`. Infinite for a different sign of zero, or if only one is NaN.
fn units<T: Tested>(found: T, expected: f64) -> f64 {
    let (found, rounded) = (found.wide(), T::narrow(expected).wide());
    if found.is_nan() || rounded.is_nan() {
        return if found.is_nan() && rounded.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if found == rounded {
        let other_zero = found == 0.0 && found.is_sign_negative() != expected.is_sign_negative();
        return if other_zero { f64::INFINITY } else { 0.0 };
    }
    // An infinity counts as the number after the largest one.
    let size =
        |x: f64| if x.is_infinite() { T::narrow(f64::MAX).wide().min(f64::MAX).copysign(x) } else { x };
    let exponent = (size(expected).abs().max(f64::MIN_POSITIVE).log2().floor() as i32).max(T::MIN_EXPONENT);
    let unit = f64::exp2(f64::from((exponent - T::DIGITS).max(-1074)));
    (found - expected).abs() / unit
}

/// Arguments of all magnitudes and special values, in two arrays.
fn arguments<T: Tested>(random: &mut Random) -> (Vec<T>, Vec<T>) {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        3.0,
        -3.0,
        10.0,
        1e-3,
        88.5,
        89.0,
        -104.0,
        127.9,
        128.0,
        700.0,
        -745.2,
        1e9,
        1e10,
        0.1,
        1e30,
        -1e30,
        1e-40,
        -1e-45,
        3.0e38,
        1e300,
        -1e-310,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut x = Vec::new();
    let mut y = Vec::new();
    for &a in &special {
        for &b in &special {
            x.push(T::narrow(a));
            y.push(T::narrow(b));
        }
    }
    for i in 0..60_000 {
        let moderate = |random: &mut Random| T::narrow(random.unit() * f64::exp2(random.unit() * 8.0));
        let (a, b) = match i % 3 {
            0 => (T::any(random), T::any(random)),
            1 => (T::any(random), moderate(random)),
            _ => (moderate(random), moderate(random)),
        };
        x.push(a);
        y.push(b);
    }
    (x, y)
}

/// Lists the results of a function that exceed the bound.
fn compare<T: Tested>(
    name: &str,
    x: &[T],
    y: &[T],
    found: &[T],
    error: impl Fn(usize) -> (f64, f64),
) -> Option<String> {
    let mut worst = (0.0, 0);
    let mut count = 0;
    for i in 0..x.len() {
        let (measured, allowed) = error(i);
        if measured > allowed {
            count += 1;
            if measured / allowed.max(1e-300) > worst.0 {
                worst = (measured / allowed.max(1e-300), i);
            }
        }
    }
    let i = worst.1;
    (count > 0).then(|| {
        let (measured, allowed) = error(i);
        format!(
            "{name}({:e}, {:e}) = {:e}: {measured} > {allowed}; {count} of {}",
            x[i].wide(),
            y[i].wide(),
            found[i].wide(),
            x.len()
        )
    })
}

macro_rules! within_bounds {
    ($test:ident, $t:ident, $bound:tt) => {
        #[test]
        fn $test() {
            let mut random = Random::new();
            let (x, y) = arguments::<$t>(&mut random);
            let kernel = device().load(&IMAGE).unwrap().kernel::<evaluate<$t>>().unwrap();
            let (a, b) = (
                DeviceBuffer::from_host(&stream(), &x).unwrap(),
                DeviceBuffer::from_host(&stream(), &y).unwrap(),
            );
            let mut out = DeviceBuffer::<$t>::zeros(&stream(), x.len()).unwrap();
            let mut wrong = Vec::new();
            for (number, name) in FUNCTIONS.iter().enumerate() {
                kernel
                    .launch(&stream(), Launch::linear(x.len(), 128), (number as u32, &a, &b, &mut out))
                    .unwrap();
                let found = out.to_host().unwrap();
                // The f64 reference itself has an error of up to two ULP.
                let own = if <$t as Tested>::DIGITS == 52 && bound(name).$bound > 0.0 { 2.0 } else { 0.0 };
                wrong.extend(compare(name, &x, &y, &found, |i| {
                    let (a, b) = (f64::from(x[i]), f64::from(y[i]));
                    if !is_bounded(name, a) {
                        return (0.0, 0.0);
                    }
                    // Half a unit, if the reference is rounded to this type.
                    let exact = $t::rounded(name, x[i], y[i]).unwrap_or_else(|| exact(name, a, b));
                    let rounded = if bound(name).$bound == 0.0 { f64::from(exact as $t) } else { exact };
                    (units::<$t>(found[i], rounded), bound(name).$bound + own + rounding(name, a))
                }));
            }
            assert!(wrong.is_empty(), "seed {}:\n{}", random.seed, wrong.join("\n"));
        }
    };
}

within_bounds!(functions_of_f32_are_within_their_bounds, f32, 0);
within_bounds!(functions_of_f64_are_within_their_bounds, f64, 1);

/// Documented absolute error of a fast function.
fn fast_bound(name: &str, x: f64, y: f64, exact: f64) -> f64 {
    let relative = |bits: f64| exact.abs() * f64::exp2(-bits);
    let ulp = |x: f64| f64::exp2(x.abs().log2().floor() - 23.0);
    match name {
        // Error of the instruction, plus error of the rounded product x · log2 e.
        "exp" => relative(22.0) + exact.abs() * x.abs() * f64::exp2(-23.0),
        "exp2" => relative(22.0),
        "ln" | "log2" => match (0.5..2.0).contains(&x) {
            true => f64::exp2(-22.0),
            false => relative(21.0),
        },
        "sin" | "cos" => f64::exp2(-20.0),
        "rsqrt" | "sqrt" => relative(22.0),
        "recip" => ulp(exact),
        "tanh" => relative(11.0),
        "div" => 2.0 * ulp(exact),
        "pow" => relative(22.0) + exact.abs() * (y * f64::exp2(-21.0)).abs() * x.log2().abs().max(1.0),
        "gelu" => relative(16.0),
        _ => panic!("no bound for {name}"),
    }
}

/// Returns true if the bound is documented for these arguments: subnormal numbers count as 0.
fn is_fast_bounded(name: &str, x: f32, y: f32, exact: f64) -> bool {
    let is_normal = |x: f32| x.is_normal();
    let fits = exact == 0.0 || (exact as f32).is_normal();
    let arguments = match name {
        "div" => is_normal(x) && (f32::exp2(-126.0)..f32::exp2(126.0)).contains(&y.abs()),
        "pow" => is_normal(x) && x > 0.0 && is_normal(y),
        "sin" | "cos" => is_normal(x) && x.abs() <= std::f32::consts::PI,
        "ln" | "log2" | "rsqrt" | "sqrt" => is_normal(x) && x > 0.0,
        // Only documented for 16-bit arguments.
        "gelu" => is_normal(x) && x.abs() < 14.0,
        _ => is_normal(x),
    };
    arguments && fits
}

#[test]
fn fast_functions_are_within_their_bounds() {
    let mut random = Random::new();
    let (mut x, y) = arguments::<f32>(&mut random);
    // `gelu` is documented for 16-bit floats.
    let sixteen: Vec<f32> = x.iter().map(|x| half::f16::from_f32(*x).to_f32()).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<evaluate_fast>().unwrap();
    let mut wrong = Vec::new();
    for (number, name) in FAST_FUNCTIONS.iter().enumerate() {
        if *name == "gelu" {
            x.clone_from(&sixteen);
        }
        let (a, b) = (
            DeviceBuffer::from_host(&stream(), &x).unwrap(),
            DeviceBuffer::from_host(&stream(), &y).unwrap(),
        );
        let mut out = DeviceBuffer::<f32>::zeros(&stream(), x.len()).unwrap();
        kernel.launch(&stream(), Launch::linear(x.len(), 128), (number as u32, &a, &b, &mut out)).unwrap();
        let found = out.to_host().unwrap();
        wrong.extend(compare(name, &x, &y, &found, |i| {
            let (a, b) = (f64::from(x[i]), f64::from(y[i]));
            let exact = exact(name, a, b);
            if !is_fast_bounded(name, x[i], y[i], exact) {
                return (0.0, 0.0);
            }
            ((f64::from(found[i]) - exact).abs(), fast_bound(name, a, b, exact))
        }));
    }
    assert!(wrong.is_empty(), "seed {}:\n{}", random.seed, wrong.join("\n"));
}
