//! Attention for decoding: checks the sizes of the queries and the cache, and launches the kernel.

use gpu_std::tensor::mma::WarpOperand;
use gpu_std::tensor::{F8E4M3, Half};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice2, Launch, Result, Stream};
use warpsmith_tensor_kernels::attention_decode::{
    self as kernels, COUNTERS, DecodeShape, GROUP, TILE, shared_bytes, threads, warps, workspace_bytes,
};

use crate::IMAGE;
use crate::attention::{Attention, check_alignment, check_scale, factor, strides};
use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};
use crate::kv_cache::{KvCache, MAX_ROWS};
use crate::schedule::multiprocessors;
use crate::skinny::check_device;

const OPERATION: &str = "attention_decode";
/// Maximum number of blocks per launch.
const MAX_BLOCKS: u64 = i32::MAX as u64;
/// Cost of a block's prologue and epilogue, in tiles per warp.
const BLOCK_COST: u32 = 2;

/// Options of [`attention_decode()`]. By default, the scale is `1 / sqrt(dim)`, and queries attend to all keys up to
/// their own.
///
/// ```
/// use warpsmith_tensor::AttentionDecode;
///
/// let options = AttentionDecode { window: Some(4096), soft_cap: Some(50.0), ..AttentionDecode::default() };
/// assert!(options.scale.is_none() && options.sinks.is_none());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionDecode<'a> {
    /// Softmax scale, which must be positive and finite. `None` means `1 / sqrt(dim)`.
    pub scale: Option<f32>,
    /// Sliding window: the number of keys to which a query attends, including the key of its own token. It must be
    /// positive.
    pub window: Option<usize>,
    /// Logit soft cap, as in Gemma 2: scaled scores become `cap * tanh(score / cap)`. It must be positive and finite.
    pub soft_cap: Option<f32>,
    /// Attention sinks, as in gpt-oss: one logit per head of q, whose exponential is added to the denominator of the
    /// softmax. Scaling and soft cap do not apply to it.
    pub sinks: Option<DeviceSlice<'a, f32>>,
}

/// Element types of queries: `bf16` and `f16`. Scores, attention probabilities and sums are `f32`. The probabilities
/// are rounded to the element type before the multiplication by v.
///
/// See the example of [`attention_decode()`].
pub trait DecodeElement: WarpOperand + Half + DeviceCopy {}
impl DecodeElement for bf16 {}
impl DecodeElement for f16 {}

/// Element types of a KV cache for queries of type `T`: `T`, [`F8E4M3`] and `i8`. Elements of 8 bits are converted to
/// `T` without rounding.
///
/// See the example of [`attention_decode()`].
pub trait CacheElement<T: DecodeElement>: DeviceCopy {
    /// Enqueues the kernel.
    #[doc(hidden)]
    fn launch(call: Call<'_, '_, T, Self>) -> Result<()>;
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl CacheElement<$ty> for $ty {
            fn launch(call: Call<'_, '_, $ty, Self>) -> Result<()> {
                match (call.q.extents.dim, call.groups()) {
                    (64, 1) => call.run::<kernels::attention_decode<$ty, 64, 1>>(),
                    (64, _) => call.run::<kernels::attention_decode<$ty, 64, 2>>(),
                    (128, 1) => call.run::<kernels::attention_decode<$ty, 128, 1>>(),
                    (128, _) => call.run::<kernels::attention_decode<$ty, 128, 2>>(),
                    (_, _) => call.run::<kernels::attention_decode_256<$ty>>(),
                }
            }
        }
        elements!(narrow $ty: F8E4M3, i8);
    )* };
    (narrow $ty:ty: $($cache:ty),*) => { $(
        impl CacheElement<$ty> for $cache {
            fn launch(call: Call<'_, '_, $ty, Self>) -> Result<()> {
                match call.q.extents.dim {
                    64 => call.run::<kernels::attention_decode_8bit<$ty, $cache, 64>>(),
                    128 => call.run::<kernels::attention_decode_8bit<$ty, $cache, 128>>(),
                    _ => call.run::<kernels::attention_decode_8bit<$ty, $cache, 256>>(),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// Attention for decoding: computes `out = softmax(scale * q * k^T) * v` for the last tokens of each sequence, over the
/// keys of the sequence in a cache. With n queries per sequence, query i belongs to token `length - n + i`, and attends
/// to the keys up to its own. The output of a query without keys is zero.
///
/// | operand | sequences | heads | rows |
/// | --- | --- | --- | --- |
/// | `q`, `out` | any number | a multiple of the heads of `k` | the number of queries |
/// | `cache.k`, `cache.v` | see [`KvCache`] | each is shared by the same number of consecutive heads of `q` | see [`KvCache`] |
///
/// A row has 64, 128 or 256 elements. Each operand can have its own layout. The keys of a sequence are split across
/// blocks (split-KV), and the number of blocks depends on the capacity. Each head of `k` and `v` is read once per 16
/// queries of the heads of `q` that share it, or once per 8 queries of 256 elements or
/// with a cache of 8 bits. For long prompts,
/// [`attention`](crate::attention()) is faster.
///
/// NaN in a row of `k` or `v` propagates to the queries that attend to it. Because 0 * NaN is NaN, a NaN in `v` can
/// also reach queries of earlier tokens of the sequence.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{AttentionDecode, Heads, HeadsMut, KvCache, attention_decode};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // Two sequences with four heads of q, and a pool of three pages of 16 tokens with two heads of k and v. All rows of
/// // v in a page contain the index of the page.
/// let q = DeviceBuffer::<bf16>::zeros(&stream, 2 * 4 * 64)?;
/// let k = DeviceBuffer::<bf16>::zeros(&stream, 3 * 16 * 2 * 64)?;
/// let numbers: Vec<bf16> = (0..k.len()).map(|i| bf16::from_f32((i / (16 * 2 * 64)) as f32)).collect();
/// let v = DeviceBuffer::from_host(&stream, &numbers)?;
/// let mut out = DeviceBuffer::<bf16>::uninit(&stream, 2 * 4 * 64)?;
/// // The first sequence has 32 tokens in pages 2 and 0, the second has 5 in page 1.
/// let pages = DeviceBuffer::from_host(&stream, &[2u32, 0, 1, 1])?;
/// let lengths = DeviceBuffer::from_host(&stream, &[32u32, 5])?;
///
/// let pool = |buffer| Heads::by_token(DeviceBuffer::as_3d(buffer, 3 * 16, 2, 64)?, 3);
/// let pages = Some(pages.as_2d(2, 2)?);
/// let cache = KvCache { k: pool(&k)?, v: pool(&v)?, lengths: lengths.as_slice(), pages, scales: None };
/// let to = HeadsMut::by_token(out.as_3d_mut(2, 4, 64)?, 2)?;
/// let q = Heads::by_token(q.as_3d(2, 4, 64)?, 2)?;
/// attention_decode(&stream, &AttentionDecode::default(), q, &cache, to)?;
/// // All scores are equal: the means of 2 and 0, and of 1.
/// let out = out.to_host()?;
/// assert!(out[..4 * 64].iter().all(|&x| x == bf16::ONE) && out[4 * 64..].iter().all(|&x| x == bf16::ONE));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns [`TensorError::Heads`]; [`TensorError::Scale`]; [`TensorError::SoftCap`]; [`TensorError::Alignment`] for a
/// view whose address, row stride or head stride is not a multiple of 16 bytes; [`TensorError::Device`] if the compute
/// capability is below 8.0;
/// [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn attention_decode<T: DecodeElement, C: CacheElement<T>>(
    stream: &Stream,
    options: &AttentionDecode<'_>,
    q: Heads<'_, T>,
    cache: &KvCache<'_, C>,
    out: HeadsMut<'_, T>,
) -> Result<()> {
    let _site = site();
    let KvCache { k, v, lengths, pages, scales } = *cache;
    check_sizes(&q.extents, &out.extents, cache, options)?;
    let scale = Attention { scale: options.scale, ..Attention::default() };
    let scale = check_scale(OPERATION, &scale, q.extents.dim)?;
    let [scale, cap] = match options.soft_cap {
        Some(cap) if cap > 0.0 && cap.is_finite() => [factor(cap), factor(2.0 * scale / cap)],
        Some(cap) => return Err(TensorError::SoftCap { operation: OPERATION, cap: cap.to_string() }.into()),
        None => [factor(scale), 0.0],
    };
    check_device(OPERATION, stream.device())?;
    if [q.extents.heads, q.extents.planes, q.extents.rows].contains(&0) {
        return Ok(());
    }
    check_alignment::<T>(OPERATION, "q", &q.extents, q.elements.as_device_ptr().0)?;
    if k.extents.rows > 0 && k.extents.planes > 0 {
        check_alignment::<C>(OPERATION, "k", &k.extents, k.elements.as_device_ptr().0)?;
        check_alignment::<C>(OPERATION, "v", &v.extents, v.elements.as_device_ptr().0)?;
    }
    check_alignment::<T>(OPERATION, "out", &out.extents, out.elements.as_device_ptr().0)?;
    let window = options.window.unwrap_or(MAX_ROWS).min(MAX_ROWS) as u32;
    C::launch(Call { stream, scale, cap, window, sinks: options.sinks, q, k, v, lengths, pages, scales, out })
}

/// Fails if the sizes do not match.
fn check_sizes<T: DeviceCopy>(
    q: &Extents,
    out: &Extents,
    cache: &KvCache<'_, T>,
    options: &AttentionDecode<'_>,
) -> Result<()> {
    let sizes = cache.sizes();
    let (k, capacity) = (sizes.k, sizes.capacity());
    sizes.check(OPERATION, q.planes)?;
    let queries = q.heads.saturating_mul(q.rows);
    let most = [queries, q.planes, k.planes, k.rows, capacity].into_iter().max().unwrap_or(0);
    let what = if out.sizes() != q.sizes() {
        format!("{}, and {}: they must have the same shape", q.named("q"), out.named("out"))
    } else if k.dim != q.dim || !q.heads.is_multiple_of(k.heads) {
        // The only multiple of zero is zero.
        format!(
            "{}, and {}: rows must have the same length, and q's heads must be a multiple of k's heads",
            q.named("q"),
            k.named("k")
        )
    } else if ![64, 128, 256].contains(&q.dim) {
        format!("a row has {} elements: it must have 64, 128 or 256", q.dim)
    } else if let Some(sinks) = options.sinks
        && sinks.len() != q.heads
    {
        format!("there are {} sinks for {} heads of q", sinks.len(), q.heads)
    } else if options.window == Some(0) {
        "the window has 0 keys: it must have at least the key of the query's own token".to_owned()
    } else if cache.pages.is_some() && !k.rows.is_multiple_of(TILE as usize) {
        format!("a page has {} rows: it must have a multiple of {TILE}", k.rows)
    } else if most >= MAX_ROWS {
        format!("there are {most} keys, queries, sequences or pages; at most {} are supported", MAX_ROWS - 1)
    } else {
        return Ok(());
    };
    Err(TensorError::Heads { operation: OPERATION, what }.into())
}

/// Validated arguments for a call.
#[doc(hidden)]
pub struct Call<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    stream: &'a Stream,
    /// Factors of the scores, as in [`DecodeShape`].
    scale: f32,
    cap: f32,
    window: u32,
    sinks: Option<DeviceSlice<'a, f32>>,
    q: Heads<'a, T>,
    k: Heads<'a, C>,
    v: Heads<'a, C>,
    lengths: DeviceSlice<'a, u32>,
    pages: Option<DeviceSlice2<'a, u32>>,
    scales: Option<[DeviceSlice<'a, f32>; 2]>,
    out: HeadsMut<'c, T>,
}

/// Kernel parameters.
type Params<T, C> = (
    param::Slice<T>,
    param::Slice<C>,
    param::Slice<C>,
    param::SliceMut<T>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Slice<u32>,
    param::Optional<param::Slice<u32>>,
    param::PointerMut<u32>,
    param::Value<DecodeShape>,
);

impl<T: DecodeElement, C: DeviceCopy> Call<'_, '_, T, C> {
    /// Returns the number of heads of q per head of k and v.
    fn group(&self) -> u32 {
        (self.q.extents.heads / self.k.extents.heads) as u32
    }

    /// Returns the number of queries that share keys and values: those of one sequence and one head of k.
    fn queries(&self) -> u32 {
        self.group() * self.q.extents.rows as u32
    }

    /// Returns the number of column groups per unit.
    fn groups(&self) -> u32 {
        if self.queries() > GROUP && self.q.extents.dim < 256 && size_of::<C>() == 2 { 2 } else { 1 }
    }

    fn run<K: Kernel<Params = Params<T, C>>>(self) -> Result<()> {
        let (group, queries, groups) = (self.group(), self.queries(), self.groups());
        let Self { stream, scale, cap, window, sinks, q, k, v, lengths, pages, scales, out } = self;
        let (of_q, of_k, dim) = (q.extents, k.extents, q.extents.dim);
        let shared = shared_bytes(dim, size_of::<C>());
        let (pages_of_sequence, table_pitch) =
            pages.map_or((1, 0), |pages| (pages.columns(), pages.row_stride() as u64));
        let capacity = (pages_of_sequence * of_k.rows) as u32;
        let units = (of_q.planes * of_k.heads) as u64 * u64::from(queries.div_ceil(GROUP * groups));
        // The keys of the windows of all queries start and end anywhere in a tile.
        let keys = capacity.min(window.saturating_add(of_q.rows as u32 + TILE));
        let work =
            Work { units, tiles: keys.div_ceil(TILE), warps: warps(dim), slots: slots(stream, shared) };
        let splits = work.splits();
        let blocks = units * u64::from(splits);
        if blocks > MAX_BLOCKS {
            let what = format!("the heads of all sequences need {blocks} blocks, more than {MAX_BLOCKS}");
            return Err(TensorError::Heads { operation: OPERATION, what }.into());
        }
        let shape = DecodeShape {
            kv_heads: of_k.heads as u32,
            group,
            queries: of_q.rows as u32,
            window,
            splits,
            capacity,
            planes: of_k.planes as u32,
            plane_tiles: (of_k.rows as u32).div_ceil(TILE),
            scale,
            cap,
            table_pitch,
            q: strides(&of_q),
            out: strides(&out.extents),
            k: strides(&of_k),
            v: strides(&v.extents),
        };
        let table = pages.map(|pages| pages.elements());
        let launch = Launch::grid_block(blocks as u32, threads(dim)).shared(shared);
        let launch = launch.dependent();
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let [k_scales, v_scales] = [0, 1].map(|i| scales.map(|scales| scales[i]));
        let enqueue = |workspace: DevicePtr| {
            let arguments = (
                q.elements,
                k.elements,
                v.elements,
                out.elements,
                sinks,
                k_scales,
                v_scales,
                lengths,
                table,
                workspace,
                shape,
            );
            // SAFETY: the shape describes the heads, whose sizes and alignment have been checked. `out` is borrowed
            // exclusively, each head of q has a sink and each head of k and v a scale, each sequence has a length and a
            // row of the table, and the grid has `splits` blocks per unit. If there are several blocks per unit, the
            // workspace has space for their results.
            unsafe { kernel.launch_unsafe(stream, launch, arguments) }
        };
        if splits == 1 {
            return enqueue(DevicePtr::NULL);
        }
        // Sizes are powers of two, so that larger launches rarely need a new allocation.
        let bytes = workspace_bytes(dim, groups as usize, blocks as usize).next_power_of_two();
        // SAFETY: the memset and the kernel run on this stream, and the kernel leaves the counters zero.
        unsafe {
            stream.with_scratch(OPERATION, bytes, |memory, is_new| {
                if is_new {
                    let (driver, context) = stream.device().driver();
                    driver.memset(context, memory, 0, size_of::<u32>() * COUNTERS, stream.handle())?;
                }
                enqueue(memory)
            })
        }
    }
}

/// Returns the number of blocks that the device can run at once, with this much shared memory per block.
fn slots(stream: &Stream, shared_bytes: u32) -> u32 {
    /// Shared memory that the driver reserves per block.
    const RESERVED: u32 = 1024;
    let shared = stream.device().properties().shared_memory_per_multiprocessor;
    multiprocessors(stream.device()).max(1) * (shared / (shared_bytes + RESERVED)).max(1)
}

/// Units whose keys are split across blocks.
struct Work {
    units: u64,
    /// Number of tiles per unit, if the cache is full.
    tiles: u32,
    warps: u32,
    /// Number of blocks that the device can run at once.
    slots: u32,
}

impl Work {
    /// Returns the number of blocks per unit with the lowest estimated cost.
    fn splits(&self) -> u32 {
        if self.units > COUNTERS as u64 {
            return 1;
        }
        let rounds = self.tiles.div_ceil(self.warps).max(1);
        let most = rounds.min((2 * self.slots).div_ceil(self.units.max(1) as u32));
        let cost = |splits: &u32| {
            let waves = (self.units * u64::from(*splits)).div_ceil(self.slots.into());
            waves * u64::from(rounds.div_ceil(*splits) + BLOCK_COST)
        };
        (1..=most.max(1)).min_by_key(cost).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(units: u64, keys: u32) -> u32 {
        Work { units, tiles: keys / TILE, warps: 4, slots: 264 }.splits()
    }

    #[test]
    fn splits_fill_the_device_without_a_second_wave() {
        assert_eq!(splits(8, 1024), 16);
        assert_eq!(splits(8, 65536), 32);
        assert_eq!(splits(128, 8192), 2);
        assert_eq!(splits(512, 8192), 1);
        // One and a half waves would take as long as two.
        assert_eq!(splits(384, 65536), 2);
        assert_eq!(splits(1, 0), 1);
        assert_eq!(splits(COUNTERS as u64 + 1, 65536), 1);
    }
}
