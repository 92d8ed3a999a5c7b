//! Histograms with exact counts, computed in one launch that reads every element once. The operations overwrite
//! previous counts.

use gpu_kernels::histogram::{Binned, Bins, even_edges};
use gpu_spec::SharedLen;
use gpu_spec::param::{AtomicSlice, Shared, Slice, Value};
use gpu_std::scalar::{Element, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Launch, Result, Stream};

use super::launch::{Operation, Plan, same_length};
use crate::IMAGE;
use crate::op_error::OpError;

/// Shared memory budget per block, in bytes, for all counter copies together, and for the copies and the edges. All
/// GPUs have this much shared memory per block.
const COPIES_BYTES: usize = 32 << 10;
const TOTAL_BYTES: usize = 48 << 10;
/// Maximum number of counter copies per block: one per lane of a warp.
const MAX_COPIES: usize = 32;
/// Maximum amount of shared memory, in bytes, for one counter copy, or for the edges.
const MAX_BYTES: usize = TOTAL_BYTES / 2;
/// Maximum number of equal-width bins. With more bins, the estimated bin of an element could be wrong by more than one.
const MAX_BINS: usize = 1 << 20;

fn unsupported<R>(operation: &'static str, problem: String) -> Result<R> {
    Err(OpError::Unsupported { operation, problem }.into())
}

/// Returns the lengths of a block's arrays in shared memory. The first array contains all edges, or is empty if they do
/// not fit. The second one contains as many copies of the counters as fit in the budget. The number of copies is a power
/// of two, or 0 if one copy does not fit. Each copy contains one more counter, for elements outside all bins.
fn shared_lens<T>(edges: usize, counts: usize) -> [SharedLen; 2] {
    let of_edges = edges * size_of::<T>();
    let table = if of_edges <= MAX_BYTES { edges } else { 0 };
    let budget = COPIES_BYTES.min(TOTAL_BYTES - table * size_of::<T>());
    let counters = counts + 1;
    let copies = if counters * 4 <= MAX_BYTES { (budget / (counters * 4)).clamp(1, MAX_COPIES) } else { 0 };
    [table, counters * copies.checked_ilog2().map_or(0, |log| 1 << log)].map(SharedLen)
}

/// Plans the launch and clears the counts.
fn plan<'s, T: Scalar>(
    operation: &'static str,
    stream: &'s Stream,
    x: &DeviceSlice<'_, T>,
    counts: &mut DeviceSliceMut<'_, u64>,
) -> Result<Option<Plan<'s>>> {
    let mut plan = None;
    if !x.is_empty() {
        let planned = Operation::new::<T>(stream, operation, x.len(), &[x.as_device_ptr()]).plan()?;
        let blocks = planned.blocks();
        if x.len() / blocks as usize >= 1 << 31 {
            let problem = format!(
                "{} elements in {blocks} blocks exceed the 32-bit counters; use more blocks",
                x.len()
            );
            return unsupported(operation, problem);
        }
        plan = Some(planned);
    }
    stream.memset(counts, 0)?;
    Ok(plan)
}

/// A range of numbers: `lower..upper` or `lower..=upper`.
///
/// See the example of [`histogram_even()`].
pub trait BinRange<T>: sealed::Sealed {
    /// Returns both ends of the range and whether the last bin includes the upper end.
    #[doc(hidden)]
    fn ends(self) -> (T, T, bool);
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for std::ops::Range<T> {}
    impl<T> Sealed for std::ops::RangeInclusive<T> {}
}

impl<T> BinRange<T> for std::ops::Range<T> {
    fn ends(self) -> (T, T, bool) {
        (self.start, self.end, false)
    }
}

impl<T> BinRange<T> for std::ops::RangeInclusive<T> {
    fn ends(self) -> (T, T, bool) {
        let (lower, upper) = self.into_inner();
        (lower, upper, true)
    }
}

/// Counts the elements in n bins of equal width, where n is the length of `counts`. Bin i covers the half-open interval
/// from `lower + i * width` to the start of the next bin. NaN and elements outside the range are not counted.
///
/// For `lower..upper`, the width is `(upper - lower) / n`. `lower..=upper` includes `upper`. For integers,
/// `lower..=upper` contains one more value, so that `0..=255` covers all values of `u8`. For floats, the width is the
/// same as for `lower..upper`, and `upper` falls into the last bin.
///
/// The counts are exact for any finite range, because each element is counted in the bin that contains its unrounded
/// value.
///
/// # Errors
/// Returns [`OpError::Unsupported`] if the range is empty or not finite, if there are no bins, or if there are more
/// than 2²⁰ bins. Also returns the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0.1f32, 0.3, 0.7, 0.74, 1.0, f32::NAN])?;
/// let mut counts = DeviceBuffer::zeros(&stream, 4)?;
/// ops::histogram_even(&stream, &x, 0.0..1.0, &mut counts)?;
/// assert_eq!(counts.to_host()?, [1, 1, 2, 0]);
/// ops::histogram_even(&stream, &x, 0.0..=1.0, &mut counts)?;
/// assert_eq!(counts.to_host()?, [1, 1, 2, 1]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn histogram_even<'x, 'c, T: Element<Scalar = T> + Binned>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    range: impl BinRange<T>,
    counts: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    type Params<T> = (
        Value<u32>,
        Value<T>,
        Value<T>,
        Value<[f64; 2]>,
        Value<u32>,
        Value<u32>,
        Slice<f64>,
        Slice<T>,
        Shared<T>,
        Shared<u32>,
        AtomicSlice<u64>,
    );
    const NAME: &str = "histogram_even";
    let (x, mut counts, (lower, upper, is_inclusive)) = (x.into(), counts.into(), range.ends());
    let is_float = T::ONE.cast::<f64>() / 2.0 == T::from_f64(0.5).cast::<f64>();
    let count = counts.len();
    if !(1..=MAX_BINS).contains(&count) {
        return unsupported(NAME, format!("counts has {count} elements; pass at least one and at most 2^20"));
    }
    let count = count as u32;
    let Some(bins) = T::bins(count, lower, upper, is_inclusive) else {
        return unsupported(
            NAME,
            format!(
                "the range from {lower:?} to {upper:?} is empty or not finite; pass a finite, non-empty range"
            ),
        );
    };
    let Some(plan) = plan(NAME, stream, &x, &mut counts)? else { return Ok(()) };
    let Bins { lower, last, factors, fraction, slack, .. } = bins;
    let mut edges = DeviceBuffer::<f64>::uninit(stream, if is_float { count as usize } else { 0 })?;
    if is_float {
        let kernel = stream.device().load(&IMAGE)?.kernel::<even_edges>()?;
        let launch = Launch::auto(edges.len());
        kernel.launch(stream, launch, (lower.cast::<f64>(), upper.cast::<f64>(), &mut edges))?;
    }
    let [table, local] = shared_lens::<T>(edges.len(), counts.len());
    let arguments = (count, lower, last, factors, fraction, slack, &edges, x, table, local, counts);
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { plan.launch::<Params<T>, _>(arguments) }
}

/// Counts the elements between adjacent `edges`. Bin i covers the interval from `edges[i]` (inclusive) to `edges[i +
/// 1]` (exclusive). `counts` must have one element fewer than `edges`. Elements below the first edge, elements at or
/// above the last, and NaN are not counted.
///
/// The edges must be in ascending order; otherwise, the counts are unspecified.
///
/// # Errors
/// Returns [`OpError::Unsupported`] if there are fewer than two edges, or more than 2³² - 1 counts. Also returns
/// [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[5u32, 10, 11, 99, 100])?;
/// let edges = DeviceBuffer::from_host(&stream, &[0u32, 10, 100])?;
/// let mut counts = DeviceBuffer::zeros(&stream, 2)?;
/// ops::histogram_edges(&stream, &x, &edges, &mut counts)?;
/// assert_eq!(counts.to_host()?, [1, 3]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn histogram_edges<'x, 'e, 'c, T: Number>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    edges: impl Into<DeviceSlice<'e, T>>,
    counts: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    type Params<T> = (Slice<T>, Slice<T>, Shared<T>, Shared<u32>, AtomicSlice<u64>);
    const NAME: &str = "histogram_edges";
    let (x, edges, mut counts) = (x.into(), edges.into(), counts.into());
    if edges.len() < 2 {
        return unsupported(
            NAME,
            format!("{} edges do not define a bin; pass at least two edges", edges.len()),
        );
    }
    if counts.len() > u32::MAX as usize {
        return unsupported(NAME, format!("{} counts exceed the maximum of 2^32 - 1", counts.len()));
    }
    same_length(NAME, ("counts", counts.len()), ("the gaps between edges", edges.len() - 1))?;
    let Some(plan) = plan(NAME, stream, &x, &mut counts)? else { return Ok(()) };
    let [table, local] = shared_lens::<T>(edges.len(), counts.len());
    // SAFETY: these arguments match the parameters of the kernel.
    unsafe { plan.launch::<Params<T>, _>((edges, x, table, local, counts)) }
}
