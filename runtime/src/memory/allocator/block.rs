//! Blocks: address ranges in a segment, stored in a slab, so creating a block usually needs no heap allocation.
//!
//! The blocks of a segment form a list without gaps, ordered by address. Adjacent free blocks are always merged, and
//! adjacent unmapped blocks too.

use std::ops::{Index, IndexMut};
use std::panic::Location;

use super::size::Kind;

/// Index of a block in its slab.
pub(crate) type BlockId = u32;

/// The ID that denotes no block.
pub(crate) const NONE: BlockId = BlockId::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not a block: a vacant slot of the slab.
    Vacant,
    /// Free, and in the free index.
    Free,
    Allocated,
    /// Freed, but work on other streams may still use it.
    Pending,
    /// Unmapped addresses of an expandable segment.
    Unmapped,
}

/// A block, stored in one cache line.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Block {
    pub address: u64,
    pub size: u64,
    /// Requested size, in bytes.
    pub requested: u64,
    /// Source location of the request; `None` before the first use.
    pub site: Option<&'static Location<'static>>,
    /// Time at which the block became free, on the clock that garbage collection uses.
    pub freed_at: u64,
    /// The neighbors in the segment.
    pub prev: BlockId,
    pub next: BlockId,
    /// The children in the free index; in vacant slots, `left` links to the next one.
    pub left: BlockId,
    pub right: BlockId,
    pub segment: u32,
    pub state: State,
    pub kind: Kind,
    pub expandable: bool,
    /// True if freeing the block returns it to the driver.
    pub uncached: bool,
}

impl Block {
    /// Returns true if the block does not span its entire segment.
    pub fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }

    pub fn end(&self) -> u64 {
        self.address + self.size
    }
}

#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    vacant: BlockId,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { blocks: Vec::new(), vacant: NONE }
    }
}

impl Blocks {
    /// Stores a block, reusing the slot of a removed block if possible.
    pub fn insert(&mut self, block: Block) -> BlockId {
        match self.vacant {
            NONE => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as BlockId
            }
            id => {
                self.vacant = self[id].left;
                self[id] = block;
                id
            }
        }
    }

    /// Removes a block that is no longer in any list.
    pub fn remove(&mut self, id: BlockId) {
        self[id].state = State::Vacant;
        self[id].left = self.vacant;
        self.vacant = id;
    }

    /// Returns the block in this slot; `None` if the slot is vacant.
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id as usize).filter(|block| block.state != State::Vacant)
    }

    /// Iterates over the blocks from `first` on, in address order.
    pub fn list(&self, first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        let mut id = first;
        std::iter::from_fn(move || {
            let block = self.blocks.get(id as usize)?;
            Some((std::mem::replace(&mut id, block.next), block))
        })
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }
}

impl IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}

const _: () = assert!(size_of::<Block>() == 64);
