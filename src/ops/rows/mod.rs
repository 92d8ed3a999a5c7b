//! Operations on the rows and columns of views ([`DeviceSlice2`](warpsmith_runtime::DeviceSlice2)) with any row stride.

mod device_reduce;
mod launch;
mod norm;
mod reduce;
mod select;
mod softmax;
mod tokens;

pub use device_reduce::{
    Predicate, all, any, count_if, count_if_into, dot, dot_into, l1_norm, l1_norm_into, l2_norm,
    l2_norm_into, mean_into, variance, variance_into,
};
pub use norm::{add_rms_norm, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
pub use reduce::{
    argmax_columns, argmax_rows, argmax_segments, argmin_columns, argmin_rows, argmin_segments, max_columns,
    max_rows, max_segments, mean_columns, mean_rows, mean_segments, min_columns, min_rows, min_segments,
    prod_columns, prod_rows, prod_segments, sum_columns, sum_rows, sum_segments,
};
pub use select::{Sampling, sample, top_k};
pub use softmax::{log_softmax, log_softmax_backward, softmax, softmax_backward};
pub use tokens::{RotaryPairs, rotary, swiglu};
