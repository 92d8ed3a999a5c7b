//! Tests that buffers in memory that other code allocated are ordered like all others, and are freed after their last
//! use.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::*;
use crate::support::pinned::panicked;
use warpsmith_runtime::driver::{Context, MemoryDriver};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::extension::{Access, in_host_function};
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Error, Graph, GraphError, Launch, Stream};

const SECONDS: Duration = Duration::from_secs(60);

/// Result of freeing memory, and the thread that freed it.
type Freed = (Result<(), String>, ThreadId);

/// Memory of another library, which frees it on drop and reports the result and the thread.
struct Theirs {
    driver: Arc<EmulatedDriver>,
    context: Context,
    ptr: DevicePtr,
    freed: Sender<Freed>,
}

impl Drop for Theirs {
    fn drop(&mut self) {
        assert!(!in_host_function());
        // SAFETY: the memory was allocated here, and is no longer in use when its owner is dropped.
        let freed = unsafe { self.driver.memory_free(self.context, self.ptr) };
        let _ = self.freed.send((freed.map_err(|error| error.to_string()), std::thread::current().id()));
    }
}

struct Fixture {
    driver: Arc<EmulatedDriver>,
    device: Device,
    freed: (Sender<Freed>, Receiver<Freed>),
}

impl Fixture {
    fn new(driver: Arc<EmulatedDriver>) -> Self {
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        Self { driver, device, freed: channel() }
    }

    /// Creates a zeroed buffer in memory of another library.
    fn buffer(&self, stream: &Stream, len: usize) -> DeviceBuffer<u32> {
        // SAFETY: the context is the device's, which is alive.
        let context = unsafe { self.device.driver() }.1;
        let ptr = self.driver.memory_allocate(context, len * 4).unwrap();
        let freed = self.freed.0.clone();
        let theirs = Theirs { driver: self.driver.clone(), context, ptr, freed };
        // SAFETY: the memory contains this number of elements and lives as long as its owner, and no other code uses
        // it.
        let mut buffer = unsafe { DeviceBuffer::from_raw(stream, ptr, len, theirs) }.unwrap();
        stream.memset(&mut buffer, 0).unwrap();
        buffer
    }

    fn is_freed(&self) -> bool {
        self.freed.1.try_recv().is_ok()
    }

    /// Waits until the memory is freed.
    #[track_caller]
    fn wait_freed(&self) -> ThreadId {
        let (freed, thread) = self.freed.1.recv_timeout(SECONDS).expect("freed");
        freed.expect("nothing uses it");
        thread
    }
}

fn fixture() -> Fixture {
    Fixture::new(driver(1))
}

#[test]
fn a_stream_ordered_owner_is_dropped_at_once() {
    let fixture = Fixture::new(driver(1));
    let [home, other] = [(); 2].map(|()| Stream::new(&fixture.device).unwrap());
    let memory = DeviceBuffer::<u32>::zeros(&home, 8).unwrap();
    let (release, held) = channel::<()>();
    other.host_function(move || held.recv().unwrap()).unwrap();
    let (sender, receiver) = channel::<()>();
    // SAFETY: `memory` outlives all uses, and nothing else uses it.
    let buffer = unsafe { DeviceBuffer::from_raw_stream_ordered(&home, memory.as_device_ptr(), 8, sender) };
    let mut buffer: DeviceBuffer<u32> = buffer.unwrap();
    other.memset(&mut buffer, 1).unwrap();
    drop(buffer);
    assert_eq!(receiver.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    // Later work on the home stream is behind the other stream's use.
    assert!(!home.record_event().unwrap().query().unwrap());
    release.send(()).unwrap();
    assert_eq!(memory.to_host().unwrap(), [0x01010101; 8]);
}

#[test]
fn the_owner_outlives_uses_on_every_stream() {
    let fixture = fixture();
    let [home, second, third] = [(); 3].map(|()| Stream::new(&fixture.device).unwrap());
    let kernel = module(&fixture.device).kernel::<Mix>().unwrap();
    let mut buffer = fixture.buffer(&home, 1000);
    let mut other = DeviceBuffer::<u32>::zeros(&third, 1000).unwrap();
    let hold = fixture.driver.hold();
    kernel.launch(&second, Launch::auto(1000), (1u32, &other, &mut buffer)).unwrap();
    kernel.launch(&third, Launch::auto(1000), (1u32, &buffer, &mut other)).unwrap();
    drop(buffer);
    assert!(!fixture.is_freed(), "work is enqueued");
    drop(hold);
    assert_ne!(fixture.wait_freed(), std::thread::current().id());
    assert_eq!(other.to_host().unwrap(), vec![mixed(1, mixed(1, 0, 0), 0); 1000]);
}

#[test]
fn an_unused_owner_is_dropped_at_once() {
    let fixture = fixture();
    let stream = Stream::new(&fixture.device).unwrap();
    let buffer = fixture.buffer(&stream, 10);
    stream.synchronize().unwrap();
    drop(buffer);
    assert_eq!(fixture.wait_freed(), std::thread::current().id());
    drop(fixture.buffer(&stream, 10));
    drop(stream);
    fixture.wait_freed();
}

#[test]
fn a_graph_uses_it_until_it_is_dropped() {
    let fixture = fixture();
    let stream = Stream::new(&fixture.device).unwrap();
    let kernel = module(&fixture.device).kernel::<Mix>().unwrap();
    let mut buffer = fixture.buffer(&stream, 100);
    let own = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let graph =
        Graph::capture(&stream, || kernel.launch(&stream, Launch::auto(100), (1u32, &own, &mut buffer)))
            .unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.to_host().unwrap(), [1; 100]);
    let other = Stream::new(&fixture.device).unwrap();
    let hold = fixture.driver.hold();
    exec.launch(&other).unwrap();
    drop(buffer);
    assert!(!fixture.is_freed(), "the launch uses it");
    let error = exec.launch(&stream).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::BufferDropped { bytes: 400, .. })), "{error}");
    drop(hold);
    fixture.wait_freed();
}

#[test]
fn a_capture_delays_the_end_of_uses() {
    let fixture = fixture();
    let [stream, other] = [(); 2].map(|()| Stream::new(&fixture.device).unwrap());
    let buffer = fixture.buffer(&stream, 100);
    let mut own = DeviceBuffer::<u32>::zeros(&other, 100).unwrap();
    let graph = Graph::capture(&stream, || {
        drop(buffer);
        other.memset(&mut own, 0)?;
        other.synchronize()?;
        std::thread::sleep(Duration::from_millis(10));
        assert!(!fixture.is_freed(), "no host function may be enqueued");
        Ok::<_, Error>(())
    })
    .unwrap();
    fixture.wait_freed();
    assert_eq!(graph.node_count().unwrap(), 0, "the host function is not of the graph");
}

#[test]
fn a_lost_device_releases_its_owners() {
    // The device is lost either before or after the drop.
    for before in [true, false] {
        let fixture = fixture();
        let [stream, other] = [(); 2].map(|()| Stream::new(&fixture.device).unwrap());
        let kernel = module(&fixture.device).kernel::<Mix>().unwrap();
        let buffer = fixture.buffer(&stream, 100);
        let mut own = DeviceBuffer::<u32>::zeros(&other, 100).unwrap();
        let hold = fixture.driver.hold();
        kernel.launch(&other, Launch::auto(100), (1u32, &buffer, &mut own)).unwrap();
        let mut buffer = Some(buffer);
        if !before {
            buffer.take();
        }
        fixture.driver.poison(0, panicked());
        drop(buffer);
        drop(hold);
        assert!(other.synchronize().unwrap_err().is_device_lost());
        let _ = fixture.freed.1.recv_timeout(SECONDS).expect("dropped, whatever the driver says to the free");
        // After these drops, only the fixture owns a handle to the device.
        drop((own, stream, other, kernel));
        let Fixture { driver, device, .. } = fixture;
        let weak = device.downgrade();
        drop(device);
        let end = std::time::Instant::now() + SECONDS;
        while weak.upgrade().is_some() {
            assert!(std::time::Instant::now() < end, "something holds the device");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(driver);
    }
}

#[test]
fn without_a_host_function_the_drop_waits() {
    let fixture = fixture();
    let stream = Stream::new(&fixture.device).unwrap();
    let buffer = fixture.buffer(&stream, 100);
    fixture.driver.fail_call(Call::HostFunction, 0);
    drop(buffer);
    assert_eq!(fixture.wait_freed(), std::thread::current().id());
    assert!(fixture.device.take_drop_error().is_none());

    // The memory is kept because the end of its use is never reported.
    let buffer = fixture.buffer(&stream, 100);
    fixture.driver.fail_call(Call::HostFunction, 0);
    fixture.driver.fail_call(Call::StreamSynchronize, 0);
    drop(buffer);
    fixture.device.synchronize().unwrap();
    assert!(fixture.device.take_drop_error().is_some());
    assert!(!fixture.is_freed());
}

#[test]
fn an_owner_dropped_in_a_host_function_survives() {
    let fixture = fixture();
    let stream = Stream::new(&fixture.device).unwrap();
    let buffer = fixture.buffer(&stream, 100);
    stream.host_function(move || drop(buffer)).unwrap();
    fixture.wait_freed();
}

#[test]
fn streams_of_other_devices_are_users_too() {
    let fixture = Fixture::new(driver(2));
    let peer = Device::with_driver(fixture.driver.clone(), 1).unwrap();
    let (home, theirs) = (Stream::new(&fixture.device).unwrap(), Stream::new(&peer).unwrap());
    let buffer = fixture.buffer(&home, 1000);
    home.synchronize().unwrap();
    let mut target = DeviceBuffer::<u32>::uninit(&theirs, 1000).unwrap();
    let hold = fixture.driver.hold();
    theirs.copy(&buffer, &mut target).unwrap();
    drop(buffer);
    home.query().unwrap();
    assert!(!fixture.is_freed());
    drop(hold);
    fixture.wait_freed();
    assert_eq!(target.to_host().unwrap(), [0; 1000]);
}

#[test]
fn an_owner_may_hold_its_device() {
    let (driver, device) = device();
    let stream = Stream::new(&device).unwrap();
    let theirs = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let (ptr, len, owner) = theirs.into_raw();
    // SAFETY: the owner keeps this memory alive.
    let ours = unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, len, owner) }.unwrap();
    let copy = ours.clone_on(&stream).unwrap();
    drop(ours);
    assert_eq!(copy.to_host().unwrap(), [1, 2, 3]);
    drop((copy, stream, device));
    let end = std::time::Instant::now() + SECONDS;
    while driver.calls(Call::ContextRelease) == 0 {
        assert!(std::time::Instant::now() < end, "something holds the device");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn addresses_that_cannot_be_used_are_refused() {
    let fixture = Fixture::new(driver(2));
    let peer = Device::with_driver(fixture.driver.clone(), 1).unwrap();
    let stream = Stream::new(&fixture.device).unwrap();
    let own = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let theirs = DeviceBuffer::<u32>::zeros(&Stream::new(&peer).unwrap(), 100).unwrap();
    let ptr = own.as_device_ptr();
    // SAFETY: none of the calls creates a buffer, except the one without elements.
    unsafe {
        let of = |ptr, len| DeviceBuffer::<u32>::from_raw(&stream, ptr, len, ());
        let text = |ptr, len| of(ptr, len).unwrap_err().to_string();
        assert!(text(DevicePtr::NULL, 1).contains("the address is null"));
        assert!(text(ptr.offset(2), 1).contains("not a multiple of 4"));
        assert!(text(DevicePtr(u64::MAX - 3), 1).contains("ends beyond the address space"));
        assert!(text(DevicePtr(64), 1).contains("the driver does not know this memory"));
        assert!(matches!(of(ptr, usize::MAX / 2).unwrap_err(), Error::TooManyElements { .. }));
        let error = of(theirs.as_device_ptr(), 100).unwrap_err();
        assert!(
            matches!(&error, Error::DifferentDevices { found, expected, .. }
                if (found.ordinal(), expected.ordinal()) == (1, 0)),
            "{error}"
        );
        assert_eq!(of(DevicePtr::NULL, 0).unwrap().to_host().unwrap(), [0u32; 0]);
    }
    fixture.driver.fail_call(Call::MemoryDevice, 0);
    // SAFETY: the call fails without accessing the memory.
    unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, 1, ()) }.unwrap_err();
}

/// With ATS, kernels can access host memory that the driver does not know.
#[test]
fn pageable_memory_is_used_where_the_device_can_access_it() {
    let fixture = Fixture::new(EmulatedDriver::builder().pageable_access().build());
    let stream = Stream::new(&fixture.device).unwrap();
    let kernel = module(&fixture.device).kernel::<Mix>().unwrap();
    let mut host = [1u32, 2, 3];
    let source = DeviceBuffer::from_host(&stream, &[10u32, 20, 30]).unwrap();
    let mut expected = DeviceBuffer::from_host(&stream, &host).unwrap();
    let ptr = DevicePtr(host.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: the elements live until the buffer has been dropped and the stream has finished.
    let mut buffer = unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, 3, ()) }.unwrap();
    for target in [&mut buffer, &mut expected] {
        kernel.launch(&stream, Launch::auto(3), (1u32, &source, target)).unwrap();
    }
    let expected = expected.to_host().unwrap();
    drop(buffer);
    stream.synchronize().unwrap();
    assert_eq!(host[..], expected);
    assert_ne!(host, [1, 2, 3]);

    fixture.driver.fail_call(Call::AccessesPageable, 0);
    // SAFETY: the call fails without accessing the memory.
    unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, 3, ()) }.unwrap_err();
}

#[test]
fn a_failed_adoption_drops_the_owner() {
    let (_, device) = device();
    let (sender, dropped) = channel::<()>();
    // SAFETY: the call fails without accessing the memory.
    unsafe { DeviceBuffer::<u32>::from_raw(&device.default_stream(), DevicePtr::NULL, 1, sender) }
        .unwrap_err();
    assert_eq!(dropped.recv_timeout(SECONDS), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn host_memory_is_used_in_place_by_several_buffers() {
    let (driver, device) = device();
    let stream = Stream::new(&device).unwrap();
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let host = NonNull::from(Box::leak(Box::new([1u32, 2, 3, 4]))).cast::<u32>();
    let (freed, is_freed) = channel();
    // SAFETY: the elements live until the end of the test. Work on the two buffers is on one stream.
    let (whole, mut tail) = unsafe {
        let whole = DeviceBuffer::from_host_raw(&stream, host, 4, freed).unwrap();
        (whole, DeviceBuffer::from_host_raw(&stream, host.add(1), 3, ()).unwrap())
    };
    assert_eq!(driver.live_registered(), 2);
    kernel.launch(&stream, Launch::auto(3), (1u32, &whole.slice(..3), &mut tail)).unwrap();
    drop(whole);
    assert_eq!(is_freed.recv_timeout(SECONDS), Err::<(), _>(RecvTimeoutError::Disconnected));
    tail.slice_mut(..1).copy_from_host(&[7]).unwrap();
    stream.synchronize().unwrap();
    drop(tail);
    assert_eq!(driver.live_registered(), 0);
    assert!(device.take_drop_error().is_none());
    // SAFETY: the leaked elements are no longer used by other code.
    assert_eq!(unsafe { Box::from_raw(host.cast::<[u32; 4]>().as_ptr()) }[..2], [1, 7]);

    for call in [Call::HostExpose, Call::MemoryDevice] {
        driver.fail_call(call, 0);
        // SAFETY: it is rejected.
        unsafe { DeviceBuffer::from_host_raw(&stream, NonNull::from(&mut 1u32), 1, ()) }.unwrap_err();
        assert_eq!(driver.live_registered(), 0, "{}", call.name());
    }
}

#[test]
fn a_raw_buffer_comes_back_whole() {
    let (driver, device) = device();
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let buffer = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0]).unwrap();
    let address = buffer.as_device_ptr();
    let (ptr, len, owner) = buffer.into_raw();
    assert_eq!((ptr, len, owner.len()), (address, 2, 8));
    // SAFETY: no work is enqueued.
    unsafe { other.enqueue(&[owner.as_slice().used(Access::Write)], |_| Ok::<_, Error>(())) }.unwrap();
    assert_eq!(owner.cast::<f32>().unwrap().to_host().unwrap(), [1.0, 2.0]);

    device.memory().empty_cache().unwrap();
    let live = driver.live_allocations(0);
    let leaked = DeviceBuffer::from_host(&stream, &[7u8; 3 << 20]).unwrap().leak();
    device.memory().empty_cache().unwrap();
    assert!(driver.live_allocations(0) > live);
    assert_eq!(leaked.to_host().unwrap(), vec![7; 3 << 20]);
}

#[test]
fn casts_keep_bytes_or_are_refused() {
    let (_, device) = device();
    let stream = Stream::new(&device).unwrap();
    let mut buffer = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4, 5, 6]).unwrap();
    let pairs = buffer.slice(1..5).cast::<[u32; 2]>().unwrap();
    assert_eq!(pairs.to_host().unwrap(), [[2, 3], [4, 5]]);
    assert_eq!(pairs.slice(1..).cast::<u16>().unwrap().to_host().unwrap(), [4, 0, 5, 0]);
    let text = buffer.slice(..5).cast::<[u32; 2]>().unwrap_err().to_string();
    assert!(
        text.contains("5 elements of `u32`") && text.contains("20 bytes are not a whole number"),
        "{text}"
    );
    let text = buffer.slice(1..5).cast::<u64>().unwrap_err().to_string();
    assert!(text.contains("not a multiple of 8"), "{text}");
    stream.memset(buffer.slice_mut(2..4).cast::<u64>().unwrap(), 0).unwrap();
    let bytes = buffer.cast::<u8>().unwrap();
    assert_eq!(bytes.len(), 24);
    assert!(bytes.as_slice().cast::<[u8; 5]>().is_err() && bytes.as_slice().cast::<[u8; 0]>().is_err());
    let back = bytes.cast::<u32>().unwrap();
    assert_eq!(back.to_host().unwrap(), [1, 2, 0, 0, 5, 6]);

    let empty = DeviceBuffer::<u8>::uninit(&stream, 0).unwrap().cast::<u64>().unwrap();
    assert_eq!((empty.len(), empty.cast::<[u8; 0]>().unwrap().len()), (0, 0));
    let none = DeviceBuffer::<[u32; 0]>::uninit(&stream, 9).unwrap();
    assert_eq!(none.as_slice().cast::<[u8; 0]>().unwrap().len(), 9);
    assert_eq!(none.cast::<u8>().unwrap().len(), 0);
}

#[test]
fn a_clone_is_a_copy_behind_earlier_work() {
    let (driver, device) = device();
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let ones = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut buffer = DeviceBuffer::zeros(&stream, 50).unwrap();
    let hold = driver.hold();
    kernel.launch(&other, Launch::auto(50), (0u32, &ones, &mut buffer)).unwrap();
    let copy = buffer.clone_on(&stream).unwrap();
    stream.memset(&mut buffer, 0).unwrap();
    drop(hold);
    assert_eq!((copy.to_host().unwrap(), buffer.to_host().unwrap()), (vec![17; 50], vec![0; 50]));
    assert!(DeviceBuffer::<u32>::uninit(&stream, 0).unwrap().clone_on(&other).unwrap().is_empty());
}
