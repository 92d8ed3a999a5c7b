//! A whole run: checks the request, then measures every kernel, type, size and configuration in turn.
//!
//! Guarantees: nothing is launched before the whole request is known to make sense and to fit the device. The
//! default configuration of each kernel, type and size is always measured, first. Results are handed over one
//! by one, so that a failure half-way loses none of those before it.

use std::time::{SystemTime, UNIX_EPOCH};

use warpsmith::ops::{self, Config};
use warpsmith::{Device, Stream};

use crate::config::Space;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, element_bytes};
use crate::measure::{Effort, Stopwatch};
use crate::prepare::prepare;
use crate::report::{DeviceInfo, Record};
use crate::verify::Check;

/// Most copies of a small case's buffers.
const MOST_COPIES: u64 = 4096;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Request {
    /// Kernels by name.
    pub kernels: Vec<String>,
    /// Types by name.
    pub dtypes: Vec<String>,
    /// Elements.
    pub sizes: Vec<u64>,
    /// Configurations.
    pub space: Space,
    /// How long.
    pub effort: Effort,
}

/// One kernel, type and size of a plan.
#[derive(Debug, Clone)]
pub struct PlannedCase {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The type.
    pub dtype: &'static str,
    /// Elements.
    pub n: u64,
    /// Copies of the buffers to go round over.
    pub copies: usize,
    /// The default configuration.
    pub default: Config,
    /// Every configuration to measure, the default first.
    pub configs: Vec<Config>,
}

/// A request that was found to be possible.
#[derive(Debug)]
pub struct Plan {
    device: Device,
    effort: Effort,
    /// In the order in which they are measured.
    pub cases: Vec<PlannedCase>,
}

/// One result, as it comes in.
#[derive(Debug)]
pub struct Measured {
    /// For the document.
    pub record: Record,
    /// The comparison with the reference.
    pub check: Check,
}

impl Plan {
    /// Checks a request against what there is.
    ///
    /// # Errors
    /// An unknown kernel, type or configuration value, or sizes that do not fit the device's free memory.
    pub fn new(device: &Device, request: &Request) -> Result<Plan> {
        let free = device.memory().available()?;
        let free = free - Stopwatch::cover_bytes(device, free);
        // One part in sixteen stays free for alignment, code and everyone else.
        let free = free - free / 16;
        let max_block = device.properties().max_threads_per_block;
        let mut cases: Vec<PlannedCase> = Vec::new();
        for name in &request.kernels {
            let kernel = Kernel::find(name)?;
            for dtype in &request.dtypes {
                let dtype = kernel.dtype(dtype)?;
                let variants = kernel.variants(dtype);
                let space = request.space.configurations(kernel.name, dtype, &variants, max_block)?;
                for &n in &request.sizes {
                    if cases.iter().any(|c| (c.kernel, c.dtype, c.n) == (kernel, dtype, n)) {
                        continue;
                    }
                    let footprint = kernel.footprint(dtype, n);
                    // What outputs are set to before a check.
                    let spare = n.saturating_mul(element_bytes(dtype)).saturating_mul(kernel.writes);
                    let l2 = device.properties().l2_cache;
                    let copies =
                        copies(device.is_emulated(), l2, footprint, spare, free).ok_or_else(|| {
                            let needed = footprint.saturating_add(spare);
                            Error::TooLarge {
                                kernel: name.clone(),
                                dtype: dtype.to_string(),
                                n,
                                needed,
                                free,
                            }
                        })?;
                    let default =
                        ops::default_config(kernel.name, element_bytes(dtype) as usize, n as usize, device);
                    let mut configs = vec![default];
                    configs.extend(space.iter().filter(|&&c| c != default));
                    cases.push(PlannedCase { kernel, dtype, n, copies, default, configs });
                }
            }
        }
        Ok(Plan { device: device.clone(), effort: request.effort, cases })
    }

    /// How many configurations will be measured in all.
    pub fn len(&self) -> usize {
        self.cases.iter().map(|case| case.configs.len()).sum()
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// What `case` is called in progress and messages: `axpy f32 2^20`.
    pub fn describe(case: &PlannedCase) -> String {
        format!("{} {} {}", case.kernel.name, case.dtype, crate::size::format_size(case.n))
    }

    /// Measures everything; `each` gets every result as it comes, with its case.
    ///
    /// # Errors
    /// What the runtime reports: out of memory, a kernel that panics. Results before it were handed over.
    pub fn run(&self, mut each: impl FnMut(&PlannedCase, Measured)) -> Result<()> {
        let stream = Stream::new(&self.device)?;
        let mut stopwatch = Stopwatch::new(&stream)?;
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let bandwidth = memory_gbps(&self.device);
        let mut warm = self.device.is_emulated();
        for planned in &self.cases {
            let PlannedCase { kernel, dtype, n, copies, .. } = *planned;
            let case = prepare(&stream, kernel, dtype, n as usize, copies, seed)?;
            let mut case = case.ok_or_else(|| Error::UnknownDtype {
                dtype: dtype.to_string(),
                kernel: kernel.name.to_string(),
                known: Vec::new(),
            })?;
            for &config in &planned.configs {
                let check = case.check(config)?;
                if !std::mem::replace(&mut warm, true) {
                    stopwatch.warm_up(&mut *case, config, 100_000.0)?;
                }
                let timing = stopwatch.time(&mut *case, config, self.effort)?;
                let bytes = kernel.bytes(dtype, n);
                let gbps = bytes as f64 / timing.summary.median / 1e3;
                let record = Record {
                    kernel: kernel.name.to_string(),
                    dtype: dtype.to_string(),
                    n,
                    config,
                    samples: timing.summary.count,
                    launches_per_sample: timing.launches_per_sample,
                    median_us: timing.summary.median,
                    p10_us: timing.summary.p10,
                    p90_us: timing.summary.p90,
                    bytes,
                    gbps,
                    roofline: bandwidth.map(|peak| gbps / peak),
                    correct: check.correct(),
                    max_error: Some(check.max_error).filter(|error| error.is_finite()),
                };
                each(planned, Measured { record, check });
            }
        }
        Ok(())
    }
}

/// How many copies of `footprint` bytes to go round over, when `spare` more bytes are needed once and `free`
/// are free: at least two and enough for three times the cache `l2` as far as memory lasts, one on an emulated
/// device. `None` when not even one fits.
fn copies(emulated: bool, l2: u64, footprint: u64, spare: u64, free: u64) -> Option<usize> {
    let footprint = footprint.max(1);
    let affordable = free.checked_sub(spare)? / footprint;
    let wanted = if emulated { 1 } else { (l2 * 3).div_ceil(footprint).clamp(2, MOST_COPIES) };
    Some(wanted.min(affordable) as usize).filter(|&copies| copies > 0)
}

/// The data sheet's memory bandwidth in GB/s; none on an emulated device or where it is unknown.
pub fn memory_gbps(device: &Device) -> Option<f64> {
    let bandwidth = device.properties().memory_bandwidth;
    (!device.is_emulated() && bandwidth > 0).then_some(bandwidth as f64 / 1e9)
}

/// What a document says of a device.
pub fn device_info(device: &Device) -> DeviceInfo {
    let properties = device.properties();
    DeviceInfo {
        id: device.id().to_string(),
        name: properties.name.clone(),
        emulated: device.is_emulated(),
        capability: format!("{}.{}", properties.capability.0, properties.capability.1),
        multiprocessors: properties.multiprocessors,
        memory: properties.total_memory,
        l2_cache: properties.l2_cache,
        memory_gbps: memory_gbps(device),
        driver: properties.driver_version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use warpsmith::runtime::driver::emulated::{Call, EmulatedDriver};

    fn request(kernel: &str, sizes: &[u64]) -> Request {
        Request {
            kernels: vec![kernel.to_string()],
            dtypes: vec!["f32".to_string()],
            sizes: sizes.to_vec(),
            space: Space::emulated(),
            effort: Effort { least: 1, most: 2, budget_us: 0.0, precision: 1.0 },
        }
    }

    #[test]
    fn the_default_comes_first_and_nothing_twice() {
        let device = Device::open("cpu").unwrap();
        let mut twice = request("copy", &[1000, 4096, 1000]);
        twice.kernels.push("copy".to_string());
        let plan = Plan::new(&device, &twice).unwrap();
        assert_eq!(plan.cases.len(), 2);
        for case in &plan.cases {
            assert_eq!(case.configs[0], case.default);
            let mut unique = case.configs.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), case.configs.len());
        }
        assert_eq!(plan.len(), plan.cases.iter().map(|c| c.configs.len()).sum::<usize>());
    }

    #[test]
    fn copies_exceed_the_cache_as_far_as_memory_lasts() {
        let l2 = 50 << 20;
        assert_eq!(copies(true, l2, 1 << 20, 0, 1 << 30), Some(1));
        assert_eq!(copies(false, l2, 1 << 20, 0, 1 << 40), Some(150));
        assert_eq!(copies(false, l2, 1 << 30, 0, 1 << 40), Some(2));
        assert_eq!(copies(false, l2, 1 << 30, 1 << 29, 3 << 29), Some(1));
        assert_eq!(copies(false, l2, 1 << 30, 1 << 29, (3 << 29) - 1), None);
        assert_eq!(copies(false, l2, 4, 4, 1 << 40), Some(4096));
        assert_eq!(copies(true, l2, u64::MAX, u64::MAX, 1 << 40), None);
    }

    /// A device of its own, with 1 MiB of memory, and its driver.
    fn small_device() -> (Device, Arc<EmulatedDriver>) {
        let driver = EmulatedDriver::builder().memory(1 << 20).build();
        (Device::with_driver(driver.clone(), 0).unwrap(), driver)
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_allocated() {
        let (device, _) = small_device();
        for n in [1 << 17, 1 << 50, u64::MAX] {
            let error = Plan::new(&device, &request("copy", &[64, n])).unwrap_err();
            assert!(matches!(error, Error::TooLarge { n: at, .. } if at == n), "{error}");
            assert!(error.is_wrong_use());
        }
        Plan::new(&device, &request("copy", &[1 << 16]))
            .unwrap()
            .run(|_, m| assert!(m.record.correct))
            .unwrap();
        assert_eq!(device.memory().allocated(), 0);
    }

    #[test]
    fn a_failure_half_way_loses_no_result_before_it() {
        let (device, driver) = small_device();
        let plan = Plan::new(&device, &request("copy", &[1000])).unwrap();
        let mut seen = 0;
        let error = plan.run(|_, _| {
            seen += 1;
            if seen == 3 {
                driver.fail_call(Call::Launch, 1);
            }
        });
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Runtime(_)) && !error.is_wrong_use(), "{error}");
        assert_eq!(seen, 3);
    }

    #[test]
    fn results_come_in_the_order_of_the_plan() {
        let device = Device::open("cpu").unwrap();
        let plan = Plan::new(&device, &request("copy", &[33, 1025])).unwrap();
        let mut seen = Vec::new();
        plan.run(|case, measured| {
            assert!(measured.record.correct, "{:?}", measured.record);
            assert_eq!(measured.record.roofline, None);
            seen.push((case.n, measured.record.config));
        })
        .unwrap();
        let planned: Vec<_> =
            plan.cases.iter().flat_map(|c| c.configs.iter().map(|&config| (c.n, config))).collect();
        assert_eq!(seen, planned);
    }
}
