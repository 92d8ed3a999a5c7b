"""Rust kernels as functions on tensors of NumPy, PyTorch, CuPy and other frameworks with DLPack.

The functions run on the tensors' device: a CUDA device, or the emulated device for CPU tensors. For operators of
PyTorch, which ``torch.compile`` and autograd know, import ``{{crate}}.torch``.
"""

from ._native import axpy, rms_norm

__all__ = ["axpy", "rms_norm"]
