//! Loading the driver library and turning its status codes into errors.
//!
//! `cudarc` panics when the library or a symbol is missing, so both are checked before the first call. What an
//! older driver may lack is a [`Feature`]: it is checked when it is first used. If it is missing, its calls are not
//! supported; everything else works.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::error::{DriverError, Result, capture_advice, code};

/// Every function that this crate calls, as the library exports it.
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

/// The functions of [`Feature::Graphs`], all of which CUDA 12.0 has. Those with a number took other parameters before
/// CUDA 12.
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

/// Functions that come together, and that a driver need not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    VirtualMemory,
    /// Mapped memory of several processes.
    SharedMemory,
    /// Events of several processes.
    SharedEvents,
    Pools,
    Peers,
    CaptureMode,
    HostFunctions,
    /// The context of a stream.
    StreamContexts,
    /// The same where streams can be of a part of a device.
    StreamParts,
    StreamIds,
    /// Launches that are not plain.
    LaunchAttributes,
    Clusters,
    Graphs,
    /// Edges of graphs that say more than what comes before what.
    GraphEdgeData,
    ConditionalNodes,
    /// Which kernels a module has.
    ModuleKernels,
    /// The parameters of a kernel.
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

    /// Whether the driver has it. The library is loaded.
    pub(super) fn is_there(self) -> bool {
        static FOUND: [OnceLock<bool>; Feature::COUNT] = [const { OnceLock::new() }; Feature::COUNT];
        *FOUND[self as usize].get_or_init(|| self.symbols().iter().all(|symbol| has_symbol(symbol)))
    }

    /// Fails `call` if the driver does not have it.
    pub(super) fn need(self, call: &'static str) -> Result<()> {
        if self.is_there() {
            return Ok(());
        }
        Err(not_supported(call, "the NVIDIA driver is too old for it; update the driver".to_owned()))
    }
}

/// Whether the library has a function. The library is loaded.
fn has_symbol(symbol: &str) -> bool {
    // SAFETY: the function is only looked up, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()).is_ok() }
}

/// A function that the bindings do not know, if the library has it. The library is loaded.
///
/// # Safety
/// `F` is the type of a pointer to the library's function of that name.
pub(super) unsafe fn find_symbol<F: Copy>(symbol: &str) -> Option<F> {
    // SAFETY: passed on from the caller.
    unsafe { sys::culib().get::<F>(symbol.as_bytes()).ok().map(|function| *function) }
}

/// Exempts this thread from what a capture of a graph, its own or another thread's, forbids, until the value is
/// dropped: allocating, freeing and mapping, querying whether work has run, loading images, making streams and
/// executables. Captures forbid that for the sake of captured work that would depend on it; what this crate captures
/// never does. A forbidden call is not only refused, it invalidates the capture, so that it cannot be tried first.
///
/// Waiting is not exempted: a wait during a capture should fail. Nor is what the driver forbids in every mode, such as
/// querying captured work. Work on streams, and events except queries, are never forbidden and need no exemption,
/// which costs two calls.
#[derive(Debug)]
#[must_use]
pub(crate) struct RelaxedCapture(Option<sys::CUstreamCaptureMode>);

impl RelaxedCapture {
    /// Nothing happens where the driver does not know the mode.
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

/// Sets this thread's capture mode and returns the previous one. The driver has the function.
fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Option<sys::CUstreamCaptureMode> {
    // SAFETY: the pointer is to a local variable.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(mode)
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Elapsed time in its newer form, which drivers before CUDA 12.8 lack, or the older. The bindings know only
/// the newer.
fn elapsed_time() -> Result<ElapsedTime> {
    static FUNCTION: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    // SAFETY: the library's functions of these names have this signature.
    let find = |symbol: &str| unsafe { find_symbol::<ElapsedTime>(symbol) };
    let found = FUNCTION.get_or_init(|| find("cuEventElapsedTime_v2").or_else(|| find("cuEventElapsedTime")));
    found.ok_or(DriverError::LacksFunction { symbol: "cuEventElapsedTime" })
}

/// Loads the driver library, unless it is.
pub(super) fn load_library() -> Result<()> {
    // SAFETY: loading the library runs its initialisers, which is what it is for. `culib` panics without one,
    // and is only called with one.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NoLibrary);
    }
    match SYMBOLS.iter().find(|symbol| !has_symbol(symbol)) {
        Some(symbol) => Err(DriverError::LacksFunction { symbol }),
        None => Ok(()),
    }
}

/// An error for a status that is not success, with the driver's name and text for it.
#[inline]
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, result)) }
}

#[cold]
fn failure(call: &'static str, result: sys::CUresult) -> DriverError {
    // SAFETY: the functions are those of their type, and give a static string for codes that they know.
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
/// `function` is one of the driver's two that describe a code.
unsafe fn describe(
    function: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult,
    result: sys::CUresult,
) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the pointer is to a local variable; a text that the driver gives is a static C string.
    unsafe {
        match function(result, &mut text) {
            sys::CUresult::CUDA_SUCCESS if !text.is_null() => {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
            _ => "unknown error".to_owned(),
        }
    }
}

/// The driver's handle of a device.
pub(super) fn device(ordinal: u32) -> Result<sys::CUdevice> {
    let mut device = 0;
    let ordinal = integer("cuDeviceGet", ordinal)?;
    // SAFETY: the pointer is to a local variable; an unknown ordinal is an error of the call.
    unsafe { check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal)) }?;
    Ok(device)
}

/// A number as the driver's signatures take it.
pub(super) fn integer(what: &'static str, number: u32) -> Result<i32> {
    i32::try_from(number).map_err(|_| invalid(what, format!("{number} is too large")))
}

/// Microseconds between two events.
pub(super) fn elapsed_us(start: sys::CUevent, end: sys::CUevent) -> Result<f64> {
    let function = elapsed_time()?;
    let mut milliseconds = 0f32;
    // SAFETY: both events are alive, by the trait's contract; the pointer is to a local variable.
    check("cuEventElapsedTime", unsafe { function(&mut milliseconds, start, end) })?;
    Ok(f64::from(milliseconds) * 1e3)
}

/// An error that this crate found itself, in the driver's form.
pub(super) fn invalid(call: &'static str, text: String) -> DriverError {
    error(call, code::INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", text)
}

/// An error for what this driver or device cannot do, in the driver's form.
pub(super) fn not_supported(call: &'static str, text: String) -> DriverError {
    error(call, code::NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", text)
}

/// An error in the driver's form, with one of its codes and the code's name.
pub(super) fn error(call: &'static str, code: u32, name: &str, text: String) -> DriverError {
    DriverError::Call { call, code, name: name.to_owned(), text }
}
