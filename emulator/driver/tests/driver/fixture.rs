//! [`Fixture`]: a device of an emulated driver, used through the driver's calls.
//!
//! Safety, everywhere in this file: the emulated driver checks device memory and rejects invalid accesses. Host memory
//! of copies lives until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]
#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use gpu_spec::Kernel;
use warpsmith_runtime::driver::Result;
use warpsmith_runtime::driver::{
    CodeDriver, Context, DevicePtr, Driver, EventHandle, Fault, FaultKind, LaunchConfig, MemoryDriver,
    ModuleSource, RowsCopy, StreamDriver, StreamHandle,
};
use warpsmith_runtime::emulated::EmulatedDriver;

use crate::common::{Iota, driver};

/// A device of a driver, with a context and a stream.
pub struct Fixture {
    pub driver: Arc<EmulatedDriver>,
    pub ordinal: u32,
    pub context: Context,
    pub stream: StreamHandle,
}

impl Fixture {
    pub fn new() -> Self {
        Self::of(&driver(1), 0)
    }

    /// Returns both devices of one driver.
    pub fn pair() -> [Self; 2] {
        let driver = driver(2);
        [Self::of(&driver, 0), Self::of(&driver, 1)]
    }

    pub fn of(driver: &Arc<EmulatedDriver>, ordinal: u32) -> Self {
        let driver = Arc::clone(driver);
        let context = driver.context_retain(ordinal).unwrap();
        let stream = driver.stream_create(context, 0).unwrap();
        Self { driver, ordinal, context, stream }
    }

    pub fn wait(&self) -> Result<()> {
        self.driver.stream_synchronize(self.context, self.stream)
    }

    /// Allocates a block with these bytes.
    pub fn block(&self, data: &[u8]) -> DevicePtr {
        let ptr = self.driver.memory_allocate(self.context, data.len()).unwrap();
        let src = data.as_ptr().cast();
        unsafe { self.driver.copy_to_device(self.context, ptr, src, data.len(), self.stream) }.unwrap();
        self.wait().unwrap();
        ptr
    }

    pub fn read(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        self.try_read(ptr, bytes).unwrap()
    }

    pub fn try_read(&self, ptr: DevicePtr, bytes: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; bytes];
        let dst = data.as_mut_ptr().cast();
        unsafe { self.driver.copy_to_host(self.context, dst, ptr, bytes, self.stream) }?;
        self.wait()?;
        Ok(data)
    }

    pub fn free(&self, ptr: DevicePtr) -> Result<()> {
        unsafe { self.driver.memory_free(self.context, ptr) }
    }

    pub fn call(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        self.driver.host_function(self.context, self.stream, Box::new(function))
    }

    pub fn event(&self) -> EventHandle {
        self.driver.event_create(self.context, false).unwrap()
    }

    pub fn copy_rows(&self, rows: RowsCopy) -> Result<()> {
        unsafe { self.driver.copy_rows(self.context, rows, self.stream) }
    }

    /// Enqueues a copy on this device's stream.
    pub fn copy_peer(
        &self,
        dst: (&Fixture, DevicePtr),
        src: (&Fixture, DevicePtr),
        bytes: usize,
    ) -> Result<()> {
        let (dst, src) = ((dst.0.context, dst.1), (src.0.context, src.1));
        unsafe { self.driver.copy_peer(self.context, dst, src, bytes, self.stream) }
    }

    /// Enqueues a kernel that writes `len` 4-byte elements.
    pub fn launch(&self, ptr: DevicePtr, len: u64) -> Result<()> {
        let module = self.driver.module_load(self.context, ModuleSource::HostEntries)?;
        let function = self.driver.module_function(self.context, module, Iota::spec())?;
        let config = LaunchConfig::new([len as u32, 1, 1], [1; 3], 0);
        let args: [*const c_void; 2] = [(&raw const ptr.0).cast(), (&raw const len).cast()];
        unsafe { self.driver.launch(self.context, function, &config, &args, self.stream) }
    }

    pub fn poison(&self) {
        let message = "ordered by the test".to_owned();
        let (kernel, block) = (None, None);
        let fault = Fault { kind: FaultKind::Panic, message, location: None, kernel, block, thread: None };
        self.driver.poison(self.ordinal, fault);
    }
}

#[track_caller]
pub fn refused<T>(result: Result<T>, code: u32, text: &str) {
    let Err(error) = result else { panic!("not refused") };
    assert!(error.code() == Some(code) && error.to_string().contains(text), "{error}");
}

/// Waits for a message, with a timeout.
#[track_caller]
pub fn receive<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(Duration::from_secs(60)).expect("no message came")
}
