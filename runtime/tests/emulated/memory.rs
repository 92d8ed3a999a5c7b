//! Tests of buffers, slices and copies on the emulated device.

use crate::common::*;
use crate::support::pinned::panicked;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError};

#[test]
fn what_goes_in_comes_out() {
    let (driver, device, stream) = fixture();
    let mut random = random();
    for n in ODD_SIZES {
        let data = floats(&mut random, n);
        let mut buffer = DeviceBuffer::from_host(&stream, &data).unwrap();
        assert_eq!((buffer.len(), buffer.is_empty()), (n, n == 0));
        assert_eq!(buffer.as_device_ptr().0 % 256, 0);
        assert_eq!(buffer.to_host().unwrap(), data);

        let (start, end) = (random.usize(..n + 1), random.usize(..n + 1));
        let range = start.min(end)..start.max(end);
        let patch = floats(&mut random, range.len());
        buffer.slice_mut(range.clone()).copy_from_host(&patch).unwrap();
        let mut expected = data;
        expected[range.clone()].copy_from_slice(&patch);
        assert_eq!(buffer.to_host().unwrap(), expected);
        let mut part = vec![0.0; range.len()];
        buffer.slice(range).copy_to_host(&mut part).unwrap();
        assert_eq!(part, patch);

        let mut other = DeviceBuffer::zeros(&stream, n).unwrap();
        assert_eq!(other.to_host().unwrap(), vec![0.0; n]);
        stream.copy(&buffer, &mut other).unwrap();
        drop(buffer);
        assert_eq!(other.to_host().unwrap(), expected);
        stream.memset(&mut other, 0).unwrap();
        assert_eq!(other.to_host().unwrap(), vec![0.0; n]);
    }
    assert_eq!(device.memory().allocated(), 0);
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn slices_are_as_in_std() {
    let (_, _, stream) = fixture();
    let data: Vec<u16> = (0..100).collect();
    let mut buffer = DeviceBuffer::from_host(&stream, &data).unwrap();
    assert_eq!(buffer.slice(..).to_host().unwrap(), data);
    assert_eq!(buffer.slice(10..=20).slice(5..).to_host().unwrap(), &data[15..=20]);
    assert_eq!(buffer.slice(100..).len(), 0);
    assert!(buffer.as_slice().get(50..101).is_none());
    assert!(buffer.as_slice().get(..=usize::MAX).is_none());
    #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
    let reversed = 7..3;
    assert!(buffer.as_mut_slice().get_mut(reversed).is_none());
    let (before, after) = buffer.as_slice().split_at(33);
    assert_eq!(
        (before.to_host().unwrap(), after.to_host().unwrap()),
        (data[..33].to_vec(), data[33..].to_vec())
    );
    let address = buffer.as_device_ptr().0;
    let (mut before, mut after) = buffer.split_at_mut(1);
    assert_eq!(after.as_device_ptr().0, address + 2);
    stream.copy(before.as_slice().slice(..0), after.slice_mut(..2)).unwrap_err();
    stream.copy(&before, after.slice_mut(..1)).unwrap();
    before.copy_from_host(&[9]).unwrap();
    assert_eq!(buffer.slice(..3).to_host().unwrap(), [9, 0, 2]);
}

#[test]
#[should_panic(expected = "not within 100 elements")]
fn a_slice_out_of_range_panics() {
    let (_, device) = device();
    let buffer = DeviceBuffer::<u8>::zeros(&device.default_stream(), 100).unwrap();
    let _ = buffer.slice(99..101);
}

#[test]
fn lengths_that_differ_are_refused() {
    let (driver, _, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 10).unwrap();
    let other = DeviceBuffer::<u8>::zeros(&stream, 11).unwrap();
    driver.reset_calls();
    let errors = [
        buffer.copy_from_host(&[0; 9]).unwrap_err(),
        buffer.copy_to_host(&mut [0; 11]).unwrap_err(),
        stream.copy(&other, &mut buffer).unwrap_err(),
        stream.copy(&other, buffer.slice_mut(..0)).unwrap_err(),
    ];
    let lengths = errors.map(|error| match error {
        Error::LengthMismatch { left, right, .. } => (left, right),
        error => panic!("{error}"),
    });
    assert_eq!(lengths, [(10, 9), (11, 10), (10, 11), (0, 11)]);
    assert!(Call::ALL.iter().all(|call| driver.calls(*call) == 0), "nothing reached the driver");
}

#[test]
fn out_of_memory_reports_figures_and_goes_on() {
    let driver = EmulatedDriver::builder().memory(32 << 20).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    let stream = device.default_stream();
    let held = DeviceBuffer::<u8>::zeros(&stream, 12 << 20).unwrap();
    let small = DeviceBuffer::<u8>::zeros(&stream, 1000).unwrap();
    let error = DeviceBuffer::<u64>::uninit(&stream, 3 << 20).unwrap_err();
    let Error::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!((report.asked, report.segment, report.total), (24 << 20, 24 << 20, 32 << 20));
    assert_eq!((report.free, report.reserved, report.allocated), (18 << 20, 14 << 20, (12 << 20) + 1024));
    assert_eq!((report.cached, report.pending, report.limit), ((2 << 20) - 1024, 0, None));
    let text = error.to_string();
    let figures = ["cpu:0", "24.00 MiB", "18.00 MiB of 32.00 MiB", "14.00 MiB reserved", "12.00 MiB in use"];
    assert!(figures.iter().all(|part| text.contains(part)), "{text}");
    drop((held, small));
    assert_eq!(
        DeviceBuffer::<u64>::zeros(&stream, 3 << 20).unwrap().to_host().unwrap(),
        vec![0; 3 << 20],
        "what is cached goes back to the driver when it is needed"
    );

    let error = DeviceBuffer::<u64>::uninit(&stream, usize::MAX / 4).unwrap_err();
    assert!(matches!(error, Error::TooManyElements { element_bytes: 8, .. }), "{error}");
    let error = DeviceBuffer::<u8>::uninit(&stream, isize::MAX as usize).unwrap_err();
    assert!(matches!(error, Error::AllocationTooLarge { .. }), "{error}");
    let error = DeviceBuffer::<u8>::uninit(&stream, 1 << 60).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
}

#[test]
fn what_is_cached_is_available() {
    let driver = EmulatedDriver::builder().memory(32 << 20).build();
    let device = Device::with_driver(driver, 0).unwrap();
    let held = DeviceBuffer::<u8>::uninit(&device.default_stream(), 12 << 20).unwrap();
    assert_eq!(device.memory().available().unwrap(), 20 << 20);
    drop(held);
    assert_eq!(device.memory_info().unwrap().free, 20 << 20);
    assert_eq!(device.memory().available().unwrap(), 32 << 20);
}

#[test]
fn elements_without_bytes_are_fine() {
    let (_, _, stream) = fixture();
    let mut buffer = DeviceBuffer::from_host(&stream, &[[0u8; 0]; 5]).unwrap();
    buffer.slice_mut(1..2).copy_from_host(&[[]]).unwrap();
    assert_eq!(buffer.to_host().unwrap().len(), 5);
}

#[test]
fn memory_starts_poisoned() {
    let (_, device) = device();
    let buffer = DeviceBuffer::<f32>::uninit(&device.default_stream(), 33).unwrap();
    assert!(buffer.to_host().unwrap().iter().all(|value| value.is_nan()));
}

#[test]
fn scratch_memory_is_new_after_failed_work() {
    let (_, device, stream) = fixture();
    let scratch = |bytes, fails: bool| {
        // SAFETY: no work is enqueued with the memory.
        unsafe {
            stream.with_scratch("test", bytes, |ptr, new| match fails {
                true => Err(Error::Graph(GraphError::CaptureUnderway)),
                false => Ok((ptr, new)),
            })
        }
    };
    scratch(100, true).unwrap_err();
    let (first, new) = scratch(100, false).unwrap();
    assert!(new);
    assert_eq!(scratch(50, false).unwrap(), (first, false), "it is kept");
    assert!(scratch(100_000, false).unwrap().1, "a larger one is new");
    assert!(!scratch(100, false).unwrap().1);
    scratch(100, true).unwrap_err();
    assert!(scratch(100, false).unwrap().1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // SAFETY: as above.
        unsafe { stream.with_scratch("test", 100, |_, _| -> Result<(), Error> { panic!("on purpose") }) }
    }));
    panicked.unwrap_err();
    assert!(scratch(100, false).unwrap().1);
    assert_eq!(device.memory().statistics().allocation.all.current, 1, "what was given up was freed");
}

#[test]
fn observers_may_use_scratch_memory() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let (_, device, stream) = fixture();
    let calls = std::sync::Arc::new(AtomicU32::new(0));
    let (inside, counted) = (stream.clone(), calls.clone());
    device.memory().on_out_of_memory(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        // SAFETY: no work is enqueued with the memory.
        unsafe { inside.with_scratch("test", 64, |_, _| Ok::<(), Error>(())) }.unwrap();
    });
    // SAFETY: as above.
    let error = unsafe { stream.with_scratch("test", 3 << 30, |_, _| Ok::<(), Error>(())) }.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(device.memory().statistics().allocation.all.current, 1);
}

#[test]
fn filled_buffers_hold_one_value() {
    let (driver, _, stream) = fixture();
    // The first two lengths are filled by a copy from the host, and the others by copies that double the filled range.
    for len in [1, 64 << 8, (64 << 8) + 1, 100_000, 1 << 18] {
        driver.reset_calls();
        let hold = driver.hold();
        let x = DeviceBuffer::filled(&stream, len, 0x0102_0304u32).unwrap(); // does not wait
        drop(hold);
        assert_eq!(x.to_host().unwrap(), vec![0x0102_0304; len]);
        let doublings = len.div_ceil(64 << 8).next_power_of_two().trailing_zeros();
        assert_eq!(driver.calls(Call::CopyToDevice), 1, "{len}");
        assert_eq!(driver.calls(Call::CopyDevice), u64::from(doublings), "{len}");
    }
    driver.reset_calls();
    assert_eq!(DeviceBuffer::filled(&stream, 1000, -1i64).unwrap().to_host().unwrap(), [-1; 1000]);
    assert_eq!(DeviceBuffer::filled(&stream, 1000, 7u8).unwrap().to_host().unwrap(), [7; 1000]);
    assert_eq!((driver.calls(Call::Memset), driver.calls(Call::CopyToDevice)), (2, 0));
    let triples = DeviceBuffer::filled(&stream, 30_000, [1u8, 2, 3]).unwrap();
    assert_eq!(triples.to_host().unwrap(), [[1, 2, 3]; 30_000]);
    let large = DeviceBuffer::filled(&stream, 3, [0.5f64; 10_000]).unwrap();
    assert_eq!(large.to_host().unwrap(), [[0.5; 10_000]; 3]);
    assert!(DeviceBuffer::filled(&stream, 0, 0.5f32).unwrap().is_empty());
    assert_eq!(DeviceBuffer::filled(&stream, 5, ()).unwrap().len(), 5);
}

#[test]
fn a_capture_takes_only_fills_that_need_no_host_memory() {
    let (_, _, stream) = fixture();
    let mut x = DeviceBuffer::<u16>::zeros(&stream, 4).unwrap();
    let graph = Graph::capture(&stream, || {
        let error = DeviceBuffer::filled(&stream, 4, 1u16).unwrap_err();
        assert!(matches!(error, Error::Graph(GraphError::NotCapturable { .. })), "{error}");
        stream.copy(&DeviceBuffer::filled(&stream, 4, 0x0101u16)?, &mut x)
    });
    let exec = graph.unwrap().instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(x.to_host().unwrap(), [0x0101; 4]);
}

#[test]
fn elements_come_from_a_function_of_their_index() {
    let (_, device, stream) = fixture();
    for len in [0, 1, 1000] {
        let x = DeviceBuffer::from_fn(&stream, len, |index| index as u64 * 3).unwrap();
        assert_eq!(x.to_host().unwrap(), Vec::from_iter((0..len as u64).map(|index| index * 3)));
        let copy = x.slice(len / 2..).clone_on(&device.default_stream()).unwrap();
        assert_eq!(*copy.stream(), device.default_stream());
        assert_eq!(copy.to_host().unwrap(), x.slice(len / 2..).to_host().unwrap());
    }
}

#[test]
fn printing_shows_the_first_elements() {
    let (driver, device, stream) = fixture();
    let mut x = DeviceBuffer::from_fn(&stream, 20, |index| index as u32).unwrap();
    let first = "[0, 1, 2, 3, 4, 5, 6, 7, …; 20] on cpu:0)";
    assert_eq!(format!("{x:?}"), format!("DeviceBuffer<u32>({first}"));
    assert_eq!(format!("{:?}", x.as_mut_slice()), format!("DeviceSliceMut<u32>({first}"));
    assert_eq!(format!("{:?}", x.slice(12..)), "DeviceSlice<u32>([12, 13, 14, 15, 16, 17, 18, 19] on cpu:0)");
    assert_eq!(format!("{:?}", x.slice(..0)), "DeviceSlice<u32>([] on cpu:0)");
    let floats = DeviceBuffer::from_host(&stream, &[0.5f32, 1.0]).unwrap();
    assert_eq!(format!("{floats:.2?}"), "DeviceBuffer<f32>([0.50, 1.00] on cpu:0)");

    let address = format!("DeviceBuffer<u32>(20 at {:#x} on cpu:0)", x.as_device_ptr().0);
    let graph = Graph::capture(&stream, || {
        let captured = stream.memset(&mut x, 1);
        assert_eq!(format!("{x:?}"), address, "nothing can be copied now");
        captured
    });
    graph.unwrap();
    driver.poison(0, panicked());
    assert_eq!(format!("{x:?}"), address);
    let error = x.to_host().unwrap_err();
    assert!(matches!(error, Error::KernelPanic { .. }), "printing is not the report: {error}");
    assert!(device.check().unwrap_err().is_device_lost());
}
