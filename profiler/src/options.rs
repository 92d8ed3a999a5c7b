//! [`ProfilerOptions`].

use warpsmith_runtime::Device;
use warpsmith_runtime::driver::activity::ActivityOptions;

/// Options of a recording.
///
/// ```no_run
/// use warpsmith_profiler::ProfilerOptions;
///
/// let profiler = ProfilerOptions::default().samples_hz(50).to_file("step.json.gz")?;
/// // …
/// profiler.finish()?;
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ProfilerOptions {
    pub(crate) devices: Vec<Device>,
    pub(crate) activity: ActivityOptions,
    pub(crate) samples_hz: u32,
}

impl Default for ProfilerOptions {
    /// Returns the default options, which record all devices of the process and take 20 samples per second.
    fn default() -> Self {
        Self { devices: Vec::new(), activity: ActivityOptions::default(), samples_hz: 20 }
    }
}

impl ProfilerOptions {
    /// Records every device that belongs to `device`'s driver. Can be called repeatedly. If this method is never
    /// called, all devices of the process are recorded, including devices that are opened later.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push(device.clone());
        self
    }

    /// Also records driver calls that neither enqueue work nor wait.
    pub fn all_calls(mut self) -> Self {
        self.activity.all_calls = true;
        self
    }

    /// Sets the amount of host memory, in bytes, for records that have not yet been added to the trace or its file. The
    /// default is 256 MiB each for the driver and for the profiler. When this memory is full, records are dropped and
    /// counted.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.activity.memory = bytes;
        self
    }

    /// Sets the rate at which the clocks, power, temperature and memory of CUDA devices are sampled, in samples per
    /// second. The default is 20, and the maximum is 100; 0 disables sampling.
    pub fn samples_hz(mut self, hz: u32) -> Self {
        self.samples_hz = hz.min(100);
        self
    }
}
