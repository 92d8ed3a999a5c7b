//! Tests of captured graphs: the effects of their launches, and their order relative to everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, Schedule};
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, Error, Graph, GraphError, Launch, PinnedBuffer, Stream,
};

#[test]
fn each_launch_does_what_was_captured() {
    let (driver, _, stream, kernel) = kernel_fixture::<Mix>();
    let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 3).unwrap();
    driver.reset_calls();
    let graph = Graph::capture(&stream, || {
        kernel.launch(&stream, Launch::auto(3), (5, &x, &mut y))?;
        kernel.launch(&stream, Launch::auto(3), (7, &x, &mut y))
    })
    .unwrap();
    assert_eq!(y.to_host().unwrap(), [0; 3], "nothing has run");
    assert_eq!(graph.node_count().unwrap(), 2);
    let exec = graph.instantiate().unwrap();
    drop(graph);
    let mut expected = [0u32; 3];
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
        for (y, x) in expected.iter_mut().zip([1, 2, 3]) {
            *y = mixed(7, x, mixed(5, x, *y));
        }
        assert_eq!(y.to_host().unwrap(), expected);
    }
    assert_eq!((driver.calls(Call::Launch), driver.calls(Call::GraphLaunch)), (2, 3));
}

#[test]
fn a_launch_on_one_stream_needs_no_wait() {
    let (driver, _, stream) = fixture();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 8).unwrap();
    let exec = Graph::capture(&stream, || stream.memset(&mut x, 1)).unwrap().instantiate().unwrap();
    driver.reset_calls();
    for _ in 0..10 {
        exec.launch(&stream).unwrap();
        stream.memset(&mut x, 2).unwrap();
    }
    assert_eq!([Call::EventRecord, Call::StreamWaitEvent].map(|call| driver.calls(call)), [0; 2]);
}

#[test]
fn events_of_a_capture_let_streams_take_part() {
    let (_, _, [main, side]) = streams_fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&main, 4).unwrap();
    let mut inside = None;
    let graph = Graph::capture(&main, || {
        let event = main.record_event()?;
        side.wait_event(&event)?;
        assert!(side.is_capturing());
        side.memset(&mut x, 7)?;
        let done = side.record_event()?;
        main.wait_event(&done)?;
        inside = Some(event);
        Ok::<_, Error>(())
    })
    .unwrap();
    let inside = inside.unwrap();
    assert!(matches!(
        inside.query(),
        Err(Error::Graph(GraphError::NotCapturable { call: "Event::query", .. }))
    ));
    assert!(matches!(inside.synchronize(), Err(Error::Graph(GraphError::NotCapturable { .. }))));
    assert!(matches!(side.wait_event(&inside), Err(Error::Graph(GraphError::CaptureEnded))));
    graph.instantiate().unwrap().launch(&side).unwrap();
    assert_eq!(x.to_host().unwrap(), [7; 4]);
    inside.record(&side).unwrap();
    inside.synchronize().unwrap();
}

#[test]
fn eager_work_elsewhere_goes_on_during_a_capture() {
    let (_, _, [captured, other]) = streams_fixture();
    let mut x = DeviceBuffer::from_host(&captured, &[1u32, 2]).unwrap();
    let mut y = DeviceBuffer::zeros(&other, 2).unwrap();
    captured.memset(&mut x, 5).unwrap(); // runs before the capture, on the captured stream
    let mut z = DeviceBuffer::<u32>::zeros(&captured, 2).unwrap();
    let capture = Capture::begin(&captured, CaptureMode::ThreadLocal).unwrap();
    captured.memset(&mut z, 1).unwrap();
    // Work on another stream waits for the work before the capture, and does not become part of it.
    other.copy(&x, &mut y).unwrap();
    assert!(!other.is_capturing());
    other.synchronize().unwrap();
    assert_eq!(y.to_host().unwrap(), [0x0505_0505; 2]);
    let graph = capture.end().unwrap();
    assert_eq!(graph.node_count().unwrap(), 1);
    assert_eq!(z.to_host().unwrap(), [0; 2]);
}

#[test]
fn waits_of_a_capture_order_nothing_outside() {
    let driver = EmulatedDriver::builder().stepped(Schedule::Random(1)).check_races().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    let [main, side] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let mut x = DeviceBuffer::<u32>::zeros(&main, 4).unwrap();
    main.memset(&mut x, 1).unwrap(); // runs for some time
    let mut y = DeviceBuffer::<u32>::zeros(&side, 4).unwrap();
    Graph::capture(&main, || {
        side.wait_stream(&main)?; // in the graph only
        side.memset(&mut y, 1)?;
        main.wait_stream(&side)
    })
    .unwrap();
    side.copy(&x, &mut y).unwrap(); // must wait for the work on `main`, which the capture did not do
    assert_eq!(y.to_host().unwrap(), [0x0101_0101; 4]);
    assert!(driver.take_races().is_empty());
}

#[test]
fn each_launch_calls_the_host_functions() {
    let (_, _, stream) = fixture();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let graph = Graph::capture(&stream, || {
        stream.graph_function(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    drop(exec); // while launches run
    stream.synchronize().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    let error = stream.graph_function(|| ()).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NotCapturing { .. })), "{error}");
}

#[test]
fn each_launch_copies_host_memory() {
    let (driver, device, stream) = fixture();
    let mapped = || PinnedBuffer::<u32>::zeroed(&device, 4).unwrap().into_mapped(&stream).unwrap();
    let (mut input, mut output) = (mapped(), mapped());
    let mut x = DeviceBuffer::<u32>::uninit(&stream, 4).unwrap();
    let graph = Graph::capture(&stream, || {
        stream.copy(input.as_slice(), &mut x)?;
        stream.copy(&x, output.as_mut_slice())
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    driver.set_delay(Duration::from_millis(5));
    for value in 1..4u32 {
        input.lock().unwrap().fill(value);
        exec.launch(&stream).unwrap();
        assert_eq!(*output.lock().unwrap(), [value; 4], "the guard waits for the launch");
    }
    let guard = input.lock().unwrap();
    assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::HostBufferInUse))));
    drop(guard);
    exec.launch(&stream).unwrap();
}

#[test]
fn an_update_changes_later_launches_only() {
    let (driver, _, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 8).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 8).unwrap();
    let first = Graph::capture(&stream, || stream.memset(&mut x, 1)).unwrap();
    let second = Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap();
    let mut exec = first.instantiate().unwrap();
    let hold = driver.hold();
    exec.launch(&stream).unwrap();
    exec.update(&second).unwrap();
    exec.launch(&stream).unwrap();
    drop(hold);
    assert_eq!((x.to_host().unwrap(), y.to_host().unwrap()), (vec![1; 8], vec![2; 8]));
    drop(x);
    exec.launch(&stream).unwrap();
    let longer = Graph::capture(&stream, || {
        stream.memset(&mut y, 2)?;
        stream.memset(&mut y, 3)
    })
    .unwrap();
    let error = exec.update(&longer).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NotUpdated { .. })), "{error}");
    exec.launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [2; 8]);
}

#[test]
fn a_graphs_fault_names_the_kernel() {
    let (_, device, stream, kernel) = kernel_fixture::<PanicAt>();
    let graph = Graph::capture(&stream, || kernel.launch(&stream, Launch::linear(64, 32), (40,))).unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("panic_at"), "{error}");
    let error = exec.launch(&stream).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    assert!(matches!(Graph::capture(&stream, || Ok::<_, Error>(())), Err(Error::DeviceLost { .. })));
    drop((exec, graph, stream));
    assert!(device.take_drop_error().is_none());
}

#[test]
fn a_picture_names_what_nodes_do() {
    let (_, _, stream, kernel) = kernel_fixture::<Iota>();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let graph = Graph::capture(&stream, || {
        stream.memset(&mut x, 1)?;
        kernel.launch(&stream, Launch::linear(100, 50), (&mut x,))
    })
    .unwrap();
    let dot = graph.to_dot().unwrap();
    assert!(dot.contains("iota__u32") && dot.contains("[2, 1, 1] x [50, 1, 1]"), "{dot}");
    assert!(dot.contains("set 400 bytes") && dot.contains("n0 -> n1"), "{dot}");
}
