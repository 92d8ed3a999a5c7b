//! Tests of awaiting events, streams and copies, with the test's own executor.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{
    Capture, CopyFailed, DeviceBuffer, Error, Event, Graph, GraphError, Launch, PinnedBuffer, Stream,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Awaits one future. Fails if nothing wakes it for a minute.
#[track_caller]
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let start = Instant::now();
                std::thread::park_timeout(Duration::from_secs(60));
                assert!(start.elapsed() < Duration::from_secs(60), "nothing has woken the future");
            }
        }
    }
}

/// Counts calls of a waker.
#[derive(Default)]
pub struct Count {
    calls: Mutex<usize>,
    called: Condvar,
}

impl Count {
    fn wait_for_more_than(&self, calls: usize) {
        let guard = self.calls.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (_guard, waited) = self.called.wait_timeout_while(guard, limit, |now| *now <= calls).unwrap();
        assert!(!waited.timed_out(), "the waker was not called");
    }

    fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        *self.calls.lock().unwrap() += 1;
        self.called.notify_all();
    }
}

/// Polls until the future no longer requests another poll.
pub fn poll_until_registered<F: Future>(mut future: Pin<&mut F>, waker: &Arc<Count>) {
    let task = Waker::from(Arc::clone(waker));
    loop {
        let before = waker.calls();
        assert!(future.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        if waker.calls() == before {
            return;
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls many futures on one thread.
#[derive(Default)]
struct Executor {
    ready: Arc<(Mutex<VecDeque<usize>>, Condvar)>,
    tasks: Vec<Option<Task>>,
}

struct Enqueue(Arc<(Mutex<VecDeque<usize>>, Condvar)>, usize);

impl Wake for Enqueue {
    fn wake(self: Arc<Self>) {
        self.0.0.lock().unwrap().push_back(self.1);
        self.0.1.notify_one();
    }
}

impl Executor {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.ready.0.lock().unwrap().push_back(self.tasks.len());
        self.tasks.push(Some(Box::pin(task)));
    }

    /// Polls ready futures until none is ready.
    fn poll_ready(&mut self) {
        loop {
            let Some(index) = self.ready.0.lock().unwrap().pop_front() else { return };
            let waker = Waker::from(Arc::new(Enqueue(Arc::clone(&self.ready), index)));
            let slot = &mut self.tasks[index];
            if slot
                .as_mut()
                .is_some_and(|task| task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready())
            {
                *slot = None;
            }
        }
    }

    fn run(mut self) {
        while self.tasks.iter().any(Option::is_some) {
            self.poll_ready();
            let ready = self.ready.0.lock().unwrap();
            if self.tasks.iter().any(Option::is_some) {
                let limit = Duration::from_secs(60);
                let (_guard, waited) =
                    self.ready.1.wait_timeout_while(ready, limit, |ready| ready.is_empty()).unwrap();
                assert!(!waited.timed_out(), "nothing has woken a future");
            }
        }
    }
}

#[test]
fn events_streams_and_copies_are_awaited() {
    let (_, device, stream) = fixture();
    block_on(async {
        let x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3])?;
        let event = stream.record_event()?;
        (&event).await?;
        event.await?;
        stream.completed().await?;
        let pinned = PinnedBuffer::<u32>::zeroed(&device, 3)?;
        assert_eq!(stream.copy_to_host_async(&x, pinned)?.await?[..], [1, 2, 3]);
        assert_eq!(stream.copy_to_host_async(&x, vec![0; 3])?.await?, [1, 2, 3]);
        let large = vec![7u8; 20 << 20];
        let mut y = DeviceBuffer::<u8>::uninit(&stream, large.len())?;
        let large = stream.copy_from_host_async(large, &mut y)?.await?;
        assert_eq!(stream.copy_to_host_async(&y, vec![0; large.len()])?.await?, large);
        Event::new(&device)?.await?; // was never recorded
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn a_future_completes_with_its_work() {
    let (driver, _, stream) = fixture();
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let hold = driver.hold();
    stream.host_function(move || _ = counted.fetch_add(1, Ordering::Relaxed)).unwrap();
    let mut completed = pin!(stream.completed());
    let waker = Arc::new(Count::default());
    poll_until_registered(completed.as_mut(), &waker);
    let woken = waker.calls();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((waker.calls(), done.load(Ordering::Relaxed)), (woken, 0), "nothing wakes it early");
    drop(hold);
    waker.wait_for_more_than(woken);
    assert_eq!(done.load(Ordering::Relaxed), 1);
    block_on(completed).unwrap();
}

#[test]
fn a_future_is_woken_before_its_likely_end() {
    let (driver, _, stream) = fixture();
    for _ in 0..3 {
        stream.host_function(|| std::thread::sleep(Duration::from_millis(5))).unwrap();
        block_on(stream.completed()).unwrap();
    }
    let hold = driver.hold();
    stream.host_function(|| ()).unwrap();
    let mut completed = pin!(stream.completed());
    let waker = Arc::new(Count::default());
    poll_until_registered(completed.as_mut(), &waker);
    waker.wait_for_more_than(waker.calls());
    // It has not completed, so it is registered again.
    poll_until_registered(completed.as_mut(), &waker);
    drop(hold);
    block_on(completed).unwrap();
}

/// Returns the number of threads that wake futures, according to Linux.
#[cfg(target_os = "linux")]
fn waking_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "warpsmith-await").count()
}

#[test]
fn thousands_of_futures_need_one_thread() {
    let (driver, device) = device();
    let streams: Vec<_> = (0..8).map(|_| Stream::new(&device).unwrap()).collect();
    let x = DeviceBuffer::from_host(&streams[0], &[1u32; 16]).unwrap();
    let hold = driver.hold();
    let done = Arc::new(AtomicUsize::new(0));
    let mut executor = Executor::default();
    let total = 10_000;
    for n in 0..total {
        let stream = &streams[n % streams.len()];
        let (done, completed, event) =
            (Arc::clone(&done), stream.completed(), stream.record_event().unwrap());
        let copied = (n % 100 == 0).then(|| stream.copy_to_host_async(&x, vec![0; 16]).unwrap());
        executor.spawn(async move {
            completed.await.unwrap();
            (&event).await.unwrap();
            if let Some(copied) = copied {
                assert_eq!(copied.await.unwrap(), [1; 16]);
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    executor.poll_ready();
    driver.reset_calls();
    std::thread::sleep(Duration::from_millis(20));
    let asked = driver.calls(Call::EventQuery);
    assert!(asked < 8 * 2000, "one event of each stream is asked for: {asked}");
    #[cfg(target_os = "linux")]
    assert_eq!(waking_threads(), 1);
    assert_eq!(done.load(Ordering::Relaxed), 0);
    drop(hold);
    executor.run();
    assert_eq!(done.load(Ordering::Relaxed), total);
}

#[test]
fn a_slow_stream_delays_no_other() {
    let (_, _, [slow, fast]) = streams_fixture();
    let (go, wait) = mpsc::channel::<()>();
    slow.host_function(move || _ = wait.recv()).unwrap();
    // The event is recorded again on the slow stream while it is awaited.
    let event = fast.record_event().unwrap();
    let (again, waker) = (slow.completed(), Arc::new(Count::default()));
    let mut again = pin!(again);
    poll_until_registered(again.as_mut(), &waker);
    event.record(&slow).unwrap();
    let mut moved = pin!((&event).into_future());
    poll_until_registered(moved.as_mut(), &waker);
    for _ in 0..20 {
        let delayed = fast.host_function(|| std::thread::sleep(Duration::from_micros(300)));
        delayed.unwrap();
        block_on(fast.completed()).unwrap();
    }
    event.record(&fast).unwrap();
    block_on(moved).unwrap();
    go.send(()).unwrap();
    block_on(again).unwrap();
}

#[test]
fn a_fault_wakes_every_future_of_the_device() {
    let (driver, device) = device();
    let streams: Vec<_> = (0..4).map(|_| Stream::new(&device).unwrap()).collect();
    let kernel = module(&device).kernel::<PanicAt>().unwrap();
    let x = DeviceBuffer::from_host(&streams[0], &[1u8; 64]).unwrap();
    let hold = driver.hold();
    kernel.launch(&streams[0], Launch::linear(100, 32), (70u32,)).unwrap();
    let errors: Arc<Mutex<Vec<Error>>> = Arc::default();
    let mut executor = Executor::default();
    for n in 0..200 {
        let stream = &streams[n % 4];
        let (errors, completed, event) = (Arc::clone(&errors), stream.completed(), stream.record_event());
        let pending = stream.copy_to_host_async(&x, vec![0; 64]).unwrap();
        executor.spawn(async move {
            // Events of other streams may have completed earlier.
            let results = [completed.await, (&event.unwrap()).await, event_of(pending).await];
            errors.lock().unwrap().extend(results.into_iter().filter_map(Result::err));
        });
    }
    executor.poll_ready();
    drop(hold);
    executor.run();
    let errors = errors.lock().unwrap();
    assert!(errors.len() >= 3 * 50, "all of the stream with the fault: {}", errors.len());
    let is_fault = |error: &Error| matches!(error, Error::KernelPanic { .. });
    let names_fault = |error: &Error| match error {
        Error::DeviceLost { cause, .. } => is_fault(cause),
        error => is_fault(error),
    };
    assert!(errors.iter().all(names_fault), "{:?}", errors[0]);
    let faults = errors.iter().filter(|error| is_fault(error)).count();
    assert!(
        faults <= 1,
        "only the one that finds out reports the fault, unless the drop of a copy has: {faults}"
    );
    assert!(device.is_lost());
    assert!(block_on(streams[1].completed()).unwrap_err().is_device_lost());
}

/// Returns the result of a copy without the memory. Checks that the memory is returned in full even if the copy failed.
async fn event_of(pending: warpsmith_runtime::Pending<Vec<u8>>) -> Result<(), Error> {
    match pending.await {
        Ok(memory) => {
            assert_eq!(memory, [1; 64]);
            Ok(())
        }
        Err(CopyFailed { error, memory }) => {
            assert_eq!(memory.len(), 64);
            Err(error)
        }
    }
}

#[test]
fn a_failed_query_is_the_futures_error() {
    let (driver, _, stream) = fixture();
    let hold = driver.hold();
    let event = stream.record_event().unwrap();
    let mut reached = pin!((&event).into_future());
    driver.fail_call(Call::EventQuery, 0);
    let waker = Waker::from(Arc::new(Count::default()));
    let Poll::Ready(Err(error)) = reached.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("the driver failed");
    };
    assert!(error.to_string().contains("injected this failure"), "{error}");
    driver.fail_call(Call::EventRecord, 0);
    assert!(block_on(stream.completed()).unwrap_err().to_string().contains("injected this failure"));
    // The waking thread encounters another event, which does not complete the future.
    let mut reached = pin!((&event).into_future());
    let count = Arc::new(Count::default());
    poll_until_registered(reached.as_mut(), &count);
    let woken = count.calls();
    driver.fail_call(Call::EventQuery, 0);
    count.wait_for_more_than(woken);
    poll_until_registered(reached.as_mut(), &count);
    drop(hold);
    block_on(reached).unwrap();
}

#[test]
fn captured_events_fail_as_synchronize_does() {
    let (_, _, stream) = fixture();
    let capture = Capture::begin(&stream, CaptureMode::Relaxed).unwrap();
    let event = stream.record_event().unwrap();
    for error in [
        event.synchronize().unwrap_err(),
        block_on(&event).unwrap_err(),
        stream.synchronize().unwrap_err(),
        block_on(stream.completed()).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Graph(GraphError::NotCapturable { .. })), "{error}");
    }
    drop(capture);
    assert!(block_on(&event).is_err(), "nothing comes to it");
    event.record(&stream).unwrap();
    block_on(event).unwrap();
}

#[test]
fn futures_are_awaited_while_another_stream_captures() {
    let (driver, _, [stream, captured]) = streams_fixture();
    let mut x = DeviceBuffer::<u8>::zeros(&captured, 8).unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(2));
    let graph = Graph::capture(&captured, || {
        for _ in 0..5 {
            stream.host_function(|| ())?;
            block_on(stream.completed())?;
            captured.memset(&mut x, 3)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    graph.instantiate().unwrap().launch(&captured).unwrap();
    assert_eq!(x.to_host().unwrap(), [3; 8]);
}

#[test]
fn dropped_futures_lose_and_free_nothing_in_use() {
    let (driver, device, stream) = fixture();
    let source = DeviceBuffer::from_host(&stream, &[7u8; 4096]).unwrap();
    let hold = driver.hold();
    let waker = Arc::new(Count::default());
    let pinned = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    {
        let mut pending = pin!(stream.copy_to_host_async(&source, pinned).unwrap().into_future());
        poll_until_registered(pending.as_mut(), &waker);
        let mut completed = pin!(stream.completed());
        poll_until_registered(completed.as_mut(), &waker);
    }
    let next = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    let woken = waker.calls();
    drop(hold);
    stream.synchronize().unwrap();
    assert!(next.iter().all(|byte| *byte == 0), "the copy had its memory until it was done");
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(waker.calls(), woken, "what was dropped is not woken");
    drop((next, source, stream));
    drop(device);
    assert_eq!((driver.live_allocations(0), driver.live_pinned()), (0, 0), "the device was closed");
}

#[test]
fn futures_keep_the_device_open() {
    let (driver, device) = device();
    let hold = driver.hold();
    let stream = Stream::new(&device).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    stream.host_function(move || _ = counted.fetch_add(1, Ordering::Relaxed)).unwrap();
    let source = DeviceBuffer::<u8>::zeros(&stream, 64).unwrap_or_else(|error| panic!("{error}"));
    let (completed, pending) = (stream.completed(), stream.copy_to_host_async(&source, vec![1; 64]).unwrap());
    drop((source, stream, device));
    assert_eq!(driver.calls(Call::ContextRelease), 0);
    drop(hold);
    block_on(completed).unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 1);
    assert_eq!(block_on(pending).unwrap(), [0; 64]);
    let start = Instant::now();
    while driver.calls(Call::ContextRelease) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing keeps it afterwards");
        std::thread::yield_now();
    }
}

#[test]
fn only_the_last_waker_is_called() {
    let (driver, _, stream) = fixture();
    let hold = driver.hold();
    stream.host_function(|| ()).unwrap();
    let [first, second] = [(); 2].map(|()| Arc::new(Count::default()));
    let mut completed = Box::pin(stream.completed());
    poll_until_registered(completed.as_mut(), &first);
    // The future is polled on another thread with another waker.
    let (moved, waker) = (
        std::thread::spawn(move || {
            poll_until_registered(completed.as_mut(), &second);
            (completed, second)
        }),
        first,
    );
    let (completed, second) = moved.join().unwrap();
    let woken = (waker.calls(), second.calls());
    drop(hold);
    second.wait_for_more_than(woken.1);
    assert_eq!(waker.calls(), woken.0, "the first was replaced");
    block_on(completed).unwrap();
}

#[test]
fn a_waker_that_panics_stops_no_other() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            if std::thread::current().name() == Some("warpsmith-await") {
                panic!("in a waker");
            }
        }
    }

    let (driver, _, stream) = fixture();
    let hold = driver.hold();
    let mut first = pin!(stream.completed());
    let waker = Waker::from(Arc::new(Panics));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2) {
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let mut second = pin!(stream.completed());
    let count = Arc::new(Count::default());
    poll_until_registered(second.as_mut(), &count);
    let woken = count.calls();
    drop(hold);
    count.wait_for_more_than(woken);
    block_on(second).unwrap();
}

#[test]
fn host_functions_get_errors_and_no_memory() {
    let (driver, device, [copying, other]) = streams_fixture();
    let source = DeviceBuffer::from_host(&copying, &[7u8; 4096]).unwrap();
    driver.set_stream_delay(copying.handle(), Duration::from_millis(20));
    let pinned = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    let mut pending = Box::pin(copying.copy_to_host_async(&source, pinned).unwrap().into_future());
    let mut completed = Box::pin(copying.completed());
    poll_until_registered(pending.as_mut(), &Arc::default());
    poll_until_registered(completed.as_mut(), &Arc::default());
    let (sender, answers) = mpsc::channel();
    other
        .host_function(move || {
            let waker = Waker::from(Arc::new(Count::default()));
            let mut task = Context::from_waker(&waker);
            sender.send(matches!(completed.as_mut().poll(&mut task), Poll::Ready(Err(_)))).unwrap();
            sender.send(pending.as_mut().poll(&mut task).is_ready()).unwrap();
        })
        .unwrap();
    other.synchronize().unwrap();
    let next = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    assert_eq!(answers.iter().collect::<Vec<_>>(), [true], "the second one panics");
    copying.synchronize().unwrap();
    assert!(next.iter().all(|byte| *byte == 0), "the memory was kept for the copy");
}
