//! Communicators must not leave threads, files or memory behind.

use std::time::{Duration, Instant};

use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
use warpsmith_runtime::DeviceBuffer;

use crate::alone::only_alone;
use crate::support::{LONG, streams};

/// Returns the number of entries in a `/proc` folder of the process.
pub fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("a folder of the process").count()
}

/// Returns the resident memory of the process, in KiB.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line with the memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Waits until the process has at most these numbers of threads and files.
pub fn settle(threads: usize, files: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    while entries("/proc/self/task") > threads || entries("/proc/self/fd") > files {
        let (threads_now, files_now) = (entries("/proc/self/task"), entries("/proc/self/fd"));
        assert!(Instant::now() < end, "{threads_now} threads, not {threads}; {files_now} files, not {files}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn communicators_of_threads_leave_nothing() {
    only_alone!();
    let streams = streams(3);
    let live = || {
        let mut ranks = Communicator::init_all(&streams, &CommunicatorOptions::new()).expect("ranks connect");
        let mut works = Vec::new();
        for rank in &mut ranks {
            let mut x = DeviceBuffer::from_host(rank.stream(), &[1.0f32; 1000]).expect("x");
            works.push(rank.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
        }
        works.iter().for_each(|work| work.wait(LONG).expect("done"));
        std::thread::scope(|scope| {
            ranks
                .into_iter()
                .for_each(|rank| drop(scope.spawn(|| rank.finish().expect("the end in common"))));
        });
    };
    (0..10).for_each(|_| live());
    let (threads, files, memory) = (entries("/proc/self/task"), entries("/proc/self/fd"), resident());
    (0..100).for_each(|_| live());
    settle(threads, files);
    let grown = resident().saturating_sub(memory);
    assert!(grown < 4096, "{grown} KiB more than after 10 lives");
}
