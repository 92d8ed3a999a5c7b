"""PyTorch on Warpsmith's caching allocator.

``enable()`` replaces PyTorch's allocator for the whole process. Call it before the first CUDA tensor. Statistics and
snapshots are then those of ``warpsmith.memory_stats`` and ``warpsmith.memory_snapshot``: PyTorch's own functions, CUDA
graph trees (``torch.compile(mode="reduce-overhead")``) and sharing between processes raise an error, because PyTorch's
interface does not have them. ``torch.cuda.graph`` works.

``mem_pool()`` leaves PyTorch's allocator in place, with all of its functions, and only takes segments from Warpsmith's
within ``torch.cuda.use_mem_pool(pool)``.
"""

import ctypes
import functools

import torch

from . import _native

# PyTorch's hooks, and the C functions of this package.
_HOOKS = {
    "set_record_stream_fn": "warpsmith_record_stream",
    "set_begin_allocate_to_pool": "warpsmith_begin_pool",
    "set_end_allocate_to_pool_fn": "warpsmith_end_pool",
    "set_release_pool": "warpsmith_release_pool",
}


@functools.cache
def pluggable_allocator():
    """The allocator, as a ``torch.cuda.memory.CUDAPluggableAllocator``."""
    path = _native.__file__
    made = torch.cuda.memory.CUDAPluggableAllocator(path, "warpsmith_allocate", "warpsmith_free")
    library = ctypes.CDLL(path)
    hooks = made.allocator()
    for hook, function in _HOOKS.items():
        if not hasattr(hooks, hook):
            raise RuntimeError(
                f"PyTorch {torch.__version__} has no {hook} for pluggable allocators, without which memory that "
                "several streams use would be reused too early; install another version"
            )
        getattr(hooks, hook)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    return made


def enable():
    """Replaces PyTorch's allocator. An error if it has allocated before."""
    torch.cuda.memory.change_current_allocator(pluggable_allocator())


def mem_pool(**options):
    """A ``torch.cuda.MemPool`` whose segments are Warpsmith's; options are those of ``MemPool``."""
    return torch.cuda.MemPool(pluggable_allocator().allocator(), **options)
