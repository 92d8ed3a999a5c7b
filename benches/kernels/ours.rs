//! Warpsmith operations, by name.

use half::bf16;
use warpsmith::Result;
use warpsmith::ops::{self, Comparison, Float, Order};
use warpsmith::prelude::*;

use crate::cases::Case;
use crate::data::{Data, Value};

/// Element type of the operations.
pub trait Operand: Value {
    /// Enqueues the operation on a set. Returns `None` if the operation does not exist for the type.
    fn launch(stream: &Stream, case: &Case, data: &mut Data<Self>, set: usize) -> Option<Result<()>>;
}

impl Operand for f32 {
    fn launch(stream: &Stream, case: &Case, data: &mut Data<Self>, set: usize) -> Option<Result<()>> {
        if case.operation == "histogram" {
            let x = data.x.slice(set * data.n..(set + 1) * data.n);
            return Some(ops::histogram_even(stream, x, -1.0..1.0, data.words.slice_mut(..256)));
        }
        of_floats(stream, case, data, set)
    }
}

impl Operand for bf16 {
    fn launch(stream: &Stream, case: &Case, data: &mut Data<Self>, set: usize) -> Option<Result<()>> {
        of_floats(stream, case, data, set)
    }
}

impl Operand for u32 {
    fn launch(stream: &Stream, case: &Case, data: &mut Data<Self>, set: usize) -> Option<Result<()>> {
        let range = set * data.n..(set + 1) * data.n;
        let (x, out) = (data.x.slice(range.clone()), data.out.slice_mut(range));
        (case.operation == "sort").then(|| ops::sort(stream, Order::Ascending, x, out))
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
