//! [`Epilogue`]: what becomes of sums before they are stored.

use warpsmith_core::{DeviceCopy, DeviceSlice};
use warpsmith_tensor_kernels::epilogue::Finish;

pub use warpsmith_tensor_kernels::epilogue::Activation;

/// What becomes of the elements of a product before they are rounded: `activation(scale * sum + bias)`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a, C: DeviceCopy> {
    /// The factor of the product: 1 by default. For 8-bit numbers the product of the scales of `a` and `b`.
    pub scale: f32,
    /// One element for each column of `c`, added to each row. None by default.
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
    pub(crate) fn finish(&self) -> Finish {
        Finish { scale: self.scale, activation: self.activation as u32 }
    }
}
