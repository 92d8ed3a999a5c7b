//! Matrix operations on the emulated device, in plain Rust. Sums are accumulated in the type of the scalars and rounded
//! once.
//!
//! This module creates no references to device memory. It reads and writes elements one by one.

use super::matrix::Layout;
use super::types::GemmType;
use super::types::sealed::Sum;
use crate::element::LibraryType;

/// A matrix in the memory of the emulated device, which is memory of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostMatrix {
    /// Address of the first element.
    pub ptr: u64,
    pub layout: Layout,
}

impl HostMatrix {
    /// # Safety
    /// The matrix must be in host-readable memory and have elements of type `T`, and the indices must be in range.
    pub unsafe fn get<T: LibraryType>(&self, batch: usize, row: usize, col: usize) -> f64 {
        let at = (self.ptr as *const T).wrapping_add(self.layout.index(batch, row, col));
        // SAFETY: the caller guarantees that the element is inside the matrix. The element may be unaligned.
        unsafe { at.read_unaligned() }.to_f64()
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::get`]. In addition, the memory must be writable, and
    /// nothing else may access the matrix.
    pub unsafe fn set<T: LibraryType>(&self, batch: usize, row: usize, col: usize, value: f64) {
        let at = (self.ptr as *mut T).wrapping_add(self.layout.index(batch, row, col));
        // SAFETY: as above, and nothing else accesses the matrix.
        unsafe { at.write_unaligned(T::from_f64(value)) }
    }

    /// Returns all elements of one matrix in row-major order.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::get`].
    unsafe fn packed<T: GemmType>(&self, batch: usize) -> Vec<T::Sum> {
        let (rows, cols) = (self.layout.rows(), self.layout.columns());
        let indices = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        // SAFETY: the indices are inside the matrix.
        indices.map(|(row, col)| T::Sum::from_f64(unsafe { self.get::<T>(batch, row, col) })).collect()
    }
}

/// Computes `c = finish(alpha * a * b + beta * c)`. `finish` also receives the element's column. If `beta` is 0, `c` is
/// not read. The shapes must match, and all batches must contain the same number of matrices.
///
/// # Safety
/// The matrices must be in readable memory, `c` must be in writable memory, and nothing else may access `c`.
pub(super) unsafe fn gemm<A, B, C>(
    (alpha, beta): (A::Sum, A::Sum),
    [a, b, c]: [HostMatrix; 3],
    finish: impl Fn(usize, f64) -> f64,
) where
    A: GemmType,
    B: GemmType<Sum = A::Sum>,
    C: GemmType<Sum = A::Sum>,
{
    let (m, n, k) = (c.layout.rows(), c.layout.columns(), a.layout.columns());
    let zero = A::Sum::from_f64(0.0);
    let mut product = vec![zero; m * n];
    for batch in 0..c.layout.count() {
        // SAFETY: guaranteed by the caller.
        let (a, b) = unsafe { (a.packed::<A>(batch), b.packed::<B>(batch)) };
        A::Sum::product(m, k, n, &a, &b, &mut product);
        for (index, &sum) in product.iter().enumerate() {
            let (row, col) = (index / n, index % n);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let before = if beta == zero { zero } else { A::Sum::from_f64(c.get::<C>(batch, row, col)) };
                c.set::<C>(batch, row, col, finish(col, A::Sum::scaled(alpha, sum, beta, before).to_f64()));
            }
        }
    }
}
