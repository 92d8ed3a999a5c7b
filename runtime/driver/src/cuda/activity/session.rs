//! Activity recording through CUPTI.
//!
//! The activity API does not require a subscriber. One is created nevertheless, without enabling callbacks, because it
//! excludes other tools; creating it fails if another tool is attached. A recording ends without `cuptiFinalize`, after
//! which CUPTI could not be restarted.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cudarc::driver::sys::CUcontext;

use super::super::cupti::{self, Cupti, Subscriber, status};
use super::buffers::{self, HUB};
use super::records::{ContextDevices, ReadLoss, Reader, is_recorded, kind};
use crate::Context;
use crate::activity::{ActivityError, ActivityLoss, ActivityOptions, ActivityResult, ActivitySink};

/// Recorded activity kinds, in descending order of their setup cost.
const KINDS: [u32; 7] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMCPY2,
    kind::MEMSET,
    kind::SYNCHRONIZATION,
    kind::OVERHEAD,
    kind::EXTERNAL_CORRELATION,
];
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`: buffers are already zeroed, so CUPTI need not clear them on the
/// program's threads.
const BUFFERS_ARE_ZEROED: u32 = 5;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`.
const SYSTEM_THREAD_IDS: u32 = 1;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FORCED: u32 = 1;
/// Time to wait for further buffers after a flush, which CUPTI may finish before its last callback.
const QUIET: Duration = Duration::from_millis(5);
/// Time to wait for further buffers at the end of a recording.
const QUIET_AT_END: Duration = Duration::from_millis(50);
/// Maximum difference in nanoseconds between clocks that count as equal.
const SAME_CLOCK: i64 = 1000;

pub(super) struct Session {
    cupti: &'static Cupti,
    /// CUDA version of the driver, for error messages.
    cuda: i32,
    subscriber: Subscriber,
    kinds: Vec<u32>,
    /// Driver functions whose calls CUPTI does not record.
    left_out: Vec<u32>,
    devices: ContextDevices,
    reader: Option<JoinHandle<ReadLoss>>,
    /// Records that CUPTI has dropped so far.
    dropped: u64,
    ahead: i64,
}

// SAFETY: the subscriber is a handle that any thread may use.
unsafe impl Send for Session {}

impl Session {
    /// Starts a recording. A process can have only one.
    ///
    /// # Errors
    /// Returns any [`ActivityError`], in which case no recording is active.
    pub(super) fn start(
        cupti: &'static Cupti,
        cuda: i32,
        options: &ActivityOptions,
        sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<Self> {
        HUB.open(options.memory)?;
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable; the callback is never enabled.
        let subscribed = unsafe { (cupti.subscribe)(&mut subscriber, cupti::ignore, std::ptr::null_mut()) };
        if let Err(error) = cupti.check("cuptiSubscribe", subscribed, cuda) {
            HUB.close();
            return Err(error);
        }
        let mut session = Self {
            cupti,
            cuda,
            subscriber,
            kinds: Vec::new(),
            left_out: Vec::new(),
            devices: ContextDevices::default(),
            reader: None,
            dropped: 0,
            ahead: 0,
        };
        match session.begin(options, sink) {
            Ok(()) => Ok(session),
            Err(error) => {
                // Only the first error is reported.
                let _ = session.end();
                Err(error)
            }
        }
    }

    fn begin(&mut self, options: &ActivityOptions, sink: Arc<dyn ActivitySink>) -> ActivityResult<()> {
        let cupti = self.cupti;
        // SAFETY: the argument is a plain number.
        self.check("cuptiSetThreadIdType", unsafe { (cupti.set_thread_id_type)(SYSTEM_THREAD_IDS) })?;
        let (mut yes, mut bytes) = (1u8, size_of::<u8>());
        // SAFETY: the value is of the attribute's type, with its size.
        let set = unsafe { (cupti.set_attribute)(BUFFERS_ARE_ZEROED, &mut bytes, (&raw mut yes).cast()) };
        self.check("cuptiActivitySetAttribute", set)?;
        // SAFETY: the functions uphold CUPTI's contract and exist as long as the process.
        let registered = unsafe { (cupti.register_callbacks)(buffers::requested, buffers::completed) };
        self.check("cuptiActivityRegisterCallbacks", registered)?;
        // Records dropped earlier do not belong to this recording.
        self.count_dropped()?;
        self.dropped = 0;
        for kind in KINDS {
            self.enable(kind)?;
        }
        // CUPTI records external correlation IDs, which assign work to ranges, only with driver calls.
        self.enable(kind::DRIVER)?;
        if !options.all_calls {
            self.leave_out_functions();
        }
        self.ahead = clock_difference(cupti);
        let reader = Reader::new(cupti, sink, self.ahead, Arc::clone(&self.devices), options.all_calls);
        let thread = std::thread::Builder::new().name("warpsmith-activity".to_owned());
        let thread = thread.spawn(move || run(reader)).map_err(|error| ActivityError::Cupti {
            call: "starting a thread for records",
            code: 0,
            text: error.to_string(),
        })?;
        self.reader = Some(thread);
        Ok(())
    }

    fn check(&self, call: &'static str, status: u32) -> ActivityResult<()> {
        self.cupti.check(call, status, self.cuda)
    }

    fn enable(&mut self, kind: u32) -> ActivityResult<()> {
        // SAFETY: the argument is a number.
        self.check("cuptiActivityEnable", unsafe { (self.cupti.enable)(kind) })?;
        self.kinds.push(kind);
        Ok(())
    }

    /// Disables recording of driver functions whose calls are not needed, as far as CUPTI supports this; the reader
    /// filters out the rest. Enabling only the needed functions instead of the activity kind yields no records (CUPTI
    /// 13.0).
    fn leave_out_functions(&mut self) {
        let Some(enable) = self.cupti.enable_driver_api else { return };
        for number in other_functions(self.cupti) {
            // SAFETY: the arguments are numbers.
            if unsafe { enable(number, 0) } == status::SUCCESS {
                self.left_out.push(number);
            }
        }
    }

    fn leave_out_nothing(&mut self) {
        if let Some(enable) = self.cupti.enable_driver_api {
            for number in self.left_out.drain(..) {
                // SAFETY: the arguments are numbers. If enabling fails, later recordings lack the function's calls.
                unsafe { enable(number, 1) };
            }
        }
    }

    /// Returns the number of nanoseconds by which CUPTI's clock is ahead of the driver's clock. Records are corrected
    /// for this difference.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead
    }

    /// Maps contexts to devices, for records that contain only the context.
    pub(super) fn learn(&self, contexts: &[(Context, u32)]) {
        for (context, device) in contexts {
            let mut id = 0;
            // SAFETY: the caller has retained the context; the pointer is to a local variable.
            let result = unsafe { (self.cupti.get_context_id)(context.0 as CUcontext, &mut id) };
            if result == status::SUCCESS {
                self.devices.lock().unwrap_or_else(PoisonError::into_inner).insert(id, *device);
            }
        }
    }

    /// Delivers the records of all work that has run.
    pub(super) fn flush(&mut self) -> ActivityResult<()> {
        let flushed = self.flush_all(0);
        HUB.wait_until_read(QUIET);
        flushed.and(self.count_dropped())
    }

    fn flush_all(&self, flag: u32) -> ActivityResult<()> {
        // SAFETY: the argument is a number; this thread holds no lock that CUPTI's callbacks acquire.
        self.check("cuptiActivityFlushAll", unsafe { (self.cupti.flush_all)(flag) })
    }

    /// Adds the records that CUPTI has dropped since the last query.
    fn count_dropped(&mut self) -> ActivityResult<()> {
        let mut dropped = 0;
        // SAFETY: a null context stands for all contexts; the pointer is to a local variable.
        let result = unsafe { (self.cupti.get_num_dropped)(std::ptr::null_mut(), 0, &mut dropped) };
        self.check("cuptiActivityGetNumDroppedRecords", result)?;
        self.dropped += dropped as u64;
        Ok(())
    }

    /// Ends the recording. Returns the number of lost records and the first error.
    pub(super) fn stop(mut self) -> (ActivityLoss, ActivityResult<()>) {
        let flushed = self.flush();
        let (loss, ended) = self.end();
        (loss, flushed.and(ended))
    }

    /// Disables all enabled kinds, collects the last records and unsubscribes.
    fn end(&mut self) -> (ActivityLoss, ActivityResult<()>) {
        let mut result = Ok(());
        // Must precede disabling the activity kind for calls: functions enabled afterwards keep adding overhead to each
        // call.
        self.leave_out_nothing();
        for kind in std::mem::take(&mut self.kinds) {
            // SAFETY: the argument is a number.
            let disabled = self.check("cuptiActivityDisable", unsafe { (self.cupti.disable)(kind) });
            result = result.and(disabled);
        }
        // Records of unfinished work contain no times and are counted.
        result = result.and(self.flush_all(FORCED));
        if self.reader.is_some() {
            HUB.wait_until_read(QUIET_AT_END);
        }
        result = result.and(self.count_dropped());
        let refused_buffers = HUB.close();
        // The reader thread catches panics of the sink, so it does not panic.
        let read = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        // SAFETY: the subscriber belongs to this recording, which is ending.
        let unsubscribed =
            self.check("cuptiUnsubscribe", unsafe { (self.cupti.unsubscribe)(self.subscriber) });
        let dropped = self.dropped + read.dropped;
        (ActivityLoss { dropped, zero_time: read.zero_time, refused_buffers }, result.and(unsubscribed))
    }
}

/// Reads buffers until the recording ends.
fn run(mut reader: Reader) -> ReadLoss {
    while let Some(mut filled) = HUB.take() {
        reader.read(&mut filled);
        HUB.recycle(filled);
    }
    reader.loss()
}

/// Returns the IDs of the driver functions that neither enqueue work nor wait for it.
fn other_functions(cupti: &Cupti) -> Vec<u32> {
    /// Upper bound of driver function IDs; the next constant is the upper bound of gaps between them.
    const MAX: u32 = 1 << 14;
    const GAP: u32 = 64;
    let (mut found, mut last) = (Vec::new(), 0);
    for number in 1..MAX {
        match cupti.driver_function(number) {
            Some(name) => {
                last = number;
                if !is_recorded(name) {
                    found.push(number);
                }
            }
            None if number - last > GAP => break,
            None => {}
        }
    }
    found
}

/// Returns the number of nanoseconds by which CUPTI's clock is ahead of the driver's clock; 0 if the difference is at
/// most [`SAME_CLOCK`].
fn clock_difference(cupti: &Cupti) -> i64 {
    let read = || {
        let (before, mut time) = (super::now(), 0);
        // SAFETY: the pointer is to a local variable.
        let result = unsafe { (cupti.get_timestamp)(&mut time) };
        let after = super::now();
        let outside = if time < before { time.wrapping_sub(before) } else { time.saturating_sub(after) };
        (result == status::SUCCESS).then_some((after.saturating_sub(before), outside as i64))
    };
    let closest = (0..16).filter_map(|_| read()).min_by_key(|(width, _)| *width);
    match closest {
        Some((_, outside)) if outside.abs() > SAME_CLOCK => outside,
        _ => 0,
    }
}
