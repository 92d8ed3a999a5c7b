//! Coordinate descent: optimizes one axis after another.

use super::session::Session;

/// Maximum distance of the candidates that are tried, in steps along an ordered axis.
const RADIUS: usize = 2;

/// Moves from a candidate to the best one within reach along each axis in turn, until no axis leads to a better
/// candidate. The descent ends early if fewer than `reserve` trials are left.
pub fn descend(session: &mut Session<'_>, from: usize, reserve: usize) -> usize {
    let (mut here, mut best) = (from, session.time_once(from).unwrap_or(f64::INFINITY));
    let (mut axis, mut without) = (0, 0);
    while without < session.points.axes() {
        let mut moved = false;
        for other in session.points.neighbors(here, axis, RADIUS) {
            if session.is_new(other) && session.left() < reserve {
                return here;
            }
            if let Some(us) = session.time_once(other).filter(|us| *us < best) {
                (here, best, moved) = (other, us, true);
            }
        }
        without = if moved { 0 } else { without + 1 };
        axis = (axis + 1) % session.points.axes();
    }
    here
}
