//! [`Epilogue`]: the operations that are applied to a GEMM's sums before they are stored.

use warpsmith_runtime::{DeviceCopy, DeviceSlice, Result};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;

pub use warpsmith_tensor_kernels::epilogue::Activation;

use crate::error::TensorError;

/// GEMM epilogue, applied to the sums before they are rounded: `activation(scale * sum + bias)`.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::{Activation, Epilogue};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Device::emulated(0)?.default_stream();
/// let bias = DeviceBuffer::<f32>::zeros(&stream, 64)?;
/// let epilogue = Epilogue { bias: Some(bias.as_slice()), activation: Activation::Gelu, ..Epilogue::default() };
/// assert_eq!(epilogue.scale, 1.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a, C: DeviceCopy> {
    /// Scale (alpha), 1 by default. For FP8, pass the product of the scales of `a` and `b`.
    pub scale: f32,
    /// Bias: one element per column of `c`, added to every row. For a grouped GEMM, one element per column of each
    /// group. By default, no bias is added.
    pub bias: Option<DeviceSlice<'a, C>>,
    /// Activation, applied last. By default, no activation is applied.
    pub activation: Activation,
}

impl<C: DeviceCopy> Default for Epilogue<'_, C> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: Activation::None }
    }
}

impl<C: DeviceCopy> Epilogue<'_, C> {
    /// Fails if the length of the bias differs from the number of columns.
    pub(crate) fn check_bias(&self, operation: &'static str, columns: usize) -> Result<()> {
        match self.bias {
            Some(bias) if bias.len() != columns => {
                let what = format!("the bias has {} elements, but c has {columns} columns", bias.len());
                Err(TensorError::Shape { operation, what }.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn finish(&self) -> EpilogueParams {
        EpilogueParams { scale: self.scale, activation: self.activation as u32 }
    }
}
