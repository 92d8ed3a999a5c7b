//! A launch allocates nothing on the host's heap, whatever its shape and its arguments.

#[path = "common/kernels.rs"]
#[allow(dead_code, reason = "some of them are launched")]
mod kernels;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kernels::{Axpy, CopyRaw, Iota};
use warpsmith_runtime::driver::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, Result, Stream};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // While a thread ends it has no count any more, and nobody reads it.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all is done by the system's allocator; counting touches a thread's own integer only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn heap_allocations(mut work: impl FnMut() -> Result<()>) -> u64 {
    work().expect("the first launch");
    let before = COUNT.get();
    for _ in 0..1000 {
        work().expect("a launch");
    }
    COUNT.get() - before
}

#[test]
fn launches_allocate_nothing() {
    static IMAGE: GpuImage = GpuImage::without_code("test-kernels", "0.0.0", "hand-written");
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
    assert!(
        heap_allocations(|| {
            drop(std::hint::black_box(vec![1u8; 100]));
            Ok(())
        }) >= 1000,
        "the count counts"
    );

    let (from_ptr, to_ptr) = (from.as_device_ptr(), to.as_device_ptr());
    let launch = Launch::linear(1000, 256);
    // SAFETY: both addresses are of 1000 elements, and nothing runs.
    let count =
        heap_allocations(|| unsafe { raw.launch_unsafe(&stream, launch, (from_ptr, to_ptr, 1000u64)) });
    assert_eq!(count, 0, "bare addresses");
    // SAFETY: both buffers have 1000 elements.
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
