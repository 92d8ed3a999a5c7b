//! Shadow memory. For every four bytes that a kernel accesses, it stores the last accesses that can still be part of a
//! race.
//!
//! A page represents 512 bytes. Its records belong to one phase: a launch, or the part of a launch between two grid
//! barriers. The first access in a new phase clears the records, because all earlier accesses are ordered before it.
//!
//! A page overlaps at most one region, which is a buffer or a shared array. It stores the bounds of the region and one
//! initialization bit per byte. Regions start at multiples of 512, and a page next to a region belongs to the region's
//! red zone.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::memory::Region;

/// Number of bytes of memory that a page represents.
pub(super) const PAGE: usize = 512;
/// Number of bytes of memory (a grain) that share a group of records.
pub(super) const GRAIN: usize = 4;
/// Number of accesses that are recorded per grain.
pub(super) const RECORDS: usize = 3;

const CACHED: usize = 512;

/// Record of an access. Packed into 10 bytes, because there are six records for every 8 bytes of memory.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(2))]
pub(super) struct Record {
    /// Bit fields, starting at the most significant bit: block index in the grid (32 bits), clock of the thread (16
    /// bits), thread index in the block (10 bits), mask of the four bytes (4 bits), [`ATOMIC`], [`WRITE`]. The clock is
    /// at most [`u16::MAX`].
    key: u64,
    /// Index of the source location (15 bits), and [`NARROW`].
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

    /// Returns the same access, but to other bytes of the grain.
    #[inline(always)]
    pub fn of_bytes(self, mask: u64) -> Self {
        Self { key: self.key & !MASK | mask << 2, ..self }
    }

    #[inline(always)]
    fn mask(&self) -> u64 {
        self.key & MASK
    }

    /// Returns the range of the accessed bytes within the grain.
    pub fn bytes(&self) -> std::ops::Range<usize> {
        let mask = (self.mask() >> 2) as u32;
        mask.trailing_zeros() as usize..(u32::BITS - mask.leading_zeros()) as usize
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

    /// Returns the clock of the access; `None` if it is too large to be stored, in which case the access counts as
    /// ordered.
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

    /// Returns true if the two accesses differ at most in their source location, that is, if they belong to the same
    /// thread and there was no ordering operation in between.
    #[inline(always)]
    pub fn repeats(&self, other: &Record) -> bool {
        self.key == other.key && (self.place ^ other.place) & NARROW == 0
    }

    /// Returns true if the two accesses conflict unless they are ordered.
    #[inline(always)]
    pub fn conflicts(&self, other: &Record) -> bool {
        if self.mask() & other.mask() == 0 || (self.key | other.key) & WRITE == 0 {
            return false;
        }
        let narrow = (self.place | other.place) & NARROW != 0;
        self.key & other.key & ATOMIC == 0 || (narrow && self.block() != other.block())
    }

    /// Returns true if this access, which happens before `later`, does not have to be kept in addition to `later`,
    /// because any access that races with this access also races with `later`.
    #[inline(always)]
    pub fn is_covered_by(&self, later: &Record) -> bool {
        let (old, new) = (self.key, later.key);
        // The comparison ensures that no bytes are lost, and that no write is replaced by a read, no plain access by an
        // atomic one, and no narrow access by a wide one.
        (old & MASK & !new) == 0
            && (old & WRITE & !new) == 0
            && (new & ATOMIC & !old) == 0
            && (self.place & NARROW & !later.place) == 0
    }

    /// Returns true if all records perform the same access to at least the bytes of `now`, and no two of them conflict
    /// because all are reads or all are atomic.
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

/// Kind of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub write: bool,
    pub atomic: bool,
    /// True if the access is atomic only for threads of the block.
    pub narrow: bool,
}

pub(super) struct Page {
    /// Phase to which the records belong; 0 if there are no records.
    phase: u32,
    /// Offset of the first accessible byte of the page. The next field is the exclusive end of the accessible bytes.
    low: u16,
    high: u16,
    /// Initialization bits of the region, one per byte; null outside of regions.
    written: *const AtomicU64,
    pub records: [[Record; RECORDS]; PAGE / GRAIN],
}

impl Page {
    /// Returns true if the bytes, which start in the page, may be accessed.
    #[inline(always)]
    pub fn contains(&self, offset: usize, bytes: usize) -> bool {
        offset >= self.low.into() && offset + bytes <= self.high.into()
    }

    /// Returns true if any of `bytes` bytes was written, or if this is unknown.
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

    /// Returns the word with the bit of the byte at `offset`, which must be within the page. The page must be in a
    /// region.
    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: a region has a word for every 64 bytes of its pages and lives until the phase ends, because the
        // launch keeps the region alive.
        unsafe { &*self.written.add(offset % PAGE / 64) }
    }
}

/// Returns the bits of `bytes` bytes, from 1 to 64, within the word of the first byte.
#[inline(always)]
fn mask(offset: usize, bytes: usize) -> u64 {
    (u64::MAX >> (64 - bytes)) << (offset % 64)
}

/// Total size of the shadow memory of all launches, in bytes.
static SHADOW: AtomicUsize = AtomicUsize::new(0);
/// Size in bytes of a page and its map entry.
const PAGE_BYTES: usize = size_of::<Page>() + size_of::<(usize, Box<Page>)>();

/// Shadow pages of the accessed memory.
pub(super) struct Pages {
    pages: HashMap<usize, Box<Page>>,
    /// Maximum value of [`SHADOW`] in bytes.
    limit: usize,
    /// Recent pages, keyed by page number.
    cache: Box<[(usize, *mut Page); CACHED]>,
    phase: u32,
    /// Page numbers of the pages that were accessed in the phase.
    touched: Vec<usize>,
}

// SAFETY: the page pointers refer to pages that this value owns; region pointers are used only during a launch, which
// keeps the regions alive.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Pages {
    /// Creates an empty map. The shadow memory of all launches is limited to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            pages: HashMap::new(),
            limit,
            cache: Box::new([(usize::MAX, std::ptr::null_mut()); CACHED]),
            phase: 0,
            touched: Vec::new(),
        }
    }

    /// Starts a new phase. All earlier accesses are ordered before all later ones, and regions are looked up again.
    pub fn begin_phase(&mut self) {
        if self.phase == u32::MAX {
            self.clear();
        }
        self.phase += 1;
        self.touched.clear();
    }

    /// Returns the unique addresses of the pages that were accessed in the phase, in ascending order.
    pub fn take_touched(&mut self) -> Vec<usize> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched.iter_mut().for_each(|number| *number *= PAGE);
        touched
    }

    /// Returns the page at an address, if it was accessed in the phase.
    pub fn existing(&self, address: usize) -> Option<&Page> {
        self.pages.get(&(address / PAGE)).map(|page| &**page).filter(|page| page.phase == self.phase)
    }

    /// Frees the shadow memory.
    pub fn clear(&mut self) {
        SHADOW.fetch_sub(self.bytes(), Relaxed);
        self.pages = HashMap::new();
        self.cache.fill((usize::MAX, std::ptr::null_mut()));
        self.phase = 0;
    }

    /// Returns the size of this map's shadow memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Returns the page of an address, if the page was used recently in this phase.
    #[inline(always)]
    pub fn recent(&mut self, address: usize) -> Option<&mut Page> {
        let number = address / PAGE;
        let (cached, page) = self.cache[slot(number)];
        if cached != number {
            return None;
        }
        // SAFETY: the cache refers to pages that the map owns, at fixed addresses, and no other reference to the page
        // exists during the caller's mutable borrow.
        let page = unsafe { &mut *page };
        (page.phase == self.phase).then_some(page)
    }

    /// Returns the page of an address; `region` returns the region around an address. Returns `None` if no memory is
    /// available for the page.
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
            self.touched.push(number);
        }
        Some(page)
    }

    /// Clears the records of memory whose new lifetime starts.
    pub fn forget(&mut self, start: usize, end: usize) {
        for number in start / PAGE..end.div_ceil(PAGE) {
            if let Some(page) = self.pages.get_mut(&number) {
                page.phase = 0;
            }
        }
    }
}

/// Allocates a page that does not belong to a phase yet. Returns `None` if the total shadow memory would exceed `limit`
/// bytes or the allocator is out of memory.
fn new_page(limit: usize) -> Option<Box<Page>> {
    const LAYOUT: Layout = Layout::new::<Page>();
    if SHADOW.fetch_add(PAGE_BYTES, Relaxed) + PAGE_BYTES <= limit {
        // SAFETY: the layout has a non-zero size.
        let page = unsafe { alloc_zeroed(LAYOUT) }.cast::<Page>();
        if !page.is_null() {
            // SAFETY: the memory was allocated with the layout of a page, and all of its fields may be zero.
            return Some(unsafe { Box::from_raw(page) });
        }
    }
    SHADOW.fetch_sub(PAGE_BYTES, Relaxed);
    None
}

/// Returns the cache slot of a page. The slots are chosen such that arrays at power-of-two distances do not collide.
#[inline(always)]
fn slot(number: usize) -> usize {
    (number ^ number >> 9 ^ number >> 18) % CACHED
}

fn refresh(page: &mut Page, start: usize, region: Option<&Region>) {
    page.records = [[Record::default(); RECORDS]; PAGE / GRAIN];
    (page.low, page.high, page.written) = (0, PAGE as u16, std::ptr::null());
    let Some(region) = region else { return };
    if region.of.is_forbidden() || region.start >= start + PAGE || region.end <= start {
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
        // Other tests use no shadow memory.
        assert_eq!(SHADOW.load(Relaxed), 8 * PAGE_BYTES);
        pages.limit = 9 * PAGE_BYTES;
        assert!(pages.page(8 * PAGE, |_| None).is_some());
        assert!(pages.page(9 * PAGE, |_| None).is_none());
        assert!(pages.page(8 * PAGE, |_| None).is_some(), "it is there");
        drop(pages);
        assert_eq!(SHADOW.load(Relaxed), 0);
    }
}
