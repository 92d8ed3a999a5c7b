"""Registers the operators as ``torch.ops.{{crate}}``, with fake implementations for ``torch.compile`` and gradients."""

import torch

from . import _native

_native.register_torch()


def axpy(x, y, a=1.0):
    """Returns ``a * x + y``."""
    return torch.ops.{{crate}}.axpy(x.contiguous(), y.contiguous(), a)


def rms_norm(x, residual, weight, epsilon=1e-6):
    """Returns the RMS normalization of ``x + residual``, scaled by ``weight``, and ``x + residual``."""
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    return torch.ops.{{crate}}.rms_norm(x, residual, weight, epsilon)


# Fake implementations, which give torch.compile the shapes and types of the results.


@torch.library.register_fake("{{crate}}::axpy")
def _(x, y, a=1.0):
    return x.new_empty(x.shape)


@torch.library.register_fake("{{crate}}::rms_norm")
def _(x, residual, weight, epsilon=1e-6):
    return x.new_empty(x.shape), x.new_empty(x.shape)


# Gradient formulas.


def _save_axpy(ctx, inputs, output):
    ctx.a = inputs[2]


def _axpy_backward(ctx, gradient):
    return gradient * ctx.a, gradient, None


torch.library.register_autograd("{{crate}}::axpy", _axpy_backward, setup_context=_save_axpy)


def _save_rms_norm(ctx, inputs, output):
    ctx.epsilon = inputs[3]
    ctx.save_for_backward(output[1], inputs[2])


def _rms_norm_backward(ctx, out_gradient, sum_gradient):
    total, weight = ctx.saved_tensors
    scale = torch.rsqrt(total.float().square().mean(-1, keepdim=True) + ctx.epsilon)
    normalized = total.float() * scale
    scaled = out_gradient.float() * weight.float()
    inner = (scaled * normalized).mean(-1, keepdim=True)
    gradient = (scale * (scaled - normalized * inner)).to(total.dtype) + sum_gradient
    weight_gradient = (out_gradient.float() * normalized).flatten(0, -2).sum(0).to(weight.dtype)
    return gradient, gradient, weight_gradient, None


torch.library.register_autograd("{{crate}}::rms_norm", _rms_norm_backward, setup_context=_save_rms_norm)
