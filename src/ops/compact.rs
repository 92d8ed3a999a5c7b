//! Stream compaction: copies the selected elements in order. Each operation takes one launch, which reads every element
//! once.
//!
//! The operation writes the number of selected elements to `count`, a single element on the device, and does not wait
//! for it. Output elements beyond that number stay unchanged.

use gpu_kernels::access::access;
use gpu_kernels::compact::{self, accesses, workspace_len};
use gpu_kernels::scan::max_tiles;
use gpu_spec::param::{PointerMut, Slice, Value};
use gpu_std::Checked;
use gpu_std::scalar::{Element, Number, Scalar};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{
    DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Launch, Result, Stream,
};

use super::bit_layout::{BitLayout, bits};
use super::config::Config;
use super::launch::{Operation, Plan, same_length};
use super::scan::whole_warps;
use super::tile_queue;
use crate::IMAGE;
use crate::op_error::OpError;

/// Comparison operator.
///
/// See the example of [`partition_if`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`, which is true for NaN.
    NotEqual,
}

/// The outputs of a partition. If `rejected` is `None`, only the selected elements are written.
struct Outputs<'a, T: DeviceCopy> {
    selected: DeviceSliceMut<'a, T>,
    rejected: Option<DeviceSliceMut<'a, T>>,
    count: DeviceSliceMut<'a, u64>,
}

impl<T: DeviceCopy> Outputs<'_, T> {
    /// Returns an error if the length of an output differs from the length of the input.
    fn check(&self, operation: &'static str, len: usize) -> Result<()> {
        same_length(operation, ("x", len), ("selected", self.selected.len()))?;
        if let Some(rejected) = &self.rejected {
            same_length(operation, ("x", len), ("rejected", rejected.len()))?;
        }
        same_length(operation, ("count", self.count.len()), ("a single value", 1))
    }
}

/// Plans the launch of a `gpu_kernels::compact` kernel over `x`, and calls `launch` with the plan and a workspace.
fn with_plan<T: Scalar>(
    (operation, kernel): (&'static str, &'static str),
    stream: &Stream,
    x: &DeviceSlice<'_, T>,
    launch: impl FnOnce(&Plan<'_>, DevicePtr, usize) -> Result<()>,
) -> Result<()> {
    let plan = Operation::new::<T>(stream, kernel, x.len(), &[x.as_device_ptr()]).plan()?;
    whole_warps(operation, &plan)?;
    let Config { block, items, vector, .. } = *plan.config();
    // The fewest accesses that a thread of the module's kernels makes per tile.
    let accesses = accesses::<T>(items as usize);
    let tiles = max_tiles(x.len(), size_of::<T>(), block as usize, accesses, access::<T>(vector as usize));
    // SAFETY: the launch is on this stream, and its kernel uses the workspace as a `TileQueue`.
    unsafe {
        let words = workspace_len(size_of::<u64>(), tiles);
        tile_queue::with(stream, operation, words, |workspace, words| launch(&plan, workspace, words))
    }
}

fn flagged<T: Scalar>(
    operation: &'static str,
    stream: &Stream,
    (x, flags): (DeviceSlice<'_, T>, DeviceSlice<'_, u8>),
    mut to: Outputs<'_, T>,
) -> Result<()> {
    type Params<T> =
        (Slice<T>, Slice<u8>, PointerMut<u64>, Value<usize>, PointerMut<T>, PointerMut<T>, PointerMut<u64>);
    to.check(operation, x.len())?;
    same_length(operation, ("x", x.len()), ("flags", flags.len()))?;
    if x.is_empty() {
        return to.count.copy_from_host(&[0]);
    }
    with_plan((operation, "compact_flagged"), stream, &x, |plan, workspace, words| {
        // SAFETY: these arguments match the parameters of the kernel; the outputs are as long as the input, and the
        // workspace has enough words for the tiles.
        unsafe {
            match to.rejected {
                Some(rejected) => {
                    plan.launch::<Params<T>, _>((x, flags, workspace, words, to.selected, rejected, to.count))
                }
                None => plan.launch::<Params<T>, _>((
                    x,
                    flags,
                    workspace,
                    words,
                    to.selected,
                    DevicePtr::NULL,
                    to.count,
                )),
            }
        }
    })
}

/// Like [`flagged`], but operates on unsigned integers of the element size.
fn flagged_by_size<T: Element>(
    operation: &'static str,
    stream: &Stream,
    (x, flags): (DeviceSlice<'_, T>, DeviceSlice<'_, Checked<bool>>),
    Outputs { selected, rejected, count }: Outputs<'_, T>,
) -> Result<()> {
    macro_rules! by_size {
        ($u:ty) => {{
            let rejected = rejected.map(|rejected| rejected.cast::<$u>()).transpose()?;
            let to = Outputs { selected: selected.cast::<$u>()?, rejected, count };
            flagged::<$u>(operation, stream, (x.cast()?, flags.cast()?), to)
        }};
    }
    match size_of::<T>() {
        1 => by_size!(u8),
        2 => by_size!(u16),
        4 => by_size!(u32),
        _ => by_size!(u64),
    }
}

/// A range of keys, as integers of the element size: the arguments of `gpu_kernels::compact::compact_compared`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Keys {
    transform: [u64; 2],
    first: u64,
    last: u64,
    is_inverted: bool,
}

impl Keys {
    /// Returns the keys of all numbers for which the comparison with `with` is true.
    #[allow(clippy::eq_op, reason = "NaN is not equal to itself")]
    fn of<T: Scalar>(comparison: Comparison, with: T) -> Self {
        let BitLayout { sign, is_float, negative, always, .. } = BitLayout::of::<T>();
        let key = |x: u64| always ^ if x & sign == 0 { x } else { x ^ negative };
        let (smallest, largest) = (key(bits(T::MAX_IDENTITY)), key(bits(T::MIN_IDENTITY)));
        // The keys of -0 and +0 are adjacent, so a range can contain both.
        let (low, high) = match is_float && with == T::ZERO {
            true => (key(sign), key(0)),
            false => (key(bits(with)), key(bits(with))),
        };
        let range = match comparison {
            _ if with != with => None,
            Comparison::Less => low.checked_sub(1).map(|last| (smallest, last)),
            Comparison::LessOrEqual => Some((smallest, high)),
            Comparison::Greater => high.checked_add(1).map(|first| (first, largest)),
            Comparison::GreaterOrEqual => Some((low, largest)),
            Comparison::Equal | Comparison::NotEqual => Some((low, high)),
        };
        // `None` represents an empty range.
        let (first, last) = range.filter(|(first, last)| first <= last).unwrap_or((1, 0));
        Self { transform: [negative, always], first, last, is_inverted: comparison == Comparison::NotEqual }
    }
}

/// Selects the elements whose keys are in the range. The selection operates on integers of the element size.
fn between<T: Scalar>(
    operation: &'static str,
    stream: &Stream,
    (keys, x): (Keys, DeviceSlice<'_, T>),
    mut to: Outputs<'_, T>,
) -> Result<()> {
    type Params<T> = (
        Value<T>,
        Value<T>,
        Value<T>,
        Value<T>,
        Value<bool>,
        Slice<T>,
        PointerMut<u64>,
        Value<usize>,
        PointerMut<T>,
        PointerMut<T>,
        PointerMut<u64>,
    );
    to.check(operation, x.len())?;
    if x.is_empty() {
        return to.count.copy_from_host(&[0]);
    }
    let [negative, always, first, last] =
        [keys.transform[0], keys.transform[1], keys.first, keys.last].map(T::from_u64);
    let inverted = keys.is_inverted;
    with_plan((operation, "compact_compared"), stream, &x, |plan, workspace, words| {
        let Outputs { selected, rejected, count } = to;
        // SAFETY: as in `flagged`.
        unsafe {
            match rejected {
                Some(rejected) => plan.launch::<Params<T>, _>((
                    negative, always, first, last, inverted, x, workspace, words, selected, rejected, count,
                )),
                None => plan.launch::<Params<T>, _>((
                    negative,
                    always,
                    first,
                    last,
                    inverted,
                    x,
                    workspace,
                    words,
                    selected,
                    DevicePtr::NULL,
                    count,
                )),
            }
        }
    })
}

fn compared<T: Number>(
    operation: &'static str,
    stream: &Stream,
    (comparison, with): (Comparison, T),
    x: DeviceSlice<'_, T>,
    Outputs { selected, rejected, count }: Outputs<'_, T>,
) -> Result<()> {
    let keys = Keys::of(comparison, with);
    macro_rules! by_size {
        ($u:ty) => {{
            let rejected = rejected.map(|rejected| rejected.cast::<$u>()).transpose()?;
            let to = Outputs { selected: selected.cast::<$u>()?, rejected, count };
            between::<$u>(operation, stream, (keys, x.cast()?), to)
        }};
    }
    match size_of::<T>() {
        2 => by_size!(u16),
        4 => by_size!(u32),
        _ => by_size!(u64),
    }
}

/// Writes the first element of each run of equal elements and, if requested, its index.
fn runs<T: Number>(
    operation: &'static str,
    stream: &Stream,
    x: DeviceSlice<'_, T>,
    to: Outputs<'_, T>,
    indices: Option<&mut DeviceBuffer<u32>>,
) -> Result<()> {
    let BitLayout { magnitude, most, .. } = BitLayout::of::<T>();
    let equality = [magnitude, most];
    macro_rules! by_size {
        ($u:ty) => {{
            let to = Outputs { selected: to.selected.cast::<$u>()?, rejected: None, count: to.count };
            runs_of::<$u>(operation, stream, (equality, x.cast()?), to, indices)
        }};
    }
    match size_of::<T>() {
        2 => by_size!(u16),
        4 => by_size!(u32),
        _ => by_size!(u64),
    }
}

/// Like [`runs`], but operates on integers of the element size. `equality` defines which bit patterns are equal.
fn runs_of<T: Scalar>(
    operation: &'static str,
    stream: &Stream,
    (equality, x): ([u64; 2], DeviceSlice<'_, T>),
    mut to: Outputs<'_, T>,
    indices: Option<&mut DeviceBuffer<u32>>,
) -> Result<()> {
    type Params<T> = (
        Value<T>,
        Value<T>,
        Slice<T>,
        PointerMut<u64>,
        Value<usize>,
        PointerMut<T>,
        PointerMut<u32>,
        PointerMut<u64>,
    );
    to.check(operation, x.len())?;
    if x.is_empty() {
        return to.count.copy_from_host(&[0]);
    }
    let [magnitude, most] = equality.map(T::from_u64);
    with_plan((operation, "compact_runs"), stream, &x, |plan, workspace, words| {
        let Outputs { selected, count, .. } = to;
        // SAFETY: as in `flagged`; there are as many indices as elements, and the indices fit in 32 bits.
        unsafe {
            match indices {
                Some(indices) => plan
                    .launch::<Params<T>, _>((magnitude, most, x, workspace, words, selected, indices, count)),
                None => plan.launch::<Params<T>, _>((
                    magnitude,
                    most,
                    x,
                    workspace,
                    words,
                    selected,
                    DevicePtr::NULL,
                    count,
                )),
            }
        }
    })
}

/// Copies the elements for which the comparison with `with` is true to the start of `selected`, in order. Writes the
/// number of copied elements to `count`. `selected` must have the same length as `x`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Comparison}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[3.0f32, -1.0, 4.0, -1.5])?;
/// let mut positive = DeviceBuffer::zeros(&stream, 4)?;
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::select_if(&stream, Comparison::Greater, 0.0, &x, &mut positive, &mut count)?;
/// assert_eq!(count.to_host()?, [2]);
/// assert_eq!(positive.to_host()?[..2], [3.0, 4.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn select_if<'x, 's, 'c, T: Number>(
    stream: &Stream,
    comparison: Comparison,
    with: T,
    x: impl Into<DeviceSlice<'x, T>>,
    selected: impl Into<DeviceSliceMut<'s, T>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (mut selected, mut count) = (selected.into(), count.into());
    let to = Outputs { selected: selected.reborrow(), rejected: None, count: count.reborrow() };
    compared("select_if", stream, (comparison, with), x.into(), to)
}

/// Copies the elements whose flag is true to the start of `selected`, in order. Writes the number of copied elements to
/// `count`. `flags` and `selected` must have the same length as `x`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[10u32, 20, 30])?;
/// let flags = DeviceBuffer::from_host(&stream, Checked::from_slice(&[true, false, true]))?;
/// let mut selected = DeviceBuffer::zeros(&stream, 3)?;
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::select_flagged(&stream, &x, &flags, &mut selected, &mut count)?;
/// assert_eq!((count.to_host()?[0], selected.to_host()?), (2, vec![10, 30, 0]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn select_flagged<'x, 'f, 's, 'c, T: Element>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    flags: impl Into<DeviceSlice<'f, Checked<bool>>>,
    selected: impl Into<DeviceSliceMut<'s, T>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (mut selected, mut count) = (selected.into(), count.into());
    let to = Outputs { selected: selected.reborrow(), rejected: None, count: count.reborrow() };
    flagged_by_size("select_flagged", stream, (x.into(), flags.into()), to)
}

/// Like [`select_if()`], but also writes the other elements to the start of `rejected`, in order. `selected` and
/// `rejected` must have the same length as `x`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops::{self, Comparison}, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[5i32, 1, 4, 2])?;
/// let mut low = DeviceBuffer::zeros(&stream, 4)?;
/// let mut high = DeviceBuffer::zeros(&stream, 4)?;
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::partition_if(&stream, Comparison::Less, 3, &x, &mut low, &mut high, &mut count)?;
/// assert_eq!(count.to_host()?, [2]);
/// assert_eq!((&low.to_host()?[..2], &high.to_host()?[..2]), (&[1, 2][..], &[5, 4][..]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn partition_if<'x, 's, 'r, 'c, T: Number>(
    stream: &Stream,
    comparison: Comparison,
    with: T,
    x: impl Into<DeviceSlice<'x, T>>,
    selected: impl Into<DeviceSliceMut<'s, T>>,
    rejected: impl Into<DeviceSliceMut<'r, T>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (mut selected, mut rejected, mut count) = (selected.into(), rejected.into(), count.into());
    let rejected = Some(rejected.reborrow());
    let to = Outputs { selected: selected.reborrow(), rejected, count: count.reborrow() };
    compared("partition_if", stream, (comparison, with), x.into(), to)
}

/// Like [`select_flagged()`], but also writes the other elements to the start of `rejected`, in order. All arrays
/// except `count` must have the same length.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{gpu_std::Checked, ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[10u32, 20, 30])?;
/// let flags = DeviceBuffer::from_host(&stream, Checked::from_slice(&[true, false, true]))?;
/// let (mut kept, mut rest) = (DeviceBuffer::zeros(&stream, 3)?, DeviceBuffer::zeros(&stream, 3)?);
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::partition_flagged(&stream, &x, &flags, &mut kept, &mut rest, &mut count)?;
/// assert_eq!(count.to_host()?, [2]);
/// assert_eq!((kept.to_host()?, rest.to_host()?), (vec![10, 30, 0], vec![20, 0, 0]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn partition_flagged<'x, 'f, 's, 'r, 'c, T: Element>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    flags: impl Into<DeviceSlice<'f, Checked<bool>>>,
    selected: impl Into<DeviceSliceMut<'s, T>>,
    rejected: impl Into<DeviceSliceMut<'r, T>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (mut selected, mut rejected, mut count) = (selected.into(), rejected.into(), count.into());
    let rejected = Some(rejected.reborrow());
    let to = Outputs { selected: selected.reborrow(), rejected, count: count.reborrow() };
    flagged_by_size("partition_flagged", stream, (x.into(), flags.into()), to)
}

/// Writes the first element of each run of equal elements to the start of `selected` and writes the number of runs to
/// `count`, like PyTorch's `unique_consecutive`. `selected` must have the same length as `x`. NaN is not equal to any
/// element, and −0 equals +0.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[7i32, 7, 2, 2, 7])?;
/// let mut values = DeviceBuffer::zeros(&stream, 5)?;
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::unique(&stream, &x, &mut values, &mut count)?;
/// assert_eq!(count.to_host()?, [3]);
/// assert_eq!(values.to_host()?[..3], [7, 2, 7]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn unique<'x, 's, 'c, T: Number>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    selected: impl Into<DeviceSliceMut<'s, T>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (mut selected, mut count) = (selected.into(), count.into());
    let to = Outputs { selected: selected.reborrow(), rejected: None, count: count.reborrow() };
    runs("unique", stream, x.into(), to, None)
}

/// Run-length encoding: like [`unique()`], but also writes the length of run i to `lengths[i]`. `lengths` must also
/// have the same length as `x`.
///
/// The operation takes two launches and a temporary array of the same size as `lengths`.
///
/// # Errors
/// Returns [`OpError::Unsupported`] for 2³² elements or more. Also returns [`OpError::LengthMismatch`] and the [enqueue
/// errors](crate::Error#enqueue-errors).
///
/// ```
/// # use warpsmith::{ops, prelude::*};
/// # let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[7i32, 7, 7, 2, 7])?;
/// let mut values = DeviceBuffer::zeros(&stream, 5)?;
/// let mut lengths = DeviceBuffer::zeros(&stream, 5)?;
/// let mut count = DeviceBuffer::zeros(&stream, 1)?;
/// ops::run_lengths(&stream, &x, &mut values, &mut lengths, &mut count)?;
/// assert_eq!(count.to_host()?, [3]);
/// assert_eq!((&values.to_host()?[..3], &lengths.to_host()?[..3]), (&[7, 2, 7][..], &[3, 1, 1][..]));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn run_lengths<'x, 'v, 'l, 'c, T: Number>(
    stream: &Stream,
    x: impl Into<DeviceSlice<'x, T>>,
    values: impl Into<DeviceSliceMut<'v, T>>,
    lengths: impl Into<DeviceSliceMut<'l, u64>>,
    count: impl Into<DeviceSliceMut<'c, u64>>,
) -> Result<()> {
    let _site = site();
    let (x, mut values, lengths, mut count) = (x.into(), values.into(), lengths.into(), count.into());
    same_length("run_lengths", ("x", x.len()), ("lengths", lengths.len()))?;
    let Ok(len) = u32::try_from(x.len()) else {
        let problem = format!("x has {} elements; pass fewer than 2^32", x.len());
        return Err(OpError::Unsupported { operation: "run_lengths", problem }.into());
    };
    let to = Outputs { selected: values.reborrow(), rejected: None, count: count.reborrow() };
    if len == 0 {
        return runs("run_lengths", stream, x, to, None);
    }
    let mut starts = DeviceBuffer::uninit(stream, x.len())?;
    runs("run_lengths", stream, x, to, Some(&mut starts))?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<compact::run_lengths>()?;
    kernel.launch(stream, Launch::auto(starts.len()), (len, count.as_slice(), &starts, lengths))
}
