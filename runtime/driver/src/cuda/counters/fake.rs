//! A fake range profiler for tests: a function table that enforces CUPTI's call order and structure sizes, records
//! calls, fails on request, and counts given kernels.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::MutexGuard;

use super::calls::Calls;
use super::library::RangeProfiler;
use super::params::*;
use crate::cuda::activity::fake::{OfProcess, leaked, table as cupti_table};
use crate::cuda::cupti::{Status, status};

/// CUPTI's code for a call that is out of order.
pub const INVALID_OPERATION: Status = 7;
const INVALID_METRIC_NAME: Status = 17;
const HOST: usize = 0x40;
const RANGES: usize = 0x80;
const IMAGE_BYTES: usize = 8 * 9;
/// First word of an initialized image.
const MAGIC: u64 = 0x1A6E;

pub struct Fake {
    pub calls: Vec<&'static str>,
    /// Functions that fail, each with its status and the remaining number of failures.
    pub failures: HashMap<&'static str, (Status, usize)>,
    /// Support levels: overall, architecture, SLI, virtual GPU, confidential computing, mining, WSL.
    pub support: [u32; 7],
    pub chip: &'static CStr,
    /// Non-ratio metrics of the chip, with their suffixes.
    pub metrics: Vec<&'static str>,
    /// Ratio metrics of the chip, without suffixes.
    pub ratios: Vec<&'static str>,
    /// One number per kernel that runs between start and stop.
    pub kernels: Vec<u64>,
    pub is_complete: bool,
    /// True if kernels are counted only within a pushed range.
    pub demands_push: bool,
    state: State,
    image: usize,
    counted: Vec<u64>,
    is_pushed: bool,
    was_pushed: bool,
    names: Vec<CString>,
    /// Number of live host objects.
    hosts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Enabled,
    Configured,
    Started,
    Stopped,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            failures: HashMap::new(),
            support: [support::SUPPORTED; 7],
            chip: c"GH100",
            metrics: vec![
                "gpu__time_duration.sum",
                "dram__bytes_read.sum",
                "dram__bytes_write.sum",
                "lts__t_sector_hit_rate.pct",
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            ],
            ratios: vec![
                "lts__t_sector_hit_rate",
                "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active",
                "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active",
                "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active",
                "smsp__average_warps_issue_stalled_mio_throttle_pipe_mio_per_issue_active",
                "smsp__average_warps_issue_stalled_selected_per_issue_active",
            ],
            kernels: Vec::new(),
            is_complete: true,
            demands_push: false,
            state: State::Closed,
            image: 0,
            counted: Vec::new(),
            is_pushed: false,
            was_pushed: false,
            names: Vec::new(),
            hosts: 0,
        }
    }
}

impl Fake {
    /// Returns true if no object of the library is in use.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && self.hosts == 0
    }
}

static FAKE: OfProcess<Fake> = OfProcess::new();

/// Locks the library for a test.
pub fn turn() -> MutexGuard<'static, ()> {
    FAKE.turn()
}

/// Reads or changes the library's state.
pub fn with<R>(function: impl FnOnce(&mut Fake) -> R) -> R {
    FAKE.with(function)
}

pub fn calls() -> Calls {
    let functions = Box::leak(Box::new(functions()));
    Calls { cupti: leaked(cupti_table()), functions, device: 3 }
}

fn functions() -> RangeProfiler {
    RangeProfiler {
        initialize,
        device_supported,
        chip_name,
        availability,
        host_initialize,
        host_deinitialize,
        base_metrics,
        metric_properties,
        add_metrics,
        config_size,
        config_image,
        passes,
        evaluate,
        enable,
        data_size,
        data_initialize,
        set_config,
        start,
        push_range,
        pop_range,
        stop,
        decode,
        data_info,
        disable,
    }
}

/// Records a call; returns its status after changing the state.
fn call(
    name: &'static str,
    (size, wanted): (usize, usize),
    change: impl FnOnce(&mut Fake) -> Status,
) -> Status {
    assert_eq!(size, wanted, "{name}");
    with(|fake| {
        fake.calls.push(name);
        match fake.failures.get_mut(name) {
            Some((code, times)) if *times > 0 => {
                *times -= 1;
                *code
            }
            _ => change(fake),
        }
    })
}

/// Defines a table function that checks the structure's size and then changes the state.
macro_rules! function {
    ($name:ident, $params:ident, |$fake:ident, $given:ident| $change:expr) => {
        unsafe extern "C" fn $name(params: *mut $params) -> Status {
            // SAFETY: the caller's structure is valid.
            let $given = unsafe { &mut *params };
            call(stringify!($name), ($given.size, $params::SIZE), |$fake| $change)
        }
    };
}

fn of_host(host: Host) -> Status {
    if host.addr() == HOST { status::SUCCESS } else { 1 }
}

fn step(fake: &mut Fake, ranges: Ranges, from: &[State], to: State) -> Status {
    assert_eq!(ranges.addr(), RANGES);
    if !from.contains(&fake.state) {
        return INVALID_OPERATION;
    }
    fake.state = to;
    status::SUCCESS
}

function!(initialize, Initialize, |_fake, _given| status::SUCCESS);
function!(device_supported, DeviceSupported, |fake, given| {
    assert_eq!((given.device, given.api), (11, RANGE_PROFILING));
    [
        given.is_supported,
        given.architecture,
        given.sli,
        given.virtual_gpu,
        given.confidential,
        given.mining,
        given.wsl,
    ] = fake.support;
    status::SUCCESS
});
function!(chip_name, ChipName, |fake, given| {
    assert_eq!(given.device, 3);
    given.name = fake.chip.as_ptr();
    status::SUCCESS
});
function!(availability, Availability, |_fake, given| {
    assert_eq!(given.context.addr(), 0x10);
    if given.image.is_null() {
        given.image_size = 4;
    } else {
        // SAFETY: the image has the requested size.
        unsafe { given.image.write_bytes(0xAB, 4) };
    }
    status::SUCCESS
});
function!(host_initialize, HostInitialize, |fake, given| {
    // SAFETY: the caller's pointers are valid; the image came from `availability`.
    let (chip, image) =
        unsafe { (CStr::from_ptr(given.chip), std::slice::from_raw_parts(given.availability, 4)) };
    assert_eq!((chip, image, given.kind), (fake.chip, &[0xAB; 4][..], RANGE_PROFILER));
    given.host = std::ptr::without_provenance_mut(HOST);
    fake.hosts += 1;
    status::SUCCESS
});
function!(host_deinitialize, HostDeinitialize, |fake, given| {
    fake.hosts -= 1;
    of_host(given.host)
});
function!(base_metrics, BaseMetrics, |fake, given| {
    assert_eq!(given.kind, RATIO);
    fake.names = fake.ratios.iter().map(|name| CString::new(*name).unwrap()).collect();
    let pointers: Vec<*const c_char> = fake.names.iter().map(|name| name.as_ptr()).collect();
    given.count = pointers.len();
    given.names = pointers.leak().as_ptr();
    of_host(given.host)
});
function!(metric_properties, MetricProperties, |fake, given| {
    // SAFETY: the caller's name is valid.
    let name = unsafe { CStr::from_ptr(given.name) }.to_str().unwrap();
    if fake.metrics.contains(&name) { of_host(given.host) } else { INVALID_METRIC_NAME }
});
function!(add_metrics, AddMetrics, |fake, given| {
    // SAFETY: the caller's names are valid.
    let names = unsafe { std::slice::from_raw_parts(given.names, given.count) };
    // SAFETY: as above.
    let names = names.iter().map(|name| unsafe { CStr::from_ptr(*name) }.to_str().unwrap());
    for name in names {
        let is_ratio = name.strip_suffix(".ratio").is_some_and(|name| fake.ratios.contains(&name));
        if !is_ratio && !fake.metrics.contains(&name) {
            return INVALID_METRIC_NAME;
        }
    }
    of_host(given.host)
});
function!(config_size, ConfigSize, |_fake, given| {
    given.bytes = 5;
    of_host(given.host)
});
function!(config_image, ConfigImage, |_fake, given| {
    assert_eq!(given.bytes, 5);
    // SAFETY: the image has this size.
    unsafe { given.image.write_bytes(0xCD, 5) };
    of_host(given.host)
});
function!(passes, Passes, |_fake, given| {
    // SAFETY: the image has this size.
    let image = unsafe { std::slice::from_raw_parts(given.image, given.bytes) };
    assert_eq!(image, [0xCD; 5]);
    given.passes = 6;
    status::SUCCESS
});
function!(enable, Enable, |fake, given| {
    assert_eq!(given.context.addr(), 0x10);
    if fake.state != State::Closed {
        return INVALID_OPERATION;
    }
    fake.state = State::Enabled;
    given.ranges = std::ptr::without_provenance_mut(RANGES);
    status::SUCCESS
});
function!(data_size, DataSize, |_fake, given| {
    assert!(given.count > 0 && given.max_nodes as usize >= given.max_ranges);
    given.bytes = IMAGE_BYTES;
    status::SUCCESS
});
function!(data_initialize, DataInitialize, |_fake, given| {
    assert_eq!((given.bytes, given.image.addr() % 8), (IMAGE_BYTES, 0));
    // SAFETY: the image has this size and is aligned.
    unsafe { given.image.cast::<[u64; 2]>().write([MAGIC, 0]) };
    status::SUCCESS
});
function!(set_config, SetConfig, |fake, given| {
    // SAFETY: the images have these sizes.
    let (config, magic) = unsafe {
        (std::slice::from_raw_parts(given.config, given.config_bytes), given.image.cast::<u64>().read())
    };
    assert_eq!((config, magic), (&[0xCD; 5][..], MAGIC), "the image was initialized");
    assert_eq!((given.range, given.replay), (AUTO_RANGE, KERNEL_REPLAY));
    assert_eq!((given.levels, given.min_level, given.pass, given.target_level), (1, 1, 0, 1));
    fake.image = given.image.expose_provenance();
    step(fake, given.ranges, &[State::Enabled, State::Configured, State::Stopped], State::Configured)
});
function!(start, Start, |fake, given| {
    fake.was_pushed = false;
    step(fake, given.ranges, &[State::Configured], State::Started)
});
function!(push_range, PushRange, |fake, given| {
    (fake.is_pushed, fake.was_pushed) = (true, true);
    step(fake, given.ranges, &[State::Started], State::Started)
});
function!(pop_range, PopRange, |fake, given| {
    if !std::mem::take(&mut fake.is_pushed) {
        return INVALID_OPERATION;
    }
    step(fake, given.ranges, &[State::Started], State::Started)
});
function!(stop, Stop, |fake, given| {
    let before = fake.calls.iter().rev().nth(1);
    assert_eq!(before == Some(&"pop_range"), fake.is_pushed || fake.was_pushed, "what was pushed is popped");
    fake.is_pushed = false;
    fake.counted = std::mem::take(&mut fake.kernels);
    if fake.demands_push && !fake.was_pushed {
        fake.counted.clear();
    }
    given.is_complete = u8::from(fake.is_complete);
    step(fake, given.ranges, &[State::Started], State::Stopped)
});
function!(decode, Decode, |fake, given| {
    let room = IMAGE_BYTES / 8 - 2;
    given.dropped = fake.counted.len().saturating_sub(room);
    fake.counted.truncate(room);
    let image = std::ptr::with_exposed_provenance_mut::<u64>(fake.image);
    // SAFETY: the image of `set_config`, which the caller keeps, is large enough for the header and these values.
    unsafe {
        image.add(1).write(fake.counted.len() as u64);
        image.add(2).copy_from_nonoverlapping(fake.counted.as_ptr(), fake.counted.len());
    }
    step(fake, given.ranges, &[State::Stopped], State::Stopped)
});
function!(data_info, DataInfo, |_fake, given| {
    assert_eq!(given.bytes, IMAGE_BYTES);
    // SAFETY: the image has this size.
    given.ranges = unsafe { given.image.cast::<u64>().add(1).read() } as usize;
    status::SUCCESS
});
function!(evaluate, Evaluate, |_fake, given| {
    // SAFETY: the image contains as many ranges as `data_info` reports, and there is one value per name.
    unsafe {
        let kernel = given.image.cast::<u64>().add(2 + given.range).read();
        for metric in 0..given.count {
            let value = if metric == 3 { f64::NAN } else { (100 * kernel + metric as u64) as f64 };
            given.values.add(metric).write(value);
        }
    }
    of_host(given.host)
});
function!(disable, Disable, |fake, given| {
    use State::{Configured, Enabled, Stopped};
    step(fake, given.ranges, &[Enabled, Configured, Stopped], State::Closed)
});
