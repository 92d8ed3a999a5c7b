//! A criterion measurement that reads the device's clock.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use warpsmith::prelude::*;

/// Nanoseconds between two events on a stream: what the device spent on the work enqueued between them.
pub struct EventTime {
    stream: Stream,
}

impl EventTime {
    /// Measures work enqueued on this stream.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone() }
    }
}

impl Measurement for EventTime {
    type Intermediate = Event;
    type Value = f64;

    fn start(&self) -> Event {
        self.stream.record_timed_event().expect("an event before the work")
    }

    fn end(&self, start: Event) -> f64 {
        let end = self.stream.record_timed_event().expect("an event after the work");
        end.synchronize().expect("the work succeeds");
        end.elapsed_us(&start).expect("both events are recorded") * 1e3
    }

    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Nanoseconds
    }
}

/// Criterion's own presentation of nanoseconds.
struct Nanoseconds;

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }

    fn scale_throughputs(&self, typical: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_throughputs(typical, throughput, values)
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}
