//! Launch configurations of operations: [`Config`], the available instances, and the default configuration.
//!
//! All configurations of an operation give the same result, except that reductions may add elements in a different
//! order. Each block processes tiles of `block × items` accesses of `vector` bytes. If the grid has fewer blocks than
//! there are tiles, each block loops over several tiles.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use foldhash::HashMap;
use gpu_spec::KernelSpec;
use gpu_std::family::Variant as FamilyVariant;
use serde::{Deserialize, Serialize};
use warpsmith_runtime::launch::{default_block_size, shrink_block_size};
use warpsmith_runtime::{Device, DeviceProperties, Error, Result};

use crate::op_error::OpError;

/// Rule that determines the number of blocks in a launch.
///
/// See the example of [`Config`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GridRule {
    /// Launches one block per tile, but for reductions at most one wave of blocks.
    Auto,
    /// Launches the specified number of waves, but at most one block per tile.
    Waves(u32),
    /// Launches the specified number of blocks. For random numbers, whose blocks form rows, the number is rounded up to
    /// whole rows.
    Blocks(u32),
}

impl fmt::Display for GridRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GridRule::Auto => f.write_str("auto"),
            GridRule::Waves(n) => write!(f, "waves:{n}"),
            GridRule::Blocks(n) => write!(f, "blocks:{n}"),
        }
    }
}

impl FromStr for GridRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|&n| n > 0);
        let rule = match text.trim().split_once(':') {
            None if text.trim() == "auto" => Some(GridRule::Auto),
            Some(("waves", n)) => count(n).map(GridRule::Waves),
            Some(("blocks", n)) => count(n).map(GridRule::Blocks),
            _ => None,
        };
        rule.ok_or_else(|| OpError::GridRule(text.to_owned()).into())
    }
}

impl TryFrom<String> for GridRule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<GridRule> for String {
    fn from(rule: GridRule) -> String {
        rule.to_string()
    }
}

/// A launch configuration of an operation.
///
/// ```
/// use warpsmith::ops::{Config, GridRule};
///
/// let config = Config { block: 256, grid: "waves:4".parse()?, items: 4, vector: 16 };
/// assert_eq!(config.grid, GridRule::Waves(4));
/// assert_eq!(config.to_string(), "block=256 grid=waves:4 items=4 vector=16");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Config {
    /// Threads per block.
    pub block: u32,
    /// The rule that determines the number of blocks.
    pub grid: GridRule,
    /// Number of accesses that each thread keeps in flight.
    pub items: u32,
    /// Number of bytes per access, if the arrays are aligned to this size.
    pub vector: u32,
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { block, grid, items, vector } = self;
        write!(f, "block={block} grid={grid} items={items} vector={vector}")
    }
}

thread_local! {
    /// Configuration for the next operation on this thread; `None` selects the tuned or the default one.
    static FORCED: Cell<Option<Config>> = const { Cell::new(None) };
}

/// Runs `operation` with `config` instead of the tuned or the default configuration, to compare configurations. With
/// `None`, the operation uses its tuned or default configuration, even inside another call of this function.
///
/// The configuration applies to the first operation on this thread that has a configuration; an operation on parts of
/// an array uses it for all parts. Later operations of the same closure use their tuned or default configurations.
///
/// The operation returns [`OpError::NoSuchVariant`] if its kernel has no instance for the configuration. [`variants`]
/// lists the instances of each kernel that has configurations. Reductions of rows, softmax, norms, sorts, searches and
/// GEMMs have none.
///
/// ```
/// use warpsmith::ops::{self, Config, GridRule};
/// use warpsmith::prelude::*;
///
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let x = DeviceBuffer::from_host(&stream, &[-1.0f32, 2.0, 3.0])?;
/// let mut out = DeviceBuffer::uninit(&stream, 3)?;
/// let config = Config { block: 64, grid: GridRule::Auto, items: 1, vector: 16 };
/// ops::with_config(config, || ops::relu(&stream, &x, &mut out))?;
/// assert_eq!(out.to_host()?, [0.0, 2.0, 3.0]);
///
/// let error = ops::with_config(Config { items: 3, ..config }, || ops::relu(&stream, &x, &mut out)).unwrap_err();
/// assert!(error.to_string().contains("items=3"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn with_config<R>(config: impl Into<Option<Config>>, operation: impl FnOnce() -> R) -> R {
    /// Restores the previous value, also after a panic.
    struct Restore(Option<Config>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED.set(self.0);
        }
    }
    let _restore = Restore(FORCED.replace(config.into()));
    operation()
}

/// Returns the configuration that [`with_config`] sets for the next operation, and removes it.
pub(crate) fn take_forced() -> Option<Config> {
    FORCED.take()
}

/// Compile-time part of a configuration, which selects one instance in the GPU image.
///
/// See the example of [`variants`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    /// Number of accesses that each thread keeps in flight.
    pub items: u32,
    /// Bytes per access.
    pub vector: u32,
    /// Maximum number of threads per block of this instance.
    pub max_block: u32,
}

/// Returns the sorted instances of `kernel` (its source name, such as `reduce_sum`) for `dtype` (such as `f32`). The
/// list is empty if the kernel has no instances for this type. For `copy` and `fill`, types are distinguished only by
/// their size.
///
/// ```
/// let variants = warpsmith::ops::variants("axpy", "f32");
/// assert!(variants.iter().any(|v| v.items == 4 && v.vector == 16));
/// assert!(warpsmith::ops::variants("axpy", "u32").is_empty());
/// ```
pub fn variants(kernel: &str, dtype: &str) -> Vec<Variant> {
    let mut found: Vec<Variant> = of_types(kernel, dtype)
        .into_iter()
        .flatten()
        .map(|(&(items, vector), spec)| Variant {
            items,
            vector,
            max_block: spec.launch_bounds.map_or(1024, |bounds| bounds.max_threads),
        })
        .collect();
    found.sort_unstable();
    found
}

/// Returns the kernel specifications of the instances that [`variants`] lists.
#[cfg(feature = "bench")]
pub(crate) fn instances_of(kernel: &str, dtype: &str) -> Vec<&'static KernelSpec> {
    of_types(kernel, dtype).into_iter().flat_map(|all| all.values().copied()).collect()
}

/// Returns the instance of `kernel` for `dtype` that `config` specifies.
pub(crate) fn instance(kernel: &'static str, dtype: &str, config: &Config) -> Result<&'static KernelSpec> {
    let all = of_types(kernel, dtype);
    all.and_then(|all| all.get(&(config.items, config.vector)).copied()).ok_or_else(|| {
        let available = all.into_iter().flatten().map(|(&variant, _)| variant).collect();
        no_such_variant(kernel, dtype.to_owned(), config, available)
    })
}

/// Returns the error for a configuration that does not match any instance.
pub(super) fn no_such_variant(
    kernel: &'static str,
    dtype: String,
    config: &Config,
    available: Vec<(u32, u32)>,
) -> Error {
    let Config { items, vector, .. } = *config;
    OpError::NoSuchVariant { kernel, dtype, items, vector, available }.into()
}

/// Package that contains the operations' kernels.
pub(super) const PACKAGE: &str = "warpsmith-gpu-kernels";

pub(super) type ByVariant = BTreeMap<(u32, u32), &'static KernelSpec>;

fn of_types(kernel: &str, dtype: &str) -> Option<&'static ByVariant> {
    instances(kernel, dtype).map(|(_, by_variant)| by_variant)
}

/// Returns all instances of the operations' kernels. They are found by type and not by name, because the registry may
/// contain kernels of another package with the same names.
fn all_instances() -> Vec<&'static KernelSpec> {
    use gpu_kernels::{arg_reduce, arithmetic, cast, copy, elementwise, fill, move_rows, random, reduce};

    let mut all = Vec::new();
    macro_rules! add {
        ($($module:ident: $($kernel:ident)*;)*) => { $($(all.extend($module::$kernel::<(), 0, 0>::instances());)*)* };
    }
    add! {
        copy: copy;
        fill: fill;
        arithmetic: unary binary compare select clamp lerp;
        elementwise: axpy add mul fma relu gelu sigmoid exp;
        reduce: reduce_sum reduce_prod reduce_mean reduce_min reduce_max;
        arg_reduce: reduce_argmin reduce_argmax;
        random: uniform normal exponential integers bernoulli dropout permutation;
    }
    all.extend(move_rows::move_rows::<(), (), 0, 0>::instances());
    all.extend(cast::cast::<(), (), 0, 0>::instances());
    #[cfg(feature = "histogram")]
    {
        use gpu_kernels::histogram;

        add! { histogram: histogram_even histogram_edges; }
    }
    #[cfg(feature = "scan")]
    {
        use gpu_kernels::{compact, scan};

        add! {
            scan: scan_sum scan_min scan_max;
            compact: compact_flagged compact_compared compact_runs;
        }
    }
    all.extend(cast::cast_to_signed::<(), (), 0, 0>::instances());
    all.extend(cast::cast_to_bool::<(), 0, 0>::instances());
    all
}

/// All instances of one kernel that implements operations.
#[derive(Default)]
struct OfKernel {
    /// Instances, by type arguments and variant.
    by_types: HashMap<String, ByVariant>,
    /// Variants that exist for every type.
    variants: Vec<(u32, u32)>,
}

/// Returns the instances of a kernel from a cached table. This lookup is on the critical path of small operations,
/// which are host-bound.
fn of_kernel(kernel: &str) -> Option<&'static OfKernel> {
    static TABLE: OnceLock<HashMap<&'static str, OfKernel>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<&'static str, OfKernel> = HashMap::default();
        for spec in all_instances() {
            let number = |name| spec.const_argument(name).and_then(|value| u32::try_from(value).ok());
            if let (Some(items), Some(vector)) = (number("ITEMS"), number("VECTOR")) {
                let types: Vec<&str> = spec.types.iter().map(|argument| argument.name).collect();
                let by_types = &mut table.entry(spec.name).or_default().by_types;
                by_types.entry(types.join(",")).or_default().insert((items, vector), spec);
            }
        }
        for kernel in table.values_mut() {
            let mut all = kernel.by_types.values();
            let first = all.next().into_iter().flat_map(BTreeMap::keys);
            kernel.variants =
                first.filter(|&variant| all.clone().all(|of| of.contains_key(variant))).copied().collect();
        }
        table
    });
    table.get(kernel)
}

/// Returns the instances of a kernel for the given type arguments by variant, together with the type arguments for
/// which these instances are compiled.
pub(super) fn instances(kernel: &str, dtype: &str) -> Option<(&'static str, &'static ByVariant)> {
    let by_types = &of_kernel(kernel)?.by_types;
    let found = by_types.get_key_value(dtype).or_else(|| match dtype.split_once(',') {
        // Conversions to signed and unsigned integers of the same size produce the same bits.
        Some((from, to)) => by_types.get_key_value(&format!("{from},{}", same_size(to)?)),
        None => by_types.get_key_value(same_size(dtype)?),
    });
    found.map(|(types, by_variant)| (types.as_str(), by_variant))
}

/// Returns the unsigned integer type that has the same size as `dtype`.
fn same_size(dtype: &str) -> Option<&'static str> {
    match dtype {
        "i8" | "u8" => Some("u8"),
        "f16" | "bf16" | "i16" | "u16" => Some("u16"),
        "f32" | "i32" | "u32" => Some("u32"),
        "f64" | "i64" | "u64" => Some("u64"),
        _ => None,
    }
}

/// Returns the default configuration for `kernel` over `n` elements of `element_bytes` bytes each on `device`. This
/// configuration is used if the caller specifies no configuration and no [tuned configuration](super::tuned_config)
/// exists.
///
/// On a GPU, each block has one eighth of the threads that fit on an SM ([`default_block_size`]).
///
/// - Elementwise kernels: one access per thread and one tile per block. This configuration keeps enough bytes in
///   flight, and the hardware's block scheduler balances the load.
/// - GELU, the elementwise kernel with the most computation: several waves of blocks, each of which loops over several
///   tiles.
/// - Inputs with too few 16-byte accesses to give every SM a block: the smallest available accesses and, if these are
///   still too few, smaller blocks ([`shrink_block_size`]).
/// - Random numbers, which are compute-bound: several waves of blocks, so that each thread generates about 256 numbers,
///   or 96 uniform 4-byte numbers.
/// - Reductions: several accesses per thread and one wave of blocks, even for small inputs, so that few partial results
///   remain.
///
/// Measured on an H200 at 2^16 to 2^28 elements, the defaults of ten kernels were on average within about 2 % of the
/// best configuration.
///
/// On the emulated device, each thread has an overhead of tens of nanoseconds before its first element, so the default
/// launches few threads.
///
/// ```
/// use warpsmith::Device;
/// use warpsmith::ops::default_config;
///
/// let config = default_config("axpy", 4, 1 << 20, &Device::open("cpu")?);
/// assert!(config.block >= 32);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub fn default_config(kernel: &str, element_bytes: usize, n: usize, device: &Device) -> Config {
    default_of(Instances::own(kernel), element_bytes, n, device)
}

/// Returns the [`default_config`] of any kernel that has variants.
pub(crate) fn default_of(kernel: Instances<'_>, element_bytes: usize, n: usize, device: &Device) -> Config {
    if !device.is_emulated() {
        return gpu_config(kernel, element_bytes, n, device.properties());
    }
    let items = kernel.nearest_items(8);
    let vector = kernel.largest_vector(items);
    let accesses = n / (vector as usize / element_bytes.max(1)).max(1);
    let threads_for_all = device.properties().multiprocessors as usize * 4 * items as usize;
    let largest = if kernel.is_reduction() { 64 } else { 256 };
    let spread = (accesses / threads_for_all.max(1)).min(1024).next_power_of_two() as u32;
    Config { block: spread.clamp(32, largest), grid: GridRule::Auto, items, vector }
}

pub(super) fn is_reduction(kernel: &str) -> bool {
    kernel.starts_with("reduce_")
}

/// Returns whether the kernel's blocks take tiles in order and wait for preceding tiles. The tuned block size of such a
/// kernel is a multiple of 32, and blocks beyond one wave would have no work.
pub(super) fn takes_tiles_in_order(kernel: &str) -> bool {
    kernel.starts_with("scan_") || kernel.starts_with("compact_")
}

fn gpu_config(kernel: Instances<'_>, element_bytes: usize, n: usize, device: &DeviceProperties) -> Config {
    // For unary functions over many 16-bit elements, computation takes as long as memory access. Small blocks
    // interleave the two.
    let is_unary_of_many = kernel.own_name() == "unary" && element_bytes == 2 && n >= 1 << 24;
    let block =
        if is_unary_of_many { default_block_size(device).min(64) } else { default_block_size(device) };
    let (items, grid) = match kernel.own_name() {
        _ if is_unary_of_many => (1, GridRule::Waves(8)),
        _ if kernel.is_reduction() => (8, GridRule::Waves(1)),
        name if takes_tiles_in_order(name) => (5, GridRule::Waves(1)),
        "histogram_even" | "histogram_edges" => (4, GridRule::Waves(2)),
        "uniform" if element_bytes == 4 => (1, waves_of_threads(n, 96, device)),
        "uniform" | "normal" | "exponential" | "integers" | "bernoulli" => {
            (1, waves_of_threads(n, 256, device))
        }
        // GELU's computation is too expensive for one block per tile.
        "gelu" => (1, GridRule::Waves(if element_bytes == 2 { 32 } else { 16 })),
        _ => (1, GridRule::Auto),
    };
    let items = kernel.nearest_items(items);
    let config = Config { block, grid, items, vector: kernel.largest_vector(items) };
    let accesses = |vector: u32| n.div_ceil((vector as usize / element_bytes.max(1)).max(1)) as u64;
    if kernel.is_reduction()
        || takes_tiles_in_order(kernel.own_name())
        || accesses(config.vector) >= u64::from(device.multiprocessors) * u64::from(block)
    {
        return config;
    }
    let vector = kernel.smallest_vector(config.items);
    let threads = accesses(vector).div_ceil(u64::from(config.items));
    Config { block: shrink_block_size(device, block, threads), vector, ..config }
}

/// Returns a grid whose number of waves gives each thread about `of_thread` of the `n` elements. The kernel is assumed
/// to run at half an SM's maximum occupancy.
fn waves_of_threads(n: usize, of_thread: usize, device: &DeviceProperties) -> GridRule {
    let resident =
        device.multiprocessors as usize * (device.max_threads_per_multiprocessor as usize / 2).max(1);
    let waves = n.div_ceil(of_thread.saturating_mul(resident).max(1));
    GridRule::Waves(waves.clamp(1, 1 << 16) as u32)
}

/// A kernel's instances, from which a configuration is selected.
#[derive(Clone, Copy)]
pub(crate) enum Instances<'a> {
    /// Instances of one of this crate's kernels: the kernel's name and the variants that exist for every type.
    Own(&'a str, &'a [(u32, u32)]),
    /// Instances of a user-defined `#[elementwise]` function or `#[reduction]` operator.
    Family {
        /// All variants that exist for the types.
        variants: &'static [FamilyVariant],
        is_reduction: bool,
    },
}

impl<'a> Instances<'a> {
    /// Returns the instances of one of this crate's kernels.
    pub fn own(kernel: &'a str) -> Self {
        Self::Own(kernel, of_kernel(kernel).map_or(&[], |of_kernel| &of_kernel.variants))
    }

    /// Returns the name of this crate's kernel, or an empty string for a user-defined kernel.
    fn own_name(self) -> &'a str {
        match self {
            Instances::Own(kernel, _) => kernel,
            Instances::Family { .. } => "",
        }
    }

    pub(super) fn is_reduction(self) -> bool {
        match self {
            Instances::Own(kernel, _) => is_reduction(kernel),
            Instances::Family { is_reduction, .. } => is_reduction,
        }
    }

    /// Returns the items and vector bytes of each variant.
    fn variants(self) -> impl Iterator<Item = (u32, u32)> {
        let (own, family) = match self {
            Instances::Own(_, variants) => (variants, &[][..]),
            Instances::Family { variants, .. } => (&[][..], variants),
        };
        own.iter().copied().chain(family.iter().map(|variant| (variant.items, variant.vector)))
    }

    /// Returns the largest number of items among the instances that is at most `preferred`, or the smallest number if
    /// every instance exceeds `preferred`.
    fn nearest_items(self, preferred: u32) -> u32 {
        let all = || self.variants().map(|(items, _)| items);
        all().filter(|&items| items <= preferred).max().or_else(|| all().min()).unwrap_or(1)
    }

    /// Returns the largest access, in bytes, among the instances with this number of items.
    fn largest_vector(self, items: u32) -> u32 {
        self.variants().filter(|variant| variant.0 == items).map(|(_, vector)| vector).max().unwrap_or(16)
    }

    /// Returns the smallest access, in bytes, among the instances with this number of items.
    fn smallest_vector(self, items: u32) -> u32 {
        self.variants().filter(|variant| variant.0 == items).map(|(_, vector)| vector).min().unwrap_or(16)
    }
}

/// Elements per tile.
pub(crate) fn tile(config: &Config, element_bytes: usize) -> usize {
    config.block as usize * config.items as usize * (config.vector as usize / element_bytes).max(1)
}

/// Returns the number of blocks for `n` elements, which is at least 1. `resident` is the number of blocks in one wave.
pub(crate) fn blocks(
    config: &Config,
    reduction: bool,
    element_bytes: usize,
    n: usize,
    properties: &DeviceProperties,
    resident: impl FnOnce() -> Result<u32>,
) -> Result<u32> {
    let most = properties.max_grid[0];
    let tiles = n.div_ceil(tile(config, element_bytes).max(1)).clamp(1, most as usize) as u32;
    Ok(match config.grid {
        GridRule::Auto if reduction => {
            let a_multiprocessor = properties.max_threads_per_multiprocessor / config.block.max(1);
            tiles.min(properties.multiprocessors.saturating_mul(a_multiprocessor.max(1)))
        }
        GridRule::Auto => tiles,
        GridRule::Waves(waves) => tiles.min(resident()?.saturating_mul(waves)).max(1),
        GridRule::Blocks(blocks) => blocks,
    })
}

#[cfg(test)]
mod tests {
    use gpu_spec::KernelInfo;

    use super::*;

    #[test]
    fn a_forced_configuration_is_used_once() {
        let config = |block| Config { block, grid: GridRule::Auto, items: 1, vector: 4 };
        with_config(config(32), || {
            with_config(config(64), || assert_eq!([take_forced(), take_forced()], [Some(config(64)), None]));
            with_config(None, || assert_eq!(take_forced(), None));
            let panics = std::panic::catch_unwind(|| with_config(config(96), || panic!("in an operation")));
            assert!(panics.is_err());
            assert_eq!([take_forced(), take_forced()], [Some(config(32)), None]);
        });
        assert_eq!(take_forced(), None);
    }

    #[test]
    fn grid_rules_round_trip() {
        for rule in [GridRule::Auto, GridRule::Waves(1), GridRule::Waves(4), GridRule::Blocks(528)] {
            assert_eq!(rule.to_string().parse::<GridRule>().unwrap(), rule);
        }
        for bad in ["", "wave:1", "waves:", "waves:0", "waves:-1", "blocks:99999999999", "4"] {
            let message = bad.parse::<GridRule>().unwrap_err().to_string();
            assert!(message.contains("waves:N") && message.contains(bad), "{message}");
        }
    }

    #[test]
    fn every_benchmarked_kernel_has_all_its_variants() {
        for (kernel, instances) in [("copy", 8), ("axpy", 8), ("reduce_sum", 2)] {
            let found = variants(kernel, "f32");
            assert_eq!(found.len(), instances, "{kernel}: {found:?}");
            assert!(found.iter().all(|variant| variant.max_block == 512));
        }
        assert_eq!(variants("copy", "bf16").len(), 8);
        assert!(variants("no_such_kernel", "f32").is_empty());
    }

    /// A kernel in another package with the name of one of this crate's kernels.
    #[gpu_std::__private::linkme::distributed_slice(gpu_std::registry::KERNELS)]
    #[linkme(crate = gpu_std::__private::linkme)]
    static FORGED: &KernelInfo = &KernelInfo {
        name: "copy",
        types: &[gpu_std::TypeArgument { parameter: "T", name: "u32" }],
        consts: &[
            gpu_std::ConstArgument { parameter: "ITEMS", value: 77 },
            gpu_std::ConstArgument { parameter: "VECTOR", value: 4 },
        ],
        ..KernelInfo::new(PACKAGE, env!("CARGO_PKG_VERSION"), "copy__u32_1_4", &[])
    };

    #[test]
    fn registered_kernels_of_the_same_name_are_ignored() {
        assert!(gpu_std::registry::kernels().any(|spec| std::ptr::eq(spec, FORGED)));
        assert!(variants("copy", "u32").iter().all(|variant| variant.items != 77));
    }

    #[test]
    fn every_kernel_with_variants_is_known() {
        // Kernels with only one of the two constants are selected by their operations, not by a configuration.
        let is_variant = |spec: &&KernelInfo| {
            let has = |parameter| spec.const_argument(parameter).is_some();
            has("ITEMS") && has("VECTOR") && !std::ptr::eq(*spec, FORGED)
        };
        let registered =
            gpu_std::registry::kernels().filter(|spec| spec.package == PACKAGE).filter(is_variant);
        assert_eq!(registered.count(), all_instances().len());
    }

    #[test]
    fn items_are_the_nearest_there_are() {
        let nearest = |kernel, preferred| Instances::own(kernel).nearest_items(preferred);
        assert_eq!(nearest("axpy", 8), 8);
        assert_eq!(nearest("axpy", 3), 2);
        assert_eq!(nearest("gelu", 8), 1);
        assert_eq!(nearest("reduce_prod", 1), 4);
    }

    /// Returns the properties of the emulated device, except that the SM and thread counts are those of a GPU.
    fn gpu(multiprocessors: u32, threads: u32) -> DeviceProperties {
        let mut properties = Device::emulated(0).unwrap().properties().clone();
        (properties.multiprocessors, properties.max_threads_per_multiprocessor) = (multiprocessors, threads);
        properties
    }

    #[test]
    fn the_default_follows_the_device_and_the_work() {
        let of = |kernel, bytes, n| {
            let own = Instances::own(kernel);
            let Config { block, grid, items, vector } = gpu_config(own, bytes, n, &gpu(132, 2048));
            (block, grid, items, vector)
        };
        for kernel in ["copy", "axpy"] {
            for n in [1 << 20, 1 << 24, 1 << 28] {
                assert_eq!(of(kernel, 4, n), (256, GridRule::Auto, 1, 16), "{kernel} {n}");
            }
            assert_eq!(of(kernel, 4, 1 << 16), (256, GridRule::Auto, 1, 4), "more threads for little work");
            assert_eq!(of(kernel, 4, 1000), (32, GridRule::Auto, 1, 4), "and smaller blocks for less");
            assert_eq!(of(kernel, 4, 0), (32, GridRule::Auto, 1, 4));
        }
        for n in [1 << 16, 1 << 20, 1 << 24, 1 << 28] {
            assert_eq!(of("reduce_sum", 4, n), (256, GridRule::Waves(1), 8, 16), "{n}");
        }
        assert_eq!(of("gelu", 2, 1 << 28), (256, GridRule::Waves(32), 1, 16));
        assert_eq!(of("gelu", 2, 1 << 10).3, 16, "it has no smaller accesses");
        assert_eq!(of("uniform", 4, 1 << 28).1, GridRule::Waves(21));
        assert_eq!(of("uniform", 2, 1 << 28).1, GridRule::Waves(8));
        assert_eq!(of("normal", 4, 1 << 24).1, GridRule::Waves(1));
        assert_eq!(of("normal", 4, 0).1, GridRule::Waves(1));
        let small = gpu_config(Instances::own("axpy"), 4, 1 << 28, &gpu(82, 1536));
        assert_eq!(small.block, 192, "an eighth of an SM of 1536 threads");
    }

    #[test]
    fn every_default_names_an_instance() {
        let kernels = ["copy", "fill", "axpy", "gelu", "reduce_sum", "reduce_prod", "reduce_argmax"];
        for (kernel, n) in
            kernels.into_iter().flat_map(|kernel| [0, 1, 1000, 1 << 16, 1 << 24].map(|n| (kernel, n)))
        {
            let config = gpu_config(Instances::own(kernel), 4, n, &gpu(132, 2048));
            assert!(instance(kernel, "f32", &config).is_ok(), "{kernel} {n}: {config}");
        }
    }

    #[test]
    fn a_missing_variant_names_those_there_are() {
        let config = Config { block: 256, grid: GridRule::Auto, items: 3, vector: 16 };
        let message = instance("axpy", "f32", &config).unwrap_err().to_string();
        assert!(message.contains("items=3") && message.contains("8/16"), "{message}");
    }
}
