"""GPU operations for tensors from NumPy, PyTorch, CuPy, JAX and other frameworks that support DLPack.

``warpsmith.ops`` contains the operations, and ``warpsmith.torch`` registers them as PyTorch operators.

A ``device`` argument can be a string such as ``"cuda:0"``, ``"cpu"`` for the emulated device, the ordinal of a CUDA
device, or a ``torch.device``. The default is the CUDA device with the most SMs, or the emulated device if there is no
CUDA device.
"""

from contextlib import contextmanager as _contextmanager

from . import _native, ops
from ._native import (
    __version__, current_stream, devices, empty_cache, memory_snapshot, memory_stats, synchronize,
)

__all__ = [
    "current_stream", "devices", "empty_cache", "memory_snapshot", "memory_stats", "ops", "profile", "range", "synchronize",
]


@_contextmanager
def profile(path):
    """Records the devices and the host, and writes a trace in PyTorch's JSON format (``.json`` or ``.json.gz``).

    Perfetto and ``warpsmith trace`` can open the file. A process can run only one profiler at a time.
    """
    _native.start_profiler(path)
    try:
        yield
    finally:
        _native.stop_profiler()


@_contextmanager
def range(name):
    """Marks a block as a named range (NVTX), which ``profile`` and NVIDIA's tools record."""
    _native.range_push(name)
    try:
        yield
    finally:
        _native.range_pop()
