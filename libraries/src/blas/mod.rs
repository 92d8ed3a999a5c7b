//! Dense linear algebra: products of matrices and vectors, through cuBLAS and cuBLASLt.
//!
//! | function | it computes | of `torch` |
//! | --- | --- | --- |
//! | [`gemm`] | `c = alpha * a * b + beta * c`, of one matrix or a batch | `mm`, `bmm`, `addmm`, `baddbmm` |
//! | [`gemm_grouped`] | the same for matrices of many shapes | `_grouped_mm` |
//! | [`matmul`] | the same with a bias and an activation in one kernel | `nn.functional.linear`, `_scaled_mm` |
//! | [`gemv`] | `y = alpha * a * x + beta * y` | `mv`, `addmv` |
//! | [`axpy`], [`scal`] | `y += alpha * x`, `x *= alpha` | `add_`, `mul_` |
//! | [`dot`], [`nrm2`] | the inner product, the Euclidean norm | `dot`, `linalg.vector_norm` |
//! | [`trsm`] | solves triangular systems | `linalg.solve_triangular` |
//!
//! Matrices are row-major ([`Matrix`], [`MatrixMut`]); a [`Layout`] says strides, transposes and batches.
//! How exactly is computed is [`Math`]: TF32 is off by default. Each stream has one workspace, kept from the caching allocator
//! ([`Workspaces`]), so no call allocates or waits, and two streams never share one. Everything may be captured.
//!
//! On the emulated device all of it is computed in plain Rust, in `f32` for narrower types and rounded once.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `matrix`, `vector_view` | views of memory |
//! | `types`, `float8` | elements, and which products there are |
//! | `settings` | precision, workspaces |
//! | `handle` | handles of the libraries, and how calls are enqueued |
//! | `gemm`, `grouped`, `vector`, `trsm` | the operations of cuBLAS |
//! | `lt` | those of cuBLASLt: plans, the timed search |
//! | `host` | the emulated device's |

mod float8;
mod gemm;
mod grouped;
pub(crate) mod handle;
mod host;
mod lt;
mod matrix;
mod settings;
mod trsm;
mod types;
mod vector;
mod vector_view;

use std::sync::{Mutex, OnceLock};

pub use self::float8::{F8E4M3, F8E5M2};
pub use self::gemm::{Gemm, gemm};
pub use self::grouped::gemm_grouped;
pub use self::lt::{Activation, Matmul, Search, matmul, plan_cache};
pub use self::matrix::{Layout, Matrix, MatrixMut};
pub use self::settings::{Math, Workspaces, math, set_math, workspaces};
pub use self::trsm::{Side, Solve, Triangle, Trsm, trsm};
pub use self::types::{Element, Float, Multiply, Scale};
pub use self::vector::{axpy, dot, gemv, nrm2, scal};
pub use self::vector_view::{Vector, VectorMut};

use self::handle::{Handle, LtHandle};
use super::handles::HandlePool;
use super::lru::Plans;
use warpsmith_runtime::device::Device;

/// A device's state for cuBLAS and cuBLASLt.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) handles: HandlePool<Handle>,
    lt_handles: HandlePool<LtHandle>,
    plans: Plans<lt::Key, lt::Plan>,
    math: Mutex<Math>,
    workspaces: OnceLock<Workspaces>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            handles: HandlePool::default(),
            lt_handles: HandlePool::default(),
            plans: Plans::new(1024),
            math: Mutex::default(),
            workspaces: OnceLock::new(),
        }
    }
}

impl State {
    /// That of a device.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }
}
