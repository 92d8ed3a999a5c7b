"""Rust kernels as functions for tensors from NumPy, PyTorch, CuPy and other frameworks that support DLPack.

The functions run on the device of the tensors, which is the emulated device for CPU tensors. Import ``{{crate}}.torch``
to register PyTorch operators that support ``torch.compile`` and autograd.
"""

from ._native import axpy, rms_norm

__all__ = ["axpy", "rms_norm"]
