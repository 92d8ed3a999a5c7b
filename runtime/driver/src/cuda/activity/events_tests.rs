//! Recording from events, on an emulated device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::events::{Described, Events, Operation, Work};
use super::fake::Kept;
use crate::activity::{ActivityLoss, ActivitySink, ActivityTransfer, ActivityWait};
use crate::emulated::{Call, EmulatedDriver};
use crate::error::{Result, code};
use crate::{
    CaptureMode, Context, Driver, FunctionHandle, GraphDriver, LaunchConfig, MemoryDriver, StreamDriver,
    StreamHandle,
};

const CONFIG: LaunchConfig = LaunchConfig::new([4, 2, 1], [128, 1, 1], 256);
const KERNEL: Work<'static> = Work::Kernel(FunctionHandle(77), &CONFIG);

/// An emulated device whose work is recorded.
struct Bench {
    driver: Arc<EmulatedDriver>,
    context: Context,
    stream: StreamHandle,
    kept: Arc<Kept>,
    events: Events,
}

fn describe(function: FunctionHandle) -> Described {
    Described { symbol: format!("kernel_{}", function.0), registers: 24, static_shared: 512 }
}

impl Bench {
    /// With room for this number of operations that were not read.
    fn new(most: usize) -> Self {
        let driver = EmulatedDriver::builder().build();
        let context = driver.context_retain(0).unwrap();
        let stream = driver.stream_create(context, 0).unwrap();
        let kept = Kept::new();
        let events = Events::new(Arc::clone(&kept) as Arc<dyn ActivitySink>, describe, most << 10);
        events.prepare(&*driver, context).unwrap();
        Self { driver, context, stream, kept, events }
    }

    fn operation(&self) -> Operation<'_> {
        let (driver, context, stream) = (&*self.driver as &dyn Driver, self.context, self.stream);
        Operation { driver, function: "cuLaunchKernel", context, device: 3, stream }
    }

    /// Enqueues work that takes some time.
    fn enqueue(&self, work: Work<'_>, takes: Duration) -> Result<()> {
        self.events.around(self.operation(), work, &mut || {
            self.driver.host_function(self.context, self.stream, Box::new(move || std::thread::sleep(takes)))
        })
    }

    fn wait(&self) {
        self.driver.stream_synchronize(self.context, self.stream).unwrap();
    }

    fn stop(&self) -> (Vec<String>, ActivityLoss) {
        let loss = self.events.stop(&*self.driver);
        (self.kept.texts(), loss)
    }
}

/// The number after a field's name.
fn number(text: &str, field: &str) -> u64 {
    let rest = text.split_once(&format!("{field}: ")).unwrap_or_else(|| panic!("{field}: {text}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn of<'a>(texts: &'a [String], kind: &str) -> Vec<&'a String> {
    texts.iter().filter(|text| text.starts_with(kind)).collect()
}

#[test]
fn operations_are_timed_after_their_calls() {
    let bench = Bench::new(100);
    let number_of_stream = bench.driver.stream_unique_id(bench.context, bench.stream).unwrap();
    bench.enqueue(KERNEL, Duration::from_millis(5)).unwrap();
    bench.enqueue(Work::Transfer(ActivityTransfer::HostToDevice, 4096), Duration::from_millis(1)).unwrap();
    bench.enqueue(Work::Graph, Duration::from_millis(1)).unwrap();
    bench.wait();
    bench.events.flush(&*bench.driver);
    let (texts, loss) = bench.stop();
    assert_eq!((texts.len(), loss), (6, ActivityLoss::default()), "{texts:#?}");
    let kernel = of(&texts, "Kernel")[0];
    for part in [
        "device: 3",
        &format!("stream: {number_of_stream}"),
        "symbol: \"kernel_77\"",
        "grid: [4, 2, 1], block: [128, 1, 1], registers: 24, static_shared: 512, dynamic_shared: 256",
    ] {
        assert!(kernel.contains(part), "{part}: {kernel}");
    }
    assert!(of(&texts, "Transfer")[0].ends_with("kind: HostToDevice, bytes: 4096 }"), "{texts:#?}");
    assert!(of(&texts, "Graph")[0].contains("graph: 0, node: 0"), "{texts:#?}");
    let calls = of(&texts, "Call");
    let mut ends = 0;
    for (kind, least) in [("Kernel", 5_000_000), ("Transfer", 1_000_000), ("Graph", 1_000_000)] {
        let work = of(&texts, kind)[0];
        let call =
            calls.iter().find(|call| number(call, "correlation") == number(work, "correlation")).unwrap();
        assert!(number(call, "start") <= number(work, "start"), "{call} {work}");
        let took = number(work, "end") - number(work, "start");
        assert!((least..least + 1_000_000_000).contains(&took), "{took} ns: {work}");
        // Rounding of differences that are of 32 bits on a GPU.
        assert!(number(work, "start") + 1000 >= ends, "in order: {texts:#?}");
        ends = number(work, "end");
    }
}

#[test]
fn captured_operations_get_no_events() {
    let bench = Bench::new(100);
    bench.driver.capture_begin(bench.context, bench.stream, CaptureMode::ThreadLocal).unwrap();
    let before = bench.driver.calls(Call::EventRecord);
    let block = bench.driver.memory_allocate(bench.context, 4).unwrap();
    let captured = bench.events.around(bench.operation(), KERNEL, &mut || {
        // SAFETY: the block is valid until the graph is destroyed.
        unsafe { bench.driver.memset(bench.context, block, 1, 4, bench.stream) }
    });
    captured.unwrap();
    assert_eq!(bench.driver.calls(Call::EventRecord), before);
    let graph = bench.driver.capture_end(bench.context, bench.stream).unwrap();
    // SAFETY: both are used no more.
    unsafe {
        bench.driver.graph_destroy(bench.context, graph);
        bench.driver.memory_free(bench.context, block).unwrap();
    }
    let (texts, loss) = bench.stop();
    assert_eq!((of(&texts, "Call").len(), texts.len(), loss), (1, 1, ActivityLoss::default()), "{texts:#?}");
}

#[test]
fn operations_beyond_the_room_are_counted() {
    let bench = Bench::new(4);
    let hold = bench.driver.hold();
    (0..10).for_each(|_| bench.enqueue(KERNEL, Duration::ZERO).unwrap());
    drop(hold);
    bench.wait();
    bench.events.flush(&*bench.driver);
    bench.enqueue(KERNEL, Duration::ZERO).unwrap();
    bench.wait();
    let (texts, loss) = bench.stop();
    assert_eq!(loss, ActivityLoss { dropped: 6, ..ActivityLoss::default() });
    assert_eq!((of(&texts, "Kernel").len(), of(&texts, "Call").len()), (5, 11), "calls have no events");
}

#[test]
fn events_are_reused_when_their_work_has_run() {
    let bench = Bench::new(8);
    for _ in 0..300 {
        bench.enqueue(KERNEL, Duration::ZERO).unwrap();
        bench.wait();
    }
    let made = bench.driver.calls(Call::EventCreate);
    assert!(made <= 16 + 10, "{made} events");
    let (texts, loss) = bench.stop();
    assert_eq!((of(&texts, "Kernel").len(), loss), (300, ActivityLoss::default()));
}

#[test]
fn work_that_has_not_ended_has_no_times() {
    let bench = Bench::new(100);
    let hold = bench.driver.hold();
    (0..3).for_each(|_| bench.enqueue(KERNEL, Duration::ZERO).unwrap());
    let (texts, loss) = bench.stop();
    drop(hold);
    assert_eq!(
        (of(&texts, "Kernel").len(), loss),
        (0, ActivityLoss { zero_time: 3, ..ActivityLoss::default() })
    );
    bench.enqueue(KERNEL, Duration::ZERO).unwrap();
    bench.wait();
    assert!(bench.kept.texts().is_empty(), "nothing comes after the end");
    let calls = |call| bench.driver.calls(call);
    assert_eq!(calls(Call::EventCreate), calls(Call::EventDestroy), "no event is left");
    assert_eq!(calls(Call::StreamCreate), calls(Call::StreamDestroy) + 1, "no stream but the test's");
}

#[test]
fn failing_operations_are_not_lost_records() {
    let bench = Bench::new(100);
    bench.driver.fail_call(Call::HostFunction, 0);
    let failed = bench.enqueue(KERNEL, Duration::ZERO);
    assert_eq!(failed.unwrap_err().code(), Some(code::UNKNOWN));
    let (texts, loss) = bench.stop();
    assert_eq!((of(&texts, "Kernel").len(), of(&texts, "Call").len(), loss), (0, 1, ActivityLoss::default()));
}

#[test]
fn failing_events_lose_records_only() {
    for (call, after) in [
        (Call::EventCreate, 0),
        (Call::EventRecord, 0),
        (Call::EventRecord, 1),
        (Call::EventQuery, 0),
        (Call::EventElapsed, 0),
    ] {
        let bench = Bench::new(100);
        // Events that the timeline has in stock are used first.
        (0..2).for_each(|_| bench.enqueue(KERNEL, Duration::ZERO).unwrap());
        bench.wait();
        bench.driver.fail_call(call, after);
        bench.enqueue(KERNEL, Duration::ZERO).unwrap();
        bench.wait();
        bench.events.flush(&*bench.driver);
        let ran = bench.driver.calls(Call::HostFunction);
        let (texts, loss) = bench.stop();
        assert_eq!(bench.driver.failed_calls(), [call]);
        assert_eq!((ran, of(&texts, "Kernel").len(), loss.dropped), (3, 2, 1), "{call:?} {after}");
    }
}

#[test]
fn waits_are_recorded_with_host_times() {
    let bench = Bench::new(100);
    bench.enqueue(KERNEL, Duration::from_millis(3)).unwrap();
    let began = Instant::now();
    bench
        .events
        .waits(bench.operation(), ActivityWait::HostForStream, &mut || {
            bench.driver.stream_synchronize(bench.context, bench.stream)
        })
        .unwrap();
    let took = began.elapsed().as_nanos() as u64;
    let (texts, _) = bench.stop();
    let wait = of(&texts, "Wait")[0];
    assert!(wait.contains("HostForStream") && number(wait, "end") - number(wait, "start") <= took, "{wait}");
    assert_eq!(of(&texts, "Call").len(), 2);
}

#[test]
fn a_context_that_goes_takes_its_events_along() {
    let bench = Bench::new(100);
    bench.enqueue(KERNEL, Duration::ZERO).unwrap();
    bench.wait();
    let hold = bench.driver.hold();
    bench.enqueue(KERNEL, Duration::ZERO).unwrap();
    bench.events.forget(&*bench.driver, bench.context);
    drop(hold);
    let calls = |call| bench.driver.calls(call);
    assert_eq!(calls(Call::EventCreate), calls(Call::EventDestroy));
    let (texts, loss) = bench.stop();
    assert_eq!((of(&texts, "Kernel").len(), loss.dropped), (1, 1), "what has run is kept, the rest counted");
}

#[test]
fn threads_record_at_once() {
    let bench = Bench::new(10_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| bench.enqueue(KERNEL, Duration::ZERO).unwrap()));
        }
    });
    bench.wait();
    let (texts, loss) = bench.stop();
    assert_eq!(
        (of(&texts, "Kernel").len(), of(&texts, "Call").len(), loss),
        (800, 800, ActivityLoss::default())
    );
    let mut correlations: Vec<u64> =
        of(&texts, "Kernel").iter().map(|text| number(text, "correlation")).collect();
    correlations.sort_unstable();
    correlations.dedup();
    assert_eq!(correlations.len(), 800);
}
