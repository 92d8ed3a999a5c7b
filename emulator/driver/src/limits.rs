//! Properties and limits of an emulated device.
//!
//! The values match a GPU of compute capability 9.0, except that the device has one SM per hardware thread of the
//! machine.

use std::sync::{LazyLock, PoisonError};

use super::EmulatedDriver;
use super::control::Call;
use super::control::driver_error;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{DeviceProperties, FunctionHandle, LaunchConfig};

const WARP: u32 = 32;
pub(super) const MAX_THREADS: u32 = 1024;
/// Default shared memory per block, in bytes. The next constant is the opt-in maximum, which equals the shared memory
/// of an SM.
const SHARED_BYTES: u32 = 48 << 10;
pub(super) const MAX_SHARED_BYTES: u32 = 227 << 10;
const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
/// Maximum portable cluster size, in blocks. The next constant is the maximum non-portable size.
const MAX_CLUSTER: u32 = 8;
const LARGE_CLUSTER: u32 = 16;

/// Number of SMs in a device with simulated time. The number is the same on all machines.
const SIMULATED_MULTIPROCESSORS: u32 = 2;

fn host_threads() -> u32 {
    static THREADS: LazyLock<u32> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from) as u32);
    *THREADS
}

/// Returns the number of blocks that can be resident on an SM concurrently.
pub(super) fn occupancy(block_threads: u32, shared_bytes: u32) -> u32 {
    let by_threads = THREADS_PER_MULTIPROCESSOR / block_threads.max(1);
    let by_shared = MAX_SHARED_BYTES.checked_div(shared_bytes).unwrap_or(u32::MAX);
    by_threads.min(by_shared).min(MAX_BLOCKS_PER_MULTIPROCESSOR)
}

fn product(size: [u32; 3]) -> u64 {
    size.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul)
}

impl EmulatedDriver {
    fn multiprocessors(&self) -> u32 {
        if self.time.is_some() { SIMULATED_MULTIPROCESSORS } else { host_threads() }
    }

    /// Returns how many blocks of a launch can be resident on the device concurrently.
    fn resident(&self, config: &LaunchConfig) -> u64 {
        let threads = product(config.block).min(u64::from(u32::MAX)) as u32;
        u64::from(occupancy(threads, config.shared_bytes)) * u64::from(self.multiprocessors())
    }

    pub(super) fn properties(&self, ordinal: u32) -> DeviceProperties {
        let multiprocessors = self.multiprocessors();
        let mut uuid = *b"warpsmith-emul\0\0";
        uuid[14..].copy_from_slice(&(ordinal as u16).to_be_bytes());
        DeviceProperties {
            name: match &self.time {
                Some(_) => "Emulated GPU (simulated time)".to_owned(),
                None => format!("Emulated GPU ({multiprocessors} CPU threads)"),
            },
            uuid,
            capability: (0, 0),
            multiprocessors,
            total_memory: self.memory,
            l2_cache: 0,
            memory_bandwidth: 0,
            max_threads_per_block: MAX_THREADS,
            max_block: [MAX_THREADS, MAX_THREADS, 64],
            max_grid: [i32::MAX as u32, 65535, 65535],
            max_threads_per_multiprocessor: THREADS_PER_MULTIPROCESSOR,
            max_blocks_per_multiprocessor: MAX_BLOCKS_PER_MULTIPROCESSOR,
            registers_per_multiprocessor: 65536,
            shared_memory_per_block: SHARED_BYTES,
            shared_memory_per_block_optin: MAX_SHARED_BYTES,
            shared_memory_per_multiprocessor: MAX_SHARED_BYTES,
            reserved_shared_memory_per_block: 0,
            cooperative_launch: true,
            max_cluster: MAX_CLUSTER,
            warp_size: WARP,
            driver_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Returns the maximum cluster size of a kernel in blocks.
    pub(super) fn largest_cluster(&self, function: FunctionHandle) -> u32 {
        let large = self.large_clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if large.contains(&function) { LARGE_CLUSTER } else { MAX_CLUSTER }
    }

    pub(super) fn allow_large_clusters(&self, function: FunctionHandle) {
        self.large_clusters.lock().unwrap_or_else(PoisonError::into_inner).insert(function);
    }

    /// Returns how many clusters of a launch can be resident on the device concurrently. The result is at least one,
    /// because the blocks of a cluster run on a single host thread.
    pub(super) fn resident_clusters(
        &self,
        call: Call,
        function: FunctionHandle,
        config: &LaunchConfig,
    ) -> Result<u32> {
        self.check_cluster(call, function, config)?;
        Ok((self.resident(config) / product(config.cluster)).clamp(1, u64::from(u32::MAX)) as u32)
    }

    fn check_cluster(&self, call: Call, function: FunctionHandle, config: &LaunchConfig) -> Result<()> {
        let (blocks, most) = (product(config.cluster), self.largest_cluster(function));
        let refused = |text| Err(driver_error(call.name(), code::INVALID_CLUSTER_SIZE, text));
        if blocks == 0 || blocks > u64::from(most) {
            return refused(format!("the cluster has {blocks} blocks, but must have 1 to {most}"));
        }
        if config.grid.iter().zip(config.cluster).any(|(grid, cluster)| !grid.is_multiple_of(cluster)) {
            let LaunchConfig { grid, cluster, .. } = config;
            return refused(format!("the grid {grid:?} is not a multiple of the cluster {cluster:?}"));
        }
        Ok(())
    }

    /// Checks the requirements that go beyond those of a plain launch.
    pub(super) fn check_config(
        &self,
        call: Call,
        function: FunctionHandle,
        config: &LaunchConfig,
    ) -> Result<()> {
        if config.is_plain() {
            return Ok(());
        }
        self.check_cluster(call, function, config)?;
        let (blocks, most) = (product(config.grid), self.resident(config));
        if config.cooperative && blocks > most {
            let text = format!(
                "the cooperative grid has {blocks} blocks, but only {most} can be resident on the device"
            );
            return Err(driver_error(call.name(), code::COOPERATIVE_LAUNCH_TOO_LARGE, text));
        }
        Ok(())
    }
}
