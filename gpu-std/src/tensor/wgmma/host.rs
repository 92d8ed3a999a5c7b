//! The products of the emulated device: recorded where they are issued, computed where they are waited for.

use super::{Major, Multiply, Operand, SharedTile, Sum};
use crate::{thread, warp};
use warpsmith_emulator::collective;

/// A product: adds it to the registers of the calling thread.
type Product<S> = Box<dyn Fn(&mut [S])>;

/// The batches under way, the oldest first.
pub(super) struct Groups<S> {
    products: Vec<Vec<Product<S>>>,
    /// A number that all lanes of a warp agree on, of what was issued.
    issued: u64,
}

impl<S> Default for Groups<S> {
    fn default() -> Self {
        Self { products: Vec::new(), issued: 0 }
    }
}

impl<S: Sum> Groups<S> {
    pub fn begin(mut self) -> Self {
        self.products.push(Vec::new());
        self
    }

    pub fn push<AMajor: Major, BMajor: Major, A, B, const N: usize>(
        &mut self,
        a: SharedTile<A, 64>,
        b: SharedTile<B, N>,
        accumulate: bool,
    ) where
        A: Multiply<B, Sum = S>,
        B: Operand<Sum = S>,
    {
        for number in [a.address.0.addr(), b.address.0.addr(), accumulate.into()] {
            self.issued = self.issued.rotate_left(7).wrapping_mul(0x9e37_79b9) ^ number as u64;
        }
        if let Some(group) = self.products.last_mut() {
            group.push(Box::new(move |d: &mut [S]| multiply::<AMajor, BMajor, A, B, N>(d, a, b, accumulate)));
        }
    }

    /// Fails if the lanes of a warp have issued different products.
    #[track_caller]
    pub fn check(&self) {
        let first = warp::shuffle(!0, self.issued, 0);
        assert!(first == self.issued, "the lanes of a warp multiply different tiles");
    }

    #[track_caller]
    pub fn run_but_last(&mut self, d: &mut [S]) {
        let last = self.products.pop();
        self.run(d);
        self.products.extend(last);
    }

    #[track_caller]
    pub fn run(&mut self, d: &mut [S]) {
        collective::group_barrier();
        self.products.drain(..).flatten().for_each(|product| product(d));
        // It is done for one when it is for all: the first that knows may free the tiles.
        collective::group_barrier();
    }
}

fn multiply<AMajor: Major, BMajor: Major, A, B, const N: usize>(
    d: &mut [A::Sum],
    a: SharedTile<A, 64>,
    b: SharedTile<B, N>,
    accumulate: bool,
) where
    A: Multiply<B>,
    B: Operand<Sum = A::Sum>,
{
    let (lane, warp) = (warp::lane_id(), thread::linear_in_block() / 32 % 4);
    let row = 16 * warp + lane / 4;
    let depth = 128 / size_of::<A>();
    // On the stack: `warpsmith check` takes heap memory that one thread frees and the next allocates for shared.
    let row_of = |element: &dyn Fn(u32) -> A::Sum| {
        let mut values = [A::Sum::ZERO; 128];
        values[..depth].iter_mut().zip(0..).for_each(|(value, k)| *value = element(k));
        values
    };
    // SAFETY: whoever issued the product promised that the tile holds values.
    let row_of_a = |row| row_of(&|k| unsafe { AMajor::element(a, row, k).read() }.to_sum());
    let a_rows = [row_of_a(row), row_of_a(row + 8)];
    for (j, quad) in d.chunks_exact_mut(4).enumerate() {
        for i in 0..2 {
            let column = 8 * j as u32 + 2 * (lane % 4) + i;
            // SAFETY: as above.
            let b_row = row_of(&|k| unsafe { BMajor::element(b, column, k).read() }.to_sum());
            for (half, a_row) in a_rows.iter().enumerate() {
                let pairs = a_row[..depth].iter().zip(&b_row);
                let sum = pairs.fold(A::Sum::ZERO, |sum, (&a, &b)| sum.multiply_add(a, b));
                let at = &mut quad[2 * half + i as usize];
                *at = if accumulate { at.multiply_add(sum, A::Sum::ONE) } else { sum };
            }
        }
    }
}
