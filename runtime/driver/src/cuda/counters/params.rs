//! Parameter structures of CUPTI's range profiler and profiler host, as in the headers of CUDA 12.8 and later.
//!
//! Each structure starts with its size (the end of the last field, without trailing padding), from which the library
//! derives the existing fields. Later versions append fields.

use std::ffi::{c_char, c_void};

use cudarc::driver::sys::CUcontext;

/// `CUpti_Profiler_Host_Object`.
pub type Host = *mut c_void;
/// `CUpti_RangeProfiler_Object`.
pub type Ranges = *mut c_void;

/// `CUPTI_AutoRange`: each kernel is a range.
pub const AUTO_RANGE: u32 = 1;
/// `CUPTI_KernelReplay`: CUPTI replays each kernel with its initial memory contents.
pub const KERNEL_REPLAY: u32 = 2;
/// `CUPTI_PROFILER_TYPE_RANGE_PROFILER`.
pub const RANGE_PROFILER: u32 = 0;
/// `CUPTI_PROFILER_RANGE_PROFILING`.
pub const RANGE_PROFILING: u32 = 0;
/// `CUPTI_METRIC_TYPE_RATIO`.
pub const RATIO: u32 = 1;

/// Values of `CUpti_Profiler_Support_Level`.
pub mod support {
    pub const UNSUPPORTED: u32 = 1;
    pub const DISABLED: u32 = 2;
    pub const SUPPORTED: u32 = 3;
}

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            pub struct $name {
                pub size: usize,
                pub private: *mut c_void,
                $(pub $field: $type,)*
            }

            impl $name {
                /// Offset of the end of the last field, in bytes.
                #[allow(unused_assignments, unused_mut, reason = "the last field counts, if there is one")]
                pub const SIZE: usize = {
                    let mut end = 2 * size_of::<usize>();
                    $(end = std::mem::offset_of!($name, $field) + size_of::<$type>();)*
                    end
                };

                /// Returns a structure that is zero except for its size.
                pub fn new() -> Self {
                    // SAFETY: all fields are numbers and pointers, for which zero is a valid value.
                    let zero: Self = unsafe { std::mem::zeroed() };
                    Self { size: Self::SIZE, ..zero }
                }
            }
        )*

        /// Size of each structure by name.
        #[cfg(test)]
        pub const SIZES: &[(&str, usize)] = &[$((stringify!($name), $name::SIZE),)*];
    };
}

params! {
    /// `CUpti_Profiler_Initialize_Params`.
    Initialize {}

    /// `CUpti_Profiler_DeviceSupported_Params`.
    DeviceSupported {
        device: i32,
        is_supported: u32,
        architecture: u32,
        sli: u32,
        virtual_gpu: u32,
        confidential: u32,
        mining: u32,
        wsl: u32,
        api: u32,
    }

    /// `CUpti_Device_GetChipName_Params`.
    ChipName {
        device: usize,
        name: *const c_char,
    }

    /// `CUpti_Profiler_GetCounterAvailability_Params`.
    Availability {
        context: CUcontext,
        image_size: usize,
        image: *mut u8,
    }

    /// `CUpti_Profiler_Host_Initialize_Params`.
    HostInitialize {
        kind: u32,
        chip: *const c_char,
        availability: *const u8,
        host: Host,
    }

    /// `CUpti_Profiler_Host_Deinitialize_Params`.
    HostDeinitialize {
        host: Host,
    }

    /// `CUpti_Profiler_Host_GetBaseMetrics_Params`.
    BaseMetrics {
        host: Host,
        kind: u32,
        names: *const *const c_char,
        count: usize,
    }

    /// `CUpti_Profiler_Host_GetMetricProperties_Params`.
    MetricProperties {
        host: Host,
        name: *const c_char,
        description: *const c_char,
        unit: *const c_char,
        dimension: *const c_char,
        kind: u32,
    }

    /// `CUpti_Profiler_Host_ConfigAddMetrics_Params`.
    AddMetrics {
        host: Host,
        names: *const *const c_char,
        count: usize,
    }

    /// `CUpti_Profiler_Host_GetConfigImageSize_Params`.
    ConfigSize {
        host: Host,
        bytes: usize,
    }

    /// `CUpti_Profiler_Host_GetConfigImage_Params`.
    ConfigImage {
        host: Host,
        bytes: usize,
        image: *mut u8,
    }

    /// `CUpti_Profiler_Host_GetNumOfPasses_Params`.
    Passes {
        bytes: usize,
        image: *const u8,
        passes: usize,
    }

    /// `CUpti_Profiler_Host_EvaluateToGpuValues_Params`.
    Evaluate {
        host: Host,
        image: *const u8,
        bytes: usize,
        range: usize,
        names: *const *const c_char,
        count: usize,
        values: *mut f64,
    }

    /// `CUpti_RangeProfiler_Enable_Params`.
    Enable {
        context: CUcontext,
        ranges: Ranges,
    }

    /// `CUpti_RangeProfiler_GetCounterDataSize_Params`.
    DataSize {
        ranges: Ranges,
        names: *const *const c_char,
        count: usize,
        max_ranges: usize,
        max_nodes: u32,
        bytes: usize,
    }

    /// `CUpti_RangeProfiler_CounterDataImage_Initialize_Params`.
    DataInitialize {
        ranges: Ranges,
        bytes: usize,
        image: *mut u8,
    }

    /// `CUpti_RangeProfiler_SetConfig_Params`.
    SetConfig {
        ranges: Ranges,
        config_bytes: usize,
        config: *const u8,
        image_bytes: usize,
        image: *mut u8,
        range: u32,
        replay: u32,
        max_ranges: usize,
        levels: u16,
        min_level: u16,
        pass: usize,
        target_level: u16,
    }

    /// `CUpti_RangeProfiler_Start_Params`.
    Start {
        ranges: Ranges,
    }

    /// `CUpti_RangeProfiler_PushRange_Params`.
    PushRange {
        ranges: Ranges,
        name: *const c_char,
    }

    /// `CUpti_RangeProfiler_PopRange_Params`.
    PopRange {
        ranges: Ranges,
    }

    /// `CUpti_RangeProfiler_Stop_Params`.
    Stop {
        ranges: Ranges,
        pass: usize,
        target_level: usize,
        is_complete: u8,
    }

    /// `CUpti_RangeProfiler_DecodeData_Params`.
    Decode {
        ranges: Ranges,
        dropped: usize,
    }

    /// `CUpti_RangeProfiler_GetCounterDataInfo_Params`.
    DataInfo {
        image: *const u8,
        bytes: usize,
        ranges: usize,
    }

    /// `CUpti_RangeProfiler_Disable_Params`.
    Disable {
        ranges: Ranges,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Values of CUPTI 13.0's `…_STRUCT_SIZE` macros, evaluated by a C compiler.
    #[test]
    fn sizes_are_those_of_the_headers() {
        let wanted = [
            ("Initialize", 16),
            ("DeviceSupported", 52),
            ("ChipName", 32),
            ("Availability", 40),
            ("HostInitialize", 48),
            ("HostDeinitialize", 24),
            ("BaseMetrics", 48),
            ("MetricProperties", 60),
            ("AddMetrics", 40),
            ("ConfigSize", 32),
            ("ConfigImage", 40),
            ("Passes", 40),
            ("Evaluate", 72),
            ("Enable", 32),
            ("DataSize", 64),
            ("DataInitialize", 40),
            ("SetConfig", 90),
            ("Start", 24),
            ("PushRange", 32),
            ("PopRange", 24),
            ("Stop", 41),
            ("Decode", 32),
            ("DataInfo", 40),
            ("Disable", 24),
        ];
        assert_eq!(SIZES, wanted);
    }

    #[test]
    fn fields_lie_as_in_the_headers() {
        let set = [
            offset_of!(SetConfig, range),
            offset_of!(SetConfig, replay),
            offset_of!(SetConfig, max_ranges),
            offset_of!(SetConfig, levels),
            offset_of!(SetConfig, min_level),
            offset_of!(SetConfig, pass),
            offset_of!(SetConfig, target_level),
        ];
        assert_eq!(set, [56, 60, 64, 72, 74, 80, 88]);
        assert_eq!((offset_of!(DataSize, max_nodes), offset_of!(DataSize, bytes)), (48, 56));
        assert_eq!((offset_of!(HostInitialize, chip), offset_of!(HostInitialize, host)), (24, 40));
        assert_eq!((offset_of!(DeviceSupported, is_supported), offset_of!(DeviceSupported, api)), (20, 48));
        assert_eq!(offset_of!(Stop, is_complete), 40);
    }
}
