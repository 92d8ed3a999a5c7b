//! `c = a * b`: checks the matrices, selects the kernel instance, the cluster size and the split-K factor, and
//! launches the kernel.

use gpu_std::tensor::{F8E4M3, KMajor, MnMajor};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    Arguments, Device, DeviceBuffer, DeviceCopy, Launch, Result, Stream, Swizzle, TensorLayout, TensorMap,
    TensorMapMut,
};
use warpsmith_tensor_kernels::epilogue::{EpilogueParams, finish_nothing, swiglu};
use warpsmith_tensor_kernels::matmul::{
    self as kernels, BOX, GROUP_ROWS, ROW_BYTES, SHARED_BYTES, Sizes, THREADS, TILE_M, TILE_N,
};
use warpsmith_tensor_kernels::non_persistent::{self, RowStrides};
use warpsmith_tensor_kernels::skinny::MAX_M;

use crate::epilogue::{Activation, Epilogue};
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut, Stored, check_rows, check_sides, has_layout};
use crate::schedule::{CLUSTER, LARGE, SHARED, Schedule, Work, multiprocessors};
use crate::{IMAGE, mma, skinny};

const OPERATION: &str = "matmul";
/// Schedule of GEMMs with SwiGLU.
const SWIGLU: Schedule = Schedule { tile: [TILE_M, TILE_N / 2], cluster: CLUSTER, split_k: 1 };
/// Minimum number of rows for which one kernel for the GEMM and SwiGLU is faster than two.
const FUSED_SWIGLU_ROWS: usize = 192;
/// Threads per block of the kernel that handles k = 0.
const NOTHING_THREADS: u32 = 256;

/// Element types of matrices.
///
/// | type | output | sums | fast layouts |
/// | --- | --- | --- | --- |
/// | `bf16`, `f16` | the same | `f32` | all |
/// | `f32`, as TF32 (only the upper 19 bits are used) | `f32` | `f32` | `b` transposed |
/// | [`F8E4M3`] | `bf16` | `f32`; `wgmma` adds with about 14 bits of mantissa | `b` transposed |
/// | `i8` | `i32` | `i32`, wrapping | `b` transposed |
///
/// See the example of [`matmul()`].
pub trait GemmElement: kernels::GemmOperand<Output: DeviceCopy> + DeviceCopy {
    /// Enqueues the GEMM.
    #[doc(hidden)]
    fn launch(product: Product<'_, '_, Self>) -> Result<()>;
    /// Function that enqueues the GEMM with the non-persistent kernel, which computes one tile per cluster. `None` if
    /// no such kernel exists for the type.
    #[doc(hidden)]
    const BY_CLUSTERS: Option<fn(Product<'_, '_, Self>) -> Result<()>>;
    /// Function that enqueues the epilogue of a GEMM with k = 0. `None` if the type does not support epilogues.
    #[doc(hidden)]
    const OF_NOTHING: Option<fn(Product<'_, '_, Self>) -> Result<()>>;
    /// Enqueues a skinny GEMM. `None` if no such kernel exists for the type.
    #[doc(hidden)]
    const SKINNY: Option<skinny::Enqueue<Self, Self::Output>>;
    /// Function that enqueues a GEMM with SwiGLU. `None` if the type does not support it.
    #[doc(hidden)]
    const SWIGLU: Option<fn(Product<'_, '_, Self>) -> Result<()>>;
    /// Enqueues the GEMM with `mma.sync`.
    #[doc(hidden)]
    const MMA: skinny::Enqueue<Self, Self::Output>;
}

/// Selection of the kernels that compute a GEMM.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// The fastest kernels that support the device and the matrices.
    Default,
    /// Like [`Self::Default`], but without kernels for unaligned matrices.
    Aligned,
    /// `wgmma`, with this schedule.
    Schedule(Schedule),
    /// `mma.sync`, with this schedule or the default schedule.
    Mma(Option<Schedule>),
}

/// Properties of a GEMM that determine the kernels.
#[derive(Clone, Copy)]
struct Needs {
    /// True if the device supports `wgmma`.
    has_wgmma: bool,
    /// True if the rows of `a` and `b` start on 16-byte boundaries, in a layout of the type.
    is_aligned: bool,
    /// True if the rows of `c` start on 16-byte boundaries.
    is_c_aligned: bool,
    /// True if the non-persistent `wgmma` kernels, which store `c` without TMA, compute the GEMM.
    has_clusters: bool,
    /// True if the matrices have the shapes and layouts of skinny GEMM.
    is_skinny: bool,
}

impl Path {
    /// Returns the kernels for compute capability 8.0 and later that compute the GEMM. `None` selects `wgmma`.
    fn warp_kernels<T: GemmElement>(self, needs: Needs) -> Option<skinny::Enqueue<T, T::Output>> {
        match self {
            Self::Schedule(_) => None,
            Self::Mma(_) => Some(T::MMA),
            Self::Default | Self::Aligned => {
                let has_tma = needs.is_aligned && (needs.is_c_aligned || needs.has_clusters);
                let is_mma = !(needs.has_wgmma && has_tma) && (needs.is_aligned || self == Self::Default);
                let skinny = T::SKINNY.filter(|_| needs.is_skinny && needs.is_aligned);
                skinny.or(is_mma.then_some(T::MMA))
            }
        }
    }
}

/// GEMM: `c = a * b`, with `a` m×k, `b` k×n and `c` m×n, for each matrix of a batch. Each sum is rounded once. An
/// unbatched `a` or `b` is broadcast over the batch. The order of the additions depends on the sizes, the layouts, the
/// device, and whether the matrices are aligned to 16 bytes. With k = 0, `c` is set to zero.
///
/// The kernels for compute capability 8.0 and later (`mma.sync`) multiply matrices of any layout and alignment. Kernels
/// for 9.0 (`wgmma`) are faster, and multiply matrices that TMA can copy. `mma.sync` kernels convert FP8 to `f16`,
/// which is slower than a GEMM of `f16`. Elements are loaded one by one, which is several times slower, if the layout
/// is not a fast one, if the rows of `a` or `b` do not start on 16-byte boundaries, or with `mma.sync`, if the length
/// of a row is not a multiple of 16 bytes.
///
/// # Errors
/// Returns [`TensorError::Shape`]; [`TensorError::Device`] if the compute capability is below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::matmul;
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let ones = DeviceBuffer::from_host(&stream, &[bf16::ONE; 64])?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 64)?;
/// matmul(&stream, ones.as_2d(8, 8)?, ones.as_2d(8, 8)?, c.as_2d_mut(8, 8)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(8.0); 64]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul<'a, 'b, 'c, T: GemmElement>(
    stream: &Stream,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Default, &Epilogue::default(), a.into(), b.into(), c.into())
}

/// Like [`matmul()`], but with a fused [`Epilogue`], which avoids a separate pass over `c`. With k = 0 the sums are
/// zero.
///
/// # Errors
/// Returns the same errors as [`matmul()`], or [`TensorError::Shape`] if the length of the bias differs from the number
/// of columns of `c`.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Activation, Epilogue, matmul_fused};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let ones = DeviceBuffer::from_host(&stream, &[bf16::ONE; 64])?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 64)?;
/// let epilogue = Epilogue { scale: -0.5, activation: Activation::Relu, ..Epilogue::default() };
/// matmul_fused(&stream, &epilogue, ones.as_2d(8, 8)?, ones.as_2d(8, 8)?, c.as_2d_mut(8, 8)?)?;
/// assert_eq!(c.to_host()?, [bf16::ZERO; 64]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_fused<'a, 'b, 'c, T: GemmElement<Sum = f32>>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Default, epilogue, a.into(), b.into(), c.into())
}

/// Like [`matmul_fused()`], but with an explicit schedule. `None` selects the default schedule.
///
/// # Errors
/// Returns the same errors as [`matmul_fused()`], or [`TensorError::Schedule`] if no kernel exists for the schedule.
/// With a schedule, also returns [`TensorError::Device`] if the compute capability is not 9.0,
/// [`TensorError::Alignment`] for a matrix whose address or row stride is not a multiple of 16 bytes, and
/// [`TensorError::Layout`] for a layout that is not a fast one in the table of [`GemmElement`].
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, Schedule, matmul_with};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[bf16::ONE; 8 * 128])?;
/// let b = DeviceBuffer::from_host(&stream, &[bf16::ONE; 128 * 8])?;
/// let mut c = DeviceBuffer::<bf16>::uninit(&stream, 64)?;
/// let split = Schedule { tile: [64, 128], cluster: 1, split_k: 2 };
/// let (a, b) = (a.as_2d(8, 128)?, b.as_2d(128, 8)?);
/// matmul_with(&stream, split, &Epilogue::default(), a, b, c.as_2d_mut(8, 8)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(128.0); 64]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn matmul_with<'a, 'b, 'c, T: GemmElement<Sum = f32>>(
    stream: &Stream,
    schedule: impl Into<Option<Schedule>>,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    let path = schedule.into().map_or(Path::Default, Path::Schedule);
    run(stream, path, epilogue, a.into(), b.into(), c.into())
}

/// Like [`matmul_fused()`], but for all types. If the caller can use a library instead, matrices whose elements would
/// be loaded one by one are an error, because the library is faster.
///
/// # Errors
/// Returns the same errors as [`matmul_fused()`]. If `has_library` is true, returns [`TensorError::Alignment`],
/// [`TensorError::Layout`] or [`TensorError::Device`] for such matrices.
#[doc(hidden)]
#[track_caller]
pub fn matmul_or_library<T: GemmElement>(
    stream: &Stream,
    has_library: bool,
    epilogue: &Epilogue<'_, T::Output>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: MatrixMut<'_, T::Output>,
) -> Result<()> {
    run(stream, if has_library { Path::Aligned } else { Path::Default }, epilogue, a, b, c)
}

/// Like [`matmul_with()`], but with `mma.sync`, for tests and benchmarks.
///
/// # Errors
/// Returns the same errors as [`matmul_with()`].
#[doc(hidden)]
#[track_caller]
pub fn matmul_mma<'a, 'b, 'c, T: GemmElement>(
    stream: &Stream,
    schedule: Option<Schedule>,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Mma(schedule), epilogue, a.into(), b.into(), c.into())
}

pub(crate) fn run<T: GemmElement>(
    stream: &Stream,
    path: Path,
    epilogue: &Epilogue<'_, T::Output>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    mut c: MatrixMut<'_, T::Output>,
) -> Result<()> {
    let (m, n, k, batches) = (c.rows(), c.columns(), a.columns(), c.planes());
    check_sides(OPERATION, &a, &b, &c, epilogue.columns_of_b(n))?;
    epilogue.check_bias(OPERATION, b.columns())?;
    epilogue.check_norm(OPERATION, k)?;
    let rows = check_rows(OPERATION, "a", a.elements, a.stored)
        .and_then(|()| check_rows(OPERATION, "b", b.elements, b.stored));
    let c_rows = check_rows(OPERATION, "c", c.elements.as_slice(), c.stored);
    let fused = match path {
        Path::Default | Path::Aligned if !a.is_transposed && b.is_transposed && rows.is_ok() => T::SKINNY,
        _ => None,
    };
    epilogue.check_kernel(OPERATION, fused.is_some())?;
    let fused = fused.filter(|_| epilogue.needs_skinny());
    let has_clusters = !a.is_transposed && T::BY_CLUSTERS.is_some();
    let warp_kernels = fused.or(path.warp_kernels::<T>(Needs {
        has_wgmma: has_wgmma(stream.device()),
        is_aligned: rows.is_ok() && has_layout(&a, &b),
        is_c_aligned: c_rows.is_ok(),
        has_clusters,
        is_skinny: skinny::is_product(&a, &b),
    }));
    match warp_kernels {
        Some(_) => skinny::check_device(OPERATION, stream.device())?,
        None => check_device(OPERATION, stream.device())?,
    }
    if m == 0 || n == 0 || batches == 0 {
        return Ok(());
    }
    if k == 0 && epilogue.bias.is_none() && fused.is_none() {
        // The result is zero, because every activation maps zero to zero.
        return zero(stream, &mut c);
    }
    let tile_k = ROW_BYTES as usize / size_of::<T>();
    let work = Work {
        m: m as u32,
        n: n as u32,
        stages: k.div_ceil(tile_k) as u32,
        batches: batches as u32,
        multiprocessors: multiprocessors(stream.device()),
        tiles: if has_clusters { &Schedule::TILES } else { &[LARGE] },
        has_clusters,
        is_persistent: c_rows.is_ok(),
        slower: 1.0,
        shared: SHARED,
    };
    if let (Some(_), Some(swiglu)) = (fused, T::SWIGLU)
        && epilogue.is_only_swiglu()
        && m > MAX_M as usize
        && k > 0
        && batches == 1
    {
        return swiglu(Product { stream, a, b, c, epilogue: *epilogue, work, schedule: SWIGLU });
    }
    if let Some(enqueue) = warp_kernels {
        let schedule = if let Path::Mma(schedule) = path { schedule } else { None };
        return enqueue(skinny::Product {
            operation: OPERATION,
            stream,
            schedule,
            epilogue: *epilogue,
            a,
            b,
            c,
        });
    }
    if !has_layout(&a, &b) {
        let (matrix, element) = (if a.is_transposed { "a" } else { "b" }, std::any::type_name::<T>());
        return Err(TensorError::Layout { operation: OPERATION, matrix, element }.into());
    }
    rows?;
    if !has_clusters {
        c_rows.as_ref().map_err(Clone::clone)?;
    }
    let schedule = match path {
        Path::Schedule(schedule) => match schedule.missing(work.tiles, has_clusters) {
            Some(what) => return Err(TensorError::Schedule { operation: OPERATION, what }.into()),
            None => schedule,
        },
        _ => Schedule::of(work),
    };
    let product = Product { stream, a, b, c, epilogue: *epilogue, work, schedule };
    match (T::BY_CLUSTERS, T::OF_NOTHING) {
        // No valid tensor map exists for a matrix that has no columns.
        (_, Some(of_nothing)) if k == 0 => of_nothing(product),
        (Some(by_clusters), _) if has_clusters && !work.is_persistent(&schedule) => by_clusters(product),
        _ => T::launch(product),
    }
}

/// Fails on a device whose compute capability the kernels do not support.
pub(crate) fn check_device(operation: &'static str, device: &Device) -> Result<()> {
    if has_wgmma(device) {
        return Ok(());
    }
    Err(TensorError::device(operation, device, "9.0"))
}

/// Returns true if the device can run kernels with `wgmma`.
pub(crate) fn has_wgmma(device: &Device) -> bool {
    device.is_emulated() || device.properties().capability == (9, 0)
}

/// Writes zeros, which are the sums if k = 0.
fn zero<T: DeviceCopy>(stream: &Stream, c: &mut MatrixMut<'_, T>) -> Result<()> {
    let Stored { planes, rows, columns, plane_stride, row_stride } = c.stored;
    for row in (0..planes).flat_map(|plane| (0..rows).map(move |row| plane * plane_stride + row * row_stride))
    {
        stream.memset(c.elements.slice_mut(row..row + columns), 0)?;
    }
    Ok(())
}

/// Validated arguments for a GEMM.
#[doc(hidden)]
pub struct Product<'a, 'c, T: GemmElement> {
    stream: &'a Stream,
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: MatrixMut<'c, T::Output>,
    epilogue: Epilogue<'a, T::Output>,
    work: Work,
    schedule: Schedule,
}

macro_rules! elements {
    ($($ty:ty: $product:ident => $select:ident, $skinny:expr, $swiglu:expr;)*) => { $(
        impl GemmElement for $ty {
            fn launch($product: Product<'_, '_, Self>) -> Result<()> {
                $select!($product, $ty)
            }
            const BY_CLUSTERS: Option<fn(Product<'_, '_, Self>) -> Result<()>> =
                Some(|$product| $select!($product, $ty, non_persistent));
            const OF_NOTHING: Option<fn(Product<'_, '_, Self>) -> Result<()>> =
                Some(|product| product.of_nothing::<finish_nothing<<Self as kernels::GemmOperand>::Output>>());
            const SKINNY: Option<skinny::Enqueue<Self, Self::Output>> = $skinny;
            const SWIGLU: Option<fn(Product<'_, '_, Self>) -> Result<()>> = $swiglu;
            const MMA: skinny::Enqueue<Self, Self::Output> = mma::product;
        }
    )* };
}

/// Selects the kernel instance for the schedule's tile size.
macro_rules! by_tile {
    ($product:ident, $kernel:ident<$($ty:ty),*>) => {
        match $product.schedule.tile {
            [64, 128] => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 64, 128>>(),
            [64, 192] => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 64, 192>>(),
            [128, 192] => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 128, 192>>(),
            [64, _] => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 64, 256>>(),
            [_, 128] => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 128, 128>>(),
            _ => $product.by_clusters::<non_persistent::$kernel<$($ty,)* 128, 256>>(),
        }
    };
}

/// Selects the kernel instance for the layouts of `a` and `b`.
macro_rules! by_layout {
    ($product:ident, $ty:ty) => {
        match ($product.a.is_transposed, $product.b.is_transposed, $product.schedule.cluster) {
            (false, true, 1) => $product.fused::<kernels::matmul<$ty, KMajor, KMajor, 1>>(),
            (false, true, _) => $product.fused::<kernels::matmul<$ty, KMajor, KMajor, CLUSTER>>(),
            (false, false, 1) => $product.fused::<kernels::matmul<$ty, KMajor, MnMajor, 1>>(),
            (false, false, _) => $product.fused::<kernels::matmul<$ty, KMajor, MnMajor, CLUSTER>>(),
            (true, true, 1) => $product.fused::<kernels::matmul<$ty, MnMajor, KMajor, 1>>(),
            (true, true, _) => $product.fused::<kernels::matmul<$ty, MnMajor, KMajor, CLUSTER>>(),
            (true, false, 1) => $product.fused::<kernels::matmul<$ty, MnMajor, MnMajor, 1>>(),
            (true, false, _) => $product.fused::<kernels::matmul<$ty, MnMajor, MnMajor, CLUSTER>>(),
        }
    };
    ($product:ident, $ty:ty, non_persistent) => {
        match $product.b.is_transposed {
            true => by_tile!($product, matmul_non_persistent<$ty, KMajor>),
            false => by_tile!($product, matmul_non_persistent<$ty, MnMajor>),
        }
    };
}

macro_rules! k_major {
    ($product:ident, $ty:ty) => {
        match $product.schedule.cluster {
            1 => $product.fused::<kernels::matmul_tn<$ty, 1>>(),
            _ => $product.fused::<kernels::matmul_tn<$ty, CLUSTER>>(),
        }
    };
    ($product:ident, $ty:ty, non_persistent) => {
        by_tile!($product, matmul_non_persistent_tn<$ty>)
    };
}

elements! {
    bf16: product => by_layout, Some(skinny::product),
        Some(|product| product.swiglu::<kernels::matmul_swiglu<bf16>, swiglu<bf16>>());
    f16: product => by_layout, Some(skinny::product),
        Some(|product| product.swiglu::<kernels::matmul_swiglu<f16>, swiglu<f16>>());
    f32: product => k_major, None, None;
    F8E4M3: product => k_major, None, None;
}

impl GemmElement for i8 {
    fn launch(product: Product<'_, '_, Self>) -> Result<()> {
        match product.schedule.cluster {
            1 => product.plain::<kernels::matmul_integers<i8, 1>>(),
            _ => product.plain::<kernels::matmul_integers<i8, CLUSTER>>(),
        }
    }
    const BY_CLUSTERS: Option<fn(Product<'_, '_, Self>) -> Result<()>> = None;
    const OF_NOTHING: Option<fn(Product<'_, '_, Self>) -> Result<()>> = None;
    const SKINNY: Option<skinny::Enqueue<Self, Self::Output>> = None;
    const SWIGLU: Option<fn(Product<'_, '_, Self>) -> Result<()>> = None;
    const MMA: skinny::Enqueue<Self, Self::Output> = mma::product;
}

/// Parameters of kernels with an epilogue.
type Fused<T, C> = (
    param::TensorMap<T, 3>,
    param::TensorMap<T, 3>,
    param::TensorMap<C, 3>,
    param::Optional<param::Slice<C>>,
    param::Value<Sizes>,
    param::Value<EpilogueParams>,
);

/// Parameters of kernels without an epilogue.
type Plain<T, C> =
    (param::TensorMap<T, 3>, param::TensorMap<T, 3>, param::TensorMap<C, 3>, param::Value<Sizes>);

/// Parameters of non-persistent kernels (one tile per block).
type NonPersistent<T, C> = (
    param::TensorMap<T, 3>,
    param::TensorMap<T, 3>,
    param::SliceMut<C>,
    param::Optional<param::Slice<C>>,
    param::Value<Sizes>,
    param::Value<RowStrides>,
    param::Value<u32>,
    param::Value<EpilogueParams>,
);

/// Parameters of the kernel that computes SwiGLU.
type SwiGlu<C> =
    (param::Slice<C>, param::SliceMut<C>, param::Value<u32>, param::Value<u32>, param::Value<u64>);

/// Parameters of the kernel that handles k = 0.
type OfNothing<C> = (
    param::SliceMut<C>,
    param::Optional<param::Slice<C>>,
    param::Value<Sizes>,
    param::Value<RowStrides>,
    param::Value<EpilogueParams>,
);

impl<'a, 'c, T: GemmElement> Product<'a, 'c, T> {
    fn fused<K: Kernel<Params = Fused<T, T::Output>>>(self) -> Result<()> {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let inputs = Inputs { stream, a, b, work, schedule };
        // SAFETY: the kernel instance matches the layouts and the cluster size, and the bias has n elements.
        unsafe { inputs.launch::<K, _, _>(c, |[a, b], c, sizes| (a, b, c, bias, sizes, finish)) }
    }

    fn plain<K: Kernel<Params = Plain<T, T::Output>>>(self) -> Result<()> {
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let inputs = Inputs { stream, a, b, work, schedule };
        // SAFETY: the kernel instance matches the layouts and the cluster size.
        unsafe { inputs.launch::<K, _, _>(c, |[a, b], c, sizes| (a, b, c, sizes)) }
    }

    fn by_clusters<K: Kernel<Params = NonPersistent<T, T::Output>>>(self) -> Result<()> {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let Schedule { tile: [height, width], cluster, split_k } = schedule;
        let inputs = Inputs { stream, a, b, work, schedule };
        let (a, b) = (a_map(a, height)?, b_map(b, BOX)?);
        let (height, width) = (height as usize, width as usize);
        let launch = Launch::grid_block(inputs.tiles()? * cluster, non_persistent::threads(height))
            .shared(non_persistent::shared_bytes(height, width, non_persistent::stages(height, width), 1))
            .cluster(cluster * split_k);
        let launch = if schedule.starts_early() { launch.dependent() } else { launch };
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = (a, b, c.elements, bias, inputs.sizes(), rows(c.stored), cluster, finish);
        // SAFETY: the kernel instance matches the layouts and the tile. The tensor maps have its boxes and describe
        // matrices of these sizes; the views check that the sizes are below 2^31. `c` is borrowed exclusively, and the
        // bias has n elements.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }

    /// Enqueues a GEMM with SwiGLU: one kernel if `c` has enough rows, the device has `wgmma` and TMA can write `c`;
    /// otherwise, a GEMM kernel and an elementwise kernel.
    fn swiglu<K, S>(self) -> Result<()>
    where
        K: Kernel<Params = Fused<T, T::Output>>,
        S: Kernel<Params = SwiGlu<T::Output>>,
    {
        let Self { stream, a, b, c, epilogue, work, schedule } = self;
        let (m, n, row_stride) = (c.rows(), c.columns(), b.stored.row_stride);
        if has_wgmma(stream.device()) && work.is_persistent && m >= FUSED_SWIGLU_ROWS {
            let stored = Stored { planes: 2, rows: n, plane_stride: n * row_stride, ..b.stored };
            let inputs = Inputs { stream, a, b: Matrix { stored, ..b }, work, schedule };
            let (bias, finish) = (epilogue.bias, epilogue.finish());
            // SAFETY: the kernel is for these layouts and this cluster size, and the bias has 2 * n elements.
            return unsafe { inputs.launch::<K, _, _>(c, |[a, b], c, sizes| (a, b, c, bias, sizes, finish)) };
        }
        let mut both = DeviceBuffer::uninit(stream, 2 * m * n)?;
        let stored =
            Stored { planes: 1, rows: m, columns: 2 * n, plane_stride: 2 * m * n, row_stride: 2 * n };
        let to = MatrixMut { elements: both.as_mut_slice(), stored };
        let of_both = Epilogue { activation: Activation::None, ..epilogue };
        run(stream, Path::Default, &of_both, a, b, to)?;
        let blocks =
            (m * n).div_ceil(NOTHING_THREADS as usize).min((work.multiprocessors.max(1) * 16) as usize);
        let kernel = stream.device().load(&IMAGE)?.kernel::<S>()?;
        let launch = Launch::grid_block(blocks as u32, NOTHING_THREADS);
        let pitch = c.stored.row_stride as u64;
        // SAFETY: `both` has rows of 2 * n elements, and `c` has as many rows of n elements.
        unsafe { kernel.launch_unsafe(stream, launch, (&both, c.elements, m as u32, n as u32, pitch)) }
    }

    fn of_nothing<K: Kernel<Params = OfNothing<T::Output>>>(self) -> Result<()> {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let sizes = Inputs { stream, a, b, work, schedule }.sizes();
        let blocks = u64::from(work.batches) * u64::from(work.m) * u64::from(work.n.div_ceil(4));
        let blocks = blocks.div_ceil(NOTHING_THREADS.into()).min((work.multiprocessors.max(1) * 8).into());
        let launch = Launch::grid_block(blocks as u32, NOTHING_THREADS);
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        // SAFETY: `c` contains all matrices of the batch, and the bias has n elements.
        unsafe { kernel.launch_unsafe(stream, launch, (c.elements, bias, sizes, rows(c.stored), finish)) }
    }
}

fn rows(stored: Stored) -> RowStrides {
    RowStrides { pitch: stored.row_stride as u64, plane: stored.plane_stride as u64 }
}

/// Inputs that all GEMM kernels take.
struct Inputs<'a, T: DeviceCopy> {
    stream: &'a Stream,
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    work: Work,
    schedule: Schedule,
}

impl<'a, T: GemmElement> Inputs<'a, T> {
    /// Launches a kernel with the arguments that the closure `arguments` builds from the tensor maps and the sizes.
    ///
    /// # Safety
    /// The kernel must be an instance of [`kernels::product`] for these layouts and the cluster size of the schedule.
    unsafe fn launch<'c, K: Kernel, C: DeviceCopy, A: Arguments<K::Params>>(
        self,
        c: MatrixMut<'c, C>,
        arguments: impl FnOnce([TensorMap<'a, T, 3>; 2], TensorMapMut<'c, C, 3>, Sizes) -> A,
    ) -> Result<()> {
        let Schedule { cluster, .. } = self.schedule;
        let c_layout = layout::<C>(c.stored, [ROW_BYTES / size_of::<C>() as u32, GROUP_ROWS]);
        let maps = [a_map(self.a, TILE_M)?, b_map(self.b, TILE_N / cluster)?];
        let c = c.elements.tensor_map_mut(&c_layout)?;
        let tiles = self.tiles()?;
        // An SM has enough shared memory for only one block.
        let resident = (self.work.multiprocessors / cluster).max(1);
        let grid = tiles.min(resident) * cluster;
        let launch = Launch::grid_block(grid, THREADS).shared(SHARED_BYTES).cluster(cluster).dependent();
        let kernel = self.stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = arguments(maps, c, self.sizes());
        // SAFETY: the tensor maps have the boxes that the kernel requires and describe matrices of these sizes; the
        // views check that the sizes are below 2^31. `c` is borrowed exclusively. The caller guarantees that the kernel
        // is a matching instance.
        unsafe { kernel.launch_unsafe(self.stream, launch, arguments) }
    }

    /// Returns the problem size as the kernel parameter represents it.
    fn sizes(&self) -> Sizes {
        Sizes {
            m: self.work.m,
            n: self.work.n,
            k: self.a.columns() as u32,
            batches: self.work.batches,
            a_planes: self.a.planes() as u32,
            b_planes: self.b.planes() as u32,
            split_stages: self.work.split_stages(self.schedule.split_k),
        }
    }

    /// Returns the number of tiles in the whole batch; each cluster computes one.
    fn tiles(&self) -> Result<u32> {
        let Schedule { tile: [height, width], cluster, split_k } = self.schedule;
        let Work { m, n, batches, .. } = self.work;
        let planes = u64::from(batches) * u64::from(split_k);
        match u64::from(m.div_ceil(height * cluster)) * u64::from(n.div_ceil(width)) * planes {
            tiles if tiles <= MAX_TILES => Ok(tiles as u32),
            tiles => {
                let what = format!("c has {tiles} full and partial tiles, more than {MAX_TILES}");
                Err(TensorError::Shape { operation: OPERATION, what }.into())
            }
        }
    }
}

/// Maximum number of tiles. Up to this limit, tile indices do not overflow, and a grid can have two blocks per tile.
const MAX_TILES: u64 = (1 << 30) - 1;

/// Returns the tensor map of `a`, with boxes of `rows` rows.
pub(crate) fn a_map<T: DeviceCopy>(a: Matrix<'_, T>, rows: u32) -> Result<TensorMap<'_, T, 3>> {
    operand_map(a, !a.is_transposed, rows)
}

/// Returns the tensor map of `b`, with boxes of `columns` columns.
pub(crate) fn b_map<T: DeviceCopy>(b: Matrix<'_, T>, columns: u32) -> Result<TensorMap<'_, T, 3>> {
    operand_map(b, b.is_transposed, columns)
}

fn operand_map<T: DeviceCopy>(
    operand: Matrix<'_, T>,
    is_k_major: bool,
    side: u32,
) -> Result<TensorMap<'_, T, 3>> {
    let tile = if is_k_major { [ROW_BYTES / size_of::<T>() as u32, side] } else { [BOX, BOX] };
    operand.elements.tensor_map(&layout::<T>(operand.stored, tile))
}

fn layout<T>(stored: Stored, [width, height]: [u32; 2]) -> TensorLayout<3> {
    // The kernel does not use the stride of a dimension of size 1, so the stride may not be a multiple of 16 bytes.
    // Tensor maps require a multiple of 16 bytes, so the stride is rounded up.
    let unit = 16 / size_of::<T>();
    let stride = |elements: usize| elements.next_multiple_of(unit).max(unit);
    TensorLayout {
        dims: [stored.columns, stored.rows, stored.planes],
        strides: [1, stride(stored.row_stride), stride(stored.plane_stride)],
        tile: [width, height, 1],
        swizzle: Swizzle::Bytes128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `wgmma`, `mma`, `skinny`, or `nothing` if there are no kernels for the matrices.
    fn kernels<T: GemmElement>(path: Path, needs: Needs) -> &'static str {
        match path.warp_kernels::<T>(needs) {
            Some(of) if T::SKINNY.is_some_and(|skinny| std::ptr::fn_addr_eq(skinny, of)) => "skinny",
            Some(_) => "mma",
            None if needs.has_wgmma && needs.is_aligned => "wgmma",
            None => "nothing",
        }
    }

    #[test]
    fn kernels_are_selected_by_device_and_alignment() {
        let (aligned, c) = (true, false);
        let needs = |has_wgmma, is_aligned| Needs {
            has_wgmma,
            is_aligned,
            is_c_aligned: c,
            has_clusters: true,
            is_skinny: false,
        };
        for (path, unaligned) in [(Path::Default, "mma"), (Path::Aligned, "nothing")] {
            assert_eq!(kernels::<bf16>(path, needs(true, aligned)), "wgmma");
            assert_eq!(kernels::<bf16>(path, needs(false, aligned)), "mma");
            assert_eq!(kernels::<bf16>(path, needs(true, !aligned)), unaligned);
            assert_eq!(kernels::<bf16>(path, needs(false, !aligned)), unaligned);
            // TMA stores the product of a transposed `a`, so `c` must be aligned.
            let transposed = Needs { has_clusters: false, ..needs(true, aligned) };
            assert_eq!(kernels::<f16>(path, transposed), "mma");
            assert_eq!(kernels::<f16>(path, Needs { is_c_aligned: true, ..transposed }), "wgmma");
            let skinny = Needs { is_skinny: true, ..needs(false, aligned) };
            assert_eq!(kernels::<f16>(path, skinny), "skinny");
            assert_eq!(kernels::<f16>(path, Needs { is_aligned: false, ..skinny }), unaligned);
            for has_wgmma in [true, false] {
                let expected = if has_wgmma { "wgmma" } else { "mma" };
                assert_eq!(kernels::<f32>(path, needs(has_wgmma, aligned)), expected);
                assert_eq!(kernels::<F8E4M3>(path, needs(has_wgmma, aligned)), expected);
                assert_eq!(kernels::<i8>(path, needs(has_wgmma, !aligned)), unaligned);
            }
        }
        assert_eq!(kernels::<bf16>(Path::Mma(None), needs(true, aligned)), "mma");
        let schedule = Schedule { tile: LARGE, cluster: 1, split_k: 1 };
        assert_eq!(kernels::<bf16>(Path::Schedule(schedule), needs(true, aligned)), "wgmma");
    }
}
