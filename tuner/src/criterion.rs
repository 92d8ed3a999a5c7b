//! [`EventTime`]: a criterion measurement that reads the device's clock instead of the host's.
//!
//! A time is the device time between two events on the stream. It excludes the host's part of a launch, unless the
//! device has run out of work and is waiting for the host.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use warpsmith_runtime::{Event, Stream};

/// Measures the nanoseconds between two events on a stream: the device time of the work enqueued between the events.
///
/// ```
/// use criterion::Criterion;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tuner::criterion::EventTime;
///
/// let stream = Stream::new(&Device::best()?)?;
/// let from = DeviceBuffer::<f32>::zeros(&stream, 1 << 10)?;
/// let mut to = DeviceBuffer::<f32>::zeros(&stream, 1 << 10)?;
/// let mut criterion = Criterion::default().with_measurement(EventTime::new(&stream));
/// # criterion = criterion.sample_size(10).without_plots();
/// # criterion = criterion.warm_up_time(std::time::Duration::from_millis(1));
/// # criterion = criterion.measurement_time(std::time::Duration::from_millis(5));
/// # criterion = criterion.output_directory(&std::env::temp_dir().join("warpsmith-criterion-example"));
/// criterion.bench_function("copy", |bencher| bencher.iter(|| stream.copy(&from, &mut to).expect("a copy")));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Panics
/// Criterion has no error handling. A measurement therefore panics with the cause if the stream is being captured into
/// a graph, the measured work fails, or the device is lost.
#[derive(Debug, Clone)]
pub struct EventTime {
    stream: Stream,
}

impl EventTime {
    /// Measures work that is enqueued on the given stream. Work on other streams is included only insofar as this
    /// stream waits for it.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone() }
    }

    fn fail(&self, what: &str, error: &dyn std::fmt::Display) -> ! {
        panic!("cannot time work on {}: {what}: {error}", self.stream.device().id())
    }
}

impl Measurement for EventTime {
    type Intermediate = Event;
    type Value = f64;

    fn start(&self) -> Event {
        match self.stream.record_timed_event() {
            Ok(event) => event,
            Err(error) => self.fail("no event could be recorded before the work", &error),
        }
    }

    fn end(&self, start: Event) -> f64 {
        let end = match self.stream.record_timed_event() {
            Ok(event) => event,
            Err(error) => self.fail("no event could be recorded after the work", &error),
        };
        match end.synchronize().and_then(|()| end.elapsed_us(&start)) {
            Ok(us) => us * 1e3,
            Err(error) => self.fail("the work failed", &error),
        }
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

/// Criterion's own format of nanoseconds.
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
