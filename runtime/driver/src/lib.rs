//! The [`Driver`] trait: everything the runtime asks of a machine, and nothing it decides.
//!
//! A driver is one way of reaching devices: [`cuda`] through the CUDA driver library, [`emulated`] on the CPU.
//! Each call does one thing and holds no policy: no caching, no choice of stream, no retry. Everything above
//! this module is written once and runs on either.
//!
//! Handles are plain integers ([`Context`], [`StreamHandle`], …). A driver trusts them: the layers above own
//! them, keep them alive while they are in use and give each one back once.
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

pub mod cuda;
pub mod emulated;
pub mod error;
mod graph;
pub mod host_function;
mod telemetry;

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::marker::PhantomData;

use gpu_spec::KernelSpec;

pub use self::error::{DriverError, Result};
pub use self::graph::{
    CaptureMode, CaptureStatus, ConditionHandle, ConditionalKind, Edge, ExecUpdate, GraphDriver,
    GraphExecHandle, GraphFunction, GraphHandle, NodeHandle, NodeInfo, NodeWork,
};
pub use self::host_function::{HostAccess, HostWork};
pub use self::telemetry::Telemetry;

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

/// What a device is and how much it has.
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
    /// Highest memory bandwidth in bytes a second by the data sheet's rule (clock × bus width), 0 if unknown.
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
    /// Shared memory in bytes a block gets without asking for more.
    pub shared_memory_per_block: u32,
    /// Shared memory in bytes a block can ask for.
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

/// What a kernel needs, read from the loaded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionAttributes {
    /// Most threads a block of this kernel may have on this device.
    pub max_threads_per_block: u32,
    /// Registers (of 32 bits) a thread.
    pub registers: u32,
    /// Static shared memory in bytes a block.
    pub static_shared: u32,
    /// Local memory (stack and spills) in bytes a thread.
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

/// How two devices are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// They are the same device.
    Same,
    /// By so many NVLinks, directly or through a switch.
    NvLink(u32),
    /// By PCIe, under one switch or board.
    PcieSwitch,
    /// By PCIe, through a host bridge of one CPU.
    PcieHost,
    /// Through the link between CPUs.
    System,
    /// Both are emulated and share the process's memory.
    Emulated,
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for LinkKind {
    /// In a few words: `NVLink x18`, `PCIe switch`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkKind::Same => f.pad("same device"),
            LinkKind::NvLink(links) => f.pad(&format!("NVLink x{links}")),
            LinkKind::PcieSwitch => f.pad("PCIe switch"),
            LinkKind::PcieHost => f.pad("PCIe host bridge"),
            LinkKind::System => f.pad("between CPUs"),
            LinkKind::Emulated => f.pad("emulated"),
            LinkKind::Unknown => f.pad("unknown"),
        }
    }
}

/// What kind of fault stopped a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A panic: a failed assertion, an index out of bounds.
    Panic,
    /// Threads that wait for each other forever.
    Deadlock,
    /// Anything else, for example a misuse of a collective.
    Other,
}

/// What a kernel left behind when it stopped a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind of fault it was.
    pub kind: FaultKind,
    /// What happened, in a line: a panic's text, a deadlock's description.
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

/// While it is there, the thread that has it may call libraries: see [`Driver::bind`].
///
/// Captures of graphs then forbid it nothing, neither those of this thread nor those of others. Libraries allocate and
/// load code when they first do something, which a capture would refuse, and which would spoil it.
#[derive(Debug, Default)]
#[must_use]
pub struct LibraryCalls {
    _relaxed: Option<cuda::Relaxed>,
    /// It is given back on the thread that it is of.
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
/// - [`Self::pinned_allocate`] returns memory of the process: `bytes` long, aligned to at least 256, disjoint from everything
///   else, and valid for reads and writes until [`Self::pinned_free`].
/// - [`Self::host_address`] returns an address behind which is the memory that was named, as long as it is page-locked.
/// - [`Self::memory_allocate`], [`Self::stream_allocate`] and [`Self::virtual_map`] give device memory that is disjoint from all
///   other memory until it is freed or unmapped. It is aligned to at least 256 bytes. If [`Self::name`] is `"emulated"`, either
///   it is memory of the process, valid for reads and writes, or all work that names it fails.
/// - Handles stay valid until they are destroyed, and no two live ones are equal.
/// - Work of one stream runs in order. Work behind [`Self::stream_wait_event`] runs after the work before the event's last
///   record. Calls that wait ([`Self::stream_synchronize`], [`Self::event_synchronize`], [`Self::context_synchronize`]) return
///   when none of the work runs any more, whatever they return; [`Self::stream_query`] and [`Self::event_query`] answer `true`
///   only then.
/// - Copies, fills and launches touch the memory that they name and no other, and only until they are done. Arguments and
///   specs are not used after the call.
/// - A function is called at most once ([`GraphFunction`]: once for each launch), and dropped once.
///
/// An error of a call promises nothing about work that was enqueued before it.
pub unsafe trait Driver: GraphDriver + Send + Sync + Debug {
    /// `"cuda"` or `"emulated"`.
    fn name(&self) -> &'static str;

    /// The number of devices.
    fn device_count(&self) -> Result<u32>;
    /// What device `ordinal` is.
    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties>;

    /// Retains the primary context of a device.
    fn context_retain(&self, ordinal: u32) -> Result<Context>;
    /// Gives it back; the last one destroys it.
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
    /// allocates as many bytes of device memory for each thread that the device holds at once. Fails with
    /// `CUDA_ERROR_INVALID_VALUE` over the largest that the device can have.
    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()>;
    /// What a kernel that stopped this context left behind, if it left anything.
    fn take_fault(&self, context: Context) -> Option<Fault>;

    /// Free and total bytes of device memory.
    fn memory_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Allocates device memory, aligned to at least 256 bytes. `bytes` is not zero.
    fn memory_allocate(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Frees it.
    ///
    /// # Safety
    /// `ptr` came from [`Driver::memory_allocate`], and no enqueued work uses it.
    unsafe fn memory_free(&self, context: Context, ptr: DevicePtr) -> Result<()>;
    /// Allocates page-locked host memory that the device can read and write, aligned to at least 256 bytes.
    /// `bytes` is not zero.
    fn pinned_allocate(&self, context: Context, bytes: usize) -> Result<*mut c_void>;
    /// Frees it.
    ///
    /// # Safety
    /// `ptr` came from [`Driver::pinned_allocate`], and no enqueued work uses it.
    unsafe fn pinned_free(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// Page-locks memory of the process, so that every device can read and write it. `bytes` is not zero. Memory of which a
    /// byte is registered already is an error.
    ///
    /// # Safety
    /// The `bytes` at `ptr` are memory of the process, which stays until [`Driver::host_unregister`].
    unsafe fn host_register(&self, context: Context, ptr: *mut c_void, bytes: usize) -> Result<()>;
    /// Takes [`Driver::host_register`] back.
    ///
    /// # Safety
    /// `ptr` was registered, and no enqueued work uses the memory.
    unsafe fn host_unregister(&self, context: Context, ptr: *mut c_void) -> Result<()>;
    /// The address by which kernels of the context reach page-locked memory, allocated or registered. An error for other
    /// memory.
    fn host_address(&self, context: Context, ptr: *mut c_void) -> Result<DevicePtr>;
    /// The ordinal of the device that has the memory at an address; `None` for memory of the host, and for managed memory. An
    /// error for an address that the driver does not know.
    fn memory_device(&self, context: Context, ptr: DevicePtr) -> Result<Option<u32>>;

    /// Smallest unit in bytes of mapped memory; `None` when the device cannot map memory into reserved addresses.
    fn virtual_granularity(&self, context: Context) -> Result<Option<usize>>;
    /// Reserves addresses; no memory is behind them. `bytes` is a multiple of the granularity and not zero.
    fn virtual_reserve(&self, context: Context, bytes: usize) -> Result<DevicePtr>;
    /// Gives a whole reservation back.
    ///
    /// # Safety
    /// `ptr` and `bytes` are those of a [`Driver::virtual_reserve`], and nothing is mapped there.
    unsafe fn virtual_release(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Makes device memory without an address. `bytes` is a multiple of the granularity and not zero.
    fn physical_create(&self, context: Context, bytes: usize) -> Result<PhysicalHandle>;
    /// Gives the handle back. While the memory is mapped it stays; it is freed when it is unmapped too.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn physical_release(&self, context: Context, handle: PhysicalHandle) -> Result<()>;
    /// Puts memory behind reserved addresses. No device can use it before [`Driver::virtual_set_access`].
    ///
    /// # Safety
    /// The range is reserved and nothing is mapped there; `bytes` is all that the handle has, and the handle is
    /// not mapped elsewhere.
    unsafe fn virtual_map(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> Result<()>;
    /// Takes the memory away again. It does not wait for work.
    ///
    /// # Safety
    /// The range consists of whole mappings, and no enqueued work uses it.
    unsafe fn virtual_unmap(&self, context: Context, ptr: DevicePtr, bytes: usize) -> Result<()>;
    /// Lets devices (by ordinal) read and write a mapped range, besides those that may already.
    ///
    /// # Safety
    /// The range consists of whole mappings.
    unsafe fn virtual_set_access(
        &self,
        context: Context,
        ptr: DevicePtr,
        bytes: usize,
        ordinals: &[u32],
    ) -> Result<()>;

    /// Allocates memory from the driver's own pool, for work that comes later on `stream`. `bytes` is not zero.
    fn stream_allocate(&self, context: Context, bytes: usize, stream: StreamHandle) -> Result<DevicePtr>;
    /// Gives it back to the pool when `stream` has come so far.
    ///
    /// # Safety
    /// `ptr` came from [`Driver::stream_allocate`]; work that uses it is ordered before this.
    unsafe fn stream_free(&self, context: Context, ptr: DevicePtr, stream: StreamHandle) -> Result<()>;
    /// Bytes the driver's pool holds for the process, and bytes of them in use: (reserved, used).
    fn stream_pool_info(&self, context: Context) -> Result<(u64, u64)>;
    /// Gives back what the pool holds above `keep` bytes and nobody uses.
    fn stream_pool_trim(&self, context: Context, keep: u64) -> Result<()>;

    /// Whether device `ordinal` can reach the memory of device `peer`.
    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool>;
    /// How two devices are connected, as far as the system tells. It does not say whether they reach each other's
    /// memory. Needs no context.
    fn peer_link(&self, ordinal: u32, peer: u32) -> LinkKind;
    /// Lets `context` reach the memory of `peer`'s context; already allowed is no error. Mapped memory is not
    /// meant: who reaches that is said by [`Driver::virtual_set_access`].
    fn peer_enable(&self, context: Context, peer: Context) -> Result<()>;
    /// Device memory of every process that the system tells of (pid, bytes); empty where it does not tell.
    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)>;
    /// Clocks, temperature and power of device `ordinal`; everything is `None` where the system does not tell, and on
    /// a driver that knows nothing of it. Needs no context.
    fn telemetry(&self, _ordinal: u32) -> Result<Telemetry> {
        Ok(Telemetry::default())
    }
    /// Clock of the multiprocessors of device `ordinal` in MHz, where the system tells. It is asked often: it allocates
    /// nothing after the first call.
    fn sm_clock_mhz(&self, _ordinal: u32) -> Option<u32> {
        None
    }

    /// The priorities that streams can have: (least urgent, most urgent). Lower numbers are more urgent.
    fn stream_priorities(&self, context: Context) -> Result<(i32, i32)>;
    /// Creates a stream that does not order itself with the legacy default stream. A priority beyond the range
    /// counts as its end.
    fn stream_create(&self, context: Context, priority: i32) -> Result<StreamHandle>;
    /// A number that no other stream of the process ever has, also when its handle is used again. Fails with
    /// `CUDA_ERROR_INVALID_HANDLE` for a stream of another context and, where the driver can tell, for one that was
    /// destroyed. A driver older than CUDA 12 gives the handle's value, which a later stream may have again.
    fn stream_unique_id(&self, context: Context, stream: StreamHandle) -> Result<u64>;
    /// The priority that the stream has: the one it was created with, or the end of the range that was nearer.
    fn stream_priority(&self, context: Context, stream: StreamHandle) -> Result<i32>;
    /// Destroys a stream; work already enqueued still runs.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn stream_destroy(&self, context: Context, stream: StreamHandle);
    /// Whether everything enqueued so far has run.
    fn stream_query(&self, context: Context, stream: StreamHandle) -> Result<bool>;
    /// Waits until it has.
    fn stream_synchronize(&self, context: Context, stream: StreamHandle) -> Result<()>;
    /// Makes later work on `stream` wait for `event`.
    fn stream_wait_event(&self, context: Context, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Enqueues a call of a function on a thread of the driver's own; later work of the stream waits for it.
    ///
    /// It must not call the driver, nor own what does so when it is dropped: calls from inside it fail with
    /// `CUDA_ERROR_NOT_PERMITTED`. When the context stops first, it is dropped without a call, at the latest with
    /// the last release of the context. A panic in it is caught and forgotten.
    fn host_function(&self, context: Context, stream: StreamHandle, function: HostFunction) -> Result<()>;

    /// Enqueues work of the host on device memory. On a stream that is being captured it becomes part of the graph.
    /// Fails where the host cannot reach what the work names. A panic in it stops the context.
    ///
    /// # Safety
    /// The work uses no device memory but what it names, which is valid until the work has run, at each launch.
    unsafe fn host_work(&self, _context: Context, _stream: StreamHandle, _work: HostWork) -> Result<()> {
        let (name, text) =
            ("CUDA_ERROR_NOT_SUPPORTED".to_owned(), "the host cannot reach device memory".to_owned());
        Err(DriverError::Call { call: "host_work", code: error::code::NOT_SUPPORTED, name, text })
    }

    /// Creates an event.
    fn event_create(&self, context: Context, timing: bool) -> Result<EventHandle>;
    /// Creates an event without timing that other processes can be given. Fails with `CUDA_ERROR_NOT_SUPPORTED` where
    /// processes share no events.
    fn event_create_shared(&self, context: Context) -> Result<EventHandle>;
    /// What another process needs to use an event of [`Driver::event_create_shared`], while it is alive.
    fn event_export(&self, context: Context, event: EventHandle) -> Result<[u8; 64]>;
    /// The event that another process exported. It is destroyed as any other; the exporting process keeps its own.
    fn event_import(&self, context: Context, exported: [u8; 64]) -> Result<EventHandle>;
    /// Destroys it.
    ///
    /// # Safety
    /// The handle is not used again.
    unsafe fn event_destroy(&self, context: Context, event: EventHandle);
    /// Records it after everything enqueued on `stream` so far.
    fn event_record(&self, context: Context, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Whether the work before its last record has run; an event never recorded counts as complete.
    fn event_query(&self, context: Context, event: EventHandle) -> Result<bool>;
    /// Waits until it has.
    fn event_synchronize(&self, context: Context, event: EventHandle) -> Result<()>;
    /// Microseconds between two recorded, completed events with timing.
    fn event_elapsed(&self, context: Context, start: EventHandle, end: EventHandle) -> Result<f64>;

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
    /// Enqueues a copy of rows. What the driver does not take as one copy, for example because a pitch is over the
    /// limit of its hardware, goes as one copy a row.
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

    /// The newest PTX version the driver compiles, as `10 * major + minor`; `None` where it does not matter.
    fn max_ptx_version(&self) -> Option<u32>;
    /// Loads an image, and points its panic mailbox at the context's.
    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle>;
    /// Unloads it.
    ///
    /// # Safety
    /// No work that uses the module is enqueued, and no function of it is used again.
    unsafe fn module_unload(&self, context: Context, module: ModuleHandle);
    /// Finds a kernel.
    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle>;
    /// The names of a module's kernels; `None` where the driver does not tell (CUDA before 12.4, the emulated one).
    fn module_kernels(&self, _context: Context, _module: ModuleHandle) -> Result<Option<Vec<String>>> {
        Ok(None)
    }
    /// Bytes of each machine parameter of a kernel, in order; `None` where the driver does not tell (CUDA before 12.4, the
    /// emulated one).
    fn function_params(&self, _context: Context, _function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        Ok(None)
    }
    /// What the kernel needs.
    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes>;
    /// Lets blocks of the kernel use up to `bytes` of dynamic shared memory.
    fn function_allow_shared(&self, context: Context, function: FunctionHandle, bytes: u32) -> Result<()>;
    /// How many blocks of `block_threads` fit on a multiprocessor at once.
    fn function_occupancy(
        &self,
        context: Context,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32>;
    /// Blocks of the largest cluster that this configuration, whose own cluster does not matter, can have on the device;
    /// larger than [`DeviceProperties::max_cluster`] only after [`Self::function_allow_large_clusters`]. Fails with
    /// `CUDA_ERROR_NOT_SUPPORTED` where there are no clusters.
    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// How many clusters of this configuration are on the device at once.
    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// Lets the kernel have clusters larger than every device of its kind can have.
    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()>;
    /// Enqueues a launch.
    ///
    /// # Safety
    /// `args` has one pointer per machine parameter of the kernel, each to a value of the parameter's size
    /// (they are copied before the call returns); what those values point to is valid until the kernel is done;
    /// the configuration is within the limits of device and kernel.
    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()>;
}
