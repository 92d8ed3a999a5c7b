//! [`Arch`]: a GPU architecture to compile for.
//!
//! An architecture determines which instructions are available and the oldest driver that can load the result (through
//! the PTX version). It also determines whether a cubin (machine code) is embedded next to the PTX.

use std::fmt;

/// A GPU architecture, for example [`Arch::SM_80`].
///
/// ```
/// use warpsmith_builder::Arch;
/// assert_eq!(Arch::SM_90A.to_string(), "sm_90a");
/// assert_eq!(Arch::new(86).capability(), 86);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    capability: u32,
    specific: bool,
    ptx: u32,
    cubin: bool,
}

impl Arch {
    /// Ampere (A100). Its PTX runs on every later GPU.
    pub const SM_80: Arch = Arch::new(80);
    /// Hopper, restricted to instructions that later GPUs also support.
    pub const SM_90: Arch = Arch::new(90);
    /// Hopper with architecture-specific instructions (`wgmma`, `setmaxnreg`); runs on Hopper only.
    pub const SM_90A: Arch = Arch::specific(90);

    /// Creates the architecture for compute capability `capability` (`10 * major + minor`). The PTX runs on this and
    /// all later capabilities.
    pub const fn new(capability: u32) -> Arch {
        Arch { capability, specific: false, ptx: min_ptx(capability), cubin: false }
    }

    /// Creates the architecture-specific (`a`) variant of a compute capability: its code can use architecture-specific
    /// instructions and runs only on that architecture. A cubin is also embedded.
    pub const fn specific(capability: u32) -> Arch {
        Arch { capability, specific: true, ptx: min_ptx(capability), cubin: true }
    }

    /// Sets the PTX version to `ptx` (`10 * major + minor`, for example 74). A newer version allows newer instructions
    /// and needs a newer driver: 7.4 needs R470, 8.0 needs R525, 8.6 needs R565.
    pub const fn with_ptx(self, ptx: u32) -> Arch {
        Arch { ptx, ..self }
    }

    /// Also embeds a cubin (if ptxas is available), so that the driver does not have to compile the PTX when it loads
    /// the module.
    pub const fn with_cubin(self) -> Arch {
        Arch { cubin: true, ..self }
    }

    /// Compute capability as `10 * major + minor`.
    pub const fn capability(self) -> u32 {
        self.capability
    }

    /// Returns true if the architecture is an `a` variant.
    pub const fn is_specific(self) -> bool {
        self.specific
    }

    /// PTX version as `10 * major + minor`.
    pub const fn ptx(self) -> u32 {
        self.ptx
    }

    /// Returns true if a cubin is embedded next to the PTX.
    pub const fn has_cubin(self) -> bool {
        self.cubin
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.specific { "a" } else { "" })
    }
}

/// Returns the oldest useful PTX version for a capability: at least the capability's minimum, and at least 7.4 (driver
/// R470), which supports cache hints.
const fn min_ptx(capability: u32) -> u32 {
    match capability {
        0..=87 => 74,
        88..=89 => 78,
        90..=99 => 80,
        100..=119 => 86,
        _ => 87,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_llc_and_ptxas() {
        assert_eq!(Arch::SM_80.to_string(), "sm_80");
        assert_eq!(Arch::specific(100).to_string(), "sm_100a");
    }

    #[test]
    fn ptx_versions_fit_drivers_and_capabilities() {
        assert_eq!(Arch::SM_80.ptx(), 74);
        assert_eq!(Arch::SM_90A.ptx(), 80);
        assert_eq!(Arch::new(80).with_ptx(70).ptx(), 70);
        assert!(Arch::SM_90A.has_cubin() && !Arch::SM_80.has_cubin());
    }
}
