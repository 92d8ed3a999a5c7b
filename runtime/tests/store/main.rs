//! Tests that a program finds the tuned configurations that an earlier program stored, regardless of what happened to
//! the file.

#[path = "../common/mod.rs"]
mod common;
mod launches;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use warpsmith_runtime::store::{LaunchStore, StoreProblem, TunedConfiguration, TuningKey, open};
use warpsmith_runtime::{Device, DeviceProperties};

/// Returns a unique directory path that does not exist yet.
fn fresh(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("warpsmith-tuned-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn file(directory: &Path) -> PathBuf {
    directory.join("launches.jsonl")
}

/// Returns the number of lines in a store's file, damaged ones included.
fn lines(directory: &Path) -> usize {
    fs::read(file(directory)).unwrap().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
}

fn subject(device: &DeviceProperties, n: u64) -> TuningKey<'_> {
    let (package, kernel, types) = ("test-kernels", "axpy", "f32");
    TuningKey { device, package, kernel, types, image: 0, n, alignment: 16 }
}

fn tuned(block: u32, grid: &str) -> TunedConfiguration {
    let values = [("block", block.to_string()), ("grid", grid.to_owned()), ("items", "8".to_owned())];
    TunedConfiguration {
        values: values.map(|(axis, value)| (axis.to_owned(), value)).into(),
        symbol: Some("axpy__f32".to_owned()),
        threads: None,
        median_us: 3.25,
        toolchain: "PTX 8.7 for sm_90".to_owned(),
    }
}

fn properties() -> DeviceProperties {
    Device::emulated(0).unwrap().properties().clone()
}

#[test]
fn later_programs_find_records_by_equal_keys_only() {
    let (directory, device) = (fresh("trip"), properties());
    let store = open(&directory);
    assert!(store.is_empty() && !directory.exists(), "nothing is written before there is something to write");
    let subject = subject(&device, 1000);
    store.store_tuned(&subject, tuned(128, "auto")).unwrap();
    store.store_tuned(&subject, tuned(256, "waves:4")).unwrap();
    let later = open(&directory);
    assert_eq!((later.tuned_len(), later.problem()), (1, None));
    for store in [&store, &later] {
        let found = store.tuned(&TuningKey { n: 600, alignment: 16, ..subject });
        assert!(found.is_none(), "of another size");
        let found = store.tuned(&TuningKey { n: 800, alignment: 512, ..subject }).unwrap();
        assert_eq!(*found, tuned(256, "waves:4"), "the later one holds");
    }
    let others = [
        DeviceProperties { name: "other".to_owned(), ..device.clone() },
        DeviceProperties { capability: (9, 0), ..device.clone() },
        DeviceProperties { multiprocessors: device.multiprocessors + 1, ..device.clone() },
        DeviceProperties { l2_cache: device.l2_cache + 1, ..device.clone() },
        DeviceProperties { driver_version: "99.1".to_owned(), ..device.clone() },
    ];
    let of_others = others.iter().map(|device| TuningKey { device, ..subject });
    let others = [
        TuningKey { package: "other", ..subject },
        TuningKey { kernel: "copy", ..subject },
        TuningKey { types: "f64", ..subject },
        TuningKey { image: 1, ..subject },
        TuningKey { alignment: 4, ..subject },
        TuningKey { alignment: 3, ..subject },
    ];
    for other in of_others.chain(others) {
        assert!(later.tuned(&other).is_none(), "{other:?}");
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// Appends `lines` lines of several lengths, in a test or its child process. `writer` identifies the writing process.
fn write_many(directory: &Path, writer: u64, lines: usize) {
    let (store, device) = (open(directory), properties());
    for number in 0..lines {
        let kernel = format!("kernel-{writer}-{number}-{}", "x".repeat(number % 90));
        store
            .store_tuned(&TuningKey { kernel: &kernel, ..subject(&device, 1000) }, tuned(64, "auto"))
            .unwrap();
    }
}

/// Starts a process that runs one of this program's tests and writes to that directory; see [`written_by_child`].
fn child(test: &str, writer: u64, directory: &Path) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test]).env(CHILD, format!("{writer} {}", directory.display()));
    program.stdout(Stdio::null()).spawn().unwrap()
}

const CHILD: &str = "WARPSMITH_TEST_STORE_WRITER";

/// In a child process, writes the lines and returns true.
fn written_by_child(lines: usize) -> bool {
    let Some(value) = std::env::var_os(CHILD) else { return false };
    let value = value.into_string().unwrap();
    let (writer, directory) = value.split_once(' ').unwrap();
    write_many(Path::new(directory), writer.parse().unwrap(), lines);
    true
}

#[test]
fn concurrent_appends_never_mix_lines() {
    if written_by_child(1000) {
        return;
    }
    let directory = fresh("many");
    let test = "concurrent_appends_never_mix_lines";
    let children = [child(test, 0, &directory), child(test, 1, &directory)];
    std::thread::scope(|scope| {
        for writer in [2, 3] {
            let directory = &directory;
            scope.spawn(move || write_many(directory, writer, 1000));
        }
    });
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!((open(&directory).tuned_len(), lines(&directory)), (4000, 4000));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_killed_writer_damages_at_most_one_line() {
    if written_by_child(1 << 30) {
        return;
    }
    let device = properties();
    for round in 0..5 {
        let directory = fresh("killed");
        let test = "a_killed_writer_damages_at_most_one_line";
        let mut child = child(test, round, &directory);
        let len = || fs::metadata(file(&directory)).map_or(0, |metadata| metadata.len());
        while len() < 20_000 {
            assert!(child.try_wait().unwrap().is_none(), "it writes until it is killed");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = open(&directory);
        let (known, lines) = (opened.tuned_len(), lines(&directory));
        assert!(known > 20 && lines - known <= 1, "{known} records in {lines} lines");
        opened.store_tuned(&subject(&device, 1000), tuned(64, "auto")).unwrap();
        assert_eq!(open(&directory).tuned_len(), known + 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn a_truncated_line_damages_no_other() {
    let (directory, device) = (fresh("torn"), properties());
    let store = open(&directory);
    store.store_tuned(&subject(&device, 1000), tuned(128, "auto")).unwrap();
    let line = fs::read(file(&directory)).unwrap();
    // Simulates another process that was killed while it was writing, after this process opened the file.
    let cut_off = || {
        let mut file = OpenOptions::new().append(true).open(file(&directory)).unwrap();
        file.write_all(&line[..line.len() / 2]).unwrap();
    };
    cut_off();
    let between = open(&directory);
    assert_eq!(between.tuned_len(), 1);
    store.store_tuned(&subject(&device, 5000), tuned(64, "auto")).unwrap();
    cut_off();
    between.store_tuned(&subject(&device, 50_000), tuned(32, "auto")).unwrap();
    assert_eq!((open(&directory).tuned_len(), lines(&directory)), (3, 5));
    fs::remove_dir_all(&directory).unwrap();
}

/// Checks that the store reports why it cannot write, and still contains the stored values.
#[track_caller]
fn goes_on_without(store: &LaunchStore) {
    let device = properties();
    for block in [64, 128] {
        let error = store.store_tuned(&subject(&device, 1000), tuned(block, "auto")).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(StoreProblem::File { .. })), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("launches.jsonl") && text.contains("WARPSMITH_CACHE_DIR"), "{text}");
        assert_eq!(store.problem(), Some(text));
        assert_eq!(*store.tuned(&subject(&device, 1000)).unwrap(), tuned(block, "auto"));
    }
}

#[test]
fn without_a_writable_file_it_continues_and_reports() {
    let directory = fresh("blocked");
    fs::create_dir_all(file(&directory)).unwrap();
    goes_on_without(&open(&directory));
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, "no directory").unwrap();
    goes_on_without(&open(&directory));
    fs::remove_file(&directory).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn unwritable_directories_and_full_disks_stop_no_program() {
    // No user, including root, can create a directory there.
    let store = open("/proc/self/warpsmith");
    assert_eq!(store.problem(), None, "there is nothing to be read yet");
    goes_on_without(&store);
    let directory = fresh("full");
    let store = open(&directory);
    fs::create_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink("/dev/full", file(&directory)).unwrap();
    goes_on_without(&store);
    assert!(store.problem().unwrap().contains("space"), "{:?}", store.problem());
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn nothing_is_read_after_the_store_was_opened() {
    let (directory, device) = (fresh("gone"), properties());
    open(&directory).store_tuned(&subject(&device, 1000), tuned(128, "auto")).unwrap();
    let store = open(&directory);
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(*store.tuned(&subject(&device, 1000)).unwrap(), tuned(128, "auto"));
    assert!(store.tuned(&subject(&device, 5000)).is_none());
    assert!(!directory.exists());
    // Later results are written to a new file.
    store.store_tuned(&subject(&device, 5000), tuned(64, "auto")).unwrap();
    assert_eq!(open(&directory).tuned_len(), 1);
    fs::remove_dir_all(&directory).unwrap();
}
