//! A context's session for reading counters through CUPTI's range profiler.
//!
//! Each kernel is a range. CUPTI replays the kernel for each pass and restores the memory that it wrote
//! (`CUPTI_AutoRange` with `CUPTI_KernelReplay`). User replay would require knowing which memory a kernel writes, and
//! application replay a deterministic program. Auto ranges have numbers instead of names. Counting therefore starts
//! with an empty counter data image, so that its ranges are exactly the counted kernels.

use std::ffi::CStr;

use cudarc::driver::sys::CUcontext;

use super::calls::Calls;
use super::metrics::Metrics;
use super::params::*;
use crate::counters::{Counted, CounterError, CounterResult, CounterSetup, Obstacle};
use crate::cuda::cupti::status;

/// Maximum number of kernels counted at a time. CUPTI rejects several thousand.
const MAX_KERNELS: usize = 512;

/// A context's counter session.
#[derive(Debug)]
pub struct Session {
    calls: Calls,
    context: CUcontext,
    ranges: Ranges,
    metrics: Metrics,
    setup: CounterSetup,
    /// Counter data image of `image_bytes` bytes, to which CUPTI writes.
    image: Vec<u64>,
    image_bytes: usize,
    /// True if a range is pushed around the kernels, which some CUPTI releases require and others reject.
    pushes: bool,
    /// `Some` while counting; true if a range was pushed.
    counting: Option<bool>,
}

// SAFETY: the pointers are handles that any thread may use, and only one thread does so at a time.
unsafe impl Send for Session {}

impl Session {
    /// Prepares the current context, whose device has the driver handle `handle`.
    pub fn open(calls: Calls, context: CUcontext, handle: i32) -> CounterResult<Self> {
        // SAFETY: here and below, the structure's size field is correct, and its pointers are valid during the call.
        let result = unsafe { (calls.functions.initialize)(&mut Initialize::new()) };
        calls.check("cuptiProfilerInitialize", result)?;
        supported(calls, handle)?;
        let chip = chip(calls)?;
        let availability = availability(calls, context)?;
        let metrics = Metrics::of(calls, chip, &availability)?;
        let setup = CounterSetup {
            source: calls.cupti.name(),
            chip: chip.to_string_lossy().into_owned(),
            passes: metrics.passes,
            counters: metrics.counters.clone(),
        };
        let mut session = Self {
            calls,
            context,
            ranges: std::ptr::null_mut(),
            metrics,
            setup,
            image: Vec::new(),
            image_bytes: 0,
            pushes: true,
            counting: None,
        };
        session.enable()?;
        session.configure()?;
        Ok(session)
    }

    pub fn setup(&self) -> &CounterSetup {
        &self.setup
    }

    /// Reserves the hardware counters and allocates space for their values.
    fn enable(&mut self) -> CounterResult<()> {
        let mut params = Enable::new();
        params.context = self.context;
        // SAFETY: see `open`; the caller has retained the context.
        let result = unsafe { (self.calls.functions.enable)(&mut params) };
        self.calls.check("cuptiRangeProfilerEnable", result)?;
        self.ranges = params.ranges;

        let names = self.metrics.pointers();
        let mut params = DataSize::new();
        (params.ranges, params.names, params.count) = (self.ranges, names.as_ptr(), names.len());
        (params.max_ranges, params.max_nodes) = (MAX_KERNELS, MAX_KERNELS as u32);
        // SAFETY: see `open`.
        let result = unsafe { (self.calls.functions.data_size)(&mut params) };
        self.calls.check("cuptiRangeProfilerGetCounterDataSize", result)?;
        self.image_bytes = params.bytes;
        self.image = vec![0; params.bytes.div_ceil(8)];
        Ok(())
    }

    /// Releases the hardware counters.
    fn disable(&mut self) {
        if !self.ranges.is_null() {
            let mut params = Disable::new();
            params.ranges = self.ranges;
            // SAFETY: see `open`; the object is not used again. An error cannot be reported here.
            unsafe { (self.calls.functions.disable)(&mut params) };
            self.ranges = std::ptr::null_mut();
        }
    }

    /// Clears the image and configures the profiler to count the next kernels into it.
    fn configure(&mut self) -> CounterResult<()> {
        let image = self.image.as_mut_ptr().cast::<u8>();
        let mut params = DataInitialize::new();
        (params.ranges, params.bytes, params.image) = (self.ranges, self.image_bytes, image);
        // SAFETY: see `open`; the image has the size that CUPTI requested and does not move until it is replaced.
        let result = unsafe { (self.calls.functions.data_initialize)(&mut params) };
        self.calls.check("cuptiRangeProfilerCounterDataImageInitialize", result)?;

        let mut params = SetConfig::new();
        params.ranges = self.ranges;
        (params.config_bytes, params.config) = (self.metrics.config.len(), self.metrics.config.as_ptr());
        (params.image_bytes, params.image) = (self.image_bytes, image);
        (params.range, params.replay) = (AUTO_RANGE, KERNEL_REPLAY);
        params.max_ranges = MAX_KERNELS;
        (params.levels, params.min_level, params.target_level) = (1, 1, 1);
        // SAFETY: see above.
        let result = unsafe { (self.calls.functions.set_config)(&mut params) };
        self.calls.check("cuptiRangeProfilerSetConfig", result)
    }

    /// Starts counting. The context must be current.
    pub fn begin(&mut self) -> CounterResult<()> {
        if self.counting.is_some() {
            return Err(CounterError::Misuse(
                "another section of the program is already being counted on this device",
            ));
        }
        if self.configure().is_err() {
            // After an error, the profiler may need to be set up again.
            self.disable();
            self.enable()?;
            self.configure()?;
        }
        let mut params = Start::new();
        params.ranges = self.ranges;
        // SAFETY: see `open`.
        let result = unsafe { (self.calls.functions.start)(&mut params) };
        self.calls.check("cuptiRangeProfilerStart", result)?;
        self.counting = Some(self.push());
        Ok(())
    }

    /// Pushes a range, unless CUPTI rejects it.
    fn push(&mut self) -> bool {
        if self.pushes {
            let mut params = PushRange::new();
            (params.ranges, params.name) = (self.ranges, c"kernels".as_ptr());
            // SAFETY: see `open`.
            self.pushes = unsafe { (self.calls.functions.push_range)(&mut params) } == status::SUCCESS;
        }
        self.pushes
    }

    /// Ends counting and returns the values. The context must be current.
    pub fn end(&mut self) -> CounterResult<Counted> {
        let is_complete = self.stop()?;
        let mut params = Decode::new();
        params.ranges = self.ranges;
        // SAFETY: see `open`; CUPTI writes the image, to which no other reference exists.
        let result = unsafe { (self.calls.functions.decode)(&mut params) };
        self.calls.check("cuptiRangeProfilerDecodeData", result)?;
        let dropped = params.dropped as u64;

        let image = self.image.as_ptr().cast::<u8>();
        let mut params = DataInfo::new();
        (params.image, params.bytes) = (image, self.image_bytes);
        // SAFETY: see `open`.
        let result = unsafe { (self.calls.functions.data_info)(&mut params) };
        self.calls.check("cuptiRangeProfilerGetCounterDataInfo", result)?;
        if params.ranges > 0 && !is_complete {
            let text = "CUPTI ended before every kernel had run once per pass".to_owned();
            return Err(CounterError::Cupti { call: "cuptiRangeProfilerStop", code: 0, text });
        }
        // SAFETY: the image has this many bytes.
        let image = unsafe { std::slice::from_raw_parts(image, self.image_bytes) };
        let kernels =
            (0..params.ranges).map(|range| self.metrics.evaluate(image, range)).collect::<Result<_, _>>()?;
        Ok(Counted { kernels, dropped })
    }

    /// Stops counting. Returns true if all passes were performed.
    fn stop(&mut self) -> CounterResult<bool> {
        let Some(pushed) = self.counting.take() else {
            return Err(CounterError::Misuse("no section of the program is being counted on this device"));
        };
        let popped = if pushed {
            let mut params = PopRange::new();
            params.ranges = self.ranges;
            // SAFETY: see `open`.
            unsafe { (self.calls.functions.pop_range)(&mut params) }
        } else {
            status::SUCCESS
        };
        let mut params = Stop::new();
        params.ranges = self.ranges;
        // SAFETY: see `open`.
        let result = unsafe { (self.calls.functions.stop)(&mut params) };
        self.calls.check("cuptiRangeProfilerStop", result)?;
        self.calls.check("cuptiRangeProfilerPopRange", popped)?;
        Ok(params.is_complete != 0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.counting.is_some() {
            // The counted values are discarded.
            let _ = self.stop();
        }
        self.disable();
    }
}

/// Returns an error if the device, or its virtualization, does not support counters.
fn supported(calls: Calls, handle: i32) -> CounterResult<()> {
    let mut params = DeviceSupported::new();
    (params.device, params.api) = (handle, RANGE_PROFILING);
    // SAFETY: see `Session::open`.
    let result = unsafe { (calls.functions.device_supported)(&mut params) };
    calls.check("cuptiProfilerDeviceSupported", result)?;
    if params.is_supported == support::SUPPORTED {
        return Ok(());
    }
    let is_off = |level: u32| level == support::UNSUPPORTED || level == support::DISABLED;
    let obstacle = match &params {
        of if is_off(of.architecture) => Obstacle::Architecture,
        of if of.virtual_gpu == support::DISABLED => Obstacle::VirtualGpuDisabled,
        of if is_off(of.virtual_gpu) => Obstacle::VirtualGpu,
        of if is_off(of.confidential) => Obstacle::ConfidentialComputing,
        of if is_off(of.mining) => Obstacle::MiningProcessor,
        of if is_off(of.sli) => Obstacle::Sli,
        of if is_off(of.wsl) => Obstacle::Wsl,
        _ => Obstacle::Unknown,
    };
    Err(CounterError::Device { device: calls.device, obstacle })
}

/// Returns the device's chip name.
fn chip(calls: Calls) -> CounterResult<&'static CStr> {
    let mut params = ChipName::new();
    params.device = calls.device as usize;
    // SAFETY: see `Session::open`.
    let result = unsafe { (calls.functions.chip_name)(&mut params) };
    calls.check("cuptiDeviceGetChipName", result)?;
    if params.name.is_null() {
        return Err(CounterError::Device { device: calls.device, obstacle: Obstacle::Unknown });
    }
    // SAFETY: this is a C string of the library, which is never unloaded.
    Ok(unsafe { CStr::from_ptr(params.name) })
}

/// Returns the device's counter availability image; empty if there is none.
fn availability(calls: Calls, context: CUcontext) -> CounterResult<Vec<u8>> {
    let mut params = Availability::new();
    params.context = context;
    // SAFETY: see `Session::open`; without an image, the call returns its size.
    let mut result = unsafe { (calls.functions.availability)(&mut params) };
    let mut image = vec![0; if result == status::SUCCESS { params.image_size } else { 0 }];
    if !image.is_empty() {
        params.image = image.as_mut_ptr();
        // SAFETY: see `Session::open`; the image has the size that CUPTI requested.
        result = unsafe { (calls.functions.availability)(&mut params) };
    }
    match calls.check("cuptiProfilerGetCounterAvailability", result) {
        Ok(()) => Ok(image),
        Err(CounterError::Cupti { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
