//! [`Touched`]: memory that a piece of work reads and writes.

use std::ops::Range;

/// A task's access to a range of device or host memory.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) range: Range<u64>,
    pub(super) write: bool,
}

impl Access {
    pub(super) fn read(start: u64, bytes: usize) -> Self {
        Self { range: start..start + bytes as u64, write: false }
    }

    pub(super) fn write(start: u64, bytes: usize) -> Self {
        Self { range: start..start + bytes as u64, write: true }
    }
}

/// Memory that a task accesses.
pub(super) type Touched = Vec<Access>;
