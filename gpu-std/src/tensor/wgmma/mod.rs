//! [`Accumulator`]: tensor-core products of tiles in shared memory (`wgmma`), for compute capability 9.0.
//!
//! The 128 threads of a warpgroup compute a product together and asynchronously. An accumulator passes through three
//! types so that no code can access its registers while a product is in flight:
//!
//! ```text
//! Accumulator --begin--> Batch --mma, mma, …, commit--> Pending --wait--> Accumulator
//!                          ^------------- begin -----------'
//! ```
//!
//! The left operand of a batch can also be in registers ([`Fragments`]), in which case the batch owns it until a thread
//! has waited for the batch.
//!
//! The instructions, including waits and fences, take the registers as operands, so that the compilers cannot move a
//! register access past them.

mod fragments;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod major;
mod operand;
mod width;

use super::shared::SharedTile;

pub use fragments::{Depth, Fragments, RegisterOperand};
pub use major::{KMajor, Major, MnMajor};
pub use operand::{Half, Multiply, Operand, Output, Sum};
pub use width::{Columns, Width};

/// Number of instructions per product of tiles with 128-byte rows.
#[cfg(target_arch = "nvptx64")]
const STEPS: u64 = 4;

/// `64 x N` sums of type `f32` or `i32`, distributed over the threads of a warpgroup. Each warp has 16 of the 64 rows.
///
/// Register `4 * j + 2 * h + i` of lane `l` in warp `w` is row `16 * w + l / 4 + 8 * h`, column `8 * j + 2 * (l % 4) +
/// i`.
///
/// See the [example](crate::tensor#example).
pub struct Accumulator<const N: usize, S: Sum = f32>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers<S>,
}

/// A batch of products that is being issued.
///
/// See the [example](crate::tensor#example).
#[must_use = "a batch must be committed"]
pub struct Batch<const N: usize, S: Sum = f32, F: RegisterOperand = ()>
where
    Columns<N>: Width,
{
    d: <Columns<N> as Width>::Registers<S>,
    held: F,
    #[cfg(not(target_arch = "nvptx64"))]
    groups: host::Groups<S>,
}

/// In-flight products.
///
/// See the [example](crate::tensor#example).
#[must_use = "the tiles are in use until the products have completed"]
pub struct Pending<const N: usize, S: Sum = f32, F: RegisterOperand = ()>
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
    /// Creates an accumulator that contains zeros.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "it is for kernels")]
    pub fn new() -> Self {
        Self { d: Columns::<N>::zeros() }
    }

    /// Returns the registers of the calling thread.
    #[inline(always)]
    pub fn registers(&self) -> &<Columns<N> as Width>::Registers<S> {
        &self.d
    }

    /// Returns a mutable reference to the calling thread's registers.
    #[inline(always)]
    pub fn registers_mut(&mut self) -> &mut <Columns<N> as Width>::Registers<S> {
        &mut self.d
    }

    /// Converts the accumulator to the pending state with no product in flight, for a loop that starts batches.
    ///
    /// See the [example](crate::tensor#example).
    ///
    /// # Safety
    /// All threads of the warpgroup must call this method, and the methods of its result, together.
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
    /// Starts a batch of products, which are added to the same sums as the products in flight, after them. All threads
    /// of the warpgroup must call this method.
    ///
    /// See the [example](crate::tensor#example).
    ///
    /// # Safety
    /// All threads of the warpgroup must call this method, and the methods of the batch, together.
    #[inline(always)]
    pub unsafe fn begin(self) -> Batch<N, S> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.begin_holding(()) }
    }

    #[inline(always)]
    #[allow(unused_mut, reason = "the emulated device has no instruction that takes it")]
    unsafe fn begin_holding<F: RegisterOperand>(mut self, held: F) -> Batch<N, S, F> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller.
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

    /// Waits until all batches except the last one are complete, so that their tiles can be reused.
    #[inline(always)]
    #[track_caller]
    pub fn wait_for_earlier(&mut self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warpgroup make this call, as the caller of `begin` promised.
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
    /// Starts a batch like [`Self::begin`], for products whose left operand is in registers ([`Batch::mma_fragments`]).
    ///
    /// See the example of [`Fragments`].
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::begin`].
    #[inline(always)]
    pub unsafe fn begin_with<T: Half, const K: usize>(
        self,
        a: Fragments<T, K>,
    ) -> Batch<N, f32, Fragments<T, K>>
    where
        Columns<K>: Depth,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { self.begin_holding(a) }
    }
}

impl<const N: usize, S: Sum, F: RegisterOperand> Pending<N, S, F>
where
    Columns<N>: Width,
{
    /// Waits for all batches.
    #[inline(always)]
    #[track_caller]
    pub fn wait(self) -> Accumulator<N, S> {
        // SAFETY: after the wait, no batch of the warpgroup is in flight.
        unsafe { self.wait_leaving::<0>() }
    }

    /// Waits for all batches of this accumulator. The last `LATER` batches that the warpgroup has committed, which
    /// belong to other accumulators, stay in flight.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use gpu_std::tensor::{Accumulator, SharedTile};
    ///
    /// /// Returns `a * bᵀ` and `a * cᵀ`. The second product is in flight while the threads wait for the first.
    /// ///
    /// /// # Safety
    /// /// The requirements of [`Batch::mma`](gpu_std::tensor::Batch::mma) apply.
    /// #[inline(always)]
    /// unsafe fn products(a: SharedTile<bf16, 64>, [b, c]: [SharedTile<bf16, 64>; 2]) -> [Accumulator<64>; 2] {
    ///     // SAFETY: guaranteed by the caller; one batch is committed after the batch of the first product.
    ///     unsafe {
    ///         let mut first = Accumulator::<64>::new().pending().begin();
    ///         first.mma(a, b, false);
    ///         let first = first.commit();
    ///         let mut second = Accumulator::<64>::new().pending().begin();
    ///         second.mma(a, c, false);
    ///         let second = second.commit();
    ///         [first.wait_leaving::<1>(), second.wait()]
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// The warpgroup must have committed at least `LATER` batches after the last batch of this accumulator.
    #[inline(always)]
    #[track_caller]
    #[allow(unused_mut, reason = "as above")]
    pub unsafe fn wait_leaving<const LATER: u32>(mut self) -> Accumulator<N, S> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warpgroup make this call, as the caller of `begin` promised.
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
    /// Multiplies columns `64 * part` to `64 * part + 63` of the fragments by the transpose of `b`, a tile of `N` rows
    /// and 64 columns. Adds the product to the sums, or replaces them if `accumulate` is false.
    ///
    /// See the example of [`Fragments`].
    ///
    /// # Safety
    /// The conditions of [`Self::mma`] apply to the tile. `64 * part` must be below `K`, and `part` must be the same in
    /// all threads of the warpgroup.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mma_fragments<BMajor: Major>(&mut self, part: u32, b: SharedTile<T, N>, accumulate: bool) {
        const {
            assert!(
                !BMajor::IS_TRANSPOSED || N.is_multiple_of(64),
                "MN-major tiles must have a multiple of 64 rows"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let b = BMajor::descriptor(b);
            let mut step = 0;
            while step < STEPS {
                let accumulate = if step == 0 { u32::from(accumulate) } else { 1 };
                let a = self.held.of_step(STEPS * u64::from(part) + step);
                // SAFETY: guaranteed by the caller; advancing by one step selects the next columns.
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

impl<const N: usize, S: Sum, F: RegisterOperand> Batch<N, S, F>
where
    Columns<N>: Width,
{
    /// Multiplies `a`, a tile of 64 rows, by the transpose of `b`, a tile of `N` rows. Adds the product to the sums, or
    /// replaces them if `accumulate` is false.
    ///
    /// See the [example](crate::tensor#example).
    ///
    /// # Safety
    /// The tiles must contain the operands. Either a thread has waited for the copy to the tile, or all its writers
    /// called [`fence_tiles`](super::copy::fence_tiles) before a barrier. Nothing may write the tiles until a thread
    /// has waited for the batch. `accumulate` must be the same in all threads of the warpgroup.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mma<A, B>(&mut self, a: SharedTile<A, 64>, b: SharedTile<B, N>, accumulate: bool)
    where
        A: Multiply<B, Sum = S>,
        B: Operand<Sum = S>,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { self.mma_of::<KMajor, KMajor, A, B>(a, b, accumulate) }
    }

    /// Multiplies like [`Self::mma`], but for operands with the layouts `AMajor` and `BMajor`.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use gpu_std::tensor::{Accumulator, KMajor, MnMajor, SharedTile};
    ///
    /// /// Returns `a * b`, where the rows of the tile `b` are rows of the operand.
    /// ///
    /// /// # Safety
    /// /// The requirements of [`Batch::mma`](gpu_std::tensor::Batch::mma) apply.
    /// #[inline(always)]
    /// unsafe fn product(a: SharedTile<bf16, 64>, b: SharedTile<bf16, 64>) -> Accumulator<64> {
    ///     // SAFETY: guaranteed by the caller.
    ///     unsafe {
    ///         let mut batch = Accumulator::<64>::new().pending().begin();
    ///         batch.mma_of::<KMajor, MnMajor, _, _>(a, b, false);
    ///         batch.commit().wait()
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::mma`].
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
            assert!(size_of::<A>() == size_of::<B>(), "the elements of `a` and `b` must have the same size");
            let is_transposed = AMajor::IS_TRANSPOSED || BMajor::IS_TRANSPOSED;
            assert!(!is_transposed || size_of::<A>() == 2, "`wgmma` can transpose only 16-bit elements");
            assert!(
                !BMajor::IS_TRANSPOSED || N.is_multiple_of(64),
                "MN-major tiles must have a multiple of 64 rows"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b) = (AMajor::descriptor(a), BMajor::descriptor(b));
            let mut step = 0;
            while step < STEPS {
                let accumulate = if step == 0 { u32::from(accumulate) } else { 1 };
                let (a, b) = (a + step * AMajor::STEP, b + step * BMajor::STEP);
                // SAFETY: guaranteed by the caller; advancing by one step selects the next columns.
                unsafe { A::issue::<N, AMajor, BMajor>(&mut self.d, a, b, accumulate) };
                step += 1;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.groups.push::<AMajor, BMajor, A, B, N>(a, b, accumulate);
    }

    /// Commits the batch.
    #[inline(always)]
    #[track_caller]
    pub fn commit(self) -> Pending<N, S, F> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all threads of the warpgroup make this call, as the caller of `begin` promised.
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
