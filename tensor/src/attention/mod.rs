//! `out = softmax(scale * q * k^T) * v`: checks the head sizes and launches the kernel.

mod backward;
mod mma;

use gpu_std::tensor::Half;
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSliceMut, Launch, Result, Stream, Swizzle, TensorLayout,
};
use warpsmith_tensor_kernels::attention::{
    self as kernels, BOX, Head, Head64, Head128, Head256, Shape, THREADS, TILE_Q,
};
use warpsmith_tensor_kernels::attention_mma::{MmaShape, tile_q};
use warpsmith_tensor_kernels::sequences::{HeadStrides, Sequences};

pub use self::backward::{Attended, Gradients, attention_backward, attention_backward_mma};
use self::mma::Plan;
use crate::IMAGE;
use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};
use crate::matmul::has_wgmma;
use crate::skinny;

const OPERATION: &str = "attention";
/// Supported numbers of elements per row, and those with `wgmma` kernels.
const DIMS: [usize; 5] = [64, 96, 128, 192, 256];
const WGMMA_DIMS: [usize; 3] = [64, 128, 256];
/// Maximum number of rows per plane. Larger planes would overflow the kernel's row indices.
const MAX_ROWS: usize = 1 << 30;
/// Maximum number of tiles per launch.
pub(crate) const MAX_TILES: u64 = 1 << 31;
/// Maximum size, in bytes, of the k and v tiles that concurrently running blocks read. Up to this size, the tiles stay
/// in the L2 cache.
const RASTER_GROUP_BYTES: usize = 32 << 20;

/// Attention options. By default, the scale is `1 / sqrt(dim)`, there is no mask, and all sequences have the same
/// length.
///
/// ```
/// use warpsmith_tensor::Attention;
///
/// let causal = Attention { is_causal: true, scale: Some(0.125), ..Attention::default() };
/// assert!(causal.offsets.is_none());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Attention<'a> {
    /// Softmax scale, which must be positive and finite. `None` means `1 / sqrt(dim)`.
    pub scale: Option<f32>,
    /// True for a causal mask, aligned to the bottom right as in FlashAttention. With n rows of q and m rows of k, row
    /// i of q attends to the rows of k up to and including row `i + m - n`. If k has fewer rows than q, the first rows
    /// of q attend to no rows.
    pub is_causal: bool,
    /// Sequence offsets for variable-length sequences; `None` if all sequences have the same length.
    pub offsets: Option<Offsets<'a>>,
}

/// Offsets, in device memory, of variable-length sequences that are packed one after another. Each view must describe a
/// single sequence; packed sequence i consists of its rows from `offsets[i]` up to, but not including,
/// `offsets[i + 1]`. Sequences can be empty.
///
/// The host does not read the offsets. Rows beyond the end of the view, and rows that already belong to an earlier
/// sequence, are ignored. Rows of `out` and `lse` that belong to no sequence are left unchanged. Offsets are `u32`,
/// because a view has fewer than 2^31 rows.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::{Attention, Heads, HeadsMut, Offsets, attention};
///
/// let stream = Device::emulated(0)?.default_stream();
/// // A sequence of one token, and one of two, of one head of 64 elements.
/// let q = DeviceBuffer::<bf16>::zeros(&stream, 3 * 64)?;
/// let rows: Vec<bf16> = (0..3 * 64).map(|i| bf16::from_f32((i / 64) as f32)).collect();
/// let v = DeviceBuffer::from_host(&stream, &rows)?;
/// let mut out = DeviceBuffer::<bf16>::zeros(&stream, 3 * 64)?;
/// let offsets = DeviceBuffer::from_host(&stream, &[0_u32, 1, 3])?;
/// let offsets = Offsets { q: offsets.as_slice(), k: offsets.as_slice() };
/// let options = Attention { offsets: Some(offsets), ..Attention::default() };
/// let [q, v] = [Heads::by_token(q.as_3d(3, 1, 64)?, 1)?, Heads::by_token(v.as_3d(3, 1, 64)?, 1)?];
/// attention(&stream, &options, q, q, v, HeadsMut::by_token(out.as_3d_mut(3, 1, 64)?, 1)?)?;
/// // The means of the rows 0, and 1 and 2.
/// let out = out.to_host()?;
/// assert_eq!([out[0], out[64], out[128]].map(f32::from), [0.0, 1.5, 1.5]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Offsets<'a> {
    /// Offsets of q, `out` and `lse` in ascending order; the length is the number of sequences plus one.
    pub q: DeviceSlice<'a, u32>,
    /// Offsets of k and v; the array must have the same length as the offsets of q.
    pub k: DeviceSlice<'a, u32>,
}

/// Element types of heads: `bf16` and `f16`. Scores, attention probabilities and sums are `f32`. The probabilities are
/// rounded to the element type before the multiplication by v.
///
/// See the example of [`attention()`].
pub trait HeadElement: Half + DeviceCopy {
    /// Enqueues the kernel.
    #[doc(hidden)]
    fn launch(call: Call<'_, '_, Self>) -> Result<()>;
    /// Enqueues the kernels of the backward pass.
    #[doc(hidden)]
    fn launch_backward(call: backward::Call<'_, '_, Self>) -> Result<()>;
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl HeadElement for $ty {
            fn launch(call: Call<'_, '_, Self>) -> Result<()> {
                match (call.path, call.q.extents.dim) {
                    (Path::Mma(stages), _) => call.mma_plan(stages)?.map_or(Ok(()), |plan| plan.launch()),
                    (_, 64) => call.run::<Head64, kernels::attention<$ty, Head64>>(),
                    (_, 128) => call.run::<Head128, kernels::attention<$ty, Head128>>(),
                    _ => call.run::<Head256, kernels::attention<$ty, Head256>>(),
                }
            }

            fn launch_backward(call: backward::Call<'_, '_, Self>) -> Result<()> {
                use warpsmith_tensor_kernels::attention_backward::{
                    attention_backward_keys as keys, attention_backward_queries as queries, attention_delta,
                };
                let delta = call.delta::<attention_delta<$ty>>()?;
                match (call.path, call.dim()) {
                    (backward::Path::Mma(is_small), _) => call.launch_mma(is_small, &delta),
                    (_, 64) => call.run::<Head64, queries<$ty, Head64>, keys<$ty, Head64>>(&delta),
                    _ => call.run::<Head128, queries<$ty, Head128>, keys<$ty, Head128>>(&delta),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Computes `out = softmax(scale * q * k^T) * v` for each head of each sequence. Rows of `out` whose query attends to
/// no rows are set to zero.
///
/// | operand | heads | rows |
/// | --- | --- | --- |
/// | `q`, `out` | a multiple of the heads of `k` | any number |
/// | `k`, `v` | each is shared by the same number of consecutive heads of `q` | any number |
///
/// A row has 64, 96, 128, 192 or 256 elements. Each operand can have its own layout. On compute capability 9.0, rows of
/// 64, 128 and 256 elements have faster kernels (`wgmma`) than on other devices (`mma.sync`). NaN in a row of `k` or `v` propagates to
/// the rows that attend to it. Because 0 * NaN is NaN, a NaN in `v` can also reach rows of the same sequence that are
/// masked from it.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Attention, Heads, HeadsMut, attention};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // Three tokens, two heads of q and one of k and v, 64 elements a row.
/// let q = DeviceBuffer::<bf16>::zeros(&stream, 3 * 2 * 64)?;
/// let k = DeviceBuffer::<bf16>::zeros(&stream, 3 * 64)?;
/// let rows: Vec<bf16> = (0..3 * 64).map(|i| bf16::from_f32((i / 64) as f32)).collect();
/// let v = DeviceBuffer::from_host(&stream, &rows)?;
/// let mut out = DeviceBuffer::<bf16>::zeros(&stream, 3 * 2 * 64)?;
///
/// let causal = Attention { is_causal: true, ..Attention::default() };
/// let one = |buffer, heads| Heads::by_token(DeviceBuffer::as_3d(buffer, 3, heads, 64)?, 1);
/// let to = HeadsMut::by_token(out.as_3d_mut(3, 2, 64)?, 1)?;
/// attention(&stream, &causal, one(&q, 2)?, one(&k, 1)?, one(&v, 1)?, to)?;
/// // All scores are equal: each row is the mean of those up to it, 0, 1 / 2 and 1.
/// let out = out.to_host()?;
/// assert_eq!([out[0], out[128], out[256]].map(f32::from), [0.0, 0.5, 1.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`TensorError::Heads`]; [`TensorError::Scale`]; [`TensorError::Alignment`] for a view whose address, row
/// stride or head stride is not a multiple of 16 bytes; [`TensorError::Device`] if the compute capability is below
/// 8.0; [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn attention<T: HeadElement>(
    stream: &Stream,
    options: &Attention<'_>,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    out: HeadsMut<'_, T>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Default, options, [q, k, v], out, None)
}

/// Like [`attention()`], but also stores the log-sum-exp (LSE) of each row's scores in
/// `lse[(sequence * heads + head) * rows + row]`. The LSE of a row that attends to no rows is `-inf`. The LSE is
/// needed to merge split-KV partial results.
///
/// # Errors
/// Returns the same errors as [`attention()`], or [`TensorError::Heads`] if the length of `lse` is not the total
/// number of rows of all heads.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Attention, Heads, HeadsMut, attention_with_lse};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // Four tokens of one head of 64 elements: all scores are 0.
/// let zeros = DeviceBuffer::<bf16>::zeros(&stream, 4 * 64)?;
/// let heads = Heads::by_token(zeros.as_3d(4, 1, 64)?, 1)?;
/// let mut out = DeviceBuffer::<bf16>::uninit(&stream, 4 * 64)?;
/// let mut lse = DeviceBuffer::<f32>::uninit(&stream, 4)?;
/// let to = HeadsMut::by_token(out.as_3d_mut(4, 1, 64)?, 1)?;
/// attention_with_lse(&stream, &Attention::default(), heads, heads, heads, to, lse.as_mut_slice())?;
/// // The logarithm of four times exp(0).
/// assert!(lse.to_host()?.iter().all(|lse| (lse - 4f32.ln()).abs() < 1e-5));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[track_caller]
pub fn attention_with_lse<T: HeadElement>(
    stream: &Stream,
    options: &Attention<'_>,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    out: HeadsMut<'_, T>,
    lse: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Default, options, [q, k, v], out, Some(lse))
}

/// Like [`attention()`] or [`attention_with_lse()`], but with `mma.sync`, for tests and benchmarks. `stages` is the number
/// of stages of k and v, 1 or 2. Heads with more than 128 elements always have one.
///
/// # Errors
/// Returns the same errors as [`attention_with_lse()`].
#[doc(hidden)]
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "they are those of the other functions")]
pub fn attention_mma<T: HeadElement>(
    stream: &Stream,
    stages: Option<usize>,
    options: &Attention<'_>,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    out: HeadsMut<'_, T>,
    lse: Option<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Mma(stages), options, [q, k, v], out, lse)
}

/// Selection of the kernels.
#[derive(Clone, Copy)]
enum Path {
    /// The fastest kernels that support the device and the heads.
    Default,
    /// `mma.sync`, with this number of stages or the default number.
    Mma(Option<usize>),
}

fn run<T: HeadElement>(
    stream: &Stream,
    path: Path,
    options: &Attention<'_>,
    [q, k, v]: [Heads<'_, T>; 3],
    out: HeadsMut<'_, T>,
    lse: Option<DeviceSliceMut<'_, f32>>,
) -> Result<()> {
    let extents = [&q.extents, &k.extents, &v.extents, &out.extents];
    check_sizes(OPERATION, options, extents, lse.as_ref().map(|lse| lse.len()))?;
    let scale = check_scale(OPERATION, options, q.extents.dim)?;
    let has_wgmma = WGMMA_DIMS.contains(&q.extents.dim) && has_wgmma(stream.device());
    skinny::check_device(OPERATION, stream.device())?;
    let path = match path {
        Path::Default if !has_wgmma => Path::Mma(None),
        path => path,
    };
    if [q.extents.rows, q.extents.heads, q.extents.planes].contains(&0) {
        return Ok(());
    }
    let check =
        |name, extents: Extents, address: u64| check_alignment::<T>(OPERATION, name, &extents, address);
    check("q", q.extents, q.elements.as_device_ptr().0)?;
    if k.extents.rows > 0 {
        check("k", k.extents, k.elements.as_device_ptr().0)?;
        check("v", v.extents, v.elements.as_device_ptr().0)?;
    }
    check("out", out.extents, out.elements.as_device_ptr().0)?;
    T::launch(Call { stream, path, options, scale, q, k, v, out, lse })
}

/// Checks the softmax scale and returns it.
pub(crate) fn check_scale(operation: &'static str, options: &Attention<'_>, dim: usize) -> Result<f32> {
    let scale = options.scale.unwrap_or(1.0 / (dim as f32).sqrt());
    if scale > 0.0 && scale.is_finite() {
        return Ok(scale);
    }
    Err(TensorError::Scale { operation, scale: scale.to_string() }.into())
}

/// Returns the factor by which scores are multiplied before `exp2`. The factor is large enough that its product with a
/// score of `-inf` is not NaN.
pub(crate) fn factor(scale: f32) -> f32 {
    (scale * std::f32::consts::LOG2_E).clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// Fails if the head sizes do not match.
pub(crate) fn check_sizes(
    operation: &'static str,
    options: &Attention<'_>,
    [q, k, v, out]: [&Extents; 4],
    lse: Option<usize>,
) -> Result<()> {
    let sizes = |of: &Extents| [of.planes, of.heads, of.rows, of.dim];
    let named = |name: &str, of: &Extents| {
        format!("{name} is {} sequences of {} heads of {} rows of {}", of.planes, of.heads, of.rows, of.dim)
    };
    let all_rows = q.planes as u128 * q.heads as u128 * q.rows as u128;
    let what = if sizes(out) != sizes(q) {
        format!("{}, and {}: they must have the same shape", named("q", q), named("out", out))
    } else if sizes(v) != sizes(k) {
        format!("{}, and {}: they must have the same shape", named("k", k), named("v", v))
    } else if (k.planes, k.dim) != (q.planes, q.dim) || !q.heads.is_multiple_of(k.heads) {
        // The only multiple of zero is zero.
        format!(
            "{}, and {}: the number of sequences and the row length must be equal, and q's heads a multiple of k's \
             heads",
            named("q", q),
            named("k", k)
        )
    } else if !DIMS.contains(&q.dim) {
        format!("a row has {} elements: it must have 64, 96, 128, 192 or 256", q.dim)
    } else if let Some(most) = [q, k].map(|of| of.rows.max(of.heads).max(of.planes)).into_iter().max()
        && most >= MAX_ROWS
    {
        format!("there are {most} rows, heads or sequences; the kernel supports at most {}", MAX_ROWS - 1)
    } else if let Some(lse) = lse
        && lse as u128 != all_rows
    {
        format!("{} and {lse} LSE values: there must be one per row, {all_rows} in total", named("q", q))
    } else {
        return match &options.offsets {
            Some(offsets) => check_offsets(operation, offsets, q.planes),
            None => Ok(()),
        };
    };
    Err(TensorError::Heads { operation, what }.into())
}

fn check_offsets(operation: &'static str, Offsets { q, k }: &Offsets<'_>, planes: usize) -> Result<()> {
    let what = if planes != 1 {
        format!(
            "the views have {planes} sequences; with offsets, they must have one that contains the rows of all \
             sequences"
        )
    } else if q.len() != k.len() {
        format!("q has {} offsets, but k has {}", q.len(), k.len())
    } else if q.is_empty() || q.len() > MAX_ROWS {
        format!(
            "there are {} offsets; pass one more than there are sequences, and at most {MAX_ROWS}",
            q.len()
        )
    } else {
        return Ok(());
    };
    Err(TensorError::Heads { operation, what }.into())
}

/// Fails if TMA does not support the address or a stride of the heads.
pub(crate) fn check_alignment<T>(
    operation: &'static str,
    matrix: &'static str,
    extents: &Extents,
    address: u64,
) -> Result<()> {
    let Extents { rows, heads, planes, row, head, plane, .. } = *extents;
    for (count, stride) in [(rows, row), (heads, head), (planes, plane)] {
        let bytes = stride * size_of::<T>();
        if !address.is_multiple_of(16) || (!bytes.is_multiple_of(16) && count > 1) {
            return Err(TensorError::Alignment { operation, matrix, bytes, address }.into());
        }
    }
    Ok(())
}

/// Returns how many of the `all` heads are scheduled together. The blocks of one head read two operands of `read` bytes
/// each, and each group of `group` heads shares the same operands.
pub(crate) fn raster_group<T>(read: &Extents, group: usize, all: usize) -> u32 {
    let bytes = (2 * read.rows * read.dim * size_of::<T>()).max(1);
    (group * (RASTER_GROUP_BYTES / bytes).max(1)).min(all) as u32
}

/// Validated arguments for an attention call.
#[doc(hidden)]
pub struct Call<'a, 'c, T: DeviceCopy> {
    stream: &'a Stream,
    path: Path,
    options: &'a Attention<'a>,
    scale: f32,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    out: HeadsMut<'c, T>,
    lse: Option<DeviceSliceMut<'c, f32>>,
}

/// Kernel parameters.
type Params<T> = (
    param::TensorMap<T, 4>,
    param::TensorMap<T, 4>,
    param::TensorMap<T, 4>,
    param::SliceMut<T>,
    param::Optional<param::SliceMut<f32>>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<Shape>,
);

impl<'a, 'c, T: HeadElement> Call<'a, 'c, T> {
    /// Number of q heads per k and v head.
    fn group(&self) -> usize {
        self.q.extents.heads / self.k.extents.heads
    }

    /// Returns the sequences and the number of their tiles of `tile` rows, or `None` if there are no sequences.
    fn sequences(&self, tile: u32) -> Result<Option<(Sequences, u32)>> {
        let (of_q, of_k, offsets) = (self.q.extents, self.k.extents, self.options.offsets);
        let count = offsets.map_or(of_q.planes, |offsets| offsets.q.len() - 1);
        if count == 0 {
            return Ok(None);
        }
        let sequences = Sequences {
            count: count as u32,
            heads: of_q.heads as u32,
            q_rows: of_q.rows as u32,
            k_rows: of_k.rows as u32,
            raster_group: raster_group::<T>(&of_k, self.group(), of_q.heads * count),
        };
        let tiles = sequences.tiles(tile, offsets.is_some());
        if tiles >= MAX_TILES {
            let what =
                format!("q has {tiles} tiles of {tile} rows; the kernel supports fewer than {MAX_TILES}");
            return Err(TensorError::Heads { operation: OPERATION, what }.into());
        }
        Ok(Some((sequences, tiles as u32)))
    }

    /// Returns the launch for `mma.sync`, or `None` if there are no sequences.
    fn mma_plan(self, stages: Option<usize>) -> Result<Option<Plan<'a, 'c, T>>> {
        let dim = self.q.extents.dim;
        let Some((sequences, tiles)) = self.sequences(tile_q(dim))? else { return Ok(None) };
        let group = self.group() as u32;
        let Self { stream, options, scale, q, k, v, out, lse, .. } = self;
        let shape = MmaShape {
            sequences,
            group,
            is_causal: options.is_causal.into(),
            scale: factor(scale),
            q: strides(&q.extents),
            k: strides(&k.extents),
            v: strides(&v.extents),
            out: strides(&out.extents),
        };
        let inputs = [q.elements, k.elements, v.elements];
        let offsets = [options.offsets.map(|offsets| offsets.q), options.offsets.map(|offsets| offsets.k)];
        Ok(Some(Plan { stream, stages, dim, tiles, inputs, out: out.elements, lse, offsets, shape }))
    }

    fn run<H: Head, K: Kernel<Params = Params<T>>>(self) -> Result<()> {
        let Some((sequences, tiles)) = self.sequences(TILE_Q)? else { return Ok(()) };
        let group = self.group() as u32;
        let Self { stream, options, scale, q, k, v, out, lse, .. } = self;
        let of_k = k.extents;
        // If k has no rows, the kernel reads neither k nor v, and no valid tensor map exists for them.
        let (k, v) = if of_k.rows == 0 { (q, q) } else { (k, v) };
        let inputs = [(q, TILE_Q), (k, H::KEYS), (v, BOX)];
        let rows_first =
            inputs.iter().enumerate().map(|(i, (heads, _))| u32::from(heads.extents.is_by_head()) << i);
        let shape = Shape {
            sequences,
            group,
            is_causal: options.is_causal.into(),
            scale: factor(scale),
            rows_first: rows_first.sum(),
            out: strides(&out.extents),
        };
        let map = |(heads, rows): (Heads<'a, T>, u32)| {
            heads.elements.tensor_map(&layout::<T>(&heads.extents, rows))
        };
        let [q, k, v] = inputs;
        let maps = (map(q)?, map(k)?, map(v)?);
        let offsets = (options.offsets.map(|offsets| offsets.q), options.offsets.map(|offsets| offsets.k));
        let launch = Launch::grid_block(tiles, THREADS).shared(H::SHARED_BYTES);
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let arguments = (maps.0, maps.1, maps.2, out.elements, lse, offsets.0, offsets.1, shape);
        // SAFETY: the tensor maps have the boxes that the kernel requires, and the sizes of the heads have been checked
        // to match. `out` and `lse` are borrowed exclusively. `out` is aligned and has as many rows as q, `lse` has
        // one element per row, and both offset arrays have the same length.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }
}

pub(crate) fn strides(extents: &Extents) -> HeadStrides {
    let Extents { row, head, plane, .. } = *extents;
    HeadStrides { row: row as u64, head: head as u64, plane: plane as u64 }
}

/// Returns the tensor layout of the heads; each box contains `tile` rows of one head.
pub(crate) fn layout<T>(extents: &Extents, tile: u32) -> TensorLayout<4> {
    // The kernel does not use the stride of a dimension of size 1, so the stride may be misaligned or smaller than the
    // inner dimensions. Tensor maps reject such a stride, so it is rounded up.
    let unit = 16 / size_of::<T>();
    let mut dims = [extents.dim, extents.rows, extents.heads, extents.planes];
    let mut strides =
        [1, extents.row, extents.head, extents.plane].map(|stride| stride.next_multiple_of(unit));
    strides[0] = 1;
    let mut tile = [BOX, tile, 1, 1];
    if !extents.is_by_head() {
        dims.swap(1, 2);
        strides.swap(1, 2);
        tile.swap(1, 2);
    }
    TensorLayout { dims, strides, tile, swizzle: Swizzle::Bytes128 }
}
