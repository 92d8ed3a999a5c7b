//! Tests of races between launches on unordered streams.

use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;
use warpsmith_runtime::check::{Finding, FindingKind};
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Launch, Result, Stream};

use crate::{device, kernel, kinds};

/// Writes 64 elements, starting at `first`.
#[kernel]
unsafe fn writes(out: *mut u32, first: usize) {
    unsafe { out.add(first + thread::unique_index().get()).write(1) };
}

/// Reads 64 elements, starting at `first`.
#[kernel]
unsafe fn reads(data: *mut u32, first: usize, out: *mut u32) {
    let own = thread::unique_index().get();
    unsafe { out.add(own).write(data.add(first + own).read()) };
}

#[kernel]
unsafe fn counts(counter: *mut u32) {
    unsafe { Atomic::<u32>::from_ptr(counter).fetch_add(1, Ordering::Relaxed) };
}

struct Fixture {
    streams: [Stream; 2],
    data: DeviceBuffer<u32>,
    out: DeviceBuffer<u32>,
}

impl Fixture {
    /// Creates both buffers on the first stream, whose work has finished.
    fn new() -> Self {
        let device = device();
        let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
        let [data, out] = [128, 64].map(|len| DeviceBuffer::zeros(&streams[0], len).unwrap());
        streams[0].synchronize().unwrap();
        Self { streams, data, out }
    }

    fn write(&self, stream: usize, first: usize) -> Result<()> {
        let args = (self.data.as_device_ptr(), first);
        let stream = &self.streams[stream];
        // SAFETY: the written elements are within the buffer, and the values do not matter in a race.
        unsafe { kernel::<writes>(stream.device()).launch_unsafe(stream, Launch::grid_block(2, 32), args) }
    }

    fn read(&self, stream: usize, first: usize) -> Result<()> {
        let args: (DevicePtr, usize, DevicePtr) =
            (self.data.as_device_ptr(), first, self.out.as_device_ptr());
        let stream = &self.streams[stream];
        // SAFETY: as above.
        unsafe { kernel::<reads>(stream.device()).launch_unsafe(stream, Launch::grid_block(2, 32), args) }
    }

    fn found(&self, work: impl FnOnce(&Self) -> Result<()>) -> Vec<Finding> {
        let checked = self.data.device().checked().unwrap();
        work(self).unwrap();
        checked.findings().unwrap()
    }
}

#[test]
fn two_streams_that_write_race() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        fixture.write(0, 0)?;
        fixture.write(1, 63)
    });
    assert_eq!(kinds(&findings), [FindingKind::StreamRace]);
    let text = findings[0].to_string();
    assert!(text.contains("byte 252 of a buffer of 512 bytes"), "{text}");
    let access = findings[0].access.as_ref().unwrap();
    let other = findings[0].other.as_ref().unwrap();
    for side in [access, other] {
        assert!(side.operation.starts_with("write in kernel `writes` on stream "), "{text}");
        assert!(side.place().unwrap().file.ends_with("tests/checked/streams.rs"), "{text}");
    }
    assert_ne!(access.operation, other.operation);
    assert!(findings[0].json().contains(r#""kind":"stream-race","kernel":"writes""#));
}

#[test]
fn a_read_races_with_a_write() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        fixture.read(0, 0)?;
        fixture.write(1, 0)
    });
    assert_eq!(kinds(&findings), [FindingKind::StreamRace]);
    let kernels = [&findings[0].access, &findings[0].other].map(|side| side.clone().unwrap().operation);
    assert!(kernels.iter().any(|text| text.starts_with("read in kernel `reads`")), "{kernels:?}");
    assert!(kernels.iter().any(|text| text.starts_with("write in kernel `writes`")), "{kernels:?}");
}

#[test]
fn a_fill_races_with_a_launch() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        fixture.write(0, 0)?;
        // SAFETY: the driver is used only for one fill of live memory.
        let (driver, context) = unsafe { fixture.data.device().driver() };
        // SAFETY: the memory is valid until the test ends.
        unsafe { driver.memset(context, fixture.data.as_device_ptr(), 0, 64, fixture.streams[1].handle())? };
        Ok(())
    });
    assert_eq!(kinds(&findings), [FindingKind::StreamRace]);
    assert!(findings[0].to_string().contains("which memset on stream "), "{}", findings[0]);
}

#[test]
fn ordered_streams_do_not_race() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        fixture.write(0, 0)?;
        fixture.streams[1].wait_stream(&fixture.streams[0])?;
        fixture.read(1, 0)?;
        fixture.streams[1].synchronize()?;
        fixture.write(0, 0)
    });
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn halves_of_a_buffer_do_not_race() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        fixture.write(0, 0)?;
        fixture.write(1, 64)
    });
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn reads_and_atomics_do_not_race() {
    let fixture = Fixture::new();
    let findings = fixture.found(|fixture| {
        for stream in &fixture.streams {
            let args = (fixture.data.as_device_ptr(),);
            // SAFETY: the buffer contains an element.
            unsafe {
                kernel::<counts>(stream.device()).launch_unsafe(stream, Launch::grid_block(2, 32), args)
            }?;
        }
        Ok(())
    });
    assert!(findings.is_empty(), "{findings:?}");
    let findings = fixture.found(|fixture| {
        fixture.write(0, 0)?;
        let stream = &fixture.streams[1];
        // SAFETY: the buffer contains an element.
        unsafe {
            kernel::<counts>(stream.device()).launch_unsafe(
                stream,
                Launch::grid_block(1, 1),
                (fixture.data.as_device_ptr(),),
            )
        }
    });
    assert_eq!(kinds(&findings), [FindingKind::StreamRace]);
}

#[test]
fn buffers_order_their_streams() {
    let Fixture { streams, mut data, mut out } = Fixture::new();
    let checked = data.device().checked().unwrap();
    for stream in streams.iter().chain(&streams) {
        // SAFETY: the accessed elements are within the buffers.
        unsafe {
            let kernel = kernel::<reads>(stream.device());
            kernel.launch_unsafe(stream, Launch::grid_block(2, 32), (&mut data, 0usize, &mut out)).unwrap();
        }
        data.copy_from_host(&[1; 128]).unwrap();
    }
    assert!(checked.findings().unwrap().is_empty());
}
