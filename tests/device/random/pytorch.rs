//! PyTorch's own numbers, as it made them on an H200 (2.11, `torch.Generator` with [`SEED`] and [`OFFSET`]).
//!
//! Of what is the same bit by bit, a sum over all elements is compared: of the bits of each, times 1, 3, 5, … in order, modulo
//! 2^64. Of normal and exponential numbers, those at the places [`AT`].

use half::{bf16, f16};
use warpsmith::DeviceCopy;
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use super::model::{filled, generator};
use crate::common::stream;

const SEED: u64 = 20_261_122;
const OFFSET: u64 = 16;
/// Some more than two steps of an H200, whose multiprocessors and threads these are.
const NUMBERS: usize = 2_500_001;
const H200: (u32, u32) = (132, 2048);
const AT: [usize; 12] =
    [0, 1, 255, 256, 270_335, 270_336, 540_672, 1_081_343, 1_081_344, 2_162_688, 2_499_999, 2_500_000];

trait Bits: DeviceCopy {
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($type:ty: $self:ident => $bits:expr;)*) => {$(
        impl Bits for $type {
            fn bits($self) -> u64 {
                $bits
            }
        }
    )*};
}

bits! {
    f32: self => self.to_bits().into();
    f64: self => self.to_bits();
    f16: self => self.to_bits().into();
    bf16: self => self.to_bits().into();
    u8: self => self.into();
    i32: self => self.cast_unsigned().into();
    i64: self => self.cast_unsigned();
}

/// Numbers drawn from where PyTorch's began; fails unless as many are taken as PyTorch took.
fn drawn<T: DeviceCopy>(
    taken: u64,
    fill: impl FnOnce(&Stream, &Generator, &mut DeviceBuffer<T>) -> warpsmith::Result<()>,
) -> Vec<T> {
    let (stream, generator) = (stream(), generator(H200, SEED, OFFSET));
    let found = filled(&stream, NUMBERS, |out| fill(&stream, &generator, out));
    assert_eq!(generator.offset().unwrap(), OFFSET + taken);
    found
}

fn sum<T: Bits>(numbers: Vec<T>) -> u64 {
    let weighted = numbers.into_iter().zip((1u64..).step_by(2));
    weighted.fold(0, |sum, (number, weight)| sum.wrapping_add(number.bits().wrapping_mul(weight)))
}

#[test]
fn uniform_numbers_are_pytorchs() {
    let uniform = drawn::<f32>(12, |stream, generator, out| random::uniform(stream, generator, out));
    let bits = [
        0x3f7a_f6f8,
        0x3f6a_5ad2,
        0x3f4d_868b,
        0x3e9e_9d1d,
        0x3da0_26da,
        0x3e98_ba12,
        0x3eb8_1440,
        0x3f09_21e6,
        0x3ea7_ef54,
        0x3eff_6906,
        0x3ecf_cbdf,
        0x3f0a_7c09,
    ];
    assert_eq!(AT.map(|at| uniform[at].to_bits()), bits);
    assert_eq!(sum(uniform), 0xb0da_7f2c_b90e_7d08);
    let found = sum(drawn::<f64>(20, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x3e0e_3354_8f46_5ba8);
    let found = sum(drawn::<f16>(12, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x0132_dcbe_6ca8_23a5);
    let found = sum(drawn::<bf16>(12, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x0163_fa64_6556_8ea4);
    let range = -2.5..7.0;
    let found =
        sum(drawn::<f32>(12, |stream, generator, out| random::uniform_in(stream, generator, out, range)));
    assert_eq!(found, 0x430c_43d3_e3cc_805a);
}

#[test]
fn bernoulli_numbers_are_pytorchs() {
    for (p, of_f32, of_u8) in [
        (0.9, 0xc844_7323_5a00_0000, 0x0000_051d_5bc9_5f4c),
        (0.3, 0x6273_765f_fc00_0000, 0x0000_01b4_f3b5_4408),
    ] {
        let found = drawn::<f32>(12, |stream, generator, out| random::bernoulli(stream, generator, out, p));
        assert_eq!(sum(found), of_f32, "{p}");
        let found = drawn::<u8>(12, |stream, generator, out| random::bernoulli(stream, generator, out, p));
        assert_eq!(sum(found), of_u8, "{p}");
    }
}

#[test]
fn integers_are_pytorchs() {
    let narrow =
        drawn::<i32>(12, |stream, generator, out| random::integers(stream, generator, out, -7..1000));
    assert_eq!(sum(narrow), 0x1ea0_b5e4_3f86_c0d1);
    let of_i32 = i32::MIN..i32::MAX;
    let wide = drawn::<i32>(20, |stream, generator, out| random::integers(stream, generator, out, of_i32));
    assert_eq!(sum(wide), 0xe8bb_6059_e001_456b);
    for (range, taken, expected) in [
        (-7..1000, 12, 0x000b_0474_3f86_c0d1),
        (0..1 << 28, 20, 0x81d2_3688_cdb1_5ac5),
        (3..1 << 60, 20, 0x8eed_da5e_6ae8_5d79),
    ] {
        let within = range.clone();
        let found =
            drawn::<i64>(taken, |stream, generator, out| random::integers(stream, generator, out, within));
        assert_eq!(sum(found), expected, "{range:?}");
    }
}

/// Fails unless the numbers at [`AT`] are within `bound` of PyTorch's.
fn check_near<T: Into<f64> + Copy>(what: &str, found: &[T], expected: [f64; 12], bound: f64) {
    for (at, expected) in AT.into_iter().zip(expected) {
        let found: f64 = found[at].into();
        assert!((found - expected).abs() <= bound, "{what}: element {at} is {found}, {expected} expected");
    }
}

#[test]
fn normal_and_exponential_numbers_are_pytorchs_but_for_rounding() {
    // The bound of single precision where both of a pair are not near 0, see `gpu_std::random::normal2`.
    let (single, double) = (1e-5, 1e-14);
    let found = drawn::<f32>(12, |stream, generator, out| random::normal(stream, generator, out, 0.0, 1.0));
    check_near(
        "normal f32",
        &found,
        [
            0.19021765887737274,
            -0.397228479385376,
            -0.3688226640224457,
            -0.261042982339859,
            2.0436365604400635,
            -0.059559740126132965,
            0.551230788230896,
            -0.6910367012023926,
            -1.2468184232711792,
            -0.8511378169059753,
            -0.9225077629089355,
            -1.607331395149231,
        ],
        single,
    );
    let found = drawn::<f32>(12, |stream, generator, out| random::normal(stream, generator, out, 2.0, 0.5));
    check_near(
        "normal 2 0.5 f32",
        &found,
        [
            2.0951087474823,
            1.801385760307312,
            1.8155887126922607,
            1.869478464126587,
            3.021818161010742,
            1.9702200889587402,
            2.2756154537200928,
            1.6544816493988037,
            1.3765907287597656,
            1.57443106174469,
            1.5387461185455322,
            1.1963343620300293,
        ],
        single,
    );
    let found = drawn::<f32>(12, |stream, generator, out| random::exponential(stream, generator, out, 1.5));
    check_near(
        "exponential 1.5 f32",
        &found,
        [
            0.013243353925645351,
            0.058894239366054535,
            0.14640465378761292,
            0.7812351584434509,
            1.698997974395752,
            0.8064490556716919,
            0.6819726824760437,
            0.41615355014801025,
            0.7431654930114746,
            0.46363565325737,
            0.6011772751808167,
            0.40961259603500366,
        ],
        single,
    );
    let found = drawn::<f64>(20, |stream, generator, out| random::normal(stream, generator, out, 0.0, 1.0));
    check_near(
        "normal f64",
        &found,
        [
            0.5994283062058713,
            -0.13610783902929896,
            0.9263975763375086,
            -0.022978931806379433,
            -0.41152983503968676,
            1.4352806794390236,
            0.25574643779955925,
            0.7585309994181607,
            0.186439731773927,
            1.686822949184414,
            0.035452785308745405,
            1.6100593754828487,
        ],
        double,
    );
    let found = drawn::<f64>(20, |stream, generator, out| random::normal(stream, generator, out, 2.0, 0.5));
    check_near(
        "normal 2 0.5 f64",
        &found,
        [
            2.2997141531029355,
            1.9319460804853505,
            2.4631987881687545,
            1.9885105340968103,
            1.7942350824801565,
            2.717640339719512,
            2.1278732188997798,
            2.3792654997090805,
            2.0932198658869634,
            2.843411474592207,
            2.0177263926543727,
            2.8050296877414245,
        ],
        double,
    );
    let found = drawn::<f64>(20, |stream, generator, out| random::exponential(stream, generator, out, 1.5));
    check_near(
        "exponential 1.5 f64",
        &found,
        [
            0.8064483076839283,
            0.24066399590401744,
            0.347327622710476,
            0.018433394366852554,
            1.1426765857422958,
            1.843454136353348,
            0.11407534771863716,
            0.15148871818130613,
            0.309806797054,
            0.9550561696109823,
            0.17082703224113682,
            0.0715763186626324,
        ],
        double,
    );
}
