//! Tests of the events that observers receive, and that observers cannot do harm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::SystemTime;

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::extension::{
    Access, Awaited, CopyDirection, Ended, GraphNode, GraphWork, MemoryKind, Observed, Observer, Operation,
    observe,
};
use warpsmith_runtime::memory::statistics::PoolId;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, Error, Event, Graph, Launch, LaunchConfig, PinnedBuffer, Stream,
};

/// A finished operation.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    id: u64,
    stream: Option<u64>,
    captured: bool,
    what: What,
    succeeded: bool,
    times: [SystemTime; 2],
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Launch(String, LaunchConfig),
    Graph,
    Copy(CopyDirection, [u64; 2], usize),
    Memset(u64, u8, usize),
    HostFunction,
    Extension(String),
    CaptureBegin,
    CaptureEnd(bool),
    Instantiate(bool),
    Record,
    Wait,
    Synchronize(Awaited),
    Allocate(MemoryKind, usize, u64, PoolId, bool),
    Free(MemoryKind, usize, u64),
}

impl What {
    fn of(operation: &Operation<'_>) -> Self {
        match *operation {
            Operation::Launch { kernel, config, .. } => What::Launch(kernel.to_owned(), *config),
            Operation::GraphLaunch { .. } => What::Graph,
            Operation::CaptureBegin => What::CaptureBegin,
            Operation::CaptureEnd { graph, .. } => What::CaptureEnd(graph.is_some()),
            Operation::GraphInstantiate { exec, .. } => What::Instantiate(exec.is_some()),
            Operation::Copy { direction, from, to, bytes } => What::Copy(direction, [from, to], bytes),
            Operation::Memset { to, value, bytes } => What::Memset(to, value, bytes),
            Operation::HostFunction => What::HostFunction,
            Operation::Extension { name } => What::Extension(name.to_owned()),
            Operation::EventRecord { .. } => What::Record,
            Operation::EventWait { .. } => What::Wait,
            Operation::Synchronize(awaited) => What::Synchronize(awaited),
            Operation::Allocate { memory, bytes, address, pool, cached, .. } => {
                What::Allocate(memory, bytes, address, pool, cached)
            }
            Operation::Free { memory, bytes, address } => What::Free(memory, bytes, address),
            _ => unreachable!("an operation that the test does not know"),
        }
    }
}

/// Records the operations of one device. Other tests of the program have other devices.
#[derive(Clone)]
struct Recorder {
    device: Arc<Mutex<Option<Device>>>,
    begun: Arc<Mutex<Vec<u64>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Recorder {
    fn of(device: &Device) -> Self {
        Self {
            device: Arc::new(Mutex::new(Some(device.clone()))),
            begun: Arc::default(),
            seen: Arc::default(),
        }
    }

    fn is_of(&self, device: &Device) -> bool {
        self.device.lock().unwrap().as_ref() == Some(device)
    }

    /// Takes the operations that have finished since the last call.
    fn take(&self) -> Vec<Seen> {
        assert_eq!(self.begun.lock().unwrap().len(), 0, "everything that began has ended");
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn whats(&self) -> Vec<What> {
        self.take().into_iter().map(|seen| seen.what).collect()
    }
}

impl Observer for Recorder {
    fn begin(&self, observed: &Observed<'_>) {
        if self.is_of(observed.device) {
            self.begun.lock().unwrap().push(observed.id);
        }
    }

    fn end(&self, observed: &Observed<'_>, ended: Ended) {
        if !self.is_of(observed.device) {
            return;
        }
        let mut begun = self.begun.lock().unwrap();
        let place = begun.iter().position(|id| *id == observed.id).expect("it has begun");
        begun.remove(place);
        assert!(ended.at >= observed.began);
        self.seen.lock().unwrap().push(Seen {
            id: observed.id,
            stream: observed.stream.map(|stream| stream.id),
            captured: observed.stream.is_some_and(|stream| stream.is_capturing),
            what: What::of(&observed.operation),
            succeeded: ended.succeeded,
            times: [observed.began, ended.at],
        });
    }
}

#[test]
fn each_operation_is_reported_with_what_it_does() {
    let (_, device, stream, kernel) = kernel_fixture::<Mix>();
    let recorder = Recorder::of(&device);
    let _observation = observe(recorder.clone());

    let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let at = x.as_device_ptr().0;
    let whats = recorder.whats();
    assert_eq!(whats[0], What::Allocate(MemoryKind::Device, 12, at, PoolId::default(), false));
    assert!(
        matches!(whats[1], What::Copy(CopyDirection::HostToDevice, [_, to], 12) if to == at),
        "{whats:?}"
    );
    assert_eq!(whats[2..], [What::Synchronize(Awaited::Stream)]);

    let mut y = DeviceBuffer::<u32>::uninit(&stream, 3).unwrap();
    let to = y.as_device_ptr().0;
    assert_eq!(recorder.whats(), [What::Allocate(MemoryKind::Device, 12, to, PoolId::default(), true)]);
    stream.memset(&mut y, 7).unwrap();
    stream.copy(&x, &mut y).unwrap();
    let launch = Launch::linear(100, 32);
    kernel.launch(&stream, launch, (5, &x, &mut y)).unwrap();
    let seen = recorder.take();
    let config = LaunchConfig::new([4, 1, 1], [32, 1, 1], 0);
    let expected = [
        What::Memset(to, 7, 12),
        What::Copy(CopyDirection::DeviceToDevice, [at, to], 12),
        What::Launch("mix__u32".to_owned(), config),
    ];
    assert_eq!(seen.iter().map(|seen| seen.what.clone()).collect::<Vec<_>>(), expected);
    assert!(seen.iter().all(|seen| seen.succeeded && !seen.captured && seen.stream == Some(stream.id())));
    assert!(seen.windows(2).all(|pair| pair[0].id < pair[1].id && pair[0].times[1] <= pair[1].times[0]));

    let event = stream.record_event().unwrap();
    Stream::new(&device).unwrap().wait_event(&event).unwrap();
    event.synchronize().unwrap();
    device.synchronize().unwrap();
    stream.host_function(|| ()).unwrap();
    let whats = recorder.whats();
    assert!(
        matches!(
            whats[..],
            [
                What::Record,
                What::Wait,
                What::Synchronize(Awaited::Event(_)),
                What::Synchronize(Awaited::Device),
                What::HostFunction
            ]
        ),
        "{whats:?}"
    );

    // SAFETY: the work does not access memory.
    unsafe { stream.enqueue_host(&[x.as_slice().used(Access::Read)], || ()) }.unwrap();
    let whats = recorder.whats();
    assert!(
        matches!(&whats[..], [What::Extension(name)] if name.contains("each_operation_is_reported")),
        "{whats:?}"
    );

    drop(y);
    assert_eq!(recorder.whats(), [What::Free(MemoryKind::Device, 12, to)]);
    let pinned = PinnedBuffer::<u16>::zeroed(&device, 5).unwrap();
    let address = pinned.as_ptr().addr() as u64;
    drop(pinned);
    drop(PinnedBuffer::<u16>::zeroed(&device, 5).unwrap());
    let pinned = |cached| {
        [
            What::Allocate(MemoryKind::Pinned, 10, address, PoolId::default(), cached),
            What::Free(MemoryKind::Pinned, 10, address),
        ]
    };
    assert_eq!(recorder.whats(), [pinned(false), pinned(true)].concat());
}

#[test]
fn captured_work_is_marked_and_graph_launches_reported() {
    let (_, device, stream) = fixture();
    let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 3).unwrap();
    let recorder = Recorder::of(&device);
    let _observation = observe(recorder.clone());
    let exec = Graph::capture(&stream, || {
        stream.copy(&x, &mut y)?;
        stream.graph_function(|| ())
    })
    .unwrap()
    .instantiate()
    .unwrap();
    let captured = recorder.take();
    assert!(matches!(
        captured.iter().map(|seen| (&seen.what, seen.captured)).collect::<Vec<_>>()[..],
        [
            (What::CaptureBegin, false),
            (What::Copy(..), true),
            (What::HostFunction, true),
            (What::CaptureEnd(true), true),
            (What::Instantiate(true), false)
        ]
    ));
    exec.launch(&stream).unwrap();
    assert_eq!(recorder.whats(), [What::Graph]);
}

/// Records the nodes that graph launches on a device report.
struct Launched(Device, Arc<Mutex<Vec<GraphNode>>>);

impl Observer for Launched {
    fn end(&self, observed: &Observed<'_>, _: Ended) {
        if let Operation::GraphLaunch { nodes, .. } = observed.operation
            && *observed.device == self.0
        {
            self.1.lock().unwrap().clone_from(&nodes.nodes);
        }
    }
}

#[test]
fn launches_of_graphs_say_where_nodes_come_from() {
    let (driver, device, stream, kernel) = kernel_fixture::<Mix>();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 4]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, 4).unwrap();
    let line = line!();
    let captured = Graph::capture(&stream, || {
        kernel.launch(&stream, Launch::auto(4), (5, &x, &mut y))?;
        stream.graph_function(|| ())
    });
    let mut graph = Graph::new(&device).unwrap();
    graph.add_child(&captured.unwrap(), &[]).unwrap();
    graph.add_copy(&x, &mut y, &[]).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let _observation = observe(Launched(device.clone(), Arc::clone(&seen)));
    graph.add_memset(&mut y, 1, &[]).unwrap();
    let launch = |graph: &Graph| {
        graph.instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
        let nodes = std::mem::take(&mut *seen.lock().unwrap());
        let of_node = |node: &GraphNode| (node.part, node.work, node.site.map(|site| site.line() - line));
        nodes.iter().map(of_node).collect::<Vec<_>>()
    };
    let symbol = kernel.function().spec().symbol;
    let [nothing, copy, memset] = [GraphWork::Nothing, GraphWork::Copy, GraphWork::Memset];
    let mut known = vec![
        (0, nothing, Some(6)),
        (1, GraphWork::Kernel { symbol, bytes: 0 }, Some(2)),
        (1, nothing, Some(3)),
        (0, copy, Some(7)),
        (0, memset, Some(10)),
    ];
    assert_eq!(launch(&graph), known);
    assert_eq!(launch(&graph.try_clone().unwrap()).len(), known.len());
    // If the driver call fails, one node represents all nodes of a child.
    driver.fail_call(Call::GraphNode, 0);
    graph.add_child(&Graph::capture(&stream, || stream.memset(&mut y, 2)).unwrap(), &[]).unwrap();
    known.extend([(0, nothing, Some(31)), (2, GraphWork::Unknown, None)]);
    assert_eq!(launch(&graph), known);
}

#[test]
fn reports_are_as_many_as_the_drivers_calls() {
    let (driver, device) = device();
    let recorder = Recorder::of(&device);
    let kernel = module(&device).kernel::<Mix>().unwrap();
    driver.reset_calls();
    let _observation = observe(recorder.clone());
    let [first, second] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let mut random = random();
    let mut buffers: Vec<_> =
        (0..4).map(|n| DeviceBuffer::from_host(&first, &[n as u32; 64]).unwrap()).collect();
    let mut pending = Vec::new();
    for _ in 0..300 {
        let stream = [&first, &second][random.usize(..2)];
        let (left, right) = buffers.split_at_mut(2);
        let (x, y) = (&left[random.usize(..2)], &mut right[random.usize(..2)]);
        match random.usize(..9) {
            0 => kernel.launch(stream, Launch::auto(64), (3, x, y)).unwrap(),
            1 => stream.copy(x, y).unwrap(),
            2 => stream.memset(y, 0).unwrap(),
            3 => pending.push(stream.copy_to_host_async(x, vec![0; 64]).unwrap()),
            4 => drop(stream.copy_from_host_async(vec![1; 64], y).unwrap()),
            5 => drop(x.to_host().unwrap()),
            6 => y.copy_from_host(&[5; 64]).unwrap(),
            7 => stream.host_function(|| ()).unwrap(),
            _ => stream
                .copy_rows(x.as_2d_strided(2, 8, 16).unwrap(), y.as_2d_strided_mut(2, 8, 8).unwrap())
                .unwrap(),
        }
    }
    drop(pending);
    device.synchronize().unwrap();
    let seen = recorder.whats();
    let count = |which: fn(&What) -> bool| seen.iter().filter(|what| which(what)).count() as u64;
    let calls = |calls: &[Call]| calls.iter().map(|call| driver.calls(*call)).sum::<u64>();
    assert_eq!(count(|what| matches!(what, What::Launch(..))), calls(&[Call::Launch]));
    let copies = [Call::CopyToDevice, Call::CopyToHost, Call::CopyDevice, Call::CopyPeer, Call::CopyRows];
    assert_eq!(count(|what| matches!(what, What::Copy(..))), calls(&copies));
    assert_eq!(count(|what| matches!(what, What::Memset(..))), calls(&[Call::Memset]));
    assert_eq!(count(|what| matches!(what, What::HostFunction)), calls(&[Call::HostFunction]));
    assert_eq!(count(|what| matches!(what, What::Wait)), calls(&[Call::StreamWaitEvent]));
    let waits = [Call::StreamSynchronize, Call::EventSynchronize, Call::ContextSynchronize];
    assert_eq!(count(|what| matches!(what, What::Synchronize(_))), calls(&waits));
}

#[test]
fn failed_operations_are_reported_as_such() {
    let (driver, device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 8).unwrap();
    let recorder = Recorder::of(&device);
    let _observation = observe(recorder.clone());
    driver.fail_call(Call::Memset, 0);
    stream.memset(&mut x, 1).unwrap_err();
    DeviceBuffer::<u8>::uninit(&stream, 1 << 40).unwrap_err();
    let seen = recorder.take();
    assert!(matches!(seen[0].what, What::Memset(..)) && !seen[0].succeeded);
    let allocated = seen.iter().find(|seen| matches!(seen.what, What::Allocate(..))).unwrap();
    assert!(!allocated.succeeded && matches!(allocated.what, What::Allocate(_, _, 0, _, false)));
}

#[test]
fn every_device_and_every_observer_is_served() {
    let (_, first) = device();
    let (_, second) = device();
    let recorders = [&first, &second].map(Recorder::of);
    let observations = recorders.clone().map(observe);
    let both = [Recorder::of(&first), Recorder::of(&second)];
    let _more = both.clone().map(observe);
    for device in [&first, &second] {
        device.default_stream().host_function(|| ()).unwrap();
    }
    for recorder in recorders.iter().chain(&both) {
        assert_eq!(recorder.whats(), [What::HostFunction]);
    }
    drop(observations);
    first.default_stream().host_function(|| ()).unwrap();
    assert_eq!(recorders[0].whats(), [], "it was removed");
    assert_eq!(both[0].whats(), [What::HostFunction], "the other one was not");
}

/// Calls a function in its callbacks.
struct Calls<F>(Device, F);

impl<F: Fn() + Send + Sync> Observer for Calls<F> {
    fn begin(&self, observed: &Observed<'_>) {
        if *observed.device == self.0 {
            self.1();
        }
    }

    fn end(&self, observed: &Observed<'_>, _: Ended) {
        if *observed.device == self.0 {
            self.1();
        }
    }
}

#[test]
fn observers_that_use_devices_get_errors_not_deadlocks() {
    let (_, device, [stream, other]) = streams_fixture();
    let shared = Arc::new(DeviceBuffer::from_host(&stream, &[1u32; 64]).unwrap());
    let mut target = DeviceBuffer::<u32>::zeros(&stream, 64).unwrap();
    // Buffers that graphs track have locks, which are held while work is enqueued.
    let graph = Graph::capture(&stream, || stream.copy(&*shared, &mut target)).unwrap();
    let event = Arc::new(Event::new(&device).unwrap());
    let (sender, errors) = mpsc::channel();
    let nested = Arc::new(AtomicUsize::new(0));
    let calls = {
        let (device, other, shared, event) =
            (device.clone(), other.clone(), Arc::clone(&shared), Arc::clone(&event));
        let nested = Arc::clone(&nested);
        move || {
            assert_eq!(nested.fetch_add(1, Ordering::Relaxed), 0, "no callback comes from a callback");
            let results = [
                device.synchronize(),
                other.synchronize(),
                other.host_function(|| ()),
                DeviceBuffer::<u8>::uninit(&other, 10).map(drop),
                PinnedBuffer::<u8>::zeroed(&device, 10).map(drop),
                shared.to_host().map(drop),
                other.copy_to_host_async(&*shared, vec![0; 64]).map(drop).map_err(Error::from),
                event.record(&other),
                event.synchronize(),
                event.query().map(drop),
                other.wait_event(&event),
                Capture::begin(&other, warpsmith_runtime::graph::CaptureMode::Relaxed).map(drop),
            ];
            for result in results {
                sender.send(result.unwrap_err()).unwrap();
            }
            nested.fetch_sub(1, Ordering::Relaxed);
        }
    };
    let observation = observe(Calls(device.clone(), calls));
    stream.copy(&*shared, &mut target).unwrap();
    event.record(&stream).unwrap();
    drop(DeviceBuffer::<u8>::uninit(&stream, 1 << 20).unwrap());
    stream.synchronize().unwrap();
    drop(observation);
    let errors: Vec<_> = errors.iter().collect();
    assert_eq!(errors.len() % 12, 0);
    assert!(errors.len() >= 10 * 12, "all callbacks came");
    for error in errors {
        assert!(matches!(error, Error::InObserver), "{error:?}");
    }
    assert_eq!(target.to_host().unwrap(), [1; 64]);
    drop(graph);
}

#[test]
fn what_an_observer_drops_is_dropped_elsewhere() {
    let (driver, device, stream) = fixture();
    let source = DeviceBuffer::from_host(&stream, &[7u8; 4096]).unwrap();
    let hold = driver.hold();
    let pending =
        stream.copy_to_host_async(&source, PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap()).unwrap();
    let items = Mutex::new(Some((pending, DeviceBuffer::<u8>::uninit(&stream, 4096).unwrap())));
    let observation = observe(Calls(device.clone(), move || drop(items.lock().unwrap().take())));
    stream.host_function(|| ()).unwrap();
    drop(observation);
    let next = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    drop(hold);
    stream.synchronize().unwrap();
    assert!(next.iter().all(|byte| *byte == 0), "the copy had its memory until it was done");
    assert!(device.take_drop_error().is_none());
}

#[test]
fn an_observer_that_panics_is_removed_alone() {
    let (_, device, stream) = fixture();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let _panics = observe(Calls(device.clone(), move || {
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("in an observer");
    }));
    let recorder = Recorder::of(&device);
    let _observation = observe(recorder.clone());
    for _ in 0..3 {
        stream.host_function(|| ()).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it is called no more");
    assert_eq!(recorder.whats().len(), 4, "the other one is");
}

#[test]
fn observers_come_and_go_while_threads_launch() {
    let (_, device) = device();
    let recorder = Recorder::of(&device);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let stream = Stream::new(&device).unwrap();
                    (0..2000).for_each(|_| stream.host_function(|| ()).unwrap());
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            drop(observe(recorder.clone()));
        }
    });
    let observation = observe(recorder.clone());
    recorder.begun.lock().unwrap().clear();
    recorder.seen.lock().unwrap().clear();
    device.default_stream().host_function(|| ()).unwrap();
    drop(observation);
    assert_eq!(recorder.whats(), [What::HostFunction]);
}

/// Calls that enqueue or wait for several operations must report the line of their caller.
#[test]
fn calls_of_several_operations_have_the_callers_line() {
    use std::cell::RefCell;
    use warpsmith_runtime::graph::GraphCache;
    thread_local! {
        static SITES: RefCell<Vec<Option<&'static str>>> = const { RefCell::new(Vec::new()) };
    }
    struct Sites;
    impl Observer for Sites {
        fn end(&self, observed: &Observed<'_>, _: Ended) {
            SITES.with_borrow_mut(|sites| sites.push(observed.site.map(|site| site.file())));
        }
    }
    let (_, device, stream) = fixture();
    let observation = observe(Sites);
    let mut y = DeviceBuffer::zeros(&stream, 4).unwrap();
    let mut mapped = PinnedBuffer::from_slice(&device, &[1u8; 4]).unwrap().into_mapped(&stream).unwrap();
    let exec = Graph::capture(&stream, || stream.copy(mapped.as_slice(), &mut y)).unwrap();
    let exec = exec.instantiate().unwrap();
    let mut cache = GraphCache::new(&device, 2);
    let event = Event::new(&device).unwrap();
    let x = DeviceBuffer::<u8>::zeros(&stream, 4).unwrap();
    SITES.take();
    exec.launch(&stream).unwrap();
    stream.copy(&y, mapped.as_mut_slice()).unwrap();
    drop(mapped.lock().unwrap());
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
    stream.record_event().unwrap().synchronize().unwrap();
    stream.host_function(|| ()).unwrap();
    stream.copy_to_host_async(&y, vec![0; 4]).unwrap().wait().unwrap();
    for _ in 0..2 {
        cache.launch(&stream, (), &[], |stream| stream.copy(&x, &mut y)).unwrap();
    }
    let sites = SITES.take();
    drop(observation);
    assert!(sites.len() > 12 && sites.iter().all(|site| *site == Some(file!())), "{sites:?}");
}
