//! A matrix product on the tensor cores of compute capability 9.0, as short as it can be at some 85 % of the speed of
//! `warpsmith::ops::matmul`: `docs/tensor-cores.md` explains it and goes on from here.

use gpu_std::prelude::*;
use gpu_std::tensor::{Accumulator, SharedMemory, Slot, TensorMap, barrier, warp_group};

/// Rows and columns of C of a block, and columns of A and rows of B of a stage.
pub const TILE: [u32; 3] = [128, 256, 64];
/// Stages of the ring.
pub const STAGES: usize = 4;
/// Threads of a block: a warp group that copies, and two that multiply.
pub const THREADS: u32 = 384;
/// Bytes of a stage: 128 rows of A and 256 of B, of 128 bytes.
const STAGE_BYTES: u32 = (TILE[0] + TILE[1]) * 128;
/// Dynamic shared memory of a block.
pub const SHARED_BYTES: u32 = SharedMemory::bytes(STAGES as u32 * STAGE_BYTES, 2 * STAGES as u32);

/// Two adjacent elements of C.
#[derive(Clone, Copy, KernelType)]
#[repr(C, align(4))]
pub struct Pair(pub [bf16; 2]);

/// `c = a * b^T`, with `a` of m x k, `b` of n x k and `c` of m x n elements, each row by row. Each block computes a
/// tile, row by row of tiles.
///
/// # Safety
///
/// The boxes of `a` have 128 rows and those of `b` 256, of 64 columns, with `Swizzle::Bytes128`. `c` has m rows of `n / 2` pairs,
/// and the launch [`SHARED_BYTES`].
#[kernel(arch = "90a", block(THREADS), no_panic)]
pub unsafe fn multiply(
    a: &TensorMap<bf16, 2>,
    b: &TensorMap<bf16, 2>,
    mut c: DisjointMut<Pair>,
    sides: [u32; 3],
) {
    let [m, n, k] = sides;
    // 1. Every thread takes the same tiles and barriers. A full stage was copied once; an empty one was read by two warp groups.
    // SAFETY: the launch has the memory.
    let mut memory = unsafe { SharedMemory::new() };
    let (a_tiles, b_tiles) = (memory.tiles::<bf16, 128, STAGES>(), memory.tiles::<bf16, 256, STAGES>());
    let (full, empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    if thread::linear_in_block() == 0 {
        // SAFETY: all threads meet before one uses them.
        unsafe {
            full.init(1);
            empty.init(2);
        }
        barrier::publish();
    }
    thread::sync_threads();

    // At least 1, so that no division can panic.
    let columns = n.div_ceil(TILE[1]).max(1);
    let (row, column) =
        (thread::block_idx_x() / columns * TILE[0], thread::block_idx_x() % columns * TILE[1]);
    let (warp, stages) = (warp_group::warp_index(), k.div_ceil(TILE[2]));
    let mut slot = Slot::new();
    if warp < 4 {
        // 2. One thread copies: it waits until a stage is empty, and the barrier counts the bytes that arrive.
        // SAFETY: all lanes of the warp are here.
        if warp == 0 && unsafe { warp_group::elect() } {
            for stage in 0..stages {
                let (at, loaded) = (stage * TILE[2], full.at(slot));
                // SAFETY: nothing reads the stage any more.
                unsafe {
                    empty.at(slot).wait(slot.parity() ^ 1);
                    loaded.arrive_expecting(STAGE_BYTES);
                    a.load(a_tiles.at(slot), [at, row], loaded);
                    b.load(b_tiles.at(slot), [at, column], loaded);
                }
                slot.advance();
            }
        }
        return;
    }

    // 3. Each of the other warp groups multiplies 64 rows of A by all of B. The sums stay in registers, 128 a thread.
    let group = warp / 4 - 1;
    let mut sums = Accumulator::<256>::new();
    for stage in 0..stages {
        // SAFETY: the stage is full, and is given back when its products are done.
        unsafe {
            full.at(slot).wait(slot.parity());
            let mut batch = sums.pending().begin();
            batch.mma(a_tiles.at(slot).rows::<64>(group), b_tiles.at(slot), stage > 0);
            sums = batch.commit().wait();
            if thread::linear_in_block().is_multiple_of(warp_group::THREADS) {
                empty.at(slot).arrive();
            }
        }
        slot.advance();
    }

    // 4. A thread has two adjacent columns of every eight, in two rows.
    let lane = warp::lane_id();
    let (row, column) = (row + group * 64 + warp % 4 * 16 + lane / 4, column + lane % 4 * 2);
    let (registers, pairs) = (sums.registers(), c.as_mut_ptr());
    for j in 0..32 {
        for half in 0..2 {
            let (row, column) = (row + 8 * half as u32, column + 8 * j as u32);
            let sum = [registers[4 * j + 2 * half], registers[4 * j + 2 * half + 1]];
            if row < m && column < n {
                let index = (u64::from(row) * u64::from(n) + u64::from(column)) / 2;
                // SAFETY: the pair is within C, and no other thread writes it.
                unsafe { pairs.add(index as usize).write(Pair(sum.map(bf16::from_f32))) };
            }
        }
    }
}
