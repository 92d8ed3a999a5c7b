//! Queries of a device, and of the available devices.

use std::fmt;

use super::{Device, DeviceId, drivers, fork, visible};
use crate::driver::Telemetry;
use crate::driver::cuda::CudaDriver;
use crate::error::Result;

/// UUID of a device: the same in every process and after every reboot.
///
/// ```
/// use warpsmith_runtime::device::Uuid;
///
/// let uuid = Uuid([0x8f, 0x12, 0, 0, 0xab, 0xcd, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0xff]);
/// assert_eq!(uuid.to_string(), "GPU-8f120000-abcd-0001-8000-0000000000ff");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// Formats the UUID as `nvidia-smi -L` and `CUDA_VISIBLE_DEVICES` do, except that those prefix a MIG instance with
    /// `MIG-`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// A process that uses a device's memory.
///
/// ```
/// let process = warpsmith_runtime::device::DeviceProcess { pid: 4711, memory: 3 << 20 };
/// assert_eq!(process.to_string(), "process 4711 uses 3.00 MiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceProcess {
    /// Process ID, as the system's tools show it. In a container, it is the host's PID.
    pub pid: u32,
    /// Device memory that its contexts use, in bytes.
    pub memory: u64,
}

impl fmt::Display for DeviceProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} uses {:.2} MiB", self.pid, self.memory as f64 / f64::from(1 << 20))
    }
}

/// Returns the number of CUDA devices, initializing CUDA.
fn cuda_count() -> Result<u32> {
    Ok(drivers::driver(DeviceId::Cuda(0))?.device_count()?)
}

impl Device {
    /// Returns true if there is a CUDA device that this process can open. If the driver's management library (NVML) is
    /// available, the query does not initialize CUDA, so a process may fork afterwards; otherwise it does.
    ///
    /// Returns false without a driver, if `CUDA_VISIBLE_DEVICES` hides every device, and in a process that was forked
    /// from one that used CUDA.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let device = if Device::is_available() { Device::cuda(0) } else { Device::emulated(0) };
    /// # device.unwrap();
    /// ```
    pub fn is_available() -> bool {
        if fork::check(DeviceId::Cuda(0)).is_err() || !CudaDriver::is_installed() {
            return false;
        }
        match visible::here() {
            Some(here) => !here.devices.is_empty(),
            None => cuda_count().is_ok_and(|count| count > 0),
        }
    }

    /// Returns the number of emulated devices: the value of `WARPSMITH_EMULATED_DEVICES`, 1 by default. 0 in a process
    /// that was forked from one that had opened such a device.
    pub fn emulated_count() -> u32 {
        drivers::driver(DeviceId::Emulated(0)).ok().and_then(|driver| driver.device_count().ok()).unwrap_or(0)
    }

    /// The index among devices of its kind.
    pub fn ordinal(&self) -> u32 {
        self.id().ordinal()
    }

    /// Compute capability as (major, minor); (0, 0) for an emulated device.
    pub fn capability(&self) -> (u32, u32) {
        self.properties().capability
    }

    /// Current clocks, temperature and power. Values that the system does not report are `None`: all of them without
    /// the driver's management library (NVML), and on the emulated device.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked) in a process that was forked since the device was opened.
    pub fn telemetry(&self) -> Result<Telemetry> {
        self.check_process()?;
        Ok(self.raw().0.telemetry(self.ordinal())?)
    }

    /// Returns the processes that use the device's memory, including this one. Empty if the system does not report
    /// them: without the driver's management library (NVML), and on the emulated device.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked) in a process that was forked since the device was opened.
    pub fn processes(&self) -> Result<Vec<DeviceProcess>> {
        self.check_process()?;
        let processes = self.raw().0.process_memory(self.ordinal());
        Ok(processes.into_iter().map(|(pid, memory)| DeviceProcess { pid, memory }).collect())
    }

    /// Current SM clock, in MHz; `None` if the system does not report it, or in a process that was forked since the
    /// device was opened. Cheap enough to query while work runs: it enqueues and allocates nothing.
    pub fn sm_clock_mhz(&self) -> Option<u32> {
        self.check_process().ok()?;
        self.raw().0.sm_clock_mhz(self.ordinal())
    }

    /// UUID of the device, stable across processes.
    pub fn uuid(&self) -> Uuid {
        Uuid(self.properties().uuid)
    }
}
