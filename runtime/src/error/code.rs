//! Error codes of CUDA that this crate acts on, the emulated driver reporting with the same; and what the code of an error
//! says.

use super::Error;

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NO_DEVICE: u32 = 100;
pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
pub const INVALID_HANDLE: u32 = 400;
pub const ILLEGAL_STATE: u32 = 401;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const ASSERT: u32 = 710;
pub const LAUNCH_FAILED: u32 = 719;
pub const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;
pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
pub const STREAM_CAPTURE_INVALIDATED: u32 = 901;
pub const STREAM_CAPTURE_MERGE: u32 = 902;
pub const STREAM_CAPTURE_UNMATCHED: u32 = 903;
pub const STREAM_CAPTURE_UNJOINED: u32 = 904;
pub const STREAM_CAPTURE_ISOLATION: u32 = 905;
pub const STREAM_CAPTURE_IMPLICIT: u32 = 906;
pub const CAPTURED_EVENT: u32 = 907;
pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
pub const INVALID_CLUSTER_SIZE: u32 = 912;
pub const UNKNOWN: u32 = 999;

impl Error {
    /// The driver's code, when a driver call failed.
    pub fn driver_code(&self) -> Option<u32> {
        match self {
            Error::Driver { code, .. } => Some(*code),
            Error::ImageRejected { source_error, .. } | Error::DeviceRuntimeRejected { source_error, .. } => {
                source_error.driver_code()
            }
            _ => None,
        }
    }

    /// Whether the device is lost: this error, or what it reports, stopped the context.
    pub fn is_device_lost(&self) -> bool {
        matches!(
            self,
            Error::KernelPanic { .. }
                | Error::Deadlock { .. }
                | Error::KernelFault { .. }
                | Error::DeviceLost { .. }
        ) || self.stops_context()
    }

    /// Whether a driver call failed with a code after which the context does nothing more.
    pub(crate) fn stops_context(&self) -> bool {
        matches!(self.driver_code(), Some(214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721))
    }
}
