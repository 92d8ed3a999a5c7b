//! Prefix scans. Each scan is a single launch that reads and writes every element once. The same configuration, data
//! and alignment give bit-identical results.

use gpu_kernels::scan::{max_tiles, workspace_len};
use gpu_spec::param::{PointerMut, Slice, SliceMut, Value};
use gpu_std::family::Variant;
use gpu_std::scalar::{Number, Scalar};
use gpu_std::scan::{self, Scan};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSliceMut, GpuImage, Result, Stream};

use super::config::{Config, default_config};
use super::example::{binary_example, unary_example};
use super::launch::{Operation, Plan, same_length};
use super::tile_queue;
use crate::op_error::OpError;

/// Returns an error if the block size is not a multiple of the warp size.
pub(super) fn whole_warps(operation: &'static str, plan: &Plan<'_>) -> Result<()> {
    let block = plan.config().block;
    if block.is_multiple_of(32) {
        return Ok(());
    }
    let problem = format!("a block of {block} threads does not consist of whole warps; use a multiple of 32");
    Err(OpError::Unsupported { operation, problem }.into())
}

/// Launches a kernel of `gpu_kernels::scan`.
fn launch<T: Number>(
    (operation, kernel): (&'static str, &'static str),
    stream: &Stream,
    (exclusive, initial): (bool, T),
    x: DeviceSlice<'_, T>,
    out: DeviceSliceMut<'_, T>,
) -> Result<()> {
    type Params<T> = (Value<bool>, Value<T>, Slice<T>, PointerMut<u64>, Value<usize>, SliceMut<T>);
    same_length(operation, ("x", x.len()), ("the output", out.len()))?;
    if x.is_empty() {
        return Ok(());
    }
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let plan = Operation::new::<T>(stream, kernel, x.len(), &arrays).plan()?;
    whole_warps(operation, &plan)?;
    let Config { block, items, vector, .. } = *plan.config();
    let tiles = max_tiles(x.len(), size_of::<T>(), block as usize, items as usize, vector as usize);
    let words = workspace_len(size_of::<<T as Scalar>::Accumulator>(), tiles);
    // SAFETY: the launch is on this stream, and its kernel uses the workspace as a `TileQueue`.
    unsafe {
        tile_queue::with(stream, operation, words, |workspace, words| {
            // SAFETY: these arguments match the parameters of the kernel, and the workspace has enough words for the
            // tiles.
            plan.launch::<Params<T>, _>((exclusive, initial, x, workspace, words, out))
        })
    }
}

/// Element type of a user-defined scan.
type Item<S> = <<S as Scan>::Operator as scan::Operation>::Item;
/// Accumulator type of a user-defined scan.
type Combined<S> = <<S as Scan>::Operator as scan::Operation>::Value;
/// Result type of a user-defined scan.
type Output<S> = <<S as Scan>::Operator as scan::Operation>::Output;

/// Inclusive scan of `x` into `out`, which must have the same length: `out[i]` combines elements 0 to i. `image`
/// contains the kernel of the [`#[scan]`](macro@gpu_std::scan) operator `S`.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
///
/// ```
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::{ops, prelude::*};
///
/// // In a kernel crate:
/// #[scan(identity = 1)]
/// pub fn product(a: u64, b: u64) -> u64 { a * b % 1_000_003 }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[2u64, 3, 500_000])?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// ops::inclusive_scan::<product>(&stream, &KERNELS, &x, &mut out)?;
/// assert_eq!(out.to_host()?, [2, 6, 3_000_000 % 1_000_003]);
/// ops::exclusive_scan::<product>(&stream, &KERNELS, &x, 7, &mut out)?;
/// assert_eq!(out.to_host()?, [7, 14, 42]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn inclusive_scan<'x, 'o, S: Scan>(
    stream: &Stream,
    image: &'static GpuImage,
    x: impl Into<DeviceSlice<'x, Item<S>>>,
    out: impl Into<DeviceSliceMut<'o, Output<S>>>,
) -> Result<()>
where
    Item<S>: DeviceCopy,
    Output<S>: DeviceCopy,
{
    let _site = site();
    use scan::Operation as _;
    own::<S>(stream, image, (false, S::Operator::identity()), x.into(), out.into())
}

/// Exclusive scan: like [`inclusive_scan()`], but each result combines `initial` with the elements before its own
/// position. `out[0]` is `initial`.
///
/// # Errors
/// Returns the same errors as [`inclusive_scan()`].
///
/// ```
/// use warpsmith::gpu_std::prelude::*;
/// use warpsmith::{ops, prelude::*};
///
/// // In a kernel crate:
/// #[scan(identity = 0)]
/// pub fn either(a: u32, b: u32) -> u32 { a | b }
///
/// # static KERNELS: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "it is an example");
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[0b001u32, 0b100, 0b001])?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// ops::exclusive_scan::<either>(&stream, &KERNELS, &x, 0b1000, &mut out)?;
/// assert_eq!(out.to_host()?, [0b1000, 0b1001, 0b1101]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[track_caller]
pub fn exclusive_scan<'x, 'o, S: Scan>(
    stream: &Stream,
    image: &'static GpuImage,
    x: impl Into<DeviceSlice<'x, Item<S>>>,
    initial: Combined<S>,
    out: impl Into<DeviceSliceMut<'o, Output<S>>>,
) -> Result<()>
where
    Item<S>: DeviceCopy,
    Output<S>: DeviceCopy,
{
    let _site = site();
    own::<S>(stream, image, (true, initial), x.into(), out.into())
}

/// Launches a user-defined scan. If the scan has an instance with the configuration of this crate's own scans, that
/// instance is used.
fn own<S: Scan>(
    stream: &Stream,
    image: &'static GpuImage,
    (exclusive, initial): (bool, Combined<S>),
    x: DeviceSlice<'_, Item<S>>,
    out: DeviceSliceMut<'_, Output<S>>,
) -> Result<()>
where
    Item<S>: DeviceCopy,
    Output<S>: DeviceCopy,
{
    type Params<S> =
        (Value<bool>, Value<Combined<S>>, Slice<Item<S>>, PointerMut<u64>, Value<usize>, SliceMut<Output<S>>);
    let name = S::VARIANTS.first().map_or("scan", |variant| (variant.spec)().name);
    same_length(name, ("x", x.len()), ("the output", out.len()))?;
    if x.is_empty() {
        return Ok(());
    }
    let bytes = size_of::<Item<S>>();
    let usual = default_config("scan_sum", bytes, x.len(), stream.device());
    let nearest = S::VARIANTS
        .iter()
        .min_by_key(|variant| (variant.items.abs_diff(usual.items), variant.vector.abs_diff(usual.vector)));
    let config = nearest.map(|&Variant { items, vector, .. }| Config { items, vector, ..usual });
    let arrays = [x.as_device_ptr(), out.as_device_ptr()];
    let plan = Operation::of_family(stream, image, (S::VARIANTS, false), bytes, x.len(), &arrays)
        .with_default(config)
        .plan()?;
    whole_warps(name, &plan)?;
    let Config { block, items, vector, .. } = *plan.config();
    let tiles = max_tiles(x.len(), bytes, block as usize, items as usize, vector as usize);
    // SAFETY: the launch is on this stream, and its kernel uses the workspace as a `TileQueue`.
    unsafe {
        tile_queue::with(stream, name, workspace_len(size_of::<Combined<S>>(), tiles), |workspace, words| {
            // SAFETY: by the contract of `Scan`, these arguments match the parameters of the kernel; the workspace has
            // enough words for the tiles.
            plan.launch::<Params<S>, _>((exclusive, initial, x, workspace, words, out))
        })
    }
}

/// Defines the scans.
macro_rules! scans {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kernel:literal, $exclusive:literal, $of_nothing:ident $(, $initial:ident)?;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Returns [`OpError::LengthMismatch`] and the [enqueue errors](crate::Error#enqueue-errors).
        #[track_caller]
        pub fn $name<'x, 'o, T: Number>(
            stream: &Stream,
            x: impl Into<DeviceSlice<'x, T>>,
            $($initial: T,)?
            out: impl Into<DeviceSliceMut<'o, T>>,
        ) -> Result<()> {
            let _site = site();
            #[allow(unused_mut, unused_assignments)]
            let mut first = T::$of_nothing;
            $(first = $initial;)?
            launch((stringify!($name), $kernel), stream, ($exclusive, first), x.into(), out.into())
        }
    )* };
}

scans! {
    /// Inclusive running sum: `out[i] = x[0] + … + x[i]`, like PyTorch's `cumsum`. Input and output have the same type.
    /// Integers wrap around on overflow. `f16` and `bf16` are summed in `f32`, and each result is rounded once.
    ///
    /// A result is rounded as often as in pairwise summation, plus once for about every 2²⁰ preceding elements.
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1i32, 2, 3, 4])?;
    /// let mut sums = DeviceBuffer::uninit(&stream, 4)?;
    /// ops::inclusive_sum(&stream, &x, &mut sums)?;
    /// assert_eq!(sums.to_host()?, [1, 3, 6, 10]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    inclusive_sum = "scan_sum", false, ZERO;
    /// Exclusive running sum: `out[i] = initial + x[0] + … + x[i - 1]`, rounded as in [`inclusive_sum()`].
    ///
    /// ```
    /// # use warpsmith::{ops, prelude::*};
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let lengths = DeviceBuffer::from_host(&stream, &[3u64, 0, 5])?;
    /// let mut offsets = DeviceBuffer::uninit(&stream, 3)?;
    /// ops::exclusive_sum(&stream, &lengths, 0, &mut offsets)?;
    /// assert_eq!(offsets.to_host()?, [0, 3, 3]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    exclusive_sum = "scan_sum", true, ZERO, initial;
    /// Running minimum. Results are NaN from the first NaN element on.
    #[doc = unary_example!(inclusive_min, [3i32, 1, 2, 0], [3, 1, 1, 0])]
    inclusive_min = "scan_min", false, MIN_IDENTITY;
    /// Minimum of `initial` and all preceding elements. Results are NaN after the first NaN element.
    #[doc = binary_example!(exclusive_min, [3i32, 1, 2, 0], 2, [2, 2, 1, 1])]
    exclusive_min = "scan_min", true, MIN_IDENTITY, initial;
    /// Running maximum. Results are NaN from the first NaN element on.
    #[doc = unary_example!(inclusive_max, [1i32, 3, 2, 4], [1, 3, 3, 4])]
    inclusive_max = "scan_max", false, MAX_IDENTITY;
    /// Maximum of `initial` and all preceding elements. Results are NaN after the first NaN element.
    #[doc = binary_example!(exclusive_max, [1i32, 3, 2, 4], 2, [2, 2, 3, 3])]
    exclusive_max = "scan_max", true, MAX_IDENTITY, initial;
}
