//! cuDNN operations on the emulated device: direct loops over the definitions.

pub mod convolution;
pub mod norm;
pub mod pooling;
pub mod softmax;
