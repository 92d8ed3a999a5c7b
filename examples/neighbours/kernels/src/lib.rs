//! The kernels: compiled for the GPU by `../build.rs`, and for the CPU like any crate.
#![no_std]

use gpu_std::prelude::*;

/// Logistic function. The exponential of a negative number does not overflow.
fn sigmoid(x: f32) -> f32 {
    let power = (-x.abs()).exp();
    (if x < 0.0 { power } else { 1.0 }) / (1.0 + power)
}

/// SwiGLU: `silu(gate) * up`, where `silu(x)` is `x * sigmoid(x)`.
#[elementwise]
pub fn swiglu(gate: f32, up: f32) -> f32 {
    gate * sigmoid(gate) * up
}

/// Gradient of [`swiglu()`] with respect to `gate`, from the gradient of the output.
#[elementwise]
pub fn swiglu_gate_gradient(gate: f32, up: f32, gradient: f32) -> f32 {
    let sigmoid = sigmoid(gate);
    gradient * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
}
