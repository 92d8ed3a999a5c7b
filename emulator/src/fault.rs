//! What can go wrong in a launch. The [`Display`](std::fmt::Display) texts are what users see.

use std::fmt;
use std::panic::Location;

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

    /// A thread used a collective operation wrongly: lanes that disagree, a lane that has exited, a mask without
    /// the caller.
    #[error(
        "kernel `{kernel}` failed in block {}, thread {}: {message} ({location})",
        Index(block),
        Index(thread)
    )]
    Collective {
        /// The kernel's name.
        kernel: &'static str,
        /// What was wrong.
        message: String,
        /// `file:line:column` of the call.
        location: String,
        /// The block.
        block: [u32; 3],
        /// The thread in its block.
        thread: [u32; 3],
    },

    /// Every thread of a block that has not exited waits, and nothing can wake one.
    #[error("kernel `{kernel}` deadlocked in block {}: every thread waits{}", Index(block), Lines(waiting))]
    Deadlock {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// Where threads wait, one entry for each place.
        waiting: Vec<Waiting>,
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

    /// The launch itself is impossible. Nothing ran.
    #[error("kernel `{kernel}` cannot be launched: {message}")]
    InvalidLaunch {
        /// The kernel's name.
        kernel: &'static str,
        /// What is wrong and what to do.
        message: String,
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
}

impl Fault {
    /// The kernel's name.
    pub fn kernel(&self) -> &'static str {
        match self {
            Fault::Panic { kernel, .. }
            | Fault::Collective { kernel, .. }
            | Fault::Deadlock { kernel, .. }
            | Fault::Livelock { kernel, .. }
            | Fault::InvalidLaunch { kernel, .. }
            | Fault::OutOfStacks { kernel, .. } => kernel,
        }
    }

    /// The block it happened in, if it happened in one.
    pub fn block(&self) -> Option<[u32; 3]> {
        match self {
            Fault::Panic { block, .. }
            | Fault::Collective { block, .. }
            | Fault::Deadlock { block, .. }
            | Fault::Livelock { block, .. }
            | Fault::OutOfStacks { block, .. } => Some(*block),
            Fault::InvalidLaunch { .. } => None,
        }
    }

    /// The thread it happened in, if it happened in one.
    pub fn thread(&self) -> Option<[u32; 3]> {
        match self {
            Fault::Panic { thread, .. } | Fault::Collective { thread, .. } => Some(*thread),
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

    /// What happened, without kernel, block, thread and place where those are known apart.
    pub fn message(&self) -> String {
        match self {
            Fault::Panic { message, .. }
            | Fault::Collective { message, .. }
            | Fault::InvalidLaunch { message, .. } => message.clone(),
            Fault::Deadlock { waiting, .. } => format!("deadlock: every thread waits{}", Lines(waiting)),
            Fault::Livelock { spins, waiting, .. } => {
                format!("no progress after {spins} reads of atomics{}", Lines(waiting))
            }
            Fault::OutOfStacks { message, .. } => {
                format!("no memory for the stack of another thread: {message}")
            }
        }
    }
}

/// Threads of a block that wait for the same thing at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What they wait in, for example `sync_threads` or `shuffle_down, mask 0xffffffff`.
    pub operation: String,
    /// `file:line:column` of the call.
    pub location: String,
    /// The threads' linear indices in the block, ascending.
    pub threads: Vec<u32>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (noun, verb) = if self.threads.len() == 1 { ("thread", "is") } else { ("threads", "are") };
        let count = self.threads.len();
        write!(f, "{count} {noun} {verb} in {} at {}: {noun} ", self.operation, self.location)?;
        let mut rest = self.threads.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = (first..).zip(rest).take_while(|(expected, thread)| expected == *thread).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", first + run as u32 - 1)?,
            }
            separator = ", ";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// Gathers waiting threads by operation and place.
#[derive(Default)]
pub(crate) struct Places {
    waiting: Vec<Waiting>,
}

impl Places {
    pub fn add(&mut self, operation: String, location: &Location<'_>, thread: u32) {
        let location = location.to_string();
        match self.waiting.iter_mut().find(|w| w.operation == operation && w.location == location) {
            Some(waiting) => waiting.threads.push(thread),
            None => self.waiting.push(Waiting { operation, location, threads: vec![thread] }),
        }
    }

    /// The places, the one with the most threads first.
    pub fn finish(mut self) -> Vec<Waiting> {
        for waiting in &mut self.waiting {
            waiting.threads.sort_unstable();
        }
        self.waiting.sort_by_key(|w| (std::cmp::Reverse(w.threads.len()), w.threads[0]));
        self.waiting
    }
}

/// `[3,0,0]`.
pub(crate) struct Index<'a>(pub &'a [u32; 3]);

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "[{x},{y},{z}]")
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
