//! Random numbers for libraries to calculate with.

/// A number from -1 to 1.
pub fn number(random: &mut fastrand::Rng) -> f64 {
    random.f64() * 2.0 - 1.0
}
