//! A kernel with a given duration, activity records, and the expected contents of the records.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu_spec::{KernelSpec, ParamKind, ParamSpec};
use warpsmith_runtime::driver::activity::{
    Activity, ActivityLoss, ActivityOptions, ActivityPlace, ActivitySink, ActivityStarted, ActivityTransfer,
    ActivityWait,
};
use warpsmith_runtime::driver::{FunctionHandle, LaunchConfig, ModuleHandle, ModuleSource, StreamHandle};

use crate::fixture::Fixture;
use crate::under_test::gpu;

/// Runs for the given number of nanoseconds.
static SPIN: KernelSpec = KernelSpec::new(
    "warpsmith-runtime",
    "0.0.0",
    "warpsmith_spin",
    &[ParamSpec {
        name: "nanoseconds",
        kind: ParamKind::Value,
        type_name: "u64",
        size: 8,
        align: 8,
        signature: 0,
    }],
    nothing,
);
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry warpsmith_spin(.param .u64 nanoseconds)
{
    .reg .pred %again;
    .reg .u64 %wanted, %began, %now;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %began, %globaltimer;
spin:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %again, %now, %wanted;
    @%again bra spin;
    ret;
}
";
pub const MILLISECOND: u64 = 1_000_000;

unsafe fn nothing(_: *const *const c_void) {}

/// A stored record.
#[derive(Debug, Clone)]
pub enum Kept {
    Kernel {
        start: u64,
        end: u64,
        place: ActivityPlace,
        symbol: String,
        config: LaunchConfig,
        registers: u32,
    },
    Transfer {
        start: u64,
        end: u64,
        place: ActivityPlace,
        kind: ActivityTransfer,
        bytes: u64,
    },
    Wait {
        start: u64,
        end: u64,
        place: ActivityPlace,
        kind: ActivityWait,
    },
    Call {
        start: u64,
        end: u64,
        thread: u64,
        correlation: u64,
        function: String,
    },
    Inside {
        correlation: u64,
        id: u64,
    },
}

#[derive(Default)]
pub struct Records {
    pub kept: Mutex<Vec<Kept>>,
    /// Delay per record.
    pub delay: Duration,
}

impl ActivitySink for Records {
    fn record(&self, activity: &Activity<'_>) {
        let kept = match *activity {
            Activity::Kernel {
                start, end, place, symbol, grid, block, registers, dynamic_shared, ..
            } => {
                let config = LaunchConfig::new(grid, block, dynamic_shared);
                Kept::Kernel { start, end, place, symbol: symbol.to_owned(), config, registers }
            }
            Activity::Transfer { start, end, place, kind, bytes } => {
                Kept::Transfer { start, end, place, kind, bytes }
            }
            Activity::Wait { start, end, place, kind } => Kept::Wait { start, end, place, kind },
            Activity::Call { start, end, thread, correlation, function } => {
                Kept::Call { start, end, thread, correlation, function: function.to_owned() }
            }
            Activity::Inside { correlation, id } => Kept::Inside { correlation, id },
            _ => return,
        };
        std::thread::sleep(self.delay);
        self.kept.lock().unwrap().push(kept);
    }
}

impl Kept {
    /// Returns the start, the end and the place of work on the device.
    pub fn on_device(&self) -> Option<(u64, u64, ActivityPlace)> {
        match *self {
            Self::Kernel { start, end, place, .. } | Self::Transfer { start, end, place, .. } => {
                Some((start, end, place))
            }
            _ => None,
        }
    }
}

/// The GPU with the kernel.
pub struct Bench {
    pub fixture: Fixture,
    module: ModuleHandle,
    pub spin: FunctionHandle,
}

impl Bench {
    pub fn new() -> Self {
        drop(gpu());
        let fixture = Fixture::new();
        let module =
            fixture.driver().module_load(fixture.context(), ModuleSource::Ptx(PTX.as_bytes())).unwrap();
        let spin = fixture.driver().module_function(fixture.context(), module, &SPIN).unwrap();
        let bench = Self { fixture, module, spin };
        // This launch loads code that the driver loads lazily.
        bench.spin(bench.fixture.stream, LaunchConfig::new([1; 3], [32, 1, 1], 0), 0);
        bench.fixture.wait();
        bench
    }

    pub fn spin(&self, stream: StreamHandle, config: LaunchConfig, nanoseconds: u64) {
        let arguments = [(&raw const nanoseconds).cast::<c_void>()];
        // SAFETY: the kernel takes one number, and its module and the stream belong to the bench.
        unsafe {
            self.fixture.driver().launch(self.fixture.context(), self.spin, &config, &arguments, stream)
        }
        .unwrap();
    }

    pub fn start(&self, options: ActivityOptions) -> (Arc<Records>, ActivityStarted) {
        self.start_with(options, Records::default())
    }

    pub fn start_with(&self, options: ActivityOptions, records: Records) -> (Arc<Records>, ActivityStarted) {
        let records = Arc::new(records);
        let sink = Arc::clone(&records) as Arc<dyn ActivitySink>;
        let started =
            self.fixture.driver().activity_start(&options, sink).unwrap_or_else(|error| panic!("{error}"));
        (records, started)
    }

    /// Waits for both streams, and ends the recording.
    pub fn stop(&self, records: &Records) -> (Vec<Kept>, ActivityLoss) {
        self.fixture.driver().context_synchronize(self.fixture.context()).unwrap();
        self.fixture.driver().activity_flush().unwrap();
        let loss = self.fixture.driver().activity_stop().unwrap();
        (std::mem::take(&mut records.kept.lock().unwrap()), loss)
    }

    pub fn stream(&self, stream: StreamHandle) -> u32 {
        self.fixture.driver().activity_stream(self.fixture.context(), stream).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.fixture.driver().activity_stop();
        // SAFETY: the module's kernel is not launched again.
        unsafe { self.fixture.driver().module_unload(self.fixture.context(), self.module) };
    }
}

pub fn cupti() -> ActivityOptions {
    ActivityOptions::default()
}

pub fn one_block() -> LaunchConfig {
    LaunchConfig::new([1; 3], [32, 1, 1], 0)
}

pub fn this_thread() -> u64 {
    let path = std::fs::read_link("/proc/thread-self").unwrap();
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Returns the calls by correlation ID.
pub fn calls(kept: &[Kept]) -> HashMap<u64, (u64, u64, u64, String)> {
    kept.iter()
        .filter_map(|record| match record {
            Kept::Call { start, end, thread, correlation, function } => {
                Some((*correlation, (*start, *end, *thread, function.clone())))
            }
            _ => None,
        })
        .collect()
}

/// Allowed error of CUPTI's conversion from the GPU's clock to the host's, in nanoseconds. In one run on an H200, a
/// call began 0.2 µs after the end of its kernel.
const CLOCK_ERROR: u64 = 20_000;

/// Checks that all work has a call of this thread, and did not start before it. Returns the minimum delay in
/// nanoseconds between a call and its work.
pub fn begins_after_its_call(kept: &[Kept]) -> u64 {
    let calls = calls(kept);
    let on_device = kept.iter().filter_map(Kept::on_device);
    let delays = on_device.map(|(start, end, place)| {
        let (began, _, thread, function) = &calls[&place.correlation];
        let is_after = *began <= start + CLOCK_ERROR && start <= end;
        assert!(is_after, "{function} at {began} of work from {start} to {end}");
        assert_eq!(*thread, this_thread(), "{function}");
        start.saturating_sub(*began)
    });
    delays.min().expect("something ran")
}

/// Enqueues work of every kind on a stream. Returns the expected records.
pub fn work(bench: &Bench) -> [(ActivityTransfer, u64); 4] {
    let fixture = &bench.fixture;
    let (driver, context, stream) = (fixture.driver(), fixture.context(), fixture.stream);
    let mut host = vec![1u8; 1 << 20];
    let [one, two] = [fixture.block(&[0; 1 << 20]), fixture.block(&[0; 1 << 20])];
    // SAFETY: the copies and the memset are within the blocks and the array, which live until the stream's work has
    // finished.
    unsafe {
        driver.copy_to_device(context, one, host.as_ptr().cast(), 1 << 20, stream).unwrap();
        driver.copy_device(context, two, one, 70_000, stream).unwrap();
        driver.memset(context, two, 9, 12_345, stream).unwrap();
        driver.copy_to_host(context, host.as_mut_ptr().cast(), two, 4096, stream).unwrap();
    }
    fixture.wait();
    assert_eq!(host[..4097], [[9; 4096].as_slice(), &[1]].concat());
    [
        (ActivityTransfer::HostToDevice, 1 << 20),
        (ActivityTransfer::DeviceToDevice, 70_000),
        (ActivityTransfer::Memset, 12_345),
        (ActivityTransfer::DeviceToHost, 4096),
    ]
}

pub fn has_all_work(kept: &[Kept], stream: u32, wanted: &[(ActivityTransfer, u64)]) {
    for (kind, bytes) in wanted {
        let found = kept.iter().find_map(|record| match record {
            Kept::Transfer { kind: of, bytes: n, place, .. } if (of, n) == (kind, bytes) => Some(place),
            _ => None,
        });
        assert_eq!(found.unwrap_or_else(|| panic!("{kind:?} of {bytes} bytes: {kept:#?}")).stream, stream);
    }
}
