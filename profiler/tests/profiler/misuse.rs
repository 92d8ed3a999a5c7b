//! Misuse and failures. Each must return a descriptive error, and recorded data must be kept.

use warpsmith_profiler::trace::Trace;
use warpsmith_profiler::{Profiler, ProfilerError, ProfilerOptions};
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::ranges::{nvtx, range};
use warpsmith_runtime::{Device, DeviceBuffer};

use crate::alone::only_alone;
use crate::common::*;
use crate::fixture::*;

#[test]
fn a_second_profiler_is_refused() {
    only_alone!();
    let first = start();
    assert_eq!(
        Profiler::start(ProfilerOptions::default()).unwrap_err().downcast_ref(),
        Some(&ProfilerError::Recording)
    );
    first.stop().unwrap();
    start().stop().unwrap();
    drop(start());
    start().stop().unwrap();
}

#[test]
fn recording_again_begins_anew() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    for round in 1..4 {
        let profiler = start();
        (0..round).for_each(|_| stream.memset(&mut x, 1).unwrap());
        let trace = profiler.stop().unwrap();
        check(&trace);
        assert_eq!(trace.transfers.len(), round);
        stream.memset(&mut x, 1).unwrap();
    }
}

#[test]
fn clocks_are_not_mixed() {
    only_alone!();
    let (_, _real, _) = fixture();
    let (_, simulated) = simulated();
    let error = Profiler::start(ProfilerOptions::default()).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ProfilerError::MixedClocks));
    let trace = ProfilerOptions::default().device(&simulated).start().unwrap().stop().unwrap();
    assert_eq!(trace.definitions.about["clock"], "simulated");
}

#[test]
fn a_lost_device_keeps_its_records() {
    only_alone!();
    let (driver, device, stream) = fixture();
    let file = std::env::temp_dir().join(format!("warpsmith-profiler-lost-{}.json.gz", std::process::id()));
    let profiler = Profiler::to_file(&file).unwrap();
    let mut x = DeviceBuffer::<u8>::zeros(&stream, 512).unwrap();
    stream.synchronize().unwrap();
    let fault = Fault {
        kind: FaultKind::Other,
        message: "of the test".to_owned(),
        location: None,
        kernel: None,
        block: None,
        thread: None,
    };
    driver.poison(0, fault);
    assert!(stream.memset(&mut x, 1).is_err());
    assert!(device.is_lost());
    profiler.finish().unwrap();
    let opened = Trace::read(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    assert_eq!(opened.damage, None);
    let trace = opened.trace;
    check(&trace);
    assert_eq!(trace.transfers.len(), 1);
    let about = &trace.definitions.about;
    assert_eq!(about[&format!("device {}", device.id())], "lost: a fault stopped it", "{about:?}");
}

#[test]
fn a_starved_buffer_is_counted() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let profiler = ProfilerOptions::default().memory(64 << 10).start().unwrap();
    (0..200_000).for_each(|_| stream.memset(&mut x, 1).unwrap());
    let trace = profiler.stop().unwrap();
    let loss = trace.definitions.loss;
    assert!(loss.dropped > 0 && loss.recorded > 0, "{loss:?}");
    assert_eq!(loss.unaccounted(), 0, "{loss:?}");
    assert_eq!(trace.transfers.len() as u64, loss.recorded);
    assert!(trace.definitions.about["host records dropped"].contains("allow more"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let profiler = Profiler::to_file("/dev/full").unwrap();
    (0..1000).for_each(|_| stream.memset(&mut x, 1).unwrap());
    let error = profiler.finish().unwrap_err().to_string();
    assert!(error.contains("/dev/full") && error.contains("free space"), "{error}");
    start().stop().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_grow_keeps_what_it_has() {
    only_alone!();
    // SAFETY: the calls change only the limit and the signal of this process, which belongs to the test.
    unsafe {
        let limit = libc::rlimit { rlim_cur: 200 << 10, rlim_max: 200 << 10 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let folder = std::env::temp_dir().join(format!("warpsmith-profiler-limit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let path = folder.join(name);
        let profiler = Profiler::to_file(&path).unwrap();
        (0..50_000).for_each(|_| stream.memset(&mut x, 1).unwrap());
        let error = profiler.finish().unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("earlier records can be read"), "{error}");
        let opened = Trace::read(&path).unwrap();
        let damage = opened.damage.expect(name);
        let kept = opened.trace.len();
        assert!((500..150_000).contains(&kept), "{kept} of {name}: {damage}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    start().stop().unwrap();
}

#[test]
fn ranges_ended_in_wrong_order_are_kept() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let profiler = start();
    let outer = range!("outer");
    let inner = range!("inner");
    drop(outer);
    stream.memset(&mut x, 1).unwrap();
    drop(inner);
    (0..3).for_each(|_| assert_eq!(nvtx::range_pop(), None));
    nvtx::range_push("of this thread");
    std::thread::spawn(|| assert_eq!(nvtx::range_pop(), None)).join().unwrap();
    nvtx::range_pop();
    let trace = profiler.stop().unwrap();
    check(&trace);
    let mut names: Vec<&str> = trace.ranges.iter().map(|range| trace.text(range.name)).collect();
    names.sort_unstable();
    assert_eq!(names, ["inner", "of this thread", "outer"]);
    let inner = trace.ranges.iter().find(|range| trace.text(range.name) == "inner").unwrap();
    assert_eq!(trace.transfers[0].range, inner.id);
    let note = &trace.definitions.about["ranges"];
    assert!(note.contains("end the inner range first") && note.ends_with("(and 4 more)"), "{note}");
}

#[test]
fn a_file_in_no_folder_is_an_error() {
    only_alone!();
    let error = Profiler::to_file("/no such folder/trace.json.gz").unwrap_err().to_string();
    assert!(error.contains("create the folder first"), "{error}");
    start().stop().unwrap();
}

#[cfg(unix)]
#[test]
fn a_forked_process_is_refused() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let file = std::env::temp_dir().join(format!("warpsmith-profiler-fork-{}.json.gz", std::process::id()));
    let profiler = Profiler::to_file(&file).unwrap();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    stream.memset(&mut x, 1).unwrap();
    // SAFETY: the child process only tries to start a profiler, drops this one, and exits immediately.
    match unsafe { libc::fork() } {
        0 => {
            let is_forked =
                |error: &warpsmith_runtime::Error| error.downcast_ref() == Some(&ProfilerError::Forked);
            let is_refused =
                Profiler::start(ProfilerOptions::default()).is_err_and(|error| is_forked(&error));
            let is_foreign = profiler.finish().is_err_and(|error| is_forked(&error));
            // SAFETY: the call exits the child process.
            unsafe { libc::_exit(if is_refused && is_foreign { 0 } else { 1 }) }
        }
        copy => {
            let mut status = -1;
            // SAFETY: the child process was created above.
            assert_eq!(unsafe { libc::waitpid(copy, &mut status, 0) }, copy);
            assert_eq!(status, 0);
        }
    }
    stream.memset(&mut x, 1).unwrap();
    let written = profiler.finish().unwrap();
    assert_eq!((written.loss.recorded, written.loss.unaccounted()), (2, 0));
    assert_eq!(Trace::read(&file).unwrap().trace.transfers.len(), 2);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_environment_records_an_unchanged_program() {
    let file = std::env::temp_dir().join(format!("warpsmith-profiler-env-{}.json.gz", std::process::id()));
    let alone = crate::alone::alone!("WARPSMITH_PROFILE" => &file);
    if alone.is_none() {
        let device = Device::emulated(0).unwrap();
        let stream = device.default_stream();
        let mut x = DeviceBuffer::<u8>::zeros(&stream, 512).unwrap();
        stream.memset(&mut x, 1).unwrap();
        return;
    }
    let opened = Trace::read(&file).unwrap();
    assert_eq!(opened.damage, None);
    assert_eq!(opened.trace.transfers.len(), 2);
    check(&opened.trace);
    std::fs::remove_file(file).unwrap();
}
