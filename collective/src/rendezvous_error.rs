//! [`RendezvousError`]: errors that a rendezvous returns.

use std::fmt;

/// Cause of a failed rendezvous. Each variant names the ranks, with their processes and hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The ranks expect different world sizes.
    #[error(
        "{second} has world size {second_size}, but {first} has {first_size}: start all ranks with the same world \
         size"
    )]
    WorldSizes {
        /// The rank that arrived first.
        first: Place,
        /// World size that the first rank expects.
        first_size: usize,
        /// The rank that arrived later.
        second: Place,
        /// World size that the second rank expects.
        second_size: usize,
    },
    /// The ranks have different versions of Warpsmith.
    #[error(
        "{second} has Warpsmith {second_version}, but {first} has {first_version}: build all ranks with the same \
         version"
    )]
    Versions {
        /// The rank that arrived first.
        first: Place,
        /// Version of the rank that arrived first.
        first_version: String,
        /// The rank that arrived later.
        second: Place,
        /// Version of the rank that arrived later.
        second_version: String,
    },
    /// Two processes have the same rank.
    #[error("two processes have rank {rank}: process {} on {} and process {} on {}", .first.process, .first.host, .second.process, .second.host)]
    DuplicateRank {
        /// The rank that two processes have.
        rank: usize,
        /// The process that arrived first.
        first: Place,
        /// The process that arrived later.
        second: Place,
    },
    /// Two ranks use the same GPU.
    #[error(
        "{first} and {second} have the same GPU, {gpu}: give each rank its own GPU, for example by its local rank"
    )]
    SharedGpu {
        /// UUID of the shared GPU.
        gpu: String,
        /// The rank that arrived first.
        first: Place,
        /// The rank that arrived later.
        second: Place,
    },
    /// Some ranks did not arrive before the deadline.
    #[error("{} of {world_size} did not arrive within {seconds:.1} s; present: {}", list("rank", .ranks), places(.present))]
    MissingRanks {
        /// The missing ranks.
        ranks: Vec<usize>,
        /// The ranks that arrived.
        present: Vec<Place>,
        /// Number of ranks.
        world_size: usize,
        /// Duration of the wait in seconds.
        seconds: f64,
    },
    /// The process of a rank exited.
    #[error("{} has ended", .place.as_ref().map_or_else(|| format!("rank {rank}"), ToString::to_string))]
    RankFailed {
        /// The rank that failed.
        rank: usize,
        /// Process and host of the rank, if the rank had published them.
        place: Option<Place>,
    },
    /// Another rank has abandoned the rendezvous.
    #[error("the rendezvous failed on another rank: {problem}")]
    Refused {
        /// The problem that the other rank detected.
        problem: String,
    },
}

/// A rank, with its host and process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The rank.
    pub rank: usize,
    /// Name of the rank's host.
    pub host: String,
    /// ID of the rank's process.
    pub process: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rank {} (process {} on {})", self.rank, self.process, self.host)
    }
}

impl RendezvousError {
    /// Returns whether the other ranks must be notified, because they cannot detect the problem themselves or have not
    /// detected it yet.
    pub(crate) fn is_news(&self) -> bool {
        matches!(
            self,
            Self::WorldSizes { .. }
                | Self::Versions { .. }
                | Self::DuplicateRank { .. }
                | Self::SharedGpu { .. }
                | Self::MissingRanks { .. }
        )
    }
}

/// Formats a list of numbers, for example `rank 2` or `ranks 2, 5 and 7`.
fn list(what: &str, numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match &numbers[..] {
        [] => format!("no {what}"),
        [one] => format!("{what} {one}"),
        [first @ .., last] => format!("{what}s {} and {last}", first.join(", ")),
    }
}

/// Formats the first few places in a list.
fn places(places: &[Place]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = places.iter().take(SHOWN).map(ToString::to_string).collect();
    match places.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}
