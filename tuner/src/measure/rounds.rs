//! Samples of several configurations taken in turns, so that what changes for all of them over time cancels.

use super::sample::Sampler;
use super::stopwatch::{BATCH, Stopwatch, Taken};
use super::{Mode, StopReason, Timing};
use crate::case::Case;
use crate::error::Result;
use crate::value::Configuration;

/// One of those that samples are taken of in turns.
#[derive(Debug, Clone, Copy)]
pub struct Entrant<'a> {
    /// The place of its case among the cases. Several entrants can be of one case.
    pub case: usize,
    /// Its configuration.
    pub configuration: &'a Configuration,
    /// What is timed.
    pub mode: Mode,
}

impl Stopwatch {
    /// Takes samples of all entrants in turns, in a random order within each round, `rounds` of each. Sample `i` of one
    /// was taken next to sample `i` of every other, so that [`paired_ratio`](crate::stats::paired_ratio) compares them.
    /// A round in which the clock was low for any of them is taken again as a whole. Entrants of one case have as many
    /// launches in a sample as the first of its mode.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    /// use warpsmith_tuner::case::Case;
    /// use warpsmith_tuner::measure::{Entrant, Mode, Stopwatch};
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
    /// # fn main() -> Result<(), warpsmith_tuner::error::Error> {
    /// let stream = Stream::new(&Device::open("cpu")?)?;
    /// let mut case = Fill(DeviceBuffer::zeros(&stream, 1 << 22)?, 0, stream.clone());
    /// let (new, old) = ("bytes=4194304".parse()?, "bytes=1024".parse()?);
    /// let entrant = |configuration| Entrant { case: 0, configuration, mode: Mode::Cold };
    /// let timings =
    ///     Stopwatch::new(&stream)?.interleave(&mut [&mut case], &[entrant(&new), entrant(&old)], 30)?;
    /// let ratio = paired_ratio(&timings[0].samples_us, &timings[1].samples_us).expect("30 samples are enough");
    /// assert!(ratio.interval.low > 1.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the cases and the runtime report, of whichever entrant.
    ///
    /// # Panics
    /// When an entrant's case is not among the cases.
    pub fn interleave(
        &mut self,
        cases: &mut [&mut dyn Case],
        entrants: &[Entrant<'_>],
        rounds: usize,
    ) -> Result<Vec<Timing>> {
        self.with_case(|watch| watch.take_turns(cases, entrants, rounds))
    }

    fn take_turns(
        &mut self,
        cases: &mut [&mut dyn Case],
        entrants: &[Entrant<'_>],
        rounds: usize,
    ) -> Result<Vec<Timing>> {
        // Entrants of one case go on over its copies where the one before ended.
        let mut copies = vec![0; cases.len()];
        let mut samplers = Vec::with_capacity(entrants.len());
        for entrant in entrants {
            let (case, copy) = (&mut *cases[entrant.case], &mut copies[entrant.case]);
            case.select(entrant.configuration)?;
            self.warm_up_once(case)?;
            samplers.push(Sampler::new(self, (entrant.case, case), entrant.mode, copy)?);
        }
        let mut taken: Vec<Taken> = samplers.iter().map(|sampler| Taken::new(sampler.launches)).collect();
        let most_rejected = self.clocks.most_rejected();
        let mut order: Vec<usize> = (0..entrants.len()).collect();
        let (mut done, mut rejected, mut throttled, mut is_stopped) = (0, 0, false, false);
        while done < rounds && !entrants.is_empty() && !is_stopped {
            let batch = (BATCH / entrants.len()).clamp(1, rounds - done);
            let mut begun = Vec::with_capacity(batch * order.len());
            for round in 0..batch {
                self.random.shuffle(&mut order);
                for (place, &index) in order.iter().enumerate() {
                    let Entrant { case, configuration, mode } = entrants[index];
                    let (case, copy) = (&mut *cases[case], &mut copies[case]);
                    case.select(configuration)?;
                    // Others have cleared the cache meanwhile.
                    let lead = mode == Mode::Hot || (round == 0 && place == 0);
                    if lead && self.hides_the_host() {
                        samplers[index].lead(self, case, copy)?;
                    }
                    begun.push((index, samplers[index].begin(self, case, copy)?));
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
            throttled |= rejected + lows as u32 > most_rejected;
            is_stopped = self.is_stopped() && done > lows;
            if lows > 0 && !throttled {
                taken.iter_mut().for_each(|taken| taken.reject_rounds(&low));
                rejected += lows as u32;
                done -= lows;
                std::thread::sleep(self.clocks.guard.rest);
            }
        }
        throttled |= entrants.iter().any(|entrant| entrant.mode != Mode::Enqueue) && self.is_slowed();
        self.clocks.ended(throttled);
        let timing = |(mut taken, entrant): (Taken, &Entrant<'_>)| {
            taken.throttled = throttled;
            taken.timing(entrant.mode, if is_stopped { StopReason::Interrupted } else { StopReason::Samples })
        };
        Ok(taken.into_iter().zip(entrants).map(timing).collect())
    }
}
