//! Creates a [`Case`] from the names of an operation and a type: the operation to call, its data, and the expected
//! result.

use gpu_std::random::Draw;
use gpu_std::scalar::{Float, Number, Scalar};
use half::{bf16, f16};
use rayon::prelude::*;
use warpsmith_runtime::{DeviceBuffer, DeviceSliceMut, Stream};
use warpsmith_tuner::benchmark::Setup;
use warpsmith_tuner::case::{Arrays, Case, Expected, Parts};
use warpsmith_tuner::data::{Values, generate, poison};
use warpsmith_tuner::error::Result;
use warpsmith_tuner::verify::Tolerance;

use super::operations::config;
#[cfg(any(feature = "histogram", feature = "scan"))]
use super::ordered;
use crate::ops::{self, with_config};
use crate::random::{Layout, fixed};

/// Tolerance that allows for one more rounding than the reference, because results are rounded first to f32 and then to
/// a half type.
const ROUNDED: Tolerance = Tolerance { relative: 1.0, absolute: 0.0 };
/// Tolerance for functions that are not correctly rounded, some of which suffer from cancellation in the argument.
const FUNCTION: Tolerance = Tolerance { relative: 4.0, absolute: 2.0 };
/// Maximum absolute error of normally distributed numbers, which are computed with approximate functions: 6·10⁻⁴,
/// reached near 0.
const NORMAL_ERROR: f64 = 6.1e-4;
/// Factor used by axpy, and value written by fill. Every float type represents it exactly.
const FACTOR: f64 = 1.5;
const FILLED: f64 = 3.0;

/// Allocates an operation's buffers on the stream's device. Returns `None` if the operation does not support the type.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors), including out-of-memory errors.
pub fn prepare(name: &str, setup: &Setup<'_>) -> Prepared {
    let setting = Setting(setup);
    #[cfg(feature = "histogram")]
    if name == "histogram_even" {
        return match setup.dtype {
            "f32" => ordered::histogram::<f32>(setup),
            "f64" => ordered::histogram::<f64>(setup),
            "f16" => ordered::histogram::<f16>(setup),
            "bf16" => ordered::histogram::<bf16>(setup),
            "i32" => ordered::histogram::<i32>(setup),
            "u32" => ordered::histogram::<u32>(setup),
            _ => Ok(None),
        };
    }
    match setup.dtype {
        "f32" => setting.real::<f32>(name),
        "f64" => setting.real::<f64>(name),
        "f16" => setting.real::<f16>(name),
        "bf16" => setting.real::<bf16>(name),
        "i32" => setting.number::<i32>(name),
        "u32" => setting.number::<u32>(name),
        "i64" => setting.number::<i64>(name),
        "u64" => setting.number::<u64>(name),
        _ => Ok(None),
    }
}

struct Setting<'a>(&'a Setup<'a>);

/// A prepared case, or `None` if the operation does not support the type.
pub type Prepared = Result<Option<Box<dyn Case>>>;

/// Enqueues one launch. The arguments are the stream, input arrays and output array.
type Launch<I, O> = fn(&Stream, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> warpsmith_runtime::Result<()>;

/// Enqueues one launch that generates random numbers. The arguments are the stream, seed and layout, and output array.
type DrawFn<T> = fn(&Stream, (u64, Layout), DeviceSliceMut<'_, T>) -> warpsmith_runtime::Result<()>;

/// Prepares an elementwise operation on one array.
macro_rules! unary {
    ($setting:ident<$t:ident>, $operation:ident, $reference:expr, $tolerance:expr) => {
        $setting.map::<$t>(1, |s, i, o| ops::$operation(s, &i[0], o), $reference, $tolerance)
    };
}

/// Prepares an elementwise operation on two arrays.
macro_rules! binary {
    ($setting:ident<$t:ident>, $operation:ident, $reference:expr, $tolerance:expr) => {
        $setting.map::<$t>(2, |s, i, o| ops::$operation(s, &i[0], &i[1], o), $reference, $tolerance)
    };
}

impl Setting<'_> {
    /// Prepares a kernel, which may exist only for float types.
    fn real<T: Float<Accumulator: Draw>>(&self, kernel: &str) -> Prepared {
        match kernel {
            "axpy" => self.axpy::<T>(),
            "fma" => self.map::<T>(
                3,
                |s, i, o| ops::fma(s, &i[0], &i[1], &i[2], o),
                |[x, y, z]| x.mul_add(y, z),
                ROUNDED,
            ),
            "relu" => unary!(self<T>, relu, |[x, ..]| x.max(0.0), ROUNDED),
            "gelu" => unary!(
                self<T>,
                gelu,
                |[x, ..]| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
                FUNCTION
            ),
            "sigmoid" => unary!(self<T>, sigmoid, |[x, ..]| 1.0 / (1.0 + (-x).exp()), FUNCTION),
            "exp" => unary!(self<T>, exp, |[x, ..]| x.exp(), FUNCTION),
            "sqrt" => unary!(self<T>, sqrt, |[x, ..]| x.sqrt(), FUNCTION),
            "log" => unary!(self<T>, log, |[x, ..]| x.ln(), FUNCTION),
            "sin" => unary!(self<T>, sin, |[x, ..]| x.sin(), FUNCTION),
            "tanh" => unary!(self<T>, tanh, |[x, ..]| x.tanh(), FUNCTION),
            "silu" => unary!(self<T>, silu, |[x, ..]| x / (1.0 + (-x).exp()), FUNCTION),
            "gelu_tanh" => unary!(
                self<T>,
                gelu_tanh,
                |[x, ..]| x / (1.0 + (-2.0 * 0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).exp()),
                Tolerance { relative: 64.0, absolute: 2.0 }
            ),
            "floor" => unary!(self<T>, floor, |[x, ..]| x.floor(), Tolerance::EXACT),
            "div" => binary!(self<T>, div, |[x, y, _]| x / y, ROUNDED),
            "pow" => {
                binary!(self<T>, pow, |[x, y, _]| x.powf(y), Tolerance { relative: 16.0, absolute: 2.0 })
            }
            "lerp" => self.map::<T>(
                2,
                |s, i, o| ops::lerp(s, &i[0], &i[1], T::from_f64(0.25), o),
                |[x, y, _]| 0.25f64.mul_add(y - x, x),
                FUNCTION,
            ),
            "uniform" => self.drawn::<T>(
                fixed::uniform,
                |words| {
                    <T::Accumulator as Draw>::uniform(words)
                        .map(T::from_acc)
                        .map(|x| if x == T::ONE { T::ZERO } else { x })
                },
                Tolerance::EXACT,
            ),
            "normal" => self.drawn::<T>(
                fixed::normal,
                |words| <T::Accumulator as Draw>::normal(words).map(T::from_acc),
                Tolerance { relative: 2.0, absolute: (NORMAL_ERROR / T::EPSILON).min(5200.0) },
            ),
            other => self.number::<T>(other),
        }
    }

    /// Prepares kernels that exist for all types.
    fn number<T: Number>(&self, kernel: &str) -> Prepared {
        match kernel {
            "copy" => unary!(self<T>, copy, |[x, ..]| x, Tolerance::EXACT),
            "fill" => {
                self.map::<T>(0, |s, _, o| ops::fill(s, T::from_f64(FILLED), o), |_| FILLED, Tolerance::EXACT)
            }
            "add" => binary!(self<T>, add, |[x, y, _]| x + y, ROUNDED),
            "mul" => binary!(self<T>, mul, |[x, y, _]| x * y, ROUNDED),
            "neg" => unary!(self<T>, neg, |[x, ..]| -x, Tolerance::EXACT),
            "sub" => binary!(self<T>, sub, |[x, y, _]| x - y, ROUNDED),
            "maximum" => binary!(self<T>, maximum, |[x, y, _]| x.max(y), Tolerance::EXACT),
            "clamp" => self.map::<T>(
                1,
                |s, i, o| ops::clamp(s, &i[0], T::from_f64(0.0), T::from_f64(1.0), o),
                |[x, ..]| x.clamp(0.0, 1.0),
                Tolerance::EXACT,
            ),
            "reduce_sum" => self.reduce::<T, T::SumAccumulator>(
                Values::Whole,
                |s, i, o| ops::sum_into(s, &i[0], o),
                |data| data.par_iter().map(|v| v.cast::<f64>()).sum(),
            ),
            "reduce_prod" => self.reduce::<T, T::SumAccumulator>(
                Values::Factors,
                |s, i, o| ops::prod_into(s, &i[0], o),
                |data| data.par_iter().map(|v| v.cast::<f64>()).product(),
            ),
            "reduce_min" => self.reduce::<T, T::Accumulator>(
                Values::Extremes,
                |s, i, o| ops::min_into(s, &i[0], o),
                |data| data.par_iter().map(|v| v.cast::<f64>()).reduce(|| f64::INFINITY, f64::min),
            ),
            "reduce_max" => self.reduce::<T, T::Accumulator>(
                Values::Extremes,
                |s, i, o| ops::max_into(s, &i[0], o),
                |data| data.par_iter().map(|v| v.cast::<f64>()).reduce(|| f64::NEG_INFINITY, f64::max),
            ),
            "reduce_argmin" => self.reduce::<T, u64>(
                Values::Extremes,
                |s, i, o| ops::argmin_into(s, &i[0], o),
                |data| first(data, |v| -v),
            ),
            "reduce_argmax" => self.reduce::<T, u64>(
                Values::Extremes,
                |s, i, o| ops::argmax_into(s, &i[0], o),
                |data| first(data, |v| v),
            ),
            #[cfg(feature = "scan")]
            "scan_sum" => ordered::scan::<T>(
                self.0,
                Values::Whole,
                |s, x, o| ops::inclusive_sum(s, x, o),
                |sum, x| sum + x,
            ),
            #[cfg(feature = "scan")]
            "scan_min" => {
                ordered::scan::<T>(self.0, Values::Extremes, |s, x, o| ops::inclusive_min(s, x, o), f64::min)
            }
            #[cfg(feature = "scan")]
            "scan_max" => {
                ordered::scan::<T>(self.0, Values::Extremes, |s, x, o| ops::inclusive_max(s, x, o), f64::max)
            }
            #[cfg(feature = "scan")]
            "compact_compared" => ordered::select::<T>(self.0),
            _ => Ok(None),
        }
    }

    /// Prepares an elementwise kernel with a separate output array.
    fn map<T: Scalar>(
        &self,
        inputs: u64,
        launch: Launch<T, T>,
        reference: fn([f64; 3]) -> f64,
        tolerance: Tolerance,
    ) -> Prepared {
        let inputs =
            (0..inputs).map(|i| generate(Values::Spread, self.0.seed.wrapping_add(i), self.0.n)).collect();
        let initial = vec![poison::<T>(); self.0.n];
        self.arrays(inputs, initial, launch, Expected::Each(reference, Vec::new()), tolerance)
    }

    /// Prepares random numbers with a fixed seed. The host generates the same numbers. `numbers` computes the numbers
    /// from a block of words.
    fn drawn<T: Float>(
        &self,
        launch: DrawFn<T>,
        numbers: fn([u32; 4]) -> [T; 4],
        tolerance: Tolerance,
    ) -> Prepared {
        let (seed, layout) = (self.0.seed, Layout::of(self.0.stream.device()));
        let parts = Parts {
            inputs: Vec::<Vec<T>>::new(),
            initial: vec![poison::<T>(); self.0.n],
            choose: Box::new(config),
            launch: Box::new(move |stream, config, _: &[DeviceBuffer<T>], output| {
                Ok(with_config(*config, || launch(stream, (seed, layout), output.as_mut_slice()))?)
            }),
            expected: Expected::Each(|[x, ..]| x, vec![fixed::expected((seed, layout), self.0.n, numbers)]),
            tolerance,
        };
        Ok(Some(Box::new(Arrays::new(self.0.stream, self.0.copies, parts)?)))
    }

    /// Prepares axpy, which updates its second array.
    fn axpy<T: Float>(&self) -> Prepared {
        let y: Vec<T> = generate(Values::Spread, self.0.seed.wrapping_add(1), self.0.n);
        let inputs = vec![generate(Values::Spread, self.0.seed, self.0.n)];
        let launch: Launch<T, T> = |s, i, o| ops::axpy(s, &i[0], T::from_f64(FACTOR), o);
        let expected = Expected::Each(|[x, y, _]| FACTOR.mul_add(x, y), vec![y.clone()]);
        self.arrays(inputs, y, launch, expected, ROUNDED)
    }

    /// Prepares a reduction to one value.
    fn reduce<T: Scalar, O: Scalar>(
        &self,
        values: Values,
        launch: Launch<T, O>,
        reference: fn(&[T]) -> f64,
    ) -> Prepared {
        let data = generate(values, self.0.seed, self.0.n);
        let expected = Expected::One(reference(&data));
        self.arrays(vec![data], vec![poison::<O>()], launch, expected, Tolerance::EXACT)
    }

    fn arrays<I: Scalar, O: Scalar>(
        &self,
        inputs: Vec<Vec<I>>,
        initial: Vec<O>,
        launch: Launch<I, O>,
        expected: Expected<I>,
        tolerance: Tolerance,
    ) -> Prepared {
        let parts = Parts {
            inputs,
            initial,
            choose: Box::new(config),
            launch: Box::new(move |stream, config, inputs, output| {
                Ok(with_config(*config, || launch(stream, inputs, output))?)
            }),
            expected,
            tolerance,
        };
        Ok(Some(Box::new(Arrays::new(self.0.stream, self.0.copies, parts)?)))
    }
}

/// Returns the index of the first element whose key is the largest.
fn first<T: Scalar>(data: &[T], key: fn(f64) -> f64) -> f64 {
    let better =
        |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) { b } else { a };
    let none = (usize::MAX, f64::NEG_INFINITY);
    data.par_iter().enumerate().map(|(i, v)| (i, key(v.cast::<f64>()))).reduce(|| none, better).0 as f64
}
