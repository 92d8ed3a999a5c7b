//! TMA copies and barriers of `gpu_std::tensor`: correct results, and seeded bugs, each of which must be found.

use gpu_spec::{Swizzle, TensorMapData, TensorMapSpec};
use gpu_std::prelude::*;
use gpu_std::tensor::copy::{commit_stores, wait_stores};
use gpu_std::tensor::{PipelineState, SharedMemory, barrier, warpgroup};
use gpu_std::{Instance, TensorMap};
use warpsmith_emulator::Fault;

use crate::common::{Args, launch_shared};

/// Seeded bugs.
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
const COUNTS_DISAGREE: u32 = 12;

/// Copies a box of 64 x 64 from one tensor to another, at `at`.
#[kernel(consts(FAULT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12), arch = "90a", block(128))]
unsafe fn copy_box<const FAULT: u32>(from: &TensorMap<u16, 2>, to: &TensorMap<u16, 2>, at: [u32; 2]) {
    // SAFETY: the launch has enough shared memory. The barrier is initialized before it is used, and all copies are
    // waited for, except where a bug is seeded.
    unsafe {
        let mut memory = SharedMemory::new();
        let tile = memory.tiles::<u16, 64, 1>().tile::<0>();
        let loaded = memory.barriers::<1>();
        let slot = PipelineState::new();
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
        // The other threads alone are too few for either count, no matter which arrives first.
        warpgroup::sync(1, if others { 96 } else { 128 });
        if thread::linear_in_block() == 0 {
            to.store(tile, at);
            commit_stores();
            if FAULT != STORE_NOT_AWAITED {
                wait_stores();
            }
        }
        // The data of an early store must not arrive in time by chance.
        thread::sync_threads();
        if FAULT == NO_WAIT || FAULT == WRONG_PARITY {
            loaded.at(slot).wait(0);
        }
    }
}

/// Creates a map of `rows` x `columns` elements at `address`, with a row pitch of `pitch` and boxes of `tile` rows of
/// 128 bytes.
pub fn map<T>(address: *const T, [rows, columns]: [usize; 2], pitch: usize, tile: u32) -> TensorMapData {
    let spec = TensorMapSpec {
        element_bytes: size_of::<T>() as u32,
        rank: 2,
        address: address.expose_provenance() as u64,
        dims: [columns as u64, rows as u64, 0, 0, 0],
        strides: [(pitch * size_of::<T>()) as u64, 0, 0, 0],
        tile: [128 / size_of::<T>() as u32, tile, 0, 0, 0],
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

/// Copies a box of a matrix of 100 x 120 elements at `at` to a matrix of the same size, and returns the contents of the
/// latter.
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
        (text(copied::<TOO_MANY_ARRIVALS>([0, 0])), "more threads than the expected 1 arrived in a phase"),
        (text(copied::<HALF_THE_BYTES>([0, 0])), "every thread waits"),
        (text(copied::<STORE_NOT_AWAITED>([0, 0])), "1 tile stores were not awaited"),
        (text(copied::<LOAD_NOT_AWAITED>([0, 0])), "1 tile loads were not awaited"),
        (
            text(copied::<OTHER_BOX>([0, 0])),
            "the box of the tensor map has 8192 bytes, but the tile has 1024",
        ),
        (text(copied::<COUNTS_DISAGREE>([0, 0])), "the threads at barrier 1 diverge"),
    ] {
        // Faults about operations that are still pending at the end of a block have no source location.
        let has_place = fault.contains("tensor.rs");
        assert!(fault.contains(part) && has_place != part.contains("not awaited"), "{fault}");
    }
}
