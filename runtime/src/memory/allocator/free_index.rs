//! [`FreeIndex`]: the free blocks of one kind, ordered by (size, address).
//!
//! Sizes are divided into bins: one bin per multiple of 512 bytes up to 32 KiB, then 32 bins for each doubling of the
//! size. A bitmap records which bins contain blocks. The blocks of a bin form a treap ordered by (size, address).
//! Finding, inserting and removing a block take few steps, regardless of the number of blocks. They allocate no memory,
//! because the tree links are stored in the blocks.

use super::block::{BlockId, Blocks, NONE, State};
use super::size::MIN_BLOCK;

/// Number of bins that hold exactly one size; sizes are in units of 512 bytes.
const EXACT: u64 = 64;
/// Number of bins per doubling of the size, for larger sizes.
const PER_DOUBLING: usize = 32;
/// Number of bins; sizes are below 2^62 bytes, that is, 2^53 units.
const BINS: usize = EXACT as usize + (53 - 6) * PER_DOUBLING;
const WORDS: usize = BINS.div_ceil(64);

/// Sort key of a block: (size, address).
type Key = (u64, u64);

/// Index of the free blocks of one kind; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct FreeIndex {
    /// Bitmap of the non-zero elements of `words`.
    summary: u64,
    /// Bitmap of the non-empty bins.
    words: [u64; WORDS],
    /// The root of each bin's tree.
    roots: Box<[BlockId; BINS]>,
}

/// The link that points to a node of a tree.
#[derive(Clone, Copy)]
enum Link {
    Root(usize),
    Left(BlockId),
    Right(BlockId),
}

impl Default for FreeIndex {
    fn default() -> Self {
        Self { summary: 0, words: [0; WORDS], roots: Box::new([NONE; BINS]) }
    }
}

/// Returns the bin of a size. A larger size never has a lower bin.
#[inline]
fn bin(size: u64) -> usize {
    let units = size / MIN_BLOCK;
    if units < EXACT {
        return units as usize;
    }
    let exponent = units.ilog2() as usize;
    let within = (units >> (exponent - 5)) as usize - PER_DOUBLING;
    EXACT as usize + (exponent - 6) * PER_DOUBLING + within
}

#[inline]
fn key(blocks: &Blocks, id: BlockId) -> Key {
    (blocks[id].size, blocks[id].address)
}

/// Returns the treap priority of a node: pseudorandom, but identical in every run of a program.
#[inline]
fn priority(id: BlockId) -> u32 {
    (id.wrapping_add(1)).wrapping_mul(0x9E37_79B1).rotate_left(13).wrapping_mul(0x85EB_CA6B)
}

impl FreeIndex {
    #[inline]
    fn mark(&mut self, bin: usize) {
        self.words[bin / 64] |= 1 << (bin % 64);
        self.summary |= 1 << (bin / 64);
    }

    #[inline]
    fn unmark(&mut self, bin: usize) {
        self.words[bin / 64] &= !(1 << (bin % 64));
        if self.words[bin / 64] == 0 {
            self.summary &= !(1 << (bin / 64));
        }
    }

    /// Returns the first bin at or after `from` that contains blocks.
    #[inline]
    fn next_bin(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let rest = self.words.get(word)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let words = self.summary & (u64::MAX << word) & !(1 << word);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    fn last_bin(&self) -> Option<usize> {
        let word = 63usize.checked_sub(self.summary.leading_zeros() as usize)?;
        Some(word * 64 + 63 - self.words[word].leading_zeros() as usize)
    }

    #[inline]
    fn set(&mut self, blocks: &mut Blocks, link: Link, id: BlockId) {
        match link {
            Link::Root(bin) => {
                let before = std::mem::replace(&mut self.roots[bin], id);
                if before == NONE {
                    self.mark(bin);
                } else if id == NONE {
                    self.unmark(bin);
                }
            }
            Link::Left(parent) => blocks[parent].left = id,
            Link::Right(parent) => blocks[parent].right = id,
        }
    }

    /// Adds a block that is not in the index, and marks it as free.
    #[inline]
    pub fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        let key_of_id = key(blocks, id);
        let bin = bin(key_of_id.0);
        let (mut link, mut node) = (Link::Root(bin), self.roots[bin]);
        while node != NONE && priority(node) >= priority(id) {
            (link, node) = if key_of_id < key(blocks, node) {
                (Link::Left(node), blocks[node].left)
            } else {
                (Link::Right(node), blocks[node].right)
            };
        }
        let (left, right) = if node == NONE { (NONE, NONE) } else { split(blocks, node, key_of_id) };
        let block = &mut blocks[id];
        (block.left, block.right, block.state) = (left, right, State::Free);
        self.set(blocks, link, id);
    }

    /// Removes a block from the index. The caller must set the block's new state.
    #[inline]
    pub fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        let key_of_id = key(blocks, id);
        let bin = bin(key_of_id.0);
        let (mut link, mut node) = (Link::Root(bin), self.roots[bin]);
        while node != id {
            debug_assert!(node != NONE, "the block is in the index");
            (link, node) = if key_of_id < key(blocks, node) {
                (Link::Left(node), blocks[node].left)
            } else {
                (Link::Right(node), blocks[node].right)
            };
        }
        let (left, right) = (blocks[id].left, blocks[id].right);
        let merged = match (left, right) {
            (NONE, only) | (only, NONE) => only,
            _ => merge(blocks, left, right),
        };
        self.set(blocks, link, merged);
    }

    /// Returns the first block whose (size, address) is at least `wanted`: the best fit for `(size, 0)`.
    #[inline]
    pub fn at_least(&self, blocks: &Blocks, wanted: Key) -> Option<BlockId> {
        let own = bin(wanted.0);
        let mut found = NONE;
        let mut node = self.roots[own];
        while node != NONE {
            node = if key(blocks, node) >= wanted {
                found = node;
                blocks[node].left
            } else {
                blocks[node].right
            };
        }
        if found != NONE {
            return Some(found);
        }
        let mut node = self.roots[self.next_bin(own + 1)?];
        while blocks[node].left != NONE {
            node = blocks[node].left;
        }
        Some(node)
    }

    /// Returns the largest block; if several are equally large, the one with the lowest address.
    pub fn largest(&self, blocks: &Blocks) -> Option<BlockId> {
        let mut node = self.roots[self.last_bin()?];
        while blocks[node].right != NONE {
            node = blocks[node].right;
        }
        self.at_least(blocks, (blocks[node].size, 0))
    }

    /// Iterates over all blocks, in no particular order.
    pub fn ids(&self, blocks: &Blocks) -> impl Iterator<Item = BlockId> {
        let mut bins = std::iter::successors(self.next_bin(0), |bin| self.next_bin(bin + 1));
        let mut stack = Vec::new();
        std::iter::from_fn(move || {
            if stack.is_empty() {
                stack.push(self.roots[bins.next()?]);
            }
            let id = stack.pop()?;
            stack.extend([blocks[id].left, blocks[id].right].into_iter().filter(|child| *child != NONE));
            Some(id)
        })
    }
}

/// Splits a tree into the nodes whose keys precede `at` and the remaining nodes.
fn split(blocks: &mut Blocks, mut node: BlockId, at: Key) -> (BlockId, BlockId) {
    let (mut left, mut right) = (NONE, NONE);
    let (mut left_end, mut right_end) = (NONE, NONE);
    while node != NONE {
        if key(blocks, node) < at {
            match left_end {
                NONE => left = node,
                end => blocks[end].right = node,
            }
            left_end = node;
            node = blocks[node].right;
        } else {
            match right_end {
                NONE => right = node,
                end => blocks[end].left = node,
            }
            right_end = node;
            node = blocks[node].left;
        }
    }
    if left_end != NONE {
        blocks[left_end].right = NONE;
    }
    if right_end != NONE {
        blocks[right_end].left = NONE;
    }
    (left, right)
}

/// Merges two non-empty trees; all keys of `left` must precede all keys of `right`.
fn merge(blocks: &mut Blocks, mut left: BlockId, mut right: BlockId) -> BlockId {
    let root = if priority(left) >= priority(right) { left } else { right };
    // The node whose child link has not been set yet; true for the link to the right child.
    let mut open = (NONE, false);
    while left != NONE && right != NONE {
        let (node, side) = if priority(left) >= priority(right) { (left, true) } else { (right, false) };
        match open {
            (NONE, _) => {}
            (parent, true) => blocks[parent].right = node,
            (parent, false) => blocks[parent].left = node,
        }
        open = (node, side);
        if side {
            left = blocks[node].right;
        } else {
            right = blocks[node].left;
        }
    }
    let rest = if left == NONE { right } else { left };
    match open {
        (parent, true) => blocks[parent].right = rest,
        (parent, false) => blocks[parent].left = rest,
    }
    root
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::memory::allocator::block::Block;
    use crate::memory::allocator::size::Kind;

    fn block(size: u64, address: u64) -> Block {
        Block {
            address,
            size,
            requested: 0,
            site: None,
            freed_at: 0,
            prev: NONE,
            next: NONE,
            left: NONE,
            right: NONE,
            segment: 0,
            state: State::Allocated,
            kind: Kind::Large,
            expandable: false,
            uncached: false,
        }
    }

    #[test]
    fn bins_grow_with_sizes() {
        let mut before = 0;
        for size in (1..200_000u64).map(|units| units * 512).chain((27..62).map(|power| 1 << power)) {
            let bin = bin(size);
            assert!(bin >= before && bin < BINS, "{size}: {bin} after {before}");
            before = bin;
        }
        assert!((1..64).all(|units| bin(units * 512) == units as usize));
    }

    #[test]
    fn it_answers_as_an_ordered_set_does() {
        for round in 0..20u64 {
            let mut state = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = move |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % below
            };
            let (mut blocks, mut index) = (Blocks::default(), FreeIndex::default());
            let mut model = BTreeSet::new();
            let spread = [4, 40, 4000, 1 << 30][round as usize % 4];
            for step in 0..3000u64 {
                if random(3) > 0 || model.is_empty() {
                    let size = (1 + random(spread)) * 512;
                    let id = blocks.insert(block(size, (step * 7919 % 3001) * (1 << 42)));
                    index.insert(&mut blocks, id);
                    model.insert((size, blocks[id].address, id));
                } else {
                    let nth = random(model.len() as u64) as usize;
                    let entry = *model.iter().nth(nth).unwrap();
                    model.remove(&entry);
                    index.remove(&mut blocks, entry.2);
                    blocks.remove(entry.2);
                }
                let size = (1 + random(spread)) * 512;
                let best = model.range((size, 0, 0)..).next().map(|entry| entry.2);
                assert_eq!(index.at_least(&blocks, (size, 0)), best);
                let largest = model.last().map(|(size, ..)| *size);
                let lowest_of_largest =
                    largest.and_then(|size| model.range((size, 0, 0)..).next().map(|entry| entry.2));
                assert_eq!(index.largest(&blocks), lowest_of_largest);
                if step % 50 == 0 {
                    let ids: BTreeSet<_> = index.ids(&blocks).collect();
                    assert_eq!(ids, model.iter().map(|entry| entry.2).collect());
                }
            }
        }
    }
}
