//! Hardware counters of kernels: memory traffic in bytes, hit rates, occupancy, stalls.
//!
//! The hardware counts only a few metrics at a time, so each kernel is replayed several times. Memory is restored
//! before each pass, so the results, but not the elapsed time, are those of a single run. While counters are read,
//! kernels are serialized.
//!
//! [`CounterDriver::counters_open`] prepares a context. Work enqueued between [`CounterDriver::counters_begin`] and
//! [`CounterDriver::counters_end`] is counted, and has run when the latter returns. Contexts are independent. A process
//! cannot record [activity](crate::activity) and read counters at the same time.

mod permission;

use std::fmt;

pub use self::permission::CounterPermission;
use crate::activity::ActivityError;
use crate::{Context, DriverError};

/// Result of a counter call.
pub type CounterResult<T> = std::result::Result<T, CounterError>;

/// The quantity that a counter measures.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterKind {
    /// Duration of the kernel in nanoseconds.
    Duration,
    /// Bytes read from device memory.
    MemoryRead,
    /// Bytes written to device memory.
    MemoryWritten,
    /// L2 hit rate: the percentage of L2 accesses that the cache served.
    L2HitRate,
    /// Achieved occupancy: resident warps as a percentage of the SM's maximum, averaged over the time when the SM had
    /// resident warps.
    Occupancy,
    /// Percentage of an SM's cycles with resident warps in which its tensor cores were active.
    TensorActive,
    /// Number of warps stalled for this reason, averaged over the cycles in which an instruction was issued. The sum
    /// over all reasons is a warp's average number of cycles between two instructions. `selected` means that the warp
    /// issued an instruction and did not stall.
    Stall(String),
}

/// A counter of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The quantity that the counter measures.
    pub kind: CounterKind,
    /// Vendor's name of the metric, for example `dram__bytes_read.sum`.
    pub name: String,
}

/// Counters available on a device, and the passes that they require.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSetup {
    /// Source of the counters, for example `CUPTI 13.0`.
    pub source: String,
    /// Vendor's name of the chip, for example `GH100`.
    pub chip: String,
    /// Number of passes (replays) per kernel.
    pub passes: usize,
    /// Counters that the chip supports.
    pub counters: Vec<Counter>,
}

/// Counter values of a range.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counted {
    /// For each kernel, in execution order, the value of each counter in [`CounterSetup::counters`]; `None` if
    /// undefined, for example a ratio with a zero denominator. Kernels of graphs are not included.
    pub kernels: Vec<Vec<Option<f64>>>,
    /// Number of kernels dropped for lack of space.
    pub dropped: u64,
}

/// Reason why counters cannot be read, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The driver's devices do not support hardware counters.
    #[error("{driver} devices have no hardware counters; use a CUDA device, for example `cuda:0`")]
    Unsupported {
        /// Name of the driver.
        driver: &'static str,
    },
    /// A profiler is recording in this process.
    #[error(
        "a profiler is recording in this process, which excludes hardware counters; stop the profiler first"
    )]
    Recording,
    /// The context is already being counted or not prepared, or a range was started twice.
    #[error("hardware counters: {0}")]
    Misuse(&'static str),
    /// The process was forked from a process that uses the devices.
    #[error(
        "this process was forked from a process that uses CUDA and cannot use CUDA itself; count in the process that \
         opened the devices"
    )]
    Forked,
    /// CUPTI cannot be loaded, or its version is unusable.
    #[error("hardware counters require CUPTI: {reason}")]
    NoCupti {
        /// Cause and remedy.
        reason: String,
    },
    /// `libnvperf_host.so`, CUPTI's metrics library, cannot be loaded.
    #[error(
        "hardware counters require CUPTI's library `{library}`, which was not found (searched for {searched}); run \
         `pip install '{package}'` in the active Python environment, or set WARPSMITH_LIBRARY_PATH to the folder \
         that contains it{}",
        because(reason)
    )]
    NoMetricsLibrary {
        /// Name of the library.
        library: &'static str,
        /// Paths and names tried.
        searched: String,
        /// Reason why the last existing file could not be loaded; empty if no file exists.
        reason: String,
        /// PyPI package to install.
        package: String,
    },
    /// The system does not permit this user to read counters.
    #[error(
        "{call} is not permitted: {text} ({permission}); {}. For a container, set either on the host: `docker run \
         --cap-add SYS_ADMIN`",
        CounterPermission::REMEDY
    )]
    NotPermitted {
        /// CUPTI function that failed.
        call: &'static str,
        /// CUPTI's explanation.
        text: String,
        /// Permission, as reported by the system.
        permission: CounterPermission,
    },
    /// Another tool is using the counters.
    #[error(
        "the hardware counters are in use by {by}; run the program without Nsight Compute (ncu), Nsight Systems \
         (nsys), cuda-gdb and compute-sanitizer, and pause DCGM's sampling with `dcgmi profile --pause`"
    )]
    InUse {
        /// The tool, if known.
        by: String,
    },
    /// The device, or its virtualization, does not support counters.
    #[error("device {device} has no hardware counters: {obstacle}")]
    Device {
        /// Ordinal of the device.
        device: u32,
        /// Reason.
        obstacle: Obstacle,
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

/// Reason why a device does not support counters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Compute capability below 7.5.
    Architecture,
    /// Chip unknown to CUPTI.
    Chip(String),
    /// Chip without any of the counters.
    NoCounters(String),
    /// MIG instance.
    Mig,
    /// Virtual GPU that does not support counters.
    VirtualGpu,
    /// Virtual GPU that is not permitted to use counters.
    VirtualGpuDisabled,
    /// Confidential computing is enabled.
    ConfidentialComputing,
    /// Mining processor.
    MiningProcessor,
    /// SLI configuration.
    Sli,
    /// Windows Subsystem for Linux (WSL).
    Wsl,
    /// Reason not reported by CUPTI.
    Unknown,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Architecture => "its compute capability is below 7.5; use a newer GPU",
            Self::Chip(chip) => {
                return write!(f, "CUPTI does not support the chip {chip}; install a newer CUPTI, up to the driver's \
                                  version");
            }
            Self::NoCounters(chip) => return write!(f, "CUPTI provides none of the counters on the chip {chip}; use \
                                                        another GPU"),
            Self::Mig => "it is a MIG instance; use a whole GPU with MIG disabled",
            Self::VirtualGpu => "it is a virtual GPU of a type without counters; use a GPU in passthrough mode",
            Self::VirtualGpuDisabled => {
                "profiling is disabled for this virtual GPU; set `pciPassthru0.cfg.enable_profiling=1` or the \
                 equivalent option on the host"
            }
            Self::ConfidentialComputing => "confidential computing is enabled; disable it",
            Self::MiningProcessor => "it is a crypto mining processor; use another GPU",
            Self::Sli => "SLI is enabled; disable it",
            Self::Wsl => "the Windows Subsystem for Linux has no access to the counters; allow access in the NVIDIA \
                          control panel, or use native Linux",
            Self::Unknown => "CUPTI does not support the device or its configuration, and gives no reason",
        })
    }
}

impl From<ActivityError> for CounterError {
    /// Converts an error from loading CUPTI.
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

/// Hardware counters of a driver. The methods wait for devices; an observer may call them.
pub trait CounterDriver {
    /// Prepares a context. A second call requires [`Self::counters_close`] first.
    ///
    /// # Errors
    /// Returns any [`CounterError`], which names the cause and the remedy.
    fn counters_open(&self, context: Context) -> CounterResult<CounterSetup>;

    /// Starts counting the work that is enqueued on the prepared context. Only one range is counted at a time.
    ///
    /// # Errors
    /// Returns any CUPTI error, in which case counting has not started.
    fn counters_begin(&self, context: Context) -> CounterResult<()>;

    /// Ends the range that [`Self::counters_begin`] started, after all its kernels have run.
    ///
    /// # Errors
    /// Returns any CUPTI error. The range ends even after an error.
    fn counters_end(&self, context: Context) -> CounterResult<Counted>;

    /// Ends counting on a context, if the context is prepared.
    fn counters_close(&self, context: Context);
}
