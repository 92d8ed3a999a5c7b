//! The log of measurements: what it finds again, and what it makes of damage.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use warpsmith_tuner::document::{Measured, Outcome};
use warpsmith_tuner::log::{FILE, Log};
use warpsmith_tuner::measure::{Logged, Mode, StopReason, Timing};
use warpsmith_tuner::value::Configuration;

use super::fakes::Directory;

const KEY: &str = "what is measured";

fn timed(us: f64) -> Measured {
    let timing = Timing {
        mode: Mode::Cold,
        samples_us: vec![us],
        clocks_mhz: Vec::new(),
        rejected: 1,
        throttled: false,
        launches_per_sample: 8,
        stop: StopReason::Precision,
        logged: Some(Logged { samples: 30, interval_us: Some((us * 0.99, us * 1.01)) }),
    };
    let (outcome, problem) = (Outcome::Correct, String::new());
    Measured { outcome, problem, max_error: Some(0.0), timing: Some(timing), probe_us: Some(us / 2.0) }
}

fn block(block: u32) -> Configuration {
    Configuration::default().with("block", block)
}

#[test]
fn measurements_return_in_order_each_once() {
    let directory = Directory::new("order");
    let mut log = Log::open(&directory.0);
    for us in [3.5, 4.5] {
        assert_eq!(log.keep(KEY, &block(64), &timed(us)), None);
    }
    log.keep(KEY, &block(128), &timed(9.0));
    assert_eq!(log.take(KEY, &block(64)), None, "those of this run are not taken again");
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged().number), (3, 0));
    for expected in [Some(timed(3.5)), Some(timed(4.5)), None] {
        assert_eq!(log.take(KEY, &block(64)), expected);
    }
    assert_eq!(log.take("another", &block(128)), None);
    assert_eq!(log.take(KEY, &block(128)), Some(timed(9.0)));
    let mut fresh = Log::fresh(&directory.0);
    assert_eq!(fresh.take(KEY, &block(64)), None);
    fresh.keep(KEY, &block(64), &timed(1.0));
    assert_eq!(Log::open(&directory.0).len(), 4);
}

#[test]
fn damaged_lines_are_described_and_skipped() {
    let directory = Directory::new("damage");
    let mut log = Log::open(&directory.0);
    log.keep(KEY, &block(64), &timed(1.0));
    let line = fs::read_to_string(directory.0.join(FILE)).unwrap();
    let other = line.replacen("\"version\":2", "\"version\":999", 1);
    let no_time = line.replacen("\"samples_us\":[1.0]", "\"samples_us\":[-1.0]", 1);
    let none = line.replacen("\"samples_us\":[1.0]", "\"samples_us\":[]", 1);
    let torn = &line[..line.len() / 2];
    fs::write(directory.0.join(FILE), format!("{line}nonsense\n\n{other}{no_time}{none}{{}}\n{torn}"))
        .unwrap();
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged().number), (1, 5));
    let numbers: Vec<usize> = log.damaged().first.iter().map(|line| line.line).collect();
    assert_eq!(numbers, [2, 5, 6, 7, 8]);
    assert!(log.damaged().first[1].what.contains("median"), "{:?}", log.damaged());
    log.keep(KEY, &block(128), &timed(2.0));
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged().number), (2, 5));
    assert!(log.take(KEY, &block(128)).is_some());
}

#[test]
fn an_unwritable_file_is_reported_once() {
    let directory = Directory::new("permission");
    fs::create_dir_all(directory.0.join(FILE)).unwrap();
    let mut log = Log::fresh(&directory.0);
    let problem = log.keep(KEY, &block(64), &timed(1.0)).unwrap();
    assert!(problem.contains(FILE) && problem.contains("WARPSMITH_CACHE_DIR"), "{problem}");
    assert_eq!(log.keep(KEY, &block(64), &timed(1.0)), None);
    assert_eq!(log.problem(), Some(problem.as_str()));
    assert!(Log::open(&directory.0).problem().unwrap().contains("cannot read"));
    let below_a_file = Directory::new("below");
    fs::write(&below_a_file.0, "").unwrap();
    assert!(Log::fresh(below_a_file.0.join("x")).keep(KEY, &block(1), &timed(1.0)).is_some());
    fs::remove_file(&below_a_file.0).unwrap();
}

const WRITER: &str = "WARPSMITH_TEST_LOG_WRITER";

#[test]
fn lines_of_several_processes_do_not_mix() {
    const EACH: usize = 300;
    if let Some(path) = std::env::var_os(WRITER) {
        let mut log = Log::fresh(PathBuf::from(path));
        for count in 0..EACH {
            let problem = "p".repeat(count * 7 % 3000);
            assert_eq!(log.keep(KEY, &block(64), &Measured { problem, ..timed(1.0) }), None);
        }
        return;
    }
    let directory = Directory::new("processes");
    let child = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "log::lines_of_several_processes_do_not_mix"])
            .env(WRITER, &directory.0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..3).map(|_| child()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged().number), (3 * EACH, 0));
}

#[test]
fn fresh_measurements_replace_earlier_ones() {
    let directory = Directory::new("anew");
    let mut log = Log::open(&directory.0);
    for us in [1.0, 2.0] {
        log.keep(KEY, &block(64), &timed(us));
    }
    log.keep(KEY, &block(128), &timed(9.0));
    let mut fresh = Log::fresh(&directory.0);
    for us in [4.0, 5.0] {
        fresh.keep(KEY, &block(64), &timed(us));
    }
    let mut log = Log::open(&directory.0);
    for expected in [Some(timed(4.0)), Some(timed(5.0)), None] {
        assert_eq!(log.take(KEY, &block(64)), expected);
    }
    assert_eq!(log.take(KEY, &block(128)), Some(timed(9.0)));
}

#[test]
fn times_of_a_slowed_device_are_not_taken() {
    let directory = Directory::new("slowed");
    let slowed = |us| {
        let mut slowed = timed(us);
        slowed.timing.as_mut().unwrap().throttled = true;
        slowed
    };
    let mut log = Log::open(&directory.0);
    for measured in [slowed(9.0), timed(1.0), slowed(8.0)] {
        log.keep(KEY, &block(64), &measured);
    }
    let mut log = Log::open(&directory.0);
    assert_eq!(log.take(KEY, &block(64)), Some(timed(1.0)));
    assert_eq!(log.take(KEY, &block(64)), None);
}
