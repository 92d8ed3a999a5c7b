//! `c = a * b`: checks the matrices, chooses instance, cluster and parts, and launches.

use gpu_std::tensor::{F8E4M3, KMajor, MnMajor};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_core::{
    Arguments, Device, DeviceBuffer, DeviceCopy, Launch, Result, Stream, Swizzle, TensorLayout, TensorMap,
    TensorMapMut,
};
use warpsmith_tensor_kernels::epilogue::{Finish, Parts, finish_parts};
use warpsmith_tensor_kernels::matmul::{
    self as kernels, BOX, GROUP_ROWS, ROW_BYTES, SHARED_BYTES, Sizes, THREADS, TILE_M, TILE_N,
};
use warpsmith_tensor_kernels::one_tile::{self, RowStrides, matmul_one_tile};

use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut, Stored, check_rows, check_sides};
use crate::schedule::{CLUSTER, LARGE, MIDDLE, MOST_SPLITS, SMALL, Schedule, Work, multiprocessors};
use crate::{IMAGE, few_rows};

const OPERATION: &str = "matmul";
/// Threads of a block that adds parts.
const FINISH_THREADS: u32 = 256;

/// The types of matrices.
///
/// | type | product | sums | layouts |
/// | --- | --- | --- | --- |
/// | `bf16`, `f16` | the same | `f32` | all |
/// | `f32`, of which the upper 19 bits are multiplied (TF32) | `f32` | `f32` | `b` transposed |
/// | [`F8E4M3`] | `bf16` | `f32`, in which the tensor cores keep some 14 bits of mantissa while they add | `b` transposed |
/// | `i8` | `i32` | `i32`, wrapping | `b` transposed |
pub trait Element: kernels::Element<Output: DeviceCopy> + DeviceCopy {
    /// Enqueues the product.
    #[doc(hidden)]
    fn launch(product: Product<'_, '_, Self>) -> Result<()>;
    /// Enqueues the product by parts of K. `None` where there are none.
    #[doc(hidden)]
    const BY_PARTS: Option<fn(Product<'_, '_, Self>) -> Result<()>>;
    /// Enqueues the product by smaller tiles. `None` where there are none.
    #[doc(hidden)]
    const BY_SMALL_TILES: Option<fn(Product<'_, '_, Self>) -> Result<()>>;
    /// Enqueues a product of few rows. `None` where there are no kernels for it.
    #[doc(hidden)]
    const FEW_ROWS: Option<few_rows::Enqueue<Self, Self::Output>>;
}

/// `c = a * b`, with `a` of m x k, `b` of k x n and `c` of m x n elements, for each matrix of a batch, in sums that are rounded
/// once. A single `a` or `b` is multiplied by all of a batch. The order of the sums depends on the sizes, the device, and whether `c` begins
/// at a multiple of 16 bytes. With k = 0,
/// `c` becomes zero.
///
/// # Errors
/// [`TensorError::Shape`]; [`TensorError::Alignment`] for a matrix whose address or pitch is no multiple of 16 bytes;
/// [`TensorError::Layout`] for one whose type is not multiplied in its layout; [`TensorError::Device`] on a device of another
/// compute capability than 9.0; whatever the runtime reports. An `a` of 16-bit numbers that is not transposed is multiplied into a `c`
/// anywhere, and one of up to 16 rows, by the transpose of rows, from compute capability 8.0 on.
pub fn matmul<'a, 'b, 'c, T: Element>(
    stream: &Stream,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    run(stream, None, &Epilogue::default(), a.into(), b.into(), c.into())
}

/// As [`matmul()`], with what an [`Epilogue`] says, which costs no further pass over `c`. With k = 0 the sums are zero.
///
/// # Errors
/// As [`matmul()`]; [`TensorError::Shape`] for a bias of another length than `c` has columns.
pub fn matmul_fused<'a, 'b, 'c, T: Element<Sum = f32>>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    run(stream, None, epilogue, a.into(), b.into(), c.into())
}

/// [`matmul_fused()`] by a schedule, or by the default for `None`.
///
/// # Errors
/// As [`matmul_fused()`]; [`TensorError::Schedule`] for one that there is not.
pub fn matmul_with<'a, 'b, 'c, T: Element<Sum = f32>>(
    stream: &Stream,
    schedule: impl Into<Option<Schedule>>,
    epilogue: &Epilogue<'_, T::Output>,
    a: impl Into<Matrix<'a, T>>,
    b: impl Into<Matrix<'b, T>>,
    c: impl Into<MatrixMut<'c, T::Output>>,
) -> Result<()> {
    run(stream, schedule.into(), epilogue, a.into(), b.into(), c.into())
}

fn run<T: Element>(
    stream: &Stream,
    schedule: Option<Schedule>,
    epilogue: &Epilogue<'_, T::Output>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    mut c: MatrixMut<'_, T::Output>,
) -> Result<()> {
    let (m, n, k, batches) = (c.rows(), c.columns(), a.columns(), c.planes());
    check_sides(OPERATION, &a, &b, &c)?;
    epilogue.check_bias(OPERATION, n)?;
    let few_rows = T::FEW_ROWS.filter(|_| schedule.is_none() && few_rows::is_product(&a, &b));
    match few_rows {
        Some(_) => few_rows::check_device(OPERATION, stream.device())?,
        None => check_device(OPERATION, stream.device())?,
    }
    if m == 0 || n == 0 || batches == 0 {
        return Ok(());
    }
    if k == 0 && epilogue.bias.is_none() {
        // Every activation of zero is zero.
        return zero(stream, &mut c);
    }
    if size_of::<T>() != 2 {
        for (matrix, is_right) in [("a", !a.is_transposed), ("b", b.is_transposed)] {
            if !is_right {
                let element = std::any::type_name::<T>();
                return Err(TensorError::Layout { operation: OPERATION, matrix, element }.into());
            }
        }
    }
    check_rows(OPERATION, "a", a.elements, a.stored)?;
    check_rows(OPERATION, "b", b.elements, b.stored)?;
    if let Some(few_rows) = few_rows {
        return few_rows(few_rows::Product { operation: OPERATION, stream, epilogue: *epilogue, a, b, c });
    }
    let has_large = check_rows(OPERATION, "c", c.elements.as_slice(), c.stored);
    let has_small = !a.is_transposed && T::BY_SMALL_TILES.is_some();
    let is_large = schedule.is_some_and(|schedule| schedule.tile == LARGE);
    if !has_small || is_large {
        has_large.as_ref().map_err(Clone::clone)?;
    }
    let tile_k = ROW_BYTES as usize / size_of::<T>();
    let work = Work {
        m: m as u32,
        n: n as u32,
        stages: k.div_ceil(tile_k) as u32,
        batches: batches as u32,
        multiprocessors: multiprocessors(stream.device()),
        tiles: match (has_large.is_ok(), has_small) {
            (true, true) => &Schedule::TILES,
            (true, false) => &[LARGE],
            (false, _) => &[MIDDLE, SMALL],
        },
        has_parts: !a.is_transposed && T::BY_PARTS.is_some() && can_be_parts(&c),
        slower: 1.0,
    };
    let schedule = match schedule {
        Some(schedule) => check_schedule(schedule, &work)?,
        None => Schedule::of(work),
    };
    let product = Product { stream, a, b, c, epilogue: *epilogue, work, schedule };
    match (T::BY_SMALL_TILES, T::BY_PARTS) {
        // There are no maps of matrices without columns.
        (_, Some(by_parts)) if k == 0 => by_parts(product),
        (Some(by_small_tiles), _) if schedule.tile != LARGE => by_small_tiles(product),
        (_, Some(by_parts)) if schedule.splits > 1 => by_parts(product),
        _ => T::launch(product),
    }
}

/// Whether the elements of all parts of a product have numbers of 32 bits.
fn can_be_parts<C: DeviceCopy>(c: &MatrixMut<'_, C>) -> bool {
    let pitch = c.columns().next_multiple_of(4) as u128;
    let elements = pitch * c.rows() as u128 * c.planes() as u128 * u128::from(MOST_SPLITS);
    elements < 1 << 32
}

fn check_schedule(schedule: Schedule, work: &Work) -> Result<Schedule> {
    match schedule.missing(work.tiles, work.has_parts) {
        Some(what) => Err(TensorError::Schedule { operation: OPERATION, what }.into()),
        // Parts of large tiles that would be empty are left out.
        None if schedule.tile == LARGE => Ok(Schedule { splits: work.parts(schedule.splits), ..schedule }),
        None => Ok(schedule),
    }
}

/// Fails on a device that has other tensor cores.
pub(crate) fn check_device(operation: &'static str, device: &Device) -> Result<()> {
    if device.is_emulated() || device.properties().capability == (9, 0) {
        return Ok(());
    }
    Err(TensorError::device(operation, device, "9.0 alone"))
}

/// Sums of nothing.
fn zero<T: DeviceCopy>(stream: &Stream, c: &mut MatrixMut<'_, T>) -> Result<()> {
    let Stored { width, height, planes, pitch, plane } = c.stored;
    for row in (0..planes).flat_map(|index| (0..height).map(move |row| index * plane + row * pitch)) {
        stream.memset(c.elements.slice_mut(row..row + width), 0)?;
    }
    Ok(())
}

/// A product that was checked.
#[doc(hidden)]
pub struct Product<'a, 'c, T: Element> {
    stream: &'a Stream,
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: MatrixMut<'c, T::Output>,
    epilogue: Epilogue<'a, T::Output>,
    work: Work,
    schedule: Schedule,
}

macro_rules! elements {
    ($($ty:ty: $product:ident => $select:ident, $sum:ty, $by_small_tiles:expr, $few_rows:expr;)*) => { $(
        impl Element for $ty {
            fn launch($product: Product<'_, '_, Self>) -> Result<()> {
                $select!($product, $ty)
            }
            const BY_PARTS: Option<fn(Product<'_, '_, Self>) -> Result<()>> =
                Some(|$product| $select!($product, $ty, $sum));
            const BY_SMALL_TILES: Option<fn(Product<'_, '_, Self>) -> Result<()>> = $by_small_tiles;
            const FEW_ROWS: Option<few_rows::Enqueue<Self, Self::Output>> = $few_rows;
        }
    )* };
}

/// All layouts.
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
    ($product:ident, $ty:ty, $sum:ty) => {
        match $product.b.is_transposed {
            true => $product.by_parts::<kernels::matmul_parts<$ty, KMajor, 1>, finish_parts<$sum>>(),
            false => $product.by_parts::<kernels::matmul_parts<$ty, MnMajor, 1>, finish_parts<$sum>>(),
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
    ($product:ident, $ty:ty, $sum:ty) => {
        $product.by_parts::<kernels::matmul_tn_parts<$ty, 1>, finish_parts<$sum>>()
    };
}

macro_rules! by_small_tiles {
    ($ty:ty) => {
        Some(|product: Product<'_, '_, $ty>| match (product.b.is_transposed, product.schedule.tile) {
            (true, SMALL) => product.by_small_tiles::<matmul_one_tile<$ty, KMajor, 64>>(),
            (true, _) => product.by_small_tiles::<matmul_one_tile<$ty, KMajor, 128>>(),
            (false, SMALL) => product.by_small_tiles::<matmul_one_tile<$ty, MnMajor, 64>>(),
            (false, _) => product.by_small_tiles::<matmul_one_tile<$ty, MnMajor, 128>>(),
        })
    };
}

elements! {
    bf16: product => by_layout, bf16, by_small_tiles!(bf16), Some(few_rows::product);
    f16: product => by_layout, f16, by_small_tiles!(f16), Some(few_rows::product);
    f32: product => k_major, f32, None, None;
    F8E4M3: product => k_major, bf16, None, None;
}

impl Element for i8 {
    fn launch(product: Product<'_, '_, Self>) -> Result<()> {
        match product.schedule.cluster {
            1 => product.plain::<kernels::matmul_integers<i8, 1>>(),
            _ => product.plain::<kernels::matmul_integers<i8, CLUSTER>>(),
        }
    }
    const BY_PARTS: Option<fn(Product<'_, '_, Self>) -> Result<()>> = None;
    const BY_SMALL_TILES: Option<fn(Product<'_, '_, Self>) -> Result<()>> = None;
    const FEW_ROWS: Option<few_rows::Enqueue<Self, Self::Output>> = None;
}

/// The parameters of kernels with an epilogue.
type Fused<T, C> = (
    param::TensorMap<T, 3>,
    param::TensorMap<T, 3>,
    param::TensorMap<C, 3>,
    param::Optional<param::Slice<C>>,
    param::Value<Sizes>,
    param::Value<Finish>,
);

/// Those of kernels without.
type Plain<T, C> =
    (param::TensorMap<T, 3>, param::TensorMap<T, 3>, param::TensorMap<C, 3>, param::Value<Sizes>);

/// Those of kernels for smaller tiles.
type Small<T, C> = (
    param::TensorMap<T, 3>,
    param::TensorMap<T, 3>,
    param::SliceMut<C>,
    param::Optional<param::Slice<C>>,
    param::Value<Sizes>,
    param::Value<RowStrides>,
    param::Value<u32>,
    param::Value<Finish>,
);

/// Those of the kernel that adds parts.
type Sum<C> = (
    param::Slice<f32>,
    param::SliceMut<C>,
    param::Optional<param::Slice<C>>,
    param::Value<Parts>,
    param::Value<Finish>,
);

impl<'a, 'c, T: Element> Product<'a, 'c, T> {
    fn fused<K: Kernel<Params = Fused<T, T::Output>>>(self) -> Result<()> {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let inputs = Inputs { stream, a, b, work, schedule };
        // SAFETY: the instance is that of the layouts and of the cluster, and the bias has n elements.
        unsafe { inputs.launch::<K, _, _>(c, |[a, b], c, sizes| (a, b, c, bias, sizes, finish)) }
    }

    fn plain<K: Kernel<Params = Plain<T, T::Output>>>(self) -> Result<()> {
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let inputs = Inputs { stream, a, b, work, schedule };
        // SAFETY: the instance is that of the layouts and of the cluster.
        unsafe { inputs.launch::<K, _, _>(c, |[a, b], c, sizes| (a, b, c, sizes)) }
    }

    fn by_small_tiles<K: Kernel<Params = Small<T, T::Output>>>(self) -> Result<()> {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let Schedule { tile: [height, width], cluster, splits } = schedule;
        let inputs = Inputs { stream, a, b, work, schedule };
        let (a, b) = (a_map(a, height)?, b_map(b, width / cluster)?);
        let rows = RowStrides { pitch: c.stored.pitch as u64, plane: c.stored.plane as u64 };
        let of_rows = height as usize;
        let launch = Launch::grid_block(inputs.tiles()? * cluster, one_tile::threads(of_rows))
            .shared(one_tile::shared_bytes(of_rows, one_tile::STAGES, 1))
            .cluster(cluster * splits);
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = (a, b, c.elements, bias, inputs.sizes(1), rows, cluster, finish);
        // SAFETY: the instance is that of the layouts and of the tile. The maps have its boxes, of matrices of these sizes, which
        // the views check to be below 2^31; c is borrowed exclusively, and the bias has n elements.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }

    /// The sums of parts of K, of which there are none without columns of `a`, and then their sum.
    fn by_parts<K, F>(self) -> Result<()>
    where
        K: Kernel<Params = Plain<T, f32>>,
        F: Kernel<Params = Sum<T::Output>>,
    {
        let (bias, finish) = (self.epilogue.bias, self.epilogue.finish());
        let Self { stream, a, b, c, work, schedule, .. } = self;
        let (m, n) = (work.m as usize, work.n as usize);
        let pitch = n.next_multiple_of(4);
        let splits = if a.columns() == 0 { 0 } else { schedule.splits };
        let threads = u64::from(work.batches) * m as u64 * (pitch / 4) as u64;
        let Ok(threads) = u32::try_from(threads) else {
            let what = format!("k is 0, and c has {} elements, more than 2^34", 4 * threads);
            return Err(TensorError::Shape { operation: OPERATION, what }.into());
        };
        let planes = (work.batches * splits) as usize;
        let stored = Stored { width: n, height: m, planes, pitch, plane: m * pitch };
        let mut parts = DeviceBuffer::<f32>::uninit(stream, planes * m * pitch)?;
        if splits > 0 {
            let inputs = Inputs { stream, a, b, work, schedule };
            let to = MatrixMut { elements: parts.as_mut_slice(), stored };
            // SAFETY: the instance is that of the layouts, for clusters of one block; there is a plane for each part.
            unsafe { inputs.launch::<K, _, _>(to, |[a, b], c, sizes| (a, b, c, sizes))? };
        }

        let of = Parts {
            m: work.m,
            n: work.n,
            splits,
            batches: work.batches,
            pitch: pitch as u32,
            c_pitch: c.stored.pitch as u64,
            c_plane: c.stored.plane as u64,
        };
        let most = work.multiprocessors.max(1) * 8;
        let launch = Launch::grid_block(threads.div_ceil(FINISH_THREADS).min(most), FINISH_THREADS);
        let kernel = stream.device().load(&IMAGE)?.kernel::<F>()?;
        // SAFETY: these are the parts, the products and the bias of which the sizes are; they are fewer than 2^32.
        unsafe { kernel.launch_unsafe(stream, launch, (&parts, c.elements, bias, of, finish)) }
    }
}

/// What kernels of products read.
struct Inputs<'a, T: DeviceCopy> {
    stream: &'a Stream,
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    work: Work,
    schedule: Schedule,
}

impl<'a, T: Element> Inputs<'a, T> {
    /// Launches a kernel with the arguments that `arguments` makes of maps and sizes.
    ///
    /// # Safety
    /// It is a kernel of [`kernels::product`] of these layouts, in clusters of as many blocks as the schedule says, and `c` has a
    /// plane for each part of each product.
    unsafe fn launch<'c, K: Kernel, C: DeviceCopy, A: Arguments<K::Params>>(
        self,
        c: MatrixMut<'c, C>,
        arguments: impl FnOnce([TensorMap<'a, T, 3>; 2], TensorMapMut<'c, C, 3>, Sizes) -> A,
    ) -> Result<()> {
        let Schedule { cluster, splits, .. } = self.schedule;
        let c_layout = layout::<C>(c.stored, [ROW_BYTES / size_of::<C>() as u32, GROUP_ROWS]);
        let maps = [a_map(self.a, TILE_M)?, b_map(self.b, TILE_N / cluster)?];
        let c = c.elements.tensor_map_mut(&c_layout)?;
        let tiles = self.tiles()?;
        // The shared memory of a multiprocessor is enough for one block.
        let resident = (self.work.multiprocessors / cluster).max(1);
        let grid = tiles.min(resident) * cluster;
        let launch = Launch::grid_block(grid, THREADS).shared(SHARED_BYTES).cluster(cluster);
        let kernel = self.stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = arguments(maps, c, self.sizes(splits));
        // SAFETY: the maps have the boxes that the kernel requires, of matrices of these sizes, which the views check to be
        // below 2^31; c is borrowed exclusively. The kernel is the caller's promise.
        unsafe { kernel.launch_unsafe(self.stream, launch, arguments) }
    }

    /// The kernel's sizes, with `splits` parts of K.
    fn sizes(&self, splits: u32) -> Sizes {
        Sizes {
            m: self.work.m,
            n: self.work.n,
            k: self.a.columns() as u32,
            batches: self.work.batches,
            a_planes: self.a.planes() as u32,
            b_planes: self.b.planes() as u32,
            splits,
            split_stages: self.work.split_stages(self.schedule.splits),
        }
    }

    /// Tiles of all products and parts, each of a cluster.
    fn tiles(&self) -> Result<u32> {
        let Schedule { tile: [height, width], cluster, splits } = self.schedule;
        let Work { m, n, batches, .. } = self.work;
        let planes = u64::from(batches) * u64::from(splits);
        match u64::from(m.div_ceil(height * cluster)) * u64::from(n.div_ceil(width)) * planes {
            tiles if tiles <= MOST_TILES => Ok(tiles as u32),
            tiles => {
                let what = format!("c has {tiles} tiles and parts of tiles, more than {MOST_TILES}");
                Err(TensorError::Shape { operation: OPERATION, what }.into())
            }
        }
    }
}

/// Most tiles of a product, so that their numbers do not overflow, and a grid may have two blocks for each.
const MOST_TILES: u64 = (1 << 30) - 1;

/// The map of `a`, whose boxes have `rows` rows.
pub(crate) fn a_map<T: DeviceCopy>(a: Matrix<'_, T>, rows: u32) -> Result<TensorMap<'_, T, 3>> {
    operand_map(a, !a.is_transposed, rows)
}

/// The map of `b`, whose boxes have `columns` columns.
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
    // A stride that is not used need not be a multiple of 16 bytes.
    let unit = 16 / size_of::<T>();
    let stride = |elements: usize| elements.next_multiple_of(unit).max(unit);
    TensorLayout {
        dims: [stored.width, stored.height, stored.planes],
        strides: [1, stride(stored.pitch), stride(stored.plane)],
        tile: [width, height, 1],
        swizzle: Swizzle::Bytes128,
    }
}
