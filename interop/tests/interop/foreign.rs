//! Tensors of another library, which report their deletion.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use warpsmith_interop::dlpack::{
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, Element, Imported,
};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::extension::in_host_function;
use warpsmith_runtime::{Device, Result, Stream};

const SECONDS: Duration = Duration::from_secs(60);

pub fn fixture<const N: usize>() -> (Arc<EmulatedDriver>, Device, [Stream; N]) {
    let driver = EmulatedDriver::builder().memory(1 << 28).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    let streams = std::array::from_fn(|_| Stream::new(&device).unwrap());
    (driver, device, streams)
}

/// A tensor in host memory, which a test can modify before it is passed on.
pub struct Foreign {
    pub tensor: DLTensor,
    pub version: DLPackVersion,
    pub flags: u64,
    pub has_deleter: bool,
    held: Box<Held>,
}

/// Shape and strides of the tensor, and the sender that reports its deletion.
struct Held {
    shape: Vec<i64>,
    strides: Vec<i64>,
    deleted: Sender<ThreadId>,
}

/// Receives the report that a tensor was deleted.
pub struct Deleted(Receiver<ThreadId>);

impl Deleted {
    pub fn is_there(&self) -> bool {
        self.0.try_recv().is_ok()
    }

    /// Waits until the tensor is deleted, and checks that it is deleted once.
    #[track_caller]
    pub fn wait(&self) -> ThreadId {
        let thread = self.0.recv_timeout(SECONDS).expect("deleted");
        assert_eq!(self.0.recv_timeout(SECONDS), Err(RecvTimeoutError::Disconnected), "deleted once");
        thread
    }
}

impl Foreign {
    /// A tensor of one dimension over `memory`, which must live until the deletion.
    pub fn new<T: Element>(memory: &mut [T]) -> (Self, Deleted) {
        let (deleted, receiver) = channel();
        let mut held = Box::new(Held { shape: vec![memory.len() as i64], strides: vec![1], deleted });
        let tensor = DLTensor {
            data: memory.as_mut_ptr().cast::<c_void>(),
            device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
            ndim: 1,
            dtype: T::DATA_TYPE,
            shape: held.shape.as_mut_ptr(),
            strides: held.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let version = DLPackVersion { major: 1, minor: 0 };
        (Self { tensor, version, flags: 0, has_deleter: true, held }, Deleted(receiver))
    }

    pub fn with_layout(mut self, shape: &[i64], strides: Option<&[i64]>) -> Self {
        self.held.shape = shape.to_vec();
        self.held.strides = strides.unwrap_or_default().to_vec();
        self.tensor.ndim = shape.len() as i32;
        self.tensor.shape = self.held.shape.as_mut_ptr();
        self.tensor.strides = strides.map_or(null_mut(), |_| self.held.strides.as_mut_ptr());
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn versioned(self) -> *mut DLManagedTensorVersioned {
        let Self { tensor: dl_tensor, version, flags, has_deleter, held } = self;
        let (manager_ctx, deleter) = (Box::into_raw(held).cast(), has_deleter.then_some(delete as _));
        Box::into_raw(Box::new(DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }))
    }

    pub fn unversioned(self) -> *mut DLManagedTensor {
        let Self { tensor: dl_tensor, has_deleter, held, .. } = self;
        let (manager_ctx, deleter) =
            (Box::into_raw(held).cast(), has_deleter.then_some(delete_unversioned as _));
        Box::into_raw(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter }))
    }

    /// Imports the versioned form.
    pub fn import(self) -> Result<Imported> {
        // SAFETY: the tensor is valid, and nothing else uses its memory.
        unsafe { Imported::from_raw(self.versioned()) }
    }
}

unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: both boxes were leaked by `versioned`.
    let (held, tensor) = unsafe { (Box::from_raw((*tensor).manager_ctx.cast()), Box::from_raw(tensor)) };
    deleted(*held);
    drop(tensor);
}

unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    let (held, tensor) = unsafe { (Box::from_raw((*tensor).manager_ctx.cast()), Box::from_raw(tensor)) };
    deleted(*held);
    drop(tensor);
}

fn deleted(held: Held) {
    assert!(!in_host_function());
    let _ = held.deleted.send(std::thread::current().id());
}
