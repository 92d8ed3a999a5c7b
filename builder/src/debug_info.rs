//! [`DebugInfo`]: how much of a kernel's source compute-sanitizer, Nsight Compute and cuda-gdb can show.

use std::env;

use crate::error::Error;

/// Variable that overrides the builder's option.
pub const VARIABLE: &str = "WARPSMITH_GPU_DEBUG";

/// Debug information of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// No debug information, which makes the image smallest.
    None,
    /// The source line of each instruction. The machine code is byte-identical to code without debug information.
    Lines,
    /// Lines, types and variables for cuda-gdb. The code is not optimized, and is many times slower.
    Full,
}

impl DebugInfo {
    /// Returns the kind of debug information that a build with this option generates. A library's kernels contain no
    /// debug information unless the variable requests it, and are always optimized.
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
