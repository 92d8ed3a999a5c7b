//! Communicators of some of the ranks of another: [`Communicator::split`] and [`Communicator::shrink`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Communicator;
use crate::deadline;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::launch::Launch;

impl Communicator {
    /// Divides the ranks: those that pass the same color get a communicator of their own, in the order of their keys, and of
    /// ranks where keys are equal. All ranks call it; one that passes `None` gets `None`. The new communicator has the
    /// stream and the options of this one, which works on.
    ///
    /// Ranks that are threads or processes call it at the same time; one thread that has several ranks cannot.
    ///
    /// # Errors
    /// As [`Self::init`]; [`Error::Communicator`] if this one has failed.
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let prefix = self.split_keys(self.splits);
        self.splits += 1;
        let deadline = deadline::within(self.options.init_timeout);
        let own = serde_json::to_vec(&(color, key)).unwrap_or_default();
        self.store.set(&format!("{prefix}/{}", self.rank()), &own, deadline)?;
        let mut ranks = Vec::new();
        for rank in 0..self.world_size() {
            let text = self.read_of(rank, &format!("{prefix}/{rank}"), deadline)?;
            let (theirs, key): (Option<u32>, i64) = serde_json::from_slice(&text)
                .map_err(|_| self.split_error(format!("rank {rank} has put garbage into the store")))?;
            if theirs == color {
                ranks.push((key, rank));
            }
        }
        if let Some(before) = (self.splits - 1).checked_sub(1) {
            // All ranks have come here, so none reads the keys of the split before.
            let last = deadline::with_last_word(deadline);
            self.store.delete(&format!("{}/{}", self.split_keys(before), self.rank()), last)?;
        }
        let Some(color) = color else { return Ok(None) };
        ranks.sort_unstable();
        let place = ranks.iter().position(|(_, rank)| *rank == self.rank());
        let Some(place) = place else { return Ok(None) };
        self.part(format!("split {}/{color}", self.splits - 1), place, ranks.len()).map(Some)
    }

    /// A communicator of all ranks but these, which keep their order. The ranks that stay call it, with the same list, also
    /// after a failure: that is how a program goes on without a rank that is gone. This communicator is not changed.
    ///
    /// # Errors
    /// [`Error::Argument`] for a list that names this rank, or one that there is not, or not one that is known to be gone; as
    /// [`Self::init`]. A store that a lost process has served is gone with it.
    pub fn shrink(&self, excluded: &[usize]) -> Result<Self> {
        let argument = |reason| Error::Argument { operation: "shrink", rank: self.rank(), reason };
        let mut excluded = excluded.to_vec();
        excluded.sort_unstable();
        excluded.dedup();
        if let Some(unknown) = excluded.iter().find(|rank| **rank >= self.world_size()) {
            return Err(argument(format!(
                "there is no rank {unknown} to exclude, but 0 to {}",
                self.world_size() - 1
            )));
        }
        if excluded.contains(&self.rank()) {
            return Err(argument("a rank that is excluded does not call it".to_owned()));
        }
        if let Some(Failure::Lost { rank, reason }) = self.mesh.member.failure()
            && !excluded.contains(&rank)
        {
            return Err(argument(format!("rank {rank} is gone ({reason}); exclude it")));
        }
        if self.mesh.member.failure().is_some() {
            self.backend.settle();
        }
        let place = self.rank() - excluded.iter().filter(|rank| **rank < self.rank()).count();
        let names = excluded.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        self.part(format!("without {names}"), place, self.world_size() - excluded.len())
    }

    /// A communicator of some of the ranks, of which this is rank `rank`.
    fn part(&self, name: String, rank: usize, world_size: usize) -> Result<Self> {
        // The ranks of the run that have ended are none of the part's.
        let run_id = format!("{}/{}/{name}", self.launch.run_id, self.mesh.id);
        let launch = Launch { rank, world_size, run_id, store: None, ..self.launch.clone() };
        let options = self.options.clone().name(format!("{}, {name}", self.options.name));
        Self::meet(&self.stream, launch, Arc::clone(&self.store), options)
    }

    /// Begins the keys of a split.
    fn split_keys(&self, split: u64) -> String {
        format!("{}/communicator/{}/split/{split}", self.launch.key_prefix(), self.mesh.id)
    }

    fn split_error(&self, reason: String) -> Error {
        Error::Init {
            communicator: self.options.name.clone(),
            rank: self.rank(),
            world_size: self.world_size(),
            reason: format!("split: {reason}"),
        }
    }

    /// A value that another rank puts into the store, unless the communicator fails first.
    fn read_of(&self, rank: usize, key: &str, deadline: Instant) -> Result<Vec<u8>> {
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
                let waited = self.options.init_timeout;
                return Err(self.split_error(format!("rank {rank} did not call it within {waited:?}")));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
