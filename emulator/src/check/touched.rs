//! Buffer bytes that a launch has accessed, for a driver that compares launches on several streams.
//!
//! The bytes are derived from the records in shadow memory. If another access of the same launch has replaced the
//! record of an access, that access is therefore missing.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gpu_spec::finding::{Access, Finding, FindingKind};

use super::Checker;
use super::memory::Of;
use super::place;
use super::shadow::{GRAIN, Record};

/// Maximum number of ranges that are kept per launch.
const MAX: usize = 1 << 14;
/// Number of ranges up to which accesses at different source locations stay separate.
const APART: usize = 1 << 10;

/// Bytes that a launch has read or written, and one of the accesses to them.
#[derive(Debug, Clone)]
pub struct Touch {
    /// Address range.
    pub range: Range<usize>,
    /// True if the bytes were written, and possibly also read.
    pub write: bool,
    /// True if all of these accesses were atomic at a scope that includes other launches.
    pub atomic: bool,
    /// Kernel name.
    pub kernel: &'static str,
    /// Address range of the buffer, up to its requested size.
    pub buffer: Range<usize>,
    access: Access,
    stack: Option<Arc<Backtrace>>,
    root: &'static Path,
}

impl Touch {
    /// Returns the access, including its source location.
    pub fn access(&self) -> Access {
        let frames = self.stack.as_ref().map_or_else(Vec::new, |stack| place::frames_of(stack, self.root));
        Access { frames, ..self.access.clone() }
    }
}

thread_local! {
    /// Memory accessed by enqueued launches that this thread has run since the last call of [`take_touched`].
    static TOUCHED: RefCell<Vec<Touch>> = const { RefCell::new(Vec::new()) };
}

/// Returns the memory accessed by enqueued launches that the calling thread has run since the last call.
pub fn take_touched() -> Vec<Touch> {
    TOUCHED.take()
}

/// A range that may still grow, and its first record.
struct Open {
    range: Range<usize>,
    place: u16,
    record: Record,
    buffer: Range<usize>,
}

impl Checker {
    /// Records the memory that the launch has accessed since it started or since the last grid barrier.
    pub(super) fn note_touched(&mut self) {
        if self.collector.is_none() {
            return;
        }
        let mut noted = Vec::new();
        // There is one open range for each combination of `write` and `atomic`.
        let mut open: [Option<Open>; 4] = [const { None }; 4];
        for start in self.pages.take_touched() {
            let Some(buffer) = self.regions.find(start).filter(|region| region.of == Of::Buffer) else {
                continue;
            };
            let buffer = buffer.start..buffer.end;
            let Some(page) = self.pages.existing(start) else { continue };
            for (grain, records) in page.records.iter().enumerate() {
                for record in records.iter().filter(|record| !record.is_empty()) {
                    let kind = record.kind();
                    let atomic = kind.atomic && !kind.narrow;
                    let bytes = record.bytes();
                    let range = start + grain * GRAIN + bytes.start..start + grain * GRAIN + bytes.end;
                    let slot = &mut open[usize::from(kind.write) * 2 + usize::from(atomic)];
                    let joins = |open: &Open| {
                        range.start <= open.range.end
                            && buffer == open.buffer
                            && (open.place == record.place() || noted.len() >= APART)
                    };
                    match slot {
                        Some(open) if joins(open) => open.range.end = open.range.end.max(range.end),
                        slot => {
                            let buffer = buffer.clone();
                            let new = Open { range, place: record.place(), record: *record, buffer };
                            noted.extend(slot.replace(new).filter(|_| noted.len() < MAX));
                        }
                    }
                }
            }
        }
        noted.extend(open.into_iter().flatten());
        let touches = noted.into_iter().map(|Open { range, record, buffer, .. }| Touch {
            range,
            write: record.kind().write,
            atomic: record.kind().atomic && !record.kind().narrow,
            kernel: self.kernel.name,
            buffer,
            access: self.described_without_place(&record),
            stack: self.places.stack(record.place()),
            root: &self.settings.root,
        });
        TOUCHED.with_borrow_mut(|touched| touched.extend(touches));
    }
}

/// One of two work items that access the same memory.
#[derive(Debug)]
pub struct Side<'a> {
    /// Access of the kernel; `None` for other work.
    pub touch: Option<&'a Touch>,
    /// Symbol of the kernel, or the name of other work.
    pub task: &'static str,
    /// True if the work writes the memory.
    pub write: bool,
    /// Stream of the work.
    pub stream: u64,
}

impl Side<'_> {
    fn access(&self) -> Option<Access> {
        let access = self.touch?.access();
        let Self { task, stream, .. } = self;
        let operation = format!("{} in kernel `{task}` on stream {stream}", access.operation);
        Some(Access { operation, ..access })
    }
}

/// Returns the finding for two pieces of work on unordered streams; `earlier` is the one that ran first. At least one
/// of the two must be a kernel.
pub fn stream_race(address: usize, later: &Side<'_>, earlier: &Side<'_>) -> Option<Finding> {
    let touch = later.touch.or(earlier.touch)?;
    let mut memory = format!(
        "byte {} of a buffer of {} bytes",
        address - touch.buffer.start,
        touch.buffer.end - touch.buffer.start
    );
    for side in [later, earlier].into_iter().filter(|side| side.touch.is_none()) {
        let operation = if side.write { "written" } else { "read" };
        memory += &format!(", which {} on stream {} has {operation}", side.task, side.stream);
    }
    let (access, other) = match (later.access(), earlier.access()) {
        (None, earlier) => (earlier, None),
        both => both,
    };
    Some(Finding {
        kind: FindingKind::StreamRace,
        kernel: touch.kernel,
        memory,
        access,
        other,
        advice: STREAM_ADVICE.to_owned(),
    })
}

/// Remedy for a race between streams.
pub(super) const STREAM_ADVICE: &str = "the streams are not ordered: let one wait for the other with \
                                        Stream::wait_stream or Stream::wait_event, or use one stream";
