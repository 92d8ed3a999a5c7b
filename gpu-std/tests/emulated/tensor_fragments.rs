//! Products whose left operand is in registers, concurrent with batches of another accumulator: exact results, and
//! seeded bugs.

use gpu_std::TensorMap;
use gpu_std::prelude::*;
use gpu_std::tensor::copy::fence_tiles;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Columns, Fragments, Half, KMajor, Major, MnMajor, PipelineState, SharedMemory, barrier,
    warpgroup,
};
use warpsmith_emulator::Fault;

use crate::common::{Args, launch_shared};
use crate::tensor::map;

/// Seeded bugs of the kernel.
const NONE: u32 = 0;
const OVERWRITTEN_WHILE_READ: u32 = 1;
const WARP_MISSING: u32 = 2;
const LANES_DIFFER: u32 = 3;

/// Stores the registers of `a * b^T` in `first[thread]`, and the registers of the rounded product times `c` in
/// `second[thread]`. `a` has 64 rows and `b` has K rows, both of 64 columns. `c` is K x N, with the layout M.
///
/// # Safety
/// The launch must provide shared memory for all tiles and a barrier. The maps must have boxes of 64 rows, or of N rows
/// for a K-major `c`.
#[kernel(
    types(T = bf16, f16; M = KMajor, MnMajor),
    consts(K = 64, 128, 192, 256; N = 64, 128, 256),
    arch = "90a",
    block(128)
)]
unsafe fn twice<T: Half, M: Major, const K: usize, const N: usize>(
    a: &TensorMap<T, 2>,
    b: &TensorMap<T, 2>,
    c: &TensorMap<T, 2>,
    first: *mut f32,
    second: *mut f32,
    fault: u32,
) where
    Columns<K>: Depth,
    Columns<N>: Width,
{
    // SAFETY: guaranteed by the caller, except for seeded bugs; the barrier is initialized before it is used.
    unsafe {
        let mut memory = SharedMemory::new();
        let a_tile = memory.tiles::<T, 64, 1>().tile::<0>();
        let b_tile = memory.tiles::<T, K, 1>().tile::<0>();
        let c_tiles = memory.tiles::<T, N, 4>();
        let loaded = memory.barriers::<1>().at(PipelineState::new());
        let parts = K as u32 / 64;
        let lead = thread::linear_in_block() == 0;
        if lead {
            loaded.init(1);
            barrier::publish();
        }
        thread::sync_threads();
        if lead {
            loaded.arrive_expecting(128 * (64 + K as u32 + parts * N as u32));
            a.load(a_tile, [0, 0], loaded);
            let mut slot = PipelineState::new();
            for part in 0..parts {
                let tile = c_tiles.at(slot);
                b.load(b_tile.rows::<64>(part), [0, 64 * part], loaded);
                if M::IS_TRANSPOSED {
                    for columns in 0..N as u32 / 64 {
                        c.load(tile.rows::<64>(columns), [64 * columns, 64 * part], loaded);
                    }
                } else {
                    c.load(tile, [64 * part, 0], loaded);
                }
                slot.advance();
            }
        }
        loaded.wait(0);
        let mut batch = Accumulator::<K>::new().pending().begin();
        batch.mma(a_tile, b_tile, false);
        let sums = batch.commit().wait();
        let fragments = Fragments::<T, K>::new(sums.registers());
        if fault == WARP_MISSING && thread::linear_in_block() >= 96 {
            return;
        }

        // Issues the same product again. It is in flight together with the product of the fragments, which ends later.
        let mut batch = sums.pending().begin();
        batch.mma(a_tile, b_tile, false);
        let again = batch.commit();
        let mut batch = Accumulator::<N>::new().pending().begin_with(fragments);
        let mut slot = PipelineState::new();
        for part in 0..parts {
            let part = if fault == LANES_DIFFER && warp::lane_id() == 5 { 0 } else { part };
            batch.mma_fragments::<M>(part, c_tiles.at(slot), part > 0);
            slot.advance();
        }
        let product = batch.commit();
        let again = again.wait_leaving::<1>();
        if fault == OVERWRITTEN_WHILE_READ {
            c_tiles.tile::<0>().store_chunk(warpgroup::warp_index(), 0, [0; 4]);
            fence_tiles();
        }
        let product = product.wait();
        for (registers, out) in [(again.registers().as_ref(), first), (product.registers().as_ref(), second)]
        {
            let own = out.add(thread::linear_in_block() as usize * registers.len());
            registers.iter().enumerate().for_each(|(i, &register)| own.add(i).write(register));
        }
    }
}

/// Assembles the matrix of 64 x `columns` from the threads' registers.
fn gathered(registers: &[f32], columns: usize) -> Vec<f32> {
    let mut matrix = vec![f32::NAN; 64 * columns];
    for (i, &value) in registers.iter().enumerate() {
        let (thread, register) = (i / (columns / 2), i % (columns / 2));
        let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (register / 2 % 2);
        let column = 8 * (register / 4) + 2 * (thread % 4) + register % 2;
        matrix[row * columns + column] = value;
    }
    matrix
}

/// Memory whose rows start at multiples of 16 bytes.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Chunk(#[expect(dead_code, reason = "read by address")] [u16; 8]);

fn stored(rows: usize, columns: usize, of: impl Fn(usize, usize) -> u16) -> Vec<Chunk> {
    (0..rows * columns / 8)
        .map(|chunk| Chunk(std::array::from_fn(|i| of((8 * chunk + i) / columns, (8 * chunk + i) % columns))))
        .collect()
}

/// Returns the second product and the expected one, of integers whose sums are exact in both types.
fn product<T: Half, M: Major, const K: usize, const N: usize>(
    fault: u32,
) -> Result<(Vec<f32>, Vec<f32>), Fault>
where
    twice<T, M, K, N>: gpu_std::Kernel,
{
    let bits = |integer: usize| (T::pack(integer as f32, 0.0) & 0xffff) as u16;
    let a_at = |row: usize, k: usize| usize::from((row * 5 + k * 7).is_multiple_of(11));
    let b_at = |row: usize, k: usize| (row * 3 + k * 11) % 5 % 3;
    let c_at = |k: usize, column: usize| (k * 13 + column * 5) % 7 % 3;
    let a = stored(64, 64, |row, k| bits(a_at(row, k)));
    let b = stored(K, 64, |row, k| bits(b_at(row, k)));
    let c = match M::IS_TRANSPOSED {
        true => stored(K, N, |k, column| bits(c_at(k, column))),
        false => stored(N, K, |column, k| bits(c_at(k, column))),
    };
    let (mut first, mut second) = (vec![f32::NAN; 64 * K], vec![f32::NAN; 64 * N]);
    let c_map = match M::IS_TRANSPOSED {
        true => map(c.as_ptr().cast::<u16>(), [K, N], N, 64),
        false => map(c.as_ptr().cast::<u16>(), [N, K], K, N as u32),
    };
    let args = Args::new()
        .value(map(a.as_ptr().cast::<u16>(), [64, 64], 64, 64))
        .value(map(b.as_ptr().cast::<u16>(), [K, 64], 64, 64))
        .value(c_map)
        .value(first.as_mut_ptr())
        .value(second.as_mut_ptr())
        .value(fault);
    let bytes = SharedMemory::bytes(128 * (64 + K as u32 + 4 * N as u32), 1);
    launch_shared::<twice<T, M, K, N>>([1; 3], [128, 1, 1], bytes, &args)?;

    let dot = |row: usize, column: usize| (0..64).map(|k| a_at(row, k) * b_at(column, k)).sum::<usize>();
    let scores: Vec<usize> = (0..64 * K).map(|i| dot(i / K, i % K)).collect();
    assert_eq!(gathered(&first, K), scores.iter().map(|&sum| sum as f32).collect::<Vec<_>>());
    let dot = |i: usize| (0..K).map(|k| scores[i / N * K + k] * c_at(k, i % N)).sum::<usize>() as f32;
    Ok((gathered(&second, N), (0..64 * N).map(dot).collect()))
}

#[test]
fn products_of_fragments_are_exact() {
    macro_rules! check {
        ($($k:literal * $n:literal),*) => { $(
            for (found, expected) in [
                product::<bf16, KMajor, $k, $n>(NONE).unwrap(),
                product::<bf16, MnMajor, $k, $n>(NONE).unwrap(),
                product::<f16, KMajor, $k, $n>(NONE).unwrap(),
                product::<f16, MnMajor, $k, $n>(NONE).unwrap(),
            ] {
                assert_eq!(found, expected, "{} columns of fragments, {} of sums", $k, $n);
                assert!(expected.iter().any(|sum| *sum != expected[0]));
            }
        )* };
    }
    check!(64 * 64, 64 * 128, 64 * 256, 128 * 64, 128 * 128, 192 * 128, 256 * 64, 256 * 256);
}

#[test]
fn fragments_are_rounded_to_nearest_even() {
    let half = |x: f32| f32::from_bits(x.to_bits() + 0x8000);
    assert_eq!(bf16::pack(half(1.0), -2.0), 0xc000_3f80);
    assert_eq!(bf16::pack(half(f32::from_bits(0x3f81_0000)), f32::INFINITY), 0x7f80_3f82);
    assert_eq!(f16::pack(1.0 + 1.0 / 2048.0, 65536.0), 0x7c00_3c00);
}

#[test]
fn tiles_overwritten_while_read_beside_fragments_give_wrong_products() {
    let (found, expected) = product::<bf16, MnMajor, 64, 64>(OVERWRITTEN_WHILE_READ).unwrap();
    assert_ne!(found, expected);
}

#[test]
fn a_warp_missing_from_a_product_of_fragments_is_a_deadlock() {
    let fault = product::<f16, KMajor, 128, 64>(WARP_MISSING).unwrap_err().to_string();
    assert!(fault.contains("deadlock") && fault.contains("wgmma"), "{fault}");
}

#[test]
fn lanes_that_multiply_other_fragments_are_named() {
    let fault = product::<bf16, KMajor, 128, 64>(LANES_DIFFER).unwrap_err().to_string();
    assert!(fault.contains("must multiply the same tiles"), "{fault}");
}
