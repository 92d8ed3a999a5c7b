//! `exchange`: elements of the ranks, of any type, moved between them.
//!
//! Each rank copies blocks of its elements into its half, and takes blocks out of the halves of others: one barrier. Which blocks
//! these are makes it an `all_gather`, a `gather`, a `broadcast`, a `scatter` or an `all_to_all`; without any it is a barrier.

use gpu_std::KernelType;
use gpu_std::prelude::*;

use crate::meeting::Meeting;
use crate::packed::Packed;
use crate::vectors::{copy, own_vectors, vectors};

/// The blocks that a rank gives and takes. All are of one length; a half has the blocks of its rank one after the other, each
/// from a multiple of 16 bytes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Blocks {
    /// Elements from a block to the next, where the rank has them and where it wants them.
    pub stride: u64,
    /// The number of blocks that it gives.
    pub given: u32,
    /// It takes a block from this rank and from those that follow.
    pub first: u32,
    /// The number of ranks that it takes a block from.
    pub taken: u32,
    /// Which of their blocks that is, of each.
    pub block: u32,
}

/// Gives blocks of `len` elements at `x`, and takes some to `y`: that of `first` first. A type stands for all whose arrays are
/// aligned as it is.
///
/// # Safety
/// All ranks launch it in the same shape, with blocks and grids of one row, at most
/// [`THREADS`](crate::meeting::THREADS) and [`MAX_BLOCKS`](crate::meeting::MAX_BLOCKS), with the same bytes of a block, and with
/// meetings of one communicator that differ in nothing but the rank. Ranks give what others take. A half has room for the blocks
/// that are given. `x` and `y` are valid for the blocks. Where they are the same memory, each block that is taken there is the one
/// that was given from there, or none was given from there.
#[kernel(types(T = u8, u32), launch_bounds(512, 1))]
pub unsafe fn exchange<T: Packed>(x: *const T, y: *mut T, len: usize, blocks: Blocks, meeting: Meeting) {
    // SAFETY: the caller's promise. Each vector is one thread's, in whatever block: of this rank before the barrier, of the
    // others after it.
    unsafe {
        let Some(epoch) = meeting.begin() else { return };
        let (count, stride) = (vectors::<T>(len), blocks.stride as usize);
        let own = epoch.half::<T>(meeting.rank as usize);
        for block in 0..blocks.given as usize {
            let (from, to) = (x.add(block * stride), own.add(block * count * T::LANES));
            for vector in own_vectors(count) {
                copy(from, to, len, vector);
            }
        }
        if !epoch.barrier(0) {
            return;
        }
        // Each rank begins with the one after it, so that not all read one.
        let taken = blocks.taken as usize;
        for step in 0..taken {
            let place = (meeting.rank as usize + 1 + step) % taken;
            let half = epoch.half::<T>(blocks.first as usize + place);
            let (from, to) = (half.add(blocks.block as usize * count * T::LANES), y.add(place * stride));
            for vector in own_vectors(count) {
                copy(from, to, len, vector);
            }
        }
        epoch.end();
    }
}
