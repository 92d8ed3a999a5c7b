//! Device queries.

use std::fmt;

use super::{Device, DeviceId, drivers, fork, visible};
use crate::driver::Telemetry;
use crate::driver::cuda::CudaDriver;
use crate::error::Result;

/// The UUID of a device, the same in every process and after every reboot.
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
    /// Formats the UUID as in `nvidia-smi -L` and `CUDA_VISIBLE_DEVICES`, except that they use the prefix `MIG-` for
    /// MIG instances.
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

/// A process that has allocated device memory.
///
/// ```
/// let process = warpsmith_runtime::device::DeviceProcess { pid: 4711, memory: 3 << 20 };
/// assert_eq!(process.to_string(), "process 4711 uses 3.00 MiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceProcess {
    /// Process ID, as system tools show it; in a container, the PID on the host.
    pub pid: u32,
    /// Device memory used by the process's contexts, in bytes.
    pub memory: u64,
}

impl fmt::Display for DeviceProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} uses {:.2} MiB", self.pid, self.memory as f64 / f64::from(1 << 20))
    }
}

/// Returns the number of CUDA devices. Initializes CUDA.
fn cuda_count() -> Result<u32> {
    Ok(drivers::driver(DeviceId::Cuda(0))?.device_count()?)
}

impl Device {
    /// Returns true if this process can open a CUDA device. If the driver's management library (NVML) is available, the
    /// query does not initialize CUDA, so the process can fork afterwards; otherwise it does.
    ///
    /// Returns false if there is no driver, if `CUDA_VISIBLE_DEVICES` hides every device, and in a process that was
    /// forked from one that used CUDA.
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

    /// Returns the number of emulated devices, set by `WARPSMITH_EMULATED_DEVICES` (default: 1). Returns 0 in a process
    /// forked from one that had opened an emulated device.
    pub fn emulated_count() -> u32 {
        drivers::driver(DeviceId::Emulated(0)).ok().and_then(|driver| driver.device_count().ok()).unwrap_or(0)
    }

    /// Returns the index among the devices of the same kind.
    pub fn ordinal(&self) -> u32 {
        self.id().ordinal()
    }

    /// Returns the compute capability as (major, minor); (0, 0) for an emulated device.
    pub fn capability(&self) -> (u32, u32) {
        self.properties().capability
    }

    /// Returns the current clocks, temperature and power. Values that the system does not report are `None`: all of
    /// them without the driver's management library (NVML) and on the emulated device.
    ///
    /// # Errors
    /// Returns [`Error::Forked`](crate::Error::Forked) in a process that was forked after the device was opened.
    pub fn telemetry(&self) -> Result<Telemetry> {
        self.check_process()?;
        Ok(self.raw().0.telemetry(self.ordinal())?)
    }

    /// Returns the processes that use memory of the device, including this one. The list is empty without the driver's
    /// management library (NVML) and on the emulated device.
    ///
    /// # Errors
    /// Returns [`Error::Forked`](crate::Error::Forked) in a process that was forked after the device was opened.
    pub fn processes(&self) -> Result<Vec<DeviceProcess>> {
        self.check_process()?;
        let processes = self.raw().0.process_memory(self.ordinal());
        Ok(processes.into_iter().map(|(pid, memory)| DeviceProcess { pid, memory }).collect())
    }

    /// Returns the current SM clock in MHz; `None` if the system does not report it, or if the process was forked after
    /// the device was opened. The query does not disturb running work, because it enqueues and allocates nothing.
    pub fn sm_clock_mhz(&self) -> Option<u32> {
        self.check_process().ok()?;
        self.raw().0.sm_clock_mhz(self.ordinal())
    }

    /// Returns the device's UUID, which is stable across processes.
    pub fn uuid(&self) -> Uuid {
        Uuid(self.properties().uuid)
    }
}
