//! What devices did and when: records of kernels, copies, waits and driver calls, for a profiler.
//!
//! A driver records between [`ActivityDriver::activity_start`] and [`ActivityDriver::activity_stop`], once at a time in a
//! process. Records go to an [`ActivitySink`], on threads of the driver's and in no particular order. All times are
//! nanoseconds of [`ActivityDriver::activity_now`]: since 1970 for real devices, from 0 with simulated time.
//!
//! A correlation is a number that ties work on a device to the call that enqueued it. All nodes of one launch of a graph have
//! the correlation of the launch. 0 is none.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Context, DriverError, GraphExecHandle, NodeHandle, StreamHandle};

/// Nanoseconds since 1970: the clock of records of real time.
pub fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The time of that clock.
pub fn now() -> u64 {
    nanoseconds(SystemTime::now())
}

/// The calling thread by the system's number, as in [`Activity::Call`]. Asked once a thread, and anew in a forked process.
pub fn thread_number() -> u64 {
    thread_local! {
        static KNOWN: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }
    let forks = FORKS.load(Ordering::Relaxed);
    match KNOWN.get() {
        (number, of) if number != 0 && of == forks => number,
        _ => {
            count_forks();
            let number = system_thread();
            KNOWN.set((number, forks));
            number
        }
    }
}

/// From the first process that asked for the number of a thread to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// From now on, if they are not counted yet.
fn count_forks() {
    #[cfg(unix)]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        ONCE.call_once(|| {
            // SAFETY: the function may run in a forked child: it changes one atomic value.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }
}

#[cfg(target_os = "linux")]
fn system_thread() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() as u64 }
}

/// Where the system has no numbers that a profiler shows, threads are counted.
#[cfg(not(target_os = "linux"))]
fn system_thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The result of a call that concerns recording.
pub type ActivityResult<T> = std::result::Result<T, ActivityError>;

/// Takes the records of a driver. It is called from several threads, and calls no driver.
pub trait ActivitySink: Send + Sync {
    /// Takes a record.
    fn record(&self, activity: &Activity<'_>);
}

/// What is to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityOptions {
    /// Whether driver calls that neither enqueue work nor wait for it are recorded too.
    pub all_calls: bool,
    /// Bytes of host memory for records that were not taken yet; when they are full, records are dropped and counted.
    pub memory: usize,
}

impl Default for ActivityOptions {
    fn default() -> Self {
        Self { all_calls: false, memory: 256 << 20 }
    }
}

/// What records now.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityStarted {
    /// What the records come from, for example `CUPTI 13.0`. It says so if the recorder's clock differs from
    /// [`ActivityDriver::activity_now`] by more than a microsecond, which is corrected in the records.
    pub source: String,
}

/// What became of the records of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivityLoss {
    /// Records that were dropped, because buffers were full.
    pub dropped: u64,
    /// Records without times.
    pub zero_time: u64,
    /// Buffers that were refused, because [`ActivityOptions::memory`] was used up; the driver counts their records as dropped.
    pub refused_buffers: u64,
}

/// Where work ran, and what enqueued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivityPlace {
    /// The ordinal of the device.
    pub device: u32,
    /// The number of the stream: see [`ActivityDriver::activity_stream`].
    pub stream: u32,
    /// Of the call that enqueued it.
    pub correlation: u64,
    /// The executable graph it is a node of; 0 for none.
    pub graph: u32,
    /// The node, unique in the process; 0 for none. See [`ActivityDriver::activity_node`].
    pub node: u64,
}

/// The kind of a copy or memset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ActivityTransfer {
    Unknown,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// From this device to that one or back.
    PeerToPeer {
        peer: u32,
    },
    HostToHost,
    Memset,
}

impl ActivityTransfer {
    /// The kind of a copy that reaches no other device.
    pub fn between(from_device: bool, to_device: bool) -> Self {
        match (from_device, to_device) {
            (true, true) => Self::DeviceToDevice,
            (true, false) => Self::DeviceToHost,
            (false, true) => Self::HostToDevice,
            (false, false) => Self::HostToHost,
        }
    }
}

/// What waited for what.
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
        /// When it began.
        start: u64,
        /// When it ended.
        end: u64,
        /// Where.
        place: ActivityPlace,
        /// Its symbol.
        symbol: &'a str,
        /// Blocks in x, y and z.
        grid: [u32; 3],
        /// Threads of a block in x, y and z.
        block: [u32; 3],
        /// Registers of a thread.
        registers: u32,
        /// Static shared memory of a block in bytes.
        static_shared: u32,
        /// Dynamic shared memory of a block in bytes.
        dynamic_shared: u32,
    },
    /// A copy or a memset ran.
    Transfer {
        /// When it began.
        start: u64,
        /// When it ended.
        end: u64,
        /// Where.
        place: ActivityPlace,
        /// What it did.
        kind: ActivityTransfer,
        /// Bytes that were written.
        bytes: u64,
    },
    /// Something waited.
    Wait {
        /// When it began.
        start: u64,
        /// When it ended.
        end: u64,
        /// The stream that was waited for, or that waits; without meaning for waits for a device.
        place: ActivityPlace,
        /// What waited for what.
        kind: ActivityWait,
    },
    /// A thread called the driver.
    Call {
        /// When it began.
        start: u64,
        /// When it returned.
        end: u64,
        /// The thread, by the system's number.
        thread: u64,
        /// Of what it enqueued.
        correlation: u64,
        /// The driver's function.
        function: &'a str,
    },
    /// A call was made inside a part of the program: see [`ActivityDriver::activity_push`].
    Inside {
        /// Of the call.
        correlation: u64,
        /// The number of the part.
        id: u64,
    },
    /// The driver or the recorder did something that takes the program's time.
    Overhead {
        /// When it began.
        start: u64,
        /// When it ended.
        end: u64,
        /// What it was, for example `lazy function load`.
        what: &'a str,
    },
}

/// Why devices cannot be recorded, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActivityError {
    /// A recording goes on in this process.
    #[error("a profiler is already recording; stop it first")]
    Recording,
    /// Hardware counters are read in this process, which changes what a recording would see.
    #[error("hardware counters are read in this process, which a profiler excludes; end that first")]
    Counting,
    /// The driver has no recorder.
    #[error("this driver records nothing")]
    Unsupported,
    /// The process was forked from one that uses the devices.
    #[error(
        "this process was forked from one that uses CUDA, which does not work here; start the profiler in the process that \
         opened the devices, or open them after the fork"
    )]
    Forked,
    /// [`ActivityOptions::memory`] is too little for one buffer.
    #[error("{bytes} bytes of memory for records are too few; allow at least {least}")]
    TooLittleMemory {
        /// What was allowed.
        bytes: usize,
        /// The least that works.
        least: usize,
    },
    /// CUPTI, NVIDIA's library that records devices, was not found or cannot be loaded.
    #[error(
        "no CUPTI: it was searched as {searched}{}; run `pip install '{package}'` in the active Python environment, or set \
         WARPSMITH_LIBRARY_PATH to the folder that has it",
        because(reason)
    )]
    NoCupti {
        /// The names and folders that were tried.
        searched: String,
        /// Why the last file that exists could not be loaded; empty if there is none.
        reason: String,
        /// What to install from PyPI, with the version that fits the driver.
        package: String,
    },
    /// Another profiler of the process uses CUPTI.
    #[error(
        "CUPTI is in use by {by}, and one profiler at a time can use it; run the program without Nsight Systems (nsys), Nsight \
         Compute (ncu), cuda-gdb and compute-sanitizer, stop other profilers of the process"
    )]
    CuptiInUse {
        /// What uses it, as far as is known.
        by: String,
    },
    /// CUPTI lacks what recording needs.
    #[error("{version} is too old: it lacks {lacks}; run `pip install '{package}'`")]
    CuptiTooOld {
        /// The library's version.
        version: String,
        /// The function or version that is missing.
        lacks: String,
        /// What to install from PyPI.
        package: String,
    },
    /// CUPTI cannot start, as when it is newer than the driver.
    #[error(
        "{version} does not start with an NVIDIA driver for CUDA {driver}, which must not be the older one; run `pip install \
         '{package}'`, or update the driver"
    )]
    CuptiTooNew {
        /// The library's version.
        version: String,
        /// The CUDA version of the driver.
        driver: String,
        /// What to install from PyPI.
        package: String,
    },
    /// The system does not let this user profile.
    #[error(
        "{call} is not permitted: {text}; load the NVIDIA module with NVreg_RestrictProfilingToAdminUsers=0, or run with \
         CAP_SYS_ADMIN (a container gets both from its host alone)"
    )]
    NotPermitted {
        /// CUPTI's function.
        call: &'static str,
        /// CUPTI's explanation.
        text: String,
    },
    /// A call of CUPTI failed.
    #[error("{call} failed with CUPTI error {code}: {text}")]
    Cupti {
        /// CUPTI's function.
        call: &'static str,
        /// Its code, as in `CUptiResult`.
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

/// The part of a driver that records what its devices do.
pub trait ActivityDriver {
    /// Begins to record what all devices of the driver do.
    ///
    /// # Errors
    /// [`ActivityError`], which names the cause and the remedy.
    fn activity_start(
        &self,
        _options: &ActivityOptions,
        _sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<ActivityStarted> {
        Err(ActivityError::Unsupported)
    }

    /// Hands the records of all work that has run to the sink. The caller has synchronised what it wants to see.
    ///
    /// # Errors
    /// Whatever the recorder reports; what it had is handed over all the same.
    fn activity_flush(&self) -> ActivityResult<()> {
        Ok(())
    }

    /// Ends recording, after a flush. The sink gets nothing any more when it returns.
    ///
    /// # Errors
    /// As [`Self::activity_flush`]; recording has ended all the same.
    fn activity_stop(&self) -> ActivityResult<ActivityLoss> {
        Ok(ActivityLoss::default())
    }

    /// The clock of the records, in nanoseconds.
    fn activity_now(&self) -> u64 {
        now()
    }

    /// Whether that clock is one of simulated time, which begins at 0.
    fn activity_is_simulated(&self) -> bool {
        false
    }

    /// The number of a stream in records.
    ///
    /// # Errors
    /// Whatever the recorder reports.
    fn activity_stream(&self, _context: Context, stream: StreamHandle) -> ActivityResult<u32> {
        Ok(stream.0 as u32)
    }

    /// The number of a node of a graph, for comparison with those of records. The copy of a node in an executable has
    /// [`Self::activity_exec`], or 0, in the upper 32 bits of [`ActivityPlace::node`], and the same lower ones. Nodes of graphs
    /// within have the numbers after those of the graph itself (CUPTI 13.0 on a GPU), or upper halves of their own.
    ///
    /// # Errors
    /// [`ActivityError::Unsupported`] where nothing is recorded that has such numbers; whatever the recorder reports.
    fn activity_node(&self, _context: Context, node: NodeHandle) -> ActivityResult<u64> {
        Ok(node.0)
    }

    /// The number of an executable in records, [`ActivityPlace::graph`].
    ///
    /// # Errors
    /// As [`Self::activity_node`].
    fn activity_exec(&self, _context: Context, exec: GraphExecHandle) -> ActivityResult<u32> {
        Ok(exec.0 as u32)
    }

    /// Calls that this thread makes from now on are [inside](Activity::Inside) the part of the program that has this number,
    /// until [`Self::activity_pop`]. Parts nest; the innermost is recorded.
    fn activity_push(&self, _id: u64) {}

    /// Ends what [`Self::activity_push`] began last on this thread.
    fn activity_pop(&self) {}
}
