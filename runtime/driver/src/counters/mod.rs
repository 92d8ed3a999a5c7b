//! Hardware counters of kernels: bytes of memory, hit rates, occupancy, stalls.
//!
//! The hardware counts few things at once, so each kernel runs several times, with the memory it found restored before each
//! run: its results are those of one run, its time is not. Kernels run one at a time meanwhile.
//!
//! [`CounterDriver::counters_open`] prepares a context. What is enqueued between [`CounterDriver::counters_begin`] and
//! [`CounterDriver::counters_end`] is counted, and has run when that returns. Contexts are independent of each other; recording
//! of [activity](crate::activity) and counting exclude each other in a process.

mod permission;

use std::fmt;

pub use self::permission::CounterPermission;
use crate::activity::ActivityError;
use crate::{Context, DriverError};

/// The result of a call that concerns counters.
pub type CounterResult<T> = std::result::Result<T, CounterError>;

/// What a counter says of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterKind {
    /// Nanoseconds from the kernel's start to its end.
    Duration,
    /// Bytes read from the device's memory.
    MemoryRead,
    /// Bytes written to the device's memory.
    MemoryWritten,
    /// The percentage of accesses to the L2 cache that it served.
    L2HitRate,
    /// The percentage of the warps that multiprocessors can hold which were resident, on average while a multiprocessor had
    /// any: achieved occupancy.
    Occupancy,
    /// The percentage of cycles in which tensor cores worked, while a multiprocessor had warps.
    TensorActive,
    /// Warps that waited for this reason, on average over the cycles in which an instruction was issued. Of all reasons
    /// together: the cycles from one instruction of a warp to its next. `selected` is no wait: it is the issue itself.
    Stall(String),
}

/// A counter of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// What it says.
    pub kind: CounterKind,
    /// The vendor's name of the metric, for example `dram__bytes_read.sum`.
    pub name: String,
}

/// What is counted on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSetup {
    /// What counts, for example `CUPTI 13.0`.
    pub source: String,
    /// The vendor's name of the chip, for example `GH100`.
    pub chip: String,
    /// How often each kernel runs.
    pub passes: usize,
    /// The counters. The chip may lack some.
    pub counters: Vec<Counter>,
}

/// What was counted between a begin and an end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counted {
    /// For each kernel that ran, in the order in which they ran, the value of each of [`CounterSetup::counters`]; `None`
    /// where there is none, as of a rate of nothing. Those of graphs are not among them.
    pub kernels: Vec<Vec<Option<f64>>>,
    /// Kernels for which there was no space.
    pub dropped: u64,
}

/// Why nothing can be counted, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The driver's devices have no counters.
    #[error("the {driver} devices have no hardware counters; count on a CUDA device, `cuda:0`")]
    Unsupported {
        /// The driver.
        driver: &'static str,
    },
    /// A profiler records in this process.
    #[error("a profiler records in this process, which hardware counters exclude; stop it first")]
    Recording,
    /// The context is counted on already, or is not prepared, or a part was begun twice.
    #[error("hardware counters: {0}")]
    Misuse(&'static str),
    /// The process was forked from one that uses the devices.
    #[error(
        "this process was forked from one that uses CUDA, which does not work here; count in the process that opened the devices"
    )]
    Forked,
    /// CUPTI cannot be loaded, or is of a version that cannot be used.
    #[error("no hardware counters without CUPTI: {reason}")]
    NoCupti {
        /// The cause, and the remedy.
        reason: String,
    },
    /// CUPTI's companion for metrics, `libnvperf_host.so`, cannot be loaded.
    #[error(
        "no hardware counters without `{library}`, which belongs to CUPTI; it was searched as {searched}; run `pip install \
         '{package}'` in the active Python environment, or set WARPSMITH_LIBRARY_PATH to the folder that has it{}",
        because(reason)
    )]
    NoMetricsLibrary {
        /// Its name.
        library: &'static str,
        /// The paths and names that were tried.
        searched: String,
        /// Why the last file that exists could not be loaded; empty if there is none.
        reason: String,
        /// What to install from PyPI.
        package: String,
    },
    /// The system does not let this user count.
    #[error(
        "{call} is not permitted: {text} ({permission}); {}. A container gets either from its host alone: `docker run --cap-add \
         SYS_ADMIN`",
        CounterPermission::REMEDY
    )]
    NotPermitted {
        /// CUPTI's function.
        call: &'static str,
        /// CUPTI's explanation.
        text: String,
        /// What the system says about it.
        permission: CounterPermission,
    },
    /// Another tool counts.
    #[error(
        "the hardware counters are in use by {by}; run the program without Nsight Compute (ncu), Nsight Systems (nsys), cuda-gdb and \
         compute-sanitizer, and pause what samples the GPU: `dcgmi profile --pause`"
    )]
    InUse {
        /// What counts, as far as is known.
        by: String,
    },
    /// The device, or how the system presents it, has no counters.
    #[error("device {device} has no hardware counters: {obstacle}")]
    Device {
        /// The ordinal of the device.
        device: u32,
        /// Why.
        obstacle: Obstacle,
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

/// Why a device has no counters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// It is older than compute capability 7.5.
    Architecture,
    /// CUPTI does not know the chip.
    Chip(String),
    /// The chip has none of the counters.
    NoCounters(String),
    /// It is a part of a GPU (MIG).
    Mig,
    /// It is a virtual GPU that cannot count.
    VirtualGpu,
    /// It is a virtual GPU that may not count.
    VirtualGpuDisabled,
    /// Confidential computing is on.
    ConfidentialComputing,
    /// It is made for mining.
    MiningProcessor,
    /// It is linked by SLI.
    Sli,
    /// It is used through the Windows Subsystem for Linux.
    Wsl,
    /// CUPTI does not say.
    Unknown,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Architecture => "its compute capability is below 7.5; use a newer GPU",
            Self::Chip(chip) => {
                return write!(f, "CUPTI does not know the chip {chip}; install a newer CUPTI, up to the driver's version");
            }
            Self::NoCounters(chip) => return write!(f, "CUPTI offers none of them on the chip {chip}; count on another GPU"),
            Self::Mig => "it is a MIG instance; count on the whole GPU, with MIG off",
            Self::VirtualGpu => "it is a virtual GPU whose type does not allow it; count on a GPU that is passed through",
            Self::VirtualGpuDisabled => {
                "profiling is off for this virtual GPU; set `pciPassthru0.cfg.enable_profiling=1` or its like on the host"
            }
            Self::ConfidentialComputing => "confidential computing is on; turn it off to count",
            Self::MiningProcessor => "it is a crypto mining processor; count on another GPU",
            Self::Sli => "SLI is on; turn it off to count",
            Self::Wsl => "the Windows Subsystem for Linux gives no access; allow it in the NVIDIA control panel, or count on Linux",
            Self::Unknown => "CUPTI does not support the device or its configuration, and does not say why",
        })
    }
}

impl From<ActivityError> for CounterError {
    /// Errors of loading CUPTI.
    fn from(error: ActivityError) -> Self {
        match error {
            ActivityError::Driver(error) => Self::Driver(error),
            ActivityError::Forked => Self::Forked,
            ActivityError::Cupti { call, code, text } => Self::Cupti { call, code, text },
            error => Self::NoCupti { reason: error.to_string() },
        }
    }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// The part of a driver that counts. Its methods may be called by an observer, and wait for devices.
pub trait CounterDriver {
    /// Prepares a context, once until [`Self::counters_close`].
    ///
    /// # Errors
    /// [`CounterError`], which names the cause and the remedy.
    fn counters_open(&self, context: Context) -> CounterResult<CounterSetup>;

    /// Counts what is enqueued on the prepared context from now on, in one part at a time.
    ///
    /// # Errors
    /// Whatever CUPTI reports; nothing is counted then.
    fn counters_begin(&self, context: Context) -> CounterResult<()>;

    /// Ends what [`Self::counters_begin`] began. All kernels of it have run.
    ///
    /// # Errors
    /// Whatever CUPTI reports; it has ended all the same.
    fn counters_end(&self, context: Context) -> CounterResult<Counted>;

    /// Ends counting on a context, if it is prepared.
    fn counters_close(&self, context: Context);
}
