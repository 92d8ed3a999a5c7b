//! The default strategy: few timings, of which the last are a race of the best.

use super::session::Session;
use super::surrogate::Surrogate;

/// Candidates in the last race, the default among them.
const RACERS: usize = 4;
/// Their rounds.
const ROUNDS: usize = 2;
/// Candidates within this share of the best take part.
const NEAR: f64 = 0.03;
/// Candidates far from the best are not tried when none is expected to gain this share of the time.
const LEAST_EXPECTED: f64 = 0.0005;

/// Times the ends of each axis from the default, then what the model expects most, by turns beside the best and anywhere,
/// then races the best.
pub fn run(session: &mut Session<'_>) {
    let reserve = if session.left() >= 3 * RACERS * ROUNDS { RACERS * ROUNDS } else { session.left() / 3 };
    probe(session, reserve);
    let (mut is_local, mut reach) = (true, Vec::new());
    while session.left() > reserve {
        let ranking = session.ranking();
        let Some(&(here, best)) = ranking.first() else { break };
        let Some(model) = Surrogate::fit(session.points, &ranking, &mut reach) else { break };
        let most = |candidates: Vec<usize>| {
            let expected = candidates.into_iter().map(|c| (c, model.improvement(c, best.ln())));
            expected.max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let beside = most(beside(session, here)).map(|(candidate, _)| candidate);
        let anywhere = most(session.new_ones().collect()).filter(|(_, gain)| *gain > LEAST_EXPECTED);
        let anywhere = anywhere.map(|(candidate, _)| candidate);
        let next = if is_local { beside.or(anywhere) } else { anywhere.or(beside) };
        let Some(next) = next else { break };
        session.time(next);
        is_local = !is_local;
    }
    race(session);
}

/// New candidates that differ from one on a single axis by two values at most.
fn beside(session: &Session<'_>, here: usize) -> Vec<usize> {
    let axes = 0..session.points.axes();
    let around = axes.flat_map(|axis| session.points.neighbours(here, axis, 2));
    around.filter(|&candidate| session.is_new(candidate)).collect()
}

/// Times the farthest candidates on each axis by itself, so that the model knows what each axis does.
fn probe(session: &mut Session<'_>, reserve: usize) {
    for axis in 0..session.points.axes() {
        let around = session.points.neighbours(0, axis, usize::MAX);
        let ends = [around.last(), around.first()];
        for &candidate in ends.into_iter().flatten() {
            if session.left() > reserve {
                session.time_once(candidate);
            }
        }
    }
    // Without any that could be used there is nothing to model.
    let mut others: Vec<usize> = session.new_ones().collect();
    others.sort_by_key(|&candidate| session.points.differences(0, candidate));
    for candidate in others {
        if session.ranking().len() >= 2 || session.left() <= reserve {
            return;
        }
        session.time(candidate);
    }
}

/// Times the best and the default in turn, while there are timings left.
fn race(session: &mut Session<'_>) {
    let ranking = session.ranking();
    let Some(&(best, least)) = ranking.first() else { return };
    let mut racers: Vec<usize> =
        ranking.iter().filter(|r| r.1 <= least * (1.0 + NEAR)).map(|r| r.0).collect();
    racers.truncate(RACERS);
    if !racers.contains(&0) && session.estimate(0).is_some() {
        racers.truncate(RACERS - 1);
        racers.push(0);
    }
    if racers.len() < 2 || best == 0 && racers.len() == 1 {
        return;
    }
    let rounds = (session.left() / racers.len()).min(ROUNDS);
    if rounds > 0 {
        session.race(&racers, rounds);
    }
}
