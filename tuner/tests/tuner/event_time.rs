//! [`EventTime`]: criterion's measurement over device events, with the feature `criterion`.

use criterion::measurement::Measurement;
use warpsmith_runtime::emulated::{EmulatedDriver, SimulatedWork};
use warpsmith_runtime::{Device, DeviceBuffer, Graph, Stream};
use warpsmith_tuner::criterion::EventTime;

#[test]
fn times_are_the_devices_and_not_the_hosts() {
    let model =
        |work: &SimulatedWork<'_>| if matches!(work, SimulatedWork::Set { .. }) { 250.0 } else { 0.0 };
    let driver = EmulatedDriver::builder().simulated_time(model).build();
    let device = Device::with_driver(driver, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 100).unwrap();
    let times = EventTime::new(&stream);
    let start = times.start();
    stream.memset(&mut buffer, 1).unwrap();
    stream.memset(&mut buffer, 2).unwrap();
    assert_eq!(times.end(start), 500_000.0, "nanoseconds");
    assert_eq!(times.add(&1.0, &2.0), 3.0);
    assert_eq!((times.zero(), times.to_f64(&4.0)), (0.0, 4.0));
}

#[test]
#[should_panic(expected = "cannot time work on cpu:0: ")]
fn a_capture_panics_with_what_is_wrong() {
    let stream = Stream::new(&Device::emulated(0).unwrap()).unwrap();
    let times = EventTime::new(&stream);
    let _ = Graph::capture::<warpsmith_runtime::Error>(&stream, || {
        let start = times.start();
        times.end(start);
        Ok(())
    });
}
