//! [`Epilogue`]: the operations that are applied to a GEMM's sums before they are stored.

use warpsmith_runtime::{DeviceCopy, DeviceSlice, Result};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;

pub use warpsmith_tensor_kernels::epilogue::Activation;

use crate::error::TensorError;
use crate::matrix::{Stored, check_rows};

/// GEMM epilogue, applied to the sums before they are rounded: `activation(scale * sum + bias)`.
///
/// [`Activation::SwiGlu`], `accumulate` and `norm` are for decoding, where memory traffic limits the speed. They require
/// `bf16` or `f16`, a row-major `a`, and a transposed `b` whose rows start on 16-byte boundaries, or quantized weights.
/// `accumulate` and `norm` are fast for up to 16 rows of `a`. With more rows, SwiGLU alone uses other kernels: one kernel
/// on compute capability 9.0 from 192 rows on; otherwise two, where the GEMM is rounded to the type of `c`. With
/// quantized weights, one kernel computes SwiGLU and `accumulate`, which are fast for up to 128 rows.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::{Activation, Epilogue};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let bias = DeviceBuffer::<f32>::zeros(&stream, 64)?;
/// let epilogue = Epilogue { bias: Some(bias.as_slice()), activation: Activation::Gelu, ..Epilogue::default() };
/// assert_eq!(epilogue.scale, 1.0);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a, C: DeviceCopy> {
    /// Scale (alpha), 1 by default. For FP8, pass the product of the scales of `a` and `b`.
    pub scale: f32,
    /// Bias: one element per column of `b`, added to every row. For a grouped GEMM, one element per column of each
    /// group. By default, no bias is added.
    pub bias: Option<DeviceSlice<'a, C>>,
    /// Activation, applied last. By default, no activation is applied.
    pub activation: Activation,
    /// True if the result is added to `c`, such as the residual stream of a transformer, instead of replacing it. The
    /// sum is rounded once.
    pub accumulate: bool,
    /// RMS norm of the rows of `a`, before the product. By default, the rows are not normalized.
    pub norm: Option<RmsNorm<'a, C>>,
}

/// RMS norm of the rows of a GEMM's operand `a`: `a / sqrt(mean(a * a) + epsilon) * weight`.
///
/// The products of `a` and `weight` are rounded to the type of `a`, so they must be in its range. The row's factor
/// `1 / sqrt(…)` is applied to the sums of the GEMM.
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::{Epilogue, Matrix, RmsNorm, matmul_fused};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let a = DeviceBuffer::filled(&stream, 8, bf16::from_f32(2.0))?;
/// let b = DeviceBuffer::filled(&stream, 4 * 8, bf16::ONE)?;
/// let weight = DeviceBuffer::filled(&stream, 8, bf16::from_f32(3.0))?;
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 4)?;
/// let norm = RmsNorm { weight: weight.as_slice(), epsilon: 0.0 };
/// let epilogue = Epilogue { norm: Some(norm), ..Epilogue::default() };
/// let b = Matrix::from(b.as_2d(4, 8)?).transposed();
/// matmul_fused(&stream, &epilogue, a.as_2d(1, 8)?, b, c.as_2d_mut(1, 4)?)?;
/// // The root mean square of a is 2, so each normalized element is 1 * 3.
/// assert_eq!(c.to_host()?, [bf16::from_f32(24.0); 4]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a, C: DeviceCopy> {
    /// One factor per column of `a`. Their address must be a multiple of 16 bytes.
    pub weight: DeviceSlice<'a, C>,
    /// Number that is added to the mean.
    pub epsilon: f32,
}

impl<C: DeviceCopy> Default for Epilogue<'_, C> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: Activation::None, accumulate: false, norm: None }
    }
}

impl<C: DeviceCopy> Epilogue<'_, C> {
    /// Fails if the length of the bias differs from the number of columns.
    pub(crate) fn check_bias(&self, operation: &'static str, columns: usize) -> Result<()> {
        match self.bias {
            Some(bias) if bias.len() != columns => {
                let what = format!("the bias has {} elements, but b has {columns} columns", bias.len());
                Err(TensorError::Shape { operation, what }.into())
            }
            _ => Ok(()),
        }
    }

    /// Fails if the length of the norm's weight differs from the number of columns of `a`, or if it is not aligned.
    pub(crate) fn check_norm(&self, operation: &'static str, k: usize) -> Result<()> {
        let Some(RmsNorm { weight, .. }) = self.norm else { return Ok(()) };
        if weight.len() != k {
            let what = format!("the weight of the norm has {} elements, but a has {k} columns", weight.len());
            return Err(TensorError::Shape { operation, what }.into());
        }
        let [planes, rows] = [1; 2];
        let stored = Stored { planes, rows, columns: k, plane_stride: k, row_stride: k };
        check_rows(operation, "the weight of the norm", weight, stored)
    }

    /// Returns the number of columns of `b`, where `c` has `n` columns.
    pub(crate) fn columns_of_b(&self, n: usize) -> usize {
        if self.activation == Activation::SwiGlu { n.saturating_mul(2) } else { n }
    }

    /// Fails if only skinny GEMMs support the epilogue, and the GEMM does not have the layout that these require.
    pub(crate) fn check_kernel(&self, operation: &'static str, is_skinny: bool) -> Result<()> {
        if is_skinny || !self.needs_skinny() {
            return Ok(());
        }
        Err(TensorError::Epilogue { operation }.into())
    }

    /// Returns whether the epilogue has SwiGLU, and nothing else that only skinny GEMMs support.
    pub(crate) fn is_only_swiglu(&self) -> bool {
        self.activation == Activation::SwiGlu && !self.accumulate && self.norm.is_none()
    }

    /// Returns whether only skinny GEMMs support the epilogue.
    pub(crate) fn needs_skinny(&self) -> bool {
        self.activation == Activation::SwiGlu || self.accumulate || self.norm.is_some()
    }

    /// Returns the weight and epsilon of the norm.
    pub(crate) fn norm(&self) -> (Option<DeviceSlice<'_, C>>, f32) {
        (self.norm.map(|norm| norm.weight), self.norm.map_or(0.0, |norm| norm.epsilon))
    }

    pub(crate) fn finish(&self) -> EpilogueParams {
        EpilogueParams {
            scale: self.scale,
            activation: self.activation as u32,
            accumulates: self.accumulate.into(),
        }
    }
}
