//! Tests of simulated time on the emulated driver: the work to which it applies, the clocks that it advances, and its
//! reproducibility.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use warpsmith_runtime::emulated::{EmulatedDriver, EmulatedDriverBuilder, Schedule, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Event, Graph, Launch, Stream};

/// Returns the modeled duration: 1 us per thread for a kernel, 0.01 us per byte for a copy, and 7 us for a fill.
fn model(work: &SimulatedWork<'_>) -> f64 {
    match work {
        SimulatedWork::Kernel { config, .. } => f64::from(config.grid[0] * config.block[0]),
        SimulatedWork::Copy { bytes } => *bytes as f64 / 100.0,
        SimulatedWork::Set { .. } => 7.0,
    }
}

fn simulated() -> EmulatedDriverBuilder {
    EmulatedDriver::builder().memory(1 << 30).simulated_time(model)
}

fn open(builder: EmulatedDriverBuilder) -> (Device, Stream) {
    let device = Device::with_driver(builder.build(), 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    (device, stream)
}

fn elapsed(start: &Event, end: &Event) -> f64 {
    start.synchronize().unwrap();
    end.synchronize().unwrap();
    end.elapsed_us(start).unwrap()
}

/// Returns a launch of 64 threads.
fn shape() -> Launch {
    Launch::grid_block(2, 32)
}

#[test]
fn all_work_takes_the_models_time() {
    let (device, stream) = open(simulated());
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let mut events = vec![stream.record_timed_event().unwrap()];
    stream.memset(&mut y, 0).unwrap();
    events.push(stream.record_timed_event().unwrap());
    kernel.launch(&stream, shape(), (5, &x, &mut y)).unwrap();
    events.push(stream.record_timed_event().unwrap());
    stream.copy(&x, &mut y).unwrap();
    stream.synchronize().unwrap();
    events.push(stream.record_timed_event().unwrap());
    events.push(stream.record_timed_event().unwrap());
    let took: Vec<f64> = events.windows(2).map(|pair| elapsed(&pair[0], &pair[1])).collect();
    assert_eq!(took, [7.0, 64.0, 2.0, 0.0]);
    assert_eq!(elapsed(&events[3], &events[0]), -73.0);
    assert_eq!(y.to_host().unwrap(), [1; 50]);
}

#[test]
fn streams_have_clocks_and_waits_join_them() {
    for builder in [simulated(), simulated().stepped(Schedule::Newest)] {
        let (device, first) = open(builder);
        let second = Stream::new(&device).unwrap();
        let mut x = DeviceBuffer::<u8>::zeros(&first, 10).unwrap();
        let mut y = DeviceBuffer::<u8>::zeros(&second, 10).unwrap();
        for _ in 0..10 {
            first.memset(&mut x, 1).unwrap();
        }
        second.memset(&mut y, 2).unwrap();
        let [early, late] = [&second, &first].map(|stream| stream.record_timed_event().unwrap());
        assert_eq!(elapsed(&early, &late), 9.0 * 7.0, "one fill beside ten, after one each to begin with");
        second.wait_event(&late).unwrap();
        let waited = second.record_timed_event().unwrap();
        assert_eq!(elapsed(&late, &waited), 0.0);
        first.wait_event(&early).unwrap();
        let not_back = first.record_timed_event().unwrap();
        assert_eq!(elapsed(&late, &not_back), 0.0, "an earlier time moves no clock back");
    }
}

#[test]
fn graph_nodes_take_time_in_sequence() {
    let (device, stream) = open(simulated());
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let graph = Graph::capture(&stream, || {
        kernel.launch(&stream, shape(), (5, &x, &mut y))?;
        stream.memset(&mut y, 1)?;
        kernel.launch(&stream, shape(), (7, &x, &mut y))
    });
    let exec = graph.unwrap().instantiate().unwrap();
    let start = stream.record_timed_event().unwrap();
    exec.launch(&stream).unwrap();
    let once = stream.record_timed_event().unwrap();
    exec.launch(&stream).unwrap();
    let twice = stream.record_timed_event().unwrap();
    assert_eq!((elapsed(&start, &once), elapsed(&once, &twice)), (135.0, 135.0));
    let other = Stream::new(&device).unwrap();
    exec.launch(&other).unwrap();
    assert_eq!(elapsed(&twice, &other.record_timed_event().unwrap()), 135.0, "after the launches before");
    assert_eq!(y.to_host().unwrap(), [mixed(7, 1, 0x0101_0101); 50]);
}

#[test]
fn an_invalid_time_is_none() {
    let times = [f64::NAN, -5.0, f64::INFINITY, 3.0];
    let next = AtomicU64::new(0);
    let odd = move |_: &SimulatedWork<'_>| {
        let next = next.fetch_add(1, Ordering::Relaxed) as usize;
        *times.get(next).expect("the model has no more times")
    };
    let (device, stream) = open(EmulatedDriver::builder().simulated_time(odd));
    let start = stream.record_timed_event().unwrap();
    // The first memset also takes time, because memory is not zeroed at allocation.
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 10).unwrap();
    for _ in 0..3 {
        stream.memset(&mut x, 1).unwrap();
    }
    assert_eq!(elapsed(&start, &stream.record_timed_event().unwrap()), 3.0);
    stream.memset(&mut x, 1).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("the model of simulated time panicked"), "{error}");
    assert!(device.is_lost());
}
