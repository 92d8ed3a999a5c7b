//! Programs for the caching allocator, drawn from random numbers or from the bytes of a fuzzer.
//!
//! [`run`] creates a device with random options, performs random operations on it, and compares the allocator's reports
//! with the expected state after each one; see [`checks`](self::checks). At the end, everything must be freed without
//! leaving memory behind. The function panics if a check fails.

#[path = "allocator_checks.rs"]
mod checks;
#[path = "uses.rs"]
pub mod uses;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::memory::options::Backend;
use warpsmith_runtime::memory::{CaptureGuard, PoolGuard};
use warpsmith_runtime::{
    AllocatorOptions, Device, DeviceBuffer, DevicePtr, Error, GraphError, MemoryPool, PoolOptions, Stream,
};

use self::checks::Model;

const MIB: u64 = 1 << 20;
/// Maximum number of live blocks, limited so that checking all of them after each step stays fast.
const MAX_LIVE: usize = 60;
const MAX_STREAMS: usize = 6;
/// Calls that the allocator makes, each of which can fail.
const CALLS: [Call; 21] = [
    Call::MemoryAllocate,
    Call::MemoryFree,
    Call::VirtualGranularity,
    Call::VirtualReserve,
    Call::VirtualRelease,
    Call::PhysicalCreate,
    Call::PhysicalRelease,
    Call::VirtualMap,
    Call::VirtualUnmap,
    Call::VirtualUnmap,
    Call::VirtualSetAccess,
    Call::StreamAllocate,
    Call::StreamFree,
    Call::StreamCreate,
    Call::StreamQuery,
    Call::StreamSynchronize,
    Call::StreamWaitEvent,
    Call::EventCreate,
    Call::EventRecord,
    Call::EventQuery,
    Call::EventSynchronize,
];

/// Source of a program's decisions.
pub trait Choices {
    /// Returns a number below `bound`, which must not be zero.
    fn below(&mut self, bound: u64) -> u64;

    /// Returns true if there are decisions left.
    fn more(&self) -> bool {
        true
    }

    /// Returns true in one of `of` cases.
    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Decisions from bytes, until there are none left.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let mut value = 0;
        let mut reach = 1;
        while reach < bound {
            let Some((byte, rest)) = self.0.split_first() else { break };
            self.0 = rest;
            (value, reach) = (value << 8 | u64::from(*byte), reach << 8);
        }
        value % bound
    }

    fn more(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Memory that the program owns, as an address or as a buffer.
#[derive(Debug)]
enum Held {
    Raw(DevicePtr),
    Buffer(DeviceBuffer<u8>),
}

/// A block of a program.
#[derive(Debug)]
struct Live {
    held: Held,
    bytes: u64,
    stream: Stream,
}

impl Live {
    fn ptr(&self) -> DevicePtr {
        match &self.held {
            Held::Raw(ptr) => *ptr,
            Held::Buffer(buffer) => buffer.as_device_ptr(),
        }
    }
}

/// A device and the program's state.
struct World {
    driver: Arc<EmulatedDriver>,
    device: Device,
    /// Streams, of which the first is the device's own.
    streams: Vec<Stream>,
    guards: Vec<PoolGuard>,
    captures: Vec<CaptureGuard>,
    pools: Vec<MemoryPool>,
    live: Vec<Live>,
    model: Model,
    /// Number of calls of the out-of-memory observer.
    observed: Arc<AtomicU64>,
    capacity: u64,
}

/// Runs one program of up to `steps` operations. Returns the number of operations.
pub fn run(choices: &mut dyn Choices, steps: usize) -> usize {
    let mut world = World::new(choices);
    let mut done = 0;
    while done < steps && choices.more() {
        world.step(choices);
        world.check();
        done += 1;
    }
    world.end(choices);
    done
}

fn random_options(choices: &mut dyn Choices, running: Option<&AllocatorOptions>) -> AllocatorOptions {
    let large = [20, 20, 4, 2][choices.below(4) as usize] * MIB;
    let mut options = AllocatorOptions {
        large_segment_size: large,
        max_split_size: choices.one_in(3).then(|| large + choices.below(40) * MIB),
        max_non_split_rounding: (20 + choices.below(2) * 20) * MIB,
        garbage_collection_threshold: if choices.one_in(3) { 0.3 } else { 0.0 },
        expandable_segments: choices.one_in(2),
        throw_on_cudamalloc_oom: choices.one_in(4),
        ..AllocatorOptions::default()
    };
    if choices.one_in(3) {
        options.roundup_power2_divisions = [1 << choices.below(5); 16];
    }
    if choices.one_in(4) {
        options.per_process_memory_fraction = 0.5 + choices.below(5) as f64 / 10.0;
    }
    match running {
        // These options must not change after memory was allocated.
        Some(running) => (options.backend, options.caching) = (running.backend, running.caching),
        None if choices.one_in(16) => options.backend = Backend::StreamOrdered,
        None => options.caching = !choices.one_in(16),
    }
    options
}

impl World {
    fn new(choices: &mut dyn Choices) -> Self {
        let capacity = [64, 128, 512, 2048][choices.below(4) as usize] * MIB;
        let driver = uses::driver(capacity);
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let options =
            if choices.one_in(4) { AllocatorOptions::default() } else { random_options(choices, None) };
        device.memory().set_options(options).unwrap();
        let observed = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&observed);
        device.memory().on_out_of_memory(move |_| _ = counter.fetch_add(1, Ordering::Relaxed));
        let mut streams = vec![device.default_stream()];
        if !choices.one_in(3) {
            streams.push(Stream::new(&device).unwrap());
        }
        let model = Model::new(streams.len() == 1);
        let (guards, captures, pools, live) = Default::default();
        Self { driver, device, streams, guards, captures, pools, live, model, observed, capacity }
    }

    fn step(&mut self, choices: &mut dyn Choices) {
        let fired = self.driver.failed_calls().len();
        match choices.below(100) {
            0..40 => self.allocate(choices, fired),
            40..70 => self.free(choices, fired),
            70..78 => self.use_elsewhere(choices, fired),
            78..81 => _ = choices_of(choices, &self.streams).synchronize(),
            81..83 => _ = self.device.synchronize(),
            83..86 => self.order_failure(choices),
            86..88 => self.empty_cache(choices, fired),
            88..90 => self.change_options(choices),
            90..94 => self.change_pools(choices, fired),
            94..96 => self.change_streams(choices, fired),
            96..98 => self.change_captures(choices),
            98 => self.reset_statistics(choices),
            _ => self.misuse(),
        }
        if let Some(error) = self.device.take_drop_error() {
            assert!(self.driver.failed_calls().len() > fired, "a drop failed by itself: {error}");
            self.model.may_keep_blocks();
        }
    }

    fn allocate(&mut self, choices: &mut dyn Choices, fired: usize) {
        let stream = choices_of(choices, &self.streams).clone();
        let bytes = self.size(choices);
        if self.live.len() >= MAX_LIVE {
            return self.free(choices, fired);
        }
        let held = if choices.one_in(2) {
            self.device.memory().allocate_raw(&stream, bytes as usize).map(Held::Raw)
        } else {
            DeviceBuffer::uninit(&stream, bytes as usize).map(Held::Buffer)
        };
        match held {
            Ok(held) => {
                let live = Live { held, bytes, stream };
                if bytes > 0 {
                    uses::write(&live.stream, live.ptr(), bytes);
                    self.model.allocated(live.ptr().0, bytes);
                } else {
                    assert_eq!(live.ptr(), DevicePtr::NULL);
                }
                self.live.push(live);
            }
            Err(Error::OutOfMemory(report)) => {
                self.model.ooms += 1;
                if self.driver.failed_calls().len() == fired
                    && self.captures.is_empty()
                    && self.guards.is_empty()
                {
                    self.must_be_out(bytes, &report);
                }
            }
            Err(Error::PoolReleased { .. }) => {}
            Err(error) => assert!(self.driver.failed_calls().len() > fired, "{bytes} bytes: {error}"),
        }
    }

    /// Checks that the device cannot have had memory for the request anywhere.
    fn must_be_out(&self, bytes: u64, report: &warpsmith_runtime::OutOfMemory) {
        let options = self.device.memory().options();
        let divisions = options.roundup_power2_divisions[0].max(1);
        let rounded = bytes + 511 + if divisions > 1 { bytes / u64::from(divisions) } else { 0 };
        // Pages are mapped for the missing part of a request, with at most one page more than that size.
        let rounded = if options.expandable_segments { rounded + 8 * MIB } else { rounded };
        let (free, reserved) = (self.device.memory_info().unwrap().free, self.device.memory().reserved());
        let allowed = report.limit.map_or(u64::MAX, |limit| limit.saturating_sub(reserved));
        assert!(rounded > free.min(allowed), "{bytes} bytes refused with {free} free: {report}");
    }

    fn size(&self, choices: &mut dyn Choices) -> u64 {
        match choices.below(12) {
            0 => choices.below(2),
            1 => 512 * (1 + choices.below(8)),
            2 => MIB - 512 + 512 * choices.below(4),
            3 => 10 * MIB - 512 + 512 * choices.below(4),
            4..7 => 1 + choices.below(MIB),
            7..9 => MIB + choices.below(9 * MIB),
            9 => 10 * MIB + choices.below(30 * MIB),
            10 => choices.below(self.capacity / 2),
            _ => 1 << choices.below(26),
        }
    }

    fn free(&mut self, choices: &mut dyn Choices, fired: usize) {
        if self.live.is_empty() {
            return;
        }
        let index = choices.below(self.live.len() as u64) as usize;
        let live = self.live.swap_remove(index);
        if live.bytes > 0 {
            self.model.freed(live.ptr().0);
        }
        match live.held {
            Held::Buffer(buffer) => drop(buffer),
            Held::Raw(ptr) => {
                // SAFETY: every stream that uses the memory was recorded, and the address has no memory that could be
                // in use.
                if let Err(error) = unsafe { self.device.memory().free_raw(ptr) } {
                    assert!(self.driver.failed_calls().len() > fired, "{error}");
                    self.model.may_keep_blocks();
                }
            }
        }
    }

    fn use_elsewhere(&mut self, choices: &mut dyn Choices, fired: usize) {
        if self.live.is_empty() {
            return;
        }
        let index = choices.below(self.live.len() as u64) as usize;
        let stream = choices_of(choices, &self.streams);
        let live = &mut self.live[index];
        let ptr = live.ptr();
        match &mut live.held {
            Held::Buffer(buffer) if choices.one_in(3) => {
                let whole = buffer.as_mut_slice();
                if let Err(error) = whole.stream().memset(whole, 0) {
                    assert!(self.driver.failed_calls().len() > fired, "{error}");
                }
                return;
            }
            Held::Buffer(buffer) => buffer.record_stream(stream).unwrap(),
            Held::Raw(ptr) => self.device.memory().record_stream(*ptr, stream).unwrap(),
        }
        if live.bytes > 0
            && let Err(error) = uses::read(stream, &live.stream, ptr, live.bytes)
        {
            assert!(self.driver.failed_calls().len() > fired, "{error}");
        }
    }

    fn order_failure(&mut self, choices: &mut dyn Choices) {
        if choices.one_in(3) {
            return self.driver.cancel_failures();
        }
        let call = *choices_of(choices, &CALLS);
        if matches!(call, Call::VirtualMap | Call::VirtualUnmap | Call::VirtualSetAccess) {
            // If unmapping a page fails after mapping it has failed, the page is lost together with its address.
            self.driver.cancel_failures();
        }
        self.driver.fail_call(call, choices.below(6));
    }

    fn empty_cache(&mut self, choices: &mut dyn Choices, fired: usize) {
        let emptied = match self.pools.last() {
            Some(pool) if choices.one_in(2) => pool.empty_cache(),
            _ => self.device.memory().empty_cache(),
        };
        match emptied {
            Ok(_) | Err(Error::PoolReleased { .. }) => {}
            Err(Error::Graph(GraphError::CaptureUnderway)) => assert!(!self.captures.is_empty()),
            Err(error) => assert!(self.driver.failed_calls().len() > fired, "{error}"),
        }
    }

    fn change_options(&mut self, choices: &mut dyn Choices) {
        let memory = self.device.memory();
        if choices.one_in(2) {
            memory.set_fraction(0.25 + choices.below(4) as f64 * 0.25).unwrap();
        } else {
            memory.set_options(random_options(choices, Some(&memory.options()))).unwrap();
        }
    }

    fn change_pools(&mut self, choices: &mut dyn Choices, fired: usize) {
        match choices.below(6) {
            0 | 1 if self.pools.len() < 3 => {
                let options = PoolOptions { no_split: choices.one_in(3), use_on_oom: choices.one_in(2) };
                self.pools.push(MemoryPool::with_options(&self.device, options).unwrap());
            }
            2 | 3 if !self.pools.is_empty() && self.guards.len() < 2 => {
                match choices_of(choices, &self.pools).enter() {
                    Ok(guard) => self.guards.push(guard),
                    Err(error) => assert!(matches!(error, Error::PoolReleased { .. }), "{error}"),
                }
            }
            4 if !self.pools.is_empty() => {
                let index = choices.below(self.pools.len() as u64) as usize;
                let pool = self.pools.swap_remove(index);
                if choices.one_in(2)
                    && let Err(error) = pool.release()
                {
                    assert!(self.driver.failed_calls().len() > fired, "{error}");
                }
            }
            _ => drop(self.guards.pop()),
        }
    }

    fn change_streams(&mut self, choices: &mut dyn Choices, fired: usize) {
        if self.streams.len() < MAX_STREAMS && choices.one_in(2) {
            match Stream::new(&self.device) {
                Ok(stream) => self.streams.push(stream),
                Err(error) => assert!(self.driver.failed_calls().len() > fired, "{error}"),
            }
            self.model.several_streams();
        } else if self.streams.len() > 1 {
            let index = 1 + choices.below(self.streams.len() as u64 - 1) as usize;
            drop(self.streams.swap_remove(index));
        }
    }

    fn change_captures(&mut self, choices: &mut dyn Choices) {
        if choices.one_in(3) && !self.pools.is_empty() {
            let stream = choices_of(choices, &self.streams).clone();
            match choices_of(choices, &self.pools).capture(&stream) {
                Ok(guard) => self.captures.push(guard),
                Err(error) => {
                    assert!(
                        matches!(
                            error,
                            Error::Graph(GraphError::CaptureUnderway) | Error::PoolReleased { .. }
                        ),
                        "{error}"
                    );
                }
            }
        } else {
            drop(self.captures.pop());
        }
    }

    fn reset_statistics(&mut self, choices: &mut dyn Choices) {
        match choices.below(3) {
            0 => {
                self.device.memory().reset_peak_statistics();
                self.model.reset_peaks();
            }
            1 => {
                self.device.memory().reset_accumulated_statistics();
                self.model.reset_accumulated();
                self.observed.store(0, Ordering::Relaxed);
            }
            _ => self.device.memory().record_history(choices.one_in(2).then_some(20)),
        }
    }

    /// Checks that a free of any address that is not live fails.
    fn misuse(&mut self) {
        let memory = self.device.memory();
        let inside = self.live.iter().map(Live::ptr).find(|ptr| *ptr != DevicePtr::NULL);
        for ptr in [DevicePtr(512), inside.map_or(DevicePtr(u64::MAX), |ptr| ptr.offset(1))] {
            // SAFETY: the call fails because the address is not that of an allocation.
            let freed = unsafe { memory.free_raw(ptr) };
            assert!(matches!(freed, Err(Error::NotAllocated { .. })));
        }
        let refused = memory.allocate_raw(&self.streams[0], (1 << 60) + 1).unwrap_err();
        assert!(
            matches!(refused, Error::AllocationTooLarge { .. } | Error::PoolReleased { .. }),
            "{refused}"
        );
    }

    fn check(&mut self) {
        assert_eq!(self.driver.take_races(), [""; 0]);
        let live: BTreeMap<u64, u64> =
            self.live.iter().filter(|l| l.bytes > 0).map(|l| (l.ptr().0, l.bytes)).collect();
        let fired = self.driver.failed_calls();
        self.model.check(&self.device, &live, &fired);
        assert_eq!(self.observed.load(Ordering::Relaxed), self.model.ooms);
        let statistics = self.device.memory().statistics();
        for pool in &self.pools {
            let known = statistics.reserved_bytes_by_private_pools.get(&pool.id());
            assert_eq!(pool.reserved(), known.map_or(0, |known| known.all.current));
            assert!(pool.allocated() <= pool.reserved());
        }
    }

    /// Frees everything, after which no memory may be left.
    fn end(mut self, choices: &mut dyn Choices) {
        self.driver.cancel_failures();
        if choices.one_in(2) {
            _ = self.device.synchronize();
        }
        self.captures.clear();
        self.guards.clear();
        self.check();
        while !self.live.is_empty() {
            self.free(choices, self.driver.failed_calls().len());
        }
        self.check();
        self.pools.clear();
        self.streams.truncate(choices.below(2) as usize);
        self.check();
        self.device.memory().empty_cache().unwrap();
        self.check();
        if self.device.memory().options().backend == Backend::StreamOrdered {
            self.device.synchronize().unwrap();
        }
        self.model.check_nothing_left(&self.device, &self.driver);
        let Self { device, driver, streams, .. } = self;
        drop(streams);
        assert!(device.take_drop_error().is_none());
        drop(device);
        assert_eq!(driver.take_races(), [""; 0]);
        let failed = driver.failed_calls();
        for (create, destroy) in
            [(Call::StreamCreate, Call::StreamDestroy), (Call::EventCreate, Call::EventDestroy)]
        {
            let made = driver.calls(create) - failed.iter().filter(|call| **call == create).count() as u64;
            assert_eq!(made, driver.calls(destroy), "{create:?} and {destroy:?}");
        }
    }
}

fn choices_of<'a, T>(choices: &mut dyn Choices, of: &'a [T]) -> &'a T {
    &of[choices.below(of.len() as u64) as usize]
}
