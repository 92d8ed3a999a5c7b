//! Counters from which the statistics are computed.
//!
//! Each arena counts its own blocks under its own lock, so streams share no data while they allocate. Summed over all
//! arenas, the current, allocated and freed amounts are exact. The reported peak is the sum of the arenas' peaks, an
//! upper bound. Memory reserved from the driver changes rarely and is also counted per device, so its peak is exact.

use super::size::Kind;
use crate::memory::statistics::{ByPool, Statistic};

/// The quantities that are counted for each kind of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Allocation,
    AllocatedBytes,
    RequestedBytes,
    InactiveSplit,
    InactiveSplitBytes,
    Segment,
    ReservedBytes,
}

const COUNTED: usize = Counted::ReservedBytes as usize + 1;

/// One counter. The freed amount is the allocated amount minus the current amount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Track {
    current: u64,
    peak: u64,
    /// Amount allocated, starting at `base` after a reset.
    allocated: u64,
    base: u64,
}

impl Track {
    #[inline]
    pub fn up(&mut self, amount: u64) {
        // The sum may wrap around, but differences remain correct.
        self.allocated = self.allocated.wrapping_add(amount);
        self.current += amount;
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub fn down(&mut self, amount: u64) {
        // The current amount may be smaller: the oversize threshold can change while an oversize block exists.
        self.current = self.current.saturating_sub(amount);
    }

    /// Replaces the amount `before` with `now` after the counting rule has changed.
    pub fn correct(&mut self, before: u64, now: u64) {
        self.up(now.saturating_sub(before));
        self.down(before.saturating_sub(now));
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        (self.allocated, self.base) = (0, self.current);
    }

    fn absorb(&mut self, other: &Track) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated = self.allocated.wrapping_add(other.allocated);
        self.base += other.base;
    }

    /// Adds this counter to a sum, with the given peak.
    fn add_with_peak(&self, peak: u64, sum: &mut Statistic) {
        sum.current += self.current;
        sum.peak += peak;
        sum.allocated = sum.allocated.wrapping_add(self.allocated);
        sum.freed = sum.freed.wrapping_add(self.base.wrapping_add(self.allocated).wrapping_sub(self.current));
    }

    /// Adds this counter to a sum.
    pub fn add_to(&self, sum: &mut Statistic) {
        self.add_with_peak(self.peak, sum);
    }

    /// Returns the sum of two counters, except for the peak.
    fn and(&self, other: &Track) -> Track {
        Track {
            current: self.current + other.current,
            peak: 0,
            allocated: self.allocated.wrapping_add(other.allocated),
            base: self.base + other.base,
        }
    }
}

/// Counter of freed blocks that wait for events, or of their bytes. The active amount is this amount plus the allocated
/// amount; it needs no separate counter, because blocks rarely wait.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    current: [u64; 2],
    /// The value of `current` at the last reset of the accumulated amounts, per kind.
    base: [u64; 2],
    /// Peak of the active amount while any block waited, per kind and in total.
    peak: [u64; 3],
}

/// Counters for an arena or a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    by_kind: [[Track; COUNTED]; 2],
    /// For each quantity, the peak of the sum over both kinds of blocks.
    peaks: [u64; COUNTED],
    /// Counters of waiting blocks and of their bytes.
    waiting: [Waiting; 2],
    pub oversize_allocations: Track,
    pub oversize_segments: Track,
}

impl Counters {
    #[inline]
    pub fn up(&mut self, kind: Kind, counted: Counted, amount: u64) {
        let counted = counted as usize;
        self.by_kind[kind as usize][counted].up(amount);
        let all = self.by_kind[0][counted].current + self.by_kind[1][counted].current;
        self.peaks[counted] = self.peaks[counted].max(all);
    }

    #[inline]
    pub fn down(&mut self, kind: Kind, counted: Counted, amount: u64) {
        self.by_kind[kind as usize][counted as usize].down(amount);
    }

    /// Counts a change of an amount as a single step.
    #[inline]
    pub fn change(&mut self, kind: Kind, counted: Counted, before: u64, now: u64) {
        if now > before {
            self.up(kind, counted, now - before);
        } else {
            self.down(kind, counted, before - now);
        }
    }

    /// Counts one item of `amount` bytes in two counters: of items and of their bytes.
    #[inline]
    pub fn up_both(&mut self, kind: Kind, things: Counted, bytes: Counted, amount: u64) {
        self.up(kind, things, 1);
        self.up(kind, bytes, amount);
    }

    #[inline]
    pub fn down_both(&mut self, kind: Kind, things: Counted, bytes: Counted, amount: u64) {
        self.down(kind, things, 1);
        self.down(kind, bytes, amount);
    }

    /// Counts an allocated block.
    #[inline]
    pub fn allocate(&mut self, kind: Kind, bytes: u64, requested: u64) {
        self.up_both(kind, Counted::Allocation, Counted::AllocatedBytes, bytes);
        self.up(kind, Counted::RequestedBytes, requested);
        if self.waiting[0].current != [0; 2] {
            self.note_active_peaks();
        }
    }

    /// Counts a block that was freed and waits for events.
    pub fn wait(&mut self, kind: Kind, bytes: u64) {
        self.waiting[0].current[kind as usize] += 1;
        self.waiting[1].current[kind as usize] += bytes;
        self.note_active_peaks();
    }

    /// Counts a block that no longer waits for events.
    pub fn wait_no_more(&mut self, kind: Kind, bytes: u64) {
        self.waiting[0].current[kind as usize] -= 1;
        self.waiting[1].current[kind as usize] -= bytes;
    }

    fn note_active_peaks(&mut self) {
        for (waiting, counted) in self.waiting.iter_mut().zip([Counted::Allocation, Counted::AllocatedBytes])
        {
            let active =
                [0, 1].map(|kind| waiting.current[kind] + self.by_kind[kind][counted as usize].current);
            for (peak, active) in waiting.peak.iter_mut().zip([active[0], active[1], active[0] + active[1]]) {
                *peak = active.max(*peak);
            }
        }
    }

    pub fn current(&self, counted: Counted) -> u64 {
        self.by_kind.iter().map(|tracks| tracks[counted as usize].current).sum()
    }

    /// Returns the bytes of the blocks that wait for events.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting[1].current.iter().sum()
    }

    /// Returns the peak of the active bytes.
    pub fn active_peak(&self) -> u64 {
        self.waiting[1].peak[2].max(self.peaks[Counted::AllocatedBytes as usize])
    }

    pub fn reset_peaks(&mut self) {
        self.tracks().for_each(Track::reset_peak);
        for counted in 0..COUNTED {
            self.peaks[counted] = self.by_kind.iter().map(|tracks| tracks[counted].current).sum();
        }
        self.waiting.iter_mut().for_each(|waiting| waiting.peak = [0; 3]);
        self.note_active_peaks();
    }

    pub fn reset_accumulated(&mut self) {
        self.tracks().for_each(Track::reset_accumulated);
        self.waiting.iter_mut().for_each(|waiting| waiting.base = waiting.current);
    }

    /// Adds the counters of an arena that is about to be removed; none of its blocks may be waiting.
    pub fn absorb(&mut self, others: &Counters) {
        let mut others = others.clone();
        for ((waiting, other), counted) in
            self.waiting.iter_mut().zip(others.waiting).zip([Counted::Allocation, Counted::AllocatedBytes])
        {
            let [small, large] = [0, 1].map(|kind| others.by_kind[kind][counted as usize].peak);
            let allocated = [small, large, others.peaks[counted as usize]];
            for ((peak, active), allocated) in waiting.peak.iter_mut().zip(other.peak).zip(allocated) {
                *peak += active.max(allocated);
            }
            waiting.base.iter_mut().zip(other.base).for_each(|(base, other)| *base += other);
        }
        self.peaks.iter_mut().zip(others.peaks).for_each(|(peak, other)| *peak += other);
        self.tracks().zip(others.tracks()).for_each(|(track, other)| track.absorb(other));
    }

    fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        let Self { by_kind, oversize_allocations, oversize_segments, .. } = self;
        by_kind.iter_mut().flatten().chain([oversize_allocations, oversize_segments])
    }

    /// Adds `times` times the allocations that were counted since `before`.
    pub fn repeat(&mut self, before: &Counters, times: u64) {
        let mut before = before.clone();
        for (track, before) in self.tracks().zip(before.tracks()) {
            let once = track.allocated.wrapping_sub(before.allocated);
            track.allocated = track.allocated.wrapping_add(once.wrapping_mul(times));
        }
    }

    /// Adds one of these counters to a sum.
    pub fn add_to(&self, counted: Counted, sum: &mut ByPool) {
        let counted = counted as usize;
        let [small, large] = [0, 1].map(|kind| &self.by_kind[kind][counted]);
        small.add_to(&mut sum.small_pool);
        large.add_to(&mut sum.large_pool);
        small.and(large).add_with_peak(self.peaks[counted], &mut sum.all);
    }

    /// Adds the active amounts to a sum of blocks and a sum of bytes.
    pub fn add_active_to(&self, blocks: &mut ByPool, bytes: &mut ByPool) {
        let counted = [Counted::Allocation, Counted::AllocatedBytes];
        for ((waiting, counted), sum) in self.waiting.iter().zip(counted).zip([blocks, bytes]) {
            let active = [0, 1].map(|kind| {
                let allocated = self.by_kind[kind][counted as usize];
                Track {
                    current: allocated.current + waiting.current[kind],
                    base: allocated.base + waiting.base[kind],
                    ..allocated
                }
            });
            let [small, large] = &active;
            // While no block waits, the active blocks are exactly the allocated blocks.
            small.add_with_peak(small.peak.max(waiting.peak[0]), &mut sum.small_pool);
            large.add_with_peak(large.peak.max(waiting.peak[1]), &mut sum.large_pool);
            let peak = self.peaks[counted as usize].max(waiting.peak[2]);
            small.and(large).add_with_peak(peak, &mut sum.all);
        }
    }
}
