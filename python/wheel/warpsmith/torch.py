"""Registers the operations as ``torch.ops.warpsmith``, with fake implementations for ``torch.compile`` and gradients.

The backward pass recomputes an operation with the equivalent PyTorch function below, and returns its gradients.
"""

import torch
import torch.nn.functional as F

from . import _native

_native.register_torch()


def _rms_norm(x, weight=None, epsilon=1e-6):
    # F.rms_norm of PyTorch 2.11 reads an incorrect shape if the last dimension is symbolic.
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    normalized = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)
    return normalized if weight is None else normalized * weight


def _attention(q, k, v, scale=None, is_causal=False):
    mask = None
    if is_causal:
        rows, columns = q.shape[-2], k.shape[-2]
        mask = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(columns - rows)
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)


# The equivalent PyTorch function for each operator.
EQUAL = {name: getattr(torch, name) for name in "abs neg sqrt rsqrt exp log sin cos tanh sigmoid relu".split()}
EQUAL |= {name: getattr(torch, name) for name in "add sub mul div minimum maximum pow sum mean".split()}
EQUAL |= {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "prod": lambda x, dim=None: torch.prod(x) if dim is None else torch.prod(x, dim),
    "min": lambda x, dim=None: torch.amin(x, dim=() if dim is None else dim),
    "max": lambda x, dim=None: torch.amax(x, dim=() if dim is None else dim),
    "argmin": torch.argmin,
    "argmax": torch.argmax,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x, weight=None, bias=None, epsilon=1e-5: F.layer_norm(x, x.shape[-1:], weight, bias, epsilon),
    "rms_norm": _rms_norm,
    "cumsum": lambda x: torch.cumsum(x, 0, dtype=x.dtype),
    "sort": lambda x, descending=False: torch.sort(x, descending=descending).values,
    "argsort": lambda x, descending=False: torch.argsort(x, descending=descending, stable=True),
    "top_k": lambda x, k: tuple(torch.topk(x, k)),
    "matmul": torch.matmul,
    "attention": _attention,
}


def _register(name, function):
    def fake(*arguments):
        results = function(*arguments)
        if isinstance(results, tuple):
            return tuple(torch.empty_like(result, memory_format=torch.contiguous_format) for result in results)
        return torch.empty_like(results, memory_format=torch.contiguous_format)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*(value if isinstance(value, torch.Tensor) else None for value in inputs))
        ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in inputs]

    def backward(ctx, gradient, *_):
        inputs = [number if value is None else value for value, number in zip(ctx.saved_tensors, ctx.numbers)]
        places = [at for at, needed in enumerate(ctx.needs_input_grad) if needed]

        def first_result(*values):
            results = function(*(dict(zip(places, values)).get(at, value) for at, value in enumerate(inputs)))
            return results[0] if isinstance(results, tuple) else results

        _, product = torch.func.vjp(first_result, *(inputs[at] for at in places))
        gradients = dict(zip(places, product(gradient)))
        return tuple(gradients.get(at) for at in range(len(inputs)))

    torch.library.register_fake(f"warpsmith::{name}", fake)
    if not name.startswith("arg"):
        torch.library.register_autograd(f"warpsmith::{name}", backward, setup_context=save)


for _name, _function in EQUAL.items():
    _register(_name, _function)
