//! [`Generator`]: a seed and an offset, from which operations take random numbers.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpsmith_runtime::{Device, Result, Stream};

use super::layout::Layout;
use super::replay::Replay;
use crate::op_error::OpError;

/// Seed of a new generator, the same as PyTorch's.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// The largest offset. States store the offset as a signed number.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// A random number generator, which consists of a seed and an offset. Each operation advances the offset. Clones share
/// both.
///
/// A generator is not tied to a device, because its numbers depend only on its [`Layout`], seed and offset. An
/// operation on a captured stream takes its numbers each time the graph is launched (see [`random`](super)).
///
/// ```
/// use warpsmith::random::Generator;
/// use warpsmith::Device;
///
/// let generator = Generator::new(&Device::open("cpu")?);
/// generator.manual_seed(7)?;
/// generator.set_offset(12)?;
/// let state = generator.state()?;
/// assert_eq!(state, [7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]);
/// generator.seed()?; // fresh
/// generator.set_state(&state)?;
/// assert_eq!((generator.initial_seed(), generator.offset()?), (7, 12));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
}

pub(super) struct State {
    pub seed: u64,
    /// Offset within each subsequence, in words. The offset is a multiple of 4.
    pub offset: u64,
    layout: Layout,
    /// Captures that take numbers from the generator, and the graphs instantiated from them.
    captures: Vec<Weak<Replay>>,
}

/// Numbers reserved for one operation.
pub(crate) struct Numbers {
    pub seed: u64,
    /// Offset of the numbers from the start of the sequence, or from the start of a graph launch.
    pub offset: u64,
    pub layout: Layout,
    /// For captured operations, the location of the launch's seed and offset in device memory.
    pub(super) replay: Option<Arc<Replay>>,
}

impl Generator {
    /// Creates a generator with the [default seed](DEFAULT_SEED) and the device's [layout](Layout::of).
    pub fn new(device: &Device) -> Self {
        Self::with(DEFAULT_SEED, Layout::of(device))
    }

    fn with(seed: u64, layout: Layout) -> Self {
        let state = State { seed, offset: 0, layout, captures: Vec::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// Sets the seed and resets the offset to 0.
    ///
    /// # Errors
    /// Returns [`OpError::Random`] while a capture that uses the generator is active.
    pub fn manual_seed(&self, seed: u64) -> Result<()> {
        self.change("Generator::manual_seed", |state| (state.seed, state.offset) = (seed, 0))
    }

    /// Sets a new seed from the operating system, resets the offset to 0, and returns the seed.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::manual_seed`].
    pub fn seed(&self) -> Result<u64> {
        let seed = fresh_seed();
        self.change("Generator::seed", |state| (state.seed, state.offset) = (seed, 0))?;
        Ok(seed)
    }

    /// Returns the most recently set seed.
    pub fn initial_seed(&self) -> u64 {
        self.shared.lock().seed
    }

    /// Returns the offset: the number of words already used in each subsequence.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::manual_seed`].
    pub fn offset(&self) -> Result<u64> {
        self.change("Generator::offset", |state| state.offset)
    }

    /// Sets the offset, which must be a multiple of 4. An operation fails if its numbers would pass offset 2⁶³, whereas
    /// the offset of a graph launch wraps to 0.
    ///
    /// # Errors
    /// Returns [`OpError::Random`] if the offset is not a multiple of 4 or not below 2⁶³. Also returns the same errors
    /// as [`Self::manual_seed`].
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        let call = "Generator::set_offset";
        check_offset(call, offset)?;
        self.change(call, |state| state.offset = offset)
    }

    /// Returns the state in PyTorch's format: the seed and the offset as 8-byte little-endian numbers.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::manual_seed`].
    pub fn state(&self) -> Result<[u8; 16]> {
        self.change("Generator::state", |state| state.bytes())
    }

    /// Sets the state, which consists of 16 bytes as returned by [`Self::state`], or of 8 bytes with only the seed (the
    /// format of old versions of PyTorch).
    ///
    /// # Errors
    /// Returns [`OpError::Random`] for any other number of bytes or an offset that [`Self::set_offset`] rejects. Also
    /// returns the same errors as [`Self::manual_seed`].
    pub fn set_state(&self, state: &[u8]) -> Result<()> {
        let call = "Generator::set_state";
        let parts = seed_and_offset(call, state)?;
        self.change(call, |state| (state.seed, state.offset) = parts)
    }

    /// Returns the layout, which divides numbers among virtual threads.
    pub fn layout(&self) -> Layout {
        self.shared.lock().layout
    }

    /// Sets the layout, which divides numbers among virtual threads. Two generators with the same layout, seed and
    /// offset produce the same numbers on any device.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::manual_seed`].
    pub fn set_layout(&self, layout: Layout) -> Result<()> {
        self.change("Generator::set_layout", |state| state.layout = layout)
    }

    /// Calls `change` unless a capture that uses the generator is active.
    fn change<R>(&self, call: &'static str, change: impl FnOnce(&mut State) -> R) -> Result<R> {
        let mut state = self.shared.lock();
        state.check_not_capturing(call)?;
        Ok(change(&mut state))
    }

    /// Calls `work` with numbers for an operation on a stream. `increment` computes, for a layout, the number of words
    /// by which to advance the offset. If `work` fails, the offset is restored, unless other numbers were taken in the
    /// meantime.
    pub(crate) fn with_numbers<R>(
        &self,
        stream: &Stream,
        call: &'static str,
        increment: impl FnOnce(&Layout) -> u64,
        work: impl FnOnce(&Numbers) -> Result<R>,
    ) -> Result<R> {
        stream.with_stable_capture_state(|| {
            let (numbers, end) = self.take(stream, call, increment)?;
            work(&numbers).inspect_err(|_| self.rewind(&numbers, end))
        })
    }

    /// Resets the offset from `end` to the start of these numbers.
    fn rewind(&self, numbers: &Numbers, end: u64) {
        let mut state = self.shared.lock();
        match &numbers.replay {
            Some(replay) if replay.increment() == end => replay.set_increment(numbers.offset),
            None if (state.seed, state.offset) == (numbers.seed, end) => state.offset = numbers.offset,
            _ => {}
        }
    }

    /// Returns the reserved numbers and the offset that follows them.
    fn take(
        &self,
        stream: &Stream,
        call: &'static str,
        increment: impl FnOnce(&Layout) -> u64,
    ) -> Result<(Numbers, u64)> {
        let mut state = self.shared.lock();
        let layout = state.layout;
        let increment = increment(&layout).next_multiple_of(4);
        let Some(capture) = stream.capture_id() else {
            let (seed, offset) = (state.seed, state.offset);
            state.offset = after(call, offset, increment)?;
            return Ok((Numbers { seed, offset, layout, replay: None }, state.offset));
        };
        state.captures.retain(|replay| replay.strong_count() > 0);
        let known = state.captures.iter().filter_map(Weak::upgrade).find(|replay| replay.is_of(&capture));
        let replay = match known {
            Some(replay) => replay,
            None => {
                let replay = Arc::new(Replay::new(stream, capture)?);
                let (shared, hooked) = (Arc::clone(&self.shared), Arc::clone(&replay));
                stream.on_graph_launch(move |stream| hooked.begin(stream, &mut shared.lock()))?;
                state.captures.push(Arc::downgrade(&replay));
                replay
            }
        };
        let offset = replay.increment();
        let end = after(call, offset, increment)?;
        replay.set_increment(end);
        Ok((Numbers { seed: 0, offset, layout, replay: Some(replay) }, end))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    fn check_not_capturing(&self, call: &'static str) -> Result<()> {
        if self.captures.iter().filter_map(Weak::upgrade).any(|replay| replay.is_active()) {
            let problem = "a graph that uses this generator is being captured; make the call before the capture \
                           starts or after it ends";
            return Err(OpError::Random { call, problem: problem.to_owned() }.into());
        }
        Ok(())
    }
}

/// Parses the seed and the offset from the bytes of a state.
fn seed_and_offset(call: &'static str, state: &[u8]) -> Result<(u64, u64)> {
    let (seed, offset) = match state.as_chunks() {
        ([seed], []) => (*seed, [0; 8]),
        ([seed, offset], []) => (*seed, *offset),
        _ => {
            let problem = format!(
                "the state has {} bytes, but must have 16 (seed and offset) or 8 (seed)",
                state.len()
            );
            return Err(OpError::Random { call, problem }.into());
        }
    };
    let (seed, offset) = (u64::from_le_bytes(seed), u64::from_le_bytes(offset));
    check_offset(call, offset)?;
    Ok((seed, offset))
}

fn check_offset(call: &'static str, offset: u64) -> Result<()> {
    if offset.is_multiple_of(4) && offset <= MAX_OFFSET {
        return Ok(());
    }
    let problem = format!("the offset must be a multiple of 4 below 2^63, found {offset}");
    Err(OpError::Random { call, problem }.into())
}

/// Returns the offset that follows an operation.
pub(super) fn after(call: &'static str, offset: u64, increment: u64) -> Result<u64> {
    offset.checked_add(increment).filter(|&offset| offset <= MAX_OFFSET).ok_or_else(|| {
        OpError::Random {
            call,
            problem: "the generator's sequence is exhausted: set another seed with `manual_seed`".to_owned(),
        }
        .into()
    })
}

fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    match File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => u64::from_le_bytes(bytes),
        // The hasher's keys also come from the operating system and differ between calls.
        Err(_) => RandomState::new().hash_one("seed"),
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { seed, offset, layout, .. } = &*self.shared.lock();
        let mut shown = f.debug_struct("Generator");
        shown.field("seed", seed).field("offset", offset).field("layout", layout).finish()
    }
}

/// The generators that [`manual_seed_all`] changes.
struct Defaults {
    seed: u64,
    made: Vec<Weak<Shared>>,
}

static DEFAULTS: Mutex<Defaults> = Mutex::new(Defaults { seed: DEFAULT_SEED, made: Vec::new() });

fn defaults() -> MutexGuard<'static, Defaults> {
    DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The default generator of a device.
struct DefaultGenerator(Generator);

/// Returns the device's default generator, for programs that do not need their own. Every call returns the same
/// generator. Its seed is [`DEFAULT_SEED`], or the last seed set with [`manual_seed_all`].
///
/// ```
/// use warpsmith::random;
/// use warpsmith::Device;
///
/// let device = Device::open("cpu")?;
/// random::manual_seed_all(1)?;
/// assert_eq!(random::default_generator(&device).initial_seed(), 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn default_generator(device: &Device) -> Generator {
    let made = device.extension(|| {
        let mut defaults = defaults();
        let generator = Generator::with(defaults.seed, Layout::of(device));
        defaults.made.retain(|generator| generator.strong_count() > 0);
        defaults.made.push(Arc::downgrade(&generator.shared));
        DefaultGenerator(generator)
    });
    made.0.clone()
}

/// Sets the seed of the default generators of all devices, including devices opened later.
///
/// # Errors
/// Returns [`OpError::Random`] while a capture that uses one of these generators is active. In this case, no seed is
/// changed.
///
/// ```
/// use warpsmith::random;
/// use warpsmith::Device;
///
/// let generator = random::default_generator(&Device::open("cpu")?);
/// random::manual_seed_all(7)?;
/// assert_eq!((generator.initial_seed(), generator.offset()?), (7, 0));
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn manual_seed_all(seed: u64) -> Result<()> {
    seed_everywhere("random::manual_seed_all", seed)
}

/// Sets one new seed from the operating system for the default generators of all devices, including devices opened
/// later, and returns this seed.
///
/// # Errors
/// Returns the same errors as [`manual_seed_all`].
///
/// ```
/// use warpsmith::random;
/// use warpsmith::Device;
///
/// let generator = random::default_generator(&Device::open("cpu")?);
/// let seed = random::seed_all()?;
/// assert_eq!(generator.initial_seed(), seed);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn seed_all() -> Result<u64> {
    let seed = fresh_seed();
    seed_everywhere("random::seed_all", seed)?;
    Ok(seed)
}

fn seed_everywhere(call: &'static str, seed: u64) -> Result<()> {
    let mut defaults = defaults();
    let made: Vec<Arc<Shared>> = defaults.made.iter().filter_map(Weak::upgrade).collect();
    change_all(call, &made, |_, state| (state.seed, state.offset) = (seed, 0))?;
    defaults.seed = seed;
    Ok(())
}

/// Returns the states of the devices' default generators at one point in time, each in the format of
/// [`Generator::state`].
///
/// ```
/// use warpsmith::random;
/// use warpsmith::Device;
///
/// let devices = [Device::open("cpu")?];
/// let states = random::states(&devices)?;
/// random::seed_all()?;
/// random::set_states(&devices, &states)?;
/// assert_eq!(random::states(&devices)?, states);
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// # Errors
/// Returns [`OpError::Random`] if a device is listed twice, or while a capture that uses one of these generators is
/// active.
pub fn states(devices: &[Device]) -> Result<Vec<[u8; 16]>> {
    let mut states = vec![[0; 16]; devices.len()];
    of_devices("random::states", devices, |index, state| states[index] = state.bytes())?;
    Ok(states)
}

/// Sets the states of the devices' default generators, as [`Generator::set_state`] does for one generator.
///
/// # Errors
/// Returns the same errors as [`states`] and [`Generator::set_state`], and an error unless there is exactly one state
/// per device. In these cases, no state is changed.
///
/// ```
/// use warpsmith::random;
/// use warpsmith::Device;
///
/// let devices = [Device::open("cpu")?];
/// // The seed 7 and the offset 12, in PyTorch's format.
/// random::set_states(&devices, &[[7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]])?;
/// let generator = random::default_generator(&devices[0]);
/// assert_eq!((generator.initial_seed(), generator.offset()?), (7, 12));
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn set_states(devices: &[Device], states: &[impl AsRef<[u8]>]) -> Result<()> {
    let call = "random::set_states";
    if devices.len() != states.len() {
        let problem = format!(
            "the number of states is {}, but the number of devices is {}; pass one state per device",
            states.len(),
            devices.len()
        );
        return Err(OpError::Random { call, problem }.into());
    }
    let parts: Result<Vec<_>> = states.iter().map(|state| seed_and_offset(call, state.as_ref())).collect();
    let parts = parts?;
    of_devices(call, devices, |index, state| (state.seed, state.offset) = parts[index])
}

/// Calls `change` for each device, with the device's index and the state of its default generator.
fn of_devices(call: &'static str, devices: &[Device], change: impl FnMut(usize, &mut State)) -> Result<()> {
    let of = |device: &Device| default_generator(device).shared;
    let generators: Vec<Arc<Shared>> = devices.iter().map(of).collect();
    for (index, generator) in generators.iter().enumerate() {
        if generators[..index].iter().any(|earlier| Arc::ptr_eq(earlier, generator)) {
            let problem = format!("{} is listed twice", devices[index].id());
            return Err(OpError::Random { call, problem }.into());
        }
    }
    // A thread that locks several generators holds this lock, so that two such threads cannot deadlock.
    let _defaults = defaults();
    change_all(call, &generators, change)
}

/// Calls `change` with the index and state of each generator, unless a capture that uses one of them is active.
fn change_all(
    call: &'static str,
    generators: &[Arc<Shared>],
    mut change: impl FnMut(usize, &mut State),
) -> Result<()> {
    let mut states: Vec<MutexGuard<'_, State>> =
        generators.iter().map(|generator| generator.lock()).collect();
    states.iter().try_for_each(|state| state.check_not_capturing(call))?;
    states.iter_mut().enumerate().for_each(|(index, state)| change(index, state));
    Ok(())
}
