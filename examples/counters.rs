//! Hardware counters of copy, axpy and sum: DRAM bytes read and written, L2 hit rate, achieved occupancy, and stalls.
//!
//! `cargo run --release --example counters -- [DEVICE [launch | FILE]]`, where DEVICE is `cuda:0`, …; the default is
//! the best available device. If counters are not permitted, the example reports the reason and runs only the kernels.
//! Counting must not change the results of the kernels.
//!
//! With `launch`, the kernels are launched without counting, for Nsight Compute. With the FILE that Nsight Compute has
//! written, its values are compared with Warpsmith's:
//!
//! ```text
//! ncu --cache-control none --clock-control none --csv --page raw --print-units base --log-file ncu.csv --metrics \
//!     gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sector_hit_rate.pct,\
//!     sm__warps_active.avg.pct_of_peak_sustained_active ./counters cuda:0 launch
//! ./counters cuda:0 ncu.csv
//! ```
//!
//! (The list of metrics must be one word.)

use std::collections::BTreeMap;
use std::path::Path;

use warpsmith::ops;
use warpsmith::prelude::*;
use warpsmith::profiler::trace::counters::{CounterReport, KernelCounters};
use warpsmith::profiler::{CounterOptions, Counters, ProfilerError};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of launches per kernel.
const LAUNCHES: usize = 3;
/// Maximum relative difference of the values.
const TOLERANCE: f64 = 0.02;
/// Metrics that must agree.
const COMPARED: [&str; 4] = [
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
];
/// Values below this fraction of a kernel's traffic, or below this percentage, are not compared. For a kernel that
/// writes little, the counters include lines that the replay has loaded into the L2 cache, and these differ between
/// replays.
const NOISE: f64 = 0.03;

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let with = std::env::args().nth(2);
    let is_cuda = device.id().to_string().starts_with("cuda");
    // On a GPU, the arrays are larger than the L2 cache.
    let elements = if is_cuda { 1 << 28 } else { 1 << 14 };
    if with.as_deref() == Some("launch") {
        return launch(&device, elements);
    }
    let counters = match Counters::start(CounterOptions::default().device(&device)) {
        Ok(counters) => counters,
        Err(error)
            if with.is_none() && matches!(error.downcast_ref(), Some(ProfilerError::Counters { .. })) =>
        {
            println!("not counted: {error}");
            return launch(&device, elements);
        }
        Err(error) => return Err(error.into()),
    };
    launch(&device, elements)?;
    let report = counters.stop()?;
    println!("{}", report.text(20));
    check(&report, elements)?;
    if let Some(file) = with {
        compare(&report, Path::new(&file))?;
    }
    Ok(())
}

/// Launches the kernels and checks their results.
fn launch(device: &Device, elements: usize) -> Result<()> {
    let stream = Stream::new(device)?;
    let x = DeviceBuffer::from_host(&stream, &vec![1.0f32; elements])?;
    let mut y = DeviceBuffer::<f32>::zeros(&stream, elements)?;
    for _ in 0..LAUNCHES {
        ops::copy(&stream, &x, &mut y)?;
        ops::axpy(&stream, &x, 2.0, &mut y)?;
        let sum = ops::sum(&stream, &y)?;
        // If memory was not restored between replays, the kernel would have added several times.
        if (f64::from(sum) / (3.0 * elements as f64) - 1.0).abs() > 1e-4 {
            return Err(format!("the sum is {sum} instead of {}", 3 * elements).into());
        }
    }
    println!("copy, axpy and sum of {elements} elements: correct");
    Ok(())
}

/// Returns the counters of a kernel.
fn row<'a>(report: &'a CounterReport, name: &str) -> Result<&'a KernelCounters> {
    let row = report.kernels.iter().find(|row| row.name.split('<').next() == Some(name) && row.counted > 0);
    row.ok_or_else(|| format!("`{name}` was not counted: {:?}", report.not_counted).into())
}

/// Compares the bytes with the kernels' minimum traffic.
fn check(report: &CounterReport, elements: usize) -> Result<()> {
    let bytes = 4.0 * elements as f64;
    for (name, read, written) in
        [("copy", bytes, Some(bytes)), ("axpy", 2.0 * bytes, Some(bytes)), ("reduce_sum", bytes, None)]
    {
        let row = row(report, name)?;
        let pairs = [("read", row.read, Some(read)), ("written", row.written, written)];
        for (what, counted, must) in pairs {
            let (Some(counted), Some(must)) = (counted, must) else { continue };
            // Array data that is in the L2 cache when a kernel starts or ends causes no DRAM traffic.
            if (counted / must - 1.0).abs() > 3.0 * TOLERANCE {
                return Err(format!("`{name}` {what} {counted} bytes instead of {must}").into());
            }
        }
    }
    Ok(())
}

/// Compares the [checked](check) values with a file from Nsight Compute.
fn compare(report: &CounterReport, file: &Path) -> Result<()> {
    let theirs = averages(&std::fs::read_to_string(file)?)?;
    let (mut compared, mut apart) = (0, 0);
    for name in ["copy", "axpy", "reduce_sum"] {
        let row = row(report, name)?;
        let Some(theirs) = row.symbol.as_ref().and_then(|symbol| theirs.get(symbol)) else { continue };
        let moved = row.read.unwrap_or(0.0) + row.written.unwrap_or(0.0);
        for metric in COMPARED {
            let (Some(ours), Some(theirs)) = (row.metrics.get(metric), theirs.get(metric)) else { continue };
            let difference = ours.average / theirs - 1.0;
            let whole = if metric.ends_with(".sum") { moved } else { 100.0 };
            let is_noise = theirs.max(ours.average) < NOISE * whole;
            let is_apart = difference.abs() > TOLERANCE && !is_noise;
            let note = if is_noise {
                " (too little to compare)"
            } else if is_apart {
                " APART"
            } else {
                ""
            };
            println!(
                "{} {metric}: {} here, {theirs} by ncu: {:+.2} %{note}",
                row.name,
                ours.average,
                100.0 * difference
            );
            compared += usize::from(!is_noise);
            apart += usize::from(is_apart);
        }
    }
    println!("{compared} figures compared, {apart} more than {} % apart", 100.0 * TOLERANCE);
    if compared == 0 || apart > 0 { Err("the figures do not agree".into()) } else { Ok(()) }
}

/// Returns the average of each metric of each kernel in a file from Nsight Compute.
fn averages(csv: &str) -> Result<BTreeMap<String, BTreeMap<String, f64>>> {
    // Messages of the tool precede the table, so they are skipped.
    let mut lines = csv.lines().skip_while(|line| !line.starts_with("\"ID\"")).map(fields);
    let head = lines.next().ok_or("the file has no table; write it with --csv --page raw --log-file")?;
    let kernel = head.iter().position(|name| name == "Kernel Name").ok_or("the table has no kernels")?;
    let mut sums: BTreeMap<String, BTreeMap<String, (f64, f64)>> = BTreeMap::new();
    for line in lines.filter(|line| line.len() == head.len()) {
        // The line that contains the units names no kernel.
        let name = line[kernel].split('(').next().unwrap_or_default().to_owned();
        for (metric, value) in head.iter().zip(&line).filter(|(name, _)| name.contains("__")) {
            if let Ok(value) = value.replace(',', "").parse::<f64>() {
                let (sum, count) = sums.entry(name.clone()).or_default().entry(metric.clone()).or_default();
                (*sum, *count) = (*sum + value, *count + 1.0);
            }
        }
    }
    let average = |metrics: BTreeMap<String, (f64, f64)>| {
        metrics.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect()
    };
    Ok(sums.into_iter().map(|(kernel, metrics)| (kernel, average(metrics))).collect())
}

/// Splits a line into fields. Fields that contain commas are quoted.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is a field from the start on").push(c),
        }
    }
    fields
}
