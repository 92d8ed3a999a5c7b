//! Warp-level matrix products for compute capability 8.0 and later: [`mma`].
//!
//! For memory-bound products, a warp can multiply operands that it has just loaded into registers. Data does not pass
//! through shared memory, and threads do not wait for each other.

use crate::scalar::Float;
use crate::{bf16, f16};

/// An operand type of [`mma`]: `bf16` or `f16`. The trait is sealed.
///
/// See the [example](super::matrix_tile#example).
pub trait WarpOperand: super::Operand<Sum = f32> + Float + sealed::Sealed {
    /// Issues the instruction.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn issue(sums: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4];
    /// Returns the number with these bits.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_bits(bits: u16) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! operands {
    ($($ty:ident),*) => { $(
        impl sealed::Sealed for $ty {}

        impl WarpOperand for $ty {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn issue(sums: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
                let [mut s0, mut s1, mut s2, mut s3] = sums;
                // SAFETY: the caller promises that all lanes of the warp execute this instruction, which accesses only
                // registers.
                unsafe {
                    core::arch::asm!(
                        concat!(
                            "mma.sync.aligned.m16n8k16.row.col.f32.", stringify!($ty), ".", stringify!($ty), ".f32 ",
                            "{{{s0}, {s1}, {s2}, {s3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, ",
                            "{{{s0}, {s1}, {s2}, {s3}}};"
                        ),
                        s0 = inout(reg32) s0, s1 = inout(reg32) s1, s2 = inout(reg32) s2, s3 = inout(reg32) s3,
                        a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                        b0 = in(reg32) b[0], b1 = in(reg32) b[1],
                        options(pure, nomem, nostack)
                    );
                }
                [s0, s1, s2, s3]
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn of_bits(bits: u16) -> Self {
                Self::from_bits(bits)
            }
        }
    )* };
}
operands!(bf16, f16);

/// Computes `sums + a * b` with one warp (`mma.m16n8k16`), where `a` is a 16 x 16 matrix and `b` is a 16 x 8 matrix.
///
/// Each register packs two numbers, with the first in its low half. With `row` = lane / 4 and `pair` = 2 * (lane % 4),
/// each lane holds:
///
/// | operand | register or sum | elements |
/// | --- | --- | --- |
/// | `a` | 0, 1 | columns `pair` and `pair + 1` of rows `row` and `row + 8` |
/// | | 2, 3 | columns `pair + 8` and `pair + 9` of the same rows |
/// | `b` | 0, 1 | rows `pair` and `pair + 1` (register 0), `pair + 8` and `pair + 9` (register 1), of column `row` |
/// | `sums` | 0, 1 | columns `pair` and `pair + 1` of row `row` |
/// | | 2, 3 | the same columns of row `row + 8` |
///
/// The same products are summed if the columns of `a` and the rows of `b` are permuted in the same way. The hardware
/// determines the order and the rounding of the additions.
///
/// See the [example](super::matrix_tile#example).
///
/// # Safety
///
/// All 32 lanes of the warp must call this function together, on compute capability 8.0 or later.
#[inline(always)]
#[track_caller]
#[must_use]
pub unsafe fn mma<T: WarpOperand>(sums: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: guaranteed by the caller.
        unsafe { T::issue(sums, a, b) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        host::<T>(sums, a, b)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn host<T: WarpOperand>(mut sums: [f32; 4], a: [u32; 4], b: [u32; 2]) -> [f32; 4] {
    let lane = crate::warp::lane_id();
    let exchange = |low: u32, high: u32| {
        crate::host::collective::warp_exchange(!0, "mma", u64::from(low) | u64::from(high) << 32)
    };
    // Gathers from each lane the registers that hold rows `row` and `row + 8` of `a`, and the registers that hold `b`.
    let (a_rows, b_column) = ([exchange(a[0], a[2]), exchange(a[1], a[3])], exchange(b[0], b[1]));
    let numbers = |registers: u64| {
        [0, 16, 32, 48].map(|shift| -> f32 { T::of_bits((registers >> shift) as u16).to_sum() })
    };
    for (i, sum) in sums.iter_mut().enumerate() {
        let column = 2 * (lane % 4) + i as u32 % 2;
        for of_pair in 0..4 {
            let of_a = numbers(a_rows[i / 2].values[(lane / 4 * 4 + of_pair) as usize]);
            let of_b = numbers(b_column.values[(column * 4 + of_pair) as usize]);
            *sum += of_a.iter().zip(of_b).map(|(a, b)| a * b).sum::<f32>();
        }
    }
    sums
}
