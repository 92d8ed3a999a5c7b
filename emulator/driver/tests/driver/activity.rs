//! Tests of the activity records of emulated devices: their contents, times and correlation.

use std::sync::{Arc, Mutex};

use crate::common::*;
use warpsmith_runtime::driver::activity::{
    Activity, ActivityDriver, ActivityError, ActivityOptions, ActivitySink, ActivityTransfer, ActivityWait,
};
use warpsmith_runtime::emulated::{EmulatedDriver, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Graph, Launch, Stream};

/// Stores records as text, separately from their times.
#[derive(Default)]
struct Records(Mutex<Vec<(u64, u64, String)>>);

impl ActivitySink for Records {
    fn record(&self, activity: &Activity<'_>) {
        let (start, end, text) = match *activity {
            Activity::Kernel { start, end, place, symbol, grid, .. } => {
                let text = format!(
                    "kernel of {} blocks {symbol} stream {} of {} {}",
                    grid[0], place.stream, place.correlation, place.graph
                );
                (start, end, text)
            }
            Activity::Transfer { start, end, place, kind, bytes } => {
                (start, end, format!("{kind:?} {bytes} of {}", place.correlation))
            }
            Activity::Wait { start, end, kind, .. } => (start, end, format!("{kind:?}")),
            Activity::Call { start, end, correlation, function, thread } => {
                assert_ne!(thread, 0);
                (start, end, format!("{function} makes {correlation}"))
            }
            Activity::Inside { correlation, id } => (0, 0, format!("{correlation} is inside {id}")),
            _ => unreachable!("the emulated driver makes no other records"),
        };
        self.0.lock().unwrap().push((start, end, text));
    }
}

impl Records {
    fn start(driver: &EmulatedDriver) -> Arc<Self> {
        let records = Arc::new(Self::default());
        driver.activity_start(&ActivityOptions::default(), records.clone()).unwrap();
        records
    }

    /// Returns all records, sorted.
    fn all(&self) -> Vec<(u64, u64, String)> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort();
        all
    }

    fn of(&self, what: &str) -> (u64, u64) {
        let all = self.all();
        let found = all.iter().find(|(_, _, text)| text.contains(what));
        found.map(|(start, end, _)| (*start, *end)).unwrap_or_else(|| panic!("no {what} in {all:?}"))
    }
}

#[test]
fn work_is_recorded_after_its_call() {
    let (driver, _device, stream, kernel) = kernel_fixture::<Mix>();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let before = driver.activity_now();
    let records = Records::start(&driver);
    kernel.launch(&stream, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
    stream.memset(&mut y, 0).unwrap();
    stream.synchronize().unwrap();
    driver.activity_stop().unwrap();
    let after = driver.activity_now();
    let call = records.of("launch makes 1");
    let ran = records.of("kernel of 2 blocks mix");
    assert!(before <= call.0 && call.0 <= call.1 && call.0 <= ran.0 && ran.0 <= ran.1 && ran.1 <= after);
    assert!(records.of("Memset 200 of 2").0 >= ran.1);
    records.of(&format!("{:?}", ActivityWait::HostForStream));
}

#[test]
fn nothing_is_recorded_outside_of_a_recording() {
    let (driver, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let hold = driver.hold();
    stream.memset(&mut x, 1).unwrap();
    let records = Records::start(&driver);
    drop(hold);
    stream.wait_event(&stream.record_event().unwrap()).unwrap();
    stream.synchronize().unwrap();
    driver.activity_stop().unwrap();
    assert!(!records.all().iter().any(|(.., text)| text.contains("Memset")), "{:?}", records.all());
    let count = records.all().len();
    stream.memset(&mut x, 1).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(records.all().len(), count);
}

#[test]
fn a_second_recording_of_a_driver_is_refused() {
    let (driver, _device) = device();
    let _records = Records::start(&driver);
    let again = driver.activity_start(&ActivityOptions::default(), Arc::new(Records::default()));
    assert_eq!(again, Err(ActivityError::Recording));
    driver.activity_stop().unwrap();
    Records::start(&driver);
    driver.activity_stop().unwrap();
}

#[test]
fn a_refused_recording_changes_nothing() {
    let (driver, device) = device();
    let records = Records::start(&driver);
    let all_calls = ActivityOptions { all_calls: true, ..ActivityOptions::default() };
    let again = driver.activity_start(&all_calls, Arc::new(Records::default()));
    assert_eq!(again, Err(ActivityError::Recording));
    let _stream = Stream::new(&device).unwrap();
    driver.activity_stop().unwrap();
    assert_eq!(records.all(), []);
    let records = Arc::new(Records::default());
    driver.activity_start(&all_calls, records.clone()).unwrap();
    let _stream = Stream::new(&device).unwrap();
    driver.activity_stop().unwrap();
    records.of("stream_create makes 1");
}

#[test]
fn calls_are_inside_the_innermost_part() {
    let (driver, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let records = Records::start(&driver);
    driver.activity_push(7);
    driver.activity_push(8);
    stream.memset(&mut x, 1).unwrap();
    driver.activity_pop();
    stream.memset(&mut x, 1).unwrap();
    driver.activity_pop();
    stream.memset(&mut x, 1).unwrap();
    driver.activity_stop().unwrap();
    let inside: Vec<_> =
        records.all().into_iter().map(|(.., text)| text).filter(|text| text.contains("inside")).collect();
    assert_eq!(inside, ["1 is inside 8", "2 is inside 7"]);
}

/// Returns a driver on which a kernel takes 5 us, and a copy or memset 0.001 us per byte.
fn simulated() -> Arc<EmulatedDriver> {
    let model = |work: &SimulatedWork<'_>| match work {
        SimulatedWork::Kernel { .. } => 5.0,
        SimulatedWork::Copy { bytes } | SimulatedWork::Set { bytes } => *bytes as f64 / 1e3,
    };
    EmulatedDriver::builder().memory(1 << 30).simulated_time(model).build()
}

/// Runs a program with two streams, a wait between them, a host wait, and a graph. Returns its records.
fn program() -> Vec<(u64, u64, String)> {
    let driver = simulated();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    let [first, second] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let records = Records::start(&driver);
    let x = DeviceBuffer::from_host(&first, &[1u32; 250]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&second, 250).unwrap();
    kernel.launch(&second, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
    second.synchronize().unwrap();
    let graph = Graph::capture(&first, || kernel.launch(&first, Launch::grid_block(3, 32), (5, &x, &mut y)));
    let exec = graph.unwrap().instantiate().unwrap();
    exec.launch(&first).unwrap();
    exec.launch(&first).unwrap();
    device.synchronize().unwrap();
    driver.activity_stop().unwrap();
    records.all()
}

#[test]
fn simulated_time_makes_equal_records() {
    let records = program();
    assert_eq!(records, program());
    let of = |what: &str| -> Vec<(u64, u64)> {
        let found = records.iter().filter(|(.., text)| text.contains(what));
        found.map(|(start, end, _)| (*start, *end)).collect()
    };
    assert_eq!(of(&format!("{:?} 1000", ActivityTransfer::HostToDevice)), [(0, 1000)]);
    // The host waited for the copy of pageable memory before it enqueued the memset.
    assert_eq!(of("Memset 1000"), [(1000, 2000)]);
    assert_eq!(of("kernel of 2 blocks"), [(2000, 7000)]);
    assert_eq!(of("kernel of 3 blocks"), [(7000, 12000), (12000, 17000)]);
    assert_eq!(of("HostForDevice"), [(7000, 17000)]);
    assert_eq!(of("launch makes"), [(1000, 1000), (7000, 7000), (7000, 7000), (7000, 7000)]);
}
