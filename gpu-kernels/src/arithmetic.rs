//! Elementwise unary and binary operations, comparisons and selection. One kernel implements many operations, and an
//! operation code selects one of them.
//!
//! The operation code is the same for all threads, so the branch costs almost nothing in a memory-bound kernel.
//! Therefore, each type needs only one kernel instance, rather than one per operation. To keep an instance small, the
//! operation is expanded only once per vector lane. Edges and unaligned arrays use the same code with single-element
//! loads and stores. For `f16` and `bf16`, the function is computed in `f32` and the result is rounded once.
//!
//! Each input of a binary kernel is either an array of the output's length or a broadcast input ([`Form`]).

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::scalar::From64;

use crate::operand::{Form, Operand, Place};
use crate::tile::{for_each_run, in_first_row, lanes, lanewise, store_run, with_lanes};

/// Unary operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(u32)]
pub enum Unary {
    /// `-x`; integers wrap.
    Neg,
    /// `|x|`, except that the smallest signed integer stays unchanged.
    Abs,
    /// Bitwise NOT of integers.
    Not,
    /// -1, 0 or 1. Zeros and NaN stay unchanged.
    Sign,
    /// √x.
    Sqrt,
    /// 1 / √x.
    Rsqrt,
    /// 1 / x.
    Reciprocal,
    /// Natural logarithm.
    Log,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// `x / (1 + exp(-x))`.
    Silu,
    /// GELU, tanh approximation.
    GeluTanh,
    /// Floor.
    Floor,
    /// Ceiling.
    Ceil,
    /// The nearest integer, with ties to even.
    Round,
    /// Rounds toward zero.
    Trunc,
}

/// Binary operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(u32)]
pub enum Binary {
    /// `x + y`, where integers wrap around on overflow.
    Add,
    /// `x - y`, where integers wrap around on overflow.
    Sub,
    /// `x * y`, where integers wrap around on overflow.
    Mul,
    /// `x / y`. Integer division truncates, returns 0 if y is 0, and wraps around to the smallest integer on overflow.
    Div,
    /// Minimum, or NaN if either input is NaN.
    Minimum,
    /// Maximum, or NaN if either input is NaN.
    Maximum,
    /// `x` to the power `y`, for floats.
    Pow,
    /// Bitwise AND of integers.
    BitAnd,
    /// Bitwise OR of integers.
    BitOr,
    /// Bitwise XOR of integers.
    BitXor,
    /// `x << y` for integers, with y modulo the bit width.
    Shl,
    /// `x >> y` for integers, with y modulo the bit width. The shift is arithmetic for signed integers.
    Shr,
}

/// Comparisons of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(u32)]
pub enum Compare {
    /// `x == y`.
    Eq,
    /// `x != y`.
    Ne,
    /// `x < y`.
    Lt,
    /// `x <= y`.
    Le,
    /// `x > y`.
    Gt,
    /// `x >= y`.
    Ge,
}

/// A number type that supports the operations of this module.
pub trait Arithmetic: Scalar {
    /// Applies the operation if the type supports it. Otherwise, returns `x`.
    fn unary(operation: Unary, x: Self) -> Self;
    /// Applies the operation if the type supports it. Otherwise, returns `x`.
    fn binary(operation: Binary, x: Self, y: Self) -> Self;
}

/// Returns the number of elements per access: at most eight, because the code for all operations and input forms is
/// repeated for each lane.
const fn few_lanes<T>(vector: usize) -> usize {
    if lanes::<T>(vector) > 8 { 8 } else { lanes::<T>(vector) }
}

/// `√(2 / π)`, and the coefficient of the cubic term in GELU's tanh approximation.
const GELU: [f64; 2] = [0.797_884_560_802_865_4, 0.044_715];

/// Returns two factors whose product is `x / (1 + exp(-z))`, for z with the same sign as x. `exp` is the exponential
/// function. Neither factor overflows if the product does not. The result for -∞ is 0.
#[inline(always)]
pub(crate) fn gate<A: Math + From64>(x: A, z: A, exp: impl Fn(A) -> A) -> [A; 2] {
    // exp(-|z|) can underflow even if the product does not, so its square root is computed.
    let root = exp(z.abs() * A::from_f64(-0.5));
    let quotient = x / (A::ONE + root * root);
    if z < A::ZERO {
        if root == A::ZERO { [-A::ZERO, root] } else { [quotient * root, root] }
    } else {
        [quotient, A::ONE]
    }
}

/// Computes a unary operation on a float in the accumulator type.
#[inline(always)]
fn of_float<A: Math + From64>(operation: Unary, x: A) -> A {
    match operation {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Not => x,
        Unary::Sign => {
            if x > A::ZERO {
                A::ONE
            } else if x < A::ZERO {
                -A::ONE
            } else {
                x
            }
        }
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => A::ONE / x.sqrt(),
        Unary::Reciprocal => A::ONE / x,
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tanh => x.tanh(),
        Unary::Silu => {
            let [a, b] = gate(x, x, A::exp);
            a * b
        }
        // (1 + tanh(z)) / 2 equals 1 / (1 + exp(-2z)), which is also accurate where tanh is close to -1.
        Unary::GeluTanh => {
            let z = x * A::from_f64(2.0 * GELU[0]) * (A::ONE + A::from_f64(GELU[1]) * x * x);
            let [a, b] = gate(x, z, A::exp);
            a * b
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
    }
}

macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Arithmetic for $t {
            #[inline(always)]
            fn unary(operation: Unary, x: Self) -> Self {
                Self::from_acc(of_float(operation, x.to_acc()))
            }
            #[inline(always)]
            fn binary(operation: Binary, x: Self, y: Self) -> Self {
                let (a, b) = (x.to_acc(), y.to_acc());
                match operation {
                    Binary::Add => Self::from_acc(a + b),
                    Binary::Sub => Self::from_acc(a - b),
                    Binary::Mul => Self::from_acc(a * b),
                    Binary::Div => Self::from_acc(a / b),
                    Binary::Minimum => x.min_propagate(y),
                    Binary::Maximum => x.max_propagate(y),
                    Binary::Pow => Self::from_acc(a.pow(b)),
                    _ => x,
                }
            }
        }
    )* };
}
floats! { f32 f64 f16 bf16 }

macro_rules! integers {
    ($($t:ident, $neg:expr, $abs:expr, $sign:expr;)*) => { $(
        impl Arithmetic for $t {
            #[inline(always)]
            fn unary(operation: Unary, x: Self) -> Self {
                match operation {
                    Unary::Neg => x.wrapping_neg(),
                    Unary::Abs => $abs(x),
                    Unary::Not => !x,
                    Unary::Sign => $sign(x),
                    _ => x,
                }
            }
            #[inline(always)]
            fn binary(operation: Binary, x: Self, y: Self) -> Self {
                match operation {
                    Binary::Add => x.wrapping_add(y),
                    Binary::Sub => x.wrapping_sub(y),
                    Binary::Mul => x.wrapping_mul(y),
                    Binary::Div => if y == 0 { 0 } else { x.wrapping_div(y) },
                    Binary::Minimum => if y < x { y } else { x },
                    Binary::Maximum => if y > x { y } else { x },
                    Binary::Pow => x,
                    Binary::BitAnd => x & y,
                    Binary::BitOr => x | y,
                    Binary::BitXor => x ^ y,
                    Binary::Shl => x.wrapping_shl(y as u32),
                    Binary::Shr => x.wrapping_shr(y as u32),
                }
            }
        }
    )* };
}
macro_rules! signed {
    ($($t:ident)*) => { integers! { $($t, $t::wrapping_neg, $t::wrapping_abs, $t::signum;)* } };
}
macro_rules! unsigned {
    ($($t:ident)*) => { integers! { $($t, $t::wrapping_neg, |x: $t| x, |x: $t| (x != 0) as $t;)* } };
}
signed! { i8 i16 i32 i64 }
unsigned! { u8 u16 u32 u64 }

/// `out[i] = operation(x[i])`.
#[kernel(
    types(T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + out.bytes()
)]
pub fn unary<T: Arithmetic, const ITEMS: usize, const VECTOR: usize>(
    operation: Unary,
    x: &[T],
    mut out: DisjointMut<T>,
) {
    let x = Operand::new(Form::EACH, T::ZERO, Some(x));
    let len = out.len();
    if !in_first_row() || !x.covers(len, 1) {
        return;
    }
    let out = out.as_mut_ptr();
    with_lanes!(lanes::<T>(VECTOR), N => for_each_run::<T, N>(out, len, |first, count| {
        let place = Place::new(first, 1);
        // SAFETY: the run lies within the operand, which has `len` elements.
        let x: [T; N] = unsafe { x.load(place, first, count) };
        let values = match operation {
            Unary::Neg => lanewise(|i| T::unary(Unary::Neg, x[i])),
            Unary::Abs => lanewise(|i| T::unary(Unary::Abs, x[i])),
            Unary::Not => lanewise(|i| T::unary(Unary::Not, x[i])),
            Unary::Sign => lanewise(|i| T::unary(Unary::Sign, x[i])),
            Unary::Sqrt => lanewise(|i| T::unary(Unary::Sqrt, x[i])),
            Unary::Rsqrt => lanewise(|i| T::unary(Unary::Rsqrt, x[i])),
            Unary::Reciprocal => lanewise(|i| T::unary(Unary::Reciprocal, x[i])),
            Unary::Log => lanewise(|i| T::unary(Unary::Log, x[i])),
            Unary::Sin => lanewise(|i| T::unary(Unary::Sin, x[i])),
            Unary::Cos => lanewise(|i| T::unary(Unary::Cos, x[i])),
            Unary::Tanh => lanewise(|i| T::unary(Unary::Tanh, x[i])),
            Unary::Silu => lanewise(|i| T::unary(Unary::Silu, x[i])),
            Unary::GeluTanh => lanewise(|i| T::unary(Unary::GeluTanh, x[i])),
            Unary::Floor => lanewise(|i| T::unary(Unary::Floor, x[i])),
            Unary::Ceil => lanewise(|i| T::unary(Unary::Ceil, x[i])),
            Unary::Round => lanewise(|i| T::unary(Unary::Round, x[i])),
            Unary::Trunc => lanewise(|i| T::unary(Unary::Trunc, x[i])),
        };
        // SAFETY: the run lies within the output and belongs to this thread.
        unsafe { store_run::<T, N>(out, first, count, values) };
    }))
}

/// `out[i] = operation(x[i], y[i])`. An input can be broadcast over rows of `width` elements.
#[kernel(
    types(T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512),
    bytes = x.map_or(0, |x| x.bytes()) + y.map_or(0, |y| y.bytes()) + out.bytes()
)]
#[allow(clippy::too_many_arguments)]
pub fn binary<T: Arithmetic, const ITEMS: usize, const VECTOR: usize>(
    operation: Binary,
    width: usize,
    x_form: Form,
    x_value: T,
    x: Option<&[T]>,
    y_form: Form,
    y_value: T,
    y: Option<&[T]>,
    mut out: DisjointMut<T>,
) {
    let (x, y) = (Operand::new(x_form, x_value, x), Operand::new(y_form, y_value, y));
    let len = out.len();
    if !in_first_row() || !x.covers(len, width) || !y.covers(len, width) {
        return;
    }
    let out = out.as_mut_ptr();
    with_lanes!(few_lanes::<T>(VECTOR), N => for_each_run::<T, N>(out, len, |first, count| {
        let place = Place::of_forms(first, width, &[x.form(), y.form()]);
        // SAFETY: the run lies within the operands, which have `len` elements.
        let (x, y): ([T; N], [T; N]) = unsafe { (x.load(place, first, count), y.load(place, first, count)) };
        let values = match operation {
            Binary::Add => lanewise(|i| T::binary(Binary::Add, x[i], y[i])),
            Binary::Sub => lanewise(|i| T::binary(Binary::Sub, x[i], y[i])),
            Binary::Mul => lanewise(|i| T::binary(Binary::Mul, x[i], y[i])),
            Binary::Div => lanewise(|i| T::binary(Binary::Div, x[i], y[i])),
            Binary::Minimum => lanewise(|i| T::binary(Binary::Minimum, x[i], y[i])),
            Binary::Maximum => lanewise(|i| T::binary(Binary::Maximum, x[i], y[i])),
            Binary::Pow => lanewise(|i| T::binary(Binary::Pow, x[i], y[i])),
            Binary::BitAnd => lanewise(|i| T::binary(Binary::BitAnd, x[i], y[i])),
            Binary::BitOr => lanewise(|i| T::binary(Binary::BitOr, x[i], y[i])),
            Binary::BitXor => lanewise(|i| T::binary(Binary::BitXor, x[i], y[i])),
            Binary::Shl => lanewise(|i| T::binary(Binary::Shl, x[i], y[i])),
            Binary::Shr => lanewise(|i| T::binary(Binary::Shr, x[i], y[i])),
        };
        // SAFETY: the run lies within the output and belongs to this thread.
        unsafe { store_run::<T, N>(out, first, count, values) };
    }))
}

/// `out[i] = operation(x[i], y[i])`. Each result is a `bool` stored as a byte (0 or 1). Inputs can be broadcast as in
/// [`binary()`].
#[kernel(
    types(T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512),
    bytes = x.map_or(0, |x| x.bytes()) + y.map_or(0, |y| y.bytes()) + out.bytes()
)]
#[allow(clippy::too_many_arguments)]
pub fn compare<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    operation: Compare,
    width: usize,
    x_form: Form,
    x_value: T,
    x: Option<&[T]>,
    y_form: Form,
    y_value: T,
    y: Option<&[T]>,
    mut out: DisjointMut<u8>,
) {
    let (x, y) = (Operand::new(x_form, x_value, x), Operand::new(y_form, y_value, y));
    let len = out.len();
    if !in_first_row() || !x.covers(len, width) || !y.covers(len, width) {
        return;
    }
    let out = out.as_mut_ptr();
    with_lanes!(few_lanes::<T>(VECTOR), N => for_each_run::<u8, N>(out, len, |first, count| {
        let place = Place::of_forms(first, width, &[x.form(), y.form()]);
        // SAFETY: the run lies within the operands, which have `len` elements.
        let (x, y): ([T; N], [T; N]) = unsafe { (x.load(place, first, count), y.load(place, first, count)) };
        let values = match operation {
            Compare::Eq => lanewise(|i| (x[i].to_acc() == y[i].to_acc()) as u8),
            Compare::Ne => lanewise(|i| (x[i].to_acc() != y[i].to_acc()) as u8),
            Compare::Lt => lanewise(|i| (x[i].to_acc() < y[i].to_acc()) as u8),
            Compare::Le => lanewise(|i| (x[i].to_acc() <= y[i].to_acc()) as u8),
            Compare::Gt => lanewise(|i| (x[i].to_acc() > y[i].to_acc()) as u8),
            Compare::Ge => lanewise(|i| (x[i].to_acc() >= y[i].to_acc()) as u8),
        };
        // SAFETY: the run lies within the output and belongs to this thread.
        unsafe { store_run::<u8, N>(out, first, count, values) };
    }))
}

/// `out[i] = if condition[i] != 0 { x[i] } else { y[i] }`, with one instance per element size. Inputs can be broadcast
/// as in [`binary()`].
#[kernel(
    types(T = u8, u16, u32, u64),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = condition.map_or(0, |c| c.bytes()) + x.map_or(0, |x| x.bytes()) + y.map_or(0, |y| y.bytes()) + out.bytes()
)]
#[allow(clippy::too_many_arguments)]
pub fn select<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    width: usize,
    condition_form: Form,
    condition: Option<&[u8]>,
    x_form: Form,
    x_value: T,
    x: Option<&[T]>,
    y_form: Form,
    y_value: T,
    y: Option<&[T]>,
    mut out: DisjointMut<T>,
) {
    let condition = Operand::new(condition_form, 0, condition);
    let (x, y) = (Operand::new(x_form, x_value, x), Operand::new(y_form, y_value, y));
    let len = out.len();
    if !in_first_row() || !condition.covers(len, width) || !x.covers(len, width) || !y.covers(len, width) {
        return;
    }
    let out = out.as_mut_ptr();
    with_lanes!(few_lanes::<T>(VECTOR), N => for_each_run::<T, N>(out, len, |first, count| {
        let place = Place::of_forms(first, width, &[condition.form(), x.form(), y.form()]);
        // SAFETY: the run lies within the operands, which have `len` elements.
        let (c, x, y): ([u8; N], [T; N], [T; N]) = unsafe {
            (condition.load(place, first, count), x.load(place, first, count), y.load(place, first, count))
        };
        let values = lanewise(|i| if c[i] != 0 { x[i] } else { y[i] });
        // SAFETY: the run lies within the output and belongs to this thread.
        unsafe { store_run::<T, N>(out, first, count, values) };
    }))
}

/// `min(max(x, low), high)`. NaN elements stay NaN, and NaN bounds are ignored.
#[elementwise(
    types(T = f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64),
    consts(ITEMS = 1; VECTOR = 16),
    launch_bounds(512, 1),
    scalars(low, high)
)]
pub fn clamp<T: Scalar>(low: T, high: T, x: T) -> T {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `x + weight * (y - x)`, computed in the accumulator type. The result is exactly x for a weight of 0 and exactly y
/// for a weight of 1. The result is correct whenever it is in range.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16), scalars(weight))]
pub fn lerp<T: Float>(weight: T, x: T, y: T) -> T {
    let one = T::Accumulator::ONE;
    let (weight, x, y) = (weight.to_acc(), x.to_acc(), y.to_acc());
    let (difference, left) = (y - x, one - weight);
    T::from_acc(if weight == one {
        y
    } else if (weight == T::Accumulator::ZERO) | (x == y) {
        x
    } else if difference.abs() < T::Accumulator::MIN_IDENTITY {
        if weight + weight < one { weight.mul_add(difference, x) } else { (-left).mul_add(difference, y) }
    } else {
        // The difference overflows, or an input is infinite.
        weight.mul_add(y, left * x)
    })
}
