//! [`Plan`]: the descriptors of a product and its selected algorithm.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtReductionScheme_t, cublasStatus_t,
};

use super::super::State;
use super::super::gemm::{Operand, Problem, operation};
use super::super::handle::{LtHandle, check_lt};
use super::super::matrix::Layout;
use super::super::settings::Math;
use super::{OPERATION, Search};
use crate::element::{DataType, code};
use crate::error::LibraryError;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Result, Stream};

/// Cache key, which contains everything that determines the choice of an algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    operands: [(DataType, Layout); 3],
    epilogue: cublasLtEpilogue_t,
    has_scales: [bool; 2],
    /// Alignments of the addresses of a, b, c and the bias. Each is the largest power of two, up to 256, that divides
    /// the address.
    alignments: [u32; 4],
    uses_tf32: bool,
    reductions: u32,
    /// Workspace limit in bytes.
    pub limit: usize,
    search: Search,
}

/// The operand addresses of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pointers {
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub d: u64,
    /// Address of the bias, or 0 if the call has no bias. The same applies to the scales.
    pub bias: u64,
    pub scale_a: u64,
    pub scale_b: u64,
}

fn alignment(ptr: u64) -> u32 {
    1 << ptr.trailing_zeros().min(8)
}

impl Key {
    /// Creates the key for a problem whose output is not transposed.
    pub fn new(
        problem: &Problem,
        pointers: &Pointers,
        epilogue: cublasLtEpilogue_t,
        math: Math,
        uses_tf32: bool,
        limit: usize,
        search: Search,
    ) -> Self {
        let operand = |operand: &Operand| (operand.data, operand.layout);
        let may_reduce = match problem.a.data {
            DataType::F16 => math.allow_fp16_reduced_precision_reduction,
            DataType::Bf16 => math.allow_bf16_reduced_precision_reduction,
            _ => true,
        };
        let mut reductions = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_MASK as u32;
        if !may_reduce {
            reductions &= cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        }
        if math.deterministic {
            reductions &= !(cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_INPLACE as u32);
        }
        Self {
            operands: [operand(&problem.a), operand(&problem.b), operand(&problem.c)],
            epilogue,
            has_scales: [pointers.scale_a != 0, pointers.scale_b != 0],
            alignments: [pointers.a, pointers.b, pointers.c, pointers.bias].map(alignment),
            uses_tf32: uses_tf32 && problem.a.data == DataType::F32,
            reductions,
            limit,
            search,
        }
    }

    fn compute_type(&self) -> (cublasComputeType_t, DataType) {
        match self.operands[0].0 {
            DataType::F32 if self.uses_tf32 => {
                (cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, DataType::F32)
            }
            DataType::F64 => (cublasComputeType_t::CUBLAS_COMPUTE_64F, DataType::F64),
            DataType::I8 | DataType::I32 => (cublasComputeType_t::CUBLAS_COMPUTE_32I, DataType::I32),
            _ => (cublasComputeType_t::CUBLAS_COMPUTE_32F, DataType::F32),
        }
    }
}

/// cuBLASLt's descriptors of a product. cuBLASLt treats row-major matrices as their transposes, so `a` and `b` are
/// swapped.
#[derive(Debug)]
struct Descriptors {
    product: sys::cublasLtMatmulDesc_t,
    /// Layouts of `a`, `b` and `c`.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

// SAFETY: descriptors are host memory that any thread may use, by one thread at a time.
unsafe impl Send for Descriptors {}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: nothing else owns the descriptors. Descriptors that were not created are null.
        unsafe {
            self.layouts.into_iter().filter(|layout| !layout.is_null()).for_each(|layout| {
                sys::cublasLtMatrixLayoutDestroy(layout);
            });
            if !self.product.is_null() {
                sys::cublasLtMatmulDescDestroy(self.product);
            }
        }
    }
}

impl Descriptors {
    fn new(key: &Key, pointers: &Pointers) -> Result<Self> {
        let mut this = Self { product: ptr::null_mut(), layouts: [ptr::null_mut(); 3] };
        let (compute, scalars) = key.compute_type();
        // SAFETY: the library is loaded, and the pointer refers to a variable for the result.
        let status =
            unsafe { sys::cublasLtMatmulDescCreate(&mut this.product, compute, code::cublaslt(scalars)) };
        check_lt("cublasLtMatmulDescCreate", status)?;
        let operation = |layout: &Layout| operation(layout.is_transposed) as i32;
        use cublasLtMatmulDescAttributes_t as Attribute;
        let [a, b, _] = &key.operands;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(&b.1))?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(&a.1))?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &(key.epilogue as u32))?;
        this.set_pointers(pointers)?;
        for (place, (data, layout)) in this.layouts.iter_mut().zip(&key.operands) {
            let (rows, cols) = (layout.stored_cols as u64, layout.stored_rows as u64);
            // SAFETY: as above.
            let status = unsafe {
                sys::cublasLtMatrixLayoutCreate(place, code::cublaslt(*data), rows, cols, layout.leading())
            };
            check_lt("cublasLtMatrixLayoutCreate", status)?;
            if layout.count() == 1 {
                continue;
            }
            let count = i32::try_from(layout.count()).map_err(|_| {
                let what = format!("a batch of {}", layout.count());
                LibraryError::unsupported(OPERATION, what, "at most 2^31 - 1 matrices")
            })?;
            let offset = layout.batch_stride as i64;
            use cublasLtMatrixLayoutAttribute_t as Attribute;
            let attributes = [
                (Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4),
                (Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const offset).cast(), 8),
            ];
            for (attribute, value, bytes) in attributes {
                // SAFETY: the layout was just created, and the values have the types of the attributes.
                let status =
                    unsafe { sys::cublasLtMatrixLayoutSetAttribute(*place, attribute, value, bytes) };
                check_lt("cublasLtMatrixLayoutSetAttribute", status)?;
            }
        }
        Ok(this)
    }

    fn set<V>(&mut self, attribute: cublasLtMatmulDescAttributes_t, value: &V) -> Result<()> {
        // SAFETY: the descriptor is alive and used only here; the size of the value is passed.
        let status = unsafe {
            sys::cublasLtMatmulDescSetAttribute(
                self.product,
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<V>(),
            )
        };
        check_lt("cublasLtMatmulDescSetAttribute", status)
    }

    /// Stores the addresses that are part of the descriptor.
    fn set_pointers(&mut self, pointers: &Pointers) -> Result<()> {
        use cublasLtMatmulDescAttributes_t as Attribute;
        if pointers.bias != 0 {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointers.bias)?;
        }
        if pointers.scale_a != 0 {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &pointers.scale_a)?;
        }
        if pointers.scale_b != 0 {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &pointers.scale_b)?;
        }
        Ok(())
    }

    /// Returns the algorithms that the heuristics recommend with at most this workspace, best first.
    fn heuristics(
        &self,
        handle: &LtHandle,
        key: &Key,
        limit: usize,
        count: usize,
    ) -> Result<Vec<cublasLtMatmulHeuristicResult_t>> {
        let preference = Preference::new(key, limit)?;
        let count = count.clamp(1, 256);
        let mut results = vec![MaybeUninit::<cublasLtMatmulHeuristicResult_t>::zeroed(); count];
        let mut found = 0;
        let [a, b, c] = self.layouts;
        // SAFETY: handle, descriptors and preference are alive, and there is space for the requested number of results.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.raw(),
                self.product,
                b,
                a,
                c,
                c,
                preference.0,
                count as i32,
                results.as_mut_ptr().cast(),
                &mut found,
            )
        };
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(Vec::new());
        }
        check_lt("cublasLtMatmulAlgoGetHeuristic", status)?;
        // SAFETY: all zeros is a valid result whose status means success, and the library overwrote some of the
        // results.
        let results = results.into_iter().map(|result| unsafe { result.assume_init() });
        let found = usize::try_from(found).unwrap_or(0);
        Ok(results
            .take(found)
            .filter(|result| result.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS)
            .collect())
    }
}

/// Limits on the requirements of an algorithm, such as its workspace.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: nothing else owns the handle.
        unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

impl Preference {
    fn new(key: &Key, limit: usize) -> Result<Self> {
        use cublasLtMatmulPreferenceAttributes_t as Attribute;
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded, and the pointer refers to a local variable.
        check_lt("cublasLtMatmulPreferenceCreate", unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) })?;
        let this = Self(raw);
        let [a, b, c, _] = key.alignments;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &(limit as u64))?;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &key.reductions)?;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b)?;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a)?;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c)?;
        this.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c)?;
        Ok(this)
    }

    fn set<V>(&self, attribute: cublasLtMatmulPreferenceAttributes_t, value: &V) -> Result<()> {
        // SAFETY: the preference is alive and used only here; the size of the value is passed.
        let status = unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                self.0,
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<V>(),
            )
        };
        check_lt("cublasLtMatmulPreferenceSetAttribute", status)
    }
}

/// A product with its candidate algorithms.
#[derive(Debug)]
pub(crate) struct Plan {
    descriptors: Mutex<Descriptors>,
    /// Algorithms and their workspace sizes in bytes, in order of preference.
    candidates: Vec<(cublasLtMatmulAlgo_t, usize)>,
}

/// Requests up to `count` algorithms from the heuristics.
pub(super) fn make(stream: &Stream, key: &Key, pointers: &Pointers, count: usize) -> Result<Plan> {
    let device = stream.device();
    device.with_context(|| {
        let handle = State::of(device).lt_handles.acquire(stream)?;
        let descriptors = Descriptors::new(key, pointers)?;
        let found = descriptors.heuristics(&handle, key, key.limit, count)?;
        if found.is_empty() {
            return Err(none_found(&descriptors, &handle, key));
        }
        let candidates = found.into_iter().map(|result| (result.algo, result.workspaceSize)).collect();
        Ok(Plan { descriptors: Mutex::new(descriptors), candidates })
    })
}

/// Returns the error for a product without an algorithm. The error states whether a larger workspace would help.
#[cold]
fn none_found(descriptors: &Descriptors, handle: &LtHandle, key: &Key) -> warpsmith_runtime::error::Error {
    const PLENTY: usize = 8 << 30;
    let with_more = descriptors.heuristics(handle, key, PLENTY, 256).unwrap_or_default();
    match with_more.iter().map(|result| result.workspaceSize).min() {
        Some(minimum) if minimum > key.limit => LibraryError::WorkspaceTooSmall {
            operation: OPERATION,
            limit: key.limit as u64,
            minimum: minimum as u64,
        }
        .into(),
        _ => {
            let [(a, a_layout), (b, b_layout), (c, c_layout)] = &key.operands;
            let what = format!(
                "{} x {} x {} of {a:?}, {b:?} and {c:?} with {:?}{}",
                c_layout.rows(),
                c_layout.columns(),
                a_layout.columns(),
                key.epilogue,
                if b_layout.is_transposed { ", b transposed" } else { "" }
            );
            let needs = "another type, layout or epilogue, because cuBLASLt has no algorithm for this one";
            LibraryError::unsupported(OPERATION, what, needs)
        }
    }
}

impl Plan {
    /// Returns the workspace size of the selected algorithm, in bytes.
    pub fn workspace(&self) -> usize {
        self.candidates.first().map_or(0, |(_, bytes)| *bytes)
    }

    /// Returns the number of algorithms and the largest workspace size among them.
    pub fn choices(&self) -> (usize, usize) {
        let bytes = self.candidates.iter().map(|(_, bytes)| *bytes).max();
        (self.candidates.len(), bytes.unwrap_or(0))
    }

    /// Selects one of the algorithms for later runs.
    pub fn choose(&mut self, index: usize) {
        if index < self.candidates.len() {
            self.candidates.swap(0, index);
            self.candidates.truncate(1);
        }
    }

    /// Enqueues the product with one of the algorithms. Index 0 is the best one.
    ///
    /// # Safety
    /// The pointers must refer to memory that is recorded as used by this work, with the layouts of the plan's key. The
    /// scalars must have the accumulation type. The workspace must have the size that the algorithm requires, and may
    /// be used only on this stream.
    pub unsafe fn run<S>(
        &self,
        index: usize,
        handle: &LtHandle,
        pointers: &Pointers,
        (alpha, beta): &(S, S),
        workspace: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let Some((algorithm, bytes)) = self.candidates.get(index) else { return Ok(()) };
        let mut descriptors = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.set_pointers(pointers)?;
        let [a, b, c] = descriptors.layouts;
        // SAFETY: handle and descriptors are alive, and the descriptors are used only here; the caller guarantees the
        // rest.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle.raw(),
                descriptors.product,
                ptr::from_ref(alpha).cast(),
                pointers.b as *const c_void,
                b,
                pointers.a as *const c_void,
                a,
                ptr::from_ref(beta).cast(),
                pointers.c as *const c_void,
                c,
                pointers.d as *mut c_void,
                c,
                algorithm,
                workspace as *mut c_void,
                *bytes,
                stream.0 as *mut _,
            )
        };
        check_lt("cublasLtMatmul", status)
    }
}
