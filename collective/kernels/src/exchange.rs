//! `exchange`: a kernel that moves elements of any type between the ranks.
//!
//! Each rank copies blocks of its elements to its half, and reads blocks from the halves of other ranks, with one
//! barrier. The choice of blocks makes it an `all_gather`, `gather`, `broadcast`, `scatter` or `all_to_all`. Without
//! any blocks it is a barrier.

use gpu_std::KernelType;
use gpu_std::prelude::*;

use crate::device_comm::DeviceComm;
use crate::packed::Packed;
use crate::vectors::{copy, own_vectors, vectors};

/// Blocks that a rank provides and reads, all of the same length. A half contains the blocks of its rank consecutively,
/// each aligned to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Blocks {
    /// Stride between blocks in `x` and in `y`, in elements.
    pub stride: u64,
    /// Number of blocks that the rank provides.
    pub given: u32,
    /// First rank whose block it reads. The other ranks follow consecutively.
    pub first: u32,
    /// Number of ranks from which it reads a block.
    pub taken: u32,
    /// Index of the block that it reads from each of these ranks.
    pub block: u32,
}

/// Provides blocks of `len` elements at `x`, and stores the blocks that it reads to `y`, starting with the block from
/// rank `first`. `T` represents all types whose arrays have the same alignment.
///
/// # Safety
/// All ranks must launch the kernel in the same shape, with 1-D blocks and grids of at most
/// [`THREADS`](crate::device_comm::THREADS) threads and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS) blocks. The
/// block size in bytes must be the same, and the [`DeviceComm`]s must belong to one communicator and differ only in the
/// rank. Ranks must provide the blocks that other ranks read. A half must be large enough for the provided blocks. `x`
/// and `y` must be valid for the blocks. They can be the same memory if each block that is stored there was provided
/// from there, or if none was.
#[kernel(types(T = u8, u32), launch_bounds(512, 1))]
pub unsafe fn exchange<T: Packed>(x: *const T, y: *mut T, len: usize, blocks: Blocks, comm: DeviceComm) {
    // SAFETY: the caller's contract. In every block, each vector belongs to one thread: before the barrier the vectors
    // of this rank, after it the vectors of other ranks.
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
        // Each rank starts with the next rank, so that not all of them read from the same rank.
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
