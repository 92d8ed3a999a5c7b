//! [`Limits`]: the limits of a kernel's launches on its device.

use gpu_spec::{Claims, KernelSpec, ParamKind};

use super::Function;
use crate::device::DeviceId;
use crate::driver::{DeviceProperties, FunctionAttributes, LaunchConfig};
use crate::error::{BlockLimit, Error, LaunchError, Result};

/// The limits of a kernel's launches on its device.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub kernel: &'static KernelSpec,
    pub device: &'a DeviceProperties,
    pub attributes: &'a FunctionAttributes,
}

/// Limits of a plain one-dimensional launch: the maximum threads per block, blocks per grid, and bytes of dynamic
/// shared memory without opt-in. If `threads` is 0, [`Limits::check`] must check every launch.
#[derive(Debug)]
pub(super) struct Line {
    pub threads: u32,
    pub blocks: u32,
    pub shared_bytes: u32,
    /// True if the kernel is not cooperative and uses no clusters.
    pub is_plain: bool,
}

impl<'a> Limits<'a> {
    pub fn line(&self) -> Line {
        let threads = self.block_limit().0.min(self.device.max_block[0]);
        let shared = self.device.shared_memory_per_block.checked_sub(self.attributes.static_shared);
        let is_plain = !self.kernel.cooperative && self.kernel.cluster.is_none();
        // One-dimensional launches of any size satisfy these claims; `check` handles all others.
        let has_claims = matches!(self.kernel.claims, Claims::Any | Claims::Linear);
        let has_line = is_plain && has_claims && self.kernel.block.is_none() && shared.is_some();
        Line {
            is_plain,
            threads: if has_line { threads } else { 0 },
            blocks: self.device.max_grid[0],
            shared_bytes: shared.unwrap_or(0),
        }
    }

    #[inline]
    pub fn of(function: &'a Function) -> Self {
        let device = function.device().properties();
        Self { kernel: function.spec(), device, attributes: function.attributes() }
    }

    /// Returns the maximum number of threads per block and the source of that limit.
    #[inline]
    pub fn block_limit(&self) -> (u32, BlockLimit) {
        let bounds = self.kernel.launch_bounds.map_or(u32::MAX, |bounds| bounds.max_threads);
        let device = self.device.max_threads_per_block;
        let kernel = self.attributes.max_threads_per_block;
        if device <= bounds && device <= kernel {
            (device, BlockLimit::Device)
        } else if bounds <= kernel {
            (bounds, BlockLimit::LaunchBounds)
        } else {
            (kernel, BlockLimit::Registers)
        }
    }

    pub fn name(&self) -> String {
        self.kernel.symbol.to_owned()
    }

    #[cold]
    pub fn grid_error(&self, grid: [u64; 3]) -> Error {
        Error::Launch(LaunchError::GridTooLarge { kernel: self.name(), grid, limit: self.device.max_grid })
    }

    /// Returns an error if grid, block or shared memory exceed a limit of the device or the kernel.
    #[inline]
    pub fn check(&self, config: &LaunchConfig) -> Result<()> {
        let [x, y, z] = config.block.map(u64::from);
        let [max_x, max_y, max_z] = self.device.max_block.map(u64::from);
        let grid = config.grid;
        let most = self.device.max_grid;
        // A size of zero wraps to `u32::MAX`, which exceeds every limit.
        let below = |sizes: [u32; 3]| [0, 1, 2].iter().all(|&axis| sizes[axis].wrapping_sub(1) < most[axis]);
        let shared = u64::from(config.shared_bytes) + u64::from(self.attributes.static_shared);
        let fits = x <= max_x
            && y <= max_y
            && z <= max_z
            && x.saturating_mul(y).saturating_mul(z).wrapping_sub(1) < u64::from(self.block_limit().0)
            && below(grid)
            && (grid[1] | grid[2] == 1 || is_countable(config))
            && shared <= u64::from(self.shared_limit())
            && self.kernel.block.is_none_or(|required| required == config.block)
            && self.kernel.claims.allow(grid, config.block);
        if fits { Ok(()) } else { self.refuse(config) }
    }

    fn shared_limit(&self) -> u32 {
        self.device.shared_memory_per_block_optin.max(self.device.shared_memory_per_block)
    }

    /// Returns the error for the limit that the configuration exceeds.
    #[cold]
    fn refuse(&self, config: &LaunchConfig) -> Result<()> {
        let LaunchConfig { grid, block, shared_bytes, .. } = *config;
        for (what, dimensions) in [("grid", grid), ("block", block)] {
            if dimensions.contains(&0) {
                return Err(Error::Launch(LaunchError::EmptyLaunch {
                    kernel: self.name(),
                    what,
                    dimensions,
                }));
            }
        }
        let exceeds =
            |sizes: [u32; 3], limit: [u32; 3]| sizes.iter().zip(limit).any(|(size, limit)| *size > limit);
        if let Some(required) = self.kernel.block
            && required != block
        {
            let (kernel, found) = (self.name(), Some(block));
            return Err(LaunchError::RequiredBlock { kernel, required, found }.into());
        }
        let threads = block.iter().map(|size| u64::from(*size)).fold(1u64, u64::saturating_mul);
        let (limit, by) = self.block_limit();
        if threads > u64::from(limit) {
            return Err(Error::Launch(LaunchError::BlockTooLarge {
                kernel: self.name(),
                threads,
                limit,
                by,
            }));
        }
        if exceeds(block, self.device.max_block) {
            return Err(Error::Launch(LaunchError::BlockShape {
                kernel: self.name(),
                block,
                limit: self.device.max_block,
            }));
        }
        if exceeds(grid, self.device.max_grid) {
            return Err(self.grid_error(grid.map(u64::from)));
        }
        if !is_countable(config) {
            return Err(LaunchError::TooManyThreads { kernel: self.name(), grid, block }.into());
        }
        self.check_claims(grid, block)?;
        let (static_bytes, limit) = (self.attributes.static_shared, self.shared_limit());
        if u64::from(shared_bytes) + u64::from(static_bytes) > u64::from(limit) {
            return Err(Error::Launch(LaunchError::SharedMemoryTooLarge {
                kernel: self.name(),
                dynamic_bytes: shared_bytes,
                static_bytes,
                limit,
            }));
        }
        Ok(())
    }

    /// Returns an error if two threads could obtain the same claim (index token) on a view, or if an index would not
    /// have the documented meaning.
    fn check_claims(&self, grid: [u32; 3], block: [u32; 3]) -> Result<()> {
        let claims = self.kernel.claims;
        if claims.allow(grid, block) {
            return Ok(());
        }
        let (kernel, dimensions) = (self.name(), claims.dimensions());
        let has = |axis: usize| grid[axis] > 1 || block[axis] > 1;
        if !(dimensions..3).any(has) {
            return Err(LaunchError::SideTooLong { kernel, grid, block }.into());
        }
        let mut views = self.kernel.params.iter().filter(|param| param.kind.is_mutable_view());
        let view = views.find(|param| match claims {
            Claims::Plane => param.kind == ParamKind::SliceMut2,
            _ => true,
        });
        let view = view.map_or(String::new(), |param| format!("{}: {}", param.name, param.type_name));
        Err(LaunchError::TooManyDimensions { kernel, grid, block, view, dimensions }.into())
    }

    /// Returns an error if the configuration requests clusters, a cooperative launch or a dependent launch that the
    /// device or the kernel does not support.
    pub fn check_kind(&self, device: DeviceId, config: &LaunchConfig) -> Result<()> {
        if config.dependent && !self.kernel.dependent {
            return Err(LaunchError::NotDependent { kernel: self.name() }.into());
        }
        if config.cooperative && !self.device.cooperative_launch {
            return Err(LaunchError::NoCooperativeLaunch { kernel: self.name(), device }.into());
        }
        if config.cluster.contains(&0) {
            let (what, dimensions) = ("cluster", config.cluster);
            return Err(Error::Launch(LaunchError::EmptyLaunch { kernel: self.name(), what, dimensions }));
        }
        if config.cluster != [1; 3] && self.device.max_cluster == 0 {
            let capability = self.device.capability;
            return Err(LaunchError::NoClusters { kernel: self.name(), device, capability }.into());
        }
        Ok(())
    }

    /// Returns true if the code in use can wait for the preceding kernel. PTX for earlier architectures has no such
    /// instruction, even if the driver compiles it for a newer device. An emulated kernel never starts early.
    pub fn can_wait(&self) -> bool {
        matches!(self.attributes.ptx_arch, 0 | 90..)
    }

    /// Returns true if this much dynamic shared memory requires an opt-in before the launch.
    pub fn needs_opt_in(&self, shared_bytes: u32) -> bool {
        u64::from(shared_bytes) + u64::from(self.attributes.static_shared)
            > u64::from(self.device.shared_memory_per_block)
    }
}

/// Returns true if every thread of the launch has a distinct index. With 2^63 or more threads, indices would wrap
/// around.
fn is_countable(config: &LaunchConfig) -> bool {
    let sizes = config.grid.iter().chain(&config.block).map(|size| u64::from(*size));
    sizes.fold(1, u64::saturating_mul) <= isize::MAX as u64
}

#[cfg(test)]
mod tests {
    use super::super::heuristic::tests::spec;
    use super::super::occupancy::tests::{gpu, kernel};
    use super::*;

    static KERNEL: KernelSpec = spec(512);
    static WAITS: KernelSpec = {
        let mut waits = spec(512);
        waits.info.dependent = true;
        waits
    };

    fn refused(
        kernel: &'static KernelSpec,
        device: &DeviceProperties,
        config: LaunchConfig,
    ) -> Option<Error> {
        let attributes = self::kernel(32, 1024);
        Limits { kernel, device, attributes: &attributes }.check_kind(DeviceId::Cuda(0), &config).err()
    }

    #[test]
    fn missing_features_are_named() {
        let plain = LaunchConfig::new([4, 1, 1], [32, 1, 1], 0);
        let cluster = LaunchConfig { cluster: [2, 1, 1], ..plain };
        let cooperative = LaunchConfig { cooperative: true, ..plain };
        let dependent = LaunchConfig { dependent: true, ..plain };
        let (old, new) = (gpu((8, 0)), gpu((9, 0)));
        let alone = DeviceProperties { cooperative_launch: false, ..gpu((9, 0)) };
        let text = |error: Option<Error>| error.map(|error| error.to_string()).unwrap_or_default();
        let found = text(refused(&KERNEL, &old, cluster));
        assert!(found.contains("cuda:0 has compute capability 8.0, but clusters require 9.0"), "{found}");
        let found = text(refused(&KERNEL, &alone, cooperative));
        assert!(found.contains("cuda:0 does not support cooperative launches"), "{found}");
        let found = text(refused(&KERNEL, &new, dependent));
        assert!(found.contains("`k` is not declared as dependent"), "{found}");
        for (kernel, config) in
            [(&KERNEL, plain), (&KERNEL, cluster), (&KERNEL, cooperative), (&WAITS, dependent)]
        {
            assert!(refused(kernel, &new, config).is_none(), "{config}");
        }
    }

    #[test]
    fn only_code_for_9_0_can_wait() {
        let device = gpu((10, 0));
        for (ptx_arch, expected) in [(0, true), (80, false), (89, false), (90, true), (100, true)] {
            let attributes = FunctionAttributes { ptx_arch, ..self::kernel(32, 1024) };
            let limits = Limits { kernel: &WAITS, device: &device, attributes: &attributes };
            assert_eq!(limits.can_wait(), expected, "{ptx_arch}");
        }
    }

    #[test]
    fn a_configuration_is_refused_exactly_when_a_limit_is_exceeded() {
        let (device, attributes) = (gpu((9, 0)), kernel(32, 1024));
        let limits = Limits { kernel: &KERNEL, device: &device, attributes: &attributes };
        let check = |grid, block, shared| limits.check(&LaunchConfig::new(grid, block, shared));
        let max_shared = (227 << 10) - 1024;
        let most = u32::MAX >> 1;
        for (grid, block, shared) in [
            ([1, 1, 1], [1, 1, 1], 0),
            ([most, 65535, 128], [512, 1, 1], max_shared),
            ([1, 1, 1], [1, 512, 1], 0),
            ([1, 1, 1], [8, 1, 64], 0),
        ] {
            assert!(check(grid, block, shared).is_ok(), "{grid:?} {block:?} {shared}");
        }
        for (grid, block, shared) in [
            ([0, 1, 1], [1, 1, 1], 0),
            ([1, 1, 0], [1, 1, 1], 0),
            ([1, 1, 1], [1, 0, 1], 0),
            ([1, 1, 1], [513, 1, 1], 0),
            ([1, 1, 1], [257, 2, 1], 0),
            ([1, 1, 1], [1, 1, 65], 0),
            ([1, 1, 1], [u32::MAX; 3], 0),
            ([most + 1, 1, 1], [1, 1, 1], 0),
            ([1, 65536, 1], [1, 1, 1], 0),
            ([1, 1, 65536], [1, 1, 1], 0),
            ([1, 1, 1], [1, 1, 1], max_shared + 1),
            ([1, 1, 1], [1, 1, 1], u32::MAX),
        ] {
            assert!(check(grid, block, shared).is_err(), "{grid:?} {block:?} {shared}");
        }
    }

    #[test]
    fn launches_of_2_to_63_threads_are_refused() {
        let (device, attributes) = (gpu((9, 0)), kernel(32, 1024));
        let limits = Limits { kernel: &KERNEL, device: &device, attributes: &attributes };
        // The configurations have 2^63, 2^64, 2^64 + 4 and more threads, respectively.
        for (grid, block) in [
            ([1 << 30, 1 << 15, 1 << 15], 8),
            ([1 << 30, 1 << 15, 1 << 15], 16),
            ([2147418113, 49477, 34724], 5),
            ([u32::MAX >> 1, 65535, 65535], 512),
        ] {
            let config = LaunchConfig::new(grid, [block, 1, 1], 0);
            let error = limits.check(&config).unwrap_err();
            assert!(matches!(&error, Error::Launch(LaunchError::TooManyThreads { .. })), "{error}");
            assert!(error.to_string().contains("2^63"), "{error}");
        }
        let most = LaunchConfig::new([1 << 30, 1 << 15, 1 << 15], [7, 1, 1], 0);
        assert!(limits.check(&most).is_ok());
    }
}
