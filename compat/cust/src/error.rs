//! [`CudaError`]: CUDA's error codes.
//!
//! An error code alone rarely indicates the remedy. [`explanation`] returns the full message of the calling thread's
//! last error. The message can contain the kernel and its configuration, the panic message of a kernel, or the error of
//! the PTX compiler.

use std::cell::RefCell;
use std::fmt;

use warpsmith_runtime::{DriverError, Error, LaunchError, LoadError};

/// Result type of most functions.
pub type CudaResult<T> = Result<T, CudaError>;

/// Result of functions that drop a value. If they fail, it contains the value together with the error.
pub type DropResult<T> = Result<(), (CudaError, T)>;

macro_rules! codes {
    ($($name:ident = $code:literal $text:literal,)*) => {
        /// CUDA error code.
        #[allow(missing_docs, reason = "the text of each is its `Display`")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum CudaError {
            $($name = $code,)*
        }

        impl CudaError {
            /// Converts an error code of the CUDA driver.
            pub fn from_code(code: u32) -> CudaError {
                match code {
                    $($code => CudaError::$name,)*
                    _ => CudaError::UnknownError,
                }
            }

            fn text(self) -> &'static str {
                match self {
                    $(CudaError::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    InvalidValue = 1 "an argument has a value that the call does not accept",
    OutOfMemory = 2 "the device does not have enough memory",
    NotInitialized = 3 "CUDA is not initialized: call cust::quick_init()",
    Deinitialized = 4 "CUDA is shutting down",
    ProfilerDisabled = 5 "profiling is disabled",
    ProfilerNotInitialized = 6 "the profiler is not initialized",
    ProfilerAlreadyStarted = 7 "the profiler is already running",
    ProfilerAlreadyStopped = 8 "the profiler is already stopped",
    NoDevice = 100 "no CUDA device can be used",
    InvalidDevice = 101 "no device has this ordinal",
    InvalidImage = 200 "the code is not PTX, a cubin or a fatbin",
    InvalidContext = 201 "no context is current on this thread: call cust::quick_init() and keep what it returns",
    ContextAlreadyCurrent = 202 "the context is already current",
    MapFailed = 205 "memory cannot be mapped",
    UnmapFailed = 206 "memory cannot be unmapped",
    ArrayIsMapped = 207 "the array is mapped",
    AlreadyMapped = 208 "the resource is already mapped",
    NoBinaryForGpu = 209 "the code is not for this GPU",
    AlreadyAcquired = 210 "the resource is already acquired",
    NotMapped = 211 "the resource is not mapped",
    NotMappedAsArray = 212 "the resource is not mapped as an array",
    NotMappedAsPointer = 213 "the resource is not mapped as a pointer",
    EccUncorrectable = 214 "the device's memory has an error that cannot be corrected",
    UnsupportedLimit = 215 "the device has no such limit",
    ContextAlreadyInUse = 216 "the context is in use by another thread",
    PeerAccessUnsupported = 217 "the devices cannot access each other's memory",
    InvalidPtx = 218 "the PTX cannot be compiled",
    InvalidGraphicsContext = 219 "the graphics context is not valid",
    NvlinkUncorrectable = 220 "NVLink has an error that cannot be corrected",
    UnsupportedPtxVersion = 222 "the PTX version is newer than the driver supports",
    InvalidSource = 300 "the device's code is not valid",
    FileNotFound = 301 "the file cannot be read",
    SharedObjectSymbolNotFound = 302 "a shared library lacks a symbol",
    SharedObjectInitFailed = 303 "a shared library cannot be loaded",
    OperatingSystemError = 304 "an operating system call failed",
    InvalidHandle = 400 "a handle is not valid, or not recorded, or does not measure time",
    NotFound = 500 "the code has no kernel or global with this name",
    NotReady = 600 "the work has not finished",
    IllegalAddress = 700 "a kernel accessed an illegal address",
    LaunchOutOfResources = 701 "the launch needs more registers or shared memory than the device has",
    LaunchTimeout = 702 "the kernel took too long",
    LaunchIncompatibleTexturing = 703 "the launch uses an incompatible texturing mode",
    PeerAccessAlreadyEnabled = 704 "access to the other device is already enabled",
    PeerAccessNotEnabled = 705 "access to the other device is not enabled",
    PrimaryContextActive = 708 "the primary context is active",
    ContextIsDestroyed = 709 "the context was destroyed",
    AssertError = 710 "a kernel panicked",
    TooManyPeers = 711 "too many devices have peer access to each other",
    HostMemoryAlreadyRegistered = 712 "the memory is already registered",
    HostMemoryNotRegistered = 713 "the memory is not registered",
    HardwareStackError = 714 "a kernel's stack overflowed or is damaged",
    IllegalInstruction = 715 "a kernel executed an illegal instruction",
    MisalignedAddress = 716 "a kernel accessed memory that is not aligned",
    InvalidAddressSpace = 717 "a kernel accessed memory in another address space",
    InvalidProgramCounter = 718 "a kernel jumped outside its code",
    LaunchFailed = 719 "a kernel failed",
    NotPermitted = 800 "the operation is not permitted",
    NotSupported = 801 "the operation is not supported here",
    UnknownError = 999 "an unknown error",
    InvalidMemoryAllocation = 100100 "the allocation size is not valid",
    OptixError = 100101 "OptiX error",
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match LAST.with_borrow(|last| last.as_ref().filter(|(error, _)| error == self).cloned()) {
            Some((_, explanation)) => write!(f, ": {explanation}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CudaError {}

thread_local! {
    /// Last runtime error on this thread.
    static LAST: RefCell<Option<(CudaError, String)>> = const { RefCell::new(None) };
}

/// Returns the full message of this thread's last runtime error, with its cause and remedy.
pub fn explanation() -> Option<String> {
    LAST.with_borrow(|last| last.as_ref().map(|(_, text)| text.clone()))
}

impl From<Error> for CudaError {
    fn from(error: Error) -> Self {
        let code = code_of(&error);
        LAST.with_borrow_mut(|last| *last = Some((code, error.to_string())));
        code
    }
}

impl From<DriverError> for CudaError {
    fn from(error: DriverError) -> Self {
        Error::from(error).into()
    }
}

fn code_of(error: &Error) -> CudaError {
    if let Some(code) = error.driver_code() {
        return CudaError::from_code(code);
    }
    match error {
        Error::Driver(DriverError::NoLibrary | DriverError::LacksFunction { .. }) => CudaError::NoDevice,
        Error::NoSuchDevice { .. } | Error::UnknownDevice(_) => CudaError::InvalidDevice,
        Error::OutOfMemory(_) | Error::PinnedOutOfMemory { .. } => CudaError::OutOfMemory,
        Error::AllocationTooLarge { .. } | Error::TooManyElements { .. } => {
            CudaError::InvalidMemoryAllocation
        }
        Error::Load(LoadError::File { .. }) => CudaError::FileNotFound,
        Error::Load(LoadError::NotCode { .. }) => CudaError::InvalidImage,
        Error::Load(LoadError::Emulated { .. }) => CudaError::NotSupported,
        Error::Load(LoadError::Rejected { source_error, .. }) => match code_of(source_error) {
            CudaError::UnknownError => CudaError::InvalidPtx,
            code => code,
        },
        Error::Load(LoadError::NoKernel { .. } | LoadError::NoGlobal { .. }) => CudaError::NotFound,
        Error::Launch(LaunchError::SharedMemoryTooLarge { .. } | LaunchError::BlockTooLarge { .. }) => {
            CudaError::LaunchOutOfResources
        }
        Error::KernelPanic { .. } => CudaError::AssertError,
        Error::Deadlock { .. } => CudaError::LaunchTimeout,
        Error::KernelFault { .. } | Error::Findings { .. } | Error::DeviceLost { .. } => {
            CudaError::LaunchFailed
        }
        Error::DifferentDevices { .. } | Error::EventOfOtherDevice { .. } | Error::NoElapsedTime(_) => {
            CudaError::InvalidHandle
        }
        Error::Timeout { .. } => CudaError::NotReady,
        Error::Forked => CudaError::NotInitialized,
        Error::Launch(_) => CudaError::InvalidValue,
        _ => CudaError::UnknownError,
    }
}

/// Records the explanation of an error that this crate has detected.
pub(crate) fn explained(error: CudaError, text: impl Into<String>) -> CudaError {
    LAST.with_borrow_mut(|last| *last = Some((error, text.into())));
    error
}
