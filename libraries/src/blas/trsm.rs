//! [`trsm`]: solves triangular systems.

use cudarc::cublas::sys::{self, cublasDiagType_t, cublasFillMode_t, cublasSideMode_t};

use super::gemm::operation;
use super::handle::{self, Handle, check};
use super::host::{self, HostMatrix};
use super::matrix::{Matrix, MatrixMut};
use super::types::sealed::Sum;
use super::types::{Scale, VectorType};
use crate::element::{DataType, LibraryType};
use crate::error::{LibraryError, check_devices};
use warpsmith_runtime::extension::{Access, site};
use warpsmith_runtime::{Result, Stream};

/// Position of the triangular matrix relative to the unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// `a * x = alpha * b`.
    #[default]
    Left,
    /// `x * a = alpha * b`.
    Right,
}

/// The triangle of the matrix that is read. It refers to the matrix as passed, so a transposed view of a lower
/// triangular matrix is upper triangular.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Triangle {
    /// The diagonal and the elements below it.
    #[default]
    Lower,
    /// The diagonal and the elements above it.
    Upper,
}

/// Options of a triangular system. `torch.linalg.solve_triangular` has the same options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trsm<S> {
    /// Factor by which the right-hand sides are multiplied. The default is 1.
    pub alpha: S,
    /// Side of the unknowns on which the triangular matrix appears. The default is left.
    pub side: Side,
    /// Triangle of the matrix that is read. The default is lower.
    pub triangle: Triangle,
    /// True if all diagonal elements are assumed to be 1, in which case the diagonal is not read. The default is false.
    pub unit_diagonal: bool,
}

impl<S: Sum> Default for Trsm<S> {
    fn default() -> Self {
        Self { alpha: S::from_f64(1.0), side: Side::Left, triangle: Triangle::Lower, unit_diagonal: false }
    }
}

/// An element type for triangular systems: `f32` or `f64`.
pub trait Solve: VectorType {}

impl Solve for f32 {}
impl Solve for f64 {}

/// Enqueues the solution of `a * x = alpha * b` or `x * a = alpha * b` for each matrix of a batch. The solution `x`
/// overwrites `b`. If the diagonal contains a zero, the solution contains infinities and NaN. If `alpha` is 0, neither
/// matrix is read, and `x` is 0. On a GPU, the function makes one cuBLAS call per matrix of the batch. If a call fails,
/// the calls before it remain enqueued. The call can be captured in a graph.
///
/// ```
/// use warpsmith_libraries::blas::{self, Trsm};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::from_host(&stream, &[2f64, 0.0, 3.0, 4.0])?;
/// let mut b = DeviceBuffer::from_host(&stream, &[2f64, 11.0])?;
/// blas::trsm(&stream, Trsm::default(), a.as_2d(2, 2)?, b.as_2d_mut(2, 1)?)?;
/// assert_eq!(b.to_host()?, [1.0, 2.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`LibraryError::Shape`] if `a` is not square or does not match `b`. Also returns [`LibraryError::Missing`],
/// [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices), any [library
/// error](crate::LibraryError::Call), and the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn trsm<'a, 'b, T: Solve>(
    stream: &Stream,
    options: Trsm<Scale<T>>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<MatrixMut<'b, T>>,
) -> Result<()> {
    let _site = site();
    let (a, b) = (a.into(), b.into());
    check_devices(stream, "solving a triangular system", [(a.slice.device(), "a"), (b.slice.device(), "b")])?;
    let order = if options.side == Side::Left { b.rows() } else { b.columns() };
    let counts = (a.layout.count(), b.layout.count());
    if (a.rows(), a.columns()) != (order, order) || (counts.0 != counts.1 && counts.0 != 1) {
        let problem = format!(
            "a is {} x {} x {} and b is {} x {} x {} (batch x rows x columns): with a on the {:?}, a must be {order} \
             x {order}, with the batch size of b or 1",
            counts.0,
            a.rows(),
            a.columns(),
            counts.1,
            b.rows(),
            b.columns(),
            options.side
        );
        return Err(LibraryError::shape("trsm", problem));
    }
    if b.layout.is_empty() {
        return Ok(());
    }
    let parts = [a.slice.used(Access::Read), b.slice.used()];
    let matrices = [
        HostMatrix { ptr: a.slice.as_device_ptr().0, layout: a.layout },
        HostMatrix { ptr: b.slice.as_device_ptr().0, layout: b.layout },
    ];
    let call = |handle: &mut Handle| call::<T>(handle, &options, matrices);
    let Trsm { alpha, side, triangle, unit_diagonal } = options;
    let [mut a, mut b] = matrices;
    // `x * a = b` is equivalent to `a^T * x^T = b^T`.
    if side == Side::Right {
        (a.layout, b.layout) = (a.layout.transposed(), b.layout.transposed());
    }
    let is_lower = (triangle == Triangle::Lower) == (side == Side::Left);
    let host = move || {
        for batch in 0..b.layout.count() {
            // SAFETY: the matrices lie inside memory that is recorded as used by this work, and their shapes match.
            unsafe { host::solve::<T>(alpha.to_f64(), is_lower, unit_diagonal, batch, [a, b]) }
        }
    };
    handle::enqueue(stream, "blas::trsm", &parts, call, host)
}

/// Calls cuBLAS. cuBLAS treats row-major matrices as their transposes, so sides and triangles are swapped.
fn call<T: Solve>(
    handle: &mut Handle,
    options: &Trsm<Scale<T>>,
    [mut a, mut b]: [HostMatrix; 2],
) -> Result<()> {
    let (mut is_left, mut is_lower) = (options.side == Side::Left, options.triangle == Triangle::Lower);
    if b.layout.is_transposed {
        (a.layout, b.layout) = (a.layout.transposed(), b.layout.transposed());
        (is_left, is_lower) = (!is_left, !is_lower);
    }
    let is_stored_lower = is_lower != a.layout.is_transposed;
    let side = match is_left {
        true => cublasSideMode_t::CUBLAS_SIDE_RIGHT,
        false => cublasSideMode_t::CUBLAS_SIDE_LEFT,
    };
    let fill = match is_stored_lower {
        true => cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
        false => cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
    };
    let diagonal = match options.unit_diagonal {
        true => cublasDiagType_t::CUBLAS_DIAG_UNIT,
        false => cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
    };
    let (rows, cols) = (b.layout.columns() as i64, b.layout.rows() as i64);
    let alpha = std::ptr::from_ref(&options.alpha);
    let a_start = |batch: usize| if a.layout.count() == 1 { 0 } else { batch * a.layout.batch_stride };
    macro_rules! call {
        ($function:ident, $type:ty, $batch:expr) => {
            // SAFETY: the handle is alive and used only here. The matrices of the batch lie inside memory that is
            // recorded as used; the matrices and the scalar are of this type.
            unsafe {
                sys::$function(
                    handle.raw(),
                    side,
                    fill,
                    operation(a.layout.is_transposed),
                    diagonal,
                    rows,
                    cols,
                    alpha.cast::<$type>(),
                    (a.ptr as *const $type).wrapping_add(a_start($batch)),
                    a.layout.leading(),
                    (b.ptr as *mut $type).wrapping_add($batch * b.layout.batch_stride),
                    b.layout.leading(),
                )
            }
        };
    }
    (0..b.layout.count()).try_for_each(|batch| match T::TYPE {
        DataType::F64 => check("cublasDtrsm", call!(cublasDtrsm_v2_64, f64, batch)),
        _ => check("cublasStrsm", call!(cublasStrsm_v2_64, f32, batch)),
    })
}
