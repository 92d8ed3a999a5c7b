//! Launch errors, whose [`Display`](std::fmt::Display) output is shown to users.

use std::fmt;
use std::panic::Location;

use gpu_spec::finding::Index;

use crate::check::Finding;

/// Reason why a launch did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Block index, if the fault occurred in a block. If several blocks run concurrently, a fault that concerns all of
    /// them has the index of one of them.
    pub block: Option<[u32; 3]>,
    /// Thread index in the block, if the fault occurred in a thread.
    pub thread: Option<[u32; 3]>,
    /// Kind and cause of the fault.
    pub kind: FaultKind,
}

/// Kind of a [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A thread panicked.
    Panic {
        /// Panic message.
        message: String,
        /// Source location of the panic, as `file:line:column`; `None` if unknown.
        location: Option<String>,
    },
    /// A thread misused a collective operation: lanes or threads disagree, one of them has exited, or the mask does not
    /// include the caller.
    Collective {
        /// Cause of the fault.
        message: String,
        /// Source location of the call, as `file:line:column`.
        location: String,
    },
    /// Every thread that has not exited waits, and no thread can be woken. The deadlock involves either one block, or
    /// all blocks of a cluster or a cooperative launch that run concurrently.
    Deadlock {
        /// Waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
        /// Reason why threads that wait in `grid::sync` can never continue, if known.
        note: Option<String>,
    },
    /// Threads of a block spin without progress.
    Livelock {
        /// Number of atomic reads since a thread last made progress.
        spins: u64,
        /// Spinning and waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
    },
    /// Blocks exceeded the time limit. The thread of the fault ran last, if it is not waiting.
    Endless {
        /// Time limit in seconds for a block and the blocks that run concurrently with it.
        seconds: u64,
        /// Source location of the thread that ran last.
        at: Option<String>,
        /// Waiting threads, one entry per source location.
        waiting: Vec<Waiting>,
    },
    /// Copies were still in flight after the threads of their block had exited. Contains these copies and the remedy.
    Copies(String),
    /// A block has overwritten bytes around its shared memory. Contains these bytes and the memory to which they
    /// belong.
    RedZone(String),
    /// The launch is invalid, and no thread was run. Contains the cause and the remedy.
    InvalidLaunch(String),
    /// A launch that was checked has races or invalid memory accesses ([`crate::check`]). The block and thread of the
    /// fault are those of the first finding in a thread.
    Check {
        /// Findings, one per pair of source locations, in order of occurrence.
        findings: Vec<Finding>,
        /// Number of findings beyond the limit.
        more: u64,
        /// Additional fault with which the launch ended.
        then: Option<Box<Fault>>,
    },
    /// The operating system provided no memory for a thread's stack. Contains its error.
    OutOfStacks(String),
    /// A checked launch accessed more memory than the shadow memory, of this many bytes, covers.
    OutOfShadow(usize),
}

impl Fault {
    /// Returns the source location of the failed call, as `file:line:column`, if there is a single location.
    pub fn location(&self) -> Option<&str> {
        match &self.kind {
            FaultKind::Panic { location, .. } => location.as_deref(),
            FaultKind::Collective { location, .. } => Some(location),
            _ => None,
        }
    }

    /// Returns the message without kernel, block, thread and location, if those are known separately.
    pub fn message(&self) -> String {
        match &self.kind {
            FaultKind::Panic { message, .. }
            | FaultKind::Collective { message, .. }
            | FaultKind::Copies(message)
            | FaultKind::InvalidLaunch(message) => message.clone(),
            FaultKind::Deadlock { waiting, note } => {
                format!("deadlock: every thread waits{}{}", Lines(waiting), Note(note))
            }
            FaultKind::Livelock { spins, waiting } => {
                format!("no progress after {spins} atomic reads{}", Lines(waiting))
            }
            FaultKind::Endless { seconds, at, waiting } => {
                format!("did not finish within {seconds} s{}{}", RunsAt(self.thread, at), Lines(waiting))
            }
            FaultKind::RedZone(message) => format!("shared memory: {message}"),
            FaultKind::Check { findings, more, then } => Findings { findings, more: *more, then }.to_string(),
            FaultKind::OutOfStacks(message) => format!("out of memory for a thread's stack: {message}"),
            FaultKind::OutOfShadow(bytes) => NoShadow(*bytes).to_string(),
        }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = self.block.map_or_else(String::new, |block| format!(" in block {}", Index(&block)));
        let thread = self.thread.map_or_else(String::new, |thread| format!(", thread {}", Index(&thread)));
        write!(f, "kernel `{}`", self.kernel)?;
        match &self.kind {
            FaultKind::Panic { message, location } => {
                let location = location.as_deref().unwrap_or("at an unknown location");
                write!(f, " panicked{block}{thread}: {message} ({location})")
            }
            FaultKind::Collective { message, location } => {
                write!(f, " failed{block}{thread}: {message} ({location})")
            }
            FaultKind::Deadlock { waiting, note } => {
                write!(f, " deadlocked{block}: every thread waits{}{}", Lines(waiting), Note(note))
            }
            FaultKind::Livelock { spins, waiting } => write!(
                f,
                " spins without progress{block} ({spins} atomic reads; WARPSMITH_EMULATOR_SPIN_LIMIT sets the limit){}",
                Lines(waiting)
            ),
            FaultKind::Endless { seconds, at, waiting } => write!(
                f,
                " did not finish within {seconds} s{block} (WARPSMITH_EMULATOR_TIME_LIMIT sets the limit){}{}",
                RunsAt(self.thread, at),
                Lines(waiting)
            ),
            FaultKind::Copies(message) => write!(f, " ended too early{block}: {message}"),
            FaultKind::RedZone(message) => write!(f, " wrote outside its shared memory{block}: {message}"),
            FaultKind::InvalidLaunch(message) => write!(f, " cannot be launched: {message}"),
            FaultKind::Check { findings, more, then } => {
                write!(f, ": {}", Findings { findings, more: *more, then })
            }
            FaultKind::OutOfStacks(message) => write!(
                f,
                " stopped{block}: out of memory for a thread's stack: {message} (use smaller blocks, reduce \
                 WARPSMITH_EMULATOR_STACK or, on Linux, increase vm.max_map_count)"
            ),
            FaultKind::OutOfShadow(bytes) => write!(f, " stopped{block}: {}", NoShadow(*bytes)),
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
struct RunsAt<'a>(Option<[u32; 3]>, &'a Option<String>);

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
