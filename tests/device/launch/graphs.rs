//! Graphs of this crate's kernels on the device under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use test_kernels::conditions::{count_down, set_from};
use warpsmith::graph::{CaptureMode, Graph, GraphCache};
use warpsmith::kernels::elementwise::axpy;
use warpsmith::prelude::*;
use warpsmith::{Capture, Error, GraphError};
use warpsmith::{IMAGE, ops};

use crate::common::{Random, device};

fn own_stream() -> Stream {
    Stream::new(&device()).expect("a stream")
}

#[test]
fn operations_with_memory_of_their_own_are_captured() {
    let stream = own_stream();
    let mut random = Random::new();
    let n = 100_003;
    let values: Vec<i32> = random.values(n, 1.0);
    let mut x = DeviceBuffer::from_host(&stream, &values).unwrap();
    let mut total = DeviceBuffer::<i64>::zeros(&stream, 1).unwrap();
    let mut smallest = DeviceBuffer::<i32>::zeros(&stream, 1).unwrap();
    let graph = Graph::capture(&stream, || {
        ops::sum_into(&stream, &x, &mut total)?;
        ops::min_into(&stream, &x, &mut smallest)?;
        ops::sum_into(&stream, &x, &mut total)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    for round in 0..20 {
        let values: Vec<i32> = random.values(n, 1.0);
        x.copy_from_host(&values).unwrap();
        exec.launch(&stream).unwrap();
        // The same operations outside of the graph, on the same stream, while the graph runs.
        let beside = ops::sum(&stream, &x).unwrap();
        let expected: i64 = values.iter().map(|value| i64::from(*value)).sum();
        assert_eq!((beside, total.to_host().unwrap()[0]), (expected, expected), "round {round}");
        assert_eq!(smallest.to_host().unwrap()[0], values.iter().copied().min().unwrap(), "round {round}");
    }
}

#[test]
fn captured_streams_equal_eager_ones() {
    let [main, side] = [own_stream(), own_stream()];
    let mut random = Random::new();
    let n = 70_001;
    let start: Vec<f32> = random.values(n, 10.0);
    let mapped = || PinnedBuffer::<f32>::zeroed(main.device(), n).unwrap().into_mapped(&main).unwrap();
    let (mut input, mut output) = (mapped(), mapped());
    let mut x = DeviceBuffer::<f32>::uninit(&main, n).unwrap();
    let mut y = DeviceBuffer::<f32>::uninit(&main, n).unwrap();
    let graph = Graph::capture(&main, || -> warpsmith::Result<()> {
        main.copy(input.as_slice(), &mut x)?;
        side.wait_stream(&main)?;
        ops::add(&side, &x, &x, &mut y)?;
        let mut between = DeviceBuffer::<f32>::uninit(&main, n)?;
        ops::mul(&main, &x, &x, &mut between)?;
        main.wait_stream(&side)?;
        ops::axpy(&main, &between, 1.0, &mut y)?;
        main.copy(&y, output.as_mut_slice())
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    exec.upload(&main).unwrap();
    for round in 1..10 {
        let values: Vec<f32> = start.iter().map(|value| value * round as f32).collect();
        input.lock().unwrap().copy_from_slice(&values);
        exec.launch(if round % 2 == 0 { &main } else { &side }).unwrap();
        let expected: Vec<f32> = values.iter().map(|x| x * x + 2.0 * x).collect();
        let found = output.lock().unwrap();
        let wrong = found.iter().zip(&expected).position(|(a, b)| (*a - *b).abs() > 1e-5 * (10.0 + b.abs()));
        assert_eq!(wrong, None, "round {round}, seed {}", random.seed);
    }
}

#[test]
fn nodes_and_graphs_are_updated() {
    let stream = own_stream();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<axpy<f32, 1, 16>>().unwrap();
    let n = 4099;
    let ones = DeviceBuffer::from_host(&stream, &vec![1.0f32; n]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
    let mut z = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
    let launch = Launch::auto(n / 4 + 1);
    let mut graph = Graph::new(stream.device()).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let first = graph.add_kernel(&kernel, launch, (1.0, &ones, &mut y), &[]).unwrap();
    let host = graph
        .add_host_function(
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            },
            &[first.node()],
        )
        .unwrap();
    graph.add_copy(&y, &mut z, &[host]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    for step in 0..50 {
        exec.set_kernel(&first, &kernel, launch, (step as f32, &ones, &mut y)).unwrap();
        exec.launch(&stream).unwrap();
    }
    let expected = 1.0 + (0..50).sum::<i32>() as f32;
    assert!(z.to_host().unwrap().into_iter().all(|value| value == expected));
    assert_eq!(calls.load(Ordering::Relaxed), 51);

    let other = Graph::capture(&stream, || ops::copy(&stream, &ones, &mut y)).unwrap();
    let mut captured =
        Graph::capture(&stream, || ops::copy(&stream, &y, &mut z)).unwrap().instantiate().unwrap();
    captured.launch(&stream).unwrap();
    captured.update(&other).unwrap();
    captured.launch(&stream).unwrap();
    assert!(y.to_host().unwrap().into_iter().all(|value| value == 1.0));
    let error = captured.update(&graph).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::NotUpdated { .. })), "{error}");
    captured.launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn kernels_decide_what_a_graph_does() {
    let stream = own_stream();
    let module = stream.device().load(&test_kernels::IMAGE).unwrap();
    let (count_down, set_from) =
        (module.kernel::<count_down>().unwrap(), module.kernel::<set_from>().unwrap());
    let ones = DeviceBuffer::from_host(&stream, &[1.0f32; 100]).unwrap();
    let mut sum = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    let mut counter = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    let mut chosen = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    let one_warp = Launch::grid_block(1, 32);

    // The loop runs as often as the counter says.
    let mut looping = Graph::new(stream.device()).unwrap();
    let condition = looping.add_condition(Some(1)).unwrap();
    let mut body = Graph::capture(&stream, || ops::axpy(&stream, &ones, 1.0, &mut sum)).unwrap();
    let arguments = (condition.argument(), &mut counter);
    // SAFETY: the condition belongs to the graph that runs the kernel.
    unsafe { body.add_kernel_unsafe(&count_down, one_warp, arguments, &[]) }.unwrap();
    looping.add_while(&condition, &body).unwrap();
    let exec = looping.instantiate().unwrap();
    drop((looping, body));
    let mut expected = 0.0;
    for times in [3u32, 1, 10] {
        counter.copy_from_host(&[times]).unwrap();
        exec.launch(&stream).unwrap();
        expected += times as f32;
        assert_eq!(sum.to_host().unwrap(), [expected; 100]);
    }

    // The body runs only if the data say so.
    let mut choosing = Graph::new(stream.device()).unwrap();
    let condition = choosing.add_condition(None).unwrap();
    // SAFETY: as above.
    unsafe { choosing.add_kernel_unsafe(&set_from, one_warp, (condition.argument(), &chosen), &[]) }.unwrap();
    let body = Graph::capture(&stream, || ops::fill(&stream, 5.0, &mut sum)).unwrap();
    choosing.add_if(&condition, &body).unwrap();
    let exec = choosing.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(sum.to_host().unwrap(), [expected; 100]);
    chosen.copy_from_host(&[1]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(sum.to_host().unwrap(), [5.0; 100]);
}

#[test]
fn captures_in_every_mode_let_other_threads_work() {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let stream = own_stream();
        let mut x = DeviceBuffer::<u32>::zeros(&stream, 1 << 20).unwrap();
        let capture = Capture::begin(&stream, mode).unwrap();
        ops::fill(&stream, 3u32, &mut x).unwrap();
        let between = DeviceBuffer::<u32>::uninit(&stream, 3 << 20).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                // Allocates from the driver, copies, waits, queries, and frees.
                let own = Stream::new(&device()).unwrap();
                let data = vec![5u32; 1 << 20];
                let buffer = DeviceBuffer::from_host(&own, &data).unwrap();
                let event = own.record_event().unwrap();
                while !event.query().unwrap() {}
                assert_eq!(buffer.to_host().unwrap(), data);
                assert!(own.query().unwrap());
            });
            other.join().unwrap_or_else(|_| panic!("work beside a capture in mode {mode:?}"));
        });
        drop(between);
        let graph = capture.end().unwrap();
        assert_eq!(graph.node_count().unwrap(), 1, "{mode:?}");
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert!(x.to_host().unwrap().into_iter().all(|value| value == 3), "{mode:?}");
    }
}

#[test]
fn many_graphs_come_and_go_while_they_run() {
    let stream = own_stream();
    let n = 50_000;
    let ones = DeviceBuffer::from_host(&stream, &vec![1.0f32; n]).unwrap();
    let mut sum = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
    let mut cache = GraphCache::new(stream.device(), 4);
    for round in 0..60u32 {
        // More keys than the cache holds, so that graphs are dropped while they run.
        let inputs = [(&ones).into(), (&sum).into()];
        cache
            .launch(&stream, round % 6, &inputs, |stream| {
                let mut between = DeviceBuffer::<f32>::uninit(stream, n)?;
                ops::copy(stream, &ones, &mut between)?;
                ops::axpy(stream, &between, 1.0, &mut sum)
            })
            .unwrap();
    }
    assert!(cache.stats().evictions > 10);
    assert!(sum.to_host().unwrap().into_iter().all(|value| value == 60.0));
    drop(cache);
    stream.synchronize().unwrap();
    assert!(device().take_drop_error().is_none());
}
