//! Skinny GEMM (M ≤ 16): with 16-bit operands for [`matmul()`](crate::matmul()), and with int4 weights (weight-only,
//! W4A16).

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{Device, DeviceCopy, DeviceSlice, DeviceSliceMut, Launch, Result, Stream};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::number4::Number4;
use warpsmith_tensor_kernels::skinny::{
    self as kernels, GROUP_K, GROUP_M, MAX_M, SkinnySizes, THREADS, TILE_N,
};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut, check_rows};
use crate::schedule::Schedule;

/// Maximum number of blocks per grid.
const MAX_BLOCKS: u32 = i32::MAX as u32;

/// Fails on a device without `mma.m16n8k16`.
pub(crate) fn check_device(operation: &'static str, device: &Device) -> Result<()> {
    if device.is_emulated() || device.properties().capability >= (8, 0) {
        return Ok(());
    }
    Err(TensorError::device(operation, device, "8.0 or later"))
}

/// Returns whether a GEMM is skinny and whether its operands have the layout that these kernels require.
pub(crate) fn is_product<T: DeviceCopy>(a: &Matrix<'_, T>, b: &Matrix<'_, T>) -> bool {
    a.rows() <= MAX_M as usize && !a.is_transposed && b.is_transposed
}

/// Element types of [`matmul_4bit()`]: `bf16` and `f16`.
///
/// See the example of [`matmul_4bit()`].
pub trait Element4: Number4 + DeviceCopy {
    #[doc(hidden)]
    fn launch_skinny(product: Product<'_, '_, Self, Self>) -> Result<()>;
    #[doc(hidden)]
    fn launch_4bit(product: Product4<'_, '_, Self>) -> Result<()>;
}

/// Packed int4 weights, `k` x `n`. Each column is divided into groups of 128 consecutive codes. Code `c` represents
/// `scale * (c - zero)`, where `scale` and `zero` are the scale and zero point of its group.
///
/// Published 4-bit formats, such as GPTQ and AWQ with a group size of 128, store these values in another order. Reorder
/// such values once, before the first GEMM.
///
/// See the example of [`matmul_4bit()`].
#[derive(Debug, Clone, Copy)]
pub struct Int4Weights<'a, T: DeviceCopy> {
    /// Codes: n columns of k codes. Each byte contains two codes, the first in the lower four bits. The slice must have
    /// n * k / 2 bytes, and its address must be a multiple of 16 bytes.
    pub codes: DeviceSlice<'a, u8>,
    /// Scales of the groups: n columns, each with k / 128 scales.
    pub scales: DeviceSlice<'a, T>,
    /// Zero point of each group, between 0 and 127, because only the lower seven bits are used. `None` means a zero
    /// point of 8 for all groups.
    pub zeros: Option<DeviceSlice<'a, u8>>,
}

const OPERATION: &str = "matmul_4bit";

/// Weight-only int4 GEMM (W4A16): `c = activation(scale * a * weights + bias)`, with `a` m×k, the weights k×n and `c`
/// m×n. The weights are converted to the type of `a` without applying their scales; the `f32` sum of each group is then
/// multiplied by the group's scale. The result is rounded once. For up to 16 rows, the kernel is memory-bound and reads
/// the weights only once. The order of the additions depends only on the sizes.
///
/// # Errors
/// Returns [`TensorError::Shape`] if the sizes do not match or k is not a multiple of 128; [`TensorError::Layout`] for
/// a transposed `a`; [`TensorError::Alignment`] if the address of the codes, or the address or row stride of `a`, is
/// not a multiple of 16 bytes; [`TensorError::Device`] for a compute capability below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, Int4Weights, matmul_4bit};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[bf16::ONE; 2 * 128])?;
/// // 3 columns of 128 codes, which are 9: of 0.5 * (9 - 8).
/// let codes = DeviceBuffer::from_host(&stream, &[0x99; 3 * 64])?;
/// let scales = DeviceBuffer::from_host(&stream, &[bf16::from_f32(0.5); 3])?;
/// let weights = Int4Weights { codes: codes.as_slice(), scales: scales.as_slice(), zeros: None };
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 2 * 3)?;
/// matmul_4bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(64.0); 6]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn matmul_4bit<'a, 'c, T: Element4>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T>,
    a: impl Into<Matrix<'a, T>>,
    weights: &Int4Weights<'_, T>,
    c: impl Into<MatrixMut<'c, T>>,
) -> Result<()> {
    let _site = site();
    let (a, c) = (a.into(), c.into());
    let (m, n, k) = (c.rows(), c.columns(), a.columns());
    let shape = |what| Err(TensorError::Shape { operation: OPERATION, what }.into());
    if a.planes() != 1 || c.planes() != 1 {
        return shape(format!(
            "a is a batch of {} matrices and c of {}; a W4A16 GEMM takes single matrices",
            a.planes(),
            c.planes()
        ));
    }
    if a.rows() != m {
        return shape(format!("a is {} x {k}, c is {m} x {n}", a.rows()));
    }
    if !k.is_multiple_of(GROUP_K as usize) {
        return shape(format!(
            "k is {k}, but must be a multiple of {GROUP_K}: pad a and the weights with zeros"
        ));
    }
    let groups = n * (k / GROUP_K as usize);
    let lengths = [
        ("codes", Some(weights.codes.len()), n * (k / 2)),
        ("scales", Some(weights.scales.len()), groups),
        ("zeros", weights.zeros.map(|zeros| zeros.len()), groups),
        ("elements of the bias", epilogue.bias.map(|bias| bias.len()), n),
    ];
    for (name, len, expected) in lengths {
        if let Some(len) = len
            && len != expected
        {
            return shape(format!(
                "there are {len} {name} for weights of {k} x {n}, which require {expected}"
            ));
        }
    }
    if a.is_transposed {
        let element = std::any::type_name::<T>();
        return Err(TensorError::Layout { operation: OPERATION, matrix: "a", element }.into());
    }
    check_device(OPERATION, stream.device())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    check_rows(OPERATION, "a", a.elements, a.stored)?;
    let address = weights.codes.as_device_ptr().0;
    if !address.is_multiple_of(16) {
        return Err(
            TensorError::Alignment { operation: OPERATION, matrix: "codes", bytes: k / 2, address }.into()
        );
    }
    T::launch_4bit(Product4 { stream, epilogue: *epilogue, a, weights: *weights, c })
}

/// Validated arguments for a W4A16 GEMM.
#[doc(hidden)]
pub struct Product4<'a, 'c, T: Element4> {
    stream: &'a Stream,
    epilogue: Epilogue<'a, T>,
    a: Matrix<'a, T>,
    weights: Int4Weights<'a, T>,
    c: MatrixMut<'c, T>,
}

/// Selects the kernel instance for the number of row groups and column tiles.
macro_rules! instance {
    ($sizes:expr, $multiprocessors:expr, $is_4bit:literal, $launch:ident::<$kernel:ident<$ty:ty>>($($argument:expr),*)) => {{
        let blocks = Blocks::new(&$sizes, $multiprocessors, $is_4bit);
        match (blocks.groups, blocks.tiles) {
            (1, 1) => $launch::<kernels::$kernel<$ty, 1, 1>, $ty>($($argument,)* blocks),
            (1, _) => $launch::<kernels::$kernel<$ty, 1, 2>, $ty>($($argument,)* blocks),
            (_, 1) => $launch::<kernels::$kernel<$ty, 2, 1>, $ty>($($argument,)* blocks),
            (_, _) => $launch::<kernels::$kernel<$ty, 2, 2>, $ty>($($argument,)* blocks),
        }
    }};
}

macro_rules! elements {
    ($($ty:ident),*) => { $(
        impl Element4 for $ty {
            fn launch_skinny(product: Product<'_, '_, Self, Self>) -> Result<()> {
                let sizes = sizes(&product.a, Some(&product.b), &product.c);
                let multiprocessors = product.stream.device().properties().multiprocessors;
                instance!(sizes, multiprocessors, false, launch::<matmul_skinny<$ty>>(product, sizes))
            }

            fn launch_4bit(product: Product4<'_, '_, Self>) -> Result<()> {
                let sizes = sizes(&product.a, None, &product.c);
                let multiprocessors = product.stream.device().properties().multiprocessors;
                instance!(sizes, multiprocessors, true, launch_4bit::<matmul_skinny_w4a16<$ty>>(product, sizes))
            }
        }
    )* };
}
elements!(bf16, f16);

/// Validated arguments for a skinny GEMM with 16-bit operands.
#[doc(hidden)]
pub struct Product<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    pub(crate) operation: &'static str,
    pub(crate) stream: &'a Stream,
    /// Schedule of the `mma.sync` kernels; `None` selects the default schedule.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) epilogue: Epilogue<'a, C>,
    pub(crate) a: Matrix<'a, T>,
    pub(crate) b: Matrix<'a, T>,
    pub(crate) c: MatrixMut<'c, C>,
}

/// Function that enqueues a GEMM.
#[doc(hidden)]
pub type Enqueue<T, C> = fn(Product<'_, '_, T, C>) -> Result<()>;

/// Enqueues a skinny GEMM, for the element types that have kernels.
pub(crate) fn product<T: Element4>(product: Product<'_, '_, T, T>) -> Result<()> {
    T::launch_skinny(product)
}

fn sizes<T: DeviceCopy>(a: &Matrix<'_, T>, b: Option<&Matrix<'_, T>>, c: &MatrixMut<'_, T>) -> SkinnySizes {
    let plane =
        |matrix: &Matrix<'_, T>| if matrix.planes() == 1 { 0 } else { matrix.stored.plane_stride as u64 };
    SkinnySizes {
        m: c.rows() as u32,
        n: c.columns() as u32,
        k: a.columns() as u32,
        a_pitch: a.stored.row_stride as u64,
        b_pitch: b.map_or(0, |b| b.stored.row_stride as u64),
        c_pitch: c.stored.row_stride as u64,
        a_plane: plane(a),
        b_plane: b.map_or(0, plane),
        c_plane: c.stored.plane_stride as u64,
    }
}

/// Block tile of a skinny GEMM.
#[derive(Clone, Copy)]
struct Blocks {
    /// Number of row groups of A per block.
    groups: u32,
    /// Number of column tiles of B per block.
    tiles: u32,
}

impl Blocks {
    /// Selects two column tiles per block if the grid still has enough blocks. With two tiles, A is read half as often,
    /// which matters if the weights have 4 bits or A has many rows.
    fn new(sizes: &SkinnySizes, multiprocessors: u32, is_4bit: bool) -> Self {
        let groups = if sizes.m > GROUP_M { 2 } else { 1 };
        let has_two = (is_4bit || groups == 2) && 8 * sizes.n.div_ceil(2 * TILE_N) >= 7 * multiprocessors;
        Self { groups, tiles: if has_two { 2 } else { 1 } }
    }

    /// Returns the launch configuration that covers C.
    fn launch(
        self,
        operation: &'static str,
        sizes: &SkinnySizes,
        planes: usize,
        is_4bit: bool,
    ) -> Result<Launch> {
        let columns = u64::from(sizes.n.div_ceil(TILE_N * self.tiles));
        let blocks = columns * u64::from(sizes.m.div_ceil(GROUP_M * self.groups)) * planes as u64;
        match u32::try_from(blocks) {
            Ok(blocks) if blocks <= MAX_BLOCKS => {
                Ok(Launch::grid_block(blocks, THREADS).shared(kernels::shared_bytes(self.tiles, is_4bit)))
            }
            _ => {
                let what = format!("c requires {blocks} blocks, more than the maximum of {MAX_BLOCKS}");
                Err(TensorError::Shape { operation, what }.into())
            }
        }
    }
}

/// Kernel parameters for 16-bit operands.
type Plain<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

/// Kernel parameters for packed int4 weights.
type Coded<T> = (
    param::Slice<T>,
    param::Slice<u8>,
    param::Slice<T>,
    param::Optional<param::Slice<u8>>,
    param::SliceMut<T>,
    param::Optional<param::Slice<T>>,
    param::Value<SkinnySizes>,
    param::Value<EpilogueParams>,
);

fn launch<K: Kernel<Params = Plain<T>>, T: Element4>(
    product: Product<'_, '_, T, T>,
    sizes: SkinnySizes,
    blocks: Blocks,
) -> Result<()> {
    let Product { operation, stream, epilogue, a, b, c, .. } = product;
    let launch = blocks.launch(operation, &sizes, c.planes(), false)?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let c: DeviceSliceMut<'_, T> = c.elements;
    let arguments = (a.elements, b.elements, c, epilogue.bias, sizes, epilogue.finish());
    // SAFETY: the sizes describe the matrices, whose rows start on 16-byte boundaries. `c` is borrowed exclusively, the
    // bias has n elements, and the grid covers C.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}

fn launch_4bit<K: Kernel<Params = Coded<T>>, T: Element4>(
    product: Product4<'_, '_, T>,
    sizes: SkinnySizes,
    blocks: Blocks,
) -> Result<()> {
    let Product4 { stream, epilogue, a, weights: Int4Weights { codes, scales, zeros }, c } = product;
    let launch = blocks.launch(OPERATION, &sizes, 1, true)?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let c: DeviceSliceMut<'_, T> = c.elements;
    let arguments = (a.elements, codes, scales, zeros, c, epilogue.bias, sizes, epilogue.finish());
    // SAFETY: as above; the lengths of the codes, scales and zero points have been checked.
    unsafe { kernel.launch_unsafe(stream, launch, arguments) }
}
