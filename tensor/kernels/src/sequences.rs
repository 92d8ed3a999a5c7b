//! [`Sequences`]: the rows of heads of attention, and the tile of them that a block has.

use gpu_std::prelude::*;

use crate::tiles::divide;

/// Sequences of equal lengths, each a plane, or of lengths of their own, one after the other in one plane. All figures are below
/// 2^31, and the tiles of all heads below 2^31.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Sequences {
    /// How many there are: planes, or sequences of the one.
    pub count: u32,
    /// Heads of q.
    pub heads: u32,
    /// Rows of a plane of q.
    pub q_rows: u32,
    /// Rows of a plane of k and v.
    pub k_rows: u32,
    /// Heads whose tiles are worked on together, so that the L2 cache holds what they read. For sequences of equal lengths.
    pub band: u32,
}

/// The place of a box in a map of heads, of which bit `map` of `rows_first` says whether rows come before heads.
#[inline(always)]
pub(crate) fn coordinates(
    rows_first: u32,
    map: u32,
    column: u32,
    row: u32,
    head: u32,
    plane: u32,
) -> [u32; 4] {
    let (second, third) = if rows_first >> map & 1 == 1 { (row, head) } else { (head, row) };
    [column, second, third, plane]
}

/// Where the rows of heads lie in memory, in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct HeadStrides {
    /// From one row of a head to the next.
    pub row: u64,
    /// From one head to the next.
    pub head: u64,
    /// From one plane to the next.
    pub plane: u64,
}

impl HeadStrides {
    /// Where a row begins.
    #[inline(always)]
    pub(crate) fn at(&self, plane: u32, head: u32, row: u32) -> u64 {
        u64::from(plane) * self.plane + u64::from(head) * self.head + u64::from(row) * self.row
    }
}

/// A tile of a head, and its sequence.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The head of q.
    pub head: u32,
    /// The plane.
    pub plane: u32,
    /// The number of the sequence.
    pub sequence: u32,
    /// The rows of the sequence in the plane of q: the first, and how many.
    pub q: (u32, u32),
    /// Those of k and v.
    pub k: (u32, u32),
    /// The first row of the tile in the sequence.
    pub row: u32,
}

impl Sequences {
    /// Tiles of `tile` rows: all that there may be of sequences of lengths of their own.
    pub const fn tiles(&self, tile: u32, is_packed: bool) -> u64 {
        let of_head = if is_packed {
            (self.q_rows / tile + self.count) as u64
        } else {
            self.q_rows.div_ceil(tile) as u64 * self.count as u64
        };
        of_head * self.heads as u64
    }

    /// Tile `number` of those of equal lengths. The last tiles of sequences come first: with a causal mask they take longest.
    #[inline(always)]
    pub(crate) fn equal(&self, number: u32, tile: u32) -> Place {
        let tiles = self.q_rows.div_ceil(tile);
        let (band, in_band) = divide(number, self.band.wrapping_mul(tiles));
        let first = band.wrapping_mul(self.band);
        let width = self.band.min(self.heads.wrapping_mul(self.count) - first);
        let (before, in_row) = divide(in_band, width);
        let (plane, head) = divide(first + in_row, self.heads);
        Place {
            head,
            plane,
            sequence: plane,
            q: (0, self.q_rows),
            k: (0, self.k_rows),
            row: (tiles - 1 - before) * tile,
        }
    }

    /// Tile `number` of those of lengths of their own: sequence i has the rows from `offsets[i]` to `offsets[i + 1]`, of those
    /// that there are and that no sequence before it has. `None` where there are fewer tiles. Called by whole warps.
    ///
    /// # Safety
    ///
    /// Both offsets have one element more than there are sequences.
    #[inline(always)]
    pub(crate) unsafe fn packed(
        &self,
        number: u32,
        tile: u32,
        q_offsets: &[u32],
        k_offsets: &[u32],
    ) -> Option<Place> {
        let lane = warp::lane_id();
        let (head, tile_of_head) = divide(number, self.q_rows / tile + self.count);
        // SAFETY: there are as many offsets, by the caller's promise.
        let at = |offsets: &[u32], i: u32| unsafe { *offsets.get_unchecked(i.min(self.count) as usize) };
        let (mut q_end, mut k_end) = (at(q_offsets, 0).min(self.q_rows), at(k_offsets, 0).min(self.k_rows));
        let (mut sequence, mut tiles_before) = (0, 0);
        while sequence < self.count {
            // A sequence for each lane. No row is in two of them, whatever the offsets are.
            let i = sequence + lane + 1;
            let q = extent(at(q_offsets, i).min(self.q_rows), q_end);
            let k = extent(at(k_offsets, i).min(self.k_rows), k_end);
            let tiles = (q.1 - q.0).div_ceil(tile);
            let tiles_after = tiles_before + warp::inclusive_scan(!0, tiles, |a, b| a + b);
            let lanes = warp::ballot(!0, tile_of_head < tiles_after);
            if lanes != 0 {
                let of = lanes.trailing_zeros();
                let value = |value: u32| warp::shuffle(!0, value, of);
                let (q, k) = ((value(q.0), value(q.1)), (value(k.0), value(k.1)));
                let row = (tile_of_head - value(tiles_after - tiles)) * tile;
                // The last tile first, as above.
                let row = ((q.1 - q.0).div_ceil(tile) - 1) * tile - row;
                let (q, k) = ((q.0, q.1 - q.0), (k.0, k.1 - k.0));
                return Some(Place { head, plane: 0, sequence: sequence + of, q, k, row });
            }
            let last = |value: u32| warp::shuffle(!0, value, 31);
            (tiles_before, q_end, k_end) = (last(tiles_after), last(q.1), last(k.1));
            sequence += 32;
        }
        None
    }
}

/// Where the rows of each lane's sequence begin and end, which end where `end` says or those before it end, from `first` on.
#[inline(always)]
fn extent(end: u32, first: u32) -> (u32, u32) {
    let end = warp::inclusive_scan(!0, end.max(first), u32::max);
    let begin = warp::shuffle_up(!0, end, 1);
    (if warp::lane_id() == 0 { first } else { begin }, end)
}
