"""PyTorch on Warpsmith's caching allocator.

``enable()`` replaces PyTorch's CUDA allocator for the whole process. Call it before the first CUDA allocation. For
statistics and snapshots, use ``warpsmith.memory_stats`` and ``warpsmith.memory_snapshot``. ``torch.cuda.graph`` works.
PyTorch's own statistics and snapshots, CUDA graph trees (``torch.compile(mode="reduce-overhead")``) and CUDA IPC raise
an error, because PyTorch's interface for pluggable allocators does not support them.

``mem_pool()`` keeps PyTorch's allocator with all of its functions. Within ``torch.cuda.use_mem_pool(pool)``, PyTorch's
allocator allocates its segments from Warpsmith's allocator.
"""

import ctypes
import functools

import torch

from . import _native

# PyTorch's hooks, each with the C function of this package that implements it.
_HOOKS = {
    "set_record_stream_fn": "warpsmith_record_stream",
    "set_begin_allocate_to_pool": "warpsmith_begin_pool",
    "set_end_allocate_to_pool_fn": "warpsmith_end_pool",
    "set_release_pool": "warpsmith_release_pool",
}


@functools.cache
def pluggable_allocator():
    """Returns Warpsmith's allocator as a ``torch.cuda.memory.CUDAPluggableAllocator``."""
    path = _native.__file__
    made = torch.cuda.memory.CUDAPluggableAllocator(path, "warpsmith_allocate", "warpsmith_free")
    library = ctypes.CDLL(path)
    hooks = made.allocator()
    for hook, function in _HOOKS.items():
        if not hasattr(hooks, hook):
            raise RuntimeError(
                f"pluggable allocators of PyTorch {torch.__version__} have no hook {hook}; without it, memory that "
                "several streams use would be reused too early; install another version"
            )
        getattr(hooks, hook)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    return made


def enable():
    """Replaces PyTorch's CUDA allocator. Raises an error if PyTorch has already allocated CUDA memory."""
    torch.cuda.memory.change_current_allocator(pluggable_allocator())


@functools.cache
def _segment_allocator():
    return torch.cuda.memory.CUDAPluggableAllocator(_native.__file__, "warpsmith_allocate_segment", "warpsmith_free")


def mem_pool(**options):
    """Returns a ``torch.cuda.MemPool`` whose segments come from Warpsmith's allocator.

    ``options`` are passed to ``torch.cuda.MemPool``.
    """
    return torch.cuda.MemPool(_segment_allocator().allocator(), **options)
