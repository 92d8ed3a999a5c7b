"""Operations on tensors from any framework that supports DLPack. Results are tensors of the same framework.

Operations run on the device of their arguments. For CUDA tensors, they run on the framework's current stream if the
framework implements the DLPack C exchange API, and otherwise on the device's default stream. Operations on CPU tensors
run on the emulated device. Tensors must be contiguous, except that the rows of a matrix may be strided and the operands
of ``matmul`` may be transposed.
"""

from ._native import (
    abs, add, argmax, argmin, argsort, attention, cos, cumsum, div, exp, gelu, gelu_tanh, layer_norm, log,
    log_softmax, matmul, max, maximum, mean, min, minimum, mul, neg, pow, prod, relu, rms_norm, rsqrt, sigmoid,
    silu, sin, softmax, sort, sqrt, sub, sum, tanh, top_k,
)

__all__ = [
    "abs", "add", "argmax", "argmin", "argsort", "attention", "cos", "cumsum", "div", "exp", "gelu",
    "gelu_tanh", "layer_norm", "log", "log_softmax", "matmul", "max", "maximum", "mean", "min", "minimum",
    "mul", "neg", "pow", "prod", "relu", "rms_norm", "rsqrt", "sigmoid", "silu", "sin", "softmax", "sort",
    "sqrt", "sub", "sum", "tanh", "top_k",
]
