//! Tests that memory allocated in a capture lives as long as the graph, and is released when it is no longer in use.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError, PinnedBuffer, Stream};

#[test]
fn buffers_dropped_in_a_capture_share_memory() {
    let (driver, device, stream) = fixture();
    let x = DeviceBuffer::from_host(&stream, &[7u8; 1 << 20]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 1 << 20).unwrap();
    let before = driver.live_allocations(0);
    let graph = Graph::capture(&stream, || {
        for _ in 0..10 {
            let between = x.clone_on(&stream)?;
            stream.copy(&between, &mut y)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(driver.live_allocations(0), before + 1, "one segment for all ten");
    let exec = graph.instantiate().unwrap();
    drop(graph);
    // Other allocations must not reuse that memory.
    let mut others: Vec<DeviceBuffer<u8>> =
        (0..4).map(|_| DeviceBuffer::zeros(&stream, 1 << 20).unwrap()).collect();
    exec.launch(&stream).unwrap();
    assert!(others.iter_mut().all(|other| other.to_host().unwrap().iter().all(|byte| *byte == 0)));
    assert_eq!(y.to_host().unwrap(), vec![7; 1 << 20]);
    drop((exec, others));
    stream.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    assert_eq!(driver.live_allocations(0), before, "the graph's memory went with it");
}

#[test]
fn a_captured_buffer_is_used_as_any_other() {
    let (_, _, [stream, other]) = streams_fixture();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
    let (graph, result) = Graph::capture_with(&stream, Default::default(), || {
        let result = x.clone_on(&stream)?;
        Ok::<_, Error>(result)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    for _ in 0..2 {
        exec.launch(&other).unwrap();
        assert_eq!(result.to_host().unwrap(), [5; 64]);
    }
    drop((graph, exec));
    assert_eq!(result.to_host().unwrap(), [5; 64], "it outlives the graph");
}

#[test]
fn dropping_a_captured_buffer_keeps_the_graph_launchable() {
    let (driver, _, [stream, other]) = streams_fixture();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&other, 64).unwrap();
    let (graph, result) = Graph::capture_with(&stream, Default::default(), || {
        let result = x.clone_on(&stream)?;
        Ok::<_, Error>(result)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    driver.set_stream_delay(other.handle(), Duration::from_millis(20));
    other.copy(&result, &mut y).unwrap(); // still reads when the graph is launched again
    drop(result);
    exec.launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [5; 64]);
}

#[test]
fn executables_of_one_capture_run_in_turn() {
    let (driver, _, [stream, other]) = streams_fixture();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 64).unwrap();
    let graph = Graph::capture(&stream, || {
        let between = x.clone_on(&stream)?;
        stream.copy(&between, &mut y)
    })
    .unwrap();
    let [first, second] = [(); 2].map(|()| graph.instantiate().unwrap());
    driver.reset_calls();
    first.launch(&stream).unwrap();
    second.launch(&other).unwrap();
    use warpsmith_runtime::emulated::Call;
    assert_eq!(driver.calls(Call::StreamWaitEvent), 1);
}

#[test]
fn what_runs_keeps_everything_when_it_is_dropped() {
    let (driver, device, stream) = fixture();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 1 << 20]).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 1 << 20).unwrap();
    let before = driver.live_allocations(0);
    let graph = Graph::capture(&stream, || {
        let between = x.clone_on(&stream)?;
        stream.copy(&between, &mut y)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    let hold = driver.hold();
    exec.launch(&stream).unwrap();
    drop((exec, graph));
    device.memory().empty_cache().unwrap_or_default();
    assert_eq!(driver.live_allocations(0), before + 1, "it is still needed");
    drop(hold);
    assert_eq!(y.to_host().unwrap(), vec![5; 1 << 20]);
    let gone = || {
        let _ = device.memory().empty_cache();
        driver.live_allocations(0) <= before
    };
    let start = std::time::Instant::now();
    while !gone() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is never freed");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(device.take_drop_error().is_none());
}

/// Returns a stepped device that checks for races.
fn checked(seed: u64) -> (Arc<EmulatedDriver>, Device) {
    let schedule = Schedule::Random(seed);
    let driver = EmulatedDriver::builder().memory(1 << 28).stepped(schedule).check_races().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

#[test]
fn memory_of_another_captured_stream_is_not_reused() {
    for seed in 0..20 {
        let (driver, device) = checked(seed);
        let [main, side] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let x = DeviceBuffer::from_host(&main, &[5u8; 64]).unwrap();
        let [mut y, mut z] = [(); 2].map(|()| DeviceBuffer::<u8>::zeros(&main, 64).unwrap());
        let graph = Graph::capture(&main, || {
            side.wait_stream(&main)?;
            let between = x.clone_on(&main)?;
            side.copy(&between, &mut y)?;
            drop(between);
            let mut other = DeviceBuffer::<u8>::uninit(&main, 64)?;
            main.memset(&mut other, 9)?;
            main.copy(&other, &mut z)?;
            drop(other);
            main.wait_stream(&side)
        })
        .unwrap();
        graph.instantiate().unwrap().launch(&main).unwrap();
        assert_eq!(y.to_host().unwrap(), [5; 64]);
        assert_eq!(z.to_host().unwrap(), [9; 64]);
        let races = driver.take_races();
        assert!(races.is_empty(), "{races:#?}");
    }
}

#[test]
fn a_buffer_with_reused_memory_waits_for_launches() {
    for seed in 0..20 {
        let (driver, device) = checked(seed);
        let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
        let mut y = DeviceBuffer::<u8>::zeros(&stream, 64).unwrap();
        let (graph, mut later) = Graph::capture_with(&stream, Default::default(), || {
            let between = x.clone_on(&stream)?;
            stream.copy(&between, &mut y)?;
            drop(between);
            DeviceBuffer::<u8>::uninit(&stream, 64)
        })
        .unwrap();
        let exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        other.memset(&mut later, 9).unwrap();
        let third = Stream::new(&device).unwrap();
        exec.launch(&third).unwrap();
        assert_eq!(y.to_host().unwrap(), [5; 64]);
        let races = driver.take_races();
        assert!(races.is_empty(), "{races:#?}");
    }
}

#[test]
fn without_caching_a_capture_keeps_its_memory() {
    let (driver, device) = device();
    device.memory().set_options("caching:False".parse().unwrap()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 64).unwrap();
    let before = driver.live_allocations(0);
    let old = DeviceBuffer::<u8>::zeros(&stream, 64).unwrap();
    let graph = Graph::capture(&stream, || {
        drop(old);
        assert_eq!(driver.live_allocations(0), before + 1, "it is kept until the capture ends");
        let between = x.clone_on(&stream)?;
        stream.copy(&between, &mut y)
    })
    .unwrap();
    assert_eq!(driver.live_allocations(0), before + 1, "the graph's own");
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [5; 64]);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn nothing_is_captured_with_the_drivers_own_pool() {
    let (_, device) = device();
    device.memory().set_options("backend:cudaMallocAsync".parse().unwrap()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let refused = Graph::capture(&stream, || Ok::<_, Error>(())).map(drop).unwrap_err();
    assert!(
        matches!(refused, Error::Graph(GraphError::NotCapturable { call: "Graph::capture", .. })),
        "{refused}"
    );
    stream.synchronize().unwrap();
}

#[test]
fn host_memory_waits_for_awaited_launches() {
    let (driver, device, stream) = fixture();
    let x = DeviceBuffer::from_host(&stream, &[5u8; 64]).unwrap();
    let mut output = PinnedBuffer::<u8>::zeroed(&device, 64).unwrap().into_mapped(&stream).unwrap();
    let graph = Graph::capture(&stream, || stream.copy(&x, output.as_mut_slice())).unwrap();
    let exec = graph.instantiate().unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(50));
    exec.launch(&stream).unwrap();
    device.default_stream().wait_stream(&stream).unwrap();
    assert_eq!(output.lock().unwrap()[..], [5; 64]);
}
