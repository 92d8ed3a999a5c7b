//! Reduction to a number of slices and values that a page can display.

use std::cmp::Reverse;

/// Maximum number of slices per page.
pub(super) const MAX_SLICES: usize = 200_000;
/// Maximum number of rows per track. Slices that would need a further row are placed in the last one.
const MAX_ROWS: usize = 64;

/// A slice, with the location of its record in the trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) record: Place,
}

/// Location of a record in a trace: the list, and the index in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) list: List,
    pub(super) index: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Kernels,
    Transfers,
    Calls,
    Syncs,
    Ranges,
    Graphs,
    Marks,
    Waits,
}

/// Rectangle that represents one or more slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Record of the first slice.
    pub(super) record: Place,
    /// Number of slices that were joined into this piece.
    pub(super) count: u64,
    /// Total time of the slices.
    pub(super) busy: u64,
}

/// Number of nanoseconds by which adjacent slices may overlap because their times were rounded to microseconds.
const ROUNDING: u64 = 2;

/// Assigns slices to rows, starting at row `first`, so that slices in the same row do not overlap. Unless the track is
/// flat, a slice that is inside another slice is placed below it.
pub(super) fn rows(mut slices: Vec<Slice>, is_flat: bool, first: usize, rows: &mut Vec<Vec<Slice>>) {
    slices.sort_unstable_by_key(|slice| (slice.start, Reverse(slice.end)));
    let mut ends: Vec<u64> = Vec::new();
    for slice in slices {
        let is_open = |end: &u64| *end > slice.start.saturating_add(ROUNDING);
        let deepest = ends.iter().rposition(is_open);
        let row = match deepest {
            None => 0,
            Some(row) if !is_flat && ends[row].saturating_add(ROUNDING) >= slice.end => row + 1,
            Some(_) => ends.iter().position(|end| !is_open(end)).unwrap_or(ends.len()),
        };
        let row = row.min(MAX_ROWS - 1);
        if ends.len() <= row {
            ends.push(0);
        }
        ends[row] = ends[row].max(slice.end);
        if rows.len() <= first + row {
            rows.resize_with(first + row + 1, Vec::new);
        }
        rows[first + row].push(slice);
    }
}

/// In each row, joins slices that are shorter than `length` with neighbors at a distance of less than `length`.
pub(super) fn join(row: &[Slice], length: u64) -> impl Iterator<Item = Piece> {
    let mut rest = row.iter().peekable();
    std::iter::from_fn(move || {
        let slice = rest.next()?;
        let busy = slice.end - slice.start;
        let mut piece = Piece { start: slice.start, end: slice.end, record: slice.record, count: 1, busy };
        if busy < length {
            let near = |piece: &Piece, next: &Slice| {
                next.end - next.start < length && next.start.saturating_sub(piece.end) < length
            };
            while let Some(next) = rest.next_if(|next| near(&piece, next)) {
                piece.end = piece.end.max(next.end);
                piece.count += 1;
                piece.busy = piece.busy.saturating_add(next.end - next.start);
            }
        }
        Some(piece)
    })
}

/// Returns the length below which slices must be joined to leave at most `most` pieces in all rows, or 0 if no joining
/// is necessary.
pub(super) fn length_to_join<'a>(rows: impl Iterator<Item = &'a Vec<Slice>> + Clone, most: usize) -> u64 {
    if rows.clone().map(Vec::len).sum::<usize>() <= most {
        return 0;
    }
    let lengths = (0..64).map(|power| 1 << power);
    let pieces = |length| rows.clone().map(|row| join(row, length).count()).sum::<usize>();
    lengths.into_iter().find(|length| pieces(*length) <= most).unwrap_or(u64::MAX)
}

/// Reduces a series to about `most` values: the minimum and maximum of each time interval.
pub(super) fn thin(series: Vec<(u64, f64)>, most: usize) -> Vec<(u64, f64)> {
    if series.len() <= most {
        return series;
    }
    let stretch = series.len().div_ceil((most / 2).max(1));
    let mut thin = Vec::new();
    for part in series.chunks(stretch) {
        let minimum = part.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let maximum = part.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let mut both: Vec<_> = [minimum, maximum].into_iter().flatten().collect();
        both.sort_unstable_by_key(|(index, _)| *index);
        both.dedup_by_key(|(index, _)| *index);
        thin.extend(both.into_iter().map(|(_, value)| *value));
    }
    thin
}
