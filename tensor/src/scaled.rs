//! [`matmul_scaled()`]: block-scaled FP8 GEMM.

use gpu_std::tensor::F8E4M3;
use half::bf16;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceSlice, Result, Stream};
use warpsmith_tensor_kernels::matmul::{BOX, ROW_BYTES};
use warpsmith_tensor_kernels::non_persistent::{ROWS, RowStrides};
use warpsmith_tensor_kernels::scaled::{BLOCK, STAGES, matmul_scaled as kernel};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matmul::{a_map, b_map, check_device};
use crate::matrix::{Matrix, MatrixMut, check_rows, check_sides};
use crate::non_persistent::Clusters;

/// Relative durations of tiles in clusters that share tiles of `b`, as in
/// [`schedule::SHARED`](crate::schedule::SHARED). According to measurements on an H200, sharing in this kernel also
/// pays off for launches of several waves.
const SHARED: [f64; 2] = [0.97; 2];

const OPERATION: &str = "matmul_scaled";

/// Block scales of FP8 operands: 1×128 blocks for `a`, 128×128 blocks for `b`. The last block along a dimension may be
/// smaller.
///
/// See the example of [`matmul_scaled()`].
#[derive(Debug, Clone, Copy)]
pub struct BlockScales<'a> {
    /// Scales of `a`, one per row and block along k: m rows with ceil(k / 128) scales each.
    pub a: DeviceSlice<'a, f32>,
    /// Scales of `b`, one per 128 columns and block along k: ceil(n / 128) rows with ceil(k / 128) scales each.
    pub b: DeviceSlice<'a, f32>,
}

/// Block-scaled FP8 GEMM: `c = activation(scale * a * b + bias)`, where each element is multiplied by the scale of its
/// block. `a` is m×k, `b` is k×n and must be transposed, and `c` is m×n and does not have to be aligned. The tensor
/// cores accumulate the products of a block along k with about 14 bits of mantissa. These sums are multiplied by both
/// scales and accumulated in `f32`; the result is rounded once. k must not be 0.
///
/// # Errors
/// Returns [`TensorError::Shape`] if the sizes do not match, an operand is a batch, or k is 0; [`TensorError::Layout`]
/// for a transposed `a` or a `b` that is not transposed; [`TensorError::Alignment`] for an `a` or `b` whose address or
/// row stride is not a multiple of 16 bytes; [`TensorError::Device`] if the compute capability is not 9.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{BlockScales, Epilogue, F8E4M3, Matrix, matmul_scaled};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let ones = |count| vec![F8E4M3::ONE; count];
/// let a = DeviceBuffer::from_host(&stream, &ones(2 * 256))?;
/// let b = DeviceBuffer::from_host(&stream, &ones(3 * 256))?;
/// // Two blocks of k for each of two rows, and for the columns.
/// let a_scales = DeviceBuffer::from_host(&stream, &[1.0, 2.0, 3.0, 4.0])?;
/// let b_scales = DeviceBuffer::from_host(&stream, &[0.5, 0.25])?;
/// let scales = BlockScales { a: a_scales.as_slice(), b: b_scales.as_slice() };
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 2 * 3)?;
/// let b = Matrix::from(b.as_2d(3, 256)?).transposed();
/// matmul_scaled(&stream, &Epilogue::default(), a.as_2d(2, 256)?, b, scales, c.as_2d_mut(2, 3)?)?;
/// let c: Vec<f32> = c.to_host()?.into_iter().map(f32::from).collect();
/// assert_eq!(c, [128.0, 128.0, 128.0, 320.0, 320.0, 320.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_scaled<'a, 'b, 'c>(
    stream: &Stream,
    epilogue: &Epilogue<'_, bf16>,
    a: impl Into<Matrix<'a, F8E4M3>>,
    b: impl Into<Matrix<'b, F8E4M3>>,
    scales: BlockScales<'_>,
    c: impl Into<MatrixMut<'c, bf16>>,
) -> Result<()> {
    let _site = site();
    let (a, b, c) = (a.into(), b.into(), c.into());
    let (m, n, k) = (c.rows(), c.columns(), a.columns());
    epilogue.check_kernel(OPERATION, false)?;
    check_sides(OPERATION, &a, &b, &c, c.columns())?;
    epilogue.check_bias(OPERATION, n)?;
    let shape = |what| Err(TensorError::Shape { operation: OPERATION, what }.into());
    if c.planes() != 1 {
        return shape(format!(
            "c is a batch of {} matrices; a block-scaled GEMM takes a single matrix",
            c.planes()
        ));
    }
    let blocks = k.div_ceil(BLOCK as usize);
    for (name, found, expected) in
        [("a", scales.a.len(), m * blocks), ("b", scales.b.len(), n.div_ceil(BLOCK as usize) * blocks)]
    {
        if found != expected {
            return shape(format!(
                "{name} has {found} scales, but a GEMM of {m} x {k} by {k} x {n} requires {expected}"
            ));
        }
    }
    for (matrix, is_correct) in [("a", !a.is_transposed), ("b", b.is_transposed)] {
        if !is_correct {
            let element = std::any::type_name::<F8E4M3>();
            return Err(TensorError::Layout { operation: OPERATION, matrix, element }.into());
        }
    }
    check_device(OPERATION, stream.device())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    if k == 0 {
        return shape("k is 0".to_owned());
    }
    check_rows(OPERATION, "a", a.elements, a.stored)?;
    check_rows(OPERATION, "b", b.elements, b.stored)?;
    let clusters = Clusters::new(OPERATION, stream, (ROW_BYTES, 1.0, SHARED), (&a, &b, &c))?;
    let maps = (a_map(a, ROWS as u32)?, b_map(b, BOX)?);
    let rows = RowStrides { pitch: c.stored.row_stride as u64, plane: c.stored.plane_stride as u64 };
    let kernel = stream.device().load(&IMAGE)?.kernel::<kernel>()?;
    let (sizes, shared_by) = (clusters.sizes, clusters.shared_by());
    let (bias, finish) = (epilogue.bias, epilogue.finish());
    let arguments = (maps.0, maps.1, scales.a, scales.b, c.elements, bias, sizes, rows, shared_by, finish);
    // SAFETY: the tensor maps have the boxes of the kernel and describe matrices of these sizes; the views check that
    // the sizes are below 2^31. The numbers of scales match these sizes; `c` is borrowed exclusively, and the bias has
    // n elements.
    unsafe { kernel.launch_unsafe(stream, clusters.launch(STAGES, 1), arguments) }
}
