//! Which rank a process is, and of how many.

/// The place of a process among those that were started together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// This process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// This process among those of its host, from 0.
    pub local_rank: usize,
}

impl Launch {
    /// A process alone.
    pub fn single() -> Self {
        Self { rank: 0, world_size: 1, local_rank: 0 }
    }
}
