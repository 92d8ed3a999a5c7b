//! Access to NVML, NVIDIA's management library, if it is installed.
//!
//! NVML reports all devices of the machine, regardless of `CUDA_VISIBLE_DEVICES`, so devices are looked up by UUID.
//! After any failure, values are unknown (`None`).

use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong};
use std::fmt::{self, Write};
use std::mem::{self, MaybeUninit};
use std::sync::OnceLock;

use nvml_wrapper_sys::bindings as nvml;

use super::{call, properties};

/// File names of the library; WSL's path comes first.
const LIBRARY: &[&str] =
    if cfg!(windows) { &["nvml.dll"] } else { &["/usr/lib/wsl/lib/libnvidia-ml.so.1", "libnvidia-ml.so.1"] };

/// Buffer size in bytes, sufficient for any string from the library.
const TEXT_BYTES: usize = 96;

/// Calls the library function with these arguments and returns the result; `None` if the function is missing or the
/// call fails.
macro_rules! called {
    ($library:expr, $function:ident($($argument:expr),*)) => {{
        let function = $library.$function.as_ref().ok()?;
        // SAFETY: the signature is the one in the bindings; handles come from the library, and pointers refer to live
        // memory.
        (unsafe { function($($argument),*) } == nvml::nvmlReturn_enum_NVML_SUCCESS).then_some(())
    }};
}

/// Initialized NVML library, shut down on drop.
pub(super) struct Library(nvml::NvmlLib);

impl Library {
    pub(super) fn open() -> Option<Self> {
        // SAFETY: the library belongs to the driver; its initializers may run at any time.
        let library = LIBRARY.iter().find_map(|file| unsafe { nvml::NvmlLib::new(file) }.ok())?;
        called!(library, nvmlInit_v2())?;
        Some(Self(library))
    }

    /// Returns the number of GPUs in the machine.
    pub(super) fn device_count(&self) -> Option<u32> {
        let mut count = 0;
        called!(self.0, nvmlDeviceGetCount_v2(&mut count))?;
        Some(count)
    }

    pub(super) fn device_at(&self, index: u32) -> Option<Device<'_>> {
        self.device_from(|handle| called!(self.0, nvmlDeviceGetHandleByIndex_v2(index, handle)))
    }

    fn device_of(&self, uuid: &CStr) -> Option<Device<'_>> {
        self.device_from(|handle| called!(self.0, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), handle)))
    }

    fn device_from(&self, get: impl FnOnce(&mut nvml::nvmlDevice_t) -> Option<()>) -> Option<Device<'_>> {
        let mut handle = std::ptr::null_mut();
        get(&mut handle)?;
        Some(Device { library: self, handle })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = (|| called!(self.0, nvmlShutdown()))();
    }
}

/// Returns NVML, loading it on first use.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(Library::open).as_ref()
}

/// Returns the device with index `ordinal` in this process.
pub(super) fn device(ordinal: u32) -> Option<Device<'static>> {
    let text = uuid_text(call::device(ordinal).and_then(properties::uuid).ok()?);
    let library = library()?;
    // The UUID of a MIG instance has a different prefix.
    ["GPU", "MIG"].iter().find_map(|kind| library.device_of(&CString::new(format!("{kind}-{text}")).ok()?))
}

/// Returns the version of the installed driver package.
pub(super) fn driver_version() -> Option<String> {
    let library = &library()?.0;
    text(|buffer, bytes| called!(library, nvmlSystemGetDriverVersion(buffer, bytes)))
}

fn text(get: impl FnOnce(*mut c_char, c_uint) -> Option<()>) -> Option<String> {
    let mut buffer = [0u8; TEXT_BYTES];
    get(buffer.as_mut_ptr().cast(), TEXT_BYTES as c_uint)?;
    Some(CStr::from_bytes_until_nul(&buffer).ok()?.to_str().ok()?.to_owned())
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

/// A GPU or a MIG instance. Values that NVML does not report are `None`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device<'a> {
    library: &'a Library,
    handle: nvml::nvmlDevice_t,
}

// SAFETY: NVML may be called from any thread, and a handle identifies a device, not thread state.
unsafe impl Send for Device<'_> {}
// SAFETY: as above.
unsafe impl Sync for Device<'_> {}

/// Defines methods that return one number each.
macro_rules! numbers {
    ($($name:ident($($parameter:ident: $type:ty),*) = $function:ident;)*) => {$(
        pub(super) fn $name(&self, $($parameter: $type),*) -> Option<u32> {
            let mut value = 0;
            called!(self.library.0, $function(self.handle, $($parameter,)* &mut value))?;
            Some(value)
        }
    )*};
}

impl Device<'_> {
    numbers! {
        clock_mhz(clock: nvml::nvmlClockType_t) = nvmlDeviceGetClockInfo;
        max_clock_mhz(clock: nvml::nvmlClockType_t) = nvmlDeviceGetMaxClockInfo;
        sensor_c(sensor: nvml::nvmlTemperatureSensors_t) = nvmlDeviceGetTemperature;
        power_mw() = nvmlDeviceGetPowerUsage;
        power_limit_mw() = nvmlDeviceGetEnforcedPowerLimit;
        max_parts() = nvmlDeviceGetMaxMigDeviceCount;
        link_state(link: u32) = nvmlDeviceGetNvLinkState;
    }

    pub(super) fn uuid(&self) -> Option<String> {
        text(|buffer, bytes| called!(self.library.0, nvmlDeviceGetUUID(self.handle, buffer, bytes)))
    }

    /// Returns MIG instance `index` of a partitioned GPU.
    pub(super) fn part(&self, index: u32) -> Option<Self> {
        let library = &self.library.0;
        self.other(|handle| called!(library, nvmlDeviceGetMigDeviceHandleByIndex(self.handle, index, handle)))
    }

    /// Returns the GPU to which this MIG instance belongs.
    pub(super) fn whole(&self) -> Option<Self> {
        let library = &self.library.0;
        self.other(|handle| {
            called!(library, nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self.handle, handle))
        })
    }

    fn other(&self, get: impl FnOnce(&mut nvml::nvmlDevice_t) -> Option<()>) -> Option<Self> {
        let mut handle = std::ptr::null_mut();
        get(&mut handle)?;
        Some(Self { library: self.library, handle })
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory_used(&self) -> Option<u64> {
        // The structure's version is encoded in its size field.
        let version = (size_of::<nvml::nvmlMemory_v2_t>() | 2 << 24) as u32;
        let mut memory = nvml::nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        called!(self.library.0, nvmlDeviceGetMemoryInfo_v2(self.handle, &mut memory))?;
        Some(memory.used)
    }

    /// Returns the utilization of SMs and of memory, in percent.
    pub(super) fn utilization(&self) -> Option<[u32; 2]> {
        let mut rates = nvml::nvmlUtilization_t { gpu: 0, memory: 0 };
        called!(self.library.0, nvmlDeviceGetUtilizationRates(self.handle, &mut rates))?;
        Some([rates.gpu, rates.memory])
    }

    /// Returns the clock throttle reasons as a bit mask.
    pub(super) fn throttle_reasons(&self) -> Option<u64> {
        let mut reasons: c_ulonglong = 0;
        called!(self.library.0, nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, &mut reasons))?;
        Some(reasons)
    }

    /// Returns the process ID and the memory in bytes of every context, omitting processes whose memory is not
    /// reported.
    pub(super) fn processes(&self) -> Option<Vec<(u32, u64)>> {
        let library = &self.library.0;
        let mut count = 0;
        // With an empty buffer, the call returns the number of processes, and fails unless it is 0.
        let empty = std::ptr::null_mut();
        if called!(library, nvmlDeviceGetComputeRunningProcesses_v3(self.handle, &mut count, empty)).is_some()
        {
            return Some(Vec::new());
        }
        // More processes may start before the next call.
        count += 8;
        // SAFETY: the structure consists of numbers only.
        let none: nvml::nvmlProcessInfo_t = unsafe { mem::zeroed() };
        let mut processes = vec![none; count as usize];
        let room = processes.as_mut_ptr();
        called!(library, nvmlDeviceGetComputeRunningProcesses_v3(self.handle, &mut count, room))?;
        processes.truncate(count as usize);
        let unknown = i64::from(nvml::NVML_VALUE_NOT_AVAILABLE) as u64;
        let known = processes.iter().filter(|process| process.usedGpuMemory != unknown);
        Some(known.map(|process| (process.pid, process.usedGpuMemory)).collect())
    }

    /// Returns the PCIe address: domain, bus and device number.
    pub(super) fn place(&self) -> Option<[u32; 3]> {
        place(|info| called!(self.library.0, nvmlDeviceGetPciInfo_v3(self.handle, info)))
    }

    /// Returns the PCIe address of the remote end of NVLink `link`.
    pub(super) fn end_of_link(&self, link: u32) -> Option<[u32; 3]> {
        place(|info| called!(self.library.0, nvmlDeviceGetNvLinkRemotePciInfo_v2(self.handle, link, info)))
    }

    /// Returns true if the device communicates with the other one over NVLink.
    pub(super) fn has_nvlink_to(&self, other: &Self) -> Option<bool> {
        let (index, mut status) = (nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK, 0);
        called!(self.library.0, nvmlDeviceGetP2PStatus(self.handle, other.handle, index, &mut status))?;
        Some(status == nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK)
    }
}

fn place(get: impl FnOnce(*mut nvml::nvmlPciInfo_t) -> Option<()>) -> Option<[u32; 3]> {
    let mut info = MaybeUninit::zeroed();
    get(info.as_mut_ptr())?;
    // SAFETY: numbers and arrays of numbers, for which zeros are valid.
    let info: nvml::nvmlPciInfo_t = unsafe { info.assume_init() };
    Some([info.domain, info.bus, info.device])
}

/// Returns a UUID in NVML's notation.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::uuid_text;

    #[test]
    fn identities_are_written_in_groups() {
        let uuid = [0x0a, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(uuid_text(uuid), "0aff0203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
