//! The native module of the Python package `warpsmith`: its operators, and functions on devices.

mod allocator;
mod device;
mod operations;

use operations::*;
use warpsmith_python::operators;

operators! {
    "warpsmith", device::add_functions:
    /// Absolute value.
    abs(x);
    /// `-x`.
    neg(x);
    /// Square root.
    sqrt(x);
    /// `1 / sqrt(x)`.
    rsqrt(x);
    /// e to the power `x`.
    exp(x);
    /// Natural logarithm.
    log(x);
    /// Sine, in radians.
    sin(x);
    /// Cosine, in radians.
    cos(x);
    /// Hyperbolic tangent.
    tanh(x);
    /// `1 / (1 + exp(-x))`.
    sigmoid(x);
    /// `maximum(x, 0)`.
    relu(x);
    /// GELU, exact.
    gelu(x);
    /// GELU in the tanh approximation.
    gelu_tanh(x);
    /// `x * sigmoid(x)`.
    silu(x);
    /// `x + y`. `y` has the shape of `x`, or one dimension, as long as the last one of `x`.
    add(x, y);
    /// `x - y`, with shapes as in `add`.
    sub(x, y);
    /// `x * y`, with shapes as in `add`.
    mul(x, y);
    /// `x / y`, with shapes as in `add`.
    div(x, y);
    /// The smaller element, with shapes as in `add`; NaN if either is NaN.
    minimum(x, y);
    /// The larger element, with shapes as in `add`; NaN if either is NaN.
    maximum(x, y);
    /// `x` to the power `y`, with shapes as in `add`.
    pow(x, y);
    /// Sum of all elements, or of the last dimension if `dim` is -1. Sums of integers have 64 bits.
    sum(x, dim = None);
    /// Product, otherwise as `sum`.
    prod(x, dim = None);
    /// Mean, otherwise as `sum`.
    mean(x, dim = None);
    /// Minimum of all elements, or of the last dimension if `dim` is -1; NaN if there is one.
    min(x, dim = None);
    /// Maximum, otherwise as `min`.
    max(x, dim = None);
    /// Index (int64) of the first minimum of all elements in row-major order, or of the last dimension if `dim` is -1.
    argmin(x, dim = None);
    /// Index (int64) of the first maximum, otherwise as `argmin`.
    argmax(x, dim = None);
    /// Softmax of the last dimension.
    softmax(x);
    /// Logarithm of `softmax`.
    log_softmax(x);
    /// Layer norm of the last dimension. `weight` and `bias` have one dimension of its length.
    layer_norm(x, weight = None, bias = None, epsilon = 1e-5);
    /// RMS norm of the last dimension. `weight` has one dimension of its length.
    rms_norm(x, weight = None, epsilon = 1e-6);
    /// Running sum of a tensor of one dimension.
    cumsum(x);
    /// Sorts the last dimension. NaN is after all numbers in ascending order.
    sort(x, descending = False);
    /// Indices (int64) that sort a tensor of one dimension; the sort is stable.
    argsort(x, descending = False);
    /// The `k` largest elements of the last dimension in descending order, and their indices (int64). `k` is at most 1024.
    top_k(x, k);
    /// Matrix product of two matrices or batches of matrices; one matrix is the same for the whole batch. Either can be
    /// transposed. float32 is multiplied in full precision.
    matmul(a, b);
    /// `softmax(scale * q @ k^T) @ v` of `[batch, heads, tokens, 64 or 128 or 256]`. The heads of `q` are a multiple of
    /// those of `k` and `v`. `scale` is `1 / sqrt(dim)` if it is not given. The causal mask is aligned to the last token.
    attention(q, k, v, scale = None, is_causal = False);
}
