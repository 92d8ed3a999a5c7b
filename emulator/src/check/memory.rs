//! The memory that is checked for bounds and for bytes that were never written: the device's buffers, and shared arrays.
//!
//! A program's buffers are known to all launches; a launch sees those that are there when it starts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::is_on;
use super::shadow::PAGE;

/// Bytes on either side of a region that no kernel may touch.
pub const RED_ZONE: usize = 4096;

/// What a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Buffer,
    Shared,
}

/// Memory with red zones around it. It begins at a multiple of [`PAGE`].
#[derive(Debug)]
pub(super) struct Region {
    pub start: usize,
    pub end: usize,
    pub of: Of,
    freed: AtomicBool,
    /// One bit for each byte.
    written: Box<[AtomicU64]>,
}

impl Region {
    pub fn new(start: usize, bytes: usize, of: Of) -> Self {
        debug_assert!(start.is_multiple_of(PAGE));
        let words = bytes.next_multiple_of(PAGE) / 64;
        Self {
            start,
            end: start + bytes,
            of,
            freed: AtomicBool::new(false),
            written: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn is_freed(&self) -> bool {
        self.freed.load(Relaxed)
    }

    /// Whether an address is in it or in its red zones.
    pub fn is_near(&self, address: usize) -> bool {
        address >= self.start - RED_ZONE && address < self.end.next_multiple_of(PAGE) + RED_ZONE
    }

    /// The words of the page at this address, which the region contains in part.
    pub fn written_from(&self, page: usize) -> *const AtomicU64 {
        self.written[(page - self.start) / 64..].as_ptr()
    }

    /// Marks bytes, or all, as written or not.
    pub fn mark(&self, offset: usize, bytes: usize, written: bool) {
        let end = (offset + bytes).min(self.end - self.start);
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

/// Buffers by their start.
type Buffers = BTreeMap<usize, Arc<Region>>;

static BUFFERS: Mutex<Buffers> = Mutex::new(BTreeMap::new());

fn buffers() -> MutexGuard<'static, Buffers> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What new buffers are filled with: floating-point numbers are NaN.
pub const FILL: u8 = 0xff;

/// A buffer of the device, at a multiple of 512, has come to be, with [`RED_ZONE`] unused bytes before it and after its
/// end rounded up to 512. Nothing in it counts as written; it is filled with [`FILL`].
pub fn allocated(start: usize, bytes: usize) {
    if is_on() && start.is_multiple_of(PAGE) {
        buffers().insert(start, Arc::new(Region::new(start, bytes, Of::Buffer)));
    }
}

/// No kernel may touch the buffer any more.
pub fn freed(start: usize) {
    if let Some(region) = buffers().get(&start) {
        region.freed.store(true, Relaxed);
    }
}

/// The buffer's memory may be used for something else.
pub fn released(start: usize) {
    buffers().remove(&start);
}

/// Something other than a kernel has written bytes, which may be in a buffer.
pub fn written(start: usize, bytes: usize) {
    if is_on()
        && let Some((_, region)) = buffers().range(..=start).next_back()
        && start < region.end
    {
        region.mark(start - region.start, bytes, true);
    }
}

/// Something other than a kernel may have written any buffer.
pub fn all_written() {
    if is_on() {
        buffers().values().for_each(|region| region.mark(0, region.end - region.start, true));
    }
}

/// Something other than a kernel has copied bytes from one place to another, which may be in buffers.
pub fn copied(to: usize, from: usize, bytes: usize) {
    if !is_on() {
        return;
    }
    let buffers = buffers();
    let find = |at: usize| buffers.range(..=at).next_back().map(|(_, r)| r).filter(|r| at < r.end);
    let Some(target) = find(to) else { return };
    let Some(source) = find(from) else {
        return target.mark(to - target.start, bytes, true);
    };
    for i in 0..bytes {
        target.mark(to - target.start + i, 1, source.is_written(from - source.start + i));
    }
}

/// The regions of a launch.
#[derive(Default)]
pub(super) struct Regions {
    /// By their start.
    buffers: Vec<Arc<Region>>,
    shared: Vec<Region>,
}

impl Regions {
    pub fn begin_launch(&mut self) {
        self.buffers = buffers().values().cloned().collect();
        self.shared.clear();
    }

    pub fn end_launch(&mut self) {
        *self = Self::default();
    }

    /// The region in which an address is, or in whose red zone.
    pub fn find(&self, address: usize) -> Option<&Region> {
        // A page that a region begins or ends in counts as that region's, so the nearest below comes first.
        let after = self.buffers.partition_point(|region| region.start <= address);
        let near = [after.checked_sub(1), Some(after)].into_iter().flatten();
        let buffer = near.filter_map(|at| self.buffers.get(at)).find(|region| region.is_near(address));
        buffer.map(|region| &**region).or_else(|| self.shared.iter().find(|region| region.is_near(address)))
    }

    /// The shared array at this address begins a new life.
    pub fn fresh(&mut self, start: usize, bytes: usize) {
        match self.shared.iter().find(|region| region.start == start) {
            Some(region) => region.mark(0, bytes, false),
            None => self.shared.push(Region::new(start, bytes, Of::Shared)),
        }
    }

    /// The shared array is gone.
    pub fn gone(&mut self, start: usize) {
        self.shared.retain(|region| region.start != start);
    }
}
