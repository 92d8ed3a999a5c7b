//! Rotary position embedding and append: checks the sizes of the new tokens and the cache, and launches the kernel.

use gpu_std::tensor::F8E4M3;
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice2, Launch, Result, Stream};
use warpsmith_tensor_kernels::rotary_append::{self as kernels, AppendShape, MAX_DIM, THREADS, WARPS};

use crate::IMAGE;
use crate::attention::{check_alignment, strides};
use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};
use crate::kv_cache::{CacheSizes, KvCacheMut, MAX_ROWS};
use crate::skinny::check_device;

const OPERATION: &str = "rotary_append";

/// Element types of a KV cache to which heads of type `T` are appended: `T`, [`F8E4M3`] and `i8`.
pub trait AppendElement<T: DeviceCopy>: DeviceCopy {
    /// Enqueues the kernel.
    #[doc(hidden)]
    fn append(call: AppendCall<'_, '_, T, Self>) -> Result<()>;
}

macro_rules! elements {
    ($($ty:ty: $($cache:ty),*;)*) => { $($(
        impl AppendElement<$ty> for $cache {
            fn append(call: AppendCall<'_, '_, $ty, Self>) -> Result<()> {
                call.run::<kernels::rotary_append<$ty, $cache>>()
            }
        }
    )*)* };
}
elements! {
    bf16: bf16, F8E4M3, i8;
    f16: f16, F8E4M3, i8;
}

/// Rotary position embedding of [`rotary_append()`], and the optional norm of the heads before it.
#[derive(Debug, Clone, Copy)]
pub struct Rotary<'a, T: DeviceCopy> {
    /// Cosines: row p applies to position p. There is one column per pair of elements, so a head is twice as wide.
    pub cos: DeviceSlice2<'a, f32>,
    /// Sines, with the same shape.
    pub sin: DeviceSlice2<'a, f32>,
    /// True if elements 2i and 2i + 1 of a head form a pair, as in GPT-J. False if element i of the first half of a
    /// head and element i of the second half do, as in GPT-NeoX and Llama.
    pub is_interleaved: bool,
    /// RMS norm of each head of `q` and `k` before the rotation, as in Qwen3.
    pub norm: Option<HeadNorm<'a, T>>,
}

/// RMS norm of each head of `q` and `k`.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorm<'a, T: DeviceCopy> {
    /// Weight of the heads of `q`: one element per element of a head.
    pub q: DeviceSlice<'a, T>,
    /// Weight of the heads of `k`.
    pub k: DeviceSlice<'a, T>,
    /// Number that is added to the mean square. It must be non-negative and finite.
    pub epsilon: f32,
}

/// Rotary position embedding and append in one kernel: rotates the heads of `q` to `out` and those of `k` to the cache,
/// and copies `v` to the cache. The results are computed in `f32` and rounded once. Caches of 8 bits saturate, and in
/// `i8`, NaN becomes -127.
///
/// | operand | sequences | heads | rows |
/// | --- | --- | --- | --- |
/// | `q`, `out` | any number | any number | new tokens per sequence |
/// | `k`, `v` | as many as `q` | any number | new tokens per sequence |
/// | `cache.k`, `cache.v` | see [`KvCache`](crate::KvCache) | as many as `k` | see [`KvCache`](crate::KvCache) |
///
/// As in [`attention_decode()`](crate::attention_decode()), the lengths of the cache include the new tokens: with n new
/// tokens per sequence, token i has position `length - n + i`. A row has up to 256 elements, a multiple of 4. The
/// operands can be parts of one buffer, such as the result of one product for `q`, `k` and `v`.
///
/// The lengths and the block table stay in device memory, and the function does not wait. It does not append tokens at
/// negative positions, beyond the capacity or the tables, or in pages that do not exist. Instead of queries at such
/// positions, it writes zeros. [`KvCache::check`](crate::KvCache::check) reports such lengths and pages.
///
/// On compute capability 9.0, the kernel is launched as a [dependent launch](warpsmith_runtime::Launch::dependent).
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Heads, HeadsMut, KvCacheMut, Rotary, rotary_append};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// // One token with two heads of q, and one head of k and v.
/// let qkv = DeviceBuffer::from_host(&stream, &[bf16::ONE; 4 * 64])?;
/// let heads = |first: usize, count| {
///     let view = qkv.slice(64 * first..).as_3d_strided([1, count, 64], [4 * 64, 64])?;
///     Heads::by_token(view, 1)
/// };
/// // Position 0 rotates by 0 degrees, position 1 by 90 degrees.
/// let cos: Vec<f32> = [[1.0; 32], [0.0; 32]].concat();
/// let sin: Vec<f32> = cos.iter().map(|cos| 1.0 - cos).collect();
/// let (cos, sin) = (DeviceBuffer::from_host(&stream, &cos)?, DeviceBuffer::from_host(&stream, &sin)?);
/// let rotary =
///     Rotary { cos: cos.as_2d(2, 32)?, sin: sin.as_2d(2, 32)?, is_interleaved: false, norm: None };
///
/// let mut k = DeviceBuffer::<bf16>::zeros(&stream, 16 * 64)?;
/// let mut v = DeviceBuffer::<bf16>::zeros(&stream, 16 * 64)?;
/// let mut out = DeviceBuffer::<bf16>::uninit(&stream, 2 * 64)?;
/// let lengths = DeviceBuffer::from_host(&stream, &[2u32])?;
/// let cache = KvCacheMut {
///     k: HeadsMut::by_token(k.as_3d_mut(16, 1, 64)?, 1)?,
///     v: HeadsMut::by_token(v.as_3d_mut(16, 1, 64)?, 1)?,
///     lengths: lengths.as_slice(),
///     pages: None,
///     scales: None,
/// };
/// let to = HeadsMut::by_token(out.as_3d_mut(1, 2, 64)?, 1)?;
/// rotary_append(&stream, &rotary, heads(0, 2)?, heads(2, 1)?, heads(3, 1)?, cache, to)?;
/// let rotated = [[-bf16::ONE; 32], [bf16::ONE; 32]].concat();
/// assert_eq!(out.to_host()?, [rotated.clone(), rotated.clone()].concat());
/// assert_eq!(k.to_host()?[64..128], rotated);
/// assert_eq!(v.to_host()?[64..128], [bf16::ONE; 64]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// Returns [`TensorError::Heads`]; [`TensorError::Alignment`] for a view whose address, row stride, head stride or plane
/// stride is not a multiple of 16 bytes, and for a weight of the norm whose address is not; [`TensorError::Device`] if the compute capability is below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
#[track_caller]
pub fn rotary_append<T: DeviceCopy, C: AppendElement<T>>(
    stream: &Stream,
    rotary: &Rotary<'_, T>,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    cache: KvCacheMut<'_, C>,
    out: HeadsMut<'_, T>,
) -> Result<()> {
    let _site = site();
    check_new(OPERATION, rotary, [&q, &k, &v], &cache.sizes(), &out.extents)?;
    check_device(OPERATION, stream.device())?;
    if q.extents.planes * q.extents.rows == 0 {
        return Ok(());
    }
    let check = |name, extents: &Extents, address: DevicePtr, is_cache: bool| match is_cache {
        _ if extents.sizes().contains(&0) => Ok(()),
        true => check_alignment::<C>(OPERATION, name, extents, address.0),
        false => check_alignment::<T>(OPERATION, name, extents, address.0),
    };
    check("out", &out.extents, out.elements.as_device_ptr(), false)?;
    check("cache.k", &cache.k.extents, cache.k.elements.as_device_ptr(), true)?;
    check("cache.v", &cache.v.extents, cache.v.elements.as_device_ptr(), true)?;
    C::append(AppendCall { stream, rotary: *rotary, q, k, v, cache, out })
}

/// Fails if the sizes of new tokens do not match each other or those of the cache, or if they or the weights of the norms
/// are not aligned.
pub(crate) fn check_new<T: DeviceCopy>(
    operation: &'static str,
    rotary: &Rotary<'_, T>,
    [q, k, v]: [&Heads<'_, T>; 3],
    cache: &CacheSizes<'_>,
    out: &Extents,
) -> Result<()> {
    cache.check(operation, q.extents.planes)?;
    check_new_sizes(operation, rotary, [q, k, v].map(|heads| &heads.extents), cache, out)?;
    for (name, heads) in [("q", q), ("k", k), ("v", v)] {
        if !heads.extents.sizes().contains(&0) {
            check_alignment::<T>(operation, name, &heads.extents, heads.elements.as_device_ptr().0)?;
        }
    }
    for weight in rotary.norm.iter().flat_map(|norm| [norm.q, norm.k]) {
        let (address, bytes) = (weight.as_device_ptr().0, size_of::<T>() * weight.len());
        if !address.is_multiple_of(16) {
            let matrix = "the weight of the norm";
            return Err(TensorError::Alignment { operation, matrix, bytes, address }.into());
        }
    }
    Ok(())
}

/// Fails if the sizes do not match.
fn check_new_sizes<T: DeviceCopy>(
    operation: &'static str,
    rotary: &Rotary<'_, T>,
    [q, k, v]: [&Extents; 3],
    cache: &CacheSizes<'_>,
    out: &Extents,
) -> Result<()> {
    let (cached, Rotary { cos, sin, norm, .. }) = (cache.k, *rotary);
    let [of_cos, of_sin] = [cos, sin].map(|table| (table.rows(), table.columns()));
    let lengths = norm.map_or([q.dim; 2], |norm| [norm.q.len(), norm.k.len()]);
    let epsilon = norm.map_or(0.0, |norm| norm.epsilon);
    let capacity = cache.capacity();
    let most = [q.rows, q.heads, k.heads, cached.planes, capacity, cos.rows()]
        .into_iter()
        .fold(q.planes, usize::max);
    let warps = q.planes.saturating_mul(q.rows).saturating_mul(q.heads + 2 * k.heads);
    let what = if out.sizes() != q.sizes() {
        format!("{}, and {}: they must have the same shape", q.named("q"), out.named("out"))
    } else if v.sizes() != k.sizes() {
        format!("{}, and {}: they must have the same shape", k.named("k"), v.named("v"))
    } else if [k.planes, k.rows, k.dim] != [q.planes, q.rows, q.dim] {
        format!(
            "{}, and {}: they must have the same sequences, rows and row length",
            q.named("q"),
            k.named("k")
        )
    } else if [cached.heads, cached.dim] != [k.heads, k.dim] {
        format!("{}, and {}: they must have the same heads", k.named("k"), cached.named("cache.k"))
    } else if !q.dim.is_multiple_of(4) || q.dim > MAX_DIM {
        format!("a row has {} elements: it must have a multiple of 4, and at most {MAX_DIM}", q.dim)
    } else if of_cos != of_sin || 2 * of_cos.1 != q.dim {
        format!(
            "cos is {} x {} and sin {} x {}: both must have as many rows, and {} columns, half a row of q",
            of_cos.0,
            of_cos.1,
            of_sin.0,
            of_sin.1,
            q.dim / 2
        )
    } else if lengths != [q.dim; 2] {
        format!("the norms have {lengths:?} elements for rows of {}", q.dim)
    } else if !(epsilon >= 0.0 && epsilon.is_finite()) {
        format!("the epsilon of the norm is {epsilon}: it must be non-negative and finite")
    } else if most >= MAX_ROWS || warps >= MAX_ROWS {
        format!("there are {warps} rows and up to {most} tokens or pages; the maximum is {}", MAX_ROWS - 1)
    } else {
        return Ok(());
    };
    Err(TensorError::Heads { operation, what }.into())
}

/// Validated arguments for a call.
#[doc(hidden)]
pub struct AppendCall<'a, 'c, T: DeviceCopy, C: DeviceCopy> {
    stream: &'a Stream,
    rotary: Rotary<'a, T>,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    cache: KvCacheMut<'c, C>,
    out: HeadsMut<'c, T>,
}

/// Kernel parameters.
type Params<T, C> = (
    param::Slice<T>,
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<T>,
    param::SliceMut<C>,
    param::SliceMut<C>,
    param::Slice<f32>,
    param::Slice<f32>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<T>>,
    param::Optional<param::Slice<f32>>,
    param::Optional<param::Slice<f32>>,
    param::Slice<u32>,
    param::Optional<param::Slice<u32>>,
    param::Value<AppendShape>,
);

impl<T: DeviceCopy, C: DeviceCopy> AppendCall<'_, '_, T, C> {
    fn run<K: Kernel<Params = Params<T, C>>>(self) -> Result<()> {
        let Self { stream, rotary: Rotary { cos, sin, is_interleaved, norm }, q, k, v, cache, out } = self;
        let (of_q, of_cache) = (q.extents, cache.k.extents);
        let shape = AppendShape {
            sequences: of_q.planes as u32,
            tokens: of_q.rows as u32,
            q_heads: of_q.heads as u32,
            kv_heads: k.extents.heads as u32,
            half: (of_q.dim / 2) as u32,
            is_interleaved: is_interleaved.into(),
            capacity: cache.sizes().capacity() as u32,
            planes: of_cache.planes as u32,
            plane_rows: of_cache.rows as u32,
            positions: cos.rows() as u32,
            epsilon: norm.map_or(0.0, |norm| norm.epsilon),
            table_pitch: cache.pages.map_or(0, |pages| pages.row_stride() as u64),
            angles: [cos, sin].map(|table| table.row_stride() as u64),
            q: strides(&of_q),
            out: strides(&out.extents),
            new: [strides(&k.extents), strides(&v.extents)],
            cache: [strides(&of_cache), strides(&cache.v.extents)],
        };
        let warps = (of_q.planes * of_q.rows * (of_q.heads + 2 * k.extents.heads)) as u32;
        let launch = Launch::grid_block(warps.div_ceil(WARPS), THREADS);
        let launch = launch.dependent();
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let (cos, sin) = (cos.elements(), sin.elements());
        let (q_norm, k_norm) = (norm.map(|norm| norm.q), norm.map(|norm| norm.k));
        let [k_scales, v_scales] = [0, 1].map(|i| cache.scales.map(|scales| scales[i]));
        let table = cache.pages.map(|pages| pages.elements());
        let arguments = (
            q.elements,
            k.elements,
            v.elements,
            out.elements,
            cache.k.elements,
            cache.v.elements,
            cos,
            sin,
            q_norm,
            k_norm,
            k_scales,
            v_scales,
            cache.lengths,
            table,
            shape,
        );
        // SAFETY: the shape describes the heads and tables, whose sizes and alignment have been checked. The outputs
        // are borrowed exclusively, each sequence has a length and a row of the table, and there is a warp per head and
        // token.
        unsafe { kernel.launch_unsafe(stream, launch, arguments) }
    }
}
