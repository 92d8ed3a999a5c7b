//! Tests that conditions which are otherwise silent or must be polled are also `tracing` events.

use std::sync::{Arc, Mutex};

use crate::common::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::extension::{Ended, Observed, Observer, observe};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, Launch, Stream};

/// Levels and texts of events.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    /// Returns the events of `work` on this thread.
    pub fn of(work: impl FnOnce()) -> Vec<(Level, String)> {
        let log = Self::default();
        tracing::subscriber::with_default(log.clone(), work);
        let events = log.0.lock().unwrap();
        events.clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("warpsmith")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}: {value:?}; ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[track_caller]
fn assert_one(events: &[(Level, String)], level: Level, texts: &[&str]) {
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].0, level);
    assert!(texts.iter().all(|text| events[0].1.contains(text)), "{events:?}");
}

#[test]
fn a_lost_device_is_reported_once() {
    let (_, _, stream, kernel) = kernel_fixture::<PanicAt>();
    let events = Log::of(|| {
        kernel.launch(&stream, Launch::linear(100, 32), (70u32,)).unwrap();
        for _ in 0..3 {
            stream.synchronize().unwrap_err();
        }
    });
    assert_one(&events, Level::ERROR, &["the device was lost", "panic_at", "thread 70", "cpu:0"]);
}

#[test]
fn an_invalidated_graph_is_reported_once() {
    let (_, _, stream) = fixture();
    let events = Log::of(|| {
        // Both calls detect the change.
        let moved: Result<(), Error> = stream.with_stable_capture_state(|| {
            stream.with_stable_capture_state(|| Graph::capture(&stream, || Ok::<_, Error>(())).map(drop))
        });
        moved.unwrap_err();
    });
    assert_one(&events, Level::WARN, &["a graph was invalidated", "another thread"]);
}

#[test]
fn copies_through_host_memory_between_devices_are_reported() {
    let driver = EmulatedDriver::builder().devices(2).memory(1 << 30).without_peer_access().build();
    let [first, second] = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    let x = DeviceBuffer::from_host(&first.default_stream(), &[1u32; 100]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&second.default_stream(), 100).unwrap();
    let events = Log::of(|| second.default_stream().copy(&x, &mut y).unwrap());
    assert_one(&events, Level::DEBUG, &["through host memory", "from: cpu:0", "to: cpu:1", "bytes: 400"]);
    assert_eq!(y.to_host().unwrap(), [1; 100]);
}

#[test]
fn memory_pressure_is_reported() {
    let driver = EmulatedDriver::builder().memory(64 << 20).build();
    let device = Device::with_driver(driver, 0).unwrap();
    let [first, second] = [(); 2].map(|()| Stream::new(&device).unwrap());
    drop(DeviceBuffer::<u8>::uninit(&first, 40 << 20).unwrap());
    let events = Log::of(|| drop(DeviceBuffer::<u8>::uninit(&second, 50 << 20).unwrap()));
    assert_one(&events, Level::DEBUG, &["cached memory is freed", "cpu:0"]);
}

#[test]
fn an_observer_that_panics_is_reported_once() {
    struct Panics(Device);
    impl Observer for Panics {
        fn end(&self, observed: &Observed<'_>, _: Ended) {
            assert!(*observed.device != self.0, "on purpose");
        }
    }

    let (_, device) = device();
    let _observation = observe(Panics(device.clone()));
    let events = Log::of(|| {
        for _ in 0..2 {
            device.default_stream().host_function(|| ()).unwrap();
        }
    });
    assert_one(&events, Level::ERROR, &["an observer panicked", "on purpose"]);
}
