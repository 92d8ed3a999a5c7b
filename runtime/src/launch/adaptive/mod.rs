//! The adaptive launcher finds the fastest block and grid size by measuring a program's own launches.
//!
//! It is off by default. [`Device::set_adaptive_launch`] or `WARPSMITH_ADAPTIVE_LAUNCH=1` enables it for all launches
//! on a device, including launches of libraries, because the fastest configuration depends on the device, not on the
//! caller. The adaptive launcher applies to launches that leave the block and grid size to the runtime
//! ([`Launch::auto`], [`Launch::for_occupancy`] and [`Launch::for_bandwidth`] without further settings), because every
//! candidate produces the same result for such a launch.
//!
//! There is one trial for each kernel instance, device class and size class; each power of two is divided into two size
//! classes. The heuristic's choice and at most five other candidates are interleaved in the program's launches, and
//! each measured launch is placed between two timed events. Events are queried at later launches, without waiting.
//! After at most 36 measured launches, the medians are compared. The heuristic's choice is kept unless another
//! candidate takes at least 3 % less time. The winner is stored in the device's [`LaunchPolicy`], where later launches
//! find it, so that they are no longer measured. Launches of different sizes in one size class share measurements,
//! which are scaled by the ratio of the sizes. Captured launches are not measured.

mod trial;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use self::trial::Trial;
use super::limits::Limits;
use super::policy::{GridChoice, LaunchPolicy, OpenLaunch, Winner};
use super::resolve::{Resolved, Source};
use super::shape::Shape;
use super::{Function, Launch, LaunchConfig, store};
use crate::device::health::Quiet;
use crate::device::observe::Operation;
use crate::device::{Device, EventPool, Part};
use crate::driver::EventHandle;
use crate::driver::{Context, Driver};
use crate::error::Result;
use crate::stream::Stream;

/// Maximum number of concurrent trials.
const MAX_TRIALS: usize = 256;
/// Maximum number of unread measurements per trial.
const MAX_PENDING: usize = 4;
/// Maximum number of candidates besides the heuristic's choice.
const MAX_OTHERS: usize = 5;

/// State of a device's adaptive launcher.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    is_adaptive: AtomicBool,
    /// Counter that is incremented by every change after which a launch may resolve to a different configuration.
    generation: Arc<AtomicU64>,
    /// The launch policy; `None` until it is first needed.
    policy: RwLock<Option<Arc<dyn LaunchPolicy>>>,
    running: Mutex<HashMap<u64, Running>>,
}

/// A trial and its unread measurements, oldest first.
#[derive(Debug)]
struct Running {
    trial: Trial,
    pending: Vec<Pending>,
    /// Number of threads or items to which all times of the trial are scaled.
    n: u64,
}

#[derive(Debug)]
struct Pending {
    candidate: usize,
    n: u64,
    start: EventHandle,
    end: EventHandle,
}

/// A launch that will be measured.
#[derive(Debug)]
pub(super) struct Measurement {
    key: u64,
    candidate: usize,
    n: u64,
}

impl Part for Launches {
    const PLACE: usize = 3;

    fn close(&mut self, _: &dyn Driver, _: Context, events: &EventPool) {
        self.return_events(events);
    }
}

impl Launches {
    /// Creates the state that the environment variables select.
    pub(crate) fn from_environment() -> Self {
        let is_on = std::env::var_os("WARPSMITH_ADAPTIVE_LAUNCH").is_some_and(|value| value == "1");
        Self { is_adaptive: AtomicBool::new(is_on), ..Self::default() }
    }

    #[inline]
    pub(super) fn is_adaptive(&self) -> bool {
        self.is_adaptive.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn policy(&self, device: &Device) -> Arc<dyn LaunchPolicy> {
        if let Some(policy) = &*self.policy.read().unwrap_or_else(PoisonError::into_inner) {
            return policy.clone();
        }
        let new = store::policy(device);
        new.watch(&self.generation);
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        // If two threads race, the slower one drops its own policy without holding the lock.
        Arc::clone(policy.get_or_insert_with(|| Arc::clone(&new)))
    }

    /// Returns the measured winner for this launch, if any.
    pub(super) fn winner(&self, function: &Function, launch: &Launch) -> Option<(Winner, Source)> {
        self.policy(function.device()).find(&open_launch(function, launch)?)
    }

    /// Returns the events of unread measurements to the pool, because the device is closing.
    fn return_events(&self, events: &EventPool) {
        for pending in self.running().drain().flat_map(|(_, running)| running.pending) {
            [pending.start, pending.end].into_iter().for_each(|event| events.put(event, true));
        }
    }
}

/// Returns the description of a launch for the policy; `None` if the launch itself specifies block or grid.
fn open_launch<'a>(function: &'a Function, launch: &Launch) -> Option<OpenLaunch<'a>> {
    let (n, is_loop) = match launch.shape {
        Shape::Linear { threads, block: None } | Shape::Occupancy { threads } => (threads, false),
        Shape::Bandwidth { items, .. } => (items, true),
        Shape::Linear { .. } | Shape::Cover { .. } | Shape::Tiles { .. } | Shape::Explicit { .. } => {
            return None;
        }
    };
    let spec = function.spec();
    let is_plain = !spec.cooperative && spec.block.is_none() && spec.cluster.is_none();
    (launch.is_open() && is_plain).then(|| OpenLaunch {
        device: function.device().properties(),
        package: spec.package,
        symbol: spec.symbol,
        image: function.image_hash(),
        is_loop,
        n: n as u64,
    })
}

/// Returns true if events may be recorded around work on this stream.
fn may_measure(stream: &Stream) -> bool {
    !stream.is_capturing() && !stream.device().is_lost()
}

/// Returns the heuristic's choice and the alternatives to try. No two have the same configuration.
fn candidates(function: &Function, launch: &Launch, is_loop: bool, heuristic: Winner) -> Vec<Winner> {
    let limits = Limits::of(function);
    let grids: &[GridChoice] = if is_loop {
        &[GridChoice::All, GridChoice::Waves(1), GridChoice::Waves(4)]
    } else {
        &[GridChoice::All]
    };
    let config = |winner: &Winner| launch.configure(function, Some(*winner)).ok().flatten();
    let mut known: Vec<LaunchConfig> = config(&heuristic).into_iter().collect();
    let mut found = vec![heuristic];
    // Other grids with the heuristic's block come first, followed by other blocks.
    let blocks = [heuristic.block, 128, 512, 256, 64, 1024];
    for winner in blocks.into_iter().flat_map(|block| grids.iter().map(move |&grid| Winner { block, grid })) {
        if found.len() > MAX_OTHERS {
            break;
        }
        if limits.clamp_block(winner.block) == winner.block
            && let Some(config) = config(&winner)
            && !known.contains(&config)
        {
            known.push(config);
            found.push(winner);
        }
    }
    found
}

/// Returns the configuration for a launch, and the measurement to make, if any.
#[cold]
pub(super) fn choose(
    function: &Function,
    stream: &Stream,
    launch: &Launch,
    resolved: Resolved,
) -> (LaunchConfig, Option<Measurement>) {
    let plain = (resolved.config, None);
    let launches = &function.device().part::<Launches>();
    let open = match (resolved.source, open_launch(function, launch)) {
        (Source::Heuristic, Some(open)) if may_measure(stream) => open,
        _ => return plain,
    };
    let policy = launches.policy(function.device());
    let (key, n) = (open.key(), open.n);
    // The lock is not held here, because the policy may be implemented by the program.
    let is_full = policy.is_full();
    let mut running = launches.running();
    if !running.contains_key(&key) {
        if running.len() >= MAX_TRIALS || is_full {
            return plain;
        }
        let heuristic = Winner { block: resolved.config.block[0], grid: grid_of(launch, &resolved.config) };
        let trial = Trial::new(candidates(function, launch, open.is_loop, heuristic));
        running.insert(key, Running { trial, pending: Vec::new(), n });
    }
    let Some(trial) = running.get_mut(&key) else { return plain };
    trial.read(stream);
    if let Some((winner, us)) = trial.trial.settled() {
        let events = &function.device().0.events;
        for pending in running.remove(&key).into_iter().flat_map(|trial| trial.pending) {
            [pending.start, pending.end].into_iter().for_each(|event| events.put(event, true));
        }
        drop(running);
        policy.learn(&open, winner, us);
        launches.changed();
        let settled = launch.configure(function, Some(winner)).ok().flatten();
        return (settled.unwrap_or(resolved.config), None);
    }
    if trial.pending.len() >= MAX_PENDING {
        return plain;
    }
    let Some((candidate, winner)) = trial.trial.next() else { return plain };
    match launch.configure(function, Some(winner)) {
        Ok(Some(config)) => (config, Some(Measurement { key, candidate, n })),
        _ => {
            trial.trial.add(candidate, None);
            plain
        }
    }
}

/// Returns the rule that produces the heuristic's grid.
fn grid_of(launch: &Launch, config: &LaunchConfig) -> GridChoice {
    match launch.shape {
        Shape::Bandwidth { items, .. } => {
            let tiles = (items as u64).div_ceil(u64::from(config.block[0].max(1)));
            if u64::from(config.grid[0]) < tiles { GridChoice::Balanced } else { GridChoice::All }
        }
        _ => GridChoice::All,
    }
}

impl Running {
    /// Reads the measurements whose events have been reached, without waiting for the others.
    fn read(&mut self, stream: &Stream) {
        let _quiet = Quiet::begin();
        while let Some(Pending { candidate, n, start, end }) = self.pending.first() {
            let us = match stream.device().call(|driver, context| driver.event_query(context, *end)) {
                Ok(false) => return,
                Ok(true) => {
                    stream.device().call(|driver, context| driver.event_elapsed(context, *start, *end)).ok()
                }
                Err(_) => None,
            };
            let share = self.n as f64 / (*n).max(1) as f64;
            self.trial.add(*candidate, us.map(|us| us * share));
            [*start, *end].into_iter().for_each(|event| stream.device().0.events.put(event, true));
            self.pending.remove(0);
        }
    }
}

impl Measurement {
    /// Performs the launch between two timed events. Failing to measure it is not an error.
    pub(super) fn around(self, stream: &Stream, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let device = stream.device();
        let record = |event| {
            let _quiet = Quiet::begin();
            stream.observed(
                || Operation::EventRecord { event },
                || stream.call(|driver, context| driver.event_record(context, event, stream.handle())),
            )
        };
        let take = || {
            let _quiet = Quiet::begin();
            device.0.events.take(device, true).ok()
        };
        let events = take().and_then(|start| match take() {
            Some(end) => Some((start, end)),
            None => {
                device.0.events.put(start, true);
                None
            }
        });
        let is_started = events.is_some_and(|(start, _)| record(start).is_ok());
        let launched = launch();
        let is_ended = is_started && launched.is_ok() && events.is_some_and(|(_, end)| record(end).is_ok());
        let mut running = device.part::<Launches>().running();
        let mut trial = running.get_mut(&self.key);
        match (events, &mut trial) {
            (Some((start, end)), Some(trial)) if is_ended => {
                trial.pending.push(Pending { candidate: self.candidate, n: self.n, start, end });
            }
            (events, trial) => {
                if let Some(trial) = trial {
                    trial.trial.add(self.candidate, None);
                }
                for event in events.into_iter().flat_map(|(start, end)| [start, end]) {
                    device.0.events.put(event, true);
                }
            }
        }
        launched
    }
}

impl Device {
    /// Enables or disables the [adaptive launcher](crate::launch::adaptive). It is disabled unless
    /// `WARPSMITH_ADAPTIVE_LAUNCH=1` was set when the device was opened.
    ///
    /// ```
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = warpsmith_runtime::Device::emulated(0)?;
    /// device.set_adaptive_launch(true);
    /// # device.set_adaptive_launch(false);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_adaptive_launch(&self, is_on: bool) {
        self.part::<Launches>().is_adaptive.store(is_on, Ordering::Relaxed);
    }

    /// Returns true if the adaptive launcher is enabled.
    pub fn is_adaptive_launch(&self) -> bool {
        self.part::<Launches>().is_adaptive()
    }

    /// Returns the policy in which the device looks up the fastest launches and stores its measurements.
    pub fn launch_policy(&self) -> Arc<dyn LaunchPolicy> {
        self.part::<Launches>().policy(self)
    }

    /// Replaces the device's policy. Subsequent launches use the new one.
    pub fn set_launch_policy(&self, policy: Arc<dyn LaunchPolicy>) {
        let launches = self.part::<Launches>();
        policy.watch(&launches.generation);
        let before = launches.policy.write().unwrap_or_else(PoisonError::into_inner).replace(policy);
        // The lock is not held here, because dropping the policy may run user code.
        drop(before);
        launches.changed();
    }
}
