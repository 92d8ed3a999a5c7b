//! [`Trial`]: selects the candidate to measure next, and finally the fastest one. The module does not depend on
//! devices.

use crate::launch::policy::Winner;

/// Measurements per candidate. The first measurement is not counted, because that launch may have loaded code or woken
/// the device.
const MEASUREMENTS: usize = 6;
/// Number of counted measurements per candidate after which candidates much slower than the fastest are dropped.
const ENOUGH: usize = 3;
const MUCH_SLOWER: f64 = 1.5;
/// Maximum time of a candidate that may replace the heuristic's choice, as a fraction of that choice's time.
const CLEARLY_FASTER: f64 = 0.97;

#[derive(Debug)]
struct Candidate {
    winner: Winner,
    /// Number of measurements that have been started.
    begun: usize,
    is_warm: bool,
    /// Measured times that are counted, in microseconds.
    times: Vec<f64>,
    is_out: bool,
}

impl Candidate {
    fn median(&self) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}

/// Interleaved measurement of a few candidates.
#[derive(Debug)]
pub(super) struct Trial {
    /// The candidates, the heuristic's choice first.
    candidates: Vec<Candidate>,
}

impl Trial {
    /// Starts a trial of these candidates, the heuristic's choice first.
    pub fn new(candidates: impl IntoIterator<Item = Winner>) -> Self {
        let new = |winner| Candidate { winner, begun: 0, is_warm: false, times: Vec::new(), is_out: false };
        Self { candidates: candidates.into_iter().map(new).collect() }
    }

    /// Returns the next candidate to measure; `None` if all measurements have been started.
    pub fn next(&mut self) -> Option<(usize, Winner)> {
        let open = |(_, one): &(usize, &mut Candidate)| !one.is_out && one.begun < MEASUREMENTS;
        let all = self.candidates.iter_mut().enumerate();
        let (index, next) = all.filter(open).min_by_key(|(_, one)| one.begun)?;
        next.begun += 1;
        Some((index, next.winner))
    }

    /// Records a measurement in microseconds; `None` if it failed, which drops the candidate.
    pub fn add(&mut self, index: usize, us: Option<f64>) {
        let Some(one) = self.candidates.get_mut(index) else { return };
        match us.filter(|us| us.is_finite() && *us >= 0.0) {
            None => one.is_out = true,
            Some(_) if !one.is_warm => one.is_warm = true,
            Some(us) => one.times.push(us),
        }
        let open = || self.candidates.iter().filter(|one| !one.is_out);
        if open().all(|one| one.times.len() >= ENOUGH) {
            let best = open().map(Candidate::median).fold(f64::INFINITY, f64::min);
            for one in &mut self.candidates {
                one.is_out |= one.median() > best * MUCH_SLOWER;
            }
        }
    }

    /// Returns the fastest candidate with its median in microseconds, once all measurements are done. If all of them
    /// failed, returns the heuristic's choice without a time.
    pub fn settled(&self) -> Option<(Winner, Option<f64>)> {
        let is_done = |one: &Candidate| one.is_out || one.times.len() + 1 >= MEASUREMENTS;
        if !self.candidates.iter().all(is_done) {
            return None;
        }
        let first = self.candidates.first()?;
        let fastest = self.candidates.iter().min_by(|one, other| one.median().total_cmp(&other.median()))?;
        let chosen = if fastest.median() <= first.median() * CLEARLY_FASTER { fastest } else { first };
        Some((chosen.winner, Some(chosen.median()).filter(|us| us.is_finite())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::policy::GridChoice;

    fn trial(blocks: &[u32]) -> Trial {
        Trial::new(blocks.iter().map(|&block| Winner { block, grid: GridChoice::All }))
    }

    /// Runs a trial with the given time per block. Returns the result and the number of measurements per candidate.
    fn run(blocks: &[u32], us: impl Fn(u32, usize) -> Option<f64>) -> (u32, Option<f64>, Vec<usize>) {
        let mut trial = trial(blocks);
        let mut measured = vec![0; blocks.len()];
        while let Some((index, winner)) = trial.next() {
            assert!(trial.settled().is_none(), "while there is something to measure");
            trial.add(index, us(winner.block, measured[index]));
            measured[index] += 1;
        }
        let (winner, us) = trial.settled().unwrap();
        (winner.block, us, measured)
    }

    #[test]
    fn the_fastest_median_wins_and_each_is_measured_as_often() {
        let times = |block, round| {
            // The first round is slow for all candidates, and one later round is slow for the fastest.
            let noise = if round == 0 || (block == 128 && round == 2) { 1000.0 } else { round as f64 * 0.01 };
            Some(if block == 128 { 8.0 } else { 10.0 } + noise)
        };
        let (block, us, measured) = run(&[256, 64, 128, 512], times);
        assert_eq!((block, measured), (128, vec![MEASUREMENTS; 4]));
        assert!(us.is_some_and(|us| (8.0..8.1).contains(&us)), "{us:?}");
    }

    #[test]
    fn the_heuristics_choice_stays_unless_another_is_clearly_faster() {
        assert_eq!(run(&[256, 64], |block, _| Some(if block == 64 { 9.8 } else { 10.0 })).0, 256);
        assert_eq!(run(&[256, 64], |block, _| Some(if block == 64 { 9.6 } else { 10.0 })).0, 64);
        assert_eq!(run(&[256, 64], |_, _| Some(0.0)).0, 256);
    }

    #[test]
    fn what_is_much_slower_is_given_up_early() {
        let (block, _, measured) =
            run(&[256, 64, 512], |block, _| Some(if block == 64 { 100.0 } else { 10.0 }));
        assert_eq!((block, measured), (256, vec![MEASUREMENTS, ENOUGH + 1, MEASUREMENTS]));
    }

    #[test]
    fn measurements_that_come_to_nothing_end_their_candidate() {
        let (block, _, measured) = run(&[256, 64, 512], |block, _| (block != 256).then_some(5.0));
        assert_eq!((block, measured[0]), (64, 1));
        assert_eq!(run(&[256, 64], |_, _| None), (256, None, vec![1, 1]));
        assert_eq!(run(&[256, 64], |_, _| Some(f64::NAN)), (256, None, vec![1, 1]));
    }

    #[test]
    fn results_may_come_late_and_in_any_order() {
        let mut trial = trial(&[256, 64]);
        let begun: Vec<_> = std::iter::from_fn(|| trial.next()).collect();
        assert_eq!(begun.len(), 2 * MEASUREMENTS);
        for (number, (index, winner)) in begun.into_iter().enumerate().rev() {
            assert!(trial.settled().is_none(), "{number} to come");
            trial.add(index, Some(if winner.block == 64 { 9.0 } else { 10.0 }));
        }
        assert_eq!(trial.settled().map(|(winner, us)| (winner.block, us)), Some((64, Some(9.0))));
        trial.add(7, Some(1.0));
    }
}
