//! Loads the driver library and converts its status codes to errors.
//!
//! `cudarc` panics if the library or a symbol is missing, so this module checks for both before the first call. It
//! looks up symbols itself, because `cudarc` does so only if it loads the library instead of linking it. Each group of
//! functions that an older driver may lack is a [`Feature`], checked on first use. If a feature is missing, only its
//! functions fail, as not supported.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::error::{DriverError, Result, capture_advice, code};
use crate::library_paths::SharedLibrary;

/// Names of all functions that this crate calls, as the library exports them.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxGetStreamPriorityRange",
    "cuCtxGetLimit",
    "cuCtxSetLimit",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuPointerGetAttribute",
    "cuStreamCreateWithPriority",
    "cuStreamGetPriority",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyAsync",
    "cuMemcpy2DAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuLaunchKernel",
];

/// Functions of [`Feature::Graphs`], all available since CUDA 12.0. Functions with versioned names had different
/// parameters before.
const GRAPH_SYMBOLS: &[&str] = &[
    "cuLaunchHostFunc",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphClone",
    "cuGraphNodeFindInClone",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphDestroyNode",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphAddHostNode",
    "cuGraphAddChildGraphNode",
    "cuGraphAddEmptyNode",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeSetAttribute",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphChildGraphNodeGetGraph",
    "cuGraphInstantiateWithParams",
    "cuGraphExecDestroy",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecUpdate_v2",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecHostNodeSetParams",
    "cuGraphExecChildGraphNodeSetParams",
];

/// Group of optional functions that were introduced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    VirtualMemory,
    /// Mapped memory shared between processes.
    #[cfg_attr(not(unix), allow(dead_code, reason = "memory is shared as file descriptors"))]
    SharedMemory,
    /// Events shared between processes.
    SharedEvents,
    Pools,
    Peers,
    CaptureMode,
    HostFunctions,
    /// Querying the context of a stream.
    StreamContexts,
    /// Querying the context of a stream that may belong to a green context.
    StreamParts,
    StreamIds,
    LaunchAttributes,
    Clusters,
    Graphs,
    GraphEdgeData,
    ConditionalNodes,
    ModuleKernels,
    /// Parameter layout of a kernel.
    KernelParams,
    TensorMaps,
}

impl Feature {
    const COUNT: usize = Feature::TensorMaps as usize + 1;

    const fn symbols(self) -> &'static [&'static str] {
        match self {
            Feature::VirtualMemory => &[
                "cuMemGetAllocationGranularity",
                "cuMemAddressReserve",
                "cuMemAddressFree",
                "cuMemCreate",
                "cuMemRelease",
                "cuMemMap",
                "cuMemUnmap",
                "cuMemSetAccess",
            ],
            Feature::SharedMemory => &["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"],
            Feature::SharedEvents => &["cuIpcGetEventHandle", "cuIpcOpenEventHandle"],
            Feature::Pools => &[
                "cuMemPoolCreate",
                "cuMemPoolDestroy",
                "cuMemPoolGetAttribute",
                "cuMemPoolSetAttribute",
                "cuMemPoolSetAccess",
                "cuMemPoolTrimTo",
                "cuMemAllocFromPoolAsync",
                "cuMemFreeAsync",
            ],
            Feature::Peers => &["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuMemcpyPeerAsync"],
            Feature::CaptureMode => &["cuThreadExchangeStreamCaptureMode"],
            Feature::HostFunctions => &["cuLaunchHostFunc"],
            Feature::StreamContexts => &["cuStreamGetCtx"],
            Feature::StreamParts => &["cuStreamGetCtx_v2"],
            Feature::StreamIds => &["cuStreamGetId"],
            Feature::LaunchAttributes => &["cuLaunchKernelEx"],
            Feature::Clusters => {
                &["cuLaunchKernelEx", "cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters"]
            }
            Feature::Graphs => GRAPH_SYMBOLS,
            Feature::GraphEdgeData => {
                &["cuGraphGetEdges_v2", "cuGraphNodeGetDependencies_v2", "cuStreamGetCaptureInfo_v3"]
            }
            Feature::ConditionalNodes => &["cuGraphConditionalHandleCreate", "cuGraphAddNode_v2"],
            Feature::ModuleKernels => {
                &["cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", "cuFuncGetName"]
            }
            Feature::KernelParams => &["cuFuncGetParamInfo"],
            Feature::TensorMaps => &["cuTensorMapEncodeTiled"],
        }
    }

    /// Returns true if the driver supports the feature. The library must be loaded.
    pub(super) fn is_there(self) -> bool {
        static FOUND: [OnceLock<bool>; Feature::COUNT] = [const { OnceLock::new() }; Feature::COUNT];
        *FOUND[self as usize].get_or_init(|| self.symbols().iter().all(|symbol| has_symbol(symbol)))
    }

    /// Returns an error that names `call` if the driver lacks the feature.
    pub(super) fn need(self, call: &'static str) -> Result<()> {
        if self.is_there() {
            return Ok(());
        }
        Err(not_supported(call, "the NVIDIA driver is too old for this call; update the driver".to_owned()))
    }
}

/// The driver library, once loaded.
static LIBRARY: OnceLock<SharedLibrary> = OnceLock::new();

/// Returns true if the library exports a function. The library must be loaded.
fn has_symbol(symbol: &str) -> bool {
    // SAFETY: the function is only looked up, not called.
    unsafe { find_symbol::<unsafe extern "C" fn()>(symbol) }.is_some()
}

/// Looks up a function that the bindings lack. The library must be loaded.
///
/// # Safety
/// `F` must be the type of a pointer to the library's function with that name.
pub(super) unsafe fn find_symbol<F: Copy>(symbol: &str) -> Option<F> {
    // SAFETY: guaranteed by the caller.
    unsafe { LIBRARY.get()?.symbol(symbol) }
}

/// Exempts this thread from the restrictions of graph captures, on this thread or others, until dropped. Captures
/// restrict calls that allocate, free or map memory, query whether work has run, load images, or create streams and
/// executables. Captured work might depend on such calls, but this crate's captured work never does. A restricted call
/// not only fails but also invalidates the capture, so handling its error is not enough.
///
/// Waits are not exempted, because a wait during a capture should fail, nor are calls that the driver forbids in every
/// mode, such as querying captured work. Calls that enqueue work and event calls other than queries are never
/// restricted; they avoid the exemption, which costs two driver calls.
#[derive(Debug)]
#[must_use]
pub(crate) struct RelaxedCapture(Option<sys::CUstreamCaptureMode>);

impl RelaxedCapture {
    /// Enters the relaxed mode. Does nothing if the driver does not support it.
    pub(super) fn enter() -> Self {
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        Self(Feature::CaptureMode.is_there().then(|| exchange_capture_mode(relaxed)).flatten())
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        if let Some(mode) = self.0 {
            exchange_capture_mode(mode);
        }
    }
}

/// Sets this thread's capture mode and returns the previous one. The driver must support the function.
fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Option<sys::CUstreamCaptureMode> {
    // SAFETY: the pointer is to a local variable.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(mode)
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Returns the newer `cuEventElapsedTime` or, for drivers before CUDA 12.8, the older one, which the bindings lack.
fn elapsed_time() -> Result<ElapsedTime> {
    static FUNCTION: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    // SAFETY: the library's functions with these names have this signature.
    let find = |symbol: &str| unsafe { find_symbol::<ElapsedTime>(symbol) };
    let found = FUNCTION.get_or_init(|| find("cuEventElapsedTime_v2").or_else(|| find("cuEventElapsedTime")));
    found.ok_or(DriverError::LacksFunction { symbol: "cuEventElapsedTime" })
}

/// File names of the driver library. cuda-gdb recognizes the driver only by the name `libcuda.so.1`. The directory of
/// WSL comes first, because a driver that a Linux package installs in WSL cannot access the GPU.
const DRIVER: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &["/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so.1", "libcuda.so"]
};

/// Loads the driver library, unless it is already loaded.
pub(super) fn load_library() -> Result<()> {
    if LIBRARY.get().is_none() {
        // SAFETY: loading the library runs its initializers, as intended.
        let library = unsafe { SharedLibrary::open(DRIVER) }.ok_or(DriverError::NoLibrary)?;
        // Another thread may have loaded it meanwhile.
        let _ = LIBRARY.set(library);
    }
    match SYMBOLS.iter().find(|symbol| !has_symbol(symbol)) {
        Some(symbol) => Err(DriverError::LacksFunction { symbol }),
        None => Ok(()),
    }
}

/// Returns an error, with the driver's name and description of the status, unless the status is success.
#[inline]
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, result)) }
}

#[cold]
fn failure(call: &'static str, result: sys::CUresult) -> DriverError {
    // SAFETY: both functions have the expected type and return static strings for known codes.
    let (name, text) =
        unsafe { (describe(sys::cuGetErrorName, result), describe(sys::cuGetErrorString, result)) };
    let code = result as u32;
    let text = match capture_advice(code) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    };
    DriverError::Call { call, code, name, text }
}

/// # Safety
/// `function` must be `cuGetErrorName` or `cuGetErrorString`.
unsafe fn describe(
    function: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult,
    result: sys::CUresult,
) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the pointer is to a local variable; the result is a static C string.
    unsafe {
        match function(result, &mut text) {
            sys::CUresult::CUDA_SUCCESS if !text.is_null() => {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
            _ => "unknown error".to_owned(),
        }
    }
}

/// Returns the driver's handle of a device.
pub(super) fn device(ordinal: u32) -> Result<sys::CUdevice> {
    let mut device = 0;
    let ordinal = integer("cuDeviceGet", ordinal)?;
    // SAFETY: the pointer is to a local variable; an unknown ordinal causes an error.
    unsafe { check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal)) }?;
    Ok(device)
}

/// Converts a number to the type of the driver's signatures.
pub(super) fn integer(what: &'static str, number: u32) -> Result<i32> {
    i32::try_from(number).map_err(|_| invalid(what, format!("{number} is too large")))
}

/// Returns the microseconds between two events.
pub(super) fn elapsed_us(start: sys::CUevent, end: sys::CUevent) -> Result<f64> {
    let function = elapsed_time()?;
    let mut milliseconds = 0f32;
    // SAFETY: both events are alive by the trait's contract; the pointer is to a local variable.
    check("cuEventElapsedTime", unsafe { function(&mut milliseconds, start, end) })?;
    Ok(f64::from(milliseconds) * 1e3)
}

/// Builds a driver error for an invalid argument that this crate detected.
pub(super) fn invalid(call: &'static str, text: String) -> DriverError {
    error(call, code::INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", text)
}

/// Builds a driver error for an operation that the driver or the device does not support.
pub(super) fn not_supported(call: &'static str, text: String) -> DriverError {
    error(call, code::NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", text)
}

/// Builds a driver error from a code and its name.
pub(super) fn error(call: &'static str, code: u32, name: &str, text: String) -> DriverError {
    DriverError::Call { call, code, name: name.to_owned(), text }
}
