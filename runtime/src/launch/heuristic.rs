//! Heuristic choice of block and grid size for open launches, from properties of the device and the kernel.
//!
//! | work | rule |
//! | --- | --- |
//! | any | the block has an eighth of an SM's threads, or half or twice as many if more threads are then resident |
//! | compute-bound | the block has the size with the highest occupancy |
//! | memory-bound | the block keeps enough bytes in flight ([`bytes_needed`]), and the grid is a number of waves ([`GridChoice`]) |
//! | small | the block is halved until the busiest SM has at most 25 % more threads than the average SM |
//!
//! An eighth of an SM's threads is 256 (8 warps) of 2048 threads or 192 (6 warps) of 1536. This is enough to hide
//! latency, and the blocks are small enough to limit the tail effect.

use super::limits::Limits;
use super::occupancy::Occupancy;
use super::policy::GridChoice;
use crate::driver::DeviceProperties;

/// Number of blocks of the usual size that fill an SM.
const BLOCKS_TO_FILL: u32 = 8;
/// Number of waves above which the tail effect is negligible.
const MANY_WAVES: u64 = 8;
/// Bytes in flight per block from which a block per tile is as fast as a loop. With fewer bytes, starting the blocks
/// takes a large part of the time: on an H200, `y += a * x` with one element per thread takes 1.14 times as long.
const LARGE_TILE: u64 = 16 << 10;

/// Returns the bytes that must be in flight on each SM to saturate the memory bandwidth: the SM's share of the
/// bandwidth times the latency of an access under load. Returns 0 if the bandwidth is unknown.
///
/// The assumed latency is 1.3 µs for compute capability 9.0 and later, and 1.1 µs for earlier devices. The result is 12
/// KiB for a V100, 15 KiB for an A100, 32 KiB for an H100, 46 KiB for an H200 and 66 KiB for a B200.
///
/// ```
/// use warpsmith_runtime::launch::bytes_needed;
///
/// let mut device = warpsmith_runtime::Device::emulated(0)?.properties().clone();
/// assert_eq!(bytes_needed(&device), 0);
/// (device.capability, device.multiprocessors) = ((9, 0), 132);
/// device.memory_bandwidth = 3_350_000_000_000;
/// assert_eq!(bytes_needed(&device) >> 10, 32);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn bytes_needed(device: &DeviceProperties) -> u64 {
    let nanoseconds = if device.capability.0 >= 9 { 1300 } else { 1100 };
    let in_flight = u128::from(device.memory_bandwidth) * nanoseconds / 1_000_000_000;
    (in_flight / u128::from(device.multiprocessors.max(1))) as u64
}

/// Returns the block size for `device` if the kernel is unknown: an eighth of an SM's maximum threads, in whole warps.
///
/// ```
/// let device = warpsmith_runtime::Device::emulated(0)?;
/// assert_eq!(warpsmith_runtime::launch::default_block_size(device.properties()), 256);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn default_block_size(device: &DeviceProperties) -> u32 {
    let warp = device.warp_size.max(1);
    let eighth = device.max_threads_per_multiprocessor / BLOCKS_TO_FILL / warp * warp;
    eighth.clamp(warp, device.max_threads_per_block.max(warp))
}

/// Returns `block`, halved until no SM is assigned more than 125 % of its share of `threads` threads, but not below one
/// warp. Launches of more than one wave keep their block.
///
/// ```
/// use warpsmith_runtime::launch::shrink_block_size;
///
/// let mut device = warpsmith_runtime::Device::emulated(0)?.properties().clone();
/// device.multiprocessors = 132;
/// assert_eq!(shrink_block_size(&device, 256, 10_000), 32); // 40 blocks of 256 would leave 92 SMs idle
/// assert_eq!(shrink_block_size(&device, 256, 1 << 16), 256);
/// assert_eq!(shrink_block_size(&device, 256, 1 << 24), 256);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn shrink_block_size(device: &DeviceProperties, block: u32, threads: u64) -> u32 {
    let warp = device.warp_size.max(1);
    let multiprocessors = u64::from(device.multiprocessors.max(1));
    let resident = multiprocessors * u64::from(device.max_threads_per_multiprocessor);
    let threads = threads.max(1);
    if threads >= resident {
        return block;
    }
    let fullest =
        |block: u32| threads.div_ceil(u64::from(block)).div_ceil(multiprocessors) * u64::from(block);
    let mut block = block.max(1);
    while block >= 2 * warp && fullest(block) * multiprocessors * 4 > threads * 5 {
        block = (block / 2).div_ceil(warp) * warp;
    }
    block
}

impl Limits<'_> {
    /// Clamps `block` to the limits of the device and the kernel, in whole warps if at least one fits.
    pub fn clamp_block(&self, block: u32) -> u32 {
        let (limit, _) = self.block_limit();
        let warp = self.device.warp_size.max(1);
        let block = block.min(limit);
        if block > warp { block / warp * warp } else { block.max(1) }
    }

    fn occupancy(&self, block: u32, shared_bytes: u32) -> Occupancy {
        Occupancy::theoretical(self.device, self.attributes, block, shared_bytes)
    }

    /// Returns the block size for `threads` threads of a kernel whose kind is not specified.
    pub fn block_for_any(&self, threads: u64, shared_bytes: u32) -> u32 {
        let usual = default_block_size(self.device);
        let sizes = [usual, usual * 2, usual / 2].map(|block| self.clamp_block(block));
        shrink_block_size(self.device, self.fullest(sizes, shared_bytes), threads)
    }

    /// Returns the block for an extent in one to three dimensions: as many threads as [`Self::block_for_any`] chooses,
    /// 32 of them along x. No axis has more threads than the extent, rounded up to a power of two.
    pub fn block_for_extent(&self, sides: [u32; 3], shared_bytes: u32) -> [u32; 3] {
        let total = sides.iter().fold(1u64, |total, side| total.saturating_mul((*side).into()));
        let threads = self.block_for_any(total, shared_bytes);
        if sides[1] == 1 && sides[2] == 1 {
            return [threads, 1, 1];
        }
        let room = |side: u32| side.checked_next_power_of_two().unwrap_or(u32::MAX);
        let x = threads.min(self.device.warp_size.max(1)).min(room(sides[0]));
        let y = (threads / x).clamp(1, room(sides[1]));
        let z = (threads / (x * y)).clamp(1, room(sides[2]).min(self.device.max_block[2].max(1)));
        [x, y, z]
    }

    /// Returns the block size for `threads` threads of a compute-bound kernel.
    pub fn block_for_occupancy(&self, threads: u64, shared_bytes: u32) -> u32 {
        let usual = default_block_size(self.device);
        let warp = self.device.warp_size.max(1);
        let (limit, _) = self.block_limit();
        let all = (1..=limit / warp).map(|warps| warps * warp).filter(|block| *block != usual);
        let sizes = [self.clamp_block(usual)].into_iter().chain(all);
        shrink_block_size(self.device, self.fullest(sizes, shared_bytes), threads)
    }

    /// Returns the block size for a loop over `items` items with `in_flight` bytes in flight per thread: the usual size
    /// if it keeps enough bytes in flight, otherwise the size that keeps the most.
    pub fn block_for_bandwidth(&self, items: u64, in_flight: u32, shared_bytes: u32) -> u32 {
        let needed = bytes_needed(self.device);
        let usual = self.clamp_block(default_block_size(self.device));
        let warps = u64::from(self.occupancy(usual, shared_bytes).warps);
        if needed > 0 && warps * u64::from(self.device.warp_size) * u64::from(in_flight) >= needed {
            shrink_block_size(self.device, usual, items)
        } else {
            self.block_for_occupancy(items, shared_bytes)
        }
    }

    /// Returns the first block size with the maximum number of resident warps.
    fn fullest(&self, sizes: impl IntoIterator<Item = u32>, shared_bytes: u32) -> u32 {
        let mut best = (0, None);
        for block in sizes {
            let warps = self.occupancy(block, shared_bytes).warps;
            if best.1.is_none() || warps > best.0 {
                best = (warps, Some(block));
            }
        }
        best.1.unwrap_or(1)
    }
}

/// Returns the grid for a loop over `tiles` tiles, where a tile is the set of items that one block processes at a time,
/// with `tile_bytes` bytes in flight. The grid has one block per tile if all blocks can be resident concurrently, or if
/// blocks with many bytes in flight run in many waves; otherwise, it balances the work of the blocks.
pub(super) fn grid_for_bandwidth(tiles: u64, tile_bytes: u64, capacity: u64) -> GridChoice {
    let is_many_waves = tile_bytes >= LARGE_TILE && tiles >= capacity.saturating_mul(MANY_WAVES);
    if tiles <= capacity || is_many_waves { GridChoice::All } else { GridChoice::Balanced }
}

#[cfg(test)]
pub(super) mod tests {
    use gpu_spec::{KernelSpec, LaunchBounds};

    use super::super::occupancy::tests::{gpu, kernel};
    use super::*;
    use crate::driver::FunctionAttributes;

    unsafe fn nothing(_: *const *const std::ffi::c_void) {}

    pub const fn spec(max_threads: u32) -> KernelSpec {
        let mut spec = KernelSpec::new("test", "0.0.0", "k", &[], nothing);
        spec.info.launch_bounds = Some(LaunchBounds { max_threads, min_blocks: 0 });
        spec
    }

    static FREE: KernelSpec = spec(1024);
    static BOUNDED: KernelSpec = spec(100);

    fn block(
        kernel: &'static KernelSpec,
        device: &DeviceProperties,
        attributes: FunctionAttributes,
        choose: impl Fn(Limits<'_>) -> u32,
    ) -> u32 {
        choose(Limits { kernel, device, attributes: &attributes })
    }

    #[test]
    fn bytes_in_flight_follow_the_device() {
        let kib = |capability| bytes_needed(&gpu(capability)) >> 10;
        assert_eq!([(7, 0), (8, 0), (9, 0), (10, 0)].map(kib), [12, 15, 46, 65]);
        let unknown = DeviceProperties { memory_bandwidth: 0, ..gpu((9, 0)) };
        assert_eq!(bytes_needed(&unknown), 0);
    }

    #[test]
    fn the_default_block_follows_the_multiprocessor_and_the_kernel() {
        let any = |capability, registers, shared| {
            block(&FREE, &gpu(capability), kernel(registers, 0), |limits| {
                limits.block_for_any(1 << 28, shared)
            })
        };
        assert_eq!(any((9, 0), 32, 0), 256);
        assert_eq!(any((8, 6), 32, 0), 192);
        // With 113 registers, 16 warps fit: two blocks of 256 threads or one of 512, so the usual size is kept.
        assert_eq!(any((9, 0), 113, 0), 256);
        // With 30 KiB per block, 7 blocks of any size fit, so larger blocks increase occupancy.
        assert_eq!(any((9, 0), 32, 30 << 10), 512);
        let bounded = block(&BOUNDED, &gpu((9, 0)), kernel(32, 0), |limits| limits.block_for_any(1 << 28, 0));
        assert_eq!(bounded, 96, "whole warps within the launch bounds");
    }

    #[test]
    fn little_work_reaches_every_multiprocessor() {
        let device = gpu((9, 0));
        for threads in [1, 31, 100, 5_000, 10_000, 33_000, 1 << 16, 200_000, 1 << 20] {
            let block = block(&FREE, &device, kernel(32, 0), |limits| limits.block_for_any(threads, 0));
            assert!(block.is_multiple_of(32) && block <= 512, "{threads}: {block}");
            let busy = threads.div_ceil(u64::from(block)).min(132);
            assert!(busy >= 100 || block == 32 || threads >= 132 * 2048, "{threads}: {block}, {busy} busy");
        }
        assert_eq!(shrink_block_size(&device, 256, 1 << 28), 256);
        assert_eq!(shrink_block_size(&device, 0, 5), 1);
    }

    #[test]
    fn compute_bound_work_gets_the_most_warps() {
        for (registers, shared) in [(32, 0), (72, 0), (255, 0), (40, 50 << 10)] {
            let (device, attributes) = (gpu((9, 0)), kernel(registers, 0));
            let chosen =
                block(&FREE, &device, attributes, |limits| limits.block_for_occupancy(1 << 28, shared));
            let warps = |block| Occupancy::theoretical(&device, &attributes, block, shared).warps;
            let best = (1..=32).map(|n| warps(32 * n)).max().unwrap();
            assert_eq!(warps(chosen), best, "{registers} registers, {shared} bytes: {chosen}");
        }
    }

    #[test]
    fn too_few_bytes_in_flight_ask_for_more_threads() {
        // With 65 registers, 28 warps fit in blocks of any size that divides them, but only 24 in blocks of 256
        // threads.
        let of = |in_flight| {
            block(&FREE, &gpu((9, 0)), kernel(65, 0), |limits| {
                limits.block_for_bandwidth(1 << 28, in_flight, 0)
            })
        };
        assert_eq!(of(64), 256, "48 KiB are enough");
        let warps = |block| Occupancy::theoretical(&gpu((9, 0)), &kernel(65, 0), block, 0).warps;
        assert!(warps(of(16)) > warps(256), "{}", of(16));
    }

    #[test]
    fn loops_are_balanced() {
        let capacity = 132 * 8;
        let blocks = |tiles| grid_for_bandwidth(tiles, LARGE_TILE, capacity).blocks(tiles, capacity);
        assert_eq!(blocks(1), 1);
        assert_eq!(blocks(capacity), capacity);
        assert_eq!(
            blocks(capacity + 1),
            529,
            "two rounds of half of them, not one of all and one of a block"
        );
        assert_eq!(blocks(3 * capacity), capacity);
        assert_eq!(blocks(100 * capacity), 100 * capacity);
        let small = grid_for_bandwidth(100 * capacity, 256 * 8, capacity);
        assert_eq!(small.blocks(100 * capacity, capacity), capacity, "few bytes per block: one wave");
        for tiles in [1, 7, 500, capacity + 1, 2 * capacity - 1, 5 * capacity + 3] {
            let grid = GridChoice::Balanced.blocks(tiles, capacity);
            assert!(grid <= capacity && grid * tiles.div_ceil(grid) < tiles + grid, "{tiles}: {grid}");
        }
        assert_eq!(GridChoice::Waves(2).blocks(10_000, 100), 200);
        assert_eq!(GridChoice::Waves(2).blocks(50, 100), 50);
        assert_eq!(GridChoice::Balanced.blocks(5, 0), 1);
        assert_eq!([7, 500].map(|tiles| GridChoice::Blocks(50).blocks(tiles, 100)), [7, 50]);
    }
}
