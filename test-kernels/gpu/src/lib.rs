//! Kernels of tests, benchmarks and examples.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`conditions`] | kernels that set a graph's conditions |
//! | [`cooperative`] | kernels with barriers between blocks, and dependent launches |
//! | [`core_sorts`] | sorts of small arrays by `core`, and reads at wrapping indices |
//! | [`diagnostic`] | small kernels that fail or print on purpose |
//! | [`functions`] | every function of `gpu_std::math`, selected by number |
//! | [`mod@nbody`] | `nbody`, an all-pairs gravity step |
//! | [`own`] | element functions and operators that become kernels in one line |
//! | [`registry_crates`] | kernels that use crates from the registry |
//! | [`rust_values`] | operations with the same results as Rust on the host, and kernels with unusual names |
//! | [`sales`] | a function and operators of `examples/own-operations` |
//! | [`shared_slices`] | kernels with dynamic shared memory as slices |
//! | [`planes`] | kernels in two and three dimensions |
//! | [`stack`] | kernels whose stack size is not known at compile time |
//! | [`structs`] | structs, enums, optional slices and math methods |
//! | [`thread_groups`] | kernels with a result per part of a warp, and a structure of arrays |
//! | [`tensor_cores`] | `multiply`, a short GEMM on tensor cores |
//! | [`tiles`] | kernels with shared memory, raw and safe |
//! | [`train`] | training of a small network: `softmax_cross_entropy`, `relu_backward`, `adam` |
#![no_std]
#![deny(missing_docs)]

pub mod conditions;
pub mod cooperative;
pub mod core_sorts;
pub mod diagnostic;
pub mod functions;
pub mod nbody;
pub mod own;
pub mod planes;
pub mod registry_crates;
pub mod rust_values;
pub mod sales;
pub mod shared_slices;
pub mod stack;
pub mod structs;
pub mod tensor_cores;
pub mod thread_groups;
pub mod tiles;
pub mod train;
