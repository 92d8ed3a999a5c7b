//! [`Arch`]: one GPU architecture to compile for.
//!
//! An architecture fixes three things: the instructions that may be used, the oldest driver that can load the
//! result (through the PTX version), and whether machine code (a cubin) is embedded beside the PTX.

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
    /// Hopper, only instructions that later GPUs have too.
    pub const SM_90: Arch = Arch::new(90);
    /// Hopper with its own instructions (`wgmma`, `setmaxnreg`); runs on Hopper only.
    pub const SM_90A: Arch = Arch::specific(90);

    /// Compute capability `capability` (`10 * major + minor`): PTX that runs on it and on everything later.
    pub const fn new(capability: u32) -> Arch {
        Arch { capability, specific: false, ptx: least_ptx(capability), cubin: false }
    }

    /// The `a` variant of a compute capability: its own instructions, no other GPU. A cubin is embedded too.
    pub const fn specific(capability: u32) -> Arch {
        Arch { capability, specific: true, ptx: least_ptx(capability), cubin: true }
    }

    /// Compiles to PTX version `ptx` (`10 * major + minor`, for example 74). A newer version allows newer
    /// instructions and needs a newer driver: 7.4 needs R470, 8.0 needs R525, 8.6 needs R560.
    pub const fn with_ptx(self, ptx: u32) -> Arch {
        Arch { ptx, ..self }
    }

    /// Embeds a cubin too (when ptxas is there), so that the driver need not compile at load.
    pub const fn with_cubin(self) -> Arch {
        Arch { cubin: true, ..self }
    }

    /// `10 * major + minor`.
    pub const fn capability(self) -> u32 {
        self.capability
    }

    /// Whether it is an `a` variant.
    pub const fn is_specific(self) -> bool {
        self.specific
    }

    /// The PTX version, as `10 * major + minor`.
    pub const fn ptx(self) -> u32 {
        self.ptx
    }

    /// Whether a cubin is embedded beside the PTX.
    pub const fn has_cubin(self) -> bool {
        self.cubin
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.specific { "a" } else { "" })
    }
}

/// The oldest PTX version worth writing for a capability: what it needs at least, and 7.4 (driver R470) so
/// that cache hints can be used.
const fn least_ptx(capability: u32) -> u32 {
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
