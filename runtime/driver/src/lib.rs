//! The [`Driver`] trait: all device driver functions that the runtime needs, without policy.
//!
//! [`cuda`] implements the trait with the CUDA driver library; the crate `warpsmith-emulated` implements it on the CPU
//! and registers itself in [`EMULATED`]. Each call performs one operation without policy: it does not cache, choose a
//! stream or retry. All code above this crate works with either driver.
//!
//! Handles are plain integers ([`Context`], [`StreamHandle`], …), which a driver does not validate. The layers above
//! own the handles, keep them alive while in use, and release each once.
//!
//! Work on one stream runs in the order in which it was enqueued. Two streams are ordered only by an event that one
//! records and the other waits for. Any later call on a context may return the error of earlier asynchronous work,
//! after which the context is unusable. [`Driver::take_fault`] returns the failed kernel's report.

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    };
}

pub mod activity;
pub mod check;
mod code;
pub mod cuda;
pub mod error;
mod graph;
pub mod host_function;
pub mod library_paths;
mod memory;
pub mod process;
mod stream;
mod telemetry;

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use self::activity::ActivityDriver;
use self::check::{FindingScope, Findings};
pub use self::code::CodeDriver;
pub use self::error::{DriverError, Result};
pub use self::graph::{
    CaptureMode, CaptureStatus, ConditionHandle, ConditionalKind, Edge, ExecUpdate, GraphDriver,
    GraphExecHandle, GraphFunction, GraphHandle, NodeHandle, NodeInfo, NodeWork,
};
pub use self::host_function::{HostAccess, HostWork};
pub use self::memory::{ExportedMemory, MemoryDriver};
pub use self::stream::{IPC_EVENT_BYTES, StreamDriver};
pub use self::telemetry::Telemetry;

/// Functions that return the process-wide driver of emulated devices. With the feature `emulated`, the crate
/// `warpsmith-emulated` adds one.
#[linkme::distributed_slice]
pub static EMULATED: [fn() -> Arc<dyn Driver>];

handle!(
    /// The primary context of a device.
    Context
);
handle!(
    /// A stream of a device.
    StreamHandle
);
handle!(
    /// An event: a marker in a stream.
    EventHandle
);
handle!(
    /// A loaded kernel image.
    ModuleHandle
);
handle!(
    /// A kernel in a loaded module.
    FunctionHandle
);
handle!(
    /// Physical device memory, which can be mapped to reserved addresses.
    PhysicalHandle
);
handle!(
    /// An address in device memory; on the emulated device, a process address.
    DevicePtr
);

impl DevicePtr {
    /// The null address, also used for empty buffers.
    pub const NULL: DevicePtr = DevicePtr(0);

    /// Returns the address plus `bytes`.
    pub fn offset(self, bytes: usize) -> DevicePtr {
        DevicePtr(self.0 + bytes as u64)
    }
}

/// Kind and resources of a device.
///
/// ```
/// use warpsmith_driver::DeviceProperties;
///
/// /// Returns the number of threads that can be resident on the device at the same time.
/// fn resident_threads(device: &DeviceProperties) -> u32 {
///     device.multiprocessors * device.max_threads_per_multiprocessor
/// }
/// ```
///
/// The runtime's `Device::properties` returns the properties of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceProperties {
    /// Product name.
    pub name: String,
    /// UUID of the device, stable across processes.
    pub uuid: [u8; 16],
    /// Compute capability as (major, minor).
    pub capability: (u32, u32),
    /// Number of streaming multiprocessors (SMs).
    pub multiprocessors: u32,
    /// Total device memory in bytes.
    pub total_memory: u64,
    /// Size of the L2 cache in bytes.
    pub l2_cache: u64,
    /// Peak memory bandwidth in bytes per second, computed from memory clock and bus width as in data sheets; 0 if
    /// unknown.
    pub memory_bandwidth: u64,
    /// Maximum number of threads per block.
    pub max_threads_per_block: u32,
    /// Maximum block size in x, y and z.
    pub max_block: [u32; 3],
    /// Maximum grid size in x, y and z.
    pub max_grid: [u32; 3],
    /// Maximum number of resident threads per SM.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum number of resident blocks per SM.
    pub max_blocks_per_multiprocessor: u32,
    /// Number of 32-bit registers per SM.
    pub registers_per_multiprocessor: u32,
    /// Default shared memory per block, in bytes.
    pub shared_memory_per_block: u32,
    /// Maximum opt-in shared memory per block, in bytes.
    pub shared_memory_per_block_optin: u32,
    /// Shared memory per SM, in bytes.
    pub shared_memory_per_multiprocessor: u32,
    /// Shared memory per block that the system reserves, in bytes.
    pub reserved_shared_memory_per_block: u32,
    /// True if cooperative launches are supported.
    pub cooperative_launch: bool,
    /// Maximum portable cluster size in blocks; 0 if clusters are not supported.
    pub max_cluster: u32,
    /// Number of threads per warp.
    pub warp_size: u32,
    /// Version of the driver, for example `13.0`.
    pub driver_version: String,
}

/// Resources of a kernel, read from the loaded image.
///
/// ```
/// use warpsmith_driver::FunctionAttributes;
///
/// let kernel = FunctionAttributes { max_threads_per_block: 1024, registers: 64, ..Default::default() };
/// assert_eq!((256 * kernel.registers, kernel.local_memory), (16_384, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionAttributes {
    /// Maximum number of threads per block for this kernel on this device.
    pub max_threads_per_block: u32,
    /// Number of 32-bit registers per thread.
    pub registers: u32,
    /// Static shared memory in bytes per block.
    pub static_shared: u32,
    /// Local memory (stack and spills) in bytes per thread.
    pub local_memory: u32,
    /// Architecture of the machine code in use, as `10 * major + minor`; 0 on the emulated device.
    pub binary_arch: u32,
    /// Architecture of the PTX from which the machine code was compiled, as `10 * major + minor`; 0 on the emulated
    /// device.
    pub ptx_arch: u32,
}

/// Launch configuration of a kernel.
///
/// ```
/// use warpsmith_driver::LaunchConfig;
///
/// let config = LaunchConfig { cooperative: true, ..LaunchConfig::new([4, 1, 1], [256, 1, 1], 1024) };
/// assert_eq!(config.to_string(), "grid [4, 1, 1], block [256, 1, 1], 1024 bytes of shared memory, cooperative");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Grid size in blocks: x, y and z.
    pub grid: [u32; 3],
    /// Block size in threads: x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Cluster size in blocks: x, y and z. `[1, 1, 1]` means no clusters. The grid must be a multiple of the cluster.
    pub cluster: [u32; 3],
    /// True for a cooperative launch, whose blocks are all resident concurrently and can wait for each other.
    pub cooperative: bool,
    /// True for a programmatic dependent launch: the kernel may start once the preceding kernel on the stream permits
    /// it, before that kernel has finished.
    pub dependent: bool,
}

impl LaunchConfig {
    /// Creates the configuration of a plain launch.
    pub const fn new(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Self {
        Self { grid, block, shared_bytes, cluster: [1; 3], cooperative: false, dependent: false }
    }

    /// Returns true for a plain launch, which has no clusters and is neither cooperative nor dependent.
    pub const fn is_plain(&self) -> bool {
        matches!(self.cluster, [1, 1, 1]) && !self.cooperative && !self.dependent
    }
}

/// Formats the configuration, for example as
/// `grid [4, 1, 1], block [256, 1, 1], 1024 bytes of shared memory, clusters of [2, 1, 1], cooperative`.
impl fmt::Display for LaunchConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grid {:?}, block {:?}", self.grid, self.block)?;
        if self.shared_bytes > 0 {
            write!(f, ", {} bytes of shared memory", self.shared_bytes)?;
        }
        if self.cluster != [1; 3] {
            write!(f, ", clusters of {:?}", self.cluster)?;
        }
        if self.cooperative {
            f.write_str(", cooperative")?;
        }
        if self.dependent {
            f.write_str(", dependent")?;
        }
        Ok(())
    }
}

/// A limit of a context other than the stack limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextLimit {
    /// Size of the buffer for kernel `printf` output, in bytes.
    PrintBuffer,
    /// Size of the heap for `malloc` in kernels, in bytes.
    Heap,
    /// Maximum nesting depth at which kernels may wait for kernels that they have launched.
    SynchronizeDepth,
    /// Maximum number of pending launches from kernels.
    PendingLaunches,
    /// Maximum L2 fetch granularity in bytes.
    L2Fetch,
}

/// Form of a GPU image.
#[derive(Debug, Clone, Copy)]
pub enum ModuleSource<'a> {
    /// PTX text without a terminating NUL, which the driver compiles.
    Ptx(&'a [u8]),
    /// Machine code for one architecture (cubin) or several architectures (fatbin).
    Cubin(&'a [u8]),
    /// Code to be linked with a library at load time.
    Linked {
        /// Relocatable machine code for one architecture, or PTX text without a terminating NUL.
        code: &'a [u8],
        /// True if `code` is machine code.
        is_cubin: bool,
        /// NVIDIA's device runtime, `libcudadevrt.a`.
        library: &'a [u8],
    },
    /// No GPU code; the host entry points of the kernels run instead. The emulated driver accepts only this form.
    HostEntries,
}

/// Host function of a stream.
pub type HostFunction = Box<dyn FnOnce() + Send>;

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Host memory of the process.
    Host(*mut c_void),
    /// Device memory.
    Device(DevicePtr),
}

/// A pitched (strided) copy of rows.
#[derive(Debug, Clone, Copy)]
pub struct RowsCopy {
    /// Destination of the first row.
    pub dst: Place,
    /// Destination pitch: the number of bytes between the starts of adjacent rows, at least `row_bytes`.
    pub dst_pitch: usize,
    /// Source of the first row.
    pub src: Place,
    /// Source pitch: the number of bytes between the starts of adjacent rows, at least `row_bytes`.
    pub src_pitch: usize,
    /// Number of bytes per row, which must not be 0.
    pub row_bytes: usize,
    /// Number of rows, which must not be 0.
    pub rows: usize,
}

impl Place {
    /// Returns true for device memory.
    pub fn is_on_device(self) -> bool {
        matches!(self, Self::Device(_))
    }
}

impl RowsCopy {
    /// Returns a description of the overlap if a pitch is so small that rows overlap.
    pub fn overlap(&self) -> Option<String> {
        let (pitch, row) = (self.dst_pitch.min(self.src_pitch), self.row_bytes);
        (pitch < row).then(|| format!("a pitch of {pitch} bytes is less than a row of {row} bytes"))
    }

    /// Returns the direction of the copy.
    pub fn kind(&self) -> activity::ActivityTransfer {
        activity::ActivityTransfer::between(self.src.is_on_device(), self.dst.is_on_device())
    }
}

/// Kind of a kernel fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A panic, such as a failed assertion or an index out of bounds.
    Panic,
    /// A deadlock: threads wait for each other forever.
    Deadlock,
    /// Any other fault, for example misuse of a collective operation.
    Other,
}

/// Report of a kernel fault that made a context unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Kind of fault.
    pub kind: FaultKind,
    /// One-line message, such as a panic message or the description of a deadlock.
    pub message: String,
    /// Source location, `file:line:column`, if known.
    pub location: Option<String>,
    /// Kernel name, if the driver reports it.
    pub kernel: Option<String>,
    /// Block index, if known.
    pub block: Option<[u32; 3]>,
    /// Thread index within the block, if known.
    pub thread: Option<[u32; 3]>,
}

/// Guard created by [`Driver::bind`], during whose lifetime its thread may call libraries that use the device.
///
/// Meanwhile, graph captures on this or other threads do not restrict the thread's calls. Without this exemption, a
/// library that allocates memory or loads code on first use would invalidate a capture.
#[derive(Debug, Default)]
#[must_use]
pub struct LibraryCalls {
    _relaxed: Option<cuda::Relaxed>,
    /// Makes the guard `!Send`, because it must be dropped on the thread that created it.
    _of_thread: PhantomData<*const ()>,
}

/// The driver interface on which the runtime is built; see the [crate's documentation](crate).
///
/// # Safety of the unsafe methods
/// Methods that accept raw memory, kernel arguments, or handles that running work may use are `unsafe`. The caller must
/// guarantee that handles are alive and belong to this driver, and that memory stays valid until the work has finished.
///
/// # Safety
/// The layers above rely on a driver's results in `unsafe` code without checking them. Implementations must guarantee
/// the following:
/// - [`MemoryDriver::pinned_allocate`] returns `bytes` bytes of process memory, aligned to at least 256 bytes, that
///   does not overlap other memory and is valid for reads and writes until [`MemoryDriver::pinned_free`].
/// - [`MemoryDriver::host_address`] returns an address through which the given memory is accessible as long as it is
///   page-locked.
/// - [`MemoryDriver::memory_allocate`], [`MemoryDriver::stream_allocate`] and [`MemoryDriver::virtual_map`] provide
///   device memory that is disjoint from all other memory until it is freed or unmapped. The memory is aligned to at
///   least 256 bytes. If [`Self::name`] is `"emulated"`, the memory is process memory, valid for reads and writes, or
///   all work that uses it fails.
/// - Handles stay valid until they are destroyed, and no two live handles are equal.
/// - Work on one stream runs in order. Work enqueued after [`StreamDriver::stream_wait_event`] runs after all work that
///   precedes the event's last recording.
/// - Waiting calls ([`StreamDriver::stream_synchronize`], [`StreamDriver::event_synchronize`],
///   [`Self::context_synchronize`]) return only after all of the work has stopped running, even if they return an
///   error. [`StreamDriver::stream_query`] and [`StreamDriver::event_query`] return `true` only under the same
///   condition.
/// - Copies, memsets and launches access only the memory that they specify, and only until they finish. Arguments and
///   specs are not used after the call returns.
/// - A host function is called at most once (a [`GraphFunction`], at most once per launch) and dropped once.
///
/// An error from a call implies nothing about work enqueued earlier.
pub unsafe trait Driver:
    MemoryDriver + StreamDriver + CodeDriver + GraphDriver + ActivityDriver + Send + Sync + Debug
{
    /// Returns the name of the driver, `"cuda"` or `"emulated"`.
    fn name(&self) -> &'static str;

    /// Returns the number of devices.
    fn device_count(&self) -> Result<u32>;
    /// Returns the properties of device `ordinal`.
    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties>;

    /// Retains the primary context of a device.
    fn context_retain(&self, ordinal: u32) -> Result<Context>;
    /// Releases the primary context of a device. The last release destroys the context.
    fn context_release(&self, ordinal: u32);
    /// Makes the context current on the calling thread, for library calls.
    fn bind(&self, _context: Context) -> Result<LibraryCalls> {
        Ok(LibraryCalls::default())
    }
    /// Waits for all work enqueued on the context.
    fn context_synchronize(&self, context: Context) -> Result<()>;
    /// Returns the stack limit in bytes per thread.
    fn context_stack_limit(&self, context: Context) -> Result<usize>;
    /// Sets the stack limit for later launches. The driver may round it up. The call may wait for the context's work,
    /// and allocates `bytes` bytes of device memory for each thread that can be resident on the device. Returns
    /// `CUDA_ERROR_INVALID_VALUE` if `bytes` exceeds the device's maximum.
    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()>;
    /// Returns a limit of the context other than the stack limit. Returns `CUDA_ERROR_UNSUPPORTED_LIMIT` if the device
    /// does not support the limit.
    fn context_limit(&self, context: Context, limit: ContextLimit) -> Result<usize>;
    /// Sets a limit of the context other than the stack limit. The driver may round the value. Some limits can be set
    /// only before the first launch of a kernel that they affect.
    fn context_set_limit(&self, context: Context, limit: ContextLimit, value: usize) -> Result<()>;
    /// Takes the fault report of the kernel that made this context unusable, if any.
    fn take_fault(&self, context: Context) -> Option<Fault>;

    /// Takes the check findings of completed launches that the calling thread enqueued, except those collected by a
    /// scope of [`Self::collect_findings`]. Empty if kernels are not checked.
    fn take_findings(&self) -> Findings {
        Findings::default()
    }
    /// Starts a scope that collects the findings of launches that the calling thread enqueues while the scope exists.
    /// Returns `None` if kernels are not checked.
    fn collect_findings(&self) -> Option<Box<dyn FindingScope>> {
        None
    }

    /// Returns true if device `ordinal` can access the memory of device `peer`.
    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool>;
    /// Returns the number of NVLinks that connect two devices, directly or through a switch; 0 if there are none or the
    /// system does not report them. Requires no context.
    fn peer_nvlinks(&self, _ordinal: u32, _peer: u32) -> u32 {
        0
    }
    /// Grants `context` access to the memory of the context `peer`, except mapped memory, which requires
    /// [`MemoryDriver::virtual_set_access`]. Succeeds if access is already enabled.
    fn peer_enable(&self, context: Context, peer: Context) -> Result<()>;
    /// Returns the device memory usage of every process as (process ID, bytes). Empty if the system does not report it.
    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)>;
    /// Returns clocks, temperature and power of device `ordinal`. Values that the system or the driver does not report
    /// are `None`. Requires no context.
    fn telemetry(&self, _ordinal: u32) -> Result<Telemetry> {
        Ok(Telemetry::default())
    }
    /// Returns the SM clock of device `ordinal` in MHz, if the system reports it. Called often, so it must not allocate
    /// memory after the first call.
    fn sm_clock_mhz(&self, _ordinal: u32) -> Option<u32> {
        None
    }

    /// Enqueues a copy from host to device.
    ///
    /// # Safety
    /// Both ranges must be valid for `bytes` bytes until the copy has run.
    unsafe fn copy_to_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: *const c_void,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy from device to host.
    ///
    /// # Safety
    /// Both ranges must be valid for `bytes` bytes until the copy has run.
    unsafe fn copy_to_host(
        &self,
        context: Context,
        dst: *mut c_void,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy within a device. The ranges must not overlap.
    ///
    /// # Safety
    /// Both ranges must be valid for `bytes` bytes until the copy has run.
    unsafe fn copy_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy between two devices, or within one device. Peer access is not required. The stream must belong
    /// to `context`, and `context` must belong to one of the two devices. The ranges must not overlap.
    ///
    /// # Safety
    /// Both ranges must be valid for `bytes` bytes until the copy has run.
    unsafe fn copy_peer(
        &self,
        context: Context,
        dst: (Context, DevicePtr),
        src: (Context, DevicePtr),
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a pitched copy of rows. If the driver cannot copy all rows at once, for example because a pitch exceeds
    /// the hardware's limit, copies each row separately.
    ///
    /// # Safety
    /// Every row of both sides must be valid until the copy has run, and no row of the destination may overlap another
    /// row of either side.
    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()>;
    /// Enqueues a memset that sets every byte to `value`.
    ///
    /// # Safety
    /// The range must be valid for `bytes` bytes until the work has run.
    unsafe fn memset(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
}
