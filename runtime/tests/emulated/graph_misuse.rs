//! Tests of calls that cannot be captured, and of misused graphs: clear errors, and streams that work afterwards.

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, DeviceId, Error, Event, Graph, GraphError, Launch, PinnedBuffer, Stream,
};

/// Creates a stream, a buffer of four bytes with the value 1, and another buffer.
fn set_up(device: &Device) -> (Stream, DeviceBuffer<u8>, DeviceBuffer<u8>) {
    let stream = Stream::new(device).unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u8; 4]).unwrap();
    let y = DeviceBuffer::zeros(&stream, 4).unwrap();
    (stream, x, y)
}

#[test]
fn what_cannot_be_captured_is_named() {
    let (_, device) = device();
    let (stream, x, mut y) = set_up(&device);
    let event = Event::new(&device).unwrap();
    event.record(&stream).unwrap();
    let other = Stream::new(&device).unwrap();
    let graph = Graph::capture(&stream, || {
        stream.copy(&x, &mut y)?;
        let refused = [
            stream.synchronize().unwrap_err(),
            stream.query().unwrap_err(),
            x.to_host().map(drop).unwrap_err(),
            x.copy_to_host(&mut [0; 4]).unwrap_err(),
            stream.host_function(|| ()).unwrap_err(),
            stream.copy_from_host_async(vec![1u8; 4], &mut y).map(drop).unwrap_err().error,
            stream
                .copy_from_host_async(PinnedBuffer::from_slice(&device, &[1u8; 4])?, &mut y)
                .map(drop)
                .unwrap_err()
                .error,
            stream.copy_to_host_async(&x, vec![0u8; 4]).map(drop).unwrap_err().error,
        ];
        for error in refused {
            assert!(matches!(error, Error::Graph(GraphError::NotCapturable { .. })), "{error}");
            assert!(error.to_string().contains("cannot be captured into a graph"), "{error}");
        }
        assert!(matches!(device.synchronize(), Err(Error::Graph(GraphError::CaptureUnderway))));
        assert!(matches!(stream.wait_event(&event), Err(Error::Graph(GraphError::OutsideCapture { .. }))));
        assert!(matches!(stream.wait_stream(&other), Err(Error::Graph(GraphError::OutsideCapture { .. }))));
        stream.copy(&x, &mut y)
    })
    .unwrap();
    assert_eq!(graph.node_count().unwrap(), 2);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [1; 4]);
}

#[test]
fn no_default_stream_and_no_stream_twice() {
    let (_, device) = device();
    let default = device.default_stream();
    assert!(matches!(
        Capture::begin(&default, CaptureMode::Relaxed),
        Err(Error::Graph(GraphError::SharedStream))
    ));
    let stream = Stream::new(&device).unwrap();
    let capture = Capture::begin(&stream, CaptureMode::Relaxed).unwrap();
    assert!(matches!(
        Capture::begin(&stream, CaptureMode::Relaxed),
        Err(Error::Graph(GraphError::CaptureUnderway))
    ));
    assert!(matches!(default.wait_stream(&stream), Err(Error::Graph(GraphError::SharedStream))));
    assert!(stream.is_capturing());
    drop(capture);
    assert!(!stream.is_capturing());
    default.wait_stream(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_capture_ends_with_an_error_or_panic() {
    let (driver, device) = device();
    let (stream, x, mut y) = set_up(&device);
    let failed = Graph::capture(&stream, || {
        stream.copy(&x, &mut y)?;
        Err::<(), _>(Error::NoElapsedTime("any error"))
    });
    assert!(matches!(failed, Err(Error::NoElapsedTime(_))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Graph::capture(&stream, || -> Result<(), Error> { panic!("in the capture") })
    }));
    assert!(panicked.is_err());
    assert_eq!((driver.calls(Call::CaptureBegin), driver.calls(Call::CaptureEnd)), (2, 2));
    assert!(!stream.is_capturing());
    stream.copy(&x, &mut y).unwrap();
    assert_eq!(y.to_host().unwrap(), [1; 4]);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn failures_of_the_driver_end_the_capture() {
    for (call, after) in
        [(Call::CaptureBegin, 0), (Call::CaptureEnd, 0), (Call::CopyDevice, 0), (Call::EventRecord, 0)]
    {
        let (driver, device) = device();
        let (stream, x, mut y) = set_up(&device);
        driver.fail_call(call, after);
        let failed = Graph::capture(&stream, || stream.copy(&x, &mut y));
        assert!(failed.is_err(), "{call:?}");
        assert!(!stream.is_capturing(), "{call:?}");
        stream.copy(&x, &mut y).unwrap();
        assert_eq!(y.to_host().unwrap(), [1; 4], "{call:?}");
        Graph::capture(&stream, || stream.copy(&x, &mut y)).unwrap();
    }
}

#[test]
fn streams_that_took_part_must_be_waited_for() {
    let (_, device) = device();
    let (stream, x, mut y) = set_up(&device);
    let side = Stream::new(&device).unwrap();
    let failed = Graph::capture(&stream, || {
        side.wait_stream(&stream)?;
        side.copy(&x, &mut y)
    });
    assert!(matches!(failed, Err(Error::Graph(GraphError::NotJoined))), "{failed:?}");
    assert!(!side.is_capturing());
    side.copy(&x, &mut y).unwrap();
    assert_eq!(y.to_host().unwrap(), [1; 4]);
}

#[test]
fn a_graph_without_its_buffer_is_refused() {
    let (_, device) = device();
    let (stream, x, mut y) = set_up(&device);
    let graph = Graph::capture(&stream, || stream.copy(&x, &mut y)).unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    drop(x); // while the launch runs
    let error = exec.launch(&stream).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::BufferDropped { bytes: 4, .. })), "{error}");
    assert_eq!(y.to_host().unwrap(), [1; 4]);
    assert!(graph.instantiate().unwrap().launch(&stream).is_err());
}

#[test]
fn graphs_of_different_devices_do_not_mix() {
    let (_, [first, second]) = devices();
    let (stream, x, mut y) = set_up(&first);
    let (other, z, _) = set_up(&second);
    let graph = Graph::capture(&stream, || stream.copy(&x, &mut y)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let on_other =
        |error: Error| matches!(error, Error::DifferentDevices { found: DeviceId::Emulated(_), .. });
    assert!(on_other(exec.launch(&other).unwrap_err()));
    assert!(on_other(exec.upload(&other).unwrap_err()));
    assert!(on_other(exec.update(&Graph::new(&second).unwrap()).unwrap_err()));
    let mut built = Graph::new(&first).unwrap();
    assert!(on_other(built.add_copy(&z, &mut y, &[]).unwrap_err()));
    assert!(on_other(built.add_child(&Graph::new(&second).unwrap(), &[]).unwrap_err()));
    let iota = module(&second).kernel::<Iota>().unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&other, 4).unwrap();
    assert!(on_other(built.add_kernel(&iota, Launch::auto(4), (&mut out,), &[]).unwrap_err()));
    let refused = Graph::capture(&stream, || {
        assert!(matches!(other.wait_stream(&stream), Err(Error::Graph(GraphError::NotCapturable { .. }))));
        stream.copy(&z, &mut y)
    });
    assert!(matches!(refused, Err(Error::Graph(GraphError::NotCapturable { .. }))), "{refused:?}");
    built.add_copy(&x, &mut y, &[]).unwrap();
}

#[test]
fn a_launch_into_a_capture_is_refused() {
    let (_, device) = device();
    let (stream, x, mut y) = set_up(&device);
    let exec = Graph::capture(&stream, || stream.copy(&x, &mut y)).unwrap().instantiate().unwrap();
    let refused = Graph::capture(&stream, || exec.launch(&stream));
    assert!(
        matches!(refused, Err(Error::Graph(GraphError::NotCapturable { call: "GraphExec::launch", .. }))),
        "{refused:?}"
    );
    exec.launch(&stream).unwrap();
}

#[test]
fn work_of_another_thread_cannot_slip_in() {
    // Regardless of the outcome of the race, a graph with unrecorded work must not be launched.
    for _ in 0..200 {
        let (_, device) = device();
        let (stream, x, mut y) = set_up(&device);
        let mut z = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
        let graph = std::thread::scope(|scope| {
            let beside = scope.spawn(|| stream.memset(&mut z, 9));
            let graph = Graph::capture(&stream, || stream.copy(&x, &mut y));
            let _ = beside.join().unwrap();
            graph
        });
        let Ok(graph) = graph else { continue };
        let nodes = graph.node_count().unwrap();
        drop(z);
        match graph.instantiate().and_then(|exec| exec.launch(&stream)) {
            Ok(()) => assert_eq!(nodes, 1, "the other thread's work is not in it"),
            Err(Error::Graph(GraphError::Invalidated) | Error::Graph(GraphError::BufferDropped { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_capture_begun_meanwhile_is_tainted() -> Result<(), Error> {
    let stream = Stream::new(&Device::emulated(0)?)?;
    let stable: Result<u32, Error> = stream.with_stable_capture_state(|| Ok(7));
    assert_eq!(stable?, 7);
    let mut graph = None;
    let moved: Result<(), Error> = stream.with_stable_capture_state(|| {
        graph = Some(Graph::capture(&stream, || Ok::<_, Error>(()))?);
        Ok(())
    });
    assert!(matches!(moved, Err(Error::Graph(GraphError::Invalidated))), "{moved:?}");
    let instantiated = graph.expect("it was captured").instantiate().map(drop);
    assert!(matches!(instantiated, Err(Error::Graph(GraphError::Invalidated))), "{instantiated:?}");
    // Another error is reported unchanged.
    let other: Result<(), Error> = stream.with_stable_capture_state(|| {
        Graph::capture(&stream, || Ok::<_, Error>(()))?;
        Err(Error::PerThreadStream)
    });
    assert!(matches!(other, Err(Error::PerThreadStream)), "{other:?}");
    Graph::capture(&stream, || Ok::<_, Error>(()))?.instantiate()?.launch(&stream)
}
