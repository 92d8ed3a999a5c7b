//! Dense linear algebra with cuBLAS and cuBLASLt: GEMM and GEMV.
//!
//! | function | operation | in `torch` |
//! | --- | --- | --- |
//! | [`gemm`] | `c = alpha * a * b + beta * c`, for one matrix or a batch | `mm`, `bmm`, `addmm`, `baddbmm` |
//! | [`matmul`] | GEMM with bias and activation fused into the epilogue | `nn.functional.linear`, `_scaled_mm` |
//! | [`gemv`] | `y = alpha * a * x + beta * y` | `mv`, `addmv` |
//!
//! Matrices are 2-D views (`buffer.as_2d(rows, columns)?`), and batches are 3-D views. [`Matrix::transposed`]
//! transposes a matrix. A [`Layout`] describes batches with other strides. [`Math`] sets the precision. TF32 is off by
//! default. Each stream has its own workspace, which the caching allocator provides ([`Workspaces`]). Therefore, calls
//! neither allocate nor wait, and two streams never share a workspace. All operations can be captured in graphs.
//!
//! On the emulated device, all operations are computed in plain Rust. Types that are narrower than `f32` are computed
//! in `f32` and rounded once.
//!
//! | module | contents |
//! | --- | --- |
//! | `matrix`, `vector_view` | views of device memory |
//! | `types` | element types and supported products |
//! | `settings` | precision and workspaces |
//! | `handle` | library handles and the enqueueing of calls |
//! | `gemm`, `gemv` | cuBLAS operations |
//! | `lt` | cuBLASLt operations: plans and timed search |
//! | `host` | implementation for the emulated device |

mod gemm;
mod gemv;
pub(crate) mod handle;
mod host;
mod lt;
mod matrix;
mod settings;
mod types;
mod vector_view;

use std::sync::{Mutex, OnceLock};

pub use float8::{F8E4M3, F8E5M2};

pub use self::gemm::{Gemm, gemm};
pub use self::gemv::gemv;
pub use self::lt::{Activation, Matmul, Search, matmul, plan_cache};
pub use self::matrix::{Layout, Matrix, MatrixMut};
pub use self::settings::{Math, Workspaces, math, set_math, workspaces};
pub use self::types::{GemmType, Multiply, Scale, VectorType};
pub use self::vector_view::{Vector, VectorMut};

use self::handle::{Handle, LtHandle};
use super::handles::HandlePool;
use super::lru::Plans;
use warpsmith_runtime::device::Device;

/// A device's cuBLAS and cuBLASLt state.
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
    /// Returns the device's state.
    pub fn of(device: &Device) -> &Self {
        device.extension(Self::default)
    }
}
