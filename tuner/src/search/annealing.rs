//! Simulated annealing: a walk that takes worse neighbours ever less often.

use super::USUAL_TIMINGS;
use super::random::Random;
use super::session::Session;

/// At first a neighbour this share slower is taken about one time in three.
const START: f64 = 0.2;
/// In the end, this.
const END: f64 = 0.002;
/// Steps over known ground after which the walk goes on elsewhere.
const MOST_IDLE: usize = 12;

/// Walks until the budget is spent or all candidates are known.
pub fn run(session: &mut Session<'_>, random: &mut Random) {
    let (mut here, mut us) = session.ranking().first().copied().unwrap_or((0, f64::INFINITY));
    let timings = session.left().min(session.points.len().max(USUAL_TIMINGS)).max(1);
    let first = session.timings();
    let mut idle = 0;
    while session.left() > 0 {
        let spent = (session.timings() - first) as f64 / timings as f64;
        let temperature = START * (END / START).powf(spent.min(1.0));
        let axes = 0..session.points.axes();
        let around: Vec<usize> = axes.flat_map(|axis| session.points.neighbours(here, axis, 1)).collect();
        if around.is_empty() || idle >= MOST_IDLE {
            let new: Vec<usize> = session.new_ones().collect();
            if new.is_empty() {
                return;
            }
            idle = 0;
            let next = new[random.below(new.len())];
            if let Some(there) = session.time(next) {
                (here, us) = (next, there);
            }
            continue;
        }
        let next = around[random.below(around.len())];
        idle = if session.is_new(next) { 0 } else { idle + 1 };
        let Some(there) = session.time_once(next) else { continue };
        let worse = (there / us).ln().max(0.0);
        if random.share() < (-worse / temperature).exp() {
            (here, us) = (next, there);
        }
    }
}
