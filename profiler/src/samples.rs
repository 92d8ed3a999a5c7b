//! Sampling of clocks, power, temperature and memory on a separate thread.

use std::time::{Duration, Instant};

use warpsmith_runtime::Telemetry;
use warpsmith_trace::CounterId;

use crate::raw::Raw;
use crate::recording::Recording;
use crate::recording::log::with_local;

/// Returns the sampled metrics of a device as name, unit and value.
fn values(telemetry: &Telemetry) -> [(&'static str, &'static str, Option<f64>); 5] {
    [
        ("SM clock", "MHz", telemetry.sm_clock_mhz.map(f64::from)),
        ("memory clock", "MHz", telemetry.memory_clock_mhz.map(f64::from)),
        ("power", "W", telemetry.power_w),
        ("temperature", "°C", telemetry.temperature_c.map(f64::from)),
        ("memory in use", "B", telemetry.memory_used.map(|bytes| bytes as f64)),
    ]
}

/// Takes samples until the recording ends.
pub(crate) fn sample(recording: &Recording, hz: u32) {
    let period = Duration::from_secs(1) / hz.max(1);
    let mut next = Instant::now();
    let mut counters: Vec<((u32, &'static str), CounterId)> = Vec::new();
    while !recording.is_stopping() {
        // In simulated time, samples cannot be taken periodically.
        let drivers = if recording.is_simulated() { Vec::new() } else { recording.drivers() };
        for recorded in drivers {
            for ordinal in 0..recorded.devices {
                let Ok(telemetry) = recorded.driver.telemetry(ordinal) else { continue };
                let (at, shown) = (recording.now(), recorded.first_ordinal + ordinal);
                for (name, unit, value) in values(&telemetry) {
                    let Some(value) = value else { continue };
                    let key = (shown, name);
                    let known = counters.iter().find(|(known, _)| *known == key).map(|(_, counter)| *counter);
                    let counter = known.unwrap_or_else(|| {
                        let counter = recording.counter(shown, name, unit);
                        counters.push((key, counter));
                        counter
                    });
                    with_local(recording, |local| {
                        local.push(recording, Raw::Sample { at, counter, value });
                    });
                }
            }
        }
        // Missed samples are skipped.
        next = (next + period).max(Instant::now());
        while !recording.is_stopping() {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}
