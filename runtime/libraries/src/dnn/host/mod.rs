//! What the emulated device does in cuDNN's place: the definitions, written down as loops.

pub mod convolution;
pub mod norm;
pub mod pooling;
pub mod softmax;
