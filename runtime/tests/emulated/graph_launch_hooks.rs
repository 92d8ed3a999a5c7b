//! Tests of hooks that run before each launch of a graph.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{Capture, Device, DeviceBuffer, Error, Graph, GraphError, Stream};

/// Returns a stream of a separate device, because a capture would prevent other tests from waiting for a shared device.
fn stream() -> Stream {
    Stream::new(&Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap()).unwrap()
}

/// Returns a graph that copies a byte to `y`. Before each launch, the byte is set to the value of `next`.
fn graph(
    stream: &Stream,
    y: &mut DeviceBuffer<u8>,
    next: impl Fn() -> Result<u8, Error> + Send + Sync + 'static,
) -> Graph {
    let number = DeviceBuffer::<u8>::zeros(stream, 1).unwrap();
    Graph::capture(stream, || {
        stream.copy(&number, y)?;
        let number = Mutex::new(number);
        stream.on_graph_launch(move |stream| stream.memset(&mut *number.lock().unwrap(), next()?))
    })
    .unwrap()
}

/// Returns a counter that starts at 1, shared by all clones of the function.
fn counter() -> (Arc<AtomicU32>, impl Fn() -> Result<u8, Error> + Send + Sync + Clone + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    (count, move || Ok(counted.fetch_add(1, Ordering::Relaxed) as u8 + 1))
}

#[test]
fn every_copy_of_a_graph_calls_it_once() {
    let stream = stream();
    let mut y = DeviceBuffer::zeros(&stream, 1).unwrap();
    let (count, next) = counter();
    let graph = graph(&stream, &mut y, next);
    assert_eq!(count.load(Ordering::Relaxed), 0, "a capture launches nothing");
    let clone = graph.try_clone().unwrap();
    let mut parent = Graph::new(stream.device()).unwrap();
    parent.add_child(&graph, &[]).unwrap();
    parent.add_child(&graph, &[]).unwrap();
    let execs = [&graph, &graph, &clone, &parent].map(|graph| graph.instantiate().unwrap());
    drop((graph, clone, parent));
    for (launch, exec) in (1..=12).zip(execs.iter().cycle()) {
        exec.launch(&stream).unwrap();
        assert_eq!((y.to_host().unwrap(), count.load(Ordering::Relaxed)), (vec![launch], u32::from(launch)));
    }
    // The hook is dropped together with the last executable.
    let holders = Arc::strong_count(&count);
    drop(execs);
    stream.synchronize().unwrap();
    stream.device().synchronize().unwrap();
    assert_eq!((holders, Arc::strong_count(&count)), (2, 1));
}

#[test]
fn its_error_fails_the_launch() {
    let stream = stream();
    let mut y = DeviceBuffer::zeros(&stream, 1).unwrap();
    let fails = Arc::new(AtomicU32::new(1));
    let failing = Arc::clone(&fails);
    let exec = graph(&stream, &mut y, move || match failing.load(Ordering::Relaxed) {
        0 => Ok(9),
        _ => Err(Error::Graph(GraphError::CaptureEnded)),
    })
    .instantiate()
    .unwrap();
    for _ in 0..2 {
        assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::CaptureEnded))));
        assert_eq!(y.to_host().unwrap(), [0]);
    }
    fails.store(0, Ordering::Relaxed);
    exec.launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [9]);
}

#[test]
fn a_launch_that_is_refused_calls_it_not() {
    let stream = stream();
    let mut y = DeviceBuffer::zeros(&stream, 1).unwrap();
    let (count, next) = counter();
    let graph = graph(&stream, &mut y, next);
    let mut parent = Graph::new(stream.device()).unwrap();
    parent.add_child(&graph, &[]).unwrap();
    let execs = [graph.instantiate().unwrap(), parent.instantiate().unwrap()];
    execs[0].launch(&stream).unwrap();
    drop(y);
    for exec in &execs {
        assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { .. }))));
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn an_updated_executable_calls_the_new_one() {
    let stream = stream();
    let (mut y, mut z) = (DeviceBuffer::zeros(&stream, 1).unwrap(), DeviceBuffer::zeros(&stream, 1).unwrap());
    let ((old, next), (new, other)) = (counter(), counter());
    let mut exec = graph(&stream, &mut y, next).instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.update(&graph(&stream, &mut z, other)).unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!([old, new].map(|count| count.load(Ordering::Relaxed)), [1, 2]);
    assert_eq!((y.to_host().unwrap(), z.to_host().unwrap()), (vec![1], vec![2]));
}

#[test]
fn launches_of_two_threads_see_their_own_values() {
    let main = stream();
    let mut y = DeviceBuffer::zeros(&main, 1).unwrap();
    let (count, next) = counter();
    let graph = graph(&main, &mut y, next);
    let execs = [graph.instantiate().unwrap(), graph.instantiate().unwrap()];
    // The output of a launch is read on its own stream directly after it, so that a value seen twice would be detected.
    let seen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for exec in &execs {
            scope.spawn(|| {
                let own = Stream::new(main.device()).unwrap();
                for _ in 0..40 {
                    let mut seen = seen.lock().unwrap();
                    exec.launch(&own).unwrap();
                    seen.push(y.to_host().unwrap()[0]);
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 80);
    assert!(seen.into_inner().unwrap().into_iter().eq(1..=80));
}

#[test]
fn streams_of_one_capture_have_one_identity() {
    let main = stream();
    let side = Stream::new(main.device()).unwrap();
    assert!(main.capture_id().is_none());
    assert!(matches!(main.on_graph_launch(|_| Ok(())), Err(Error::Graph(GraphError::NotCapturing { .. }))));
    let capture = Capture::begin(&main, CaptureMode::ThreadLocal).unwrap();
    side.wait_stream(&main).unwrap();
    let id = main.capture_id().unwrap();
    assert!(id.is_active() && side.capture_id().as_ref() == Some(&id));
    main.wait_stream(&side).unwrap();
    let graph = capture.end().unwrap();
    assert!(!id.is_active() && main.capture_id().is_none());
    let next = Capture::begin(&main, CaptureMode::ThreadLocal).unwrap();
    assert!(main.capture_id().is_some_and(|next| next != id));
    drop((next, graph));
    assert!(!id.is_active());
}
