//! Warpsmith operations, by name.

use half::bf16;
use test_kernels::IMAGE;
use test_kernels::own::{own_relu, own_sum};
use warpsmith::Result;
use warpsmith::ops::{self, Comparison, Config, Float, Order};
use warpsmith::prelude::*;

use crate::cases::Case;
use crate::data::{Data, Value};

/// Implementation of Warpsmith's side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ours {
    /// Operation of `ops`, in the specified or the default configuration.
    Operation(Option<Config>),
    /// Equivalent function or operator of a user.
    Own,
}

/// Element type of the operations.
pub trait Operand: Value {
    /// Enqueues the operation on a set. Returns `None` if the operation does not exist for the type.
    fn launch(
        stream: &Stream,
        ours: Ours,
        case: &Case,
        data: &mut Data<Self>,
        set: usize,
    ) -> Option<Result<()>>;
}

impl Operand for f32 {
    fn launch(
        stream: &Stream,
        ours: Ours,
        case: &Case,
        data: &mut Data<Self>,
        set: usize,
    ) -> Option<Result<()>> {
        let range = set * data.n..(set + 1) * data.n;
        let x = data.x.slice(range.clone());
        match (ours, case.operation) {
            (Ours::Own, "relu") => Some(ops::map::<own_relu>(stream, &IMAGE, (x, data.out.slice_mut(range)))),
            (Ours::Own, "sum") => Some(ops::reduce_into::<own_sum>(stream, &IMAGE, x, &mut data.sums)),
            (Ours::Own, _) => None,
            (Ours::Operation(config), "histogram") => {
                let counts = data.words.slice_mut(..256);
                Some(ops::with_config(config, || ops::histogram_even(stream, x, -1.0..1.0, counts)))
            }
            (Ours::Operation(config), _) => ops::with_config(config, || of_floats(stream, case, data, set)),
        }
    }
}

impl Operand for bf16 {
    fn launch(
        stream: &Stream,
        ours: Ours,
        case: &Case,
        data: &mut Data<Self>,
        set: usize,
    ) -> Option<Result<()>> {
        match ours {
            Ours::Operation(config) => ops::with_config(config, || of_floats(stream, case, data, set)),
            Ours::Own => None,
        }
    }
}

impl Operand for u32 {
    fn launch(
        stream: &Stream,
        ours: Ours,
        case: &Case,
        data: &mut Data<Self>,
        set: usize,
    ) -> Option<Result<()>> {
        let range = set * data.n..(set + 1) * data.n;
        let (x, out) = (data.x.slice(range.clone()), data.out.slice_mut(range));
        match (ours, case.operation) {
            (Ours::Operation(None), "sort") => Some(ops::sort(stream, Order::Ascending, x, out)),
            _ => None,
        }
    }
}

fn of_floats<T: Value + Float<SumAccumulator = f32, Accumulator = f32>>(
    stream: &Stream,
    case: &Case,
    data: &mut Data<T>,
    set: usize,
) -> Option<Result<()>> {
    let n = data.n;
    let range = set * n..(set + 1) * n;
    let x = data.x.slice(range.clone());
    let (sums, words) = (&mut data.sums, &mut data.words);
    let rows = || x.as_2d(case.rows, case.columns);
    Some(match case.operation {
        "sum" => ops::sum_into(stream, x, sums),
        "max" => ops::max_into(stream, x, &mut data.extreme),
        "argmax" => ops::argmax_into(stream, x, words.slice_mut(..1)),
        "row_sum" => rows().and_then(|rows| ops::sum_rows(stream, rows, sums)),
        "column_sum" => rows().and_then(|rows| ops::sum_columns(stream, rows, sums)),
        _ => {
            let mut out = data.out.slice_mut(range.clone());
            let [weight, bias] = data.parameters.each_ref().map(|parameter| Some(parameter.as_slice()));
            match case.operation {
                "softmax" | "layer_norm" | "rms_norm" | "transpose" => {
                    let sides = match case.operation {
                        "transpose" => (case.rows, case.columns),
                        _ => (case.columns, case.rows),
                    };
                    rows().and_then(|x| {
                        let out = out.as_2d_mut(sides.1, sides.0)?;
                        match case.operation {
                            "softmax" => ops::softmax(stream, x, out),
                            "layer_norm" => ops::layer_norm(stream, x, weight, bias, 1e-5, out),
                            "rms_norm" => ops::rms_norm(stream, x, weight, 1e-5, out),
                            _ => ops::transpose(stream, x, out),
                        }
                    })
                }
                "copy" => ops::copy(stream, x, out),
                "copy_unaligned" => ops::copy(stream, x.slice(1..), out.slice_mut(..n - 1)),
                "fill" => ops::fill(stream, T::FILL, out),
                "relu" => ops::relu(stream, x, out),
                "gelu" => ops::gelu(stream, x, out),
                "exp" => ops::exp(stream, x, out),
                "add" => ops::add(stream, x, data.y.slice(range), out),
                "axpy" => ops::axpy(stream, x, T::from_f64(1.5), out),
                "scan" => ops::inclusive_sum(stream, x, out),
                "select_if" => {
                    let count = words.slice_mut(..1);
                    ops::select_if(stream, Comparison::Greater, T::from_f64(0.0), x, out, count)
                }
                _ => return None,
            }
        }
    })
}

/// Returns the name of the kernel of an operation that supports several configurations.
pub fn kernel(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "copy" | "copy_unaligned" => "copy",
        "fill" => "fill",
        "relu" => "relu",
        "gelu" => "gelu",
        "exp" => "exp",
        "add" => "add",
        "axpy" => "axpy",
        "sum" => "reduce_sum",
        "max" => "reduce_max",
        "argmax" => "reduce_argmax",
        "scan" => "scan_sum",
        "select_if" => "compact_compared",
        "histogram" => "histogram_even",
        _ => return None,
    })
}
