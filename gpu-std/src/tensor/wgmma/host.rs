//! Emulated `wgmma`: products are recorded when they are issued, and computed when a thread waits for them.

use super::{Half, Major, Operand, SharedTile, Sum};
use crate::host::collective;
use crate::scalar::Scalar;
use crate::tensor::shared::SharedAddress;
use crate::{thread, warp};

/// The operands of a product.
#[derive(Clone, Copy)]
struct Operands {
    /// The left tile, or null if the left operand is in registers.
    a: *mut u8,
    b: *mut u8,
    /// Index of a 64-column part of the fragments, if the left operand is in registers.
    part: u32,
    accumulate: bool,
}

/// Adds a product to the calling thread's sums. The second argument contains the registers of the left operand, if it
/// is in registers.
type Multiply<S> = fn(&mut [S], &[u32], Operands);

/// Maximum number of in-flight products per accumulator.
const MAX: usize = 64;

/// In-flight products, ordered from oldest to newest.
///
/// They are stored inline: `warpsmith check` would treat heap memory as shared if one thread frees it and the next
/// allocates it.
pub(super) struct Groups<S> {
    products: [Option<(Multiply<S>, Operands)>; MAX],
    count: usize,
    /// Number of products that precede the last batch.
    earlier: usize,
    /// Hash of the issued products, which must be the same in all lanes of a warp.
    issued: u64,
}

impl<S> Default for Groups<S> {
    fn default() -> Self {
        Self { products: [None; MAX], count: 0, earlier: 0, issued: 0 }
    }
}

impl<S: Sum> Groups<S> {
    pub fn begin(mut self) -> Self {
        self.earlier = self.count;
        self
    }

    #[track_caller]
    pub fn push<AMajor: Major, BMajor: Major, A, B, const N: usize>(
        &mut self,
        a: SharedTile<A, 64>,
        b: SharedTile<B, N>,
        accumulate: bool,
    ) where
        A: super::Multiply<B, Sum = S>,
        B: Operand<Sum = S>,
    {
        let operands = Operands { a: a.address.0, b: b.address.0, part: 0, accumulate };
        self.issue(multiply::<AMajor, BMajor, A, B, N>, operands);
    }

    #[track_caller]
    fn issue(&mut self, multiply: Multiply<S>, operands: Operands) {
        let Operands { a, b, part, accumulate } = operands;
        for number in [a.addr() ^ part as usize, b.addr(), accumulate.into()] {
            self.issued = self.issued.rotate_left(7).wrapping_mul(0x9e37_79b9) ^ number as u64;
        }
        assert!(
            self.count < MAX,
            "the emulated device supports at most {MAX} `wgmma` in flight per accumulator"
        );
        self.products[self.count] = Some((multiply, operands));
        self.count += 1;
    }

    /// Panics if lanes of a warp have issued different products.
    #[track_caller]
    pub fn check(&self) {
        let first = warp::shuffle(!0, self.issued, 0);
        assert!(first == self.issued, "the lanes of a warp must multiply the same tiles");
    }

    #[track_caller]
    pub fn run_but_last(&mut self, d: &mut [S]) {
        self.run_first(self.earlier, d, &[]);
    }

    #[track_caller]
    pub fn run(&mut self, d: &mut [S], fragments: &[u32]) {
        self.run_first(self.count, d, fragments);
    }

    #[track_caller]
    fn run_first(&mut self, count: usize, d: &mut [S], fragments: &[u32]) {
        collective::group_barrier();
        for (multiply, operands) in self.products[..count].iter().flatten() {
            multiply(d, fragments, *operands);
        }
        self.products.copy_within(count..self.count, 0);
        self.count -= count;
        self.earlier = 0;
        // A product may count as complete for one thread only when it is complete for all threads, because the first
        // thread to continue may reuse the tiles.
        collective::group_barrier();
    }
}

impl Groups<f32> {
    #[track_caller]
    pub fn push_fragments<BMajor: Major, T: Half, const N: usize>(
        &mut self,
        part: u32,
        b: SharedTile<T, N>,
        accumulate: bool,
    ) {
        let operands = Operands { a: std::ptr::null_mut(), b: b.address.0, part, accumulate };
        self.issue(multiply_fragments::<BMajor, T, N>, operands);
    }
}

/// The values of one operand row of 128 bytes. They are stored on the stack: `warpsmith check` would treat heap memory
/// as shared if one thread frees it and the next allocates it.
type Row<S> = [S; 128];

fn row_of<T: Operand>(element: impl Fn(u32) -> *const T) -> Row<T::Sum> {
    let mut values = [T::Sum::ZERO; 128];
    let depth = 128 / size_of::<T>();
    // SAFETY: the caller that issued the product promised that the tile contains valid values.
    values[..depth].iter_mut().zip(0..).for_each(|(value, k)| *value = unsafe { element(k).read() }.to_sum());
    values
}

/// Returns the two rows of a 64-column part of the fragments that correspond to the calling thread's sums, gathered
/// from the four threads that own them.
fn rows_of<T: Half>(fragments: &[u32], part: u32) -> [Row<f32>; 2] {
    let mut rows = [[0.0; 128]; 2];
    let first = 16 * part as usize;
    for (i, pair) in fragments[first..first + 16].chunks_exact(2).enumerate() {
        // Two registers with the same columns. One belongs to a row, and the other to the row eight below it.
        let bits = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let all = collective::warp_exchange(!0, "wgmma", bits).values;
        for quad in 0..4 {
            let bits = all[(warp::lane_id() as usize & !3) + quad];
            for (element, at) in (0..4).map(|element| (element, 8 * i + 2 * quad + element % 2)) {
                rows[element / 2][at] = T::of_bits((bits >> (16 * element)) as u16);
            }
        }
    }
    rows
}

fn multiply<AMajor: Major, BMajor: Major, A, B, const N: usize>(
    d: &mut [A::Sum],
    _: &[u32],
    Operands { a, b, accumulate, .. }: Operands,
) where
    A: super::Multiply<B>,
    B: Operand<Sum = A::Sum>,
{
    let a = SharedTile::<A, 64>::at(SharedAddress(a));
    let row = 16 * (thread::linear_in_block() / 32 % 4) + warp::lane_id() / 4;
    let a_rows = [row, row + 8].map(|row| row_of(|k| AMajor::element(a, row, k)));
    add::<BMajor, B, N>(d, &a_rows, SharedTile::at(SharedAddress(b)), accumulate);
}

fn multiply_fragments<BMajor: Major, T: Half, const N: usize>(
    d: &mut [f32],
    fragments: &[u32],
    Operands { b, part, accumulate, .. }: Operands,
) {
    let a_rows = rows_of::<T>(fragments, part);
    add::<BMajor, T, N>(d, &a_rows, SharedTile::at(SharedAddress(b)), accumulate);
}

/// Adds the products of two rows of `a` with the columns of the calling thread's sums.
fn add<BMajor: Major, B: Operand, const N: usize>(
    d: &mut [B::Sum],
    a_rows: &[Row<B::Sum>; 2],
    b: SharedTile<B, N>,
    accumulate: bool,
) {
    let depth = 128 / size_of::<B>();
    for (j, quad) in d.chunks_exact_mut(4).enumerate() {
        for i in 0..2 {
            let column = 8 * j as u32 + 2 * (warp::lane_id() % 4) + i;
            let b_row = row_of(|k| BMajor::element(b, column, k));
            for (half, a_row) in a_rows.iter().enumerate() {
                let pairs = a_row[..depth].iter().zip(&b_row);
                let sum = pairs.fold(B::Sum::ZERO, |sum, (&a, &b)| sum.wrapping_add(a.wrapping_mul(b)));
                let at = &mut quad[2 * half + i as usize];
                *at = if accumulate { at.wrapping_add(sum) } else { sum };
            }
        }
    }
}
