//! Tests that cases which differ, fail, hang or end their process do not affect the others.

use std::process::{Command, Output};

fn run(jobs: &str, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_difftest-seeded"));
    program.args(arguments).env("DIFFTEST_JOBS", jobs).env("DIFFTEST_SECONDS", "3");
    program.output().unwrap()
}

#[test]
fn every_case_has_an_outcome() {
    for jobs in ["1", "3"] {
        let output = run(jobs, &["cpu"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let has = |line: &str| assert!(text.lines().any(|found| found.starts_with(line)), "{line}: {text}");
        has("DIFFERS differs word 1: 0x0000000000000003 instead of 0x0000000000000002; 1 of 2 words differ");
        has("of what differs");
        has("FAILED fails ");
        has("FAILED panics the process ended: exit status: 101");
        has("FAILED hangs hangs: no result in 3 s");
        has("FAILED aborts the process ended: signal: 6");
        assert!(!text.contains("of the first") && !text.contains("of the last"), "{text}");
        has("seed 77, cpu: 7 kernels, 2 the same, 1 differ, 4 failed");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn cases_are_chosen_by_name() {
    let output = run("1", &["cpu", "la", "fi"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "seed 77, cpu: 2 kernels, 2 the same, 0 differ, 0 failed\n");
    assert!(output.status.success());
    assert_eq!(run("1", &["cpu", "no-such"]).status.code(), Some(2));
    let list = run("1", &["--list"]);
    assert_eq!(String::from_utf8_lossy(&list.stdout).lines().count(), 7);
}

#[test]
fn a_device_that_is_not_there_ends_the_run() {
    let output = run("2", &["cuda:4000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("difftest: cuda:4000: "));
}
