//! Tests that a launch allocates nothing on the host heap, regardless of its shape and arguments.

use crate::common::{Axpy, CopyRaw, IMAGE, Iota};
use crate::heap::allocations;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer, Launch, Result, Stream};

/// Returns the number of allocations in a thousand launches after the first one.
fn heap_allocations(mut work: impl FnMut() -> Result<()>) -> u64 {
    work().expect("the first launch");
    allocations(|| (0..1000).for_each(|_| work().expect("a launch")))
}

#[test]
fn launches_allocate_nothing() {
    let driver = EmulatedDriver::builder().memory(1 << 28).idle().build();
    let device = Device::with_driver(driver, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let module = device.load(&IMAGE).unwrap();
    let (raw, axpy, iota) = (
        module.kernel::<CopyRaw>().unwrap(),
        module.kernel::<Axpy>().unwrap(),
        module.kernel::<Iota>().unwrap(),
    );
    let from = DeviceBuffer::<u32>::uninit(&stream, 1000).unwrap();
    let mut to = DeviceBuffer::<u32>::uninit(&stream, 1000).unwrap();
    let x = DeviceBuffer::<f32>::uninit(&stream, 1000).unwrap();
    let mut y = DeviceBuffer::<f32>::uninit(&stream, 1000).unwrap();
    let (from_ptr, to_ptr) = (from.as_device_ptr(), to.as_device_ptr());
    let launch = Launch::linear(1000, 256);
    // SAFETY: both addresses point to 1000 elements, and the kernel does not run.
    let count =
        heap_allocations(|| unsafe { raw.launch_unsafe(&stream, launch, (from_ptr, to_ptr, 1000u64)) });
    assert_eq!(count, 0, "bare addresses");
    // SAFETY: both buffers contain 1000 elements.
    let count = heap_allocations(|| unsafe { raw.launch_unsafe(&stream, launch, (&from, &mut to, 1000u64)) });
    assert_eq!(count, 0, "two buffers");
    let shapes = [
        Launch::auto(1000),
        Launch::auto(1000).waves(1),
        Launch::for_bandwidth(1000, 12),
        Launch::for_occupancy(1000).cooperative(),
        Launch::grid_block(4, 256).shared(1024),
    ];
    for launch in shapes {
        let count = heap_allocations(|| axpy.launch(&stream, launch, (1.0, &x, &mut y)));
        assert_eq!(count, 0, "{launch:?}");
    }
    let prepared = axpy.prepare(Launch::auto(1000)).unwrap();
    assert_eq!(heap_allocations(|| prepared.launch(&stream, (1.0, &x, &mut y))), 0, "prepared");
    let mut part = to.slice_mut(10..20);
    assert_eq!(
        heap_allocations(|| iota.launch(&stream, Launch::auto(10), (&mut part,))),
        0,
        "a part of a buffer"
    );
}
