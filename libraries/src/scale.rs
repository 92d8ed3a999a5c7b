//! Scales elements by a factor with cuBLAS, for libraries that do not scale their results.

use cudarc::cublas::sys::{self, cublasOperation_t};

use super::Vendor;
use crate::blas::handle::{Handle, check};
use crate::element::{DataType, Factor, LibraryType, code};
use warpsmith_runtime::{Device, DevicePtr, Result, Stream};

/// Most of a long array is scaled as a matrix with this number of rows.
const ROWS: usize = 8192;
/// Minimum number of elements for which `geam` saves more time than its additional launch costs.
const LONG: usize = 1 << 18;

/// Returns an error if cuBLAS is needed but not installed.
pub(super) fn check_library(device: &Device) -> Result<()> {
    if device.is_emulated() { Ok(()) } else { Vendor::Cublas.version().map(|_| ()) }
}

/// Enqueues the scaling of `len` elements on a GPU's stream. The address must refer to `len` elements. The caller must
/// order the call with respect to other uses of these elements.
///
/// # Safety
/// [`check_library`] must have succeeded, and the device's context must be current.
pub(super) unsafe fn enqueue<T: LibraryType>(
    stream: &Stream,
    at: DevicePtr,
    len: usize,
    factor: f64,
) -> Result<()> {
    let handle = crate::blas::State::of(stream.device()).handles.acquire(stream)?;
    // On an H200, `ScalEx` reaches 2.6 TB/s, and `geam` reaches 4.1 TB/s.
    let columns = if len >= LONG { len / ROWS } else { 0 };
    // SAFETY: there are at least `ROWS * columns` elements of this type.
    let is_scaled = columns > 0 && unsafe { scale_rows::<T>(&handle, at, columns, factor) }?;
    let done = if is_scaled { columns * ROWS } else { 0 };
    let rest = (at.0 + (done * size_of::<T>()) as u64) as *mut _;
    let len = i64::try_from(len - done).unwrap_or(i64::MAX);
    if len == 0 {
        return Ok(());
    }
    let factor = Factor::of::<T>(factor);
    let (data, computed) =
        (code::cublas(T::TYPE), if T::TYPE == DataType::F64 { DataType::F64 } else { DataType::F32 });
    let computed = code::cublas(computed);
    // Scaling pairs of elements as complex numbers would be faster, but would corrupt the neighbor of an infinite
    // element. SAFETY: the factor is a local variable of the computation type that is read before the call returns; the
    // caller guarantees the elements.
    check("cublasScalEx_64", unsafe {
        sys::cublasScalEx_64(handle.raw(), len, factor.as_ptr(), computed, rest, data, 1, computed)
    })
}

/// Scales `columns` times [`ROWS`] elements with `geam`. Returns false if `geam` does not support the type.
///
/// # Safety
/// The address must refer to `rows * columns` elements, their use must be ordered on the handle's stream, and the
/// handle must take factors from host memory.
unsafe fn scale_rows<T: LibraryType>(
    handle: &Handle,
    at: DevicePtr,
    columns: usize,
    factor: f64,
) -> Result<bool> {
    let (rows, columns, plain) = (ROWS as i64, columns as i64, cublasOperation_t::CUBLAS_OP_N);
    macro_rules! geam {
        ($function:ident, $type:ty) => {{
            let (factor, none, at) = (factor as $type, 0.0, at.0 as *mut $type);
            // SAFETY: the caller guarantees the elements. cuBLAS accepts the same matrix as input and output and does
            // not read the second input if its factor is 0. Both factors are local variables that are read before the
            // call returns.
            unsafe {
                sys::$function(
                    handle.raw(), plain, plain, rows, columns, &factor, at, rows, &none, at, rows, at, rows,
                )
            }
        }};
    }
    match T::TYPE {
        DataType::F32 => check("cublasSgeam_64", geam!(cublasSgeam_64, f32))?,
        DataType::F64 => check("cublasDgeam_64", geam!(cublasDgeam_64, f64))?,
        _ => return Ok(false),
    }
    Ok(true)
}
