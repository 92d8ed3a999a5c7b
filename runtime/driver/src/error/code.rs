//! CUDA error codes to which the runtime reacts. The emulated driver reports the same codes.

/// A parameter is out of range.
pub const INVALID_VALUE: u32 = 1;
/// Out of memory.
pub const OUT_OF_MEMORY: u32 = 2;
/// There is no CUDA device.
pub const NO_DEVICE: u32 = 100;
/// The device does not support this limit.
pub const UNSUPPORTED_LIMIT: u32 = 215;
/// One device cannot access the memory of the other.
pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
/// The handle does not refer to an existing object.
pub const INVALID_HANDLE: u32 = 400;
/// The object is in a state that does not permit the call.
pub const ILLEGAL_STATE: u32 = 401;
/// The named object was not found.
pub const NOT_FOUND: u32 = 500;
/// Asynchronous work has not completed.
pub const NOT_READY: u32 = 600;
/// The context was destroyed.
pub const CONTEXT_IS_DESTROYED: u32 = 709;
/// A kernel panicked or failed an assertion.
pub const ASSERT: u32 = 710;
/// Some of the memory is already page-locked.
pub const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
/// The memory was not registered.
pub const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
/// A kernel stopped with a fault.
pub const LAUNCH_FAILED: u32 = 719;
/// The blocks of a cooperative grid cannot all be resident on the device.
pub const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
/// The call is not permitted in the current state.
pub const NOT_PERMITTED: u32 = 800;
/// The driver or the device does not support the operation.
pub const NOT_SUPPORTED: u32 = 801;
/// The call cannot be captured.
pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
/// An earlier call invalidated the capture.
pub const STREAM_CAPTURE_INVALIDATED: u32 = 901;
/// The call would merge two captures.
pub const STREAM_CAPTURE_MERGE: u32 = 902;
/// The capture was ended on a stream other than the one on which it was started.
pub const STREAM_CAPTURE_UNMATCHED: u32 = 903;
/// A forked stream was not joined before the capture ended.
pub const STREAM_CAPTURE_UNJOINED: u32 = 904;
/// Captured work would depend on work outside the capture.
pub const STREAM_CAPTURE_ISOLATION: u32 = 905;
/// The call would synchronize the capture with the legacy default stream.
pub const STREAM_CAPTURE_IMPLICIT: u32 = 906;
/// The event was recorded in a capture.
pub const CAPTURED_EVENT: u32 = 907;
/// The capture was ended on a thread other than the one on which it was started.
pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
/// An executable graph cannot be updated from the graph.
pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
/// The cluster exceeds the device's limit.
pub const INVALID_CLUSTER_SIZE: u32 = 912;
/// An error without a specific code.
pub const UNKNOWN: u32 = 999;
