//! [`Pages`]: the free pages of the cache.

/// Free pages. Each sequence has its own pages.
pub struct Pages {
    free: Vec<u32>,
    total: usize,
}

impl Pages {
    pub fn new(total: usize) -> Self {
        Self { free: (0..total as u32).rev().collect(), total }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` pages, or none if there are fewer.
    pub fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(count)?;
        Some(self.free.split_off(rest))
    }

    /// Returns pages, in any order.
    pub fn release(&mut self, pages: Vec<u32>) {
        self.free.extend(pages);
    }
}
