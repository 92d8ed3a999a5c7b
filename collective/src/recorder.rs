//! Flight recorder: outcomes of the most recent operations of a communicator on this rank.
//!
//! Recording an operation holds a lock only briefly.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationState {
    /// The operation is waiting for earlier work on its stream.
    Enqueued,
    /// The operation is exchanging data with other ranks or waiting for them.
    Running,
    /// The operation is complete.
    Done,
    /// The operation failed with this error.
    Failed(String),
}

/// Operation in a [`FlightRecord`]. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedOperation {
    /// Zero-based index among the operations that this rank has enqueued or has launched in a graph.
    pub number: u64,
    /// The operation, with the sequence number 0 until it runs.
    pub operation: Fingerprint,
    /// State of the operation.
    pub state: OperationState,
    /// Time at which the operation was enqueued, or at which the graph reached it.
    pub enqueued_us: u64,
    /// Time at which the operation started to run.
    pub started_us: Option<u64>,
    /// Time at which the operation completed or failed.
    pub ended_us: Option<u64>,
}

/// Most recent operations of a communicator on one rank, oldest first. `Display` prints a table; [`Self::to_json`] is
/// machine-readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FlightRecord {
    /// The communicator's name.
    pub communicator: String,
    /// This rank.
    pub rank: usize,
    /// Number of ranks.
    pub world_size: usize,
    /// Cause of the communicator's failure.
    pub failure: Option<String>,
    /// Operations, oldest first.
    pub operations: Vec<RecordedOperation>,
}

impl FlightRecord {
    /// Returns the record as a JSON document.
    pub fn to_json(&self) -> String {
        // Every value of the record can be represented in JSON, so serialization cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl fmt::Display for FlightRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "communicator `{}`, rank {} of {}", self.communicator, self.rank, self.world_size)?;
        if let Some(failure) = &self.failure {
            writeln!(f, "failed: {failure}")?;
        }
        for RecordedOperation { number, operation, state, enqueued_us, started_us, ended_us } in
            &self.operations
        {
            let state = match state {
                OperationState::Enqueued => "enqueued",
                OperationState::Running => "running",
                OperationState::Done => "done",
                OperationState::Failed(_) => "failed",
            };
            write!(f, "{number:>6}  {state:<8}  {operation}")?;
            if let Some(started_us) = started_us {
                write!(f, ", started after {} us", started_us.saturating_sub(*enqueued_us))?;
                if let Some(ended_us) = ended_us {
                    write!(f, ", took {} us", ended_us.saturating_sub(*started_us))?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Progress that a rank reports to a rank that is waiting for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Running operations.
    pub running: Vec<Fingerprint>,
    /// Oldest operation that has not started yet.
    pub enqueued: Option<Fingerprint>,
    /// Newest operation that is complete.
    pub done: Option<Fingerprint>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.running.first(), &self.enqueued) {
            (Some(running), _) => write!(f, "runs {running}")?,
            (None, Some(enqueued)) => {
                write!(
                    f,
                    "has not started its next operation, {}: its stream still runs earlier work",
                    enqueued.operation
                )?;
            }
            (None, None) => f.write_str("has not called the operation")?,
        }
        match &self.done {
            Some(done) => write!(f, ", last completed {done}"),
            None => f.write_str(", has completed no operation"),
        }
    }
}

#[derive(Debug, Default)]
struct Ring {
    operations: VecDeque<RecordedOperation>,
    next: u64,
    done: Option<Fingerprint>,
}

/// Flight recorder. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Recorder {
    capacity: usize,
    ring: Mutex<Ring>,
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Recorder {
    /// Creates a recorder for the `capacity` most recent operations, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ring: Mutex::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an operation has been enqueued. Returns the operation's number in the record.
    pub fn enqueued(&self, operation: &Fingerprint) -> u64 {
        let mut ring = self.ring();
        let number = ring.next;
        ring.next += 1;
        if ring.operations.len() == self.capacity {
            ring.operations.pop_front();
        }
        let (operation, state) = (operation.clone(), OperationState::Enqueued);
        let (started_us, ended_us) = (None, None);
        ring.operations.push_back(RecordedOperation {
            number,
            operation,
            state,
            enqueued_us: now_us(),
            started_us,
            ended_us,
        });
        number
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut RecordedOperation)) {
        let mut ring = self.ring();
        let Some(first) = ring.operations.front().map(|first| first.number) else { return };
        // A newer operation may already have overwritten this one.
        let index = number.checked_sub(first).map(|index| index as usize);
        if let Some(operation) = index.and_then(|index| ring.operations.get_mut(index)) {
            change(operation);
        }
    }

    /// Records that operation `number` has started, and stores its fingerprint.
    pub fn started(&self, number: u64, operation: &Fingerprint) {
        self.change(number, |recorded| {
            recorded.operation = operation.clone();
            recorded.state = OperationState::Running;
            recorded.started_us = Some(now_us());
        });
    }

    /// Records that the operation has completed or failed.
    pub fn ended(&self, number: u64, operation: &Fingerprint, error: Option<String>) {
        if error.is_none() {
            self.ring().done = Some(operation.clone());
        }
        self.change(number, |recorded| {
            recorded.state = error.map_or(OperationState::Done, OperationState::Failed);
            recorded.ended_us = Some(now_us());
        });
    }

    /// Returns the progress of this rank.
    pub fn progress(&self) -> Progress {
        let ring = self.ring();
        let of =
            |state: OperationState| ring.operations.iter().filter(move |recorded| recorded.state == state);
        let running = of(OperationState::Running).map(|recorded| recorded.operation.clone()).collect();
        let enqueued = of(OperationState::Enqueued).next().map(|recorded| recorded.operation.clone());
        Progress { running, enqueued, done: ring.done.clone() }
    }

    /// Returns the recorded operations.
    pub fn operations(&self) -> Vec<RecordedOperation> {
        self.ring().operations.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn barrier(sequence: u64) -> Fingerprint {
        Fingerprint { sequence, ..Fingerprint::new("barrier", Cow::Borrowed(""), 0) }
    }

    #[test]
    fn only_the_last_operations_are_kept() {
        let recorder = Recorder::new(2);
        let numbers: Vec<_> = (0..3).map(|_| recorder.enqueued(&barrier(0))).collect();
        recorder.started(numbers[0], &barrier(0));
        recorder.started(numbers[2], &barrier(5));
        let kept = recorder.operations();
        assert_eq!(kept.iter().map(|kept| kept.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((&kept[0].state, &kept[1].state), (&OperationState::Enqueued, &OperationState::Running));
        assert_eq!(kept[1].operation.sequence, 5);
    }

    #[test]
    fn progress_names_what_runs_and_what_was_done() {
        let recorder = Recorder::new(8);
        assert_eq!(
            recorder.progress().to_string(),
            "has not called the operation, has completed no operation"
        );
        let first = recorder.enqueued(&barrier(0));
        recorder.started(first, &barrier(0));
        assert_eq!(recorder.progress().to_string(), "runs barrier #0, has completed no operation");
        recorder.ended(first, &barrier(0), None);
        recorder.enqueued(&barrier(0));
        let text = "has not started its next operation, barrier: its stream still runs earlier work, last completed barrier #0";
        assert_eq!(recorder.progress().to_string(), text);
    }

    #[test]
    fn records_pass_through_json() {
        let recorder = Recorder::new(8);
        let number = recorder.enqueued(&barrier(0));
        recorder.started(number, &barrier(3));
        recorder.ended(number, &barrier(3), Some("no".to_owned()));
        let (communicator, failure) = ("world".to_owned(), Some("no".to_owned()));
        let record =
            FlightRecord { communicator, rank: 1, world_size: 2, failure, operations: recorder.operations() };
        assert_eq!(serde_json::from_str::<FlightRecord>(&record.to_json()).expect("read again"), record);
        assert!(record.to_string().contains("failed    barrier #3"), "{record}");
    }
}
