//! Bars that show how the memory of a segment is used.
//!
//! Every column of a bar represents the same number of bytes and shows the state that most of these bytes have. A state
//! that dominates no column still receives the column that contains most of its bytes; used memory takes precedence
//! over free memory.

use warpsmith::snapshot::BlockState;

/// Legend of the bars.
pub const LEGEND: &str = "# allocated  ~ pending free  . free";

/// Draws a bar of `width` columns for a segment of `size` bytes, from the sizes and states of its blocks in order.
pub fn bar(size: u64, spans: &[(u64, BlockState)], width: usize) -> String {
    const STATES: [(BlockState, char); 3] = [
        (BlockState::ActiveAllocated, '#'),
        (BlockState::ActivePendingFree, '~'),
        (BlockState::Inactive, '.'),
    ];
    let (size, columns) = (u128::from(size.max(1)), width as u128);
    // Lengths are measured in units of which a column has `size` and a byte has `columns`, so no rounding is needed.
    let mut cells = vec![[0u128; 3]; width];
    let mut start = 0u128;
    for (bytes, state) in spans {
        let end = (start + u128::from(*bytes) * columns).min(size * columns);
        let index = STATES.iter().position(|(known, _)| known == state).unwrap_or(2);
        let mut at = start;
        while at < end {
            let column = (at / size) as usize;
            let next = end.min((at / size + 1) * size);
            cells[column][index] += next - at;
            at = next;
        }
        start = end;
    }
    // Memory that no block covers counts as free.
    let shown = |cell: &[u128; 3]| {
        let free = cell[2].max(size - cell[0] - cell[1]);
        if cell[0] >= cell[1] && cell[0] >= free {
            0
        } else if cell[1] >= free {
            1
        } else {
            2
        }
    };
    let mut bar: Vec<usize> = cells.iter().map(shown).collect();
    for state in [2, 1, 0] {
        if !bar.contains(&state)
            && let Some((column, cell)) = cells.iter().enumerate().rev().max_by_key(|(_, cell)| cell[state])
            && cell[state] > 0
        {
            bar[column] = state;
        }
    }
    bar.into_iter().map(|state| STATES[state].1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use BlockState::{ActiveAllocated as A, ActivePendingFree as P, Inactive as F};

    #[test]
    fn columns_show_the_state_of_most_bytes() {
        for (spans, width, expected) in [
            (&[(50, A), (50, F)][..], 10, "#####....."),
            (&[(25, A), (25, P), (50, F)], 4, "#~.."),
            (&[(30, A), (30, P), (40, F)], 3, "#~."),
            // Each state that dominates no column still receives one.
            (&[(1, A), (99, F)], 10, "#........."),
            (&[(99, A), (1, F)], 10, "#########."),
            (&[(50, A), (1, P), (49, F)], 10, "#####~...."),
            // The blocks cover only part of the segment, or more bytes than the segment has.
            (&[(30, A)], 10, "###......."),
            (&[(30, A), (900, F)], 10, "###......."),
            (&[], 10, ".........."),
        ] {
            assert_eq!(bar(100, spans, width), expected, "{spans:?}");
        }
        assert_eq!(bar(0, &[(5, A)], 3), "###");
        assert_eq!(bar(u64::MAX, &[(u64::MAX, A), (u64::MAX, F)], 3), "###");
        assert_eq!(bar(1, &[(1, P)], 5), "~~~~~");
    }
}
