//! Tests of when, where and how often deleters are called.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::foreign::{Foreign, fixture};
use warpsmith_interop::dlpack::{DLManagedTensorVersioned, DlpackError, Export, Imported};
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::extension::in_host_function;
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Error, Graph, Stream};

const SECONDS: Duration = Duration::from_secs(60);

#[test]
fn an_unused_import_is_deleted_on_the_thread_that_drops_it() {
    let (.., [stream]) = fixture();
    let mut memory = [1u32, 2];
    let (foreign, deleted) = Foreign::new(&mut memory);
    drop(foreign.import().unwrap());
    assert_eq!(deleted.wait(), std::thread::current().id());

    let (foreign, deleted) = Foreign::new(&mut memory);
    let imported = foreign.import().unwrap();
    let thread = std::thread::spawn(move || {
        drop(imported);
        std::thread::current().id()
    });
    assert_eq!(deleted.wait(), thread.join().unwrap());

    let (foreign, deleted) = Foreign::new(&mut memory);
    // SAFETY: the tensor is valid, and nothing else uses its memory.
    let imported = unsafe { Imported::from_raw_unversioned(foreign.unversioned()) }.unwrap();
    let buffer = imported.into_buffer::<u32>(&stream).unwrap();
    assert_eq!(buffer.to_host().unwrap(), [1, 2]);
    stream.synchronize().unwrap();
    std::thread::spawn(move || drop(buffer)).join().unwrap();
    deleted.wait();
}

#[test]
fn a_deleter_waits_for_the_last_use_on_each_stream() {
    let (driver, _, [home, other]) = fixture();
    let mut memory = [1u32; 100];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let buffer = foreign.import().unwrap().into_buffer::<u32>(&home).unwrap();
    let mut copy = DeviceBuffer::zeros(&other, 100).unwrap();
    let hold = driver.hold();
    other.copy(&buffer, &mut copy).unwrap();
    drop(buffer);
    std::thread::sleep(Duration::from_millis(10));
    assert!(!deleted.is_there(), "the copy has not run");
    drop(hold);
    deleted.wait();
    assert_eq!(copy.to_host().unwrap(), [1; 100]);
}

#[test]
fn a_drop_in_a_host_function_deletes_elsewhere() {
    let (.., [stream]) = fixture();
    let mut memory = [1u32];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let imported = foreign.import().unwrap();
    stream.host_function(move || drop(imported)).unwrap();
    // The deleter asserts that it is not called in a host function.
    deleted.wait();
}

#[test]
fn a_tensor_without_a_deleter_is_only_forgotten() {
    let (.., [stream]) = fixture();
    let mut memory = [5u32];
    for is_versioned in [true, false] {
        let foreign = Foreign::new(&mut memory).0.with(|foreign| foreign.has_deleter = false);
        // SAFETY: the tensor is valid, and nothing else uses its memory.
        let imported = unsafe {
            match is_versioned {
                true => Imported::from_raw(foreign.versioned()),
                false => Imported::from_raw_unversioned(foreign.unversioned()),
            }
        };
        assert_eq!(imported.unwrap().into_buffer::<u32>(&stream).unwrap().to_host().unwrap(), [5]);
    }
}

#[test]
fn a_capture_keeps_a_tensor_until_it_ends() {
    let (.., [stream, other]) = fixture();
    let mut memory = [3u32; 10];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let mut copy = DeviceBuffer::<u32>::zeros(&stream, 10).unwrap();
    let mut kept = None;
    let graph = Graph::capture(&stream, || {
        let buffer = foreign.import()?.into_buffer::<u32>(&stream)?;
        stream.copy(&buffer, &mut copy)?;
        let (unused, is_deleted) = Foreign::new(&mut memory);
        drop(unused.import()?.into_buffer::<u32>(&other)?);
        kept = Some((buffer, is_deleted));
        Ok::<_, Error>(())
    })
    .unwrap();
    let (buffer, is_deleted) = kept.unwrap();
    is_deleted.wait();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(copy.to_host().unwrap(), [3; 10]);
    assert!(!deleted.is_there());
    drop(buffer);
    deleted.wait();
    exec.launch(&stream).unwrap_err();
}

/// An owner of memory that reports when it is dropped.
struct Theirs(#[allow(dead_code, reason = "it only owns")] DeviceBuffer<u8>, Sender<bool>);

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.1.send(in_host_function());
    }
}

fn buffer(stream: &Stream) -> (DeviceBuffer<u32>, Receiver<bool>) {
    let (ptr, len, owner) = DeviceBuffer::<u32>::zeros(stream, 100).unwrap().into_raw();
    let (sender, freed) = channel();
    // SAFETY: the memory is the owner's.
    (unsafe { DeviceBuffer::from_raw(stream, ptr, len, Theirs(owner, sender)) }.unwrap(), freed)
}

#[track_caller]
fn wait_freed(freed: &Receiver<bool>) {
    assert_eq!(freed.recv_timeout(SECONDS), Ok(false), "freed, and not in a host function");
    assert_eq!(freed.recv_timeout(SECONDS), Err(RecvTimeoutError::Disconnected), "once");
}

/// Calls the deleter, as a consumer does.
fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor was exported, and nothing uses it.
    unsafe { (*tensor).deleter.unwrap()(tensor) }
}

/// A tensor that is sent to another thread.
struct Sent(*mut DLManagedTensorVersioned);
// SAFETY: the deleter may be called on any thread.
unsafe impl Send for Sent {}

impl Sent {
    fn delete(self) {
        delete(self.0);
    }
}

#[test]
fn consumers_delete_on_any_thread_and_in_host_functions() {
    let (.., [stream]) = fixture();
    let export = || {
        let (buffer, freed) = buffer(&stream);
        (Sent(Export::new(buffer).into_raw().as_ptr()), freed)
    };
    let (tensor, freed) = export();
    tensor.delete();
    wait_freed(&freed);
    let (tensor, freed) = export();
    std::thread::spawn(move || tensor.delete()).join().unwrap();
    wait_freed(&freed);
    let (tensor, freed) = export();
    stream.host_function(move || tensor.delete()).unwrap();
    wait_freed(&freed);

    let (unversioned, freed) = buffer(&stream);
    let tensor = Export::new(unversioned).into_raw_unversioned().unwrap().as_ptr();
    // SAFETY: as in `delete`.
    unsafe { (*tensor).deleter.unwrap()(tensor) };
    wait_freed(&freed);
    // This export is never passed to a consumer.
    let (unused, freed) = buffer(&stream);
    drop(Export::new(unused).with_shape(&[10, 10]).unwrap());
    wait_freed(&freed);
}

#[test]
fn a_shared_buffer_lives_as_long_as_each_owner() {
    let (.., [stream]) = fixture();
    let (buffer, freed) = buffer(&stream);
    let buffer = Arc::new(buffer);
    let tensor = Export::shared(buffer.clone()).into_raw().as_ptr();
    assert_eq!(Arc::strong_count(&buffer), 2);
    drop(buffer);
    assert!(freed.try_recv().is_err());
    delete(tensor);
    wait_freed(&freed);
}

#[test]
fn the_consumers_work_is_waited_for() {
    let (driver, _, [home, consumer]) = fixture();
    let (buffer, freed) = buffer(&home);
    let mut export = Export::new(buffer);
    export.ready_on(&consumer).unwrap();
    let tensor = export.into_raw().as_ptr();
    let mut copy = DeviceBuffer::<u32>::zeros(&consumer, 1).unwrap();
    // The export has finished waiting, so only the deleter accounts for later work.
    consumer.synchronize().unwrap();
    let hold = driver.hold();
    // The consumer's own work, which the buffer does not track.
    consumer.memset(&mut copy, 1).unwrap();
    delete(tensor);
    std::thread::sleep(Duration::from_millis(10));
    assert!(freed.try_recv().is_err());
    drop(hold);
    wait_freed(&freed);

    // A shared buffer is written after that work.
    let shared = Arc::new(DeviceBuffer::<u32>::zeros(&home, 100).unwrap());
    let mut export = Export::shared(shared.clone());
    export.ready_on(&consumer).unwrap();
    let tensor = export.into_raw().as_ptr();
    let source = shared.as_device_ptr();
    consumer.synchronize().unwrap();
    let (sender, read) = channel();
    let hold = driver.hold();
    let reads = move || {
        std::thread::sleep(Duration::from_millis(10));
        let _ = sender.send(first(source));
    };
    // SAFETY: the buffer is shared with the consumer until the deleter is called, which is after this work.
    unsafe { consumer.enqueue_host(&[], reads) }.unwrap();
    delete(tensor);
    let mut shared = Arc::into_inner(shared).unwrap();
    home.memset(&mut shared, 0xFF).unwrap();
    drop(hold);
    assert_eq!(read.recv_timeout(SECONDS), Ok(0));
}

/// Reads the first element at a device address, which is also an address in the process.
fn first(ptr: DevicePtr) -> u32 {
    // SAFETY: the memory of an emulated device is the process's; the caller orders the read.
    unsafe { std::ptr::with_exposed_provenance::<u32>(ptr.0 as usize).read() }
}

#[test]
fn a_lost_device_frees_exports_and_imports() {
    let (driver, device, [stream]) = fixture();
    let mut memory = [1u32; 100];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let mut imported = foreign.import().unwrap().into_buffer::<u32>(&stream).unwrap();
    let (buffer, freed) = buffer(&stream);
    let tensor = Export::new(buffer).into_raw().as_ptr();
    let (kind, message) = (FaultKind::Other, "an illegal address".to_owned());
    let hold = driver.hold();
    stream.memset(&mut imported, 0).unwrap();
    driver.poison(0, Fault { kind, message, location: None, kernel: None, block: None, thread: None });
    drop(hold);
    assert!(stream.synchronize().unwrap_err().is_device_lost());
    delete(tensor);
    wait_freed(&freed);
    drop(imported);
    deleted.wait();
    // These imports are rejected, and their tensors are still deleted.
    let (foreign, deleted) = Foreign::new(&mut memory);
    let error = foreign.import().unwrap().into_buffer::<u32>(&stream).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    deleted.wait();
    assert!(error.downcast_ref::<DlpackError>().is_none() && device.is_lost());
}
