"""Operations on tensors of any framework with DLPack, which return tensors of the same framework.

They run on the device of their arguments: a CUDA device, on the framework's current stream, or the emulated device for
CPU tensors. Tensors are contiguous; rows of a matrix may have gaps, and operands of ``matmul`` may be transposed.
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
