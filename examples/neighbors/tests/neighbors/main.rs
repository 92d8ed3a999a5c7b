//! Tests the custom operation for candle, and the exchange of memory with cudarc.

mod candle;
mod cudarc_on_gpu;
