//! [`matmul`]: GEMM with a bias and activation epilogue, computed by cuBLASLt.
//!
//! | module | contents |
//! | --- | --- |
//! | `plan` | the descriptors of a product and its candidate algorithms |
//! | `search` | the selection of an algorithm by timing |

mod plan;
mod search;

use cudarc::cublaslt::sys::cublasLtEpilogue_t;

use self::plan::Pointers;
pub(crate) use self::plan::{Key, Plan};
use super::State;
use super::gemm::{Gemm, Operand, Problem, Zeros, gemm, is_float8, uses_tf32};
use super::handle;
use super::host::HostMatrix;
use super::matrix::{Layout, Matrix, MatrixMut};
use super::settings::{Math, workspaces};
use super::types::sealed::Sum;
use super::types::{GemmType, Multiply, Scale};
use crate::element::{DataType, LibraryType};
use crate::error::{LibraryError, check_devices};
use crate::lru::PlanCache;
use crate::vendor::Vendor;
use warpsmith_runtime::extension::{Access, BufferUse, site};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, DeviceSlice, Error, Result, Stream};

/// Activation function, applied last to every output element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// Identity.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// GELU with the `tanh` approximation.
    Gelu,
}

impl Activation {
    fn code(self, has_bias: bool) -> cublasLtEpilogue_t {
        match (self, has_bias) {
            (Self::None, false) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            (Self::Relu, false) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
            (Self::Gelu, false) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU,
            (Self::None, true) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            (Self::Relu, true) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
            (Self::Gelu, true) => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        }
    }

    fn apply(self, value: f64) -> f64 {
        match self {
            Self::None => value,
            // Unlike `max`, this comparison keeps NaN.
            Self::Relu => {
                if value < 0.0 {
                    0.0
                } else {
                    value
                }
            }
            Self::Gelu => {
                let inner = std::f64::consts::FRAC_2_PI.sqrt() * (value + 0.044715 * value * value * value);
                0.5 * value * (1.0 + inner.tanh())
            }
        }
    }
}

/// Strategy for choosing an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Search {
    /// Uses the first algorithm that cuBLASLt's heuristics suggest.
    #[default]
    Heuristic,
    /// Uses the fastest of the first `candidates` algorithms that the heuristics suggest. Each of them runs `repeats`
    /// times with the operands of the call. The first such call for a shape waits for the timed runs, which write to a
    /// temporary buffer of the output's size. The search falls back to [`Self::Heuristic`] during stream capture, with
    /// [`Math::deterministic`], or if the temporary buffer cannot be allocated.
    Timed {
        /// Number of algorithms to try.
        candidates: usize,
        /// Number of timed runs per algorithm.
        repeats: usize,
    },
}

/// The scalars of a GEMM, its epilogue, and the strategy for choosing its algorithm.
#[derive(Debug, Clone, Copy)]
pub struct Matmul<'a, S, C: DeviceCopy> {
    /// Factor by which the product is multiplied. The default is 1.
    pub alpha: S,
    /// Factor by which the old output is multiplied before it is added to the product. With 0, which is the default,
    /// the old output is not read.
    pub beta: S,
    /// Bias vector, added to each row, with one element per column of the output. The default is `None`.
    pub bias: Option<DeviceSlice<'a, C>>,
    /// Activation, applied last. The default is `None`.
    pub activation: Activation,
    /// Device scalar by which `a` is multiplied. It is supported only for 8-bit floating point.
    pub scale_a: Option<DeviceSlice<'a, f32>>,
    /// Device scalar by which `b` is multiplied. It is supported only for 8-bit floating point.
    pub scale_b: Option<DeviceSlice<'a, f32>>,
    /// Precision, or `None` to use the device's default ([`math`](super::math)).
    pub math: Option<Math>,
    /// Maximum workspace of an algorithm in bytes, or `None` to use
    /// [`Workspaces::cublas_lt`](super::Workspaces::cublas_lt).
    pub workspace_limit: Option<usize>,
    /// Algorithm selection. The default is [`Search::Heuristic`].
    pub search: Search,
}

impl<S: Sum, C: DeviceCopy> Default for Matmul<'_, S, C> {
    fn default() -> Self {
        Self {
            alpha: S::from_f64(1.0),
            beta: S::from_f64(0.0),
            bias: None,
            activation: Activation::None,
            scale_a: None,
            scale_b: None,
            math: None,
            workspace_limit: None,
            search: Search::Heuristic,
        }
    }
}

const OPERATION: &str = "matmul";

/// Enqueues `c = activation(alpha * a * b + beta * c + bias)` for each matrix of a batch. Otherwise like
/// [`gemm`](super::gemm).
///
/// The algorithm that the heuristics choose for a shape is cached ([`plan_cache`]). For 8-bit integers, this function
/// calls [`gemm`](super::gemm) and supports neither bias nor activation. 8-bit floating point requires:
///
/// - compute capability 8.9;
/// - `b` as a transposed view, and all other matrices untransposed;
/// - an inner dimension and a number of columns that are multiples of 16;
/// - strides and addresses that are multiples of 16 bytes.
///
/// ```
/// use warpsmith_libraries::blas::{self, Activation, Matmul, Matrix};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[1f32, 2.0])?; // one row
/// let weights = DeviceBuffer::from_host(&stream, &[3f32, 4.0, -5.0, -6.0])?; // outputs x inputs
/// let bias = DeviceBuffer::from_host(&stream, &[0.5f32, 0.5])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// let options = Matmul { bias: Some(bias.as_slice()), activation: Activation::Relu, ..Matmul::default() };
/// let weights = Matrix::from(weights.as_2d(2, 2)?).transposed();
/// blas::matmul(&stream, &options, x.as_2d(1, 2)?, weights, y.as_2d_mut(1, 2)?)?;
/// assert_eq!(y.to_host()?, [11.5, 0.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// - The same errors as [`gemm`](super::gemm).
/// - [`LibraryError::Shape`] if the bias or a scale has the wrong length.
/// - [`LibraryError::WorkspaceTooSmall`] if every algorithm needs a larger workspace than the limit.
/// - [`LibraryError::Unsupported`] if no algorithm exists.
#[track_caller]
pub fn matmul<'a, 'b, 'c, A, B, C>(
    stream: &Stream,
    options: &Matmul<'_, Scale<A>, C>,
    a: impl Into<Matrix<'a, A>>,
    b: impl Into<Matrix<'b, B>>,
    c: impl Into<MatrixMut<'c, C>>,
) -> Result<()>
where
    A: Multiply<B, C>,
    B: GemmType<Sum = A::Sum>,
    C: GemmType<Sum = A::Sum>,
{
    let _site = site();
    let (a, b, c) = (a.into(), b.into(), c.into());
    let device = stream.device();
    let problem = Problem::new(OPERATION, stream, &a, &b, &c)?;
    check_extras(stream, options, &problem)?;
    if problem.is_nothing() {
        return Ok(());
    }
    let Matmul { alpha, beta, bias, activation, math, .. } = *options;
    if A::TYPE == DataType::I8 {
        if bias.is_some() || activation != Activation::None {
            return Err(unsupported("an epilogue for 8-bit integers", "floating-point operands"));
        }
        return gemm(stream, Gemm { alpha, beta, math }, a, b, c);
    }
    if problem.is_zero(alpha) {
        let zeros = Zeros::<A, B>::new(stream, &problem)?;
        let (a, b) = zeros.matrices()?;
        // The product is zero for any scales.
        let one = Scale::<A>::from_f64(1.0);
        let unscaled = Matmul { alpha: one, scale_a: None, scale_b: None, ..*options };
        return matmul(stream, &unscaled, a, b, c);
    }
    if bias.is_some() && problem.c.layout.is_transposed {
        return Err(unsupported("a bias for a transposed output", "an output without transposition"));
    }
    check_support(device, options, &problem.upright())?;
    let scales = [options.scale_a, options.scale_b];
    if !device.is_emulated() {
        let bias = bias.map(|bias| bias.as_device_ptr());
        let scales = scales.map(|scale| scale.map(|scale| scale.as_device_ptr()));
        let mut extras = scales.into_iter().chain([bias]).flatten();
        if extras.any(|extra| !extra.0.is_multiple_of(EXTRA_ALIGNMENT)) {
            return with_aligned_extras(stream, options, a, b, c);
        }
    }
    let mut parts: Vec<BufferUse<'_>> = Vec::with_capacity(6);
    parts.extend([a.slice.used(Access::Read), b.slice.used(Access::Read), c.slice.used()]);
    parts.extend(bias.iter().map(|bias| bias.used(Access::Read)));
    parts.extend(scales.iter().flatten().map(|scale| scale.used(Access::Read)));
    if device.is_emulated() {
        let host = on_host::<A, B, C>(options, problem);
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so
        // the work accesses only the operands.
        return unsafe { stream.enqueue_host_named("blas::matmul", &parts, host) };
    }
    Vendor::CublasLt.version()?;
    let problem = problem.upright();
    let math = math.unwrap_or_else(|| super::math(device));
    let pointer = |slice: Option<DeviceSlice<'_, f32>>| slice.map_or(0, |slice| slice.as_device_ptr().0);
    let pointers = Pointers {
        a: problem.a.ptr,
        b: problem.b.ptr,
        c: problem.c.ptr,
        d: problem.c.ptr,
        bias: bias.map_or(0, |bias| bias.as_device_ptr().0),
        scale_a: pointer(options.scale_a),
        scale_b: pointer(options.scale_b),
    };
    let limit = options.workspace_limit.unwrap_or_else(|| workspaces(device).cublas_lt);
    let epilogue = activation.code(bias.is_some());
    let key = |search| Key::new(&problem, &pointers, epilogue, math, uses_tf32(math, device), limit, search);
    let plans = &State::of(device).plans;
    let search = match options.search {
        Search::Timed { .. } if math.deterministic => Search::Heuristic,
        // A plan found before the capture can still be used.
        Search::Timed { .. } if stream.is_capturing() && !plans.has(&key(options.search)) => {
            Search::Heuristic
        }
        search => search,
    };
    let key = key(search);
    let scalars = (alpha, beta);
    let make = || match search {
        Search::Heuristic => plan::make(stream, &key, &pointers, 1),
        Search::Timed { candidates, repeats } => {
            let inputs: Vec<BufferUse<'_>> =
                parts.iter().map(|part| part.clone().with_access(Access::Read)).collect();
            let extent = problem.c.layout.extent().unwrap_or(0);
            match DeviceBuffer::<C>::uninit(stream, extent) {
                Ok(output) => {
                    search::fastest(stream, &key, &pointers, &scalars, (&inputs, output), candidates, repeats)
                }
                Err(Error::OutOfMemory(_)) => plan::make(stream, &key, &pointers, 1),
                Err(error) => Err(error),
            }
        }
    };
    let plan = plans.get_or_make(&key, make)?;
    handle::enqueue_lt(stream, &parts, plan.workspace(), |handle, workspace, stream_handle| {
        // SAFETY: the operands that the problem describes lie inside the parts and match them. The scalars have the
        // accumulation type, and the workspace has the size that the plan needs.
        unsafe { plan.run(0, handle, &pointers, &scalars, workspace, stream_handle) }
    })
}

/// Alignment in bytes of the addresses of scales and biases. The preferences passed to cuBLASLt's heuristics do not
/// cover these addresses. Some algorithms load 16 bytes of a bias at once (see PyTorch's pull request 194497).
const EXTRA_ALIGNMENT: u64 = 16;

/// Runs the product with aligned copies of the scales and the bias.
#[cold]
fn with_aligned_extras<A, B, C>(
    stream: &Stream,
    options: &Matmul<'_, Scale<A>, C>,
    a: Matrix<'_, A>,
    b: Matrix<'_, B>,
    c: MatrixMut<'_, C>,
) -> Result<()>
where
    A: Multiply<B, C>,
    B: GemmType<Sum = A::Sum>,
    C: GemmType<Sum = A::Sum>,
{
    const APART: usize = EXTRA_ALIGNMENT as usize / size_of::<f32>();
    let scales = [options.scale_a, options.scale_b];
    let mut copies = DeviceBuffer::<f32>::uninit(stream, scales.len() * APART)?;
    for (index, scale) in scales.iter().enumerate() {
        if let Some(scale) = scale {
            stream.copy(scale, copies.slice_mut(index * APART..index * APART + 1))?;
        }
    }
    let copy = |index: usize| scales[index].map(|_| copies.slice(index * APART..index * APART + 1));
    let bias = match options.bias {
        Some(bias) => {
            let mut copy = DeviceBuffer::uninit(stream, bias.len())?;
            stream.copy(bias, &mut copy)?;
            Some(copy)
        }
        None => None,
    };
    let bias = bias.as_ref().map(DeviceBuffer::as_slice);
    let options = Matmul { scale_a: copy(0), scale_b: copy(1), bias, ..*options };
    matmul(stream, &options, a, b, c)
}

/// Returns the device's plan cache for [`matmul`].
pub fn plan_cache(device: &Device) -> PlanCache<'_> {
    PlanCache(&State::of(device).plans)
}

fn check_extras<S, C: DeviceCopy>(
    stream: &Stream,
    options: &Matmul<'_, S, C>,
    problem: &Problem,
) -> Result<()> {
    if let Some(bias) = options.bias {
        check_devices(stream, OPERATION, [(bias.device(), "the bias")])?;
        if bias.len() != problem.n {
            let problem =
                format!("the bias has {} elements, but the output has {} columns", bias.len(), problem.n);
            return Err(LibraryError::shape(OPERATION, problem));
        }
    }
    for scale in [options.scale_a, options.scale_b].into_iter().flatten() {
        check_devices(stream, OPERATION, [(scale.device(), "a scale")])?;
        if scale.len() != 1 {
            let problem = format!("the scale has {} elements; pass a single element", scale.len());
            return Err(LibraryError::shape(OPERATION, problem));
        }
        if !is_float8(problem.a.data) {
            let what = format!("a scale for {:?}", problem.a.data);
            return Err(unsupported(what, "8-bit floating point, or `alpha`"));
        }
    }
    Ok(())
}

fn unsupported(what: impl Into<String>, needs: &str) -> Error {
    LibraryError::unsupported(OPERATION, what, needs)
}

/// Checks known restrictions in order to return a more helpful error. The check runs on every device, so that a call
/// that succeeds on the emulated device is also valid on a GPU.
fn check_support<S, C: DeviceCopy>(
    device: &Device,
    options: &Matmul<'_, S, C>,
    problem: &Problem,
) -> Result<()> {
    let Problem { a, b, c, .. } = problem;
    if !is_float8(a.data) {
        return Ok(());
    }
    if !device.is_emulated() && device.capability() < (8, 9) {
        let (major, minor) = device.capability();
        return Err(unsupported(
            format!("8-bit floating point on a GPU of compute capability {major}.{minor}"),
            "compute capability 8.9 or higher",
        ));
    }
    if a.layout.is_transposed || !b.layout.is_transposed {
        return Err(unsupported(
            "8-bit floating point with this layout of a and b",
            "a in row-major order and b as the transposed view of an n x k matrix",
        ));
    }
    let is_aligned = |operand: &Operand, size: usize| {
        let of_sixteen = |elements: usize| elements.saturating_mul(size).is_multiple_of(16);
        let Operand { ptr, layout, .. } = operand;
        let is_apart = layout.count() == 1 || of_sixteen(layout.batch_stride);
        ptr.is_multiple_of(16) && of_sixteen(layout.leading() as usize) && is_apart
    };
    let is_aligned = is_aligned(a, 1) && is_aligned(b, 1) && is_aligned(c, size_of::<C>());
    if !is_aligned || !problem.k.is_multiple_of(16) || !problem.n.is_multiple_of(16) {
        let batch = [a, b, c].map(|operand| operand.layout.batch_stride);
        return Err(unsupported(
            format!(
                "8-bit floating point of {} x {} x {} with strides of {}, {} and {}, batch strides of {batch:?}, at {:#x}, \
                 {:#x} and {:#x}",
                problem.m,
                problem.n,
                problem.k,
                a.layout.stride,
                b.layout.stride,
                c.layout.stride,
                a.ptr,
                b.ptr,
                c.ptr
            ),
            "n and k that are multiples of 16, and strides and addresses that are multiples of 16 bytes",
        ));
    }
    if options.bias.is_some() && c.data == DataType::F32 {
        return Err(unsupported(
            "an f32 bias for 8-bit floating point",
            "an output and a bias of bf16 or f16",
        ));
    }
    Ok(())
}

fn on_host<A, B, C>(
    options: &Matmul<'_, A::Sum, C>,
    problem: Problem,
) -> impl Fn() + Send + Sync + 'static + use<A, B, C>
where
    A: GemmType,
    B: GemmType<Sum = A::Sum>,
    C: GemmType<Sum = A::Sum>,
{
    let Matmul { alpha, beta, bias, activation, scale_a, scale_b, .. } = *options;
    let bias =
        bias.map(|bias| HostMatrix { ptr: bias.as_device_ptr().0, layout: Layout::new(1, bias.len()) });
    let scales = [scale_a, scale_b].map(|scale| scale.map(|scale| scale.as_device_ptr().0));
    move || {
        let alpha = scales.into_iter().flatten().fold(alpha.to_f64(), |alpha, scale| {
            // SAFETY: the scale is one element of memory that is recorded as used by this work.
            alpha * f64::from(unsafe { (scale as *const f32).read_unaligned() })
        });
        let finish = move |col: usize, value: f64| {
            // SAFETY: the bias has one element per column, in memory that is recorded as used by this work.
            let bias = bias.map_or(0.0, |bias| unsafe { bias.get::<C>(0, 0, col) });
            activation.apply(value + bias)
        };
        problem.on_host::<A, B, C>(A::Sum::from_f64(alpha), beta, finish)();
    }
}
