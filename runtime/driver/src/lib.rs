//! The [`Driver`] trait: everything the runtime needs of a machine, and no policy.
//!
//! A driver is one way of reaching devices: [`cuda`] through the CUDA driver library, the crate `warpsmith-emulated` on the
//! CPU, which registers itself in [`EMULATED`].
//! Each call does one thing and holds no policy: no caching, no choice of stream, no retry. Everything above
//! this module is written once and runs on either.
//!
//! Handles are plain integers ([`Context`], [`StreamHandle`], …). A driver trusts them: the layers above own
//! them, keep them alive while they are in use and release each one once.
//!
//! Ordering: work enqueued on one stream runs in order; nothing orders two streams but an event recorded on
//! one and waited for on the other. Errors of earlier asynchronous work may surface in any later call on the
//! same context, after which the context is lost ([`Driver::take_fault`] says what the kernel left behind).

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
pub mod counters;
pub mod cuda;
pub mod error;
mod graph;
pub mod host_function;
pub mod library_paths;
mod memory;
mod stream;
mod telemetry;

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use self::activity::ActivityDriver;
use self::check::{FindingScope, Findings};
pub use self::code::CodeDriver;
use self::counters::CounterDriver;
pub use self::error::{DriverError, Result};
pub use self::graph::{
    CaptureMode, CaptureStatus, ConditionHandle, ConditionalKind, Edge, ExecUpdate, GraphDriver,
    GraphExecHandle, GraphFunction, GraphHandle, NodeHandle, NodeInfo, NodeWork,
};
pub use self::host_function::{HostAccess, HostWork};
pub use self::memory::{ExportedMemory, MemoryDriver};
pub use self::stream::{IPC_EVENT_BYTES, StreamDriver};
pub use self::telemetry::Telemetry;

/// Gives the driver of emulated devices, one for the process. The crate `warpsmith-emulated` adds the one function that there
/// is in a program with the feature `emulated`.
#[linkme::distributed_slice]
pub static EMULATED: [fn() -> Arc<dyn Driver>];

handle!(
    /// A device's primary context.
    Context
);
handle!(
    /// A queue of work on a device.
    StreamHandle
);
handle!(
    /// A mark in a stream.
    EventHandle
);
handle!(
    /// A loaded image of kernels.
    ModuleHandle
);
handle!(
    /// A kernel in a loaded module.
    FunctionHandle
);
handle!(
    /// Device memory without an address, to be mapped into reserved addresses.
    PhysicalHandle
);
handle!(
    /// An address in device memory. On the emulated device it is an address of the process.
    DevicePtr
);

impl DevicePtr {
    /// The null address; what a buffer of no bytes has.
    pub const NULL: DevicePtr = DevicePtr(0);

    /// The address `bytes` further on.
    pub fn offset(self, bytes: usize) -> DevicePtr {
        DevicePtr(self.0 + bytes as u64)
    }
}

/// The kind and the resources of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceProperties {
    /// The product's name.
    pub name: String,
    /// The device's identity, stable across processes.
    pub uuid: [u8; 16],
    /// Compute capability as (major, minor).
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory in bytes.
    pub total_memory: u64,
    /// L2 cache in bytes.
    pub l2_cache: u64,
    /// Highest memory bandwidth in bytes per second by the data sheet's rule (clock × bus width), 0 if unknown.
    pub memory_bandwidth: u64,
    /// Largest number of threads in a block.
    pub max_threads_per_block: u32,
    /// Largest block in x, y and z.
    pub max_block: [u32; 3],
    /// Largest grid in x, y and z.
    pub max_grid: [u32; 3],
    /// Threads that can be resident on a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Blocks that can be resident on a multiprocessor.
    pub max_blocks_per_multiprocessor: u32,
    /// Registers (of 32 bits) of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Default shared memory of a block, in bytes.
    pub shared_memory_per_block: u32,
    /// Maximum opt-in shared memory of a block, in bytes.
    pub shared_memory_per_block_optin: u32,
    /// Shared memory in bytes of a multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// Shared memory in bytes of each block that the system keeps for itself.
    pub reserved_shared_memory_per_block: u32,
    /// Whether grids can be launched whose blocks wait for each other.
    pub cooperative_launch: bool,
    /// Blocks of the largest cluster that every kernel can have; 0 where there are no clusters.
    pub max_cluster: u32,
    /// Threads in a warp.
    pub warp_size: u32,
    /// Version of the driver, for example `13.0`.
    pub driver_version: String,
}

/// The resources of a kernel, read from the loaded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionAttributes {
    /// Most threads a block of this kernel may have on this device.
    pub max_threads_per_block: u32,
    /// Registers (of 32 bits) a thread.
    pub registers: u32,
    /// Static shared memory in bytes per block.
    pub static_shared: u32,
    /// Local memory (stack and spills) in bytes per thread.
    pub local_memory: u32,
    /// `10 * major + minor` of the machine code in use; 0 on the emulated device.
    pub binary_arch: u32,
}

/// A grid of blocks of threads, and how it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster in x, y and z; a cluster of one block is none. The grid is a multiple of it.
    pub cluster: [u32; 3],
    /// Whether all blocks are on the device at once, so that they can wait for each other.
    pub cooperative: bool,
    /// Whether it may start when the kernel before it on the stream allows it, before that one is done.
    pub dependent: bool,
}

impl LaunchConfig {
    /// A plain launch.
    pub const fn new(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Self {
        Self { grid, block, shared_bytes, cluster: [1; 3], cooperative: false, dependent: false }
    }

    /// Whether it is a plain launch: no clusters, not cooperative, not dependent.
    pub const fn is_plain(&self) -> bool {
        matches!(self.cluster, [1, 1, 1]) && !self.cooperative && !self.dependent
    }
}

/// `grid [4, 1, 1], block [256, 1, 1], 1024 bytes of shared memory, clusters of [2, 1, 1], cooperative`
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

/// A limit of a context, beside that of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextLimit {
    /// Bytes of the buffer for text that kernels print.
    PrintBuffer,
    /// Bytes of the heap of `malloc` in kernels.
    Heap,
    /// How deep a kernel may wait for kernels that it launched.
    SynchronizeDepth,
    /// How many launches from kernels may be pending.
    PendingLaunches,
    /// Bytes that the L2 cache fetches at once, at most.
    L2Fetch,
}

/// One form of a GPU image.
#[derive(Debug, Clone, Copy)]
pub enum ModuleSource<'a> {
    /// PTX text for the driver to compile, without the terminating zero.
    Ptx(&'a [u8]),
    /// Machine code of one architecture (a cubin), or code of several (a fatbin).
    Cubin(&'a [u8]),
    /// Code to be linked with a library when it is loaded.
    Linked {
        /// Relocatable machine code of one architecture, or PTX text without the terminating zero.
        code: &'a [u8],
        /// Whether it is machine code.
        is_cubin: bool,
        /// NVIDIA's device runtime, `libcudadevrt.a`.
        library: &'a [u8],
    },
    /// No code: the kernels' host entries run instead. The only form the emulated driver takes.
    HostEntries,
}

/// A function that a stream calls on the host.
pub type HostFunction = Box<dyn FnOnce() + Send>;

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Memory of the process.
    Host(*mut c_void),
    /// Memory of a device.
    Device(DevicePtr),
}

/// A copy of rows that lie apart.
#[derive(Debug, Clone, Copy)]
pub struct RowsCopy {
    /// Where the first row goes.
    pub dst: Place,
    /// Bytes from the start of one row to the next there, at least `row_bytes`.
    pub dst_pitch: usize,
    /// Where the first row comes from.
    pub src: Place,
    /// Bytes from the start of one row to the next there, at least `row_bytes`.
    pub src_pitch: usize,
    /// Bytes of a row, not zero.
    pub row_bytes: usize,
    /// The number of rows, not zero.
    pub rows: usize,
}

impl Place {
    /// True for device memory.
    pub fn is_on_device(self) -> bool {
        matches!(self, Self::Device(_))
    }
}

impl RowsCopy {
    /// Why its rows overlap, if a pitch is too small.
    pub fn overlap(&self) -> Option<String> {
        let (pitch, row) = (self.dst_pitch.min(self.src_pitch), self.row_bytes);
        (pitch < row).then(|| format!("a pitch of {pitch} bytes is less than a row of {row} bytes"))
    }

    /// From where to where it copies.
    pub fn kind(&self) -> activity::ActivityTransfer {
        activity::ActivityTransfer::between(self.src.is_on_device(), self.dst.is_on_device())
    }
}

/// The kind of fault that stopped a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A panic: a failed assertion, an index out of bounds.
    Panic,
    /// Threads that wait for each other forever.
    Deadlock,
    /// Anything else, for example a misuse of a collective.
    Other,
}

/// The report of a kernel that stopped a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// One line: a panic's text, a deadlock's description.
    pub message: String,
    /// Where in the source, `file:line:column`, when known.
    pub location: Option<String>,
    /// The kernel's name, when the driver knows it.
    pub kernel: Option<String>,
    /// The block, when known.
    pub block: Option<[u32; 3]>,
    /// The thread in its block, when known.
    pub thread: Option<[u32; 3]>,
}

/// While it lives, its thread may call libraries: see [`Driver::bind`].
///
/// Captures of graphs then forbid it nothing, neither those of this thread nor those of others. Libraries allocate and
/// load code when they first do something, which a capture would refuse, and which would invalidate it.
#[derive(Debug, Default)]
#[must_use]
pub struct LibraryCalls {
    _relaxed: Option<cuda::Relaxed>,
    /// It is dropped on the thread that made it.
    _of_thread: PhantomData<*const ()>,
}

/// The machine behind the runtime. See the module's documentation for the rules.
///
/// # Safety of the unsafe methods
///
/// Those that take raw memory, handles in use by running work or kernel arguments are `unsafe`: the caller
/// promises that handles are alive and of this driver, and that memory stays valid until the work is done.
///
/// # Safety
/// The layers above use what a driver returns in `unsafe` code without checking it. An implementation promises:
/// - [`MemoryDriver::pinned_allocate`] returns memory of the process: `bytes` long, aligned to at least 256, disjoint from everything
///   else, and valid for reads and writes until [`MemoryDriver::pinned_free`].
/// - [`MemoryDriver::host_address`] returns an address behind which is the memory that was named, as long as it is page-locked.
/// - [`MemoryDriver::memory_allocate`], [`MemoryDriver::stream_allocate`] and [`MemoryDriver::virtual_map`] give device memory that is disjoint from all
///   other memory until it is freed or unmapped. It is aligned to at least 256 bytes. If [`Self::name`] is `"emulated"`, either
///   it is memory of the process, valid for reads and writes, or all work that names it fails.
/// - Handles stay valid until they are destroyed, and no two live ones are equal.
/// - Work of one stream runs in order. Work behind [`StreamDriver::stream_wait_event`] runs after the work before the event's last
///   record. Calls that wait ([`StreamDriver::stream_synchronize`], [`StreamDriver::event_synchronize`], [`Self::context_synchronize`]) return
///   when none of the work runs any more, whatever they return; [`StreamDriver::stream_query`] and
///   [`StreamDriver::event_query`] return `true` only then.
/// - Copies, fills and launches touch the memory that they name and no other, and only until they are done. Arguments and
///   specs are not used after the call.
/// - A function is called at most once ([`GraphFunction`]: once for each launch), and dropped once.
///
/// An error of a call promises nothing about work that was enqueued before it.
pub unsafe trait Driver:
    MemoryDriver + StreamDriver + CodeDriver + GraphDriver + ActivityDriver + CounterDriver + Send + Sync + Debug
{
    /// `"cuda"` or `"emulated"`.
    fn name(&self) -> &'static str;

    /// The number of devices.
    fn device_count(&self) -> Result<u32>;
    /// The properties of device `ordinal`.
    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties>;

    /// Retains the primary context of a device.
    fn context_retain(&self, ordinal: u32) -> Result<Context>;
    /// Releases it; the last release destroys it.
    fn context_release(&self, ordinal: u32);
    /// Makes the context the calling thread's current one, for calls of libraries that enqueue work by themselves.
    fn bind(&self, _context: Context) -> Result<LibraryCalls> {
        Ok(LibraryCalls::default())
    }
    /// Waits for everything enqueued on the context.
    fn context_synchronize(&self, context: Context) -> Result<()>;
    /// The stack limit: bytes of stack that each thread of a kernel can use, at least.
    fn context_stack_limit(&self, context: Context) -> Result<usize>;
    /// Sets the stack limit of launches that follow; the driver may round it up. It can wait for the context's work, and
    /// allocates `bytes` bytes of device memory for each thread resident on the device at once. Fails with
    /// `CUDA_ERROR_INVALID_VALUE` over the largest that the device can have.
    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()>;
    /// Another limit of the context. Fails with `CUDA_ERROR_UNSUPPORTED_LIMIT` where the device has no such limit.
    fn context_limit(&self, context: Context, limit: ContextLimit) -> Result<usize>;
    /// Sets another limit of the context; the driver may round it. Some can only be set before the first launch of a kernel that
    /// they concern.
    fn context_set_limit(&self, context: Context, limit: ContextLimit, value: usize) -> Result<()>;
    /// The report of the kernel that stopped this context, if there is one.
    fn take_fault(&self, context: Context) -> Option<Fault>;

    /// Takes what a check of kernels found in launches that the calling thread has enqueued and that have run, except those of
    /// a scope of [`Self::collect_findings`]. Nothing where kernels are not checked.
    fn take_findings(&self) -> Findings {
        Findings::default()
    }
    /// Begins a scope that has the findings in launches which the calling thread enqueues while it lives. `None` where
    /// kernels are not checked.
    fn collect_findings(&self) -> Option<Box<dyn FindingScope>> {
        None
    }

    /// Whether device `ordinal` can reach the memory of device `peer`.
    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool>;
    /// The number of NVLinks by which two devices are connected, directly or through a switch; 0 where there are none or
    /// the system does not say. Needs no context.
    fn peer_nvlinks(&self, _ordinal: u32, _peer: u32) -> u32 {
        0
    }
    /// Lets `context` reach the memory of `peer`'s context; already allowed is no error. This does not
    /// apply to mapped memory: see [`MemoryDriver::virtual_set_access`].
    fn peer_enable(&self, context: Context, peer: Context) -> Result<()>;
    /// Device memory of every process that the system reports (pid, bytes); empty where it reports none.
    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)>;
    /// Clocks, temperature and power of device `ordinal`; everything is `None` where the system does not report it, and
    /// on a driver without telemetry. Needs no context.
    fn telemetry(&self, _ordinal: u32) -> Result<Telemetry> {
        Ok(Telemetry::default())
    }
    /// Clock of the multiprocessors of device `ordinal` in MHz, where the system reports it. It is called often: it
    /// allocates nothing after the first call.
    fn sm_clock_mhz(&self, _ordinal: u32) -> Option<u32> {
        None
    }

    /// Enqueues a copy from host to device.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` until the copy has run.
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
    /// Both ranges are valid for `bytes` until the copy has run.
    unsafe fn copy_to_host(
        &self,
        context: Context,
        dst: *mut c_void,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy within a device. The ranges do not overlap.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` until the copy has run.
    unsafe fn copy_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy between two devices, or within one, whether or not they reach each other's memory. The stream
    /// is of `context`, which is that of one of them. The ranges do not overlap.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` until the copy has run.
    unsafe fn copy_peer(
        &self,
        context: Context,
        dst: (Context, DevicePtr),
        src: (Context, DevicePtr),
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
    /// Enqueues a copy of rows. If the driver does not take it as one copy, for example because a pitch is over
    /// the hardware's limit, each row is a copy.
    ///
    /// # Safety
    /// Every row of both sides is valid until the copy has run, and no row of the target overlaps another row of
    /// either side.
    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()>;
    /// Enqueues setting every byte to `value`.
    ///
    /// # Safety
    /// The range is valid for `bytes` until the work has run.
    unsafe fn memset(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()>;
}
