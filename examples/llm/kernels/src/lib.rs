//! Kernel that turns the tokens that a step sampled into the inputs of the next step.
#![no_std]

use gpu_std::prelude::*;

/// Advances each sequence by one token. Sequences with a length of 0 do not take part.
#[kernel(same_len(sampled, tokens, lengths))]
pub fn advance(sampled: &[u64], mut tokens: DisjointMut<u32>, mut lengths: DisjointMut<u32>) {
    for i in thread::grid_stride(sampled.len()) {
        if let (Some(token), Some(length)) = (tokens.get_mut(i), lengths.get_mut(i))
            && *length > 0
        {
            // The host ends the sequence if no token could be sampled (`u64::MAX`). This number has no embedding.
            *token = sampled[i.get()].min(u64::from(u32::MAX)) as u32;
            *length += 1;
        }
    }
}
