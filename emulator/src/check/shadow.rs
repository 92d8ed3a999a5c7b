//! Shadow memory: for every four bytes that a kernel touches, the last accesses that can still be in a race.
//!
//! A page stands for 512 bytes. Its records are of one phase: a launch, or the part of one between two barriers of the
//! grid. The first access in another phase clears them, as everything before is ordered.
//!
//! A page lies in one region at most, a buffer or a shared array, whose bounds it keeps, with one bit for each byte that
//! says whether it was written: regions begin at multiples of 512, and a page beside one belongs to its red zone.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::memory::Region;

/// Bytes of a page.
pub(super) const PAGE: usize = 512;
/// Bytes that have records of their own.
pub(super) const GRAIN: usize = 4;
/// Accesses that are kept for each.
pub(super) const RECORDS: usize = 3;

const CACHED: usize = 512;

/// An access: 10 bytes, as there are six for every 8 bytes of memory.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(2))]
pub(super) struct Record {
    /// From the top: the linear index of the block in the grid (32 bits), the thread's clock, at most [`u16::MAX`] (16), the
    /// thread in its block (10), the bytes of the four (4), [`ATOMIC`], [`WRITE`].
    key: u64,
    /// The place in the source (15 bits), [`NARROW`].
    place: u16,
}

const WRITE: u64 = 1;
const ATOMIC: u64 = 2;
const MASK: u64 = 15 << 2;
const NARROW: u16 = 1;

impl Record {
    #[inline(always)]
    pub fn new(block: u32, clock: u32, thread: u32, place: u16, kind: Kind) -> Self {
        let flags = (u64::from(kind.write) * WRITE) | (u64::from(kind.atomic) * ATOMIC);
        let clock = clock.min(u16::MAX.into());
        Self {
            key: u64::from(block) << 32 | u64::from(clock) << 16 | u64::from(thread) << 6 | flags,
            place: (place << 1) | (u16::from(kind.narrow) * NARROW),
        }
    }

    /// The same access to other bytes of four.
    #[inline(always)]
    pub fn of_bytes(self, mask: u64) -> Self {
        Self { key: self.key & !MASK | mask << 2, ..self }
    }

    #[inline(always)]
    fn mask(&self) -> u64 {
        self.key & MASK
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.mask() == 0
    }

    #[inline(always)]
    pub fn block(&self) -> u32 {
        (self.key >> 32) as u32
    }

    #[inline(always)]
    pub fn thread(&self) -> u32 {
        (self.key >> 6) as u32 & 1023
    }

    /// The clock; `None` for one that is too large to be kept: the access counts as ordered.
    #[inline(always)]
    pub fn clock(&self) -> Option<u32> {
        let clock = (self.key >> 16) as u16;
        (clock != u16::MAX).then_some(clock.into())
    }

    #[inline(always)]
    pub fn place(&self) -> u16 {
        self.place >> 1
    }

    #[inline(always)]
    pub fn kind(&self) -> Kind {
        Kind {
            write: self.key & WRITE != 0,
            atomic: self.key & ATOMIC != 0,
            narrow: self.place & NARROW != 0,
        }
    }

    /// Whether the two are the same but for their place: of one thread, with nothing in between that orders.
    #[inline(always)]
    pub fn repeats(&self, other: &Record) -> bool {
        self.key == other.key && (self.place ^ other.place) & NARROW == 0
    }

    /// Whether the two may not happen at once.
    #[inline(always)]
    pub fn conflicts(&self, other: &Record) -> bool {
        if self.mask() & other.mask() == 0 || (self.key | other.key) & WRITE == 0 {
            return false;
        }
        let narrow = (self.place | other.place) & NARROW != 0;
        self.key & other.key & ATOMIC == 0 || (narrow && self.block() != other.block())
    }

    /// Whether this need not be kept beside `later`, before which it happens: whatever races with it races with that.
    #[inline(always)]
    pub fn is_covered_by(&self, later: &Record) -> bool {
        let (old, new) = (self.key, later.key);
        // Fewer bytes, no write that a read replaces, nothing plain that an atomic replaces, no narrow one by a wide one.
        (old & MASK & !new) == 0
            && (old & WRITE & !new) == 0
            && (new & ATOMIC & !old) == 0
            && (self.place & NARROW & !later.place) == 0
    }

    /// Whether all do the same to at least the bytes of `now`, and no two of them conflict: they read, or are atomic.
    #[inline(always)]
    pub fn are_alike(records: &[Record; RECORDS], now: &Record) -> bool {
        let [a, b, c] = records;
        let any = a.key | b.key | c.key | now.key;
        let all = a.key & b.key & c.key & now.key;
        let narrow = (a.place | b.place | c.place | now.place) & NARROW != 0;
        let alike = any & (WRITE | ATOMIC) == 0 || ((any ^ all) & WRITE == 0 && all & ATOMIC != 0 && !narrow);
        alike && all & MASK == now.mask()
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub write: bool,
    pub atomic: bool,
    /// Atomic for the threads of the block alone.
    pub narrow: bool,
}

pub(super) struct Page {
    /// What the records are of; 0 for nothing.
    phase: u32,
    /// Bytes of the page that may be touched: from, and to before.
    low: u16,
    high: u16,
    /// One bit for each byte that was written, of the region's; null outside regions.
    written: *const AtomicU64,
    pub records: [[Record; RECORDS]; PAGE / GRAIN],
}

impl Page {
    /// Whether bytes of the page, or from it on, may be touched.
    #[inline(always)]
    pub fn contains(&self, offset: usize, bytes: usize) -> bool {
        offset >= self.low.into() && offset + bytes <= self.high.into()
    }

    /// Whether one of `bytes` bytes was written, or nothing is known.
    #[inline(always)]
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        if self.written.is_null() {
            return true;
        }
        if offset % 64 + bytes <= 64 {
            return self.word(offset).load(Relaxed) & mask(offset, bytes) != 0;
        }
        (offset..offset + bytes).any(|at| self.word(at).load(Relaxed) & mask(at, 1) != 0)
    }

    #[inline(always)]
    pub fn set_written(&self, offset: usize, bytes: usize) {
        if self.written.is_null() {
            return;
        }
        if offset % 64 + bytes <= 64 {
            let (word, mask) = (self.word(offset), mask(offset, bytes));
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
            return;
        }
        for at in offset..offset + bytes {
            self.word(at).fetch_or(mask(at, 1), Relaxed);
        }
    }

    /// The word that has the bit of the byte at `offset`, which is within the page; the page is in a region.
    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: a region has a word for every 64 bytes of its pages, and lives until the phase ends: the launch has it.
        unsafe { &*self.written.add(offset % PAGE / 64) }
    }
}

/// The bits of `bytes` bytes, 1 to 64, in the word of the first.
#[inline(always)]
fn mask(offset: usize, bytes: usize) -> u64 {
    (u64::MAX >> (64 - bytes)) << (offset % 64)
}

/// Bytes of shadow memory of all launches.
static SHADOW: AtomicUsize = AtomicUsize::new(0);
/// Bytes of a page, and of its place in the map.
const PAGE_BYTES: usize = size_of::<Page>() + size_of::<(usize, Box<Page>)>();

/// The pages that were touched.
pub(super) struct Pages {
    pages: HashMap<usize, Box<Page>>,
    /// Bytes that [`SHADOW`] may have.
    limit: usize,
    /// Recent ones by their number.
    cache: Box<[(usize, *mut Page); CACHED]>,
    phase: u32,
}

// SAFETY: the pointers are to pages that it owns; those to regions are used during a launch, which keeps the regions.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Pages {
    /// No pages. There are to be no more than `limit` bytes of all.
    pub fn new(limit: usize) -> Self {
        Self {
            pages: HashMap::new(),
            limit,
            cache: Box::new([(usize::MAX, std::ptr::null_mut()); CACHED]),
            phase: 0,
        }
    }

    /// Everything before is ordered with everything after, and regions are looked up again.
    pub fn begin_phase(&mut self) {
        if self.phase == u32::MAX {
            self.clear();
        }
        self.phase += 1;
    }

    /// Frees the memory.
    pub fn clear(&mut self) {
        SHADOW.fetch_sub(self.bytes(), Relaxed);
        self.pages = HashMap::new();
        self.cache.fill((usize::MAX, std::ptr::null_mut()));
        self.phase = 0;
    }

    /// Bytes of shadow memory.
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// The page of an address, if it was used a short time ago, in this phase.
    #[inline(always)]
    pub fn recent(&mut self, address: usize) -> Option<&mut Page> {
        let number = address / PAGE;
        let (cached, page) = self.cache[slot(number)];
        if cached != number {
            return None;
        }
        // SAFETY: the cache has pages of the map, which it owns, in place; nothing else refers to one while the caller
        // has the mutable borrow.
        let page = unsafe { &mut *page };
        (page.phase == self.phase).then_some(page)
    }

    /// The page of an address; `region` finds the region around one. `None` when there is no memory for it.
    pub fn page<'r>(
        &mut self,
        address: usize,
        region: impl FnOnce(usize) -> Option<&'r Region>,
    ) -> Option<&mut Page> {
        let number = address / PAGE;
        self.pages.try_reserve(1).ok()?;
        let page = match self.pages.entry(number) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(place) => place.insert(new_page(self.limit)?),
        };
        let page = &mut **page;
        self.cache[slot(number)] = (number, page);
        if page.phase != self.phase {
            refresh(page, number * PAGE, region(number * PAGE));
            page.phase = self.phase;
        }
        Some(page)
    }

    /// The memory begins a new life: nothing before is of interest.
    pub fn forget(&mut self, start: usize, end: usize) {
        for number in start / PAGE..end.div_ceil(PAGE) {
            if let Some(page) = self.pages.get_mut(&number) {
                page.phase = 0;
            }
        }
    }
}

/// A page of no phase, unless that makes more than `limit` bytes of shadow memory, or the allocator has none left.
fn new_page(limit: usize) -> Option<Box<Page>> {
    const LAYOUT: Layout = Layout::new::<Page>();
    if SHADOW.fetch_add(PAGE_BYTES, Relaxed) + PAGE_BYTES <= limit {
        // SAFETY: the layout has a size.
        let page = unsafe { alloc_zeroed(LAYOUT) }.cast::<Page>();
        if !page.is_null() {
            // SAFETY: allocated with the layout of a page; all of its fields may be zero.
            return Some(unsafe { Box::from_raw(page) });
        }
    }
    SHADOW.fetch_sub(PAGE_BYTES, Relaxed);
    None
}

/// The place of a page in the cache. Arrays whose distance is a power of two do not meet in it.
#[inline(always)]
fn slot(number: usize) -> usize {
    (number ^ number >> 9 ^ number >> 18) % CACHED
}

fn refresh(page: &mut Page, start: usize, region: Option<&Region>) {
    page.records = [[Record::default(); RECORDS]; PAGE / GRAIN];
    (page.low, page.high, page.written) = (0, PAGE as u16, std::ptr::null());
    let Some(region) = region else { return };
    if region.is_freed() || region.start >= start + PAGE || region.end <= start {
        page.high = 0;
        return;
    }
    page.high = (region.end - start).min(PAGE) as u16;
    page.written = region.written_from(start);
}

const _: () = assert!(size_of::<Record>() == 10 && size_of::<Page>() <= 8 * PAGE - 160);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_at_the_limit_and_are_counted_back() {
        let mut pages = Pages::new(usize::MAX);
        pages.begin_phase();
        assert!((0..8).all(|number| pages.page(number * PAGE, |_| None).is_some()));
        assert_eq!(pages.bytes(), 8 * PAGE_BYTES);
        // Other tests have none.
        assert_eq!(SHADOW.load(Relaxed), 8 * PAGE_BYTES);
        pages.limit = 9 * PAGE_BYTES;
        assert!(pages.page(8 * PAGE, |_| None).is_some());
        assert!(pages.page(9 * PAGE, |_| None).is_none());
        assert!(pages.page(8 * PAGE, |_| None).is_some(), "it is there");
        drop(pages);
        assert_eq!(SHADOW.load(Relaxed), 0);
    }
}
