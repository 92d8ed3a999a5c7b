//! [`tuned_config`]: the configuration that a tuner found for an operation, provided that it can be launched.
//!
//! Records in the store may be damaged or come from an older build. A record is skipped without an error if it names a
//! missing instance or a configuration that cannot be launched.

use gpu_spec::KernelSpec;
use warpsmith_runtime::store::{LaunchStore, TunedConfiguration, TuningKey};
use warpsmith_runtime::{Device, DevicePtr, Module};

use super::config::{self, Config, GridRule};
use crate::IMAGE;

/// Maximum number of waves in a stored configuration for a reduction. The number is limited because each block needs
/// its own memory.
const MAX_WAVES: u32 = 64;
/// Maximum number of blocks in a stored configuration, regardless of the number of elements. Only elementwise kernels
/// can have more blocks, up to one per element. Without this limit, a corrupt record could launch a huge number of idle
/// blocks.
const MAX_BLOCKS: u32 = 1 << 16;

/// Returns the fastest configuration that a tuner found for `kernel` and `dtype`. `kernel` is a source name, such as
/// `reduce_sum`. `dtype` is a type such as `f32` or, for a cast, `f32,f64`, as in [`variants`](super::variants). The
/// configuration applies to `n` elements on `device`, the current kernel code, and arrays that are all aligned to at
/// least `alignment` bytes. Alignments above 16 count as 16. Returns `None` if no configuration was tuned or the tuned
/// configuration cannot be launched.
///
/// Every operation uses this configuration if the caller does not specify one. If no tuned configuration exists, the
/// operation falls back to [`default_config`](super::default_config). The search in the device's [`LaunchStore`] uses
/// the instance's own type arguments. For `copy` and `fill`, the type argument is the unsigned integer of the same
/// size. For a reduction, `alignment` is the alignment of the input.
///
/// ```
/// use warpsmith::Device;
/// use warpsmith::ops::{default_config, tuned_config};
///
/// let device = Device::open("cpu")?;
/// let config = tuned_config("axpy", "f32", 1 << 20, 16, &device)
///     .unwrap_or_else(|| default_config("axpy", 4, 1 << 20, &device));
/// assert!(config.block >= 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn tuned_config(kernel: &str, dtype: &str, n: usize, alignment: u32, device: &Device) -> Option<Config> {
    let store = LaunchStore::of(device);
    // If the store contains no tuned configurations, the image is not loaded.
    if !store.has_tuned() {
        return None;
    }
    find_own(&store, &device.load(&IMAGE).ok()?, kernel, dtype, n, alignment)
}

/// Like [`tuned_config`], but takes the store of a device on which the image is already loaded.
pub(super) fn find_own(
    store: &LaunchStore,
    module: &Module,
    kernel: &str,
    dtype: &str,
    n: usize,
    alignment: u32,
) -> Option<Config> {
    let (types, instances) = config::instances(kernel, dtype)?;
    let instance = |config: &Config| instances.get(&(config.items, config.vector)).copied();
    let known = Known { package: config::PACKAGE, kernel, types, is_reduction: config::is_reduction(kernel) };
    find(store, module, &known, instance, n, alignment)
}

/// Key of a kernel in a store and the kernel's kind.
pub(super) struct Known<'a> {
    pub package: &'a str,
    pub kernel: &'a str,
    /// The kernel's type arguments, joined by commas.
    pub types: &'a str,
    pub is_reduction: bool,
}

/// Looks up the tuned configuration of a kernel in the store. Returns `None` if the store contains no configuration, or
/// if the kernel cannot be launched with it. `instance` finds the kernel's instance for a configuration.
pub(super) fn find(
    store: &LaunchStore,
    module: &Module,
    known: &Known<'_>,
    instance: impl FnOnce(&Config) -> Option<&'static KernelSpec>,
    n: usize,
    alignment: u32,
) -> Option<Config> {
    let &Known { package, kernel, types, is_reduction } = known;
    let device = module.device().properties();
    let image = module.image_hash();
    let tuned = store.tuned(&TuningKey { device, package, kernel, types, image, n: n as u64, alignment })?;
    let config = from_values(&tuned)?;
    let spec = instance(&config)?;
    let names_another = tuned.symbol.as_ref().is_some_and(|symbol| symbol != spec.symbol);
    let bounds = spec.launch_bounds.map_or(u32::MAX, |bounds| bounds.max_threads);
    let max_threads = bounds.min(device.max_threads_per_block);
    let is_legal_grid = match config.grid {
        GridRule::Auto => true,
        GridRule::Waves(waves) => waves <= MAX_WAVES || !is_reduction,
        GridRule::Blocks(blocks) => {
            let is_few = blocks <= MAX_BLOCKS || (!is_reduction && blocks as usize <= n);
            is_few && blocks <= device.max_grid[0]
        }
    };
    let is_legal_block = !config::takes_tiles_in_order(kernel) || config.block.is_multiple_of(32);
    (!names_another && is_legal_block && (1..=max_threads).contains(&config.block) && is_legal_grid)
        .then_some(config)
}

/// Returns the configuration with these values, or `None` if a value is missing or an axis is not supported by
/// operations.
fn from_values(tuned: &TunedConfiguration) -> Option<Config> {
    let (mut block, mut grid, mut items, mut vector) = (None, None, None, None);
    for (axis, value) in &tuned.values {
        match axis.as_str() {
            "block" => block = Some(value.parse().ok()?),
            "grid" => grid = Some(value.parse().ok()?),
            "items" => items = Some(value.parse().ok()?),
            "vector" => vector = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(Config { block: block?, grid: grid?, items: items?, vector: vector? })
}

/// Returns the common alignment of all addresses, in bytes, up to 16.
pub(super) fn alignment(addresses: &[DevicePtr]) -> u32 {
    let all = addresses.iter().fold(16, |all, address| all | address.0);
    1 << all.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alignment_is_the_smallest_of_all() {
        let of = |addresses: &[u64]| {
            alignment(&addresses.iter().map(|address| DevicePtr(*address)).collect::<Vec<_>>())
        };
        assert_eq!([of(&[]), of(&[0x1000]), of(&[0x1000, 0x1008]), of(&[0x1004, 0x1008])], [16, 16, 8, 4]);
        assert_eq!((of(&[0x1000, 0x1001]), of(&[0])), (1, 16));
    }

    #[test]
    fn only_complete_values_make_a_configuration() {
        let of = |values: &[(&str, &str)]| {
            from_values(&TunedConfiguration {
                values: values.iter().map(|(axis, value)| (axis.to_string(), value.to_string())).collect(),
                symbol: None,
                threads: None,
                median_us: 1.0,
                toolchain: String::new(),
            })
        };
        let all = [("block", "256"), ("grid", "waves:4"), ("items", "8"), ("vector", "16")];
        let config = Config { block: 256, grid: GridRule::Waves(4), items: 8, vector: 16 };
        assert_eq!(of(&all), Some(config));
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(missing);
            assert_eq!(of(&some), None, "without {:?}", all[missing]);
        }
        for wrong in [("block", "-1"), ("grid", "all"), ("items", "8 "), ("vector", ""), ("shared", "0")] {
            let mut values = all.to_vec();
            values.retain(|(axis, _)| *axis != wrong.0);
            values.push(wrong);
            assert_eq!(of(&values), None, "{wrong:?}");
        }
    }
}
