//! [`gemm`]: GEMM, and batched GEMM for matrices of the same shape.

use std::ffi::c_void;

use cudarc::cublas::sys::{self, cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t};

use super::handle::{self, Handle, check_with};
use super::host::{self, HostMatrix};
use super::lt;
use super::matrix::{Layout, Matrix, MatrixMut};
use super::settings::Math;
use super::types::sealed::Sum;
use super::types::{GemmType, Multiply, Scale};
use crate::element::{DataType, LibraryType, code};
use crate::error::{LibraryError, check_devices};
use warpsmith_runtime::extension::{Access, site};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, Result, Stream};

/// The scalars and the compute precision of a GEMM.
///
/// ```
/// use warpsmith_libraries::blas::Gemm;
///
/// let sum = Gemm { beta: 1f32, ..Gemm::default() };
/// assert_eq!((sum.alpha, sum.math), (1.0, None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm<S> {
    /// Factor by which the product is multiplied. The default is 1.
    pub alpha: S,
    /// Factor by which the old output is multiplied before it is added to the product. With 0, which is the default,
    /// the old output is not read.
    pub beta: S,
    /// Precision, or `None` to use the device's default ([`math`](super::math)).
    pub math: Option<Math>,
}

impl<S: Sum> Default for Gemm<S> {
    fn default() -> Self {
        Self { alpha: S::from_f64(1.0), beta: S::from_f64(0.0), math: None }
    }
}

/// Enqueues `c = alpha * a * b + beta * c` for each matrix of a batch.
///
/// All matrices are row-major, and each of them can be transposed. An unbatched input is broadcast over the batch. If
/// the output is empty, nothing is computed. If the inner dimension is 0, the product is 0. If `alpha` is 0, the inputs
/// are not read. If `beta` is 0, the old output is not read. If the function returns an error, nothing was enqueued.
///
/// On a GPU, the function calls cuBLAS's `cublasGemmEx` or `cublasGemmStridedBatchedEx`. For 8-bit floating point, the
/// function calls [`matmul`](super::matmul). The call can be captured in a graph.
///
/// ```
/// use warpsmith_libraries::blas::{self, Gemm, Matrix};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::from_host(&stream, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let mut c = DeviceBuffer::zeros(&stream, 4)?;
/// let a = Matrix::from(a.as_2d(2, 3)?);
/// blas::gemm(&stream, Gemm::default(), a, a.transposed(), c.as_2d_mut(2, 2)?)?;
/// assert_eq!(c.to_host()?, [14.0, 32.0, 32.0, 77.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
/// - [`LibraryError::Shape`] if shapes or batch sizes do not match.
/// - [`LibraryError::Unsupported`] if this GPU cannot multiply the operands. For 8-bit integers, strides and addresses
///   must be multiples of 4. [`matmul`](super::matmul) lists the requirements for 8-bit floating point.
/// - [`LibraryError::Missing`], [`Error::DifferentDevices`](warpsmith_runtime::Error::DifferentDevices), and any error
///   from the library or the driver.
#[track_caller]
pub fn gemm<'a, 'b, 'c, A, B, C>(
    stream: &Stream,
    options: Gemm<Scale<A>>,
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
    let problem = Problem::new("gemm", stream, &a, &b, &c)?;
    if problem.is_nothing() {
        return Ok(());
    }
    let math = options.math.unwrap_or_else(|| super::math(device));
    if problem.is_zero(options.alpha) {
        let zeros = Zeros::<A, B>::new(stream, &problem)?;
        let (a, b) = zeros.matrices()?;
        // The product is zero for any scales.
        return gemm(stream, Gemm { alpha: Scale::<A>::from_f64(1.0), ..options }, a, b, c);
    }
    if is_float8(A::TYPE) {
        let Gemm { alpha, beta, .. } = options;
        let options = lt::Matmul { alpha, beta, math: Some(math), ..lt::Matmul::default() };
        return lt::matmul(stream, &options, a, b, c);
    }
    problem.check_support()?;
    let parts = [a.slice.used(Access::Read), b.slice.used(Access::Read), c.slice.used()];
    let Gemm { alpha, beta, .. } = options;
    let call = |handle: &mut Handle| {
        handle.set_math(math, A::TYPE)?;
        problem.call(handle, math, device, &alpha, &beta)
    };
    handle::enqueue(
        stream,
        "blas::gemm",
        &parts,
        call,
        problem.on_host::<A, B, C>(alpha, beta, |_, value| value),
    )
}

/// Substitute inputs whose product is zero. They replace inputs whose inner dimension is 0, which the libraries reject.
/// They also replace the inputs if the factor is 0, because for some types the libraries still read the inputs and
/// propagate NaN.
pub(super) struct Zeros<A: DeviceCopy, B: DeviceCopy> {
    a: DeviceBuffer<A>,
    b: DeviceBuffer<B>,
    rows: usize,
    cols: usize,
}

impl<A: GemmType, B: GemmType> Zeros<A, B> {
    /// An inner dimension that is valid for every type.
    const INNER: usize = 16;

    #[cold]
    #[track_caller]
    pub fn new(stream: &Stream, problem: &Problem) -> Result<Self> {
        let _site = site();
        let (rows, cols) = (problem.m, problem.n);
        let elements = |count: usize| count.saturating_mul(Self::INNER);
        Ok(Self {
            a: DeviceBuffer::zeros(stream, elements(rows))?,
            b: DeviceBuffer::zeros(stream, elements(cols))?,
            rows,
            cols,
        })
    }

    pub fn matrices(&self) -> Result<(Matrix<'_, A>, Matrix<'_, B>)> {
        let b = Matrix::with_layout(&self.b, Layout::new(self.cols, Self::INNER).transposed())?;
        Ok((Matrix::with_layout(&self.a, Layout::new(self.rows, Self::INNER))?, b))
    }
}

/// A matrix operand, as cuBLAS represents it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    pub ptr: u64,
    pub data: DataType,
    pub layout: Layout,
}

impl Operand {
    /// Returns the transpose flag to pass to cuBLAS, which sees a row-major matrix as its transpose.
    pub fn operation(&self) -> cublasOperation_t {
        operation(self.layout.is_transposed)
    }
}

/// Returns cuBLAS's flag for a transposed or untransposed matrix.
pub(super) fn operation(is_transposed: bool) -> cublasOperation_t {
    match is_transposed {
        true => cublasOperation_t::CUBLAS_OP_T,
        false => cublasOperation_t::CUBLAS_OP_N,
    }
}

/// A GEMM whose shapes match: an m x n output with inner dimension k.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Operand,
    pub b: Operand,
    /// The output, which is not transposed.
    pub c: Operand,
}

impl Problem {
    #[inline]
    #[track_caller]
    pub fn new<A: GemmType, B: GemmType, C: GemmType>(
        operation: &'static str,
        stream: &Stream,
        a: &Matrix<'_, A>,
        b: &Matrix<'_, B>,
        c: &MatrixMut<'_, C>,
    ) -> Result<Self> {
        let _site = site();
        let used = [(a.slice.device(), "a"), (b.slice.device(), "b"), (c.slice.device(), "c")];
        check_devices(stream, "multiplying matrices", used)?;
        let (m, n, k) = (c.layout.rows(), c.layout.columns(), a.layout.columns());
        let count = c.layout.count();
        let counts = [a.layout.count(), b.layout.count()];
        if (a.layout.rows(), b.layout.rows(), b.layout.columns()) != (m, k, n)
            || counts.iter().any(|inputs| *inputs != count && *inputs != 1)
        {
            return Err(misfit(operation, [&a.layout, &b.layout, &c.layout]));
        }
        let a = Operand { ptr: a.slice.as_device_ptr().0, data: A::TYPE, layout: a.layout.broadcast(count) };
        let b = Operand { ptr: b.slice.as_device_ptr().0, data: B::TYPE, layout: b.layout.broadcast(count) };
        let c = Operand { ptr: c.slice.as_device_ptr().0, data: C::TYPE, layout: c.layout };
        Ok(Self { m, n, k, a, b, c })
    }

    /// Returns true if the output is empty.
    pub fn is_nothing(&self) -> bool {
        self.c.layout.is_empty()
    }

    /// Returns true if the product is zero because the inner dimension or the factor is 0.
    pub fn is_zero<S: Sum>(&self, alpha: S) -> bool {
        self.k == 0 || alpha == S::from_f64(0.0)
    }

    /// Returns an equivalent problem whose output is not transposed. If the output is transposed, `a` and `b` are
    /// swapped and transposed.
    pub fn upright(self) -> Self {
        if !self.c.layout.is_transposed {
            return self;
        }
        let flip = |operand: Operand| Operand { layout: operand.layout.transposed(), ..operand };
        Self { m: self.n, n: self.m, k: self.k, a: flip(self.b), b: flip(self.a), c: flip(self.c) }
    }

    /// Checks whether GPUs support the operands. The check runs on every device, so that a call that succeeds on the
    /// emulated device is also valid on a GPU.
    pub fn check_support(&self) -> Result<()> {
        let of_four = |Operand { ptr, layout, .. }: &Operand| {
            let between = layout.count() == 1 || layout.batch_stride.is_multiple_of(4);
            ptr.is_multiple_of(4) && layout.leading() % 4 == 0 && between
        };
        if self.a.data != DataType::I8 || (of_four(&self.a) && of_four(&self.b)) {
            return Ok(());
        }
        let of = |Operand { ptr, layout, .. }: &Operand| {
            let (stride, batch) = (layout.leading(), layout.batch_stride);
            format!("stride {stride}, batch stride {batch}, address {ptr:#x}")
        };
        let what = format!("an i8 GEMM of a ({}) and b ({})", of(&self.a), of(&self.b));
        Err(LibraryError::unsupported("gemm", what, "strides and addresses that are multiples of 4 bytes"))
    }

    /// Calls cuBLAS. cuBLAS treats our rows as its columns, so it computes the transpose of the output.
    pub fn call<S>(
        &self,
        handle: &mut Handle,
        math: Math,
        device: &Device,
        alpha: &S,
        beta: &S,
    ) -> Result<()> {
        let problem = self.upright();
        let Problem { m, n, k, a, b, c } = &problem;
        let (m, n, k) = (*m as i64, *n as i64, *k as i64);
        let pointer = |operand: &Operand| operand.ptr as *const c_void;
        let (alpha, beta) = (std::ptr::from_ref(alpha).cast(), std::ptr::from_ref(beta).cast());
        let compute = compute_type(a.data, math, device);
        let algorithm = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        let (call, status) = if c.layout.count() == 1 {
            // SAFETY: the handle is alive and used only here; the layouts lie inside memory that is recorded as used,
            // with elements of these types. The scalars have the type that the compute type requires.
            let status = unsafe {
                sys::cublasGemmEx_64(
                    handle.raw(),
                    b.operation(),
                    a.operation(),
                    n,
                    m,
                    k,
                    alpha,
                    pointer(b),
                    code::cublas(b.data),
                    b.layout.leading(),
                    pointer(a),
                    code::cublas(a.data),
                    a.layout.leading(),
                    beta,
                    c.ptr as *mut c_void,
                    code::cublas(c.data),
                    c.layout.leading(),
                    compute,
                    algorithm,
                )
            };
            ("cublasGemmEx", status)
        } else {
            let step = |operand: &Operand| operand.layout.batch_stride as i64;
            // SAFETY: as above.
            let status = unsafe {
                sys::cublasGemmStridedBatchedEx_64(
                    handle.raw(),
                    b.operation(),
                    a.operation(),
                    n,
                    m,
                    k,
                    alpha,
                    pointer(b),
                    code::cublas(b.data),
                    b.layout.leading(),
                    step(b),
                    pointer(a),
                    code::cublas(a.data),
                    a.layout.leading(),
                    step(a),
                    beta,
                    c.ptr as *mut c_void,
                    code::cublas(c.data),
                    c.layout.leading(),
                    step(c),
                    c.layout.count() as i64,
                    compute,
                    algorithm,
                )
            };
            ("cublasGemmStridedBatchedEx", status)
        };
        check_with(call, status, || self.to_string())
    }

    /// Computes the GEMM on the emulated device. `finish` receives the column and the sum of each element.
    pub fn on_host<A, B, C>(
        self,
        alpha: A::Sum,
        beta: A::Sum,
        finish: impl Fn(usize, f64) -> f64 + Send + Sync + 'static,
    ) -> impl Fn() + Send + Sync + 'static
    where
        A: GemmType,
        B: GemmType<Sum = A::Sum>,
        C: GemmType<Sum = A::Sum>,
    {
        let matrices = [self.a, self.b, self.c].map(|Operand { ptr, layout, .. }| HostMatrix { ptr, layout });
        // SAFETY: the layouts lie inside memory that is recorded as used by this work (for `c`, as written); the types
        // are the problem's, and the shapes match.
        move || unsafe { host::gemm::<A, B, C>((alpha, beta), matrices, &finish) }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { m, n, k, a, b, c } = self;
        write!(
            f,
            "{m} x {n} x {k} of {:?}, {:?} and {:?} with strides of {}, {} and {}, {} of them",
            a.data,
            b.data,
            c.data,
            a.layout.stride,
            b.layout.stride,
            c.layout.stride,
            c.layout.count()
        )
    }
}

#[cold]
fn misfit(operation: &'static str, [a, b, c]: [&Layout; 3]) -> warpsmith_runtime::error::Error {
    let shape = |layout: &Layout| match layout.count() {
        1 => format!("{} x {}", layout.rows(), layout.columns()),
        count => format!("{count} of {} x {}", layout.rows(), layout.columns()),
    };
    let problem = format!(
        "a ({}) times b ({}) does not have the shape of c ({}): the shapes must be m x k, k x n and m x n, with \
         equal batch sizes or an unbatched input",
        shape(a),
        shape(b),
        shape(c)
    );
    LibraryError::shape(operation, problem)
}

pub(super) fn is_float8(data: DataType) -> bool {
    matches!(data, DataType::F8E4M3 | DataType::F8E5M2)
}

/// Returns the compute type for products of elements that have this data type.
pub(super) fn compute_type(data: DataType, math: Math, device: &Device) -> cublasComputeType_t {
    match data {
        DataType::F32 if uses_tf32(math, device) => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        DataType::F64 => cublasComputeType_t::CUBLAS_COMPUTE_64F,
        DataType::I8 | DataType::I32 => cublasComputeType_t::CUBLAS_COMPUTE_32I,
        _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
    }
}

pub(super) fn uses_tf32(math: Math, device: &Device) -> bool {
    math.allow_tf32 && device.capability() >= (8, 0)
}
