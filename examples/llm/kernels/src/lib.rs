//! Kernel that turns the tokens that a step sampled into the inputs of the next step.
#![no_std]

use gpu_std::prelude::*;

/// Length of a sequence that does not take part in a step.
pub const INACTIVE: u32 = 0;

/// Page or row of the cache that does not exist.
pub const NONE: u32 = u32::MAX;

/// Advances each sequence by one token: its next token, its length, the position of its next token, and the row of the
/// paged cache for the token's keys and values. Row i of `table` lists the pages of sequence i.
#[kernel(same_len(sampled, tokens, lengths, positions, slots))]
pub fn advance(
    sampled: &[u64],
    table: Slice2<u32>,
    page_size: u32,
    mut tokens: DisjointMut<u32>,
    mut lengths: DisjointMut<u32>,
    mut positions: DisjointMut<u32>,
    mut slots: DisjointMut<u32>,
) {
    for i in thread::grid_stride(sampled.len()) {
        let (Some(token), Some(length)) = (tokens.get_mut(i), lengths.get_mut(i)) else { continue };
        if *length == INACTIVE {
            continue;
        }
        // A token that could not be sampled (`u64::MAX`) has no embedding. The host ends its sequence.
        *token = sampled[i.get()].min(u64::from(u32::MAX)) as u32;
        let position = *length;
        *length += 1;
        if let Some(next) = positions.get_mut(i) {
            *next = position;
        }
        if let Some(slot) = slots.get_mut(i) {
            let page = table.row(i.get()).and_then(|row| row.get((position / page_size) as usize));
            *slot = match page {
                Some(&page) if page != NONE => page * page_size + position % page_size,
                _ => NONE,
            };
        }
    }
}
