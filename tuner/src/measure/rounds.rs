//! Interleaved samples of several configurations, in which changes over time that affect all configurations cancel out.

use super::sample::Sampler;
use super::stopwatch::{BATCH, Stopwatch, Taken};
use super::{Mode, StopReason, Timing};
use crate::case::Case;
use crate::error::Result;
use crate::value::Configuration;

impl Stopwatch {
    /// Takes `rounds` interleaved samples of each configuration of a case, in random order within each round. Sample
    /// `i` of one configuration is taken close in time to sample `i` of every other one, so that
    /// [`paired_ratio`](crate::stats::paired_ratio) can compare them. If the clock is low for any configuration, the
    /// whole round is retaken. All configurations use as many launches per sample as the first one.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    /// use warpsmith_tuner::case::Case;
    /// use warpsmith_tuner::measure::{Mode, Stopwatch};
    /// use warpsmith_tuner::stats::paired_ratio;
    /// use warpsmith_tuner::value::Configuration;
    /// use warpsmith_tuner::verify::Check;
    ///
    /// /// Sets bytes, as many as the configuration says.
    /// struct Fill(DeviceBuffer<u8>, usize, Stream);
    ///
    /// impl Case for Fill {
    ///     fn copies(&self) -> usize {
    ///         1
    ///     }
    ///     fn select(&mut self, configuration: &Configuration) -> warpsmith_tuner::error::Result<()> {
    ///         self.1 = configuration.number("bytes")? as usize;
    ///         Ok(())
    ///     }
    ///     fn launch(&mut self, _: usize) -> warpsmith_tuner::error::Result<()> {
    ///         Ok(self.2.memset(self.0.slice_mut(..self.1), 1)?)
    ///     }
    ///     fn check(&mut self) -> warpsmith_tuner::error::Result<Check> {
    ///         unreachable!("timing checks nothing")
    ///     }
    /// }
    ///
    /// let stream = Stream::new(&Device::open("cpu")?)?;
    /// let mut case = Fill(DeviceBuffer::zeros(&stream, 1 << 22)?, 0, stream.clone());
    /// let (new, old) = ("bytes=4194304".parse()?, "bytes=1024".parse()?);
    /// let timings = Stopwatch::new(&stream)?.interleave(&mut case, [&new, &old], Mode::Cold, 30)?;
    /// let ratio = paired_ratio(&timings[0].samples_us, &timings[1].samples_us).expect("30 samples are enough");
    /// assert!(ratio.interval.low > 1.0);
    /// # Ok::<(), warpsmith_tuner::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns errors of the case and of the runtime for any of the configurations.
    pub fn interleave<const N: usize>(
        &mut self,
        case: &mut dyn Case,
        configurations: [&Configuration; N],
        mode: Mode,
        rounds: usize,
    ) -> Result<[Timing; N]> {
        // The configurations share the index of the next buffer copy.
        let (mut copy, mut launches) = (0, None);
        let mut samplers = Vec::with_capacity(N);
        for configuration in configurations {
            case.select(configuration)?;
            self.warm_up_once(case)?;
            let sampler = Sampler::new(self, case, mode, launches, &mut copy)?;
            launches = launches.or(Some(sampler.launches));
            samplers.push(sampler);
        }
        let mut taken: Vec<Taken> = samplers.iter().map(|sampler| Taken::new(sampler.launches)).collect();
        let max_rejected = self.clocks.max_rejected();
        let mut order: [usize; N] = std::array::from_fn(|index| index);
        let (mut done, mut rejected, mut throttled, mut is_stopped) = (0, 0, false, false);
        while done < rounds && N > 0 && !is_stopped {
            let batch = (BATCH / N).clamp(1, rounds - done);
            let mut begun = Vec::with_capacity(batch * order.len());
            for round in 0..batch {
                self.random.shuffle(&mut order);
                for (place, &index) in order.iter().enumerate() {
                    case.select(configurations[index])?;
                    // In the meantime, other configurations have evicted the data from the cache.
                    let lead = mode == Mode::Hot || (round == 0 && place == 0);
                    if lead && self.hides_the_host() {
                        samplers[index].lead(self, case, &mut copy)?;
                    }
                    begun.push((index, samplers[index].begin(self, case, &mut copy)?));
                }
            }
            for (index, begun) in begun {
                taken[index].add(self.finish(begun)?);
            }
            done += batch;
            let low: Vec<bool> = (0..done)
                .map(|round| taken.iter().any(|taken| !self.clocks.accepts(taken.samples[round].mhz)))
                .collect();
            let lows = low.iter().filter(|low| **low).count();
            throttled |= rejected + lows as u32 > max_rejected;
            is_stopped = self.is_stopped() && done > lows;
            if lows > 0 && !throttled {
                taken.iter_mut().for_each(|taken| taken.reject_rounds(&low));
                rejected += lows as u32;
                done -= lows;
                std::thread::sleep(self.clocks.guard.rest);
            }
        }
        throttled |= self.is_throttled();
        self.clocks.ended(throttled);
        let stop = if is_stopped { StopReason::Interrupted } else { StopReason::Samples };
        let mut taken = taken.into_iter();
        Ok(configurations.map(|_| {
            let mut taken = taken.next().unwrap_or_else(|| Taken::new(1));
            taken.throttled = throttled;
            taken.timing(mode, stop)
        }))
    }
}
