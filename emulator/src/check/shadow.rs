//! Shadow memory: for every four bytes that a kernel touches, the last accesses that can still be in a race.
//!
//! A page stands for 512 bytes. Its records are of one phase: a launch, or the part of one between two barriers of the
//! grid. The first access in another phase clears them, as everything before is ordered.
//!
//! A page lies in one region at most, a buffer or a shared array, whose bounds it keeps, with one bit for each byte that
//! says whether it was written: regions begin at multiples of 512, and a page beside one belongs to its red zone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::memory::Region;

/// Bytes of a page.
pub(super) const PAGE: usize = 512;
/// Bytes that have records of their own.
pub(super) const GRAIN: usize = 4;
/// Accesses that are kept for each.
pub(super) const RECORDS: usize = 3;

const CACHED: usize = 512;

/// An access: 10 bytes, as there are six for every 8 bytes of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, packed(2))]
pub(super) struct Record {
    /// The linear index of the block in the grid.
    pub block: u32,
    /// The thread's clock, at most [`u16::MAX`].
    clock: u16,
    /// The thread in its block (10 bits), the bytes of the four (4), [`WRITE`], [`ATOMIC`].
    who: u16,
    /// The place in the source (15 bits), [`NARROW`].
    place: u16,
}

const WRITE: u16 = 1;
const ATOMIC: u16 = 2;
const NARROW: u16 = 1;

impl Record {
    #[inline(always)]
    pub fn new(block: u32, clock: u32, thread: u32, place: u16, kind: Kind) -> Self {
        let flags = u16::from(kind.write) * WRITE + u16::from(kind.atomic) * ATOMIC;
        Self {
            block,
            clock: clock.min(u16::MAX.into()) as u16,
            who: (thread as u16) << 6 | flags,
            place: place << 1 | if kind.narrow { NARROW } else { 0 },
        }
    }

    /// The same access to other bytes of four.
    #[inline(always)]
    pub fn of_bytes(self, mask: u16) -> Self {
        Self { who: self.who & !(15 << 2) | mask << 2, ..self }
    }

    #[inline(always)]
    pub fn mask(&self) -> u16 {
        self.who >> 2 & 15
    }

    #[inline(always)]
    pub fn thread(&self) -> u32 {
        (self.who >> 6).into()
    }

    /// The clock; `None` for one that is too large to be kept: the access counts as ordered.
    #[inline(always)]
    pub fn clock(&self) -> Option<u32> {
        (self.clock != u16::MAX).then_some(self.clock.into())
    }

    #[inline(always)]
    pub fn place(&self) -> u16 {
        self.place >> 1
    }

    #[inline(always)]
    pub fn kind(&self) -> Kind {
        Kind {
            write: self.who & WRITE != 0,
            atomic: self.who & ATOMIC != 0,
            narrow: self.place & NARROW != 0,
        }
    }

    /// Whether the two may not happen at once.
    #[inline(always)]
    pub fn conflicts(&self, other: &Record) -> bool {
        let (a, b) = (self.kind(), other.kind());
        let atomic = a.atomic && b.atomic && (self.block == other.block || !(a.narrow || b.narrow));
        self.mask() & other.mask() != 0 && (a.write || b.write) && !atomic
    }

    /// Whether this need not be kept beside `later`, before which it happens: whatever races with it races with that.
    #[inline(always)]
    pub fn is_covered_by(&self, later: &Record) -> bool {
        let (old, new) = (self.kind(), later.kind());
        self.mask() & !later.mask() == 0
            && (new.write || !old.write)
            && (!new.atomic || old.atomic)
            && (!old.narrow || new.narrow)
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
    pub low: u16,
    pub high: u16,
    /// One bit for each byte that was written, of the region's; null outside regions.
    written: *const AtomicU64,
    pub records: [[Record; RECORDS]; PAGE / GRAIN],
}

impl Page {
    /// Whether one of `bytes` bytes was written, or nothing is known.
    #[inline(always)]
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        if self.written.is_null() {
            return true;
        }
        self.words(offset, bytes).any(|(word, mask)| word.load(Relaxed) & mask != 0)
    }

    #[inline(always)]
    pub fn set_written(&self, offset: usize, bytes: usize) {
        if self.written.is_null() {
            return;
        }
        for (word, mask) in self.words(offset, bytes) {
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
        }
    }

    #[inline(always)]
    fn words(&self, offset: usize, bytes: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        debug_assert!(offset + bytes <= PAGE);
        let (first, last) = (offset / 64, (offset + bytes - 1) / 64);
        (first..=last).map(move |at| {
            let from = offset.max(at * 64) - at * 64;
            let to = (offset + bytes).min(at * 64 + 64) - at * 64;
            let mask = (u64::MAX >> (64 - (to - from))) << from;
            // SAFETY: a region has a word for every 64 bytes of its pages, the access is within the page, and the region
            // lives until the phase ends: the launch has it.
            (unsafe { &*self.written.add(at) }, mask)
        })
    }
}

/// The pages that were touched.
pub(super) struct Pages {
    pages: HashMap<usize, Box<Page>>,
    /// Recent ones by their number.
    cache: Box<[(usize, *mut Page)]>,
    phase: u32,
}

// SAFETY: the pointers are to pages that it owns; those to regions are used during a launch, which keeps the regions.
unsafe impl Send for Pages {}

impl Default for Pages {
    fn default() -> Self {
        Self {
            pages: HashMap::new(),
            cache: vec![(usize::MAX, std::ptr::null_mut()); CACHED].into(),
            phase: 0,
        }
    }
}

impl Pages {
    /// Everything before is ordered with everything after, and regions are looked up again.
    pub fn begin_phase(&mut self) {
        if self.phase == u32::MAX {
            self.clear();
        }
        self.phase += 1;
    }

    /// Frees the memory.
    pub fn clear(&mut self) {
        self.pages = HashMap::new();
        self.cache.fill((usize::MAX, std::ptr::null_mut()));
        self.phase = 0;
    }

    /// Bytes of shadow memory.
    pub fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page>() + size_of::<(usize, Box<Page>)>())
    }

    /// The page of an address; `region` finds the region around one.
    #[inline(always)]
    pub fn page<'r>(
        &mut self,
        address: usize,
        region: impl FnOnce(usize) -> Option<&'r Region>,
    ) -> &mut Page {
        let number = address / PAGE;
        let (cached, page) = self.cache[number % CACHED];
        let page = if cached == number { page } else { self.find(number) };
        // SAFETY: the cache has pages of the map, which it owns, in place; nothing else refers to one while the caller
        // has the mutable borrow.
        let page = unsafe { &mut *page };
        if page.phase != self.phase {
            refresh(page, number * PAGE, region(number * PAGE));
            page.phase = self.phase;
        }
        page
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, number: usize) -> *mut Page {
        let page: *mut Page = &mut **self.pages.entry(number).or_insert_with(|| {
            Box::new(Page {
                phase: 0,
                low: 0,
                high: PAGE as u16,
                written: std::ptr::null(),
                records: [[Record::default(); RECORDS]; PAGE / GRAIN],
            })
        });
        self.cache[number % CACHED] = (number, page);
        page
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

#[cold]
#[inline(never)]
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
