//! The default strategy: few timings, of which the last are a race of the best.

use super::descent;
use super::session::Session;
use super::surrogate::Surrogate;

/// Candidates in the last race, the default among them.
const RACERS: usize = 3;
/// Their rounds.
const ROUNDS: usize = 2;
/// Candidates within this share of the best take part.
const NEAR: f64 = 0.03;
/// No more candidates are tried when none is expected to gain this share of the time.
const LEAST_EXPECTED: f64 = 0.0001;

/// Descends from the best so far, then times what the model expects most, and descends from there if it is better; then
/// races the best.
pub fn run(session: &mut Session<'_>) {
    let reserve = (RACERS * ROUNDS).min(session.left() / 4);
    let start = session.ranking().first().map_or(0, |&(candidate, _)| candidate);
    descent::descend(session, start, reserve + 1);
    let mut reach = Vec::new();
    while session.left() > reserve {
        let ranking = session.ranking();
        let best = ranking.first().map_or(f64::INFINITY, |&(_, best)| best);
        let Some(next) = most_expected(session, &ranking, &mut reach) else { break };
        if session.time(next).is_some_and(|us| us < best) {
            descent::descend(session, next, reserve + 1);
        }
    }
    race(session);
}

/// The new candidate that the model expects to gain most; without a model, one that differs least from the default.
fn most_expected(session: &Session<'_>, ranking: &[(usize, f64)], reach: &mut Vec<usize>) -> Option<usize> {
    let model = Surrogate::fit(session.points, ranking, reach);
    let (Some(model), Some(&(_, best))) = (model, ranking.first()) else {
        return session.new_ones().min_by_key(|&candidate| session.points.differences(0, candidate));
    };
    let expected = session.new_ones().map(|c| (c, model.improvement(c, best.ln())));
    let (candidate, gain) = expected.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (gain > LEAST_EXPECTED).then_some(candidate)
}

/// Times the best and the default in turn, while there are timings left.
fn race(session: &mut Session<'_>) {
    let ranking = session.ranking();
    let Some(&(_, least)) = ranking.first() else { return };
    let mut racers: Vec<usize> =
        ranking.iter().filter(|r| r.1 <= least * (1.0 + NEAR)).map(|r| r.0).collect();
    racers.truncate(RACERS);
    if !racers.contains(&0) && session.estimate(0).is_some() {
        racers.truncate(RACERS - 1);
        racers.push(0);
    }
    if racers.len() < 2 {
        return;
    }
    let rounds = (session.left() / racers.len()).min(ROUNDS);
    if rounds > 0 {
        session.race(&racers, rounds);
    }
}
