//! The kernels. `../build.rs` compiles them for GPUs, and cargo compiles them for the CPU.
#![no_std]

use gpu_std::prelude::*;

/// Logistic function. The exponent is never positive, so the exponential does not overflow.
fn sigmoid(x: f32) -> f32 {
    let power = (-x.abs()).exp();
    (if x < 0.0 { power } else { 1.0 }) / (1.0 + power)
}

/// SwiGLU: `silu(gate) * up`, where `silu(x)` is `x * sigmoid(x)`.
#[elementwise]
pub fn swiglu(gate: f32, up: f32) -> f32 {
    gate * sigmoid(gate) * up
}

/// Gradient of [`swiglu()`] with respect to `gate`. `gradient` is the gradient with respect to the output.
#[elementwise]
pub fn swiglu_gate_gradient(gate: f32, up: f32, gradient: f32) -> f32 {
    let sigmoid = sigmoid(gate);
    gradient * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
}
