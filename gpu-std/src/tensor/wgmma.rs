//! [`Accumulator`]: products of tiles in shared memory by the tensor cores of compute capability 9.0 (`wgmma`).
//!
//! The 128 threads of a warp group multiply together and asynchronously. An accumulator goes through three types, so that
//! nothing can touch its registers while a product is under way:
//!
//! ```text
//! Accumulator --begin--> Batch --mma, mma, …, commit--> Pending --wait--> Accumulator
//!                          ^------------- begin -----------'
//! ```
//!
//! The instructions take the registers as operands, those that wait and fence too, so that the compilers cannot move an
//! access to them past.

use super::shared::SharedTile;
use crate::{KernelType, bf16, f16};

/// The types that `wgmma` multiplies here, with sums of `f32`.
pub trait Operand: KernelType + Into<f32> {
    /// Issues the product of 16 columns of two tiles, by their descriptors.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn issue<const N: usize>(
        d: &mut <Columns<N> as Width>::Registers,
        a: u64,
        b: u64,
        accumulate: u32,
    ) where
        Columns<N>: Width;

    /// `low` and `high`, rounded to nearest, in the low and the high half.
    fn pack(low: f32, high: f32) -> u32;
}

/// `N` columns of an accumulator, for the N that there are: 64, 128, 192, 256.
pub struct Columns<const N: usize>;

/// What depends on the number of columns.
pub trait Width {
    /// The registers of a thread.
    type Registers: Copy + AsRef<[f32]> + AsMut<[f32]>;
    #[doc(hidden)]
    const ZERO: Self::Registers;
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn fence(d: &mut Self::Registers);
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn wait(d: &mut Self::Registers);
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma_bf16(d: &mut Self::Registers, a: u64, b: u64, accumulate: u32);
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma_f16(d: &mut Self::Registers, a: u64, b: u64, accumulate: u32);
}

impl Operand for bf16 {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn issue<const N: usize>(d: &mut <Columns<N> as Width>::Registers, a: u64, b: u64, accumulate: u32)
    where
        Columns<N>: Width,
    {
        // SAFETY: the caller's promise.
        unsafe { Columns::<N>::mma_bf16(d, a, b, accumulate) }
    }

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        {
            let packed: u32;
            // SAFETY: it computes a number.
            unsafe {
                core::arch::asm!(
                    "cvt.rn.bf16x2.f32 {r}, {h}, {l};",
                    r = out(reg32) packed, h = in(reg32) high, l = in(reg32) low, options(pure, nomem, nostack)
                );
            }
            packed
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            u32::from(Self::from_f32(low).to_bits()) | u32::from(Self::from_f32(high).to_bits()) << 16
        }
    }
}

impl Operand for f16 {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn issue<const N: usize>(d: &mut <Columns<N> as Width>::Registers, a: u64, b: u64, accumulate: u32)
    where
        Columns<N>: Width,
    {
        // SAFETY: the caller's promise.
        unsafe { Columns::<N>::mma_f16(d, a, b, accumulate) }
    }

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        {
            let packed: u32;
            // SAFETY: it computes a number.
            unsafe {
                core::arch::asm!(
                    "cvt.rn.f16x2.f32 {r}, {h}, {l};",
                    r = out(reg32) packed, h = in(reg32) high, l = in(reg32) low, options(pure, nomem, nostack)
                );
            }
            packed
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            u32::from(Self::from_f32(low).to_bits()) | u32::from(Self::from_f32(high).to_bits()) << 16
        }
    }
}

/// Implements [`Width`] for `N` columns, whose registers have the numbers `0` and those listed.
macro_rules! width {
    ($n:literal, $count:literal: $($i:literal)*) => {
        impl Width for Columns<$n> {
            type Registers = [f32; $count];
            const ZERO: [f32; $count] = [0.0; $count];

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn fence(d: &mut [f32; $count]) {
                // SAFETY: all threads of the warp group call it. The registers are named in a comment, which ties them to it.
                unsafe {
                    core::arch::asm!(
                        concat!("wgmma.fence.sync.aligned; // {0}", $(" {", $i, "}",)*),
                        inout(reg32) d[0], $(inout(reg32) d[$i],)* options(nostack)
                    );
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn wait(d: &mut [f32; $count]) {
                // SAFETY: as above.
                unsafe {
                    core::arch::asm!(
                        concat!("wgmma.wait_group.sync.aligned 0; // {0}", $(" {", $i, "}",)*),
                        inout(reg32) d[0], $(inout(reg32) d[$i],)* options(nostack)
                    );
                }
            }

            width!(@mma mma_bf16, "bf16", $n, $count: $($i)*);
            width!(@mma mma_f16, "f16", $n, $count: $($i)*);
        }
    };
    (@mma $name:ident, $ty:literal, $n:literal, $count:literal: $($i:literal)*) => {
        #[cfg(target_arch = "nvptx64")]
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; $count], a: u64, b: u64, accumulate: u32) {
            // SAFETY: the caller's promise.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "{{ .reg .pred p; setp.ne.b32 p, {s}, 0; wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $ty, ".",
                        $ty, " {{{0}", $(", {", $i, "}",)* "}}, {a}, {b}, p, 1, 1, 0, 0; }}"
                    ),
                    inout(reg32) d[0], $(inout(reg32) d[$i],)*
                    a = in(reg64) a, b = in(reg64) b, s = in(reg32) accumulate, options(nostack)
                );
            }
        }
    };
}

width!(
    64, 32:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);
width!(
    128, 64:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
        39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);
width!(
    192, 96:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
        39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73
        74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
);
width!(
    256, 128:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
        39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73
        74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105
        106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
);

/// `64 x N` sums of `f32`, spread over the threads of a warp group: 64 rows, 16 a warp.
///
/// Register `4 * j + 2 * h + i` of lane `l` of warp `w` is row `16 * w + l / 4 + 8 * h`, column `8 * j + 2 * (l % 4) + i`.
pub struct Accumulator<const N: usize>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers,
}

/// Products that are being issued.
#[must_use = "a batch is committed"]
pub struct Batch<const N: usize>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers,
    #[cfg(not(target_arch = "nvptx64"))]
    groups: host::Groups<N>,
}

/// Products that are under way.
#[must_use = "the tiles are in use until the products were waited for"]
pub struct Pending<const N: usize>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers,
    #[cfg(not(target_arch = "nvptx64"))]
    groups: host::Groups<N>,
}

impl<const N: usize> Accumulator<N>
where
    Columns<N>: Width,
{
    /// Zeros.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "it is for kernels")]
    pub fn new() -> Self {
        Self { d: Columns::<N>::ZERO }
    }

    /// The registers of the calling thread.
    #[inline(always)]
    pub fn registers(&self) -> &<Columns<N> as Width>::Registers {
        &self.d
    }

    /// The same, to change them.
    #[inline(always)]
    pub fn registers_mut(&mut self) -> &mut <Columns<N> as Width>::Registers {
        &mut self.d
    }

    /// The registers with no product under way, for a loop that begins batches.
    #[inline(always)]
    pub fn pending(self) -> Pending<N> {
        Pending {
            d: self.d,
            #[cfg(not(target_arch = "nvptx64"))]
            groups: host::Groups::default(),
        }
    }
}

impl<const N: usize> Pending<N>
where
    Columns<N>: Width,
{
    /// Begins a batch of products that add to the same sums, after those under way. Called by all threads of the warp group.
    ///
    /// # Safety
    ///
    /// All threads of the warp group call it, and the operations on the batch, together.
    #[inline(always)]
    #[allow(unused_mut, reason = "the emulated device has no instruction that takes it")]
    pub unsafe fn begin(mut self) -> Batch<N> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the caller's promise.
        unsafe {
            Columns::<N>::fence(&mut self.d)
        };
        Batch {
            d: self.d,
            #[cfg(not(target_arch = "nvptx64"))]
            groups: self.groups.begin(),
        }
    }

    /// Waits until all batches but the last are done: their tiles are free then.
    #[inline(always)]
    #[track_caller]
    pub fn wait_for_earlier(&mut self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warp group are here, as promised where the batch began.
        unsafe {
            core::arch::asm!("wgmma.wait_group.sync.aligned 1;", options(nostack))
        };
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.run_but_last(self.d.as_mut());
    }

    /// Waits for all.
    #[inline(always)]
    #[track_caller]
    pub fn wait(mut self) -> Accumulator<N> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warp group are here, as promised where the batch began.
        unsafe {
            Columns::<N>::wait(&mut self.d)
        };
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.run(self.d.as_mut());
        Accumulator { d: self.d }
    }
}

impl<const N: usize> Batch<N>
where
    Columns<N>: Width,
{
    /// Issues the product of a tile of 64 rows and the transpose of a tile of `N` rows, and adds it to the sums. If
    /// `accumulate` is false, it replaces them.
    ///
    /// # Safety
    ///
    /// The tiles hold what is multiplied: a copy to them has been waited for, or all that wrote them called
    /// [`fence_tiles`](super::copy::fence_tiles) before a barrier. Nothing writes them until the batch was waited for.
    /// `accumulate` is the same in all threads of the warp group.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mma<T: Operand, const K: usize>(
        &mut self,
        a: SharedTile<T, 64, K>,
        b: SharedTile<T, N, K>,
        accumulate: bool,
    ) {
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b) = (a.descriptor(), b.descriptor());
            let mut step = 0;
            while step < K / 16 {
                let by = 2 * step as u64;
                let accumulate = if step == 0 { u32::from(accumulate) } else { 1 };
                // SAFETY: the caller's promise; 32 bytes further on are the next 16 columns.
                unsafe { T::issue::<N>(&mut self.d, a + by, b + by, accumulate) };
                step += 1;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.push(a, b, accumulate);
    }

    /// Ends the batch.
    #[inline(always)]
    #[track_caller]
    pub fn commit(self) -> Pending<N> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warp group are here, as promised where the batch began.
        unsafe {
            core::arch::asm!("wgmma.commit_group.sync.aligned;", options(nostack))
        };
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.check();
        Pending {
            d: self.d,
            #[cfg(not(target_arch = "nvptx64"))]
            groups: self.groups,
        }
    }
}

/// The products of the emulated device: recorded where they are issued, computed where they are waited for.
#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Operand, SharedTile};
    use crate::{thread, warp};
    use warpsmith_emulator::collective;

    /// A product: adds it to the registers of the calling thread.
    type Product = Box<dyn Fn(&mut [f32])>;

    /// The batches under way, the oldest first.
    pub(super) struct Groups<const N: usize> {
        products: Vec<Vec<Product>>,
        /// A number that all lanes of a warp agree on, of what was issued.
        issued: u64,
    }

    impl<const N: usize> Default for Groups<N> {
        fn default() -> Self {
            Self { products: Vec::new(), issued: 0 }
        }
    }

    impl<const N: usize> Groups<N> {
        pub fn begin(mut self) -> Self {
            self.products.push(Vec::new());
            self
        }

        pub fn push<T: Operand, const K: usize>(
            &mut self,
            a: SharedTile<T, 64, K>,
            b: SharedTile<T, N, K>,
            accumulate: bool,
        ) {
            for number in [a.address.0.addr(), b.address.0.addr(), accumulate.into()] {
                self.issued = self.issued.rotate_left(7).wrapping_mul(0x9e37_79b9) ^ number as u64;
            }
            let product = move |d: &mut [f32]| multiply::<T, N, K>(d, a, b, accumulate);
            if let Some(group) = self.products.last_mut() {
                group.push(Box::new(product));
            }
        }

        /// Fails if the lanes of a warp have issued different products.
        #[track_caller]
        pub fn check(&self) {
            let first = warp::shuffle(!0, self.issued, 0);
            assert!(first == self.issued, "the lanes of a warp multiply different tiles");
        }

        #[track_caller]
        pub fn run_but_last(&mut self, d: &mut [f32]) {
            let last = self.products.pop();
            self.run(d);
            self.products.extend(last);
        }

        #[track_caller]
        pub fn run(&mut self, d: &mut [f32]) {
            collective::group_barrier();
            self.products.drain(..).flatten().for_each(|product| product(d));
            // It is done for one when it is for all: the first that knows may free the tiles.
            collective::group_barrier();
        }
    }

    fn multiply<T: Operand, const N: usize, const K: usize>(
        d: &mut [f32],
        a: SharedTile<T, 64, K>,
        b: SharedTile<T, N, K>,
        accumulate: bool,
    ) {
        let (lane, warp) = (warp::lane_id(), thread::linear_in_block() / 32 % 4);
        let row = 16 * warp + lane / 4;
        let read = |address: *mut u8| {
            // SAFETY: whoever issued the product promised that the tile holds values.
            let value: T = unsafe { address.cast::<T>().read() };
            value.into()
        };
        let size = size_of::<T>() as u32;
        let a_rows: [[f32; K]; 2] = core::array::from_fn(|half| {
            core::array::from_fn(|k| {
                let byte = k as u32 * size;
                read(a.chunk(row + 8 * half as u32, byte / 16).add(byte % 16).0)
            })
        });
        for (j, quad) in d.chunks_exact_mut(4).enumerate() {
            for i in 0..2 {
                let column = 8 * j as u32 + 2 * (lane % 4) + i;
                let b_row: [f32; K] = core::array::from_fn(|k| {
                    let byte = k as u32 * size;
                    read(b.chunk(column, byte / 16).add(byte % 16).0)
                });
                for (half, a_row) in a_rows.iter().enumerate() {
                    let sum: f32 = a_row.iter().zip(&b_row).map(|(a, b)| a * b).sum();
                    let at = &mut quad[2 * half + i as usize];
                    *at = if accumulate { *at + sum } else { sum };
                }
            }
        }
    }
}
