//! A minimal GEMM on the tensor cores of compute capability 9.0, at some 85 % of the speed of `warpsmith::ops::matmul`.
//! `docs/tensor-cores.md` explains and extends it.

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::tensor::{Accumulator, PipelineState, SharedMemory, TensorMap, barrier, warpgroup};
use gpu_std::vectorized::{each, load_or};

/// Block tile: rows and columns of C, and the depth in K of a stage.
pub const TILE: [u32; 3] = [128, 256, 64];
/// Number of pipeline stages.
pub const STAGES: usize = 4;
/// Threads per block: a producer warpgroup, and two consumer warpgroups.
pub const THREADS: u32 = 384;
/// Bytes per stage: 128 rows of A and 256 rows of B, of 128 bytes each.
const STAGE_BYTES: u32 = (TILE[0] + TILE[1]) * 128;
/// Dynamic shared memory per block in bytes.
pub const SHARED_BYTES: u32 = SharedMemory::bytes(STAGES as u32 * STAGE_BYTES, 2 * STAGES as u32);

/// Two adjacent elements of C.
#[derive(Clone, Copy, KernelType)]
#[repr(C, align(4))]
pub struct Pair(pub [bf16; 2]);

/// Computes `c = a * b^T`, with row-major `a` (m x k), `b` (n x k) and `c` (m x n). Each block computes one tile; the
/// tiles are in row-major order.
///
/// # Safety
/// The boxes of `a` have 128 rows and the boxes of `b` 256 rows, of 64 columns each, with `Swizzle::Bytes128`. `c` has
/// m rows of `n / 2` pairs, and the launch has [`SHARED_BYTES`] of dynamic shared memory.
#[kernel(arch = "90a", block(THREADS), no_panic)]
pub unsafe fn multiply(
    a: &TensorMap<bf16, 2>,
    b: &TensorMap<bf16, 2>,
    mut c: DisjointMut<Pair>,
    sides: [u32; 3],
) {
    let [m, n, k] = sides;
    // 1. Every thread carves out the same tiles and barriers. A full barrier waits for one copy, an empty barrier for
    //    two consumer warpgroups.
    // SAFETY: the launch has the memory.
    let mut memory = unsafe { SharedMemory::new() };
    let (a_tiles, b_tiles) = (memory.tiles::<bf16, 128, STAGES>(), memory.tiles::<bf16, 256, STAGES>());
    let (full, empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    if thread::linear_in_block() == 0 {
        // SAFETY: all threads synchronize before any of them uses the barriers.
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
    let (warp, stages) = (warpgroup::warp_index(), k.div_ceil(TILE[2]));
    let mut slot = PipelineState::new();
    if warp < 4 {
        // 2. One thread copies: it waits until a stage is empty, and the full barrier counts the bytes that arrive.
        // SAFETY: all lanes of the warp are here.
        if warp == 0 && unsafe { warpgroup::elect() } {
            for stage in 0..stages {
                let (at, loaded) = (stage * TILE[2], full.at(slot));
                // SAFETY: nothing reads the stage any longer.
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

    // 3. Each consumer warpgroup multiplies 64 rows of A by all of B. The sums stay in registers, 128 per thread.
    let group = warp / 4 - 1;
    let mut sums = Accumulator::<256>::new();
    for stage in 0..stages {
        // SAFETY: the stage is full, and is released when its `wgmma` operations are done.
        unsafe {
            full.at(slot).wait(slot.parity());
            let mut batch = sums.pending().begin();
            batch.mma(a_tiles.at(slot).rows::<64>(group), b_tiles.at(slot), stage > 0);
            sums = batch.commit().wait();
            if thread::linear_in_block().is_multiple_of(warpgroup::THREADS) {
                empty.at(slot).arrive();
            }
        }
        slot.advance();
    }

    // 4. A thread holds two adjacent columns of every eight, in two rows.
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

/// Threads per block of [`mma_rate()`].
pub const RATE_THREADS: u32 = 256;
/// Number of operand bytes along K that a block of [`mma_rate()`] multiplies per round, times 2 for the multiplications
/// and additions.
pub const RATE_BYTES: f64 = (RATE_THREADS / 32 * 32 * 2 * 16 * 8 * 32) as f64;

/// Multiplies operands in registers with `mma.sync`, as a warp of a GEMM does for 64 x 64 sums, in order to measure the
/// rate of the tensor cores. `out` receives the sum of each thread.
///
/// # Safety
/// `x` has 32 * [`RATE_THREADS`] words of packed numbers.
#[kernel(
    types(T = bf16, f32, i8),
    arch = 80,
    block(RATE_THREADS),
    launch_bounds(RATE_THREADS, 1),
    no_panic
)]
pub unsafe fn mma_rate<T: WarpOperand>(x: &[u32], mut out: DisjointMut<f32>, rounds: u32) {
    let thread = thread::thread_idx_x() as usize;
    // SAFETY: guaranteed by the caller.
    let number = |i: usize| unsafe { *x.get_unchecked(i * RATE_THREADS as usize + thread) };
    let a: [[u32; 4]; 4] = from_fn(|i| from_fn(|j| number(4 * i + j)));
    let b: [[u32; 2]; 8] = from_fn(|i| from_fn(|j| number(16 + 2 * i + j)));
    let mut sums = [[[T::Sum::ZERO; 4]; 8]; 4];
    let mut round = 0;
    while round < rounds {
        each::<8>(|j| {
            each::<4>(|i| {
                // SAFETY: the whole warp executes this call.
                sums[i][j] = unsafe { mma::<T>(sums[i][j], a[i], b[j]) };
            });
        });
        round += 1;
    }
    let mut sum = T::Sum::ZERO;
    each::<4>(|i| each::<8>(|j| each::<4>(|k| sum = sum.wrapping_add(sums[i][j][k]))));
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = sum.cast();
    }
}

/// Threads per block of [`read_rate()`].
pub const READ_THREADS: u32 = 256;
/// Number of 16-byte loads that each thread of [`read_rate()`] issues at once.
const READS: usize = 8;

/// Reads all whole chunks of 32 KiB of `x`, in order to measure the rate of the memory. The chunks of the blocks are
/// interleaved. `out` receives an exclusive or if it is `u32::MAX`, so that the loads are not removed.
///
/// # Safety
/// `x` starts on a 16-byte boundary.
#[kernel(arch = 80, block(READ_THREADS), no_panic)]
pub unsafe fn read_rate(x: &[u32], mut out: DisjointMut<u32>) {
    const CHUNK: usize = READ_THREADS as usize * READS * 4;
    let mut all = 0;
    let mut first = thread::block_idx_x() as usize * CHUNK;
    while first + CHUNK <= x.len() {
        let from = x.as_ptr().wrapping_add(first + 4 * thread::thread_idx_x() as usize);
        let loaded: [[u32; 4]; READS] = from_fn(|i| {
            // SAFETY: the chunk is inside `x`, which nothing writes.
            unsafe {
                load_or::<u32, 4, false>(from.wrapping_add(i * 4 * READ_THREADS as usize), true, [0; 4])
            }
        });
        each::<READS>(|i| all ^= loaded[i][0] ^ loaded[i][1] ^ loaded[i][2] ^ loaded[i][3]);
        first += thread::grid_dim_x() as usize * CHUNK;
    }
    if all == u32::MAX
        && let Some(out) = out.get_mut(thread::unique_index())
    {
        *out = all;
    }
}
