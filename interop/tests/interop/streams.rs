//! Tests of the order between the producer's and the consumer's work.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::foreign::{Foreign, fixture};
use warpsmith_interop::dlpack::{DlpackError, Export, Imported, stream_argument};
use warpsmith_runtime::driver::CaptureMode;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Capture, DeviceBuffer, DevicePtr, Error, GraphError, Stream};

/// Enqueues slow work that writes a value to each element.
fn write_slowly(stream: &Stream, buffer: &mut DeviceBuffer<u32>, value: u32) {
    let (DevicePtr(address), len) = (buffer.as_device_ptr(), buffer.len());
    let used = [buffer.as_mut_slice().used()];
    let work = move || {
        std::thread::sleep(Duration::from_millis(50));
        let first = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
        // SAFETY: the work may write these elements, because `used` declares the use.
        (0..len).for_each(|at| unsafe { first.add(at).write(value) });
    };
    // SAFETY: as above.
    unsafe { stream.enqueue_host(&used, work) }.unwrap();
}

#[test]
fn a_consumer_on_the_host_reads_what_was_written() {
    let (.., [stream, other]) = fixture();
    for writer in [&stream, &other] {
        let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 4).unwrap();
        write_slowly(writer, &mut buffer, 7);
        let mut export = Export::new(buffer);
        // SAFETY: there is no handle.
        unsafe { export.ready_for(None) }.unwrap();
        let tensor = export.into_raw().as_ptr();
        // SAFETY: the tensor has four elements in host memory, which nothing else uses.
        unsafe {
            let elements = (*tensor).dl_tensor.data.cast::<[u32; 4]>();
            assert_eq!(*elements, [7; 4]);
            (*tensor).deleter.unwrap()(tensor);
        }
    }
}

#[test]
fn a_consumers_stream_waits_without_the_host() {
    let (driver, _, [home, writer, consumer]) = fixture();
    let mut buffer = DeviceBuffer::<u32>::zeros(&home, 4).unwrap();
    home.synchronize().unwrap();
    let hold = driver.hold();
    write_slowly(&writer, &mut buffer, 9);
    let mut export = Export::new(buffer);
    export.ready_on(&consumer).unwrap();
    let tensor = export.into_raw().as_ptr();
    // SAFETY: the tensor is alive.
    let address = unsafe { (*tensor).dl_tensor.data.addr() };
    let (sender, read) = channel();
    let reads = move || {
        let first = std::ptr::with_exposed_provenance::<u32>(address);
        // SAFETY: the stream has waited for the write, and the memory stays until this work has run.
        let _ = sender.send(unsafe { first.read() });
    };
    // SAFETY: as above.
    unsafe { consumer.enqueue_host(&[], reads) }.unwrap();
    // SAFETY: the consumer enqueues nothing more.
    unsafe { (*tensor).deleter.unwrap()(tensor) };
    assert_eq!(driver.calls(Call::StreamSynchronize), 1, "the host does not wait");
    drop(hold);
    assert_eq!(read.recv_timeout(Duration::from_secs(60)), Ok(9));
}

#[test]
fn an_imported_tensor_is_ordered_after_the_stream_of_the_import() {
    let (.., [theirs, ours]) = fixture();
    let mut memory = vec![0u32; 4];
    let (foreign, _) = Foreign::new(&mut memory);
    let address = foreign.tensor.data.addr();
    let writes = move || {
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: the memory has four elements, and nothing else uses them before this work has run.
        unsafe { std::ptr::with_exposed_provenance_mut::<[u32; 4]>(address).write([4; 4]) };
    };
    foreign.tensor.data.expose_provenance();
    // SAFETY: as above.
    unsafe { theirs.enqueue_host(&[], writes) }.unwrap();
    let buffer = foreign.import().unwrap().into_buffer::<u32>(&theirs).unwrap();
    assert_eq!(buffer.clone_on(&ours).unwrap().to_host().unwrap(), [4; 4]);
}

#[test]
fn an_own_tensor_that_comes_back_waits_for_the_holders_stream() {
    let (.., [home, holder]) = fixture();
    let buffer = DeviceBuffer::<u32>::zeros(&home, 4).unwrap();
    home.synchronize().unwrap();
    let tensor = Export::new(buffer).into_raw().as_ptr();
    // SAFETY: the tensor is alive, and ready on any stream.
    let address = unsafe { (*tensor).dl_tensor.data.expose_provenance() };
    let writes = move || {
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: the memory has four elements, which nothing else uses meanwhile.
        unsafe { std::ptr::with_exposed_provenance_mut::<[u32; 4]>(address).write([5; 4]) };
    };
    // SAFETY: as above.
    unsafe { holder.enqueue_host(&[], writes) }.unwrap();
    // SAFETY: the tensor was exported, and all work on it is on `holder`.
    let buffer = unsafe { Imported::from_raw(tensor) }.unwrap().into_buffer::<u32>(&holder).unwrap();
    assert_eq!(buffer.stream(), &home);
    assert_eq!(buffer.to_host().unwrap(), [5; 4]);
}

#[test]
fn stream_arguments_of_host_tensors() {
    let (.., [stream]) = fixture();
    assert_eq!(stream_argument(&stream), None);
    let mut export = Export::new(DeviceBuffer::<u32>::zeros(&stream, 4).unwrap());
    // SAFETY: handles are rejected.
    unsafe {
        export.ready_for(Some(-1)).unwrap();
        for handle in [0, 1, 2, 1 << 40] {
            let error = export.ready_for(Some(handle)).unwrap_err();
            assert_eq!(error.downcast_ref(), Some(&DlpackError::HostStream { stream: handle }));
        }
    }
    let (.., [elsewhere]) = fixture();
    assert!(matches!(export.ready_on(&elsewhere).unwrap_err(), Error::DifferentDevices { .. }));
    let capture = Capture::begin(&stream, CaptureMode::Relaxed).unwrap();
    // SAFETY: there is no handle.
    let error = unsafe { export.ready_for(None) }.unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NotCapturable { .. })), "{error}");
    drop(capture);
    // SAFETY: as above.
    unsafe { export.ready_for(None) }.unwrap();
}
