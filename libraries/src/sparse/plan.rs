//! [`Plans`]: cuSPARSE's descriptors and workspaces for products with a matrix. They are cached per stream and kind of
//! product.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cusparse::sys::{self, cudaDataType, cusparseOperation_t, cusparseSpMMAlg_t, cusparseSpMVAlg_t};

use super::vendor::{Handle, Matrix, Operand, check, pointer};
use super::{Csr, FloatType, Index, Product};
use crate::element::{DataType, Factor, code};
use crate::lru::Lru;
use crate::on_device::OnDevice;
use crate::{Vendor, VendorVersion};
use warpsmith_runtime::extension::{Access, BufferUse};
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Result, Stream};

/// The first cuSPARSE version with `cusparseSpMV_preprocess`.
const PREPROCESSES: VendorVersion = VendorVersion { major: 12, minor: 3, patch: 0 };

/// cuSPARSE operation code for dense matrices, which are never transposed.
const AS_IT_IS: cusparseOperation_t = cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// The dense operand of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dense {
    Vector,
    /// A row-major matrix, with strides in elements.
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

    /// Returns true if the rows of the output have gaps between them.
    pub fn output_has_gaps(self) -> bool {
        match self {
            Self::Vector => false,
            Self::Matrix { columns, output_stride, .. } => output_stride > columns,
        }
    }
}

/// The addresses and parameters of one product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub input: DevicePtr,
    pub output: DevicePtr,
    pub dense: Dense,
    pub product: Product,
}

/// The cache key of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    stream: u64,
    dense: Dense,
    transpose: bool,
    deterministic: bool,
}

/// The plans of a matrix (see the [module's documentation](self)).
#[derive(Debug)]
pub(super) struct Plans(Mutex<Lru<Key, Arc<Mutex<Plan>>>>);

impl Default for Plans {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(16)))
    }
}

impl Plans {
    fn lock(&self) -> MutexGuard<'_, Lru<Key, Arc<Mutex<Plan>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cached descriptors and workspace.
struct Plan {
    descriptors: OnDevice<Descriptors>,
    operation: cusparseOperation_t,
    /// Computation type.
    computed: cudaDataType,
    deterministic: bool,
    /// True if cuSPARSE has analyzed the matrix or need not analyze it.
    prepared: bool,
    workspace: DeviceBuffer<u8>,
    /// Description of the product for error messages.
    what: String,
}

struct Descriptors {
    matrix: Matrix,
    input: Operand,
    output: Operand,
}

// SAFETY: descriptors are host memory without thread affinity, and are used by one thread at a time.
unsafe impl Send for Descriptors {}

/// Enqueues a product on a GPU. The matrix must not be empty, and the lengths must match.
#[track_caller]
pub(super) fn run<'a, T: FloatType, I: Index>(
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
    stream.with_stable_capture_state(|| {
        let capturing = stream.is_capturing();
        // A captured product uses memory that the graph owns.
        let found = if capturing { None } else { matrix.plans().lock().get(&key).cloned() };
        let plan = match found {
            Some(plan) => plan,
            None => {
                let plan = Arc::new(Mutex::new(Plan::new::<T, I>(stream, matrix, operands)?));
                if !capturing {
                    let evicted = matrix.plans().lock().insert(key, Arc::clone(&plan));
                    drop(evicted);
                }
                plan
            }
        };
        let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
        let prepare = !capturing && !plan.prepared;
        // No other code holds the plan at this time, so this is the only use of the workspace.
        let locked = &*plan;
        let workspace = locked.workspace.as_slice();
        let [offsets, indices, values, input, output] = matrix.parts(input, output);
        let parts = [offsets, indices, values, input, output, workspace.used(Access::Write)];
        let workspace = workspace.as_device_ptr();
        // SAFETY: `parts` are the operands and cover everything that the descriptors describe. No written operand
        // overlaps another one. The workspace has the requested size.
        let done = unsafe {
            stream.enqueue_named(operation, &parts, |_| {
                let handle = crate::sparse::State::of(stream.device()).handles.acquire(stream)?;
                locked.execute::<T>(&handle, operands, workspace, prepare)
            })
        };
        plan.prepared |= prepare && done.is_ok();
        done
    })
}

impl Plan {
    #[track_caller]
    fn new<T: FloatType, I: Index>(stream: &Stream, matrix: &Csr<T, I>, operands: Operands) -> Result<Self> {
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
        let preprocesses = Vendor::Cusparse.version()? >= PREPROCESSES;
        let (mut plan, bytes) = stream.device().with_context(|| {
            let (input, output) = match dense {
                Dense::Vector => (Operand::vector::<T>(columns, input)?, Operand::vector::<T>(rows, output)?),
                Dense::Matrix { columns: width, input_stride, output_stride } => (
                    Operand::matrix::<T>(columns, width, input_stride, input)?,
                    Operand::matrix::<T>(rows, width, output_stride, output)?,
                ),
            };
            let descriptors = Descriptors { matrix: Matrix::new(matrix)?, input, output };
            let plan = Self {
                descriptors: OnDevice::new(stream.device(), descriptors),
                operation: match product.transpose {
                    true => cusparseOperation_t::CUSPARSE_OPERATION_TRANSPOSE,
                    false => cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE,
                },
                computed: code::cusparse(match T::TYPE {
                    DataType::F64 => DataType::F64,
                    _ => DataType::F32,
                }),
                deterministic: product.deterministic,
                prepared: dense != Dense::Vector || !preprocesses,
                workspace: DeviceBuffer::uninit(stream, 0)?,
                what,
            };
            let handle = crate::sparse::State::of(stream.device()).handles.acquire(stream)?;
            let bytes = plan.workspace_bytes::<T>(&handle, product)?;
            Ok((plan, bytes))
        })?;
        plan.workspace = DeviceBuffer::uninit(stream, bytes)?;
        Ok(plan)
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
            // This algorithm is intended for row-major matrices.
            (false, cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE) => {
                cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2
            }
            (false, _) => cusparseSpMMAlg_t::CUSPARSE_SPMM_ALG_DEFAULT,
        }
    }

    fn workspace_bytes<T: FloatType>(&self, handle: &Handle, product: Product) -> Result<usize> {
        let factors = [product.alpha, product.beta].map(Factor::of::<T>);
        let [alpha, beta] = factors.each_ref().map(Factor::as_ptr);
        let Descriptors { matrix, input, output } = &*self.descriptors;
        let (handle, matrix, operation) = (handle.0, matrix.0.cast_const(), self.operation);
        let (computed, mut bytes) = (self.computed, 0);
        let (call, status) = match (input, output) {
            (Operand::Vector(x), Operand::Vector(y)) => {
                let (x, y, algorithm) = (x.cast_const(), *y, self.vector_algorithm());
                // SAFETY: the handle and the descriptors are alive, the factors have the computation type, and the last
                // pointer refers to a local variable.
                let status = unsafe {
                    sys::cusparseSpMV_bufferSize(
                        handle, operation, alpha, matrix, x, beta, y, computed, algorithm, &mut bytes,
                    )
                };
                ("cusparseSpMV_bufferSize", status)
            }
            (Operand::Matrix(b), Operand::Matrix(c)) => {
                let (b, c, algorithm) = (b.cast_const(), *c, self.matrix_algorithm());
                // SAFETY: as above.
                let status = unsafe {
                    sys::cusparseSpMM_bufferSize(
                        handle, operation, AS_IT_IS, alpha, matrix, b, beta, c, computed, algorithm,
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

    /// Enqueues the product on the handle's stream. The device's context must be current.
    ///
    /// # Safety
    /// The memory that descriptors and operands refer to must be alive, its use must be ordered, and `workspace` must
    /// have the requested size.
    unsafe fn execute<T: FloatType>(
        &self,
        handle: &Handle,
        operands: Operands,
        workspace: DevicePtr,
        prepare: bool,
    ) -> Result<()> {
        let Descriptors { matrix, input, output } = &*self.descriptors;
        input.set(operands.input)?;
        output.set(operands.output)?;
        let factors = [operands.product.alpha, operands.product.beta].map(Factor::of::<T>);
        let [alpha, beta] = factors.each_ref().map(Factor::as_ptr);
        let (handle, matrix, operation) = (handle.0, matrix.0.cast_const(), self.operation);
        let (computed, workspace) = (self.computed, pointer(workspace));
        let (call, status) = match (input, output) {
            (Operand::Vector(x), Operand::Vector(y)) => {
                let (x, y, algorithm) = (x.cast_const(), *y, self.vector_algorithm());
                if prepare {
                    // SAFETY: guaranteed by the caller; this version of the library has the function.
                    let status = unsafe {
                        sys::cusparseSpMV_preprocess(
                            handle, operation, alpha, matrix, x, beta, y, computed, algorithm, workspace,
                        )
                    };
                    check("cusparseSpMV_preprocess", status, || self.what.clone())?;
                }
                // SAFETY: guaranteed by the caller.
                let status = unsafe {
                    sys::cusparseSpMV(
                        handle, operation, alpha, matrix, x, beta, y, computed, algorithm, workspace,
                    )
                };
                ("cusparseSpMV", status)
            }
            (Operand::Matrix(b), Operand::Matrix(c)) => {
                let (b, c, algorithm) = (b.cast_const(), *c, self.matrix_algorithm());
                // SAFETY: guaranteed by the caller.
                let status = unsafe {
                    sys::cusparseSpMM(
                        handle, operation, AS_IT_IS, alpha, matrix, b, beta, c, computed, algorithm,
                        workspace,
                    )
                };
                ("cusparseSpMM", status)
            }
            _ => unreachable!("both are made together"),
        };
        check(call, status, || self.what.clone())
    }
}
