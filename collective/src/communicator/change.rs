//! Communicators for a subset of the ranks: [`Communicator::split`] and [`Communicator::shrink`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Communicator;
use crate::deadline;
use crate::error::{CollectiveError, Error, Result};
use crate::failure::Failure;
use crate::launch::Launch;

/// Key under which rank 0 publishes the colors and ordering keys of all ranks.
const ALL: &str = "all";

impl Communicator {
    /// Splits the communicator: the ranks that pass the same color form a new communicator, ordered first by `key` and
    /// then by rank. All ranks must make this call. On a rank that passes `None` as the color, the call returns `None`.
    /// The new communicator uses the stream and options of this one, which remains usable.
    ///
    /// The ranks must make this call concurrently, from different threads or processes. Therefore, a thread that drives
    /// several ranks cannot make this call.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::init`], or [`CommunicatorError`](crate::CommunicatorError) if this
    /// communicator has failed.
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let prefix = self.split_keys(self.splits);
        self.splits += 1;
        let deadline = deadline::within(self.options.init_timeout);
        let own = serde_json::to_vec(&(color, key)).unwrap_or_default();
        self.store.set(&format!("{prefix}/{}", self.rank()), &own, deadline)?;
        let all = self.gather_colors(&prefix, deadline)?;
        let with_color = all.iter().enumerate().filter(|(_, (theirs, _))| *theirs == color);
        let mut ranks: Vec<(i64, usize)> = with_color.map(|(rank, (_, key))| (*key, rank)).collect();
        if let Some(before) = (self.splits - 1).checked_sub(1) {
            // All ranks have reached this split, so no rank still reads the keys of the previous split.
            let (before, last) = (self.split_keys(before), deadline::with_last_word(deadline));
            self.store.delete(&format!("{before}/{}", self.rank()), last)?;
            if self.rank() == 0 {
                self.store.delete(&format!("{before}/{ALL}"), last)?;
            }
        }
        let Some(color) = color else { return Ok(None) };
        ranks.sort_unstable();
        let place = ranks.iter().position(|(_, rank)| *rank == self.rank());
        let Some(place) = place else { return Ok(None) };
        self.part(format!("split {}/{color}", self.splits - 1), place, ranks.len()).map(Some)
    }

    /// Creates a communicator without the excluded ranks; the other ranks keep their order. All remaining ranks must
    /// make this call with the same list. The call also works after a failure, so a program can continue without the
    /// failed rank. This communicator remains unchanged.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Argument`] if the list names this rank or a rank that does not exist, or omits a rank
    /// known to have failed. Also returns the same errors as [`Self::init`]. If the lost process served the store, the
    /// store is lost as well.
    pub fn shrink(&self, excluded: &[usize]) -> Result<Self> {
        let argument = |reason| {
            Error::from(CollectiveError::Argument { operation: "shrink", rank: self.rank(), reason })
        };
        let mut excluded = excluded.to_vec();
        excluded.sort_unstable();
        excluded.dedup();
        if let Some(unknown) = excluded.iter().find(|rank| **rank >= self.world_size()) {
            return Err(argument(format!(
                "rank {unknown} cannot be excluded: the ranks are 0 to {}",
                self.world_size() - 1
            )));
        }
        if excluded.contains(&self.rank()) {
            return Err(argument(
                "the list of excluded ranks contains this rank; only the remaining ranks may call it"
                    .to_owned(),
            ));
        }
        if let Some(Failure::Lost { rank, reason }) = self.mesh.member.failure()
            && !excluded.contains(&rank)
        {
            return Err(argument(format!("rank {rank} has failed ({reason}); exclude it")));
        }
        if self.mesh.member.failure().is_some() {
            self.backend.settle();
        }
        let place = self.rank() - excluded.iter().filter(|rank| **rank < self.rank()).count();
        let names = excluded.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        self.part(format!("without {names}"), place, self.world_size() - excluded.len())
    }

    /// Creates a communicator for a subset of the ranks. In the new communicator, this rank is `rank`.
    fn part(&self, name: String, rank: usize, world_size: usize) -> Result<Self> {
        // The new run ID keeps ranks that have left the old communicator out of the new one.
        let run_id = format!("{}/{}/{name}", self.launch.run_id, self.mesh.id);
        let launch = Launch { rank, world_size, run_id, store: None, ..self.launch.clone() };
        let options = self.options.clone().name(format!("{}, {name}", self.options.name));
        Self::connect(&self.stream, launch, Arc::clone(&self.store), options)
    }

    /// Returns the key prefix of a split.
    fn split_keys(&self, split: u64) -> String {
        format!("{}/communicator/{}/split/{split}", self.launch.key_prefix(), self.mesh.id)
    }

    fn split_error(&self, reason: String) -> Error {
        CollectiveError::Init {
            communicator: self.options.name.clone(),
            rank: self.rank(),
            world_size: self.world_size(),
            reason: format!("split: {reason}"),
        }
        .into()
    }

    /// Collects the colors and keys of all ranks. Rank 0 gathers them. If every rank read them directly, the number of
    /// store operations would be quadratic in the number of ranks.
    fn gather_colors(&self, prefix: &str, deadline: Instant) -> Result<Vec<(Option<u32>, i64)>> {
        let garbage =
            |rank: usize| self.split_error(format!("rank {rank} wrote an invalid value into the store"));
        if self.rank() > 0 {
            let text = self.read(&format!("{prefix}/{ALL}"), prefix, deadline)?;
            let all: Vec<_> = serde_json::from_slice(&text).map_err(|_| garbage(0))?;
            return if all.len() == self.world_size() { Ok(all) } else { Err(garbage(0)) };
        }
        let mut all = Vec::with_capacity(self.world_size());
        for rank in 0..self.world_size() {
            let text = self.read(&format!("{prefix}/{rank}"), prefix, deadline)?;
            all.push(serde_json::from_slice(&text).map_err(|_| garbage(rank))?);
        }
        let text = serde_json::to_vec(&all).unwrap_or_default();
        self.store.set(&format!("{prefix}/{ALL}"), &text, deadline::with_last_word(deadline))?;
        Ok(all)
    }

    /// Reads a value that another rank stores during a split. Returns early if the communicator fails.
    fn read(&self, key: &str, prefix: &str, deadline: Instant) -> Result<Vec<u8>> {
        let mut pause = Duration::from_micros(500);
        loop {
            let last = deadline::with_last_word(deadline);
            if self.store.contains(&[key], last)? {
                return self.store.get(key, last);
            }
            if let Some(failure) = self.mesh.member.failure() {
                return Err(self.mesh.error(None, failure).into());
            }
            if Instant::now() >= deadline {
                let is_missing = |rank: &usize| {
                    !self.store.contains(&[&format!("{prefix}/{rank}")], last).unwrap_or(false)
                };
                let rank = (0..self.world_size()).find(is_missing).unwrap_or(0);
                let waited = self.options.init_timeout;
                return Err(self.split_error(format!("rank {rank} did not call `split` within {waited:?}")));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
