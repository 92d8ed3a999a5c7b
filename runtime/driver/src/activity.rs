//! Activity recording for profilers: records of kernels, copies, waits and driver calls.
//!
//! A driver records activity between [`ActivityDriver::activity_start`] and [`ActivityDriver::activity_stop`]. A
//! process supports one recording at a time. An [`ActivitySink`] receives the records on the driver's threads, in no
//! particular order. All times are in nanoseconds on the clock of [`ActivityDriver::activity_now`], which starts at the
//! Unix epoch or, if time is simulated, at 0.
//!
//! A correlation ID links work on a device to the call that enqueued it. All nodes of a graph launch have the launch's
//! correlation ID. A correlation ID of 0 means that the call is unknown.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Context, DriverError, GraphExecHandle, NodeHandle, StreamHandle, process};

/// Converts a time to nanoseconds since the Unix epoch.
pub fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the current time in nanoseconds since the Unix epoch.
pub fn now() -> u64 {
    nanoseconds(SystemTime::now())
}

/// Returns the system's ID of the calling thread, as in [`Activity::Call`]. It is queried once per thread and process.
pub fn thread_number() -> u64 {
    thread_local! {
        static KNOWN: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }
    let forks = FORKS.load(Ordering::Relaxed);
    match KNOWN.get() {
        (number, of) if number != 0 && of == forks => number,
        _ => {
            count_forks();
            let number = process::thread_id();
            KNOWN.set((number, forks));
            number
        }
    }
}

/// Number of forks between the first process that requested a thread ID and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Starts counting forks, if not yet started.
fn count_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the function only changes one atomic, so it is async-signal-safe.
        unsafe { process::after_fork(in_child) };
    });
}

/// Result of an activity recording call.
pub type ActivityResult<T> = std::result::Result<T, ActivityError>;

/// Receives the records of a driver. A sink is called from several threads and must not call a driver.
pub trait ActivitySink: Send + Sync {
    /// Receives a record.
    fn record(&self, activity: &Activity<'_>);
}

/// Options of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityOptions {
    /// True if driver calls that neither enqueue work nor wait for it are recorded too.
    pub all_calls: bool,
    /// Bytes of host memory for undelivered records. When it is full, records are dropped and counted.
    pub memory: usize,
}

impl Default for ActivityOptions {
    fn default() -> Self {
        Self { all_calls: false, memory: 256 << 20 }
    }
}

/// Description of a started recording.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityStarted {
    /// Source of the records, for example `CUPTI 13.0`. If the recorder's clock differs from
    /// [`ActivityDriver::activity_now`] by more than a microsecond, includes this difference, for which the records are
    /// corrected.
    pub source: String,
}

/// Records lost during a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivityLoss {
    /// Number of records dropped because buffers were full.
    pub dropped: u64,
    /// Number of records without times.
    pub zero_time: u64,
    /// Number of buffer requests that failed because [`ActivityOptions::memory`] was exhausted. The driver counts the
    /// affected records as dropped.
    pub refused_buffers: u64,
}

/// Location of work: its device and stream, and the call that enqueued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivityPlace {
    /// Ordinal of the device.
    pub device: u32,
    /// Stream ID, as returned by [`ActivityDriver::activity_stream`].
    pub stream: u32,
    /// Correlation ID of the call that enqueued the work.
    pub correlation: u64,
    /// Executable graph that contains the work; 0 if the work was not launched by a graph.
    pub graph: u32,
    /// ID of the graph node, unique in the process; 0 if the work was not launched by a graph. See
    /// [`ActivityDriver::activity_node`].
    pub node: u64,
}

/// Kind of a copy or memset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ActivityTransfer {
    Unknown,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Peer copy between this device and another, in either direction.
    PeerToPeer {
        peer: u32,
    },
    HostToHost,
    Memset,
}

impl ActivityTransfer {
    /// Returns the kind of a copy that involves no other device.
    pub fn between(from_device: bool, to_device: bool) -> Self {
        match (from_device, to_device) {
            (true, true) => Self::DeviceToDevice,
            (true, false) => Self::DeviceToHost,
            (false, true) => Self::HostToDevice,
            (false, false) => Self::HostToHost,
        }
    }
}

/// Kind of a wait: who waits, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ActivityWait {
    HostForDevice,
    HostForStream,
    HostForEvent,
    StreamForEvent,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Activity<'a> {
    /// A kernel ran.
    Kernel {
        /// Start time.
        start: u64,
        /// End time.
        end: u64,
        /// Device, stream and correlation ID.
        place: ActivityPlace,
        /// Symbol of the kernel.
        symbol: &'a str,
        /// Grid size in blocks, along x, y and z.
        grid: [u32; 3],
        /// Block size in threads, along x, y and z.
        block: [u32; 3],
        /// Number of registers per thread.
        registers: u32,
        /// Static shared memory per block in bytes.
        static_shared: u32,
        /// Dynamic shared memory per block in bytes.
        dynamic_shared: u32,
    },
    /// A copy or a memset ran.
    Transfer {
        /// Start time.
        start: u64,
        /// End time.
        end: u64,
        /// Device, stream and correlation ID.
        place: ActivityPlace,
        /// Kind of the copy or memset.
        kind: ActivityTransfer,
        /// Number of bytes written.
        bytes: u64,
    },
    /// A host thread or a stream waited.
    Wait {
        /// Start time.
        start: u64,
        /// End time.
        end: u64,
        /// The stream that waits or for which the host waits; unspecified for waits for a device.
        place: ActivityPlace,
        /// Kind of the wait.
        kind: ActivityWait,
    },
    /// A thread called the driver.
    Call {
        /// Start time.
        start: u64,
        /// Time at which the call returned.
        end: u64,
        /// System ID of the thread.
        thread: u64,
        /// Correlation ID of the enqueued work.
        correlation: u64,
        /// Name of the driver function.
        function: &'a str,
    },
    /// A driver call was made inside a range of the program ([`ActivityDriver::activity_push`]).
    Inside {
        /// Correlation ID of the call.
        correlation: u64,
        /// ID of the range.
        id: u64,
    },
    /// Overhead of the driver or the recorder that costs the program time.
    Overhead {
        /// Start time.
        start: u64,
        /// End time.
        end: u64,
        /// Cause of the overhead, for example `lazy function load`.
        what: &'a str,
    },
}

/// Reason why activity cannot be recorded, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActivityError {
    /// A recording is already active in this process.
    #[error("a profiler is already recording; stop it first")]
    Recording,
    /// The driver does not support recording.
    #[error("this driver does not support recording")]
    Unsupported,
    /// The process was forked from a process that uses the devices.
    #[error(
        "this process was forked from a process that uses CUDA and cannot use CUDA itself; start the profiler in the \
         process that opened the devices, or open them after the fork"
    )]
    Forked,
    /// [`ActivityOptions::memory`] is below the minimum.
    #[error("{bytes} bytes of memory for records are not enough; allow at least {minimum} bytes")]
    TooLittleMemory {
        /// The specified number of bytes.
        bytes: usize,
        /// Minimum number of bytes.
        minimum: usize,
    },
    /// CUPTI, NVIDIA's profiling library, was not found or cannot be loaded.
    #[error(
        "CUPTI was not found: searched for {searched}{}; run `pip install '{package}'` in the active Python \
         environment, or set WARPSMITH_LIBRARY_PATH to the folder that contains it",
        because(reason)
    )]
    NoCupti {
        /// Names and directories tried.
        searched: String,
        /// Reason why the last existing file could not be loaded; empty if no file exists.
        reason: String,
        /// PyPI package to install, with the version that matches the driver.
        package: String,
    },
    /// Another profiler in the process uses CUPTI.
    #[error(
        "CUPTI is in use by {by}, and only one profiler can use it at a time; run the program without Nsight Systems \
         (nsys), Nsight Compute (ncu), cuda-gdb and compute-sanitizer, and stop other profilers in the process"
    )]
    CuptiInUse {
        /// The tool that uses CUPTI, if known.
        by: String,
    },
    /// CUPTI lacks a function that recording requires.
    #[error("{version} is too old: it lacks {lacks}; run `pip install '{package}'`")]
    CuptiTooOld {
        /// Version of the library.
        version: String,
        /// Missing function or version.
        lacks: String,
        /// PyPI package to install.
        package: String,
    },
    /// CUPTI cannot be started, for example because it is newer than the driver.
    #[error(
        "{version} requires an NVIDIA driver for the same or a newer CUDA version, but the driver is for CUDA \
         {driver}; run `pip install '{package}'`, or update the driver"
    )]
    CuptiTooNew {
        /// Version of the library.
        version: String,
        /// CUDA version of the driver.
        driver: String,
        /// PyPI package to install.
        package: String,
    },
    /// The system does not permit this user to profile.
    #[error(
        "{call} is not permitted: {text}; load the NVIDIA module with NVreg_RestrictProfilingToAdminUsers=0, or run \
         with CAP_SYS_ADMIN (for a container, set either on the host)"
    )]
    NotPermitted {
        /// CUPTI function that failed.
        call: &'static str,
        /// CUPTI's explanation.
        text: String,
    },
    /// A CUPTI call failed.
    #[error("{call} failed with CUPTI error {code}: {text}")]
    Cupti {
        /// CUPTI function that failed.
        call: &'static str,
        /// Error code, as in `CUptiResult`.
        code: u32,
        /// CUPTI's explanation.
        text: String,
    },
    /// A driver call failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// Activity recording of a driver.
pub trait ActivityDriver {
    /// Starts recording the work of all devices of the driver.
    ///
    /// # Errors
    /// Returns any [`ActivityError`], which names the cause and the remedy.
    fn activity_start(
        &self,
        _options: &ActivityOptions,
        _sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<ActivityStarted> {
        Err(ActivityError::Unsupported)
    }

    /// Delivers the records of all work that has run to the sink. The caller must first wait for the work whose records
    /// it requires.
    ///
    /// # Errors
    /// Returns any recorder error. Records that are already available are delivered even after an error.
    fn activity_flush(&self) -> ActivityResult<()> {
        Ok(())
    }

    /// Flushes the records and ends the recording. The sink receives no records after this call returns.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::activity_flush`]. The recording ends even after an error.
    fn activity_stop(&self) -> ActivityResult<ActivityLoss> {
        Ok(ActivityLoss::default())
    }

    /// Returns the current time on the clock of the records, in nanoseconds.
    fn activity_now(&self) -> u64 {
        now()
    }

    /// Returns true if the clock measures simulated time, which starts at 0.
    fn activity_is_simulated(&self) -> bool {
        false
    }

    /// Returns the ID with which a stream appears in records.
    ///
    /// # Errors
    /// Returns any recorder error.
    fn activity_stream(&self, _context: Context, stream: StreamHandle) -> ActivityResult<u32> {
        Ok(stream.0 as u32)
    }

    /// Returns the ID of a graph node, for comparison with [`ActivityPlace::node`] in records. In records of an
    /// executable, the lower 32 bits equal those of this ID, and the upper 32 bits are 0 or the result of
    /// [`Self::activity_exec`]. The IDs of nodes in child graphs either follow those of the graph's own nodes (CUPTI
    /// 13.0 on a GPU) or have different upper halves.
    ///
    /// # Errors
    /// Returns [`ActivityError::Unsupported`] if no recording that supports node IDs is active, or any recorder error.
    fn activity_node(&self, _context: Context, node: NodeHandle) -> ActivityResult<u64> {
        Ok(node.0)
    }

    /// Returns the ID with which an executable graph appears in records ([`ActivityPlace::graph`]).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::activity_node`].
    fn activity_exec(&self, _context: Context, exec: GraphExecHandle) -> ActivityResult<u32> {
        Ok(exec.0 as u32)
    }

    /// Opens a range with this ID. Until [`Self::activity_pop`], this thread's calls are recorded as
    /// [inside](Activity::Inside) it. Ranges nest; only the innermost one is recorded.
    fn activity_push(&self, _id: u64) {}

    /// Closes this thread's innermost range, opened with [`Self::activity_push`].
    fn activity_pop(&self) {}
}
