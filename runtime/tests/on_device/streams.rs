//! Tests of streams, events and their order on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device
//! if it is not set. A missing device fails the tests.

use std::collections::HashSet;
use std::sync::mpsc;

use crate::allocator::device_with;
use crate::turn;
use crate::under_test::device;
use warpsmith_runtime::driver::CaptureMode;
use warpsmith_runtime::{DeviceBuffer, Error, GraphError, MemoryPool, Pending, PinnedBuffer, Stream};

#[test]
fn pools_give_streams_of_each_priority() {
    let device = device();
    let (least, most) = device.stream_priorities();
    assert!(least == 0 && most < 0, "{least}, {most}");
    for priority in [0, -1, -2, -3] {
        let streams: Vec<_> =
            (0..32).map(|_| Stream::from_pool_with_priority(&device, priority).unwrap()).collect();
        assert_eq!(streams.iter().map(Stream::handle).collect::<HashSet<_>>().len(), 32);
        // SAFETY: its methods receive only live handles and memory of this device.
        let (driver, context) = unsafe { device.driver() };
        for stream in streams {
            assert_eq!(driver.stream_priority(context, stream.handle()).unwrap(), priority.max(most));
            assert_eq!(stream.priority(), priority.max(most));
        }
    }
}

#[test]
fn a_host_function_runs_in_its_turn() {
    let device = device();
    let [first, second] = [(); 2].map(|()| Stream::from_pool(&device).unwrap());
    let (sender, receiver) = mpsc::channel();
    let mut buffer = DeviceBuffer::<u8>::zeros(&first, 1 << 26).unwrap();
    for name in ["first", "second", "third"] {
        let sender = sender.clone();
        first.host_function(move || sender.send(name).unwrap()).unwrap();
        first.memset(&mut buffer, 0).unwrap();
    }
    second.wait_stream(&first).unwrap();
    second.host_function(move || sender.send("other").unwrap()).unwrap();
    second.synchronize().unwrap();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["first", "second", "third", "other"]);
}

#[test]
fn a_foreign_stream_works_until_destroyed() {
    let device = device();
    // SAFETY: its methods receive only live handles and memory of this device.
    let (driver, context) = unsafe { device.driver() };
    let raw = driver.stream_create(context, -1).unwrap();
    // SAFETY: the stream belongs to this context and lives until everything on it is dropped.
    let stream = unsafe { Stream::adopt(&device, raw, ()) }.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { Stream::adopt(&device, raw, ()) }.unwrap(), stream);
    let buffer = DeviceBuffer::from_host(&stream, &[7u32; 1000]).unwrap();
    let copy = buffer.clone_on(&device.default_stream()).unwrap();
    assert_eq!(copy.to_host().unwrap(), [7; 1000]);
    drop((buffer, copy, stream));
    // SAFETY: the stream is no longer used.
    unsafe { driver.stream_destroy(context, raw) };
}

#[test]
fn a_stream_that_its_owner_captures() {
    let _turn = turn();
    let device = device();
    // SAFETY: its methods receive only live handles and memory of this device.
    let (driver, context) = unsafe { device.driver() };
    let raw = driver.stream_create(context, 0).unwrap();
    let bytes = driver.memory_allocate(context, 4000).unwrap();
    // SAFETY: the stream and the memory belong to this context and live until everything on them is dropped.
    let stream = unsafe { Stream::adopt_unchecked(&device, raw) }.unwrap();
    driver.capture_begin(context, raw, CaptureMode::Global).unwrap();
    let mut freed = Vec::new();
    for value in [1u8, 2] {
        let (sender, receiver) = mpsc::channel::<()>();
        // SAFETY: as above; the memory outlives its uses.
        let owned = unsafe { DeviceBuffer::<u8>::from_raw_stream_ordered(&stream, bytes, 4000, sender) };
        stream.memset(&mut owned.unwrap(), value).unwrap();
        freed.push(receiver.try_recv() == Err(mpsc::TryRecvError::Disconnected));
    }
    assert_eq!(freed, [true; 2], "owners are dropped with their buffers");
    let refused = DeviceBuffer::<u8>::zeros(&stream, 8).unwrap_err();
    assert!(matches!(refused, Error::Graph(GraphError::CapturedElsewhere { .. })), "{refused}");
    let graph = driver.capture_end(context, raw).unwrap();
    let exec = driver.graph_instantiate(context, graph).unwrap();
    // SAFETY: the graph's memory is alive, and the handles are not used again.
    let read = unsafe {
        driver.graph_launch(context, exec, raw).unwrap();
        stream.synchronize().unwrap();
        driver.graph_exec_destroy(context, exec);
        driver.graph_destroy(context, graph);
        DeviceBuffer::<u8>::from_raw(&stream, bytes, 4000, ()).unwrap().to_host().unwrap()
    };
    assert_eq!(read, [2; 4000]);
    drop(stream);
    // SAFETY: they are no longer used.
    unsafe {
        driver.memory_free(context, bytes).unwrap();
        driver.stream_destroy(context, raw);
    }
}

/// Memory for such a graph comes from a pool, as in PyTorch's graphs.
#[test]
fn a_pool_grows_while_its_owner_captures_the_stream() {
    const MIB: usize = 1 << 20;
    let _turn = turn();
    for options in ["", "expandable_segments:True"] {
        let device = device_with(options);
        // SAFETY: its methods receive only live handles of this device.
        let (driver, context) = unsafe { device.driver() };
        let raw = driver.stream_create(context, 0).unwrap();
        // SAFETY: the stream belongs to this context and lives until everything on it is dropped.
        let stream = unsafe { Stream::adopt_unchecked(&device, raw) }.unwrap();
        let pool = MemoryPool::new(&device).unwrap();
        let guard = pool.enter().unwrap();
        drop(DeviceBuffer::<u8>::zeros(&stream, 40 * MIB).unwrap());
        driver.capture_begin(context, raw, CaptureMode::Global).unwrap();
        // The free block does not suffice, and the stream must not be asked whether it is idle.
        let mut buffer = DeviceBuffer::<u8>::uninit(&stream, 60 * MIB).unwrap();
        stream.memset(&mut buffer, 3).unwrap();
        pool.empty_cache().unwrap();
        device.memory().empty_cache().unwrap();
        let graph = driver.capture_end(context, raw).unwrap();
        let exec = driver.graph_instantiate(context, graph).unwrap();
        // SAFETY: the graph's memory is alive, and the handles are not used again.
        unsafe {
            driver.graph_launch(context, exec, raw).unwrap();
            stream.synchronize().unwrap();
            driver.graph_exec_destroy(context, exec);
            driver.graph_destroy(context, graph);
        }
        assert!(buffer.to_host().unwrap().iter().all(|byte| *byte == 3), "{options}");
        drop((guard, buffer, stream));
        // SAFETY: the stream is no longer used.
        unsafe { driver.stream_destroy(context, raw) };
    }
}

/// A driver may crash on the handle of a destroyed stream. The test therefore uses the handle again only if another
/// stream has the same handle, or if the driver reports unknown handles.
#[test]
fn a_stream_that_its_owner_destroyed_is_told() {
    let device = device();
    // SAFETY: its methods receive only live handles and memory of this device.
    let (driver, context) = unsafe { device.driver() };
    let raw = driver.stream_create(context, 0).unwrap();
    // SAFETY: the stream belongs to this context, and its early destruction is the subject of the test.
    let stream = unsafe { Stream::adopt(&device, raw, ()) }.unwrap();
    stream.synchronize().unwrap();
    // SAFETY: as above.
    unsafe { driver.stream_destroy(context, raw) };
    let mut others = Vec::new();
    if !device.is_emulated() {
        while others.last() != Some(&raw) {
            others.push(driver.stream_create(context, 0).unwrap());
            assert!(others.len() < 1000, "the handle comes again");
        }
    }
    for error in [
        stream.synchronize().unwrap_err(),
        stream.query().unwrap_err(),
        stream.record_event().unwrap_err(),
        device.default_stream().wait_stream(&stream).unwrap_err(),
    ] {
        assert!(matches!(error, Error::StreamDestroyed { .. }), "{error}");
    }
    drop(stream);
    for other in others {
        // SAFETY: no other code uses the stream.
        unsafe { driver.stream_destroy(context, other) };
    }
    assert!(!device.is_lost());
    let buffer = DeviceBuffer::from_host(&device.default_stream(), &[1u8, 2]).unwrap();
    assert_eq!(buffer.to_host().unwrap(), [1, 2]);
}

#[test]
fn events_order_and_take_time() {
    let device = device();
    let [first, second] = [(); 2].map(|()| Stream::from_pool(&device).unwrap());
    let mut buffer = DeviceBuffer::<u8>::zeros(&first, 1 << 28).unwrap();
    let start = first.record_timed_event().unwrap();
    first.memset(&mut buffer, 0).unwrap();
    let end = first.record_timed_event().unwrap();
    second.wait_event(&end).unwrap();
    let later = second.record_timed_event().unwrap();
    later.synchronize().unwrap();
    assert!(end.query().unwrap() && first.query().unwrap());
    let (filling, waiting) = (end.elapsed_us(&start).unwrap(), later.elapsed_us(&end).unwrap());
    assert!(filling > 1.0 && waiting >= 0.0, "{filling} us, {waiting} us");
    let plain = first.record_event().unwrap();
    assert!(matches!(plain.elapsed_us(&start).unwrap_err(), Error::NoElapsedTime(_)));
}

/// Runs copies, fills, uploads and downloads on four streams, in parallel with a model on the host.
#[test]
fn random_programs_of_copies_equal_sequential_ones() {
    let device = device();
    let streams: [Stream; 4] = std::array::from_fn(|_| Stream::from_pool(&device).unwrap());
    let emulated = device.is_emulated();
    for seed in 0..if emulated { 20 } else { 100 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let len = if emulated { 300 } else { 300_000 };
        let mut buffers: Vec<(DeviceBuffer<u32>, Vec<u32>)> = Vec::new();
        let mut downloads: Vec<(Pending<PinnedBuffer<u32>>, Vec<u32>)> = Vec::new();
        for step in 0..60 {
            let stream = streams[random.usize(..4)].clone();
            let (a, b) = (random.usize(..len), random.usize(..len));
            let range = a.min(b)..a.max(b);
            if buffers.len() < 3 || random.usize(..8) == 0 {
                let mut buffer = DeviceBuffer::uninit(&stream, len).unwrap();
                let data = vec![random.u32(..); len];
                let source = PinnedBuffer::from_slice(&device, &data).unwrap();
                drop(streams[random.usize(..4)].copy_from_host_async(source, &mut buffer).unwrap());
                if buffers.len() == 4 {
                    drop(buffers.swap_remove(random.usize(..4)));
                }
                buffers.push((buffer, data));
                continue;
            }
            let target = random.usize(..buffers.len());
            let source = (target + 1) % buffers.len();
            match random.usize(..6) {
                0 => {
                    stream.memset(buffers[target].0.slice_mut(range.clone()), 0).unwrap();
                    buffers[target].1[range].fill(0);
                }
                1 => {
                    let pinned = PinnedBuffer::zeroed(&device, range.len()).unwrap();
                    let slice = buffers[target].0.slice(range.clone());
                    downloads.push((
                        stream.copy_to_host_async(slice, pinned).unwrap(),
                        buffers[target].1[range].to_vec(),
                    ));
                }
                2 => {
                    let data: Vec<u32> = range.clone().map(|i| (i + step) as u32).collect();
                    let pinned = PinnedBuffer::from_slice(&device, &data).unwrap();
                    drop(
                        stream
                            .copy_from_host_async(pinned, buffers[target].0.slice_mut(range.clone()))
                            .unwrap(),
                    );
                    buffers[target].1[range].copy_from_slice(&data);
                }
                _ => {
                    let [(x, from), (y, to)] = buffers.get_disjoint_mut([source, target]).unwrap();
                    stream.copy(x.slice(range.clone()), y.slice_mut(range.clone())).unwrap();
                    to[range.clone()].copy_from_slice(&from[range]);
                }
            }
        }
        for (pending, expected) in downloads {
            assert!(pending.wait().unwrap()[..] == expected[..], "program {seed}");
        }
        for (buffer, expected) in buffers {
            assert!(buffer.to_host().unwrap() == expected, "program {seed}");
        }
    }
    assert!(device.take_drop_error().is_none());
}

#[cfg(unix)]
#[test]
fn a_forked_process_is_told() {
    crate::alone::only_alone!();
    let device = crate::under_test::shared_device();
    let stream = device.default_stream();
    let buffer = DeviceBuffer::from_host(&stream, &[1u8]).unwrap();
    // SAFETY: the copy calls only the tested functions, and exits without running the exit handlers of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = [
            buffer.to_host().err(),
            stream.synchronize().err(),
            warpsmith_runtime::Device::open(&device.id().to_string()).err(),
        ];
        drop((buffer, stream));
        let right = told.iter().all(|error| matches!(error, Some(Error::Forked)));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the copy was reported");
    assert_eq!(buffer.to_host().unwrap(), [1]);
}
