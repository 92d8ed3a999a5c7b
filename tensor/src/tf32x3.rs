//! [`matmul_tf32x3()`]: `f32` GEMM on tensor cores as three TF32 GEMMs (3xTF32).

use gpu_std::tensor::{KMajor, MnMajor};
use gpu_std::{Kernel, param};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Launch, Result, Stream};
use warpsmith_tensor_kernels::matmul::{BOX, ROW_BYTES};
use warpsmith_tensor_kernels::non_persistent::{ROWS, RowStrides};
use warpsmith_tensor_kernels::tf32x3::{SPLIT_THREADS, STAGES, Whole, matmul_tf32x3 as kernel, split_tf32};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matmul::{a_map, b_map, check_device};
use crate::matrix::{Matrix, MatrixMut, Stored, check_sides};
use crate::non_persistent::Clusters;
use crate::schedule::SHARED;
use crate::simt::matmul_f32;

const OPERATION: &str = "matmul_tf32x3";
/// Maximum number of tiles per matrix that the split kernel supports.
const MAX_TILES: u64 = i32::MAX as u64;

/// Computes [`matmul_f32()`] on tensor cores (3xTF32). Each `f32` is split into a high and a low part of 11 bits each,
/// and the results of three GEMMs with these parts are added. The error is about as large as for [`matmul_f32()`], but
/// the results are not bit-identical. Numbers below 2^-103 lose some of their bits. An infinity in `a` or `b` makes its
/// row or column of `c` infinite or NaN, as does a product that overflows. The parts are stored in temporary memory
/// that is twice as large as `a` and `b`. With k = 0 the sums are zero.
///
/// # Errors
/// Returns the same errors as [`matmul_f32()`], except that [`TensorError::Device`] is returned if the compute
/// capability is not 9.0.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, matmul_tf32x3};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// // More bits than TF32 has.
/// let b = DeviceBuffer::from_host(&stream, &[1.0 + 1.0 / 65536.0, 0.5, 0.25])?;
/// let mut c = DeviceBuffer::zeros(&stream, 2)?;
/// matmul_tf32x3(&stream, &Epilogue::default(), a.as_2d(2, 3)?, b.as_2d(3, 1)?, c.as_2d_mut(2, 1)?)?;
/// assert_eq!(c.to_host()?, [2.75 + 1.0 / 65536.0, 8.0 + 4.0 / 65536.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_tf32x3<'a, 'b, 'c>(
    stream: &Stream,
    epilogue: &Epilogue<'_, f32>,
    a: impl Into<Matrix<'a, f32>>,
    b: impl Into<Matrix<'b, f32>>,
    c: impl Into<MatrixMut<'c, f32>>,
) -> Result<()> {
    let _site = site();
    let (a, b, c) = (a.into(), b.into(), c.into());
    epilogue.check_kernel(OPERATION, false)?;
    check_sides(OPERATION, &a, &b, &c, c.columns())?;
    epilogue.check_bias(OPERATION, c.columns())?;
    check_device(OPERATION, stream.device())?;
    let (m, n, k, batches) = (c.rows(), c.columns(), a.columns(), c.planes());
    if m == 0 || n == 0 || batches == 0 {
        return Ok(());
    }
    if k == 0 {
        return matmul_f32(stream, epilogue, a, b, c);
    }
    let clusters = Clusters::new(OPERATION, stream, (ROW_BYTES / 4, 3.0, SHARED), (&a, &b, &c))?;
    let wholes = (Divided::new(a, a.is_transposed)?, Divided::new(b, !b.is_transposed)?);
    let (a_parts, b_parts) = (wholes.0.parts(stream)?, wholes.1.parts(stream)?);
    let maps = (a_map(a_parts.matrix(false), ROWS as u32)?, b_map(b_parts.matrix(true), BOX)?);
    let rows = RowStrides { pitch: c.stored.row_stride as u64, plane: c.stored.plane_stride as u64 };
    let (sizes, shared_by) = (clusters.sizes, clusters.shared_by());
    let kernel = stream.device().load(&IMAGE)?.kernel::<kernel>()?;
    let arguments = (maps.0, maps.1, c.elements, epilogue.bias, sizes, rows, shared_by, epilogue.finish());
    // SAFETY: the tensor maps have the boxes of the kernel and describe the parts of matrices of these sizes; the views
    // check that the sizes are below 2^31. `c` is borrowed exclusively, and the bias has n elements.
    unsafe { kernel.launch_unsafe(stream, clusters.launch(STAGES, 2), arguments) }
}

/// Matrix or batch to split.
struct Divided<'a> {
    from: DeviceSlice<'a, f32>,
    whole: Whole,
    /// True if K is not the dimension that is contiguous in memory.
    is_across: bool,
}

impl<'a> Divided<'a> {
    fn new(matrix: Matrix<'a, f32>, is_across: bool) -> Result<Self> {
        let Stored { planes, rows, columns, plane_stride, row_stride } = matrix.stored;
        let (rows, columns) = if is_across { (columns, rows) } else { (rows, columns) };
        let whole = Whole {
            rows: rows as u32,
            columns: columns as u32,
            planes: planes as u32,
            from: RowStrides { pitch: row_stride as u64, plane: plane_stride as u64 },
            pitch: columns.next_multiple_of(4) as u32,
        };
        if whole.tiles() > MAX_TILES {
            let what = format!("{planes} matrices of {rows} x {columns} have more than {MAX_TILES} tiles");
            return Err(TensorError::Shape { operation: OPERATION, what }.into());
        }
        Ok(Self { from: matrix.elements, whole, is_across })
    }

    /// Enqueues the kernel that splits the numbers.
    fn parts(&self, stream: &Stream) -> Result<Parts> {
        let Whole { rows, columns, planes, pitch, .. } = self.whole;
        let [planes, rows, columns, row_stride] =
            [2 * planes, rows, columns, pitch].map(|side| side as usize);
        let stored = Stored { planes, rows, columns, plane_stride: rows * row_stride, row_stride };
        let mut parts = DeviceBuffer::uninit(stream, planes * stored.plane_stride)?;
        if self.is_across {
            self.divide::<split_tf32<MnMajor>>(stream, &mut parts)?;
        } else {
            self.divide::<split_tf32<KMajor>>(stream, &mut parts)?;
        }
        Ok(Parts { parts, stored })
    }

    fn divide<K>(&self, stream: &Stream, parts: &mut DeviceBuffer<f32>) -> Result<()>
    where
        K: Kernel<Params = (param::Slice<f32>, param::SliceMut<f32>, param::Value<Whole>)>,
    {
        let most = stream.device().properties().multiprocessors.max(1) * 16;
        let launch = Launch::grid_block(most.min(self.whole.tiles() as u32), SPLIT_THREADS);
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        // SAFETY: `from` contains these matrices, and `parts` has space for both parts of all elements.
        unsafe { kernel.launch_unsafe(stream, launch, (self.from, parts, self.whole)) }
    }
}

/// Parts of a batch of matrices. Each matrix becomes two planes, with rows along K.
struct Parts {
    parts: DeviceBuffer<f32>,
    stored: Stored,
}

impl Parts {
    /// Returns the parts as a matrix, with rows along K or, if `is_transposed`, with columns along K.
    fn matrix(&self, is_transposed: bool) -> Matrix<'_, f32> {
        Matrix { elements: self.parts.as_slice(), stored: self.stored, is_transposed }
    }
}
