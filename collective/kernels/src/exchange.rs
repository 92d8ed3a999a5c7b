//! `exchange`: a kernel that moves elements of any type between the ranks.
//!
//! Each rank copies blocks of its elements to its half and, after one barrier, reads blocks from the halves of other
//! ranks. Depending on the blocks, the operation is an `all_gather`, `gather`, `broadcast`, `scatter` or `all_to_all`.
//! Without any blocks, it is a barrier.

use gpu_std::KernelType;
use gpu_std::prelude::*;

use crate::device_comm::DeviceComm;
use crate::packed::Packed;
use crate::vectors::{copy, own_vectors, vectors};

/// Blocks that a rank provides and blocks that it reads. All blocks have the same length. A half contains the blocks of
/// its rank one after another, each aligned to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Blocks {
    /// Stride between blocks in `x` and in `y`, in elements.
    pub stride: u64,
    /// Number of data blocks that this rank provides to the other ranks.
    pub given: u32,
    /// First rank whose block is read. The other ranks follow consecutively.
    pub first: u32,
    /// Number of ranks from which the rank reads a block.
    pub taken: u32,
    /// Index of the block to read from each of these ranks.
    pub block: u32,
}

/// Provides blocks of `len` elements from `x`, and stores the blocks that it reads to `y`, starting with the block of
/// rank `first`. `T` stands for all types whose arrays have the same alignment.
///
/// # Safety
/// All ranks must launch the kernel in the same shape: 1-D blocks and grids, with at most
/// [`THREADS`](crate::device_comm::THREADS) threads per block and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS)
/// blocks. On all ranks, the blocks must have the same size in bytes, and the [`DeviceComm`]s must belong to one
/// communicator and differ only in the rank. Each rank must provide all blocks that other ranks read from it. A half
/// must be large enough for the provided blocks. `x` must be valid for reads and `y` for writes of the respective
/// blocks. They may be the same memory if every stored block was also provided from the same location, or if no block
/// was provided.
#[kernel(types(T = u8, u32), launch_bounds(512, 1), dependent)]
pub unsafe fn exchange<T: Packed>(x: *const T, y: *mut T, len: usize, blocks: Blocks, comm: DeviceComm) {
    grid::dependency_wait();
    // SAFETY: guaranteed by the caller. In every block, each vector belongs to one thread: a vector of this rank before
    // the barrier, and vectors of other ranks after it.
    unsafe {
        let Some(epoch) = comm.begin() else { return };
        let (count, stride) = (vectors::<T>(len), blocks.stride as usize);
        let own = epoch.half::<T>(comm.rank as usize);
        for block in 0..blocks.given as usize {
            let (from, to) = (x.add(block * stride), own.add(block * count * T::LANES));
            for vector in own_vectors(count) {
                copy(from, to, len, vector);
            }
        }
        if !epoch.barrier(0) {
            return;
        }
        // From here on, the kernel does not wait for other ranks.
        grid::launch_dependents();
        // Each rank starts with the rank that follows it, so that not all ranks read from the same rank at once.
        let taken = blocks.taken as usize;
        for step in 0..taken {
            let place = (comm.rank as usize + 1 + step) % taken;
            let half = epoch.half::<T>(blocks.first as usize + place);
            let (from, to) = (half.add(blocks.block as usize * count * T::LANES), y.add(place * stride));
            for vector in own_vectors(count) {
                copy(from, to, len, vector);
            }
        }
        epoch.end();
    }
}
