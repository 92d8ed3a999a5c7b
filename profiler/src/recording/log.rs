//! [`Log`]: records of one thread, until they are joined with the records of other threads.
//!
//! Each thread adds records only to its own log, so the lock of the log is uncontended except while records are being
//! taken. A log consists of chunks, and the total memory of all chunks is limited. When this limit is reached, records
//! are dropped and counted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use warpsmith_runtime::driver::activity::thread_number;
use warpsmith_trace::Name;

use super::Recording;
use crate::raw::{DriverIndex, Raw};

/// Number of records per chunk.
const CHUNK: usize = 512;
pub(crate) const CHUNK_BYTES: usize = CHUNK * size_of::<Raw>();
/// Number of entries in each thread's cache of interned strings.
const TEXTS: usize = 64;

/// Records of a thread.
#[derive(Debug)]
pub(crate) struct Log {
    /// The system's thread ID.
    pub(crate) thread: u64,
    /// Name of the thread.
    pub(crate) name: String,
    chunks: Mutex<VecDeque<Vec<Raw>>>,
    /// Start time of the thread's outermost operation; 0 if no operation is running.
    open_since: AtomicU64,
}

/// Contents that have been taken from a log.
pub(crate) struct Taken {
    pub(crate) log: Arc<Log>,
    pub(crate) chunks: VecDeque<Vec<Raw>>,
    /// Start time of the outermost operation that has not ended yet (see [`Log::open_since`]); `u64::MAX` if no
    /// operation is running.
    pub(crate) open_since: u64,
}

impl Log {
    /// Takes the records.
    pub(crate) fn take(self: &Arc<Self>) -> Taken {
        let mut guard = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = std::mem::take(&mut *guard);
        // When an operation ends, its record is added and the start time is cleared while the same lock is held.
        let open_since = match self.open_since.load(Ordering::Relaxed) {
            0 => u64::MAX,
            since => since,
        };
        Taken { log: Arc::clone(self), chunks, open_since }
    }

    #[inline]
    fn push(&self, recording: &Recording, raw: Raw, ends: bool) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        match chunks.back_mut() {
            Some(last) if last.len() < CHUNK => last.push(raw),
            _ => {
                if recording.claim(CHUNK_BYTES) {
                    let mut chunk = Vec::with_capacity(CHUNK);
                    chunk.push(raw);
                    chunks.push_back(chunk);
                } else {
                    recording.dropped(&raw);
                }
            }
        }
        if ends {
            self.open_since.store(0, Ordering::Relaxed);
        }
    }
}

/// Thread-local state of a recording.
pub(crate) struct Local {
    recording: u64,
    log: Arc<Log>,
    /// IDs and start times of the operations that the thread has entered.
    open: Vec<(u64, u64)>,
    /// Cached strings, each with its address, content and name.
    texts: Vec<(usize, Box<str>, Name)>,
    /// Most recently used driver, with its address.
    driver: Option<(usize, DriverIndex)>,
    /// IDs of streams in records.
    streams: Vec<((DriverIndex, u64), u32)>,
    /// Last kernel whose spec was added to the recording.
    pub(crate) known_kernel: usize,
    /// Last node list that was added to the recording, and the value that [`Recording::forgotten`] had at that time.
    pub(crate) known_nodes: (u64, u64),
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// Calls the closure `what` with this thread's state in the recording. Returns `None` if this thread is already running
/// such a closure.
#[inline]
pub(crate) fn with_local<R>(recording: &Recording, what: impl FnOnce(&mut Local) -> R) -> Option<R> {
    let mut what = Some(what);
    let result = LOCAL.try_with(|local| {
        let mut local = local.try_borrow_mut().ok()?;
        let local = match &mut *local {
            Some(local) if local.recording == recording.id => local,
            other => other.insert(Local::new(recording, std::thread::current().name().unwrap_or_default())),
        };
        what.take().map(|what| what(local))
    });
    match result {
        Ok(result) => result,
        Err(_) => what.map(|what| with_ending(recording, what)),
    }
}

/// Like [`with_local`], but for a thread that is exiting, such as the main thread, which flushes records at process
/// exit.
#[cold]
fn with_ending<R>(recording: &Recording, what: impl FnOnce(&mut Local) -> R) -> R {
    // At this point, the name of the thread is no longer available.
    let local = recording.take_ending(thread_number());
    let mut local = local.unwrap_or_else(|| Local::new(recording, ""));
    let result = what(&mut local);
    recording.keep_ending(local);
    result
}

impl Local {
    #[cold]
    fn new(recording: &Recording, name: &str) -> Self {
        let log = Arc::new(Log {
            thread: thread_number(),
            name: name.to_owned(),
            chunks: Mutex::default(),
            open_since: AtomicU64::new(0),
        });
        recording.add_log(Arc::clone(&log));
        Self {
            recording: recording.id,
            log,
            open: Vec::new(),
            texts: Vec::new(),
            driver: None,
            streams: Vec::new(),
            known_kernel: 0,
            known_nodes: (0, 0),
        }
    }

    /// Returns the system's thread ID.
    pub(crate) fn thread(&self) -> u64 {
        self.log.thread
    }

    /// Returns true if the thread is inside an operation.
    pub(crate) fn is_in_operation(&self) -> bool {
        !self.open.is_empty()
    }

    /// Adds a record.
    #[inline]
    pub(crate) fn push(&self, recording: &Recording, raw: Raw) {
        self.log.push(recording, raw, false);
    }

    /// Registers the start of an operation.
    #[inline]
    pub(crate) fn begin(&mut self, id: u64, at: u64) {
        if self.open.is_empty() {
            self.log.open_since.store(at.max(1), Ordering::Relaxed);
        }
        self.open.push((id, at));
    }

    /// Removes an operation that is ending, and returns its start time. Returns `None` if the operation started before
    /// the recording.
    #[inline]
    pub(crate) fn end(&mut self, id: u64) -> Option<u64> {
        while let Some((open, at)) = self.open.pop() {
            if open == id {
                return Some(at);
            }
        }
        None
    }

    /// Registers the end of an operation that produces no record.
    pub(crate) fn ended_unrecorded(&self) {
        if self.open.is_empty() {
            self.log.open_since.store(0, Ordering::Relaxed);
        }
    }

    /// Adds the record of the operation that has just ended.
    #[inline]
    pub(crate) fn push_ended(&self, recording: &Recording, raw: Raw) {
        self.log.push(recording, raw, self.open.is_empty());
    }

    /// Returns the name of a string.
    #[inline]
    pub(crate) fn name(&mut self, recording: &Recording, text: &str) -> Name {
        self.name_by(recording, text, Recording::intern)
    }

    /// Returns the name of a string that the program has passed.
    #[inline]
    pub(crate) fn program_name(&mut self, recording: &Recording, text: &str) -> Name {
        self.name_by(recording, text, Recording::intern_of_program)
    }

    #[inline]
    fn name_by(&mut self, recording: &Recording, text: &str, intern: fn(&Recording, &str) -> Name) -> Name {
        let at = text.as_ptr().addr();
        let place = (at >> 3) % TEXTS;
        match self.texts.get(place) {
            // By now, a different string may be stored at the same address.
            Some((known, known_text, name)) if *known == at && **known_text == *text => *name,
            _ => self.remember(intern(recording, text), text, at, place),
        }
    }

    #[cold]
    fn remember(&mut self, name: Name, text: &str, at: usize, place: usize) -> Name {
        if self.texts.is_empty() {
            self.texts.resize_with(TEXTS, || (0, Box::default(), Name::NONE));
        }
        self.texts[place] = (at, text.into(), name);
        name
    }

    /// Returns the driver with this address.
    #[inline]
    pub(crate) fn driver(
        &mut self,
        address: usize,
        find: impl FnOnce() -> Option<DriverIndex>,
    ) -> Option<DriverIndex> {
        match self.driver {
            Some((known, index)) if known == address => Some(index),
            _ => {
                let index = find()?;
                self.driver = Some((address, index));
                Some(index)
            }
        }
    }

    /// Returns the ID of a stream in records.
    #[inline]
    pub(crate) fn stream(&mut self, driver: DriverIndex, handle: u64, find: impl FnOnce() -> u32) -> u32 {
        let key = (driver, handle);
        if let Some((_, number)) = self.streams.iter().find(|(known, _)| *known == key) {
            return *number;
        }
        let number = find();
        if self.streams.len() == 64 {
            self.streams.clear();
        }
        self.streams.push((key, number));
        number
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use warpsmith_runtime::driver::activity::ActivityOptions;

    use super::*;

    fn recording() -> Arc<Recording> {
        Recording::new(Vec::new(), ActivityOptions::default())
    }

    fn record(recording: &Recording) {
        let counter = recording.counter(0, "temperature", "C");
        let recorded = with_local(recording, |local| {
            local.push(recording, Raw::Sample { at: 1, counter, value: 20.0 });
        });
        assert_eq!(recorded, Some(()));
    }

    fn records(taken: &[Taken]) -> Vec<usize> {
        taken.iter().map(|taken| taken.chunks.iter().flatten().count()).collect()
    }

    #[test]
    fn logs_of_ended_threads_go() {
        let recording = recording();
        let (end, ended) = mpsc::channel::<()>();
        let (sender, recorded) = mpsc::channel();
        let alive = {
            let recording = Arc::clone(&recording);
            std::thread::spawn(move || {
                record(&recording);
                sender.send(()).unwrap();
                ended.recv().unwrap_err();
            })
        };
        recorded.recv().unwrap();
        for _ in 0..100 {
            let of_thread = Arc::clone(&recording);
            std::thread::spawn(move || record(&of_thread)).join().unwrap();
        }
        assert_eq!(records(&recording.take_logs()), [1; 101]);
        assert_eq!(records(&recording.take_logs()), [0], "of the thread that lives");
        drop(end);
        alive.join().unwrap();
    }

    // Windows drops the values of a thread in a different order.
    #[test]
    #[cfg(not(windows))]
    fn ending_threads_record() {
        /// Adds a record while the thread exits, as the main thread does at process exit.
        struct RecordsWhenDropped(Arc<Recording>);

        impl Drop for RecordsWhenDropped {
            fn drop(&mut self) {
                assert!(LOCAL.try_with(|_| ()).is_err(), "the thread has its state still");
                record(&self.0);
                record(&self.0);
            }
        }

        thread_local!(static LAST: RefCell<Option<RecordsWhenDropped>> = const { RefCell::new(None) });
        let recording = recording();
        let of_thread = Arc::clone(&recording);
        let thread = std::thread::spawn(move || {
            // This value is dropped after the state of the thread, which is created later.
            LAST.with(|last| *last.borrow_mut() = Some(RecordsWhenDropped(Arc::clone(&of_thread))));
            record(&of_thread);
        });
        thread.join().unwrap();
        let taken = recording.take_logs();
        assert_eq!(records(&taken), [1, 2]);
        assert_eq!(taken[0].log.thread, taken[1].log.thread);
    }
}
