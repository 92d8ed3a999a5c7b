//! Multithreaded copies of large host memory ranges.
//!
//! One core copies about 10 GB/s, less than the 55 GB/s of a device's link. The first large copy of the process
//! therefore starts a few helper threads, which sleep between copies. The caller also copies. It waits only for pieces
//! that helpers have started, never for a helper to wake up. If no helper is available, the caller copies everything
//! itself.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, available_parallelism};
use std::time::{Duration, Instant};

/// Maximum number of threads per copy, including the caller. Waking more threads takes longer than they save.
const MAX_THREADS: usize = 4;
/// Number of bytes that a thread copies at a time.
const PIECE_BYTES: usize = 128 << 10;

struct Job {
    target: *mut u8,
    source: *const u8,
    bytes: usize,
    /// Index of the next piece to start.
    next: AtomicUsize,
    done: AtomicUsize,
}

// SAFETY: the creator of a job guarantees that any thread may copy its pieces.
unsafe impl Send for Job {}
// SAFETY: as above; each piece is copied by only one thread.
unsafe impl Sync for Job {}

impl Job {
    fn pieces(&self) -> usize {
        self.bytes.div_ceil(PIECE_BYTES)
    }

    /// Copies pieces until all pieces have been started.
    fn help(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces() {
                return;
            }
            let start = piece * PIECE_BYTES;
            let bytes = PIECE_BYTES.min(self.bytes - start);
            // SAFETY: the piece is within both ranges, which the creator of the job keeps valid until all pieces are
            // done. Only this thread has started this piece.
            unsafe { self.target.add(start).copy_from_nonoverlapping(self.source.add(start), bytes) };
            self.done.fetch_add(1, Ordering::Release);
        }
    }
}

/// Time that a helper polls for the next copy before it sleeps. Waking takes tens of microseconds, or more on virtual
/// machines; the chunks of a large copy follow each other within this time.
const AWAKE: Duration = Duration::from_micros(150);

struct Helpers {
    threads: usize,
    jobs: Mutex<VecDeque<Arc<Job>>>,
    /// Number of queued jobs, which helpers that are awake poll.
    waiting: AtomicUsize,
    more: Condvar,
}

impl Helpers {
    fn get() -> &'static Self {
        static HELPERS: OnceLock<&'static Helpers> = OnceLock::new();
        HELPERS.get_or_init(|| {
            let wanted = available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS) - 1;
            let helpers: &'static Helpers = Box::leak(Box::new(Self {
                threads: wanted,
                jobs: Mutex::default(),
                waiting: AtomicUsize::new(0),
                more: Condvar::new(),
            }));
            for _ in 0..wanted {
                // Without this thread, the process has one helper fewer.
                let _ = Builder::new().name("warpsmith-copy".to_owned()).spawn(|| helpers.work());
            }
            helpers
        })
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job for `count` helpers and wakes them.
    fn ask(&self, job: &Arc<Job>, count: usize) {
        let count = count.min(self.threads);
        let mut jobs = self.jobs();
        jobs.extend(std::iter::repeat_with(|| Arc::clone(job)).take(count));
        self.waiting.store(jobs.len(), Ordering::Release);
        drop(jobs);
        (0..count).for_each(|_| self.more.notify_one());
    }

    fn work(&self) {
        loop {
            let mut jobs = self.jobs();
            let job = loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                }
            };
            self.waiting.store(jobs.len(), Ordering::Release);
            drop(jobs);
            job.help();
            let done = Instant::now();
            while self.waiting.load(Ordering::Acquire) == 0 && done.elapsed() < AWAKE {
                std::hint::spin_loop();
            }
        }
    }
}

/// Copies `bytes` bytes. The copy is complete when the call returns.
///
/// # Safety
/// Both ranges must be valid for `bytes` bytes and must not overlap. During the copy, no other code may write to them
/// or read the target.
pub(super) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize) {
    if bytes <= 2 * PIECE_BYTES {
        // SAFETY: guaranteed by the caller.
        return unsafe { target.copy_from_nonoverlapping(source, bytes) };
    }
    let job = Job { target, source, bytes, next: AtomicUsize::new(0), done: AtomicUsize::new(0) };
    let job = Arc::new(job);
    Helpers::get().ask(&job, job.pieces() - 1);
    job.help();
    // Waits for the pieces that helpers have started. A helper that arrives later finds no piece and accesses no
    // memory.
    while job.done.load(Ordering::Acquire) < job.pieces() {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_and_none_beyond() {
        for bytes in [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 1, 20 * PIECE_BYTES, 33 * PIECE_BYTES + 7] {
            let source: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 1000) as u8).collect();
            let mut target = vec![0; bytes + 1];
            // SAFETY: both vectors have this number of bytes and are exclusive.
            unsafe { copy(target.as_mut_ptr(), source.as_ptr(), bytes) };
            assert!(target[..bytes] == source[..], "{bytes} bytes");
            assert_eq!(target[bytes], 0, "nothing beyond");
        }
    }

    #[test]
    fn many_threads_copy_at_once() {
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                scope.spawn(move || {
                    let source = vec![thread; 10 * PIECE_BYTES];
                    for _ in 0..20 {
                        let mut target = vec![0; source.len()];
                        // SAFETY: both vectors have this number of bytes and are exclusive.
                        unsafe { copy(target.as_mut_ptr(), source.as_ptr(), source.len()) };
                        assert!(target == source);
                    }
                });
            }
        });
    }

    #[test]
    fn without_helpers_the_caller_copies_everything() {
        let source = vec![5u8; 3 * PIECE_BYTES];
        let mut target = vec![0u8; source.len()];
        let job = Job {
            target: target.as_mut_ptr(),
            source: source.as_ptr(),
            bytes: source.len(),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        };
        job.help();
        assert_eq!(job.done.load(Ordering::Acquire), 3);
        job.help();
        assert!(target == source);
    }
}
