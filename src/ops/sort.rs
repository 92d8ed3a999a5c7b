//! Radix sorts and binary searches in sorted arrays. All operations except [`sort_segments()`] are
//! asynchronous. Each sort uses as much temporary memory as its outputs occupy.

use gpu_kernels::key_transform::{self, Bits, KeyTransform};
use gpu_kernels::search::search_sorted;
use gpu_kernels::sort as radix;
use gpu_kernels::sort::{
    DIGIT_BITS, DIGITS, THREADS, radix_histogram, radix_pass, radix_pass_pairs, radix_starts, tile_len,
    workspace_len,
};
use gpu_spec::param::{Slice, SliceMut, Value};
use gpu_std::scalar::{Element, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Launch, Module, Result, Stream,
};

use super::launch::same_length;
use super::offset_check::check_offsets;
use super::tile_queue;
use crate::IMAGE;
use crate::op_error::OpError;

/// Sort order.
///
/// The order is total. For floats, the ascending order is −∞, …, −0, +0, …, +∞, NaN. NaNs count as greater than all
/// numbers, regardless of sign and payload, and keep their bits. NaNs whose sign bit is set come after NaNs whose sign
/// bit is clear.
///
/// See the example of [`sort()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first.
    Descending,
}

/// A key type that can be sorted: `f32`, `i32`, `u32`, `f64`, `i64` or `u64`.
///
/// See the example of [`sort()`].
pub trait SortKey: Number + sealed::Key {}

mod sealed {
    use super::*;

    /// A key type whose bits a radix sort processes.
    pub trait Key {
        type Bits: KeyBits;
        /// Order-preserving key transform of the type's bits, for ascending order.
        const TRANSFORM: KeyTransform<Self::Bits>;
    }

    /// The arrays of one pass over pairs: keys, values, output keys and output values, in this order.
    pub type Pass<'a, K, V> = (
        DeviceSlice<'a, K>,
        Option<DeviceSlice<'a, V>>,
        DeviceSliceMut<'a, K>,
        Option<DeviceSliceMut<'a, V>>,
    );

    /// A payload type of 4 or 8 bytes.
    pub trait Payload: Scalar {}
    impl Payload for u32 {}
    impl Payload for u64 {}

    /// Launches the kernels for keys of one size.
    pub trait KeyBits: Bits + DeviceCopy {
        fn histogram(
            of: &Launcher<'_>,
            transform: KeyTransform<Self>,
            keys: DeviceSlice<'_, Self>,
            counts: &mut DeviceBuffer<u32>,
        ) -> Result<()>;

        /// # Safety
        /// The caller must uphold the safety contract of `radix_pass`, except for the array lengths, which this
        /// function checks.
        unsafe fn pass<V: Payload>(
            of: &Launcher<'_>,
            transform: (KeyTransform<Self>, u32),
            pairs: Pass<'_, Self, V>,
            starts: DeviceSlice<'_, u32>,
            workspace: (DevicePtr, usize),
        ) -> Result<()>;

        fn segments(
            of: &Launcher<'_>,
            transform: KeyTransform<Self>,
            keys: DeviceSlice<'_, Self>,
            offsets: DeviceSlice<'_, u64>,
            spare: &mut DeviceBuffer<Self>,
            out: DeviceSliceMut<'_, Self>,
        ) -> Result<()>;
    }
}

use sealed::{KeyBits, Pass, Payload};

/// Launch target of a sort's kernels: a stream and the loaded module.
pub struct Launcher<'a> {
    stream: &'a Stream,
    module: Module,
}

impl<'a> Launcher<'a> {
    fn new(stream: &'a Stream) -> Result<Self> {
        Ok(Self { stream, module: stream.device().load(&IMAGE)? })
    }

    /// Returns a launch of one wave, with at most one block for each of the `tiles` tiles.
    fn over(tiles: usize, threads: usize) -> Launch {
        Launch::linear(tiles.saturating_mul(threads), threads as u32).waves(1)
    }
}

macro_rules! key_bits {
    ($($k:ty),*) => { $(
        impl KeyBits for $k {
            fn histogram(
                of: &Launcher<'_>,
                KeyTransform { negative, always, nans }: KeyTransform<Self>,
                keys: DeviceSlice<'_, Self>,
                counts: &mut DeviceBuffer<u32>,
            ) -> Result<()> {
                let launch = Launcher::over(keys.len().div_ceil(8 * THREADS), THREADS);
                let kernel = of.module.kernel::<radix_histogram<$k>>()?;
                kernel.launch(of.stream, launch, (negative, always, nans, keys, counts))
            }

            unsafe fn pass<V: Payload>(
                of: &Launcher<'_>,
                (KeyTransform { negative, always, nans }, shift): (KeyTransform<Self>, u32),
                (keys, values, keys_out, values_out): Pass<'_, Self, V>,
                starts: DeviceSlice<'_, u32>,
                (workspace, words): (DevicePtr, usize),
            ) -> Result<()> {
                let (Some(values), Some(values_out)) = (values, values_out) else {
                    let launch = Launcher::over(keys.len().div_ceil(tile_len(size_of::<$k>(), 0)), THREADS);
                    let kernel = of.module.kernel::<radix_pass<$k>>()?;
                    let arguments = (negative, always, nans, shift, keys, starts, workspace, words, keys_out);
                    // SAFETY: guaranteed by the caller.
                    return unsafe { kernel.launch_unsafe(of.stream, launch, arguments) };
                };
                let tile = tile_len(size_of::<$k>(), size_of::<V>());
                let launch = Launcher::over(keys.len().div_ceil(tile), THREADS);
                macro_rules! with_values {
                    ($v:ty) => {{
                        let kernel = of.module.kernel::<radix_pass_pairs<$k, $v>>()?;
                        let (values, values_out) = (values.cast::<$v>()?, values_out.cast::<$v>()?);
                        let arguments = (
                            negative, always, nans, shift, keys, values, starts, workspace, words, keys_out, values_out,
                        );
                        // SAFETY: guaranteed by the caller.
                        unsafe { kernel.launch_unsafe(of.stream, launch, arguments) }
                    }};
                }
                if size_of::<V>() == 4 { with_values!(u32) } else { with_values!(u64) }
            }

            fn segments(
                of: &Launcher<'_>,
                KeyTransform { negative, always, nans }: KeyTransform<Self>,
                keys: DeviceSlice<'_, Self>,
                offsets: DeviceSlice<'_, u64>,
                spare: &mut DeviceBuffer<Self>,
                out: DeviceSliceMut<'_, Self>,
            ) -> Result<()> {
                let launch = Launcher::over(offsets.len() - 1, THREADS);
                let kernel = of.module.kernel::<radix::sort_segments<$k>>()?;
                // SAFETY: `sort_segments` in this module has checked the lengths, and that the offsets do not decrease,
                // so segments do not overlap.
                unsafe { kernel.launch_unsafe(of.stream, launch, (negative, always, nans, keys, offsets, spare, out)) }
            }
        }
    )* };
}
key_bits!(u32, u64);

macro_rules! keys {
    ($($t:ty as $bits:ty: $negative:expr, $always:expr, $nans:expr;)*) => { $(
        impl sealed::Key for $t {
            type Bits = $bits;
            const TRANSFORM: KeyTransform<$bits> = KeyTransform { negative: $negative, always: $always, nans: $nans };
        }
        impl SortKey for $t {}
    )* };
}
keys! {
    u32 as u32: 0, 0, 0;
    i32 as u32: 0, 1 << 31, 0;
    f32 as u32: !(1 << 31), 1 << 31, (1 << 23) - 1;
    u64 as u64: 0, 0, 0;
    i64 as u64: 0, 1 << 63, 0;
    f64 as u64: !(1 << 63), 1 << 63, (1 << 52) - 1;
}

/// Returns a type's key transform for a sort order.
fn transform_of<T: SortKey>(order: Order) -> KeyTransform<T::Bits> {
    match order {
        Order::Ascending => T::TRANSFORM,
        Order::Descending => key_transform::reversed(T::TRANSFORM),
    }
}

/// Returns an error if indices do not fit in 32 bits.
fn countable(operation: &'static str, len: usize) -> Result<()> {
    if u32::try_from(len).is_ok() {
        return Ok(());
    }
    let problem = format!(
        "{len} keys exceed the maximum for one sort, which is 2^32 - 1; sort parts, and merge them on the host"
    );
    Err(OpError::Unsupported { operation, problem }.into())
}

/// Sorts at least one and fewer than 2³² keys together with their values.
fn sort_bits<K: KeyBits, V: Payload>(
    operation: &'static str,
    stream: &Stream,
    transform: KeyTransform<K>,
    keys: DeviceSlice<'_, K>,
    values: Option<DeviceSlice<'_, V>>,
    (mut out, mut values_out): (DeviceSliceMut<'_, K>, Option<DeviceSliceMut<'_, V>>),
) -> Result<()> {
    let (n, of) = (keys.len(), Launcher::new(stream)?);
    let indices = size_of::<K>();
    let mut counts = DeviceBuffer::<u32>::zeros(stream, indices * DIGITS)?;
    let mut spare = DeviceBuffer::<K>::uninit(stream, n)?;
    let mut spare_values = match values {
        Some(_) => Some(DeviceBuffer::<V>::uninit(stream, n)?),
        None => None,
    };
    K::histogram(&of, transform, keys, &mut counts)?;
    let starts = of.module.kernel::<radix_starts>()?;
    starts.launch(stream, Launch::grid_block(indices as u32, DIGITS as u32), (&mut counts,))?;
    let words = workspace_len(n, indices, if values.is_some() { size_of::<V>() } else { 0 });
    // SAFETY: the launches are on this stream, and their kernels use the workspace as a `TileQueue`.
    unsafe {
        tile_queue::with(stream, operation, words, |workspace, words| {
            for place in 0..indices {
                let starts = counts.slice(place * DIGITS..(place + 1) * DIGITS);
                // The number of passes is even, so the last pass writes to `out`.
                let to_spare = place % 2 == 0;
                let pairs = match (place, to_spare) {
                    (0, _) => (
                        keys,
                        values,
                        spare.as_mut_slice(),
                        spare_values.as_mut().map(DeviceBuffer::as_mut_slice),
                    ),
                    (_, true) => (
                        out.as_slice(),
                        values_out.as_ref().map(DeviceSliceMut::as_slice),
                        spare.as_mut_slice(),
                        spare_values.as_mut().map(DeviceBuffer::as_mut_slice),
                    ),
                    (_, false) => (
                        spare.as_slice(),
                        spare_values.as_ref().map(DeviceBuffer::as_slice),
                        out.reborrow(),
                        values_out.as_mut().map(DeviceSliceMut::reborrow),
                    ),
                };
                // SAFETY: all arrays have `n` elements, the workspace has enough words for them, and `starts` belongs
                // to this digit.
                K::pass(&of, (transform, place as u32 * DIGIT_BITS), pairs, starts, (workspace, words))?;
            }
            Ok(())
        })
    }
}

/// Sorts `x` into `out`, which must have the same length.
///
/// # Errors
/// Returns [`OpError::Unsupported`] for 2³² elements or more. Also returns [`OpError::LengthMismatch`] and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Order}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, f32::NAN, -1.0, 2.0])?;
/// let mut sorted = DeviceBuffer::uninit(&stream, 4)?;
/// ops::sort(&stream, Order::Ascending, &x, &mut sorted)?;
/// assert_eq!(sorted.to_host()?[..3], [-1.0, 2.0, 3.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn sort<'x, 'o, T: SortKey>(
    stream: &Stream,
    order: Order,
    x: impl Into<DeviceSlice<'x, T>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (x, out) = (x.into(), out.into());
    same_length("sort", ("x", x.len()), ("the output", out.len()))?;
    countable("sort", x.len())?;
    if x.is_empty() {
        return Ok(());
    }
    sort_bits::<T::Bits, u32>("sort", stream, transform_of::<T>(order), x.cast()?, None, (out.cast()?, None))
}

/// Sorts pairs by key and writes the sorted keys to `keys_out` and their values to `values_out`. The sort is stable.
/// All arrays must have the same length. Values can be of any [`Element`] type of 4 or 8 bytes.
///
/// # Errors
/// Returns [`OpError::Unsupported`] for values of 1 or 2 bytes and for 2³² elements or more. Also returns
/// [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Order}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let scores = DeviceBuffer::from_host(&stream, &[2i32, 9, 2, 5])?;
/// let names = DeviceBuffer::from_host(&stream, &[0u32, 1, 2, 3])?;
/// let mut sorted = DeviceBuffer::uninit(&stream, 4)?;
/// let mut ranking = DeviceBuffer::uninit(&stream, 4)?;
/// ops::sort_pairs(&stream, Order::Descending, &scores, &names, &mut sorted, &mut ranking)?;
/// assert_eq!((sorted.to_host()?, ranking.to_host()?), (vec![9, 5, 2, 2], vec![1, 3, 0, 2]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn sort_pairs<'k, 'v, 'o, 'p, K: SortKey, V: Element>(
    stream: &Stream,
    order: Order,
    keys: impl Into<DeviceSlice<'k, K>>,
    values: impl Into<DeviceSlice<'v, V>>,
    keys_out: impl Into<DeviceSliceMut<'o, K>>,
    values_out: impl Into<DeviceSliceMut<'p, V>>,
) -> Result<()> {
    let _site = site();
    let (keys, values, keys_out, values_out) =
        (keys.into(), values.into(), keys_out.into(), values_out.into());
    for (name, len) in
        [("values", values.len()), ("keys_out", keys_out.len()), ("values_out", values_out.len())]
    {
        same_length("sort_pairs", ("keys", keys.len()), (name, len))?;
    }
    countable("sort_pairs", keys.len())?;
    if keys.is_empty() {
        return Ok(());
    }
    macro_rules! with_values {
        ($v:ty) => {
            sort_bits::<K::Bits, $v>(
                "sort_pairs",
                stream,
                transform_of::<K>(order),
                keys.cast()?,
                Some(values.cast()?),
                (keys_out.cast()?, Some(values_out.cast()?)),
            )
        };
    }
    match size_of::<V>() {
        4 => with_values!(u32),
        8 => with_values!(u64),
        bytes => {
            let problem =
                format!("{bytes}-byte values are not supported; cast them to a type of 4 or 8 bytes");
            Err(OpError::Unsupported { operation: "sort_pairs", problem }.into())
        }
    }
}

/// Sorts each segment of `x`, from `offsets[i]` (inclusive) to `offsets[i + 1]` (exclusive), into the same positions of
/// `out`. `out` must have the same length as `x`. Elements of `out` outside all segments stay unchanged.
///
/// One block sorts each segment, so throughput grows with the number of segments. For a few long segments, call
/// [`sort()`] for each segment.
///
/// The operation waits for the stream because it checks the offsets.
///
/// # Errors
/// Returns [`OpError::Offset`], before anything is written, if offsets decrease or exceed the length of `x`. Returns
/// [`OpError::Unsupported`] if the array of offsets is empty, or for 2³² elements or more. Also returns
/// [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Order}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3u32, 1, 2, 9, 8])?;
/// let offsets = DeviceBuffer::from_host(&stream, &[0u64, 3, 5])?;
/// let mut sorted = DeviceBuffer::uninit(&stream, 5)?;
/// ops::sort_segments(&stream, Order::Ascending, &x, &offsets, &mut sorted)?;
/// assert_eq!(sorted.to_host()?, [1, 2, 3, 8, 9]);
///
/// let falling = DeviceBuffer::from_host(&stream, &[0u64, 4, 3])?;
/// let error = ops::sort_segments(&stream, Order::Ascending, &x, &falling, &mut sorted).unwrap_err();
/// assert!(error.to_string().starts_with("sort_segments: offsets[1] is 4, but must be at most 3"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn sort_segments<'x, 'f, 'o, T: SortKey>(
    stream: &Stream,
    order: Order,
    x: impl Into<DeviceSlice<'x, T>>,
    offsets: impl Into<DeviceSlice<'f, u64>>,
    out: impl Into<DeviceSliceMut<'o, T>>,
) -> Result<()> {
    let _site = site();
    let (x, offsets, out) = (x.into(), offsets.into(), out.into());
    same_length("sort_segments", ("x", x.len()), ("the output", out.len()))?;
    countable("sort_segments", x.len())?;
    if offsets.is_empty() {
        let problem = "offsets is empty; pass one offset more than there are segments".to_owned();
        return Err(OpError::Unsupported { operation: "sort_segments", problem }.into());
    }
    check_offsets(stream, "sort_segments", offsets, x.len())?;
    if x.is_empty() || offsets.len() == 1 {
        return Ok(());
    }
    let mut spare = DeviceBuffer::uninit(stream, x.len())?;
    KeyBits::segments(
        &Launcher::new(stream)?,
        transform_of::<T>(order),
        x.cast()?,
        offsets,
        &mut spare,
        out.cast()?,
    )
}

/// Launches the binary search for all `keys` in `sorted`.
fn search<T: Number>(
    operation: &'static str,
    upper: bool,
    stream: &Stream,
    sorted: DeviceSlice<'_, T>,
    keys: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, u64>,
) -> Result<()> {
    type Params<T> = (Value<bool>, Slice<T>, Slice<T>, SliceMut<u64>);
    same_length(operation, ("keys", keys.len()), ("the output", out.len()))?;
    if keys.is_empty() {
        return Ok(());
    }
    let of_type =
        |spec: &&'static gpu_std::KernelSpec| spec.types.iter().any(|argument| argument.name == T::NAME);
    let Some(spec) = search_sorted::<()>::instances().find(of_type) else {
        let problem = format!("searching in {} is not supported", T::NAME);
        return Err(OpError::Unsupported { operation, problem }.into());
    };
    let launch = Launch::auto(keys.len());
    let function = stream.device().load(&IMAGE)?.function(spec)?;
    // SAFETY: these arguments match the parameters of the kernel, which is safe.
    unsafe { function.launch_as::<Params<T>, _>(stream, launch, &(upper, sorted, keys, out)) }
}

/// Computes, for each key, the number of elements of `sorted` that are less than the key. This is the first insertion
/// position, like C++'s `lower_bound` and PyTorch's `searchsorted`. NaN counts as greater than every number and equal
/// to NaN, as in [`sort()`]. `sorted` must be in ascending order; otherwise, the positions are unspecified.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] unless `out` has the same length as `keys`. Also returns the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let sorted = DeviceBuffer::from_host(&stream, &[1.0f32, 3.0, 3.0, 7.0])?;
/// let keys = DeviceBuffer::from_host(&stream, &[3.0f32, 0.0, 8.0])?;
/// let mut positions = DeviceBuffer::uninit(&stream, 3)?;
/// ops::lower_bound(&stream, &sorted, &keys, &mut positions)?;
/// assert_eq!(positions.to_host()?, [1, 0, 4]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn lower_bound<'s, 'k, 'o, T: Number>(
    stream: &Stream,
    sorted: impl Into<DeviceSlice<'s, T>>,
    keys: impl Into<DeviceSlice<'k, T>>,
    out: impl Into<DeviceSliceMut<'o, u64>>,
) -> Result<()> {
    let _site = site();
    search("lower_bound", false, stream, sorted.into(), keys.into(), out.into())
}

/// Computes, for each key, the number of elements of `sorted` that are not greater than the key. This is the last
/// insertion position. Otherwise like [`lower_bound()`].
///
/// # Errors
/// Returns the same errors as [`lower_bound()`].
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let sorted = DeviceBuffer::from_host(&stream, &[1i32, 3, 3, 7])?;
/// let keys = DeviceBuffer::from_host(&stream, &[3i32, 0, 7])?;
/// let mut positions = DeviceBuffer::uninit(&stream, 3)?;
/// ops::upper_bound(&stream, &sorted, &keys, &mut positions)?;
/// assert_eq!(positions.to_host()?, [3, 0, 4]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn upper_bound<'s, 'k, 'o, T: Number>(
    stream: &Stream,
    sorted: impl Into<DeviceSlice<'s, T>>,
    keys: impl Into<DeviceSlice<'k, T>>,
    out: impl Into<DeviceSliceMut<'o, u64>>,
) -> Result<()> {
    let _site = site();
    search("upper_bound", true, stream, sorted.into(), keys.into(), out.into())
}
