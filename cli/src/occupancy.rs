//! Theoretical occupancy: the share of an SM's threads that can be resident, computed from a kernel's resources alone.
//!
//! The limits come from the CUDA programming guide ("Technical Specifications per Compute Capability"). The driver's
//! occupancy calculator, which the runtime calls on a device, is authoritative.

/// Resources that an SM of this architecture has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    warps: u32,
    blocks: u32,
    registers: u32,
    shared: u32,
}

/// Shared memory per block reserved by the system, in bytes.
const SYSTEM_SHARED: u32 = 1024;

fn limits(arch: u32) -> Option<Limits> {
    let (warps, blocks, shared_kib) = match arch {
        80 => (64, 32, 164),
        86 => (48, 16, 100),
        87 => (48, 16, 164),
        89 => (48, 24, 100),
        90 | 100 | 103 => (64, 32, 228),
        120 | 121 => (48, 24, 100),
        _ => return None,
    };
    Some(Limits { warps, blocks, registers: 65536, shared: shared_kib << 10 })
}

/// Returns the share (0 to 1) of an SM's threads that are resident, or `None` for an unknown architecture. The kernel
/// uses blocks of `block` threads, `registers` per thread and `shared` bytes per block.
pub fn occupancy(arch: u32, block: u32, registers: u32, shared: u32) -> Option<f64> {
    let limits = limits(arch)?;
    let warps = block.div_ceil(32).max(1);
    // Registers are allocated in units of 256 per warp, and warps are assigned to four partitions.
    let of_a_warp = (registers.max(1) * 32).next_multiple_of(256);
    let by_registers = (limits.registers / of_a_warp) / 4 * 4 / warps;
    let by_shared = limits.shared / (shared + SYSTEM_SHARED).next_multiple_of(128);
    let blocks = limits.blocks.min(limits.warps / warps).min(by_registers).min(by_shared);
    Some(f64::from(blocks * warps) / f64::from(limits.warps))
}

#[cfg(test)]
mod tests {
    use super::occupancy;

    #[test]
    fn known_values() {
        // Values from CUDA's occupancy calculator.
        assert_eq!(occupancy(90, 256, 32, 0), Some(1.0));
        assert_eq!(occupancy(90, 256, 33, 0), Some(0.75));
        assert_eq!(occupancy(90, 256, 64, 0), Some(0.5));
        assert_eq!(occupancy(90, 1024, 64, 0), Some(0.5));
        assert_eq!(occupancy(90, 1024, 65, 0), Some(0.0));
        assert_eq!(occupancy(80, 128, 255, 0), Some(0.125));
        assert_eq!(occupancy(86, 1024, 32, 0), Some(32.0 / 48.0));
        // At most 32 blocks fit, each of one warp.
        assert_eq!(occupancy(90, 32, 16, 0), Some(0.5));
        // A block takes 48 KiB, plus 1 KiB reserved by the system, so four blocks fit in 228 KiB and three in 164 KiB.
        assert_eq!(occupancy(90, 256, 32, 48 << 10), Some(0.5));
        assert_eq!(occupancy(80, 256, 32, 48 << 10), Some(0.375));
        assert_eq!(occupancy(52, 256, 32, 0), None);
    }
}
