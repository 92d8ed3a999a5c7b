//! Warpsmith's kernels: copy, fill, cast, elementwise operations, full reductions, scans, compaction, histograms and
//! sorts.
//!
//! The same source runs on a GPU and on the emulated device. Every kernel of this crate has the following properties:
//!
//! - It is correct for any length, any alignment of its arrays and any grid, because blocks loop over tiles. A grid
//!   with fewer blocks than tiles is slower but still correct.
//! - It transfers most of its data in accesses of `VECTOR` bytes, of which `ITEMS` are in flight per thread. Before the
//!   first aligned address and after the last whole vector, it accesses single elements.
//! - It uses the first row of a launch (threads and blocks with y = z = 0). All other threads return immediately.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`mod@copy`] | `copy`, with one instance per element size |
//! | [`mod@move_rows`] | `move_rows`: strided copies, gather and scatter |
//! | [`mod@transpose`] | `transpose`, with one instance per element size |
//! | [`mod@fill`] | `fill`, with one instance per element size |
//! | [`mod@cast`] | `cast` and `cast_to_signed` between number types, `cast_to_bool` |
//! | [`arithmetic`] | `unary`, `binary` and `compare`, each of which implements many operations; `select`, `clamp`, `lerp` |
//! | [`elementwise`] | `axpy`, `add`, `mul`, `fma`, `relu`, `gelu`, `sigmoid`, `exp` |
//! | [`reduce`] | `reduce_sum`, `reduce_prod`, `reduce_mean`, `reduce_min`, `reduce_max` |
//! | [`arg_reduce`] | `reduce_argmin`, `reduce_argmax` |
//! | [`axis_reduce`] | `sum_rows` (also for segments), `sum_columns`, and the same for `mean`, `prod`, `min`, `max`, `argmin` and `argmax` |
//! | [`device_reduce`] | `dot`, `count_if`, `vector_norm`, `variance` |
//! | [`mod@norm`] | `norm` (layer and RMS), `norm_backward`, `norm_backward_parameters` |
//! | [`mod@softmax`] | `softmax`, `softmax_backward` |
//! | [`select`] | `top_k`, `sample` |
//! | [`transformer`] | `swiglu`, `rotary` |
//! | [`index_check`] | `check_indices`, `first_bad_offset` |
//! | [`mod@scan`] | `scan_sum`, `scan_min`, `scan_max` |
//! | [`compact`] | `compact_flagged`, `compact_compared`, `compact_runs`, `run_lengths` |
//! | [`histogram`] | `histogram_even`, `histogram_edges` |
//! | [`sort`] | `radix_histogram`, `radix_starts`, `radix_pass`, `radix_pass_pairs`, `sort_segments` |
//! | [`search`] | `search_sorted` |
//! | [`probe`] | `fma_probe`, a compute-only kernel |
//! | [`random`] | `uniform`, `normal`, `exponential`, `integers`, `bernoulli`, `dropout`, `permutation` |
//!
//! The features `histogram`, `rows`, `scan` and `sort` each enable a family of kernels.
//!
//! `warpsmith::ops` and `warpsmith::random` are the safe, typed interface to these kernels.
#![no_std]
#![deny(missing_docs)]

use gpu_std::vectorized as tile;

#[cfg(any(feature = "histogram", feature = "scan"))]
pub mod access;
pub mod arg_reduce;
pub mod arithmetic;
#[cfg(feature = "rows")]
pub mod axis_reduce;
#[cfg(feature = "histogram")]
pub mod bins;
#[cfg(feature = "rows")]
mod careful;
pub mod cast;
#[cfg(feature = "scan")]
pub mod compact;
pub mod copy;
#[cfg(feature = "rows")]
pub mod device_reduce;
pub mod elementwise;
pub mod fill;
#[cfg(feature = "histogram")]
pub mod histogram;
pub mod index_check;
#[cfg(any(feature = "rows", feature = "scan", feature = "sort"))]
pub mod key_transform;
#[cfg(feature = "rows")]
mod moments;
pub mod move_rows;
#[cfg(feature = "rows")]
pub mod norm;
pub mod operand;
#[cfg(any(feature = "rows", feature = "histogram"))]
mod powers;
pub mod probe;
#[cfg(any(feature = "scan", feature = "sort"))]
mod queue;
pub mod random;
#[cfg(feature = "rows")]
mod range;
pub mod reduce;
#[cfg(feature = "rows")]
mod reduction_operators;
#[cfg(feature = "rows")]
pub mod resident;
#[cfg(feature = "scan")]
pub mod scan;
#[cfg(feature = "sort")]
pub mod search;
#[cfg(feature = "rows")]
pub mod select;
#[cfg(feature = "rows")]
pub mod softmax;
#[cfg(feature = "sort")]
pub mod sort;
#[cfg(feature = "rows")]
pub mod thread_group;
#[cfg(feature = "rows")]
pub mod transformer;
pub mod transpose;
