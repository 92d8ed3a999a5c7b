//! Runs an emulated driver's tasks without worker threads. A host thread that waits runs the tasks, one at a time.
//!
//! Tasks run only in [`Stepper::run_until`]. The order depends only on the calls that are made and on the [`Schedule`],
//! so a program with one host thread runs the same way every time.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::control::Call;
use super::control::driver_error;
use super::stream::Queue;
use super::testing::Testing;
use warpsmith_driver::StreamHandle;
use warpsmith_driver::error::{Result, code};

/// Rule for selecting the next task on a driver without worker threads
/// ([`stepped`](super::EmulatedDriverBuilder::stepped)).
///
/// A task can run when all earlier tasks on its stream have run and all marks for which it waits have been reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// The next task of a randomly selected stream (uniform distribution). The same seed yields the same sequence of
    /// streams.
    Random(u64),
    /// The task that was enqueued first.
    Oldest,
    /// The task that was enqueued last.
    Newest,
    /// The task that was enqueued first on any stream other than this one. A task of this stream runs only if no other
    /// stream can make progress.
    Starve(StreamHandle),
}

/// A schedule and the state of its random number generator.
#[derive(Debug)]
struct Chooser {
    schedule: Schedule,
    random: u64,
}

impl Chooser {
    fn new(schedule: Schedule) -> Self {
        let random = if let Schedule::Random(seed) = schedule { seed } else { 0 };
        Self { schedule, random }
    }

    /// Returns a random number less than `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        // This is SplitMix64, for which every seed is equally suitable.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        (((bits >> 32) * bound as u64) >> 32) as usize
    }

    fn choose<'a>(&mut self, ready: &'a [Ready]) -> Option<&'a Ready> {
        if ready.is_empty() {
            return None;
        }
        match self.schedule {
            Schedule::Random(_) => ready.get(self.below(ready.len())),
            Schedule::Oldest => ready.iter().min_by_key(|next| next.number),
            Schedule::Newest => ready.iter().max_by_key(|next| next.number),
            Schedule::Starve(starved) => {
                ready.iter().min_by_key(|next| (next.stream == starved.0, next.number))
            }
        }
    }
}

/// A stream whose next task can run.
#[derive(Debug)]
struct Ready {
    stream: u64,
    /// Position of the task in the enqueue order.
    number: u64,
    queue: Arc<Queue>,
}

/// All streams of a driver, with the lock for running their tasks.
#[derive(Debug)]
pub(super) struct Stepper {
    chooser: Mutex<Chooser>,
    /// Streams in creation order, with their handles.
    queues: Mutex<Vec<(u64, Weak<Queue>)>>,
    /// Lock that is held by the thread that runs tasks.
    turn: Mutex<()>,
    numbers: AtomicU64,
}

/// A stepper shared by the driver and its streams.
#[derive(Debug, Clone)]
pub(super) struct Stepping(Arc<Stepper>, Testing);

impl Stepping {
    pub(super) fn new(schedule: Schedule, testing: Testing) -> Self {
        Self(Arc::new(Stepper::new(schedule)), testing)
    }
}

impl Deref for Stepping {
    type Target = Stepper;

    fn deref(&self) -> &Stepper {
        &self.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stepper {
    fn new(schedule: Schedule) -> Self {
        Self {
            chooser: Mutex::new(Chooser::new(schedule)),
            queues: Mutex::default(),
            turn: Mutex::default(),
            numbers: AtomicU64::new(0),
        }
    }

    /// Switches to another schedule, from its beginning.
    #[cfg(feature = "testing")]
    pub(super) fn set_schedule(&self, schedule: Schedule) {
        *lock(&self.chooser) = Chooser::new(schedule);
    }

    /// Adds a stream, which stays in the list until it is destroyed.
    pub(super) fn add(&self, stream: StreamHandle, queue: &Arc<Queue>) {
        let mut queues = lock(&self.queues);
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((stream.0, Arc::downgrade(queue)));
    }

    /// Returns the position that the next task has in the enqueue order.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs tasks one at a time until `reached` returns true. Other waiting threads continue afterwards.
    ///
    /// Returns an error if no task can run because a stream waits for a recording that was never enqueued.
    pub(super) fn run_until(&self, call: Call, reached: impl Fn() -> bool) -> Result<()> {
        if reached() {
            return Ok(());
        }
        let _turn = lock(&self.turn);
        while !reached() {
            let Some(queue) = self.next() else {
                let text =
                    "no task of any stream can run: one waits for an event whose record was never enqueued";
                return Err(driver_error(call.name(), code::UNKNOWN, text));
            };
            queue.step();
        }
        Ok(())
    }

    /// Returns the stream whose next task the schedule selects; `None` if no stream can make progress.
    fn next(&self) -> Option<Arc<Queue>> {
        let ready: Vec<Ready> = lock(&self.queues)
            .iter()
            .filter_map(|(stream, queue)| {
                let queue = queue.upgrade()?;
                Some(Ready { stream: *stream, number: queue.ready()?, queue })
            })
            .collect();
        lock(&self.chooser).choose(&ready).map(|next| Arc::clone(&next.queue))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::context::EmulatedContext;
    use super::super::control::Control;
    use super::super::pages::Backing;
    use super::super::race::Races;
    use super::super::simulated::Timeline;
    use super::super::stream::{Mark, Work};
    use super::super::touched::Touched;
    use super::*;

    #[test]
    fn waiting_for_nothing_enqueued_is_an_error() {
        let stepper = Stepping::new(Schedule::Random(1), ());
        let context = EmulatedContext::new(0, 1 << 20, Backing::Host);
        let [blocked, free] = [1, 2]
            .map(|handle| {
                let control = Arc::new(Control::new());
                let (context, stepper) = (Arc::clone(&context), Some(stepper.clone()));
                let races = Arc::new(Races::new(None));
                let queue =
                    Queue::new(context, control, 0, Timeline::new(None, Arc::default()), stepper, races);
                (StreamHandle(handle), queue)
            })
            .map(|(handle, queue)| {
                stepper.add(handle, &queue);
                queue
            });
        let [never, last] = [(); 2].map(|()| Arc::new(Mark::default()));
        blocked.push(Work::Wait(never), Touched::new(), None).unwrap();
        free.push(Work::Record(Arc::clone(&last)), Touched::new(), None).unwrap();
        let error = blocked.wait(Call::StreamSynchronize).unwrap_err().to_string();
        assert!(error.contains("stream_synchronize") && error.contains("never enqueued"), "{error}");
        assert!(last.time().is_some() && free.is_idle(), "all that can run has run");
        free.wait(Call::StreamSynchronize).unwrap();
        blocked.close();
    }

    #[test]
    fn every_stream_is_drawn_about_as_often_as_any_other() {
        let mut chooser = Chooser::new(Schedule::Random(7));
        let mut counts = [0; 5];
        (0..10_000).for_each(|_| counts[chooser.below(5)] += 1);
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }
}
