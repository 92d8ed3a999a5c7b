//! The kernels of tests, benchmarks and examples.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`cooperative`] | kernels whose blocks wait for each other, and dependent launches |
//! | [`core_sorts`] | `core`'s sorts of small arrays, and reads at indices that wrap |
//! | [`diagnostic`] | small kernels that fail or print on purpose |
//! | [`dynamic`] | kernels that launch kernels or set a graph's conditions |
//! | [`functions`] | every function of `gpu_std::math`, by its number |
//! | [`mod@nbody`] | `nbody`, all bodies pulling on each other |
//! | [`own`] | functions of elements and operators that become kernels in one line |
//! | [`registry_crates`] | a kernel that uses crates from the registry |
//! | [`rust_values`] | operations that have the values of Rust, and kernels with unusual names |
//! | [`sales`] | a function and operators of `examples/own-operations` |
//! | [`shared_slices`] | kernels with shared arrays whose lengths come with the launch |
//! | [`planes`] | kernels in two and three dimensions |
//! | [`stack`] | kernels whose stack is not known when they are compiled |
//! | [`structs`] | structs, enums, optional slices and math by method |
//! | [`teams`] | a result of each part of a warp, and a structure of arrays |
//! | [`tensor_cores`] | `multiply`, a short matrix product on tensor cores |
//! | [`tiles`] | kernels with shared memory, raw and safe |
//! | [`train`] | `softmax_cross_entropy`, `relu_backward`, `adam`: a small network's training |
#![no_std]
#![deny(missing_docs)]

pub mod cooperative;
pub mod core_sorts;
pub mod diagnostic;
pub mod dynamic;
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
pub mod teams;
pub mod tensor_cores;
pub mod tiles;
pub mod train;
