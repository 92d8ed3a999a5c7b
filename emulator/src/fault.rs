//! Launch errors, whose [`Display`](std::fmt::Display) output is shown to users.

use std::fmt;
use std::panic::Location;

use gpu_spec::finding::Index;

use crate::check::Finding;

/// Reason why a launch did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A thread panicked.
    #[error(
        "kernel `{kernel}` panicked in block {}, thread {}: {message} ({})",
        Index(block), Index(thread), location.as_deref().unwrap_or("at an unknown location")
    )]
    Panic {
        /// Name of the kernel.
        kernel: &'static str,
        /// Panic message.
        message: String,
        /// Source location of the panic, as `file:line:column`; `None` if unknown.
        location: Option<String>,
        /// Block index.
        block: [u32; 3],
        /// Thread index in the block.
        thread: [u32; 3],
    },

    /// A thread misused a collective operation: lanes or threads disagree, one of them has exited, or the mask does not
    /// include the caller.
    #[error(
        "kernel `{kernel}` failed in block {}, thread {}: {message} ({location})",
        Index(block),
        Index(thread)
    )]
    Collective {
        /// Name of the kernel.
        kernel: &'static str,
        /// Cause of the fault.
        message: String,
        /// Source location of the call, as `file:line:column`.
        location: String,
        /// Block index.
        block: [u32; 3],
        /// Thread index in the block.
        thread: [u32; 3],
    },

    /// Every thread that has not exited waits, and no thread can be woken. The deadlock involves either one block, or
    /// all blocks of a cluster or a cooperative launch that run concurrently.
    #[error(
        "kernel `{kernel}` deadlocked in block {}: every thread waits{}{}",
        Index(block),
        Lines(waiting),
        Note(note)
    )]
    Deadlock {
        /// Name of the kernel.
        kernel: &'static str,
        /// Index of the block, or of the first block that has threads left.
        block: [u32; 3],
        /// Waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
        /// Reason why threads that wait in `grid::sync` can never continue, if known.
        note: Option<String>,
    },

    /// Threads of a block spin without progress.
    #[error(
        "kernel `{kernel}` spins without progress in block {} ({spins} atomic reads; WARPSMITH_EMULATOR_SPIN_LIMIT \
         sets the limit){}",
        Index(block),
        Lines(waiting)
    )]
    Livelock {
        /// Name of the kernel.
        kernel: &'static str,
        /// Block index.
        block: [u32; 3],
        /// Number of atomic reads since a thread last made progress.
        spins: u64,
        /// Spinning and waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
    },

    /// Blocks exceeded the time limit.
    #[error(
        "kernel `{kernel}` did not finish within {seconds} s in block {} (WARPSMITH_EMULATOR_TIME_LIMIT sets the \
         limit){}{}",
        Index(block),
        RunsAt(thread, at),
        Lines(waiting)
    )]
    Endless {
        /// Name of the kernel.
        kernel: &'static str,
        /// Block index.
        block: [u32; 3],
        /// Index of the thread that ran last, if it is not waiting.
        thread: Option<[u32; 3]>,
        /// Source location of that thread.
        at: Option<String>,
        /// Time limit in seconds for a block and the blocks that run concurrently with it.
        seconds: u64,
        /// Waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
    },

    /// Copies were still in flight after the threads of their block had exited.
    #[error("kernel `{kernel}` ended block {} too early: {message}", Index(block))]
    Copies {
        /// Name of the kernel.
        kernel: &'static str,
        /// Index of the block or, if several blocks run concurrently, of the first of them.
        block: [u32; 3],
        /// Copies in flight, and the remedy.
        message: String,
    },

    /// A block has overwritten bytes around its shared memory.
    #[error("kernel `{kernel}` wrote outside its shared memory in block {}: {message}", Index(block))]
    RedZone {
        /// Name of the kernel.
        kernel: &'static str,
        /// Block index.
        block: [u32; 3],
        /// Overwritten bytes and the memory to which they belong.
        message: String,
    },

    /// The launch is invalid. No thread was run.
    #[error("kernel `{kernel}` cannot be launched: {message}")]
    InvalidLaunch {
        /// Name of the kernel.
        kernel: &'static str,
        /// Cause and remedy.
        message: String,
    },

    /// A launch that was checked has races or invalid memory accesses ([`crate::check`]).
    #[error("kernel `{kernel}`: {}", Findings { findings, more: *more, then })]
    Check {
        /// Name of the kernel.
        kernel: &'static str,
        /// Findings, one per pair of source locations, in order of occurrence.
        findings: Vec<Finding>,
        /// Number of findings beyond the limit.
        more: u64,
        /// Additional fault with which the launch ended.
        then: Option<Box<Fault>>,
    },

    /// The operating system provided no memory for a thread's stack.
    #[error(
        "kernel `{kernel}` stopped in block {}: out of memory for a thread's stack: {message} (use smaller blocks, \
         reduce WARPSMITH_EMULATOR_STACK or, on Linux, increase vm.max_map_count)",
        Index(block)
    )]
    OutOfStacks {
        /// Name of the kernel.
        kernel: &'static str,
        /// Block index.
        block: [u32; 3],
        /// Error of the operating system.
        message: String,
    },

    /// A checked launch accessed more memory than the shadow memory covers.
    #[error(
        "kernel `{kernel}` stopped in block {}: {}",
        Index(block),
        NoShadow(*bytes)
    )]
    OutOfShadow {
        /// Name of the kernel.
        kernel: &'static str,
        /// Block index.
        block: [u32; 3],
        /// Maximum bytes of shadow memory.
        bytes: usize,
    },
}

impl Fault {
    /// Returns the name of the kernel.
    pub fn kernel(&self) -> &'static str {
        match self {
            Fault::Panic { kernel, .. }
            | Fault::Collective { kernel, .. }
            | Fault::Deadlock { kernel, .. }
            | Fault::Livelock { kernel, .. }
            | Fault::RedZone { kernel, .. }
            | Fault::Copies { kernel, .. }
            | Fault::Endless { kernel, .. }
            | Fault::InvalidLaunch { kernel, .. }
            | Fault::Check { kernel, .. }
            | Fault::OutOfStacks { kernel, .. }
            | Fault::OutOfShadow { kernel, .. } => kernel,
        }
    }

    /// Returns the block of the fault, if the fault occurred in a block.
    pub fn block(&self) -> Option<[u32; 3]> {
        match self {
            Fault::Panic { block, .. }
            | Fault::Collective { block, .. }
            | Fault::Deadlock { block, .. }
            | Fault::Livelock { block, .. }
            | Fault::RedZone { block, .. }
            | Fault::Copies { block, .. }
            | Fault::Endless { block, .. }
            | Fault::OutOfStacks { block, .. }
            | Fault::OutOfShadow { block, .. } => Some(*block),
            Fault::Check { findings, .. } => findings.iter().find_map(|f| Some(f.access.as_ref()?.block)),
            Fault::InvalidLaunch { .. } => None,
        }
    }

    /// Returns the thread of the fault, if the fault occurred in a thread.
    pub fn thread(&self) -> Option<[u32; 3]> {
        match self {
            Fault::Panic { thread, .. } | Fault::Collective { thread, .. } => Some(*thread),
            Fault::Check { findings, .. } => findings.iter().find_map(|f| Some(f.access.as_ref()?.thread)),
            _ => None,
        }
    }

    /// Returns the source location of the failed call, as `file:line:column`, if there is a single location.
    pub fn location(&self) -> Option<&str> {
        match self {
            Fault::Panic { location, .. } => location.as_deref(),
            Fault::Collective { location, .. } => Some(location),
            _ => None,
        }
    }

    /// Returns the message without kernel, block, thread and location, if those are known separately.
    pub fn message(&self) -> String {
        match self {
            Fault::Panic { message, .. }
            | Fault::Collective { message, .. }
            | Fault::Copies { message, .. }
            | Fault::InvalidLaunch { message, .. } => message.clone(),
            Fault::Endless { thread, at, seconds, waiting, .. } => {
                format!("did not finish within {seconds} s{}{}", RunsAt(thread, at), Lines(waiting))
            }
            Fault::RedZone { message, .. } => format!("shared memory: {message}"),
            Fault::Deadlock { waiting, note, .. } => {
                format!("deadlock: every thread waits{}{}", Lines(waiting), Note(note))
            }
            Fault::Livelock { spins, waiting, .. } => {
                format!("no progress after {spins} atomic reads{}", Lines(waiting))
            }
            Fault::Check { findings, more, then, .. } => Findings { findings, more: *more, then }.to_string(),
            Fault::OutOfStacks { message, .. } => {
                format!("out of memory for a thread's stack: {message}")
            }
            Fault::OutOfShadow { bytes, .. } => NoShadow(*bytes).to_string(),
        }
    }
}

/// Message for insufficient shadow memory, with the remedy. Contains the size of the shadow memory in bytes.
struct NoShadow(usize);

impl fmt::Display for NoShadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the checker ran out of memory: it needs 8 bytes per byte that running launches access, and has {} MiB \
             (use less data, run fewer tests at a time, or increase WARPSMITH_CHECK_MEMORY)",
            self.0 >> 20
        )
    }
}

/// Threads of a block that wait in the same operation at the same source location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Operation in which the threads wait, for example `sync_threads` or `shuffle_down, mask 0xffffffff`.
    pub operation: String,
    /// Source location of the call, as `file:line:column`.
    pub location: String,
    /// Linear indices of the threads in their block, in ascending order.
    pub threads: Vec<u32>,
    /// Linear indices, in ascending order, of the blocks in which these threads wait at this location. The list is
    /// empty if only one block runs.
    pub blocks: Vec<u64>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.threads.len() * self.blocks.len().max(1);
        let (noun, verb) = if count == 1 { ("thread", "is") } else { ("threads", "are") };
        write!(f, "{count} {noun} {verb} in {} at {}: ", self.operation, self.location)?;
        let threads: Vec<u64> = self.threads.iter().map(|&thread| thread.into()).collect();
        write!(f, "{} {}", plural("thread", threads.len()), Runs(&threads))?;
        if !self.blocks.is_empty() {
            write!(f, " of {} {}", plural("block", self.blocks.len()), Runs(&self.blocks))?;
        }
        Ok(())
    }
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// Formats numbers, which must be in ascending order, as ranges such as `0-16, 18`.
struct Runs<'a>(&'a [u64]);

impl fmt::Display for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = (first..).zip(rest).take_while(|(expected, number)| expected == *number).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", first + run as u64 - 1)?,
            }
            separator = ", ";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// Collects waiting threads by operation and source location, block by block.
pub(crate) struct Places {
    /// True if several blocks run concurrently. In this case, each entry names its blocks.
    several: bool,
    block: u64,
    /// Entries of the active block.
    own: Vec<Place>,
    waiting: Vec<Waiting>,
}

struct Place {
    operation: &'static str,
    mask: Option<u32>,
    location: &'static Location<'static>,
    threads: Vec<u32>,
}

impl Places {
    pub fn new(several: bool) -> Self {
        Self { several, block: 0, own: Vec::new(), waiting: Vec::new() }
    }

    /// Starts a block. Entries that are added afterwards belong to the block with this linear index.
    pub fn begin_block(&mut self, linear: u64) {
        self.end_block();
        self.block = linear;
    }

    pub fn add(
        &mut self,
        operation: &'static str,
        mask: Option<u32>,
        location: &'static Location<'static>,
        thread: u32,
    ) {
        let same = |p: &&mut Place| (p.operation, p.mask, p.location) == (operation, mask, location);
        match self.own.iter_mut().find(same) {
            Some(place) => place.threads.push(thread),
            None => self.own.push(Place { operation, mask, location, threads: vec![thread] }),
        }
    }

    /// Merges entries in which the same threads of several blocks wait.
    fn end_block(&mut self) {
        for Place { operation, mask, location, mut threads } in self.own.drain(..) {
            threads.sort_unstable();
            let operation = match mask {
                Some(mask) => format!("{operation}, mask {mask:#010x}"),
                None => operation.to_owned(),
            };
            let location = location.to_string();
            let blocks = if self.several { vec![self.block] } else { Vec::new() };
            let same =
                |w: &&mut Waiting| w.operation == operation && w.location == location && w.threads == threads;
            match self.waiting.iter_mut().find(same) {
                Some(waiting) => waiting.blocks.extend(blocks),
                None => self.waiting.push(Waiting { operation, location, threads, blocks }),
            }
        }
    }

    /// Returns the collected entries, starting with the one with the most threads.
    pub fn finish(mut self) -> Vec<Waiting> {
        self.end_block();
        for waiting in &mut self.waiting {
            waiting.blocks.sort_unstable();
        }
        let count = |w: &Waiting| w.threads.len() * w.blocks.len().max(1);
        self.waiting.sort_by_key(|w| (std::cmp::Reverse(count(w)), w.threads[0]));
        self.waiting
    }
}

/// Formats a list of entries, one per line.
struct Lines<'a>(&'a [Waiting]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for waiting in self.0 {
            write!(f, "\n  {waiting}")?;
        }
        Ok(())
    }
}

/// Formats the source location at which a thread runs, on a separate line.
struct RunsAt<'a>(&'a Option<[u32; 3]>, &'a Option<String>);

impl fmt::Display for RunsAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunsAt(Some(thread), Some(at)) => write!(f, "\n  thread {} is at {at}", Index(thread)),
            _ => Ok(()),
        }
    }
}

/// Formats the findings of a check, one after another.
struct Findings<'a> {
    findings: &'a [Finding],
    more: u64,
    then: &'a Option<Box<Fault>>,
}

impl fmt::Display for Findings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            write!(f, "{}{finding}", if i == 0 { "" } else { "\n" })?;
        }
        if self.more != 0 {
            write!(f, "\nand {} more findings beyond the limit", self.more)?;
        }
        match self.then {
            Some(fault) => write!(f, "\nthen {fault}"),
            None => Ok(()),
        }
    }
}

/// Formats a remark on a separate line.
struct Note<'a>(&'a Option<String>);

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(note) => write!(f, "\n  {note}"),
            None => Ok(()),
        }
    }
}
