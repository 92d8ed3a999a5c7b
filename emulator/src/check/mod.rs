//! Memory checker for kernels, which detects races, out-of-bounds accesses, and reads of uninitialized memory.
//!
//! `warpsmith check` compiles a program's kernel crates with LLVM's `tsan` pass, which inserts a call before every
//! memory access. The calls arrive in `entry`. A launch is checked if `WARPSMITH_CHECK` requests checks (`settings`).
//! Each access is compared with earlier accesses to the same bytes (`shadow`), taking into account the known order of
//! the threads (`clocks`). Each access is also compared with the bounds of the buffer or shared array (`memory`).
//!
//! An error becomes a [`Finding`], and the launch continues. At the end, the launch fails with
//! [`FaultKind::Check`](crate::FaultKind). If a stream runs the launch for a thread that [`enqueued`] it, the launch
//! ends as if successful, and that thread retrieves the findings ([`take_findings`], `collect`).
//!
//! For an enqueued launch, the checker also records the bytes that the launch has accessed (`touched`), so that the
//! driver can compare launches on unordered streams.
//!
//! A checked launch runs on one host thread. In a launch that is not checked, the overhead is one pointer test per
//! barrier.
//!
//! The checker does not detect the following:
//! - accesses by crates that are not instrumented;
//! - a race with an access that is no longer recorded, because only three accesses to the same four bytes are kept;
//! - races with accesses that a thread makes after its clock exceeds 65534, that is, after that many barriers and
//!   releases;
//! - code that the run did not execute.

mod clocks;
mod collect;
mod entry;
mod memory;
mod place;
mod report;
mod settings;
mod shadow;
mod touched;

use std::alloc::Layout;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_spec::KernelSpec;

pub use clocks::{Operation, Scope};
pub use collect::{Enqueued, Scope as FindingScope, enqueued, found, take_findings};
pub use entry::{atomic_access, fence, read_argument, unchecked};
pub use gpu_spec::finding::{Access, Finding, FindingKind, Findings, Frame};
pub use memory::{FILL, RED_ZONE, all_written, allocated, copied, freed, released, written};
pub(crate) use place::interrupted_frames;
pub use report::ALLOW;
pub use settings::is_on;
pub(crate) use settings::settings;
pub use touched::{Side, Touch, stream_race, take_touched};

use crate::fault::{Fault, FaultKind};
use clocks::{Block, Clocks};
use collect::Collector;
use memory::{Of, Regions};
use place::Places;
use settings::Settings;
use shadow::{GRAIN, Kind, PAGE, Pages, RECORDS, Record};

/// Returns the layout of an allocation that contains memory of layout `layout` between two red zones, and the offset of
/// that memory in the allocation. Returns `None` for a size that cannot be allocated.
pub fn with_red_zones(layout: Layout) -> Option<(Layout, usize)> {
    let align = layout.align().max(PAGE);
    let before = RED_ZONE.next_multiple_of(align);
    let bytes = layout.size().checked_next_multiple_of(PAGE)?.checked_add(before + RED_ZONE)?;
    Some((Layout::from_size_align(bytes, align).ok()?, before))
}

/// Maximum size in bytes of the shadow memory that a checker keeps after a launch, unless a sixteenth of the permitted
/// shadow memory is less.
const KEPT_BYTES: usize = 256 << 20;

/// Description of a launch for the checker.
pub(crate) struct Subject<'a> {
    pub kernel: &'static KernelSpec,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub args: &'a [*const c_void],
    pub stack_bytes: usize,
}

/// An access as reported by instrumented code.
#[derive(Clone, Copy)]
struct Accessed {
    bytes: usize,
    /// Return address of the call.
    pc: usize,
    reads: bool,
    writes: bool,
    atomic: bool,
    narrow: bool,
    /// True if the address must be a multiple of the size.
    aligned: bool,
    /// True if the value may be uninitialized.
    any_value: bool,
}

impl Accessed {
    #[inline(always)]
    fn new(bytes: usize, pc: usize) -> Self {
        Self {
            bytes,
            pc,
            reads: false,
            writes: false,
            atomic: false,
            narrow: false,
            aligned: false,
            any_value: false,
        }
    }

    #[inline(always)]
    fn kind(&self) -> Kind {
        Kind { write: self.writes, atomic: self.atomic, narrow: self.narrow }
    }

    #[inline(always)]
    fn is_misaligned(&self, address: usize) -> bool {
        self.aligned && !address.is_multiple_of(self.bytes.min(8))
    }
}

/// Checks the launches that a host thread runs, one after another.
pub(crate) struct Checker {
    settings: &'static Settings,
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    /// Size of a thread's private stack, in bytes.
    stack_bytes: usize,
    clocks: Clocks,
    pages: Pages,
    regions: Regions,
    places: Places,
    /// Source locations of kernels other than the current one.
    other_places: HashMap<*const KernelSpec, Places>,
    /// Pointers among the launch's arguments.
    arguments: Vec<report::Argument>,
    /// True if the launch has made a memory access.
    has_accesses: bool,
    seen: HashSet<(FindingKind, u16, u16)>,
    findings: Vec<Finding>,
    /// Number of findings beyond the limit.
    more: u64,
    /// Recipient of the findings, if the launch was enqueued.
    collector: Option<Arc<Collector>>,
    /// True if findings are reported immediately.
    reports: bool,
    /// True if the maximum number of findings is reached.
    full: bool,
    /// True if no memory was available for another page.
    out_of_memory: bool,
}

// SAFETY: pointers among the map's keys are only compared, never dereferenced; `Pages` documents its own pointers.
unsafe impl Send for Checker {}

/// Checkers that are not in use, kept for later launches.
#[expect(clippy::vec_box, reason = "a launch owns one by its address")]
static IDLE: Mutex<Vec<Box<Checker>>> = Mutex::new(Vec::new());

impl Checker {
    /// Returns a checker for a launch, if launches are checked.
    pub fn begin_launch(launch: &Subject<'_>) -> Result<Option<Box<Checker>>, String> {
        let Some(settings) = settings()? else { return Ok(None) };
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut checker = idle.unwrap_or_else(|| {
            Box::new(Checker {
                settings,
                kernel: launch.kernel,
                grid: launch.grid,
                block: launch.block,
                stack_bytes: launch.stack_bytes,
                clocks: Clocks::default(),
                pages: Pages::new(settings.memory),
                regions: Regions::default(),
                places: Places::default(),
                other_places: HashMap::new(),
                arguments: Vec::new(),
                has_accesses: false,
                seen: HashSet::new(),
                findings: Vec::new(),
                more: 0,
                collector: None,
                reports: true,
                full: false,
                out_of_memory: false,
            })
        });
        checker.begin(launch);
        Ok(Some(checker))
    }

    fn begin(&mut self, launch: &Subject<'_>) {
        if !std::ptr::eq(self.kernel, launch.kernel) {
            let of_kernel = self.other_places.remove(&std::ptr::from_ref(launch.kernel)).unwrap_or_default();
            let before = std::mem::replace(&mut self.places, of_kernel);
            self.other_places.insert(self.kernel, before);
        }
        (self.kernel, self.grid, self.block) = (launch.kernel, launch.grid, launch.block);
        self.clocks.begin_launch();
        self.pages.begin_phase();
        self.regions.begin_launch();
        self.arguments = report::arguments(launch, &self.regions);
        self.stack_bytes = launch.stack_bytes;
        (self.has_accesses, self.more, self.full, self.out_of_memory) = (false, 0, false, false);
        self.seen.clear();
        self.findings.clear();
        self.collector = collect::running().map(|enqueued| enqueued.collector);
        self.reports = self.collector.as_ref().is_none_or(|collector| !collector.is_scope());
    }

    /// Ends a launch that returned `result`. The findings either become the launch's error or are assigned to the
    /// thread that enqueued the launch.
    pub fn end_launch<T: Default>(mut self: Box<Self>, result: Result<T, Fault>) -> Result<T, Fault> {
        // A kernel without memory arguments cannot access checked memory.
        if result.is_ok() && !self.has_accesses && self.arguments.iter().any(report::Argument::has_memory) {
            self.report_missing();
        }
        let found = Findings { findings: std::mem::take(&mut self.findings), more: self.more };
        self.note_touched();
        let result = self.ended(result, found);
        self.regions.end_launch();
        if self.pages.bytes() > KEPT_BYTES.min(self.settings.memory / 16) {
            self.pages.clear();
        }
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        result
    }

    fn ended<T: Default>(&mut self, result: Result<T, Fault>, found: Findings) -> Result<T, Fault> {
        if found.is_empty() {
            return result;
        }
        let then = match result {
            // If the launch was stopped, its children are not launched.
            Ok(_) | Err(Fault { kind: FaultKind::Check { .. }, .. }) if self.collector.is_some() => {
                let collector = self.collector.take();
                collector.inspect(|collector| collector.add(found, self.reports));
                return Ok(result.unwrap_or_default());
            }
            Ok(_) | Err(Fault { kind: FaultKind::Check { .. }, .. }) => None,
            Err(fault) => Some(Box::new(fault)),
        };
        if !self.reports {
            found.findings.iter().for_each(collect::report);
        }
        let Findings { findings, more } = found;
        let access = findings.iter().find_map(|finding| finding.access.as_ref());
        let (block, thread) = access.map(|access| (access.block, access.thread)).unzip();
        let kind = FaultKind::Check { findings, more, then };
        Err(Fault { kernel: self.kernel.name, block, thread, kind })
    }

    /// Returns true if there are findings.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Prepares the check of a block that is about to run, with index `number` among the running blocks.
    pub fn begin_block(&mut self, number: u32, linear: u64, index: [u32; 3], threads: u32) {
        self.clocks.begin_block(number, linear as u32, index, threads);
    }

    /// Updates the state after a block barrier was completed.
    pub fn block_barrier(&mut self, number: u32) {
        self.clocks.block_barrier(number);
    }

    /// Updates the state after the lanes `lanes` of a warp have synchronized.
    pub fn warp_barrier(&mut self, number: u32, warp: u32, lanes: u32) {
        self.clocks.warp_barrier(number, warp, lanes);
    }

    /// Updates the state when a thread arrives at the barrier of the cluster whose first block has index `first`.
    /// `waits` is false if the thread performs other work before it waits.
    pub fn cluster_arrive(&mut self, first: u32, number: u32, thread: u32, waits: bool) {
        self.clocks.cluster_arrive(first, number, thread, waits);
    }

    /// Updates the state after a thread has waited for the cluster barrier.
    pub fn cluster_wait(&mut self, first: u32, number: u32, thread: u32) {
        self.clocks.cluster_wait(first, number, thread);
    }

    /// Updates the state after the barrier of the cluster with the blocks `numbers` was completed.
    pub fn cluster_barrier(&mut self, numbers: Range<u32>) {
        self.clocks.cluster_barrier(numbers);
    }

    /// Updates the state after a grid barrier was completed.
    pub fn grid_barrier(&mut self) {
        self.note_touched();
        self.pages.begin_phase();
    }

    /// Marks bytes as written by a copy that is not performed by a thread of the kernel.
    pub fn copied_to(&mut self, start: usize, bytes: usize) {
        if let Some(region) = self.regions.find(start)
            && let Some(offset) = start.checked_sub(region.start)
            && !region.of.is_forbidden()
        {
            region.mark(offset, bytes, true);
        }
    }

    /// Starts a new lifetime of the shared array at this address, with red zones around it.
    pub fn fresh(&mut self, start: usize, bytes: usize) {
        self.regions.fresh(start, bytes);
        self.pages.forget(start - RED_ZONE, start + bytes + PAGE + RED_ZONE);
    }

    /// Ends the lifetime of the shared array at this address.
    pub fn gone(&mut self, start: usize, bytes: usize) {
        self.regions.gone(start);
        self.pages.forget(start - RED_ZONE, start + bytes + PAGE + RED_ZONE);
    }

    /// Fast path for common, correct accesses by a thread of the block with index `number`. Returns false for all other
    /// accesses, for which [`Self::access`] must perform the complete check.
    #[inline(always)]
    fn access_at_once(&mut self, number: u32, thread: u32, address: usize, access: &Accessed) -> bool {
        let (Some(page), Some(place)) = (self.pages.recent(address), self.places.recent(access.pc)) else {
            return false;
        };
        let offset = address % PAGE;
        if !page.contains(offset, access.bytes) || access.is_misaligned(address) {
            return false;
        }
        if access.reads && !access.any_value && !page.is_written(offset, access.bytes) {
            return false;
        }
        let block = &self.clocks.blocks[number as usize];
        let record = Record::new(block.linear, block.clock(thread), thread, place, access.kind());
        for (grain, mask) in grains(offset, access.bytes) {
            let now = record.of_bytes(mask);
            let records = &mut page.records[grain];
            match compare(&self.clocks, block, thread, records, &now) {
                Compared::Known => {}
                Compared::Kept(at) => records[at] = now,
                Compared::Race(..) => return false,
            }
        }
        if access.writes {
            page.set_written(offset, access.bytes);
        }
        true
    }

    /// Checks an access by a thread of the block with index `number`.
    fn access(&mut self, number: u32, thread: u32, address: usize, access: &Accessed) {
        let place = self.places.number(access.pc);
        let block = &self.clocks.blocks[number as usize];
        let record = Record::new(block.linear, block.clock(thread), thread, place, access.kind());
        if access.is_misaligned(address) {
            self.report(FindingKind::Misaligned, number, record, None, address, access);
        }
        let end = address + access.bytes;
        let mut at = address;
        while at < end {
            let upto = end.min(at / PAGE * PAGE + PAGE);
            self.piece(number, thread, at, upto - at, record, access);
            at = upto;
        }
    }

    /// Checks the part of an access that lies in one page.
    fn piece(
        &mut self,
        number: u32,
        thread: u32,
        address: usize,
        bytes: usize,
        record: Record,
        access: &Accessed,
    ) {
        let Some(page) = self.pages.page(address, |at| self.regions.find(at)) else {
            self.out_of_memory = true;
            return;
        };
        let offset = address % PAGE;
        if !page.contains(offset, bytes) {
            let freed = self.regions.find(address).is_some_and(|region| region.of == Of::Freed);
            let kind = if freed { FindingKind::Freed } else { FindingKind::OutOfBounds };
            return self.report(kind, number, record, None, address, access);
        }
        let unwritten = access.reads && !access.any_value && !page.is_written(offset, bytes);
        if access.writes {
            page.set_written(offset, bytes);
        }
        let block = &self.clocks.blocks[number as usize];
        let mut race = None;
        for (grain, mask) in grains(offset, bytes) {
            let now = record.of_bytes(mask);
            let records = &mut page.records[grain];
            match compare(&self.clocks, block, thread, records, &now) {
                Compared::Known => {}
                Compared::Kept(at) => records[at] = now,
                Compared::Race(at, old) => {
                    records[at] = now;
                    let low = mask.trailing_zeros() as usize;
                    race = race.or(Some((now, old, address - offset + grain * GRAIN + low)));
                }
            }
        }
        if unwritten {
            self.report(FindingKind::Uninitialized, number, record, None, address, access);
        }
        if let Some((now, old, at)) = race {
            let narrow = now.kind().atomic && old.kind().atomic;
            let kind = if narrow { FindingKind::NarrowScope } else { FindingKind::Race };
            self.report(kind, number, now, Some(old), at, access);
        }
    }
}

/// Returns the grains of a page that contain the bytes, each with a mask of these bytes.
#[inline(always)]
fn grains(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
    (offset / GRAIN..=(offset + bytes - 1) / GRAIN).map(move |grain| {
        let low = offset.saturating_sub(grain * GRAIN);
        let high = (offset + bytes - grain * GRAIN).min(GRAIN);
        (grain, (1 << high) - (1 << low))
    })
}

/// Result of comparing an access with earlier accesses to the same bytes.
enum Compared {
    /// The access is already covered by an earlier record.
    Known,
    /// The access must be stored in this record.
    Kept(usize),
    /// The access must be stored in this record and races with the given earlier access.
    Race(usize, Record),
}

/// Compares an access by a thread of `block` with earlier accesses to the same bytes.
#[inline(always)]
fn compare(
    clocks: &Clocks,
    block: &Block,
    thread: u32,
    records: &[Record; RECORDS],
    now: &Record,
) -> Compared {
    if records[0].is_empty() {
        return Compared::Kept(0);
    }
    if records.iter().any(|old| old.repeats(now)) {
        return Compared::Known;
    }
    let is_past = |old: &Record| old.clock().is_none_or(|clock| block.is_past(old.block(), clock));
    if Record::are_alike(records, now) && !records[..2].iter().any(is_past) {
        // The first two records are kept. They belong to two different threads, so any later access that conflicts with
        // this one also conflicts with one of them.
        return Compared::Kept(RECORDS - 1);
    }
    let mut race = None;
    let mut free = None;
    for (at, old) in records.iter().enumerate() {
        if old.is_empty() {
            free = free.or(Some(at));
            break;
        }
        let (conflicts, covered) = (old.conflicts(now), old.is_covered_by(now));
        if !conflicts && !covered {
            continue;
        }
        let ordered = match old.clock() {
            Some(clock) => clocks.is_ordered(block, thread, old.block(), old.thread(), clock),
            None => true,
        };
        if ordered && covered {
            free = Some(at);
        } else if !ordered && conflicts && race.is_none() {
            race = Some(*old);
        }
    }
    let at = free.unwrap_or(RECORDS - 1);
    race.map_or(Compared::Kept(at), |old| Compared::Race(at, old))
}
