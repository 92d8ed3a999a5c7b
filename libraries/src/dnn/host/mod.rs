//! The emulated device's implementation of cuDNN: the definitions as loops.

pub mod convolution;
pub mod norm;
pub mod pooling;
pub mod softmax;
