//! The report as text.

use super::{CounterReport, KernelCounters, Stall};
use crate::summary::text::{bytes, percent, shortened, table, time};

/// Number of stall reasons per table row.
const REASONS: usize = 3;

pub(super) fn text(report: &CounterReport, rows: usize) -> String {
    let mut out = format!("{} of {} operations counted", report.counted, report.operations);
    for (reason, count) in &report.not_counted {
        out += &format!("; {count} not counted: {}", shortened(reason));
    }
    if report.dropped > 0 {
        out += &format!("; {} kernels were not counted for lack of space", report.dropped);
    }
    out.push('\n');
    for device in &report.devices {
        out += &format!(
            "device {}: {} ({}), {}, {} passes per kernel\n",
            device.device, device.name, device.chip, device.source, device.passes
        );
    }
    for (key, value) in &report.about {
        out += &format!("{}: {}\n", shortened(key), shortened(value));
    }
    let name = |kernel: &KernelCounters| match report.devices.len() {
        0 | 1 => kernel.name.clone(),
        _ => format!("{} {}", kernel.device, kernel.name),
    };
    let or_none = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".to_owned(), text);
    let counted = report.kernels.iter().map(|kernel| {
        vec![
            name(kernel),
            kernel.launches.to_string(),
            kernel.counted.to_string(),
            or_none(kernel.time, time),
            or_none(kernel.read, |read| bytes(read as u64)),
            or_none(kernel.written, |written| bytes(written as u64)),
            or_none(kernel.bandwidth(), |bandwidth| format!("{:.1}", bandwidth / 1e9)),
            or_none(kernel.of_peak, percent),
            or_none(kernel.l2_hits, percent),
            or_none(kernel.occupancy, percent),
            or_none(kernel.tensor, percent),
        ]
    });
    let head = [
        "kernel",
        "launches",
        "counted",
        "time",
        "DRAM read",
        "written",
        "GB/s",
        "of peak",
        "L2 hits",
        "occupancy",
        "tensor cores",
    ];
    out += &table("Kernels (averages per launch)", &head, counted.collect(), rows);

    let stalled = report.kernels.iter().filter(|kernel| !kernel.stalls.is_empty()).map(|kernel| {
        let all: f64 = kernel.stalls.iter().map(|stall| stall.cycles).sum();
        let reason = |nth: usize| {
            let stall = kernel.stalls.get(nth);
            stall.map_or("-".to_owned(), reason_text)
        };
        let mut cells = vec![name(kernel), format!("{all:.1}")];
        cells.extend((0..REASONS).map(reason));
        cells
    });
    let head = ["kernel", "cycles waited", "most for", "then", "then"];
    out += &table("Stalls (between consecutive instructions of a warp)", &head, stalled.collect(), rows);
    out
}

/// Formats a stall reason and its share.
pub(super) fn reason_text(stall: &Stall) -> String {
    format!("{} {}", stall.reason.replace('_', " "), percent(stall.share))
}
