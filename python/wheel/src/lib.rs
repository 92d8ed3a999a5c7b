//! Native module of the Python package `warpsmith`, with the operators and the functions for devices.

mod allocator;
mod device;
mod operations;

use operations::*;
use warpsmith_python::operators;

operators! {
    "warpsmith", device::add_functions:
    /// Returns the absolute value of each element of `x`.
    abs(x);
    /// Returns `-x`.
    neg(x);
    /// Returns the square root of each element of `x`.
    sqrt(x);
    /// Returns the reciprocal square root of each element of `x`.
    rsqrt(x);
    /// Returns the exponential of each element of `x`.
    exp(x);
    /// Returns the natural logarithm of each element of `x`.
    log(x);
    /// Returns the sine of each element of `x`, in radians.
    sin(x);
    /// Returns the cosine of each element of `x`, in radians.
    cos(x);
    /// Returns the hyperbolic tangent of each element of `x`.
    tanh(x);
    /// Returns the logistic function `1 / (1 + exp(-x))`.
    sigmoid(x);
    /// Returns `maximum(x, 0)`.
    relu(x);
    /// Returns the exact GELU of each element of `x`, computed with the error function.
    gelu(x);
    /// Returns the tanh approximation of the GELU of each element of `x`.
    gelu_tanh(x);
    /// Returns `x * sigmoid(x)`.
    silu(x);
    /// Returns `x + y`. `y` must have the shape of `x`, or be one-dimensional with the length of the last dimension of
    /// `x`. A one-dimensional `y` is broadcast over the rows of `x`.
    add(x, y);
    /// Returns `x - y`. The shapes must be as described for `add`.
    sub(x, y);
    /// Returns `x * y`. The shapes must be as described for `add`.
    mul(x, y);
    /// Returns `x / y`. The shapes must be as described for `add`.
    div(x, y);
    /// Returns the elementwise minimum, or NaN if either element is NaN. The shapes must be as described for `add`.
    minimum(x, y);
    /// Returns the elementwise maximum, or NaN if either element is NaN. The shapes must be as described for `add`.
    maximum(x, y);
    /// Returns `x` raised to the power `y`. The shapes must be as described for `add`.
    pow(x, y);
    /// Returns the sum of all elements, or the sum over the last dimension if `dim` is -1. Integer results have 64
    /// bits.
    sum(x, dim = None);
    /// Returns the product of all elements, or the product over the last dimension if `dim` is -1. Integer results have
    /// 64 bits.
    prod(x, dim = None);
    /// Returns the mean of all elements, or the mean over the last dimension if `dim` is -1.
    mean(x, dim = None);
    /// Returns the minimum of all elements, or the minimum over the last dimension if `dim` is -1. The result is NaN if
    /// an element is NaN.
    min(x, dim = None);
    /// Returns the maximum of all elements, or the maximum over the last dimension if `dim` is -1. The result is NaN if
    /// an element is NaN.
    max(x, dim = None);
    /// Returns the index (int64) of the first minimum of all elements in row-major order, or the index along the last
    /// dimension if `dim` is -1.
    argmin(x, dim = None);
    /// Returns the index (int64) of the first maximum of all elements in row-major order, or the index along the last
    /// dimension if `dim` is -1.
    argmax(x, dim = None);
    /// Returns the softmax over the last dimension.
    softmax(x);
    /// Returns the logarithm of the softmax over the last dimension.
    log_softmax(x);
    /// Returns the layer normalization over the last dimension. `weight` and `bias` must be one-dimensional and as long
    /// as the last dimension of `x`.
    layer_norm(x, weight = None, bias = None, epsilon = 1e-5);
    /// Returns the RMS normalization over the last dimension. `weight` must be one-dimensional and as long as the last
    /// dimension of `x`.
    rms_norm(x, weight = None, epsilon = 1e-6);
    /// Returns the cumulative sum of a one-dimensional tensor.
    cumsum(x);
    /// Sorts the elements along the last dimension. In ascending order, NaN comes last.
    sort(x, descending = False);
    /// Returns the indices (int64) that sort a one-dimensional tensor. The sort is stable.
    argsort(x, descending = False);
    /// Returns the `k` largest elements along the last dimension in descending order, and their indices (int64). `k`
    /// must be at most 1024.
    top_k(x, k);
    /// Returns the matrix product of two matrices or batches of matrices. An unbatched operand is broadcast over the
    /// batch. Either operand can be a transposed view. float32 products are computed in full float32 precision, without
    /// TF32.
    matmul(a, b);
    /// Returns `softmax(scale * q @ k^T) @ v`, scaled dot product attention. The tensors have the shape
    /// `[batch, heads, tokens, dim]`, where `dim` is 64, 96, 128, 192 or 256. The number of heads of `q` must be a multiple of
    /// the number of heads of `k` and `v`. The default for `scale` is `1 / sqrt(dim)`. The causal mask is aligned to
    /// the lower right corner, so the last query attends to all keys.
    attention(q, k, v, scale = None, is_causal = False);
}
