//! [`Stopwatch`]: times configurations on one stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use super::clock::{Clocks, Guard, is_slowdown};
use super::sample::{Begun, Sample, Sampler};
use super::stop::Progress;
use super::{Effort, Mode, StopReason, Timing, WARM_UP_US};
use crate::case::Case;
use crate::error::Result;
use crate::value::Configuration;

/// Size in bytes of the copy that runs while short launches are being queued. The copy takes more than 100 µs even on
/// the fastest GPUs.
const COVER_BYTES: u64 = 256 << 20;
/// Number of samples that are enqueued before the host waits for the first of them.
pub(super) const BATCH: usize = 10;

/// Times configurations on one stream, and keeps track of the device's best clock.
#[derive(Debug)]
pub struct Stopwatch {
    stream: Stream,
    /// Source and destination of the copy that runs while short launches are being queued. `None` on an emulated
    /// device, on which launches do not wait for the host.
    cover: Option<(DeviceBuffer<u8>, DeviceBuffer<u8>)>,
    pub(super) clocks: Clocks,
    /// True if the device has worked long enough to be warm.
    warm: bool,
    /// Random number generator for the order within each round.
    pub(super) random: fastrand::Rng,
    /// Flag that ends timings.
    stop: Arc<AtomicBool>,
}

impl Stopwatch {
    /// Returns the amount of device memory, in bytes, that a stopwatch uses if `free` bytes are free.
    pub fn cover_bytes(device: &Device, free: u64) -> u64 {
        if device.is_emulated() { 0 } else { (2 * COVER_BYTES).min(free / 16) }
    }

    /// Creates a stopwatch for work on `stream`.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    pub fn new(stream: &Stream) -> Result<Self> {
        let free = stream.device().memory().available()?;
        let half = (Self::cover_bytes(stream.device(), free) / 2) as usize;
        let mut watch = Self {
            stream: stream.clone(),
            cover: None,
            clocks: Clocks::default(),
            warm: stream.device().is_emulated(),
            random: fastrand::Rng::with_seed(0),
            stop: Arc::default(),
        };
        if half > 0 {
            watch.cover_with(half)?;
        }
        Ok(watch)
    }

    /// Runs copies of `bytes` bytes while short launches are being queued.
    pub(super) fn cover_with(&mut self, bytes: usize) -> Result<()> {
        let buffer = || DeviceBuffer::zeros(&self.stream, bytes);
        self.cover = Some((buffer()?, buffer()?));
        Ok(())
    }

    /// Sets the rule for rejecting samples; the default is [`Guard::default`].
    pub fn set_guard(&mut self, guard: Guard) {
        self.clocks.guard = guard;
    }

    /// Sets a flag that ends a timing after the current samples. The timing then contains the samples taken so far, at
    /// least one ([`StopReason::Interrupted`]).
    pub fn set_stop(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    /// Returns true if timings must end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the device busy with launches of a case that has a selected configuration. The call returns after `us`
    /// microseconds of device time, or after four times as long by the host's clock. The first timing on a GPU
    /// automatically warms the device up for [`WARM_UP_US`], unless it is already warm.
    ///
    /// # Errors
    /// Returns errors of the case and of the runtime.
    pub fn warm_up(&mut self, case: &mut dyn Case, us: f64) -> Result<()> {
        self.warm |= us >= WARM_UP_US;
        let (started, mut worked, mut copy) = (Instant::now(), 0.0, 0);
        let mut sampler = Sampler::new(self, case, Mode::Cold, None, &mut copy)?;
        while worked < us && started.elapsed().as_secs_f64() * 1e6 < 4.0 * us && !self.is_stopped() {
            let batch = (0..BATCH).map(|_| sampler.begin(self, case, &mut copy));
            for begun in batch.collect::<Result<Vec<_>>>()? {
                worked += self.finish(begun)?.total_us;
            }
        }
        Ok(())
    }

    /// Calls [`Self::warm_up`] if the device is not warm yet.
    pub(super) fn warm_up_once(&mut self, case: &mut dyn Case) -> Result<()> {
        if self.warm { Ok(()) } else { self.warm_up(case, WARM_UP_US) }
    }

    /// Times a configuration of a case.
    ///
    /// # Errors
    /// Returns errors of the case and of the runtime. In [`Mode::Graph`], also returns an error if the launches cannot
    /// be captured.
    pub fn time(
        &mut self,
        case: &mut dyn Case,
        configuration: &Configuration,
        mode: Mode,
        effort: Effort,
    ) -> Result<Timing> {
        case.select(configuration)?;
        self.warm_up_once(case)?;
        let mut copy = 0;
        let mut sampler = Sampler::new(self, case, mode, effort.launches, &mut copy)?;
        let (mut taken, mut progress) = (Taken::new(sampler.launches), Progress::new(effort));
        let max_rejected = self.clocks.max_rejected();
        let stop = loop {
            let left_us = (effort.budget_us - taken.spent_us).max(0.0);
            let affordable = (left_us / sampler.sample_us().max(1.0)) as usize;
            let missing = effort.minimum.saturating_sub(taken.samples.len());
            let wanted = affordable.clamp(1, BATCH).max(missing.min(4 * BATCH));
            let batch = wanted.min(progress.max_missing(taken.samples.len())).max(1);
            if self.hides_the_host() {
                sampler.lead(self, case, &mut copy)?;
            }
            let begun = (0..batch).map(|_| sampler.begin(self, case, &mut copy));
            for begun in begun.collect::<Result<Vec<_>>>()? {
                taken.add(self.finish(begun)?);
            }
            let low = taken.reject(&self.clocks, max_rejected, effort.minimum.max(1));
            if taken.throttled && taken.samples.len() >= effort.minimum.max(1) {
                break StopReason::Budget;
            }
            let us: Vec<f64> = taken.samples.iter().map(|sample| sample.total_us).collect();
            if let Some(reason) = progress.enough(&us, taken.spent_us) {
                break reason;
            }
            if self.is_stopped() && !us.is_empty() {
                break StopReason::Interrupted;
            }
            if low {
                std::thread::sleep(self.clocks.guard.rest);
            }
        };
        taken.throttled |= self.is_throttled();
        self.clocks.ended(taken.throttled);
        Ok(taken.timing(mode, stop))
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns true if the device may have to wait for the host, so that timed launches must be queued after other
    /// work.
    pub(super) fn hides_the_host(&self) -> bool {
        self.cover.is_some()
    }

    /// If necessary, enqueues work that keeps the device busy while short launches are being queued.
    pub(super) fn cover(&mut self) -> Result<bool> {
        let Some((from, to)) = &mut self.cover else { return Ok(false) };
        self.stream.copy(&*from, to)?;
        Ok(true)
    }

    /// Returns true if the driver reports that heat or a power supply fault keeps the clocks low. The query is too slow
    /// to be made for every sample. If a reason no longer applies at the end of a timing, the clock readings have
    /// already shown its effect.
    pub(super) fn is_throttled(&self) -> bool {
        let now = self.stream.device().telemetry().unwrap_or_default();
        now.throttle_reasons.iter().any(|reason| is_slowdown(reason))
    }

    /// Waits for a sample to finish, and then immediately reads the SM clock rate.
    pub(super) fn finish(&mut self, (start, end): Begun) -> Result<Sample> {
        end.synchronize()?;
        let mhz = self.stream.device().sm_clock_mhz();
        if let Some(mhz) = mhz {
            self.clocks.read(mhz);
        }
        Ok(Sample { total_us: end.elapsed_us(&start)?, mhz })
    }
}

/// Samples of a timing that have been taken so far.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) samples: Vec<Sample>,
    launches: u32,
    rejected: u32,
    /// True if there were too many samples with a low clock to retake all of them.
    pub(super) throttled: bool,
    /// Total microseconds of all samples.
    pub(super) spent_us: f64,
}

impl Taken {
    pub(super) fn new(launches: u32) -> Self {
        Self { samples: Vec::new(), launches, rejected: 0, throttled: false, spent_us: 0.0 }
    }

    pub(super) fn add(&mut self, sample: Sample) {
        self.spent_us += sample.total_us;
        self.samples.push(sample);
    }

    /// Rejects samples that were taken while the device was throttled, according to all clock readings so far,
    /// including readings from earlier batches. Returns true if there were any. If more than `most` samples are
    /// rejected in total, the timing counts as throttled. From then on, samples are rejected only if at least `minimum`
    /// samples remain.
    fn reject(&mut self, clocks: &Clocks, most: u32, minimum: usize) -> bool {
        let low = self.samples.iter().filter(|sample| !clocks.accepts(sample.mhz)).count();
        self.throttled |= self.rejected + low as u32 > most;
        if low > 0 && (!self.throttled || self.samples.len() - low >= minimum) {
            self.samples.retain(|sample| clocks.accepts(sample.mhz));
            self.rejected += low as u32;
        }
        low > 0
    }

    /// Rejects the samples of all rounds that `low` marks.
    pub(super) fn reject_rounds(&mut self, low: &[bool]) {
        let before = self.samples.len();
        let mut round = low.iter();
        self.samples.retain(|_| !round.next().copied().unwrap_or(false));
        self.rejected += (before - self.samples.len()) as u32;
    }

    pub(super) fn timing(self, mode: Mode, stop: StopReason) -> Timing {
        let launches = f64::from(self.launches);
        let clocks: Option<Vec<u32>> = self.samples.iter().map(|sample| sample.mhz).collect();
        Timing {
            mode,
            samples_us: self.samples.iter().map(|sample| sample.total_us / launches).collect(),
            clocks_mhz: clocks.unwrap_or_default(),
            rejected: self.rejected,
            throttled: self.throttled,
            launches_per_sample: self.launches,
            stop,
        }
    }
}
