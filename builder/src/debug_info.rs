//! [`DebugInfo`]: what compute-sanitizer, Nsight Compute and cuda-gdb know of a kernel's source.

use std::env;

use crate::error::Error;

/// Variable that overrides the builder's option.
pub const VARIABLE: &str = "WARPSMITH_GPU_DEBUG";

/// Debug information of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// None: the smallest image.
    None,
    /// The line of each instruction. The code is the same as without, byte for byte.
    Lines,
    /// Lines, types and variables for cuda-gdb. The code is not optimized, and is many times slower.
    Full,
}

impl DebugInfo {
    /// Returns the debug information of a build with this option. The kernels of a library have none unless the
    /// variable requests it, and are always optimized.
    pub fn of_build(self, is_library: bool) -> Result<DebugInfo, Error> {
        Ok(match env::var(VARIABLE).as_deref() {
            Err(_) | Ok("") if is_library => DebugInfo::None,
            Err(_) | Ok("") => self,
            Ok("none") => DebugInfo::None,
            Ok("lines") => DebugInfo::Lines,
            Ok("full") if is_library => DebugInfo::Lines,
            Ok("full") => DebugInfo::Full,
            Ok(value) => return Err(Error::UnknownDebugInfo(value.to_owned())),
        })
    }
}
