//! [`ProfilerOptions`].

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::activity::ActivityOptions;

/// What is recorded, and how.
///
/// ```no_run
/// use warpsmith_profiler::ProfilerOptions;
///
/// # fn main() -> Result<(), warpsmith_profiler::ProfilerError> {
/// let profiler = ProfilerOptions::default().samples_hz(50).to_file("step.json.gz")?;
/// // …
/// profiler.finish()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ProfilerOptions {
    pub(crate) devices: Vec<Device>,
    pub(crate) activity: ActivityOptions,
    pub(crate) samples_hz: u32,
}

impl Default for ProfilerOptions {
    /// All devices of the process, with 20 samples a second.
    fn default() -> Self {
        Self { devices: Vec::new(), activity: ActivityOptions::default(), samples_hz: 20 }
    }
}

impl ProfilerOptions {
    /// Records the devices of this one's driver, and of those that further calls name. Without a call, all devices of the
    /// process are recorded, those that are opened later too.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push(device.clone());
        self
    }

    /// Records driver calls too that neither enqueue work nor wait.
    pub fn all_calls(mut self) -> Self {
        self.activity.all_calls = true;
        self
    }

    /// Bytes of host memory for records that are not in the trace or its file yet: 256 MiB by default, for the driver and
    /// for the profiler each. When they are full, records are dropped and counted.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.activity.memory = bytes;
        self
    }

    /// How often in a second clocks, power, temperature and memory of CUDA devices are sampled: 20 by default, at most 100;
    /// 0 for never.
    pub fn samples_hz(mut self, hz: u32) -> Self {
        self.samples_hz = hz.min(100);
        self
    }
}
