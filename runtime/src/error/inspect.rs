//! Inspection of an [`Error`]: its driver code, whether the device is lost, and its debug output.

use std::fmt;

use super::Error;

/// Formats the error like `Display`, so that `main` and `unwrap` show readable text.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns CUDA's error code if a driver call failed; [`code`](super::code) contains the constants.
    pub fn driver_code(&self) -> Option<u32> {
        match self {
            Self::Driver(error) => error.code(),
            Self::DeviceRuntimeRejected { source_error, .. } => source_error.driver_code(),
            _ => None,
        }
    }

    /// Returns true if this error means that the device is lost.
    pub fn is_device_lost(&self) -> bool {
        matches!(
            self,
            Error::KernelPanic { .. }
                | Error::Deadlock { .. }
                | Error::KernelFault { .. }
                | Error::DeviceLost { .. }
        ) || self.stops_context()
    }

    /// Returns true if this is a driver error whose code means that the context is unusable.
    pub(crate) fn stops_context(&self) -> bool {
        match self {
            Self::Driver(error) => error.stops_context(),
            Self::DeviceRuntimeRejected { source_error, .. } => source_error.stops_context(),
            _ => false,
        }
    }
}
