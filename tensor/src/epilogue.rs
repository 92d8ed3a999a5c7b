//! [`Epilogue`]: what becomes of sums before they are stored.

use warpsmith_runtime::{DeviceCopy, DeviceSlice, Result};
use warpsmith_tensor_kernels::epilogue::Finish;

pub use warpsmith_tensor_kernels::epilogue::Activation;

use crate::error::TensorError;

/// What becomes of the elements of a product before they are rounded: `activation(scale * sum + bias)`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a, C: DeviceCopy> {
    /// The factor of the product: 1 by default. For 8-bit numbers the product of the scales of `a` and `b`.
    pub scale: f32,
    /// One element for each column of `c`, added to each row; of products of groups, for each column of each group. None by default.
    pub bias: Option<DeviceSlice<'a, C>>,
    /// Applied last. None by default.
    pub activation: Activation,
}

impl<C: DeviceCopy> Default for Epilogue<'_, C> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: Activation::None }
    }
}

impl<C: DeviceCopy> Epilogue<'_, C> {
    /// Fails for a bias of another length than there are columns.
    pub(crate) fn check_bias(&self, operation: &'static str, columns: usize) -> Result<()> {
        match self.bias {
            Some(bias) if bias.len() != columns => {
                let what = format!("the bias has {} elements and c {columns} columns", bias.len());
                Err(TensorError::Shape { operation, what }.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn finish(&self) -> Finish {
        Finish { scale: self.scale, activation: self.activation as u32 }
    }
}
