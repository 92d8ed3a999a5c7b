//! Why ranks do not meet.

use std::fmt;

/// Why ranks did not meet. Each names the ranks, their processes and hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// Ranks expect other numbers of ranks.
    #[error(
        "{second} is one of {second_size} ranks, but {first} is one of {first_size}: start all with the same number"
    )]
    WorldSizes {
        /// Who came first.
        first: Place,
        /// The number that it expects.
        first_size: usize,
        /// Who came later.
        second: Place,
        /// The number that it expects.
        second_size: usize,
    },
    /// Ranks have other versions of Warpsmith.
    #[error(
        "{second} has Warpsmith {second_version}, but {first} has {first_version}: build all with the same version"
    )]
    Versions {
        /// Who came first.
        first: Place,
        /// Its version.
        first_version: String,
        /// Who came later.
        second: Place,
        /// Its version.
        second_version: String,
    },
    /// Two processes have the same rank.
    #[error("rank {rank} is there twice: process {} on {} and process {} on {}", .first.process, .first.host, .second.process, .second.host)]
    DuplicateRank {
        /// The rank.
        rank: usize,
        /// Who came first.
        first: Place,
        /// Who came later.
        second: Place,
    },
    /// Two ranks have the same GPU.
    #[error(
        "{first} and {second} have the same GPU, {gpu}: give each its own, for example that of its local rank"
    )]
    SharedGpu {
        /// The GPU.
        gpu: String,
        /// Who came first.
        first: Place,
        /// Who came later.
        second: Place,
    },
    /// Ranks did not come in time.
    #[error("{} of {world_size} did not come within {seconds:.1} s; there are: {}", list("rank", .ranks), places(.present))]
    MissingRanks {
        /// Those that did not come.
        ranks: Vec<usize>,
        /// Those that did.
        present: Vec<Place>,
        /// The number of ranks.
        world_size: usize,
        /// How long they were waited for.
        seconds: f64,
    },
    /// The process of a rank ended.
    #[error("{} has ended", .place.as_ref().map_or_else(|| format!("rank {rank}"), ToString::to_string))]
    RankGone {
        /// The rank.
        rank: usize,
        /// Where it ran, if it had said so.
        place: Option<Place>,
    },
    /// Another rank gave up the rendezvous.
    #[error("another rank gave up: {problem}")]
    Refused {
        /// What it found.
        problem: String,
    },
}

/// A rank, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub rank: usize,
    /// The name of its host.
    pub host: String,
    /// The number of its process.
    pub process: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rank {} (process {} on {})", self.rank, self.process, self.host)
    }
}

impl RendezvousError {
    /// Whether the other ranks cannot know it by themselves, or not yet.
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

/// `rank 2`, `ranks 2, 5 and 7`
fn list(what: &str, numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match &numbers[..] {
        [] => format!("no {what}"),
        [one] => format!("{what} {one}"),
        [first @ .., last] => format!("{what}s {} and {last}", first.join(", ")),
    }
}

/// The first of several places.
fn places(places: &[Place]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = places.iter().take(SHOWN).map(ToString::to_string).collect();
    match places.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}
