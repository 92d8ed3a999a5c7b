//! Tests that callbacks of the program can call the runtime again without a deadlock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, Weak, mpsc};
use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::{DeviceBuffer, Error, Graph, GraphError, GraphExec, Stream};

/// Runs `work` on a thread. Fails if it does not end within a minute.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (sender, done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        sender.send(()).unwrap();
    });
    match done.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for itself"),
        _ => thread.join().unwrap(),
    }
}

#[derive(Default)]
struct Inner(AtomicU32);
struct Outer(u32);

#[test]
fn an_extension_may_be_made_of_others() {
    ends(|| {
        let (_, device) = device();
        device.extension(Inner::default).0.store(6, Ordering::Relaxed);
        let made = device.extension(|| {
            // The callback may request its own type, in which case the inner value is kept.
            let own = device.extension(|| Outer(1));
            Outer(own.0 + device.extension(Inner::default).0.load(Ordering::Relaxed))
        });
        assert_eq!((made.0, device.extension(|| Outer(9)).0), (1, 1));
    });
}

#[test]
fn threads_that_make_one_extension_get_the_same() {
    struct Counted(Arc<AtomicU32>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for _ in 0..50 {
        let (_, device) = device();
        let (start, dropped) = (Barrier::new(4), Arc::new(AtomicU32::new(0)));
        let made = AtomicU32::new(0);
        let places = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let own = device.extension(|| {
                        made.fetch_add(1, Ordering::Relaxed);
                        Counted(Arc::clone(&dropped))
                    });
                    places.lock().unwrap().push(std::ptr::from_ref(own).addr());
                });
            }
        });
        let places = places.into_inner().unwrap();
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
        assert_eq!(
            dropped.load(Ordering::Relaxed) + 1,
            made.load(Ordering::Relaxed),
            "surplus values are gone"
        );
        drop(device);
        assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
    }
}

/// Action of a hook on executable graphs.
type Action = Box<dyn Fn(&Stream) -> Result<(), Error> + Send + Sync>;

/// Returns a graph that copies a byte, with a hook whose action is set later.
fn hooked(stream: &Stream) -> (Graph, Arc<Mutex<Option<Action>>>) {
    let action: Arc<Mutex<Option<Action>>> = Arc::default();
    let own = Arc::clone(&action);
    let (x, mut y) = (DeviceBuffer::<u8>::zeros(stream, 1).unwrap(), DeviceBuffer::zeros(stream, 1).unwrap());
    let graph = Graph::capture(stream, || {
        stream.copy(&x, &mut y)?;
        stream.keep_in_capture(|| Arc::new((x, y)));
        stream.on_graph_launch(move |stream| {
            // The lock must not be held during the action, because the test itself would deadlock.
            let action = own.lock().unwrap().take();
            action.map_or(Ok(()), |action| action(stream))
        })
    });
    (graph.unwrap(), action)
}

#[test]
fn a_hook_that_launches_its_graph_is_an_error() {
    ends(|| {
        let (_, device) = device();
        let stream = Stream::new(&device).unwrap();
        let (graph, action) = hooked(&stream);
        let (other, _) = hooked(&stream);
        let [own, same, other] = [&graph, &graph, &other].map(|graph| Arc::new(graph.instantiate().unwrap()));
        for inner in [&own, &same, &other] {
            let inner = Arc::clone(inner);
            *action.lock().unwrap() = Some(Box::new(move |stream| inner.launch(stream)));
            let error = own.launch(&stream).unwrap_err();
            assert!(matches!(error, Error::Graph(GraphError::LaunchInHook)), "{error}");
            own.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_hook_may_use_its_graph_and_launch_plain_ones() {
    ends(|| {
        let (_, device) = device();
        let stream = Stream::new(&device).unwrap();
        let (graph, action) = hooked(&stream);
        let own = Arc::new(graph.instantiate().unwrap());
        let mut y = DeviceBuffer::<u8>::zeros(&stream, 1).unwrap();
        let plain = Graph::capture(&stream, || stream.memset(&mut y, 7)).unwrap().instantiate().unwrap();
        let inner = Arc::clone(&own);
        *action.lock().unwrap() = Some(Box::new(move |stream| {
            inner.upload(stream)?;
            plain.launch(stream)?;
            stream.synchronize()
        }));
        own.launch(&stream).unwrap();
        assert_eq!(y.to_host().unwrap(), [7]);
    });
}

/// Two threads launch graphs whose hooks launch the graph of the other thread.
#[test]
fn hooks_that_launch_each_others_graphs_end() {
    ends(|| {
        let (_, device) = device();
        let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
        let [first, second] = streams.each_ref().map(hooked);
        let execs = [&first.0, &second.0].map(|graph| Arc::new(graph.instantiate().unwrap()));
        let actions = [first.1, second.1];
        let together = Arc::new(Barrier::new(2));
        let launch = |index: usize| {
            let (other, together) = (Arc::clone(&execs[1 - index]), Arc::clone(&together));
            *actions[index].lock().unwrap() = Some(Box::new(move |stream| {
                together.wait();
                other.launch(stream)
            }));
            let (exec, stream) = (Arc::clone(&execs[index]), streams[index].clone());
            std::thread::spawn(move || exec.launch(&stream))
        };
        for thread in [launch(0), launch(1)] {
            assert!(matches!(thread.join().unwrap(), Err(Error::Graph(GraphError::LaunchInHook))));
        }
    });
}

/// Uploads an executable when it is dropped.
struct Uploads(Arc<Mutex<Weak<GraphExec>>>, Stream, Arc<AtomicBool>);

impl Drop for Uploads {
    fn drop(&mut self) {
        if let Some(exec) = self.0.lock().unwrap().upgrade() {
            exec.upload(&self.1).unwrap();
            self.2.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn what_an_update_replaced_is_dropped_without_locks() {
    ends(|| {
        let (_, device) = device();
        let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let exec: Arc<Mutex<Weak<GraphExec>>> = Arc::default();
        let dropped = Arc::new(AtomicBool::new(false));
        let mut y = DeviceBuffer::<u8>::zeros(&stream, 1).unwrap();
        let mut graph = |kept: Option<Uploads>| {
            Graph::capture(&stream, || {
                if let Some(kept) = kept {
                    stream.keep_in_capture(|| Arc::new(kept));
                }
                stream.memset(&mut y, 7)
            })
            .unwrap()
        };
        let first = graph(Some(Uploads(Arc::clone(&exec), stream.clone(), Arc::clone(&dropped))));
        let mut own = first.instantiate().unwrap();
        drop(first);
        own.launch(&stream).unwrap();
        own.update(&graph(None)).unwrap();
        stream.synchronize().unwrap();
        let own = Arc::new(own);
        *exec.lock().unwrap() = Arc::downgrade(&own);
        // This launch on another stream detects that the earlier launches have finished.
        own.launch(&other).unwrap();
        other.synchronize().unwrap();
        assert!(dropped.load(Ordering::Relaxed));
    });
}

#[test]
fn scratch_memory_is_not_requested_twice_at_once() {
    ends(|| {
        let (_, device) = device();
        let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let inner = |stream: &Stream, purpose| {
            // SAFETY: the memory is not used.
            unsafe { stream.with_scratch(purpose, 64, |_, _| Ok::<_, Error>(())) }
        };
        let check = |stream: &Stream| {
            // SAFETY: as above.
            let outer = unsafe {
                stream.with_scratch("outer", 64, |_, _| {
                    for purpose in ["outer", "inner"] {
                        let error = inner(stream, purpose).unwrap_err();
                        assert!(matches!(&error, Error::ScratchInUse(found) if *found == purpose));
                    }
                    inner(&other, "outer")
                })
            };
            outer.unwrap();
            inner(stream, "outer").unwrap();
        };
        check(&stream);
        let mut y = DeviceBuffer::<u8>::zeros(&other, 1).unwrap();
        let graph = Graph::capture(&stream, || {
            check(&stream);
            stream.memset(&mut y, 1)
        });
        graph.unwrap();
    });
}

#[test]
fn observers_of_the_allocator_may_allocate() {
    ends(|| {
        let (_, device) = device();
        let stream = Stream::new(&device).unwrap();
        let reports = Arc::new(AtomicU32::new(0));
        let (weak, counted) = (device.downgrade(), Arc::clone(&reports));
        device.memory().on_out_of_memory(move |_| {
            let Some(device) = weak.upgrade() else { return };
            let stream = Stream::from_pool(&device).unwrap();
            drop(DeviceBuffer::<u8>::uninit(&stream, 5 << 20).unwrap());
            DeviceBuffer::<u8>::uninit(&stream, 2 << 30).unwrap_err();
            device.memory().statistics();
            counted.fetch_add(1, Ordering::Relaxed);
        });
        DeviceBuffer::<u8>::uninit(&stream, 3 << 30).unwrap_err();
        assert!(reports.load(Ordering::Relaxed) > 0);
    });
}
