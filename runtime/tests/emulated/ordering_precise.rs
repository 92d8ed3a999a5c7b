//! Tests that the inserted waits are exactly those needed. Reads do not wait for reads, ranges do not wait for other
//! ranges, and nothing waits for work that is known to be complete.

use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, DeviceBuffer, Launch, Stream, TypedKernel};

fn streams<const N: usize>(device: &Device) -> [Stream; N] {
    std::array::from_fn(|_| Stream::from_pool(device).unwrap())
}

/// Returns the number of waits inserted since the last call.
fn waits(driver: &EmulatedDriver) -> u64 {
    let waits = driver.calls(Call::StreamWaitEvent);
    assert_eq!(driver.calls(Call::EventRecord), waits, "one record a wait");
    driver.reset_calls();
    waits
}

fn axpy(device: &Device) -> TypedKernel<Axpy> {
    module(device).kernel().unwrap()
}

#[test]
fn a_write_waits_for_all_reads_since() {
    let (driver, device) = device();
    let [writer, a, b, c] = streams(&device);
    let kernel = axpy(&device);
    let one = DeviceBuffer::from_host(&writer, &[1.0f32; 40]).unwrap();
    let mut x = DeviceBuffer::from_host(&writer, &[1.0f32; 40]).unwrap();
    let mut of = [&a, &b, &c].map(|stream| DeviceBuffer::from_host(stream, &[0.0f32; 40]).unwrap());
    driver.reset_calls();
    kernel.launch(&writer, Launch::auto(40), (1.0, &one, &mut x)).unwrap();
    for _ in 0..3 {
        for (stream, y) in [&a, &b, &c].into_iter().zip(&mut of) {
            kernel.launch(stream, Launch::auto(40), (1.0, &x, y)).unwrap();
        }
    }
    assert_eq!(waits(&driver), 3, "each reader waits once for the writer");
    kernel.launch(&a, Launch::auto(40), (1.0, &one, &mut x)).unwrap();
    assert_eq!(waits(&driver), 2, "for the two other readers; the writer came before");
    kernel.launch(&a, Launch::auto(40), (1.0, &one, &mut x)).unwrap();
    assert_eq!(waits(&driver), 0);
    kernel.launch(&b, Launch::auto(40), (1.0, &x, &mut of[1])).unwrap();
    assert_eq!(waits(&driver), 1, "for the new writer only");
    assert_eq!(x.to_host().unwrap(), [4.0; 40]);
    assert_eq!(of.map(|y| y.to_host().unwrap()[39]), [6.0, 10.0, 6.0]);
}

#[test]
fn a_host_read_ignores_other_readers() {
    let (driver, device) = device();
    let [home, slow] = streams(&device);
    let kernel = axpy(&device);
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&slow, &[1.0f32; 10]).unwrap();
    driver.set_stream_delay(slow.handle(), Duration::from_millis(200));
    kernel.launch(&slow, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    driver.reset_calls();
    assert_eq!(x.to_host().unwrap(), [1.0; 10]);
    assert_eq!(waits(&driver), 0);
    assert!(!slow.query().unwrap(), "the reader had not come so far");
    assert_eq!(y.to_host().unwrap(), [2.0; 10]);
}

#[test]
fn halves_of_a_buffer_are_ordered_apart() {
    let (driver, device) = device();
    let [home, other] = streams(&device);
    let kernel = module(&device).kernel::<Iota>().unwrap();
    let mut buffer = DeviceBuffer::<u32>::zeros(&home, 100).unwrap();
    home.synchronize().unwrap();
    driver.reset_calls();
    let (mut low, mut high) = buffer.split_at_mut(30);
    for _ in 0..5 {
        kernel.launch(&home, Launch::auto(30), (&mut low,)).unwrap();
        kernel.launch(&other, Launch::auto(70), (&mut high,)).unwrap();
    }
    assert_eq!(waits(&driver), 0, "they never meet");
    kernel.launch(&other, Launch::auto(30), (&mut low,)).unwrap();
    assert_eq!(waits(&driver), 1, "its last use was on the other stream");
    kernel.launch(&home, Launch::auto(100), (&mut buffer,)).unwrap();
    assert_eq!(waits(&driver), 1, "the whole comes after both halves");
    kernel.launch(&other, Launch::auto(10), (buffer.slice_mut(45..55),)).unwrap();
    assert_eq!(waits(&driver), 1);
    let middle = buffer.slice(45..55).to_host().unwrap();
    assert_eq!(middle, (0..10).collect::<Vec<_>>());
    assert_eq!(waits(&driver), 1, "the host reads what the other stream wrote");
    assert_eq!(buffer.slice(..45).to_host().unwrap(), (0..45).collect::<Vec<_>>());
    assert_eq!(waits(&driver), 0);
}

#[test]
fn many_ranges_cost_waits_but_never_miss_one() {
    let (driver, device) = device();
    let [home, other] = streams(&device);
    let kernel = module(&device).kernel::<Iota>().unwrap();
    let mut buffer = DeviceBuffer::<u32>::zeros(&home, 400).unwrap();
    driver.set_stream_delay(other.handle(), Duration::from_micros(200));
    for start in (0..400).step_by(4) {
        kernel.launch(&other, Launch::auto(4), (buffer.slice_mut(start..start + 4),)).unwrap();
    }
    assert_eq!(buffer.to_host().unwrap(), (0..400).map(|i| i % 4).collect::<Vec<u32>>());
}

#[test]
fn work_the_host_awaited_needs_no_event() {
    let (driver, device) = device();
    let [first, second] = streams(&device);
    let kernel = axpy(&device);
    let x = DeviceBuffer::from_host(&first, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&first, &[0.0f32; 10]).unwrap();
    driver.reset_calls();
    kernel.launch(&second, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 0, "the copies were waited for when the buffers were made");
    second.synchronize().unwrap();
    kernel.launch(&first, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 0);
    let event = first.record_event().unwrap();
    event.synchronize().unwrap();
    driver.reset_calls();
    kernel.launch(&second, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 0, "an event shows it as well");
    while !second.query().unwrap() {}
    kernel.launch(&first, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 0, "so does asking");
    kernel.launch(&second, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 1, "but later work is waited for");
    assert_eq!(y.to_host().unwrap(), [5.0; 10]);
}

#[test]
fn a_wait_covers_waits_of_the_other_stream() {
    let (driver, device) = device();
    let [a, b, c] = streams(&device);
    let kernel = axpy(&device);
    let mut x = DeviceBuffer::from_host(&a, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&b, &[1.0f32; 10]).unwrap();
    let mut z = DeviceBuffer::from_host(&c, &[1.0f32; 10]).unwrap();
    let one = DeviceBuffer::from_host(&a, &[1.0f32; 10]).unwrap();
    driver.reset_calls();
    kernel.launch(&a, Launch::auto(10), (1.0, &one, &mut x)).unwrap();
    kernel.launch(&b, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    kernel.launch(&c, Launch::auto(10), (1.0, &y, &mut z)).unwrap();
    assert_eq!(waits(&driver), 2);
    kernel.launch(&c, Launch::auto(10), (1.0, &x, &mut z)).unwrap();
    assert_eq!(waits(&driver), 0, "c comes after b, which came after a");
    kernel.launch(&c, Launch::auto(10), (1.0, &one, &mut x)).unwrap();
    assert_eq!(waits(&driver), 0);
    assert_eq!(z.to_host().unwrap(), [6.0; 10]);
}

#[test]
fn a_buffer_back_home_is_freed_at_once() {
    let (driver, device) = device();
    let [home, other] = streams(&device);
    let kernel = axpy(&device);
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let _hold = driver.hold();
    kernel.launch(&other, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    home.wait_stream(&other).unwrap();
    let addresses = [x.as_device_ptr(), y.as_device_ptr()];
    driver.reset_calls();
    drop((x, y));
    assert_eq!(waits(&driver), 0, "no event is needed: what comes on the home stream comes after");
    let again = [(); 2].map(|()| DeviceBuffer::<f32>::uninit(&home, 10).unwrap());
    assert!(again.iter().all(|buffer| addresses.contains(&buffer.as_device_ptr())));
}

#[test]
fn without_order_later_work_still_comes_after() {
    let (driver, device) = device();
    let [home, other] = streams(&device);
    let kernel = axpy(&device);
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let hold = driver.hold();
    kernel.launch(&home, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    driver.reset_calls();
    // SAFETY: both kernels add to each element of `y`, and the emulated streams are held until the host has ordered
    // them below.
    let ordered = unsafe { y.as_mut_slice().assume_ordered() };
    let event = home.record_event().unwrap();
    other.wait_event(&event).unwrap();
    driver.reset_calls();
    kernel.launch(&other, Launch::auto(10), (1.0, &x, ordered)).unwrap();
    assert_eq!(waits(&driver), 0);
    kernel.launch(&home, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 1, "later work comes after it");
    // SAFETY: the buffer is only read, and never written again.
    let ordered = unsafe { x.as_slice().assume_ordered() };
    kernel.launch(&other, Launch::auto(10), (1.0, ordered, &mut y)).unwrap();
    assert_eq!(waits(&driver), 1, "for y");
    let address = x.as_device_ptr();
    drop(x);
    let next = DeviceBuffer::<f32>::uninit(&home, 10).unwrap();
    assert_ne!(next.as_device_ptr(), address, "work on another stream still uses it");
    drop(hold);
    assert_eq!(y.to_host().unwrap(), [5.0; 10]);
}

#[test]
fn a_failed_launch_leaves_its_buffers_unchanged() {
    let (driver, device) = device();
    let [home, other] = streams(&device);
    let kernel = axpy(&device);
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&home, &[1.0f32; 10]).unwrap();
    driver.fail_call(Call::Launch, 0);
    kernel.launch(&other, Launch::auto(10), (1.0, &x, &mut y)).unwrap_err();
    driver.reset_calls();
    kernel.launch(&home, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 0, "nothing was enqueued on the other stream");
    driver.fail_call(Call::StreamWaitEvent, 0);
    kernel.launch(&other, Launch::auto(10), (1.0, &x, &mut y)).unwrap_err();
    driver.fail_call(Call::EventRecord, 0);
    kernel.launch(&other, Launch::auto(10), (1.0, &x, &mut y)).unwrap_err();
    driver.reset_calls();
    kernel.launch(&other, Launch::auto(10), (1.0, &x, &mut y)).unwrap();
    assert_eq!(waits(&driver), 1, "a wait that failed is not taken for one that was made");
    assert_eq!(y.to_host().unwrap(), [3.0; 10]);
}
