//! Successive halving: many candidates in turn, then the better half of them with more rounds.

use super::random::Random;
use super::session::Session;

/// Races until two are left, with as many at first as the budget allows for; then those two with new ones, while there is
/// some of it left.
pub fn run(session: &mut Session<'_>, random: &mut Random) {
    let others = random.shuffled(1..session.points.len());
    let mut racing: Vec<usize> = session.ranking().into_iter().map(|(candidate, _)| candidate).collect();
    loop {
        let timings = session.timings();
        // The first level. How long a timing takes is known better after each: the first one, which made the case ready,
        // says little.
        for &candidate in &others {
            if !session.is_new(candidate) {
                continue;
            }
            if session.left() < 1 + later_levels(racing.len() + 1) {
                break;
            }
            if session.time(candidate).is_some() {
                racing.push(candidate);
            }
        }
        if session.timings() == timings || !race(session, &mut racing) {
            return;
        }
    }
}

/// The levels after the first, down to two candidates; whether the budget lasted.
fn race(session: &mut Session<'_>, racing: &mut Vec<usize>) -> bool {
    let ranking = session.ranking().into_iter().map(|(candidate, _)| candidate);
    *racing = ranking.filter(|candidate| racing.contains(candidate)).collect();
    let mut rounds = 1;
    while racing.len() > 2 {
        racing.truncate(racing.len().div_ceil(2));
        // The default stays, so that whatever wins was held against it.
        if !racing.contains(&0) {
            racing.pop();
            racing.push(0);
        }
        rounds = (rounds * 2).min(8);
        if session.left() < racing.len() * rounds {
            return false;
        }
        *racing = session.race(racing, rounds).into_iter().map(|(candidate, _)| candidate).collect();
    }
    true
}

/// The timings of all levels after the first, which `n` candidates take part in. Each costs about as much as the one before
/// it: n candidates once, n/2 twice, …
fn later_levels(n: usize) -> usize {
    let (mut n, mut rounds, mut sum) = (n, 1, 0);
    while n > 2 {
        n = n.div_ceil(2);
        rounds = (rounds * 2).min(8);
        sum += n * rounds;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Budget, Objective, Points, Seen};

    /// The first timing takes four seconds, every other one.
    struct Slow(Vec<usize>);

    impl Objective for Slow {
        fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<Seen> {
            candidates.iter().for_each(|&candidate| self.0[candidate] += rounds);
            candidates.iter().map(|&candidate| Seen::Times(vec![10.0 - candidate as f64; rounds])).collect()
        }
        fn seconds(&self) -> f64 {
            match self.0.iter().sum::<usize>() {
                0 => 0.0,
                timings => 3.0 + timings as f64,
            }
        }
    }

    #[test]
    fn as_many_take_part_as_the_later_timings_leave_time_for_and_more_when_some_is_left() {
        for (seconds, timed, in_all) in
            [(27.0, 8, 24), (26.0, 7, 23), (20.0, 6, 14), (11.0, 4, 8), (3.0, 1, 1)]
        {
            let points = Points::of(&[0, 1, 2, 3, 4, 5, 6, 7].map(|v| format!("block={v}").parse().unwrap()));
            let mut slow = Slow(vec![0; 8]);
            let mut session =
                Session::new(&points, Budget { timings: None, seconds: Some(seconds) }, &mut slow);
            session.time(0);
            run(&mut session, &mut Random::new(1));
            assert_eq!(session.found().timings, in_all, "{seconds} s");
            assert_eq!(slow.0.iter().filter(|&&timings| timings > 0).count(), timed, "{seconds} s");
        }
    }
}
