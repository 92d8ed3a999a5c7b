//! Attention for decoding: checks the sizes of the queries and the cache, and launches the kernel.

use gpu_std::tensor::mma::WarpOperand;
use gpu_std::tensor::{F8E4M3, Half};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::extension::{Access, BufferUse, site};
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSliceMut, Launch, Result, Stream};
use warpsmith_tensor_kernels::attention_decode::{
    self as kernels, COUNTERS, DecodeShape, GROUP, NewShape, TILE, shared_bytes, threads, warps,
    workspace_bytes,
};

use crate::IMAGE;
use crate::attention::{Attention, check_alignment, check_scale, factor, strides};
use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};
use crate::kv_cache::{CacheSizes, KvCache, KvCacheMut, MAX_ROWS};
use crate::matrix::{Stored, check_rows};
use crate::rotary_append::{AppendElement, Rotary, check_new};
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
/// with a cache of 8 bits. For long prompts, [`attention`](crate::attention()) is faster.
///
/// As in [`attention_decode_append()`], the kernel can start to copy keys and values while the preceding kernel runs.
///
/// NaN in a row of `k` or `v` propagates to the queries that attend to it. Because 0 * NaN is NaN, a NaN in `v` can
/// also reach queries of earlier tokens of the sequence.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{AttentionDecode, Heads, HeadsMut, KvCache, attention_decode};
///
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
/// # Ok::<(), warpsmith_runtime::Error>(())
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
    let keys = Keys::Cached { k: k.elements, v: v.elements };
    Call::new(OPERATION, stream, options, q, (&cache.sizes(), keys), (lengths, pages, scales), out)
        .and_then(|call| call.map_or(Ok(()), C::launch))
}

/// New token of each sequence, for [`attention_decode_append()`].
#[derive(Debug, Clone, Copy)]
pub struct NewTokens<'a, T: DeviceCopy> {
    /// Keys, before the rotation.
    pub k: Heads<'a, T>,
    /// Values.
    pub v: Heads<'a, T>,
    /// Rotary position embedding of `k` and of the queries, and the optional norm before it.
    pub rotary: Rotary<'a, T>,
}

/// A decoding step in one kernel: [`rotary_append()`](crate::rotary_append()) of one new token per sequence, and
/// [`attention_decode()`] of its queries. For tokens inside the cache, the results are the same, except that rounding can
/// differ in the norm. If a sequence reads a row that this call appends for another sequence or position, because they
/// share a page, the values that it reads are unspecified.
///
/// | operand | sequences | heads | rows |
/// | --- | --- | --- | --- |
/// | `q`, `out` | any number | a multiple of the heads of `new.k` | 1 |
/// | `new.k`, `new.v` | as many as `q` | any number | 1 |
/// | `cache.k`, `cache.v` | see [`KvCache`] | as many as `new.k` | see [`KvCache`] |
///
/// A row has 64, 128 or 256 elements. The lengths of the cache include the new tokens. If the position of a new token is
/// negative, above the capacity or outside the tables, its row of `out` is zero, and it is not appended. If the page of
/// the token does not exist, the token is not appended, and its queries do not attend to it.
///
/// The kernel starts to copy keys and values while the preceding kernel on the stream is still running, if all writes of
/// the cache, its scales, its lengths and its block table have completed or, in a CUDA graph, if the graph does not write
/// them earlier.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{
///     AttentionDecode, Heads, HeadsMut, KvCacheMut, NewTokens, Rotary, attention_decode_append,
/// };
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // One token with two heads of q, and one head of k and v.
/// let qkv = DeviceBuffer::from_host(&stream, &[bf16::ONE; 4 * 64])?;
/// let heads = |first: usize, count| {
///     let view = qkv.slice(64 * first..).as_3d_strided([1, count, 64], [4 * 64, 64])?;
///     Heads::by_token(view, 1)
/// };
/// // All positions have the angle 0.
/// let (cos, sin) = (DeviceBuffer::filled(&stream, 2 * 32, 1.0f32)?, DeviceBuffer::zeros(&stream, 2 * 32)?);
/// let rotary =
///     Rotary { cos: cos.as_2d(2, 32)?, sin: sin.as_2d(2, 32)?, is_interleaved: false, norm: None };
///
/// // The cache has one token with the same key, and the value 3.
/// let mut k = DeviceBuffer::filled(&stream, 16 * 64, bf16::ONE)?;
/// let mut v = DeviceBuffer::filled(&stream, 16 * 64, bf16::from_f32(3.0))?;
/// let mut out = DeviceBuffer::<bf16>::uninit(&stream, 2 * 64)?;
/// let lengths = DeviceBuffer::from_host(&stream, &[2u32])?;
/// let cache = KvCacheMut {
///     k: HeadsMut::by_token(k.as_3d_mut(16, 1, 64)?, 1)?,
///     v: HeadsMut::by_token(v.as_3d_mut(16, 1, 64)?, 1)?,
///     lengths: lengths.as_slice(),
///     pages: None,
///     scales: None,
/// };
/// let new = NewTokens { k: heads(2, 1)?, v: heads(3, 1)?, rotary };
/// let to = HeadsMut::by_token(out.as_3d_mut(1, 2, 64)?, 1)?;
/// attention_decode_append(&stream, &AttentionDecode::default(), heads(0, 2)?, &new, cache, to)?;
/// assert_eq!(v.to_host()?[64..128], [bf16::ONE; 64]);
/// // The mean of the two values.
/// assert_eq!(out.to_host()?, [bf16::from_f32(2.0); 2 * 64]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of [`attention_decode()`] and of [`rotary_append()`](crate::rotary_append()), and
/// [`TensorError::Heads`] for more than one new token per sequence; [`TensorError::Alignment`] if the address or the row
/// stride of `cos` or `sin` is not a multiple of 16 bytes.
#[track_caller]
pub fn attention_decode_append<T: DecodeElement, C: CacheElement<T> + AppendElement<T>>(
    stream: &Stream,
    options: &AttentionDecode<'_>,
    q: Heads<'_, T>,
    new: &NewTokens<'_, T>,
    cache: KvCacheMut<'_, C>,
    out: HeadsMut<'_, T>,
) -> Result<()> {
    const OPERATION: &str = "attention_decode_append";
    let _site = site();
    let sizes = cache.sizes();
    check_new(OPERATION, &new.rotary, [&q, &new.k, &new.v], &sizes, &out.extents)?;
    if q.extents.rows != 1 || q.extents.heads == 0 {
        let what = format!("{}: it must have heads, and one row per sequence", q.extents.named("q"));
        return Err(TensorError::Heads { operation: OPERATION, what }.into());
    }
    for (name, table) in [("cos", new.rotary.cos), ("sin", new.rotary.sin)] {
        let [planes, plane_stride] = [1, 0];
        let (rows, columns, row_stride) = (table.rows(), table.columns(), table.row_stride());
        let stored = Stored { planes, rows, columns, plane_stride, row_stride };
        check_rows(OPERATION, name, table.elements(), stored)?;
    }
    let (lengths, pages, scales) = (cache.lengths, cache.pages, cache.scales);
    let (of_k, of_v) = (cache.k.extents, cache.v.extents);
    let sizes = CacheSizes { k: &of_k, v: &of_v, ..sizes };
    let keys = Keys::New { k: cache.k.elements, v: cache.v.elements, tokens: new };
    Call::new(OPERATION, stream, options, q, (&sizes, keys), (lengths, pages, scales), out)
        .and_then(|call| call.map_or(Ok(()), C::launch))
}

/// Fails if the sizes do not match.
fn check_sizes(
    operation: &'static str,
    q: &Extents,
    out: &Extents,
    sizes: &CacheSizes<'_>,
    is_paged: bool,
    options: &AttentionDecode<'_>,
) -> Result<()> {
    let (k, capacity) = (sizes.k, sizes.capacity());
    sizes.check(operation, q.planes)?;
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
    } else if is_paged && !k.rows.is_multiple_of(TILE as usize) {
        format!("a page has {} rows: it must have a multiple of {TILE}", k.rows)
    } else if most >= MAX_ROWS {
        format!("there are {most} keys, queries, sequences or pages; at most {} are supported", MAX_ROWS - 1)
    } else {
        return Ok(());
    };
    Err(TensorError::Heads { operation, what }.into())
}

/// Keys and values to which queries attend.
enum Keys<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    Cached {
        k: DeviceSlice<'a, C>,
        v: DeviceSlice<'a, C>,
    },
    /// A cache to which new tokens are appended.
    New {
        k: DeviceSliceMut<'c, C>,
        v: DeviceSliceMut<'c, C>,
        tokens: &'a NewTokens<'a, T>,
    },
}

impl<T: DeviceCopy, C: DeviceCopy> Keys<'_, '_, T, C> {
    /// Returns the addresses of k and v.
    fn addresses(&self) -> [DevicePtr; 2] {
        match self {
            Self::Cached { k, v } => [k.as_device_ptr(), v.as_device_ptr()],
            Self::New { k, v, .. } => [k.as_device_ptr(), v.as_device_ptr()],
        }
    }

    /// Returns the uses of k and v.
    fn uses(&self) -> [BufferUse<'_>; 2] {
        match self {
            Self::Cached { k, v } => [k.used(Access::Read), v.used(Access::Read)],
            Self::New { k, v, .. } => [k.used(), v.used()],
        }
    }
}

/// Block table, lengths and scales of a cache.
type Tables<'a> = (DeviceSlice<'a, u32>, Option<DeviceSlice2<'a, u32>>, Option<[DeviceSlice<'a, f32>; 2]>);

/// Validated arguments for a call.
#[doc(hidden)]
pub struct Call<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    operation: &'static str,
    stream: &'a Stream,
    /// Factors of the scores, as in [`DecodeShape`].
    scale: f32,
    cap: f32,
    window: u32,
    sinks: Option<DeviceSlice<'a, f32>>,
    q: Heads<'a, T>,
    /// Sizes of k and v.
    of_k: Extents,
    of_v: Extents,
    keys: Keys<'a, 'c, T, C>,
    lengths: DeviceSlice<'a, u32>,
    pages: Option<DeviceSlice2<'a, u32>>,
    scales: Option<[DeviceSlice<'a, f32>; 2]>,
    out: HeadsMut<'c, T>,
}

/// Kernel parameters.
type Params<T, C> = (
    param::Slice<T>,
    param::Optional<param::Slice<C>>,
    param::Optional<param::Slice<C>>,
    param::SliceMut<T>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Slice<u32>,
    param::Optional<param::Slice<u32>>,
    param::PointerMut<u32>,
    param::Optional<param::SliceMut<C>>,
    param::Optional<param::SliceMut<C>>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Value<DecodeShape>,
);

impl<'a, 'c, T: DecodeElement, C: DeviceCopy> Call<'a, 'c, T, C> {
    /// Checks the arguments. Returns `None` if there are no queries.
    fn new(
        operation: &'static str,
        stream: &'a Stream,
        options: &AttentionDecode<'a>,
        q: Heads<'a, T>,
        (sizes, keys): (&CacheSizes<'_>, Keys<'a, 'c, T, C>),
        (lengths, pages, scales): Tables<'a>,
        out: HeadsMut<'c, T>,
    ) -> Result<Option<Self>> {
        check_sizes(operation, &q.extents, &out.extents, sizes, pages.is_some(), options)?;
        let scale = Attention { scale: options.scale, ..Attention::default() };
        let scale = check_scale(operation, &scale, q.extents.dim)?;
        let [scale, cap] = match options.soft_cap {
            Some(cap) if cap > 0.0 && cap.is_finite() => [factor(cap), factor(2.0 * scale / cap)],
            Some(cap) => return Err(TensorError::SoftCap { operation, cap: cap.to_string() }.into()),
            None => [factor(scale), 0.0],
        };
        check_device(operation, stream.device())?;
        if [q.extents.heads, q.extents.planes, q.extents.rows].contains(&0) {
            return Ok(None);
        }
        check_alignment::<T>(operation, "q", &q.extents, q.elements.as_device_ptr().0)?;
        let (of_k, of_v, [k, v]) = (*sizes.k, *sizes.v, keys.addresses());
        if of_k.rows > 0 && of_k.planes > 0 {
            check_alignment::<C>(operation, "k", &of_k, k.0)?;
            check_alignment::<C>(operation, "v", &of_v, v.0)?;
        }
        check_alignment::<T>(operation, "out", &out.extents, out.elements.as_device_ptr().0)?;
        let window = options.window.unwrap_or(MAX_ROWS).min(MAX_ROWS) as u32;
        let sinks = options.sinks;
        Ok(Some(Self {
            operation,
            stream,
            scale,
            cap,
            window,
            sinks,
            q,
            of_k,
            of_v,
            keys,
            lengths,
            pages,
            scales,
            out,
        }))
    }

    /// Returns whether the kernel may read the cache before the preceding launches have completed.
    fn reads_early(&self) -> bool {
        let tables = [Some(self.lengths), self.pages.map(|pages| pages.elements())];
        let tables = tables.into_iter().flatten().map(|table| table.used(Access::Read));
        let scales = self.scales.into_iter().flatten().map(|scales| scales.used(Access::Read));
        self.keys.uses().into_iter().chain(tables).chain(scales).all(|part| part.is_settled(self.stream))
    }

    /// Returns the number of heads of q per head of k and v.
    fn group(&self) -> u32 {
        (self.q.extents.heads / self.of_k.heads) as u32
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
        let reads_early = self.reads_early();
        let Self {
            operation,
            stream,
            scale,
            cap,
            window,
            sinks,
            q,
            of_k,
            of_v,
            keys,
            lengths,
            pages,
            scales,
            out,
        } = self;
        let (of_q, dim) = (q.extents, q.extents.dim);
        let (cached, appended, new) = match keys {
            Keys::Cached { k, v } => ([Some(k), Some(v)], [None, None], None),
            Keys::New { k, v, tokens } => ([None, None], [Some(k), Some(v)], Some(tokens)),
        };
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
            return Err(TensorError::Heads { operation, what }.into());
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
            v: strides(&of_v),
            reads_early: reads_early.into(),
            new: new.map_or(NewShape::NONE, NewTokens::shape),
        };
        let (rotary, norm) = (new.map(|new| new.rotary), new.and_then(|new| new.rotary.norm));
        let [new_k, new_v] = [new.map(|new| new.k.elements), new.map(|new| new.v.elements)];
        let [cos, sin] =
            [rotary.map(|rotary| rotary.cos.elements()), rotary.map(|rotary| rotary.sin.elements())];
        let [q_norm, k_norm] = [norm.map(|norm| norm.q), norm.map(|norm| norm.k)];
        let [appended_k, appended_v] = appended;

        let table = pages.map(|pages| pages.elements());
        let launch = Launch::grid_block(blocks as u32, threads(dim)).shared(shared);
        let launch = launch.dependent();
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let [k_scales, v_scales] = [0, 1].map(|i| scales.map(|scales| scales[i]));
        let enqueue = |workspace: DevicePtr| {
            let arguments = (
                q.elements,
                cached[0],
                cached[1],
                out.elements,
                sinks,
                k_scales,
                v_scales,
                lengths,
                table,
                workspace,
                appended_k,
                appended_v,
                new_k,
                new_v,
                cos,
                sin,
                q_norm,
                k_norm,
                shape,
            );
            // SAFETY: the shape describes the heads and tables, whose sizes and alignment have been checked. `out` and a
            // cache that is appended to are borrowed exclusively, each head of q has a sink and each head of k and v a scale, each sequence has a length and a
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
            stream.with_scratch(operation, bytes, |memory, is_new| {
                if is_new {
                    let (driver, context) = stream.device().driver();
                    driver.memset(context, memory, 0, size_of::<u32>() * COUNTERS, stream.handle())?;
                }
                enqueue(memory)
            })
        }
    }
}

impl<T: DeviceCopy> NewTokens<'_, T> {
    fn shape(&self) -> NewShape {
        let Rotary { cos, sin, is_interleaved, norm } = self.rotary;
        NewShape {
            is_interleaved: is_interleaved.into(),
            positions: cos.rows() as u32,
            epsilon: norm.map_or(0.0, |norm| norm.epsilon),
            angles: [cos, sin].map(|table| table.row_stride() as u64),
            tokens: [strides(&self.k.extents), strides(&self.v.extents)],
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
