//! The errors of a launch. The [`Display`](std::fmt::Display) texts are what users see.

use std::fmt;
use std::panic::Location;

use gpu_spec::finding::Index;

use crate::check::Finding;

/// Why a launch did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A thread panicked.
    #[error(
        "kernel `{kernel}` panicked in block {}, thread {}: {message} ({})",
        Index(block), Index(thread), location.as_deref().unwrap_or("at an unknown place")
    )]
    Panic {
        /// The kernel's name.
        kernel: &'static str,
        /// The panic's text.
        message: String,
        /// `file:line:column`, when known.
        location: Option<String>,
        /// The block.
        block: [u32; 3],
        /// The thread in its block.
        thread: [u32; 3],
    },

    /// A thread used a collective operation wrongly: lanes or threads that disagree, one that has exited, a mask without
    /// the caller.
    #[error(
        "kernel `{kernel}` failed in block {}, thread {}: {message} ({location})",
        Index(block),
        Index(thread)
    )]
    Collective {
        /// The kernel's name.
        kernel: &'static str,
        /// The cause.
        message: String,
        /// `file:line:column` of the call.
        location: String,
        /// The block.
        block: [u32; 3],
        /// The thread in its block.
        thread: [u32; 3],
    },

    /// Every thread that has not exited waits, and nothing can wake one: of a block, or of all the blocks that run
    /// at once, those of a cluster or of a cooperative launch.
    #[error(
        "kernel `{kernel}` deadlocked in block {}: every thread waits{}{}",
        Index(block),
        Lines(waiting),
        Note(note)
    )]
    Deadlock {
        /// The kernel's name.
        kernel: &'static str,
        /// The block, or the first of them that has threads left.
        block: [u32; 3],
        /// Where threads wait, one entry for each place.
        waiting: Vec<Waiting>,
        /// Why those in `grid::sync` wait in vain, when that is known.
        note: Option<String>,
    },

    /// Threads of a block spin, and nothing changes.
    #[error(
        "kernel `{kernel}` spins without progress in block {} ({spins} reads of atomics; \
         WARPSMITH_EMULATOR_SPIN_LIMIT sets the limit){}",
        Index(block),
        Lines(waiting)
    )]
    Livelock {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// Reads of atomics since a thread last got anywhere.
        spins: u64,
        /// Where threads spin and wait, one entry for each place.
        waiting: Vec<Waiting>,
    },

    /// Blocks have run for longer than they may.
    #[error(
        "kernel `{kernel}` has run for {seconds} s in block {} and does not end (WARPSMITH_EMULATOR_TIME_LIMIT sets the \
         limit){}{}",
        Index(block),
        RunsAt(thread, at),
        Lines(waiting)
    )]
    Endless {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// The thread that ran last, when it does not wait.
        thread: Option<[u32; 3]>,
        /// Where it was in the source.
        at: Option<String>,
        /// The limit, of a block and those that run at once with it.
        seconds: u64,
        /// Where threads wait, one entry for each place.
        waiting: Vec<Waiting>,
    },

    /// Copies were under way when the threads of their block had exited.
    #[error("kernel `{kernel}` ended block {} too early: {message}", Index(block))]
    Copies {
        /// The kernel's name.
        kernel: &'static str,
        /// The block, or the first of those that ran at once.
        block: [u32; 3],
        /// Which, and what to do.
        message: String,
    },

    /// A block has overwritten bytes around its shared memory.
    #[error("kernel `{kernel}` wrote outside its shared memory in block {}: {message}", Index(block))]
    RedZone {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// Which bytes of which piece.
        message: String,
    },

    /// The launch itself is impossible. Nothing ran.
    #[error("kernel `{kernel}` cannot be launched: {message}")]
    InvalidLaunch {
        /// The kernel's name.
        kernel: &'static str,
        /// The cause and the remedy.
        message: String,
    },

    /// A checked launch found races or wrong accesses to memory. See [`crate::check`].
    #[error("kernel `{kernel}`: {}", Findings { findings, more: *more, then })]
    Check {
        /// The kernel's name.
        kernel: &'static str,
        /// What was found, each once for a pair of places, in the order in which it happened.
        findings: Vec<Finding>,
        /// Findings beyond the limit.
        more: u64,
        /// How the launch ended besides.
        then: Option<Box<Fault>>,
    },

    /// The operating system gave no memory for a thread's stack.
    #[error(
        "kernel `{kernel}` stopped in block {}: no memory for the stack of another thread: {message} \
         (a smaller block, a smaller WARPSMITH_EMULATOR_STACK or, on Linux, a larger vm.max_map_count helps)",
        Index(block)
    )]
    OutOfStacks {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// The operating system's error.
        message: String,
    },

    /// A checked launch touched more memory than there is shadow memory for.
    #[error(
        "kernel `{kernel}` stopped in block {}: {}",
        Index(block),
        NoShadow(*bytes)
    )]
    OutOfShadow {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// Bytes of shadow memory that there may be.
        bytes: usize,
    },
}

impl Fault {
    /// The kernel's name.
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

    /// The block it happened in, if it happened in one.
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

    /// The thread it happened in, if it happened in one.
    pub fn thread(&self) -> Option<[u32; 3]> {
        match self {
            Fault::Panic { thread, .. } | Fault::Collective { thread, .. } => Some(*thread),
            Fault::Check { findings, .. } => findings.iter().find_map(|f| Some(f.access.as_ref()?.thread)),
            _ => None,
        }
    }

    /// `file:line:column` of the call that failed, when there is one such place.
    pub fn location(&self) -> Option<&str> {
        match self {
            Fault::Panic { location, .. } => location.as_deref(),
            Fault::Collective { location, .. } => Some(location),
            _ => None,
        }
    }

    /// The message without kernel, block, thread and place, where those are known separately.
    pub fn message(&self) -> String {
        match self {
            Fault::Panic { message, .. }
            | Fault::Collective { message, .. }
            | Fault::Copies { message, .. }
            | Fault::InvalidLaunch { message, .. } => message.clone(),
            Fault::Endless { thread, at, seconds, waiting, .. } => {
                format!("not ended after {seconds} s{}{}", RunsAt(thread, at), Lines(waiting))
            }
            Fault::RedZone { message, .. } => format!("shared memory: {message}"),
            Fault::Deadlock { waiting, note, .. } => {
                format!("deadlock: every thread waits{}{}", Lines(waiting), Note(note))
            }
            Fault::Livelock { spins, waiting, .. } => {
                format!("no progress after {spins} reads of atomics{}", Lines(waiting))
            }
            Fault::Check { findings, more, then, .. } => Findings { findings, more: *more, then }.to_string(),
            Fault::OutOfStacks { message, .. } => {
                format!("no memory for the stack of another thread: {message}")
            }
            Fault::OutOfShadow { bytes, .. } => NoShadow(*bytes).to_string(),
        }
    }
}

/// That `bytes` do not do, and what to do.
struct NoShadow(usize);

impl fmt::Display for NoShadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the check has no memory left: it needs 8 bytes for each byte that the launches which run touch, and has {} MiB \
             (less data, fewer tests at a time, or a larger WARPSMITH_CHECK_MEMORY helps)",
            self.0 >> 20
        )
    }
}

/// Threads of a block that wait for the same thing at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The operation in which they wait, for example `sync_threads` or `shuffle_down, mask 0xffffffff`.
    pub operation: String,
    /// `file:line:column` of the call.
    pub location: String,
    /// The threads' linear indices in their block, ascending.
    pub threads: Vec<u32>,
    /// Linear indices of the blocks in which these threads wait there, ascending. Empty when only one block runs.
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

/// Ascending numbers, as `0-16, 18`.
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

/// Gathers waiting threads by operation and place, block by block.
pub(crate) struct Places {
    /// Whether several blocks run at once, so that places name theirs.
    several: bool,
    block: u64,
    /// Those of the active block.
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

    /// Places added from now on belong to the block with this linear index.
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

    /// Joins places at which the same threads of several blocks wait.
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

    /// The places, the one with the most threads first.
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

/// A list of places, each on a line of its own.
struct Lines<'a>(&'a [Waiting]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for waiting in self.0 {
            write!(f, "\n  {waiting}")?;
        }
        Ok(())
    }
}

/// The place at which a thread runs, on a line of its own.
struct RunsAt<'a>(&'a Option<[u32; 3]>, &'a Option<String>);

impl fmt::Display for RunsAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunsAt(Some(thread), Some(at)) => write!(f, "\n  thread {} runs: {at}", Index(thread)),
            _ => Ok(()),
        }
    }
}

/// What a check found, one after the other.
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
            write!(f, "\nand {} more findings, beyond the limit", self.more)?;
        }
        match self.then {
            Some(fault) => write!(f, "\nthen {fault}"),
            None => Ok(()),
        }
    }
}

/// A remark on a line of its own.
struct Note<'a>(&'a Option<String>);

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(note) => write!(f, "\n  {note}"),
            None => Ok(()),
        }
    }
}
