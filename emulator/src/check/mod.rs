//! Checks what kernels do to memory: finds races, accesses out of bounds, and reads of memory that nothing wrote.
//!
//! `warpsmith check` compiles the crates of a program that contain kernels with LLVM's `tsan` pass, which puts a call before
//! every access to memory. The calls come here (`entry`). While a launch is checked, which `WARPSMITH_CHECK` decides
//! (`settings`), each is compared with the accesses before it to the same bytes (`shadow`), by what is known to order the
//! threads (`clocks`), and with the bounds of the buffer or shared array (`memory`). What is wrong becomes a [`Finding`];
//! the launch runs on. Then it fails with [`Fault::Check`](crate::Fault), or, if a stream runs it for a thread that
//! [`enqueued`] it, ends as if nothing was wrong, and the thread takes ([`take_findings`]) the findings (`collect`).
//!
//! Of a launch that was enqueued, the checker also notes which bytes it has touched (`touched`), so that the driver can compare
//! launches on streams that nothing orders.
//!
//! A checked launch runs on one host thread. One that is not checked pays for a test of one pointer at each barrier.
//!
//! What is not found: accesses of crates that were not instrumented; a race with one of many earlier accesses to the same
//! four bytes, of which three are kept; races with threads whose clock exceeds 65534, that is after as many barriers and
//! releases; whatever the run did not execute.

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

use crate::fault::Fault;
use clocks::{Block, Clocks};
use collect::Collector;
use memory::{Of, Regions};
use place::Places;
use settings::Settings;
use shadow::{GRAIN, Kind, PAGE, Pages, RECORDS, Record};

/// The layout of an allocation with red zones around memory of `layout`, and how far the memory is from its start.
/// `None` for a size that no allocation can have.
pub fn with_red_zones(layout: Layout) -> Option<(Layout, usize)> {
    let align = layout.align().max(PAGE);
    let before = RED_ZONE.next_multiple_of(align);
    let bytes = layout.size().checked_next_multiple_of(PAGE)?.checked_add(before + RED_ZONE)?;
    Some((Layout::from_size_align(bytes, align).ok()?, before))
}

/// Bytes of shadow memory above which a checker frees them after a launch, if that is less than a part of what there may be.
const KEPT_BYTES: usize = 256 << 20;

/// What the checker has to know of a launch.
pub(crate) struct Subject<'a> {
    pub kernel: &'static KernelSpec,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub args: &'a [*const c_void],
    pub stack_bytes: usize,
}

/// An access as instrumented code reports it.
#[derive(Clone, Copy)]
struct Accessed {
    bytes: usize,
    /// The address behind the call.
    pc: usize,
    reads: bool,
    writes: bool,
    atomic: bool,
    narrow: bool,
    /// The address has to be a multiple of the size.
    aligned: bool,
    /// The value may be one that nothing wrote.
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

/// Checks the launches on a host thread, one after the other.
pub(crate) struct Checker {
    settings: &'static Settings,
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    /// Bytes of a thread's stack, which is its own.
    stack_bytes: usize,
    clocks: Clocks,
    pages: Pages,
    regions: Regions,
    places: Places,
    /// The places of other kernels.
    other_places: HashMap<*const KernelSpec, Places>,
    /// The pointers among the launch's arguments.
    arguments: Vec<report::Argument>,
    /// Whether the launch has made an access.
    has_accesses: bool,
    seen: HashSet<(FindingKind, u16, u16)>,
    findings: Vec<Finding>,
    /// Findings beyond the limit.
    more: u64,
    /// Who gets them, if the launch was enqueued.
    collector: Option<Arc<Collector>>,
    /// Findings are reported at once.
    reports: bool,
    /// There are as many findings as there may be.
    full: bool,
    /// There was no memory for another page.
    out_of_memory: bool,
}

// SAFETY: the pointers among its keys are compared, and never followed; see `Pages` for those there.
unsafe impl Send for Checker {}

/// Checkers between launches.
#[expect(clippy::vec_box, reason = "a launch owns one by its address")]
static IDLE: Mutex<Vec<Box<Checker>>> = Mutex::new(Vec::new());

impl Checker {
    /// A checker for a launch, if launches are checked.
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

    /// Ends the launch, which has ended with `result`. What was found is an error of it, or goes to who enqueued it.
    pub fn end_launch<T: Default>(mut self: Box<Self>, result: Result<T, Fault>) -> Result<T, Fault> {
        // A kernel without memory has nothing to access.
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
            // What was to be launched next is not, if the launch was stopped.
            Ok(_) | Err(Fault::Check { .. }) if self.collector.is_some() => {
                let collector = self.collector.take();
                collector.inspect(|collector| collector.add(found, self.reports));
                return Ok(result.unwrap_or_default());
            }
            Ok(_) | Err(Fault::Check { .. }) => None,
            Err(fault) => Some(Box::new(fault)),
        };
        if !self.reports {
            found.findings.iter().for_each(collect::report);
        }
        let Findings { findings, more } = found;
        Err(Fault::Check { kernel: self.kernel.name, findings, more, then })
    }

    /// Whether anything was found.
    pub fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// A block is about to run, at place `number` of those that run at once.
    pub fn begin_block(&mut self, number: u32, linear: u64, index: [u32; 3], threads: u32) {
        self.clocks.begin_block(number, linear as u32, index, threads);
    }

    /// A barrier of the block is complete.
    pub fn block_barrier(&mut self, number: u32) {
        self.clocks.block_barrier(number);
    }

    /// These lanes of a warp have synchronised.
    pub fn warp_barrier(&mut self, number: u32, warp: u32, lanes: u32) {
        self.clocks.warp_barrier(number, warp, lanes);
    }

    /// A thread has arrived at the barrier of the cluster whose blocks begin at place `first`; it `waits` at once, or does
    /// something else before.
    pub fn cluster_arrive(&mut self, first: u32, number: u32, thread: u32, waits: bool) {
        self.clocks.cluster_arrive(first, number, thread, waits);
    }

    /// The barrier has let the thread through.
    pub fn cluster_wait(&mut self, first: u32, number: u32, thread: u32) {
        self.clocks.cluster_wait(first, number, thread);
    }

    /// The barrier of a cluster of these blocks is complete.
    pub fn cluster_barrier(&mut self, numbers: Range<u32>) {
        self.clocks.cluster_barrier(numbers);
    }

    /// The barrier of the grid is complete.
    pub fn grid_barrier(&mut self) {
        self.note_touched();
        self.pages.begin_phase();
    }

    /// A copy that no thread makes has written these bytes.
    pub fn copied_to(&mut self, start: usize, bytes: usize) {
        if let Some(region) = self.regions.find(start)
            && let Some(offset) = start.checked_sub(region.start)
            && !region.of.is_forbidden()
        {
            region.mark(offset, bytes, true);
        }
    }

    /// The shared array at this address, with red zones around it, begins a new life.
    pub fn fresh(&mut self, start: usize, bytes: usize) {
        self.regions.fresh(start, bytes);
        self.pages.forget(start - RED_ZONE, start + bytes + PAGE + RED_ZONE);
    }

    /// The shared array at this address is gone.
    pub fn gone(&mut self, start: usize, bytes: usize) {
        self.regions.gone(start);
        self.pages.forget(start - RED_ZONE, start + bytes + PAGE + RED_ZONE);
    }

    /// An access by a thread of the block at place `number`, if it is a common one, with which nothing is wrong. `false`
    /// for others, which [`Self::access`] checks from the start.
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

    /// An access by a thread of the block at place `number`.
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

    /// The part of an access in one page.
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

/// The grains of a page that bytes are in, each with a mask of them.
#[inline(always)]
fn grains(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
    (offset / GRAIN..=(offset + bytes - 1) / GRAIN).map(move |grain| {
        let low = offset.saturating_sub(grain * GRAIN);
        let high = (offset + bytes - grain * GRAIN).min(GRAIN);
        (grain, (1 << high) - (1 << low))
    })
}

/// What an access is to those before to the same bytes.
enum Compared {
    /// One of them, as far as it matters.
    Known,
    /// To be kept in this record.
    Kept(usize),
    /// The same, but it is in a race with this one.
    Race(usize, Record),
}

/// Compares an access by a thread of `block` with those before to the same bytes.
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
        // The first two are kept: they are of two threads, so what conflicts with this conflicts with one of them.
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
