//! [`Plans`]: what cuSPARSE needs for the products of a matrix, kept for each stream and kind of product.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cusparse::sys::{self, cudaDataType, cusparseOperation_t, cusparseSpMMAlg_t, cusparseSpMVAlg_t};

use super::vendor::{Handle, Matrix, Operand, check, pointer};
use super::{Csr, Index, Product, Value};
use crate::error::LibraryError;
use crate::work::Work;
use crate::{Vendor, VendorVersion};
use warpsmith_core::device::Device;
use warpsmith_core::driver::DevicePtr;
use warpsmith_core::error::Result;
use warpsmith_core::memory::DeviceBuffer;
use warpsmith_core::seam::Access;
use warpsmith_core::seam::BufferUse;
use warpsmith_core::seam::{drop_elsewhere, in_host_function};
use warpsmith_core::stream::Stream;

/// How many a matrix keeps; the least recently used go.
const MOST: usize = 16;

/// The first version with `cusparseSpMV_preprocess`.
const PREPROCESSES: VendorVersion = VendorVersion { major: 12, minor: 3, patch: 0 };

/// What a sparse matrix is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dense {
    Vector,
    /// By rows; the strides are in elements.
    Matrix {
        columns: usize,
        input_stride: usize,
        output_stride: usize,
    },
}

impl Dense {
    pub fn columns(self) -> usize {
        match self {
            Self::Vector => 1,
            Self::Matrix { columns, .. } => columns,
        }
    }

    /// Whether something lies between the rows of the output.
    pub fn output_has_gaps(self) -> bool {
        match self {
            Self::Vector => false,
            Self::Matrix { columns, output_stride, .. } => output_stride > columns,
        }
    }
}

/// One product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub input: DevicePtr,
    pub output: DevicePtr,
    pub dense: Dense,
    pub product: Product,
}

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    stream: u64,
    dense: Dense,
    transpose: bool,
    deterministic: bool,
}

/// See the [module's documentation](self).
#[derive(Default)]
pub(super) struct Plans {
    /// The most recently used last.
    kept: Mutex<Vec<(Key, Arc<Mutex<Plan>>)>>,
}

impl Plans {
    pub fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Key, Arc<Mutex<Plan>>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: Key) -> Option<Arc<Mutex<Plan>>> {
        let mut kept = self.lock();
        let at = kept.iter().rposition(|(known, _)| *known == key)?;
        kept[at..].rotate_left(1);
        kept.last().map(|(_, plan)| Arc::clone(plan))
    }

    fn keep(&self, key: Key, plan: &Arc<Mutex<Plan>>) {
        let mut kept = self.lock();
        kept.push((key, Arc::clone(plan)));
        let gone = (kept.len() > MOST).then(|| kept.remove(0));
        drop(kept);
        drop(gone);
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} plans", self.lock().len())
    }
}

/// Descriptors and a workspace.
struct Plan {
    /// There until it is dropped.
    descriptors: Option<Descriptors>,
    operation: cusparseOperation_t,
    /// What it is computed in.
    computed: cudaDataType,
    deterministic: bool,
    /// Whether cuSPARSE has looked at the matrix, or does not do so.
    prepared: bool,
    workspace: DeviceBuffer<u8>,
    /// For errors.
    what: String,
}

struct Descriptors {
    matrix: Matrix,
    input: Operand,
    output: Operand,
}

// SAFETY: descriptors are memory of the host without ties to a thread, used by one at a time.
unsafe impl Send for Descriptors {}

/// The two factors as cuSPARSE reads them.
struct Factors {
    double: [f64; 2],
    single: [f32; 2],
}

impl Factors {
    fn new(product: Product) -> Self {
        let double = [product.alpha, product.beta];
        Self { double, single: double.map(|factor| factor as f32) }
    }

    fn pointers(&self, computed: cudaDataType) -> [*const c_void; 2] {
        match computed {
            cudaDataType::CUDA_R_64F => {
                self.double.each_ref().map(|factor| std::ptr::from_ref(factor).cast())
            }
            _ => self.single.each_ref().map(|factor| std::ptr::from_ref(factor).cast()),
        }
    }
}

/// Enqueues a product on a GPU. The matrix has elements, and lengths fit each other.
#[track_caller]
pub(super) fn run<'a, T: Value, I: Index>(
    stream: &Stream,
    operation: &'static str,
    matrix: &'a Csr<T, I>,
    input: BufferUse<'a>,
    output: BufferUse<'a>,
    operands: Operands,
) -> Result<()> {
    let Operands { dense, product, .. } = operands;
    let Product { transpose, deterministic, .. } = product;
    let key = Key { stream: stream.id(), dense, transpose, deterministic };
    stream.with_steady_capture(|| {
        let capturing = stream.is_capturing();
        // What is captured has memory of the graph's.
        let found = if capturing { None } else { matrix.plans().find(key) };
        let plan = match found {
            Some(plan) => plan,
            None => {
                let plan = Arc::new(Mutex::new(Plan::new(stream, matrix, operands)?));
                if !capturing {
                    matrix.plans().keep(key, &plan);
                }
                plan
            }
        };
        let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
        let prepare = !capturing && !plan.prepared;
        // Nobody else has the plan meanwhile, so this is the workspace's only use.
        let locked = &*plan;
        let workspace = locked.workspace.as_slice();
        let [offsets, indices, values, input, output] = matrix.parts(input, output);
        let parts = [offsets, indices, values, input, output, workspace.used(Access::Write)];
        let workspace = workspace.as_device_ptr();
        // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work stays
        // inside them, by their shapes.
        let done = unsafe { Work::new(stream, &parts) }.enqueue(
            |_| {
                let handle = crate::sparse::State::of(stream.device()).handles.acquire(stream)?;
                // SAFETY: the parts are what the descriptors say, and are ordered; the workspace is as large as it was asked for.
                unsafe { locked.execute(&handle, operands, workspace, prepare) }
            },
            || Err(LibraryError::NeedsGpu { operation }.into()),
        );
        plan.prepared |= prepare && done.is_ok();
        done
    })
}

impl Plan {
    #[track_caller]
    fn new<T: Value, I: Index>(stream: &Stream, matrix: &Csr<T, I>, operands: Operands) -> Result<Self> {
        let Operands { input, output, dense, product } = operands;
        let [rows, columns] = matrix.shape_of(product);
        let what = format!(
            "{} x {} with {} elements of {}, {}",
            matrix.rows(),
            matrix.columns(),
            matrix.nonzeros(),
            std::any::type_name::<T>(),
            match dense {
                Dense::Vector => "with a vector".to_owned(),
                Dense::Matrix { columns, .. } => format!("with a matrix of {columns} columns"),
            },
        );
        let mut plan = stream.device().with_context(|| {
            let (input, output) = match dense {
                Dense::Vector => (Operand::vector::<T>(columns, input)?, Operand::vector::<T>(rows, output)?),
                Dense::Matrix { columns: width, input_stride, output_stride } => (
                    Operand::matrix::<T>(columns, width, input_stride, input)?,
                    Operand::matrix::<T>(rows, width, output_stride, output)?,
                ),
            };
            Ok(Self {
                descriptors: Some(Descriptors { matrix: Matrix::new(matrix)?, input, output }),
                operation: match product.transpose {
                    true => cusparseOperation_t::CUSPARSE_OPERATION_TRANSPOSE,
                    false => cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE,
                },
                computed: if T::DOUBLE { cudaDataType::CUDA_R_64F } else { cudaDataType::CUDA_R_32F },
                deterministic: product.deterministic,
                prepared: dense != Dense::Vector,
                workspace: DeviceBuffer::uninit(stream, 0)?,
                what,
            })
        })?;
        plan.prepared |= Vendor::Cusparse.version()? < PREPROCESSES;
        let bytes = stream.device().with_context(|| {
            let handle = crate::sparse::State::of(stream.device()).handles.acquire(stream)?;
            plan.workspace_bytes(&handle, product)
        })?;
        plan.workspace = DeviceBuffer::uninit(stream, bytes)?;
        Ok(plan)
    }

    fn descriptors(&self) -> &Descriptors {
        let Some(descriptors) = &self.descriptors else { unreachable!("they are there until it is dropped") };
        descriptors
    }

    fn vector_algorithm(&self) -> cusparseSpMVAlg_t {
        match self.deterministic {
            true => cusparseSpMVAlg_t::CUSPARSE_SPMV_CSR_ALG2,
            false => cusparseSpMVAlg_t::CUSPARSE_SPMV_ALG_DEFAULT,
        }
    }

    fn matrix_algorithm(&self) -> cusparseSpMMAlg_t {
        match (self.deterministic, self.operation) {
            (true, _) => cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG3,
            // The one for matrices by rows.
            (false, cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE) => {
                cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2
            }
            (false, _) => cusparseSpMMAlg_t::CUSPARSE_SPMM_ALG_DEFAULT,
        }
    }

    fn workspace_bytes(&self, handle: &Handle, product: Product) -> Result<usize> {
        let factors = Factors::new(product);
        let [alpha, beta] = factors.pointers(self.computed);
        let Descriptors { matrix, input, output } = self.descriptors();
        let (matrix, computed, mut bytes) = (matrix.0.cast_const(), self.computed, 0);
        let (call, status) = match (input, output) {
            (Operand::Vector(x), Operand::Vector(y)) => {
                let (x, algorithm) = (x.cast_const(), self.vector_algorithm());
                // SAFETY: the handle and the descriptors are alive, the factors of the type that is computed in; the last
                // pointer is to a local variable.
                let status = unsafe {
                    sys::cusparseSpMV_bufferSize(
                        handle.0,
                        self.operation,
                        alpha,
                        matrix,
                        x,
                        beta,
                        *y,
                        computed,
                        algorithm,
                        &mut bytes,
                    )
                };
                ("cusparseSpMV_bufferSize", status)
            }
            (Operand::Matrix(b), Operand::Matrix(c)) => {
                let (b, algorithm) = (b.cast_const(), self.matrix_algorithm());
                let as_it_is = cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
                // SAFETY: as above.
                let status = unsafe {
                    sys::cusparseSpMM_bufferSize(
                        handle.0,
                        self.operation,
                        as_it_is,
                        alpha,
                        matrix,
                        b,
                        beta,
                        *c,
                        computed,
                        algorithm,
                        &mut bytes,
                    )
                };
                ("cusparseSpMM_bufferSize", status)
            }
            _ => unreachable!("both are made together"),
        };
        check(call, status, || self.what.clone())?;
        Ok(bytes)
    }

    /// Enqueues the product on the handle's stream. The device's context is current.
    ///
    /// # Safety
    /// What the descriptors and the operands name is there and ordered; `workspace` has the bytes that were asked for.
    unsafe fn execute(
        &self,
        handle: &Handle,
        operands: Operands,
        workspace: DevicePtr,
        prepare: bool,
    ) -> Result<()> {
        let Descriptors { matrix, input, output } = self.descriptors();
        input.set(operands.input)?;
        output.set(operands.output)?;
        let factors = Factors::new(operands.product);
        let [alpha, beta] = factors.pointers(self.computed);
        let (matrix, computed, workspace) = (matrix.0.cast_const(), self.computed, pointer(workspace));
        let operation = self.operation;
        match (input, output) {
            (Operand::Vector(x), Operand::Vector(y)) => {
                let (x, y, algorithm) = (x.cast_const(), *y, self.vector_algorithm());
                if prepare {
                    // SAFETY: passed on from the caller; the library has the function, as its version says.
                    let status = unsafe {
                        sys::cusparseSpMV_preprocess(
                            handle.0, operation, alpha, matrix, x, beta, y, computed, algorithm, workspace,
                        )
                    };
                    check("cusparseSpMV_preprocess", status, || self.what.clone())?;
                }
                // SAFETY: passed on from the caller.
                let status = unsafe {
                    sys::cusparseSpMV(
                        handle.0, operation, alpha, matrix, x, beta, y, computed, algorithm, workspace,
                    )
                };
                check("cusparseSpMV", status, || self.what.clone())
            }
            (Operand::Matrix(b), Operand::Matrix(c)) => {
                let (b, c, algorithm) = (b.cast_const(), *c, self.matrix_algorithm());
                let as_it_is = cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
                // SAFETY: passed on from the caller.
                let status = unsafe {
                    sys::cusparseSpMM(
                        handle.0, operation, as_it_is, alpha, matrix, b, beta, c, computed, algorithm,
                        workspace,
                    )
                };
                check("cusparseSpMM", status, || self.what.clone())
            }
            _ => unreachable!("both are made together"),
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        drop(Gone { descriptors: self.descriptors.take(), device: self.workspace.device().clone() });
    }
}

/// What a plan leaves when it is dropped.
struct Gone {
    descriptors: Option<Descriptors>,
    device: Device,
}

impl Drop for Gone {
    fn drop(&mut self) {
        let descriptors = self.descriptors.take();
        if self.device.is_forked() {
            return std::mem::forget(descriptors);
        }
        if in_host_function() {
            return drop_elsewhere(Box::new(Self { descriptors, device: self.device.clone() }));
        }
        // If that fails, the device is lost, and there is nothing that descriptors free on it.
        let calls = self.device.bind();
        drop(descriptors);
        drop(calls);
    }
}
