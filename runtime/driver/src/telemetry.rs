//! Telemetry of a device: clocks, temperature, power, utilization.

/// Clocks, temperature, power and utilization of a device at one point in time. Values that the system does not report
/// are `None`. Without the driver's management library (NVML), all values are `None`.
///
/// ```
/// use warpsmith_runtime::Device;
///
/// let now = Device::best()?.telemetry()?;
/// if let (Some(clock), Some(most)) = (now.sm_clock_mhz, now.max_sm_clock_mhz) {
///     println!("{clock} of {most} MHz, throttled by {:?}", now.throttle_reasons);
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Telemetry {
    /// SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Maximum SM clock in MHz.
    pub max_sm_clock_mhz: Option<u32>,
    /// Memory clock in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power draw in watts.
    pub power_w: Option<f64>,
    /// Power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Memory in use by all processes, in bytes.
    pub memory_used: Option<u64>,
    /// Percentage of the last sample period (1/6 s to 1 s) during which a kernel was running.
    pub utilization_percent: Option<u32>,
    /// Percentage of the last sample period during which memory was being read or written.
    pub memory_utilization_percent: Option<u32>,
    /// Throttle reasons: why clocks are below their maximum. Named as in NVML but in lower case, for example
    /// `sw_power_cap` or `gpu_idle`. Empty if there are none or the system does not report them.
    pub throttle_reasons: Vec<String>,
    /// Version of the driver package, for example `570.124.06`.
    pub driver_version: Option<String>,
}
