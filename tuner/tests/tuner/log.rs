//! The log of measurements: what it finds again, and what it makes of damage.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use warpsmith_runtime::Device;
use warpsmith_tuner::document::Outcome;
use warpsmith_tuner::log::{Entry, FILE, Log, Subject};
use warpsmith_tuner::measure::{Mode, StopReason};
use warpsmith_tuner::value::Configuration;

/// A new directory, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warpsmith-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.0.join(FILE)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn subject() -> Subject {
    let mut subject = Subject::of(&Device::emulated(0).unwrap());
    subject.kernel = "copy".to_owned();
    subject.n = 1 << 20;
    subject
}

fn entry(us: f64) -> Entry {
    Entry {
        outcome: Outcome::Correct,
        problem: String::new(),
        max_error: Some(0.0),
        median_us: Some(us),
        interval_us: Some((us * 0.99, us * 1.01)),
        samples: 30,
        launches_per_sample: Some(8),
        stop: Some(StopReason::Precision),
        rejected: 1,
        throttled: false,
        seconds: 0.25,
        probe_us: Some(us / 2.0),
    }
}

fn block(block: u32) -> Configuration {
    Configuration::default().with("block", block)
}

#[test]
fn measurements_come_back_in_their_order_each_once() {
    let directory = Directory::new("order");
    let mut log = Log::open(&directory.0);
    for us in [3.5, 4.5] {
        assert_eq!(log.keep(&subject(), &block(64), &entry(us)), None);
    }
    log.keep(&subject(), &block(128), &entry(9.0));
    assert_eq!(log.take(&subject(), &block(64)), None, "those of this run are not taken again");
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged()), (3, 0));
    for expected in [Some(entry(3.5)), Some(entry(4.5)), None] {
        assert_eq!(log.take(&subject(), &block(64)), expected);
    }
    assert_eq!(log.take(&subject(), &block(128)), Some(entry(9.0)));
    let mut fresh = Log::fresh(&directory.0);
    assert_eq!(fresh.take(&subject(), &block(64)), None);
    fresh.keep(&subject(), &block(64), &entry(1.0));
    assert_eq!(Log::open(&directory.0).len(), 4);
}

#[test]
fn a_measurement_of_anything_else_is_not_taken() {
    let directory = Directory::new("keys");
    Log::open(&directory.0).keep(&subject(), &block(64), &entry(1.0));
    let changes: [fn(&mut Subject); 14] = [
        |s| s.device.push('x'),
        |s| s.capability.1 += 1,
        |s| s.multiprocessors += 1,
        |s| s.l2_bytes += 1,
        |s| s.driver.push('1'),
        |s| s.image = "12".to_owned(),
        |s| s.kernel = "axpy".to_owned(),
        |s| s.dtype = "f64".to_owned(),
        |s| s.n += 1,
        |s| s.alignment = 4,
        |s| s.mode = Mode::Hot,
        |s| s.effort = "more".to_owned(),
        |s| s.copies += 1,
        |s| s.toolchain = "another".to_owned(),
    ];
    let mut log = Log::open(&directory.0);
    for (index, change) in changes.iter().enumerate() {
        let mut other = subject();
        change(&mut other);
        assert_eq!(log.take(&other, &block(64)), None, "change {index}");
    }
    assert!(log.take(&subject(), &block(64)).is_some());
}

#[test]
fn damaged_lines_are_described_and_skipped_and_the_next_line_is_whole() {
    let directory = Directory::new("damage");
    let mut log = Log::open(&directory.0);
    log.keep(&subject(), &block(64), &entry(1.0));
    let line = directory.text();
    let other = line.replacen("\"version\":1", "\"version\":999", 1);
    let no_time = line.replacen("\"median_us\":1.0", "\"median_us\":-1.0", 1);
    let none = line.replacen("\"median_us\":1.0", "\"median_us\":null", 1);
    let torn = &line[..line.len() / 2];
    fs::write(directory.0.join(FILE), format!("{line}nonsense\n\n{other}{no_time}{none}{{}}\n{torn}"))
        .unwrap();
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged(), log.other_versions()), (1, 5, 1));
    let numbers: Vec<usize> = log.damaged_lines().iter().map(|line| line.number).collect();
    assert_eq!(numbers, [2, 5, 6, 7, 8]);
    assert!(log.damaged_lines()[1].reason.contains("median"), "{:?}", log.damaged_lines());
    log.keep(&subject(), &block(128), &entry(2.0));
    let mut log = Log::open(&directory.0);
    assert_eq!((log.len(), log.damaged()), (2, 5));
    assert!(log.take(&subject(), &block(128)).is_some());
}

#[test]
fn a_file_that_cannot_be_written_is_told_once_and_does_not_stop_anything() {
    let directory = Directory::new("permission");
    fs::create_dir_all(directory.0.join(FILE)).unwrap();
    let mut log = Log::fresh(&directory.0);
    let problem = log.keep(&subject(), &block(64), &entry(1.0)).unwrap();
    assert!(problem.contains(FILE) && problem.contains("WARPSMITH_CACHE_DIR"), "{problem}");
    assert_eq!(log.keep(&subject(), &block(64), &entry(1.0)), None);
    assert_eq!(log.problem(), Some(problem.as_str()));
    assert!(Log::open(&directory.0).problem().unwrap().contains("cannot read"));
    let below_a_file = Directory::new("below");
    fs::write(&below_a_file.0, "").unwrap();
    assert!(Log::fresh(below_a_file.0.join("x")).keep(&subject(), &block(1), &entry(1.0)).is_some());
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
            assert_eq!(log.keep(&subject(), &block(64), &Entry { problem, ..entry(1.0) }), None);
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
    assert_eq!((log.len(), log.damaged()), (3 * EACH, 0));
}

#[test]
fn what_was_measured_anew_takes_the_place_of_what_was_before() {
    let directory = Directory::new("anew");
    let mut log = Log::open(&directory.0);
    for us in [1.0, 2.0] {
        log.keep(&subject(), &block(64), &entry(us));
    }
    log.keep(&subject(), &block(128), &entry(9.0));
    let mut fresh = Log::fresh(&directory.0);
    for us in [4.0, 5.0] {
        fresh.keep(&subject(), &block(64), &entry(us));
    }
    let mut log = Log::open(&directory.0);
    for expected in [Some(entry(4.0)), Some(entry(5.0)), None] {
        assert_eq!(log.take(&subject(), &block(64)), expected);
    }
    assert_eq!(log.take(&subject(), &block(128)), Some(entry(9.0)));
}

#[test]
fn times_of_a_slowed_device_are_not_taken() {
    let directory = Directory::new("slowed");
    let slowed = |us| Entry { throttled: true, ..entry(us) };
    let mut log = Log::open(&directory.0);
    for entry in [slowed(9.0), entry(1.0), slowed(8.0)] {
        log.keep(&subject(), &block(64), &entry);
    }
    let mut log = Log::open(&directory.0);
    assert!(log.has(&subject(), &block(64)));
    assert_eq!(log.take(&subject(), &block(64)), Some(entry(1.0)));
    assert!(!log.has(&subject(), &block(64)));
    assert_eq!(log.take(&subject(), &block(64)), None);
}
