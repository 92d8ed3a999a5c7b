//! [`matmul_grouped()`]: grouped GEMM. Each group of rows is multiplied by its own matrix.

use gpu_std::tensor::{KMajor, MnMajor};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, Launch, Result, Stream};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::grouped::{
    Groups, LARGE, SMALL, STAGES, matmul_grouped as kernel, matmul_grouped_small as skinny,
};
use warpsmith_tensor_kernels::matmul::BOX;
use warpsmith_tensor_kernels::mma::{self, matmul_mma_grouped};
use warpsmith_tensor_kernels::non_persistent::{shared_bytes, threads};
use warpsmith_tensor_kernels::simt::Strides;

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matmul::{a_map, b_map, has_wgmma};
use crate::matrix::{Matrix, MatrixMut, check_rows};
use crate::simt::problem;
use crate::skinny::check_device;

const OPERATION: &str = "matmul_grouped";
/// Maximum number of blocks per launch.
const MAX_BLOCKS: u64 = i32::MAX as u64;
/// Maximum number of tile rows per raster group. The blocks of a raster group proceed together from one tile column to
/// the next.
const MAX_RASTER_GROUP: usize = 16;
/// Maximum mean number of rows per group for which 64-row tiles are used.
const MAX_SMALL_ROWS: usize = 64;

/// Element types of [`matmul_grouped()`]: `bf16` and `f16`.
///
/// See the example of [`matmul_grouped()`].
pub trait GroupedElement: DeviceCopy {
    #[doc(hidden)]
    fn launch(product: Product<'_, '_, Self>) -> Result<()>;
    #[doc(hidden)]
    fn launch_mma(product: Product<'_, '_, Self>) -> Result<()>;
}

/// Grouped GEMM, as in mixture-of-experts layers: `c = activation(scale * a * b + bias)`. Group i consists of the rows
/// of `a` from `offsets[i]` up to, but not including, `offsets[i + 1]`; it is multiplied by plane i of `b`. `a` is m×k,
/// `b` contains one k×n matrix per group, and `c` is m×n.
///
/// The number of offsets is the number of groups plus one. Offsets are `u32`, because a view has fewer than 2^31 rows.
/// The offsets are in device memory; the host does not read them. A group ends where the next one starts. For any
/// offsets, no row belongs to two groups. Rows of `c` that belong to no group are left unchanged. The bias has n
/// elements per group. `c` does not have to be aligned. Products are accumulated in `f32`, and each result is rounded
/// once.
///
/// # Errors
/// Returns [`TensorError::Groups`] if the sizes do not match or k is 0; [`TensorError::Layout`] for a transposed `a`;
/// [`TensorError::Alignment`] for an `a` or `b` whose address, row stride or plane stride is not a multiple of 16
/// bytes; [`TensorError::Device`] if the compute capability is below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors). Unless the compute capability is 9.0, k must be a multiple of 8, and
/// so must n if `b` is not transposed; otherwise the function returns [`TensorError::Groups`].
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, matmul_grouped};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let numbers = |numbers: &[f32]| numbers.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
/// // Three rows of 8 ones: one of the first group, two of the second.
/// let a = DeviceBuffer::from_host(&stream, &numbers(&[1.0; 24]))?;
/// let offsets = DeviceBuffer::from_host(&stream, &[0u32, 1, 3])?;
/// // A matrix of 8 x 8 ones for the first, and one of twos for the second.
/// let b = DeviceBuffer::from_host(&stream, &numbers(&[[1.0; 64], [2.0; 64]].concat()))?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 3 * 8)?;
/// let (a, b) = (a.as_2d(3, 8)?, b.as_3d(2, 8, 8)?);
/// matmul_grouped(&stream, &Epilogue::default(), a, offsets.as_slice(), b, c.as_2d_mut(3, 8)?)?;
/// assert_eq!(c.to_host()?, numbers(&[[8.0; 8], [16.0; 8], [16.0; 8]].concat()));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_grouped<'a, 'b, 'c, T: GroupedElement>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T>,
    a: impl Into<Matrix<'a, T>>,
    offsets: DeviceSlice<'_, u32>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T>>,
) -> Result<()> {
    let _site = site();
    let is_mma = !has_wgmma(stream.device());
    run(stream, is_mma, epilogue, a.into(), offsets, b.into(), c.into())
}

/// Like [`matmul_grouped()`], but with `mma.sync`, for tests and benchmarks.
///
/// # Errors
/// Returns the same errors as [`matmul_grouped()`].
#[doc(hidden)]
#[track_caller]
pub fn matmul_grouped_mma<'a, 'b, 'c, T: GroupedElement>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T>,
    a: impl Into<Matrix<'a, T>>,
    offsets: DeviceSlice<'_, u32>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T>>,
) -> Result<()> {
    let _site = site();
    run(stream, true, epilogue, a.into(), offsets, b.into(), c.into())
}

fn run<T: GroupedElement>(
    stream: &Stream,
    is_mma: bool,
    epilogue: &Epilogue<'_, T>,
    a: Matrix<'_, T>,
    offsets: DeviceSlice<'_, u32>,
    b: Matrix<'_, T>,
    c: MatrixMut<'_, T>,
) -> Result<()> {
    let (m, n, k, count) = (c.rows(), c.columns(), a.columns(), b.planes());
    let shape = |what| Err(TensorError::Groups { operation: OPERATION, what }.into());
    if a.planes() != 1 || c.planes() != 1 {
        return shape(format!(
            "a is a batch of {} matrices and c of {}; each must be one matrix that contains the rows of all groups",
            a.planes(),
            c.planes()
        ));
    }
    if (a.rows(), b.rows(), b.columns()) != (m, k, n) {
        let sides = (a.rows(), b.rows(), b.columns());
        return shape(format!(
            "a is {} x {k}, b is {count} matrices of {} x {}, c is {m} x {n}",
            sides.0, sides.1, sides.2
        ));
    }
    if offsets.len() != count + 1 {
        return shape(format!("there are {} offsets for {count} groups; pass {}", offsets.len(), count + 1));
    }
    epilogue.check_kernel(OPERATION, false)?;
    if let Some(bias) = epilogue.bias
        && bias.len() != count * n
    {
        return shape(format!(
            "the bias has {} elements, but {count} groups of {n} columns require {}",
            bias.len(),
            count * n
        ));
    }
    if a.is_transposed {
        let element = std::any::type_name::<T>();
        return Err(TensorError::Layout { operation: OPERATION, matrix: "a", element }.into());
    }
    check_device(OPERATION, stream.device())?;
    for (name, columns) in [("a", a.stored.columns), ("b", b.stored.columns)] {
        if is_mma && !columns.is_multiple_of(8) {
            return shape(format!(
                "the rows of {name} have {columns} elements, which must be a multiple of 8"
            ));
        }
    }
    if m == 0 || n == 0 || count == 0 {
        return Ok(());
    }
    if k == 0 {
        return shape("k is 0".to_owned());
    }
    check_rows(OPERATION, "a", a.elements, a.stored)?;
    check_rows(OPERATION, "b", b.elements, b.stored)?;
    let tile = if m / count <= MAX_SMALL_ROWS { SMALL } else { LARGE };
    let groups = Groups {
        count: count as u32,
        m: m as u32,
        n: n as u32,
        k: k as u32,
        // Tiles of the same group use the same columns of `b`.
        raster_group: (m / count).div_ceil(tile[0] as usize).clamp(1, MAX_RASTER_GROUP) as u32,
        pitch: c.stored.row_stride as u64,
    };
    let most = groups.blocks(tile);
    if count > MAX_BLOCKS as usize || most > MAX_BLOCKS {
        return shape(format!(
            "{m} rows of {count} groups require up to {most} tiles, more than the maximum of {MAX_BLOCKS}"
        ));
    }
    let product = Product { stream, epilogue: *epilogue, a, offsets, b, c, groups, tile };
    if is_mma { T::launch_mma(product) } else { T::launch(product) }
}

/// Validated arguments for a grouped GEMM.
#[doc(hidden)]
pub struct Product<'a, 'c, T: DeviceCopy> {
    stream: &'a Stream,
    epilogue: Epilogue<'a, T>,
    a: Matrix<'a, T>,
    offsets: DeviceSlice<'a, u32>,
    b: Matrix<'a, T>,
    c: MatrixMut<'c, T>,
    groups: Groups,
    /// Numbers of rows and columns of a tile.
    tile: [u32; 2],
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl GroupedElement for $ty {
            fn launch(product: Product<'_, '_, Self>) -> Result<()> {
                match (product.b.is_transposed, product.tile) {
                    (true, SMALL) => product.run::<skinny<$ty, KMajor>>(),
                    (true, _) => product.run::<kernel<$ty, KMajor>>(),
                    (false, SMALL) => product.run::<skinny<$ty, MnMajor>>(),
                    (false, _) => product.run::<kernel<$ty, MnMajor>>(),
                }
            }

            fn launch_mma(product: Product<'_, '_, Self>) -> Result<()> {
                match (product.b.is_transposed, product.tile) {
                    (true, SMALL) => product.run_mma::<matmul_mma_grouped<$ty, KMajor, 2>>(),
                    (true, _) => product.run_mma::<matmul_mma_grouped<$ty, KMajor, 8>>(),
                    (false, SMALL) => product.run_mma::<matmul_mma_grouped<$ty, MnMajor, 2>>(),
                    (false, _) => product.run_mma::<matmul_mma_grouped<$ty, MnMajor, 8>>(),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Parameters of the `mma.sync` kernels.
type MmaParams<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::Slice<u32>,
    param::Optional<param::Slice<T>>,
    param::Value<Groups>,
    param::Value<Strides>,
    param::Value<EpilogueParams>,
);

/// Parameters of the `wgmma` kernels.
type Params<T> = (
    param::TensorMap<T, 3>,
    param::TensorMap<T, 3>,
    param::SliceMut<T>,
    param::Slice<u32>,
    param::Optional<param::Slice<T>>,
    param::Value<Groups>,
    param::Value<EpilogueParams>,
);

impl<T: DeviceCopy> Product<'_, '_, T> {
    fn run<K: Kernel<Params = Params<T>>>(self) -> Result<()> {
        let Self { stream, epilogue, a, offsets, b, c, groups, tile } = self;
        let [height, width] = tile.map(|side| side as usize);
        let maps = (a_map(a, tile[0])?, b_map(b, BOX)?);
        let launch = Launch::grid_block(groups.blocks(tile) as u32, threads(height))
            .shared(shared_bytes(height, width, STAGES, 1));
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = (maps.0, maps.1, c.elements, offsets, epilogue.bias, groups, epilogue.finish());
        // SAFETY: the kernel instance matches the layouts and the tile. The tensor maps have its boxes and describe
        // matrices of these sizes, with one plane of `b` per group; the views check that all sizes are below 2^31.
        // Offsets and bias have the lengths that the kernel requires; `c` is borrowed exclusively.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }

    fn run_mma<K: Kernel<Params = MmaParams<T>>>(self) -> Result<()> {
        let Self { stream, epilogue, a, offsets, b, c, groups, tile } = self;
        let [height, width] = tile.map(|side| side as usize);
        let (_, strides) = problem(&a, &b, &c, groups.k);
        let launch = Launch::grid_block(groups.blocks(tile) as u32, mma::threads(height, width))
            .shared(mma::shared_bytes(height, width));
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let (bias, finish) = (epilogue.bias, epilogue.finish());
        let arguments = (a.elements, b.elements, c.elements, offsets, bias, groups, strides, finish);
        // SAFETY: the kernel instance matches the layouts and the tile. The strides describe the matrices, whose rows
        // start and end on 16-byte boundaries; the views check that all sizes are below 2^31. Offsets and bias have the
        // lengths that the kernel requires; `c` is borrowed exclusively.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }
}
