"""GPU operations on the tensors of NumPy, PyTorch, CuPy, JAX and other frameworks with DLPack.

``warpsmith.ops`` has the operations, and ``warpsmith.torch`` registers them as operators of PyTorch. A device is given
as ``"cuda:0"``, as ``"cpu"`` for the emulated device, as the ordinal of a CUDA device, or as a ``torch.device``; without
one, functions use the CUDA device with the most SMs, or the emulated device.
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
    """Records devices and the host, and writes a trace in PyTorch's JSON format (``.json`` or ``.json.gz``).

    Perfetto and ``warpsmith trace`` read the file. A process has one profiler at a time.
    """
    _native.start_profiler(path)
    try:
        yield
    finally:
        _native.stop_profiler()


@_contextmanager
def range(name):
    """Names the time that a block takes, for ``profile`` and for NVIDIA's tools (NVTX)."""
    _native.range_push(name)
    try:
        yield
    finally:
        _native.range_pop()
