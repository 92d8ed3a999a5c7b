//! [`Finish`]: what becomes of sums before they are stored, in the kernels of products and behind those of parts.

use core::num::NonZeroU32;

use gpu_std::math::fast;
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::Sum;
use gpu_std::vectorized::store_run;

use crate::matmul::{At, TILE_N};

/// What becomes of sums before they are stored: `activation(scale * sum + bias)`.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Finish {
    /// The factor.
    pub scale: f32,
    /// The number of the [`Activation`].
    pub activation: u32,
}

/// A function of the elements of a product, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum Activation {
    /// x.
    #[default]
    None = 0,
    /// `max(x, 0)`; NaN stays NaN.
    Relu = 1,
    /// The Gaussian error linear unit by its approximation with `tanh`.
    Gelu = 2,
}

impl Finish {
    /// Of one sum.
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

    /// Of four adjacent sums of a row, from `column` on, of which those below `n` are stored: the row begins at element `row` of
    /// `to`.
    ///
    /// # Safety
    ///
    /// The row has n elements, which no other thread writes, and n is above `column`; `bias` has n elements.
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
            // SAFETY: the bias has an element for each column.
            let bias = bias.map(|bias| unsafe { *bias.get_unchecked(at) }.cast::<f32>());
            self.of(sums[i], bias).cast::<C>()
        });
        let count = (n - column).min(4) as usize;
        // SAFETY: the caller's promise.
        unsafe { store_run::<C, 4>(to, (row + u64::from(column)) as usize, count, values) };
    }

    /// Of the sums of a thread, the first of which are at `at`.
    #[inline(always)]
    pub(crate) fn apply<C: KernelType + Into<f32>>(
        self,
        sums: &mut [f32; TILE_N as usize / 2],
        bias: Option<&[C]>,
        at: At,
    ) {
        if self.scale != 1.0 {
            for_each(sums, |sum, _| sum * self.scale);
        }
        if let Some(bias) = bias {
            let last = (bias.len() as u32).wrapping_sub(1);
            for_each(sums, |sum, column| {
                // SAFETY: the index is that of the last element at most.
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

/// Replaces each sum of a thread by `of` it and its column after that of the first.
#[inline(always)]
pub fn for_each<S: Sum>(sums: &mut [S; TILE_N as usize / 2], of: impl Fn(S, u32) -> S) {
    let mut i = 0;
    while i < TILE_N as usize / 2 {
        sums[i] = of(sums[i], (i as u32 / 4) * 8 + i as u32 % 2);
        i += 1;
    }
}

/// `x / (1 + exp(-2 z))` with `z = sqrt(2 / pi) (x + 0.044715 x^3)`, which is `x / 2 (1 + tanh(z))`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const LINEAR: f32 = -2.0 * 0.797_884_6 * core::f32::consts::LOG2_E;
    const CUBIC: f32 = 0.044_715 * LINEAR;
    x * fast::recip(1.0 + fast::exp2(x * (LINEAR + CUBIC * (x * x))))
}

/// Parts of the sums of products, and where the products lie. All figures are in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Parts {
    /// Rows of a product.
    pub m: u32,
    /// Columns of a product.
    pub n: u32,
    /// Parts of each product, one after the other, in matrices of m rows of `pitch`.
    pub splits: u32,
    /// Products.
    pub batches: u32,
    /// From one row of a part to the next, a multiple of 4.
    pub pitch: u32,
    /// From one row of a product to the next.
    pub c_pitch: u64,
    /// From one product to the next.
    pub c_plane: u64,
}

/// Four sums, which are loaded at once.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([f32; 4]);

/// `c = activation(scale * (the sum of parts) + bias)`. Parts are added in their order.
///
/// # Safety
///
/// `parts` has `batches * splits * m * pitch` elements, fewer than 2^32, from a multiple of 16 bytes on; `c` has the products
/// that `of` says, and `bias` n elements.
#[kernel(types(C = bf16, f16, f32), launch_bounds(256), no_panic)]
pub unsafe fn finish_parts<C: Float>(
    parts: &[f32],
    mut c: DisjointMut<C>,
    bias: Option<&[C]>,
    of: Parts,
    finish: Finish,
) {
    let (parts, c) = (parts.as_ptr().cast::<Four>(), c.as_mut_ptr());
    let quads = of.pitch / 4;
    let plane = of.m * quads;
    let mut i = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    while i < of.batches * plane {
        // SAFETY: there is a column, so that a row has at least four; and a row.
        let (quads, plane) = unsafe { (NonZeroU32::new_unchecked(quads), NonZeroU32::new_unchecked(plane)) };
        let (batch, in_plane) = (i / plane, i % plane);
        let (row, column) = (in_plane / quads, in_plane % quads * 4);
        let mut sums = [0.0f32; 4];
        let mut split = 0;
        while split < of.splits {
            // SAFETY: the part has these four elements.
            let part = unsafe { *parts.add(((batch * of.splits + split) * plane.get() + in_plane) as usize) };
            let mut j = 0;
            while j < 4 {
                sums[j] += part.0[j];
                j += 1;
            }
            split += 1;
        }
        let first = u64::from(batch) * of.c_plane + u64::from(row) * of.c_pitch;
        if column < of.n {
            // SAFETY: the product has these elements, which no other thread writes.
            unsafe { finish.store(c, first, column, of.n, bias, sums) };
        }
        i += thread::grid_dim_x() * thread::block_dim_x();
    }
}

/// NaN stays NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}
