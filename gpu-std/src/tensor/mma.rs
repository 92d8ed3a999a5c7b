//! Warp-level matrix products for compute capability 8.0 and later: [`mma`].
//!
//! For memory-bound products, a warp can multiply operands that it has just loaded into registers. Data does not pass
//! through shared memory, and threads do not wait for each other.

use super::Operand;
#[cfg(not(target_arch = "nvptx64"))]
use crate::scalar::Scalar;
use crate::{bf16, f16};

/// An operand type of [`mma`]. The trait is sealed.
///
/// | type | sums | columns of `a` |
/// | --- | --- | --- |
/// | `bf16`, `f16` | `f32` | 16 |
/// | `f32`, of which only the upper 19 bits are read (TF32, with 10 mantissa bits, truncated) | `f32` | 8 |
/// | `i8` | `i32`, wrapping | 32 |
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::tensor::mma::mma;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// # Safety
/// /// `out` must have 32 vectors.
/// #[kernel(arch = 80, block(32))]
/// unsafe fn multiply(out: *mut [i32; 4]) {
///     // Each register packs four integers: those of `a` are 1, and those of `b` are -2.
///     // SAFETY: the whole warp calls it, and each lane writes its own vector.
///     unsafe {
///         let sums = mma::<i8>([5; 4], [0x0101_0101; 4], [0xfefe_fefe; 2]);
///         out.add(warp::lane_id() as usize).write(sums);
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut out = DeviceBuffer::<[i32; 4]>::zeros(&stream, 32)?;
/// # // SAFETY: there is one vector per lane.
/// # unsafe { module.kernel::<multiply>()?.launch_unsafe(&stream, Launch::grid_block(1, 32), (&mut out,))? };
/// assert_eq!(out.to_host()?, [[5 - 2 * 32; 4]; 32]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub trait WarpOperand: Operand + sealed::Sealed {
    /// Issues the instruction.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn issue(sums: [Self::Sum; 4], a: [u32; 4], b: [u32; 2]) -> [Self::Sum; 4];
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! operands {
    ($($ty:ident: $types:literal),* $(,)?) => { $(
        impl sealed::Sealed for $ty {}

        impl WarpOperand for $ty {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn issue(sums: [Self::Sum; 4], a: [u32; 4], b: [u32; 2]) -> [Self::Sum; 4] {
                let [mut s0, mut s1, mut s2, mut s3] = sums;
                // SAFETY: the caller promises that all lanes of the warp execute this instruction, which accesses only
                // registers.
                unsafe {
                    core::arch::asm!(
                        concat!(
                            "mma.sync.aligned.", $types, " {{{s0}, {s1}, {s2}, {s3}}}, ",
                            "{{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{s0}, {s1}, {s2}, {s3}}};"
                        ),
                        s0 = inout(reg32) s0, s1 = inout(reg32) s1, s2 = inout(reg32) s2, s3 = inout(reg32) s3,
                        a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                        b0 = in(reg32) b[0], b1 = in(reg32) b[1],
                        options(pure, nomem, nostack)
                    );
                }
                [s0, s1, s2, s3]
            }
        }
    )* };
}
operands! {
    bf16: "m16n8k16.row.col.f32.bf16.bf16.f32",
    f16: "m16n8k16.row.col.f32.f16.f16.f32",
    f32: "m16n8k8.row.col.f32.tf32.tf32.f32",
    i8: "m16n8k32.row.col.s32.s8.s8.s32",
}

/// Computes `sums + a * b` with one warp (`mma.m16n8k16` for 16-bit elements), where `a` is a 16 x `K` matrix and `b`
/// is a `K` x 8 matrix, with `K` = 32 / `size_of::<T>()`.
///
/// Each register packs `P` = 4 / `size_of::<T>()` numbers, with the first in its low bits. With `row` = lane / 4,
/// `pair` = 2 * (lane % 4) and `first` = `P` * (lane % 4), each lane holds:
///
/// | operand | register or sum | elements |
/// | --- | --- | --- |
/// | `a` | 0, 1 | `P` columns from `first` on, of rows `row` and `row + 8` |
/// | | 2, 3 | `P` columns from `first + K / 2` on, of the same rows |
/// | `b` | 0, 1 | `P` rows from `first` on (register 0) and from `first + K / 2` on (register 1), of column `row` |
/// | `sums` | 0, 1 | columns `pair` and `pair + 1` of row `row` |
/// | | 2, 3 | the same columns of row `row + 8` |
///
/// The same products are summed if the columns of `a` and the rows of `b` are permuted in the same way. The hardware
/// determines the order and the rounding of the additions.
///
/// See the [example](super::matrix_tile#example).
///
/// # Safety
/// All 32 lanes of the warp must call this function together, on compute capability 8.0 or later.
#[inline(always)]
#[track_caller]
#[must_use]
pub unsafe fn mma<T: WarpOperand>(sums: [T::Sum; 4], a: [u32; 4], b: [u32; 2]) -> [T::Sum; 4] {
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
fn host<T: WarpOperand>(mut sums: [T::Sum; 4], a: [u32; 4], b: [u32; 2]) -> [T::Sum; 4] {
    let lane = crate::warp::lane_id();
    let exchange = |low: u32, high: u32| {
        crate::host::collective::warp_exchange(!0, "mma", u64::from(low) | u64::from(high) << 32)
    };
    // Gathers from each lane the registers that hold rows `row` and `row + 8` of `a`, and the registers that hold `b`.
    let (a_rows, b_column) = ([exchange(a[0], a[2]), exchange(a[1], a[3])], exchange(b[0], b[1]));
    let number = |registers: &u64, i: usize| {
        // SAFETY: the registers contain at least `i + 1` elements, and all bit patterns of operand types are valid.
        unsafe { core::ptr::from_ref(registers).cast::<T>().add(i).read() }.to_sum()
    };
    for (i, sum) in sums.iter_mut().enumerate() {
        let column = 2 * (lane % 4) + i as u32 % 2;
        for part in 0..4 {
            let of_a = &a_rows[i / 2].values[(lane / 4 * 4 + part) as usize];
            let of_b = &b_column.values[(column * 4 + part) as usize];
            let products = (0..size_of::<u64>() / size_of::<T>())
                .fold(T::Sum::ZERO, |all, i| all.wrapping_add(number(of_a, i).wrapping_mul(number(of_b, i))));
            *sum = sum.wrapping_add(products);
        }
    }
    sums
}
