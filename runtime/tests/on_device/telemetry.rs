//! Tests of the telemetry of the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set. A
//! missing device fails the tests.

use crate::under_test::device;
use warpsmith_runtime::{DeviceBuffer, Stream, Telemetry};

#[test]
fn telemetry_is_read_while_the_device_works() {
    let device = device();
    if device.is_emulated() {
        assert_eq!(device.telemetry().unwrap(), Telemetry::default());
        assert_eq!(device.sm_clock_mhz(), None);
        return;
    }
    let stream = Stream::new(&device).unwrap();
    let from = DeviceBuffer::<u8>::zeros(&stream, 256 << 20).unwrap();
    let mut to = DeviceBuffer::<u8>::zeros(&stream, 256 << 20).unwrap();
    for _ in 0..500 {
        stream.copy(&from, &mut to).unwrap();
    }
    let now = device.telemetry().unwrap();
    println!("{now:?}");
    let (clock, most) = (now.sm_clock_mhz.unwrap(), now.max_sm_clock_mhz.unwrap());
    assert!(clock > 100 && clock <= most, "{now:?}");
    assert!(now.memory_clock_mhz.unwrap() > 100 && (1..120).contains(&now.temperature_c.unwrap()), "{now:?}");
    assert!(now.power_w.unwrap() > 1.0 && now.power_limit_w.unwrap() > 1.0, "{now:?}");
    let percent = [now.utilization_percent.unwrap(), now.memory_utilization_percent.unwrap()];
    assert!(percent.iter().all(|percent| *percent <= 100), "{now:?}");
    assert!(now.driver_version.unwrap().contains('.'));
    let started = std::time::Instant::now();
    let readings: Vec<u32> = (0..100).map(|_| device.sm_clock_mhz().unwrap()).collect();
    println!("{:.1} us a reading: {readings:?}", started.elapsed().as_secs_f64() * 1e4);
    assert!(readings.iter().all(|mhz| (100..=most).contains(mhz)), "{readings:?}");
    stream.synchronize().unwrap();
}
