//! Tests of copies, fills and pitched copies on a device: contents, order, and errors.

use crate::common::*;
use crate::transfers::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Stream};

#[test]
fn buffers_may_be_dropped_behind_a_copy() {
    let (driver, device, [home, other]) = streams_fixture();
    let bytes = pattern(100_000, 1);
    let source = DeviceBuffer::from_host(&home, &bytes).unwrap();
    let mut target = DeviceBuffer::<u8>::uninit(&other, 100_000).unwrap();
    let mut kept = DeviceBuffer::<u8>::uninit(&other, 100_000).unwrap();
    let hold = driver.hold();
    other.copy(&source, &mut target).unwrap();
    other.copy(&target, &mut kept).unwrap();
    let (from, to) = (source.as_device_ptr(), target.as_device_ptr());
    drop((source, target));
    let early = DeviceBuffer::<u8>::uninit(&home, 100_000).unwrap();
    assert_ne!(early.as_device_ptr(), from, "the other stream still reads it");
    let mut next = DeviceBuffer::<u8>::zeros(&other, 100_000).unwrap();
    assert_eq!(next.as_device_ptr(), to, "behind the copies on the same stream");
    other.memset(&mut next, 7).unwrap();
    drop(hold);
    assert_same(&kept.to_host().unwrap(), &bytes, "kept");
    drop((early, next, kept));
    device.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), 0);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn copies_and_fills_need_one_call_each() {
    let (driver, _, stream) = fixture();
    let source = DeviceBuffer::from_host(&stream, &[1u16; 30]).unwrap();
    let mut target = DeviceBuffer::<u16>::uninit(&stream, 30).unwrap();
    driver.reset_calls();
    stream.copy(&source, &mut target).unwrap();
    stream.copy(&source, &mut target).unwrap();
    stream.memset(target.slice_mut(..10), 0).unwrap();
    stream.memset(target.slice_mut(20..), 0xAB).unwrap();
    let (from, into) = target.split_at_mut(5);
    stream.copy(from.as_slice().slice(..2), into.into_slice(..2)).unwrap();
    let empty = target.slice_mut(3..3);
    stream.memset(empty, 0).unwrap();
    stream.copy(source.slice(..0), target.slice_mut(..0)).unwrap();
    let calls: u64 = Call::ALL.iter().map(|call| driver.calls(*call)).sum();
    assert_eq!((calls, driver.calls(Call::CopyDevice), driver.calls(Call::Memset)), (5, 3, 2));
    let mut expected = vec![0u16; 10];
    expected.resize(20, 1);
    expected.resize(30, 0xABAB);
    assert_eq!(target.to_host().unwrap(), expected);
}

#[test]
fn impossible_copies_and_fills_are_refused() {
    let (driver, devices) = devices::<3>();
    let streams = devices.each_ref().map(Device::default_stream);
    let [first, second, third] = &streams;
    let source = DeviceBuffer::<u8>::zeros(first, 10).unwrap();
    let mut target = DeviceBuffer::<u8>::zeros(first, 11).unwrap();
    let mut far = DeviceBuffer::<u8>::zeros(second, 10).unwrap();
    driver.reset_calls();
    let errors = [
        first.copy(&source, &mut target),
        first.copy(source.slice(..0), &mut target),
        second.copy(&source, target.slice_mut(..10)),
        third.copy(&source, &mut far),
        third.copy(source.slice(..0), far.slice_mut(..0)),
        first.memset(&mut far, 0),
        first.memset(far.slice_mut(..0), 1),
    ]
    .map(Result::unwrap_err);
    let text = errors.each_ref().map(ToString::to_string);
    assert!(
        errors[..2].iter().all(|error| matches!(error, Error::LengthMismatch { left: 11, .. })),
        "{text:?}"
    );
    assert!(errors[2..].iter().all(|error| matches!(error, Error::DifferentDevices { .. })), "{text:?}");
    let calls: u64 = Call::ALL.iter().map(|call| driver.calls(*call)).sum();
    assert_eq!(calls, 0, "nothing reached the driver");
}

#[test]
fn a_failed_copy_leaves_the_buffers_usable() {
    for call in [Call::CopyDevice, Call::Memset, Call::CopyRows, Call::EventRecord, Call::StreamWaitEvent] {
        let (driver, device, [home, other]) = streams_fixture();
        let source = DeviceBuffer::from_host(&home, &[3u8; 6]).unwrap();
        let mut target = DeviceBuffer::<u8>::zeros(&home, 6).unwrap();
        let mut program = || {
            home.memset(&mut target, 0)?;
            other.copy(&source, &mut target)?;
            other.copy_rows(source.as_2d_strided(2, 2, 3)?, target.as_2d_strided_mut(2, 2, 3)?)?;
            home.memset(target.slice_mut(..1), 0)
        };
        driver.fail_call(call, 0);
        let error = program().unwrap_err();
        assert!(error.to_string().contains(call.name()), "{error}");
        program().unwrap();
        assert_eq!(target.to_host().unwrap(), [0, 3, 3, 3, 3, 3]);
        drop((source, target));
        device.synchronize().unwrap();
        device.memory().empty_cache().unwrap();
        assert_eq!(driver.live_allocations(0), 0, "{}", call.name());
    }
}

/// Returns a buffer of the elements 0, 1, 2, and so on.
fn numbered(stream: &Stream, n: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::from_host(stream, &(0..n as u32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn rows_are_copied_between_strides() {
    let (driver, _, [home, other]) = streams_fixture();
    let matrix = numbered(&home, 20);
    // Columns 1 to 3 of a matrix of 4 rows and 5 columns. The destination contains no gap after its last row.
    let rows = matrix.as_2d(4, 5).unwrap().part(.., 1..4);
    assert_eq!((rows.rows(), rows.columns(), rows.row_stride()), (4, 3, 5));
    let mut target = DeviceBuffer::from_host(&home, &[99u32; 15]).unwrap();
    let hold = driver.hold();
    other.copy_rows(rows, target.as_2d_strided_mut(4, 3, 4).unwrap()).unwrap();
    home.memset(target.slice_mut(..1), 0).unwrap();
    drop(hold);
    assert_eq!(target.to_host().unwrap(), [0, 2, 3, 99, 6, 7, 8, 99, 11, 12, 13, 99, 16, 17, 18]);
}

#[test]
fn views_are_copied_to_the_host_without_their_gaps() {
    let (driver, _, stream) = fixture();
    let buffer = numbered(&stream, 24);
    let matrix = buffer.as_2d(4, 6).unwrap();
    assert_eq!(matrix.part(1..3, ..).to_host().unwrap(), (6..18).collect::<Vec<_>>());
    assert_eq!(matrix.part(1..4, 2..4).to_host().unwrap(), [8, 9, 14, 15, 20, 21]);
    assert!(matrix.part(.., 3..3).to_host().unwrap().is_empty());
    let volume = buffer.as_3d_strided([2, 3, 2], [12, 3]).unwrap();
    assert_eq!(volume.to_host().unwrap(), [0, 1, 3, 4, 6, 7, 12, 13, 15, 16, 18, 19]);
    assert_eq!(buffer.as_3d(2, 4, 3).unwrap().to_host().unwrap(), buffer.to_host().unwrap());
    driver.fail_call(Call::CopyRows, 0);
    assert!(matrix.part(.., ..2).to_host().is_err());
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let (_, _, stream) = fixture();
    let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 10).unwrap();
    let said = [
        (2, 3, 0, "the row stride of 0 is smaller than the number of columns"),
        (2, 3, 2, "the row stride of 2 is smaller than the number of columns"),
        (1, usize::MAX, 2, "the row stride of 2 is smaller than the number of columns"),
        (3, 3, 4, "the last row ends at element 11"),
        (1, 11, 11, "the last row ends at element 11"),
        (1, 1, 1 << 31, "exceeds 2^31 - 1"),
        (1, usize::MAX, usize::MAX, "exceeds 2^31 - 1"),
    ];
    for (rows, columns, row_stride, what) in said {
        let error = buffer.as_2d_strided(rows, columns, row_stride).map(drop).unwrap_err();
        assert!(
            matches!(error, Error::BadExtents { len: 10, .. }) && error.to_string().contains(what),
            "{error}"
        );
        let error = buffer.as_2d_strided_mut(rows, columns, row_stride).map(drop).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn rows_of_unequal_shapes_are_refused() {
    let (driver, [here, there]) = devices();
    let stream = here.default_stream();
    let source = numbered(&stream, 12);
    let mut target = numbered(&stream, 12);
    let mut far = numbered(&there.default_stream(), 12);
    driver.reset_calls();
    let rows = source.as_2d_strided(4, 2, 3).unwrap();
    for (count, columns, row_stride) in [(3, 2, 4), (4, 3, 3)] {
        let into = target.as_2d_strided_mut(count, columns, row_stride).unwrap();
        let error = stream.copy_rows(rows, into).unwrap_err();
        assert!(
            matches!(error, Error::ShapeMismatch { left: l, right: (4, 2), .. } if l == (count, columns)),
            "{error}"
        );
    }
    let error = stream.copy_rows(rows, far.as_2d_strided_mut(4, 2, 3).unwrap()).unwrap_err();
    assert!(error.to_string().contains("the target is on cpu:1"), "{error}");
    let error =
        stream.copy_rows(far.as_2d_strided(4, 2, 3).unwrap(), target.as_2d_strided_mut(4, 2, 3).unwrap());
    let error = error.unwrap_err();
    assert!(error.to_string().contains("the source is on cpu:1"), "{error}");
    assert_eq!(driver.calls(Call::CopyRows), 0);
    // An empty copy is not an error.
    for (count, columns) in [(4, 0), (0, 3)] {
        let none = source.as_2d_strided(count, columns, 3).unwrap();
        stream.copy_rows(none, target.as_2d_strided_mut(count, columns, 3).unwrap()).unwrap();
    }
    assert_eq!(driver.calls(Call::CopyRows), 0);
}

#[test]
fn one_row_may_have_the_largest_stride() {
    let (_, _, stream) = fixture();
    let source = DeviceBuffer::from_host(&stream, &[7u32; 4]).unwrap();
    let mut target = DeviceBuffer::from_host(&stream, &[1u32; 4]).unwrap();
    let row_stride = i32::MAX as usize;
    let from = source.as_2d_strided(1, 4, row_stride).unwrap();
    stream.copy_rows(from, target.as_2d_strided_mut(1, 4, row_stride).unwrap()).unwrap();
    assert_eq!(target.to_host().unwrap(), [7; 4]);
}
