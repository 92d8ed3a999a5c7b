//! [`gemm_grouped`]: grouped GEMM, which computes products of different shapes in one call.

use cudarc::cublas::sys::{self, cublasOperation_t};

use super::gemm::{Gemm, Operand, Problem, compute_type, gemm, is_float8};
use super::handle::{self, Handle, check_with};
use super::matrix::{Matrix, MatrixMut};
use super::settings::Math;
use super::types::{GemmType, Multiply, Scale};
use crate::element::{DataType, code};
use crate::error::{LibraryError, VendorVersion};
use crate::vendor::Vendor;
use warpsmith_runtime::device::Device;
use warpsmith_runtime::error::{Error, Result};
use warpsmith_runtime::extension::Access;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::memory::DeviceBuffer;
use warpsmith_runtime::stream::Stream;

/// The first cuBLAS version that supports grouped GEMM.
const WITH_GROUPS: VendorVersion = VendorVersion { major: 12, minor: 5, patch: 0 };

/// Enqueues one product `c = alpha * a * b + beta * c` per tuple `(a, b, c)`. Each of these products has its own shape.
///
/// If the shapes of any product do not match, nothing is enqueued. After any other error, some products may already be
/// enqueued. 8-bit floating point is not supported.
///
/// On a GPU with cuBLAS 12.5 or later, the function makes a single call to `cublasGemmGroupedBatchedEx` for `f32` and
/// `f64`, and for `f16` and `bf16` if all addresses are multiples of 16. In all other cases, and during stream capture,
/// it makes one call per product. Otherwise like [`gemm`].
///
/// # Errors
/// Returns the same errors as [`gemm`].
#[track_caller]
pub fn gemm_grouped<A, B, C>(
    stream: &Stream,
    options: Gemm<Scale<A>>,
    products: Vec<(Matrix<'_, A>, Matrix<'_, B>, MatrixMut<'_, C>)>,
) -> Result<()>
where
    A: Multiply<B, C>,
    B: GemmType<Sum = A::Sum>,
    C: GemmType<Sum = A::Sum>,
{
    let _site = site();
    let device = stream.device();
    let math = options.math.unwrap_or_else(|| super::math(device));
    if is_float8(A::TYPE) {
        let needs = "one call of `matmul` per product";
        return Err(LibraryError::unsupported(
            "gemm_grouped",
            "a grouped product of 8-bit floating point",
            needs,
        ));
    }
    let (mut problems, mut parts, mut zero) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (a, b, c)) in products.iter().enumerate() {
        let problem =
            Problem::new("gemm_grouped", stream, a, b, c).map_err(|error| of_product(index, error))?;
        if problem.is_nothing() {
            continue;
        }
        if problem.is_zero(options.alpha) {
            zero.push(index);
            continue;
        }
        problem.check_support()?;
        problems.push(problem);
        parts.extend([a.slice.used(Access::Read), b.slice.used(Access::Read), c.slice.used()]);
    }
    let Gemm { alpha, beta, .. } = options;
    let table = match is_one_call(stream, math, &problems)? {
        true => Some(Table::new(stream, &problems)?),
        false => None,
    };
    parts.extend(table.iter().map(|table| table.pointers.as_slice().used(Access::Read)));
    let call = |handle: &mut Handle| {
        handle.set_math(math, A::TYPE)?;
        match &table {
            Some(table) => table.call(handle, math, device, &alpha, &beta),
            None => problems.iter().try_for_each(|problem| problem.call(handle, math, device, &alpha, &beta)),
        }
    };
    let of_problem = |problem: &Problem| problem.on_host::<A, B, C>(alpha, beta, |_, value| value);
    let all: Vec<_> = problems.iter().map(of_problem).collect();
    let host = move || all.iter().for_each(|product| product());
    if !problems.is_empty() {
        handle::enqueue(stream, "blas::gemm_grouped", &parts, call, host)?;
    }
    drop(parts);
    for (index, (a, b, c)) in products.into_iter().enumerate() {
        if zero.contains(&index) {
            gemm(stream, options, a, b, c)?;
        }
    }
    Ok(())
}

/// Returns true if cuBLAS computes all products in one call.
fn is_one_call(stream: &Stream, math: Math, problems: &[Problem]) -> Result<bool> {
    let device = stream.device();
    let ([first, _, ..], false, false) = (problems, device.is_emulated(), stream.is_capturing()) else {
        return Ok(false);
    };
    let data = first.a.data;
    let has_type = first.c.data == data
        && matches!(data, DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16);
    // The kernels for TF32 and for narrow types use 16-byte loads.
    let is_aligned = |operand: &Operand| operand.ptr.is_multiple_of(16);
    let needs_alignment = matches!(data, DataType::F16 | DataType::Bf16) || math.allow_tf32;
    let may = has_type
        && problems.iter().all(|Problem { a, b, c, .. }| {
            c.layout.count() == 1 && (!needs_alignment || [a, b, c].into_iter().all(is_aligned))
        });
    Ok(may && Vendor::Cublas.version()? >= WITH_GROUPS)
}

/// The arguments of one grouped call. Each product forms a group of size 1.
struct Table {
    /// The addresses of all `b`, then all `a`, then all `c`, because cuBLAS treats row-major matrices as their
    /// transposes.
    pointers: DeviceBuffer<u64>,
    operations: [Vec<cublasOperation_t>; 2],
    /// The values of n, m and k for each product.
    sizes: [Vec<i64>; 3],
    /// The leading dimensions of `b`, `a` and `c` for each product.
    strides: [Vec<i64>; 3],
    data: DataType,
}

impl Table {
    fn new(stream: &Stream, problems: &[Problem]) -> Result<Self> {
        let problems: Vec<Problem> = problems.iter().map(|problem| problem.upright()).collect();
        let of = |pick: fn(&Problem) -> &Operand| problems.iter().map(pick);
        let operands: [fn(&Problem) -> &Operand; 3] = [|p| &p.b, |p| &p.a, |p| &p.c];
        let addresses: Vec<u64> =
            operands.iter().flat_map(|pick| of(*pick).map(|operand| operand.ptr)).collect();
        let mut pointers = DeviceBuffer::uninit(stream, addresses.len())?;
        // The copy keeps the host memory alive until it has completed.
        drop(stream.copy_from_host_async(addresses, &mut pointers)?);
        let size =
            |pick: fn(&Problem) -> usize| problems.iter().map(|problem| pick(problem) as i64).collect();
        Ok(Self {
            pointers,
            operations: [operands[0], operands[1]].map(|pick| of(pick).map(Operand::operation).collect()),
            sizes: [size(|p| p.n), size(|p| p.m), size(|p| p.k)],
            strides: operands.map(|pick| of(pick).map(|operand| operand.layout.leading()).collect()),
            data: problems.first().map_or(DataType::F32, |problem| problem.a.data),
        })
    }

    fn call<S: Copy>(
        &self,
        handle: &mut Handle,
        math: Math,
        device: &Device,
        alpha: &S,
        beta: &S,
    ) -> Result<()> {
        let count = self.sizes[0].len();
        let (alphas, betas, ones) = (vec![*alpha; count], vec![*beta; count], vec![1i64; count]);
        let addresses =
            |which: usize| self.pointers.as_device_ptr().offset(which * count * size_of::<u64>()).0;
        let data = code::cublas(self.data);
        // SAFETY: the handle is alive and used only here. Every array has `count` elements. The address arrays are in
        // device memory, and earlier work on the stream fills them. The matrices lie inside memory that is recorded as
        // used, with elements of this type, and the scalars have the type that the compute type requires.
        let status = unsafe {
            sys::cublasGemmGroupedBatchedEx_64(
                handle.raw(),
                self.operations[0].as_ptr(),
                self.operations[1].as_ptr(),
                self.sizes[0].as_ptr(),
                self.sizes[1].as_ptr(),
                self.sizes[2].as_ptr(),
                alphas.as_ptr().cast(),
                addresses(0) as *const _,
                data,
                self.strides[0].as_ptr(),
                addresses(1) as *const _,
                data,
                self.strides[1].as_ptr(),
                betas.as_ptr().cast(),
                addresses(2) as *const _,
                data,
                self.strides[2].as_ptr(),
                count as i64,
                ones.as_ptr(),
                compute_type(self.data, math, device),
            )
        };
        check_with("cublasGemmGroupedBatchedEx", status, || format!("{count} products of {:?}", self.data))
    }
}

/// Adds the product's index in the group to an error.
#[cold]
fn of_product(index: usize, error: Error) -> Error {
    match error.downcast_ref() {
        Some(LibraryError::Shape { operation, problem }) => {
            LibraryError::Shape { operation, problem: format!("product {index}: {problem}") }.into()
        }
        _ => error,
    }
}
