//! Memory, streams, events and errors on the device under test, which is `WARPSMITH_TEST_DEVICE`, or the emulated
//! device if the variable is not set.

#[path = "../../../../runtime/tests/common/under_test.rs"]
#[allow(dead_code, reason = "each program uses some of it")]
mod under_test;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cust::context::{Context, CurrentContext, ResourceLimit};
use cust::device::{Device, DeviceAttribute};
use cust::error::{CudaError, explanation};
use cust::event::{EventFlags, EventStatus};
use cust::memory::*;
use cust::module::Module;
use cust::prelude::*;
use cust::stream::StreamWaitEventFlags;

fn context() -> Context {
    Context::from_runtime(&under_test::shared_device())
}

fn stream() -> Stream {
    Stream::new(StreamFlags::NON_BLOCKING, None).unwrap()
}

#[test]
fn buffers_are_copied_in_whole_and_in_part() {
    let _context = context();
    let mut buffer = DeviceBuffer::from_slice(&[1u16, 2, 3, 4, 5]).unwrap();
    assert_eq!((buffer.len(), buffer.is_empty()), (5, false));
    buffer[1..=2].copy_from(&[20, 30]).unwrap();
    let mut part = [0; 3];
    buffer[..3].copy_to(&mut part).unwrap();
    assert_eq!(part, [1, 20, 30]);
    let (left, right) = buffer.split_at_mut(2);
    left.copy_from(&right[1..]).unwrap();
    assert_eq!(buffer.as_host_vec().unwrap(), [4, 5, 30, 4, 5]);
    let mut other = DeviceBuffer::<u16>::zeroed(5).unwrap();
    other.copy_from(&buffer).unwrap();
    let mut host = vec![0; 5];
    other.copy_to(&mut host).unwrap();
    assert_eq!(host, [4, 5, 30, 4, 5]);
    other.set_8(0xff).unwrap();
    assert_eq!(other.as_host_vec().unwrap(), [u16::MAX; 5]);
    assert_eq!(other.cast::<u8>().len(), 10);
    let start = buffer.as_device_ptr();
    assert_eq!(buffer[2..].as_device_ptr(), start.wrapping_add(2));
    assert_eq!(buffer[5..].len(), 0);
}

#[test]
#[should_panic(expected = "the device slice has 3 elements, but the other side of the copy has 2")]
fn lengths_must_be_equal() {
    let _context = context();
    let _ = DeviceBuffer::from_slice(&[1, 2, 3]).unwrap().copy_to(&mut [0; 2]);
}

#[test]
#[should_panic(expected = "2..5 of 4 elements")]
fn ranges_must_be_inside() {
    let _context = context();
    let buffer = DeviceBuffer::from_slice(&[1, 2, 3, 4]).unwrap();
    let _ = &buffer[2..5];
}

#[test]
fn empty_memory_is_allowed() {
    let _context = context();
    let mut empty = DeviceBuffer::<u64>::from_slice(&[]).unwrap();
    empty.copy_from(&[]).unwrap();
    assert!(empty.as_host_vec().unwrap().is_empty());
    assert_eq!(DeviceBox::new(&()).unwrap().as_host_value(), Ok(()));
    assert!(UnifiedBuffer::<u32>::from_slice(&[]).unwrap().is_empty());
    assert!(LockedBuffer::<u32>::new(&1, 0).unwrap().is_empty());
    assert!(DeviceBuffer::drop(empty).is_ok());
}

/// Enum with padding bytes.
#[derive(Debug, Clone, Copy, PartialEq, cust::DeviceCopy)]
enum Kind {
    Plain,
    Scaled { by: f64, tag: u8 },
}

#[test]
fn boxes_hold_any_device_copy_type() {
    let _context = context();
    let mut one = DeviceBox::new(&Kind::Scaled { by: 2.5, tag: 7 }).unwrap();
    assert_eq!(one.as_host_value().unwrap(), Kind::Scaled { by: 2.5, tag: 7 });
    let mut other = Kind::Plain.as_dbox().unwrap();
    other.copy_from(&one).unwrap();
    one.copy_from(&Kind::Plain).unwrap();
    let mut host = Kind::Plain;
    other.copy_to(&mut host).unwrap();
    assert_eq!((host, one.as_host_value().unwrap()), (Kind::Scaled { by: 2.5, tag: 7 }, Kind::Plain));
    let pointer = DeviceBox::into_device(other);
    assert!(!pointer.is_null());
    // SAFETY: the pointer came from the box.
    let again = unsafe { DeviceBox::from_device(pointer) };
    assert_eq!(DeviceBox::drop(again).map_err(|(error, _)| error), Ok(()));
    assert_eq!(DeviceBox::<u32>::zeroed().unwrap().as_host_value().unwrap(), 0);
}

#[test]
fn host_memory_is_shared_and_page_locked() {
    let _context = context();
    let mut unified = UnifiedBuffer::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();
    unified[1] = 5.0;
    let mut device = DeviceBuffer::<f32>::zeroed(3).unwrap();
    device.copy_from(&unified).unwrap();
    assert_eq!(device.as_host_vec().unwrap(), [1.0, 5.0, 3.0]);
    assert!(!unified.as_unified_ptr().as_device_ptr().is_null());
    let (stream, mut locked) = (stream(), LockedBuffer::new(&0.5f32, 3).unwrap());
    // SAFETY: nothing else uses either memory before the wait.
    unsafe {
        device.async_copy_from(&locked, &stream).unwrap();
        stream.synchronize().unwrap();
        locked.as_mut_slice().fill(0.0);
        device.async_copy_to(&mut locked, &stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(locked.as_slice(), [0.5; 3]);
}

#[test]
fn streams_allocate_copy_and_free_in_order() {
    let _context = context();
    let stream = stream();
    let data: Vec<u32> = (0..10_000).collect();
    // SAFETY: all uses are in the stream, and `data` stays valid.
    unsafe {
        let from = DeviceBuffer::from_slice_async(&data, &stream).unwrap();
        let mut to = DeviceBuffer::<u32>::zeroed_async(data.len(), &stream).unwrap();
        to.async_copy_from(&from, &stream).unwrap();
        from.drop_async(&stream).unwrap();
        let boxed = DeviceBox::new_async(&9u8, &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(to.as_host_vec().unwrap(), data);
        assert_eq!(boxed.as_host_value().unwrap(), 9);
        boxed.drop_async(&stream).unwrap();
    }
}

#[test]
fn waiting_copies_follow_blocking_streams() {
    let _context = context();
    let blocking = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    assert_eq!(blocking.get_flags(), Ok(StreamFlags::DEFAULT));
    let mut buffer = DeviceBuffer::from_slice(&[1u8; 64]).unwrap();
    blocking.add_callback(Box::new(|_| std::thread::sleep(Duration::from_millis(50)))).unwrap();
    // SAFETY: the copy below waits for the memset.
    unsafe { buffer.set_8_async(3, &blocking).unwrap() };
    assert_eq!(buffer.as_host_vec().unwrap(), [3; 64]);
}

#[test]
fn callbacks_and_events_are_ordered() {
    let _context = context();
    let (first, second) = (stream(), stream());
    let seen = Arc::new(AtomicU32::new(0));
    let (start, end) = (Event::new(EventFlags::DEFAULT).unwrap(), Event::new(EventFlags::DEFAULT).unwrap());
    start.record(&first).unwrap();
    let slow = Arc::clone(&seen);
    let callback = move |status: Result<(), CudaError>| {
        std::thread::sleep(Duration::from_millis(30));
        slow.store(if status.is_ok() { 1 } else { 2 }, Ordering::SeqCst);
    };
    first.add_callback(Box::new(callback)).unwrap();
    let mark = Event::new(EventFlags::DISABLE_TIMING).unwrap();
    mark.record(&first).unwrap();
    end.record(&first).unwrap();
    assert_eq!(mark.query(), Ok(EventStatus::NotReady));
    second.wait_event(mark, StreamWaitEventFlags::DEFAULT).unwrap();
    second.synchronize().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    end.synchronize().unwrap();
    assert_eq!(end.query(), Ok(EventStatus::Ready));
    let milliseconds = end.elapsed_time_f32(&start).unwrap();
    assert!(milliseconds >= 25.0, "{milliseconds}");
    assert!(end.elapsed(&start).unwrap() >= Duration::from_millis(25));
}

#[test]
fn events_without_time_are_an_error() {
    let _context = context();
    let stream = stream();
    let (plain, timed) =
        (Event::new(EventFlags::DISABLE_TIMING).unwrap(), Event::new(EventFlags::DEFAULT).unwrap());
    plain.record(&stream).unwrap();
    timed.record(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(timed.elapsed_time_f32(&plain), Err(CudaError::InvalidHandle));
    assert_eq!(Event::new(EventFlags::INTERPROCESS).unwrap_err(), CudaError::NotSupported);
}

#[test]
fn errors_have_a_code_and_an_explanation() {
    let _context = context();
    // SAFETY: nothing is allocated or freed.
    unsafe {
        assert_eq!(cuda_malloc::<u64>(usize::MAX).unwrap_err(), CudaError::InvalidMemoryAllocation);
        assert!(explanation().unwrap().contains("elements of 8 bytes"));
        assert_eq!(cuda_malloc::<u64>(0).unwrap_err(), CudaError::InvalidMemoryAllocation);
        assert_eq!(cuda_malloc::<u8>(1 << 50).unwrap_err(), CudaError::OutOfMemory);
        let error = cuda_free(DevicePointer::<u8>::from_raw(12345)).unwrap_err();
        assert_eq!(error, CudaError::InvalidValue);
        assert!(error.to_string().contains("0x3039"), "{error}");
    }
    assert_eq!(Module::from_ptx("no code", &[]).unwrap_err(), CudaError::InvalidImage);
    assert_eq!(Module::from_file("no/such.cubin").unwrap_err(), CudaError::FileNotFound);
    assert_eq!(CudaError::from_code(4711), CudaError::UnknownError);
}

#[test]
fn properties_are_those_of_the_device() {
    let context = context();
    let device = CurrentContext::get_device().unwrap();
    assert_eq!(device.name().unwrap(), context.runtime().name());
    assert_eq!(device.get_attribute(DeviceAttribute::WarpSize), Ok(32));
    let memory = mem_get_info().unwrap();
    assert!(memory.0 <= memory.1 && memory.1 > 0, "{memory:?}");
    let range = CurrentContext::get_stream_priority_range().unwrap();
    let urgent = Stream::new(StreamFlags::NON_BLOCKING, Some(range.greatest)).unwrap();
    assert!(urgent.get_priority().unwrap() <= range.least);
    let stack = CurrentContext::get_resource_limit(ResourceLimit::StackSize).unwrap();
    CurrentContext::set_resource_limit(ResourceLimit::StackSize, stack).unwrap();
    assert!(Device::num_devices().is_ok() || cust::quick_init().is_err());
}

#[test]
fn other_threads_use_the_last_context() {
    let _context = context();
    let buffer = DeviceBuffer::from_slice(&[1, 2, 3]).unwrap();
    let read = std::thread::spawn(move || buffer.as_host_vec().unwrap()).join().unwrap();
    assert_eq!(read, [1, 2, 3]);
}

#[test]
fn bytes_are_copied_by_address() {
    let _context = context();
    let (source, mut target) = ([1u8, 2, 3], [0u8; 3]);
    let memory = DeviceBuffer::<u8>::zeroed(3).unwrap();
    let address = memory.as_device_ptr().as_raw();
    // SAFETY: each has three bytes.
    unsafe {
        memcpy_htod(address, source.as_ptr().cast(), 3).unwrap();
        memcpy_dtoh(target.as_mut_ptr().cast(), address, 3).unwrap();
    }
    assert_eq!(target, source);
}

#[test]
fn host_memory_passes_through_pointers() {
    let _context = context();
    let mut buffer = LockedBuffer::<u32>::zeroed(3).unwrap();
    buffer[1] = 7;
    let (pointer, len) = (buffer.as_mut_ptr(), buffer.len());
    std::mem::forget(buffer);
    // SAFETY: the buffer was forgotten.
    let buffer = unsafe { LockedBuffer::from_raw_parts(pointer, len) };
    assert_eq!(buffer.as_slice(), [0, 7, 0]);
    LockedBuffer::drop(buffer).map_err(|(error, _)| error).unwrap();
}

#[test]
fn limits_are_kept() {
    let _context = context();
    for limit in [ResourceLimit::MallocHeapSize, ResourceLimit::PrintfFifoSize] {
        let before = CurrentContext::get_resource_limit(limit).unwrap();
        assert!(before > 0, "{limit:?}");
        CurrentContext::set_resource_limit(limit, 2 * before).unwrap();
        assert!(CurrentContext::get_resource_limit(limit).unwrap() >= 2 * before, "{limit:?}");
        CurrentContext::set_resource_limit(limit, before).unwrap();
    }
}
