//! Tests of graphs that are built node by node, updated in place, and cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, Schedule};
use warpsmith_runtime::{
    Device, DeviceBuffer, Error, Graph, GraphCache, GraphError, Launch, PinnedBuffer, Stream,
};

#[test]
fn nodes_are_ordered_by_use_and_by_name() {
    let driver = EmulatedDriver::builder().stepped(Schedule::Random(5)).check_races().build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 3).unwrap();
    let mut z = DeviceBuffer::zeros(&stream, 3).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let mut graph = Graph::new(&device).unwrap();
    graph.add_memset(&mut y, 0, &[]).unwrap();
    graph.add_kernel(&kernel, Launch::auto(3), (5, &x, &mut y), &[]).unwrap();
    let copy = graph.add_copy(&y, &mut z, &[]).unwrap();
    let counted = Arc::clone(&calls);
    let host = graph
        .add_host_function(
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            },
            &[copy],
        )
        .unwrap();
    graph.add_empty(&[host]).unwrap();
    assert_eq!(graph.node_count().unwrap(), 5);
    assert_eq!(graph.to_dot().unwrap().matches(" -> ").count(), 4, "{}", graph.to_dot().unwrap());
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    assert_eq!(z.to_host().unwrap(), [1, 2, 3].map(|x| mixed(5, x, 0)));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert!(driver.take_races().is_empty());
}

#[test]
fn a_kernel_node_is_given_other_arguments() {
    let (driver, device, stream, kernel) = kernel_fixture::<Mix>();
    let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 3).unwrap();
    let mut z = DeviceBuffer::zeros(&stream, 3).unwrap();
    let mut graph = Graph::new(&device).unwrap();
    let node = graph.add_kernel(&kernel, Launch::auto(3), (5, &x, &mut y), &[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.set_kernel(&node, &kernel, Launch::auto(3), (6, &x, &mut y)).unwrap();
    exec.launch(&stream).unwrap();
    exec.set_kernel(&node, &kernel, Launch::linear(3, 1), (7, &x, &mut z)).unwrap();
    exec.launch(&stream).unwrap();
    let twice = |x| mixed(6, x, mixed(5, x, 0));
    assert_eq!(y.to_host().unwrap(), [1, 2, 3].map(twice));
    assert_eq!(z.to_host().unwrap(), [1, 2, 3].map(|x| mixed(7, x, 0)));
    drop(y); // not used any more
    exec.launch(&stream).unwrap();
    assert_eq!(driver.calls(Call::GraphInstantiate), 1);
    drop(z);
    assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { .. }))));
}

#[test]
fn arguments_that_need_another_order_are_refused() {
    let (_, device, stream, kernel) = kernel_fixture::<Iota>();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 8).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 8).unwrap();
    let mut graph = Graph::new(&device).unwrap();
    let first = graph.add_kernel(&kernel, Launch::auto(8), (&mut x,), &[]).unwrap();
    graph.add_kernel(&kernel, Launch::auto(8), (&mut y,), &[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let error = exec.set_kernel(&first, &kernel, Launch::auto(8), (&mut y,)).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NodeConflict { node: 0, other: 1 })), "{error}");
    exec.launch(&stream).unwrap();
    let mut other = Graph::new(&device).unwrap();
    assert!(matches!(other.add_empty(&[first.node()]), Err(Error::Graph(GraphError::NodeOfOtherGraph))));
    let mut exec = other.instantiate().unwrap();
    let error = exec.set_kernel(&first, &kernel, Launch::auto(8), (&mut x,)).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NodeOfOtherGraph)), "{error}");
    let error = graph.add_kernel(&kernel, Launch::auto(0), (&mut x,), &[]).unwrap_err();
    assert!(error.to_string().contains("iota__u32"), "{error}");
}

#[test]
fn child_graphs_and_clones_are_independent() {
    let (_, device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    let mut y = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    let inner = Graph::capture(&stream, || {
        let mut between = DeviceBuffer::<u8>::uninit(&stream, 4)?;
        stream.memset(&mut between, 3)?;
        stream.copy(&between, &mut x)
    })
    .unwrap();
    let mut outer = Graph::new(&device).unwrap();
    outer.add_child(&inner, &[]).unwrap();
    outer.add_copy(&x, &mut y, &[]).unwrap();
    drop(inner);
    let clone = outer.try_clone().unwrap();
    outer.add_memset(&mut y, 9, &[]).unwrap();
    assert_eq!((outer.node_count().unwrap(), clone.node_count().unwrap()), (3, 2));
    clone.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [3; 4]);
    outer.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [9; 4]);
    assert!(outer.to_dot().unwrap().contains("subgraph cluster_0"));
}

#[test]
fn nodes_added_to_a_capture_come_after_it() {
    let (_, device, stream) = fixture();
    let mut host = PinnedBuffer::zeroed(&device, 4).unwrap().into_mapped(&stream).unwrap();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    let mut graph = Graph::capture(&stream, || stream.memset(&mut x, 6)).unwrap();
    graph.add_copy(&x, host.as_mut_slice(), &[]).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(*host.lock().unwrap(), [6; 4]);
}

#[test]
fn parts_of_a_graph_run_by_condition() {
    let (_, device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    for (initial, expected) in [(0, 0), (1, 8), (5, 8)] {
        let mut graph = Graph::new(&device).unwrap();
        graph.add_memset(&mut x, 0, &[]).unwrap();
        let condition = graph.add_condition(Some(initial)).unwrap();
        let mut body = Graph::new(&device).unwrap();
        body.add_memset(&mut x, 8, &[]).unwrap();
        graph.add_if(&condition, &body).unwrap();
        // The body is copied, so later changes are not part of the graph.
        body.add_memset(&mut x, 9, &[]).unwrap();
        drop(body);
        let exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        assert_eq!(x.to_host().unwrap(), [expected; 4], "condition {initial}");
    }
    for (initial, expected) in [(0, 10), (2, 12), (3, 0)] {
        let mut graph = Graph::new(&device).unwrap();
        graph.add_memset(&mut x, 0, &[]).unwrap();
        let condition = graph.add_condition(Some(initial)).unwrap();
        let mut part = |value| {
            let mut body = Graph::new(&device).unwrap();
            body.add_memset(&mut x, value, &[]).unwrap();
            body
        };
        let bodies = [10, 11, 12].map(&mut part);
        graph.add_switch(&condition, &bodies.each_ref()).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(x.to_host().unwrap(), [expected; 4], "condition {initial}");
    }
    for (initial, expected) in [(0, 2), (1, 1)] {
        // One graph can be the body of many nodes, and captured graphs have their own memory.
        let capturing = Stream::new(&device).unwrap();
        let [then, otherwise] = [1, 2].map(|value| {
            Graph::capture(&capturing, || {
                let mut between = DeviceBuffer::<u8>::uninit(&capturing, 4)?;
                capturing.memset(&mut between, value)?;
                capturing.copy(&between, &mut x)
            })
            .unwrap()
        });
        let mut graph = Graph::new(&device).unwrap();
        let first = graph.add_condition(Some(initial)).unwrap();
        graph.add_if_else(&first, &then, &otherwise).unwrap();
        let never = graph.add_condition(Some(0)).unwrap();
        graph.add_while(&never, &then).unwrap();
        drop((then, otherwise));
        let exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        assert_eq!(x.to_host().unwrap(), [expected; 4], "condition {initial}");
    }
}

#[test]
fn conditional_parts_that_cannot_be_are_refused() {
    let (driver, [device, other]) = devices();
    let stream = device.default_stream();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    let mut graph = Graph::new(&device).unwrap();
    let condition = graph.add_condition(Some(1)).unwrap();
    let foreign = Graph::new(&other).unwrap();
    let error = graph.add_if(&condition, &foreign).unwrap_err();
    assert!(matches!(error, Error::DifferentDevices { .. }), "{error}");
    assert!(graph.add_switch(&condition, &[]).is_err());
    let mut inner = Graph::new(&device).unwrap();
    let error = inner.add_if(&condition, &graph).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NodeOfOtherGraph)), "{error}");
    assert_eq!((graph.node_count().unwrap(), inner.node_count().unwrap()), (0, 0));
    let own = inner.add_condition(Some(1)).unwrap();
    inner.add_if(&own, &Graph::new(&device).unwrap()).unwrap();
    assert!(graph.add_if(&condition, &inner).is_err(), "the body of a conditional node");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();

    let mut calling = Graph::new(&device).unwrap();
    calling.add_host_function(|| (), &[]).unwrap();
    let mut outer = Graph::new(&device).unwrap();
    let condition = outer.add_condition(Some(1)).unwrap();
    let added = outer.add_if(&condition, &calling).and_then(|_| outer.instantiate());
    assert!(added.is_err(), "a body that calls a function on the host");

    // If the driver fails partway, the graph must still track every buffer that it may use.
    let mut body = Graph::new(&device).unwrap();
    body.add_memset(&mut x, 8, &[]).unwrap();
    for call in [Call::GraphAddConditional, Call::GraphAdd] {
        let mut graph = Graph::new(&device).unwrap();
        let condition = graph.add_condition(Some(1)).unwrap();
        driver.fail_call(call, u64::from(call == Call::GraphAdd));
        assert!(graph.add_if_else(&condition, &body, &body).is_err(), "{call:?}");
        let exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        let expected = if call == Call::GraphAdd { 8 } else { 0 };
        assert_eq!(x.to_host().unwrap(), [expected; 4], "{call:?}");
        drop(std::mem::replace(&mut x, DeviceBuffer::zeros(&stream, 4).unwrap()));
        assert!(
            matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { bytes: 4, .. }))),
            "{call:?}"
        );
        body = Graph::new(&device).unwrap();
        body.add_memset(&mut x, 8, &[]).unwrap();
    }
}

#[test]
fn a_cache_captures_each_key_shape_and_address() {
    let (driver, device, stream) = fixture();
    let buffers: Vec<DeviceBuffer<u32>> =
        (0..3).map(|value| DeviceBuffer::from_host(&stream, &[value; 16]).unwrap()).collect();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 16).unwrap();
    let mut cache = GraphCache::new(&device, 2);
    let mut run = |cache: &mut GraphCache<&str>, key, index: usize, len: usize| {
        let x = buffers[index].slice(..len);
        let inputs = [(&x).into(), (&y).into()];
        cache.launch(&stream, key, &inputs, |stream| stream.copy(x, y.slice_mut(..len))).unwrap();
        assert_eq!(y.to_host().unwrap()[..len], vec![index as u32; len]);
    };
    run(&mut cache, "a", 1, 16);
    run(&mut cache, "a", 1, 16);
    assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    run(&mut cache, "a", 2, 16); // another address
    run(&mut cache, "a", 1, 16);
    assert_eq!((cache.stats().hits, cache.stats().misses, cache.len()), (2, 2, 2));
    run(&mut cache, "a", 1, 8); // another length: one entry is evicted, that of buffer 2
    assert_eq!((cache.stats().evictions, cache.len()), (1, 2));
    run(&mut cache, "a", 1, 16);
    assert_eq!((cache.stats().hits, cache.stats().misses), (3, 3));
    run(&mut cache, "b", 1, 16); // another key
    assert_eq!((cache.stats().misses, driver.calls(Call::GraphInstantiate)), (4, 4));
    cache.clear();
    assert!(cache.is_empty());
}

#[test]
fn a_cache_recaptures_after_an_unlisted_buffer_goes() {
    let (_, device, stream) = fixture();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 4).unwrap();
    let mut cache = GraphCache::new(&device, 4);
    for value in 1..4u32 {
        let weights = DeviceBuffer::from_host(&stream, &[value; 4]).unwrap();
        let inputs = [(&y).into()];
        cache.launch(&stream, (), &inputs, |stream| stream.copy(&weights, &mut y)).unwrap();
        assert_eq!(y.to_host().unwrap(), [value; 4]);
    }
    assert_eq!((cache.stats().misses, cache.len()), (3, 1));
}
