//! A small generator of random numbers, for resampling and for the order of interleaved samples.
//!
//! SplitMix64 (Steele, Lea and Flood, 2014): 64 bits of state, every seed as good as any other, no period shorter than
//! 2^64. The same seed gives the same numbers on every machine.

/// See the [module's documentation](self).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not 0 and at most 2^32.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        (((self.bits() >> 32) * bound as u64) >> 32) as usize
    }

    /// A number from 0 (included) to 1 (not included).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution (Box and Muller's method).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Puts items in a random order, each order as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_as_they_should_be_and_the_same_for_the_same_seed() {
        let mut random = Random::new(1);
        let mut counts = [0; 5];
        (0..10_000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
        let normal: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / 1e4;
        let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e4;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(Random::new(7).bits(), Random::new(7).bits());
        assert_ne!(Random::new(7).bits(), Random::new(8).bits());
    }

    #[test]
    fn every_order_comes_up() {
        let mut random = Random::new(3);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 6);
    }
}
