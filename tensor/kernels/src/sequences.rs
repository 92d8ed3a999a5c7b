//! [`Sequences`]: the rows of attention heads, and their division into tiles.

use gpu_std::prelude::*;

use crate::tiles::divide;

/// Sequences that either all have the same length, with one plane each, or have variable lengths and are packed into
/// one plane. All sizes, and the number of tiles of all heads together, must be less than 2^31.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Sequences {
    /// Number of sequences: one per plane, or all packed in one plane.
    pub count: u32,
    /// Number of heads of q.
    pub heads: u32,
    /// Number of rows per plane of q.
    pub q_rows: u32,
    /// Number of rows per plane of k and v.
    pub k_rows: u32,
    /// Number of heads whose tiles are scheduled together, so that their operands stay in the L2 cache. Applies only to
    /// sequences of the same length.
    pub raster_group: u32,
}

/// Returns the coordinates of a box in a tensor map of heads. Bit `map` of `rows_first` is set if the row dimension of
/// this map comes before the head dimension.
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

/// Row, head and plane strides of an array of attention heads, in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct HeadStrides {
    /// Row stride within a head.
    pub row: u64,
    /// Head stride.
    pub head: u64,
    /// Plane stride.
    pub plane: u64,
}

impl HeadStrides {
    /// Returns the offset of the first element of a row.
    #[inline(always)]
    pub(crate) fn at(&self, plane: u32, head: u32, row: u32) -> u64 {
        u64::from(plane) * self.plane + u64::from(head) * self.head + u64::from(row) * self.row
    }
}

/// Tile of a head, and the sequence to which it belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Head of q.
    pub head: u32,
    /// Plane.
    pub plane: u32,
    /// Index of the sequence.
    pub sequence: u32,
    /// Rows of the sequence in the plane of q: index of the first row, and number of rows.
    pub q: (u32, u32),
    /// Rows of the sequence in the plane of k and v: index of the first row, and number of rows.
    pub k: (u32, u32),
    /// Index of the tile's first row in the sequence.
    pub row: u32,
}

impl Sequences {
    /// Returns the number of tiles of `tile` rows; for packed sequences, the maximum possible number.
    pub const fn tiles(&self, tile: u32, is_packed: bool) -> u64 {
        let of_head = if is_packed {
            (self.q_rows / tile + self.count) as u64
        } else {
            self.q_rows.div_ceil(tile) as u64 * self.count as u64
        };
        of_head * self.heads as u64
    }

    /// Returns tile `number` of packed sequences, or of sequences of the same length if there are no offsets.
    ///
    /// # Safety
    /// The requirements of [`Self::packed`] apply.
    #[inline(always)]
    pub(crate) unsafe fn place(
        &self,
        number: u32,
        tile: u32,
        q_offsets: Option<&[u32]>,
        k_offsets: Option<&[u32]>,
    ) -> Option<Place> {
        match (q_offsets, k_offsets) {
            // SAFETY: guaranteed by the caller.
            (Some(q), Some(k)) => unsafe { self.packed(number, tile, q, k) },
            _ => Some(self.equal(number, tile)),
        }
    }

    /// Returns tile `number`, for sequences of the same length. The last tiles of a sequence are scheduled first,
    /// because they take the longest with a causal mask.
    #[inline(always)]
    pub(crate) fn equal(&self, number: u32, tile: u32) -> Place {
        let tiles = self.q_rows.div_ceil(tile);
        let (raster_group, in_group) = divide(number, self.raster_group.wrapping_mul(tiles));
        let first = raster_group.wrapping_mul(self.raster_group);
        let width = self.raster_group.min(self.heads.wrapping_mul(self.count) - first);
        let (before, in_row) = divide(in_group, width);
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

    /// Returns tile `number`, for packed sequences, or `None` if there are fewer tiles. Sequence i consists of the rows
    /// from `offsets[i]` up to `offsets[i + 1]` that exist in the plane and belong to no earlier sequence. All lanes of
    /// the warp must call this method.
    ///
    /// # Safety
    /// The length of both offset arrays must be the number of sequences plus one.
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
        // SAFETY: the caller guarantees the length of the array.
        let at = |offsets: &[u32], i: u32| unsafe { *offsets.get_unchecked(i.min(self.count) as usize) };
        let (mut q_end, mut k_end) = (at(q_offsets, 0).min(self.q_rows), at(k_offsets, 0).min(self.k_rows));
        let (mut sequence, mut tiles_before) = (0, 0);
        while sequence < self.count {
            // Each lane handles one sequence. For any offsets, no row belongs to two sequences.
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
                // As in `equal`, the last tile is scheduled first.
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

/// Returns the start and the end of the rows of the calling lane's sequence. The sequence ends at the maximum of `end`
/// over the calling lane and all lower lanes. The sequence of the first lane starts at `first`. Every other sequence
/// starts where the preceding one ends.
#[inline(always)]
fn extent(end: u32, first: u32) -> (u32, u32) {
    let end = warp::inclusive_scan(!0, end.max(first), u32::max);
    let begin = warp::shuffle_up(!0, end, 1);
    (if warp::lane_id() == 0 { first } else { begin }, end)
}
