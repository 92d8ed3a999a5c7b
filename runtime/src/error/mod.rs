//! The crate's [`Error`] type. Every message states the cause, with the relevant numbers, and the remedy.
//!
//! Errors implement `Clone`, because every later call on a lost device returns the same cause.

mod device_id;
mod extension;
mod graph;
mod inspect;
mod launch;
mod load;
mod out_of_memory;
mod pool_id;
mod snapshot;
mod stack;
mod text;

use std::sync::Arc;

pub use self::device_id::DeviceId;
pub use self::extension::ExtensionError;
pub use self::graph::GraphError;
use self::launch::launched;
pub use self::launch::{BlockLimit, LaunchError, RecentLaunch, RecentLaunches};
pub use self::load::LoadError;
pub use self::out_of_memory::OutOfMemory;
pub use self::pool_id::PoolId;
pub use self::snapshot::SnapshotError;
pub use self::stack::StackError;
pub use self::text::Bytes;
use self::text::{
    arch_advice, arch_note, at, by_thread, checked_advice, device_count, kernel_name, pinned_advice,
    ptx_version,
};
use crate::driver::DriverError;
use crate::driver::check::Findings;
pub use warpsmith_driver::error::code;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with its cause and remedy. Crates built on this one also return this type; [`Self::downcast_ref`] extracts
/// their own errors.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Error};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::<f32>::zeros(&stream, 6)?;
/// match buffer.as_2d(2, 2) {
///     Err(Error::BadExtents { extents, len, .. }) => assert_eq!((&extents[..], len), ("2 x 2", 6)),
///     _ => unreachable!("6 elements are not 2 rows of 2"),
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Enqueue errors
/// A call that enqueues work fails with
/// - [`Self::OutOfMemory`] if memory for temporary results cannot be allocated;
/// - [`Self::DifferentDevices`] for memory that is not on the stream's device;
/// - [`Self::Graph`] if the stream is being captured and the work cannot become part of a graph;
/// - [`Self::NoImage`], [`Self::NoImageForDevice`], [`Self::DriverTooOld`] or [`Self::KernelNotInImage`] if the program
///   contains no GPU code for the device;
/// - [`Self::DeviceLost`] after a fault of earlier work, and [`Self::Forked`] in a forked process;
/// - [`Self::Driver`] for any other driver failure.
///
/// A call that also waits for the work, such as a copy to the host, also reports kernel failures, as
/// [`Self::KernelPanic`], [`Self::KernelFault`] or [`Self::Deadlock`], and `warpsmith check` findings, as
/// [`Self::Findings`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver was unusable, or a driver call failed.
    #[error(transparent)]
    Driver(#[from] DriverError),

    /// An error from a crate built on this one, for example from a library call.
    #[error(transparent)]
    Extension(ExtensionError),

    /// Every form of the image that suits the device requires a newer driver.
    #[error(
        "the NVIDIA driver is too old for the GPU image `{image}`: the image needs PTX {}, but the driver (CUDA \
         {driver_version}) supports up to PTX {}; update the driver, or build the image for an older PTX version",
        ptx_version(*needs), ptx_version(*has)
    )]
    DriverTooOld {
        /// The image's name.
        image: String,
        /// The lowest PTX version among the suitable forms, as `10 * major + minor`.
        needs: u32,
        /// The newest PTX version that the driver can compile, as `10 * major + minor`.
        has: u32,
        /// The driver's version.
        driver_version: String,
    },

    /// The program was built without the emulated device.
    #[error("this program has no emulated device: build it with warpsmith's default feature `emulated`")]
    NotEmulated,

    /// The program was built without GPU code.
    #[error(
        "this program has no GPU code for `{image}`: {reason}; the emulated device `cpu` works without GPU code"
    )]
    NoImage {
        /// The image's name.
        image: String,
        /// The reason why the builder produced no GPU code.
        reason: String,
    },

    /// The image contains GPU code, but not for this device.
    #[error(
        "the GPU image `{image}` has no code for {device} (compute capability {}.{}): it has {has}. Add the \
         architecture to the builder's `archs`, or, if another machine made this development build for its own GPUs, \
         build with --release or WARPSMITH_GPU_ARCHS=all",
        capability.0, capability.1
    )]
    NoImageForDevice {
        /// The image's name.
        image: String,
        /// The device.
        device: DeviceId,
        /// Compute capability of the device.
        capability: (u32, u32),
        /// The image's forms, as a list.
        has: String,
    },

    /// The driver failed to link a kernel that sets graph conditions.
    #[error(
        "kernel `{kernel}` needs NVIDIA's device runtime (libcudadevrt), which the driver (CUDA {driver_version}) \
         cannot link: {source_error}; use a driver at least as new as the CUDA tools that built the program"
    )]
    DeviceRuntimeRejected {
        /// The instance's symbol.
        kernel: String,
        /// The driver's version.
        driver_version: String,
        /// The driver's error.
        source_error: Arc<Error>,
    },

    /// The given text is not a device name.
    #[error("unknown device `{0}`; use `cuda`, `cuda:N`, `cpu` or `cpu:N`")]
    UnknownDevice(String),

    /// The device index is out of range.
    #[error("device {device} does not exist; {}", device_count(*device, *count))]
    NoSuchDevice {
        /// The requested device.
        device: DeviceId,
        /// The number of devices of that kind.
        count: u32,
    },

    /// The image records a different package, version or parameters for this kernel than the kernel type.
    #[error(
        "kernel `{kernel}` of {wanted} is not in the image of {image}, which has {holds}; load the image that was \
         built from the kernel's crate with the program's features"
    )]
    KernelNotOfImage {
        /// The instance's symbol.
        kernel: String,
        /// The package, version and parameters of the kernel type.
        wanted: String,
        /// The package and version of the image.
        image: String,
        /// The package, version and parameters that the image records for that symbol.
        holds: String,
    },

    /// The kernel type comes from a different package that has the same name as the image's package and that cargo
    /// linked into the program.
    #[error(
        "the program and its GPU image contain kernel `{kernel}` from two different packages named {package}, which \
         cargo confuses if projects share a target folder. Rename one package or use separate target folders; as a \
         workaround, run `cargo clean -p {package}` before each build"
    )]
    KernelOfAnotherPackage {
        /// The instance's symbol.
        kernel: String,
        /// The name of both packages.
        package: String,
    },

    /// The unpacked GPU code differs from the code that the builder packed.
    #[error("the GPU code in this program is damaged; build the program again")]
    DamagedImage,

    /// The image lacks this kernel for the device's architecture.
    #[error(
        "kernel `{kernel}` is not in the GPU image loaded on {device}{}; {}",
        arch_note(*min_arch, *capability), arch_advice(*min_arch, *capability)
    )]
    KernelNotInImage {
        /// The instance's symbol.
        kernel: String,
        /// The device.
        device: DeviceId,
        /// The lowest architecture that the kernel supports, as `10 * major + minor`; 0 for any.
        min_arch: u32,
        /// The device's compute capability.
        capability: (u32, u32),
    },

    /// The device or the kernel does not permit the launch.
    #[error("{0}")]
    Launch(LaunchError),

    /// Code could not be loaded at run time.
    #[error(transparent)]
    Load(LoadError),

    /// A stack limit could not be set or is too low.
    #[error(transparent)]
    Stack(StackError),

    /// Two lengths that should be equal are not.
    #[error("{operation}: the lengths are {left} and {right} elements; they must be equal")]
    LengthMismatch {
        /// The operation.
        operation: &'static str,
        /// Number of elements on the left (the destination).
        left: usize,
        /// Number of elements on the right (the source).
        right: usize,
    },

    /// The extents do not form a 2-D or 3-D view of the elements.
    #[error("{len} elements cannot be viewed as {extents}: {reason}")]
    BadExtents {
        /// Width, height and depth.
        extents: String,
        /// Number of elements.
        len: usize,
        /// The reason.
        reason: String,
    },

    /// The elements of a buffer cannot form a tensor of this layout.
    #[error("a tensor map cannot be created: {reason}")]
    BadTensorMap {
        /// The reason and the remedy.
        reason: String,
    },

    /// A list that must not be empty is empty.
    #[error("{operation}: the list of {list} is empty; pass at least one element")]
    EmptyList {
        /// The operation.
        operation: &'static str,
        /// The kind of item that the list contains.
        list: &'static str,
    },

    /// The chunk lengths do not match the buffer or the number of streams.
    #[error(
        "scatter: {chunks} chunk lengths with a sum of {total} elements were passed for {streams} streams and a \
         source of {len} elements; pass one length per stream, with the length of the source as their sum"
    )]
    BadChunks {
        /// Number of chunk lengths.
        chunks: usize,
        /// Sum of the chunk lengths in elements, capped at `usize::MAX`.
        total: usize,
        /// Number of streams.
        streams: usize,
        /// Number of elements in the source.
        len: usize,
    },

    /// Two row counts or row lengths that should be equal are not.
    #[error(
        "{operation}: the shapes are {} rows of {} elements and {} rows of {} elements; they must be equal",
        left.0, left.1, right.0, right.1
    )]
    ShapeMismatch {
        /// The operation.
        operation: &'static str,
        /// Number of rows, and elements per row, on the left (the destination).
        left: (usize, usize),
        /// Number of rows, and elements per row, on the right (the source).
        right: (usize, usize),
    },

    /// An object was used with a device other than its own.
    #[error("{operation}: {what} is on {found}, but {beside} is on {expected}; {remedy}")]
    DifferentDevices {
        /// The operation.
        operation: String,
        /// The item on the wrong device, for example `argument 2`.
        what: String,
        /// The device of that item.
        found: DeviceId,
        /// The item that determines the expected device, for example `the stream`.
        beside: &'static str,
        /// The required device.
        expected: DeviceId,
        /// The remedy.
        remedy: &'static str,
    },

    /// The elements would occupy more bytes than can be addressed.
    #[error("{elements} elements of {element_bytes} bytes exceed the address space")]
    TooManyElements {
        /// Number of requested elements.
        elements: usize,
        /// Size of an element, in bytes.
        element_bytes: usize,
    },

    /// The elements cannot be viewed as elements of another type.
    #[error("{len} elements of `{from}` at {address:#x} cannot be viewed as elements of `{to}`: {reason}")]
    Cast {
        /// The type of the elements.
        from: &'static str,
        /// The requested type.
        to: &'static str,
        /// Number of elements.
        len: usize,
        /// Address of the first element.
        address: u64,
        /// The reason.
        reason: String,
    },

    /// The address cannot be wrapped in a buffer.
    #[error("cannot create a buffer of {device} from {bytes} bytes at {address:#x}: {reason}")]
    BadAddress {
        /// The device.
        device: DeviceId,
        /// The address.
        address: u64,
        /// The requested size, in bytes.
        bytes: usize,
        /// The cause and the remedy.
        reason: String,
    },

    /// The device does not have enough memory. The program can continue, because existing allocations are unaffected.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),

    /// More memory was requested than any device has.
    #[error("an allocation of {} exceeds the maximum of {}", Bytes(*bytes), Bytes(*largest))]
    AllocationTooLarge {
        /// Requested size, in bytes.
        bytes: u64,
        /// Largest size that can be requested, in bytes.
        largest: u64,
    },

    /// The allocator did not return this address, or its memory was already freed.
    #[error(
        "{address:#x} was not allocated on {device}, or was freed before; free each address once, on its device"
    )]
    NotAllocated {
        /// The device.
        device: DeviceId,
        /// The address.
        address: u64,
    },

    /// A private pool was used after its release.
    #[error("memory pool {pool} was released; create a new one")]
    PoolReleased {
        /// The pool's number.
        pool: PoolId,
    },

    /// Work that uses a stream's scratch memory requested scratch memory of the same stream again, for this purpose.
    #[error(
        "`{0}` needs the stream's scratch memory, which the calling operation already uses; enqueue one operation \
         after the other"
    )]
    ScratchInUse(&'static str),

    /// A capture, a graph or an executable does not support the operation.
    #[error("{0}")]
    Graph(GraphError),

    /// The driver rejected an allocation because a thread is capturing a graph.
    #[error(
        "memory cannot be allocated while another thread captures a graph in global mode; allocate before the \
         capture, or capture in the relaxed or thread-local mode ({source_error})"
    )]
    CaptureForbidsAllocation {
        /// The driver's error.
        source_error: Box<Error>,
    },

    /// The option `expandable_segments` was set for a device without virtual memory management.
    #[error("{device} does not support virtual memory management; set `expandable_segments:False`")]
    NoExpandableSegments {
        /// The device.
        device: DeviceId,
    },

    /// The two devices have no peer access.
    #[error("{peer} cannot access the memory of {device}; copy through the host")]
    NoPeerAccess {
        /// The device that owns the memory.
        device: DeviceId,
        /// The device that cannot access that memory.
        peer: DeviceId,
    },

    /// The value of an allocator option is invalid.
    #[error("allocator option `{option}`: invalid value `{value}`: {reason}")]
    AllocatorOption {
        /// The option's name.
        option: String,
        /// The value as specified.
        value: String,
        /// The expected value.
        reason: String,
    },

    /// The name is not an allocator option.
    #[error("unknown allocator option `{option}`; {known}")]
    UnknownAllocatorOption {
        /// Name of the unknown option.
        option: String,
        /// The most similar name, and all valid names.
        known: String,
    },

    /// A memory snapshot could not be written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),

    /// Page-locked host memory is exhausted: the limit or the system's capacity was reached.
    #[error(
        "out of page-locked host memory for {device}: requested {} ({asked} bytes), {} are allocated, {} are \
         unused{}",
        Bytes(*asked), Bytes(*held), Bytes(*cached), pinned_advice(*limit)
    )]
    PinnedOutOfMemory {
        /// The device of the buffers.
        device: DeviceId,
        /// Requested bytes after rounding, or the size of the reserve segment if allocating it failed.
        asked: u64,
        /// Page-locked bytes in the device's buffers and cache.
        held: u64,
        /// Bytes of `held` that neither a buffer nor a stream uses, that is, unused bytes of the reserve segment.
        cached: u64,
        /// The limit that was reached; `None` if the system could not provide more page-locked memory.
        limit: Option<u64>,
    },

    /// A kernel panicked, which made the device's context unusable.
    #[error(
        "{} panicked{}{}: {message}{}",
        kernel_name(kernel),
        at(location),
        by_thread(block, thread),
        launched(launches)
    )]
    KernelPanic {
        /// The device.
        device: DeviceId,
        /// The panic's text.
        message: String,
        /// Kernels that may have panicked: the kernel if known, otherwise every kernel in flight.
        kernel: Vec<String>,
        /// Recorded launches that may have panicked, without duplicates.
        launches: RecentLaunches,
        /// Source location of the panic, as `file:line:column`.
        location: Option<String>,
        /// The block index.
        block: Option<[u32; 3]>,
        /// The thread index within the block.
        thread: Option<[u32; 3]>,
    },

    /// The threads of a block waited for each other forever.
    #[error("{} deadlocked{}: {message}{}", kernel_name(kernel), at(location), launched(launches))]
    Deadlock {
        /// The device.
        device: DeviceId,
        /// The waiting threads and the source location at which each one waits.
        message: String,
        /// The kernels that may have deadlocked.
        kernel: Vec<String>,
        /// Recorded launches that may have deadlocked, without duplicates.
        launches: RecentLaunches,
        /// The source location, if known.
        location: Option<String>,
    },

    /// A kernel caused a device fault, such as an illegal address or an illegal instruction.
    #[error("{} stopped{}: {message}{}", kernel_name(kernel), at(location), launched(launches))]
    KernelFault {
        /// The device.
        device: DeviceId,
        /// The driver's error.
        message: String,
        /// The kernels that may have faulted.
        kernel: Vec<String>,
        /// Recorded launches that may have faulted, without duplicates.
        launches: RecentLaunches,
        /// The source location, if known.
        location: Option<String>,
    },

    /// A [check](crate::check) found races or invalid memory accesses in launches that the calling thread enqueued. The
    /// device stays usable.
    #[error("a check on {device} found: {findings}")]
    Findings {
        /// The device.
        device: DeviceId,
        /// The findings since the last report.
        findings: Arc<Findings>,
    },

    /// `warpsmith check` is not checking kernels on this device.
    #[error("kernels on {device} are not checked: {}", checked_advice(*device))]
    NotChecked {
        /// The device.
        device: DeviceId,
    },

    /// An earlier fault made the device's context unusable, so all further work on the device fails.
    #[error(
        "{device} was lost because of an earlier fault ({cause}); drop all of its buffers, streams and handles, then \
         open it again"
    )]
    DeviceLost {
        /// The device.
        device: DeviceId,
        /// The fault that made the context unusable.
        cause: Arc<Error>,
    },

    /// Work did not finish before the timeout.
    #[error(
        "work on {device} had not finished after {waited_ms} ms; {}",
        if kernels.is_empty() { "no kernel was launched on the stream".to_owned() } else { format!("launched last: {}", kernels.join(", ")) }
    )]
    Timeout {
        /// The device.
        device: DeviceId,
        /// Duration of the wait, in milliseconds.
        waited_ms: u64,
        /// The last launched kernels that may still be running, oldest first.
        kernels: Vec<String>,
    },

    /// A stream that other code created was destroyed while this crate still used it.
    #[error(
        "a stream of {device} was destroyed by the code that created it; keep it until all of its handles and all buffers that were used on it are dropped"
    )]
    StreamDestroyed {
        /// The device.
        device: DeviceId,
    },

    /// The per-thread default stream handle, which denotes a different stream on each thread, cannot be adopted.
    #[error(
        "the per-thread default stream cannot be adopted; adopt a stream that was created explicitly, or the legacy default stream"
    )]
    PerThreadStream,

    /// The process was forked from one that had opened devices.
    #[error(
        "this process was forked from a process that had opened a device, and cannot use the device; start it with `exec` (for example `std::process::Command`), or open devices only after the fork"
    )]
    Forked,

    /// An [`Observer`](crate::extension::Observer) used a device in a callback.
    #[error(
        "an observer used a device in its callback, during which the runtime may hold locks; send the data to \
         another thread"
    )]
    InObserver,

    /// An event was used with a stream or device other than its own.
    #[error("the event belongs to {event}, but the stream is on {stream}; record a new event on that device")]
    EventOfOtherDevice {
        /// The event's device.
        event: DeviceId,
        /// The stream's device.
        stream: DeviceId,
    },

    /// Elapsed time was requested for events from which it cannot be computed.
    #[error("no elapsed time: {0}")]
    NoElapsedTime(&'static str),
}
