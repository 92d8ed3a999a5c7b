//! `bench` and another process, `bench` or `tune`, agree on the time of a configuration. The test runs on the device
//! under test, `WARPSMITH_TEST_DEVICE`, by default the emulated one. A missing device fails the test.
//!
//! The kernels take about 3 µs to 1 ms on a GPU. The emulated device shares its CPU with other work, so there the test
//! only checks that both processes use the same configurations.
//!
//! On a GPU the program must be built with `--release`. Without optimization the host launches more slowly than the GPU
//! runs the shortest kernels, so the times would be launch-bound.

use super::shared::run;
use serde_json::Value;
use warpsmith::bench::compare::BETWEEN_PROCESSES_US;
use warpsmith::bench::stats::ratio;

/// Relative difference of medians allowed outside their interval, in addition to the difference between processes.
const NEAR: f64 = 0.02;
/// Values that every kernel has; the default configuration is measured too.
const AXES: [&str; 8] =
    ["--axis", "block=256", "--axis", "grid=auto,waves:4", "--axis", "items=4,8", "--axis", "vector=16"];

fn device() -> String {
    std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned())
}

/// Returns the records of a fresh process.
fn records(command: &[&str]) -> Vec<Value> {
    let device = device();
    let sizes = if device.starts_with("cpu") { "2^10" } else { "2^[16:28:2]" };
    let what = ["copy", "axpy", "reduce_sum", "--device", &device, "--sizes", sizes, "--json"];
    let run = run(&[command, &what, &AXES].concat());
    assert_eq!(run.code(), Some(0), "{command:?}: {}", run.stderr());
    run.json()["results"].as_array().unwrap().clone()
}

/// Returns the key of a record in its document.
fn key(record: &Value) -> String {
    ["kernel", "dtype", "n", "configuration"].map(|field| record[field].to_string()).join(" ")
}

fn samples(record: &Value) -> Vec<f64> {
    let samples = record["timing"]["samples_us"].as_array().unwrap_or_else(|| panic!("{record}"));
    samples.iter().map(|us| us.as_f64().unwrap()).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

#[test]
fn other_processes_agree_measuring_or_tuning() {
    let is_emulated = device().starts_with("cpu");
    let tune: &[&str] = &["tune", "--no-store"];
    let (mut agree, mut all) = (0, 0);
    for _ in 0..if is_emulated { 1 } else { 2 } {
        let first = records(&["bench"]);
        for command in [tune, &["bench"]] {
            let other = records(command);
            assert!(command == tune || first.len() == other.len(), "{command:?}");
            for said in &other {
                let key = key(said);
                let one =
                    first.iter().find(|record| self::key(record) == key).unwrap_or_else(|| panic!("{key}"));
                assert_eq!(
                    (&one["outcome"], &said["outcome"]),
                    (&"correct".into(), &"correct".into()),
                    "{key}"
                );
                if is_emulated {
                    continue;
                }
                let within =
                    ratio(&samples(one), &samples(said)).is_some_and(|ratio| ratio.interval.contains(1.0));
                let [a, b] = [one, said].map(|record| median(samples(record)));
                let launches = [one, said].map(|record| record["timing"]["launches_per_sample"].to_string());
                println!(
                    "{key}: {a:.3} us, {} {b:.3} us, {:+.2} %, launches {launches:?}",
                    command[0],
                    (b / a - 1.0) * 100.0
                );
                all += 1;
                agree += usize::from(within || (a / b - 1.0).abs() <= NEAR.hypot(BETWEEN_PROCESSES_US / b));
            }
        }
    }
    println!("{agree} of {all} agree");
    assert!(agree * 100 >= all * 95, "{agree} of {all} agree");
}
