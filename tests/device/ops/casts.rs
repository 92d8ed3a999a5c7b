//! `cast` between all pairs of types, on values that are critical for conversions, compared with arithmetic that
//! represents all of them exactly; `copy` and `fill`.

use std::fmt::Debug;

use half::{bf16, f16};
use warpsmith::gpu_std::Checked;
use warpsmith::ops::{self, Element};
use warpsmith::prelude::*;

use crate::common::{Random, for_types, stream};

/// A number that can be converted to every type without intermediate loss.
#[derive(Debug, Clone, Copy)]
enum Exact {
    Integer(i128),
    Float(f64),
}

/// A type for which casts are tested.
trait Kind: Element + Copy + Debug {
    const NAME: &'static str;
    fn exact(self) -> Exact;
    /// Converts like Rust's `as`.
    fn of(value: Exact) -> Self;
    /// Bits of the value; every NaN has the same.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($t:ident),*) => { $(
        impl Kind for $t {
            const NAME: &'static str = stringify!($t);
            fn exact(self) -> Exact {
                Exact::Integer(self.into())
            }
            fn of(value: Exact) -> Self {
                match value {
                    Exact::Integer(value) => value as $t,
                    Exact::Float(value) => value as $t,
                }
            }
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )* };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($t:ident),*) => { $(
        impl Kind for $t {
            const NAME: &'static str = stringify!($t);
            fn exact(self) -> Exact {
                Exact::Float(self.into())
            }
            fn of(value: Exact) -> Self {
                match value {
                    Exact::Integer(value) => value as $t,
                    Exact::Float(value) => value as $t,
                }
            }
            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { f64::from(self).to_bits() }
            }
        }
    )* };
}
floats!(f32, f64);

/// Bits of the 16-bit float nearest to `value`; `float` converts bits to a float.
fn nearest_half(value: Exact, infinity: u16, float: fn(u16) -> f64) -> u16 {
    let (is_negative, magnitude) = match value {
        Exact::Float(value) if value.is_nan() => return infinity | 1,
        Exact::Float(value) => (value.is_sign_negative(), search(infinity, float, |half| value.abs() - half)),
        // Floats of this magnitude are integers, and a difference may have more bits than a float.
        Exact::Integer(value) if value.unsigned_abs() > 1 << 40 => {
            let distance = |half: f64| value.unsigned_abs() as i128 - half as i128;
            (value < 0, search(infinity, float, distance))
        }
        Exact::Integer(value) => {
            (value < 0, search(infinity, float, |half| value.unsigned_abs() as f64 - half))
        }
    };
    magnitude | if is_negative { 1 << 15 } else { 0 }
}

/// Bits of the positive float nearest to a number, with ties to even. `distance` is the number minus a float.
fn search<D>(infinity: u16, float: fn(u16) -> f64, distance: impl Fn(f64) -> D) -> u16
where
    D: PartialOrd + Default + std::ops::Neg<Output = D>,
{
    // The last float that is not above the number.
    let (mut low, mut high) = (0, infinity - 1);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if distance(float(middle)) >= D::default() { low = middle } else { high = middle - 1 }
    }
    // The number that would follow the largest float stands for infinity.
    let next = if low + 1 == infinity { 2.0 * float(low) - float(low - 1) } else { float(low + 1) };
    let (below, above) = (distance(float(low)), -distance(next));
    if below > above || below == above && low & 1 == 1 { low + 1 } else { low }
}

macro_rules! halves {
    ($($t:ident),*) => { $(
        impl Kind for $t {
            const NAME: &'static str = stringify!($t);
            fn exact(self) -> Exact {
                Exact::Float(self.to_f64())
            }
            fn of(value: Exact) -> Self {
                let float = |bits| $t::from_bits(bits).to_f64();
                $t::from_bits(nearest_half(value, $t::INFINITY.to_bits(), float))
            }
            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_f64().to_bits() }
            }
        }
    )* };
}
halves!(f16, bf16);

impl Kind for Checked<bool> {
    const NAME: &'static str = "bool";
    fn exact(self) -> Exact {
        Exact::Integer(Checked::bits(self).into())
    }
    fn of(value: Exact) -> Self {
        match value {
            Exact::Integer(value) => (value != 0).into(),
            Exact::Float(value) => (value != 0.0).into(),
        }
    }
    fn bits(self) -> u64 {
        Checked::bits(self).into()
    }
}

/// The ends of all ranges, ties of all roundings, and their neighbors, as close as `T` can represent them.
fn edges<T: Kind>(random: &mut Random) -> Vec<T> {
    let mut integers: Vec<i128> = vec![0];
    for bit in 0..=64 {
        let power = 1_i128 << bit;
        integers.extend([power - 2, power - 1, power, power + 1, power + 2]);
        // Halfway between two floats of 8, 11, 24 and 53 bits, and its neighbors.
        for digits in [8, 11, 24, 53].into_iter().filter(|digits| *digits < bit) {
            let half = power >> digits;
            integers.extend([power + half - 1, power + half, power + half + 1, power + 3 * half]);
        }
    }
    // The largest f16 is 65504, and 65520 rounds to infinity.
    integers.extend([65503, 65504, 65505, 65519, 65520, 65521]);
    let negative: Vec<i128> = integers.iter().map(|integer| -integer).collect();
    integers.extend(negative);
    let mut values: Vec<T> = integers.iter().map(|&integer| T::of(Exact::Integer(integer))).collect();
    let mut floats =
        vec![0.0, 0.1, 0.49999997, 0.5, 0.75, 1.5, 2.5, 3.5, 126.5, 127.5, 255.5, 1e-3, f64::MIN_POSITIVE];
    floats.extend([
        f64::INFINITY,
        f64::NAN,
        f64::MAX,
        f32::MAX.into(),
        f32::MIN_POSITIVE.into(),
        1e-45,
        1e30,
        1e300,
    ]);
    // The smallest f16, half of it, and slightly more than half; the same for bf16.
    for smallest in [2.0_f64.powi(-24), 2.0_f64.powi(-133)] {
        floats.extend([
            smallest,
            smallest / 2.0,
            smallest / 2.0 * (1.0 + f64::EPSILON),
            smallest * 1.5,
            smallest * 2.5,
        ]);
    }
    floats.extend(random.values::<f64>(200, 300.0));
    floats.extend(random.values::<f64>(200, 1e5));
    floats.extend(random.values::<f64>(200, 1e19));
    values.extend(floats.iter().flat_map(|&float| [T::of(Exact::Float(float)), T::of(Exact::Float(-float))]));
    values
}

fn check<T: Kind, U: Kind>(stream: &Stream, random: &mut Random) {
    let values = edges::<T>(random);
    let from = DeviceBuffer::from_host(stream, &values).unwrap();
    let mut to = DeviceBuffer::<U>::uninit(stream, values.len()).unwrap();
    ops::cast(stream, &from, &mut to).unwrap();
    for (value, converted) in values.iter().zip(to.to_host().unwrap()) {
        let expected = U::of(value.exact());
        assert_eq!(
            converted.bits(),
            expected.bits(),
            "{value:?} from {} to {} is {converted:?} instead of {expected:?}, seed {}",
            T::NAME,
            U::NAME,
            random.seed
        );
    }
}

fn check_to_all<T: Kind>() {
    let (stream, mut random) = (stream(), Random::new());
    macro_rules! to {
        ($($u:ty),*) => { $(check::<T, $u>(&stream, &mut random);)* };
    }
    to!(f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, Checked<bool>);
}

#[test]
fn floats_cast_to_all_types_as_rust_does() {
    for_types!(check_to_all: f32, f64, f16, bf16);
}

#[test]
fn small_integers_cast_to_all_types_as_rust_does() {
    for_types!(check_to_all: i8, u8, i16, u16, Checked<bool>);
}

#[test]
fn large_integers_cast_to_all_types_as_rust_does() {
    for_types!(check_to_all: i32, u32, i64, u64);
}

/// An invalid `bool` byte is a number other than 0.
#[test]
fn invalid_bools_cast_as_bytes() {
    let stream = stream();
    let bytes = DeviceBuffer::from_host(&stream, &[0_u8, 1, 2, 255]).unwrap();
    let flags = bytes.as_slice().cast::<Checked<bool>>().unwrap();
    let mut numbers = DeviceBuffer::<i32>::uninit(&stream, 4).unwrap();
    ops::cast(&stream, flags, &mut numbers).unwrap();
    assert_eq!(numbers.to_host().unwrap(), [0, 1, 2, 255]);
    let mut valid = DeviceBuffer::<Checked<bool>>::uninit(&stream, 4).unwrap();
    ops::cast(&stream, flags, &mut valid).unwrap();
    assert_eq!(valid.to_host().unwrap()[..], *Checked::from_slice(&[false, true, true, true]));
}

/// Checks every length and start up to a vector and beyond; the surrounding elements must not change.
fn check_copy_and_fill<T: Kind>() {
    let (stream, mut random) = (&stream(), Random::new());
    let values = edges::<T>(&mut random);
    let bits = |values: &[T]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
    let from = DeviceBuffer::from_host(stream, &values).unwrap();
    let kept = T::of(Exact::Integer(1));
    for (start, to_start, n) in
        [(0, 0, 1), (1, 0, 15), (0, 1, 16), (3, 3, 17), (1, 2, 33), (5, 7, 700), (0, 0, 0)]
    {
        let mut to = DeviceBuffer::from_host(stream, &[kept; 720]).unwrap();
        ops::copy(stream, from.slice(start..start + n), to.slice_mut(to_start..to_start + n)).unwrap();
        let mut expected = vec![kept; 720];
        expected[to_start..to_start + n].copy_from_slice(&values[start..start + n]);
        assert_eq!(bits(&to.to_host().unwrap()), bits(&expected), "{n} of {}, seed {}", T::NAME, random.seed);
        let value = values[values.len() / 3];
        ops::fill(stream, value, to.slice_mut(to_start..to_start + n)).unwrap();
        expected[to_start..to_start + n].fill(value);
        assert_eq!(bits(&to.to_host().unwrap()), bits(&expected), "{n} of {}, seed {}", T::NAME, random.seed);
    }
}

#[test]
fn elements_of_every_size_are_copied_and_filled() {
    for_types!(check_copy_and_fill: i8, u8, i16, u16, u32, i64, f16, bf16, f32, f64, Checked<bool>);
}
