//! Compares the operation with candle's own, and exchanges memory with cudarc.

mod candle;
mod cudarc_on_gpu;
