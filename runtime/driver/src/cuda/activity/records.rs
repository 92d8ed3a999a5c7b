//! Reader of CUPTI's records.
//!
//! Newer libraries append fields to records. The reader therefore reads only the known prefix, by offset, and lets
//! CUPTI step to the next record. Kinds are read as numbers, and unknown kinds are skipped. Record pointers are checked
//! against the buffer: if a record is truncated or outside the buffer, reading stops, and the record is counted as
//! dropped.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::cupti::{Cupti, status};
use super::buffers::Filled;
use crate::activity::{Activity, ActivityPlace, ActivitySink, ActivityTransfer, ActivityWait};

/// `CUpti_ActivityKind`.
pub(super) mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const OVERHEAD: u32 = 17;
    pub const MEMCPY2: u32 = 22;
    pub const SYNCHRONIZATION: u32 = 38;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0`.
pub(super) const EXTERNAL_KIND: u32 = 3;

/// Name prefixes of driver functions that enqueue work or wait for it.
const RECORDED: [&str; 15] = [
    "cuLaunch",
    "cuGraphLaunch",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuMemDiscard",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuStreamWait",
    "cuStreamWrite",
    "cuStreamBatchMemOp",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
];

/// Returns true if calls of a driver function enqueue work or wait for it.
pub(super) fn is_recorded(function: &str) -> bool {
    RECORDED.iter().any(|prefix| function.starts_with(prefix))
}

/// Returns the number of bytes read from a record of this kind; 0 for a kind that is not read.
fn prefix(kind: u32) -> usize {
    match kind {
        kind::CONCURRENT_KERNEL => 160,
        kind::MEMCPY => 76,
        kind::MEMCPY2 => 84,
        kind::MEMSET => 76,
        kind::DRIVER => 40,
        kind::SYNCHRONIZATION => 36,
        kind::OVERHEAD => 40,
        kind::EXTERNAL_CORRELATION => 20,
        _ => 0,
    }
}

/// Device of each context, keyed by CUPTI's context ID, because records of waits do not contain the device.
pub(super) type ContextDevices = Arc<Mutex<HashMap<u32, u32>>>;

/// Records lost while reading buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReadLoss {
    /// Number of records that could not be read or arrived after the sink had panicked.
    pub dropped: u64,
    /// Number of records without times.
    pub zero_time: u64,
}

/// Reads buffers and delivers their records to a sink.
pub(super) struct Reader {
    cupti: &'static Cupti,
    sink: Arc<dyn ActivitySink>,
    /// Number of nanoseconds by which CUPTI's clock is ahead of the driver's.
    ahead: i64,
    devices: ContextDevices,
    /// Context and device of the last lookup.
    last: Option<(u32, u32)>,
    /// Known driver functions, indexed by ID: the name, and true if their calls are delivered.
    functions: Vec<Option<(&'static str, bool)>>,
    /// True if calls that neither enqueue work nor wait for it are delivered.
    all_calls: bool,
    /// True after the sink has panicked.
    is_broken: bool,
    loss: ReadLoss,
}

/// The first bytes of a record.
#[derive(Clone, Copy)]
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    /// Returns the number at an offset; 0 if the offset is beyond the end.
    #[inline]
    fn u32(self, offset: usize) -> u32 {
        self.array(offset).map_or(0, u32::from_ne_bytes)
    }

    #[inline]
    fn u64(self, offset: usize) -> u64 {
        self.array(offset).map_or(0, u64::from_ne_bytes)
    }

    #[inline]
    fn array<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset + N)?.try_into().ok()
    }

    fn u8(self, offset: usize) -> u8 {
        self.0.get(offset).copied().unwrap_or(0)
    }

    fn three(self, offset: usize) -> [u32; 3] {
        [self.u32(offset), self.u32(offset + 4), self.u32(offset + 8)]
    }
}

impl Reader {
    pub(super) fn new(
        cupti: &'static Cupti,
        sink: Arc<dyn ActivitySink>,
        ahead: i64,
        devices: ContextDevices,
        all_calls: bool,
    ) -> Self {
        let (functions, loss) = (Vec::new(), ReadLoss::default());
        Self { cupti, sink, ahead, devices, last: None, functions, all_calls, is_broken: false, loss }
    }

    pub(super) fn loss(&self) -> ReadLoss {
        self.loss
    }

    /// Delivers the records in a buffer.
    pub(super) fn read(&mut self, filled: &mut Filled) {
        let address = filled.address();
        let (begin, valid) = (address.addr(), filled.bytes().len());
        let mut record = std::ptr::null_mut();
        let mut next = 0;
        loop {
            // SAFETY: CUPTI filled the buffer, which has this number of valid bytes; `record` is null or one of its
            // records.
            match unsafe { (self.cupti.get_next_record)(address, valid, &mut record) } {
                status::SUCCESS => {}
                status::MAX_LIMIT_REACHED => return,
                _ => break,
            }
            let Some(offset) = record.addr().checked_sub(begin).filter(|offset| *offset >= next) else {
                break;
            };
            let Some(bytes) = filled.bytes().get(offset..) else { break };
            let kind = Record(bytes).u32(0);
            let prefix = prefix(kind);
            if bytes.len() < prefix.max(4) {
                break;
            }
            next = offset + prefix.max(4);
            self.record(kind, Record(&bytes[..prefix]));
        }
        self.loss.dropped += 1;
    }

    fn record(&mut self, kind: u32, record: Record<'_>) {
        match kind {
            kind::CONCURRENT_KERNEL => self.kernel(record),
            kind::MEMCPY => {
                self.transfer(record, copy_kind(record), record.u32(44), record.u64(64), record.u32(72))
            }
            kind::MEMCPY2 => {
                self.transfer(record, peer_kind(record), record.u32(60), record.u64(72), record.u32(80))
            }
            kind::MEMSET => {
                let memset = ActivityTransfer::Memset;
                self.transfer(record, memset, record.u32(44), record.u64(64), record.u32(72));
            }
            kind::DRIVER => self.call(record),
            kind::SYNCHRONIZATION => self.wait(record),
            kind::OVERHEAD => self.overhead(record),
            kind::EXTERNAL_CORRELATION if record.u32(4) == EXTERNAL_KIND => {
                self.deliver(&Activity::Inside { correlation: record.u32(16).into(), id: record.u64(8) });
            }
            _ => {}
        }
    }

    fn kernel(&mut self, record: Record<'_>) {
        let Some((start, end)) = self.times(record, 16, 24) else { return };
        let name = record.u64(104) as usize as *const c_char;
        // SAFETY: CUPTI writes a null pointer or a pointer to a C string, which lives at least until the buffer is
        // recycled.
        let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
        let symbol = name.to_string_lossy();
        let place = ActivityPlace {
            device: record.u32(40),
            stream: record.u32(48),
            correlation: record.u32(92).into(),
            graph: record.u32(156),
            node: record.u64(144),
        };
        self.learn(record.u32(44), place.device);
        self.deliver(&Activity::Kernel {
            start,
            end,
            place,
            symbol: &symbol,
            grid: record.three(52),
            block: record.three(64),
            registers: record.u32(4) >> 16,
            static_shared: record.u32(76),
            dynamic_shared: record.u32(80),
        });
    }

    /// Delivers a copy or a memset, whose records share a common prefix.
    fn transfer(
        &mut self,
        record: Record<'_>,
        kind: ActivityTransfer,
        correlation: u32,
        node: u64,
        graph: u32,
    ) {
        let Some((start, end)) = self.times(record, 16, 24) else { return };
        let (device, stream) = (record.u32(32), record.u32(40));
        self.learn(record.u32(36), device);
        let place = ActivityPlace { device, stream, correlation: correlation.into(), graph, node };
        self.deliver(&Activity::Transfer { start, end, place, kind, bytes: record.u64(8) });
    }

    fn call(&mut self, record: Record<'_>) {
        let (function, is_delivered) = self.function(record.u32(4));
        if !is_delivered {
            return;
        }
        let Some((start, end)) = self.times(record, 8, 16) else { return };
        let (thread, correlation) = (record.u32(28).into(), record.u32(32).into());
        self.deliver(&Activity::Call { start, end, thread, correlation, function });
    }

    fn wait(&mut self, record: Record<'_>) {
        let kind = match record.u32(4) {
            1 => ActivityWait::HostForEvent,
            2 => ActivityWait::StreamForEvent,
            3 => ActivityWait::HostForStream,
            4 => ActivityWait::HostForDevice,
            _ => return,
        };
        let Some((start, end)) = self.times(record, 8, 16) else { return };
        let stream = Some(record.u32(32)).filter(|stream| *stream != u32::MAX).unwrap_or(0);
        let (device, correlation) = (self.device_of(record.u32(28)), record.u32(24).into());
        let place = ActivityPlace { device, stream, correlation, ..ActivityPlace::default() };
        self.deliver(&Activity::Wait { start, end, place, kind });
    }

    fn overhead(&mut self, record: Record<'_>) {
        let Some((start, end)) = self.times(record, 24, 32) else { return };
        self.deliver(&Activity::Overhead { start, end, what: overhead(record.u32(4)) });
    }

    /// Returns the start and end time on the driver's clock; `None`, counted as a loss, if CUPTI does not report them.
    fn times(&mut self, record: Record<'_>, start: usize, end: usize) -> Option<(u64, u64)> {
        let (start, end) = (record.u64(start), record.u64(end));
        if start == 0 || end == 0 {
            self.loss.zero_time += 1;
            return None;
        }
        let moved = |time: u64| time.saturating_add_signed(self.ahead.wrapping_neg());
        Some((moved(start), moved(end.max(start))))
    }

    fn learn(&mut self, context: u32, device: u32) {
        if self.last != Some((context, device)) {
            self.last = Some((context, device));
            self.devices.lock().unwrap_or_else(PoisonError::into_inner).insert(context, device);
        }
    }

    /// Returns the device of a context; 0 if unknown.
    fn device_of(&self, context: u32) -> u32 {
        match self.last {
            Some((last, device)) if last == context => device,
            _ => self
                .devices
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&context)
                .copied()
                .unwrap_or(0),
        }
    }

    /// Returns the name of a driver function, and true if its calls are delivered.
    fn function(&mut self, number: u32) -> (&'static str, bool) {
        const UNKNOWN: (&str, bool) = ("unknown driver function", true);
        /// Upper bound of driver function IDs.
        const MAX: usize = 1 << 14;
        let index = number as usize;
        if index >= MAX {
            return UNKNOWN;
        }
        if index >= self.functions.len() {
            self.functions.resize(index + 1, None);
        }
        let (cupti, all_calls) = (self.cupti, self.all_calls);
        *self.functions[index].get_or_insert_with(|| {
            cupti.driver_function(number).map_or(UNKNOWN, |name| (name, all_calls || is_recorded(name)))
        })
    }

    fn deliver(&mut self, activity: &Activity<'_>) {
        let sink = &self.sink;
        if self.is_broken {
            self.loss.dropped += 1;
        } else if catch_unwind(AssertUnwindSafe(|| sink.record(activity))).is_err() {
            self.is_broken = true;
            self.loss.dropped += 1;
        }
    }
}

fn copy_kind(record: Record<'_>) -> ActivityTransfer {
    match record.u8(4) {
        1 | 3 => ActivityTransfer::HostToDevice,
        2 | 4 => ActivityTransfer::DeviceToHost,
        5..=8 => ActivityTransfer::DeviceToDevice,
        9 => ActivityTransfer::HostToHost,
        _ => ActivityTransfer::Unknown,
    }
}

/// Returns the kind of a copy between two devices. The peer is the device on which the copy does not run.
fn peer_kind(record: Record<'_>) -> ActivityTransfer {
    let (device, from, to) = (record.u32(32), record.u32(44), record.u32(52));
    ActivityTransfer::PeerToPeer { peer: if from == device { to } else { from } }
}

fn overhead(code: u32) -> &'static str {
    const OF_RECORDER: u32 = 1 << 16;
    match code {
        1 => "driver compiler",
        code if code % OF_RECORDER != 0 => "unknown overhead",
        code => match code / OF_RECORDER {
            1 => "CUPTI buffer flush",
            2 => "CUPTI instrumentation",
            3 => "CUPTI resource",
            4 => "module load at run time",
            5 => "lazy function load",
            6 => "command buffer full",
            7 => "CUPTI buffer request",
            8 => "unified memory initialization",
            _ => "unknown overhead",
        },
    }
}
