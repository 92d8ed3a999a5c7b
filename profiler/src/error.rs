//! [`ProfilerError`].

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use warpsmith_runtime::Result;
use warpsmith_runtime::driver::activity::ActivityError;

/// A profiler error, carried in a [`warpsmith_runtime::Error`]. If one is returned, nothing is recorded, or a trace is
/// incomplete.
///
/// ```
/// use warpsmith_profiler::{Profiler, ProfilerError, ProfilerOptions};
///
/// let profiler = Profiler::start(ProfilerOptions::default())?;
/// // Only one can record at a time.
/// let error = Profiler::start(ProfilerOptions::default()).unwrap_err();
/// assert_eq!(error.downcast_ref(), Some(&ProfilerError::Recording));
/// profiler.stop()?;
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfilerError {
    /// The process is already recording.
    #[error("a profiler is already recording in this process; stop it first")]
    Recording,
    /// The process was forked from one in which a profiler is recording.
    #[error(
        "this process was forked from a process in which a profiler is recording, and cannot use this profiler; \
         start the profiler in a separate program"
    )]
    Forked,
    /// Some devices have simulated time and others do not.
    #[error(
        "devices with simulated time use a different clock and cannot be recorded with other devices; select the \
         devices with `ProfilerOptions::device`"
    )]
    MixedClocks,
    /// A driver cannot record.
    #[error("the {driver} devices cannot be recorded: {error}")]
    Driver {
        /// The driver.
        driver: &'static str,
        /// Cause and remedy.
        error: ActivityError,
    },
    /// The file cannot be written. Data that had been written before the error remains readable.
    #[error("the trace {} cannot be written: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// The operating system could not create a thread for the profiler.
    #[error("the profiler's thread could not be started: {reason}")]
    Thread {
        /// Error of the operating system.
        reason: String,
    },
    /// The schedule does not record any steps.
    #[error("a schedule with `record: 0` records nothing; set it to the number of steps to record")]
    EmptySchedule,
}

impl ProfilerError {
    /// Returns true if the error means that the profiler belongs to the parent process.
    pub(crate) fn is_forked(error: &warpsmith_runtime::Error) -> bool {
        matches!(error.downcast_ref(), Some(Self::Forked))
    }

    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; earlier records can be read; free space, or use a path on another disk"
            }
            io::ErrorKind::FileTooLarge => {
                "; earlier records can be read; raise the file size limit (`ulimit -f`), or record less"
            }
            io::ErrorKind::NotFound => "; create the folder first",
            _ => "; give a writable path",
        };
        Self::File { path: path.to_path_buf(), reason: format!("{error}{remedy}") }
    }
}

impl From<ProfilerError> for warpsmith_runtime::Error {
    fn from(error: ProfilerError) -> Self {
        Self::extension(error)
    }
}
