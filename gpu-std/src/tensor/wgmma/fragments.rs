//! [`Fragments`]: the left operand of `wgmma` in registers.

use core::marker::PhantomData;

use super::operand::Half;
use super::width::{Columns, Width};

/// The left operand of a product in registers: 64 rows and `K` columns, with two elements per register. Its elements
/// are distributed over the threads of a warpgroup like those of an [`Accumulator`](super::Accumulator) with `K`
/// columns.
///
/// A batch owns its fragments until a thread has waited for the batch.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::tensor::{Accumulator, Fragments, KMajor, SharedTile};
///
/// /// Returns `(a * bᵀ) * cᵀ`. The first product stays in registers.
/// ///
/// /// # Safety
/// /// The requirements of [`Batch::mma`](gpu_std::tensor::Batch::mma) apply.
/// #[inline(always)]
/// unsafe fn product([a, b, c]: [SharedTile<bf16, 64>; 3]) -> Accumulator<64> {
///     // SAFETY: guaranteed by the caller.
///     unsafe {
///         let mut batch = Accumulator::<64>::new().pending().begin();
///         batch.mma(a, b, false);
///         let first = batch.commit().wait();
///         let a = Fragments::<bf16, 64>::new(first.registers());
///         let mut batch = Accumulator::<64>::new().pending().begin_with(a);
///         batch.mma_fragments::<KMajor>(0, c, false);
///         batch.commit().wait()
///     }
/// }
/// ```
#[must_use = "fragments are multiplied"]
pub struct Fragments<T: Half, const K: usize>
where
    Columns<K>: Depth,
{
    a: <Columns<K> as Depth>::Registers,
    element: PhantomData<T>,
}

impl<T: Half, const K: usize> Fragments<T, K>
where
    Columns<K>: Depth,
{
    /// Rounds an accumulator's sums, or values derived from them, to fragments.
    #[inline(always)]
    pub fn new(sums: &<Columns<K> as Width>::Registers<f32>) -> Self {
        Self { a: Columns::<K>::pack::<T>(sums.as_ref()), element: PhantomData }
    }

    /// Returns the registers that contain the 16 columns of a step.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(super) fn of_step(&self, step: u64) -> [u32; 4] {
        let a: &[u32] = self.a.as_ref();
        // SAFETY: the caller has checked that these columns exist.
        core::array::from_fn(|i| unsafe { *a.get_unchecked(4 * step as usize + i) })
    }
}

/// A valid number of columns for [`Fragments`]: 64, 128, 192 or 256.
///
/// See the example of [`Fragments`].
pub trait Depth: Width {
    /// Type of one thread's registers.
    #[doc(hidden)]
    type Registers: Copy + AsRef<[u32]>;
    #[doc(hidden)]
    fn pack<T: Half>(sums: &[f32]) -> <Self as Depth>::Registers;
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn keep(a: &<Self as Depth>::Registers);
}

macro_rules! depth {
    ($k:literal, $count:literal: $($i:literal)*) => {
        impl Depth for Columns<$k> {
            type Registers = [u32; $count];

            #[inline(always)]
            fn pack<T: Half>(sums: &[f32]) -> [u32; $count] {
                let mut packed = [0; $count];
                let mut i = 0;
                while i < $count {
                    packed[i] = T::pack(sums[2 * i], sums[2 * i + 1]);
                    i += 1;
                }
                packed
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn keep(a: &[u32; $count]) {
                // SAFETY: the assembly consists only of a comment.
                unsafe {
                    core::arch::asm!(
                        concat!("// {0}", $(" {", $i, "}",)*),
                        in(reg32) a[0], $(in(reg32) a[$i],)* options(nostack)
                    );
                }
            }
        }
    };
}

depth!(
    64, 16:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
);
depth!(
    128, 32:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);
depth!(
    192, 48:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47
);
depth!(
    256, 64:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// Operands that a batch owns in registers, in addition to its sums: either none, or [`Fragments`]. The trait is
/// sealed.
///
/// See the example of [`Fragments`].
pub trait RegisterOperand: sealed::Sealed {
    /// Pins the values in registers at this point. The compiler must write the values before this point, and must not
    /// reuse the registers before it.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn keep(&self);
    /// Returns the registers of the calling thread.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn registers(&self) -> &[u32];
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<T: super::Half, const K: usize> Sealed for super::Fragments<T, K> where super::Columns<K>: super::Depth {}
}

impl RegisterOperand for () {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn keep(&self) {}

    #[cfg(not(target_arch = "nvptx64"))]
    fn registers(&self) -> &[u32] {
        &[]
    }
}

impl<T: Half, const K: usize> RegisterOperand for Fragments<T, K>
where
    Columns<K>: Depth,
{
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn keep(&self) {
        Columns::<K>::keep(&self.a);
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn registers(&self) -> &[u32] {
        self.a.as_ref()
    }
}
