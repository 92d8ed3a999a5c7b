//! What the emulated device does: the same products in plain Rust, summed in the type of the scalars and rounded once.
//!
//! Nothing here keeps a reference to device memory: elements are read and written one by one.

use super::matrix::Layout;
use super::types::Element;
use super::types::sealed::Sum;

/// A matrix in the emulated device's memory, which is memory of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostMatrix {
    /// The address of its first element.
    pub ptr: u64,
    pub layout: Layout,
}

impl HostMatrix {
    /// # Safety
    /// The matrix is in memory that may be read, of elements of this type.
    pub unsafe fn get<T: Element>(&self, batch: usize, row: usize, col: usize) -> T::Sum {
        let at = (self.ptr as *const T).wrapping_add(self.layout.index(batch, row, col));
        // SAFETY: the element is inside of the matrix, as the caller promises. Nothing is said about alignment.
        unsafe { at.read_unaligned() }.widen()
    }

    /// # Safety
    /// The same, and nobody else uses the matrix.
    pub unsafe fn set<T: Element>(&self, batch: usize, row: usize, col: usize, value: T::Sum) {
        let at = (self.ptr as *mut T).wrapping_add(self.layout.index(batch, row, col));
        // SAFETY: as above, and nobody else uses it.
        unsafe { at.write_unaligned(T::narrow(value)) }
    }

    /// All elements of one matrix, row after row.
    ///
    /// # Safety
    /// As [`Self::get`].
    unsafe fn packed<T: Element>(&self, batch: usize) -> Vec<T::Sum> {
        let (rows, cols) = (self.layout.rows(), self.layout.cols());
        let indices = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        // SAFETY: the indices are those of the matrix.
        indices.map(|(row, col)| unsafe { self.get::<T>(batch, row, col) }).collect()
    }
}

/// `d = finish(alpha * a * b + beta * c)`; `finish` is told the column. `c` may be `d`, and is not read with a `beta` of
/// zero. The shapes fit, and all batches have as many matrices.
///
/// # Safety
/// The matrices are in memory that may be read, that of `d` written, and nobody else uses `d`.
pub(super) unsafe fn gemm<A, B, C>(
    (alpha, beta): (A::Sum, A::Sum),
    [a, b, c, d]: [HostMatrix; 4],
    finish: impl Fn(usize, A::Sum) -> A::Sum,
) where
    A: Element,
    B: Element<Sum = A::Sum>,
    C: Element<Sum = A::Sum>,
{
    let (m, n, k) = (d.layout.rows(), d.layout.cols(), a.layout.cols());
    if m == 0 || n == 0 {
        return;
    }
    let mut product = vec![A::Sum::ZERO; m * n];
    for batch in 0..d.layout.count() {
        if k > 0 {
            // SAFETY: passed on from the caller.
            let (a, b) = unsafe { (a.packed::<A>(batch), b.packed::<B>(batch)) };
            A::Sum::product(m, k, n, &a, &b, &mut product);
        }
        for (row, sums) in product.chunks(n).enumerate() {
            for (col, &sum) in sums.iter().enumerate() {
                let mut value = if k > 0 { alpha.mul(sum) } else { A::Sum::ZERO };
                if beta != A::Sum::ZERO {
                    // SAFETY: passed on from the caller.
                    value = value.add(beta.mul(unsafe { c.get::<C>(batch, row, col) }));
                }
                // SAFETY: passed on from the caller.
                unsafe { d.set::<C>(batch, row, col, finish(col, value)) }
            }
        }
    }
}

/// Solves `a * x = alpha * b` for `x`, which takes the place of `b`, where `a` is triangular: its other elements are not
/// read, nor those of its diagonal if they are taken for ones. With an `alpha` of 0 neither is read.
///
/// # Safety
/// The matrices are in memory that may be read, that of `b` written, and nobody else uses `b`.
pub(super) unsafe fn solve<T: Element>(
    alpha: T::Sum,
    is_lower: bool,
    unit_diagonal: bool,
    batch: usize,
    [a, b]: [HostMatrix; 2],
) {
    let (m, n) = (b.layout.rows(), b.layout.cols());
    let a_batch = if a.layout.count() == 1 { 0 } else { batch };
    for col in 0..n {
        for step in 0..m {
            let row = if is_lower { step } else { m - 1 - step };
            let known = if is_lower { 0..row } else { row + 1..m };
            // SAFETY: `a` is m x m and `b` m x n, and the caller promises the memory.
            unsafe {
                if alpha == T::Sum::ZERO {
                    b.set::<T>(batch, row, col, T::Sum::ZERO);
                    continue;
                }
                let start = alpha.mul(b.get::<T>(batch, row, col));
                let rest = known.fold(start, |rest, other| {
                    rest.sub(a.get::<T>(a_batch, row, other).mul(b.get::<T>(batch, other, col)))
                });
                let x = if unit_diagonal { rest } else { rest.div(a.get::<T>(a_batch, row, row)) };
                b.set::<T>(batch, row, col, x);
            }
        }
    }
}
