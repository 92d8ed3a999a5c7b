//! `exchange`: a kernel that moves elements of any type between the ranks.
//!
//! Each rank copies blocks of its elements into its half, and reads blocks from the halves of others, with one barrier.
//! The choice of blocks makes it an `all_gather`, `gather`, `broadcast`, `scatter` or `all_to_all`. Without any blocks
//! it is a barrier.

use gpu_std::KernelType;
use gpu_std::prelude::*;

use crate::device_comm::DeviceComm;
use crate::packed::Packed;
use crate::vectors::{copy, own_vectors, vectors};

/// The blocks that a rank provides and reads. All have one length. A half holds the blocks of its rank consecutively,
/// each aligned to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Blocks {
    /// Stride between blocks in `x` and in `y`, in elements.
    pub stride: u64,
    /// Number of blocks that the rank provides.
    pub given: u32,
    /// First rank that it reads a block from; the others follow.
    pub first: u32,
    /// Number of ranks that it reads a block from.
    pub taken: u32,
    /// Index of the block that it reads from each of these ranks.
    pub block: u32,
}

/// Provides blocks of `len` elements at `x`, and stores the blocks that it reads in `y`, starting with that of `first`.
/// `T` stands for all types whose arrays have the same alignment.
///
/// # Safety
/// All ranks must launch it in the same shape: 1-D blocks and grids, at most [`THREADS`](crate::device_comm::THREADS)
/// and [`MAX_BLOCKS`](crate::device_comm::MAX_BLOCKS). The block size in bytes must be the same, and the
/// [`DeviceComm`]s must be of one communicator and differ only in the rank. Ranks must provide what others read. A half
/// must have room for the provided blocks. `x` and `y` must be valid for the blocks. They may be the same memory if
/// each block that is stored there was provided from there, or if none was.
#[kernel(types(T = u8, u32), launch_bounds(512, 1))]
pub unsafe fn exchange<T: Packed>(x: *const T, y: *mut T, len: usize, blocks: Blocks, comm: DeviceComm) {
    // SAFETY: the caller's contract. Each vector belongs to one thread in every block: before the barrier those of this
    // rank, after it those of the others.
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
        // Each rank starts with the one after it, so that they do not all read from one rank.
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
