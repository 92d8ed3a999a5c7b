//! [`Explanation`]: the configuration of a launch and the reasons for it.

use std::fmt;

use super::Function;
use super::heuristic::bytes_needed;
use super::occupancy::Occupancy;
use super::resolve::{Source, volume};
use super::shape::{Launch, Shape};
use crate::driver::LaunchConfig;
use crate::error::Result;

/// The resolved configuration of a launch of a kernel on a device, and the reasons for it. `Display` prints one line
/// per item.
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::launch::Source;
/// use warpsmith_runtime::{Device, GpuImage, Launch};
///
/// #[kernel]
/// fn nothing() {}
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let kernel = Device::emulated(0)?.load(&IMAGE)?.kernel::<nothing>()?;
/// let explanation = Launch::for_bandwidth(1 << 24, 8).explain(kernel.function())?;
/// assert_eq!((explanation.kernel, explanation.source), ("nothing", Source::Heuristic));
/// println!("{explanation}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The instance's symbol.
    pub kernel: &'static str,
    /// The device's name and number of SMs.
    pub device: (String, u32),
    /// Grid, block and the other settings; `None` if no threads are launched.
    pub config: Option<LaunchConfig>,
    /// Origin of the block and grid dimensions.
    pub source: Source,
    /// Theoretical occupancy of an SM.
    pub occupancy: Occupancy,
    /// Number of waves in the grid.
    pub waves: f64,
    /// Fraction of the device that is idle in the last wave (tail effect), from 0 to 1.
    pub tail: f64,
    /// Bytes in flight on a fully occupied SM, and bytes required to saturate the memory bandwidth; `None` unless both
    /// are known.
    pub in_flight: Option<(u64, u64)>,
}

impl Launch {
    /// Returns the resolved configuration of the launch for this kernel, and the reasons for it.
    ///
    /// # Errors
    /// Returns the same configuration errors as [`TypedKernel::launch`](super::TypedKernel::launch).
    pub fn explain(&self, function: &Function) -> Result<Explanation> {
        Explanation::of(function, self)
    }
}

impl Explanation {
    pub(super) fn of(function: &Function, launch: &Launch) -> Result<Self> {
        let resolved = launch.resolve(function)?;
        let device = function.device().properties();
        let config = resolved.map(|resolved| resolved.config);
        let block = config.map_or(1, |config| u32::try_from(volume(config.block)).unwrap_or(u32::MAX));
        let occupancy = function.theoretical_occupancy(block, launch.shared_bytes);
        let (mut waves, mut tail) = (0.0, 0.0);
        if let Some(config) = &config {
            let capacity = function.capacity(config)?.max(1);
            let blocks = volume(config.grid);
            let unused = blocks.next_multiple_of(capacity) - blocks;
            (waves, tail) = (blocks as f64 / capacity as f64, unused as f64 / capacity as f64);
        }
        let needed = bytes_needed(device);
        let in_flight = match launch.shape {
            Shape::Bandwidth { in_flight, .. } if needed > 0 => {
                let threads = u64::from(occupancy.blocks) * u64::from(block);
                Some((threads * u64::from(in_flight), needed))
            }
            _ => None,
        };
        Ok(Self {
            kernel: function.spec().symbol,
            device: (device.name.clone(), device.multiprocessors),
            config,
            source: resolved.map_or(Source::Given, |resolved| resolved.source),
            occupancy,
            waves,
            tail,
            in_flight,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Given => "given",
            Source::Heuristic => "chosen from the properties of the device and the kernel",
            Source::Tuned => "the fastest in an earlier measurement, from the launch store",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, multiprocessors) = &self.device;
        writeln!(f, "kernel `{}` on {device}, {multiprocessors} SMs", self.kernel)?;
        let Some(config) = &self.config else { return write!(f, "  nothing to launch") };
        writeln!(f, "  {config}")?;
        writeln!(f, "  source: {}", self.source)?;
        let Occupancy { blocks, warps, fraction, limiter } = self.occupancy;
        let percent = fraction * 100.0;
        writeln!(
            f,
            "  occupancy: {percent:.1} %, {blocks} blocks ({warps} warps) per SM, limited by {limiter}"
        )?;
        let idle = self.tail * 100.0;
        write!(f, "  waves: {:.2}; {idle:.1} % of the device is idle in the last wave", self.waves)?;
        if let Some((have, need)) = self.in_flight {
            let remedy = if have >= need { "" } else { "; issue more loads per thread" };
            let kib = |bytes: u64| bytes as f64 / 1024.0;
            write!(f, "\n  in flight per SM: {:.1} KiB ({:.1} KiB needed{remedy})", kib(have), kib(need))?;
        }
        Ok(())
    }
}
