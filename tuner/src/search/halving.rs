//! Successive halving: many candidates in turn, then the better half of them with more rounds.

use super::random::Random;
use super::session::Session;

/// Races until two are left or the budget is spent. As many take part at first as the budget allows for.
pub fn run(session: &mut Session<'_>, random: &mut Random) {
    let all = session.points.len();
    // Each level costs about as much as the one before it: n candidates once, n/2 twice, …
    let mut first = all;
    while first > 2 && cost(first) > session.left() {
        first -= 1;
    }
    let others = random.shuffled(1..all);
    let mut racing: Vec<usize> = std::iter::once(0).chain(others).take(first.max(1)).collect();
    let mut rounds = 1;
    while session.left() >= racing.len() * rounds {
        let ranking = session.race(&racing, rounds);
        if ranking.len() <= 2 {
            return;
        }
        let half = ranking.len().div_ceil(2);
        racing = ranking.into_iter().take(half).map(|(candidate, _)| candidate).collect();
        // The default stays, so that whatever wins was held against it.
        if !racing.contains(&0) {
            racing.pop();
            racing.push(0);
        }
        rounds = (rounds * 2).min(8);
    }
}

/// The timings of all levels, `n` candidates in the first.
fn cost(n: usize) -> usize {
    let (mut n, mut rounds, mut sum) = (n, 1, n);
    while n > 2 {
        n = n.div_ceil(2);
        rounds = (rounds * 2).min(8);
        sum += n * rounds;
    }
    sum
}
