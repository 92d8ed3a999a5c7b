"""The operations as operators ``torch.ops.warpsmith``, with shapes for ``torch.compile``. They have no gradients."""

import torch

from . import _native

_native.register_torch()


def _fake(names, function):
    for name in names.split():
        torch.library.register_fake(f"warpsmith::{name}", function)


def _reduced(x, dim, dtype=None):
    return x.new_empty(x.shape[:0] if dim is None else x.shape[:-1], dtype=dtype)


def _sum(x, dim=None):
    wide = {torch.int32: torch.int64, torch.uint32: torch.uint64}
    return _reduced(x, dim, wide.get(x.dtype))


def _top_k(x, k):
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _matmul(a, b):
    batch = max(a.shape[:-2], b.shape[:-2], key=len)
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]))


_LIKE = """abs neg sqrt rsqrt exp log sin cos tanh sigmoid relu gelu gelu_tanh silu add sub mul div minimum maximum pow
softmax log_softmax layer_norm rms_norm cumsum sort attention"""
_fake(_LIKE, lambda x, *_, **__: x.new_empty(x.shape))
_fake("sum prod", _sum)
_fake("mean min max", lambda x, dim=None: _reduced(x, dim))
_fake("argmin argmax", lambda x, dim=None: _reduced(x, dim, torch.int64))
_fake("argsort", lambda x, descending=False: x.new_empty(x.shape, dtype=torch.int64))
_fake("top_k", _top_k)
_fake("matmul", _matmul)
