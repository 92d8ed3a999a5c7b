//! Resolves a [`Launch`] to a [`LaunchConfig`] within all limits of the device and the kernel.

use super::Function;
use super::heuristic::grid_for_bandwidth;
use super::limits::{Limits, Line};
use super::lookup::Launches;
use super::policy::{GridChoice, Winner};
use super::shape::{Launch, Shape};
pub use crate::device::source::Source;
use crate::driver::LaunchConfig;
use crate::error::{Error, LaunchError, Result};

/// A configuration within all limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolved {
    pub config: LaunchConfig,
    pub source: Source,
}

impl Launch {
    /// Returns the configuration of a plain one-dimensional launch with a given block size, if within the kernel's
    /// limits.
    #[inline]
    pub(super) fn in_line(&self, limits: &Line) -> Option<LaunchConfig> {
        let Shape::Linear { threads, block: Some(block) } = self.shape else { return None };
        let is_plain = self.is_plain() & (self.waves == 0);
        let blocks = blocks_of(threads, block)?;
        let fits = block.wrapping_sub(1) < limits.threads
            && blocks.wrapping_sub(1) < limits.blocks
            && self.shared_bytes <= limits.shared_bytes;
        (is_plain && fits).then(|| LaunchConfig::new([blocks, 1, 1], [block, 1, 1], self.shared_bytes))
    }

    /// Writes the configuration for a kernel to `resolved` after checking it against all limits. Returns false if there
    /// are no threads to launch.
    ///
    /// The configuration is written in place, because returning it would take as long as the rest of this function.
    #[inline]
    pub(super) fn resolve_into(&self, function: &Function, resolved: &mut Resolved) -> Result<bool> {
        if let Some(config) = self.in_line(function.line()) {
            resolved.config = config;
            return Ok(true);
        }
        self.resolve_other(function, resolved)
    }

    /// Implements [`Self::resolve_into`] for all launches except the most frequent kind.
    fn resolve_other(&self, function: &Function, resolved: &mut Resolved) -> Result<bool> {
        let is_plain = self.is_plain() && function.line().is_plain;
        let launch = match self.shape {
            Shape::Explicit { .. } if is_plain => *self,
            _ => match self.for_kernel(function)? {
                Some(launch) => launch,
                None => return Ok(false),
            },
        };
        match launch.shape {
            Shape::Explicit { grid, block } if is_plain => {
                resolved.config = LaunchConfig::new(grid, block, self.shared_bytes);
                Limits::of(function).check(&resolved.config)?;
                Ok(true)
            }
            _ => launch.resolve_kept(function, resolved),
        }
    }

    /// Like [`Self::resolve_into`], but returns the configuration; `None` if there are no threads to launch.
    pub(super) fn resolve(&self, function: &Function) -> Result<Option<Resolved>> {
        let mut resolved = Resolved::BLANK;
        Ok(self.resolve_into(function, &mut resolved)?.then_some(resolved))
    }

    /// Applies the kernel's requirements to the launch and computes the grid for its extent. Returns `None` if there
    /// are no threads to launch.
    fn for_kernel(&self, function: &Function) -> Result<Option<Self>> {
        let (limits, mut launch) = (Limits::of(function), *self);
        if let Some(required) = function.spec().cluster
            && required != self.cluster
        {
            if self.cluster != [1; 3] {
                let (kernel, found) = (limits.name(), self.cluster);
                return Err(LaunchError::RequiredCluster { kernel, required, found }.into());
            }
            launch.cluster = required;
        }
        let (sides, block) = match self.shape {
            Shape::Cover { extent, block } => (extent, block),
            Shape::Tiles { grid, block } => (grid, block),
            _ => return Ok(Some(launch)),
        };
        if sides.contains(&0) {
            return Ok(None);
        }
        if sides.contains(&u32::MAX) {
            return Err(LaunchError::ExtentTooLarge { kernel: limits.name() }.into());
        }
        let block = block.or(function.spec().block);
        let block = block.unwrap_or_else(|| limits.block_for_extent(sides, self.shared_bytes));
        let is_cover = matches!(self.shape, Shape::Cover { .. });
        let mut grid = [1u64; 3];
        for axis in 0..3 {
            let threads = if is_cover { block[axis].max(1) } else { 1 };
            grid[axis] =
                u64::from(sides[axis].div_ceil(threads)).next_multiple_of(launch.cluster[axis].max(1).into());
        }
        let grid = match grid.map(u32::try_from) {
            [Ok(x), Ok(y), Ok(z)] => [x, y, z],
            _ => return Err(limits.grid_error(grid)),
        };
        launch.shape = Shape::Explicit { grid, block };
        Ok(Some(launch))
    }

    /// Looks up the configuration in the kernel's cache, or resolves the launch and caches the result.
    fn resolve_kept(&self, function: &Function, resolved: &mut Resolved) -> Result<bool> {
        let generation = function.device().part::<Launches>().generation();
        if function.configs().get(self, generation, resolved) {
            return Ok(true);
        }
        // In a forked process, a lock may be held by a thread that does not exist.
        function.device().check_process()?;
        let Some(new) = self.resolve_new(function)? else { return Ok(false) };
        function.configs().put(self, generation, &new);
        *resolved = new;
        Ok(true)
    }

    #[cold]
    fn resolve_new(&self, function: &Function) -> Result<Option<Resolved>> {
        let limits = Limits::of(function);
        let required = function.spec().block;
        let usable = |winner: &Winner| {
            limits.clamp_block(winner.block) == winner.block
                && required.is_none_or(|block| block == [winner.block, 1, 1])
        };
        let tuned = function.device().part::<Launches>().winner(function, self);
        let (winner, source) = match (self.shape, tuned.filter(usable)) {
            (Shape::Linear { block: Some(_), .. } | Shape::Explicit { .. }, _) => (None, Source::Given),
            (_, Some(winner)) => (Some(winner), Source::Tuned),
            (_, None) => (None, Source::Heuristic),
        };
        let config = self.configure(function, winner)?;
        Ok(config.map(|config| Resolved { config, source }))
    }

    /// Computes the configuration, using the winner's block and grid size instead of the heuristic's if the launch
    /// leaves them open.
    pub(super) fn configure(
        &self,
        function: &Function,
        winner: Option<Winner>,
    ) -> Result<Option<LaunchConfig>> {
        let limits = Limits::of(function);
        let blank = LaunchConfig {
            cluster: self.cluster,
            cooperative: self.cooperative || function.spec().cooperative,
            dependent: self.dependent,
            ..LaunchConfig::new([1; 3], [1; 3], self.shared_bytes)
        };
        let n = match self.shape {
            Shape::Linear { threads, .. } | Shape::Occupancy { threads } => threads as u64,
            Shape::Bandwidth { items, .. } => items as u64,
            Shape::Explicit { .. } | Shape::Cover { .. } | Shape::Tiles { .. } => 1,
        };
        if n == 0 {
            return Ok(None);
        }
        limits.check_kind(function.device().id(), &blank)?;
        let blank = LaunchConfig { dependent: blank.dependent && limits.can_wait(), ..blank };
        let shared = self.shared_bytes;
        if let Some(required) = function.spec().block
            && self.is_free()
        {
            let [threads, 1, 1] = required else {
                let (kernel, found) = (limits.name(), None);
                return Err(LaunchError::RequiredBlock { kernel, required, found }.into());
            };
            let config = self.in_blocks(function, blank, n, threads, winner.map(|winner| winner.grid))?;
            return checked(function, config).map(Some);
        }
        let config = match (self.shape, winner) {
            (Shape::Explicit { grid, block }, _) => LaunchConfig { grid, block, ..blank },
            // [`Self::for_kernel`] has already converted these shapes to explicit ones.
            (Shape::Cover { .. } | Shape::Tiles { .. }, _) => return Ok(None),
            (Shape::Linear { block: Some(block), .. }, _) => {
                self.in_blocks(function, blank, n, block, None)?
            }
            (_, Some(Winner { block, grid })) => self.in_blocks(function, blank, n, block, Some(grid))?,
            (Shape::Linear { .. }, _) => {
                self.in_blocks(function, blank, n, limits.block_for_any(n, shared), None)?
            }
            (Shape::Occupancy { .. }, _) => {
                self.in_blocks(function, blank, n, limits.block_for_occupancy(n, shared), None)?
            }
            (Shape::Bandwidth { in_flight, .. }, _) => {
                let block = limits.block_for_bandwidth(n, in_flight, shared);
                self.in_blocks(function, blank, n, block, None)?
            }
        };
        checked(function, config).map(Some)
    }

    /// Returns a configuration with blocks of `block` threads, for `n` threads or items.
    fn in_blocks(
        &self,
        function: &Function,
        blank: LaunchConfig,
        n: u64,
        block: u32,
        grid: Option<GridChoice>,
    ) -> Result<LaunchConfig> {
        let limits = Limits::of(function);
        let one = LaunchConfig { block: [block, 1, 1], ..blank };
        limits.check(&one)?;
        let tiles = n.div_ceil(u64::from(block));
        let in_flight = match self.shape {
            Shape::Bandwidth { in_flight, .. } => Some(in_flight),
            _ => None,
        };
        let mut blocks = tiles;
        if self.waves > 0 || in_flight.is_some() {
            let capacity = function.capacity(&one)?.max(1);
            let grid = match (self.waves, grid) {
                (0, Some(grid)) => grid,
                (0, None) => {
                    let tile_bytes = u64::from(block) * u64::from(in_flight.unwrap_or(0));
                    grid_for_bandwidth(tiles, tile_bytes, capacity)
                }
                (waves, _) => GridChoice::Waves(waves),
            };
            blocks = grid.blocks(tiles, capacity);
        }
        let cluster = u64::from(blank.cluster[0].max(1));
        let most = u64::from(limits.device.max_grid[0]);
        if in_flight.is_some() {
            blocks = blocks.min(most / cluster * cluster);
        }
        let blocks = blocks.checked_next_multiple_of(cluster).unwrap_or(u64::MAX);
        let grid = u32::try_from(blocks).map_err(|_| limits.grid_error([blocks, 1, 1]))?;
        Ok(LaunchConfig { grid: [grid, 1, 1], ..one })
    }
}

impl Resolved {
    /// Initial value: a plain launch of one thread.
    pub const BLANK: Self = Self { config: LaunchConfig::new([1; 3], [1; 3], 0), source: Source::Given };
}

/// Returns the number of blocks of `block` threads for `threads` threads; `None` if `block` is 0 or the number is too
/// large.
#[inline]
fn blocks_of(threads: usize, block: u32) -> Option<u32> {
    if block == 0 {
        return None;
    }
    // A shift and a 32-bit division are much faster than a 64-bit division.
    let blocks = if block.is_power_of_two() {
        (threads >> block.trailing_zeros()) + usize::from(threads & (block as usize - 1) != 0)
    } else if let Ok(threads) = u32::try_from(threads) {
        threads.div_ceil(block) as usize
    } else {
        threads.div_ceil(block as usize)
    };
    u32::try_from(blocks).ok()
}

/// Returns the product of the sizes.
pub(super) fn volume(sizes: [u32; 3]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).fold(1, u64::saturating_mul)
}

/// Checks a configuration against all limits and returns it.
pub(super) fn checked(function: &Function, config: LaunchConfig) -> Result<LaunchConfig> {
    let limits = Limits::of(function);
    limits.check(&config)?;
    check_cluster(function, &limits, &config)?;
    check_cooperative(function, &limits, &config)?;
    Ok(config)
}

fn check_cluster(function: &Function, limits: &Limits<'_>, config: &LaunchConfig) -> Result<()> {
    let LaunchConfig { grid, cluster, .. } = *config;
    if cluster == [1; 3] {
        return Ok(());
    }
    let kernel = limits.name();
    if grid.iter().zip(cluster).any(|(grid, cluster)| grid % cluster != 0) {
        return Err(LaunchError::ClusterGrid { kernel, grid, cluster }.into());
    }
    let limit = function.max_cluster(config)?;
    if volume(cluster) > u64::from(limit) {
        return Err(LaunchError::ClusterTooLarge { kernel, cluster, limit }.into());
    }
    Ok(())
}

fn check_cooperative(function: &Function, limits: &Limits<'_>, config: &LaunchConfig) -> Result<()> {
    if !config.cooperative {
        return Ok(());
    }
    let (blocks, limit) = (volume(config.grid), function.capacity(config)?);
    if blocks > limit {
        let error = LaunchError::CooperativeGridTooLarge { kernel: limits.name(), blocks, limit };
        return Err(Error::from(error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_as_by_division() {
        for threads in [1, 2, 31, 32, 33, 255, 256, 257, 1 << 32, (1 << 32) + 1, 3 << 33, usize::MAX] {
            for block in [1, 2, 3, 32, 96, 100, 256, 1024, u32::MAX] {
                let expected = u32::try_from(threads.div_ceil(block as usize)).ok();
                assert_eq!(blocks_of(threads, block), expected, "{threads} in blocks of {block}");
            }
        }
    }
}
