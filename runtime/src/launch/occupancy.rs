//! Theoretical occupancy: the fraction of an SM's warps that a kernel can occupy, and the limiting resource.
//!
//! [`Occupancy::theoretical`] computes the occupancy from a device's properties and a kernel's resources, by the rules
//! of the CUDA programming guide, without a driver call. On a CUDA device, the number of blocks equals the driver's
//! result ([`Function::occupancy`](super::Function::occupancy)), unless barriers limit it. An SM has 64 barriers, but
//! drivers do not report the number that a kernel uses.

use std::fmt;

use crate::driver::{DeviceProperties, FunctionAttributes};

/// Granularity of register allocation per warp, in registers.
const REGISTER_UNIT: u64 = 256;
/// Number of partitions per SM, which share the registers equally. A warp stays in one partition.
const PARTITIONS: u64 = 4;

/// Theoretical occupancy of a kernel, and the limiting resource.
///
/// ```
/// use warpsmith_runtime::Device;
/// use warpsmith_runtime::driver::FunctionAttributes;
/// use warpsmith_runtime::launch::{Limiter, Occupancy};
///
/// let mut device = Device::emulated(0)?.properties().clone();
/// device.capability = (9, 0); // the emulated device's other properties resemble a GPU's
/// let kernel = FunctionAttributes { max_threads_per_block: 1024, registers: 64, ..Default::default() };
/// let occupancy = Occupancy::theoretical(&device, &kernel, 256, 0);
/// assert_eq!((occupancy.blocks, occupancy.fraction), (4, 0.5));
/// assert_eq!(occupancy.limiter, Limiter::Registers);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancy {
    /// Resident blocks per SM; 0 if not even one block fits.
    pub blocks: u32,
    /// Number of resident warps per SM.
    pub warps: u32,
    /// Resident warps as a fraction of the SM's maximum, from 0 to 1.
    pub fraction: f64,
    /// The resource that limits the number of blocks.
    pub limiter: Limiter,
}

/// The resource that limits the blocks per SM.
///
/// See the example of [`Occupancy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// The maximum number of threads per SM, or per block.
    Threads,
    /// The maximum number of blocks per SM.
    Blocks,
    /// The registers of the kernel's threads.
    Registers,
    /// The shared memory of the kernel's blocks.
    SharedMemory,
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limiter::Threads => "threads",
            Limiter::Blocks => "the number of blocks",
            Limiter::Registers => "registers",
            Limiter::SharedMemory => "shared memory",
        })
    }
}

impl Occupancy {
    /// Computes a kernel's occupancy for blocks of `block_threads` threads with `shared_bytes` bytes of dynamic shared
    /// memory.
    pub fn theoretical(
        device: &DeviceProperties,
        kernel: &FunctionAttributes,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Self {
        let warp = device.warp_size.max(1);
        let of_block = block_threads.div_ceil(warp).max(1);
        let most = device.max_threads_per_multiprocessor / warp;
        let limits = [
            (Limiter::Threads, blocks_by_threads(device, block_threads, most / of_block)),
            (Limiter::Blocks, device.max_blocks_per_multiprocessor),
            (Limiter::Registers, blocks_by_registers(device, kernel, of_block)),
            (Limiter::SharedMemory, blocks_by_shared(device, kernel, shared_bytes)),
        ];
        let minimum = |best: (Limiter, u32), next: (Limiter, u32)| if next.1 < best.1 { next } else { best };
        let (limiter, blocks) = limits.into_iter().fold((Limiter::Threads, u32::MAX), minimum);
        let warps = blocks * of_block;
        Self { blocks, warps, fraction: f64::from(warps) / f64::from(most.max(1)), limiter }
    }
}

fn blocks_by_threads(device: &DeviceProperties, block_threads: u32, fitting: u32) -> u32 {
    if block_threads == 0 || block_threads > device.max_threads_per_block { 0 } else { fitting }
}

fn blocks_by_registers(device: &DeviceProperties, kernel: &FunctionAttributes, warps: u32) -> u32 {
    if kernel.registers == 0 {
        return u32::MAX;
    }
    let of_warp =
        (u64::from(kernel.registers) * u64::from(device.warp_size)).next_multiple_of(REGISTER_UNIT).max(1);
    let of_partition = u64::from(device.registers_per_multiprocessor) / PARTITIONS;
    (of_partition / of_warp * PARTITIONS / u64::from(warps)) as u32
}

fn blocks_by_shared(device: &DeviceProperties, kernel: &FunctionAttributes, shared_bytes: u32) -> u32 {
    let asked = u64::from(kernel.static_shared) + u64::from(shared_bytes);
    let unit = match device.capability.0 {
        0 => 1,
        1..8 => 256,
        _ => 128,
    };
    let of_block = (asked + u64::from(device.reserved_shared_memory_per_block)).next_multiple_of(unit);
    if asked > u64::from(device.shared_memory_per_block_optin.max(device.shared_memory_per_block)) {
        return 0;
    }
    let all = u64::from(device.shared_memory_per_multiprocessor);
    all.checked_div(of_block).map_or(u32::MAX, |blocks| blocks as u32)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns device properties as reported by `cuDeviceGetAttribute`.
    pub fn gpu(capability: (u32, u32)) -> DeviceProperties {
        let (name, multiprocessors, threads, blocks, shared_kib, optin_kib, gigabytes) = match capability {
            (7, 0) => ("V100", 80, 2048, 32, 96, 96, 900),
            (8, 0) => ("A100", 108, 2048, 32, 164, 163, 1555),
            (8, 6) => ("RTX 3090", 82, 1536, 16, 100, 99, 936),
            (8, 9) => ("L40S", 142, 1536, 24, 100, 99, 864),
            (9, 0) => ("H200", 132, 2048, 32, 228, 227, 4814),
            _ => ("B200", 148, 2048, 32, 228, 227, 7672),
        };
        DeviceProperties {
            name: name.to_owned(),
            uuid: [0; 16],
            capability,
            multiprocessors,
            total_memory: 80 << 30,
            l2_cache: 50 << 20,
            memory_bandwidth: gigabytes * 1_000_000_000,
            max_threads_per_block: 1024,
            max_block: [1024, 1024, 64],
            max_grid: [i32::MAX as u32, 65535, 65535],
            max_threads_per_multiprocessor: threads,
            max_blocks_per_multiprocessor: blocks,
            registers_per_multiprocessor: 65536,
            shared_memory_per_block: 48 << 10,
            shared_memory_per_block_optin: optin_kib << 10,
            shared_memory_per_multiprocessor: shared_kib << 10,
            reserved_shared_memory_per_block: if capability.0 >= 8 { 1024 } else { 0 },
            cooperative_launch: true,
            max_cluster: if capability.0 >= 9 { 8 } else { 0 },
            warp_size: 32,
            driver_version: "13.0".to_owned(),
        }
    }

    pub fn kernel(registers: u32, static_shared: u32) -> FunctionAttributes {
        FunctionAttributes { max_threads_per_block: 1024, registers, static_shared, ..Default::default() }
    }

    fn of(capability: (u32, u32), block: u32, registers: u32, shared: u32) -> (f64, Limiter) {
        let found = Occupancy::theoretical(&gpu(capability), &kernel(registers, 0), block, shared);
        (found.fraction, found.limiter)
    }

    #[test]
    fn figures_are_those_of_the_occupancy_calculator() {
        use Limiter::{Blocks, Registers, SharedMemory, Threads};
        assert_eq!(of((9, 0), 256, 32, 0), (1.0, Threads));
        assert_eq!(of((9, 0), 256, 33, 0), (0.75, Registers));
        assert_eq!(of((9, 0), 256, 64, 0), (0.5, Registers));
        assert_eq!(of((9, 0), 1024, 64, 0), (0.5, Registers));
        assert_eq!(of((9, 0), 1024, 65, 0), (0.0, Registers));
        assert_eq!(of((8, 0), 128, 255, 0), (0.125, Registers));
        assert_eq!(of((8, 6), 1024, 32, 0), (32.0 / 48.0, Threads));
        assert_eq!(of((9, 0), 32, 16, 0), (0.5, Blocks));
        assert_eq!(of((8, 6), 32, 16, 0), (16.0 / 48.0, Blocks));
        // With 48 KiB plus 1 KiB reserved by the system, four blocks fit in 228 KiB and three in 164 KiB; without the
        // reserve, two fit in 96 KiB.
        assert_eq!(of((9, 0), 256, 32, 48 << 10), (0.5, SharedMemory));
        assert_eq!(of((8, 0), 256, 32, 48 << 10), (0.375, SharedMemory));
        assert_eq!(of((7, 0), 256, 32, 48 << 10), (0.25, SharedMemory));
    }

    #[test]
    fn shared_memory_is_allocated_in_architecture_units() {
        // 6 blocks of 16 KiB fit in 96 KiB. One more byte allocates another 256 bytes, so only 5 fit. With 5 blocks,
        // the maximum is 19456 bytes.
        let blocks = |bytes| Occupancy::theoretical(&gpu((7, 0)), &kernel(32, 0), 32, bytes).blocks;
        assert_eq!((blocks(16 << 10), blocks((16 << 10) + 1), blocks(19456), blocks(19457)), (6, 5, 5, 4));
        let static_part = Occupancy::theoretical(&gpu((9, 0)), &kernel(32, 40 << 10), 256, 8 << 10);
        assert_eq!(static_part.blocks, 4, "static memory counts as dynamic memory does");
    }

    #[test]
    fn what_does_not_fit_at_all_is_none() {
        let none = |block, shared| {
            let found = Occupancy::theoretical(&gpu((9, 0)), &kernel(32, 0), block, shared);
            assert_eq!((found.blocks, found.warps, found.fraction), (0, 0, 0.0));
            found.limiter
        };
        assert_eq!(none(0, 0), Limiter::Threads);
        assert_eq!(none(1025, 0), Limiter::Threads);
        assert_eq!(none(32, (227 << 10) + 1), Limiter::SharedMemory);
        assert_eq!(none(u32::MAX, u32::MAX), Limiter::Threads);
    }
}
