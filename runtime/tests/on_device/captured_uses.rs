//! Tests of buffers that an active capture uses. A call that would return an old value, or overwrite a value that
//! captured work will read, must fail.

use crate::turn;
use crate::under_test::shared_device;
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Event, Graph, GraphError, PinnedBuffer, Stream};

/// A device with the captured stream, and the home stream of the buffers.
struct Fixture {
    device: Device,
    captured: Stream,
    home: Stream,
}

impl Fixture {
    fn new() -> Self {
        let device = shared_device();
        let [captured, home] = [(); 2].map(|()| Stream::new(&device).unwrap());
        Self { device, captured, home }
    }

    fn buffer(&self, value: u8) -> DeviceBuffer<u8> {
        DeviceBuffer::from_host(&self.home, &[value; 64]).unwrap()
    }
}

/// Asserts that the call fails with an error that names it.
#[track_caller]
fn refused<T>(result: Result<T, Error>, call: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{call} was not refused"));
    assert!(matches!(&error, Error::Graph(GraphError::UsedInCapture { bytes: 64, .. })), "{call}: {error}");
    assert!(error.to_string().starts_with(&format!("{call}: ")), "{call}: {error}");
}

#[test]
fn no_host_read_returns_what_captured_work_overwrites() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { device, captured, home } = &fixture;
    let (mut y, mut beside, mut side) = (fixture.buffer(1), fixture.buffer(2), fixture.buffer(3));
    let other = Stream::from_pool(device).unwrap();
    let exec = Graph::capture(home, || home.copy(&y, &mut side)).unwrap().instantiate().unwrap();
    let pending = other.copy_to_host_async(&y, vec![0; 64]).unwrap();
    let event = Event::new(device).unwrap();
    event.record(home).unwrap();
    let graph = Graph::capture(captured, || {
        captured.memset(y.slice_mut(..32), 9)?;
        refused(y.to_host(), "DeviceBuffer::to_host");
        refused(y.slice(31..33).to_host(), "DeviceBuffer::to_host");
        refused(y.copy_to_host(&mut [0; 64]), "DeviceBuffer::copy_to_host");
        refused(other.copy_to_host_async(&y, vec![0; 64]).map_err(Error::from), "Stream::copy_to_host_async");
        let pinned = PinnedBuffer::zeroed(device, 64)?;
        refused(other.copy_to_host_async(&y, pinned).map_err(Error::from), "Stream::copy_to_host_async");
        refused(home.copy(&y, &mut beside), "Stream::copy");
        let (from, to) = (y.as_2d(8, 8)?, beside.as_2d_mut(8, 8)?);
        refused(home.copy_rows(from, to), "Stream::copy_rows");
        refused(exec.launch(home), "GraphExec::launch");
        // Elements that the capture does not write are unchanged, and so is all work enqueued earlier.
        assert_eq!(y.slice(32..).to_host()?, [1; 32]);
        assert_eq!(beside.to_host()?, [2; 64]);
        home.synchronize()?;
        event.synchronize()?;
        Ok::<(), Error>(())
    })
    .unwrap();
    assert_eq!(pending.wait().unwrap(), [1; 64]);
    assert_eq!(y.to_host().unwrap(), [1; 64], "the capture has ended, and nothing has run");
    graph.instantiate().unwrap().launch(captured).unwrap();
    let now = [[9; 32], [1; 32]].concat();
    assert_eq!(y.to_host().unwrap(), now);
    exec.launch(home).unwrap();
    assert_eq!(side.to_host().unwrap(), now);
}

#[test]
fn no_write_of_the_host_overtakes_captured_reads() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { device, captured, home } = &fixture;
    let (mut x, mut y, three) = (fixture.buffer(1), fixture.buffer(2), fixture.buffer(3));
    let other = Stream::from_pool(device).unwrap();
    let graph = Graph::capture(captured, || {
        // This copy runs before the captured read, as in stepwise execution.
        x.copy_from_host(&[4; 64])?;
        captured.copy(x.slice(..32), y.slice_mut(..32))?;
        refused(x.copy_from_host(&[5; 64]), "DeviceBuffer::copy_from_host");
        refused(
            other.copy_from_host_async(vec![5; 64], &mut x).map_err(Error::from),
            "Stream::copy_from_host_async",
        );
        let large = PinnedBuffer::zeroed(device, 64)?;
        refused(
            other.copy_from_host_async(large, &mut x).map_err(Error::from),
            "Stream::copy_from_host_async",
        );
        refused(home.memset(&mut x, 5), "Stream::memset");
        refused(home.copy(&three, &mut x), "Stream::copy");
        // Reads do not conflict with captured reads, and the capture does not use the other half of `x`.
        assert_eq!(x.to_host()?, [4; 64]);
        x.slice_mut(32..).copy_from_host(&[6; 32])?;
        Ok::<(), Error>(())
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(captured).unwrap();
    assert_eq!(y.to_host().unwrap(), [[4; 32], [2; 32]].concat());
    x.copy_from_host(&[7; 64]).unwrap();
    exec.launch(captured).unwrap();
    assert_eq!(y.to_host().unwrap(), [[7; 32], [2; 32]].concat());
}

#[test]
fn host_memory_that_captured_work_uses_is_not_lent() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { device, captured, home } = &fixture;
    let memory = |value| PinnedBuffer::from_slice(device, &[value; 64]).unwrap().into_mapped(home).unwrap();
    let (mut input, mut mapped) = (memory(8u8), memory(1));
    let mut y = fixture.buffer(2);
    let graph = Graph::capture(captured, || {
        captured.copy(input.as_slice(), &mut y)?;
        captured.copy(&y, mapped.as_mut_slice())?;
        refused(input.lock(), "MappedBuffer::lock");
        refused(mapped.lock(), "MappedBuffer::lock");
        Ok::<(), Error>(())
    })
    .unwrap();
    assert_eq!(mapped.lock().unwrap()[..], [1; 64]);
    graph.instantiate().unwrap().launch(captured).unwrap();
    assert_eq!(mapped.lock().unwrap()[..], [8; 64]);
    assert_eq!(mapped.into_inner().unwrap()[..], [8; 64]);
}

#[test]
fn other_threads_know_of_global_captures() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { captured, .. } = &fixture;
    let mut y = fixture.buffer(1);
    let elsewhere =
        |y: &DeviceBuffer<u8>| std::thread::scope(|scope| scope.spawn(|| y.to_host()).join().unwrap());
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let capture = Capture::begin(captured, mode).unwrap();
        captured.memset(&mut y, 9).unwrap();
        refused(y.to_host(), "DeviceBuffer::to_host");
        if mode == CaptureMode::Global {
            refused(elsewhere(&y), "DeviceBuffer::to_host");
        } else {
            // A capture in this mode belongs to one thread.
            assert_eq!(elsewhere(&y).unwrap(), [1; 64], "{mode:?}");
        }
        // A capture that is dropped has used nothing.
        drop(capture);
        assert_eq!(y.to_host().unwrap(), [1; 64], "{mode:?}");
    }
}

#[test]
fn streams_that_take_part_are_of_the_captures_order() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { device, captured, home } = &fixture;
    let (mut y, mut z) = (fixture.buffer(1), fixture.buffer(2));
    let side = Stream::new(device).unwrap();
    let graph = Graph::capture(captured, || {
        captured.memset(&mut y, 9)?;
        side.wait_stream(captured)?;
        side.copy(&y, &mut z)?;
        captured.wait_stream(&side)?;
        refused(z.to_host(), "DeviceBuffer::to_host");
        // The home stream then also takes part, so a read there fails as on any captured stream.
        home.wait_stream(captured)?;
        let error = y.to_host().unwrap_err();
        assert!(error.to_string().starts_with("DeviceBuffer::to_host cannot be captured"), "{error}");
        captured.wait_stream(home)
    })
    .unwrap();
    graph.instantiate().unwrap().launch(captured).unwrap();
    assert_eq!((y.to_host().unwrap(), z.to_host().unwrap()), (vec![9; 64], vec![9; 64]));
}

#[test]
fn a_buffer_that_is_dropped_in_the_capture_ends_its_launches() {
    let (_turn, fixture) = (turn(), Fixture::new());
    let Fixture { captured, .. } = &fixture;
    let (x, mut y) = (fixture.buffer(1), fixture.buffer(2));
    let graph = Graph::capture(captured, || {
        captured.copy(&x, &mut y)?;
        drop(x);
        Ok::<(), Error>(())
    })
    .unwrap();
    let launched = graph.instantiate().and_then(|exec| exec.launch(captured));
    assert!(
        matches!(launched, Err(Error::Graph(GraphError::BufferDropped { bytes: 64, .. }))),
        "{launched:?}"
    );
    assert_eq!(y.to_host().unwrap(), [2; 64]);
}
