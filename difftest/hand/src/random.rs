//! Kernels that use crates of random numbers.

use difftest_support::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::{Pcg32, Pcg64Mcg};
use rand_xoshiro::{SplitMix64, Xoroshiro128Plus, Xoshiro256PlusPlus};

/// Draws some numbers and bytes of a generator.
fn draw(mut random: impl RngCore, s: &mut State) {
    for _ in 0..5 {
        s.add(random.next_u64());
        s.add(random.next_u32() as u64);
    }
    let mut bytes = [0; 13];
    random.fill_bytes(&mut bytes);
    s.add(bytes.iter().fold(0, |h, b| mix(h, u64::from(*b))));
}

kernels! {
    /// `rand_pcg`.
    rand_pcg_draws(c, s) {
        draw(Pcg32::seed_from_u64(c.w(1)), s);
        draw(Pcg64Mcg::seed_from_u64(c.w(2)), s);
    }
    /// `rand_xoshiro`.
    rand_xoshiro_draws(c, s) {
        draw(Xoshiro256PlusPlus::seed_from_u64(c.w(1)), s);
        draw(Xoroshiro128Plus::seed_from_u64(c.w(2)), s);
        draw(SplitMix64::seed_from_u64(c.w(3)), s);
    }
    /// `rand_chacha`.
    rand_chacha_draws(c, s) { draw(ChaCha8Rng::seed_from_u64(c.w(1)), s); }
    /// `rand_core`: a custom block generator.
    rand_core_impls(c, s) {
        struct Counter(u64);
        impl RngCore for Counter {
            fn next_u32(&mut self) -> u32 { self.next_u64() as u32 }
            fn next_u64(&mut self) -> u64 { self.0 = mix(self.0, 1); self.0 }
            fn fill_bytes(&mut self, dest: &mut [u8]) { rand_core::impls::fill_bytes_via_next(self, dest); }
            fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> { self.fill_bytes(dest); Ok(()) }
        }
        draw(Counter(c.w(1)), s);
    }
    /// `oorandom`.
    oorandom_draws(c, s) {
        let mut random = oorandom::Rand64::new(c.w(1) as u128);
        for _ in 0..4 { s.add(random.rand_u64()); s.add(random.rand_range(5..1000)); }
        let mut random = oorandom::Rand32::new(c.w(2));
        s.add(random.rand_u32() as u64);
        s.add(bits32(random.rand_float()));
        s.add(random.rand_i32() as u64);
    }
    /// `fastrand`.
    fastrand_draws(c, s) {
        let mut random = fastrand::Rng::with_seed(c.w(1));
        let mut list: [u16; 20] = core::array::from_fn(|k| k as u16);
        random.shuffle(&mut list);
        for x in list { s.add(x as u64); }
        s.add(random.u64(3..));
        s.add(random.i8(-5..=5) as u64);
        s.add(bits64(random.f64()));
        s.add(random.char('a'..='z') as u64);
    }
}
