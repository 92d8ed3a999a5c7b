//! cuDNN operations on the emulated device, implemented as direct loops over their definitions.

pub mod convolution;
pub mod norm;
pub mod pooling;
