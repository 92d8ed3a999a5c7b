//! [`Routing`]: routing of mixture-of-experts layers.

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, Launch, Result, Stream};
use warpsmith_tensor_kernels::experts::{
    MAX_CHOSEN, MAX_EXPERTS, THREADS, combine_rows, dispatch_rows, sort_by_expert, top_experts,
};

use crate::IMAGE;
use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut, check_rows};
use crate::skinny::check_device;

/// Maximum number of entries, which are row indices.
const MAX_ENTRIES: usize = i32::MAX as usize;

/// Routing of the tokens of a mixture-of-experts layer to the top k experts of each token. [`Self::dispatch`] copies
/// the tokens' rows, sorted by expert, for [`matmul_grouped()`](crate::matmul_grouped()) with [`Self::offsets`].
/// [`Self::combine`] adds the results of each token, times the experts' weights.
///
/// Everything remains in device memory, so a graph can contain the whole layer. Results are bit-identical in every run.
/// Before the first call of [`Self::route`], all tokens are routed to nothing: every offset is 0.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, Routing, matmul_grouped};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let numbers = |numbers: &[f32]| numbers.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
/// // Two tokens with 8 elements, and three experts, which multiply by 1, 2 and 4.
/// let tokens = DeviceBuffer::from_host(&stream, &numbers(&[[1.0; 8], [10.0; 8]].concat()))?;
/// let diagonal = |x: f32| (0..64).map(move |i| if i % 9 == 0 { x } else { 0.0 });
/// let experts: Vec<f32> = [1.0, 2.0, 4.0].into_iter().flat_map(diagonal).collect();
/// let experts = DeviceBuffer::from_host(&stream, &numbers(&experts))?;
/// // The first token selects experts 0 and 2 with equal weights, the second one selects expert 1 alone.
/// let logits = DeviceBuffer::from_host(&stream, &numbers(&[5.0, -90.0, 5.0, -90.0, 90.0, -91.0]))?;
///
/// let mut routing = Routing::new(&stream, 2, 3, 2)?;
/// routing.route(&stream, logits.as_2d(2, 3)?, true)?;
/// let (mut rows, mut results) =
///     (DeviceBuffer::<bf16>::zeros(&stream, 4 * 8)?, DeviceBuffer::<bf16>::zeros(&stream, 4 * 8)?);
/// routing.dispatch(&stream, tokens.as_2d(2, 8)?, rows.as_2d_mut(4, 8)?)?;
/// let (rows, experts) = (rows.as_2d(4, 8)?, experts.as_3d(3, 8, 8)?);
/// matmul_grouped(&stream, &Epilogue::default(), rows, routing.offsets(), experts, results.as_2d_mut(4, 8)?)?;
/// let mut out = DeviceBuffer::<bf16>::zeros(&stream, 2 * 8)?;
/// routing.combine(&stream, results.as_2d(4, 8)?, false, out.as_2d_mut(2, 8)?)?;
/// assert_eq!(out.to_host()?, numbers(&[[2.5; 8], [20.0; 8]].concat()));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Routing {
    tokens: usize,
    experts: usize,
    k: usize,
    chosen: DeviceBuffer<u32>,
    weights: DeviceBuffer<f32>,
    offsets: DeviceBuffer<u32>,
    entries: DeviceBuffer<u32>,
    places: DeviceBuffer<u32>,
}

impl Routing {
    /// Allocates the routing of `tokens` tokens to `k` of `experts` experts each.
    ///
    /// # Errors
    /// Returns [`TensorError::Shape`] if k is 0, above 32 or above the number of experts, if there are more than 512
    /// experts, or if the number of tokens times k is 2^31 or more; [enqueue
    /// errors](warpsmith_runtime::Error#enqueue-errors).
    #[track_caller]
    pub fn new(stream: &Stream, tokens: usize, experts: usize, k: usize) -> Result<Self> {
        let _site = site();
        let what = match tokens.checked_mul(k) {
            _ if k == 0 || k > experts || k > MAX_CHOSEN as usize => {
                format!("k is {k}, but must be between 1 and {}", experts.min(MAX_CHOSEN as usize))
            }
            _ if experts > MAX_EXPERTS as usize => {
                format!("there are {experts} experts, more than the maximum of {MAX_EXPERTS}")
            }
            Some(entries) if entries <= MAX_ENTRIES => {
                return Ok(Self {
                    tokens,
                    experts,
                    k,
                    chosen: DeviceBuffer::zeros(stream, entries)?,
                    weights: DeviceBuffer::zeros(stream, entries)?,
                    offsets: DeviceBuffer::zeros(stream, experts + 1)?,
                    entries: DeviceBuffer::zeros(stream, entries)?,
                    places: DeviceBuffer::zeros(stream, entries)?,
                });
            }
            _ => format!("{tokens} tokens with {k} experts each are more than {MAX_ENTRIES} rows"),
        };
        Err(TensorError::Shape { operation: "Routing::new", what }.into())
    }

    /// Returns the start of each expert's rows, in the order of the experts, and their total. After [`Self::route`],
    /// the total is the number of tokens times k.
    pub fn offsets(&self) -> DeviceSlice<'_, u32> {
        self.offsets.as_slice()
    }

    /// Returns the k selected experts of each token, by descending logit.
    pub fn experts(&self) -> DeviceSlice<'_, u32> {
        self.chosen.as_slice()
    }

    /// Returns the weights of the selected experts, in the order of [`Self::experts`].
    pub fn weights(&self) -> DeviceSlice<'_, f32> {
        self.weights.as_slice()
    }

    /// Selects the k experts with the largest logits for each token. `logits` has one row per token and one column per
    /// expert. Of equal logits, the one with the lower index comes first; NaN counts as the largest number, and makes
    /// the weights of its token NaN. The weights are the softmax over all experts or, if `normalizes`, over the
    /// selected ones.
    ///
    /// # Errors
    /// Returns [`TensorError::Shape`] if the sizes differ from those of [`Self::new`]; [`TensorError::Layout`] for a
    /// transposed matrix; [`TensorError::Device`] for a compute capability below 8.0; [enqueue
    /// errors](warpsmith_runtime::Error#enqueue-errors).
    #[track_caller]
    pub fn route<'a, T: RoutingElement>(
        &mut self,
        stream: &Stream,
        logits: impl Into<Matrix<'a, T>>,
        normalizes: bool,
    ) -> Result<()> {
        let _site = site();
        const OPERATION: &str = "Routing::route";
        let logits = logits.into();
        let Self { tokens, experts, k, .. } = *self;
        check(OPERATION, "logits", &logits, [tokens, experts])?;
        check_device(OPERATION, stream.device())?;
        let [tokens, experts, k] = [tokens, experts, k].map(|number| number as u32);
        if tokens == 0 {
            return Ok(());
        }
        let (image, pitch) = (stream.device().load(&IMAGE)?, logits.stored.row_stride as u64);
        let (chosen, weights) = (&mut self.chosen, &mut self.weights);
        let normalizes = u32::from(normalizes);
        let select = image.kernel::<T::Top>()?;
        let launch = Launch::grid_block(tokens.div_ceil(THREADS / 32), THREADS);
        let arguments = (logits.elements, chosen, weights, tokens, experts, pitch, k, normalizes);
        // SAFETY: the logits have these sizes, which `new` has checked, as it has the lengths of the buffers.
        unsafe { select.launch_unsafe(stream, launch, arguments)? };
        let sort = image.kernel::<sort_by_expert>()?;
        let launch = Launch::grid_block(experts, THREADS);
        let arguments = (&self.chosen, &mut self.offsets, &mut self.entries, &mut self.places);
        // SAFETY: the buffers have the lengths that the kernel requires, and the selected experts exist.
        unsafe { sort.launch_unsafe(stream, launch, arguments) }
    }

    /// Copies the rows of `from`, one per token, to `to`, which has k rows per token, sorted by expert. Rows of the
    /// same expert are in the order of the tokens.
    ///
    /// # Errors
    /// Returns [`TensorError::Shape`] if the number of rows differs from the number of tokens, the number of rows of
    /// `to` from the number of tokens times k, or the numbers of columns from each other, or if the number of columns
    /// is not a multiple of 8; [`TensorError::Layout`] for a transposed matrix; [`TensorError::Alignment`] if an
    /// address or row stride is not a multiple of 16 bytes; [`TensorError::Device`] for a compute capability below 8.0;
    /// [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    #[track_caller]
    pub fn dispatch<'a, 'b, T: RoutingElement>(
        &self,
        stream: &Stream,
        from: impl Into<Matrix<'a, T>>,
        to: impl Into<MatrixMut<'b, T>>,
    ) -> Result<()> {
        let _site = site();
        let (from, to) = (from.into(), to.into());
        let columns = from.columns();
        let rows = self.tokens * self.k;
        check_copy("Routing::dispatch", stream, (&from, self.tokens), (&to, rows), columns)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let kernel = stream.device().load(&IMAGE)?.kernel::<T::Dispatch>()?;
        let [from_pitch, to_pitch] = [from.stored.row_stride, to.stored.row_stride].map(|pitch| pitch as u64);
        let (k, columns) = (self.k as u32, columns as u32);
        let arguments = (from.elements, &self.entries, to.elements, k, columns, from_pitch, to_pitch);
        // SAFETY: the sizes and addresses have been checked. The entries are zeros or those of `route`, which are below
        // `rows`.
        unsafe { kernel.launch_unsafe(stream, Launch::grid_block(rows as u32, THREADS), arguments) }
    }

    /// Writes the sum of each token's k rows of `from`, times the weights of their experts, to the token's row of `to`,
    /// or adds the sum to it if `accumulate` is true. The rows of `from` have the order of [`Self::dispatch`]. Sums are
    /// `f32`, in the order of [`Self::experts`], and are rounded once.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::dispatch`].
    #[track_caller]
    pub fn combine<'a, 'b, T: RoutingElement>(
        &self,
        stream: &Stream,
        from: impl Into<Matrix<'a, T>>,
        accumulate: bool,
        to: impl Into<MatrixMut<'b, T>>,
    ) -> Result<()> {
        let _site = site();
        let (from, to) = (from.into(), to.into());
        let columns = from.columns();
        let rows = self.tokens * self.k;
        check_copy("Routing::combine", stream, (&from, rows), (&to, self.tokens), columns)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let kernel = stream.device().load(&IMAGE)?.kernel::<T::Combine>()?;
        let [from_pitch, to_pitch] = [from.stored.row_stride, to.stored.row_stride].map(|pitch| pitch as u64);
        let (k, columns, accumulates) = (self.k as u32, columns as u32, u32::from(accumulate));
        let (places, weights) = (&self.places, &self.weights);
        let arguments =
            (from.elements, places, weights, to.elements, k, columns, from_pitch, to_pitch, accumulates);
        // SAFETY: the sizes and addresses have been checked. The places are zeros or those of `route`, which are below
        // `rows`.
        unsafe { kernel.launch_unsafe(stream, Launch::grid_block(self.tokens as u32, THREADS), arguments) }
    }
}

/// Fails if the matrix is a batch, is transposed or has other sizes.
fn check<T: DeviceCopy>(
    operation: &'static str,
    name: &'static str,
    matrix: &Matrix<'_, T>,
    sizes: [usize; 2],
) -> Result<()> {
    let found = [matrix.rows(), matrix.columns()];
    if matrix.planes() != 1 || found != sizes {
        let what = format!(
            "{name} is {} of {} x {}, but must be one of {} x {}",
            if matrix.planes() == 1 { "a matrix" } else { "a batch of matrices" },
            found[0],
            found[1],
            sizes[0],
            sizes[1]
        );
        return Err(TensorError::Shape { operation, what }.into());
    }
    if matrix.is_transposed {
        let element = std::any::type_name::<T>();
        return Err(TensorError::Layout { operation, matrix: name, element }.into());
    }
    Ok(())
}

/// Checks the matrices of a copy, given with their numbers of rows.
fn check_copy<T: DeviceCopy>(
    operation: &'static str,
    stream: &Stream,
    (from, from_rows): (&Matrix<'_, T>, usize),
    (to, to_rows): (&MatrixMut<'_, T>, usize),
    columns: usize,
) -> Result<()> {
    check(operation, "from", from, [from_rows, columns])?;
    let read = Matrix { elements: to.elements.as_slice(), stored: to.stored, is_transposed: false };
    check(operation, "to", &read, [to_rows, columns])?;
    if !columns.is_multiple_of(8) {
        let what = format!("the rows have {columns} elements, which must be a multiple of 8");
        return Err(TensorError::Shape { operation, what }.into());
    }
    check_device(operation, stream.device())?;
    check_rows(operation, "from", from.elements, from.stored)?;
    check_rows(operation, "to", read.elements, read.stored)
}

/// Element types of [`Routing`]: `bf16` and `f16`.
///
/// See the example of [`Routing`].
pub trait RoutingElement: DeviceCopy {
    #[doc(hidden)]
    type Top: Kernel<Params = Top<Self>>;
    #[doc(hidden)]
    type Dispatch: Kernel<Params = Dispatch<Self>>;
    #[doc(hidden)]
    type Combine: Kernel<Params = Combine<Self>>;
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl RoutingElement for $ty {
            type Top = top_experts<Self>;
            type Dispatch = dispatch_rows<Self>;
            type Combine = combine_rows<Self>;
        }
    )* };
}
elements!(bf16, f16);

/// Kernel parameters for the selection of experts.
#[doc(hidden)]
pub type Top<T> = (
    param::Slice<T>,
    param::SliceMut<u32>,
    param::SliceMut<f32>,
    param::Value<u32>,
    param::Value<u32>,
    param::Value<u64>,
    param::Value<u32>,
    param::Value<u32>,
);

/// Kernel parameters for dispatch.
#[doc(hidden)]
pub type Dispatch<T> = (
    param::Slice<T>,
    param::Slice<u32>,
    param::SliceMut<T>,
    param::Value<u32>,
    param::Value<u32>,
    param::Value<u64>,
    param::Value<u64>,
);

/// Kernel parameters for the weighted sum.
#[doc(hidden)]
pub type Combine<T> = (
    param::Slice<T>,
    param::Slice<u32>,
    param::Slice<f32>,
    param::SliceMut<T>,
    param::Value<u32>,
    param::Value<u32>,
    param::Value<u64>,
    param::Value<u64>,
    param::Value<u32>,
);
