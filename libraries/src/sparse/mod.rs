//! Sparse matrix-vector (SpMV) and matrix-matrix (SpMM) products. GPUs use cuSPARSE, and the emulated device uses
//! loops.
//!
//! Guarantees:
//!
//! - A [`Csr`] owns its offsets and columns, which are checked when it is created. Therefore, no safe program can make
//!   the library read out of bounds. The values of a [`Csr`] can be changed at any time.
//! - Lengths are checked before anything is enqueued. If `beta` is 0, the old output is not read.
//! - Vectors and dense matrices can start at any element. cuSPARSE requires addresses that are multiples of 16 bytes.
//!   Operands at other addresses are copied to memory from the caching allocator. This takes one copy per input and one
//!   or two copies per output.
//! - For each stream, the [`Csr`] caches cuSPARSE's analysis of the matrix, its descriptors and its workspace. Two
//!   streams never share a workspace. A captured call uses a separate workspace, which the graph owns.
//!
//! Values can be `f32`, `f64`, `f16` or `bf16`. On GPUs, `f16` and `bf16` are accumulated in single precision, and
//! cuSPARSE may round the partial sums of a row. Indices can be `i32` or `i64`, and start at 0. On the emulated device,
//! every type is accumulated in double precision and rounded once.
//!
//! ```
//! use warpsmith_libraries::sparse::{self, Csr, Product};
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! let stream = Device::emulated(0)?.default_stream();
//! // 5 0 1
//! // 0 0 2
//! let a = Csr::from_host(&stream, [2, 3], &[0i32, 2, 3], &[0, 2, 2], &[5.0f32, 1.0, 2.0])?;
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 10.0, 100.0])?;
//! let mut y = DeviceBuffer::uninit(&stream, 2)?;
//! sparse::spmv(&stream, Product::default(), &a, &x, &mut y)?;
//! assert_eq!(y.to_host()?, [105.0, 200.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `csr` | [`Csr`] |
//! | `element` | [`Index`]: the index types |
//! | `plan` | descriptors and workspaces |
//! | `vendor` | cuSPARSE's functions |
//! | `host` | implementation for the emulated device |

mod csr;
mod element;
mod host;
mod plan;
mod vendor;

pub use self::csr::Csr;
pub use self::element::Index;
use self::plan::{Dense, Operands};
pub use crate::element::FloatType;
use crate::error::{LibraryError, check_devices};
use crate::{Vendor, scale};
use warpsmith_runtime::extension::{Access, site};
use warpsmith_runtime::{
    DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSlice2, DeviceSliceMut, DeviceSliceMut2, Result,
    Stream,
};

pub(crate) use self::vendor::State;

/// Alignment of addresses that cuSPARSE requires, in bytes.
const ALIGNMENT: u64 = 16;

/// Parameters of a product: `output = alpha * op(matrix) * input + beta * output`.
///
/// ```
/// use warpsmith_libraries::sparse::Product;
///
/// let added = Product { beta: 1.0, ..Product::default() };
/// assert_eq!((added.alpha, added.transpose), (1.0, false));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Factor by which the product is multiplied. The default is 1. The factor is rounded to single precision unless
    /// the values are `f64`.
    pub alpha: f64,
    /// Factor by which the old output is multiplied. With 0, which is the default, the old output is not read.
    pub beta: f64,
    /// True if the sparse matrix is transposed.
    pub transpose: bool,
    /// True if every run must give bit-identical results. cuSPARSE has no deterministic algorithm for a transposed
    /// matrix.
    pub deterministic: bool,
}

impl Default for Product {
    fn default() -> Self {
        Self { alpha: 1.0, beta: 0.0, transpose: false, deterministic: false }
    }
}

/// Enqueues the product of a sparse matrix and a vector (SpMV) after all earlier work on the operands.
///
/// # Errors
/// - [`LibraryError::Shape`] if a length does not match the matrix.
/// - [`LibraryError::Unsupported`] if a product with a transposed matrix must be deterministic.
/// - [`LibraryError::Missing`], and [`LibraryError::Call`] with cuSPARSE's status.
/// - [`Error::OutOfMemory`](warpsmith_runtime::Error::OutOfMemory) if the workspace cannot be allocated.
/// - [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices).
#[track_caller]
pub fn spmv<'x, 'y, T: FloatType, I: Index>(
    stream: &Stream,
    product: Product,
    matrix: &Csr<T, I>,
    x: impl Into<DeviceSlice<'x, T>>,
    y: impl Into<DeviceSliceMut<'y, T>>,
) -> Result<()> {
    let _site = site();
    const OPERATION: &str = "sparse::spmv";
    let (x, mut y) = (x.into(), y.into());
    check_devices(stream, OPERATION, [(x.device(), "the vector"), (y.device(), "the output")])?;
    let [rows, columns] = matrix.shape_of(product);
    if (x.len(), y.len()) != (columns, rows) {
        let problem = format!(
            "the vector has {} elements and the output has {}; the matrix, {rows} x {columns}{}, requires {columns} \
             and {rows}",
            x.len(),
            y.len(),
            if product.transpose { " when transposed" } else { "" },
        );
        return Err(LibraryError::shape(OPERATION, problem));
    }
    let dense = Dense::Vector;
    enqueue(stream, OPERATION, matrix, x, &mut y, dense, product)
}

/// Enqueues the product of a sparse matrix and a row-major dense matrix (SpMM) after all earlier work on the operands.
/// Memory between the rows of the output stays unchanged.
///
/// ```
/// use warpsmith_libraries::sparse::{self, Csr, Product};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let a = Csr::from_host(&stream, [2, 3], &[0i32, 2, 3], &[0, 2, 2], &[5.0f32, 1.0, 2.0])?;
/// let b = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let mut c = DeviceBuffer::uninit(&stream, 2 * 2)?;
/// sparse::spmm(&stream, Product::default(), &a, b.as_2d(3, 2)?, c.as_2d_mut(2, 2)?)?;
/// assert_eq!(c.to_host()?, [10.0, 16.0, 10.0, 12.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns the same errors as [`spmv`].
#[track_caller]
pub fn spmm<T: FloatType, I: Index>(
    stream: &Stream,
    product: Product,
    matrix: &Csr<T, I>,
    b: DeviceSlice2<'_, T>,
    c: DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let _site = site();
    const OPERATION: &str = "sparse::spmm";
    check_devices(stream, OPERATION, [(b.device(), "the dense matrix"), (c.device(), "the output")])?;
    let [rows, inner] = matrix.shape_of(product);
    let fits =
        b.rows() == inner && c.rows() == rows && (b.columns() == c.columns() || inner == 0 || rows == 0);
    if !fits {
        let problem = format!(
            "the dense matrix is {} x {} and the output is {} x {}; the sparse matrix, {rows} x {inner}{}, requires \
             {inner} x n and {rows} x n",
            b.rows(),
            b.columns(),
            c.rows(),
            c.columns(),
            if product.transpose { " when transposed" } else { "" },
        );
        return Err(LibraryError::shape(OPERATION, problem));
    }
    let dense =
        Dense::Matrix { columns: c.columns(), input_stride: b.row_stride(), output_stride: c.row_stride() };
    enqueue(stream, OPERATION, matrix, b.elements(), &mut c.into_elements(), dense, product)
}

/// Enqueues a product whose lengths have been checked.
#[track_caller]
fn enqueue<T: FloatType, I: Index>(
    stream: &Stream,
    operation: &'static str,
    matrix: &Csr<T, I>,
    input: DeviceSlice<'_, T>,
    output: &mut DeviceSliceMut<'_, T>,
    dense: Dense,
    product: Product,
) -> Result<()> {
    check_devices(stream, operation, [(matrix.device(), "the sparse matrix")])?;
    if product.transpose && product.deterministic {
        let what = "a deterministic product with the transposed matrix";
        return Err(LibraryError::unsupported(
            operation,
            what,
            "the transposed matrix stored as a separate matrix",
        ));
    }
    if output.is_empty() || dense.columns() == 0 {
        return Ok(());
    }
    if !stream.device().is_emulated() {
        Vendor::Cusparse.version()?;
        if matrix.nonzeros() == 0 {
            return scale_rows(stream, operation, output, dense, product.beta);
        }
    }
    // The check also applies to the emulated device, which accepts any address, so that both devices behave in the same
    // way.
    let is_aligned = |at: DevicePtr| at.0.is_multiple_of(ALIGNMENT);
    let copy;
    let input = if is_aligned(input.as_device_ptr()) {
        input
    } else {
        copy = copied(stream, input)?;
        copy.as_slice()
    };
    if is_aligned(output.as_device_ptr()) {
        return multiply(stream, operation, matrix, input, output, dense, product);
    }
    let mut aligned = if product.beta != 0.0 || dense.output_has_gaps() {
        copied(stream, output.as_slice())?
    } else {
        DeviceBuffer::uninit(stream, output.len())?
    };
    multiply(stream, operation, matrix, input, &mut aligned.as_mut_slice(), dense, product)?;
    stream.copy(&aligned, output.reborrow())
}

/// Copies a slice to a new buffer, whose address is aligned.
#[track_caller]
fn copied<T: DeviceCopy>(stream: &Stream, from: DeviceSlice<'_, T>) -> Result<DeviceBuffer<T>> {
    let mut copy = DeviceBuffer::uninit(stream, from.len())?;
    stream.copy(from, &mut copy)?;
    Ok(copy)
}

/// Enqueues the product itself. Both operands must be aligned and, on a GPU, the matrix must not be empty.
#[track_caller]
fn multiply<T: FloatType, I: Index>(
    stream: &Stream,
    operation: &'static str,
    matrix: &Csr<T, I>,
    input: DeviceSlice<'_, T>,
    output: &mut DeviceSliceMut<'_, T>,
    dense: Dense,
    product: Product,
) -> Result<()> {
    let operands = Operands { input: input.as_device_ptr(), output: output.as_device_ptr(), dense, product };
    if stream.device().is_emulated() {
        let parts = matrix.parts(input.used(Access::Read), output.used());
        let work = host::Work {
            rows: matrix.rows(),
            offsets: matrix.offsets().as_device_ptr(),
            indices: matrix.indices().as_device_ptr(),
            values: matrix.values().as_device_ptr(),
            nonzeros: matrix.nonzeros(),
            operands,
            lengths: [input.len(), output.len()],
        };
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The work stays inside them
        // because the lengths match.
        return unsafe { stream.enqueue_host_named(operation, &parts, move || work.run::<T, I>()) };
    }
    plan::run(stream, operation, matrix, input.used(Access::Read), output.used(), operands)
}

/// Scales the output of a product with an empty matrix by `beta` on a GPU.
#[track_caller]
fn scale_rows<T: FloatType>(
    stream: &Stream,
    operation: &'static str,
    output: &mut DeviceSliceMut<'_, T>,
    dense: Dense,
    beta: f64,
) -> Result<()> {
    let (row_len, stride) = match dense {
        Dense::Vector => (output.len(), output.len()),
        Dense::Matrix { columns, output_stride, .. } if columns == output_stride => {
            (output.len(), output.len())
        }
        Dense::Matrix { columns, output_stride, .. } => (columns, output_stride),
    };
    if beta == 1.0 {
        return Ok(());
    }
    scale::check_library(stream.device())?;
    for start in (0..output.len()).step_by(stride) {
        let mut row = output.slice_mut(start..start + row_len);
        if beta == 0.0 {
            stream.memset(&mut row, 0)?;
            continue;
        }
        let (parts, at) = ([row.used()], row.as_device_ptr());
        // SAFETY: the row has this number of elements, and their use is ordered.
        unsafe {
            stream.enqueue_named(operation, &parts, |_| scale::enqueue::<T>(stream, at, row_len, beta))
        }?;
    }
    Ok(())
}
