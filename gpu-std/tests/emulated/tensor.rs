//! Copies of tensors, barriers and products of `gpu_std::tensor`: right results, and planted faults, each of which is found.

use gpu_spec::{Swizzle, TensorMapData, TensorMapSpec};
use gpu_std::prelude::*;
use gpu_std::tensor::copy::{commit_stores, fence_tiles, wait_stores};
use gpu_std::tensor::{Accumulator, Columns, Operand, SharedMemory, Slot, barrier, warp_group, wgmma};
use gpu_std::{Instance, TensorMap};
use warpsmith_emulator::Fault;

use crate::common::{Args, launch_shared};

/// What is planted.
const NONE: u32 = 0;
const NO_WAIT: u32 = 1;
const WRONG_PARITY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const TOO_FEW_ARRIVALS: u32 = 4;
const TOO_MANY_ARRIVALS: u32 = 5;
const HALF_THE_BYTES: u32 = 6;
const STORE_NOT_AWAITED: u32 = 7;
const OTHER_BOX: u32 = 8;
const LOAD_NOT_AWAITED: u32 = 9;
const OVERWRITTEN_WHILE_READ: u32 = 10;
const WARP_MISSING: u32 = 11;
const COUNTS_DISAGREE: u32 = 12;

/// Copies a box of 64 x 64 from one tensor to another, at `at`.
#[kernel(consts(FAULT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12), arch = "90a", block(128))]
unsafe fn copy_box<const FAULT: u32>(from: &TensorMap<u16, 2>, to: &TensorMap<u16, 2>, at: [u32; 2]) {
    // SAFETY: the launch has this much; the barrier is initialized before it is used, and all is waited for, but where a fault
    // is planted.
    unsafe {
        let mut memory = SharedMemory::new();
        let tile = memory.tiles::<u16, 64, 64, 1>().tile::<0>();
        let loaded = memory.barriers::<1>();
        let slot = Slot::new();
        if thread::linear_in_block() == 0 && FAULT != NOT_INITIALIZED {
            loaded.init(if FAULT == TOO_FEW_ARRIVALS { 2 } else { 1 });
            barrier::publish();
        }
        thread::sync_threads();
        if thread::linear_in_block() == 0 {
            loaded.at(slot).arrive_expecting(if FAULT == HALF_THE_BYTES { 4096 } else { 8192 });
            if FAULT == OTHER_BOX {
                from.load(tile.rows::<8>(0), at, loaded.at(slot));
            } else {
                from.load(tile, at, loaded.at(slot));
            }
            if FAULT == TOO_MANY_ARRIVALS {
                loaded.at(slot).arrive();
            }
        }
        if FAULT == LOAD_NOT_AWAITED {
            return;
        }
        if FAULT != NO_WAIT {
            loaded.at(slot).wait(if FAULT == WRONG_PARITY { 1 } else { 0 });
        }
        let others = FAULT == COUNTS_DISAGREE && thread::linear_in_block() >= 64;
        warp_group::sync(1, if others { 64 } else { 128 });
        if thread::linear_in_block() == 0 {
            to.store(tile, at);
            commit_stores();
            if FAULT != STORE_NOT_AWAITED {
                wait_stores();
            }
        }
        // What an early store has stored must not arrive in time by chance.
        thread::sync_threads();
        if FAULT == NO_WAIT || FAULT == WRONG_PARITY {
            loaded.at(slot).wait(0);
        }
    }
}

/// `out[thread] = registers` of `a * b^T`, with `a` of 64 x 128 and `b` of N x 128, in two batches.
#[kernel(types(T = bf16, f16), consts(N = 64, 128, 192, 256; FAULT = 0, 10, 11), arch = "90a", block(128))]
unsafe fn multiply<T: Operand, const N: usize, const FAULT: u32>(
    a: &TensorMap<T, 2>,
    b: &TensorMap<T, 2>,
    out: *mut f32,
) where
    Columns<N>: wgmma::Width,
{
    // SAFETY: as above; `out` has the registers of all threads.
    unsafe {
        let mut memory = SharedMemory::new();
        let (a_tiles, b_tiles) = (memory.tiles::<T, 64, 64, 2>(), memory.tiles::<T, N, 64, 2>());
        let loaded = memory.barriers::<2>();
        let lead = thread::linear_in_block() == 0;
        if lead {
            loaded.init(1);
            barrier::publish();
        }
        thread::sync_threads();
        let mut slot = Slot::new();
        for step in 0..2 {
            if lead {
                loaded.at(slot).arrive_expecting(8192 + 128 * N as u32);
                a.load(a_tiles.at(slot), [64 * step, 0], loaded.at(slot));
                b.load(b_tiles.at(slot), [64 * step, 0], loaded.at(slot));
            }
            slot.advance();
        }
        if FAULT == WARP_MISSING && thread::linear_in_block() >= 96 {
            return;
        }
        let mut slot = Slot::new();
        let mut running = Accumulator::<N>::new().pending();
        for step in 0..2 {
            loaded.at(slot).wait(0);
            let mut batch = running.begin();
            batch.mma(a_tiles.at(slot), b_tiles.at(slot), step > 0);
            running = batch.commit();
            slot.advance();
        }
        running.wait_for_earlier();
        if FAULT == OVERWRITTEN_WHILE_READ {
            a_tiles.tile::<1>().store_matrices(0, 0, [0; 4]);
            fence_tiles();
        }
        let sums = running.wait();
        let registers: &[f32] = sums.registers().as_ref();
        let own = out.add(thread::linear_in_block() as usize * registers.len());
        registers.iter().enumerate().for_each(|(i, &register)| own.add(i).write(register));
    }
}

/// A map of `rows` x `columns` elements at `address`, one row every `pitch`, with boxes of `tile` rows and 64 columns.
fn map<T>(address: *const T, [rows, columns]: [usize; 2], pitch: usize, tile: u32) -> TensorMapData {
    let spec = TensorMapSpec {
        element_bytes: size_of::<T>() as u32,
        rank: 2,
        address: address.expose_provenance() as u64,
        dims: [columns as u64, rows as u64, 0, 0, 0],
        strides: [(pitch * size_of::<T>()) as u64, 0, 0, 0],
        tile: [64, tile, 0, 0, 0],
        swizzle: Swizzle::Bytes128,
    };
    spec.check().unwrap();
    spec.encode()
}

/// Memory for 16-byte aligned rows.
#[derive(Clone)]
#[repr(align(16))]
struct Chunk([u16; 8]);

fn chunks(count: usize, of: impl Fn(usize) -> u16) -> Vec<Chunk> {
    (0..count).map(|chunk| Chunk(std::array::from_fn(|i| of(8 * chunk + i)))).collect()
}

fn numbers(chunks: &[Chunk]) -> Vec<u16> {
    chunks.iter().flat_map(|chunk| chunk.0).collect()
}

const POISON: u16 = 0xeeee;

/// A box of a matrix of 100 x 120 elements at `at`, copied into one of the same size; what the other holds then.
fn copied<const FAULT: u32>(at: [u32; 2]) -> Result<Vec<u16>, Fault>
where
    copy_box<FAULT>: Instance,
{
    let from = chunks(100 * 15, |i| i as u16);
    let mut to = chunks(100 * 15, |_| POISON);
    let of = |address: *const Chunk| map(address.cast::<u16>(), [100, 120], 120, 64);
    let args = Args::new().value(of(from.as_ptr())).value(of(to.as_mut_ptr())).value(at);
    launch_shared::<copy_box<FAULT>>([1; 3], [128, 1, 1], SharedMemory::bytes(8192, 1), &args)?;
    Ok(numbers(&to))
}

#[test]
fn boxes_are_copied_and_clipped() {
    for [x, y] in [[0, 0], [64, 0], [56, 36], [64, 64], [8, 99]] {
        let to = copied::<NONE>([x, y]).unwrap();
        for (i, &value) in to.iter().enumerate() {
            let (column, row) = ((i % 120) as u32, (i / 120) as u32);
            let inside = (x..x + 64).contains(&column) && (y..y + 64).contains(&row);
            assert_eq!(value, if inside { i as u16 } else { POISON }, "box {x}, {y}: {column}, {row}");
        }
    }
}

#[test]
fn a_copy_arrives_only_when_awaited() {
    let right = copied::<NONE>([0, 0]).unwrap();
    for wrong in [copied::<NO_WAIT>([0, 0]).unwrap(), copied::<WRONG_PARITY>([0, 0]).unwrap()] {
        assert_ne!(wrong, right);
        assert_eq!(wrong[0], 0xa5a5, "poison was stored");
    }
}

#[test]
fn misused_barriers_and_copies_are_faults() {
    let text = |result: Result<Vec<u16>, Fault>| result.map(drop).unwrap_err().to_string();
    for (fault, part) in [
        (text(copied::<NOT_INITIALIZED>([0, 0])), "is not initialized"),
        (text(copied::<TOO_FEW_ARRIVALS>([0, 0])), "every thread waits"),
        (text(copied::<TOO_MANY_ARRIVALS>([0, 0])), "more arrivals than the 1 of a phase"),
        (text(copied::<HALF_THE_BYTES>([0, 0])), "every thread waits"),
        (text(copied::<STORE_NOT_AWAITED>([0, 0])), "1 stores of tiles were not waited for"),
        (text(copied::<LOAD_NOT_AWAITED>([0, 0])), "1 loads of tiles were not waited for"),
        (text(copied::<OTHER_BOX>([0, 0])), "the box of the tensor map has 8192 bytes, the tile 1024"),
        (text(copied::<COUNTS_DISAGREE>([0, 0])), "the threads at barrier 1 disagree"),
    ] {
        // What is left of a block has no place.
        let has_place = fault.contains("tensor.rs");
        assert!(fault.contains(part) && has_place != part.contains("of tiles"), "{fault}");
    }
}

/// The product of two matrices of small integers, by the places that registers have.
fn product<T, const N: usize, const FAULT: u32>(of: fn(f32) -> u16) -> Result<(Vec<f32>, Vec<f32>), Fault>
where
    T: Operand,
    Columns<N>: wgmma::Width,
    multiply<T, N, FAULT>: Instance,
{
    let [a_at, b_at] = [|i: usize| (i * 7 % 5) as f32 - 2.0, |i: usize| (i * 11 % 7) as f32 - 3.0];
    let (a, b) = (chunks(64 * 16, |i| of(a_at(i))), chunks(N * 16, |i| of(b_at(i))));
    let mut out = vec![f32::NAN; 128 * N / 2];
    let args = Args::new()
        .value(map(a.as_ptr().cast::<u16>(), [64, 128], 128, 64))
        .value(map(b.as_ptr().cast::<u16>(), [N, 128], 128, N as u32))
        .value(out.as_mut_ptr());
    let bytes = SharedMemory::bytes(2 * 128 * (64 + N as u32), 2);
    launch_shared::<multiply<T, N, FAULT>>([1; 3], [128, 1, 1], bytes, &args)?;
    let mut found = vec![f32::NAN; 64 * N];
    for (i, value) in out.into_iter().enumerate() {
        let (thread, register) = (i / (N / 2), i % (N / 2));
        let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (register / 2 % 2);
        let column = 8 * (register / 4) + 2 * (thread % 4) + register % 2;
        found[row * N + column] = value;
    }
    let dot = |i: usize| (0..128).map(|k| a_at(i / N * 128 + k) * b_at(i % N * 128 + k)).sum();
    Ok((found, (0..64 * N).map(dot).collect()))
}

#[test]
fn products_of_all_widths_are_exact() {
    macro_rules! check {
        ($($ty:ident: $($n:literal)*;)*) => { $($(
            let (found, expected) = product::<$ty, $n, NONE>(|x| $ty::from_f32(x).to_bits()).unwrap();
            assert_eq!(found, expected, "{} {}", stringify!($ty), $n);
        )*)* };
    }
    check! {
        bf16: 64 128 192 256;
        f16: 64 128 192 256;
    }
}

#[test]
fn tiles_overwritten_while_read_give_wrong_products() {
    let of = |x| bf16::from_f32(x).to_bits();
    let (found, expected) = product::<bf16, 64, OVERWRITTEN_WHILE_READ>(of).unwrap();
    assert_ne!(found, expected);
}

#[test]
fn a_missing_warp_is_a_deadlock() {
    let fault = product::<bf16, 64, WARP_MISSING>(|x| bf16::from_f32(x).to_bits()).unwrap_err().to_string();
    assert!(fault.contains("deadlock") && fault.contains("wgmma"), "{fault}");
}
