//! Documents to render.

use warpsmith_tuner::document::{
    Condition, DeviceInfo, Document, Outcome, ProbeResult, Record, RunInfo, SCHEMA,
};
use warpsmith_tuner::measure::{Mode, StopReason, Timing};
use warpsmith_tuner::value::Configuration;

pub const BLOCKS: [u32; 4] = [64, 128, 256, 512];
pub const ITEMS: [u32; 4] = [1, 2, 4, 8];
pub const GRIDS: [&str; 2] = ["auto", "waves:1"];
pub const SIZES: [u64; 4] = [1 << 16, 1 << 20, 1 << 24, 1 << 28];
pub const SAMPLES: usize = 30;

pub fn document(results: Vec<Record>) -> Document {
    let before = Condition {
        sm_clock_mhz: Some(1980),
        max_sm_clock_mhz: Some(1980),
        memory_clock_mhz: Some(3201),
        temperature_c: Some(34),
        power_w: Some(120.4),
        power_limit_w: Some(700.0),
        throttle_reasons: Vec::new(),
    };
    let after = Condition { temperature_c: Some(51), power_w: Some(402.0), ..before.clone() };
    let probe = |name: &str, gbps, gflops| ProbeResult { name: name.into(), gbps, gflops, samples: 96 };
    Document {
        schema: SCHEMA,
        run: RunInfo {
            command: "bench".into(),
            started: 1_790_000_000,
            seconds: 41.2,
            version: "0.1.0".into(),
            toolchain: "rustc 1.96.0, LLVM 22.1".into(),
            interrupted: false,
        },
        device: DeviceInfo {
            id: "cuda:0".into(),
            name: "NVIDIA H200".into(),
            emulated: false,
            capability: "9.0".into(),
            multiprocessors: 132,
            memory: 141 << 30,
            l2_cache: 50 << 20,
            memory_gbps: Some(4814.0),
            driver: "580.95.05".into(),
            cuda: "13.0".into(),
            before,
            after,
        },
        probes: vec![probe("copy", 4340.0, 0.0), probe("read", 4510.0, 0.0), probe("fma", 0.0, 51_200.0)],
        results,
    }
}

/// Returns a record with the times of a kernel that is launch-bound for small sizes and memory-bound for large ones.
pub fn record(kernel: &str, arrays: u64, n: u64, block: u32, items: u32, grid: &str) -> Record {
    let bytes = arrays * 4 * n;
    let narrow = 1.0 + 0.5 / f64::from(items) * (block as f64 / 256.0).log2().abs().mul_add(0.12, 0.05);
    let waves = if grid == "auto" { 1.0 } else { 1.03 };
    let tail = if n < 1 << 20 { 1.0 + f64::from(items) * 0.03 } else { 1.0 };
    let us = (3.0 + bytes as f64 / 4.45e6) * narrow * waves * tail;
    let noise = |i: usize| 1.0 + 0.004 * ((i * 7919 + block as usize) % 17) as f64 / 17.0;
    let samples: Vec<f64> =
        (0..SAMPLES).map(|i| us * noise(i) * if i % 19 == 18 { 1.04 } else { 1.0 }).collect();
    Record {
        kernel: kernel.into(),
        dtype: "f32".into(),
        n,
        configuration: Configuration::default().with("block", block).with("grid", grid).with("items", items),
        is_default: (block, items, grid) == (256, 4, "auto"),
        is_winner: false,
        outcome: Outcome::Correct,
        problem: String::new(),
        max_error: Some(0.0),
        bytes,
        flops: if kernel == "axpy" { 2 * n } else { 0 },
        timing: Some(Timing {
            mode: Mode::Cold,
            samples_us: samples,
            clocks_mhz: vec![1980; SAMPLES],
            rejected: u32::from(block == 512),
            throttled: false,
            launches_per_sample: 8,
            stop: if items == 8 { StopReason::Samples } else { StopReason::Precision },
        }),
        probe_us: Some(1.5 + bytes as f64 / 4.5e6),
        mode: Mode::Cold,
    }
}

/// Turns a record into one with a failure.
pub fn bad(mut record: Record, outcome: Outcome, problem: &str) -> Record {
    record.outcome = outcome;
    record.problem = problem.into();
    if matches!(outcome, Outcome::Failed | Outcome::Crashed) {
        (record.timing, record.probe_us) = (None, None);
    }
    record
}

/// Returns a document with two kernels over several sizes and configurations. For axpy, blocks of 512 with 8 items
/// fail, and blocks of 64 with 8 items are incorrect with `waves:1`.
pub fn usual() -> Document {
    let mut results = Vec::new();
    for (kernel, arrays) in [("copy", 2), ("axpy", 3)] {
        for n in SIZES {
            for block in BLOCKS {
                for grid in GRIDS {
                    for items in ITEMS {
                        let record = record(kernel, arrays, n, block, items, grid);
                        results.push(match (kernel, block, items, grid) {
                            ("axpy", 512, 8, _) => {
                                bad(record, Outcome::Failed, "too many registers for 512 threads")
                            }
                            ("axpy", 64, 8, "waves:1") => bad(
                                record,
                                Outcome::Incorrect,
                                "17 of 65536 elements are incorrect, the first at 64",
                            ),
                            _ => record,
                        });
                    }
                }
            }
        }
    }
    document(results)
}

/// Number of records in [`usual`] that are not correct.
pub const NOT_CORRECT: usize = SIZES.len() * 3;

/// Returns a document with ten thousand records of ten kernels.
pub fn many() -> Document {
    let mut results = Vec::new();
    for kernel in 0..10 {
        for step in 0..5 {
            for block in 1..=25 {
                for items in 1..=8 {
                    let name = format!("kernel_{kernel}");
                    let mut record = record(&name, 2, 1 << (16 + 3 * step), 32 * block, items, "auto");
                    record.is_default = (block, items) == (8, 4);
                    results.push(record);
                }
            }
        }
    }
    document(results)
}
