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
//! The left operand of a batch may be in registers too ([`Fragments`]): the batch owns them until it was waited for.
//!
//! The instructions take the registers as operands, those that wait and fence too, so that the compilers cannot move an
//! access to them past.

mod fragments;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod major;
mod operand;
mod width;

use super::shared::SharedTile;

pub use fragments::{Depth, Fragments, Held};
pub use major::{KMajor, Major, MnMajor};
pub use operand::{Half, Multiply, Operand, Output, Sum};
pub use width::{Columns, Width};

/// Instructions that multiply rows of 128 bytes.
#[cfg(target_arch = "nvptx64")]
const STEPS: u64 = 4;

/// `64 x N` sums, of `f32` or `i32`, spread over the threads of a warp group: 64 rows, 16 a warp.
///
/// Register `4 * j + 2 * h + i` of lane `l` of warp `w` is row `16 * w + l / 4 + 8 * h`, column `8 * j + 2 * (l % 4) + i`.
pub struct Accumulator<const N: usize, S: Sum = f32>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers<S>,
}

/// Products that are being issued.
#[must_use = "a batch is committed"]
pub struct Batch<const N: usize, S: Sum = f32, F: Held = ()>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers<S>,
    held: F,
    #[cfg(not(target_arch = "nvptx64"))]
    groups: host::Groups<S>,
}

/// Products that are under way.
#[must_use = "the tiles are in use until the products were waited for"]
pub struct Pending<const N: usize, S: Sum = f32, F: Held = ()>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers<S>,
    held: F,
    #[cfg(not(target_arch = "nvptx64"))]
    groups: host::Groups<S>,
}

impl<const N: usize, S: Sum> Accumulator<N, S>
where
    Columns<N>: Width,
{
    /// Zeros.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "it is for kernels")]
    pub fn new() -> Self {
        Self { d: Columns::<N>::zeros() }
    }

    /// The registers of the calling thread.
    #[inline(always)]
    pub fn registers(&self) -> &<Columns<N> as Width>::Registers<S> {
        &self.d
    }

    /// The same, to change them.
    #[inline(always)]
    pub fn registers_mut(&mut self) -> &mut <Columns<N> as Width>::Registers<S> {
        &mut self.d
    }

    /// The registers with no product under way, for a loop that begins batches.
    ///
    /// # Safety
    ///
    /// All threads of the warp group call it, and the operations on what it returns, together.
    #[inline(always)]
    pub unsafe fn pending(self) -> Pending<N, S> {
        Pending {
            d: self.d,
            held: (),
            #[cfg(not(target_arch = "nvptx64"))]
            groups: host::Groups::default(),
        }
    }
}

impl<const N: usize, S: Sum> Pending<N, S>
where
    Columns<N>: Width,
{
    /// Begins a batch of products that add to the same sums, after those under way. Called by all threads of the warp group.
    ///
    /// # Safety
    ///
    /// All threads of the warp group call it, and the operations on the batch, together.
    #[inline(always)]
    pub unsafe fn begin(self) -> Batch<N, S> {
        // SAFETY: the caller's promise.
        unsafe { self.begin_holding(()) }
    }

    #[inline(always)]
    #[allow(unused_mut, reason = "the emulated device has no instruction that takes it")]
    unsafe fn begin_holding<F: Held>(mut self, held: F) -> Batch<N, S, F> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the caller's promise.
        unsafe {
            held.keep();
            Columns::<N>::fence(&mut self.d);
        };
        Batch {
            d: self.d,
            held,
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
}

impl<const N: usize> Pending<N>
where
    Columns<N>: Width,
{
    /// As [`Self::begin`], for products whose left operand is in registers: [`Batch::mma_fragments`].
    ///
    /// # Safety
    ///
    /// As [`Self::begin`].
    #[inline(always)]
    pub unsafe fn begin_with<T: Half, const K: usize>(
        self,
        a: Fragments<T, K>,
    ) -> Batch<N, f32, Fragments<T, K>>
    where
        Columns<K>: Depth,
    {
        // SAFETY: the caller's promise.
        unsafe { self.begin_holding(a) }
    }
}

impl<const N: usize, S: Sum, F: Held> Pending<N, S, F>
where
    Columns<N>: Width,
{
    /// Waits for all.
    #[inline(always)]
    #[track_caller]
    pub fn wait(self) -> Accumulator<N, S> {
        // SAFETY: after it no batch of the warp group is under way.
        unsafe { self.wait_leaving::<0>() }
    }

    /// Waits for all of these, while the last `LATER` batches that the warp group has committed, of other accumulators, stay
    /// under way.
    ///
    /// # Safety
    ///
    /// The warp group has committed at least `LATER` batches after the last of these.
    #[inline(always)]
    #[track_caller]
    #[allow(unused_mut, reason = "as above")]
    pub unsafe fn wait_leaving<const LATER: u32>(mut self) -> Accumulator<N, S> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warp group are here, as promised where the batch began.
        unsafe {
            Columns::<N>::wait::<S, LATER>(&mut self.d);
            self.held.keep();
        };
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.run(self.d.as_mut(), self.held.registers());
        Accumulator { d: self.d }
    }
}

impl<const N: usize, T: Half, const K: usize> Batch<N, f32, Fragments<T, K>>
where
    Columns<N>: Width,
    Columns<K>: Depth,
{
    /// Issues the product of columns `64 * part` to `64 * part + 63` of the fragments and the transpose of a tile of `N` rows of
    /// 64 columns, and adds it to the sums. If `accumulate` is false, it replaces them.
    ///
    /// # Safety
    ///
    /// As [`Self::mma`], for the one tile; `64 * part` is below `K` and the same in all threads of the warp group.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mma_fragments<BMajor: Major>(&mut self, part: u32, b: SharedTile<T, N>, accumulate: bool) {
        const {
            assert!(
                !BMajor::IS_TRANSPOSED || N.is_multiple_of(64),
                "MN-major tiles have a multiple of 64 rows"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let b = BMajor::descriptor(b);
            let mut step = 0;
            while step < STEPS {
                let accumulate = if step == 0 { u32::from(accumulate) } else { 1 };
                let a = self.held.of_step(STEPS * u64::from(part) + step);
                // SAFETY: the caller's promise; a step further on are the next columns.
                unsafe {
                    T::issue_fragment::<N, BMajor>(&mut self.d, a, b + step * BMajor::STEP, accumulate)
                };
                step += 1;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.push_fragments::<BMajor, T, N>(part, b, accumulate);
    }
}

impl<const N: usize, S: Sum, F: Held> Batch<N, S, F>
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
    pub unsafe fn mma<A, B>(&mut self, a: SharedTile<A, 64>, b: SharedTile<B, N>, accumulate: bool)
    where
        A: Multiply<B, Sum = S>,
        B: Operand<Sum = S>,
    {
        // SAFETY: the caller's promise.
        unsafe { self.mma_of::<KMajor, KMajor, A, B>(a, b, accumulate) }
    }

    /// As [`Self::mma`], of operands that lie in the tiles as `AMajor` and `BMajor` say.
    ///
    /// # Safety
    ///
    /// As [`Self::mma`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mma_of<AMajor: Major, BMajor: Major, A, B>(
        &mut self,
        a: SharedTile<A, 64>,
        b: SharedTile<B, N>,
        accumulate: bool,
    ) where
        A: Multiply<B, Sum = S>,
        B: Operand<Sum = S>,
    {
        const {
            assert!(size_of::<A>() == size_of::<B>(), "the elements of both have one size");
            let is_transposed = AMajor::IS_TRANSPOSED || BMajor::IS_TRANSPOSED;
            assert!(!is_transposed || size_of::<A>() == 2, "`wgmma` transposes elements of 16 bits alone");
            assert!(
                !BMajor::IS_TRANSPOSED || N.is_multiple_of(64),
                "MN-major tiles have a multiple of 64 rows"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b) = (AMajor::descriptor(a), BMajor::descriptor(b));
            let mut step = 0;
            while step < STEPS {
                let accumulate = if step == 0 { u32::from(accumulate) } else { 1 };
                let (a, b) = (a + step * AMajor::STEP, b + step * BMajor::STEP);
                // SAFETY: the caller's promise; a step further on are the next columns.
                unsafe { A::issue::<N, AMajor, BMajor>(&mut self.d, a, b, accumulate) };
                step += 1;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.push::<AMajor, BMajor, A, B, N>(a, b, accumulate);
    }

    /// Ends the batch.
    #[inline(always)]
    #[track_caller]
    pub fn commit(self) -> Pending<N, S, F> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warp group are here, as promised where the batch began.
        unsafe {
            core::arch::asm!("wgmma.commit_group.sync.aligned;", options(nostack))
        };
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.check();
        Pending {
            d: self.d,
            held: self.held,
            #[cfg(not(target_arch = "nvptx64"))]
            groups: self.groups,
        }
    }
}
