//! [`Merged`]: sums over several subsets of the keys, in shared memory or in the workspace.

use core::array::from_fn;
use core::f32::consts::LOG2_E;

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::shared::dynamic_aligned;
use gpu_std::tensor::Half;
use gpu_std::vectorized::{each, load, store};

use super::{COUNTERS, GROUP, Operands, PADDING, Unit, partial_len};

/// Returns the base that is subtracted from the exponents of scores up to `largest`.
#[inline(always)]
pub(super) fn base(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

/// Returns the address in shared memory of a warp's sums for a query. The maximum and the sum of exponentials follow
/// these sums.
#[inline(always)]
pub(super) fn shared_row<const DIM: usize, const GROUPS: usize>(warp: usize, query: u32) -> *mut f32 {
    const { assert!(PADDING >= 2, "the padding has room for two numbers") };
    let row = warp * GROUP as usize * GROUPS + query as usize;
    dynamic_aligned::<f32>().wrapping_add(row * (DIM + PADDING))
}

/// Four sums over a subset of the keys, with the largest exponent and the sum of exponentials relative to that
/// exponent.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) sums: [f32; 4],
    pub(super) largest: f32,
    pub(super) total: f32,
}

impl Part {
    /// The identity: sums over no keys.
    pub(super) const NONE: Self = Self { sums: [0.0; 4], largest: f32::NEG_INFINITY, total: 0.0 };
}

/// Loads four sums of a warp from shared memory.
///
/// # Safety
///
/// The warp must have stored the sums.
#[inline(always)]
pub(super) unsafe fn shared_part<const DIM: usize, const GROUPS: usize>(
    warp: usize,
    query: u32,
    column: u32,
) -> Part {
    let from = shared_row::<DIM, GROUPS>(warp, query);
    // SAFETY: guaranteed by the caller; rows start on 16-byte boundaries.
    unsafe {
        let [largest, total] = load(from.wrapping_add(DIM));
        Part { sums: load(from.wrapping_add(column as usize)), largest, total }
    }
}

/// Merged sums over several subsets of the keys.
pub(super) struct Merged(Part);

impl Merged {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self(Part::NONE)
    }

    /// Rescales the parts to the largest exponent and adds them.
    #[inline(always)]
    pub(super) fn add<const N: usize>(&mut self, parts: &[Part; N]) {
        let mut largest = self.0.largest;
        each::<N>(|i| largest = largest.max(parts[i].largest));
        let base = base(largest);
        let factor = fast::exp2(self.0.largest - base);
        let mut all =
            Part { sums: self.0.sums.map(|sum| sum * factor), largest, total: self.0.total * factor };
        each::<N>(|i| {
            let factor = fast::exp2(parts[i].largest - base);
            all.sums = from_fn(|j| Math::mul_add(parts[i].sums[j], factor, all.sums[j]));
            all.total = Math::mul_add(parts[i].total, factor, all.total);
        });
        self.0 = all;
    }

    /// Adds the sink of the query's head, and stores four elements of the output.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`], and no other thread may access these
    /// elements.
    #[inline(always)]
    pub(super) unsafe fn finish<T: Half, C>(
        mut self,
        operands: &Operands<'_, T, C>,
        out: &mut DisjointMut<T>,
        unit: Unit,
        query: u32,
        column: u32,
    ) {
        let (head, row) = unit.place(&operands.shape, query);
        if let Some(sinks) = operands.sinks {
            // SAFETY: the caller guarantees one sink per head of q.
            let sink = unsafe { *sinks.get_unchecked(head as usize) };
            self.add(&[Part { sums: [0.0; 4], largest: sink * LOG2_E, total: 1.0 }]);
        }
        let Part { sums, total, .. } = self.0;
        // SAFETY: the caller guarantees one scale per head of v.
        let scale =
            operands.scales[1].map_or(1.0, |scales| unsafe { *scales.get_unchecked(unit.kv_head as usize) });
        let factor = if total == 0.0 { 0.0 } else { scale / total };
        let [a, b, c, d] = sums.map(|sum| if total == 0.0 { 0.0 } else { sum * factor });
        let at = operands.shape.out.at(unit.sequence, head, row) + u64::from(column);
        // SAFETY: guaranteed by the caller; the row starts on a 16-byte boundary.
        unsafe {
            store(out.as_mut_ptr().wrapping_add(at as usize).cast::<u32>(), [T::pack(a, b), T::pack(c, d)])
        };
    }
}

/// Partial results of a unit's blocks, in the workspace.
#[derive(Clone, Copy)]
pub(super) struct Merge {
    pub(super) workspace: *mut u32,
    pub(super) unit: Unit,
    /// Number of blocks that have keys.
    pub(super) blocks: u32,
    pub(super) splits: u32,
}

impl Merge {
    /// Returns the address of a block's sums for a query, and the address of the corresponding maximum and sum of
    /// exponentials.
    #[inline(always)]
    fn at<const DIM: usize, const GROUPS: usize>(&self, block: u32, query: u32) -> (*mut f32, *mut f32) {
        let block = self.unit.index as usize * self.splits as usize + block as usize;
        let of_block = self.workspace.wrapping_add(COUNTERS + block * partial_len(DIM, GROUPS)).cast::<f32>();
        let beside = GROUP as usize * GROUPS * DIM + 2 * query as usize;
        (of_block.wrapping_add(query as usize * DIM), of_block.wrapping_add(beside))
    }

    /// Stores four sums of the calling block.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`], and no other thread may access these
    /// elements.
    #[inline(always)]
    pub(super) unsafe fn store<const DIM: usize, const GROUPS: usize>(
        &self,
        query: u32,
        column: u32,
        sums: Merged,
    ) {
        let Merged(Part { sums, largest, total }) = sums;
        let (to, beside) = self.at::<DIM, GROUPS>(self.unit.split, query);
        // SAFETY: guaranteed by the caller; both addresses are aligned to the vectors.
        unsafe {
            store(to.wrapping_add(column as usize), sums);
            if column == 0 {
                store(beside, [largest, total]);
            }
        }
    }

    /// Loads four sums of a block, or sums over no keys if the unit does not have this block.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`], and the block must have stored the sums.
    #[inline(always)]
    pub(super) unsafe fn load<const DIM: usize, const GROUPS: usize>(
        &self,
        block: u32,
        query: u32,
        column: u32,
    ) -> Part {
        if block >= self.blocks {
            return Part::NONE;
        }
        let (from, beside) = self.at::<DIM, GROUPS>(block, query);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let [largest, total] = load(beside);
            Part { sums: load(from.wrapping_add(column as usize)), largest, total }
        }
    }
}
