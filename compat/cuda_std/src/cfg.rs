//! Compute capability for which the code is compiled.

/// Compute capability.
#[allow(missing_docs, reason = "each is named by its number")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputeCapability {
    Compute35,
    Compute37,
    Compute50,
    Compute52,
    Compute53,
    Compute60,
    Compute61,
    Compute62,
    Compute70,
    Compute72,
    Compute75,
    Compute80,
    Compute86,
    Compute87,
    Compute89,
    Compute90,
    Compute100,
    Compute101,
    Compute103,
    Compute120,
    Compute121,
}

impl ComputeCapability {
    /// Returns the compute capability of the running code; to the optimizer, it is a constant. On the emulated device,
    /// the capability is 8.0.
    #[inline(always)]
    pub fn from_cuda_arch_env() -> ComputeCapability {
        match gpu_std::arch() {
            1..=71 => ComputeCapability::Compute70,
            72..=74 => ComputeCapability::Compute72,
            75..=79 => ComputeCapability::Compute75,
            0 | 80..=85 => ComputeCapability::Compute80,
            86 => ComputeCapability::Compute86,
            87 | 88 => ComputeCapability::Compute87,
            89 => ComputeCapability::Compute89,
            90..=99 => ComputeCapability::Compute90,
            100 => ComputeCapability::Compute100,
            101 | 102 => ComputeCapability::Compute101,
            103..=119 => ComputeCapability::Compute103,
            120 => ComputeCapability::Compute120,
            _ => ComputeCapability::Compute121,
        }
    }
}
