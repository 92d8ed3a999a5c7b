//! Memory that is checked for out-of-bounds accesses and uninitialized reads: the device's buffers, and shared arrays.
//!
//! The driver reports the memory it has allocated, and the allocator above it reports the buffers in that memory. A
//! launch is checked against the buffers that existed when it was enqueued, regardless of when it runs. The launch may
//! use a buffer that is freed later, but not a buffer that was freed before the launch was enqueued. A block that the
//! allocator reuses counts as a new buffer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::collect;
use super::is_on;
use super::shadow::PAGE;

/// Number of bytes on each side of a region, which no kernel may access.
pub const RED_ZONE: usize = 4096;

/// Kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Buffer,
    Shared,
    /// A freed buffer.
    Freed,
    /// Device memory that does not belong to a buffer.
    Unused,
}

impl Of {
    /// Returns true if no kernel may access the region.
    pub fn is_forbidden(self) -> bool {
        matches!(self, Of::Freed | Of::Unused)
    }
}

/// Memory of one buffer or array. It starts at a multiple of [`PAGE`], and the rest of its last page is not used for
/// anything else.
#[derive(Debug)]
pub(super) struct Region {
    pub start: usize,
    pub end: usize,
    pub of: Of,
    /// True if there was no earlier buffer at these addresses, so that bytes that were never written contain the fill
    /// value.
    pub is_new: bool,
    /// Initialization bits, one per byte; empty for memory that no kernel may access.
    written: Box<[AtomicU64]>,
}

impl Region {
    pub fn new(start: usize, bytes: usize, of: Of) -> Self {
        debug_assert!(start.is_multiple_of(PAGE));
        let words = if of.is_forbidden() { 0 } else { bytes.next_multiple_of(PAGE) / 64 };
        let written = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { start, end: start + bytes, of, is_new: of != Of::Freed, written }
    }

    /// Returns true if an address is in the region or in its red zones.
    pub fn is_near(&self, address: usize) -> bool {
        address >= self.start - RED_ZONE && address < self.last() + RED_ZONE
    }

    /// Returns the end of the region's last page.
    fn last(&self) -> usize {
        self.end.next_multiple_of(PAGE)
    }

    /// Returns the words with the initialization bits of the page at this address. The page must be at least partly in
    /// the region. The region must be accessible to kernels.
    pub fn written_from(&self, page: usize) -> *const AtomicU64 {
        self.written[(page - self.start) / 64..].as_ptr()
    }

    /// Marks a range of the region as written or not written.
    pub fn mark(&self, offset: usize, bytes: usize, written: bool) {
        let end = (offset + bytes).min(self.written.len() * 64);
        let mut at = offset;
        while at < end {
            let upto = (at / 64 * 64 + 64).min(end);
            let mask = (u64::MAX >> (64 - (upto - at))) << (at % 64);
            match written {
                true => self.written[at / 64].fetch_or(mask, Relaxed),
                false => self.written[at / 64].fetch_and(!mask, Relaxed),
            };
            at = upto;
        }
    }

    fn is_written(&self, offset: usize) -> bool {
        self.written.get(offset / 64).is_none_or(|word| word.load(Relaxed) >> (offset % 64) & 1 == 1)
    }
}

/// Disjoint regions, keyed by start address.
pub(super) type Buffers = BTreeMap<usize, Arc<Region>>;

/// The current buffers. Work shares the map that was current when the work was enqueued.
static BUFFERS: LazyLock<Mutex<Arc<Buffers>>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Arc<Buffers>> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fill value of new buffers. Floating-point numbers that consist of this byte are NaN.
pub const FILL: u8 = 0xff;

/// Returns the current buffers.
pub(super) fn buffers_now() -> Arc<Buffers> {
    Arc::clone(&lock())
}

/// Returns the buffers for the work that this thread runs.
fn buffers() -> Arc<Buffers> {
    collect::running().map_or_else(buffers_now, |enqueued| enqueued.buffers)
}

/// Returns the region that contains an address, if any.
fn find(buffers: &Buffers, address: usize) -> Option<&Region> {
    buffers.range(..=address).next_back().map(|(_, region)| &**region).filter(|region| address < region.end)
}

/// Cuts a range of entire pages out of the existing regions. The remaining parts of a buffer that is cut become unused.
/// Returns true if no region existed in the range before.
fn cut(buffers: &mut Buffers, start: usize, end: usize) -> bool {
    let mut is_new = true;
    while let Some((_, old)) = buffers.range(..end).next_back()
        && old.last() > start
    {
        let old = Arc::clone(old);
        buffers.remove(&old.start);
        is_new &= old.is_new;
        let of = if old.of == Of::Buffer { Of::Unused } else { old.of };
        for (from, to) in [(old.start, old.end.min(start)), (end.max(old.start), old.end)] {
            if from < to {
                let rest = Region { is_new: old.is_new, ..Region::new(from, to - from, of) };
                buffers.insert(from, Arc::new(rest));
            }
        }
        if old.start < start {
            break;
        }
    }
    is_new
}

/// Reports a new buffer or new device memory. Its address must be a multiple of 512, and there must be [`RED_ZONE`]
/// unused bytes before its start and after its end, rounded up to a multiple of 512. The bytes must be filled with
/// [`FILL`], and are considered uninitialized.
pub fn allocated(start: usize, bytes: usize) {
    if is_on() && start.is_multiple_of(PAGE) {
        let mut buffers = lock();
        let buffers = Arc::make_mut(&mut buffers);
        let is_new = cut(buffers, start, (start + bytes).next_multiple_of(PAGE));
        buffers.insert(start, Arc::new(Region { is_new, ..Region::new(start, bytes, Of::Buffer) }));
    }
}

/// Reports that kernels that are enqueued from now on must not access the buffers in this memory.
pub fn freed(start: usize, bytes: usize) {
    if !is_on() {
        return;
    }
    let mut buffers = lock();
    for (_, region) in Arc::make_mut(&mut buffers).range_mut(start..start + bytes) {
        if region.of == Of::Buffer {
            *region = Arc::new(Region::new(region.start, region.end - region.start, Of::Freed));
        }
    }
}

/// Reports that the memory no longer belongs to the device.
pub fn released(start: usize, bytes: usize) {
    if is_on() {
        Arc::make_mut(&mut lock()).retain(|at, _| !(start..start + bytes).contains(at));
    }
}

/// Reports that code other than a kernel has written bytes, which may be in a buffer.
pub fn written(start: usize, bytes: usize) {
    if is_on()
        && let Some(region) = find(&buffers(), start)
    {
        region.mark(start - region.start, bytes, true);
    }
}

/// Reports that code other than a kernel may have written to any buffer.
pub fn all_written() {
    if is_on() {
        buffers().values().for_each(|region| region.mark(0, region.end - region.start, true));
    }
}

/// Reports that code other than a kernel has copied bytes, which may be in buffers.
pub fn copied(to: usize, from: usize, bytes: usize) {
    if !is_on() {
        return;
    }
    let buffers = buffers();
    let Some(target) = find(&buffers, to) else { return };
    let Some(source) = find(&buffers, from) else {
        return target.mark(to - target.start, bytes, true);
    };
    for i in 0..bytes {
        target.mark(to - target.start + i, 1, source.is_written(from - source.start + i));
    }
}

/// Regions that a launch may access.
#[derive(Default)]
pub(super) struct Regions {
    buffers: Arc<Buffers>,
    shared: Vec<Region>,
}

impl Regions {
    pub fn begin_launch(&mut self) {
        self.buffers = buffers();
        self.shared.clear();
    }

    pub fn end_launch(&mut self) {
        *self = Self::default();
    }

    /// Returns true if an address is in a buffer, even if the buffer was freed.
    pub fn is_in_buffer(&self, address: usize) -> bool {
        find(&self.buffers, address).is_some_and(|region| region.of != Of::Unused)
    }

    /// Returns the nearest accessible buffer below an address, if it is in the same device memory.
    pub fn buffer_below(&self, address: usize) -> Option<&Region> {
        let mut end = address;
        for (_, region) in self.buffers.range(..=address).rev() {
            if !region.is_near(end) {
                return None;
            }
            if region.of == Of::Buffer {
                return Some(region);
            }
            end = region.start;
        }
        None
    }

    /// Returns the region that contains an address, or has the address in its red zone.
    pub fn find(&self, address: usize) -> Option<&Region> {
        // Pages belong entirely to the region that starts or ends in them, so the nearest region below is checked
        // first.
        let below = self.buffers.range(..=address).next_back();
        let above = self.buffers.range(address + 1..).next();
        let mut near = below.into_iter().chain(above).map(|(_, region)| &**region);
        let buffer = near.find(|region| region.is_near(address));
        buffer.or_else(|| self.shared.iter().find(|region| region.is_near(address)))
    }

    /// Starts a new lifetime of the shared array at this address.
    pub fn fresh(&mut self, start: usize, bytes: usize) {
        match self.shared.iter().find(|region| region.start == start) {
            Some(region) => region.mark(0, bytes, false),
            None => self.shared.push(Region::new(start, bytes, Of::Shared)),
        }
    }

    /// Ends the lifetime of the shared array at this address.
    pub fn gone(&mut self, start: usize) {
        self.shared.retain(|region| region.start != start);
    }
}
