//! Philox and the numbers derived from it, on the host.

use gpu_std::random::{self, Draw, Philox, philox4x32};

#[test]
fn philox_gives_the_published_vectors() {
    // These are the known-answer tests of Random123, `kat_vectors`.
    let vectors = [
        ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
        (
            [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
            [0xA409_3822, 0x299F_31D0],
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
        ),
    ];
    for (counter, key, words) in vectors {
        assert_eq!(philox4x32(counter, key), words, "{counter:x?} {key:x?}");
    }
}

#[test]
fn places_are_those_of_the_counter() {
    let (seed, subsequence) = (0x299F_31D0_A409_3822, 0x0370_7344_1319_8A2E);
    let philox = Philox::new(seed, subsequence, 0).next4();
    assert_eq!(philox, philox4x32([0, 0, 0x1319_8A2E, 0x0370_7344], [0xA409_3822, 0x299F_31D0]));
    let mut at_carry = Philox::at_block(1, 2, u64::from(u32::MAX));
    assert_eq!(at_carry.next4(), philox4x32([u32::MAX, 0, 2, 0], [1, 0]));
    assert_eq!(at_carry.next4(), philox4x32([0, 1, 2, 0], [1, 0]));
    assert_eq!(Philox::new(1, 2, 4 << 32).next4(), philox4x32([0, 1, 2, 0], [1, 0]));
    assert_eq!(Philox::new(1, 2, 7), Philox::new(1, 2, 4));
}

#[test]
fn uniform_numbers_keep_to_their_bounds() {
    assert_eq!(random::uniform(0), 2.0_f32.powi(-33));
    assert_eq!(random::uniform(u32::MAX), 1.0);
    assert_eq!(random::uniform_below_one(u32::MAX), 0.0);
    assert_eq!(random::uniform_below_one(1 << 31), 0.5);
    assert_eq!(random::uniform_f64([0; 2]), 2.0_f64.powi(-54));
    assert_eq!(random::uniform_f64([(1 << 21) - 1, u32::MAX]), 1.0);
    assert_eq!(random::uniform_f64([0, 1 << 31]), 0.5);
    assert_eq!(random::uniform_f64([u32::MAX, 0]), (u32::MAX as f64 + 0.5) * 2.0_f64.powi(-53));
    let mut philox = Philox::new(1, 2, 3);
    for _ in 0..10_000 {
        for word in philox.next4() {
            let below = random::uniform_below_one(word);
            assert!((0.0..1.0).contains(&below) && (below == random::uniform(word) || below == 0.0));
        }
    }
}

/// Computes the Box-Muller method in f64, from the two uniform numbers.
fn box_muller(first: f64, angle: f64) -> [f64; 2] {
    let radius = (-2.0 * first.ln()).sqrt();
    [radius * angle.sin(), radius * angle.cos()]
}

#[test]
fn normal_numbers_are_those_of_box_and_muller() {
    let mut philox = Philox::new(7, 0, 0);
    for _ in 0..100_000 {
        let words = philox.next4();
        let expected = box_muller(
            f64::from(random::uniform(words[0])),
            (f64::from(words[1]) + 0.5) * std::f64::consts::TAU * 2.0_f64.powi(-32),
        );
        let found = random::normal2([words[0], words[1]]).map(f64::from);
        let radius = expected[0].hypot(expected[1]);
        for (found, expected) in found.into_iter().zip(expected) {
            let allowed = 2e-6 * radius + (2e-7 / radius).min(6e-4);
            assert!((found - expected).abs() <= allowed, "{words:x?}: {found} instead of {expected}");
        }
        let bits =
            |low: u32, high: u32| (u64::from(low) ^ (u64::from(high) << 21)) as f64 * 2.0_f64.powi(-53);
        let half = 2.0_f64.powi(-54);
        let angle = (bits(words[2], words[3]) + half) * std::f64::consts::TAU;
        let expected = box_muller(bits(words[0], words[1]) + half, angle);
        let found = random::normal2_f64(words);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-14, "{words:x?}: {found} instead of {expected}");
        }
        assert_eq!(<f64 as Draw>::normal(words)[..2], found);
    }
}

#[test]
fn extreme_words_make_finite_numbers() {
    let extremes = [0, 1, u32::MAX / 4, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX - 1, u32::MAX];
    for first in extremes {
        for second in extremes {
            for value in random::normal2([first, second]) {
                assert!(value.abs() < 6.8, "{first:x} {second:x}: {value}");
            }
            for value in random::normal2_f64([first, second, second, first]) {
                assert!(value.abs() < 8.7, "{first:x} {second:x}: {value}");
            }
        }
    }
}
