//! [`attention_backward()`]: checks the heads, and launches the kernels.

mod mma;

use gpu_std::{Kernel, param};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, Launch, Result, Stream};
use warpsmith_tensor_kernels::attention_backward::{
    Backward, BackwardHead, DELTA_LANES, DELTA_THREADS, STEP, THREADS, TILE, shared_bytes,
};
use warpsmith_tensor_kernels::sequences::{HeadStrides, Sequences};

use super::{
    Attention, HeadElement, MAX_TILES, check_alignment, check_scale, check_sizes, factor, layout,
    raster_group, strides,
};
use crate::IMAGE;
use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};
use crate::matmul::has_wgmma;
use crate::skinny::check_device;

const OPERATION: &str = "attention_backward";
/// Numbers of elements per row with `wgmma` kernels.
const WGMMA_DIMS: [usize; 2] = [64, 128];

/// Inputs and outputs of the forward pass, which [`attention_with_lse()`](crate::attention_with_lse()) computed.
///
/// See the example of [`attention_backward()`].
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a, T: DeviceCopy> {
    /// Queries.
    pub q: Heads<'a, T>,
    /// Keys.
    pub k: Heads<'a, T>,
    /// Values.
    pub v: Heads<'a, T>,
    /// Output of the forward pass.
    pub out: Heads<'a, T>,
    /// Log-sum-exp of each row.
    pub lse: DeviceSlice<'a, f32>,
}

/// Gradients that the call writes. Each has the same shape as its operand, but can have a different layout.
///
/// See the example of [`attention_backward()`].
#[derive(Debug)]
pub struct Gradients<'a, T: DeviceCopy> {
    /// Gradient of q.
    pub q: HeadsMut<'a, T>,
    /// Gradient of k.
    pub k: HeadsMut<'a, T>,
    /// Gradient of v.
    pub v: HeadsMut<'a, T>,
}

/// Computes the backward pass of [`attention()`](crate::attention()). The outputs are the gradients of `q`, `k` and
/// `v`, computed from the gradient `dout` of `out`. The options must be the same as in the forward pass. A row has 64,
/// 96, 128, 192 or 256 elements. On compute capability 9.0, rows of 64 and 128 elements have faster kernels (`wgmma`)
/// than on other devices (`mma.sync`). The gradients of a head of k and v are summed over all heads of q that attend to
/// it. The gradient is zero for rows of q that attend to no rows, and for rows of k to which no row attends. Gradient
/// rows that belong to no sequence are left unchanged. Because 0 * NaN is NaN, a NaN in a row can also reach the
/// gradients of rows of the same sequence that are masked from it.
///
/// The attention probabilities are recomputed. The probabilities and their gradients are rounded to the element type
/// before they are multiplied. Sums are `f32`, and the order of the additions depends only on the sizes and the device.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{
///     Attended, Attention, Gradients, Heads, HeadsMut, attention_backward, attention_with_lse,
/// };
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // Two tokens of one head of 64 elements, with equal scores.
/// let zeros = DeviceBuffer::<bf16>::zeros(&stream, 2 * 64)?;
/// let ones = DeviceBuffer::from_host(&stream, &[bf16::ONE; 2 * 64])?;
/// let one = |buffer| Heads::by_token(DeviceBuffer::as_3d(buffer, 2, 1, 64)?, 1);
/// let mut out = DeviceBuffer::<bf16>::zeros(&stream, 2 * 64)?;
/// let mut lse = DeviceBuffer::<f32>::zeros(&stream, 2)?;
/// let (q, k, v) = (one(&zeros)?, one(&zeros)?, one(&ones)?);
/// let causal = Attention { is_causal: true, ..Attention::default() };
/// let to = HeadsMut::by_token(out.as_3d_mut(2, 1, 64)?, 1)?;
/// attention_with_lse(&stream, &causal, q, k, v, to, lse.as_mut_slice())?;
///
/// let copy = || zeros.clone_on(&stream);
/// let [mut dq, mut dk, mut dv] = [copy()?, copy()?, copy()?];
/// let gradients = Gradients {
///     q: HeadsMut::by_token(dq.as_3d_mut(2, 1, 64)?, 1)?,
///     k: HeadsMut::by_token(dk.as_3d_mut(2, 1, 64)?, 1)?,
///     v: HeadsMut::by_token(dv.as_3d_mut(2, 1, 64)?, 1)?,
/// };
/// let attended = Attended { q, k, v, out: one(&out)?, lse: lse.as_slice() };
/// attention_backward(&stream, &causal, attended, one(&ones)?, gradients)?;
/// // The first token is all of the first row and half of the second, the second half of the second.
/// let dv = dv.to_host()?;
/// assert_eq!([dv[0], dv[64]].map(f32::from), [1.5, 0.5]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`TensorError::Heads`] if the sizes do not match; [`TensorError::Scale`];
/// [`TensorError::Alignment`] for a view whose address, row stride or head stride is not a multiple of 16 bytes;
/// [`TensorError::Device`] if the compute capability is below 8.0;
/// [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn attention_backward<T: HeadElement>(
    stream: &Stream,
    options: &Attention<'_>,
    attended: Attended<'_, T>,
    dout: Heads<'_, T>,
    gradients: Gradients<'_, T>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Default, options, attended, dout, gradients)
}

/// Like [`attention_backward()`], but with `mma.sync`, for tests and benchmarks. `is_small` selects the small tiling,
/// which is used if the large one does not fit in the shared memory of the device.
///
/// # Errors
/// Returns the same errors as [`attention_backward()`].
#[doc(hidden)]
#[track_caller]
pub fn attention_backward_mma<T: HeadElement>(
    stream: &Stream,
    is_small: Option<bool>,
    options: &Attention<'_>,
    attended: Attended<'_, T>,
    dout: Heads<'_, T>,
    gradients: Gradients<'_, T>,
) -> Result<()> {
    let _site = site();
    run(stream, Path::Mma(is_small), options, attended, dout, gradients)
}

/// Selection of the kernels.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// The fastest kernels that support the device and the heads.
    Default,
    /// `mma.sync`, with the small or large tiling or the default.
    Mma(Option<bool>),
}

fn run<T: HeadElement>(
    stream: &Stream,
    path: Path,
    options: &Attention<'_>,
    attended: Attended<'_, T>,
    dout: Heads<'_, T>,
    gradients: Gradients<'_, T>,
) -> Result<()> {
    let Attended { q, k, v, out, lse } = attended;
    check_sizes(OPERATION, options, [&q.extents, &k.extents, &v.extents, &out.extents], Some(lse.len()))?;
    check_gradients(&attended, &dout, &gradients)?;
    let scale = check_scale(OPERATION, options, q.extents.dim)?;
    check_device(OPERATION, stream.device())?;
    let path = match path {
        Path::Default if !WGMMA_DIMS.contains(&q.extents.dim) || !has_wgmma(stream.device()) => {
            Path::Mma(None)
        }
        path => path,
    };
    if q.extents.heads == 0 || q.extents.planes == 0 {
        return Ok(());
    }
    let written = |heads: &HeadsMut<'_, T>| (heads.extents, heads.elements.as_device_ptr().0);
    let read = |heads: Heads<'_, T>| (heads.extents, heads.elements.as_device_ptr().0);
    for (name, (extents, address)) in [
        ("q", read(q)),
        ("k", read(k)),
        ("v", read(v)),
        ("out", read(out)),
        ("dout", read(dout)),
        ("the gradient of q", written(&gradients.q)),
        ("the gradient of k", written(&gradients.k)),
        ("the gradient of v", written(&gradients.v)),
    ] {
        if extents.rows > 0 {
            check_alignment::<T>(OPERATION, name, &extents, address)?;
        }
    }
    T::launch_backward(Call { stream, path, options, scale, attended, dout, gradients })
}

fn check_gradients<T: DeviceCopy>(
    attended: &Attended<'_, T>,
    dout: &Heads<'_, T>,
    gradients: &Gradients<'_, T>,
) -> Result<()> {
    let sizes = |of: &Extents| [of.planes, of.heads, of.rows, of.dim];
    let pairs = [
        ("dout", "out", &dout.extents, &attended.out.extents),
        ("the gradient of q", "q", &gradients.q.extents, &attended.q.extents),
        ("the gradient of k", "k", &gradients.k.extents, &attended.k.extents),
        ("the gradient of v", "v", &gradients.v.extents, &attended.v.extents),
    ];
    let other = pairs.into_iter().find(|(.., found, expected)| sizes(found) != sizes(expected));
    let what = if let Some((name, of, found, expected)) = other {
        let [planes, heads, rows, dim] = sizes(found);
        let [of_planes, of_heads, of_rows, of_dim] = sizes(expected);
        format!(
            "{name} is {planes} sequences of {heads} heads of {rows} rows of {dim}, and {of} {of_planes} of {of_heads} of {of_rows} of {of_dim}: \
             they must have the same shape"
        )
    } else if attended.q.extents.heads == 0 && attended.k.extents.heads > 0 {
        "q has no heads, so the gradients of k and v are undefined".to_owned()
    } else {
        return Ok(());
    };
    Err(TensorError::Heads { operation: OPERATION, what }.into())
}

/// Validated arguments for a call.
#[doc(hidden)]
pub struct Call<'a, 'c, T: DeviceCopy> {
    stream: &'a Stream,
    pub(super) path: Path,
    options: &'a Attention<'a>,
    scale: f32,
    attended: Attended<'a, T>,
    dout: Heads<'a, T>,
    gradients: Gradients<'c, T>,
}

pub(super) type Map<T> = param::TensorMap<T, 4>;
pub(super) type Delta<T> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<f32>,
    param::Value<HeadStrides>,
    param::Value<HeadStrides>,
    param::Value<Sequences>,
    param::Value<u32>,
    param::Value<u32>,
);
pub(super) type Queries<T> = (
    Map<T>,
    Map<T>,
    Map<T>,
    Map<T>,
    param::Slice<f32>,
    param::Slice<f32>,
    param::SliceMut<T>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<Backward>,
);
pub(super) type Keys<T> = (
    Map<T>,
    Map<T>,
    Map<T>,
    Map<T>,
    param::Slice<f32>,
    param::Slice<f32>,
    param::SliceMut<T>,
    param::SliceMut<T>,
    param::Optional<param::Slice<u32>>,
    param::Optional<param::Slice<u32>>,
    param::Value<Backward>,
);

impl<'a, T: HeadElement> Call<'a, '_, T> {
    /// Returns the number of elements per row.
    pub(super) fn dim(&self) -> usize {
        self.attended.q.extents.dim
    }

    /// Returns the number of sequences: the number of planes, or the number of packed sequences.
    fn count(&self) -> usize {
        self.options.offsets.map_or(self.attended.q.extents.planes, |offsets| offsets.q.len() - 1)
    }

    /// Returns the kernel parameters that describe the sequences. Blocks process the tiles of `raster_group` heads at a
    /// time.
    fn sequences(&self, raster_group: u32) -> Sequences {
        let (of_q, of_k) = (self.attended.q.extents, self.attended.k.extents);
        Sequences {
            count: self.count() as u32,
            heads: of_q.heads as u32,
            q_rows: of_q.rows as u32,
            k_rows: of_k.rows as u32,
            raster_group,
        }
    }

    /// Computes `delta`: the sum of `out * dout` for each row of q.
    pub(super) fn delta<K: Kernel<Params = Delta<T>>>(&self) -> Result<DeviceBuffer<f32>> {
        let (out, dout) = (self.attended.out, self.dout);
        let Extents { dim, rows, heads, planes, .. } = out.extents;
        let count = planes * heads * rows;
        let mut delta = DeviceBuffer::uninit(self.stream, count)?;
        if count > 0 {
            let blocks = count.div_ceil((DELTA_THREADS / DELTA_LANES) as usize);
            let most = self.stream.device().properties().multiprocessors.max(1) as usize * 16;
            let launch = Launch::grid_block(blocks.min(most) as u32, DELTA_THREADS);
            let kernel = self.stream.device().load(&IMAGE)?.kernel::<K>()?;
            let strides = (strides(&out.extents), strides(&dout.extents));
            let sequences = self.sequences(1);
            let elements = (out.elements, dout.elements);
            let arguments = (
                elements.0,
                elements.1,
                &mut delta,
                strides.0,
                strides.1,
                sequences,
                planes as u32,
                dim as u32,
            );
            // SAFETY: the sizes and strides of both operands have been checked, and `delta` has one element per row.
            unsafe { kernel.launch_unsafe(self.stream, launch, arguments)? };
        }
        Ok(delta)
    }

    pub(super) fn run<H, Q, K>(self, delta: &DeviceBuffer<f32>) -> Result<()>
    where
        H: BackwardHead,
        Q: Kernel<Params = Queries<T>>,
        K: Kernel<Params = Keys<T>>,
    {
        let sequences = self.sequences(1);
        let count = self.count();
        let Self { stream, options, scale, attended, dout, gradients, .. } = self;
        let Attended { q, k, v, lse, .. } = attended;
        let (of_q, of_k) = (q.extents, k.extents);
        let group = of_q.heads / of_k.heads;
        if count == 0 {
            return Ok(());
        }
        // An operand without rows is not read, and no valid tensor map exists for it.
        let (queries, keys) = match (of_q.rows, of_k.rows) {
            (0, 0) => return Ok(()),
            (0, _) => ([k, k], [k, v]),
            (_, 0) => ([q, dout], [q, q]),
            _ => ([q, dout], [k, v]),
        };
        let all = [queries[0], keys[0], keys[1], queries[1]];
        let rows_first: u32 =
            all.iter().enumerate().map(|(i, heads)| u32::from(heads.extents.is_by_head()) << i).sum();
        let maps = || -> Result<_> {
            let map = |heads: Heads<'a, T>| heads.elements.tensor_map(&layout::<T>(&heads.extents, STEP));
            Ok([map(all[0])?, map(all[1])?, map(all[2])?, map(all[3])?])
        };
        let of = |raster_group, first, second| Backward {
            sequences: Sequences { raster_group, ..sequences },
            group: group as u32,
            is_causal: options.is_causal.into(),
            scale,
            factor: factor(scale),
            rows_first,
            first,
            second,
        };
        let offsets = || (options.offsets.map(|offsets| offsets.q), options.offsets.map(|offsets| offsets.k));
        let is_packed = options.offsets.is_some();
        let tiles = |sequences: Sequences| match sequences.tiles(TILE, is_packed) {
            tiles if tiles >= MAX_TILES => {
                let what = format!(
                    "there are {tiles} tiles of {TILE} rows; the kernel supports fewer than {MAX_TILES}"
                );
                Err(TensorError::Heads { operation: OPERATION, what })
            }
            tiles => Ok(tiles as u32),
        };
        let device = stream.device();
        let to = strides(&gradients.q.extents);
        let of_queries = of(raster_group::<T>(&of_k, group, of_q.heads * count), to, to);
        // Each block reads all heads of q in its group.
        let read = Extents { rows: of_q.rows * group, ..of_q };
        let to = (strides(&gradients.k.extents), strides(&gradients.v.extents));
        let of_keys = of(raster_group::<T>(&read, 1, of_k.heads * count), to.0, to.1);
        let Sequences { q_rows, k_rows, .. } = of_keys.sequences;
        let turned =
            Sequences { heads: of_k.heads as u32, q_rows: k_rows, k_rows: q_rows, ..of_keys.sequences };
        // All fallible operations come before the first launch, so that an error leaves nothing enqueued.
        let launch = |tiles| Launch::grid_block(tiles, THREADS).shared(shared_bytes(H::DIM));
        let launches = (launch(tiles(of_queries.sequences)?), launch(tiles(turned)?));
        let module = device.load(&IMAGE)?;
        let kernels = (module.kernel::<Q>()?, module.kernel::<K>()?);
        let (for_queries, for_keys) = (maps()?, maps()?);
        if of_q.rows > 0 {
            let ([q, k, v, dout], offsets, dq) = (for_queries, offsets(), gradients.q.elements);
            let arguments = (q, k, v, dout, lse, delta, dq, offsets.0, offsets.1, of_queries);
            // SAFETY: the tensor maps have the boxes that the kernel requires for heads of these sizes. The gradient is
            // borrowed exclusively, is aligned, and has as many rows as q. `lse` and `delta` have one element per row,
            // and both offset arrays have the same length.
            unsafe { kernels.0.launch_unsafe(stream, launches.0, arguments)? };
        }
        if of_k.rows > 0 {
            let ([q, k, v, dout], offsets) = (for_keys, offsets());
            let (dk, dv): (DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>) =
                (gradients.k.elements, gradients.v.elements);
            let arguments = (q, k, v, dout, lse, delta, dk, dv, offsets.0, offsets.1, of_keys);
            // SAFETY: as above, for the gradients of k and v.
            unsafe { kernels.1.launch_unsafe(stream, launches.1, arguments)? };
        }
        Ok(())
    }
}
