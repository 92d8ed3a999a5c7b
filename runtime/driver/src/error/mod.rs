//! [`DriverError`]: the error type of drivers.
//!
//! Errors contain only plain data and can be cloned.

pub mod code;

use std::fmt;
use std::sync::Arc;

/// Result of a driver call.
pub type Result<T, E = DriverError> = std::result::Result<T, E>;

/// Error from a driver, with its cause and remedy.
///
/// ```
/// use warpsmith_driver::DriverError;
///
/// assert!(DriverError::NoLibrary.to_string().contains("install the NVIDIA driver"));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The CUDA driver library could not be loaded.
    #[error(
        "the CUDA driver (libcuda.so.1 or nvcuda.dll) was not found; install the NVIDIA driver, or use the emulated \
         device `cpu`"
    )]
    NoLibrary,

    /// The driver library does not contain a function that this crate calls.
    #[error(
        "the CUDA driver has no function `{symbol}`; install driver 525 or newer (CUDA 12.0), or use the emulated device `cpu`"
    )]
    LacksFunction {
        /// Name of the function.
        symbol: &'static str,
    },

    /// The driver rejected a module's code.
    #[error("the driver rejected the GPU image: {source_error}{}", log_suffix(log))]
    ImageRejected {
        /// Error from the driver.
        source_error: Arc<DriverError>,
        /// Log of the driver's compiler; may be empty.
        log: String,
    },

    /// A driver call failed.
    #[error("{call} failed with error {code} ({name}): {text}")]
    Call {
        /// Driver function that failed.
        call: &'static str,
        /// Error code, as in CUDA's `CUresult`; [`code`] contains constants.
        code: u32,
        /// Name of the code.
        name: String,
        /// Explanation by the driver.
        text: String,
    },
}

/// Formats the error like `Display`, so that `main` and `unwrap` show readable text.
impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DriverError {
    /// Returns the CUDA error code of a failed driver call.
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            Self::ImageRejected { source_error, .. } => source_error.code(),
            Self::NoLibrary | Self::LacksFunction { .. } => None,
        }
    }

    /// Returns true if this is a driver error whose code means that the context is unusable.
    pub fn stops_context(&self) -> bool {
        matches!(self.code(), Some(214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721))
    }
}

fn log_suffix(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; compiler output:\n{log}") }
}

/// Returns the remedy for a capture-related driver error code.
pub fn capture_advice(code: u32) -> Option<&'static str> {
    Some(match code {
        code::STREAM_CAPTURE_UNSUPPORTED => {
            "a call that synchronizes, queries or allocates cannot be captured; make it before the capture starts or \
             after it ends"
        }
        code::STREAM_CAPTURE_INVALIDATED => {
            "an earlier call invalidated the capture; end it, fix the call and capture again"
        }
        code::STREAM_CAPTURE_MERGE => {
            "the call would merge two captures; wait only for events that were recorded in the same capture"
        }
        code::STREAM_CAPTURE_UNMATCHED => "end the capture on the stream on which it started",
        code::STREAM_CAPTURE_UNJOINED => {
            "another stream took part in the capture and was not joined; record an event on it after its last work, \
             and let the stream on which the capture started wait for this event before the capture ends"
        }
        code::STREAM_CAPTURE_ISOLATION => {
            "captured work would depend on work outside the capture; wait for that work before the capture starts"
        }
        code::STREAM_CAPTURE_IMPLICIT => {
            "the call would order the legacy default stream with the capture; during a capture, use explicitly \
             created streams"
        }
        code::CAPTURED_EVENT => {
            "the event was recorded in a capture, which does not run work; record it again after the graph launch"
        }
        code::STREAM_CAPTURE_WRONG_THREAD => {
            "end the capture on the thread that started it, or start it in the relaxed mode"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_about_captures_alone_have_advice() {
        let told: Vec<_> = (900..=908).map(|code| capture_advice(code).unwrap()).collect();
        for (index, advice) in told.iter().enumerate() {
            assert!(!told[..index].contains(advice), "{advice}");
        }
        for other in [code::INVALID_VALUE, code::NOT_PERMITTED, 899, 909, code::GRAPH_EXEC_UPDATE_FAILURE] {
            assert_eq!(capture_advice(other), None, "{other}");
        }
    }
}
