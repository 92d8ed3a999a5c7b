//! [`SharedEvent`]: an interprocess event, stored in a file that the processes map. The file contains the number of
//! recordings of the event and the last recording that was reached.
//!
//! Waiting for a recording completes if the process that recorded it has terminated. The file is removed when the
//! process that created it drops its event.

pub(super) use self::system::SharedEvent;

/// Size in bytes of an IPC event handle.
const HANDLE: usize = warpsmith_driver::IPC_EVENT_BYTES;

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_void;
    use std::fs::{File, OpenOptions};
    use std::hash::{BuildHasher, RandomState};
    use std::io::{Error, Result};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::PathBuf;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::HANDLE;

    const FOLDER: &str = "/dev/shm";
    const PREFIX: &str = "warpsmith-event-";
    const BYTES: usize = 4096;

    /// Index of each word of the file.
    #[derive(Debug, Clone, Copy)]
    enum Word {
        /// Number of recordings so far.
        Recorded,
        /// Last recording that was reached.
        Reached,
        /// Process that recorded the event last.
        Process,
    }

    #[derive(Debug)]
    pub(crate) struct SharedEvent {
        words: NonNull<AtomicU64>,
        name: String,
        /// True if this process created the event.
        is_own: bool,
    }

    // SAFETY: the words are atomics in memory that lives as long as the value.
    unsafe impl Send for SharedEvent {}
    // SAFETY: as above.
    unsafe impl Sync for SharedEvent {}

    fn path(name: &str) -> PathBuf {
        PathBuf::from(FOLDER).join(format!("{PREFIX}{name}"))
    }

    /// Returns true if a process has exited. The state is checked because the system still lists a process that its
    /// parent has not reaped.
    fn has_ended(process: u64) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
        // The process name, which is in parentheses, may contain any characters.
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with(['Z', 'X']))
    }

    /// When dropped, signals that a recording was reached, even if the stream skipped the recording.
    pub(crate) struct Reaching(std::sync::Arc<SharedEvent>, u64);

    impl Drop for Reaching {
        fn drop(&mut self) {
            self.0.word(Word::Reached).fetch_max(self.1, Ordering::Release);
        }
    }

    impl SharedEvent {
        pub fn create() -> Result<Self> {
            let random = |_| RandomState::new().hash_one(std::process::id());
            let [a, b] = [0, 1].map(random);
            let name = format!("{a:016x}{b:016x}");
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(path(&name))?;
            let made = file.set_len(BYTES as u64).and_then(|()| Self::map(&file, name.clone(), true));
            made.inspect_err(|_| drop(std::fs::remove_file(path(&name))))
        }

        /// Returns the IPC handle of the event.
        pub fn handle(&self) -> [u8; HANDLE] {
            let mut handle = [0; HANDLE];
            handle[..self.name.len()].copy_from_slice(self.name.as_bytes());
            handle
        }

        /// Opens the event that a handle identifies, if the event belongs to this user.
        pub fn open(handle: &[u8; HANDLE]) -> Result<Self> {
            let unknown = || Error::other("the handle does not identify an event of an emulated device");
            let len = handle.iter().position(|byte| *byte == 0).unwrap_or(HANDLE);
            let name = std::str::from_utf8(&handle[..len]).map_err(|_| unknown())?;
            if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(unknown());
            }
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(path(name)).map_err(|error| {
                Error::other(format!(
                    "the event does not exist; the process that created it may have ended: {error}"
                ))
            })?;
            let metadata = file.metadata()?;
            // SAFETY: the call has no preconditions.
            if metadata.uid() != unsafe { libc::geteuid() } || metadata.len() != BYTES as u64 {
                return Err(unknown());
            }
            Self::map(&file, name.to_owned(), false)
        }

        fn map(file: &File, name: String, is_own: bool) -> Result<Self> {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: this is a new mapping of an open file of this length.
            let mapped = unsafe {
                libc::mmap(std::ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            let words = NonNull::new(mapped).filter(|_| mapped != libc::MAP_FAILED);
            let words = words.ok_or_else(Error::last_os_error)?;
            Ok(Self { words: words.cast(), name, is_own })
        }

        fn word(&self, word: Word) -> &AtomicU64 {
            // SAFETY: the mapping contains these words, which all processes use as atomics.
            unsafe { self.words.add(word as usize).as_ref() }
        }

        /// Counts a recording, which is reached when the returned value is dropped.
        pub fn record(self: &std::sync::Arc<Self>) -> Reaching {
            self.word(Word::Process).store(std::process::id().into(), Ordering::Relaxed);
            let number = self.word(Word::Recorded).fetch_add(1, Ordering::Release) + 1;
            Reaching(std::sync::Arc::clone(self), number)
        }

        /// Returns the sequence number of the last recording; 0 before the first recording.
        pub fn last(&self) -> u64 {
            self.word(Word::Recorded).load(Ordering::Acquire)
        }

        /// Returns true if a recording was reached or can never be reached.
        pub fn is_reached(&self, record: u64) -> bool {
            if self.word(Word::Reached).load(Ordering::Acquire) >= record {
                return true;
            }
            has_ended(self.word(Word::Process).load(Ordering::Relaxed))
        }

        pub fn wait(&self, record: u64) {
            let mut pause = Duration::from_micros(20);
            while !self.is_reached(record) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            }
        }
    }

    impl Drop for SharedEvent {
        fn drop(&mut self) {
            // SAFETY: the mapping belongs to this value. An error leaves it mapped.
            unsafe { libc::munmap(self.words.as_ptr().cast::<c_void>(), BYTES) };
            if self.is_own {
                let _ = std::fs::remove_file(path(&self.name));
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{Error, ErrorKind, Result};

    use super::HANDLE;

    /// Placeholder for interprocess events, which are not supported on this system.
    #[derive(Debug)]
    pub(crate) enum SharedEvent {}

    /// Placeholder for a recording.
    pub(crate) struct Reaching;

    fn unsupported<T>() -> Result<T> {
        let text = "emulated devices share events between processes only on Linux";
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    impl SharedEvent {
        pub fn create() -> Result<Self> {
            unsupported()
        }

        pub fn handle(&self) -> [u8; HANDLE] {
            match *self {}
        }

        pub fn open(_handle: &[u8; HANDLE]) -> Result<Self> {
            unsupported()
        }

        pub fn record(&self) -> Reaching {
            match *self {}
        }

        pub fn last(&self) -> u64 {
            match *self {}
        }

        pub fn is_reached(&self, _record: u64) -> bool {
            match *self {}
        }

        pub fn wait(&self, _record: u64) {
            match *self {}
        }
    }
}
