//! [`EpilogueParams`]: the GEMM epilogue, applied to sums before they are stored.

use core::num::NonZeroU64;

use gpu_std::math::fast;
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::Sum;
use gpu_std::vectorized::store_run;

use crate::matmul::{At, Sizes};
use crate::non_persistent::RowStrides;

/// GEMM epilogue, applied to sums before they are stored: `activation(scale * sum + bias)`.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct EpilogueParams {
    /// Factor by which the sums are scaled.
    pub scale: f32,
    /// Discriminant of the [`Activation`].
    pub activation: u32,
    /// 1 if the result is added to C instead of replacing it. Only skinny GEMMs support it.
    pub accumulates: u32,
}

/// Activation function of a GEMM epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum Activation {
    /// Identity.
    #[default]
    None = 0,
    /// `max(x, 0)`; NaN stays NaN.
    Relu = 1,
    /// GELU, tanh approximation.
    Gelu = 2,
    /// SwiGLU: `b` has twice as many columns as `c`. With the gate in the first half and `up` in the second half of the
    /// columns of `a * b`, the result is `gate / (1 + exp(-gate)) * up`.
    SwiGlu = 3,
}

impl EpilogueParams {
    /// Applies the epilogue to one sum.
    #[inline(always)]
    pub(crate) fn of(self, sum: f32, bias: Option<f32>) -> f32 {
        let x = sum * self.scale;
        let x = match bias {
            Some(bias) => x + bias,
            None => x,
        };
        if self.activation == Activation::Relu as u32 {
            relu(x)
        } else if self.activation == Activation::Gelu as u32 {
            gelu(x)
        } else {
            x
        }
    }

    /// Applies the epilogue to four adjacent sums of a row, starting at `column`, and stores those results whose column
    /// is less than `n`. The row must start at element `row` of `to`.
    ///
    /// # Safety
    /// The row must have n elements, and no other thread may write them; `column` must be less than n; `bias` must have
    /// n elements.
    #[inline(always)]
    pub(crate) unsafe fn store<C: Float>(
        self,
        to: *mut C,
        row: u64,
        column: u32,
        n: u32,
        bias: Option<&[C]>,
        sums: [f32; 4],
    ) {
        let values = core::array::from_fn(|i| {
            let at = (column + i as u32).min(n - 1) as usize;
            // SAFETY: the bias has one element per column.
            let bias = bias.map(|bias| unsafe { *bias.get_unchecked(at) }.cast::<f32>());
            self.of(sums[i], bias).cast::<C>()
        });
        let count = (n - column).min(4) as usize;
        // SAFETY: guaranteed by the caller.
        unsafe { store_run::<C, 4>(to, (row + u64::from(column)) as usize, count, values) };
    }

    /// Returns whether the epilogue only adds a bias or does nothing.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.scale == 1.0 && self.activation == Activation::None as u32
    }

    /// Applies the epilogue to a thread's sums. `at` contains the coordinates of the thread's first sums.
    #[inline(always)]
    pub(crate) fn apply<C: KernelType + Into<f32>, const COUNT: usize>(
        self,
        sums: &mut [f32; COUNT],
        bias: Option<&[C]>,
        at: At,
    ) {
        if self.scale != 1.0 {
            for_each(sums, |sum, _| sum * self.scale);
        }
        if let Some(bias) = bias {
            let last = (bias.len() as u32).wrapping_sub(1);
            for_each(sums, |sum, column| {
                // SAFETY: the index is clamped to the last element.
                let bias: f32 =
                    unsafe { *bias.get_unchecked((at.column + column).min(last) as usize) }.into();
                sum + bias
            });
        }
        if self.activation == Activation::Relu as u32 {
            for_each(sums, |sum, _| relu(sum));
        } else if self.activation == Activation::Gelu as u32 {
            for_each(sums, |sum, _| gelu(sum));
        }
    }
}

/// Replaces each of a thread's sums by `of(sum, column)`, where `column` is relative to the column of the first sum.
#[inline(always)]
pub fn for_each<S: Sum, const COUNT: usize>(sums: &mut [S; COUNT], of: impl Fn(S, u32) -> S) {
    let mut i = 0;
    while i < COUNT {
        sums[i] = of(sums[i], (i as u32 / 4) * 8 + i as u32 % 2);
        i += 1;
    }
}

/// Computes `x / (1 + exp(-2 z))` with `z = sqrt(2 / pi) (x + 0.044715 x^3)`, which equals `x / 2 (1 + tanh(z))`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const LINEAR: f32 = -2.0 * 0.797_884_6 * core::f32::consts::LOG2_E;
    const CUBIC: f32 = 0.044_715 * LINEAR;
    x * fast::recip(1.0 + fast::exp2(x * (LINEAR + CUBIC * (x * x))))
}

/// Computes `x / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x * fast::recip(1.0 + fast::exp2(-core::f32::consts::LOG2_E * x))
}

/// Epilogue of a GEMM with k = 0: `c = activation(bias)`.
///
/// # Safety
/// `c` must contain `batches` matrices of `m` x `n` elements with the strides `rows`, and `bias` must have n elements.
#[kernel(types(C = bf16, f16, f32), launch_bounds(256), no_panic)]
pub unsafe fn finish_nothing<C: Float>(
    mut c: DisjointMut<C>,
    bias: Option<&[C]>,
    sizes: Sizes,
    rows: RowStrides,
    finish: EpilogueParams,
) {
    let quads = u64::from(sizes.n.div_ceil(4));
    let all = u64::from(sizes.batches) * u64::from(sizes.m) * quads;
    let mut i = u64::from(thread::index_1d());
    while i < all {
        // SAFETY: the loop body runs only if there is a column and a row, so neither divisor is zero.
        let (quads, m) =
            unsafe { (NonZeroU64::new_unchecked(quads), NonZeroU64::new_unchecked(sizes.m.into())) };
        let (row, column) = (i / quads, i % quads * 4);
        let first = row / m * rows.plane + row % m * rows.pitch;
        // SAFETY: all columns below n of this row of C are in bounds, and no other thread writes them.
        unsafe { finish.store(c.as_mut_ptr(), first, column as u32, sizes.n, bias, [0.0; 4]) };
        i += u64::from(thread::grid_dim_x()) * u64::from(thread::block_dim_x());
    }
}

/// Computes `to = silu(gate) * up`, where the first half of each row of `from` is `gate`, and the second half is `up`.
///
/// # Safety
/// `from` must have `rows` rows of `2 * n` elements, and `to` must have `rows` rows of n elements, `pitch` elements
/// apart. The grid must be one-dimensional.
#[kernel(types(C = bf16, f16), arch = 80, launch_bounds(256), no_panic)]
pub unsafe fn swiglu<C: Float>(from: &[C], mut to: DisjointMut<C>, rows: u32, n: u32, pitch: u64) {
    let (n, all) = (u64::from(n), u64::from(rows) * u64::from(n));
    let mut i = u64::from(thread::index_1d());
    while i < all {
        // SAFETY: the loop body runs only if there is a column, so the divisor is not zero.
        let width = unsafe { NonZeroU64::new_unchecked(n) };
        let (row, column) = (i / width, i % width);
        let first = row * 2 * n + column;
        // SAFETY: both elements exist, and no other thread writes the result.
        unsafe {
            let [gate, up] = [first, first + n].map(|at| from.get_unchecked(at as usize).cast::<f32>());
            to.as_mut_ptr().add((row * pitch + column) as usize).write((silu(gate) * up).cast());
        }
        i += u64::from(thread::grid_dim_x()) * u64::from(thread::block_dim_x());
    }
}

/// ReLU; NaN stays NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}
