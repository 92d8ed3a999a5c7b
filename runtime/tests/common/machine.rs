//! An emulated driver with streams and memory, used directly through driver calls.
#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::c_void;
use std::sync::Arc;

use gpu_spec::{KernelSpec, ParamKind, ParamSpec};
use warpsmith_runtime::DevicePtr;
use warpsmith_runtime::driver::{
    CodeDriver, Context, Driver, EventHandle, LaunchConfig, MemoryDriver, ModuleHandle, StreamDriver,
    StreamHandle,
};
use warpsmith_runtime::emulated::{EmulatedDriver, EmulatedDriverBuilder, Schedule};

const fn param(name: &'static str, kind: ParamKind, type_name: &'static str) -> ParamSpec {
    ParamSpec { name, kind, type_name, size: 4, align: 4, signature: 0 }
}

const fn kernel(
    symbol: &'static str,
    params: &'static [ParamSpec],
    entry: gpu_spec::HostEntry,
) -> KernelSpec {
    KernelSpec::new("test-kernels", "0.0.0", symbol, params, entry)
}

/// Appends to a log: `log[log[0] + 1] = id`, and increments `log[0]`.
static APPEND: KernelSpec = kernel(
    "append",
    &[param("log", ParamKind::SliceMut, "DisjointMut<u32>"), param("id", ParamKind::Value, "u32")],
    append,
);

/// Takes a slice that is read and a slice of atomics, and does nothing.
static LOOK: KernelSpec = kernel(
    "look",
    &[param("data", ParamKind::Slice, "&[u32]"), param("counts", ParamKind::Slice, "&[Atomic<u32>]")],
    look,
);

/// # Safety
/// `args` must match [`APPEND`], and nothing else may use the log.
unsafe fn append(args: *const *const c_void) {
    // SAFETY: the caller guarantees valid arguments; the log can store more entries than there are launches.
    unsafe {
        let log = (*args).cast::<*mut u32>().read();
        let id = (*args.add(2)).cast::<u32>().read();
        *log += 1;
        *log.add(*log as usize) = id;
    }
}

unsafe fn look(_args: *const *const c_void) {}

/// One device of a driver, with streams.
pub struct Machine {
    pub driver: Arc<EmulatedDriver>,
    pub context: Context,
    pub streams: Vec<StreamHandle>,
}

/// Returns the builder of a driver without worker threads that checks for races.
pub fn stepped(schedule: Schedule) -> EmulatedDriverBuilder {
    EmulatedDriver::builder().memory(1 << 30).stepped(schedule).check_races()
}

impl Machine {
    pub fn new(builder: EmulatedDriverBuilder, streams: usize) -> Self {
        Self::on(builder.build(), 0, streams)
    }

    pub fn on(driver: Arc<EmulatedDriver>, ordinal: u32, streams: usize) -> Self {
        let context = driver.context_retain(ordinal).unwrap();
        let streams = (0..streams).map(|_| driver.stream_create(context, 0).unwrap()).collect();
        Self { driver, context, streams }
    }

    /// Allocates device memory, filled with `0xFF`.
    pub fn memory(&self, bytes: usize) -> DevicePtr {
        self.driver.memory_allocate(self.context, bytes).unwrap()
    }

    pub fn free(&self, ptr: DevicePtr) -> warpsmith_runtime::driver::Result<()> {
        // SAFETY: tests do not use the memory afterwards, and the driver rejects the call while enqueued work uses the
        // memory.
        unsafe { self.driver.memory_free(self.context, ptr) }
    }

    /// Allocates page-locked memory, filled with `0xFF`.
    pub fn pinned(&self, bytes: usize) -> *mut c_void {
        self.driver.pinned_allocate(self.context, bytes).unwrap()
    }

    pub fn set(&self, stream: usize, dst: DevicePtr, value: u8, bytes: usize) {
        // SAFETY: tests' memory lives as long as the driver, or is freed after its work has run.
        unsafe { self.driver.memset(self.context, dst, value, bytes, self.streams[stream]) }.unwrap();
    }

    pub fn copy(&self, stream: usize, dst: DevicePtr, src: DevicePtr, bytes: usize) {
        // SAFETY: as above.
        unsafe { self.driver.copy_device(self.context, dst, src, bytes, self.streams[stream]) }.unwrap();
    }

    pub fn to_host(&self, stream: usize, dst: *mut c_void, src: DevicePtr, bytes: usize) {
        // SAFETY: as above, including for page-locked memory.
        unsafe { self.driver.copy_to_host(self.context, dst, src, bytes, self.streams[stream]) }.unwrap();
    }

    pub fn to_device(&self, stream: usize, dst: DevicePtr, src: *const c_void, bytes: usize) {
        // SAFETY: as above.
        unsafe { self.driver.copy_to_device(self.context, dst, src, bytes, self.streams[stream]) }.unwrap();
    }

    /// Records a new event.
    pub fn record(&self, stream: usize) -> EventHandle {
        let event = self.driver.event_create(self.context, false).unwrap();
        self.driver.event_record(self.context, event, self.streams[stream]).unwrap();
        event
    }

    pub fn wait(&self, stream: usize, event: EventHandle) {
        self.driver.stream_wait_event(self.context, self.streams[stream], event).unwrap();
    }

    /// Makes later work on `stream` wait for the work enqueued on `other`.
    pub fn order(&self, other: usize, stream: usize) {
        self.wait(stream, self.record(other));
    }

    pub fn sync(&self, stream: usize) {
        self.driver.stream_synchronize(self.context, self.streams[stream]).unwrap();
    }

    pub fn query(&self, stream: usize) -> bool {
        self.driver.stream_query(self.context, self.streams[stream]).unwrap()
    }

    fn launch(&self, stream: usize, kernel: &'static KernelSpec, args: &[*const c_void]) {
        let module = ModuleHandle(0);
        let function = self.driver.module_function(self.context, module, kernel).unwrap();
        let config = LaunchConfig::new([1; 3], [1; 3], 0);
        // SAFETY: the callers below pass matching arguments; the memory lives as long as in `set`.
        unsafe { self.driver.launch(self.context, function, &config, args, self.streams[stream]) }.unwrap();
    }

    /// Appends an ID to a log, as a single task.
    pub fn append(&self, stream: usize, log: DevicePtr, id: u32) {
        let (log, len) = (log.0, 1000u64);
        let args = [(&raw const log).cast(), (&raw const len).cast(), (&raw const id).cast()];
        self.launch(stream, &APPEND, &args);
    }

    /// Launches a kernel that reads this number of elements and changes others atomically.
    pub fn look(&self, stream: usize, data: (DevicePtr, u64), counts: (DevicePtr, u64)) {
        let args = [
            (&raw const data.0.0).cast(),
            (&raw const data.1).cast(),
            (&raw const counts.0.0).cast(),
            (&raw const counts.1).cast(),
        ];
        self.launch(stream, &LOOK, &args);
    }

    /// Creates a log of up to 999 IDs.
    pub fn log(&self) -> DevicePtr {
        let log = self.memory(4000);
        self.set(0, log, 0, 4000);
        self.sync(0);
        log
    }

    /// Returns the IDs of a log in order of arrival. No work may be running.
    pub fn ids(&self, log: DevicePtr) -> Vec<u32> {
        let words: Vec<u32> = self
            .bytes(log, 4000)
            .chunks(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        words[1..=words[0] as usize].to_vec()
    }

    /// Returns the current contents of device memory, which is host memory of the process. No work may be running.
    pub fn bytes(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        let start: *const u8 = std::ptr::with_exposed_provenance(ptr.0 as usize);
        // SAFETY: `ptr` is a live block of this size that was filled when it was allocated, and no work is running.
        unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
    }

    /// Returns the current contents of page-locked memory. No work may be running.
    pub fn pinned_bytes(&self, ptr: *mut c_void, bytes: usize) -> Vec<u8> {
        self.bytes(DevicePtr(ptr.expose_provenance() as u64), bytes)
    }

    pub fn races(&self) -> Vec<String> {
        self.driver.take_races()
    }
}
