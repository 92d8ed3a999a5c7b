//! Products of `gpu_std::tensor`, for all types, widths and layouts: exact results, and seeded bugs, each of which must
//! be found.

use std::fmt::Debug;

use gpu_std::TensorMap;
use gpu_std::prelude::*;
use gpu_std::tensor::copy::fence_tiles;
use gpu_std::tensor::{
    Accumulator, Columns, F8E4M3, F8E5M2, KMajor, Major, MnMajor, Multiply, Operand, Output, PipelineState,
    SharedMemory, SharedTile, barrier, wgmma,
};
use warpsmith_emulator::Fault;

use crate::common::{Args, launch_shared};
use crate::tensor::map;

/// Stores in `out[thread]` the registers of `a * b^T`, with `a` of 64 rows and `b` of N rows of 256 bytes, in two
/// batches. Calls `meanwhile` with the second tile of `a` while it is read.
///
/// # Safety
/// The launch must provide shared memory for two tiles of both and two barriers. The maps must have boxes of 64 or N
/// rows, and `out` must have space for all registers.
#[inline(always)]
unsafe fn multiply<A, B, AM: Major, BM: Major, const N: usize>(
    a: &TensorMap<A, 2>,
    b: &TensorMap<B, 2>,
    out: *mut A::Sum,
    threads: u32,
    meanwhile: impl Fn(SharedTile<A, 64>),
) where
    A: Multiply<B>,
    B: Operand<Sum = A::Sum>,
    Columns<N>: wgmma::Width,
{
    // SAFETY: guaranteed by the caller; the barriers are initialized before they are used, and all copies and products
    // are waited for.
    unsafe {
        let mut memory = SharedMemory::new();
        let (a_tiles, b_tiles) = (memory.tiles::<A, 64, 2>(), memory.tiles::<B, N, 2>());
        let loaded = memory.barriers::<2>();
        let lead = thread::linear_in_block() == 0;
        if lead {
            loaded.init(1);
            barrier::publish();
        }
        thread::sync_threads();
        let mut slot = PipelineState::new();
        for step in 0..2 {
            if lead {
                let (b_tile, barrier) = (b_tiles.at(slot), loaded.at(slot));
                let at = SharedTile::<A, 64>::COLUMNS * step;
                barrier.arrive_expecting(8192 + 128 * N as u32);
                a.load(a_tiles.at(slot), if AM::IS_TRANSPOSED { [0, at] } else { [at, 0] }, barrier);
                if BM::IS_TRANSPOSED {
                    for part in 0..N as u32 / 64 {
                        b.load(b_tile.rows::<64>(part), [64 * part, at], barrier);
                    }
                } else {
                    b.load(b_tile, [at, 0], barrier);
                }
            }
            slot.advance();
        }
        if thread::linear_in_block() >= threads {
            return;
        }
        let mut slot = PipelineState::new();
        let mut running = Accumulator::<N, A::Sum>::new().pending();
        for step in 0..2 {
            loaded.at(slot).wait(0);
            let mut batch = running.begin();
            batch.mma_of::<AM, BM, A, B>(a_tiles.at(slot), b_tiles.at(slot), step > 0);
            running = batch.commit();
            slot.advance();
        }
        running.wait_for_earlier();
        meanwhile(a_tiles.tile::<1>());
        let sums = running.wait();
        let registers: &[A::Sum] = sums.registers().as_ref();
        let own = out.add(thread::linear_in_block() as usize * registers.len());
        registers.iter().enumerate().for_each(|(i, &register)| own.add(i).write(register));
    }
}

#[kernel(
    types(T = bf16, f16, f32, F8E4M3, F8E5M2, i8, u8),
    consts(N = 8, 16, 32, 64, 96, 128, 192, 256),
    arch = "90a",
    block(128)
)]
unsafe fn widths<T: Multiply, const N: usize>(a: &TensorMap<T, 2>, b: &TensorMap<T, 2>, out: *mut T::Sum)
where
    Columns<N>: wgmma::Width,
{
    // SAFETY: the launch satisfies the conditions of `multiply`.
    unsafe { multiply::<T, T, KMajor, KMajor, N>(a, b, out, 128, |_| ()) }
}

#[kernel(
    types(T = bf16, f16; AM = KMajor, MnMajor; BM = KMajor, MnMajor),
    consts(N = 64, 128, 192, 256),
    arch = "90a",
    block(128)
)]
unsafe fn layouts<T: Multiply, AM: Major, BM: Major, const N: usize>(
    a: &TensorMap<T, 2>,
    b: &TensorMap<T, 2>,
    out: *mut T::Sum,
) where
    Columns<N>: wgmma::Width,
{
    // SAFETY: as above.
    unsafe { multiply::<T, T, AM, BM, N>(a, b, out, 128, |_| ()) }
}

#[kernel(types(A = F8E4M3, F8E5M2; B = F8E4M3, F8E5M2), arch = "90a", block(128))]
unsafe fn floats_of_8_bits<A: Multiply<B, Sum = f32>, B: Operand<Sum = f32>>(
    a: &TensorMap<A, 2>,
    b: &TensorMap<B, 2>,
    out: *mut f32,
) {
    // SAFETY: as above.
    unsafe { multiply::<A, B, KMajor, KMajor, 64>(a, b, out, 128, |_| ()) }
}

#[kernel(types(A = i8, u8; B = i8, u8), arch = "90a", block(128))]
unsafe fn integers_of_8_bits<A: Multiply<B, Sum = i32>, B: Operand<Sum = i32>>(
    a: &TensorMap<A, 2>,
    b: &TensorMap<B, 2>,
    out: *mut i32,
) {
    // SAFETY: as above.
    unsafe { multiply::<A, B, KMajor, KMajor, 64>(a, b, out, 128, |_| ()) }
}

#[kernel(arch = "90a", block(128))]
unsafe fn overwritten_while_read(a: &TensorMap<bf16, 2>, b: &TensorMap<bf16, 2>, out: *mut f32) {
    // SAFETY: as above, except for the seeded bug.
    unsafe {
        multiply::<bf16, bf16, KMajor, KMajor, 64>(a, b, out, 128, |tile| {
            bf16::store(tile, 0, 0, [0.0; 8]);
            fence_tiles();
        });
    }
}

#[kernel(arch = "90a", block(128))]
unsafe fn warp_missing(a: &TensorMap<bf16, 2>, b: &TensorMap<bf16, 2>, out: *mut f32) {
    // SAFETY: as above, except for the seeded bug.
    unsafe { multiply::<bf16, bf16, KMajor, KMajor, 64>(a, b, out, 96, |_| ()) }
}

/// An operand type, with conversion from small integers.
trait TestNumber: Operand + Debug {
    fn of(integer: i32) -> Self;
}

macro_rules! numbers {
    ($($ty:ident: $of:expr;)*) => { $(
        impl TestNumber for $ty {
            fn of(integer: i32) -> Self {
                let of: fn(i32) -> $ty = $of;
                of(integer)
            }
        }
    )* };
}

numbers! {
    bf16: |x| bf16::from_f32(x as f32);
    f16: |x| f16::from_f32(x as f32);
    // The bits of an f32 that TF32 drops do not change the product.
    f32: |x| f32::from_bits((x as f32).to_bits() | 0x1fff);
    F8E4M3: |x| F8E4M3::from_f32(x as f32);
    F8E5M2: |x| F8E5M2::from_f32(x as f32);
    i8: |x| x as i8;
    u8: |x| x as u8;
}

/// Memory whose rows start at multiples of 16 bytes.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Row(#[expect(dead_code, reason = "read by address")] [u8; 256]);

/// Returns the elements of a matrix whose rows have 256 bytes. If `is_transposed`, returns the elements of its
/// transpose in rows of 64 elements per chunk.
fn stored<T: TestNumber>(rows: usize, is_transposed: bool, of: fn(usize, usize) -> i32) -> Vec<Row> {
    let (size, depth) = (size_of::<T>(), 256 / size_of::<T>());
    let mut memory = vec![Row([0; 256]); rows];
    for row in 0..rows {
        for k in 0..depth {
            let value = T::of(of(row, k));
            let at = if is_transposed { k * rows + row } else { row * depth + k };
            // SAFETY: the matrix has at least this many elements.
            unsafe { memory.as_mut_ptr().cast::<T>().byte_add(at * size).write(value) };
        }
    }
    memory
}

/// Returns the product and the expected one.
fn product<K: gpu_std::Kernel, A: TestNumber, B: TestNumber, const N: usize>(
    [a_transposed, b_transposed]: [bool; 2],
) -> Result<(Vec<A::Sum>, Vec<i32>), Fault> {
    let a_at = |row: usize, k: usize| ((row * 131 + k * 7) % 4) as i32;
    let b_at = |row: usize, k: usize| ((row * 57 + k * 11) % 3) as i32;
    let (a, b) = (stored::<A>(64, a_transposed, a_at), stored::<B>(N, b_transposed, b_at));
    let depth = 256 / size_of::<A>();
    let mut out = vec![A::Sum::ZERO; 128 * N / 2];
    let (a_from, b_from) = (a.as_ptr().cast::<A>(), b.as_ptr().cast::<B>());
    let a_map =
        if a_transposed { map(a_from, [depth, 64], 64, 64) } else { map(a_from, [64, depth], depth, 64) };
    let b_map =
        if b_transposed { map(b_from, [depth, N], N, 64) } else { map(b_from, [N, depth], depth, N as u32) };
    let args = Args::new().value(a_map).value(b_map).value(out.as_mut_ptr());
    let bytes = SharedMemory::bytes(2 * 128 * (64 + N as u32), 2);
    launch_shared::<K>([1; 3], [128, 1, 1], bytes, &args)?;
    let mut found = vec![A::Sum::ZERO; 64 * N];
    for (i, value) in out.into_iter().enumerate() {
        let (thread, register) = (i / (N / 2), i % (N / 2));
        let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (register / 2 % 2);
        let column = 8 * (register / 4) + 2 * (thread % 4) + register % 2;
        found[row * N + column] = value;
    }
    let dot = |i: usize| (0..depth).map(|k| a_at(i / N, k) * b_at(i % N, k)).sum();
    Ok((found, (0..64 * N).map(dot).collect()))
}

/// A sum, converted to an integer.
trait TestInteger: Copy {
    fn integer(self) -> i32;
}
impl TestInteger for f32 {
    fn integer(self) -> i32 {
        assert_eq!(self, self.trunc());
        self as i32
    }
}
impl TestInteger for i32 {
    fn integer(self) -> i32 {
        self
    }
}

macro_rules! check {
    ($kernel:ty, $a:ident, $b:ident, $n:literal, $transposed:expr) => {{
        let (found, expected) = product::<$kernel, $a, $b, $n>($transposed).unwrap();
        let found: Vec<i32> = found.into_iter().map(TestInteger::integer).collect();
        assert_eq!(found, expected, "{}", stringify!($kernel));
        assert!(expected.iter().any(|sum| *sum != expected[0]));
    }};
}

#[test]
fn products_of_all_types_and_widths_are_exact() {
    macro_rules! of_type {
        ($($ty:ident)*) => { $(of_type!(@ $ty 8 16 32 64 96 128 192 256);)* };
        (@ $ty:ident $($n:literal)*) => { $(check!(widths<$ty, $n>, $ty, $ty, $n, [false; 2]);)* };
    }
    of_type!(bf16 f16 f32 F8E4M3 F8E5M2 i8 u8);
}

#[test]
fn products_of_all_layouts_are_exact() {
    macro_rules! of_type {
        ($($ty:ident: $($n:literal)*;)*) => { $($(
            check!(layouts<$ty, KMajor, KMajor, $n>, $ty, $ty, $n, [false, false]);
            check!(layouts<$ty, KMajor, MnMajor, $n>, $ty, $ty, $n, [false, true]);
            check!(layouts<$ty, MnMajor, KMajor, $n>, $ty, $ty, $n, [true, false]);
            check!(layouts<$ty, MnMajor, MnMajor, $n>, $ty, $ty, $n, [true, true]);
        )*)* };
    }
    of_type!(bf16: 64 128 192 256; f16: 64 128 192 256;);
}

#[test]
fn products_of_two_types_are_exact() {
    check!(floats_of_8_bits<F8E4M3, F8E5M2>, F8E4M3, F8E5M2, 64, [false; 2]);
    check!(floats_of_8_bits<F8E5M2, F8E4M3>, F8E5M2, F8E4M3, 64, [false; 2]);
    check!(integers_of_8_bits<i8, u8>, i8, u8, 64, [false; 2]);
    check!(integers_of_8_bits<u8, i8>, u8, i8, 64, [false; 2]);
}

#[test]
fn tiles_overwritten_while_read_give_wrong_products() {
    let (found, expected) = product::<overwritten_while_read, bf16, bf16, 64>([false; 2]).unwrap();
    assert!(found.iter().zip(&expected).any(|(found, expected)| *found != *expected as f32));
}

#[test]
fn a_missing_warp_is_a_deadlock() {
    let fault = product::<warp_missing, bf16, bf16, 64>([false; 2]).unwrap_err().to_string();
    assert!(fault.contains("deadlock") && fault.contains("wgmma"), "{fault}");
}
